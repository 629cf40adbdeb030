// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A unit's rings on each CPU, and beside each the ring of what tasks did there; written to a perf.data, either while they are filled or
//! when they have been frozen.
//!
//! AUX data goes from the mapping to the file: this process never copies it.

use super::comparators::Comparators;
use super::unit::{RecordedTasks, UnitPlan};
use crate::Failure;
use nix::poll::{PollFd, PollFlags, ppoll};
use rtscope_hardware::capture::{
    CaptureInfo, CaptureMode, ClockOffset, CpuCapture, Frozen, PERF_DATA, SCHEMA,
};
use rtscope_hardware::perfdata::{
    ATTRIBUTE_BYTES, AuxFlags, AuxPlace, EventRequest, Feature, PerfWriter, WrittenEvent,
};
use rtscope_hardware::pt::PerfClock;
use rtscope_kernel::perf::{PerfEvent, PerfHandle, RingSize};
use rtscope_programs::clock::{Pair, counter_kind};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Records of a unit: some for each time that it is switched on or off.
const UNIT_RING_BYTES: usize = 64 << 10;
/// Records of tasks: a switch has some 60 bytes.
const TASKS_RING_BYTES: usize = 512 << 10;

/// Numbers of records (linux/perf_event.h).
const RECORD_LOST: u32 = 2;
const RECORD_AUX: u32 = 11;
const RECORD_LOST_SAMPLES: u32 = 13;

/// What is captured.
#[derive(Clone, Debug)]
pub(crate) struct RingsConfig {
    /// Which tasks.
    pub tasks: TracedTasks,
    /// Also those that they start.
    pub with_children: bool,
    /// From when it executes a program.
    pub from_exec: bool,
    /// On these CPUs.
    pub cpus: Vec<u32>,
    /// Bytes of each AUX area: a power of two.
    pub aux_bytes: usize,
    /// How they are used.
    pub mode: CaptureMode,
    /// Where the unit traces.
    pub comparators: Comparators,
}

/// Whose instructions are traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TracedTasks {
    /// Everybody's.
    All,
    /// Those of these threads; of none, if they have ended.
    Only(Vec<u32>),
}

impl TracedTasks {
    /// As events are opened for them.
    fn each(&self) -> Vec<Option<u32>> {
        match self {
            TracedTasks::All => vec![None],
            TracedTasks::Only(tids) => tids.iter().copied().map(Some).collect(),
        }
    }
}

/// Of a CPU.
#[derive(Debug)]
struct CpuRings {
    unit: PerfEvent,
    tasks: PerfEvent,
    /// Of further tasks, into the memory of these two: of the unit, and of what they do.
    others: Vec<[PerfHandle; 2]>,
    /// AUX data that was taken.
    tail: u64,
    /// Its circle has been full once.
    has_wrapped: bool,
    /// The AUX area was full at the last look.
    was_full: bool,
    /// Whose descriptors tell that something has come, in the order of `handles()`: those before have hung up.
    watched: usize,
    counts: CpuCapture,
}

/// Of a machine.
#[derive(Debug)]
pub(crate) struct UnitRings {
    plan: UnitPlan,
    config: RingsConfig,
    /// Attributes of the unit's events, and of those of what tasks do.
    attributes: [[u8; ATTRIBUTE_BYTES]; 2],
    cpus: Vec<CpuRings>,
    clock: Option<PerfClock>,
    /// CLOCK_MONOTONIC less perf's clock, when they were opened.
    first_offset_ns: Option<i64>,
    buffer: Vec<u8>,
}

impl UnitRings {
    /// Opens all of them, switched off.
    pub fn open(plan: UnitPlan, config: RingsConfig) -> Result<UnitRings, Failure> {
        let is_snapshot = config.mode == CaptureMode::Snapshot;
        let unit =
            EventRequest { inherit: config.with_children, from_exec: config.from_exec, ..plan.request };
        let tasks = EventRequest { overwrites: is_snapshot, ..EventRequest::of_tasks(&unit) };
        let (of_unit, of_tasks) = (unit.bytes(), tasks.bytes());
        let open = OpenTasks { plan: &plan, config: &config, unit: &of_unit, tasks: &of_tasks };
        let cpus = config.cpus.iter().map(|cpu| open.on(*cpu)).collect::<Result<Vec<CpuRings>, Failure>>()?;
        let attributes = [of_unit, of_tasks];
        let (clock, first_offset_ns, buffer) = (None, None, Vec::new());
        let mut rings = UnitRings { plan, config, attributes, cpus, clock, first_offset_ns, buffer };
        rings.clock = rings.read_clock();
        rings.first_offset_ns = rings.offset_ns();
        Ok(rings)
    }

