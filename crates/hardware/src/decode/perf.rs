// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A perf.data as a capture: its AUX data as streams, by buffer, with who ran when; and whether its samples have branch stacks.

use super::clock::Conversion;
use super::open::{Capture, DecodeError, Piece, Settings, Stream, StreamKind, sources};
use super::pt::{PlaceNames, PtSettings};
use crate::capture::CapturedPlace;
use crate::coresight::Framing;
use crate::etm::{ptm, v3, v4};
use crate::perfdata::{
    AuxKind, AuxSegment, AuxtraceInfo, EtmCpu, EtmInfo, Feature, PerfError, PerfFile, Record, RecordBody,
};
use crate::program::{Memory, Program};
use crate::pt::PerfClock;
use crate::pt::time::ClockConfig;
use crate::trace::{HardwareEvent, LossReason};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// When which process and thread came, by time.
type Came = (u64, (u32, u32));

/// Mappings that are kept: a system has some for each process.
const MAPPED_MAX: usize = 1 << 16;
/// Each place of a program costs its functions again; processes with addresses of their own share few.
const PLACES_MAX: usize = 64;
/// Address comparators that a unit may have.
const COMPARATORS_MAX: usize = 16;

/// A part of a file that was mapped to be executed.
struct Mapped {
    start: u64,
    length: u64,
    /// Where in the file it begins.
    offset: u64,
    file: String,
}

/// What a first pass over the records finds.
#[derive(Default)]
struct Found {
    info: Option<AuxtraceInfo>,
    /// The processor's counter on perf's clock.
    counter: Option<PerfClock>,
    segments: Vec<AuxSegment>,
    /// AUX bytes that the kernel says it wrote.
    written: u64,
    is_overwrite: bool,
    is_raw: bool,
    by_cpu: BTreeMap<u32, Vec<Came>>,
    processes: BTreeMap<u32, u32>,
    /// What was mapped to be executed.
    mapped: Vec<Mapped>,
    /// What was asked of each PMU.
    configs: BTreeMap<u32, u64>,
    /// Numbers in frames, by CPU.
    hardware_ids: BTreeMap<u32, u8>,
    losses: Vec<HardwareEvent>,
    /// Where data was cut off because a buffer was full, by CPU: what follows begins anew.
    cuts: BTreeMap<u32, BTreeSet<u64>>,
    has_branches: bool,
    records: u64,
    damage: Option<String>,
}

impl Found {
    fn record(&mut self, record: &Record<'_>) {
        self.records += 1;
        let (time, cpu) = (record.id.time, record.id.cpu);
        match &record.body {
            RecordBody::AuxtraceInfo(info) => self.info = Some(info.clone()),
            RecordBody::Auxtrace(segment) => self.segments.push(*segment),
            RecordBody::TimeConversion(clock) if clock.mult != 0 => self.counter = Some(*clock),
            RecordBody::Aux { offset, size, flags } => {
                // Any number, which nothing of it has to be there for.
                self.written = self.written.saturating_add(*size);
                if let Some(cpu) = cpu.filter(|_| flags.is_truncated() && !flags.is_overwrite()) {
                    self.cuts.entry(cpu).or_default().insert(offset.saturating_add(*size));
                }
                self.is_overwrite |= flags.is_overwrite();
                self.is_raw |= flags.is_raw();
                if flags.is_truncated() || flags.is_partial() {
                    self.lost(record);
                }
            }
            RecordBody::Lost { .. } => self.lost(record),
            RecordBody::TraceStart { pid, tid } => {
                self.processes.insert(*tid, *pid);
                self.came(cpu, time, (*pid, *tid));
            }
            RecordBody::Switch { out: false, .. } => {
                if let Some(thread) = record.id.pid.zip(record.id.tid) {
                    self.came(cpu, time, thread);
                }
            }
            RecordBody::Mmap { start, length, page_offset, executable, file, pid } => {
                // The old record is written for code only; process -1 is the kernel.
                let is_code = executable.unwrap_or(true) && *pid != u32::MAX && !file.starts_with(b"[");
                if is_code && self.mapped.len() < MAPPED_MAX {
                    self.mapped.push(Mapped {
                        start: *start,
                        length: *length,
                        offset: *page_offset,
                        file: String::from_utf8_lossy(file).into_owned(),
                    });
                }
            }
            RecordBody::Comm { pid, tid, .. } => _ = self.processes.insert(*tid, *pid),
            RecordBody::HardwareId(id) => {
                if let Some(cpu) = cpu {
                    self.hardware_ids.insert(cpu, u8::try_from(id & 0x7f).unwrap_or(0));
                }
            }
            RecordBody::Sample(sample) => self.has_branches |= sample.branches().len() > 0,
            _ => {}
        }
    }

