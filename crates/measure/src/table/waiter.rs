// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread whose latency is measured. It sleeps until a time that is known before, t0, and notes when it runs, t3. When the
//! timer's interrupt came, t1, is reported by two eBPF programs (crates/kernel/bpf/tools/expiry.bpf.h).
//!
//! A time that has passed before it could be waited for is left out and counted: a response of 3 ms takes the place of three
//! of 1 ms, so the counts of late ones are, if anything, too low.

use super::child::StartReport;
use nix::errno::Errno;
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use rtscope_event::MonotonicNs;
use rtscope_flight::monotonic_now;
use rtscope_ring::{Expiry, SharedMemory};
use rtscope_session::realtime::become_fifo;
use std::fs::File;
use std::io::Read;
use std::time::Duration;

/// A kernel latency that is not known.
pub const UNKNOWN: u64 = u64::MAX;
/// First wakeups, which are not counted: caches, and the page faults of what is used for the first time.
const WARM_UP: u64 = 64;
/// The golden ratio's part behind the point, as a fraction of 2^64: its multiples fill an interval evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Words of the waiter's own, before its samples; each sample has two: user latency, kernel latency.
pub const HEAD: usize = 6;
const COUNT: usize = 0;
const SKIPPED: usize = 1;
const ELSEWHERE: usize = 2;
const BEGAN_NS: usize = 3;
const ENDED_NS: usize = 4;
const DONE: usize = 5;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub cpu: u32,
    pub priority: u8,
    pub period_ns: u64,
    pub samples: u64,
    /// It ends after this time, with fewer.
    pub limit_ns: u64,
}

/// Where the results are: words of shared memory, and which of them.
#[derive(Debug)]
pub struct Board {
    memory: SharedMemory,
    /// Counters of the loads come first, then their values when the measurement began and when it ended.
    loads: usize,
}

impl Board {
    /// Words that are needed.
    pub fn words(loads: usize, samples: u64) -> usize {
        loads * 3 + HEAD + samples as usize * 2
    }

    pub fn new(memory: SharedMemory, loads: usize) -> Board {
        Board { memory, loads }
    }

    fn own(&self, word: usize) -> usize {
        (self.loads * 3 + word) * 8
    }

    fn get(&self, word: usize) -> u64 {
        self.memory.load_acquire(self.own(word))
    }

    fn set(&self, word: usize, value: u64) {
        self.memory.store_release(self.own(word), value);
    }

    /// How many samples there are.
    pub fn count(&self) -> u64 {
        self.get(COUNT)
    }

    /// Times that had passed before they could be waited for.
    pub fn skipped(&self) -> u64 {
        self.get(SKIPPED)
    }

    /// Interrupts that came on another CPU than the waiter's.
    pub fn elsewhere(&self) -> u64 {
        self.get(ELSEWHERE)
    }

    /// From the first to the last counted wakeup.
    pub fn duration_ns(&self) -> u64 {
        let end = if self.is_done() { self.get(ENDED_NS) } else { monotonic_now().0 };
        let began = self.get(BEGAN_NS);
        if began == 0 { 0 } else { end.saturating_sub(began) }
    }

    /// Whether it has all its samples.
    pub fn is_done(&self) -> bool {
        self.get(DONE) != 0
    }

    /// What the load with this number did while it was measured.
    pub fn done_by(&self, load: usize) -> u64 {
        let end = if self.is_done() { self.loads * 2 + load } else { load };
        let [before, after] = [self.loads + load, end].map(|word| self.memory.load(word * 8));
        after.saturating_sub(before)
    }

    /// A load's counter.
    pub fn add(&self, load: usize, what: u64) {
        // Only that load writes here.
        self.memory.store_release(load * 8, self.memory.load(load * 8) + what);
    }

    fn copy_counters(&self, to: usize) {
        for load in 0..self.loads {
            self.memory.store_release((self.loads * to + load) * 8, self.memory.load(load * 8));
        }
    }

    fn put(&self, at: u64, user_ns: u64, kernel_ns: u64) {
        let first = HEAD + at as usize * 2;
        self.set(first, user_ns);
        self.set(first + 1, kernel_ns);
        self.set(COUNT, at + 1);
    }

    /// The latencies, in the order in which they were measured.
    pub fn samples(&self) -> Samples {
        let mut words = vec![0; self.count() as usize * 2];
        self.memory.copy(self.own(HEAD), &mut words);
        let pairs = words.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        let known = || pairs.clone().filter(|(_, kernel)| *kernel != UNKNOWN);
        Samples {
            user: pairs.clone().map(|(user, _)| user).collect(),
            kernel: known().map(|(_, kernel)| kernel).collect(),
            wake_up: known().map(|(user, kernel)| user.saturating_sub(kernel)).collect(),
        }
    }
}

/// Latencies, in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// t3-t0.
    pub user: Vec<u64>,
    /// t1-t0, where it is known.
    pub kernel: Vec<u64>,
    /// t3-t1, where it is known.
    pub wake_up: Vec<u64>,
}

