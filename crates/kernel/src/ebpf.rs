// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The eBPF programs from loading to removal: size the memory, load, attach, and hand out what is shared.
//!
//! Order matters: memory first, then attach with everything switched off, then show the tracker which tasks there are, then
//! switch on, then show it again (for tasks that were born in between). Attaching while the eBPF programs are off prevents the
//! first events from being half-tracked.

mod config;
mod instances;
mod intervals;
mod leaving;
mod limits;
mod maps;
mod pairs;
mod samples;
mod stacks;

use crate::caps::{self, Capability};
use crate::program_info::{ProgramInfo, program_info};
use crate::programs::{
    BLOCK_START, DUMP_TASKS, NEED_RESCHED, NMI_PROGRAM, PAIRS, PROGRAMS, ProgramSpec, RESCHED_ASKED,
    RESCHED_OVER, RESCHED_WOKEN, SAMPLE, SCHED_EXIT, TASK_CAME, TASK_CAME_PROBED, TEST_PROGRAM,
    is_for_benchmarks, is_for_blocks, is_for_calls, is_for_expiry, is_for_locks, is_for_streams,
    is_for_tests,
};
use crate::tasks;
use crate::waits::waits;
pub use config::{
    CellId, CountedBy, EbpfConfig, Follows, OriginFilter, RecorderConfig, ResponseConfig, SnapshotConfig,
    StackConfig, StreamConfig, Target, TrackerConfig,
};
use instances::store_trackers;
pub use intervals::OpenIntervals;
use leaving::HeldPages;
use libbpf_rs::{Iter, Link, MapCore, Object, ObjectBuilder, OpenObject};
pub use limits::RaisedLimits;
use maps::{TASK_WAYS, size_maps, task_sets};
pub use pairs::{KeyPart, PairSide, PairTable, TracepointPair};
use rtscope_abi as abi;
use rtscope_event::{MonotonicNs, TaskInfo, Tracker};
use rtscope_ring::{BankImage, Controls, LateResponseRings, SharedMemory, Trigger};
use std::io::Read;
use std::mem::size_of;
use std::ops::Range;
use std::os::fd::AsFd;

static OBJECT: &[u8] = include_bytes!(env!("RTSCOPE_BPF_OBJECT"));

/// Why the eBPF programs could not be loaded, attached or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel or our privileges lack something that is needed.
    #[error("{}", .0.sentence())]
    Missing(Box<Capability>),
    /// A value that cannot be used.
    #[error("{0}")]
    Config(String),
    /// libbpf or the kernel refused.
    #[error("{doing}: {error}{}", log_note(.log))]
    Bpf {
        /// What was being done.
        doing: String,
        /// libbpf's error.
        error: libbpf_rs::Error,
        /// The last lines of libbpf's log.
        log: String,
    },
    /// The kernel's verifier gives up before it has seen all that was asked for together.
    #[error("this kernel's verifier does not take the eBPF programs for all of that at once: {0}")]
    TooMuch(&'static str),
    /// Memory could not be mapped, or a file could not be read.
    #[error("{doing}: {error}")]
    Io {
        /// What was being done.
        doing: String,
        /// The kernel's error.
        error: std::io::Error,
    },
}

/// What to leave out, where the verifier has refused programs for their size (E2BIG: a million instructions looked at).
fn too_much(error: &libbpf_rs::Error, config: &EbpfConfig) -> Option<Error> {
    let is_size = std::io::Error::from_raw_os_error(libc::E2BIG);
    let is_it = config.trackers.len() > 1 && error.to_string().contains(&is_size.to_string());
    is_it.then_some(match config.stacks {
        Some(_) => Error::TooMuch("leave stacks out, or follow fewer things at once"),
        None => Error::TooMuch("follow fewer things at once"),
    })
}

fn log_note(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("\nlibbpf said:\n{log}") }
}

