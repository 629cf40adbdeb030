// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From branches to functions, on the thread that ran: what decoders of flow have in common.

use crate::program::Memory;
use crate::trace::{CallStack, Edge, HardwareEvent};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Process and thread.
pub(super) type Thread = (u32, u32);

/// A trace of more threads than this keeps the stacks of the first ones.
const STACKS_MAX: usize = 1 << 14;

/// The functions that each thread of a stream is in.
#[derive(Default)]
pub(super) struct Follower {
    pub(super) memory: Arc<Memory>,
    /// From these times on, of which thread.
    threads: Arc<[(u64, Thread)]>,
    thread: Option<Thread>,
    stacks: BTreeMap<Option<Thread>, CallStack>,
    made: Vec<HardwareEvent>,
    /// There is an image to follow.
    pub(super) is_useful: bool,
}

impl Follower {
    pub(super) fn new(memory: &Arc<Memory>, threads: &Arc<[(u64, Thread)]>) -> Follower {
        let mut follower =
            Follower { memory: memory.clone(), threads: threads.clone(), ..Follower::default() };
        follower.is_useful = !memory.is_empty();
        follower.at(None);
        follower
    }

    /// It is this time now, on the recording's clock.
    pub(super) fn at(&mut self, time_ns: Option<u64>) {
        let since = |time: u64| self.threads.partition_point(|(begin, _)| *begin <= time);
        // One thread alone needs no time.
        let place = time_ns.map_or(usize::from(self.threads.len() == 1), since);
        self.thread =
            place.checked_sub(1).and_then(|place| self.threads.get(place)).map(|(_, thread)| *thread);
    }

    fn with(&mut self, run: impl FnOnce(&mut CallStack, &Memory, &mut dyn FnMut(HardwareEvent))) {
        let thread = self.thread;
        if self.stacks.len() >= STACKS_MAX && !self.stacks.contains_key(&thread) {
            return;
        }
        let stack = self.stacks.entry(thread).or_default();
        let made = &mut self.made;
        run(stack, &self.memory, &mut |event| made.push(HardwareEvent { thread, ..event }));
    }

    /// The trace begins or goes on at an address.
    pub(super) fn begin(&mut self, at: u64) {
        self.with(|stack, memory, mut out| stack.begin(at, &memory.functions, &mut out));
    }

    /// A branch was taken.
    pub(super) fn edge(&mut self, edge: &Edge) {
        self.with(|stack, memory, mut out| stack.edge(edge, &memory.functions, &mut out));
    }

    /// A return was executed.
    pub(super) fn returned(&mut self) {
        self.with(|stack, _, mut out| stack.returned(&mut out));
    }

    /// Where it led.
    pub(super) fn arrive(&mut self, to: u64) {
        self.with(|stack, memory, mut out| stack.arrive(to, &memory.functions, &mut out));
    }

    /// Something is missing: nobody knows which functions have ended.
    pub(super) fn interrupt(&mut self) {
        self.with(|stack, _, mut out| stack.interrupt(&mut out));
    }

    /// The stream ends: so do all functions, for whoever draws them.
    pub(super) fn finish(&mut self) {
        for (thread, stack) in &mut self.stacks {
            let made = &mut self.made;
            stack.interrupt(&mut |event| made.push(HardwareEvent { thread: *thread, ..event }));
        }
    }

    /// Takes what was made.
    pub(super) fn take(&mut self) -> std::vec::Drain<'_, HardwareEvent> {
        self.made.drain(..)
    }
}
