// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any two events that have the same key ([`crate::pairing`]). The latency belongs to the task in which it ended.

use super::super::happening::Happenings;
use super::super::{Missing, Span};
use super::collected::{Collected, Found};
use super::{Head, LatencyReport, Measure, Seen};
use crate::pairing::{Begun, Emitter, Ended, Matcher, PairQuestion};
use rtscope_event::CpuId;

#[derive(Clone, Debug)]
pub(super) struct Pair {
    matcher: Matcher<Found>,
    collected: Collected,
}

impl Pair {
    pub(super) fn new(question: &PairQuestion, collected: Collected) -> Pair {
        Pair { matcher: Matcher::new(question), collected }
    }
}

impl Measure for Pair {
    fn event(&mut self, seen: &Seen<'_>) {
        let now_ns = seen.event.time_ns;
        let here = Found {
            row: None,
            since_ns: now_ns,
            until_ns: now_ns,
            thread: seen.thread,
            cpu: seen.event.cpu,
            asked: seen.asked,
        };
        let thread = seen.thread.map(|thread| thread.tid.into());
        let outcome = self.matcher.event(seen.event, Emitter { thread, user: None }, here);
        match outcome.ended {
            Some(Ended::With(begun)) => {
                let asked = begun.asked.and(seen.asked);
                self.collected.add(Found { since_ns: begun.since_ns, asked, ..here });
            }
            // The first of a row of events has nothing before it.
            Some(_) if outcome.begun.is_none() => self.collected.no_begin(&here),
            _ => {}
        }
        match outcome.begun {
            Some(Begun::Again(_)) => self.collected.begun_again(&here),
            Some(Begun::WithoutKey) => self.collected.no_end(&here),
            Some(Begun::First) | None => {}
        }
    }

    fn lost(&mut self, _: Option<CpuId>, _: bool) {
        self.matcher.give_up(|_| true).iter().for_each(|begun| self.collected.lost(begun));
    }

    fn reports(mut self: Box<Self>, _: &Happenings, of: (Span, &Missing)) -> Vec<LatencyReport> {
        // The last of a row of events has nothing after it.
        if !self.matcher.is_row() {
            self.matcher.waiting().for_each(|begun| self.collected.no_end(begun));
        }
        let parts = self.collected.report(self.matcher.forgotten(), &|row| (row, String::new()));
        let question = self.matcher.question();
        let (begin, end) = (question.begin.to_string(), question.end.to_string());
        let head = Head::new(&question.to_string(), &begin, &end, "");
        vec![Head { tasks_are: "task in which it ended", ..head }.report(parts, of)]
    }

    fn boxed(&self) -> Box<dyn Measure> {
        Box::new(self.clone())
    }
}
