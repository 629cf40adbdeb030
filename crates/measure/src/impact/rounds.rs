// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rounds: each runs every case once, in random order, so that what changes with time changes all of them alike.

use super::cases::{AbsentTracer, KernelEvents, TraceCounts, Tracer, TracerKind, Tracers};
use super::failed;
use super::machine::Machine;
use super::report::{Case, Column, MeasuredRun, Report, SCHEMA};
use super::setup::{Limits, LoopEvent, Sample, Setup};
use rtscope_session::{Failure, Observer};
use rtscope_tracers::Error;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

/// Iterations of a run, unless others are asked for: enough for the 99.9999th percentile.
const LOOPS: u64 = 1_000_000;

/// What is asked for of the rounds.
#[derive(Clone, Debug)]
pub struct RoundSettings {
    /// How many.
    pub rounds: u32,
    /// Iterations of each run; `None`, without a time: a million.
    pub loops: Option<u64>,
    /// Time of each run.
    pub duration_ns: Option<u64>,
    /// Least time between two events; `None`: one in each iteration.
    pub interval_ns: Option<u64>,
}

/// Runs them. After a stop with what there is so far.
pub fn run(
    settings: &RoundSettings,
    setup: &Setup<'_>,
    machine: Machine,
    mut tracers: Tracers,
    observer: &dyn Observer,
) -> Result<Report, Failure> {
    let duration_ns = settings.duration_ns;
    let loops = settings.loops.or(if duration_ns.is_some() { None } else { Some(LOOPS) });
    let interval_ns = settings.interval_ns.map_or(0.0, |interval| interval as f64);
    let limits = Limits { loops, duration_ns, interval_ns };
    let mut results: BTreeMap<Case, Vec<MeasuredRun>> = BTreeMap::new();
    let mut done = 0;
    'rounds: for round in 1..=settings.rounds {
        let mut of_round = Vec::new();
        for case in shuffled(&tracers, round) {
            observer.step(&format!("round {round} of {}: {}", settings.rounds, case.name()));
            match run_case(case, setup, &mut tracers, limits) {
                Ok(result) => of_round.push((case, result)),
                Err(Error::Stopped) => break 'rounds,
                Err(error) => match case {
                    Case::Traced(tracer) => give_up(&mut tracers, tracer, &error, observer),
                    _ => return Err(failed(error)),
                },
            }
        }
        // A round that was not ended is no round: its differences would lack a part.
        of_round.into_iter().for_each(|(case, result)| results.entry(case).or_default().push(result));
        done = round;
    }
    if done == 0 {
        return Err(failed(Error::Stopped));
    }
    if done < settings.rounds {
        observer.note(&format!("stopped after {done} of {} rounds", settings.rounds));
    }
    // A tracer that failed in the middle is not compared by the rounds before.
    results.retain(|case, of_case| {
        !matches!(case, Case::Traced(tracer) if !tracers.available.contains_key(tracer))
            && of_case.len() == done as usize
    });
    let columns: Vec<Column> = results.into_iter().map(|(case, runs)| Column { case, runs }).collect();
    Ok(report(settings, setup, machine, &columns, tracers.absent))
}

fn report(
    settings: &RoundSettings,
    setup: &Setup<'_>,
    machine: Machine,
    columns: &[Column],
    absent: Vec<AbsentTracer>,
) -> Report {
    let samples = columns.iter().flat_map(|column| column.runs.iter().map(|run| &run.sample));
    let untraced = columns.iter().find(|column| column.case == Case::Untraced);
    Report {
        schema: SCHEMA,
        notes: machine.notes(samples),
        machine,
        cpu: setup.cpu,
        fifo: setup.fifo,
        buffer_bytes: setup.buffer_bytes,
        rate_per_second: settings.interval_ns.map(|interval| 1e9 / interval as f64),
        rounds: columns.first().map_or(0, |column| column.runs.len()),
        cases: columns.iter().map(|column| column.report(untraced)).collect(),
        absent,
    }
}

fn give_up(tracers: &mut Tracers, tracer: TracerKind, error: &Error, observer: &dyn Observer) {
    observer.note(&format!("{} is not measured: {error}", tracer.name()));
    tracers.available.remove(&tracer);
    tracers.absent.push(AbsentTracer::new(tracer, error));
}

fn run_case(
    case: Case,
    setup: &Setup<'_>,
    tracers: &mut Tracers,
    limits: Limits,
) -> Result<MeasuredRun, Error> {
    match case {
        Case::Untraced => {
            let event = LoopEvent { of: Some("without".into()), lttng: None };
            Ok(MeasuredRun { sample: setup.run_loop(&event, limits)?, counts: None })
        }
        Case::Disabled => {
            Ok(MeasuredRun { sample: setup.run_loop(&LoopEvent::default(), limits)?, counts: None })
        }
        Case::LttngDisabled => {
            let event = lttng(tracers).map(|tracer| tracer.event()).unwrap_or_default();
            Ok(MeasuredRun { sample: setup.run_loop(&event, limits)?, counts: None })
        }
        Case::Traced(tracer) => {
            let Some(tracer) = tracers.available.get_mut(&tracer) else {
                return Err(Error::Failed("it is not there".to_string()));
            };
            let (sample, counts) = traced(tracer.as_mut(), setup, limits, KernelEvents::No)?;
            Ok(MeasuredRun { sample, counts: Some(counts) })
        }
    }
}

/// One run of the loop under a tracer. Whatever happens, the tracer has ended after.
pub fn traced(
    tracer: &mut dyn Tracer,
    setup: &Setup<'_>,
    limits: Limits,
    kernel: KernelEvents,
) -> Result<(Sample, TraceCounts), Error> {
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
    one(TracerKind::Lttng).or(one(TracerKind::LttngTimer))
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
