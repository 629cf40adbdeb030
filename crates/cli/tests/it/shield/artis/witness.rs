// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What lent tasks do in the kernel on a real-time CPU, as rtscope's own recorder saw it: nothing here asks the scheduler.
//!
//! A *section* is what a task that is not RT0 does in the kernel there, from its entry (a system call, a page fault, a signal) until
//! the CPU goes to another task. Sections are there: whoever is taken back comes to the CPU's next decision by the kernel. The bound is
//! on how long they last.
//!
//! Durations mean nothing in an emulator: the CPUs of a guest alternate, and its host takes them all away at will, while their
//! clocks go on. What it does not spoil is what the CPU itself does in a section, and what it had been told by then: each event says
//! whether a reschedule was asked for (ftrace's flag). Who has to leave is told so at the entry, and goes as soon as the CPU may
//! switch. So the bound is [`TICKS`] ticks that the CPU handled within a section *without having been told* to switch, however slowly
//! it got there; and whatever shows that a section ran to its end there (the system call's return, a sleep, the task's own end)
//! is beyond any bound.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The bound: one tick may come between the recorder's look at the entry and the scheduler's.
pub const TICKS: usize = 1;
/// A reschedule was asked for (TRACE_FLAG_NEED_RESCHED in the kernel's include/linux/trace_events.h); not the lazy one, which lets a
/// task in the kernel go on.
const TOLD: u64 = 0x04;
const EVENTS: &str = "sched:sched_switch,raw_syscalls:sys_enter,raw_syscalls:sys_exit,exceptions:page_fault_user,\
    signal:signal_deliver,irq_vectors:local_timer_entry";

/// What is known of a task beside what was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// A Linux task.
    Linux,
    /// RT1: it comes back to the CPU at the very end of a system call. The scheduler's program and the recorder's are called one after the
    /// other there, and on PREEMPT_RT it may go in between: then the end of a call is recorded on the CPU to which it came back.
    Rt1,
    /// It may use no other CPU, so that nobody can take it elsewhere.
    Bound,
}

/// What a recording shows of one CPU.
#[derive(Debug, Default)]
pub struct Seen {
    /// Times that the CPU went to a task that is lent it: neither RT0 nor the kernel's nor bound to it.
    pub lent: u64,
    /// Of these, times that it went to another task again, by the untold ticks of the section before that; none: in user mode.
    pub left: BTreeMap<Option<usize>, u64>,
    /// What is beyond any bound, in words.
    pub beyond: Vec<String>,
    /// Times that RT1 came back at the end of a system call, as far as it was seen.
    pub came_back: u64,
    /// System calls of tasks that are bound to the CPU, which nobody can take elsewhere.
    pub of_bound: u64,
    /// Times that RT0 got it.
    pub rt0: u64,
    /// Entries of the recorder's summary of what it lost.
    pub lost: u64,
}

impl Seen {
    /// Sections that were recorded.
    pub fn sections(&self) -> u64 {
        self.left.iter().filter(|(ticks, _)| ticks.is_some()).map(|(_, count)| count).sum()
    }

    pub fn add(&mut self, other: Seen) {
        self.lent += other.lent;
        self.came_back += other.came_back;
        self.of_bound += other.of_bound;
        self.rt0 += other.rt0;
        self.lost += other.lost;
        self.beyond.extend(other.beyond);
        for (ticks, count) in other.left {
            *self.left.entry(ticks).or_default() += count;
        }
    }
}

/// Records a CPU for some seconds and reads what was there. Where something was lost, nothing but that is told: a switch that is missing
/// would give what one task did to another.
///
/// # Errors
///
/// The recorder's words, when it could not record.
pub fn watch(directory: &Path, cpu: u32, seconds: u64, task: impl Fn(u32) -> Task) -> Result<Seen, String> {
    let mut kernels = kernel_threads();
    let trace = directory.join("trace");
    let rtscope = || crate::command::rtscope();
    let output = rtscope()
        .args(["record", "--with-self", "--json", "--cpu", &cpu.to_string(), "-k", EVENTS])
        .args(["--duration", &format!("{seconds}s"), "-o"])
        .arg(&trace)
        .output()
        .expect("it runs");
    let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(format!("{}: {why}{said}", output.status));
    }
    let account: serde_json::Value = serde_json::from_str(&said).expect("its account");
    let losses = account["losses"].as_array().expect("a list");
    let output = rtscope().args(["print", "--format", "csv"]).arg(&trace).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    kernels.extend(kernel_threads());
    let is_kernel = |tid: u32| kernels.contains(&tid);
    let seen = read(&String::from_utf8_lossy(&output.stdout), cpu, is_kernel, task);
    fs::remove_dir_all(trace).expect("ours");
    let lost = losses.len() as u64;
    Ok(if lost > 0 { Seen { lost, ..Seen::default() } } else { seen })
}