/// rtscope's eBPF programs in the kernel, loaded and perhaps attached. Dropping it removes them, and waits for the kernel to have given up
/// their memory, so that the caller's thread frees it: drop what [`EbpfPrograms::memory`] gave before, which would keep it.
#[derive(Debug)]
pub struct EbpfPrograms {
    trigger: Trigger,
    dump: Option<Link>,
    links: Vec<Link>,
    object: Object,
    cpus: usize,
    /// Those that have banks.
    bank_cpus: Range<usize>,
    absent: Vec<&'static ProgramSpec>,
    started_ns: MonotonicNs,
    /// The time between two samples.
    sample_ns: u64,
    /// What the tracker `pair` is to be attached to.
    pair: Option<TracepointPair>,
    /// Why times off a CPU have no stacks.
    stacks_missing: Option<String>,
    /// At the end. Dropped last: it waits for the maps to be gone.
    pages: HeldPages,
}

/// The memory that the eBPF programs and this process share, for the readers.
#[derive(Debug)]
pub struct Memory {
    /// All banks of all CPUs; `None` when there is no recorder.
    pub banks: Option<SharedMemory>,
    /// Bytes of one bank.
    pub bank_bytes: usize,
    /// The CPUs that have banks.
    pub bank_cpus: Range<usize>,
    /// The per-CPU control words.
    pub controls: Controls,
    /// Late responses.
    pub late: LateResponseRings,
    /// How many trackers run at once; at least 1.
    pub instances: usize,
    /// `struct rts_stats` of each CPU and, there, of each instance.
    pub stats: SharedMemory,
    /// `struct rts_cell`, this many of each CPU; `None`: nothing is counted by keys.
    pub cells: Option<(SharedMemory, usize)>,
    /// `struct rts_thread_count` of each slot of the tracker's table; `None` when there is no tracker.
    pub thread_counts: Option<SharedMemory>,
    /// The trigger.
    pub trigger: Trigger,
}

impl EbpfPrograms {
    /// Loads and attaches everything, and switches it on.
    ///
    /// # Errors
    /// See [`Error`]; a missing feature is the same sentence that `rtscope caps` prints.
    pub fn start(config: &EbpfConfig) -> Result<EbpfPrograms, Error> {
        EbpfPrograms::start_loaded(EbpfPrograms::prepare(config)?)
    }

    /// The same with banks for one CPU only: what happens on the others is not recorded, and takes no memory.
    ///
    /// # Errors
    /// As [`EbpfPrograms::start`].
    pub fn start_on(config: &EbpfConfig, cpu: usize) -> Result<EbpfPrograms, Error> {
        EbpfPrograms::start_loaded(EbpfPrograms::load(config, cpu..cpu + 1)?)
    }

    fn start_loaded(mut programs: EbpfPrograms) -> Result<EbpfPrograms, Error> {
        programs.attach()?;
        programs.switch_on()?;
        Ok(programs)
    }

    /// Loads everything, attaches nothing.
    ///
    /// # Errors
    /// As [`EbpfPrograms::start`].
    pub fn prepare(config: &EbpfConfig) -> Result<EbpfPrograms, Error> {
        EbpfPrograms::load(config, 0..caps::present_cpus())
    }

