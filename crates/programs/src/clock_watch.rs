// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether the programs' counter can still be trusted: what the kernel thinks of it, and what pairs of counter and clock show.
//!
//! A counter that runs at one rate by its description (CPUID) need not: firmware resets it at suspend, a virtual machine is moved, a
//! kernel is started by another one, or the kernel measures that it drifts, marks it unstable, and goes on with another clock.
//! Nothing tells a program. So the collector asks the kernel, and checks each pair against the rate so far. Where the counter
//! jumped, conversion begins anew (`clock`), and the times in between are reported as not known.

use crate::clock::{Pair, between, counter_kind};
use rtscope_abi::program as abi;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Where the kernel says which clock it uses.
const CLOCKSOURCES: &str = "/sys/devices/system/clocksource/clocksource0";
/// Clocks that are made of the counter: the kernel, or the hypervisor for it, trusts it as long as it uses one of these.
const OF_THE_COUNTER: [&str; 5] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "xen", "arch_sys_counter"];
/// Between questions about the clock source: the kernel's watchdog looks twice a second.
const SOURCE_EVERY_NS: u64 = 500_000_000;
/// A suspend lasts longer than this, and the two clocks cannot be read further apart than this eight times in a row.
const SUSPEND_MIN_NS: u64 = 1_000_000;
/// A rate measured over less than this is not known well enough to judge others by.
const RATE_MIN_NS: u64 = 1_000_000;
/// Enough for a rate.
const RATE_NS: u64 = 50_000_000;
/// A pair may be off by this much: the time between two readings, and an interrupt in each of eight tries.
const PAIR_ERROR_NS: u64 = 10_000;
/// The rate changes by less than 1/this: NTP slews by at most 500 in a million.
const RATE_CHANGE: u64 = 1000;
/// Problems that are kept.
const PROBLEMS_MAX: usize = 100;

/// What the kernel says about its clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clocksource {
    /// The one that it uses.
    pub current: String,
    /// Those that it could use; an unstable one is not among them.
    pub available: String,
}

impl Clocksource {
    /// What it says now; `None` where it does not.
    #[must_use]
    pub fn now() -> Option<Clocksource> {
        Clocksource::of(Path::new(CLOCKSOURCES))
    }

    fn of(directory: &Path) -> Option<Clocksource> {
        let read = |name: &str| std::fs::read_to_string(directory.join(name));
        let current = read("current_clocksource").ok()?.trim().to_string();
        let available = read("available_clocksource").ok()?.trim().to_string();
        Some(Clocksource { current, available })
    }

    /// Whether the kernel trusts the counter that programs read. The same rule is in include/rtscope/clock.h, by which a program
    /// chooses its clock when it starts.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        let own = if cfg!(target_arch = "x86_64") { "tsc" } else { "arch_sys_counter" };
        OF_THE_COUNTER.contains(&self.current.as_str())
            && self.available.split_whitespace().any(|name| name == own)
    }
}

/// Something that made times wrong, or may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockProblem {
    /// What it was.
    #[serde(flatten)]
    pub kind: ClockProblemKind,
    /// CLOCK_MONOTONIC when all was well for the last time.
    pub from_ns: u64,
    /// CLOCK_MONOTONIC when it was noticed: times that were read from the counter in between are not known exactly.
    pub until_ns: u64,
}

/// What made times wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ClockProblemKind {
    /// The counter went on at another place: by how much it was ahead of where it should have been, in ns (negative: behind).
    Jump {
        /// In ns.
        by_ns: i64,
    },
    /// The machine slept this long; counters may stand still, go on or begin anew.
    Suspend {
        /// In ns.
        slept_ns: u64,
    },
    /// The kernel does not trust the counter, and uses this clock.
    Clocksource {
        /// Its name.
        source: String,
    },
}