    fn came(&mut self, cpu: Option<u32>, time: Option<u64>, thread: (u32, u32)) {
        if let Some((cpu, time)) = cpu.zip(time) {
            self.by_cpu.entry(cpu).or_default().push((time, thread));
        }
    }

    fn lost(&mut self, record: &Record<'_>) {
        let mut event = HardwareEvent::lost(LossReason::Buffer, 0);
        (event.time_ns, event.cpu) = (record.id.time, record.id.cpu);
        self.losses.push(event);
    }

    /// By buffer; AUX data of one buffer is one stream, as far as its pieces follow each other.
    fn buffers(&self) -> BTreeMap<u32, (Vec<Piece>, AuxSegment)> {
        let mut buffers: BTreeMap<u32, (Vec<Piece>, AuxSegment)> = BTreeMap::new();
        let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
        for segment in &self.segments {
            let (pieces, _) = buffers.entry(segment.index).or_insert_with(|| (Vec::new(), *segment));
            let follows = ends.get(&segment.index).is_none_or(|end| *end == segment.offset);
            // A circle that was saved: what is in it begins anywhere.
            let is_apart = !pieces.is_empty() && !follows;
            self.add_pieces(segment, is_apart, pieces);
            ends.insert(segment.index, segment.offset.wrapping_add(segment.size));
        }
        buffers
    }

    /// A segment, in pieces where a cut is inside it: a packet that was cut off would else swallow the begin of what follows.
    fn add_pieces(&self, segment: &AuxSegment, is_apart: bool, pieces: &mut Vec<Piece>) {
        let none = BTreeSet::new();
        let cuts = segment.cpu.and_then(|cpu| self.cuts.get(&cpu)).unwrap_or(&none);
        let end = segment.offset.saturating_add(segment.there);
        let (mut from, mut is_apart) = (segment.offset, is_apart || cuts.contains(&segment.offset));
        for cut in cuts.range(segment.offset.saturating_add(1)..end.max(segment.offset.saturating_add(1))) {
            pieces.push(Piece { at: segment.at + (from - segment.offset), bytes: cut - from, is_apart });
            (from, is_apart) = (*cut, true);
        }
        pieces.push(Piece {
            at: segment.at + (from - segment.offset),
            bytes: end.saturating_sub(from),
            is_apart,
        });
    }

    /// Those of each CPU, by time. Any number of buffers may be of one CPU, and share them.
    fn timelines(&self) -> BTreeMap<u32, Arc<[Came]>> {
        let sorted = |came: &Vec<Came>| {
            let mut came: Arc<[Came]> = came.as_slice().into();
            if let Some(came) = Arc::get_mut(&mut came) {
                came.sort_by_key(|(time, _)| *time);
            }
            came
        };
        self.by_cpu.iter().map(|(cpu, came)| (*cpu, sorted(came))).collect()
    }

    /// The unit's ticks. Arm's units count as the processor's counter does; an ETM only where its driver says so, as perf takes them.
    fn conversion(&self, info: &AuxtraceInfo, hz: Option<u64>) -> Conversion {
        let is_virtual = |cpu: &EtmCpu| matches!(cpu, EtmCpu::Etm4 { has_virtual_timestamps: true, .. });
        let recording = match (&info.kind, &info.etm) {
            (AuxKind::IntelPt | AuxKind::IntelBts, _) => info.clock,
            (AuxKind::ArmSpe, _) => self.counter,
            (AuxKind::CsEtm, Some(etm)) if etm.cpus.iter().all(is_virtual) => self.counter,
            _ => None,
        };
        Conversion { recording, hz }
    }

