// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What only the kernel's command line can set. It is read and reported, never edited.

use crate::form::Form;
use crate::{Cpus, System};
use serde::Serialize;

/// Whether a parameter is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// The kernel was started with it.
    Given,
    /// It could be added.
    Missing,
    /// It would not help here.
    Impossible {
        /// Why not.
        why: String,
    },
}

/// A parameter.
#[derive(Clone, Debug, Serialize)]
pub struct Parameter {
    /// As it is written.
    pub text: String,
    /// What it removes.
    pub removes: &'static str,
    /// Whether it is in force.
    #[serde(flatten)]
    pub state: State,
}

/// All parameters that help.
pub fn parameters(system: &System, rt: &Cpus, others: &Cpus) -> Vec<Parameter> {
    let line = system.read("/proc/cmdline").unwrap_or_default();
    let state = |given: bool| if given { State::Given } else { State::Missing };
    let tick = tick(system, rt);
    let mut all = vec![Parameter {
        text: format!("nohz_full={rt}"),
        removes: "the timer tick while one task runs, and RCU's callbacks",
        state: tick.clone(),
    }];
    if matches!(tick, State::Impossible { .. }) {
        all.push(Parameter {
            text: format!("rcu_nocbs={rt}"),
            removes: "RCU's callbacks",
            state: state(covers(&line, "rcu_nocbs", rt)),
        });
    }
    all.push(Parameter {
        text: format!("isolcpus=managed_irq,{rt}"),
        removes: "interrupts that cannot be moved otherwise (NVMe, multi-queue)",
        state: state(
            value(&line, "isolcpus").is_some_and(|value| value.split(',').any(|w| w == "managed_irq")),
        ),
    });
    all.push(Parameter {
        text: format!("irqaffinity={others}"),
        removes: "interrupts of devices that are found before the shield is made",
        state: state(value(&line, "irqaffinity").is_some()),
    });
    all.push(Parameter {
        text: "skew_tick=1".to_owned(),
        removes: "ticks of all CPUs at one instant",
        state: state(value(&line, "skew_tick") == Some("1")),
    });
    all
}

/// The line to add, or nothing.
pub fn line(parameters: &[Parameter]) -> String {
    let missing = parameters.iter().filter(|parameter| parameter.state == State::Missing);
    missing.map(|parameter| parameter.text.as_str()).collect::<Vec<_>>().join(" ")
}

fn tick(system: &System, rt: &Cpus) -> State {
    // "(null)" where the kernel could, but was not asked to.
    match system.read("/sys/devices/system/cpu/nohz_full") {
        Err(_) => State::Impossible { why: "this kernel is built without CONFIG_NO_HZ_FULL".to_owned() },
        Ok(text) => match Form::List.cpus(&text) {
            Some(cpus) if rt.without(&cpus).is_empty() => State::Given,
            _ => State::Missing,
        },
    }
}

/// Whether the tick stops on these CPUs while one task runs.
pub fn is_tickless(system: &System, rt: &Cpus) -> bool {
    tick(system, rt) == State::Given
}

fn value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_whitespace().filter_map(|word| word.split_once('=')).find(|(n, _)| *n == name).map(|(_, v)| v)
}

fn covers(line: &str, name: &str, cpus: &Cpus) -> bool {
    let value = value(line, name);
    value.is_some_and(|value| {
        value == "all" || Cpus::from_list(value).is_ok_and(|given| cpus.without(&given).is_empty())
    })
}

/// Whether the scheduler's domains were cut at boot: `isolcpus=` with `domain`, or without any word.
pub fn has_domain_isolation(system: &System) -> bool {
    let line = system.read("/proc/cmdline").unwrap_or_default();
    value(&line, "isolcpus").is_some_and(|value| {
        let words: Vec<&str> =
            value.split(',').filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic())).collect();
        words.is_empty() || words.contains(&"domain")
    })
}
