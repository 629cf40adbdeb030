// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is to be recorded, as plain values: a command line, a configuration or a program fills them in.

use super::backend::Backend;
pub use super::choice::ProcessChoice;
use super::places::PlaceWords;
use super::words::{LevelRange, OnlyWhile};
use crate::command::CommandOutput;
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Traces that are saved because of events, where nothing else is asked for: a program may ask for one a second, for ever.
pub const SNAPSHOTS: u32 = 100;
/// For tracepoints, where nothing else is asked for.
pub const KERNEL_BUFFER_BYTES: usize = 8 << 20;

/// A recording. [`RecordSettings::of`] has the usual values.
#[derive(Clone, Debug)]
pub struct RecordSettings {
    /// The directory of the trace, which does not exist yet. With both parts: of two traces, `kernel` and `ust`.
    pub output: PathBuf,
    /// Tracepoints; `None`: none.
    pub kernel: Option<KernelSettings>,
    /// Events of instrumented programs; `None`: none.
    pub programs: Option<ProgramsSettings>,
    /// Started when all is recorded; its end ends the recording. Empty: nothing is started.
    pub command: Vec<OsString>,
    /// Where its standard output goes.
    pub command_output: CommandOutput,
    /// Ends the recording after this time.
    pub duration_ns: Option<u64>,
    /// A real-time priority (`SCHED_FIFO`, 1 to 99) for the threads that empty buffers.
    pub fifo: Option<u8>,
    /// What asks a flight recorder for a snapshot.
    pub snapshot_on: Vec<SnapshotCause>,
    /// How many of them are saved; 0: any number.
    pub snapshots: u32,
    /// Bytes that all of them may take on the disk; `None`: half of what it has.
    pub snapshots_bytes: Option<u64>,
    /// Only the newest events are kept, in as much space; `None`: all are.
    pub ring: Option<RingSettings>,
}

impl RecordSettings {
    /// Processes and threads that are to be recorded and that do not exist.
    pub(super) fn absent(&self) -> impl Iterator<Item = u32> {
        let kernel = self.kernel.iter().flat_map(|kernel| &kernel.tids);
        let programs = self.programs.iter().flat_map(|programs| &programs.processes.pids);
        let all: BTreeSet<u32> = kernel.chain(programs).copied().collect();
        // Also for a thread, which a list of /proc does not have.
        all.into_iter().filter(|tid| !Path::new(&format!("/proc/{tid}")).exists())
    }
}

/// What asks a flight recorder for a snapshot, beside whoever runs `rtscope snapshot`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotCause {
    /// An event of a program: a pattern. It is recorded, too.
    Event(String),
    /// The kernel's tracing is switched off (`tracing_on`), as `cyclictest -b` does with `--tracemark`.
    TracingOff,
    /// SIGUSR1, or what the caller takes for it. That asks in any case.
    Signal,
}

/// What programs of a user asked a flight recorder for, by events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SnapshotsAsked {
    /// The user.
    pub uid: u32,
    /// Traces that were saved for it, if need be together with others; that is what was asked for, one a second at most.
    pub saved: u64,
    /// Traces that its share did not allow.
    pub refused: u64,
    /// Of those that were saved, how many were held back because an earlier one was still being written: what asked for them may have been
    /// overwritten by then, and is in no trace.
    pub late: u64,
    /// The longest time from an event that asked to what was held then, in ns.
    pub longest_ns: u64,
}

/// A limit for what a recording takes on the disk: its oldest events are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSettings {
    /// Traces, metadata, and what is not in a trace yet.
    pub max_bytes: u64,
    /// Files of each stream: of so many parts, one is removed at a time.
    pub max_files: u64,
}

/// Where nothing else is asked for.
pub const RING_FILES: u64 = 16;

impl RecordSettings {
    /// A recording of nothing yet, until somebody asks it to stop.
    #[must_use]
    pub fn of(output: impl Into<PathBuf>) -> RecordSettings {
        RecordSettings {
            output: output.into(),
            kernel: None,
            programs: None,
            command: Vec::new(),
            command_output: CommandOutput::default(),
            duration_ns: None,
            fifo: None,
            snapshot_on: Vec::new(),
            snapshots: SNAPSHOTS,
            snapshots_bytes: None,
            ring: None,
        }
    }
}

