// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rounds: each runs every case once, in random order, so that what changes with time changes all of them alike.

use super::cases::{self, AbsentTracer, KernelEvents, TraceCounts, Tracer, Tracers};
use super::machine::Machine;
use super::options::{ImpactOptions, TracerArg};
use super::report::{self, Column, Run};
use super::setup::{Limits, LoopEvent, Setup};
use super::{Progress, failed};
use crate::exit::Failure;
use crate::output::note;
use rtscope_tracers::Error;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

/// Iterations of a run, unless --loops is given: enough for the 99.9999th percentile.
const LOOPS: u64 = 1_000_000;

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    /// Without an event.
    Untraced,
    /// With rtscope's event, which nobody records. For the tracers of its USDT probe it is the same.
    Disabled,
    /// With LTTng's.
    LttngDisabled,
    Traced(TracerArg),
}

impl Case {
    /// For people and programs.
    pub fn name(self) -> &'static str {
        match self {
            Case::Untraced => "untraced",
            Case::Disabled => "disabled",
            Case::LttngDisabled => "lttng-off",
            Case::Traced(tracer) => cases::title(tracer),
        }
    }
}

/// Runs them, and reports. After a signal with what there is so far.
pub fn run(
    options: &ImpactOptions,
    setup: &Setup,
    machine: &Machine,
    mut tracers: Tracers,
) -> Result<(), Failure> {
    let duration_ns = options.duration.map(|duration| duration.0);
    let loops = options.loops.map(|loops| loops.0).or(if duration_ns.is_some() { None } else { Some(LOOPS) });
    let interval_ns = options.rate.map_or(0.0, |rate| rate.0 as f64);
    let limits = Limits { loops, duration_ns, interval_ns };
    let mut results: BTreeMap<Case, Vec<Run>> = BTreeMap::new();
    let progress = Progress::new();
    let mut done = 0;
    'rounds: for round in 1..=options.rounds {
        let mut of_round = Vec::new();
        for case in shuffled(&tracers, round) {
            progress.say(&format!("round {round} of {}: {}", options.rounds, case.name()));
            match run_case(case, setup, &mut tracers, limits) {
                Ok(result) => of_round.push((case, result)),
                Err(Error::Stopped) => break 'rounds,
                Err(error) => match case {
                    Case::Traced(tracer) => {
                        progress.clear();
                        give_up(&mut tracers, tracer, &error);
                    }
                    _ => return Err(failed(error)),
                },
            }
        }
        // A round that was not ended is no round: its differences would lack a part.
        of_round.into_iter().for_each(|(case, result)| results.entry(case).or_default().push(result));
        done = round;
    }
    drop(progress);
    if done == 0 {
        return Err(failed(Error::Stopped));
    }
    if done < options.rounds {
        note(&format!("rtscope: stopped after {done} of {} rounds", options.rounds));
    }
    // A tracer that failed in the middle is not compared by the rounds before.
    results.retain(|case, of_case| {
        !matches!(case, Case::Traced(tracer) if !tracers.available.contains_key(tracer))
            && of_case.len() == done as usize
    });
    let columns: Vec<Column> = results.into_iter().map(|(case, runs)| Column { case, runs }).collect();
    report::report(options, setup, machine, &columns, &tracers.absent)
}

fn give_up(tracers: &mut Tracers, tracer: TracerArg, error: &Error) {
    note(&format!("rtscope: {} is not measured: {error}", cases::title(tracer)));
    tracers.available.remove(&tracer);
    tracers.absent.push(AbsentTracer::new(tracer, error));
}

fn run_case(case: Case, setup: &Setup, tracers: &mut Tracers, limits: Limits) -> Result<Run, Error> {
    match case {
        Case::Untraced => {
            let event = LoopEvent { of: Some("without".into()), lttng: None };
            Ok(Run { sample: setup.run_loop(&event, limits)?, counts: None })
        }
        Case::Disabled => Ok(Run { sample: setup.run_loop(&LoopEvent::default(), limits)?, counts: None }),
        Case::LttngDisabled => {
            let event = lttng(tracers).map(|tracer| tracer.event()).unwrap_or_default();
            Ok(Run { sample: setup.run_loop(&event, limits)?, counts: None })
        }
        Case::Traced(tracer) => {
            let Some(tracer) = tracers.available.get_mut(&tracer) else {
                return Err(Error::Failed("it is not there".to_string()));
            };
            let (sample, counts) = traced(tracer.as_mut(), setup, limits, KernelEvents::No)?;
            Ok(Run { sample, counts: Some(counts) })
        }
    }
}

/// One run of the loop under a tracer. Whatever happens, the tracer has ended after.
pub fn traced(
    tracer: &mut dyn Tracer,
    setup: &Setup,
    limits: Limits,
    kernel: KernelEvents,
) -> Result<(super::setup::Sample, TraceCounts), Error> {
    let mut run = || {
        tracer.start(setup, kernel)?;
        let sample = setup.run_loop(&tracer.event(), limits)?;
        let counts = tracer.stop(setup)?;
        if counts.recorded > sample.emitted {
            let TraceCounts { recorded, .. } = counts;
            return Err(Error::Failed(format!(
                "it recorded {recorded} events of {}: somebody else ran the same loop at the same time",
                sample.emitted
            )));
        }
        Ok((sample, counts))
    };
    let result = run();
    if result.is_err() {
        tracer.abandon();
    }
    result
}

/// One of those that have its event.
fn lttng(tracers: &Tracers) -> Option<&dyn Tracer> {
    let one = |tracer| tracers.available.get(&tracer).map(Box::as_ref);
    one(TracerArg::Lttng).or(one(TracerArg::LttngTimer))
}

fn shuffled(tracers: &Tracers, round: u32) -> Vec<Case> {
    let traced = tracers.available.keys().map(|tracer| Case::Traced(*tracer));
    let disabled = lttng(tracers).map(|_| Case::LttngDisabled);
    let mut cases: Vec<Case> =
        [Case::Untraced, Case::Disabled].into_iter().chain(disabled).chain(traced).collect();
    // Random keys: the standard library's hash has a new seed for each of them.
    cases.sort_by_cached_key(|case| RandomState::new().hash_one((case.name(), round)));
    cases
}
