// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield`: CPUs kept free for real-time work. What is done, and the way back, is in the crate `rtscope-shield`.

mod artis;
mod checks;
mod keeper;
pub mod options;
mod rt0;
pub mod table;
mod text;
mod top;
mod verify;
mod weights;

use crate::exit::Failure;
use crate::output::{note, result};
use crate::schema;
use nix::unistd::geteuid;
use options::{
    ClassArg, LevelArg, ModeArg, MoveOptions, PlanOptions, RunOptions, ShieldCommand, ShieldOptions,
    UndoOptions, UnitOptions,
};
use rtscope_shield::apply::{self, CurrentState, UndoOutcome, complaint, first_complaint};
use rtscope_shield::health;
use rtscope_shield::journal::{Journal, State};
use rtscope_shield::step::{Outcome, Step};
use rtscope_shield::{Cpus, Error, System, boot, place, plan};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Does what the arguments ask for.
pub fn run(options: &ShieldOptions) -> Result<(), Failure> {
    let system = System::new(&options.root);
    let changes = !matches!(
        options.command,
        ShieldCommand::Plan(_) | ShieldCommand::Status(_) | ShieldCommand::Verify(_) | ShieldCommand::Unit(_)
    );
    if changes && system.is_real() && !geteuid().is_root() {
        return Err(Failure::Missing(
            "a shield changes settings of the whole machine: run it as root".into(),
        ));
    }
    match &options.command {
        ShieldCommand::Plan(options) => show_plan(&system, options),
        ShieldCommand::Create(options) => create(&system, options),
        ShieldCommand::Status(options) => status(&system, options.json),
        ShieldCommand::Verify(options) => verify::verify(&system, options),
        ShieldCommand::Table(options) => table::table(&system, options),
        ShieldCommand::Run(options) => run_program(&system, options),
        ShieldCommand::Move(options) => move_processes(&system, options),
        ShieldCommand::Undo(options) => undo(&system, options),
        ShieldCommand::Unit(options) => unit(options),
        ShieldCommand::Top(options) => top::top(&system, options),
        ShieldCommand::Keep(options) => keeper::keep(&system, options),
        ShieldCommand::Guard(options) => keeper::guard(&system, options),
    }
}

fn plan_of(system: &System, options: &PlanOptions) -> Result<plan::Plan, Error> {
    match options.mode {
        ModeArg::Shield => plan::plan_keeping(system, &options.rt, options.level.into(), &options.keep_irq),
        ModeArg::Artis => plan::plan_lent(system, &options.rt, options.level.into(), &options.keep_irq),
    }
}

fn show_plan(system: &System, options: &PlanOptions) -> Result<(), Failure> {
    let plan = plan_of(system, options)?;
    if options.json {
        let object = json!({
            "schema": schema::SHIELD_PLAN,
            "rt": plan.rt.to_string(),
            "others": plan.others.to_string(),
            "level": plan.level,
            "apart": plan.apart,
            "settings": plan.settings,
            "boot": plan.boot,
            "boot_line": boot::line(&plan.boot),
            "notes": plan.notes,
        });
        result(&object.to_string());
    } else {
        result(&text::plan(&plan));
    }
    Ok(())
}

fn create(system: &System, options: &PlanOptions) -> Result<(), Failure> {
    let plan = plan_of(system, options)?;
    let journal = match options.mode {
        ModeArg::Shield => apply::create(system, &plan)?,
        ModeArg::Artis => artis::create(system, &plan)?,
    };
    let refused = plan.settings.iter().filter(|setting| setting.state == plan::State::Refused);
    let mut refused: Vec<Value> = refused
        .map(|setting| json!({ "knob": setting.knob, "place": setting.place, "why": setting.why }))
        .collect();
    refused.extend(journal.steps.iter().filter_map(|step| {
        let why = complaint(step)?;
        Some(json!({ "knob": step.knob, "place": step.place(), "label": step.label, "why": why }))
    }));
    if options.json {
        let applied = journal.changes().filter(|step| step.outcome == Some(Outcome::Applied)).count();
        let object = json!({
            "schema": schema::SHIELD_CREATE,
            "rt": journal.rt,
            "others": journal.others,
            "apart": journal.apart,
            "keeper": journal.keeper,
            "applied": applied,
            "refused": refused,
        });
        result(&object.to_string());
    } else {
        result(&text::created(&journal, &plan));
    }
    Ok(())
}

