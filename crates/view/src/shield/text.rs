// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans and shields for people. Settings that change alike are one line, however many there are.

use super::rt0::tasks;
use crate::clean;
use crate::units::counted;
use rtscope_session::shield::state::ShieldState;
use rtscope_shield::Cpus;
use rtscope_shield::apply::{CurrentState, UndoOutcome, UndoneShield, complaint};
use rtscope_shield::boot;
use rtscope_shield::effective::DisplacedInterrupt;
use rtscope_shield::health::Problem;
use rtscope_shield::journal::{Journal, State as Made};
use rtscope_shield::knobs::Level;
use rtscope_shield::partition::Isolation;
use rtscope_shield::plan::{Plan, Setting, State};
use rtscope_shield::step::{Outcome, Step};
use std::fmt::Write;

/// Width of the names of rows.
const NAME: usize = 16;
/// This many of what is alike are named.
const NAMED: usize = 4;

/// A plan.
#[must_use]
pub fn plan(plan: &Plan) -> String {
    let mut text = format!(
        "Real-time CPUs {}; everything else on CPUs {}. Level {}. Nothing has been changed.\n{}\n",
        plan.rt,
        plan.others,
        if plan.level == Level::Basic { "basic" } else { "full" },
        apart(&plan.apart)
    );
    text.push_str(&section(plan, State::Change, "Would change"));
    text.push_str(&section(plan, State::Refused, "Cannot be changed here"));
    text.push_str(&section(plan, State::AsWanted, "Already as wanted"));
    let absent = plan.settings.iter().filter(|setting| setting.state == State::Absent);
    let absent: Vec<&str> = absent.map(|setting| setting.knob.as_str()).collect();
    if !absent.is_empty() {
        let _ = writeln!(text, "\nNot on this machine: {}", absent.join(", "));
    }
    text.push_str(&boot_part(plan));
    if !plan.notes.is_empty() {
        text.push_str("\nAlso:\n");
        plan.notes.iter().for_each(|note| text.push_str(&format!("  {}\n", wrapped(note, "  "))));
    }
    text.push_str(
        "\nrtscope shield undo restores each old value, and removes the groups. Only the boot parameters need a reboot.\n",
    );
    clean(&text)
}

fn apart(apart: &Isolation) -> String {
    match apart {
        Isolation::Partition { mount } => {
            format!("CPUs are isolated by a cpuset partition in {mount}.")
        }
        Isolation::Cpusets { mount, .. } => {
            format!("CPUs are isolated by exclusive cpusets (cgroup v1) in {mount}.")
        }
        Isolation::Lent => {
            "CPUs are lent by a scheduler to tasks in user mode, and taken back when those enter the kernel."
                .to_owned()
        }
        Isolation::Affinities { .. } => "CPUs are isolated by the affinities of all tasks.".to_owned(),
    }
}

/// Settings that are alike in all that is shown.
fn alike(plan: &Plan, state: State) -> Vec<Vec<&Setting>> {
    let mut groups: Vec<Vec<&Setting>> = Vec::new();
    let key = |setting: &Setting| {
        (setting.knob.clone(), setting.now.clone(), setting.wanted.clone(), setting.why.clone())
    };
    for setting in plan.settings.iter().filter(|setting| setting.state == state) {
        let place = groups.iter_mut().find(|group| key(group[0]) == key(setting));
        match place.filter(|_| setting.knob != "partition") {
            Some(group) => group.push(setting),
            None => groups.push(vec![setting]),
        }
    }
    groups
}

fn section(plan: &Plan, state: State, title: &str) -> String {
    let groups = alike(plan, state);
    let count: usize = groups.iter().map(Vec::len).sum();
    let mut text = String::new();
    if count == 0 {
        return text;
    }
    let _ = writeln!(text, "\n{title} ({count}):");
    let mut last = "";
    for group in groups {
        let first = group[0];
        let name = if last == first.knob { "" } else { first.knob.as_str() };
        let now = first.now.as_deref().unwrap_or("-");
        let values = match (state, &first.wanted) {
            (State::Change, Some(_)) if first.now.is_none() && first.is_group => "new group".to_owned(),
            (State::Change, Some(wanted)) => format!("{now} -> {wanted}"),
            (State::Refused, _) => first.why.clone().unwrap_or_default(),
            _ => now.to_owned(),
        };
        let _ = writeln!(text, "  {name:<NAME$}  {values:<18}  {}", places(&group));
        if name == first.knob && state != State::AsWanted {
            let verb = if state == State::Change { "removes" } else { "stays" };
            let _ = writeln!(text, "  {:<NAME$}    {verb}: {}", "", first.removes);
        }
        last = first.knob.as_str();
    }
    text
}