fn kernel_threads() -> BTreeSet<u32> {
    // All are children of kthreadd, which is 2; the name may have spaces.
    let parent = |tid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let all = fs::read_dir("/proc").expect("mounted").flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter(|tid| *tid == 2 || parent(*tid) == Some(2)).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Idle,
    Rt0,
    Kernel,
    /// A task that may use no other CPU.
    Bound,
    Rt1,
    Linux,
}

impl Kind {
    fn is_lent(self) -> bool {
        matches!(self, Kind::Rt1 | Kind::Linux)
    }
}

/// Who has the CPU.
#[derive(Debug)]
struct Running {
    tid: u32,
    kind: Kind,
    /// Untold ticks since it entered the kernel; `None`: it is in user mode, for all that was seen.
    section: Option<usize>,
    entered_by: String,
    /// It has done nothing since it got the CPU.
    is_new: bool,
}

/// Reads lines `TIME,CPU,EVENT,PID,TID,COMM,FIELDS`.
pub fn read(csv: &str, cpu: u32, kernel: impl Fn(u32) -> bool, task: impl Fn(u32) -> Task) -> Seen {
    let kind = |tid: u32, name: &str| {
        // Workers come and go.
        if kernel(tid) || name.starts_with("kworker/") {
            return Kind::Kernel;
        }
        match task(tid) {
            Task::Linux => Kind::Linux,
            Task::Rt1 => Kind::Rt1,
            Task::Bound => Kind::Bound,
        }
    };
    let mut seen = Seen::default();
    let mut running: Option<Running> = None;
    let cpu = cpu.to_string();
    for line in csv.lines() {
        let mut columns = line.splitn(7, ',');
        let (Some(time), Some(at), Some(event), Some(fields)) =
            (columns.next(), columns.next(), columns.next(), columns.nth(3))
        else {
            continue;
        };
        if at != cpu || event.starts_with("lttng_statedump") {
            continue;
        }
        if event == "sched_switch" {
            if let Some(before) = running.take() {
                leave(&mut seen, before, fields, line);
            }
            running = Some(next(&mut seen, fields, &kind));
            continue;
        }
        let Some(now) = running.as_mut() else { continue };
        if event.ends_with("local_timer_entry") {
            let flags = field(fields, "irq_flags").and_then(|text| text.strip_prefix("0x"));
            let flags =
                flags.and_then(|digits| u64::from_str_radix(digits, 16).ok()).expect("each event has them");
            let untold = usize::from(flags & TOLD == 0);
            now.section = now.section.map(|ticks| ticks + untold);
            continue;
        }
        if !now.kind.is_lent() {
            seen.of_bound += u64::from(now.kind == Kind::Bound && event == "sys_enter");
            continue;
        }
        let is_new = std::mem::replace(&mut now.is_new, false);
        if event == "sys_exit" && is_new && now.kind == Kind::Rt1 {
            seen.came_back += 1;
        } else if event == "sys_exit" {
            seen.beyond.push(format!("a system call ended there, {} {time}: {line}", now.entered_by));
            now.section = None;
        } else {
            if now.section.is_some() {
                seen.beyond.push(format!("one section after another, {}: {line}", now.entered_by));
            }
            now.section = Some(0);
            now.entered_by = format!("{event} at {time}");
        }
    }
    seen
}

/// The CPU goes from this task to another one.
fn leave(seen: &mut Seen, before: Running, fields: &str, line: &str) {
    if !before.kind.is_lent() {
        return;
    }
    *seen.left.entry(before.section).or_default() += 1;
    if before.section.is_some_and(|ticks| ticks > TICKS) {
        seen.beyond.push(format!("{:?} ticks after {}: {line}", before.section, before.entered_by));
    }
    // Who only waits for a CPU is in state 0.
    if field(fields, "prev_state") != Some("0") {
        let how = if before.section.is_some() { before.entered_by.as_str() } else { "no entry there" };
        seen.beyond.push(format!("task {} slept or ended there after {how}: {line}", before.tid));
    }
}

fn next(seen: &mut Seen, fields: &str, kind: &impl Fn(u32, &str) -> Kind) -> Running {
    let number = |name: &str| field(fields, name).and_then(|text| text.parse::<i64>().ok());
    let tid = number("next_tid").expect("each switch has it") as u32;
    // As LTTng has it: 0 is nice -20.
    let is_real_time = number("next_prio").expect("each switch has it") < 0;
    let kind = match (tid, kind(tid, field(fields, "next_comm").unwrap_or_default())) {
        (0, _) => Kind::Idle,
        (_, Kind::Kernel) => Kind::Kernel,
        (_, _) if is_real_time => Kind::Rt0,
        (_, kind) => kind,
    };
    seen.lent += u64::from(kind.is_lent());
    seen.rt0 += u64::from(kind == Kind::Rt0);
    Running { tid, kind, section: None, entered_by: String::new(), is_new: true }
}

/// `NAME=VALUE` among others. A value with spaces in it is cut at the first, which no number has.
fn field<'a>(fields: &'a str, name: &str) -> Option<&'a str> {
    fields.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}
