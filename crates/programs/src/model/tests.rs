// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the model shows: recorded + lost = emitted, each record whole and in order; and that it finds what is broken on purpose.

mod broken;
mod scenarios;

use super::choices::Choices;
use super::writer::{Outcome, Writer};
use super::{HANDLER, LOST, MEMORY, Memory, READER, RING, Weakened, with};
use crate::directory::{FileKind, FileName, ProcessId};
use crate::records::{Decoder, Layout, Record};
use crate::ring::Ring;
use broken::BROKEN;
use rtscope_event::exact::index;
use rtscope_testkit::skip;
use scenarios::{LARGER, Scenario, large, small};
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::Duration;

/// The stack pointer outside of handlers, how much deeper each handler is, and where a stack for handlers begins.
const STACK: u64 = 1 << 20;
const DEEPER: u64 = 1 << 12;
const OWN_STACK: u64 = 2 << 20;
/// Records that an event may leave: padding, the time, and its own.
const RECORDS_OF_EVENT: u64 = 3;
/// Each compiled writer has one thread's state.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What is known of a run beside the ring.
#[derive(Default)]
struct Run {
    layout: Option<Layout>,
    ring: Option<Ring>,
    writer: Option<Writer>,
    next_id: u32,
    /// Events that were recorded, and how many were not.
    emitted: Vec<u32>,
    lost: u64,
    /// Events under way, and those from which a handler jumped away.
    open: Vec<u32>,
    left: Vec<u32>,
    /// The newest event outside of handlers came back, and had the stack pointer of those that were left; no handler's event was left, which may
    /// have come before the outer one was noted as open.
    is_back: bool,
    left_in_handler: bool,
    taken: Vec<(u32, u64)>,
    told: u64,
    /// Handlers move the thread to the other CPU.
    moves: bool,
    /// Handlers have a stack for themselves.
    has_own_stack: bool,
    /// As in [`Scenario`].
    burst: u32,
}

thread_local! {
    static RUN: RefCell<Run> = RefCell::default();
}

fn layout() -> Layout {
    RUN.with_borrow(|run| run.layout.expect("it was set"))
}

/// The stack pointer of the next event. Behind a jump it may be another one.
fn stack() -> u64 {
    let depth = u64::from(with(|memory| memory.depth));
    let (jumped, has_own_stack) = RUN.with_borrow(|run| (!run.left.is_empty(), run.has_own_stack));
    let base = if has_own_stack { OWN_STACK } else { STACK };
    match depth {
        0 if jumped => match with(|memory| memory.choices.choose(3, 4)) {
            0 => STACK,
            1 => STACK + DEEPER,
            _ => STACK - DEEPER / 2,
        },
        0 => STACK,
        _ => base - depth * DEEPER,
    }
}

/// Emits the next event, of one or two words.
fn emit() {
    let stack = stack();
    let is_outside = with(|memory| memory.depth) == 0;
    let (writer, id) = RUN.with_borrow_mut(|run| {
        run.next_id += 1;
        run.open.push(run.next_id);
        (run.writer.expect("it was set"), run.next_id)
    });
    let outcome = writer.emit(id, 1 + id % 2, stack, is_outside);
    if outcome == Outcome::Left {
        with(|memory| memory.depth = 0);
    }
    RUN.with_borrow_mut(|run| {
        match outcome {
            Outcome::Recorded => run.emitted.extend(run.open.pop()),
            Outcome::Lost => run.lost += u64::from(run.open.pop().is_some()),
            Outcome::Left => {
                run.left_in_handler |= run.open.len() > 1;
                run.left.append(&mut run.open);
            }
        }
        if is_outside {
            run.is_back = outcome != Outcome::Left && stack == STACK && !run.left_in_handler;
        }
    });
}

fn handle() {
    if RUN.with_borrow(|run| run.moves) {
        RUN.with_borrow(|run| run.writer.expect("it was set").move_on());
    }
    (0..RUN.with_borrow(|run| run.burst)).for_each(|_| emit());
}

