// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both recorders of one recording: set up, switched on together, emptied, switched off together, and their losses asked for.
//!
//! The recording counts from when both are on until before the first goes off, so within it nothing is missing that is not
//! counted.

use super::drain::{Bank, Drain, Lane, Pages};
use super::live::{LaneProgress, LiveConverter, LiveSource, SpoolLimit};
use super::places::RecordedPlace;
use super::plan::{Call, Plan, Scope, named_tasks};
use super::ring::DiskLimit;
use super::settings::{Conversion, KernelSettings};
use super::words::OnlyWhile;
use crate::command::Child;
use crate::watch::calls;
use crate::{Failure, Observer};
use rtscope_abi as abi;
use rtscope_cpus::Cpus;
use rtscope_ctf::RingTrace;
use rtscope_event::{CpuId, LossCause, MonotonicNs, Tracker, counted};
use rtscope_flight::{TrackerStats, monotonic_now};
use rtscope_kernel::tracefs::{
    EnableFailure, EventName, Instance, InstanceConfig, RawReader, Tracefs, UprobePlace,
};
use rtscope_kernel::{
    EbpfConfig, EbpfPrograms, Follows, Memory, PROGRAMS, ProgramSpec, RecorderConfig, SYSCALLS, StreamConfig,
    Target, TrackerConfig, caps, interrupts, stream_programs, tracker_programs,
};
use rtscope_ring::{Controls, StreamReader};
use rtscope_store::description::{
    End, EndLoss, FormatText, FtraceDescription, Source, SpoolDescription, SyscallFormat,
};
use rtscope_store::spool::{Spool, SpoolWriter};
use rtscope_store::{LaneFiles, LiveConversion};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A recording under way.
#[derive(Debug)]
pub struct Recording {
    ebpf: Option<Ebpf>,
    instance: Option<Instance>,
    spool: SpoolWriter,
    drain: Drain,
    live: Option<LiveConverter>,
    cpus: usize,
    /// The threads that do all this.
    own_tids: Vec<u32>,
    with_self: bool,
}

/// A recording that is over.
pub struct Recorded {
    pub spool: Spool,
    /// What was converted while it went on, and how much was missing when it ended.
    pub live: Option<(LiveConversion, u64)>,
    /// What ended it early.
    pub failure: Option<Failure>,
}

#[derive(Debug)]
struct Ebpf {
    controls: Arc<Controls>,
    /// What it was asked for; the other programs are there for the names of tasks.
    asked: Vec<&'static ProgramSpec>,
    /// It was asked for system calls, not just for their paths.
    calls: bool,
    /// Each CPU's buffer.
    bank_bytes: usize,
    misses_before: Vec<(String, Option<u64>)>,
    /// With `--while`: what the tracker counts.
    followed: Option<Memory>,
    /// Behind its mappings: see [`EbpfPrograms`].
    programs: EbpfPrograms,
}

/// What a recording is made of.
pub struct Setup<'a> {
    pub settings: &'a KernelSettings,
    pub plan: &'a Plan,
    pub tracefs: Option<&'a Tracefs>,
    /// COMMAND, which has not begun.
    pub child: Option<&'a Child>,
    pub observer: &'a dyn Observer,
    /// Of the recording's size.
    pub limit: Option<&'a DiskLimit>,
}

