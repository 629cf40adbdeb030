// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a CPU's switches follow each other: the task that leaves is the one that came last.
//!
//! Some hosts hide switches to and from threads of theirs from tracing, and nothing counts them. Each shows at the next switch that is not
//! hidden. A recorder that counts losses counts these as [`LossCause::Gap`](crate::LossCause::Gap), in the same way everywhere.

use crate::{EventKind, Tid};

/// The switches of one CPU, in order of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct SwitchSequence {
    /// The task that came last; `None`: not known.
    current: Option<Tid>,
    gaps: u64,
}

impl SwitchSequence {
    /// The next event of the CPU, whatever it is.
    #[inline]
    pub fn observe(&mut self, kind: &EventKind) {
        match kind {
            EventKind::SchedSwitch { prev_tid, next_tid, .. } => self.switch(*prev_tid, *next_tid),
            EventKind::ProcessExec { tid, old_tid, .. } => self.exec(*old_tid, *tid),
            _ => {}
        }
    }

    /// The next switch.
    #[inline]
    pub fn switch(&mut self, prev: Tid, next: Tid) {
        self.gaps += u64::from(self.current.is_some_and(|current| current != prev));
        self.current = Some(next);
    }

    /// The task that runs has another number from now on: a thread that executes a program gets that of its process.
    #[inline]
    pub fn exec(&mut self, old: Tid, new: Tid) {
        if self.current == Some(old) {
            self.current = Some(new);
        }
    }

    /// Events are missing here that are counted otherwise: the next switch contradicts nothing.
    #[inline]
    pub fn lost(&mut self) {
        self.current = None;
    }

    /// Places where a switch did not follow the one before.
    #[must_use]
    pub fn gaps(&self) -> u64 {
        self.gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_that_nobody_reported_is_a_gap() {
        let mut sequence = SwitchSequence::default();
        for (prev, next) in [(9, 1), (1, 2), (2, 1)] {
            sequence.switch(Tid(prev), Tid(next));
        }
        assert_eq!(sequence.gaps(), 0);
        sequence.switch(Tid(3), Tid(4));
        sequence.switch(Tid(4), Tid(1));
        assert_eq!(sequence.gaps(), 1);
    }

    #[test]
    fn what_is_counted_as_lost_is_no_gap_as_well() {
        let mut sequence = SwitchSequence::default();
        sequence.switch(Tid(1), Tid(2));
        sequence.lost();
        sequence.switch(Tid(3), Tid(4));
        assert_eq!(sequence.gaps(), 0);
    }

    #[test]
    fn a_thread_that_executes_a_program_has_another_number() {
        let mut sequence = SwitchSequence::default();
        sequence.switch(Tid(1), Tid(12));
        sequence.exec(Tid(12), Tid(10));
        sequence.switch(Tid(10), Tid(1));
        // Of another CPU's task.
        sequence.exec(Tid(5), Tid(4));
        sequence.switch(Tid(1), Tid(2));
        assert_eq!(sequence.gaps(), 0);
    }
}
