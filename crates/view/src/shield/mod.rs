// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shields: plans, what was made of them, their state, and what was undone; as text, and as JSON objects (docs/json.md).

mod rt0;
mod text;
pub mod top;
pub mod verify;

pub use text::{created, plan, status, undone, unit};

use rtscope_session::shield::state::ShieldState;
use rtscope_shield::apply::{CurrentState, UndoOutcome, UndoneShield, complaint};
use rtscope_shield::boot;
use rtscope_shield::journal::Journal;
use rtscope_shield::plan::{Plan, State};
use rtscope_shield::step::{Outcome, Step};
use serde_json::{Value, json};

/// What would be changed.
pub const PLAN_SCHEMA: &str = "rtscope.shield.plan/1";
/// What was changed.
pub const CREATE_SCHEMA: &str = "rtscope.shield.create/1";
/// What there is.
pub const STATUS_SCHEMA: &str = "rtscope.shield.status/1";
/// What was set back.
pub const UNDO_SCHEMA: &str = "rtscope.shield.undo/1";

/// The object of a plan.
#[must_use]
pub fn plan_json(plan: &Plan) -> Value {
    json!({
        "schema": PLAN_SCHEMA,
        "rt": plan.rt.to_string(),
        "others": plan.others.to_string(),
        "level": plan.level,
        "apart": plan.apart,
        "settings": plan.settings,
        "boot": plan.boot,
        "boot_line": boot::line(&plan.boot),
        "notes": plan.notes,
    })
}

/// The object of a shield that has been made.
#[must_use]
pub fn created_json(journal: &Journal, plan: &Plan) -> Value {
    let refused = plan.settings.iter().filter(|setting| setting.state == State::Refused);
    let mut refused: Vec<Value> = refused
        .map(|setting| json!({ "knob": setting.knob, "place": setting.place, "why": setting.why }))
        .collect();
    refused.extend(journal.steps.iter().filter_map(|step| {
        let why = complaint(step)?;
        Some(json!({ "knob": step.knob, "place": step.place(), "label": step.label, "why": why }))
    }));
    json!({
        "schema": CREATE_SCHEMA,
        "rt": journal.rt,
        "others": journal.others,
        "apart": journal.apart,
        "keeper": journal.keeper,
        "applied": journal.changes().filter(|step| step.outcome == Some(Outcome::Applied)).count(),
        "refused": refused,
    })
}

/// The object of a shield's state; without a journal, of there being none.
#[must_use]
pub fn status_json(shield: &ShieldState) -> Value {
    let ShieldState { steps, problems, tasks, scheduler, .. } = shield;
    let journal = shield.journal.as_ref();
    let setting = |(step, now): &(Step, CurrentState)| {
        json!({
            "knob": step.knob, "place": step.place(), "label": step.label, "wanted": step.wanted,
            "before": step.old, "state": now,
        })
    };
    json!({
        "schema": STATUS_SCHEMA,
        "state": journal.map(|journal| journal.state),
        "rt": journal.map(|journal| &journal.rt),
        "others": journal.map(|journal| &journal.others),
        "apart": journal.map(|journal| &journal.apart),
        "scheduler": scheduler,
        "drifted": steps.iter().filter(|(_, now)| matches!(now, CurrentState::Drifted { .. })).count(),
        "settings": steps.iter().map(setting).collect::<Vec<Value>>(),
        "problems": problems,
        "rt0": tasks,
    })
}

/// The object of a shield that has been undone.
#[must_use]
pub fn undone_json(undone: &UndoneShield) -> Value {
    let all = &undone.settings;
    let failed = all.iter().filter(|(_, undone)| matches!(undone, UndoOutcome::Failed { .. })).count();
    let setting = |(step, undone): &(Step, UndoOutcome)| json!({ "knob": step.knob, "place": step.place(), "before": step.old, "state": undone });
    let settings: Vec<Value> = all.iter().map(setting).collect();
    json!({ "schema": UNDO_SCHEMA, "failed": failed, "settings": settings, "displaced": undone.displaced })
}