    fn read_clock(&self) -> Option<PerfClock> {
        let conversion = self.cpus.first()?.unit.time_conversion()?;
        Some(PerfClock { shift: conversion.shift, mult: conversion.mult, zero: conversion.zero })
    }

    fn offset_ns(&self) -> Option<i64> {
        let pair = Pair::now(counter_kind());
        Some(pair.monotonic_ns.wrapping_sub(self.read_clock()?.nanoseconds(pair.counter)) as i64)
    }

    /// How many CPUs have rings.
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// AUX data that was taken so far.
    pub fn aux_bytes(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.counts.aux_bytes).sum()
    }

    /// Waits until a ring has come to its watermark, or for this long; a signal ends it, too.
    ///
    /// A descriptor whose task has ended is readable for ever, and says nothing more of the ring that others write into: then one of these is asked.
    pub fn wait(&mut self, most: Duration) {
        let until = Instant::now() + most;
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            let (mut watched, mut cpus) = (Vec::new(), Vec::new());
            for (number, cpu) in self.cpus.iter().enumerate() {
                for handle in cpu.handles().nth(cpu.watched).into_iter().flatten() {
                    watched.push(PollFd::new(handle.as_fd(), PollFlags::POLLIN));
                    cpus.push(number);
                }
            }
            if watched.is_empty() {
                return std::thread::sleep(rest);
            }
            // Whatever came: the caller looks at all of it again.
            let _ = ppoll(&mut watched, Some(rest.into()), None);
            let over =
                |fd: &PollFd<'_>| fd.revents().is_some_and(|events| events.contains(PollFlags::POLLHUP));
            let over: BTreeSet<usize> =
                cpus.into_iter().zip(&watched).filter(|(_, fd)| over(fd)).map(|(cpu, _)| cpu).collect();
            if over.is_empty() || rest.is_zero() {
                return;
            }
            over.into_iter().for_each(|cpu| self.cpus[cpu].watched += 1);
        }
    }

    /// Opens events of further threads of the traced process, until there are no new ones; `list` has all. False: they never stopped coming.
    ///
    /// A thread that a traced one has started meanwhile has inherited the events of those CPUs whose turn had been: there the kernel refuses a second one.
    pub fn add_new_threads(&mut self, list: impl Fn() -> Vec<u32>) -> Result<bool, Failure> {
        const ROUNDS: usize = 10;
        for _ in 0..ROUNDS {
            let TracedTasks::Only(known) = &mut self.config.tasks else { return Ok(true) };
            let new: Vec<u32> = list().into_iter().filter(|tid| !known.contains(tid)).collect();
            if new.is_empty() {
                return Ok(true);
            }
            known.extend(&new);
            let open = OpenTasks {
                plan: &self.plan,
                config: &self.config,
                unit: &self.attributes[0],
                tasks: &self.attributes[1],
            };
            for cpu in &mut self.cpus {
                for tid in &new {
                    open.late(cpu, *tid)?;
                }
            }
        }
        Ok(false)
    }

    /// Records what tasks do, from now on.
    pub fn enable_tasks(&self) -> Result<(), Failure> {
        let on = |cpu: &CpuRings| {
            cpu.handles().try_for_each(|[_, tasks]| tasks.enable())?;
            cpu.tasks.handle().pause_records(false)
        };
        self.cpus.iter().try_for_each(on).map_err(|error| Failure::system("recording what tasks do", &error))
    }

    /// Switches all on.
    pub fn enable(&self) -> Result<(), Failure> {
        self.enable_tasks()?;
        let on = |cpu: &CpuRings| cpu.handles().try_for_each(|[unit, _]| unit.enable());
        self.cpus.iter().try_for_each(on).map_err(|error| Failure::system("switching the unit on", &error))
    }

    /// Switches all off: what is in them stays as it is.
    pub fn freeze(&self) -> Result<(), Failure> {
        // The units first, all of them: each moment more overwrites what is wanted.
        let off = |error: io::Error| Failure::system("switching the unit off", &error);
        self.cpus.iter().flat_map(CpuRings::handles).try_for_each(|[unit, _]| unit.disable()).map_err(off)?;
        self.cpus.iter().try_for_each(|cpu| cpu.tasks.handle().pause_records(true)).map_err(off)
    }

    /// Begins the recording's file, in a directory that is there.
    pub fn begin(&self, directory: &Path) -> Result<PerfWriter, Failure> {
        let path = directory.join(PERF_DATA);
        let failed = |error: io::Error| Failure::system(format!("writing {}", path.display()), &error);
        let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
        let events = [self.written(0).map_err(failed)?, self.written(1).map_err(failed)?];
        let mut writer = PerfWriter::create(file, &events).map_err(failed)?;
        let recorded = RecordedTasks {
            is_snapshot: self.config.mode == CaptureMode::Snapshot,
            whole_cpus: self.config.tasks == TracedTasks::All,
            filter: self.config.comparators.written(),
        };
        let (kind, words) = self.plan.auxtrace_info(self.clock, &recorded);
        writer.encoder().auxtrace_info(kind, &words);
        if let Some(clock) = &self.clock {
            writer.encoder().time_conversion(clock);
        }
        // As far as it is known: if this process is killed, what was written can still be read.
        self.info(None, None).write(directory).map_err(failed)?;
        Ok(writer)
    }

    /// Events of all tasks: the unit's, or those of what tasks do.
    fn written(&self, which: usize) -> io::Result<WrittenEvent> {
        let handles = self.cpus.iter().flat_map(CpuRings::handles);
        let ids = handles.map(|pair| pair[which].id()).collect::<io::Result<Vec<u64>>>()?;
        Ok(WrittenEvent { attribute: self.attributes[which], ids })
    }

    /// The capture's description. `end`: CLOCK_MONOTONIC less perf's clock, if the kernel tells that; `None`: it has not come.
    fn info(&self, end: Option<Option<i64>>, frozen: Option<Frozen>) -> CaptureInfo {
        let clock = self.first_offset_ns.and_then(|first| match end {
            None => Some(ClockOffset { offset_ns: first, drift_ns: None }),
            Some(last) => {
                last.map(|last| ClockOffset { offset_ns: last, drift_ns: Some(last.wrapping_sub(first)) })
            }
        });
        CaptureInfo {
            schema: SCHEMA.to_owned(),
            producer: format!("rtscope {}", env!("CARGO_PKG_VERSION")),
            unit: self.plan.pmu.name.clone(),
            config: self.plan.config,
            complete: end.is_some(),
            mode: self.config.mode,
            aux_buffer_bytes: self.config.aux_bytes as u64,
            clock,
            frozen,
            places: self.config.comparators.places().to_vec(),
            cpus: self.cpus.iter().map(|cpu| cpu.counts).collect(),
        }
    }

    /// Takes what has come since the last time, of full traces. `is_last`: nothing more will come.
    pub fn drain(&mut self, writer: &mut PerfWriter, is_last: bool) -> io::Result<()> {
        let mut has_any = is_last;
        for (index, cpu) in (0..).zip(&mut self.cpus) {
            let is_full = cpu.take_records(writer, &mut self.buffer)?;
            has_any |= !self.buffer.is_empty();
            // Records of perf.data are multiples of 8 bytes, and so are pieces of a stream that goes on.
            let head = cpu.unit.aux_head();
            let until = if is_last { head } else { head & !7 };
            if until > cpu.tail {
                has_any = true;
                let part = cpu.tail..until;
                cpu.write(part, index, writer)?;
                cpu.unit.release_aux(until);
                cpu.tail = until;
            }
            if !is_last {
                cpu.go_on(is_full)?;
            }
        }
        if has_any {
            writer.encoder().finished_round();
        }
        Ok(())
    }

    /// Writes what frozen circles hold, from the oldest on.
    pub fn save(&mut self, writer: &mut PerfWriter) -> io::Result<()> {
        for (index, cpu) in (0..).zip(&mut self.cpus) {
            cpu.counts = CpuCapture { cpu: cpu.counts.cpu, ..CpuCapture::default() };
            cpu.take_records(writer, &mut self.buffer)?;
            let size = self.config.aux_bytes;
            // A unit's head may be a place in the circle, or a sum.
            let head = cpu.unit.aux_head() as usize & (size - 1);
            cpu.has_wrapped |= cpu.unit.is_aux_used(head.next_multiple_of(8).min(size)..size);
            let (from, until) = if cpu.has_wrapped { (head, head + size) } else { (0, head) };
            if until > from {
                cpu.write(from as u64..until as u64, index, writer)?;
            }
        }
        writer.encoder().finished_round();
        Ok(())
    }

    /// Ends the file, and describes the capture beside it.
    pub fn end(
        &self,
        writer: PerfWriter,
        directory: &Path,
        frozen: Option<Frozen>,
    ) -> Result<CaptureInfo, Failure> {
        let texts = machine_texts();
        let failed = |error: io::Error| Failure::system(format!("writing {}", directory.display()), &error);
        writer.finish(&texts).map_err(failed)?;
        let info = self.info(Some(self.offset_ns()), frozen);
        info.write(directory).map_err(failed)?;
        Ok(info)
    }
}

