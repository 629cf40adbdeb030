// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs' counter and CLOCK_MONOTONIC: pairs of both, taken while recording, and the conversion between two neighbours.
//!
//! One rate for the whole session would be wrong by the changes that NTP makes during it; between two pairs that are some
//! milliseconds apart only the reading itself can be wrong. By how much is measured: each pair is compared with the time
//! that its neighbours predict.
//!
//! A counter can jump, too (`clock_watch` says when). Then what was before and what comes after are converted apart; a value that
//! could be of either belongs to the one in which it lies between two pairs.

mod live;

pub use live::{AHEAD_NS, ClockError, EventTime, LiveClock};

use crate::clock_watch::jump;
use crate::records::Sync;
use rtscope_abi::program as abi;
use rtscope_event::exact::low_word;
use serde::{Deserialize, Serialize};

/// A counter's value and the time, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The counter.
    pub counter: u64,
    /// CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
}

impl Pair {
    /// Reads both now. Of several readings of the time, each between two of the counter, the one with the narrowest bracket is
    /// taken, because an interrupt between the readings would look like an offset.
    #[must_use]
    pub fn now(kind: u32) -> Pair {
        const TRIES: usize = 8;
        let mut best = (u64::MAX, Pair { counter: 0, monotonic_ns: 0 });
        for _ in 0..TRIES {
            let before = counter(kind);
            let monotonic_ns = monotonic_ns();
            let width = counter(kind).wrapping_sub(before);
            if width < best.0 {
                best = (width, Pair { counter: before.wrapping_add(width / 2), monotonic_ns });
            }
        }
        best.1
    }
}

fn monotonic_ns() -> u64 {
    // It cannot fail: the clock exists on every Linux.
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    time.map_or(0, |time| time.tv_sec().unsigned_abs() * 1_000_000_000 + time.tv_nsec().unsigned_abs())
}

/// The clock that programs on this machine use if they can.
#[must_use]
pub fn counter_kind() -> u32 {
    if cfg!(target_arch = "x86_64") { abi::RTU_CLOCK_TSC } else { abi::RTU_CLOCK_CNTVCT }
}

/// Whether this machine can convert values of a program's clock.
pub(crate) fn is_known(kind: u32) -> bool {
    kind == abi::RTU_CLOCK_MONOTONIC || kind == counter_kind()
}

#[cfg(target_arch = "x86_64")]
fn counter(kind: u32) -> u64 {
    if kind != abi::RTU_CLOCK_TSC {
        return monotonic_ns();
    }
    // The fences hold the reading between its neighbours: unlike a program's readings, these are compared to the nanosecond.
    // SAFETY: every x86-64 CPU has the instruction.
    unsafe { core::arch::x86_64::_mm_lfence() };
    // SAFETY: as above; user space may use it unless CR4.TSD is set, which Linux does only on request (prctl).
    let now = unsafe { core::arch::x86_64::_rdtsc() };
    // SAFETY: as above.
    unsafe { core::arch::x86_64::_mm_lfence() };
    now
}

#[cfg(target_arch = "aarch64")]
fn counter(kind: u32) -> u64 {
    if kind != abi::RTU_CLOCK_CNTVCT {
        return monotonic_ns();
    }
    let now: u64;
    // SAFETY: the generic counter is readable from user space on Linux.
    unsafe { core::arch::asm!("isb", "mrs {}, cntvct_el0", "isb", out(reg) now) };
    now
}

/// Converts a session's counter values.
#[derive(Clone, Debug, Default)]
pub struct Conversion {
    /// Before the counter jumped, in order.
    earlier: Vec<Conversion>,
    pairs: Vec<Pair>,
    /// Ticks before the first pair, and after the last, that are between a jump and this side of it.
    gaps: (u64, u64),
    near: usize,
    stretch: Stretch,
}

/// The time between two pairs, as a multiplication: a division for each event would be half of its conversion.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stretch {
    counter: u64,
    ticks: u64,
    monotonic_ns: u64,
    /// With [`FRACTION_BITS`] after the binary point.
    ns_per_tick: u64,
}

/// A stretch has fewer ticks than this can count, so the part cut off is less than 1 ns.
const FRACTION_BITS: u32 = 32;

impl Stretch {
    /// CLOCK_MONOTONIC at a counter's value; `None`: it is in another stretch.
    #[inline(always)]
    #[must_use]
    pub fn monotonic_ns(&self, counter: u64) -> Option<u64> {
        self.after(counter.wrapping_sub(self.counter))
    }

    #[inline(always)]
    fn after(&self, passed: u64) -> Option<u64> {
        let ns = || (u128::from(passed) * u128::from(self.ns_per_tick)) >> FRACTION_BITS;
        (passed < self.ticks).then(|| self.monotonic_ns.wrapping_add(low_word(ns())))
    }

    /// For records that count from `sync`.
    #[must_use]
    pub fn times(self, sync: Sync) -> Times {
        Times { stretch: self, low: sync.counter, passed: sync.counter.wrapping_sub(self.counter) }
    }