impl Recording {
    /// Sets everything up and switches it on.
    pub fn start(setup: &Setup<'_>, fifo: Option<u8>, target: &Path) -> Result<Recording, Failure> {
        let Setup { settings, plan, tracefs, limit, .. } = *setup;
        // Before anything is recorded: it has a random name, and the first random number after a boot can take the kernel seconds
        // (`try_to_generate_entropy`), in which it calls its scheduler without a pause. Recorded, that floods our buffers.
        let mut description = SpoolDescription::of_this_machine(env!("CARGO_PKG_VERSION"))
            .map_err(|error| Failure::doing("reading the clocks", error))?;
        let (instance, uprobes) = match tracefs.filter(|_| plan.uses_ftrace()) {
            Some(tracefs) => {
                set_up_ftrace(setup, tracefs).map(|(instance, uprobes)| (Some(instance), uprobes))?
            }
            None => (None, Vec::new()),
        };
        let config = ebpf_config(settings, plan)?;
        let mut ebpf = match config.as_ref().map(|config| set_up_ebpf(config, plan)) {
            Some(Err(failure)) if !records_by_ebpf(plan) => {
                setup.observer.note(&format!(
                    "threads that begin or are renamed have no names in the trace: {failure}"
                ));
                None
            }
            set_up => set_up.transpose()?,
        };
        if let Some(instance) = &instance {
            instance.start()?;
        }
        if let Some((ebpf, _)) = &mut ebpf {
            ebpf.programs.switch_on()?;
        }
        description.started = monotonic_now();
        describe(&mut description, setup, &instance, ebpf.as_ref().map(|(ebpf, _)| ebpf))?;
        if let (Some(tracefs), Some(ftrace)) = (tracefs, &mut description.ftrace) {
            ftrace.formats.extend(place_formats(tracefs, plan, &uprobes)?);
        }
        description.is_ring = limit.is_some();
        let spool = SpoolWriter::create(target, &description)?;
        let ring = limit.map(|limit| begin_ring(&spool, limit)).transpose();
        let ring = match ring {
            Ok(ring) => ring,
            Err(failure) => {
                // Nothing has been recorded.
                let _ = spool.discard();
                return Err(failure);
            }
        };
        crate::limits::raise_file_limit();
        let mut lanes = lanes(settings, &spool, &instance, ebpf.as_mut())?;
        let share = limit.map(|limit| SpoolLimit::new(limit.spool_file_bytes(files_of(&lanes))));
        let share = share.map(Arc::new);
        lanes.values_mut().for_each(|lane| lane.limit.clone_from(&share));
        let is_followed = settings.conversion != Conversion::After;
        let followed = if is_followed { follow(&mut lanes) } else { Vec::new() };
        let (cpus, lanes) = (lanes.len(), lanes.into_values().collect());
        let no_thread = |error| Failure::doing("starting a thread", error);
        let drain = Drain::start(lanes, fifo).map_err(no_thread)?;
        let mut own_tids = drain.tids().to_vec();
        let mut live = None;
        if !followed.is_empty() {
            let (place, own_tids) = (spool.place(), own_tids.clone());
            let is_idle = settings.conversion == Conversion::WhenIdle;
            let lanes = followed;
            let source = LiveSource { place, description, lanes, own_tids, ring, limit: share, is_idle };
            live = Some(LiveConverter::start(source).map_err(no_thread)?);
        }
        own_tids.extend(live.as_ref().map(LiveConverter::tid));
        if !settings.with_self {
            spool.own_threads(&own_tids)?;
        }
        let ebpf = ebpf.map(|(ebpf, _)| ebpf);
        Ok(Recording { ebpf, instance, spool, drain, live, cpus, own_tids, with_self: settings.with_self })
    }

    /// Up to when events are in the trace; `None`: it is made at the end.
    pub fn converted_until(&self) -> Option<MonotonicNs> {
        self.live.as_ref().map(LiveConverter::until)
    }

    /// Sees to it that the trace begins.
    pub fn look(&self, now: MonotonicNs) {
        self.live.iter().for_each(|live| live.look(now));
    }

    /// How many CPUs have buffers.
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// Whether something of rtscope's own is not recorded.
    pub fn leaves_itself_out(&self) -> bool {
        !self.with_self && (self.instance.is_some() || self.ebpf.as_ref().is_some_and(|ebpf| ebpf.calls))
    }

    /// Bytes in the spool, and records that eBPF had to leave out.
    pub fn progress(&self) -> (u64, u64) {
        let lost = |ebpf: &Ebpf| -> u64 {
            let cpus = 0..ebpf.controls.cpus();
            cpus.flat_map(|cpu| lost_events(&ebpf.controls, cpu)).map(|(_, count)| count).sum()
        };
        (self.drain.bytes(), self.ebpf.as_ref().map_or(0, lost))
    }

    /// Whether the buffers are not emptied any more.
    pub fn has_failed(&self) -> bool {
        self.drain.has_failed()
    }

