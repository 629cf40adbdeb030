// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a watch prints, as text or as JSON: results on standard output, what is going on on standard error.

use crate::exit::Failure;
use crate::output::{note, result};
use crate::terminal;
use rtscope_analyze::explain::Explanation;
use rtscope_analyze::summary;
use rtscope_event::{LateResponse, Names, Stuck, WallClock};
use rtscope_kernel::interrupts;
use rtscope_session::command::CommandEnd;
use rtscope_session::watch::actions::ActionReport;
use rtscope_session::watch::{HeldHistory, WatchStart};
use rtscope_session::{Observer, wall_clock};
use rtscope_store::trigger::TriggerFile;
use rtscope_view::{Style, clean, duration_text};
use std::path::Path;
use std::sync::OnceLock;

/// Prints what happens. Shared by the threads of a watch.
#[derive(Debug)]
pub struct Report {
    json: bool,
    style: Style,
    clock: WallClock,
    /// Of interrupts, for the line at the moment of detection.
    names: Names,
    /// How COMMAND ended, once it has.
    command: OnceLock<CommandEnd>,
}

impl Report {
    /// As JSON or as text; `verbose`: with all rows.
    pub fn new(json: bool, verbose: bool) -> Result<Report, Failure> {
        let mut names = Names::default();
        interrupts().into_iter().for_each(|(irq, name)| names.add_irq(irq, name));
        Ok(Report {
            json,
            style: terminal::style(verbose),
            clock: wall_clock::now()?,
            names,
            command: OnceLock::new(),
        })
    }

    fn print(&self, text: impl FnOnce() -> String, json: impl FnOnce() -> serde_json::Result<String>) {
        if self.json {
            match json() {
                Ok(line) => result(&line),
                Err(error) => self.note(&format!("a result could not be written as JSON: {error}")),
            }
        } else {
            result(&text());
        }
    }
}

impl Observer for Report {
    fn note(&self, text: &str) {
        note(&format!("rtscope: {}", clean(text)));
    }

    fn command_ended(&self, end: CommandEnd) {
        // Only the first one counts.
        let _ = self.command.set(end);
    }

    fn watching(&self, start: &WatchStart<'_>) {
        if self.json {
            result(&rtscope_view::watch_start_json(start).to_string());
        }
        rtscope_view::watch_start_notes(start).iter().for_each(|text| self.note(text));
    }

    fn history(&self, held: &HeldHistory) {
        rtscope_view::history_notes(held).iter().for_each(|text| self.note(text));
        if self.json {
            result(&rtscope_view::history_json(held).to_string());
        }
    }

    fn late(&self, late: &LateResponse) {
        self.print(
            || rtscope_view::late_text(late, &self.names, Some(&self.clock), self.style),
            || rtscope_view::late_json(late, Some(&self.clock)),
        );
    }

    fn stuck(&self, stuck: &Stuck) {
        self.print(
            || rtscope_view::stuck_text(stuck, &self.names, Some(&self.clock), self.style),
            || rtscope_view::stuck_json(stuck, Some(&self.clock)),
        );
    }

    fn snapshot(&self, trigger: &TriggerFile, explanations: &[Explanation], saved: Option<&Path>) {
        self.explained(explanations);
        result(&if self.json {
            rtscope_view::snapshot_json(trigger, saved).to_string()
        } else {
            rtscope_view::snapshot_text(trigger, explanations, saved, self.style)
        });
    }

    fn snapshot_lost(&self, trigger: &TriggerFile, why: &Failure) {
        self.note(&format!("snapshot {} is lost: {why}; watching goes on", trigger.number));
        if self.json {
            result(&rtscope_view::snapshot_lost_json(trigger, &why.to_string()).to_string());
        }
    }

    fn explained(&self, explanations: &[Explanation]) {
        if self.json {
            for explanation in explanations {
                self.print(String::new, || rtscope_view::explanation_json(explanation, Some(&self.clock)));
            }
        }
    }

    fn waiting_for_last_snapshot(&self, post_ns: u64) {
        let post = duration_text(post_ns);
        self.note(&format!(
            "waiting for the end of the last recording (--post {post}); Ctrl-C again ends it without a summary"
        ));
    }

    fn watched(&self, report: &summary::Report) {
        self.print(
            || format!("\n{}", rtscope_view::summary_text(report, self.style)),
            || rtscope_view::summary_json(report, self.command.get().copied()),
        );
    }

    fn acted(&self, report: &ActionReport) {
        self.print(|| rtscope_view::actions_text(report), || rtscope_view::actions_json(report));
    }
}
