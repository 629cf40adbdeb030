// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the model examines: small scenarios, all runs of each, and larger ones at random.

use super::super::Limits;
use crate::records::Layout;

pub(super) const LAYOUT: Layout = Layout { ring_bytes: 256, sub_bytes: 64, key: 5 };
/// For random runs: behind an event that handlers interrupt, a ring may be filled by half. Then the reader gives the event up.
pub(super) const LARGER: Layout = Layout { ring_bytes: 512, sub_bytes: 128, ..LAYOUT };

/// What is examined.
#[derive(Clone, Copy)]
pub(super) struct Scenario {
    pub(super) layout: Layout,
    pub(super) limits: Limits,
    /// Events before decisions are made, and after.
    pub(super) before: u32,
    pub(super) events: u32,
    pub(super) flight: bool,
    pub(super) moves: bool,
    pub(super) has_own_stack: bool,
    /// How many events a handler emits.
    pub(super) burst: u32,
    /// The reader gives up what it finds unfinished a second time.
    pub(super) is_impatient: bool,
}

pub(super) const TAKING: Scenario = Scenario {
    layout: LAYOUT,
    limits: Limits { signals: 0, depth: 0, jumps: 0, forks: 0, takes: 2, old_values: 1, advances: 0 },
    before: 7,
    events: 5,
    flight: false,
    moves: false,
    has_own_stack: false,
    burst: 1,
    is_impatient: false,
};
pub(super) const FLIGHT: Scenario = Scenario {
    layout: LAYOUT,
    limits: Limits { signals: 0, depth: 0, jumps: 0, forks: 0, takes: 0, old_values: 1, advances: 0 },
    before: 6,
    events: 6,
    flight: true,
    moves: false,
    has_own_stack: false,
    burst: 1,
    is_impatient: false,
};

fn with_change(base: Scenario, change: fn(&mut Scenario)) -> Scenario {
    let mut changed = base;
    change(&mut changed);
    changed
}

/// Scenarios whose runs are examined all. Each is small; together they have everything that may happen.
pub(super) fn small() -> Vec<(&'static str, Scenario)> {
    let mut all = jumping();
    all.extend([
        ("old values", TAKING),
        (
            "more old values",
            with_change(TAKING, |s| {
                s.limits.old_values = 2;
                s.limits.takes = 1;
            }),
        ),
        (
            "a full ring",
            with_change(TAKING, |s| {
                s.events = 11;
                s.limits.takes = 1;
            }),
        ),
        (
            "a signal",
            with_change(TAKING, |s| {
                s.limits.signals = 1;
                s.limits.depth = 1;
                s.limits.takes = 1;
            }),
        ),
        (
            "signals in signals",
            with_change(TAKING, |s| {
                s.events = 2;
                s.limits = Limits { signals: 2, depth: 2, takes: 1, old_values: 0, ..s.limits };
            }),
        ),
        (
            "signals on other CPUs, a full ring",
            with_change(TAKING, |s| {
                s.moves = true;
                s.events = 8;
                s.limits = Limits { signals: 1, depth: 1, takes: 0, old_values: 0, ..s.limits };
            }),
        ),
        (
            "a fork",
            with_change(TAKING, |s| {
                // Several events in a sub-buffer, so that some need only a place.
                s.layout = LARGER;
                s.limits = Limits { forks: 1, takes: 0, old_values: 0, ..s.limits };
            }),
        ),
        (
            "a fork in a signal",
            with_change(TAKING, |s| {
                s.events = 3;
                s.limits = Limits { forks: 1, signals: 1, depth: 1, takes: 0, old_values: 0, ..s.limits };
            }),
        ),
        ("a flight recorder", FLIGHT),
        (
            "a flight recorder that goes on",
            with_change(FLIGHT, |s| s.limits = Limits { old_values: 0, advances: 1, ..s.limits }),
        ),
    ]);
    all.extend(going_around());
    all
}

/// Those with handlers that emit more than the ring has room for, in the middle of an event.
fn going_around() -> Vec<(&'static str, Scenario)> {
    vec![
        (
            "a handler with more events than the ring has room for",
            with_change(TAKING, |s| {
                s.burst = 9;
                s.events = 2;
                s.limits = Limits { signals: 1, depth: 1, takes: 2, old_values: 0, ..s.limits };
            }),
        ),
        (
            "a handler with more events than that, of which the reader gives up what is open",
            with_change(TAKING, |s| {
                s.burst = 9;
                s.events = 2;
                s.is_impatient = true;
                s.limits = Limits { signals: 1, depth: 1, takes: 2, old_values: 0, ..s.limits };
            }),
        ),
        (
            "a flight recorder and a handler that goes around",
            with_change(FLIGHT, |s| {
                s.burst = 9;
                s.events = 2;
                s.limits = Limits { signals: 1, depth: 1, old_values: 0, ..s.limits };
            }),
        ),
        (
            "a flight recorder and a handler with its own stack that goes around",
            with_change(FLIGHT, |s| {
                s.burst = 9;
                s.events = 2;
                s.has_own_stack = true;
                s.limits = Limits { signals: 1, depth: 1, old_values: 0, ..s.limits };
            }),
        ),
    ]
}

/// Those with handlers that jump away.
fn jumping() -> Vec<(&'static str, Scenario)> {
    vec![
        (
            "a handler that jumps away",
            with_change(TAKING, |s| {
                s.events = 3;
                s.limits = Limits { signals: 1, depth: 1, jumps: 1, takes: 1, ..s.limits };
            }),
        ),
        (
            "a handler that jumps away from an event that needs only a place",
            with_change(TAKING, |s| {
                s.layout = LARGER;
                s.events = 4;
                s.limits = Limits { signals: 1, depth: 1, jumps: 1, takes: 0, old_values: 0, ..s.limits };
            }),
        ),
        // Only one jump: after one out of a handler that has interrupted a handler's event on that stack, an event of the thread that a
        // handler interrupts may be taken for left.
        (
            "a handler with its own stack that jumps away, a larger ring",
            with_change(TAKING, |s| {
                s.layout = LARGER;
                s.events = 4;
                s.has_own_stack = true;
                s.limits = Limits { signals: 1, depth: 1, jumps: 1, takes: 1, old_values: 0, ..s.limits };
            }),
        ),
        (
            "a jump out of a handler in a handler",
            with_change(TAKING, |s| {
                s.events = 2;
                s.limits = Limits { signals: 2, depth: 2, jumps: 1, takes: 0, old_values: 0, ..s.limits };
            }),
        ),
    ]
}

/// Random runs have more of everything.
pub(super) fn large() -> [Scenario; 4] {
    let limits = Limits { signals: 2, depth: 2, jumps: 0, forks: 0, takes: 4, old_values: 6, advances: 0 };
    let flight = Limits { takes: 0, advances: 3, ..limits };
    let jumps = Limits { signals: 3, jumps: 2, ..limits };
    let full = Scenario { layout: LARGER, limits, before: 15, events: 16, moves: true, ..TAKING };
    [
        full,
        Scenario { limits: jumps, ..full },
        Scenario { limits: flight, before: 6, events: 12, flight: true, ..FLIGHT },
        // Handlers that go around the ring, in handlers that do.
        Scenario { layout: LARGER, limits: flight, before: 6, events: 6, burst: 14, ..FLIGHT },
    ]
}