    /// Switches off and collects what is left.
    pub fn stop(self, observer: &dyn Observer) -> Result<Recorded, Failure> {
        let ended = monotonic_now();
        if let Some(instance) = &self.instance {
            instance.stop()?;
        }
        let mut tasks = Vec::new();
        if let Some(ebpf) = &self.ebpf {
            ebpf.programs.enable(false);
            tasks = ebpf.programs.dump_tasks()?;
        }
        let mut losses = self.ebpf.as_ref().map(Ebpf::losses).unwrap_or_default();
        // Closes the readers, which the instance waits for.
        let failure = self.drain.finish();
        if let Some(instance) = &self.instance {
            losses.extend(ftrace_losses(instance)?);
        }
        let end = End {
            ended,
            losses,
            tasks: tasks.iter().map(Into::into).collect(),
            irqs: interrupts(),
            own_tids: self.own_tids,
        };
        // At once: whoever ends this process now still leaves all that is known.
        let spool = self.spool.finish(&end);
        let behind_ns = self.live.as_ref().map_or(0, |live| ended.since(live.until()));
        let live = self.live.map(LiveConverter::stop).transpose().unwrap_or_else(|error| {
            observer.note(&format!(
                "the trace could not be made while it was recorded, and is made now: {error}"
            ));
            None
        });
        // Before the conversion: the kernel shall be as it was found while that goes on.
        drop(self.ebpf);
        if let Some(instance) = self.instance {
            instance.remove()?;
        }
        let spool = spool?;
        let failure = failure.map(|error| Failure::system("emptying the kernel's buffers to disk", &error));
        Ok(Recorded { spool, live: live.map(|live| (live, behind_ns)), failure })
    }
}

impl Ebpf {
    /// What the programs left out and what the kernel skipped, by event.
    fn losses(&self) -> Vec<EndLoss> {
        let mut losses = Vec::new();
        for cpu in 0..self.controls.cpus() {
            for (kind, count) in lost_events(&self.controls, cpu) {
                losses.push(EndLoss {
                    source: Source::Ebpf,
                    cpu: Some(CpuId(cpu as u32)),
                    cause: LossCause::BufferFull,
                    event: Some(rtscope_event::record_name(kind).to_string()),
                    count: Some(count),
                });
            }
        }
        if let Some(stats) = self.followed.as_ref().map(|memory| TrackerStats::read(memory, 0)) {
            // Of a task that has no place, or was given up, it is not known what is under way.
            for (cause, count) in
                [(LossCause::TableFull, stats.untracked), (LossCause::EntryBusy, stats.raced)]
            {
                if count > 0 {
                    losses.push(EndLoss {
                        source: Source::Ebpf,
                        cpu: None,
                        cause,
                        event: None,
                        count: Some(count),
                    });
                }
            }
        }
        // Not those of programs that are there for the names of tasks, or for paths: what they miss is shown as "?".
        let helps = |name: &str| {
            let spec = PROGRAMS.iter().find(|spec| spec.name == name);
            spec.map_or(SYSCALLS.contains(&name) && !self.calls, |spec| !self.asked.contains(&spec))
        };
        for (program, count) in self.programs.recursion_misses().into_iter().filter(|(name, _)| !helps(name))
        {
            let before =
                self.misses_before.iter().find(|(name, _)| *name == program).and_then(|(_, count)| *count);
            let count = count.map(|count| count.saturating_sub(before.unwrap_or(0)));
            if count != Some(0) {
                losses.push(EndLoss {
                    source: Source::Ebpf,
                    cpu: None,
                    cause: LossCause::RecursionMiss,
                    event: Some(program),
                    count,
                });
            }
        }
        losses
    }
}

/// Events of a CPU that found its ring full, by record type.
pub fn lost_events(controls: &Controls, cpu: usize) -> impl Iterator<Item = (u32, u64)> {
    let lost = (0..).zip(controls.lost(cpu));
    lost.filter(|(kind, count)| *count > 0 && abi::is_streamed_event(*kind))
}

/// What ftrace's buffers say of themselves.
fn ftrace_losses(instance: &Instance) -> Result<Vec<EndLoss>, Failure> {
    let mut losses = Vec::new();
    for stats in instance.stats()? {
        let causes = [
            (LossCause::Overrun, stats.overrun),
            (LossCause::Overrun, stats.commit_overrun),
            (LossCause::BufferFull, stats.dropped),
        ];
        for (cause, count) in causes.into_iter().filter(|(_, count)| *count != Some(0)) {
            losses.push(EndLoss {
                source: Source::Ftrace,
                cpu: Some(CpuId(stats.cpu)),
                cause,
                event: None,
                count,
            });
        }
    }
    Ok(losses)
}