/// Checks a record, and keeps events. Returns what is wrong.
fn keep(record: Option<Record<'_>>, into: &mut Vec<(u32, u64)>, told: &mut u64) -> Result<(), String> {
    match record {
        None => {}
        Some(Record::Lost(count)) if count >= *told => *told = count,
        Some(Record::Event { id, counter, payload, .. }) => {
            let words: Vec<u64> =
                payload.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("whole"))).collect();
            let expected: Vec<u64> =
                (0..u64::from(1 + id % 2)).map(|word| u64::from(id) << 8 | word).collect();
            if words != expected {
                return Err(format!("event {id} has {words:x?}"));
            }
            if into.last().is_some_and(|(_, before)| *before > counter) {
                return Err(format!("event {id} is earlier than the one before it"));
            }
            into.push((id, counter));
        }
        Some(other) => return Err(format!("{other:?}")),
    }
    Ok(())
}

/// The reader takes what it finds.
fn take(is_last: bool) {
    let mut ring = RUN.with_borrow_mut(|run| run.ring.take().expect("it reads one at a time"));
    let mut problem = None;
    let result = ring.take(is_last, is_last, |records| {
        let mut decoder = Decoder::new(layout(), records.sync());
        let chunk = records.chunk();
        let (bytes, mut at) = (chunk.copy(), 0);
        while let Some((record, length)) = decoder.next(chunk.position + at as u64, &bytes[at..]) {
            let place = index(chunk.position) + at;
            with(|memory| memory.reader_finds(place, length, record.is_some()));
            let wrong = RUN.with_borrow_mut(|run| keep(record, &mut run.taken, &mut run.told)).err();
            problem = problem.take().or(wrong);
            at += length;
        }
        with(|memory| memory.torn.clear());
        Ok(())
    });
    let wrong = result.expect("nothing is written to a file").err();
    let left = RUN.with_borrow(|run| run.left.len() as u64);
    let unfinished = (!ring.is_impatient() && ring.unfinished > RECORDS_OF_EVENT * left)
        .then(|| format!("{} records were given up, and {left} events left", ring.unfinished));
    RUN.with_borrow_mut(|run| run.ring = Some(ring));
    if let Some(text) = problem.or(wrong).or(unfinished) {
        with(|memory| memory.fault(|| text));
    }
}

/// Runs a scenario once with the next decisions. `Err`: what went wrong.
fn run_once(
    scenario: &Scenario,
    writer: Writer,
    weakened: Weakened,
    choices: Choices,
) -> (Choices, Result<usize, String>) {
    let ring_bytes = index(scenario.layout.ring_bytes);
    let storage = vec![0_u64; (RING + ring_bytes) / 8];
    let base = storage.as_ptr() as usize;
    let mut memory = Memory::new(choices, scenario.limits, base, ring_bytes, scenario.flight);
    memory.weakened = weakened;
    MEMORY.set(Some(memory));
    RUN.set(Run {
        layout: Some(scenario.layout),
        ring: Some(reader(scenario)),
        writer: Some(writer),
        moves: scenario.moves,
        has_own_stack: scenario.has_own_stack,
        burst: scenario.burst,
        ..Run::default()
    });
    HANDLER.set(Some(handle));
    READER.set(Some(|| take(false)));
    writer.begin(base, scenario.layout, scenario.flight);
    (0..scenario.before).for_each(|_| emit());
    if !scenario.flight {
        take(false);
    }
    with(|memory| memory.explores = true);
    (0..scenario.events).for_each(|_| emit());
    let seen = if with(|memory| memory.child.is_some()) {
        // The child emits once more: it has no ring.
        emit();
        Ok(0)
    } else if scenario.flight {
        let is_numbered = with(|memory| memory.limits.signals) == scenario.limits.signals;
        snapshot(is_numbered)
    } else {
        finish()
    };
    let memory = MEMORY.take().expect("it was set");
    let result = memory.fault.map_or(seen, Err);
    (memory.choices, result)
}

