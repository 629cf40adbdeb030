// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is done about a detection besides the snapshot: it is reported, and a command is run with its record.
//!
//! Both can be limited, since a machine in trouble is late thousands of times a second; what a limit suppresses is counted. The
//! thread that reads the kernel's reports never waits for a command: it hands the record over (`command`).

mod command;

pub use command::{CommandAction, CommandCounts, CommandWords};

use crate::watch::rates::{UserRates, account_of};
use crate::{Failure, Observer};
use command::Runner;
use rtscope_event::{LateResponse, WallClock};
use rtscope_flight::monotonic_now;
use serde::Serialize;
use std::sync::{Arc, Mutex, PoisonError};

/// Makes the record of a detection: one JSON object.
pub type RecordText = fn(&LateResponse, &WallClock) -> serde_json::Result<String>;

/// What is to be done about a detection.
#[derive(Clone, Debug, Default)]
pub struct ActionSettings {
    /// The least time between two detections that are reported one by one; `None`: all are.
    pub report_interval_ns: Option<u64>,
    /// What is run.
    pub command: Option<CommandAction>,
}

/// What the actions of a watch came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ActionReport {
    /// Detections that were counted, but not reported one by one; `None`: there is no limit.
    pub reports_suppressed: Option<u64>,
    /// Of the command; `None`: there is none.
    pub command: Option<CommandCounts>,
}

/// The actions of a watch. Shared by its threads.
#[derive(Debug)]
pub struct Actions {
    observer: Arc<dyn Observer>,
    clock: WallClock,
    reports: Option<ReportLimit>,
    runner: Option<(Runner, RecordText)>,
}

#[derive(Debug)]
struct ReportLimit {
    /// And how many were not reported.
    state: Mutex<(UserRates, u64)>,
}

impl ReportLimit {
    fn admits(&self, account: Option<u32>) -> bool {
        let now = monotonic_now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.0.admits(account, now) {
            state.1 += 1;
            return false;
        }
        state.0.taken(account, now);
        true
    }
}

impl Actions {
    /// Starts the thread that runs commands, if there are any to run.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(
        settings: &ActionSettings,
        record: Option<RecordText>,
        clock: WallClock,
        observer: &Arc<dyn Observer>,
    ) -> Result<Actions, Failure> {
        let runner = match (&settings.command, record) {
            (Some(action), Some(record)) => Some((Runner::start(action, Arc::clone(observer))?, record)),
            _ => None,
        };
        let limit = |interval_ns| ReportLimit { state: Mutex::new((UserRates::new(interval_ns), 0)) };
        let reports = settings.report_interval_ns.map(limit);
        Ok(Actions { observer: Arc::clone(observer), clock, reports, runner })
    }

    /// A detection.
    pub fn late(&self, late: &LateResponse) {
        let account = account_of(late);
        if self.reports.as_ref().is_none_or(|limit| limit.admits(account)) {
            self.observer.late(late);
        }
        let Some((runner, record)) = &self.runner else { return };
        runner.give((account, late.pid), || match record(late, &self.clock) {
            Ok(record) => Some(record),
            Err(error) => {
                self.observer.note(&format!("a record could not be written as JSON: {error}"));
                None
            }
        });
    }

    /// So far; `None`: there is nothing to be said, as nothing is limited and nothing is run.
    #[must_use]
    pub fn report(&self) -> Option<ActionReport> {
        if self.reports.is_none() && self.runner.is_none() {
            return None;
        }
        let suppressed = |limit: &ReportLimit| limit.state.lock().unwrap_or_else(PoisonError::into_inner).1;
        Some(ActionReport {
            reports_suppressed: self.reports.as_ref().map(suppressed),
            command: self.runner.as_ref().map(|(runner, _)| runner.counts()),
        })
    }

    /// Gives the commands that still run a moment, and ends them. Later detections are not acted on.
    pub fn end(&self) {
        if let Some((runner, _)) = &self.runner {
            runner.end();
        }
    }
}