fn places(group: &[&Setting]) -> String {
    let first = group[0];
    let named = |setting: &&Setting| match setting.label.is_empty() {
        true => setting.place.clone(),
        false => setting.label.clone(),
    };
    match group.len() {
        1 if first.label.is_empty() => first.place.clone(),
        1 => format!("{} ({})", first.place, first.label),
        many => {
            let names: Vec<String> = group.iter().take(NAMED).map(named).collect();
            let more = if many > NAMED { ", …" } else { "" };
            format!("{many}: {}{more}", names.join(", "))
        }
    }
}

fn boot_part(plan: &Plan) -> String {
    let line = boot::line(&plan.boot);
    let mut text =
        String::from("\nBoot parameters (rtscope never edits them; they apply from the next boot on):\n");
    for parameter in &plan.boot {
        let (state, why) = match &parameter.state {
            boot::State::Given => ("given", ""),
            boot::State::Missing => ("missing", ""),
            boot::State::Impossible { why } => ("no use", why.as_str()),
        };
        let _ = writeln!(text, "  {state:<9} {:<26} {}", parameter.text, parameter.removes);
        if !why.is_empty() {
            let _ = writeln!(text, "            {why}");
        }
    }
    if !line.is_empty() {
        let _ = writeln!(text, "  to add:   {line}");
    }
    text
}

/// Long notes in lines of their own.
fn wrapped(text: &str, indent: &str) -> String {
    let mut out = String::new();
    let mut width = 0;
    for word in text.split(' ') {
        if width > 0 && width + word.len() > 106 {
            let _ = write!(out, "\n{indent}  ");
            width = 0;
        } else if width > 0 {
            out.push(' ');
        }
        out.push_str(word);
        width += word.len() + 1;
    }
    out
}

/// What became of a plan.
#[must_use]
pub fn created(journal: &Journal, plan: &Plan) -> String {
    let applied = journal.changes().filter(|step| step.outcome == Some(Outcome::Applied)).count();
    let held = match journal.apart {
        Isolation::Lent => "for real-time work, and lent while it sleeps",
        _ => "shielded",
    };
    let mut text = format!(
        "CPUs {} are {held}; everything else is on CPUs {}. {} changed.\n",
        journal.rt,
        journal.others,
        counted(applied, "setting", "settings")
    );
    text.push_str(&section(plan, State::Refused, "Cannot be changed here"));
    let refused = journal.steps.iter().filter_map(|step| Some((step, complaint(step)?)));
    let refused: Vec<(&Step, String)> = refused.collect();
    if !refused.is_empty() {
        let _ = writeln!(text, "\nRefused ({}):", refused.len());
    }
    for (step, why) in refused {
        let _ = writeln!(text, "  {:<NAME$}  {} {}: {why}", step.knob, step.place(), step.label);
    }
    text.push_str("\nrtscope shield undo restores everything.\n");
    clean(&text)
}

/// A shield as it is now.
#[must_use]
pub fn status(shield: &ShieldState) -> String {
    let Some(journal) = &shield.journal else { return "no shield".to_owned() };
    let mut text = settings(journal, &shield.steps);
    if let (Made::Active, Ok(rt)) = (journal.state, Cpus::from_list(&journal.rt)) {
        text.push_str(&problems(&shield.problems));
        text.push_str(&clean(&tasks(&shield.tasks, &rt)));
    }
    let scheduler = shield.scheduler.as_ref().map(|scheduler| clean(&format!("\n{scheduler}")));
    format!("{}{}", text.trim_end(), scheduler.unwrap_or_default())
}