    fn threads(&self, segment: &AuxSegment, timelines: &BTreeMap<u32, Arc<[Came]>>) -> Arc<[Came]> {
        if let Some(tid) = segment.tid {
            // A buffer of one thread. Of a thread that nothing else is known of, its number stands for its process.
            return [(0, (self.processes.get(&tid).copied().unwrap_or(tid), tid))].into();
        }
        segment.cpu.and_then(|cpu| timelines.get(&cpu)).cloned().unwrap_or_default()
    }
}

pub(super) fn open(path: &Path, file: &Arc<File>, settings: &Settings) -> Result<Capture, DecodeError> {
    let failed = |source| DecodeError::Perf { path: path.to_owned(), source };
    let mut perf = PerfFile::open(file.clone()).map_err(failed)?;
    let is_unfinished = perf.is_unfinished;
    let mut found = Found::default();
    loop {
        match perf.next_record() {
            Ok(Some(record)) => found.record(&record),
            Ok(None) => break,
            Err(error @ (PerfError::Truncated { .. } | PerfError::Malformed { .. })) if found.records > 0 => {
                found.damage = Some(error.to_string());
                break;
            }
            Err(error) => return Err(failed(error)),
        }
    }
    found.configs = perf.events().iter().map(|event| (event.pmu, event.config)).collect();
    let mut capture = Capture {
        samples: found.has_branches.then(|| file.clone()),
        damage: found.damage.take(),
        losses: std::mem::take(&mut found.losses),
        machine: (
            perf.text(Feature::Hostname).map_err(failed)?,
            perf.text(Feature::Release).map_err(failed)?,
        ),
        clock: clock_name(perf.events().iter().find_map(|event| event.clock)),
        ..Capture::default()
    };
    if is_unfinished {
        capture.notes.push("the recorder did not write the file's end; what is there is read".to_owned());
    }
    let memory = Arc::new(memory(&found, settings, &mut capture.notes)?);
    streams(&found, file, settings, &memory, &mut capture)
        .map_err(|source| DecodeError::Io { path: path.to_owned(), source })?;
    missing(&found, &mut capture);
    if capture.streams.is_empty() && capture.samples.is_none() && capture.missing_bytes == 0 {
        let why = match &found.info {
            Some(info) if found.segments.is_empty() => {
                format!("the unit ({}) has written nothing", info.kind.name())
            }
            Some(info) => format!("its AUX data is of {}", info.kind.name()),
            None => "it has neither AUX data nor branch stacks (perf record -b)".to_owned(),
        };
        return Err(DecodeError::Nothing { path: path.to_owned(), why });
    }
    Ok(capture)
}

/// The clock that was chosen, by its number in `linux/time.h`.
fn clock_name(clock: Option<i32>) -> String {
    let name = match clock {
        Some(0) => "CLOCK_REALTIME",
        Some(1) => "CLOCK_MONOTONIC",
        Some(4) => "CLOCK_MONOTONIC_RAW",
        Some(7) => "CLOCK_BOOTTIME",
        Some(_) => "another clock",
        None => "perf's clock",
    };
    name.to_owned()
}

/// The programs that the user names, where the recording says that a file of that name was mapped.
///
/// Files are not looked for by the recording's paths: on another machine, or after an update, another program is there.
fn memory(found: &Found, settings: &Settings, notes: &mut Vec<String>) -> Result<Memory, DecodeError> {
    let mut memory = Memory::default();
    for named in &settings.programs {
        let program = Program::read(&named.path)?;
        let name = named.path.file_name();
        let mapped = found.mapped.iter().filter(|mapped| Path::new(&mapped.file).file_name() == name);
        let biases = mapped.filter_map(|mapped| program.bias(mapped.start, mapped.offset));
        let biases: BTreeSet<u64> = biases.filter(|_| named.address.is_none()).collect();
        if biases.len() > PLACES_MAX {
            notes.push(format!(
                "{} was mapped at {} places; the functions of the first {PLACES_MAX} are known",
                named.path.display(),
                biases.len()
            ));
        }
        if biases.is_empty() {
            memory.add(&program, named.bias(&program));
        }
        biases.into_iter().take(PLACES_MAX).for_each(|bias| memory.add(&program, bias));
    }
    let has_unit =
        found.info.as_ref().is_some_and(|info| matches!(info.kind, AuxKind::IntelPt | AuxKind::CsEtm));
    if settings.programs.is_empty() && has_unit {
        let files: BTreeSet<&str> = found.mapped.iter().map(|mapped| mapped.file.as_str()).collect();
        let files: Vec<&str> = files.into_iter().take(8).collect();
        if !files.is_empty() {
            notes.push(format!(
                "for functions, name the programs that ran with --image: {}",
                files.join(", ")
            ));
        }
    }
    Ok(memory)
}