    /// Between two pairs; empty if they are too far apart.
    fn between(a: Pair, b: Pair) -> Stretch {
        let (ticks, ns) = (b.counter - a.counter, b.monotonic_ns - a.monotonic_ns);
        if (ticks | ns) >> FRACTION_BITS != 0 {
            return Stretch::default();
        }
        Stretch {
            counter: a.counter,
            ticks,
            monotonic_ns: a.monotonic_ns,
            ns_per_tick: (ns << FRACTION_BITS) / ticks,
        }
    }
}

/// The times of records in a row, which have the low bits of a counter.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    stretch: Stretch,
    low: u64,
    /// From the beginning of the stretch to the time that the records count from.
    passed: u64,
}

impl Times {
    /// CLOCK_MONOTONIC at the time with these low bits, as [`Sync::complete`] understands them; `None`: it is in another stretch.
    #[inline(always)]
    #[must_use]
    pub fn monotonic_ns(&self, low: u64) -> Option<u64> {
        self.stretch.after(self.passed.wrapping_add(low.wrapping_sub(self.low) & Sync::LOW))
    }
}

impl Conversion {
    /// From pairs in the order in which they were taken. Without any, values are treated as nanoseconds.
    #[must_use]
    pub fn new(pairs: Vec<Pair>) -> Conversion {
        let mut conversion = Conversion::default();
        for pair in pairs {
            let jumped = jump(&conversion.pairs, pair).filter(|_| conversion.earlier.len() < JUMPS_MAX);
            if jumped.is_some() {
                let pairs = std::mem::take(&mut conversion.pairs);
                let gap = gap_ticks(&pairs, pair);
                let gaps = (conversion.gaps.0, gap);
                conversion.earlier.push(Conversion { pairs, gaps, ..Conversion::default() });
                conversion.gaps = (gap, 0);
            }
            let follows = |last: &Pair| pair.counter > last.counter && pair.monotonic_ns > last.monotonic_ns;
            if conversion.pairs.last().is_none_or(follows) {
                conversion.pairs.push(pair);
            }
        }
        conversion
    }

    /// Whether a value lies between two pairs, or between one and the jump beside it.
    fn spans(&self, counter: u64) -> bool {
        let (first, last) = (self.pairs.first(), self.pairs.last());
        first.zip(last).is_some_and(|(first, last)| {
            let begin = first.counter.saturating_sub(self.gaps.0);
            (begin..=last.counter.saturating_add(self.gaps.1)).contains(&counter)
        })
    }

    /// The conversion before a jump that a value belongs to; `None`: it came after the last jump.
    fn before_a_jump(&mut self, counter: u64) -> Option<&mut Conversion> {
        if self.earlier.is_empty() || self.spans(counter) {
            return None;
        }
        let found = self.earlier.iter().rposition(|earlier| earlier.spans(counter)).or_else(|| {
            // Outside of all.
            let begins_by = |conversion: &Conversion| {
                conversion.pairs.first().is_some_and(|first| first.counter <= counter)
            };
            (!begins_by(self)).then(|| self.earlier.iter().rposition(begins_by).unwrap_or(0))
        });
        found.map(|at| &mut self.earlier[at])
    }

    /// CLOCK_MONOTONIC at a counter's value. Fast for values near those of the previous call.
    #[inline]
    #[must_use]
    pub fn monotonic_ns(&mut self, counter: u64) -> u64 {
        match self.stretch.monotonic_ns(counter) {
            Some(monotonic_ns) => monotonic_ns,
            None => self.in_another_stretch(counter),
        }
    }

    fn in_another_stretch(&mut self, counter: u64) -> u64 {
        if let Some(earlier) = self.before_a_jump(counter) {
            let monotonic_ns = earlier.monotonic_ns(counter);
            self.stretch = earlier.stretch;
            return monotonic_ns;
        }
        if self.pairs.len() < 2 {
            return self.pairs.first().map_or(counter, |pair| {
                // One pair has no rate.
                pair.monotonic_ns.saturating_add_signed(counter.wrapping_sub(pair.counter) as i64)
            });
        }
        if let Some((a, b)) = self.beyond(counter) {
            return between(a, b, counter);
        }
        let last = self.pairs.len() - 2;
        let holds = |at: usize, pairs: &[Pair]| {
            (at == 0 || pairs[at].counter <= counter) && (at == last || counter < pairs[at + 1].counter)
        };
        if !holds(self.near, &self.pairs) {
            self.near = if self.near < last && holds(self.near + 1, &self.pairs) {
                self.near + 1
            } else {
                self.pairs.partition_point(|pair| pair.counter <= counter).saturating_sub(1).min(last)
            };
        }
        self.stretch = Stretch::between(self.pairs[self.near], self.pairs[self.near + 1]);
        between(self.pairs[self.near], self.pairs[self.near + 1], counter)
    }