/// What opens events.
struct OpenTasks<'a> {
    plan: &'a UnitPlan,
    config: &'a RingsConfig,
    /// Attributes of the unit's event, and of that of what tasks do.
    unit: &'a [u8],
    tasks: &'a [u8],
}

impl OpenTasks<'_> {
    /// On a CPU: the first task's events have the memory, those of the others write there. A task that has ended meanwhile is none.
    fn on(&self, cpu: u32) -> Result<CpuRings, Failure> {
        let mut rings: Option<CpuRings> = None;
        for task in self.config.tasks.each() {
            let opened = match (&mut rings, task) {
                (Some(rings), Some(task)) => self.beside(rings, task, cpu),
                (rings, task) => self.first(task, cpu).map(|first| *rings = Some(first)),
            };
            match opened {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                opened => opened.map_err(|error| refused(self.plan, cpu, self.config, &error))?,
            }
        }
        rings.ok_or_else(|| Failure::Usage("the process has ended before it could be traced".to_owned()))
    }

    /// Of a thread that started meanwhile.
    fn late(&self, rings: &mut CpuRings, task: u32) -> Result<(), Failure> {
        let cpu = rings.counts.cpu;
        match self.beside(rings, task, cpu).map_err(|error| (error.raw_os_error(), error)) {
            Err((Some(libc::EBUSY | libc::ESRCH), _)) => Ok(()),
            Err((_, error)) => Err(refused(self.plan, cpu, self.config, &error)),
            Ok(()) => Ok(()),
        }
    }

    fn first(&self, task: Option<u32>, cpu: u32) -> io::Result<CpuRings> {
        let overwrites = self.config.mode == CaptureMode::Snapshot;
        let aux = RingSize { bytes: self.config.aux_bytes, overwrites };
        // The ring that AUX data is announced in never overwrites: its reader is told where that begins.
        let records = RingSize { bytes: UNIT_RING_BYTES, overwrites: false };
        let unit = PerfEvent::open(self.unit, (task, Some(cpu)), records, Some(aux))?;
        self.filter(unit.handle())?;
        let records = RingSize { bytes: TASKS_RING_BYTES, overwrites };
        let tasks = PerfEvent::open(self.tasks, (task, Some(cpu)), records, None).map_err(of_tasks)?;
        let counts = CpuCapture { cpu, ..CpuCapture::default() };
        let others = Vec::new();
        Ok(CpuRings { unit, tasks, others, tail: 0, has_wrapped: false, was_full: false, watched: 0, counts })
    }

    fn beside(&self, rings: &mut CpuRings, task: u32, cpu: u32) -> io::Result<()> {
        let unit = rings.unit.open_beside(self.unit, task, cpu)?;
        self.filter(&unit)?;
        let tasks = rings.tasks.open_beside(self.tasks, task, cpu).map_err(of_tasks)?;
        rings.others.push([unit, tasks]);
        Ok(())
    }

    fn filter(&self, unit: &PerfHandle) -> io::Result<()> {
        let wrong = |error| io::Error::other(format!("setting its address comparators (--at): {error}"));
        self.config.comparators.filter().map_or(Ok(()), |filter| unit.filter(&filter).map_err(wrong))
    }
}