    fn load(config: &EbpfConfig, bank_cpus: Range<usize>) -> Result<EbpfPrograms, Error> {
        let streams = config.recorder.as_ref().is_some_and(|recorder| recorder.stream.is_some());
        if let Some(missing) = if streams { caps::stream_missing() } else { caps::first_missing() } {
            return Err(Error::Missing(Box::new(missing)));
        }
        let cpus = caps::present_cpus();
        let log = caps::capture_libbpf_log();
        let mut open = ObjectBuilder::default()
            .open_memory(OBJECT)
            .map_err(|error| bpf("opening the eBPF object", error, &log.take()))?;
        let absent = choose_programs(&mut open, config);
        size_maps(&mut open, config, (cpus, bank_cpus.len()), &log)?;
        store_config(&mut open, config, bank_cpus.start)?;
        // Banks that are too large are only looked into when it fails: the kernel frees each map that was tried in a worker, which takes
        // half a millisecond for 8 MiB, on whatever CPU is idle, also a target's.
        let object = open.load().map_err(|error| {
            if let Some(failure) = too_much(&error, config) {
                return failure;
            }
            let failure = bpf("loading the eBPF programs", error, &log.take());
            let bank = config.recorder.as_ref().map(|recorder| caps::check_bank(recorder.bank_bytes));
            bank.and_then(Result::err).map_or(failure, Error::Missing)
        })?;
        let trigger = Trigger::new(map_memory(&object, ".data.trigger", Trigger::bytes(), true)?);
        Ok(EbpfPrograms {
            trigger,
            dump: None,
            links: Vec::new(),
            object,
            cpus,
            bank_cpus,
            absent,
            started_ns: MonotonicNs(0),
            sample_ns: instances::sample_ns(&config.trackers),
            pair: pairs::of(&config.trackers)?.cloned(),
            stacks_missing: None,
            pages: HeldPages::default(),
        })
    }

