// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long the collector of programs sleeps between polls of their rings.
//!
//! Nobody wakes it: that would be a system call in a program's work. A poll costs some 20 to 40 us of CPU time, nearly all of it the
//! way to sleep and back, so at usual rates the polls were most of what a recording cost. The pause follows from how fast
//! the fullest ring fills, and is limited by what a ring that was idle can take in a burst.

use std::time::Duration;

/// Between polls, at least.
const SHORTEST: Duration = Duration::from_micros(200);
/// At most: what a killed machine loses, and a person waits for at the end.
const LONGEST: Duration = Duration::from_millis(50);
/// With `--blocking` a program may be waiting for us.
const LONGEST_BLOCKING: Duration = Duration::from_millis(10);
/// After something new was found: nobody knows yet how fast it is.
const FIRST: Duration = Duration::from_millis(2);
/// A thread that was idle may write this many bytes a second (17 million events of 24 bytes, which is what a thread can) without a loss,
/// in a ring of 4 MiB or more. Smaller ones are polled this often.
const BURST_BYTES_PER_SECOND: u64 = 400 << 20;
const SMALL_RING: Duration = Duration::from_millis(10);
/// A ring is to be so full when it is emptied.
const FILL: f64 = 0.2;

/// The pause, and what it follows from.
#[derive(Debug)]
pub struct Pace {
    pause: Duration,
    longest: Duration,
}

impl Pace {
    /// For a recording that begins.
    pub fn new(blocking: bool) -> Pace {
        Pace { pause: FIRST, longest: if blocking { LONGEST_BLOCKING } else { LONGEST } }
    }

    /// Something new was found.
    pub fn restart(&mut self) {
        self.pause = self.pause.min(FIRST);
    }

    /// The next pause. `fullest`: how full the fullest ring was (0 to 1), `passed`: since it was emptied before; `smallest`: size of
    /// the smallest ring, if there is one.
    pub fn next(&mut self, fullest: f64, passed: Duration, smallest: Option<u64>) -> Duration {
        let filled = |bytes: u64| Duration::from_secs_f64(bytes as f64 / BURST_BYTES_PER_SECOND as f64);
        let burst = smallest.map_or(LONGEST, |bytes| filled(bytes).max(SMALL_RING));
        let wanted = if fullest > 0.0 { passed.mul_f64((FILL / fullest).min(1000.0)) } else { LONGEST };
        // Shorter at once, longer step by step: a rate is sooner too high than too low.
        let grown = self.pause * 5 / 4;
        self.pause = wanted.min(grown).min(burst).min(self.longest).max(SHORTEST);
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// After a long time of a ring that fills at this many bytes a second.
    fn settled(bytes_per_second: f64, ring: u64) -> Duration {
        let mut pace = Pace::new(false);
        let mut passed = FIRST;
        for _ in 0..100 {
            let fullest = (bytes_per_second * passed.as_secs_f64() / ring as f64).min(1.0);
            passed = pace.next(fullest, passed, Some(ring));
        }
        passed
    }

    #[test]
    fn a_slow_ring_is_looked_at_as_often_as_a_burst_may_fill_it() {
        assert_eq!(settled(0.0, 64 * MIB), LONGEST);
        assert_eq!(settled(4.8e6, 64 * MIB), LONGEST);
        assert_eq!(settled(0.0, 16 * MIB), Duration::from_millis(40));
        assert_eq!(settled(0.0, 4 * MIB), SMALL_RING);
        assert_eq!(settled(4.8e6, MIB), SMALL_RING);
        assert_eq!(Pace::new(true).next(0.0, LONGEST, None), FIRST * 5 / 4);
        let mut blocking = Pace::new(true);
        assert!((0..100).all(|_| blocking.next(0.0, FIRST, Some(64 * MIB)) <= LONGEST_BLOCKING));
    }

    #[test]
    fn a_fast_ring_is_emptied_at_a_fifth() {
        // 16 million events a second.
        let pause = settled(400e6, 4 * MIB).as_secs_f64();
        assert!((pause * 400e6 / (4 * MIB) as f64 - FILL).abs() < 0.01, "{pause}");
        assert_eq!(settled(4e12, MIB), SHORTEST);
    }

    #[test]
    fn what_is_new_is_looked_at_soon() {
        let mut pace = Pace::new(false);
        let idle = |pace: &mut Pace| (0..100).map(|_| pace.next(0.0, LONGEST, Some(64 * MIB))).last();
        assert_eq!(idle(&mut pace), Some(LONGEST));
        pace.restart();
        assert_eq!(pace.next(0.0, LONGEST, Some(64 * MIB)), FIRST * 5 / 4);
        // A pause that is long because of a slow past is short after one full ring.
        assert_eq!(idle(&mut pace), Some(LONGEST));
        assert!(pace.next(1.0, LONGEST, Some(64 * MIB)) <= LONGEST / 5);
    }
}
