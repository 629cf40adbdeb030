// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A unit's rings on each CPU, and beside each the ring of what tasks did there; written to a perf.data, either while they are filled or
//! when they have been frozen.
//!
//! AUX data goes from the mapping to the file: this process never copies it.

use super::comparators::Comparators;
use super::unit::{RecordedTasks, UnitPlan};
use crate::Failure;
use rtscope_hardware::capture::{
    CaptureInfo, CaptureMode, ClockOffset, CpuCapture, Frozen, PERF_DATA, SCHEMA,
};
use rtscope_hardware::perfdata::{AuxFlags, AuxPlace, EventRequest, Feature, PerfWriter, WrittenEvent};
use rtscope_hardware::pt::PerfClock;
use rtscope_kernel::perf::{PerfEvent, RingSize};
use rtscope_programs::clock::{Pair, counter_kind};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

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
    /// The tasks of this process, and those that it starts; `None`: all.
    pub task: Option<u32>,
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

/// Of a CPU.
#[derive(Debug)]
struct CpuRings {
    unit: PerfEvent,
    tasks: PerfEvent,
    /// AUX data that was taken.
    tail: u64,
    /// Its circle has been full once.
    has_wrapped: bool,
    /// The AUX area was full at the last look.
    was_full: bool,
    counts: CpuCapture,
}

/// Of a machine.
#[derive(Debug)]
pub(crate) struct UnitRings {
    plan: UnitPlan,
    config: RingsConfig,
    events: [WrittenEvent; 2],
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
            EventRequest { inherit: config.task.is_some(), from_exec: config.from_exec, ..plan.request };
        let tasks = EventRequest { overwrites: is_snapshot, ..EventRequest::of_tasks(&unit) };
        let filter = config.comparators.filter();
        let mut cpus = Vec::new();
        for cpu in &config.cpus {
            let open = |request: &EventRequest, bytes, aux| {
                let ring = RingSize { bytes, overwrites: request.overwrites };
                PerfEvent::open(&request.bytes(), (config.task, Some(*cpu)), ring, aux)
            };
            let aux = RingSize { bytes: config.aux_bytes, overwrites: is_snapshot };
            let unit = open(&unit, UNIT_RING_BYTES, Some(aux))
                .map_err(|error| refused(&plan, *cpu, &config, &error))?;
            if let Some(filter) = &filter {
                unit.filter(filter).map_err(|error| {
                    Failure::system(
                        format!("setting the address comparators of {} (--at)", plan.pmu.name),
                        &error,
                    )
                })?;
            }
            let tasks = open(&tasks, TASKS_RING_BYTES, None)
                .map_err(|error| Failure::system(format!("recording what tasks do on CPU {cpu}"), &error))?;
            let counts = CpuCapture { cpu: *cpu, ..CpuCapture::default() };
            cpus.push(CpuRings { unit, tasks, tail: 0, has_wrapped: false, was_full: false, counts });
        }
        let failed = |error: io::Error| Failure::system("asking for the numbers of events", &error);
        let ids = |of: fn(&CpuRings) -> &PerfEvent| {
            cpus.iter().map(|cpu| of(cpu).id()).collect::<io::Result<Vec<u64>>>().map_err(failed)
        };
        let events = [
            WrittenEvent { attribute: unit.bytes(), ids: ids(|cpu| &cpu.unit)? },
            WrittenEvent { attribute: tasks.bytes(), ids: ids(|cpu| &cpu.tasks)? },
        ];
        let mut rings =
            UnitRings { plan, config, events, cpus, clock: None, first_offset_ns: None, buffer: Vec::new() };
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