/// Where in memory the places are that comparators were set to: a file that is mapped more than once has more than one address.
fn place_names(found: &Found, places: &[CapturedPlace], notes: &mut Vec<String>) -> PlaceNames {
    let mut names = PlaceNames::new();
    // A unit has four at most; what a file says of itself may be anything.
    for place in places.iter().take(COMPARATORS_MAX) {
        let in_file = found.mapped.iter().filter(|mapped| Path::new(&mapped.file) == place.file);
        let addresses = in_file.filter_map(|mapped| {
            let inside = place.file_offset.checked_sub(mapped.offset)?;
            (inside < mapped.length).then(|| mapped.start.wrapping_add(inside))
        });
        let (name, before) = (Arc::<str>::from(place.name.as_str()), names.len());
        names.extend(addresses.map(|address| (address, Arc::clone(&name))));
        if names.len() == before {
            notes.push(format!("{name}: nobody had {} in its memory there", place.file.display()));
        }
    }
    names
}

fn missing(found: &Found, capture: &mut Capture) {
    // A file may say anything of what is not in it.
    let all = |bytes: fn(&AuxSegment) -> u64| found.segments.iter().map(bytes).fold(0, u64::saturating_add);
    let (there, cut) = (all(|segment| segment.there), all(|segment| segment.size - segment.there));
    capture.missing_bytes = cut;
    // Of a circle only the last part is kept, and perf pads what it writes.
    if !found.is_overwrite && found.segments.is_empty() {
        capture.missing_bytes = found.written;
    }
    if capture.missing_bytes > 0 {
        capture.notes.push(format!(
            "{} bytes of AUX data were written by the kernel and are not in the file ({there} are)",
            capture.missing_bytes
        ));
    }
}

fn streams(
    found: &Found,
    file: &Arc<File>,
    settings: &Settings,
    memory: &Arc<Memory>,
    capture: &mut Capture,
) -> std::io::Result<()> {
    let Some(info) = &found.info else { return Ok(()) };
    let timelines = found.timelines();
    let clock = found.conversion(info, settings.clock_hz);
    if clock.hz.is_some() && !clock.is_of_recording() {
        // The recorder's losses are on its own clock.
        capture.clock = "the unit's counter".to_owned();
        capture.losses.iter_mut().for_each(|event| event.time_ns = None);
    }
    let mut unknown_threads = false;
    let places = Arc::new(place_names(found, &settings.places, &mut capture.notes));
    for (pieces, segment) in found.buffers().into_values() {
        let name = match (segment.cpu, segment.tid) {
            (Some(cpu), _) => format!("CPU {cpu}"),
            (None, Some(tid)) => format!("thread {tid}"),
            (None, None) => format!("buffer {}", segment.index),
        };
        let threads = found.threads(&segment, &timelines);
        let threads = known_threads(threads, clock).unwrap_or_else(|| {
            unknown_threads = true;
            Arc::default()
        });
        let stream = |name: String, kind, frames| Stream {
            name,
            kind,
            frames,
            file: file.clone(),
            pieces: pieces.clone(),
            cpu: segment.cpu,
            threads: threads.clone(),
            clock,
            memory: memory.clone(),
            image: None,
        };
        match (&info.kind, &info.etm) {
            (AuxKind::IntelPt, _) => {
                let settings = PtSettings { places: places.clone(), ..pt_settings(info, &found.configs) };
                capture.streams.push(stream(name, StreamKind::Pt(settings), None));
            }
            (AuxKind::ArmSpe, _) => capture.streams.push(stream(name, StreamKind::Spe, None)),
            (AuxKind::IntelBts, _) => capture.streams.push(stream(name, StreamKind::Bts, None)),
            (AuxKind::CsEtm, Some(etm)) if found.is_raw => {
                let cpu = etm.cpus.iter().find(|cpu| Some(cpu.cpu()) == segment.cpu.map(u64::from));
                match cpu.map(stream_kind) {
                    Some(kind) => capture.streams.push(stream(name, kind, None)),
                    None => capture.notes.push(format!("{name}: nothing says how its unit was set")),
                }
            }
            (AuxKind::CsEtm, Some(etm)) => {
                for (id, bytes) in sources(file, &pieces, Framing::Memory)? {
                    match of_id(etm, found, id) {
                        Some(kind) => {
                            let name = format!("{name}, source {id:#x}");
                            capture.streams.push(stream(name, kind, Some((Framing::Memory, id))));
                        }
                        None => capture.notes.push(format!(
                            "{name}: source {id:#x} with {bytes} bytes is of no unit that the file describes"
                        )),
                    }
                }
            }
            (kind, _) => capture.notes.push(format!("{name}: AUX data of {} is not decoded", kind.name())),
        }
    }
    if unknown_threads {
        capture.notes.push(
            "which thread ran when is not told on the unit's clock, so events are of no thread".to_owned(),
        );
    }
    Ok(())
}

