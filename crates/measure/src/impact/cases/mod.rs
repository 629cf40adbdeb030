// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tracers, one file each. Each is started, records the event of one run of the loop, is stopped, and says from what it
//! has written how many events are there.

mod bpftrace;
mod lttng;
mod perf;
mod rtscope;
mod usdt;

use super::setup::{LoopEvent, Setup};
use rtscope_tracers::Error;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// What else is recorded at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelEvents {
    /// Nothing.
    No,
    /// All tracepoints of the scheduler and of interrupts, and all system calls.
    Yes,
}

/// What a tracer has written of one run.
#[derive(Clone, Debug, Default)]
pub struct TraceCounts {
    /// Events of the loop that are in its trace.
    pub recorded: u64,
    /// What the tracer itself reports as lost, of all kinds of events; `None`: it reports nothing.
    pub lost_reported: Option<u64>,
    /// It overwrites the oldest, so what is not there any more is no loss.
    pub overwrites: bool,
    /// Events of the kernel, where they were asked for.
    pub kernel: Option<u64>,
    /// Events that are in it more than once; each is counted once.
    pub repeated: u64,
}

impl TraceCounts {
    /// Events of the loop that should be in the trace and are not.
    pub fn lost(&self, emitted: u64) -> u64 {
        if self.overwrites { 0 } else { emitted.saturating_sub(self.recorded) }
    }
}

/// A tracer that can be measured here.
pub trait Tracer: std::fmt::Debug {
    /// Whose event the loop has to have.
    fn event(&self) -> LoopEvent {
        LoopEvent::default()
    }

    /// Begins to record; returns when it does.
    fn start(&mut self, setup: &Setup<'_>, kernel: KernelEvents) -> Result<(), Error>;

    /// Ends the recording, and counts.
    fn stop(&mut self, setup: &Setup<'_>) -> Result<TraceCounts, Error>;

    /// Ends it without reading what was recorded. Nothing of it is left.
    fn abandon(&mut self);
}

/// A tracer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TracerKind {
    /// `rtscope record -u`.
    Rtscope,
    /// `rtscope record -u --flight-recorder`.
    Flight,
    /// LTTng-UST, its defaults.
    Lttng,
    /// LTTng-UST with `--read-timer`.
    LttngTimer,
    /// `perf record` of the USDT probe.
    Perf,
    /// bpftrace of the USDT probe.
    Bpftrace,
}

impl TracerKind {
    /// For people and programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TracerKind::Rtscope => "rtscope",
            TracerKind::Flight => "flight",
            TracerKind::Lttng => "lttng",
            TracerKind::LttngTimer => "lttng-timer",
            TracerKind::Perf => "perf",
            TracerKind::Bpftrace => "bpftrace",
        }
    }
}

impl Serialize for TracerKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// All of them, in the order of the table.
pub const ALL: [TracerKind; 6] = [
    TracerKind::Rtscope,
    TracerKind::Flight,
    TracerKind::Lttng,
    TracerKind::LttngTimer,
    TracerKind::Perf,
    TracerKind::Bpftrace,
];

/// Those that can be measured, and why the others cannot.
#[derive(Debug, Default)]
pub struct Tracers {
    pub available: BTreeMap<TracerKind, Box<dyn Tracer>>,
    pub absent: Vec<AbsentTracer>,
}

/// A tracer that is not measured.
#[derive(Clone, Debug, Serialize)]
pub struct AbsentTracer {
    /// Which.
    pub tracer: TracerKind,
    /// Why not.
    pub reason: String,
    /// What to do about it, where that is known.
    pub remedy: Option<String>,
}

impl AbsentTracer {
    /// With the reason from the error.
    pub(super) fn new(tracer: TracerKind, error: &Error) -> AbsentTracer {
        AbsentTracer { tracer, reason: error.to_string(), remedy: error.remedy().map(String::from) }
    }
}

impl Tracers {
    /// Looks for those that were requested.
    pub fn find(setup: &Setup<'_>, wanted: &[TracerKind], kernel: bool) -> Result<Tracers, Error> {
        let mut tracers = Tracers::default();
        let mut lttng_support = lttng::LazyLttngSupport::default();
        for tracer in ALL.into_iter().filter(|tracer| wanted.is_empty() || wanted.contains(tracer)) {
            let found: Result<Box<dyn Tracer>, Error> = match tracer {
                TracerKind::Rtscope => Ok(rtscope::recorder()),
                TracerKind::Flight => Ok(rtscope::flight_recorder()),
                TracerKind::Lttng => lttng_support.get(setup, kernel).map(lttng::by_default),
                TracerKind::LttngTimer => lttng_support.get(setup, kernel).map(lttng::with_timer),
                TracerKind::Perf => perf::find(setup),
                TracerKind::Bpftrace => bpftrace::find(),
            };
            match found {
                Ok(found) => drop(tracers.available.insert(tracer, found)),
                Err(Error::Stopped) => return Err(Error::Stopped),
                Err(error) => tracers.absent.push(AbsentTracer::new(tracer, &error)),
            }
        }
        Ok(tracers)
    }
}
