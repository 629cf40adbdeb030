// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduler in the kernel: loading it, attaching it, and how it ended.
//!
//! The order matters: the scheduler first, then the ways into the kernel, since a kick without a scheduler does nothing. Taking
//! it out goes the other way.

use crate::{Counts, Error, abi, probe};
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, PrintLevel};
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError};

static OBJECT: &[u8] = include_bytes!(env!("RTSCOPE_ARTIS_OBJECT"));

/// The program that brings RT1 back to real-time CPUs; attached while there are such tasks.
pub(crate) const LEAVE: &str = "leave_syscall";
/// These eBPF programs see real-time tasks take CPUs, and CPUs on their way offline.
const WATCHES: [&str; 2] = ["watch_switch", "watch_hotplug"];

/// How the scheduler is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The real-time CPUs.
    pub rt: Vec<u32>,
    /// All others of the machine, also those that are offline.
    pub others: Vec<u32>,
    /// Those of both that are offline now.
    pub offline: Vec<u32>,
    /// How long a task runs while others wait: its time slice.
    pub slice_ns: u64,
    /// The same on a real-time CPU, where changing places costs more.
    pub lent_slice_ns: u64,
    /// How long RT0 may hold a real-time CPU before tasks that wait there are taken elsewhere.
    pub grace_ns: u64,
    /// A task that stays in user mode for less than this on average is lent a CPU more rarely.
    pub min_burst_ns: u64,
}

impl Settings {
    /// The usual ones.
    #[must_use]
    pub fn new(rt: Vec<u32>, others: Vec<u32>, offline: Vec<u32>) -> Settings {
        Settings {
            rt,
            others,
            offline,
            slice_ns: 5_000_000,
            lent_slice_ns: 20_000_000,
            grace_ns: 1_000_000,
            min_burst_ns: 20_000,
        }
    }

    fn config(&self) -> Result<abi::rts_artis_config, Error> {
        let most = abi::RTS_ARTIS_CPUS;
        let too_high = |cpu: &&u32| **cpu >= most;
        if let Some(cpu) = self.rt.iter().chain(&self.others).find(too_high) {
            return Err(Error::Cpus(format!("CPU {cpu}: mode artis can use CPUs 0-{} only", most - 1)));
        }
        if self.rt.is_empty() || self.others.is_empty() {
            return Err(Error::Cpus("a CPU is needed for real time, and one for all the rest".into()));
        }
        let mut config = abi::rts_artis_config {
            nr_rt: self.rt.len() as u32,
            nr_others: self.others.len() as u32,
            rt: [0; abi::RTS_ARTIS_CPUS as usize],
            others: [0; abi::RTS_ARTIS_CPUS as usize],
            is_rt: [0; abi::RTS_ARTIS_CPUS as usize],
            is_offline: [0; abi::RTS_ARTIS_CPUS as usize],
            slice_ns: self.slice_ns,
            lent_slice_ns: self.lent_slice_ns,
            grace_ns: self.grace_ns,
            min_burst_ns: self.min_burst_ns,
        };
        for (slot, cpu) in config.rt.iter_mut().zip(&self.rt) {
            *slot = *cpu as u16;
            config.is_rt[*cpu as usize] = 1;
        }
        config.others.iter_mut().zip(&self.others).for_each(|(slot, cpu)| *slot = *cpu as u16);
        self.offline
            .iter()
            .filter_map(|cpu| usize::try_from(*cpu).ok())
            .filter(|cpu| *cpu < abi::RTS_ARTIS_CPUS as usize)
            .for_each(|cpu| config.is_offline[cpu] = 1);
        Ok(config)
    }

    fn most(&self) -> u32 {
        self.rt.iter().chain(&self.others).max().map_or(1, |last| last + 1)
    }
}

/// A string of the kernel's, which ends with a zero.
fn text(bytes: Option<&[u8]>) -> String {
    let bytes = bytes.unwrap_or_default();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// How the scheduler ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerExit {
    /// The kernel's number for the kind (`enum scx_exit_kind`): 64 asked by user space, 1024 and above an error.
    pub kind: u64,
    /// Why, in the kernel's words.
    pub reason: String,
    /// More of them.
    pub message: String,
}

