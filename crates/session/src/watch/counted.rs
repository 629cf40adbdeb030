// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the first tracker of a watch counts by key beside what is late, read while it grows.

use super::settings::CountBeside;
use crate::counting::{CountLosses, Reading};
use crate::hist::{CountedKeys, LiveReader, cells};
use crate::program_flight::ProgramFlight;
use rtscope_event::{MonotonicNs, Tracker};
use rtscope_flight::FlightRecorder;

/// When it is read, and by what names.
#[derive(Debug)]
pub struct Counted {
    live: LiveReader,
    interval_ns: u64,
    started: MonotonicNs,
    /// When it is to be read again.
    pub next: MonotonicNs,
}

impl Counted {
    /// First read at once.
    pub fn new(tracker: Tracker, count: CountBeside, started: MonotonicNs) -> Counted {
        let live = LiveReader::of(tracker, count.by, count.cells);
        Counted { live, interval_ns: count.interval_ns.max(1), started, next: started }
    }

    /// Since the start; it is to be read again an interval later.
    fn at(&mut self, now: MonotonicNs) -> u64 {
        let at_ns = now.since(self.started);
        self.next = self.started.plus((at_ns / self.interval_ns + 1) * self.interval_ns);
        at_ns
    }

    /// What there is now: of the kernel's counts, or of `programs` where those are what is watched. `misses`: runs of eBPF programs that the kernel
    /// skipped; `given_up`: beginnings of pairs that had to make room.
    pub fn read(
        &mut self,
        now: MonotonicNs,
        (recorder, programs): (&FlightRecorder, Option<&ProgramFlight>),
        (misses, given_up): (Option<u64>, u64),
    ) -> CountedKeys {
        let at_ns = self.at(now);
        if let Some(programs) = programs {
            let (counted, losses) = programs.counted_intervals();
            return self.live.read(Reading::of_programs(at_ns, counted, losses), programs.late_lost());
        }
        let stats = recorder.stats(0);
        let unreported = stats.late_lost + recorder.unreadable_reports();
        let mut losses = CountLosses::of(&[stats], misses);
        losses.given_up += given_up;
        let reading = Reading { at_ns, cells: cells::read(recorder.memory()), losses };
        self.live.read(reading, unreported)
    }
}
