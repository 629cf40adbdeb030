// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tracepoints as a flight recorder that is asked: for `record -k --flight-recorder`.
//!
//! Events for which there is an eBPF program are in eBPF's banks, which are copied while they are written, as with `watch`; the others in ftrace's
//! two instances, which alternate. So recording goes on while a snapshot is made. Of ftrace's events a snapshot has those since the one before,
//! as with `watch -k`. Forks, renamings and exits are recorded in any case: they name threads that begin after the recording, as the one that a
//! snapshot is about may have.

use crate::record::plan::Plan;
use crate::record::recorder::{NAMES_BYTES, names_tasks};
use crate::record::{Conversion, KernelSettings};
use crate::watch::ftrace::{FtracePart, FtraceRecorder};
use crate::{Failure, Observer};
use rtscope_ctf::{TraceInfo, write_trace};
use rtscope_event::{MonotonicNs, Recording};
use rtscope_flight::{FlightRecorder, MissCounter, monotonic_now};
use rtscope_kernel::tracefs::Tracefs;
use rtscope_kernel::{
    EbpfConfig, EbpfPrograms, PROGRAMS, ProgramSpec, RecorderConfig, interrupts, stream_programs,
};
use rtscope_store::{ConversionSummary, events_in, write_snapshot};
use std::path::Path;

/// Recording into memory.
#[derive(Debug)]
pub struct KernelFlight {
    ebpf: BuiltIn,
    ftrace: Option<FtraceRecorder>,
    started: MonotonicNs,
    /// Tracepoints that were asked for.
    number: usize,
    /// Events that only name threads.
    unasked: Vec<&'static str>,
}

#[derive(Debug)]
struct BuiltIn {
    recorder: FlightRecorder,
    misses: MissCounter,
    /// Behind its mappings: see [`EbpfPrograms`].
    programs: EbpfPrograms,
}

/// What was held at a moment.
#[derive(Debug)]
pub struct KernelPart {
    recording: Recording,
    ftrace: Option<FtracePart>,
    from: MonotonicNs,
    until: MonotonicNs,
    unasked: Vec<&'static str>,
}

impl KernelFlight {
    /// Starts recording.
    ///
    /// # Errors
    /// What is asked for that only a recording to disk has, or what the kernel refuses.
    pub fn start(settings: &KernelSettings, observer: &dyn Observer) -> Result<KernelFlight, Failure> {
        refuse_unsupported(settings)?;
        let tracefs = Tracefs::find();
        let plan = Plan::new(settings, tracefs.as_ref().ok())?;
        if let Some(why) = plan.without_ebpf {
            return Err(Failure::Failed(format!("a flight recorder of the kernel needs eBPF: {why}")));
        }
        let asked: Vec<&ProgramSpec> = PROGRAMS.iter().filter(|spec| is_asked(&plan, spec)).collect();
        let needs_ftrace = plan.built_in.len() + plan.ftrace.len() + plan.calls.len() > asked.len();
        let patterns = if needs_ftrace { settings.patterns.as_slice() } else { &[] };
        let ftrace = FtraceRecorder::start(patterns, settings.buffer_bytes, observer)?;
        let is_unasked = |spec: &&ProgramSpec| names_tasks(spec) && !is_asked(&plan, spec);
        let unasked: Vec<&ProgramSpec> = PROGRAMS.iter().filter(is_unasked).collect();
        let bank_bytes = if asked.is_empty() { NAMES_BYTES } else { settings.buffer_bytes };
        let ebpf = BuiltIn::start(bank_bytes, &[asked.as_slice(), unasked.as_slice()].concat())?;
        let number = asked.len() + ftrace.as_ref().map_or(0, FtraceRecorder::number);
        let unasked = unasked.iter().map(|spec| spec.name).collect();
        Ok(KernelFlight { ebpf, ftrace, started: monotonic_now(), number, unasked })
    }

    /// How many tracepoints it records.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// What there is up to now.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn freeze(&mut self) -> Result<KernelPart, Failure> {
        let (from, until) = (self.started, monotonic_now());
        let mut recording = self.ebpf.recording(from)?;
        let ftrace = self.ftrace.as_mut().map(|ftrace| ftrace.freeze(from, until)).transpose()?;
        recording.losses.extend(ftrace.iter().flat_map(|part| part.losses.iter().cloned()));
        Ok(KernelPart { recording, ftrace, from, until, unasked: self.unasked.clone() })
    }
}

