// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Histograms of the time between two events of programs: pieces of work, and pairs.
//!
//! The kernel does not see these events. They are paired as they come, by the thread that looks for programs, as those of a watch are; so no
//! privilege is needed for one's own programs, and what a look misses is counted.

use super::HistSettings;
use crate::counting::{Counted, CountedRun, Counter, Reading};
use crate::program_flight::ProgramFlight;
use crate::watch::spans::{SpanTarget, SpanTracker};
use crate::{Failure, Observer, Stop};
use rtscope_analyze::pairing::PairQuestion;
use rtscope_flight::monotonic_now;

/// Programs whose intervals are counted.
#[derive(Debug)]
pub(super) struct ProgramCounting {
    flight: ProgramFlight,
    run: CountedRun,
}

impl ProgramCounting {
    /// Asks programs for the events, and lets COMMAND go.
    pub(super) fn start(
        question: &PairQuestion,
        settings: &HistSettings,
        stop: &Stop,
    ) -> Result<ProgramCounting, Failure> {
        let counted = &settings.counted;
        let mut run = CountedRun::prepare(counted)?;
        let target = span_target(counted, &run)?;
        stop.begin()?;
        // Nothing is late.
        let spans = SpanTracker::new(question, target, u64::MAX, monotonic_now());
        let spans = spans.counting(settings.by, settings.cells);
        let events = question.events().map(ToString::to_string).collect::<Vec<_>>();
        let flight = ProgramFlight::of_intervals(&events, spans)?;
        run.begin(stop);
        Ok(ProgramCounting { flight, run })
    }

    fn reading(&self, at_ns: u64) -> Reading {
        let (counted, losses) = self.flight.counted_intervals();
        Reading::of_programs(at_ns, counted, losses)
    }
}

fn span_target(counted: &Counted, run: &CountedRun) -> Result<SpanTarget, Failure> {
    let name = counted.target()?.name;
    let command = run.command_pid().filter(|_| !counted.is_named()).map(|pid| pid.0);
    Ok(SpanTarget { name, pid: counted.pid.or(command), tid: counted.tid })
}

impl Counter for ProgramCounting {
    fn elapsed_ns(&self) -> u64 {
        self.run.elapsed_ns()
    }

    fn wait_until(&mut self, until_ns: u64, stop: &Stop) -> bool {
        self.run.wait_until(until_ns, stop, (None, || ()), || None)
    }

    fn read(&mut self) -> Reading {
        self.reading(self.elapsed_ns())
    }

    fn finish(&mut self) -> Reading {
        let at_ns = self.elapsed_ns();
        self.flight.last_look();
        self.reading(at_ns)
    }

    fn blind_spots(&self) -> Vec<String> {
        let (_, notes) = self.flight.late_intervals();
        notes.into_iter().chain(self.flight.without_event()).collect()
    }

    fn end_command(&mut self, observer: &dyn Observer) -> Result<(), Failure> {
        self.run.end_command(observer)
    }
}