    /// What becomes readable when there is something to be taken.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.cpus.iter().flat_map(|cpu| [cpu.unit.as_fd(), cpu.tasks.as_fd()])
    }

    /// Switches all on.
    pub fn enable(&self) -> Result<(), Failure> {
        let on = |cpu: &CpuRings| {
            cpu.tasks.enable()?;
            cpu.tasks.pause_records(false)?;
            cpu.unit.enable()
        };
        self.cpus.iter().try_for_each(on).map_err(|error| Failure::system("switching the unit on", &error))
    }

    /// Switches all off: what is in them stays as it is.
    pub fn freeze(&self) -> Result<(), Failure> {
        // The units first, all of them: each moment more overwrites what is wanted.
        let off = |error: io::Error| Failure::system("switching the unit off", &error);
        self.cpus.iter().try_for_each(|cpu| cpu.unit.disable()).map_err(off)?;
        self.cpus.iter().try_for_each(|cpu| cpu.tasks.pause_records(true)).map_err(off)
    }

    /// Begins the recording's file, in a directory that is there.
    pub fn begin(&self, directory: &Path) -> Result<PerfWriter, Failure> {
        let path = directory.join(PERF_DATA);
        let failed = |error: io::Error| Failure::system(format!("writing {}", path.display()), &error);
        let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
        let mut writer = PerfWriter::create(file, &self.events).map_err(failed)?;
        let recorded = RecordedTasks {
            is_snapshot: self.config.mode == CaptureMode::Snapshot,
            whole_cpus: self.config.task.is_none(),
            filter: self.config.comparators.written(),
        };
        let (kind, words) = self.plan.auxtrace_info(self.clock, &recorded);
        writer.encoder().auxtrace_info(kind, &words);
        if let Some(clock) = &self.clock {
            writer.encoder().time_conversion(clock);
        }
        Ok(writer)
    }

    /// Takes what has come since the last time, of full traces. `is_last`: nothing more will come.
    pub fn drain(&mut self, writer: &mut PerfWriter, is_last: bool) -> io::Result<()> {
        for (index, cpu) in (0..).zip(&mut self.cpus) {
            let is_full = cpu.take_records(writer, &mut self.buffer)?;
            // Records of perf.data are multiples of 8 bytes, and so are pieces of a stream that goes on.
            let head = cpu.unit.aux_head();
            let until = if is_last { head } else { head & !7 };
            if until > cpu.tail {
                let part = cpu.tail..until;
                cpu.write(part, index, writer)?;
                cpu.unit.release_aux(until);
                cpu.tail = until;
            }
            if !is_last {
                cpu.go_on(is_full)?;
            }
        }
        writer.encoder().finished_round();
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
        let clock = self.first_offset_ns.zip(self.offset_ns());
        let info = CaptureInfo {
            schema: SCHEMA.to_owned(),
            producer: format!("rtscope {}", env!("CARGO_PKG_VERSION")),
            unit: self.plan.pmu.name.clone(),
            config: self.plan.config,
            mode: self.config.mode,
            aux_buffer_bytes: self.config.aux_bytes as u64,
            clock: clock
                .map(|(first, last)| ClockOffset { offset_ns: last, drift_ns: last.wrapping_sub(first) }),
            frozen,
            places: self.config.comparators.places().to_vec(),
            cpus: self.cpus.iter().map(|cpu| cpu.counts).collect(),
        };
        info.write(directory).map_err(failed)?;
        Ok(info)
    }
}

impl CpuRings {
    /// Switches the unit on again once an area that was full has room.
    ///
    /// The kernel means to disable the event then. Linux 6.12 does not: the driver has stopped the unit, the event counts as active, and
    /// enabling it changes nothing until it has been disabled. A kernel that does may do so after this, so the next look enables it once
    /// more; what is enabled stays as it is.
    fn go_on(&mut self, is_full: bool) -> io::Result<()> {
        if is_full {
            self.unit.disable()?;
        }
        if is_full || self.was_full {
            self.unit.enable()?;
        }
        self.was_full = is_full;
        Ok(())
    }

    /// Takes the records of both rings. Whether the AUX area was full.
    fn take_records(&mut self, writer: &mut PerfWriter, buffer: &mut Vec<u8>) -> io::Result<bool> {
        buffer.clear();
        self.unit.records(buffer);
        self.tasks.records(buffer);
        let before = self.counts.truncated;
        let mut rest = &buffer[..];
        while let Some((record, behind)) = first_record(rest) {
            self.count(record);
            rest = behind;
        }
        writer.records(buffer)?;
        Ok(self.counts.truncated > before)
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
        Some(libc::EINVAL) => {
            format!("{name} on CPU {cpu}: the unit cannot do that: config={:#x}", plan.config[0])
        }
        _ => return Failure::system(format!("{name} on CPU {cpu}"), error),
    };
    Failure::Missing(text)
}
