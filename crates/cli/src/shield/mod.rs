// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield`: CPUs kept free for real-time work. What is done, and the way back, is in the crate `rtscope-shield`.

pub mod options;
mod processes;
pub mod table;

use crate::exit::Failure;
use crate::observer::Terminal;
use crate::output::{note, prose, result};
use crate::stop;
use nix::unistd::geteuid;
use options::{
    ClassArg, LevelArg, ModeArg, MoveOptions, PlanOptions, RunOptions, ShieldCommand, ShieldOptions,
    TopOptions, UndoOptions, UnitOptions, VerifyOptions,
};
use rtscope_event::counted;
use rtscope_session::shield::artis;
use rtscope_session::shield::policy;
use rtscope_session::shield::state::{self, ShieldState};
use rtscope_session::shield::top::{self, TopSettings};
use rtscope_session::shield::verify::{self, VerifySettings};
use rtscope_shield::apply::{self, first_complaint};
use rtscope_shield::step::Step;
use rtscope_shield::{Cpus, Error, System, place, plan};
use rtscope_view::shield as view;
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

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
        ShieldCommand::Verify(options) => verify(&system, options),
        ShieldCommand::Table(options) => table::table(&system, options),
        ShieldCommand::Run(options) => run_program(&system, options),
        ShieldCommand::Move(options) => move_processes(&system, options),
        ShieldCommand::Undo(options) => undo(&system, options),
        ShieldCommand::Unit(options) => unit(options),
        ShieldCommand::Top(options) => top(&system, options),
        ShieldCommand::Keep(options) => processes::keep(&system, options),
        ShieldCommand::Guard(options) => processes::guard(&system, options),
    }
}

/// One JSON object, or a text for people.
fn shown(is_json: bool, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) {
    match is_json {
        true => result(&json().to_string()),
        false => prose(&text()),
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
    shown(options.json, || view::plan_json(&plan), || view::plan(&plan));
    Ok(())
}

fn create(system: &System, options: &PlanOptions) -> Result<(), Failure> {
    let plan = plan_of(system, options)?;
    let journal = match options.mode {
        ModeArg::Shield => apply::create(system, &plan)?,
        ModeArg::Artis => artis::create(system, &plan, &Terminal::new())?,
    };
    shown(options.json, || view::created_json(&journal, &plan), || view::created(&journal, &plan));
    Ok(())
}

fn status(system: &System, json: bool) -> Result<(), Failure> {
    let state = ShieldState::read(system)?;
    shown(json, || view::status_json(&state), || view::status(&state));
    Ok(())
}

fn verify(system: &System, options: &VerifyOptions) -> Result<(), Failure> {
    if options.duration.0 == 0 {
        return Err(Failure::Usage("--duration: it has to be longer than 0".into()));
    }
    let settings = VerifySettings {
        rt: options.rt.clone(),
        duration_ns: options.duration.0,
        buffer_bytes: options.buffer.0,
    };
    let report = verify::verify(system, &settings, &stop::on_signals()?, &Terminal::new())?;
    if options.json {
        result(&view::verify::json(&report).to_string());
    } else {
        view::verify::texts(&report).iter().for_each(|text| prose(text));
    }
    report.result()
}

/// Shows it again and again, or once: all since the scheduler was loaded.
fn top(system: &System, options: &TopOptions) -> Result<(), Failure> {
    if options.interval.0 == 0 {
        return Err(Failure::Usage("--interval: it has to be longer than 0".into()));
    }
    let interval = (!options.once).then(|| Duration::from_nanos(options.interval.0));
    top::top(system, TopSettings { interval }, &stop::on_signals()?, &mut |reading, window, rt| {
        shown(options.json, || view::top::json(reading, window, rt), || view::top::text(reading, window, rt));
    })
}

fn undo(system: &System, options: &UndoOptions) -> Result<(), Failure> {
    let undone = state::undo(system, options.force, &Terminal::new())?;
    shown(options.json, || view::undone_json(&undone), || view::undone(&undone));
    state::judge_undone(system, &undone)
}

/// The first step that did not have its effect is the failure.
fn check(steps: &[Step]) -> Result<(), Failure> {
    first_complaint(steps).map_or(Ok(()), |why| Err(Failure::Failed(why)))
}

fn run_program(system: &System, options: &RunOptions) -> Result<(), Failure> {
    let journal = place::active(system)?;
    if options.class == ClassArg::Rt1 {
        if options.cpu.is_some() {
            return Err(Failure::Usage("--cpu: the scheduler chooses the CPUs of rt1 tasks".into()));
        }
        artis::become_rt1(system, &journal, options.policy.prio.unwrap_or(20))?;
        return Err(replaced_by(options));
    }
    let wanted = policy::or_fifo(policy::wanted(&options.policy.words())?);
    let first = Cpus::from_list(&journal.rt).ok().and_then(|cpus| cpus.iter().next());
    let own = std::process::id() as i32;
    check(&place::enter(system, own, options.cpu.or(first))?)?;
    policy::schedule(system, own, wanted, options.policy.force, false, &Terminal::new())?;
    Err(replaced_by(options))
}

/// This process becomes the program: its exit code, its signals and its terminal are the program's own. It comes back only when that
/// cannot be.
fn replaced_by(options: &RunOptions) -> Failure {
    let error = Command::new(&options.command[0]).args(&options.command[1..]).exec();
    Failure::NoCommand(format!("cannot start {}: {error}", options.command[0].to_string_lossy()))
}

fn move_processes(system: &System, options: &MoveOptions) -> Result<(), Failure> {
    let wanted = policy::wanted(&options.policy.words())?;
    for pid in &options.pids {
        check(&place::enter(system, *pid, options.cpu)?)?;
        if let Some(wanted) = wanted {
            policy::schedule(system, *pid, wanted, options.policy.force, true, &Terminal::new())?;
        }
    }
    note(&format!("rtscope: {} moved", counted(options.pids.len(), "process", "processes")));
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
    result(&view::unit(&program.display().to_string(), &options.rt, mode, level, &options.keep_irq));
    Ok(())
}