/// The thread has ended, and all that it wrote is seen.
fn finish() -> Result<usize, String> {
    with(|memory| {
        memory.is_last = true;
        for word in 0..memory.history.len() {
            memory.read[word] = memory.newest(word);
        }
    });
    // Where an event with the same stack pointer came back, the collector knows what was left, and does not wait for it. After two jumps it
    // may have to, for as long as after one of a less deep stack: there is no time in this model.
    let goes_on = RUN.with_borrow(|run| run.left.len() == 1 && run.is_back && !run.has_own_stack);
    if goes_on {
        (0..RECORDS_OF_EVENT).for_each(|_| take(false));
        let missing = RUN.with_borrow(|run| {
            let is_taken = |id: &&u32| run.taken.iter().any(|(taken, _)| taken == *id);
            run.emitted.iter().filter(|id| !is_taken(id)).copied().collect::<Vec<u32>>()
        });
        if !missing.is_empty() {
            return Err(format!("{missing:?} wait behind an event that was left"));
        }
    }
    take(true);
    let lost = with(|memory| memory.history[LOST].last().map_or(0, |stored| stored.value));
    RUN.with_borrow(|run| {
        let mut taken: Vec<u32> = run.taken.iter().map(|(id, _)| *id).collect();
        // It may have been complete when a handler jumped away from it.
        let left = |id: &&u32| run.left.contains(id) && taken.contains(id);
        let mut emitted: Vec<u32> = run.emitted.iter().chain(run.left.iter().filter(left)).copied().collect();
        taken.sort_unstable();
        emitted.sort_unstable();
        let given_up = run.ring.as_ref().filter(|ring| ring.is_impatient()).map_or(0, |ring| ring.unfinished);
        if given_up > 0 {
            // What was given up and finished then is counted, and so is what was taken for a record.
            let missing = emitted.extract_if(.., |id| taken.binary_search(id).is_err()).count() as u64;
            if missing > given_up {
                return Err(format!("{missing} not taken, {given_up} given up"));
            }
        }
        if taken != emitted {
            return Err(format!("emitted {emitted:?}, taken {taken:?}"));
        }
        // Or counted.
        if !(run.lost..=run.lost + run.left.len() as u64).contains(&lost) || run.told > lost {
            return Err(format!("{} lost, {lost} counted, {} told", run.lost, run.told));
        }
        Ok(taken.len())
    })
}

/// A snapshot while the writer writes: the newest events, whole and in order. `is_numbered`: no handler has come, whose events
/// may be reserved before the one that it has interrupted, which has its number already.
fn snapshot(is_numbered: bool) -> Result<usize, String> {
    with(|memory| {
        let stores = memory.stores;
        // Not before the ring is full once.
        memory.horizon = stores - memory.choices.choose(stores / 2, 3);
    });
    let ring = RUN.with_borrow_mut(|run| run.ring.take().expect("one"));
    let (image, _) = ring.snapshot(u64::MAX).map_err(|error| error.to_string())?;
    RUN.with_borrow_mut(|run| run.ring = Some(ring));
    let (mut events, mut told) = (Vec::new(), 0);
    let mut decoder = Decoder::new(layout(), None);
    for (position, bytes) in image.rows() {
        let mut at = 0;
        while let Some((record, length)) = decoder.next(position + at as u64, &bytes[at..]) {
            keep(record, &mut events, &mut told)?;
            at += length;
        }
    }
    // In the order of their reservations.
    let ids: Vec<u32> = events.iter().map(|(id, _)| *id).collect();
    let is_in_order = ids.windows(2).all(|two| two[0] < two[1]);
    if is_numbered && !is_in_order {
        return Err(format!("{ids:?}"));
    }
    Ok(events.len())
}

