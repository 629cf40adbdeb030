// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs' counter and CLOCK_MONOTONIC: pairs of both, taken while recording, and the conversion between two neighbours.
//!
//! One rate for the whole session would be wrong by the changes that NTP makes during it; between two pairs that are some
//! milliseconds apart only the reading itself can be wrong. By how much is measured: each pair is compared with the time
//! that its neighbours predict.
//!
//! A counter can jump, too (`clock_watch` says when). Then what was before and what comes after are converted apart; a value that
//! could be of either belongs to the one in which it lies between two pairs.

use crate::clock_watch::{ClockProblem, ClockProblemKind, ClockReport, jump};
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
    jumps: Vec<ClockProblem>,
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
            if let Some(by_ns) = jumped {
                let pairs = std::mem::take(&mut conversion.pairs);
                let from_ns = pairs.last().map_or(0, |last| last.monotonic_ns);
                let kind = ClockProblemKind::Jump { by_ns };
                conversion.jumps.push(ClockProblem { kind, from_ns, until_ns: pair.monotonic_ns });
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

    /// What the pairs alone show, for a recording that nobody could end in order.
    #[must_use]
    pub fn report(&self) -> ClockReport {
        ClockReport { source: None, problems: self.jumps.clone() }
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

    /// How far pairs are from the times that their neighbours predict, in ns: (median, 99th percentile, largest). `None`: too few.
    #[must_use]
    pub fn error_ns(&self) -> Option<(u64, u64, u64)> {
        let mut errors: Vec<u64> = self
            .earlier
            .iter()
            .chain([self])
            .flat_map(|conversion| conversion.pairs.windows(3))
            .map(|three| between(three[0], three[2], three[1].counter).abs_diff(three[1].monotonic_ns))
            .collect();
        errors.sort_unstable();
        let at = |percent: usize| errors.get((errors.len() - 1) * percent / 100).copied();
        if errors.is_empty() { None } else { Some((at(50)?, at(99)?, at(100)?)) }
    }
}

/// A value of a clock that shows `offset_ns` more than this process's, as this process's clock shows it: programs in time namespaces.
#[inline]
#[must_use]
pub fn without_offset(counter: u64, offset_ns: i64) -> u64 {
    counter.wrapping_sub(u64::from_ne_bytes(offset_ns.to_ne_bytes()))
}

/// Converts while pairs are still being taken: only values before the last pair, which lie between two pairs as they would later.
#[derive(Clone, Debug, Default)]
pub struct LiveClock {
    first: Option<Pair>,
    /// Gives the rate before the first pair.
    second: Option<Pair>,
    recent: Conversion,
    /// As it was before the counter jumped for the last time.
    before: Option<Box<LiveClock>>,
    /// Ticks before the first pair that may have come after the jump.
    gap: u64,
    errors: ClockErrors,
}

/// How far pairs were from what their neighbours predict: of an endless recording every one of 2, 4, 8 and so on.
#[derive(Clone, Debug, Default)]
struct ClockErrors {
    kept: Vec<u64>,
    seen: u64,
    /// One of 2 to the power of this is kept.
    thinned: u32,
    largest: u64,
}

impl ClockErrors {
    const KEPT_MAX: usize = 1 << 16;

    fn add(&mut self, error_ns: u64) {
        self.largest = self.largest.max(error_ns);
        if self.seen.trailing_zeros() >= self.thinned {
            self.kept.push(error_ns);
        }
        self.seen += 1;
        if self.kept.len() >= Self::KEPT_MAX {
            let mut number = 0;
            self.kept.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.thinned += 1;
        }
    }

    fn percentiles(&self) -> Option<(u64, u64, u64)> {
        let mut kept = self.kept.clone();
        kept.sort_unstable();
        let at = |percent: usize| kept.get(kept.len().saturating_sub(1) * percent / 100).copied();
        Some((at(50)?, at(99)?, self.largest))
    }
}

/// Ticks from the last pair before a jump to the first one after it, at the rate before it.
fn gap_ticks(before: &[Pair], after: Pair) -> u64 {
    let (Some(first), Some(last)) = (before.first(), before.last()) else { return 0 };
    let (ticks, ns) = (last.counter - first.counter, (last.monotonic_ns - first.monotonic_ns).max(1));
    let gap = u128::from(after.monotonic_ns - last.monotonic_ns) * u128::from(ticks) / u128::from(ns);
    u64::try_from(gap).unwrap_or(u64::MAX)
}

/// The time that a [`LiveClock`] gives for a counter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventTime {
    /// CLOCK_MONOTONIC, in ns.
    At(u64),
    /// Known once the next pairs are taken.
    Later,
    /// Not possible: no program can have read this value.
    Never,
}

