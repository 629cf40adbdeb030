// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The eBPF programs that follow file descriptors (`bpf/fds.bpf.c`), from loading to removal: an object beside the recorder's, which nobody else
//! loads.
//!
//! The ring is the kernel's own (`BPF_MAP_TYPE_RINGBUF`), which has one order for all CPUs: that the last record about a slot is the right one
//! rests on it. Nobody is woken when something is in it; whoever reads it looks.

mod decode;
mod ways;

use crate::caps;
use crate::ebpf::{Error, bpf, map_memory};
use crate::program_info::program_info;
use crate::syscalls;
use libbpf_rs::{
    Iter, Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, RingBuffer, RingBufferBuilder,
};
use rtscope_abi::fds as abi;
use rtscope_event::{DescriptorLosses, DescriptorRecord, Pid};
use rtscope_ring::SharedMemory;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::io::Read;
use std::mem::{offset_of, size_of};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

static OBJECT: &[u8] = include_bytes!(env!("RTSCOPE_FDS_OBJECT"));

const SCAN_TASKS: &str = "scan_tasks";
const SCAN_FILES: &str = "scan_files";
const CALL_DONE: &str = "call_done";
const CALL_DONE_CLASSIC: &str = "call_done_classic";
const IO_URING: &str = "io_uring_done";
/// Without it, what io_uring gives and closes is found only behind calls that are compared.
pub(crate) const IO_URING_COMPLETE: &str = "io_uring_complete";
/// What is taken out of the ring at once.
const BATCH: usize = 4096;
/// Things that are told in a scan between two looks at the ring: each is less than half a KiB.
const SCAN_STEP: usize = 1024;

/// What is followed, and how much memory that takes.
#[derive(Clone, Debug)]
pub struct DescriptorSettings {
    /// Bytes of the ring: a power of two.
    pub ring_bytes: u32,
    /// Only these processes and their children, which may be none yet; `None`: all.
    pub processes: Option<Vec<Pid>>,
    /// Our own process, too.
    pub with_self: bool,
}

/// The programs, loaded and attached. Dropping it takes them out.
pub struct DescriptorPrograms {
    /// First: it reads a map of the object.
    ring: RingBuffer<'static>,
    arrived: Arc<Mutex<Arrived>>,
    /// Records that were read.
    taken: Cell<u64>,
    losses: SharedMemory,
    links: Vec<Link>,
    scans: Vec<Link>,
    follows_io_uring: bool,
    object: Object,
}

#[derive(Default)]
struct Arrived {
    records: VecDeque<DescriptorRecord>,
    malformed: u64,
}

impl fmt::Debug for DescriptorPrograms {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("DescriptorPrograms").field("links", &self.links.len()).finish_non_exhaustive()
    }
}

impl DescriptorPrograms {
    /// Loads and attaches them. Nothing is known of what was there before: [`DescriptorPrograms::scan`] tells.
    ///
    /// # Errors
    /// See [`Error`]; a missing feature is the same sentence that `rtscope caps` prints.
    pub fn start(settings: &DescriptorSettings) -> Result<DescriptorPrograms, Error> {
        if let Some(missing) = caps::stream_missing() {
            return Err(Error::Missing(Box::new(missing)));
        }
        let can_use_btf = syscalls::are_not_preempted()?;
        let log = caps::capture_libbpf_log();
        let mut open = ObjectBuilder::default()
            .open_memory(OBJECT)
            .map_err(|error| bpf("opening the eBPF object", error, &log.take()))?;
        let follows_io_uring = caps::Tracepoints::read().has(IO_URING_COMPLETE);
        for mut program in open.progs_mut() {
            let is_wanted = match &*program.name().to_string_lossy() {
                CALL_DONE => can_use_btf,
                CALL_DONE_CLASSIC => !can_use_btf,
                IO_URING => follows_io_uring,
                _ => true,
            };
            program.set_autoload(is_wanted);
        }
        prepare(&mut open, settings)?;
        let object = open.load().map_err(|error| bpf("loading the eBPF programs", error, &log.take()))?;
        let losses = map_memory(&object, ".data.losses", size_of::<abi::rts_fds_losses>(), true)?;
        let arrived = Arc::<Mutex<Arrived>>::default();
        let ring = ring(&object, &arrived)?;
        let (links, scans) = (Vec::new(), Vec::new());
        let mut programs = DescriptorPrograms {
            ring,
            arrived,
            taken: Cell::new(0),
            losses,
            links,
            scans,
            follows_io_uring,
            object,
        };
        for pid in settings.processes.iter().flatten() {
            programs.follow(*pid)?;
        }
        programs.attach()?;
        Ok(programs)
    }

    fn attach(&mut self) -> Result<(), Error> {
        let log = caps::capture_libbpf_log();
        for program in self.object.progs_mut().filter(|program| program.autoload()) {
            let name = program.name().to_string_lossy().into_owned();
            let link = program
                .attach()
                .map_err(|error| bpf(&format!("attaching the eBPF program {name}"), error, &log.take()))?;
            match &*name {
                // Tables before what is in them.
                SCAN_TASKS => self.scans.insert(0, link),
                SCAN_FILES => self.scans.push(link),
                _ => self.links.push(link),
            }
        }
        Ok(())
    }

    /// Follows this process, too, and its children from now on.
    ///
    /// # Errors
    /// When there is no room for its number.
    pub fn follow(&self, pid: Pid) -> Result<(), Error> {
        let Some(map) = self.object.maps().find(|map| map.name() == "followed") else { return Ok(()) };
        map.update(&pid.0.to_ne_bytes(), &[1], MapFlags::ANY)
            .map_err(|error| bpf("following a process", error, ""))
    }