/// Examines a scenario: all runs, or random ones, until this thread has had `until` of CPU time. Returns the first fault, the runs and the events that were seen.
fn examine(
    scenario: &Scenario,
    writer: Writer,
    weakened: Weakened,
    mut choices: Choices,
    runs_max: u64,
    until: Duration,
) -> (Option<String>, u64, usize) {
    let (mut runs, mut events) = (0, 0);
    loop {
        let (after, result) = run_once(scenario, writer, weakened, choices);
        choices = after;
        runs += 1;
        match result {
            Ok(seen) => events += seen,
            Err(text) => {
                return (Some(format!("{text} (decisions {})", choices.description())), runs, events);
            }
        }
        if !choices.next() || runs == runs_max || (runs % 64 == 0 && cpu_time() > until) {
            return (None, runs, events);
        }
    }
}

fn reader(scenario: &Scenario) -> Ring {
    thread_local! {
        static FILE: std::fs::File = {
            let file = tempfile::tempfile().expect("a file");
            file.set_len(RING as u64 + LARGER.ring_bytes).expect("room");
            file
        };
    }
    let process = ProcessId { pid: 1, birth_ns: 1 };
    let name = FileName { process, kind: FileKind::Ring(1, 0) };
    let ring = FILE.with(|file| Ring::of_model(file, name, scenario.layout));
    if scenario.is_impatient { ring.without_patience() } else { ring }
}

/// Of this thread: others may run beside it, and it does as much then.
fn cpu_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has it").into()
}

fn seconds(otherwise: u64) -> Duration {
    let given = std::env::var("RTSCOPE_MODEL_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(otherwise))
}

#[test]
fn every_event_is_taken_whole_once_and_in_order_or_counted_whatever_comes_between() {
    let _one = ONE_AT_A_TIME.lock();
    let directory = tempfile::tempdir().expect("a directory");
    let Some(writer) = Writer::build(directory.path(), &[]) else { skip!("there is no C compiler") };
    for (name, scenario) in small() {
        let start = cpu_time();
        let until = start + Duration::from_secs(600);
        let choices = Choices::exhaustive();
        let (fault, runs, events) = examine(&scenario, writer, Weakened::Nothing, choices, u64::MAX, until);
        println!("{name}: {runs} runs, {events} events, {:.1} s", (cpu_time() - start).as_secs_f64());
        assert_eq!(fault, None, "{name}, run {runs}");
        assert!(cpu_time() < until, "{name}: all runs were examined");
        assert!(events > 0 || scenario.limits.forks > 0, "{name}: something was seen");
    }
    let each = seconds(4) / 3;
    for (seed, scenario) in large().into_iter().enumerate() {
        let choices = Choices::random(seed as u64 + 1);
        let until = cpu_time() + each;
        let (fault, runs, events) = examine(&scenario, writer, Weakened::Nothing, choices, u64::MAX, until);
        println!("random: {runs} runs, {events} events");
        assert_eq!(fault, None, "seed {seed}, run {runs}");
    }
}

#[test]
fn the_model_finds_what_is_broken_on_purpose() {
    let _one = ONE_AT_A_TIME.lock();
    let mut missed = Vec::new();
    for (name, changes, weakened) in BROKEN {
        let directory = tempfile::tempdir().expect("a directory");
        let Some(writer) = Writer::build(directory.path(), changes) else { skip!("there is no C compiler") };
        // The numbers of runs are what limits it; this is for a machine that hangs.
        let until = cpu_time() + Duration::from_secs(200);
        let scenarios = small().into_iter().map(|(_, scenario)| (scenario, Choices::exhaustive(), 25_000));
        let random = large().map(|scenario| (scenario, Choices::random(1), 40_000));
        let found = scenarios.chain(random).try_for_each(|(scenario, choices, runs)| {
            match examine(&scenario, writer, weakened, choices, runs, until) {
                (Some(fault), runs, _) => ControlFlow::Break((fault, runs)),
                (None, ..) => ControlFlow::Continue(()),
            }
        });
        match found {
            ControlFlow::Break((fault, runs)) => println!("{name}: run {runs}: {fault}"),
            ControlFlow::Continue(()) => missed.push(name),
        }
    }
    assert_eq!(missed, Vec::<&str>::new());
}