/// A task that has ended stays one.
fn of_tasks(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ESRCH) => error,
        _ => io::Error::other(format!("recording what tasks do: {error}")),
    }
}

impl CpuRings {
    /// Of each task: the unit's event, and that of what it does.
    fn handles(&self) -> impl Iterator<Item = [&PerfHandle; 2]> {
        let others = self.others.iter().map(|[unit, tasks]| [unit, tasks]);
        std::iter::once([self.unit.handle(), self.tasks.handle()]).chain(others)
    }

    /// Switches the unit on again once an area that was full has room.
    ///
    /// The kernel means to disable the event then. Linux 6.12 does not: the driver has stopped the unit, the event counts as active, and
    /// enabling it changes nothing until it has been disabled. A kernel that does may do so after this, so the next look enables it once
    /// more; what is enabled stays as it is.
    fn go_on(&mut self, is_full: bool) -> io::Result<()> {
        // Which of them the kernel has disabled is not told; one after the other, so that the others are off for a moment only.
        for [unit, _] in self.handles().filter(|_| is_full || self.was_full) {
            if is_full {
                unit.disable()?;
            }
            unit.enable()?;
        }
        self.was_full = is_full;
        Ok(())
    }

    /// Takes the records of both rings. Whether the AUX area was full.
    fn take_records(&mut self, writer: &mut PerfWriter, buffer: &mut Vec<u8>) -> io::Result<bool> {
        buffer.clear();
        self.unit.records(buffer);
        self.tasks.records(buffer);
        // The record that says so may itself have found no room.
        let signs = |counts: &CpuCapture| (counts.truncated, counts.lost_records);
        let before = signs(&self.counts);
        let mut rest = &buffer[..];
        while let Some((record, behind)) = first_record(rest) {
            self.count(record);
            rest = behind;
        }
        writer.records(buffer)?;
        Ok(signs(&self.counts) != before)
    }