impl ClockProblem {
    /// For people.
    #[must_use]
    pub fn sentence(&self) -> String {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let (from, until) = (seconds(self.from_ns), seconds(self.until_ns));
        match &self.kind {
            ClockProblemKind::Jump { by_ns } => format!(
                "the CPU's counter jumped by {:.6} s: times of programs between {from:.6} and {until:.6} are not exact",
                *by_ns as f64 / 1e9
            ),
            ClockProblemKind::Suspend { slept_ns } => format!(
                "the machine slept for {:.3} s: times of programs between {from:.6} and {until:.6} are not exact",
                seconds(*slept_ns)
            ),
            ClockProblemKind::Clocksource { source } => format!(
                "the kernel does not trust the CPU's counter (its clock is {source}): times of programs that read it are not \
                 exact from {from:.6} on; programs that start now use the kernel's clock"
            ),
        }
    }
}

/// By how many ns the counter of `next` is ahead of where the pairs so far, in order, predict it; `None`: it is within what readings
/// and rates can differ, or too little is known.
#[must_use]
pub(crate) fn jump(pairs: &[Pair], next: Pair) -> Option<i64> {
    let last = *pairs.last()?;
    let passed_ns = next.monotonic_ns.checked_sub(last.monotonic_ns)?;
    let older = pairs.partition_point(|pair| pair.monotonic_ns + RATE_NS <= last.monotonic_ns);
    let base = pairs[older.saturating_sub(1)];
    if last.monotonic_ns - base.monotonic_ns < RATE_MIN_NS {
        // Without a rate only the direction can be wrong.
        let behind = next.counter < last.counter && passed_ns > PAIR_ERROR_NS;
        return behind.then(|| -i64::try_from(last.counter - next.counter).unwrap_or(i64::MAX));
    }
    let predicted_ns = i128::from(between(base, last, next.counter));
    let (ahead_ns, passed) = (predicted_ns - i128::from(next.monotonic_ns), i128::from(passed_ns));
    let bound = i128::from(PAIR_ERROR_NS) + passed / i128::from(RATE_CHANGE);
    let clamped = ahead_ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
    (ahead_ns.abs() > bound).then(|| i64::try_from(clamped).unwrap_or(0))
}

/// Where clocks are read.
pub trait ClockReadings {
    /// The counter and CLOCK_MONOTONIC.
    fn pair(&mut self) -> Pair;
    /// CLOCK_BOOTTIME minus CLOCK_MONOTONIC: how long the machine has slept since it was started.
    fn slept_ns(&mut self) -> u64;
    /// What the kernel says.
    fn clocksource(&mut self) -> Option<Clocksource>;
}

/// This machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineReadings;

impl ClockReadings for MachineReadings {
    fn pair(&mut self) -> Pair {
        Pair::now(counter_kind())
    }

    fn slept_ns(&mut self) -> u64 {
        // In this order whatever comes between the readings makes it less, so the largest is the best.
        let slept = || {
            let boot = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map_or(0, |time| {
                time.tv_sec().unsigned_abs() * 1_000_000_000 + time.tv_nsec().unsigned_abs()
            });
            boot.saturating_sub(Pair::now(abi::RTU_CLOCK_MONOTONIC).monotonic_ns)
        };
        (0..2).map(|_| slept()).max().unwrap_or(0)
    }

    fn clocksource(&mut self) -> Option<Clocksource> {
        Clocksource::now()
    }
}

/// Takes the pairs of a recording, and looks at what they and the kernel say.
#[derive(Debug)]
pub struct ClockWatch<R = MachineReadings> {
    readings: R,
    recent: Vec<Pair>,
    slept_ns: u64,
    asked_ns: u64,
    source: Option<Clocksource>,
    problems: Vec<ClockProblem>,
}

/// What a [`ClockWatch`] has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReport {
    /// The clock that the kernel uses; `None`: it does not say.
    pub source: Option<String>,
    /// What happened, the first hundred.
    pub problems: Vec<ClockProblem>,
}

/// Pairs that are kept for a rate.
const RECENT_MAX: usize = 64;