    /// Has everything told that there is: `take` gets it with all that happens meanwhile. This is needed at the start and after losses.
    ///
    /// # Errors
    /// When an iterator cannot be read.
    pub fn scan(&mut self, take: &mut dyn FnMut(DescriptorRecord)) -> Result<(), Error> {
        let io = |error| Error::Io { doing: "reading an iterator of the kernel".to_string(), error };
        for number in 0..self.scans.len() {
            let Some(link) = self.scans.get(number) else { break };
            let mut iter = Iter::new(link).map_err(|error| bpf("making an iterator", error, ""))?;
            let mut told = [0; SCAN_STEP];
            loop {
                let count = iter.read(&mut told).map_err(io)?;
                self.read_told(take);
                if count == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes what had come when it was called. What comes meanwhile is left: programs may be quicker than who follows them, and this would have no
    /// end. How many records that were.
    pub fn read_told(&self, take: &mut dyn FnMut(DescriptorRecord)) -> u64 {
        let (before, until) = (self.taken.get(), self.records());
        while self.taken.get() < until && self.read(take) > 0 {}
        self.taken.get() - before
    }

    /// Takes a part of what has come. How many records that were; 0: nothing is left.
    fn read(&self, take: &mut dyn FnMut(DescriptorRecord)) -> usize {
        self.ring.consume_raw_n(BATCH);
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        let count = arrived.records.len();
        self.taken.set(self.taken.get() + count as u64);
        arrived.records.drain(..).for_each(take);
        count
    }

    /// Descriptors can be read from now on (fanotify): found in a scan.
    pub fn expect_reads(&self) {
        // ORDER: release is more than is needed: the programs look at it by itself.
        self.losses.store_release(offset_of!(abi::rts_fds_losses, reads_give), 1);
    }

    /// Whether descriptors that io_uring gives and closes are seen.
    #[must_use]
    pub fn follows_io_uring(&self) -> bool {
        self.follows_io_uring
    }

    /// What is missing so far.
    #[must_use]
    pub fn losses(&self) -> DescriptorLosses {
        let word = |offset: usize| self.losses.load(offset);
        let lost = offset_of!(abi::rts_fds_losses, lost);
        let malformed = self.arrived.lock().unwrap_or_else(PoisonError::into_inner).malformed;
        let followers = self.object.progs().filter(|program| {
            program.autoload() && ![SCAN_TASKS, SCAN_FILES].contains(&&*program.name().to_string_lossy())
        });
        DescriptorLosses {
            ring_full: (0..8).map(|kind| word(lost + kind * size_of::<u64>())).sum(),
            skipped_programs: followers
                .map(|program| program_info(program.as_fd()).ok().map(|info| info.recursion_misses))
                .sum(),
            unfollowed: word(offset_of!(abi::rts_fds_losses, unfollowed)),
            beyond: word(offset_of!(abi::rts_fds_losses, beyond)),
            large: word(offset_of!(abi::rts_fds_losses, large)),
            remote: word(offset_of!(abi::rts_fds_losses, remote)),
            unsettled: word(offset_of!(abi::rts_fds_losses, unsettled)),
            malformed,
        }
    }

    /// Records so far, without those that were lost.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.losses.load(offset_of!(abi::rts_fds_losses, records))
    }

    /// Takes the programs off; what has come can still be read.
    pub fn detach(&mut self) {
        self.links.clear();
    }
}

fn ring(object: &Object, arrived: &Arc<Mutex<Arrived>>) -> Result<RingBuffer<'static>, Error> {
    let failed = |error| bpf("mapping the ring", error, "");
    let map = object
        .maps()
        .find(|map| map.name() == "records")
        .ok_or_else(|| Error::Config("the eBPF object has no ring".to_string()))?;
    let arrived = Arc::clone(arrived);
    let mut builder = RingBufferBuilder::new();
    builder
        .add(&map, move |bytes| {
            let mut arrived = arrived.lock().unwrap_or_else(PoisonError::into_inner);
            match decode::record(bytes) {
                Some(record) => arrived.records.push_back(record),
                None => arrived.malformed += 1,
            }
            0
        })
        .map_err(failed)?;
    builder.build().map_err(failed)
}

fn prepare(open: &mut OpenObject, settings: &DescriptorSettings) -> Result<(), Error> {
    if !settings.ring_bytes.is_power_of_two() || settings.ring_bytes < 1 << 16 {
        return Err(Error::Config("the ring's size: a power of two, at least 64 KiB".to_string()));
    }
    let (calls, compat_calls) = (ways::native(), ways::compat());
    let values = abi::rts_fds_config {
        own_pid: if settings.with_self { 0 } else { std::process::id() },
        selective: u32::from(settings.processes.is_some()),
        most_chunks: 1024,
        pad: 0,
        calls,
        compat_calls,
    };
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == "records" {
            map.set_max_entries(settings.ring_bytes).map_err(|error| bpf("sizing the ring", error, ""))?;
        }
        if !name.ends_with(".rodata.config") {
            continue;
        }
        let bytes = size_of::<abi::rts_fds_config>();
        // SAFETY: `rts_fds_config` is plain data without padding (kernel_fds.h), so each of its bytes may be read.
        let source = unsafe { std::slice::from_raw_parts((&raw const values).cast::<u8>(), bytes) };
        let target = map.initial_value_mut().and_then(|section| section.get_mut(..bytes));
        // It is the only object in its section.
        target
            .ok_or_else(|| Error::Config("the eBPF object's configuration has another size".to_string()))?
            .copy_from_slice(source);
    }
    Ok(())
}
