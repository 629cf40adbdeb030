// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where interrupts really come to. Of the CPUs that an interrupt may come to the kernel chooses one: its effective affinity.
//!
//! More CPUs move nothing: an interrupt whose CPU is among the new ones stays there (`assign_vector_locked` in the kernel's
//! arch/x86/kernel/apic/vector.c). So an interrupt with its old affinity would stay where the shield has sent it. It goes back if its affinity
//! is, for a moment, only the CPU to which it came before; where the kernel moves it with its next interrupt, that has to come in that moment.

use crate::apply::UndoOutcome;
use crate::form::Form;
use crate::kept::KEPT_IRQ;
use crate::knobs::IRQ;
use crate::step::{Step, Target};
use crate::{Cpus, System};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// How long the next interrupts are awaited that move to where they came before; all at once.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(5);

/// To which CPUs an interrupt came before the shield.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectiveAffinity {
    /// The file with the CPUs that it may come to.
    pub path: String,
    /// A list.
    pub cpus: String,
}

/// An interrupt that comes elsewhere than before the shield, although its affinity is what it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DisplacedInterrupt {
    /// Its file.
    pub place: String,
    /// Its number and devices.
    pub label: String,
    /// The CPUs that it may come to, as before.
    pub affinity: String,
    /// The CPUs that it came to.
    pub before: String,
    /// The CPUs that it comes to.
    pub now: String,
}

/// The file of a step that is about an interrupt.
fn file_of(step: &Step) -> Option<&str> {
    match &step.target {
        Target::File { path, .. } if [IRQ, KEPT_IRQ].contains(&step.knob.as_str()) => Some(path),
        _ => None,
    }
}

/// Where the interrupt comes to that has this file.
fn comes_to(system: &System, path: &str) -> Option<String> {
    let effective = path.replace("/smp_affinity_list", "/effective_affinity_list");
    let text = system.read(&effective).ok()?;
    Some(text.trim().to_owned()).filter(|cpus| !cpus.is_empty())
}

/// Whether none of the CPUs before is among those now. (An interrupt that nobody uses has all CPUs that it may come to.)
fn is_elsewhere(before: &str, now: &str) -> bool {
    let cpus = |list: &str| Cpus::from_list(list).unwrap_or_default();
    cpus(now).is_apart_from(&cpus(before))
}

/// Where the interrupts come to that these steps are about. Not all kernels tell.
pub fn before(system: &System, steps: &[Step]) -> Vec<EffectiveAffinity> {
    let of = |path: &str| Some(EffectiveAffinity { path: path.to_owned(), cpus: comes_to(system, path)? });
    steps.iter().filter_map(file_of).filter_map(of).collect()
}

/// Whether a step's value is what [`restore`] has written, when it was killed before it was done.
pub(crate) fn is_halfway(before: &[EffectiveAffinity], step: &Step, value: &str) -> bool {
    let of_step = before.iter().find(|one| file_of(step) == Some(&one.path));
    of_step.is_some_and(|one| Form::List.same(&one.cpus, value))
}

/// Sends interrupts that have their old affinity to where they came before. Returns those that come elsewhere all the same.
pub(crate) fn restore(
    system: &System,
    before: &[EffectiveAffinity],
    undone: &mut [(Step, UndoOutcome)],
) -> Vec<DisplacedInterrupt> {
    let is_elsewhere = |one: &EffectiveAffinity| {
        comes_to(system, &one.path).is_some_and(|now| is_elsewhere(&one.cpus, &now))
    };
    let mut moving = Vec::new();
    for (step, outcome) in undone.iter_mut() {
        let Some(one) = before.iter().find(|one| file_of(step) == Some(&one.path)) else { continue };
        let has_old = matches!(outcome, UndoOutcome::Restored | UndoOutcome::Nothing);
        if has_old && is_elsewhere(one) && step.old.is_some() && system.write(&one.path, &one.cpus).is_ok() {
            moving.push((step, outcome, one));
        }
    }
    let deadline = Instant::now() + PATIENCE;
    while moving.iter().any(|(.., one)| is_elsewhere(one)) && Instant::now() < deadline {
        std::thread::sleep(LOOK);
    }
    for (step, outcome, one) in &mut moving {
        if let Err(error) = system.write(&one.path, step.old.as_deref().unwrap_or_default()) {
            **outcome = UndoOutcome::Failed { why: error.to_string() };
        }
    }
    let displaced = |(step, _, one): &(&mut Step, &mut UndoOutcome, &EffectiveAffinity)| {
        let affinity = step.old.as_deref().unwrap_or_default().trim().to_owned();
        let now = comes_to(system, &one.path).filter(|_| is_elsewhere(one))?;
        let (place, label, before) = (one.path.clone(), step.label.clone(), one.cpus.clone());
        Some(DisplacedInterrupt { place, label, affinity, before, now })
    };
    moving.iter().filter_map(displaced).collect()
}
