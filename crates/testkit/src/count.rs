// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The oracle of completeness: counts events per CPU with perf's counters, and states exactly between which two times.
//!
//! It shares nothing with rtscope: perf attaches a function of its own to a tracepoint and adds 1, without a sample, a buffer or an
//! eBPF program that could be skipped. All counters of a CPU are one group, which one system call reads at one instant with
//! interrupts off.
//!
//! A counter and a clock cannot be read at the same instant. So a [`Mark`] has the clock before and after, read by a
//! thread with real-time priority on that CPU: the counters had their values at some time between. Two marks make a
//! [`Window`]: a recording has to have at least the events of its inner part and at most those of its outer part, and the
//! few in between are in the recording itself, to be counted, not estimated.

use std::ffi::CString;
use std::fs::{File, read_to_string};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};

use crate::sched::{self, Policy};
use crate::skip;
use crate::time::now_ns;

/// perf's name for tracepoints (PERF_TYPE_TRACEPOINT in linux/perf_event.h).
const TYPE_TRACEPOINT: u32 = 2;
/// A read gives all values of the group (PERF_FORMAT_GROUP).
const FORMAT_GROUP: u64 = 1 << 3;
/// PERF_EVENT_IOC_SET_FILTER: _IOW('$', 6, char *).
const IOCTL_SET_FILTER: libc::c_ulong = 0x4008_2406;
const FLAG_CLOEXEC: libc::c_ulong = 1 << 3;
/// Above every thread that is measured, so that few events happen while a mark is taken.
const MARK_POLICY: Policy = Policy::Fifo(98);

/// The first version of `struct perf_event_attr`, which every kernel takes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// Counters of some tracepoints on all CPUs; they count from the start.
#[derive(Debug)]
pub struct Counters {
    events: Vec<String>,
    cpus: Vec<(usize, Vec<File>)>,
}

/// The counters of one CPU at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The CPU.
    pub cpu: usize,
    /// CLOCK_MONOTONIC before the counters were read.
    pub before_ns: u64,
    /// CLOCK_MONOTONIC after they were read.
    pub after_ns: u64,
    /// One for each event, in the order of [`Counters::events`].
    pub counts: Vec<u64>,
}

/// The events on one CPU between two marks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The first mark.
    pub from: Mark,
    /// The second mark.
    pub until: Mark,
}

impl Window {
    /// How many events of this index there were.
    pub fn count(&self, event: usize) -> u64 {
        self.until.counts[event] - self.from.counts[event]
    }

    /// Whether an event of this time was counted: certainly, certainly not, or unknown.
    pub fn place(&self, time_ns: u64) -> Place {
        if (self.from.after_ns..self.until.before_ns).contains(&time_ns) {
            Place::Inside
        } else if (self.from.before_ns..=self.until.after_ns).contains(&time_ns) {
            Place::AtTheEdge
        } else {
            Place::Outside
        }
    }
}

/// Where an event lies, seen from a [`Window`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It was counted.
    Inside,
    /// While a mark was taken.
    AtTheEdge,
    /// It was not counted.
    Outside,
}

impl Counters {
    /// Counts these tracepoints, like `sched:sched_switch`, on every CPU that is online.
    pub fn open<S: AsRef<str>>(events: &[S]) -> Result<Counters> {
        let ids = events.iter().map(|event| id(event.as_ref())).collect::<Result<Vec<u64>>>()?;
        ensure!(!ids.is_empty(), "no event to count");
        let mut cpus = Vec::new();
        for cpu in online_cpus()? {
            let mut group: Vec<File> = Vec::new();
            for (id, event) in ids.iter().zip(events) {
                let leader = group.first().map_or(-1, AsRawFd::as_raw_fd);
                let counter = open(*id, cpu, leader)
                    .with_context(|| format!("counting {} on CPU {cpu}", event.as_ref()))?;
                group.push(counter);
            }
            cpus.push((cpu, group));
        }
        Ok(Counters { events: events.iter().map(|event| event.as_ref().to_owned()).collect(), cpus })
    }

    /// The same at the beginning of a test: `None`, and the reason reported, where that cannot be had.
    pub fn for_test<S: AsRef<str>>(events: &[S]) -> Option<Counters> {
        Counters::open(events).map_err(|error| skip::say(format_args!("{error:#}"))).ok()
    }

    /// Only events for which this expression over their fields holds (`common_pid == 75`), from now on.
    pub fn filter(&self, expression: &str) -> Result<()> {
        (0..self.events.len()).try_for_each(|number| self.filter_one(number, expression))
    }