/// Whose what the unit traced is. `None`: it is of several, and at which time which of them ran is told on another clock than the unit's.
fn known_threads(threads: Arc<[Came]>, clock: Conversion) -> Option<Arc<[Came]>> {
    let first = threads.first().map(|(_, thread)| *thread);
    let is_one = threads.iter().all(|(_, thread)| Some(*thread) == first);
    match first {
        Some(thread) if is_one && !clock.is_of_recording() => Some([(0, thread)].into()),
        _ => (is_one || clock.is_of_recording()).then_some(threads),
    }
}

/// What the recording says of the clocks of Intel PT.
fn pt_settings(info: &AuxtraceInfo, configs: &BTreeMap<u32, u64>) -> PtSettings {
    let Some(pt) = &info.pt else { return PtSettings::default() };
    let config = u32::try_from(pt.pmu).ok().and_then(|pmu| configs.get(&pmu)).copied().unwrap_or(0);
    let (numerator, denominator) = pt.tsc_ctc;
    PtSettings {
        time: ClockConfig {
            mtc_frequency: pt.mtc_freq(config),
            tsc_per_crystal: (numerator != 0 && denominator != 0).then_some((numerator, denominator)),
            nominal_ratio: u8::try_from(pt.max_nonturbo_ratio).ok().filter(|ratio| *ratio != 0),
        },
        ..PtSettings::default()
    }
}

/// The settings of the unit with this number in frames.
fn of_id(etm: &EtmInfo, found: &Found, id: u8) -> Option<StreamKind> {
    let by_record =
        found.hardware_ids.iter().find(|(_, of_cpu)| **of_cpu == id).map(|(cpu, _)| u64::from(*cpu));
    let is_it = |cpu: &&EtmCpu| match by_record {
        Some(number) => cpu.cpu() == number,
        None => cpu.trace_id() == Some(id),
    };
    etm.cpus.iter().find(is_it).map(stream_kind)
}

/// The unit of a CPU with its settings.
fn stream_kind(cpu: &EtmCpu) -> StreamKind {
    let half = |word: u64| u32::try_from(word & 0xffff_ffff).unwrap_or(0);
    let trace_id = cpu.trace_id().unwrap_or(0);
    match cpu {
        EtmCpu::Etm4 { is_ete, config, ids: [id0, id1, id2, id8], device, .. } => {
            StreamKind::Etm4(v4::Config {
                configr: half(*config),
                trace_id,
                idr0: half(*id0),
                idr1: half(*id1),
                idr2: half(*id2),
                idr8: half(*id8),
                devarch: is_ete.then(|| half(*device)),
                ..v4::Config::default()
            })
        }
        EtmCpu::Etm3 { control, code_extension, id, .. } => {
            let (control, id, capabilities) = (half(*control), half(*id), half(*code_extension));
            // The major architecture version in bits 11:8 of ETMIDR: 2 is ETMv3, 3 is PTM 1 (IHI 0035, 3.15.16).
            if id >> 8 & 0xF == 3 {
                StreamKind::Ptm(ptm::Config { control, id, capabilities, trace_id })
            } else {
                StreamKind::Etm3(v3::Config { control, id, capabilities, trace_id, is_m_profile: false })
            }
        }
    }
}