impl<R: ClockReadings> ClockWatch<R> {
    /// Begins with these readings.
    pub fn new(readings: R) -> ClockWatch<R> {
        ClockWatch {
            readings,
            recent: Vec::new(),
            slept_ns: 0,
            asked_ns: 0,
            source: None,
            problems: Vec::new(),
        }
    }

    /// The next pair. What is wrong with it is in the report.
    pub fn pair(&mut self) -> Pair {
        let pair = self.readings.pair();
        let last_ns = self.recent.last().map(|last| last.monotonic_ns);
        let from_ns = last_ns.unwrap_or(pair.monotonic_ns);
        let slept_ns = self.readings.slept_ns();
        let has_slept = last_ns.is_some() && slept_ns > self.slept_ns + SUSPEND_MIN_NS;
        if has_slept {
            let kind = ClockProblemKind::Suspend { slept_ns: slept_ns - self.slept_ns };
            self.add(kind, from_ns, pair.monotonic_ns);
        }
        if last_ns.is_none() || has_slept {
            self.slept_ns = slept_ns;
        }
        if let Some(by_ns) = jump(&self.recent, pair) {
            self.add(ClockProblemKind::Jump { by_ns }, from_ns, pair.monotonic_ns);
            self.recent.clear();
        }
        if self.recent.len() == RECENT_MAX {
            self.recent.drain(..RECENT_MAX / 2);
        }
        self.recent.push(pair);
        self.ask(from_ns, pair.monotonic_ns);
        pair
    }

    fn ask(&mut self, from_ns: u64, now_ns: u64) {
        if self.asked_ns != 0 && now_ns < self.asked_ns + SOURCE_EVERY_NS {
            return;
        }
        let from_ns = if self.asked_ns == 0 { from_ns } else { self.asked_ns };
        self.asked_ns = now_ns.max(1);
        let source = self.readings.clocksource();
        if source != self.source {
            if let Some(source) = source.as_ref().filter(|source| !source.is_trusted()) {
                let kind = ClockProblemKind::Clocksource { source: source.current.clone() };
                self.add(kind, from_ns, now_ns);
            }
            self.source = source;
        }
    }

    fn add(&mut self, kind: ClockProblemKind, from_ns: u64, until_ns: u64) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(ClockProblem { kind, from_ns, until_ns });
        }
    }

    /// What was found so far.
    #[must_use]
    pub fn report(&self) -> ClockReport {
        let source = self.source.as_ref().map(|source| source.current.clone());
        ClockReport { source, problems: self.problems.clone() }
    }
}