/// Which tracepoints, of which tasks.
#[derive(Clone, Debug)]
pub struct KernelSettings {
    /// `SYSTEM:EVENT` with `*` and `?`, a subsystem, `syscalls`, or `EVENT`; `!PATTERN` excludes. Empty: those that eBPF records.
    pub patterns: Vec<String>,
    /// `EVENT: EXPRESSION`, tested by the kernel.
    pub filters: Vec<String>,
    /// Places in programs, each of which is an event. With some of them and no patterns: nothing else.
    pub places: Vec<PlaceWords>,
    /// The trace unit whose address comparators were asked for.
    pub comparators: Option<String>,
    /// Only of these threads; empty: of all.
    pub tids: Vec<u32>,
    /// Also of the children that these threads make from now on.
    pub follow: bool,
    /// Only of COMMAND and its children.
    pub only_command: bool,
    /// Only of tasks with this name (with `*` and `?`).
    pub comm: Option<String>,
    /// Only on these CPUs, as `0,2-3`.
    pub cpus: Option<String>,
    /// Of each CPU, for each of the two recorders. A power of two.
    pub buffer_bytes: usize,
    /// Also what this process itself does.
    pub with_self: bool,
    /// Without eBPF.
    pub by_ftrace: bool,
    /// Only of tasks in which something of this tracker has been under way for longer than this.
    pub only_while: Option<OnlyWhile>,
    /// When the trace is made of what was recorded.
    pub conversion: Conversion,
}

impl Default for KernelSettings {
    /// What eBPF records, of all tasks.
    fn default() -> KernelSettings {
        KernelSettings {
            patterns: Vec::new(),
            filters: Vec::new(),
            places: Vec::new(),
            comparators: None,
            tids: Vec::new(),
            follow: false,
            only_command: false,
            comm: None,
            cpus: None,
            buffer_bytes: KERNEL_BUFFER_BYTES,
            with_self: false,
            by_ftrace: false,
            only_while: None,
            conversion: Conversion::WhenIdle,
        }
    }
}

/// When the trace is made of what was recorded of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// While it is recorded, in time that no task needs: where there is none, followers see events late.
    WhenIdle,
    /// While it is recorded, also in time that tasks want, as any other thread.
    Now,
    /// When the recording is over, so that nothing but recording happens before.
    After,
}

/// What is recorded of a thread with each event of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// The process id, in its own PID namespace.
    Pid,
    /// The thread id, in its own PID namespace.
    Tid,
    /// The thread's name.
    Comm,
    /// The CPU.
    Cpu,
    /// The user whose file the event was in.
    Uid,
}

impl Context {
    /// What tells the events of threads apart.
    pub const WHO: [Context; 4] = [Context::Pid, Context::Tid, Context::Comm, Context::Cpu];

    /// As the spool calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Context::Pid => "pid",
            Context::Tid => "tid",
            Context::Comm => "comm",
            Context::Cpu => "cpu",
            Context::Uid => "uid",
        }
    }
}

/// Which events of instrumented programs, and how.
#[derive(Clone, Debug)]
pub struct ProgramsSettings {
    /// `PROVIDER:EVENT` with `*` and `?`, or `PROVIDER`; `!PATTERN` excludes; `PATTERN if CONDITION` takes those of which it holds.
    pub patterns: Vec<String>,
    /// Only events of these levels (0 emergency … 7 debug).
    pub levels: LevelRange,
    /// Which processes are recorded.
    pub processes: ProcessChoice,
    /// Recorded with each event.
    pub context: Vec<Context>,
    /// Of each thread, unless its program sets it; `None`: what programs have by default.
    pub buffer_bytes: Option<usize>,
    /// Programs that allow it wait when a buffer is full.
    pub blocking: bool,
    /// Where events go; the last one whose pattern matches decides. None: to the rings of their threads.
    pub backends: Vec<Backend>,
}

impl Default for ProgramsSettings {
    /// All events of all levels.
    fn default() -> ProgramsSettings {
        ProgramsSettings {
            patterns: vec!["*".to_string()],
            levels: LevelRange { from: 0, to: 7 },
            processes: ProcessChoice::default(),
            context: Context::WHO.to_vec(),
            buffer_bytes: None,
            blocking: false,
            backends: Vec::new(),
        }
    }
}