/// The instance, and the kernel's names of the plan's places.
fn set_up_ftrace(setup: &Setup<'_>, tracefs: &Tracefs) -> Result<(Instance, Vec<EventName>), Failure> {
    let Setup { settings, plan, child, observer, .. } = *setup;
    let mut tids = settings.tids.clone();
    if settings.only_command {
        tids.extend(child.map(|child| child.pid().0));
    }
    let config = InstanceConfig {
        buffer_kib_per_cpu: settings.buffer_bytes as u64 >> 10,
        tids,
        follow_forks: settings.follow || settings.only_command,
        cpus: settings.cpus.as_deref().map(cpu_list).transpose()?,
        ..InstanceConfig::default()
    };
    // What killed runs left behind would go on costing.
    tracefs.sweep()?;
    let mut instance = Instance::create(tracefs, &config)?;
    for (scope, expression) in plan.expressions(settings) {
        match scope {
            Scope::Event(event) => instance.set_filter(event, &expression)?,
            Scope::System(system) => instance.set_system_filter(system, &expression)?,
        }
    }
    let uprobes = define_places(&mut instance, setup)?;
    let refused = instance.enable(&[plan.ftrace.as_slice(), &uprobes].concat())?;
    let reason = |error: &Option<std::io::Error>| {
        error.as_ref().map_or("the kernel gives no reason".to_string(), ToString::to_string)
    };
    let places = || refused.iter().filter_map(|refused| Some((refused, place_of(refused, &uprobes, plan)?)));
    if let Some((refused, place)) = places().next() {
        return Err(Failure::Failed(format!(
            "{place}: the kernel can set no uprobe there: {}",
            reason(&refused.error)
        )));
    }
    if let Some(first) = refused.first() {
        observer.note(&format!(
            "{} cannot be enabled; the first is {} ({})",
            counted(refused.len(), "tracepoint", "tracepoints"),
            first.event,
            reason(&first.error)
        ));
    }
    Ok((instance, uprobes))
}

/// Makes events of the plan's places, of the tasks that are asked for.
fn define_places(instance: &mut Instance, setup: &Setup<'_>) -> Result<Vec<EventName>, Failure> {
    if setup.plan.places.is_empty() {
        return Ok(Vec::new());
    }
    let places: Vec<UprobePlace> = setup.plan.places.iter().map(|place| place.uprobe.clone()).collect();
    let uprobes = instance.define_uprobes(&places)?;
    if let (Some(expression), Some(first)) = (named_tasks(setup.settings), uprobes.first()) {
        instance.set_system_filter(&first.system, &expression)?;
    }
    Ok(uprobes)
}

/// The place whose event this is.
fn place_of<'p>(refused: &EnableFailure, uprobes: &[EventName], plan: &'p Plan) -> Option<&'p str> {
    let at = uprobes.iter().position(|uprobe| *uprobe == refused.event)?;
    plan.places.get(at).map(|place| place.event.as_str())
}

/// The kernel's descriptions of places, with the names that they have in the trace.
fn place_formats(tracefs: &Tracefs, plan: &Plan, uprobes: &[EventName]) -> Result<Vec<FormatText>, Failure> {
    let format = |(uprobe, place): (&EventName, &RecordedPlace)| {
        let format = format_text(tracefs, uprobe)?;
        let (own, given) = (format!("name: {}\n", uprobe.name), format!("name: {}\n", place.event));
        Ok(FormatText { system: "probe".to_owned(), text: format.text.replacen(&own, &given, 1) })
    };
    uprobes.iter().zip(&plan.places).map(format).collect()
}

/// `0,2-3`.
fn cpu_list(text: &str) -> Result<Vec<u32>, Failure> {
    let wrong = || Failure::Usage(format!("--cpu {text}: write CPU numbers like 0,2-3"));
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) =
            (first.trim().parse().map_err(|_| wrong())?, last.trim().parse().map_err(|_| wrong())?);
        if first > last || last > 8191 {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    let there = std::fs::read_to_string("/sys/devices/system/cpu/present").ok();
    let there = there.and_then(|there| Some((Cpus::from_list(there.trim()).ok()?, there)));
    match there {
        Some((there, list)) if !cpus.iter().all(|cpu| there.contains(*cpu)) => Err(Failure::Usage(format!(
            "--cpu {text}: not each of these is on this machine; it has {}",
            list.trim()
        ))),
        _ => Ok(cpus),
    }
}