    fn count(&mut self, record: &[u8]) {
        let word = |index: usize| {
            let bytes = record.get(8 + index * 8..)?.first_chunk::<8>()?;
            Some(u64::from_ne_bytes(*bytes))
        };
        let counts = &mut self.counts;
        match kind(record) {
            RECORD_AUX => {
                let flags = AuxFlags(word(2).unwrap_or(0));
                counts.aux_records += 1;
                counts.truncated += u64::from(flags.is_truncated());
                counts.partial += u64::from(flags.is_partial());
                counts.collisions += u64::from(flags.is_collision());
            }
            RECORD_LOST => counts.lost_records += word(1).unwrap_or(0),
            RECORD_LOST_SAMPLES => counts.lost_records += word(0).unwrap_or(0),
            _ => {}
        }
    }

    fn write(&mut self, part: std::ops::Range<u64>, index: u32, writer: &mut PerfWriter) -> io::Result<()> {
        let bytes = part.end - part.start;
        let place = AuxPlace { bytes, offset: part.start, index, cpu: self.counts.cpu };
        writer.aux(place, |file, header| self.unit.write_aux(part, file, header))?;
        self.counts.aux_bytes += bytes;
        Ok(())
    }
}

fn kind(record: &[u8]) -> u32 {
    record.first_chunk::<4>().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// The first record, and what is behind it.
fn first_record(records: &[u8]) -> Option<(&[u8], &[u8])> {
    const HEADER: usize = 8;
    let size = usize::from(u16::from_ne_bytes(*records.get(6..)?.first_chunk::<2>()?));
    (size >= HEADER && size <= records.len()).then(|| records.split_at(size))
}

fn machine_texts() -> Vec<(Feature, String)> {
    let read = |feature, path: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        Some((feature, text.trim().to_owned()))
    };
    let texts = [
        read(Feature::Hostname, "/proc/sys/kernel/hostname"),
        read(Feature::Release, "/proc/sys/kernel/osrelease"),
    ];
    texts.into_iter().flatten().collect()
}

/// What the kernel does not let us have, and what may help.
fn refused(plan: &UnitPlan, cpu: u32, config: &RingsConfig, error: &io::Error) -> Failure {
    let name = &plan.pmu.name;
    let text = match error.raw_os_error() {
        Some(libc::EBUSY) => {
            format!("{name} on CPU {cpu}: somebody else uses it; end that (perf record, another rtscope)")
        }
        Some(libc::EACCES) => format!(
            "{name} on CPU {cpu}: the kernel does not let this process trace that; whole CPUs and the kernel need root, CAP_PERFMON or \
             kernel.perf_event_paranoid=-1, and your own programs need {name}//u"
        ),
        Some(libc::EPERM | libc::ENOMEM) => format!(
            "{name} on CPU {cpu}: there are not {} bytes of memory for it that may be locked ({error}); make --buffer smaller, or be root",
            config.aux_bytes
        ),
        Some(libc::EMFILE) => format!(
            "{name} on CPU {cpu}: each thread takes two files on each CPU, and there are {} threads: raise the limit (ulimit -Hn), or choose CPUs (--cpu)",
            config.tasks.each().len()
        ),
        Some(libc::EINVAL) => {
            format!("{name} on CPU {cpu}: the unit cannot do that: config={:#x}", plan.config[0])
        }
        _ => return Failure::system(format!("{name} on CPU {cpu}"), error),
    };
    Failure::Missing(text)
}