    /// Attaches what was loaded, still switched off.
    ///
    /// # Errors
    /// When the kernel refuses an attachment.
    pub fn attach(&mut self) -> Result<(), Error> {
        let log = caps::capture_libbpf_log();
        for program in self.object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if !program.autoload() {
                continue;
            }
            if name == SAMPLE {
                self.links.extend(samples::attach(&program, self.sample_ns, &log)?);
                continue;
            }
            if name == TASK_CAME_PROBED {
                match stacks::attach(&program) {
                    Ok(link) => self.links.push(link),
                    Err(why) => self.stacks_missing = Some(why),
                }
                continue;
            }
            let link = pairs::attach(&program, &name, self.pair.as_ref())
                .map_err(|error| bpf(&format!("attaching the eBPF program {name}"), error, &log.take()))?;
            if name == DUMP_TASKS {
                self.dump = Some(link);
            } else {
                self.links.push(link);
            }
        }
        Ok(())
    }

    /// Switches the attached eBPF programs on, and shows the tracker which tasks there are: before, so that the first events find
    /// them, and after, for those that were born in between.
    ///
    /// # Errors
    /// When the task iterator cannot be read.
    pub fn switch_on(&mut self) -> Result<(), Error> {
        self.trigger.adopt_tasks(true);
        self.dump_tasks()?;
        self.enable(true);
        self.started_ns = monotonic_ns();
        self.dump_tasks()?;
        self.trigger.adopt_tasks(false);
        Ok(())
    }

    /// When it was switched on, `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn started(&self) -> MonotonicNs {
        self.started_ns
    }

    /// Takes the eBPF programs off their tracepoints; the memory stays.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    /// Switches all eBPF programs on or off, without detaching them.
    pub fn enable(&self, on: bool) {
        self.trigger.enable(on);
    }

    /// Number of CPUs for which there is memory.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// Optional eBPF programs that were left out because the kernel lacks their tracepoint.
    #[must_use]
    pub fn absent(&self) -> &[&'static ProgramSpec] {
        &self.absent
    }

    /// Maps the shared memory. `config` is the one that they were loaded with.
    ///
    /// # Errors
    /// When the kernel refuses a mapping.
    pub fn memory(&self, config: &EbpfConfig) -> Result<Memory, Error> {
        let bank_bytes = config.recorder.as_ref().map_or(0, |recorder| recorder.bank_bytes);
        let banks_each = config.recorder.as_ref().map_or(0, RecorderConfig::banks_each);
        let banks_bytes = self.bank_cpus.len() * banks_each * BankImage::bytes(bank_bytes);
        Ok(Memory {
            banks: match bank_bytes {
                0 => None,
                _ => Some(map_memory(&self.object, "banks", banks_bytes, false)?),
            },
            bank_bytes,
            bank_cpus: self.bank_cpus.clone(),
            controls: Controls::new(
                map_memory(&self.object, "controls", Controls::bytes(self.cpus), true)?,
                self.cpus,
            ),
            late: LateResponseRings::new(
                map_memory(&self.object, "late_rings", LateResponseRings::bytes(self.cpus), false)?,
                self.cpus,
            ),
            instances: config.trackers.len().max(1),
            stats: map_memory(
                &self.object,
                "stats",
                self.cpus * config.trackers.len().max(1) * size_of::<abi::rts_stats>(),
                false,
            )?,
            cells: match instances::cells(&config.trackers) {
                1 => None,
                each => {
                    let bytes = self.cpus * each as usize * size_of::<abi::rts_cell>();
                    Some((map_memory(&self.object, "cells", bytes, false)?, each as usize))
                }
            },
            thread_counts: match config.trackers.len() {
                0 => None,
                instances => Some(map_memory(
                    &self.object,
                    "thread_counts",
                    task_sets() * TASK_WAYS * instances * size_of::<abi::rts_thread_count>(),
                    false,
                )?),
            },
            trigger: Trigger::new(map_memory(&self.object, ".data.trigger", Trigger::bytes(), true)?),
        })
    }

    /// All tasks there are now; the tracker takes in those it does not know.
    ///
    /// # Errors
    /// When the iterator cannot be read.
    pub fn dump_tasks(&self) -> Result<Vec<TaskInfo>, Error> {
        let Some(link) = &self.dump else { return Ok(Vec::new()) };
        let io = |error| Error::Io { doing: "reading the task iterator".to_string(), error };
        let mut bytes = Vec::with_capacity(1 << 16);
        let mut iter = Iter::new(link).map_err(|error| bpf("making a task iterator", error, ""))?;
        iter.read_to_end(&mut bytes).map_err(io)?;
        Ok(tasks::parse_dump(&bytes))
    }

    /// The words of a data section that the eBPF programs write.
    pub(crate) fn section(&self, name: &str, bytes: usize) -> Result<SharedMemory, Error> {
        map_memory(&self.object, name, bytes, false)
    }

    /// The words of a data section that both sides write.
    pub(crate) fn shared_section(&self, name: &str, bytes: usize) -> Result<SharedMemory, Error> {
        map_memory(&self.object, name, bytes, true)
    }

    /// Calls whose paths are still to be read at their exit, because the memory was not there at the entry.
    ///
    /// # Errors
    /// When the counter cannot be mapped.
    pub fn calls_with_waiting_paths(&self) -> Result<u64, Error> {
        Ok(self.section(".data.paths", size_of::<u64>())?.load(0))
    }

    /// What the trackers did not see, in sentences: to be asked at the end.
    #[must_use]
    pub fn blind_spots(&self) -> Vec<String> {
        let is_loaded =
            |name: &str| self.object.progs().any(|program| program.autoload() && program.name() == name);
        let mut blind = Vec::new();
        // `resched_flag` in bpf/trackers/preemptoff.bpf.h: its first word.
        let is_known = |section: SharedMemory| section.load(0) as u32 != 0;
        if is_loaded(RESCHED_ASKED) && !self.section(".data.resched", size_of::<u64>()).is_ok_and(is_known) {
            blind.push("preemptoff: which of the kernel's requests are urgent could not be seen, since no CPU was idle for a moment: none were followed");
        }
        if is_loaded(RESCHED_WOKEN) {
            blind.push("preemptoff: only what the waking of real-time tasks asks for was followed: this kernel does not say other requests, or eBPF may end it where it does");
        }
        blind.into_iter().map(str::to_string).collect()
    }

    /// How far apart the samples of the tracker `irqoff` are; `None`: there are none.
    #[must_use]
    pub fn sample_ns(&self) -> Option<u64> {
        (self.sample_ns > 0).then_some(self.sample_ns)
    }

    /// How often each eBPF program was skipped because it was running already; `None` where the kernel does not say.
    #[must_use]
    pub fn recursion_misses(&self) -> Vec<(String, Option<u64>)> {
        self.infos().map(|(name, info)| (name, info.map(|info| info.recursion_misses))).collect()
    }

    /// Nanoseconds and runs of each eBPF program, while the kernel's statistics are switched on.
    #[must_use]
    pub fn run_time(&self) -> Vec<(String, u64, u64)> {
        self.infos()
            .filter_map(|(name, info)| info.map(|info| (name, info.run_time_ns, info.run_count)))
            .collect()
    }

    fn infos(&self) -> impl Iterator<Item = (String, Option<ProgramInfo>)> {
        self.object.progs().filter(|program| program.autoload() && program.name() != DUMP_TASKS).map(
            |program| (program.name().to_string_lossy().into_owned(), program_info(program.as_fd()).ok()),
        )
    }
}