/// Each CPU's buffer where eBPF records the names of tasks and nothing else.
pub(crate) const NAMES_BYTES: usize = 256 << 10;

/// Whether eBPF records more than names of tasks.
fn records_by_ebpf(plan: &Plan) -> bool {
    !(plan.built_in.is_empty() && plan.paths.is_empty() && plan.calls.is_empty())
}

/// eBPF programs that record the names of tasks that come and go, whether or not their events were asked for.
pub(crate) fn names_tasks(spec: &ProgramSpec) -> bool {
    matches!(spec.name, "sched_process_fork" | "task_rename" | "sched_process_exit")
}

fn ebpf_config(settings: &KernelSettings, plan: &Plan) -> Result<Option<EbpfConfig>, Failure> {
    let records = records_by_ebpf(plan);
    if !records && (settings.by_ftrace || caps::stream_missing().is_some()) {
        return Ok(None);
    }
    let mut programs = plan.built_in.clone();
    programs.extend(PROGRAMS.iter().filter(|spec| names_tasks(spec)));
    let stream = StreamConfig {
        paths: plan.paths.iter().map(|path| (path.number, path.arguments)).collect(),
        calls: plan.calls.iter().map(|call| (usize::from(call.number), call.wanted)).collect(),
        with_self: settings.with_self,
        while_ns: settings.only_while.map_or(0, |only| only.time_ns),
    };
    let mut only = stream_programs(&programs, !(plan.paths.is_empty() && plan.calls.is_empty()));
    let trackers = settings.only_while.map(|only| pending_tracker(only.tracker)).transpose()?;
    if let Some(OnlyWhile { tracker, .. }) = settings.only_while {
        only.extend(tracker_programs(tracker));
        only.sort_unstable();
        only.dedup();
    }
    Ok(Some(EbpfConfig {
        recorder: Some(RecorderConfig {
            bank_bytes: if records { settings.buffer_bytes } else { NAMES_BYTES },
            snapshot: None,
            stream: Some(stream),
        }),
        stacks: None,
        only,
        trackers: trackers.into_iter().collect(),
    }))
}

/// Follows what is under way in all tasks, and reports nothing.
fn pending_tracker(tracker: Tracker) -> Result<TrackerConfig, Failure> {
    let follows = match tracker {
        Tracker::Wakeup => Follows::Wakeups,
        Tracker::Offcpu => Follows::OffCpu,
        Tracker::Lock => Follows::Locks,
        Tracker::Syscall => Follows::Syscalls(calls::chosen(&[])?),
        other => {
            return Err(Failure::Usage(format!(
                "--while {}: of this it is not known which task it delays; take syscall, offcpu, lock or wakeup",
                other.name()
            )));
        }
    };
    Ok(TrackerConfig {
        target: Target::default(),
        threshold_ns: u64::MAX,
        snapshot: false,
        records: false,
        follows,
        counted_by: None,
    })
}

fn set_up_ebpf(config: &EbpfConfig, plan: &Plan) -> Result<(Ebpf, Memory), Failure> {
    let mut programs = EbpfPrograms::prepare(config)?;
    programs.attach()?;
    let memory = programs.memory(config)?;
    let controls = Arc::new(memory.controls.share());
    let misses_before = programs.recursion_misses();
    let (asked, calls) = (plan.built_in.clone(), !plan.calls.is_empty());
    let bank_bytes = config.recorder.as_ref().map_or(0, |recorder| recorder.bank_bytes);
    // A second mapping, for its counters: the first one is taken apart.
    let followed = (!config.trackers.is_empty()).then(|| programs.memory(config)).transpose()?;
    Ok((Ebpf { programs, controls, asked, calls, bank_bytes, misses_before, followed }, memory))
}