/// Whether it was asked for what this program records. A plan for a recording to disk gives some of these to ftrace, which then waits for none
/// of them: [`FtraceRecorder`] leaves out all for which there is a program.
fn is_asked(plan: &Plan, spec: &ProgramSpec) -> bool {
    let by_ftrace =
        plan.ftrace.iter().any(|event| event.system == spec.system && event.name == spec.tracepoint);
    by_ftrace || plan.built_in.iter().any(|built_in| built_in.name == spec.name)
}

impl BuiltIn {
    fn start(bank_bytes: usize, programs: &[&'static ProgramSpec]) -> Result<BuiltIn, Failure> {
        let config = EbpfConfig {
            recorder: Some(RecorderConfig { bank_bytes, snapshot: None, stream: None }),
            trackers: Vec::new(),
            stacks: None,
            only: stream_programs(programs, false),
        };
        let programs = EbpfPrograms::start(&config)?;
        let recorder = FlightRecorder::new(programs.memory(&config)?, programs.started());
        let mut misses = MissCounter::default();
        misses.add(monotonic_now(), &programs.recursion_misses());
        Ok(BuiltIn { programs, recorder, misses })
    }

    fn recording(&mut self, from: MonotonicNs) -> Result<Recording, Failure> {
        let tasks = self.programs.dump_tasks()?;
        let snapshot = self.recorder.peek(from);
        let window = snapshot.window(snapshot.detected.since(from), Some(from));
        let mut recording = snapshot.decode(window, tasks, interrupts());
        self.recorder.recycle(snapshot);
        self.misses.add(monotonic_now(), &self.programs.recursion_misses());
        let missed = self.misses.since(from);
        if missed.count != Some(0) {
            recording.losses.push(missed);
        }
        Ok(recording)
    }
}

impl KernelPart {
    /// Up to when.
    #[must_use]
    pub fn until(&self) -> MonotonicNs {
        self.until
    }

    /// Writes it as a new trace.
    ///
    /// # Errors
    /// When the target exists or the system refuses (a full disk); nothing is left then.
    pub fn write(&self, target: &Path) -> Result<ConversionSummary, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::doing("saving a snapshot", error);
        let mut info =
            TraceInfo::of_this_machine(env!("CARGO_PKG_VERSION")).map_err(|error| failed(&error))?;
        info.window_begin = Some(self.from);
        let (bytes, losses) = match &self.ftrace {
            Some(part) => {
                let done = write_snapshot(target, &self.recording, &info, &part.tracepoints, &part.pages);
                let done = done.map_err(|error| failed(&error))?;
                (done.summary.bytes, done.losses)
            }
            None => {
                let done = write_trace(target, &self.recording, &info).map_err(|error| failed(&error))?;
                (done.bytes, self.recording.losses.clone())
            }
        };
        let mut by_event = events_in(target).map_err(|error| failed(&error))?;
        by_event.retain(|name, _| {
            !name.starts_with("lttng_statedump_") && !self.unasked.contains(&name.as_str())
        });
        Ok(ConversionSummary {
            events: by_event.values().sum(),
            by_event,
            losses,
            bytes,
            from: self.from,
            until: Some(self.until),
            ..ConversionSummary::default()
        })
    }
}

/// What would be ignored: a snapshot of everything would look like one of what was asked for.
fn refuse_unsupported(settings: &KernelSettings) -> Result<(), Failure> {
    let given = [
        ("--filter", !settings.filters.is_empty()),
        ("--pid", !settings.tids.is_empty()),
        ("--only-command", settings.only_command),
        ("--comm", settings.comm.is_some()),
        ("--follow", settings.follow),
        ("--cpu", settings.cpus.is_some()),
        ("--by ftrace", settings.by_ftrace),
        ("--convert-after", settings.conversion == Conversion::After),
        ("--convert-now", settings.conversion == Conversion::Now),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(Failure::Usage(format!(
            "{name} does not go with -k --flight-recorder, which records tracepoints of all tasks and CPUs; leave it out, or record to disk \
             with --max-size"
        ))),
        None => Ok(()),
    }
}