    /// The same for one of the events, by its place in [`Counters::events`].
    pub fn filter_one(&self, event: usize, expression: &str) -> Result<()> {
        let text = CString::new(expression)?;
        for (_, group) in &self.cpus {
            // SAFETY: the descriptor belongs to a counter of ours, which lives throughout; the kernel reads the text up to its
            // zero.
            let result = unsafe { libc::ioctl(group[event].as_raw_fd(), IOCTL_SET_FILTER, text.as_ptr()) };
            ensure!(result == 0, "filter '{expression}': {}", io::Error::last_os_error());
        }
        Ok(())
    }

    /// The tracepoints that are counted.
    pub fn events(&self) -> &[String] {
        &self.events
    }

    /// Reads all counters, one CPU after the other.
    pub fn mark(&self) -> Result<Vec<Mark>> {
        let read = |(cpu, group): &(usize, Vec<File>)| -> Result<Mark> {
            sched::pin_to_cpu(*cpu)?;
            sched::set_policy(MARK_POLICY)?;
            read_mark(*cpu, &group[0], self.events.len())
        };
        let on_its_cpu = |group| {
            thread::scope(|scope| scope.spawn(|| read(group)).join())
                .map_err(|_| anyhow!("a mark panicked"))?
        };
        self.cpus.iter().map(on_its_cpu).collect()
    }
}

/// Pairs the marks of two times.
pub fn windows(from: Vec<Mark>, until: Vec<Mark>) -> Vec<Window> {
    from.into_iter().zip(until).map(|(from, until)| Window { from, until }).collect()
}

fn read_mark(cpu: usize, mut group: &File, events: usize) -> Result<Mark> {
    // The number of values, then the values (PERF_FORMAT_GROUP in perf_event_open(2)).
    let mut bytes = vec![0; (events + 1) * 8];
    let before_ns = now_ns();
    let length = group.read(&mut bytes)?;
    let after_ns = now_ns();
    ensure!(length == bytes.len(), "a group of {events} counters gave {length} bytes");
    let mut values =
        bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
    ensure!(
        values.next() == Some(events as u64),
        "the group has another number of counters than were opened"
    );
    Ok(Mark { cpu, before_ns, after_ns, counts: values.collect() })
}

/// A tracepoint's number.
fn id(event: &str) -> Result<u64> {
    let (system, name) =
        event.split_once(':').with_context(|| format!("'{event}' is not like sched:sched_switch"))?;
    let roots = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let root = roots
        .iter()
        .find(|root| Path::new(root).join("events").is_dir())
        .context("tracefs is not mounted")?;
    let file = format!("{root}/events/{system}/{name}/id");
    let text = read_to_string(&file).with_context(|| format!("this kernel has no tracepoint {event}"))?;
    text.trim().parse().with_context(|| format!("{file}: {text}"))
}

fn online_cpus() -> Result<Vec<usize>> {
    let text = read_to_string("/sys/devices/system/cpu/online").context("which CPUs are online")?;
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<usize>()?..=last.parse::<usize>()?);
    }
    Ok(cpus)
}

fn open(id: u64, cpu: usize, leader: i32) -> Result<File> {
    let attributes = Attributes {
        kind: TYPE_TRACEPOINT,
        size: u32::try_from(size_of::<Attributes>())?,
        config: id,
        read_format: FORMAT_GROUP,
        ..Attributes::default()
    };
    let cpu = i32::try_from(cpu)?;
    let pointer = &raw const attributes;
    // SAFETY: the structure is a live local of the size that it names, which the kernel only reads; the other arguments
    // are plain numbers (all tasks, one CPU, a descriptor or -1, a flag).
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, pointer, -1, cpu, leader, FLAG_CLOEXEC) };
    let fd = i32::try_from(fd)?;
    if fd < 0 {
        return Err(io::Error::last_os_error()).context("perf_event_open (needs root or CAP_PERFMON)");
    }
    // SAFETY: the kernel has just returned this descriptor to us, and no other code has it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(before_ns: u64, after_ns: u64, count: u64) -> Mark {
        Mark { cpu: 0, before_ns, after_ns, counts: vec![count] }
    }

    #[test]
    fn a_window_has_an_inside_and_edges() {
        let window = windows(vec![mark(10, 12, 5)], vec![mark(20, 23, 9)]).remove(0);
        assert_eq!(window.count(0), 4);
        let places = [9, 10, 11, 12, 19, 20, 23, 24].map(|time| window.place(time));
        use Place::{AtTheEdge as E, Inside as I, Outside as O};
        assert_eq!(places, [O, E, E, I, I, E, E, O]);
    }

    #[test]
    fn a_name_that_is_not_an_event_is_an_error() {
        assert!(id("sched_switch").is_err_and(|error| error.to_string().contains("is not like")));
    }
}