fn status(system: &System, json: bool) -> Result<(), Failure> {
    let journal = Journal::load(system)?;
    let steps = journal.as_ref().map_or_else(Vec::new, |journal| apply::status(system, journal));
    let made = journal.as_ref().filter(|journal| journal.state == State::Active);
    let problems = made.map_or_else(Vec::new, |journal| health::health(system, journal).problems);
    let tasks = journal.as_ref().map_or_else(Vec::new, |journal| rtscope_shield::rt0::rt0(system, journal));
    if json {
        let settings: Vec<Value> = steps
            .iter()
            .map(|(step, now)| {
                json!({
                    "knob": step.knob, "place": step.place(), "label": step.label, "wanted": step.wanted,
                    "before": step.old, "state": now,
                })
            })
            .collect();
        let object = json!({
            "schema": schema::SHIELD_STATUS,
            "state": journal.as_ref().map(|journal| journal.state),
            "rt": journal.as_ref().map(|journal| &journal.rt),
            "others": journal.as_ref().map(|journal| &journal.others),
            "apart": journal.as_ref().map(|journal| &journal.apart),
            "scheduler": journal.as_ref().and_then(|journal| artis::status(system, journal)),
            "drifted": steps.iter().filter(|(_, now)| matches!(now, CurrentState::Drifted { .. })).count(),
            "settings": settings,
            "problems": problems,
            "rt0": tasks,
        });
        result(&object.to_string());
        return Ok(());
    }
    match journal {
        None => result("no shield"),
        Some(journal) => {
            let mut text = text::status(&journal, &steps);
            if let (State::Active, Ok(rt)) = (journal.state, Cpus::from_list(&journal.rt)) {
                text.push_str(&text::problems(&problems));
                text.push_str(&rtscope_view::clean(&rt0::text(&tasks, &rt)));
            }
            result(text.trim_end());
            if let Some(scheduler) = artis::status(system, &journal) {
                result(&rtscope_view::clean(&scheduler.to_string()));
            }
        }
    }
    Ok(())
}

fn undo(system: &System, options: &UndoOptions) -> Result<(), Failure> {
    let problems =
        Journal::load(system)?.map_or_else(Vec::new, |made| health::health(system, &made).problems);
    if let Some(problem) = problems.iter().find(|problem| problem.what.contains("offline")) {
        note(&format!(
            "rtscope: {}. Kernels before Linux 6.2 forget which offline CPUs tasks may use: there, bring them online first",
            problem.what
        ));
    }
    let all = apply::undo(system, options.force)?;
    let failed = all.iter().filter(|(_, undone)| matches!(undone, UndoOutcome::Failed { .. })).count();
    if options.json {
        let settings: Vec<Value> = all
            .iter()
            .map(|(step, undone)| {
                json!({ "knob": step.knob, "place": step.place(), "before": step.old, "state": undone })
            })
            .collect();
        let object = json!({ "schema": schema::SHIELD_UNDO, "failed": failed, "settings": settings });
        result(&object.to_string());
    } else {
        result(&text::undone(&all));
    }
    if failed > 0 {
        let problems =
            Journal::load(system)?.map_or_else(Vec::new, |left| health::health(system, &left).problems);
        let offline = problems.iter().find(|problem| problem.what.contains("offline"));
        let offline = offline.map_or_else(String::new, |problem| format!("; {}", problem.what));
        return Err(Failure::Failed(format!(
            "{failed} settings could not be restored; they are still in {}, and rtscope shield undo tries again{offline}",
            rtscope_shield::journal::PATH
        )));
    }
    Ok(())
}

/// The first step that did not have its effect is the failure.
fn check(steps: &[Step]) -> Result<(), Failure> {
    first_complaint(steps).map_or(Ok(()), |why| Err(Failure::Failed(why)))
}

fn run_program(system: &System, options: &RunOptions) -> Result<(), Failure> {
    let journal = place::active(system)?;
    if options.class == ClassArg::Rt1 {
        artis::become_rt1(system, &journal, options)?;
        return Err(replaced_by(options));
    }
    let policy = rt0::or_fifo(rt0::wanted(&options.policy)?);
    let first = Cpus::from_list(&journal.rt).ok().and_then(|cpus| cpus.iter().next());
    let own = std::process::id() as i32;
    check(&place::enter(system, own, options.cpu.or(first))?)?;
    rt0::schedule(system, own, policy, options.policy.force, false)?;
    Err(replaced_by(options))
}

/// This process becomes the program: its exit code, its signals and its terminal are the program's own. It comes back only when that
/// cannot be.
fn replaced_by(options: &RunOptions) -> Failure {
    let error = Command::new(&options.command[0]).args(&options.command[1..]).exec();
    Failure::NoCommand(format!("cannot start {}: {error}", options.command[0].to_string_lossy()))
}

fn move_processes(system: &System, options: &MoveOptions) -> Result<(), Failure> {
    let policy = rt0::wanted(&options.policy)?;
    for pid in &options.pids {
        check(&place::enter(system, *pid, options.cpu)?)?;
        if let Some(policy) = policy {
            rt0::schedule(system, *pid, policy, options.policy.force, true)?;
        }
    }
    note(&format!("rtscope: {} processes moved", options.pids.len()));
    Ok(())
}

fn unit(options: &UnitOptions) -> Result<(), Failure> {
    Cpus::from_list(&options.rt).map_err(|error| Failure::Usage(format!("--rt: {error}")))?;
    let program = std::env::current_exe().map_err(|error| Failure::doing("finding this program", error))?;
    let level = match options.level {
        LevelArg::Basic => "basic",
        LevelArg::Full => "full",
    };
    let mode = match options.mode {
        ModeArg::Shield => "",
        ModeArg::Artis => " --mode artis",
    };
    result(&text::unit(&program.display().to_string(), &options.rt, mode, level, &options.keep_irq));
    Ok(())
}

/// Whether there is something that `undo --force` would set back.
fn is_left(state: State) -> bool {
    state == State::Left
}