impl Drop for EbpfPrograms {
    fn drop(&mut self) {
        // Off before the links go: taking 40 links off takes a while, and half of them would record nonsense.
        self.enable(false);
        self.links.clear();
        self.pages = HeldPages::of(&self.object);
    }
}

fn monotonic_ns() -> MonotonicNs {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec; CLOCK_MONOTONIC exists everywhere, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    MonotonicNs(now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs())
}

pub(crate) fn bpf(doing: &str, error: libbpf_rs::Error, log: &str) -> Error {
    Error::Bpf { doing: doing.to_string(), error, log: log.to_string() }
}

/// Leaves out what the kernel does not have, what the configuration does not use, and the benchmarks' programs.
fn choose_programs(open: &mut OpenObject, config: &EbpfConfig) -> Vec<&'static ProgramSpec> {
    let mut absent = Vec::new();
    let tracepoints = caps::Tracepoints::read();
    let tracks = |kind| config.trackers.iter().any(|tracker| tracker.follows.tracker() == kind);
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let spec = PROGRAMS.iter().find(|spec| spec.name == name);
        let asked_for = match spec {
            _ if name == TEST_PROGRAM => tests_skips(),
            _ if !config.only.is_empty() => config.only.contains(&name.as_str()),
            Some(spec) => config.recorder.is_some() || spec.tracks,
            None if is_for_calls(&name) => tracks(Tracker::Syscall),
            None if is_for_locks(&name) => tracks(Tracker::Lock),
            None if is_for_blocks(&name) => {
                tracks(Tracker::Block) && (name != BLOCK_START || tracepoints.has(BLOCK_START))
            }
            None if name == SAMPLE => tracks(Tracker::Irqoff),
            None if PAIRS.contains(&&*name) => tracks(Tracker::Pair),
            None if name == TASK_CAME || name == TASK_CAME_PROBED => {
                let is_wanted = config.stacks.is_some() && tracks(Tracker::Offcpu);
                is_wanted && (name == TASK_CAME) == tracepoints.has(SCHED_EXIT)
            }
            None if name == RESCHED_ASKED || name == RESCHED_WOKEN => {
                tracks(Tracker::Preemptoff) && (name == RESCHED_ASKED) == tracepoints.has(NEED_RESCHED)
            }
            None if name == RESCHED_OVER => tracks(Tracker::Preemptoff) && tracepoints.has(SCHED_EXIT),
            None => {
                !is_for_benchmarks(&name)
                    && !is_for_streams(&name)
                    && !is_for_expiry(&name)
                    && !is_for_tests(&name)
            }
        };
        let there = spec.is_none_or(|spec| tracepoints.has(spec.tracepoint));
        absent.extend(spec.filter(|_| asked_for && !there));
        let wanted = asked_for && there;
        program.set_autoload(wanted);
    }
    absent
}

