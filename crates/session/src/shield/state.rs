// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a shield is now, and undoing it: what the crate `rtscope-shield` finds out and does, with what people have to know before and after.

use super::artis::{self, Status};
use crate::{Failure, Observer};
use rtscope_event::counted;
use rtscope_shield::apply::{self, CurrentState, UndoOutcome, UndoneShield};
use rtscope_shield::health::{self, Problem};
use rtscope_shield::journal::{self, Journal, State};
use rtscope_shield::rt0::{self, Rt0};
use rtscope_shield::step::Step;
use rtscope_shield::{Error, System};

/// A shield, or that there is none.
#[derive(Debug)]
pub struct ShieldState {
    /// What was changed; `None`: there is no shield.
    pub journal: Option<Journal>,
    /// Each setting, and what has become of it.
    pub steps: Vec<(Step, CurrentState)>,
    /// What is wrong with it as a whole.
    pub problems: Vec<Problem>,
    /// The real-time tasks on its CPUs.
    pub tasks: Vec<Rt0>,
    /// The scheduler of mode artis.
    pub scheduler: Option<Status>,
}

impl ShieldState {
    /// As it is now.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn read(system: &System) -> Result<ShieldState, Failure> {
        let journal = Journal::load(system)?;
        let made = journal.as_ref().filter(|journal| journal.state == State::Active);
        Ok(ShieldState {
            steps: journal.as_ref().map_or_else(Vec::new, |journal| apply::status(system, journal)),
            problems: made.map_or_else(Vec::new, |journal| health::health(system, journal).problems),
            tasks: journal.as_ref().map_or_else(Vec::new, |journal| rt0::rt0(system, journal)),
            scheduler: journal.as_ref().and_then(|journal| artis::status(system, journal)),
            journal,
        })
    }
}

/// What is wrong with a shield whose CPUs are not all there.
fn offline(system: &System) -> Result<Option<String>, Error> {
    let problems =
        Journal::load(system)?.map_or_else(Vec::new, |made| health::health(system, &made).problems);
    Ok(problems.into_iter().map(|problem| problem.what).find(|what| what.contains("offline")))
}

/// Undoes a shield. What could not be restored is in the result, and stays in the journal.
///
/// # Errors
/// When there is none, or its journal cannot be read.
pub fn undo(system: &System, force: bool, observer: &dyn Observer) -> Result<UndoneShield, Failure> {
    if let Some(what) = offline(system)? {
        observer.note(&format!(
            "{what}. Kernels before Linux 6.2 forget which offline CPUs tasks may use: there, bring them online first"
        ));
    }
    Ok(apply::undo(system, force)?)
}

/// Whether all was restored.
///
/// # Errors
/// When something was not, with what to do about it.
pub fn judge_undone(system: &System, undone: &UndoneShield) -> Result<(), Failure> {
    let is_failed = |(_, outcome): &&(Step, UndoOutcome)| matches!(outcome, UndoOutcome::Failed { .. });
    let failed = undone.settings.iter().filter(is_failed).count();
    if failed == 0 {
        return Ok(());
    }
    let offline = offline(system)?.map_or_else(String::new, |what| format!("; {what}"));
    Err(Failure::Failed(format!(
        "{} could not be restored; rtscope shield undo tries again with what is still in {}{offline}",
        counted(failed, "setting", "settings"),
        journal::PATH
    )))
}
