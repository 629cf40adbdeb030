// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clock readings, absolute sleeps and durations as people type them.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

/// From this gap between two clock readings on, a busy loop assumes that its thread did not run.
const AWAY_NS: u64 = 5_000;

fn nanoseconds(time: TimeSpec) -> u64 {
    // Both clocks count from zero upwards, so neither part is negative.
    time.tv_sec().unsigned_abs() * 1_000_000_000 + time.tv_nsec().unsigned_abs()
}

fn read(clock: ClockId) -> u64 {
    clock_gettime(clock).map(nanoseconds).expect("Linux has CLOCK_MONOTONIC and CLOCK_THREAD_CPUTIME_ID")
}

/// CLOCK_MONOTONIC now.
pub fn now_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// CPU time that this thread has used, as the scheduler accounts it.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// Sleeps until CLOCK_MONOTONIC reaches `deadline_ns`; returns at once when it is past.
pub fn sleep_until(deadline_ns: u64) {
    let deadline = TimeSpec::from_duration(Duration::from_nanos(deadline_ns));
    let sleep = || clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &deadline);
    while sleep() == Err(Errno::EINTR) {}
}

/// Keeps the CPU busy until CLOCK_MONOTONIC reaches `end_ns`; returns the last reading.
pub fn spin_until(end_ns: u64) -> u64 {
    loop {
        let now = now_ns();
        if now >= end_ns {
            return now;
        }
        std::hint::spin_loop();
    }
}

/// Computes for `work_ns`: time in which this thread was interrupted or preempted is not counted as work.
///
/// `start_ns` is a reading taken just before. Returns the time at which the work was done.
pub fn work(start_ns: u64, work_ns: u64) -> u64 {
    let mut last = start_ns;
    let mut done = 0;
    while done < work_ns {
        let now = now_ns();
        let step = now - last;
        if step < AWAY_NS {
            done += step;
        }
        last = now;
        std::hint::spin_loop();
    }
    last
}

/// Reads `500us`, `2ms`, `1.5s`, `80ns` (and `µs`).
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a time; write it like 500us, 2ms or 1.5s");
    let unit_at = text.find(|c: char| c.is_alphabetic()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(unit_at);
    let factor = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * factor).map_err(|_| wrong())
}

/// Nanoseconds of a duration; the durations of this crate are far below the 584 years that fit.
pub fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_people_write_them() {
        assert_eq!(parse_duration("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(parse_duration("2ms"), Ok(Duration::from_millis(2)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        for wrong in ["5", "", "ms", "-1ms", "5 m s", "5h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sleeping_and_working_take_the_time_asked_for() {
        let start = now_ns();
        sleep_until(start + 1_000_000);
        let woke = now_ns();
        assert!(woke >= start + 1_000_000);
        assert!(work(woke, 200_000) >= woke + 200_000);
        assert!(thread_cpu_ns() > 0);
    }
}