/// Whether a test wants an eBPF program that is skipped, to see that skips are reported. Debug builds only: no environment
/// variable changes what a release does.
fn tests_skips() -> bool {
    cfg!(debug_assertions) && std::env::var_os("RTSCOPE_TEST_SKIPS").is_some()
}

fn store_config(open: &mut OpenObject, config: &EbpfConfig, banks_from: usize) -> Result<(), Error> {
    let [cpus, banks_from] =
        [caps::present_cpus(), banks_from].map(|cpu| u16::try_from(cpu).unwrap_or(u16::MAX));
    let values = abi::rts_config { cpus, banks_from, ..rodata(config)? };
    let mut map = open
        .maps_mut()
        .find(|map| map.name().to_string_lossy().ends_with(".rodata"))
        .ok_or_else(|| Error::Config("the eBPF object has no configuration section".to_string()))?;
    let target = map.initial_value_mut().unwrap_or_default();
    let bytes = size_of::<abi::rts_config>();
    if target.len() < bytes {
        return Err(Error::Config("the eBPF object's configuration has another size than ours".to_string()));
    }
    // SAFETY: `rts_config` is plain data without padding (kernel_abi.h), so each of its bytes may be read.
    let source = unsafe { std::slice::from_raw_parts((&raw const values).cast::<u8>(), bytes) };
    // The configuration is the only object in the section, so it is at its beginning.
    target[..bytes].copy_from_slice(source);
    Ok(())
}

/// The configuration as the eBPF programs see it.
fn rodata(config: &EbpfConfig) -> Result<abi::rts_config, Error> {
    let mut values = abi::rts_config { bank_size: 1 << 16, waits: waits(), ..Default::default() };
    if let Some(recorder) = &config.recorder {
        if !recorder.bank_bytes.is_power_of_two() || !(1 << 16..=1 << 28).contains(&recorder.bank_bytes) {
            return Err(Error::Config(format!(
                "a buffer of {} bytes: it must be a power of two from 64K to 256M",
                recorder.bank_bytes
            )));
        }
        values.record = 1;
        values.bank_size = recorder.bank_bytes as u64;
        if let Some(snapshot) = recorder.snapshot {
            values.snapshot = 1;
            values.post_ns = snapshot.post_ns;
            values.rate_ns = snapshot.interval_ns;
        }
        if let Some(stream) = &recorder.stream {
            values.stream = 1;
            values.while_ns = stream.while_ns;
            values.without_nmi = u16::from(!config.only.is_empty() && !config.only.contains(&NMI_PROGRAM));
            values.own_pid = if stream.with_self { 0 } else { std::process::id() };
            for (syscall, wanted) in &stream.calls {
                if let Some(slot) = values.calls.get_mut(*syscall) {
                    *slot |= *wanted;
                }
            }
            for (syscall, args) in &stream.paths {
                if let Some((slot, call)) = values.paths.get_mut(*syscall).zip(values.calls.get_mut(*syscall))
                {
                    *slot = *args;
                    *call |= abi::RTS_CALL_PATHS as u8;
                }
            }
        }
    }
    values.bank_shift = values.bank_size.trailing_zeros();
    values.sub_buffer_shift = (values.bank_size / u64::from(abi::RTS_SUB_BUFFERS)).trailing_zeros();
    stacks::store(&mut values, config);
    store_trackers(&mut values, &config.trackers)?;
    Ok(values)
}

pub(crate) fn map_memory(
    object: &Object,
    name: &str,
    bytes: usize,
    writable: bool,
) -> Result<SharedMemory, Error> {
    let io = |error| Error::Io { doing: format!("mapping the eBPF map {name}"), error };
    let map = object
        .maps()
        .find(|map| map.name().to_string_lossy() == name)
        .ok_or_else(|| io(std::io::Error::from(std::io::ErrorKind::NotFound)))?;
    SharedMemory::map(map.as_fd(), bytes, writable).map_err(io)
}