/// What a conversion needs to know.
fn describe(
    description: &mut SpoolDescription,
    setup: &Setup<'_>,
    instance: &Option<Instance>,
    ebpf: Option<&Ebpf>,
) -> Result<(), Failure> {
    let Setup { settings, plan, tracefs, .. } = *setup;
    description.leave_out = if settings.with_self { Vec::new() } else { vec![std::process::id()] };
    description.ebpf = ebpf.is_some();
    description.paths =
        plan.paths.iter().map(|path| (path.name.clone(), path.arguments & 0x1f)).collect::<BTreeMap<_, _>>();
    description.irqs = interrupts();
    description.has_all_switches = plan.has_all_switches(settings);
    description.config = serde_json::json!({ "kernel": settings.patterns, "filter": settings.filters });
    if let Some(ebpf) = ebpf {
        description.tasks = ebpf.programs.dump_tasks()?.iter().map(Into::into).collect();
        description.cpus = (0..ebpf.programs.cpus() as u32).map(CpuId).collect();
    }
    if let Some(tracefs) = tracefs {
        let format = |event: &EventName| format_text(tracefs, event);
        if let Some(instance) = instance {
            description.ftrace = Some(FtraceDescription {
                header_page: instance.header_page()?,
                formats: plan.ftrace.iter().map(format).collect::<Result<_, Failure>>()?,
            });
        }
        let call = |call: &Call| Ok(SyscallFormat { number: call.number, format: format(&call.event)? });
        description.syscalls = plan.calls.iter().map(call).collect::<Result<_, Failure>>()?;
    }
    Ok(())
}

fn format_text(tracefs: &Tracefs, event: &EventName) -> Result<FormatText, Failure> {
    let path = tracefs.root().join("events").join(&event.system).join(&event.name).join("format");
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Failure::doing(format!("reading {}", path.display()), error))?;
    Ok(FormatText { system: event.system.clone(), text })
}

/// How many files of the spool grow.
fn files_of(lanes: &BTreeMap<u32, Lane>) -> usize {
    let files = |lane: &Lane| usize::from(lane.bank.is_some()) + usize::from(lane.pages.is_some());
    lanes.values().map(files).sum()
}

/// What limits the trace of a spool that has just been made.
fn begin_ring(spool: &SpoolWriter, limit: &DiskLimit) -> Result<RingTrace, Failure> {
    limit.hold_description(spool.check_ring()?)?;
    Ok(limit.files.trace())
}

/// Lets their files be converted while they are written.
fn follow(lanes: &mut BTreeMap<u32, Lane>) -> Vec<(CpuId, LaneFiles, Arc<LaneProgress>)> {
    let follow = |(cpu, lane): (&u32, &mut Lane)| {
        let bank = lane.bank.as_ref().map(|bank| bank.out.file());
        let files = LaneFiles { bank, pages: lane.pages.as_ref().map(|pages| Arc::clone(&pages.out)) };
        let progress = Arc::clone(lane.follower.get_or_insert_default());
        (CpuId(*cpu), files, progress)
    };
    lanes.iter_mut().map(follow).collect()
}

/// One for each CPU that may record.
fn lanes(
    settings: &KernelSettings,
    spool: &SpoolWriter,
    instance: &Option<Instance>,
    ebpf: Option<&mut (Ebpf, Memory)>,
) -> Result<BTreeMap<u32, Lane>, Failure> {
    let mut lanes: BTreeMap<u32, Lane> = BTreeMap::new();
    let bytes = settings.buffer_bytes;
    if let Some((ebpf, memory)) = ebpf {
        for cpu in 0..ebpf.controls.cpus() {
            let Some(banks) = &memory.banks else { continue };
            let bank = Bank {
                memory: banks.share(),
                controls: Arc::clone(&ebpf.controls),
                reader: StreamReader::new(cpu, ebpf.bank_bytes),
                out: spool.bank(CpuId(cpu as u32))?,
                bytes: ebpf.bank_bytes as u64,
            };
            lanes.entry(cpu as u32).or_default().bank = Some(bank);
        }
    }
    let readers: Vec<RawReader> = instance.as_ref().map(Instance::readers).transpose()?.unwrap_or_default();
    for reader in readers {
        let cpu = reader.cpu();
        let out = spool.pages(CpuId(cpu))?;
        lanes.entry(cpu).or_default().pages = Some(Pages { reader, out, bytes: bytes as u64 });
    }
    Ok(lanes)
}