fn settings(journal: &Journal, steps: &[(Step, CurrentState)]) -> String {
    let mut text = match journal.state {
        Made::Active => format!("CPUs {} are shielded; everything else is on CPUs {}.\n", journal.rt, journal.others),
        Made::Creating | Made::Undoing => {
            "A shield is being made or undone, or that was interrupted: rtscope shield undo restores everything.\n".into()
        }
        Made::Left => "No shield. Settings changed by somebody else were left alone; rtscope shield undo --force restores them:\n".into(),
    };
    let count = |is: fn(&CurrentState) -> bool| steps.iter().filter(|(_, now)| is(now)).count();
    if journal.state != Made::Left {
        let _ = writeln!(
            text,
            "{} as wanted, {} drifted, {} refused, {} gone.",
            counted(count(|now| *now == CurrentState::AsWanted), "setting", "settings"),
            count(|now| matches!(now, CurrentState::Drifted { .. })),
            count(|now| matches!(now, CurrentState::Refused { .. })),
            count(|now| *now == CurrentState::Gone),
        );
    }
    for (step, now) in steps {
        match now {
            CurrentState::Drifted { value } => {
                let (knob, place, wanted) = (&step.knob, step.place(), &step.wanted);
                let _ = writeln!(text, "  drifted  {knob:<NAME$}  {place}: {value}, wanted {wanted}");
            }
            CurrentState::Refused { why } => {
                let _ = writeln!(text, "  refused  {:<NAME$}  {}: {why}", step.knob, step.place());
            }
            CurrentState::AsWanted | CurrentState::Gone => {}
        }
    }
    clean(&text)
}

/// What is wrong with a shield as a whole.
fn problems(problems: &[Problem]) -> String {
    let lines = problems.iter().map(|problem| {
        let kind = if problem.is_down { "NO SHIELD" } else { "DEGRADED" };
        format!("{kind}: {}\n", problem.what)
    });
    clean(&lines.collect::<String>())
}

/// What became of each setting.
#[must_use]
pub fn undone(undone: &UndoneShield) -> String {
    let UndoneShield { settings: all, displaced } = undone;
    let restored = all.iter().filter(|(_, undone)| *undone == UndoOutcome::Restored).count();
    let nothing = all.iter().filter(|(_, undone)| *undone == UndoOutcome::Nothing).count();
    let mut text = format!(
        "{} restored; {} the old value already, or gone.\n",
        counted(restored, "setting", "settings"),
        counted(nothing, "has", "have")
    );
    let mut left = 0;
    for (step, undone) in all {
        let before = step.old.as_deref().unwrap_or("-").trim();
        match undone {
            UndoOutcome::Foreign { now } => {
                left += 1;
                let place = step.place();
                let _ = writeln!(
                    text,
                    "  left    {place}: changed to {now} by somebody else; before the shield: {before}"
                );
            }
            UndoOutcome::Failed { why } => {
                let _ = writeln!(text, "  FAILED  {}: {why}; before the shield: {before}", step.place());
            }
            UndoOutcome::Restored | UndoOutcome::Nothing => {}
        }
    }
    for DisplacedInterrupt { label, affinity, before, now, .. } in displaced {
        let _ = writeln!(
            text,
            "  moved   interrupt {label}: comes to CPU {now}, before the shield to CPU {before}; it may come to {affinity}, as before"
        );
    }
    if !displaced.is_empty() {
        let _ = writeln!(text, "The kernel keeps these there: each moves when it next comes, or not at all.");
    }
    if left > 0 {
        let _ = writeln!(text, "rtscope shield undo --force also restores what was left.");
    }
    clean(&text)
}

/// A service.
#[must_use]
pub fn unit(program: &str, rt: &str, mode: &str, level: &str, keep: &[String]) -> String {
    // As systemd.service(5) wants words with spaces in them; % begins a specifier.
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    let program = quoted(program);
    let keep: String = keep.iter().map(|irq| format!(" --keep-irq \"{}\"", quoted(irq))).collect();
    format!(
        "[Unit]
Description=CPUs {rt} for real-time work only (rtscope shield)
Documentation=man:rtscope-shield(1)

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=\"{program}\" shield create --rt {rt}{mode} --level {level}{keep}
ExecStop=\"{program}\" shield undo
# Also when making it was interrupted.
ExecStopPost=\"-{program}\" shield undo

[Install]
WantedBy=multi-user.target
"
    )
}