/// A loaded scheduler. Dropping it takes it out.
#[derive(Debug)]
pub struct Scheduler {
    // In this order they are dropped: ways into the kernel, then the scheduler.
    leave: Option<Link>,
    entries: Vec<Link>,
    operations: Option<Link>,
    object: Object,
    cpus: u32,
}

impl Scheduler {
    /// Loads everything and attaches nothing.
    ///
    /// # Errors
    /// When the kernel lacks something, or refuses.
    pub fn load(settings: &Settings) -> Result<Scheduler, Error> {
        let probed = probe::probe();
        if let Some(missing) = probed.missing.first() {
            return Err(Error::Missing(missing.to_string()));
        }
        let mut open = open()?;
        let config = settings.config()?;
        let failed = |error| bpf("preparing the scheduler", error);
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let entry = probe::ENTRIES.iter().find(|(.., function, _)| *function == name);
            let there =
                entry.is_none_or(|(system, tracepoint, ..)| probe::has_tracepoint(system, tracepoint));
            program.set_autoload(there && !crate::hooks::EMPTY.contains(&name.as_str()));
        }
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            match map_size(&name) {
                None => {
                    return Err(Error::Missing(format!("the scheduler has a map of unknown size: {name}")));
                }
                Some(MapSize::PerCpu) => map.set_max_entries(settings.most()).map_err(failed)?,
                Some(MapSize::Fixed) if name.ends_with(".rodata.config") => {
                    store(map.initial_value_mut(), &config)?;
                }
                Some(MapSize::Fixed) => {}
            }
        }
        let object = open.load().map_err(|error| bpf("loading the scheduler", error))?;
        let cpus = settings.most();
        Ok(Scheduler { leave: None, entries: Vec::new(), operations: None, object, cpus })
    }

    /// Makes it the machine's scheduler.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach(&mut self) -> Result<(), Error> {
        let operations = self.object.maps_mut().find(|map| map.name() == "artis_ops");
        let mut operations = operations
            .ok_or_else(|| Error::Missing("the scheduler's object has no table of operations".into()))?;
        let link = operations.attach_struct_ops();
        self.operations = Some(link.map_err(|error| bpf("making it the machine's scheduler", error))?);
        for program in self.object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let is_entry = probe::ENTRIES.iter().any(|(.., function, _)| *function == name);
            if (is_entry || WATCHES.contains(&name.as_str())) && program.autoload() {
                let link = program.attach();
                self.entries.push(link.map_err(|error| bpf(&format!("attaching {name}"), error))?);
            }
        }
        Ok(())
    }

    /// Whether RT1 tasks come back at the end of a system call, which costs each system call of the machine something.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn watch_exits(&mut self, on: bool) -> Result<(), Error> {
        if !on {
            self.leave = None;
        } else if self.leave.is_none() {
            let program = self.object.progs_mut().find(|program| program.name() == LEAVE);
            self.leave = match program {
                Some(program) => Some(program.attach().map_err(|error| bpf("attaching the exit", error))?),
                None => None,
            };
        }
        Ok(())
    }

    /// How it ended; `None` while it has not.
    #[must_use]
    pub fn ended(&self) -> Option<SchedulerExit> {
        let bytes = self.data(".data.ended")?;
        let kind = u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?);
        let reason = std::mem::offset_of!(abi::rts_artis_exit, reason);
        let message = std::mem::offset_of!(abi::rts_artis_exit, message);
        (kind != 0).then(|| SchedulerExit {
            kind,
            reason: text(bytes.get(reason..message)),
            message: text(bytes.get(message..)),
        })
    }

    /// What the kernel said about all CPUs and the tasks that waited when it ended the scheduler; empty where it said nothing.
    #[must_use]
    pub fn dump(&self) -> String {
        text(self.data(".data.dump").as_deref())
    }

    fn data(&self, section: &str) -> Option<Vec<u8>> {
        let map = self.object.maps().find(|map| map.name().to_string_lossy().ends_with(section))?;
        map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok()?
    }

    /// The number by which any process of root finds the counters.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn counts_id(&self) -> Result<u32, Error> {
        self.map_id("counts")
    }

    fn map_id(&self, name: &str) -> Result<u32, Error> {
        let map = self.object.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| Error::Missing(format!("the scheduler's object has no map {name}")))?;
        map.info().map(|info| info.info.id).map_err(|error| bpf(&format!("asking for the map {name}"), error))
    }

    /// The number of the table of grants, for [`crate::grant`].
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn grants_id(&self) -> Result<u32, Error> {
        self.map_id("grants")
    }

    /// The counters now.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn counts(&self) -> Result<Vec<Counts>, Error> {
        crate::counts::read(self.counts_id()?, self.cpus)
    }
}