/// Pairs retained for events that come late: those of threads that were stopped in the middle of writing one.
const RECENT_MAX: usize = 8192;
/// Jumps after which conversion begins anew; a counter that jumps all the time is of no use.
const JUMPS_MAX: usize = 1000;
/// Values older than the first pair are converted with the rate over at least this time.
pub const RATE_NS: u64 = 50_000_000;
/// Counters of this machine's CPUs differ by less: a value further ahead of the last pair was never read from a counter.
pub const AHEAD_NS: u64 = 1_000_000_000;

impl LiveClock {
    /// Adds a pair. Returns the counter's jump since the last one, if it has jumped.
    pub fn push(&mut self, pair: Pair) -> Option<ClockProblem> {
        let mut jumped = None;
        if let Some(by_ns) = jump(&self.recent.pairs, pair) {
            let from_ns = self.recent.pairs.last().map_or(0, |last| last.monotonic_ns);
            let kind = ClockProblemKind::Jump { by_ns };
            jumped = Some(ClockProblem { kind, from_ns, until_ns: pair.monotonic_ns });
            let before = LiveClock { before: None, ..std::mem::take(self) };
            self.errors = before.errors.clone();
            self.gap = gap_ticks(&before.recent.pairs, pair);
            self.before = Some(Box::new(before));
        }
        let pairs = &mut self.recent.pairs;
        let first = *self.first.get_or_insert(pair);
        match pairs.last() {
            Some(last) if pair.counter <= last.counter || pair.monotonic_ns <= last.monotonic_ns => {
                return jumped;
            }
            _ => {}
        }
        if let [.., a, b] = pairs.as_slice() {
            self.errors.add(between(*a, pair, b.counter).abs_diff(b.monotonic_ns));
        }
        if self.second.is_none() && pair.monotonic_ns - first.monotonic_ns >= RATE_NS {
            self.second = Some(pair);
        }
        if pairs.len() >= RECENT_MAX {
            pairs.drain(..RECENT_MAX / 2);
            self.recent.near = 0;
        }
        pairs.push(pair);
        jumped
    }

    /// How far pairs are from the times that their neighbours predict, in ns: (median, 99th percentile, largest). `None`: too few.
    #[must_use]
    pub fn error_ns(&self) -> Option<(u64, u64, u64)> {
        self.errors.percentiles()
    }

    /// CLOCK_MONOTONIC at the last pair; 0: there is none.
    #[must_use]
    pub fn latest_ns(&self) -> u64 {
        self.recent.pairs.last().map_or(0, |last| last.monotonic_ns)
    }

    /// The stretch between the two pairs around the value sought last, for a counter of this kind, which shows `offset_ns` more than this
    /// process's.
    #[inline]
    #[must_use]
    pub fn stretch(&self, kind: u32, offset_ns: i64) -> Stretch {
        if kind != abi::RTU_CLOCK_MONOTONIC {
            return self.recent.stretch;
        }
        let ticks = self.recent.pairs.last().map_or(0, |pair| pair.monotonic_ns);
        Stretch {
            counter: u64::from_ne_bytes(offset_ns.to_ne_bytes()),
            ticks,
            monotonic_ns: 0,
            ns_per_tick: 1 << FRACTION_BITS,
        }
    }

    /// Goes to the stretch that contains this value. Returns whether it is another one than before, and known.
    #[must_use]
    pub fn seek(&mut self, kind: u32, counter: u64) -> bool {
        if kind == abi::RTU_CLOCK_MONOTONIC || self.recent.stretch.monotonic_ns(counter).is_some() {
            return false;
        }
        let _ = self.recent.monotonic_ns(counter);
        self.recent.stretch.monotonic_ns(counter).is_some()
    }