/// In a process of its own: says that it is there, waits for the word at `gate`, and measures.
pub fn run(
    plan: &Plan,
    board: &Board,
    expiry: Option<&Expiry>,
    mut gate: File,
    report: &mut Option<StartReport>,
) -> Result<(), String> {
    if let Some(report) = report.take() {
        report.ready("");
    }
    // Only then is it where it shall be.
    if gate.read(&mut [0]).map_err(|error| error.to_string())? == 0 {
        return Err("rtscope has ended".to_owned());
    }
    prepare(plan)?;
    if let Some(expiry) = expiry {
        expiry.watch(std::process::id());
    }
    measure(plan, board, expiry)
}

fn prepare(plan: &Plan) -> Result<(), String> {
    rtscope_cpus::Thread::Calling
        .set_cpus(&[plan.cpu].into_iter().collect())
        .map_err(|error| format!("going to CPU {}: {}", plan.cpu, error.desc()))?;
    mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)
        .map_err(|error| format!("locking memory: {}", error.desc()))?;
    become_fifo(plan.priority).map_err(|error| format!("getting SCHED_FIFO: {error}"))
}

/// The time of an iteration: in its period, but at no fixed place in it, since the scheduler's tick has one, too.
fn time_of(begin: MonotonicNs, iteration: u64, period_ns: u64) -> MonotonicNs {
    let place = (u128::from(GOLDEN.wrapping_mul(iteration)) * u128::from(period_ns / 2)) >> 64;
    MonotonicNs(begin.0 + iteration * period_ns + place as u64)
}

fn measure(plan: &Plan, board: &Board, expiry: Option<&Expiry>) -> Result<(), String> {
    let begin = monotonic_now();
    let end = begin.0.saturating_add(plan.limit_ns);
    // Less than that, and the interrupt may come before the thread sleeps.
    let margin_ns = (plan.period_ns / 8).min(100_000);
    let (mut iteration, mut warm) = (1, 0);
    let mut at = 0;
    while at < plan.samples && monotonic_now().0 < end {
        let deadline = time_of(begin, iteration, plan.period_ns);
        iteration += 1;
        if deadline.0 < monotonic_now().0 + margin_ns {
            board.set(SKIPPED, board.skipped() + u64::from(warm >= WARM_UP));
            continue;
        }
        if let Some(expiry) = expiry {
            expiry.wait_for(deadline);
        }
        sleep_until(deadline)?;
        let ran = monotonic_now();
        warm += 1;
        if warm <= WARM_UP {
            if warm == WARM_UP {
                board.copy_counters(1);
                board.set(BEGAN_NS, monotonic_now().0);
            }
            continue;
        }
        let fired = expiry.and_then(|expiry| expiry.fired(deadline));
        let kernel_ns = fired.map_or(UNKNOWN, |fired| fired.entered.since(deadline));
        if fired.is_some_and(|fired| fired.cpu != plan.cpu) {
            board.set(ELSEWHERE, board.elsewhere() + 1);
        }
        board.put(at, ran.since(deadline), kernel_ns);
        at += 1;
    }
    board.copy_counters(2);
    board.set(ENDED_NS, monotonic_now().0);
    board.set(DONE, 1);
    Ok(())
}

fn sleep_until(time: MonotonicNs) -> Result<(), String> {
    let until = TimeSpec::from(Duration::from_nanos(time.0));
    loop {
        match clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &until) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(format!("sleeping: {}", error.desc())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_the_first_half_of_their_periods_and_at_no_fixed_place() {
        let places: Vec<u64> = (1..=1000)
            .map(|iteration| time_of(MonotonicNs(0), iteration, 1000).0 - iteration * 1000)
            .collect();
        assert!(places.iter().all(|place| *place < 500));
        for tenth in 0..10 {
            let here = places.iter().filter(|place| **place / 50 == tenth).count();
            assert!((90..=110).contains(&here), "{tenth}: {here}");
        }
    }

    #[test]
    fn a_board_keeps_samples_and_counters_apart() {
        let board = Board::new(SharedMemory::anonymous(Board::words(2, 3) * 8).expect("memory"), 2);
        board.add(0, 5);
        board.copy_counters(1);
        board.set(BEGAN_NS, 1);
        board.add(0, 2);
        board.add(1, 9);
        board.put(0, 10, 3);
        board.put(1, 20, UNKNOWN);
        board.copy_counters(2);
        board.add(1, 100);
        board.set(ENDED_NS, 51);
        board.set(DONE, 1);
        assert_eq!([board.done_by(0), board.done_by(1)], [2, 9], "what came after the end does not count");
        let samples = Samples { user: vec![10, 20], kernel: vec![3], wake_up: vec![7] };
        assert_eq!(board.samples(), samples);
        assert_eq!((board.count(), board.duration_ns(), board.skipped()), (2, 50, 0));
    }
}
