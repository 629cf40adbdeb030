// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What could be recorded: the kernel's tracepoints with the recorder that takes each, and the instrumented programs that run now.
//!
//! The tracepoints are one file of tracefs; descriptions are read only of those whose fields are asked for.

mod programs;

pub use programs::{ListedProgram, programs};

use crate::Failure;
use crate::record::plan::{call_of, takes_calls};
use rtscope_ftrace::format::EventFormat;
use rtscope_ftrace::pattern::Patterns;
use rtscope_kernel::PROGRAMS;
use rtscope_kernel::caps::{self, Tracepoints};
use rtscope_kernel::tracefs::{EventName, Tracefs};

/// Which recorder takes a tracepoint in `rtscope record`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecorderKind {
    /// rtscope's own.
    Ebpf,
    /// The kernel's.
    Ftrace,
}

impl RecorderKind {
    /// The built-in events are taken by eBPF, where the kernel's types know it; system calls, where `calls` is something; everything else
    /// by ftrace.
    fn of(event: &EventName, tracepoints: &Tracepoints, calls: Option<&Tracefs>) -> RecorderKind {
        let built_in = PROGRAMS
            .iter()
            .any(|spec| spec.interrupts_off && spec.system == event.system && spec.tracepoint == event.name);
        let call = calls.is_some_and(|tracefs| call_of(tracefs, event).is_some());
        if built_in && tracepoints.has(&event.name) || call {
            RecorderKind::Ebpf
        } else {
            RecorderKind::Ftrace
        }
    }

    /// Its name.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            RecorderKind::Ebpf => "eBPF",
            RecorderKind::Ftrace => "ftrace",
        }
    }
}

/// Tracepoints of this kernel.
#[derive(Debug)]
pub struct TracepointList {
    tracefs: Tracefs,
    /// In order of their names.
    pub tracepoints: Vec<(EventName, RecorderKind)>,
}

impl TracepointList {
    /// Those that match; without patterns all of them.
    ///
    /// # Errors
    /// When a pattern cannot be read or matches none, or there is no tracefs.
    pub fn matching(patterns: &[String]) -> Result<TracepointList, Failure> {
        let parsed = match patterns.is_empty() {
            true => Patterns::parse("*"),
            false => Patterns::parse_all(patterns),
        }
        .map_err(|error| Failure::Usage(error.to_string()))?;
        let tracefs = Tracefs::find()?;
        let all = tracefs.events()?;
        let unknown =
            parsed.without_match(all.iter().map(|event| (event.system.as_str(), event.name.as_str())));
        let count = all.len();
        let wanted: Vec<EventName> =
            all.into_iter().filter(|event| parsed.matches(&event.system, &event.name)).collect();
        if wanted.is_empty() || !unknown.is_empty() {
            let which = if unknown.is_empty() { patterns.join(" ") } else { unknown.join(" ") };
            return Err(Failure::Usage(format!(
                "no tracepoint of this kernel matches '{which}'; rtscope list -k shows all {count}"
            )));
        }
        let known = Tracepoints::read();
        let calls = Some(&tracefs).filter(|_| caps::stream_missing().is_none() && takes_calls(wanted.iter()));
        let recorders: Vec<RecorderKind> =
            wanted.iter().map(|event| RecorderKind::of(event, &known, calls)).collect();
        Ok(TracepointList { tracepoints: wanted.into_iter().zip(recorders).collect(), tracefs })
    }

    /// Their descriptions, in the same order.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn formats(&self) -> Result<Vec<(EventFormat, RecorderKind)>, Failure> {
        let format = |(event, by): &(EventName, RecorderKind)| Ok((self.tracefs.format(event)?, *by));
        self.tracepoints.iter().map(format).collect()
    }
}