/// How a map gets its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MapSize {
    /// As it is compiled.
    Fixed,
    /// An entry for each CPU.
    PerCpu,
}

/// The size of the map with this name; `None` for a map that nobody has thought of here.
fn map_size(name: &str) -> Option<MapSize> {
    match name {
        "counts" | "rings" => Some(MapSize::PerCpu),
        "tasks" | "grants" | "artis_ops" => Some(MapSize::Fixed),
        // Sections of variables, which the compiler sizes: no name in C has a dot.
        name if name.contains('.') => Some(MapSize::Fixed),
        _ => None,
    }
}

pub(crate) fn open() -> Result<OpenObject, Error> {
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep_message)));
    // Old messages belong to earlier calls.
    take_log();
    ObjectBuilder::default().open_memory(OBJECT).map_err(|error| bpf("opening the scheduler's object", error))
}

fn store(target: Option<&mut [u8]>, config: &abi::rts_artis_config) -> Result<(), Error> {
    let bytes = size_of::<abi::rts_artis_config>();
    let target = target.and_then(|target| target.get_mut(..bytes));
    let target = target
        .ok_or_else(|| Error::Missing("the scheduler's settings have another size than ours".into()))?;
    // SAFETY: plain data without padding (bpf/artis_abi.h: each field is aligned by those before it), so each byte may be read.
    let source = unsafe { std::slice::from_raw_parts((&raw const *config).cast::<u8>(), bytes) };
    target.copy_from_slice(source);
    Ok(())
}

static LOG: Mutex<String> = Mutex::new(String::new());

fn keep_message(_: PrintLevel, message: String) {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    // A verifier's log can be megabytes: keep the end.
    if log.len() > 1 << 20 {
        log.clear();
    }
    log.push_str(&message);
}

fn take_log() -> String {
    std::mem::take(&mut *LOG.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(crate) fn bpf(doing: &str, error: libbpf_rs::Error) -> Error {
    let log = take_log();
    let lines: Vec<&str> = log.lines().collect();
    let log = lines[lines.len().saturating_sub(40)..].join("\n");
    Error::Bpf { doing: doing.to_owned(), error, log }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_map_of_the_scheduler_has_a_size() {
        let open = open().expect("our own object");
        let names: Vec<String> = open.maps().map(|map| map.name().to_string_lossy().into_owned()).collect();
        assert!(names.iter().any(|name| name == "counts"), "{names:?}");
        let unknown: Vec<_> = names.iter().filter(|name| map_size(name).is_none()).collect();
        assert!(unknown.is_empty(), "say in map_size() how large they are: {unknown:?}");
    }

    #[test]
    fn settings_say_which_cpus_cannot_be_had() {
        let refused = |rt: &[u32], others: &[u32]| {
            Settings::new(rt.to_vec(), others.to_vec(), Vec::new())
                .config()
                .err()
                .map(|error| error.to_string())
        };
        // The largest machine that there may be: a CPU beyond the limit is refused by name, and the limit is named.
        let all_but_one: Vec<u32> = (1..4096).collect();
        let why = refused(&all_but_one, &[0]).expect("too many");
        assert_eq!(why, "CPU 256: mode artis can use CPUs 0-255 only");
        assert!(refused(&[1], &[0, 4095]).is_some_and(|why| why.contains("CPU 4095")));
        assert!(refused(&[255], &[0]).is_none());
        assert!(refused(&[], &[0]).is_some() && refused(&[1], &[]).is_some());
        let config = Settings::new(vec![1], vec![0, 2], vec![2]).config().expect("good");
        assert_eq!((config.nr_rt, config.nr_others, config.others[1]), (1, 2, 2));
        assert_eq!((config.is_rt[1], config.is_rt[2], config.is_offline[2]), (1, 0, 1));
    }
}