impl ClockWatch {
    /// Of this machine.
    #[must_use]
    pub fn of_this_machine() -> ClockWatch {
        ClockWatch::new(MachineReadings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose clocks are what the test says: 2 ticks a ns.
    #[derive(Clone, Debug, Default)]
    struct Lies {
        now_ns: u64,
        ahead_ticks: i64,
        slept_ns: u64,
        source: Option<Clocksource>,
    }

    impl Lies {
        fn source(current: &str, available: &str) -> Option<Clocksource> {
            Some(Clocksource { current: current.to_string(), available: available.to_string() })
        }
    }

    impl ClockReadings for Lies {
        fn pair(&mut self) -> Pair {
            Pair {
                counter: (self.now_ns * 2).wrapping_add_signed(self.ahead_ticks),
                monotonic_ns: self.now_ns,
            }
        }

        fn slept_ns(&mut self) -> u64 {
            self.slept_ns
        }

        fn clocksource(&mut self) -> Option<Clocksource> {
            self.source.clone()
        }
    }

    const MS: u64 = 1_000_000;

    fn watch() -> ClockWatch<Lies> {
        let source = Lies::source("tsc", "tsc hpet acpi_pm");
        let mut watch = ClockWatch::new(Lies { now_ns: 1000 * MS, slept_ns: 77, source, ..Lies::default() });
        run(&mut watch, 20);
        assert_eq!(watch.report(), ClockReport { source: Some("tsc".to_string()), problems: vec![] });
        watch
    }

    /// This many pairs, 50 ms apart, from now on.
    fn run(watch: &mut ClockWatch<Lies>, pairs: u64) {
        for _ in 0..pairs {
            watch.readings.now_ns += 50 * MS;
            watch.pair();
        }
    }

    #[test]
    fn a_counter_that_jumps_is_noticed_in_either_direction_and_once() {
        for by_ns in [-1_900_000_000_i64, -2_000_000, -70_000, 70_000, 3_600_000_000_000] {
            let mut watch = watch();
            let from_ns = watch.readings.now_ns;
            watch.readings.ahead_ticks = by_ns * 2;
            run(&mut watch, 50);
            let [problem] = &watch.report().problems[..] else { panic!("{by_ns}: {:?}", watch.report()) };
            assert_eq!((problem.from_ns, problem.until_ns), (from_ns, from_ns + 50 * MS), "{by_ns}");
            let ClockProblemKind::Jump { by_ns: found } = problem.kind else { panic!("{problem:?}") };
            assert!(found.abs_diff(by_ns) < 100, "{found} for {by_ns}");
        }
    }

    #[test]
    fn what_ntp_and_readings_do_is_no_jump() {
        let mut watch = watch();
        for step in 0..400_i64 {
            // The rate changes by 500 in a million, back and forth, and each reading is off by up to 5 µs.
            watch.readings.ahead_ticks += 50_000_i64 * if step / 40 % 2 == 0 { 1 } else { -1 };
            let off = step * 7919 % 10_000 - 5_000;
            watch.readings.ahead_ticks += off;
            run(&mut watch, 1);
            watch.readings.ahead_ticks -= off;
        }
        assert_eq!(watch.report().problems, []);
    }

    #[test]
    fn a_suspend_is_noticed_whatever_the_counter_did() {
        for ahead_ticks in [0, 10_000_000_000, -2_000_000_000] {
            let mut watch = watch();
            (watch.readings.slept_ns, watch.readings.ahead_ticks) = (5_000 * MS + 77, ahead_ticks);
            run(&mut watch, 5);
            let report = watch.report();
            assert_eq!(report.problems[0].kind, ClockProblemKind::Suspend { slept_ns: 5_000 * MS });
            assert_eq!(report.problems.len(), 1 + usize::from(ahead_ticks != 0), "{report:?}");
        }
    }

    #[test]
    fn a_kernel_that_does_not_trust_the_counter_any_more_is_heard() {
        let mut watch = watch();
        watch.readings.source = Lies::source("hpet", "hpet acpi_pm");
        run(&mut watch, 30);
        let report = watch.report();
        assert_eq!(report.source.as_deref(), Some("hpet"));
        let source = "hpet".to_string();
        assert_eq!(report.problems.len(), 1);
        assert_eq!(report.problems[0].kind, ClockProblemKind::Clocksource { source });
        assert!(report.problems[0].until_ns - report.problems[0].from_ns <= SOURCE_EVERY_NS);
    }

    #[test]
    fn which_clocks_are_made_of_a_counter_that_can_be_trusted() {
        for (current, available, is_trusted) in [
            ("tsc", "tsc kvm-clock", true),
            ("kvm-clock", "kvm-clock tsc acpi_pm", true),
            // The kernel has marked it unstable: it is not to be had any more.
            ("kvm-clock", "kvm-clock acpi_pm", false),
            ("hpet", "tsc hpet acpi_pm", false),
            ("acpi_pm", "acpi_pm", false),
            ("", "", false),
        ] {
            let source = Lies::source(current, available).unwrap();
            assert_eq!(source.is_trusted(), is_trusted && cfg!(target_arch = "x86_64"), "{source:?}");
        }
        assert_eq!(Clocksource::of(Path::new("/nowhere")), None);
    }
}