    /// The time of any value of a counter of this kind. `is_final`: no more pairs will come.
    pub fn when(&mut self, kind: u32, counter: u64, is_final: bool) -> EventTime {
        let (Some(first), Some(last)) = (self.first, self.recent.pairs.last().copied()) else {
            return EventTime::Later;
        };
        if let Some(time) = self.when_before_the_jump(kind, counter, (first, last)) {
            return EventTime::At(time);
        }
        let (time, is_known) = if kind == abi::RTU_CLOCK_MONOTONIC {
            (counter, counter < last.monotonic_ns)
        } else if counter >= first.counter {
            (self.recent.monotonic_ns(counter), counter < last.counter)
        } else {
            match self.second.or((is_final && last != first).then_some(last)) {
                Some(second) => (between(first, second, counter), true),
                None if is_final => (self.recent.monotonic_ns(counter), true),
                None => return EventTime::Later,
            }
        };
        match time {
            time if time > last.monotonic_ns.saturating_add(AHEAD_NS) => EventTime::Never,
            time if is_known || is_final => EventTime::At(time),
            _ => EventTime::Later,
        }
    }

    /// The time of a value that was read before the counter jumped: not one that lies between pairs taken since, and not later than
    /// the first of these.
    fn when_before_the_jump(&mut self, kind: u32, counter: u64, (first, last): (Pair, Pair)) -> Option<u64> {
        let begin = first.counter.saturating_sub(self.gap);
        let is_newer = kind == abi::RTU_CLOCK_MONOTONIC || (begin..=last.counter).contains(&counter);
        let before = self.before.as_mut().filter(|_| !is_newer)?;
        match before.when(kind, counter, true) {
            EventTime::At(time) if time <= first.monotonic_ns => Some(time),
            _ => None,
        }
    }
}

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

    /// 2 ticks a ns, and `ahead` more from `jump_ms` on.
    fn jumping(ms: u64, jump_ms: u64, ahead: i64) -> Pair {
        let ahead = if ms >= jump_ms { ahead } else { 0 };
        Pair { counter: (ms * 2_000_000).wrapping_add_signed(ahead), monotonic_ns: ms * 1_000_000 }
    }

    #[test]
    fn values_before_and_after_a_jump_are_converted_apart() {
        // Reset by suspend; by a little; moved far ahead.
        for ahead in [-20_000_000_000, -3_000_000_000, -200_000_000, 900_000_000_000] {
            let pair = |ms| jumping(ms, 20_025, ahead);
            let pairs: Vec<Pair> = (10_000..30_000).step_by(50).map(pair).collect();
            let mut whole = Conversion::new(pairs.clone());
            assert_eq!(whole.report().problems.len(), 1, "{ahead}");
            assert!(whole.error_ns().is_some_and(|(.., max)| max < 10), "{:?}", whole.error_ns());
            let mut live = LiveClock::default();
            let (mut taken, mut certain) = (0, 0);
            for pair_now in &pairs {
                live.push(*pair_now);
                // Each event is taken at the first poll after it that has a later pair, one of them 120 ms late.
                while taken * 10 + 10_050 + 120 < pair_now.monotonic_ns / 1_000_000 {
                    let (ms, ns) = (taken * 10 + 10_050, (taken * 10 + 10_050) * 1_000_000);
                    // What the counter has shown twice can be either, and only then.
                    let counter = pair(ms).counter;
                    let shown_again = pair(20_050).counter - 100_000_000..=pairs[pairs.len() - 1].counter;
                    let again = ahead < 0 && ms < 20_025 && shown_again.contains(&counter);
                    let found = live.when(abi::RTU_CLOCK_TSC, counter, false);
                    let is_right = |found: u64| found.abs_diff(ns) <= 1000;
                    let seen = matches!(found, EventTime::At(found) if is_right(found));
                    assert!(again || seen, "{ahead}: {found:?} for {ns}");
                    certain += u64::from(!again);
                    assert!(again || is_right(whole.monotonic_ns(counter)), "{ahead}: {ns}");
                    taken += 1;
                }
            }
            assert!(taken > 1900 && certain > 900, "{certain} of {taken}");
        }
    }

    #[test]
    fn while_recording_only_values_between_pairs_have_a_time() {
        const TSC: u32 = abi::RTU_CLOCK_TSC;
        let pair = |ms: u64| Pair { counter: ms * 2_000_000 + 7, monotonic_ns: ms * 1_000_000 };
        let counter = |ms: u64| pair(ms).counter;
        let mut clock = LiveClock::default();
        assert_eq!(clock.when(TSC, counter(1), true), EventTime::Later);
        clock.push(pair(100));
        clock.push(pair(110));
        assert_eq!(clock.when(TSC, counter(104), false), EventTime::At(104_000_000));
        let stretch = clock.stretch(TSC, 0);
        assert_eq!(stretch.monotonic_ns(counter(105)), Some(105_000_000));
        assert_eq!((stretch.monotonic_ns(counter(99)), stretch.monotonic_ns(counter(110))), (None, None));
        let sync = Sync { counter: counter(101), cpu: 0 };
        let times = stretch.times(sync);
        assert_eq!(times.monotonic_ns(counter(105) & Sync::LOW), Some(105_000_000));
        assert_eq!(times.monotonic_ns(counter(110) & Sync::LOW), None);
        assert_eq!(clock.when(TSC, counter(105), false), EventTime::At(105_000_000));
        assert_eq!(clock.when(TSC, counter(120), false), EventTime::Later);
        assert_eq!(clock.when(TSC, counter(120), true), EventTime::At(120_000_000));
        assert_eq!(clock.when(TSC, counter(1111), false), EventTime::Never);
        for never in [counter(5000), u64::MAX, 1 << 63] {
            assert_eq!(clock.when(TSC, never, true), EventTime::Never, "{never}");
            let monotonic = never.max(1_200_000_000);
            assert_eq!(clock.when(abi::RTU_CLOCK_MONOTONIC, monotonic, true), EventTime::Never, "{never}");
        }
        // Older than the first pair: converted when the rate is known.
        assert_eq!(clock.when(TSC, counter(50), false), EventTime::Later);
        clock.push(pair(150));
        for ms in [160, 170, 10_000] {
            assert_eq!(clock.when(TSC, counter(50), false), EventTime::At(50_000_000));
            clock.push(pair(ms));
        }
        // After a long silence there is no multiplication for a value, but a time.
        assert_eq!(clock.when(TSC, counter(5_000), false), EventTime::At(5_000_000_000));
        assert_eq!(clock.stretch(TSC, 0).monotonic_ns(counter(5_000)), None);
        // Each stretch is found again.
        assert_eq!(clock.when(TSC, counter(155), false), EventTime::At(155_000_000));
        assert_eq!(clock.stretch(TSC, 0).monotonic_ns(counter(159)), Some(159_000_000));
        assert_eq!(clock.stretch(TSC, 0).monotonic_ns(counter(161)), None);
        assert!(!clock.seek(TSC, counter(158)) && clock.seek(TSC, counter(161)));
        assert_eq!(clock.stretch(TSC, 0).monotonic_ns(counter(161)), Some(161_000_000));
        assert!(!clock.seek(TSC, counter(20_000)) && !clock.seek(TSC, 0));
        assert_eq!(clock.when(TSC, 0, false), EventTime::At(0));
        assert_eq!(
            clock.stretch(abi::RTU_CLOCK_MONOTONIC, 0).monotonic_ns(9_999_999_999),
            Some(9_999_999_999)
        );
        assert_eq!(clock.stretch(abi::RTU_CLOCK_MONOTONIC, 0).monotonic_ns(10_000_000_000), None);
        // Of a program whose time namespace is ten minutes ahead, or behind.
        for offset_ns in [600_000_000_000, -600_000_000_000_i64] {
            let stretch = clock.stretch(abi::RTU_CLOCK_MONOTONIC, offset_ns);
            let there = 9_999_999_999_u64.wrapping_add_signed(offset_ns);
            assert_eq!(stretch.monotonic_ns(there), Some(9_999_999_999));
            assert_eq!(
                (stretch.monotonic_ns(there + 1), without_offset(there, offset_ns)),
                (None, 9_999_999_999)
            );
            let sync = Sync { counter: there - 1000, cpu: 0 };
            assert_eq!(stretch.times(sync).monotonic_ns(there & Sync::LOW), Some(9_999_999_999));
        }
    }

    #[test]
    fn this_machines_counter_agrees_with_its_clock() {
        let pairs: Vec<Pair> = (0..300)
            .map(|_| {
                std::thread::sleep(std::time::Duration::from_micros(300));
                Pair::now(counter_kind())
            })
            .collect();
        let (median, p99, worst) = Conversion::new(pairs).error_ns().unwrap();
        println!("conversion error: median {median} ns, 99 % {p99} ns, worst {worst} ns");
        assert!(median < 1000, "{median} ns");
    }
}