    /// The pairs whose rate is that of a value before the first or after the last pair: [`RATE_NS`] apart if there are such. The next
    /// pair may be microseconds away, and what is wrong with its reading would be multiplied.
    fn beyond(&self, counter: u64) -> Option<(Pair, Pair)> {
        let (first, last) = (*self.pairs.first()?, *self.pairs.last()?);
        let until = |monotonic_ns: u64| self.pairs.partition_point(|pair| pair.monotonic_ns < monotonic_ns);
        if counter < first.counter {
            let far = until(first.monotonic_ns.saturating_add(RATE_NS));
            return Some((first, self.pairs.get(far).copied().unwrap_or(last)));
        }
        (counter >= last.counter).then(|| {
            let far = until(last.monotonic_ns.saturating_sub(RATE_NS).saturating_add(1)).saturating_sub(1);
            (self.pairs.get(far).copied().unwrap_or(first), last)
        })
    }
}

/// A value of a clock that shows `offset_ns` more than this process's, as this process's clock shows it: programs in time namespaces.
#[inline]
#[must_use]
pub fn without_offset(counter: u64, offset_ns: i64) -> u64 {
    counter.wrapping_sub(u64::from_ne_bytes(offset_ns.to_ne_bytes()))
}

/// Ticks from the last pair before a jump to the first one after it, at the rate before it.
fn gap_ticks(before: &[Pair], after: Pair) -> u64 {
    let (Some(first), Some(last)) = (before.first(), before.last()) else { return 0 };
    let (ticks, ns) = (last.counter - first.counter, (last.monotonic_ns - first.monotonic_ns).max(1));
    let gap = u128::from(after.monotonic_ns - last.monotonic_ns) * u128::from(ticks) / u128::from(ns);
    u64::try_from(gap).unwrap_or(u64::MAX)
}

/// Jumps after which conversion begins anew; a counter that jumps all the time is of no use.
const JUMPS_MAX: usize = 1000;
/// Values older than the first pair are converted with the rate over at least this time.
pub const RATE_NS: u64 = 50_000_000;
pub(crate) fn between(a: Pair, b: Pair, counter: u64) -> u64 {
    // Nearly always the case, and a division of 64 bits is many times as fast as one of 128.
    if let Some(product) =
        counter.checked_sub(a.counter).and_then(|passed| passed.checked_mul(b.monotonic_ns - a.monotonic_ns))
    {
        return a.monotonic_ns.saturating_add(product / (b.counter - a.counter));
    }
    let passed = i128::from(counter) - i128::from(a.counter);
    let rise = i128::from(b.monotonic_ns - a.monotonic_ns);
    let run = i128::from(b.counter - a.counter);
    u64::try_from(i128::from(a.monotonic_ns) + (passed * rise).div_euclid(run)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_before_between_and_after_pairs_are_converted() {
        let pair = |counter, monotonic_ns| Pair { counter, monotonic_ns };
        let mut clock =
            Conversion::new(vec![pair(1000, 500), pair(2000, 1000), pair(2000, 1001), pair(4000, 1500)]);
        for (counter, ns) in [
            (1000, 500),
            (1500, 750),
            (2000, 1000),
            (3000, 1250),
            (4000, 1500),
            // Beyond them with the rate of all: they are less than 50 ms apart.
            (8000, 2833),
            (0, 166),
            (1200, 600),
        ] {
            assert_eq!(clock.monotonic_ns(counter), ns, "{counter}");
        }
        // The multiplication agrees with the division except for the last nanosecond, and never goes back.
        let (a, b) = (pair(1 << 40, 7), pair((1 << 40) + 99_999_989, 7 + 33_333_331));
        let mut clock = Conversion::new(vec![a, b]);
        let mut last = 0;
        for counter in (a.counter..b.counter).step_by(9_973) {
            let (found, exact) = (clock.monotonic_ns(counter), between(a, b, counter));
            assert!(found == exact || found + 1 == exact, "{found} for {exact}");
            assert!(found >= last, "{found} after {last}");
            last = found;
        }
        assert_eq!(Conversion::default().monotonic_ns(7), 7);
        assert_eq!(Conversion::new(vec![pair(10, 100)]).monotonic_ns(8), 98);
    }

    #[test]
    fn values_beyond_the_pairs_are_not_converted_with_the_rate_of_two_readings() {
        // 2 ticks a ns; each reading is wrong by 40 ns at most. The first and the last two pairs are 1 us apart.
        let pair = |ns: u64, wrong: u64| Pair { counter: 2 * ns, monotonic_ns: ns + wrong };
        let begin = 5_000_000_000;
        let far = (1..10).map(|number| pair(begin + number * 20_000_000, 0));
        let mut pairs = vec![pair(begin, 0), pair(begin + 1000, 40)];
        pairs.extend(far);
        pairs.extend([pair(begin + 200_000_000, 0), pair(begin + 200_001_000, 40)]);
        let mut clock = Conversion::new(pairs);
        for ns in [begin - 1_000_000_000, begin - 1_000_000, begin + 300_000_000, begin + 1_200_000_000] {
            let found = clock.monotonic_ns(2 * ns);
            assert!(found.abs_diff(ns) < 2000, "{found} for {ns}");
        }
        // Between pairs nothing is different.
        assert_eq!(clock.monotonic_ns(2 * (begin + 30_000_000)), begin + 30_000_000);
    }
}
