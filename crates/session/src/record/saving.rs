// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traces of a flight recorder while they are written.
//!
//! What the rings hold is copied at once, which takes a fraction of a second; writing it may take many seconds. So each trace is written by a thread of
//! its own, and nobody waits for a trace of somebody else: it is the moment that would be gone. Whose programs have asked for a trace that is being
//! written waits for his next one (`snapshots`): there are no more threads than users who ask, and what they hold is limited.

use super::settings::SnapshotsAsked;
use super::{KERNEL, PROGRAMS, RecordedTrace};
use crate::kernel_flight::KernelPart;
use crate::program_flight::{ProgramBytes, UserPart, leave_signals_to_others};
use crate::{Failure, Observer};
use rtscope_ctf::StagedDir;
use rtscope_programs::requests::SnapshotRequest;
use rtscope_store::ConversionSummary;
use rtscope_store::user::UserSummary;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};

/// For whom a trace is.
#[derive(Debug)]
pub(super) enum Cause {
    /// Somebody ran a command for it, or sent a signal; or it is the last one.
    Command(Vec<SnapshotRequest>),
    /// Events of programs of these users.
    Events(BTreeSet<u32>),
}

/// What was held at a moment.
#[derive(Debug)]
pub(super) struct Frozen {
    pub(super) kernel: Option<KernelPart>,
    pub(super) programs: Option<UserPart>,
}

/// What was written.
#[derive(Debug)]
pub(super) struct Written {
    target: PathBuf,
    kernel: Option<ConversionSummary>,
    programs: Option<UserSummary>,
}

/// A trace that is being written.
#[derive(Debug)]
struct Save {
    thread: JoinHandle<Result<Written, Failure>>,
    finished: Finished,
}

/// A trace that has been written, or not.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) cause: Cause,
    /// What it had of programs.
    pub(super) programs: ProgramBytes,
    pub(super) number: u32,
    pub(super) result: Result<Written, Failure>,
}

/// All that are being written.
#[derive(Debug, Default)]
pub(super) struct Saves {
    under_way: Vec<Save>,
    /// Those for which there was no thread.
    over: Vec<Finished>,
}

impl Frozen {
    /// What it has of programs.
    pub(super) fn program_bytes(&self) -> ProgramBytes {
        self.programs.as_ref().map(UserPart::program_bytes).unwrap_or_default()
    }

    /// Both traces get their names together, when they are whole.
    pub(super) fn write(self, target: &Path) -> Result<Written, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::doing("saving a snapshot", error);
        let staged = StagedDir::new(target).map_err(|error| failed(&error))?;
        let kernel = self.kernel.map(|part| part.write(&staged.path().join(KERNEL))).transpose()?;
        let programs = self.programs.map(|part| part.write(&staged.path().join(PROGRAMS)));
        let programs = programs.transpose().map_err(|error| failed(&error))?;
        staged.publish().map_err(|error| failed(&error))?;
        Ok(Written { target: target.to_path_buf(), kernel, programs })
    }
}

impl Written {
    /// Bytes on the disk.
    pub(super) fn bytes(&self) -> u64 {
        let kernel = self.kernel.as_ref().map(|summary| summary.bytes);
        let programs = self.programs.as_ref().map(|summary| summary.bytes);
        kernel.into_iter().chain(programs).fold(0, u64::saturating_add)
    }

    /// Says it. `asked`: of the last one, what events asked for.
    pub(super) fn tell(&self, asked: Option<&[SnapshotsAsked]>, observer: &dyn Observer) {
        if let Some(summary) = &self.kernel {
            let target = &self.target.join(KERNEL);
            observer.recorded(&RecordedTrace::Kernel { target, summary, behind_ns: None });
        }
        if let Some(summary) = &self.programs {
            let target = &self.target.join(PROGRAMS);
            observer.recorded(&RecordedTrace::Programs { target, summary, recording_cpu_us: None, asked });
        }
    }
}

impl Saves {
    /// Begins to write one.
    pub(super) fn begin(&mut self, frozen: Frozen, target: PathBuf, number: u32, cause: Cause) {
        let programs = frozen.program_bytes();
        let write = move || {
            leave_signals_to_others();
            frozen.write(&target)
        };
        let died = Failure::Failed("the thread that saves a trace has died".to_string());
        let mut finished = Finished { cause, programs, number, result: Err(died) };
        match Builder::new().name("rtscope-writer".to_string()).spawn(write) {
            Ok(thread) => self.under_way.push(Save { thread, finished }),
            Err(error) => {
                finished.result = Err(Failure::doing("starting a thread that saves a trace", error));
                self.over.push(finished);
            }
        }
    }

    /// Traces that are being written.
    pub(super) fn number(&self) -> usize {
        self.under_way.len()
    }

    /// Whether one of them is for a command.
    pub(super) fn has_command(&self) -> bool {
        self.under_way.iter().any(|save| matches!(save.finished.cause, Cause::Command(_)))
    }

    /// Those that are over by now. `waits`: all.
    pub(super) fn finished(&mut self, waits: bool) -> Vec<Finished> {
        let under_way = std::mem::take(&mut self.under_way);
        let (over, rest) = under_way.into_iter().partition(|save| waits || save.thread.is_finished());
        self.under_way = rest;
        let over: Vec<Save> = over;
        let result = |Save { thread, finished }: Save| match thread.join() {
            Ok(result) => Finished { result, ..finished },
            // It panicked: its message is on standard error already.
            Err(_) => finished,
        };
        std::mem::take(&mut self.over).into_iter().chain(over.into_iter().map(result)).collect()
    }
}
