// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether SCHED_DEADLINE tasks that share one CPU can all keep their deadlines.
//!
//! The kernel asks less: that the sum of runtime/period fits into the root domain, and only while sched_rt_runtime_us is not -1,
//! which a shield makes it. So the question is answered here, for one CPU under earliest deadline first:
//!
//! - the sum of runtime/period is at most 1 (Liu and Layland 1973), and
//! - where deadlines are shorter than periods, no interval from a common start holds more work with a deadline in it than its length
//!   (the processor demand criterion: Baruah, Rosier, Howell 1990, by the backward steps of Zhang and Burns 2009). Where the sum of
//!   runtime/deadline (the density) is at most 1, that holds without looking.
//!
//! Both are exact for independent tasks. What they leave out: interrupts, sections that cannot be preempted, and locks.

use crate::policy::{self, Policy, Reservation};
use crate::{Cpus, System, tasks};

/// The kernel's own smallest runtime: DL_SCALE is 10 bits in kernel/sched/deadline.c.
const LEAST_RUNTIME_NS: u64 = 1024;
/// The kernel's fixed point for bandwidths (BW_SHIFT).
const WHOLE: f64 = (1_u64 << 20) as f64;
/// After this many steps the answer is "unknown". Busy periods of usual tasks end after a few hundred.
const STEPS: usize = 1_000_000;
/// They run ordinary tasks, and those of a BPF scheduler, in spite of real-time ones (since Linux 6.12 and 7.0).
const SERVERS: [&str; 2] = ["fair_server", "ext_server"];
/// For sums of fractions that are whole.
const ROUNDING: f64 = 1e-9;

/// Why a task is not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

/// Time of a CPU that a task, or one of the kernel's servers, has reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedTime {
    /// For people.
    pub who: String,
    /// What it has.
    pub reservation: Reservation,
}

/// How full a CPU is with everybody on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuLoad {
    /// Sum of runtime/period.
    pub utilisation: f64,
    /// Sum of runtime/min(deadline, period).
    pub density: f64,
}

/// A time for people, exact.
pub fn time(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
    for (unit, name) in units {
        // Not more than three digits behind the point.
        if ns >= unit && ns % (unit / 1000) == 0 {
            let text = format!("{:.3}", ns as f64 / unit as f64);
            return format!("{}{name}", text.trim_end_matches('0').trim_end_matches('.'));
        }
    }
    format!("{ns}ns")
}

/// Whether the kernel takes these times at all, whatever else is there.
///
/// # Errors
/// Which one it does not take.
pub fn valid(system: &System, reservation: &Reservation) -> Result<(), Refusal> {
    let Reservation { runtime_ns, deadline_ns, period_ns } = *reservation;
    let limit = |name: &str| -> Option<u64> {
        system.read(&format!("/proc/sys/kernel/sched_deadline_period_{name}_us")).ok()?.trim().parse().ok()
    };
    let (least, most) = (limit("min").unwrap_or(0) * 1000, limit("max").map(|us| us * 1000));
    let why = if runtime_ns < LEAST_RUNTIME_NS {
        format!("a runtime of {} is too short: the kernel takes 1024 ns or more", time(runtime_ns))
    } else if runtime_ns > deadline_ns {
        format!("a runtime of {} does not fit into a deadline of {}", time(runtime_ns), time(deadline_ns))
    } else if deadline_ns > period_ns {
        format!(
            "a deadline of {} is after the end of a period of {}: the kernel takes at most the period",
            time(deadline_ns),
            time(period_ns)
        )
    } else if period_ns < least {
        format!(
            "a period of {} is too short: /proc/sys/kernel/sched_deadline_period_min_us is {}",
            time(period_ns),
            least / 1000
        )
    } else if let Some(most) = most.filter(|most| period_ns > *most) {
        format!(
            "a period of {} is too long: /proc/sys/kernel/sched_deadline_period_max_us is {}",
            time(period_ns),
            most / 1000
        )
    } else {
        return Ok(());
    };
    Err(Refusal(why))
}

/// What has been reserved of this CPU, except by one thread: tasks that may use it, and the kernel's servers for ordinary tasks.
pub fn reserved(system: &System, cpu: u32, except: i32) -> Vec<ReservedTime> {
    let mut all = Vec::new();
    // The kernel's own such threads (sugov, which change frequencies) have numbers without a meaning, and it does not count them either.
    let is_one = |task: &tasks::Task| task.is_deadline() && !task.kernel && task.thread.tid != except;
    for task in tasks::all(system).into_iter().filter(is_one) {
        let Ok(policy::Scheduling { policy: Policy::Deadline(reservation), .. }) =
            policy::of(task.thread.tid)
        else {
            continue;
        };
        if task.thread.cpus(system).is_ok_and(|cpus| cpus.contains(cpu)) {
            let who = format!("{} (thread {})", task.thread.name, task.thread.tid);
            all.push(ReservedTime { who, reservation });
        }
    }
    for server in SERVERS {
        let number = |name: &str| -> Option<u64> {
            let path = format!("/sys/kernel/debug/sched/{server}/cpu{cpu}/{name}");
            system.read(&path).ok()?.trim().parse().ok()
        };
        if let (Some(runtime_ns @ 1..), Some(period_ns @ 1..)) = (number("runtime"), number("period")) {
            let who = format!("the kernel's {server}");
            all.push(ReservedTime {
                who,
                reservation: Reservation { runtime_ns, deadline_ns: period_ns, period_ns },
            });
        }
    }
    all
}

/// What cannot be counted of a CPU.
pub fn unknown_servers(system: &System, cpu: u32) -> Vec<String> {
    let unknown = |server: &&str| {
        let path = format!("/sys/kernel/debug/sched/{server}/cpu{cpu}/runtime");
        let error = system.read(&path).err().filter(|_| system.exists(&path))?;
        Some(format!(
            "what the kernel's {server} takes of CPU {cpu} is not known and not counted ({path}: {error})"
        ))
    };
    SERVERS.iter().filter_map(unknown).collect()
}

/// How full a CPU is.
pub fn fill(all: &[ReservedTime]) -> CpuLoad {
    let sum = |part: fn(&Reservation) -> u64| {
        all.iter().map(|one| one.reservation.runtime_ns as f64 / part(&one.reservation).max(1) as f64).sum()
    };
    CpuLoad {
        utilisation: sum(|reservation| reservation.period_ns),
        density: sum(|reservation| reservation.deadline_ns.min(reservation.period_ns)),
    }
}

/// Whether all of them can keep their deadlines on one CPU.
///
/// # Errors
/// Why not, with the figures.
pub fn admit(cpu: u32, all: &[ReservedTime]) -> Result<CpuLoad, Refusal> {
    let fill = fill(all);
    if fill.utilisation > 1.0 + ROUNDING {
        let why = format!(
            "CPU {cpu} has not enough time: together they ask for {:.1} % of it{}",
            fill.utilisation * 100.0,
            table(all)
        );
        return Err(Refusal(why));
    }
    if fill.density <= 1.0 + ROUNDING {
        return Ok(fill);
    }
    match overload(all) {
        Demand::Fits => Ok(fill),
        Demand::TooMuch { within_ns, work_ns } => Err(Refusal(format!(
            "deadlines on CPU {cpu} would be missed: in {} from a start at the same time, {} of work have to be done{}",
            time(within_ns),
            time(work_ns),
            table(all)
        ))),
        Demand::Unknown => Err(Refusal(format!(
            "whether all deadlines on CPU {cpu} can be kept cannot be told (utilisation {:.4}, density {:.4}, and no idle time \
             after {STEPS} steps); make the periods multiples of each other, or reserve less{}",
            fill.utilisation,
            fill.density,
            table(all)
        ))),
    }
}

fn table(all: &[ReservedTime]) -> String {
    let lines = all.iter().map(|one| {
        format!("\n  {:5.1} %  {}  {}", one.reservation.utilisation() * 100.0, one.reservation, one.who)
    });
    lines.collect()
}

/// Whether there is an interval with more work than time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    Fits,
    TooMuch { within_ns: u64, work_ns: u64 },
    Unknown,
}

/// The work with a deadline in the first `within` nanoseconds.
fn demand(all: &[ReservedTime], within: u64) -> u128 {
    let of = |one: &ReservedTime| {
        let Reservation { runtime_ns, deadline_ns, period_ns } = one.reservation;
        let jobs = within.checked_sub(deadline_ns).map_or(0, |after| after / period_ns.max(1) + 1);
        u128::from(jobs) * u128::from(runtime_ns)
    };
    all.iter().map(of).sum()
}

/// The last deadline before this time.
fn deadline_before(all: &[ReservedTime], time: u64) -> Option<u64> {
    let of = |one: &ReservedTime| {
        let Reservation { deadline_ns, period_ns, .. } = one.reservation;
        let after = time.checked_sub(1)?.checked_sub(deadline_ns)?;
        Some(deadline_ns + after / period_ns.max(1) * period_ns)
    };
    all.iter().filter_map(of).max()
}

/// How long a CPU is busy when all begin at once: nothing later can be worse.
fn busy_period(all: &[ReservedTime]) -> Option<u64> {
    let mut length: u128 = all.iter().map(|one| u128::from(one.reservation.runtime_ns)).sum();
    for _ in 0..STEPS {
        let work = |one: &ReservedTime| {
            let period = u128::from(one.reservation.period_ns.max(1));
            length.div_ceil(period) * u128::from(one.reservation.runtime_ns)
        };
        let next: u128 = all.iter().map(work).sum();
        if next == length {
            return length.try_into().ok();
        }
        length = next;
    }
    None
}

fn overload(all: &[ReservedTime]) -> Demand {
    let Some(end) = busy_period(all) else { return Demand::Unknown };
    // Backwards from the end: work that is less than its interval cannot be too much in any interval down to that length.
    let mut at = deadline_before(all, end.saturating_add(1));
    for _ in 0..STEPS {
        let Some(now) = at else { return Demand::Fits };
        let work = demand(all, now);
        if work > u128::from(now) {
            return Demand::TooMuch { within_ns: now, work_ns: work.try_into().unwrap_or(u64::MAX) };
        }
        at = match u64::try_from(work) {
            Ok(work) if work < now => deadline_before(all, work.saturating_add(1)),
            _ => deadline_before(all, now),
        };
    }
    Demand::Unknown
}

/// What the kernel has counted of a CPU's root domain: the part of each CPU that it admits, and the sum that is reserved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelReservations {
    /// Of each CPU; `None`: it admits everything.
    pub of_each: Option<f64>,
    /// Of all CPUs of the domain together.
    pub reserved: f64,
}

/// The kernel's own sums, where debugfs has them.
pub fn account(system: &System, cpu: u32) -> Option<KernelReservations> {
    // It is long, and has the names of all tasks.
    parse_account(&system.read_whole("/sys/kernel/debug/sched/debug").ok()?, cpu)
}

fn parse_account(text: &str, cpu: u32) -> Option<KernelReservations> {
    let (_, block) = text.split_once(&format!("\ndl_rq[{cpu}]:"))?;
    let block = block.split("\n\n").next()?;
    let number = |name: &str| -> Option<i64> {
        let line = block.lines().find(|line| line.trim_start().starts_with(&format!(".{name}")))?;
        let value = line.rsplit(':').next()?.trim();
        // -1 is written as a number without a sign.
        value.parse::<i64>().ok().or_else(|| value.parse::<u64>().ok().map(|value| value as i64))
    };
    let part = number("dl_bw->bw")?;
    Some(KernelReservations {
        of_each: (part >= 0).then_some(part as f64 / WHOLE),
        reserved: number("dl_bw->total_bw")? as f64 / WHOLE,
    })
}

/// The kernel's EBUSY in figures.
pub fn kernel_says_busy(system: &System, reservation: &Reservation, may_use: &Cpus) -> String {
    let new = reservation.utilisation();
    let account = may_use.iter().next().and_then(|cpu| account(system, cpu));
    let read = |name: &str| {
        system.read(&format!("/proc/sys/kernel/sched_rt_{name}_us")).unwrap_or_default().trim().to_owned()
    };
    let ratio = format!("sched_rt_runtime_us {} of sched_rt_period_us {}", read("runtime"), read("period"));
    match account {
        Some(KernelReservations { of_each: Some(each), reserved }) => format!(
            "the kernel admits {each:.3} of each CPU ({ratio}), of CPUs {may_use} together at most {:.3}; reserved already are \
             {reserved:.3}, and this asks for {new:.3}: {:.3} together. End a DEADLINE task, or ask for less",
            each * may_use.len() as f64,
            reserved + new
        ),
        _ => format!(
            "together with the DEADLINE tasks that are there, {new:.3} of a CPU is more than the kernel admits ({ratio}); end one, or \
             ask for less"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MS: u64 = 1_000_000;

    fn set(all: &[(u64, u64, u64)]) -> Vec<ReservedTime> {
        let one = |(runtime, deadline, period): &(u64, u64, u64)| ReservedTime {
            who: "a task".into(),
            reservation: Reservation {
                runtime_ns: runtime * MS,
                deadline_ns: deadline * MS,
                period_ns: period * MS,
            },
        };
        all.iter().map(one).collect()
    }

    /// Earliest deadline first, by the millisecond, until all begin together again: whether a deadline is missed.
    fn simulated(all: &[(u64, u64, u64)]) -> bool {
        let gcd = |mut a: u64, mut b: u64| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        let hyperperiod = all.iter().fold(1, |whole, (_, _, period)| whole / gcd(whole, *period) * period);
        let mut jobs: Vec<(u64, u64)> = Vec::new();
        for now in 0..=2 * hyperperiod {
            if jobs.iter().any(|(deadline, left)| *deadline <= now && *left > 0) {
                return false;
            }
            for (runtime, deadline, period) in all {
                if now % period == 0 {
                    jobs.push((now + deadline, *runtime));
                }
            }
            jobs.retain(|(_, left)| *left > 0);
            if let Some(first) = jobs.iter_mut().min_by_key(|(deadline, _)| *deadline) {
                first.1 -= 1;
            }
        }
        true
    }

    #[test]
    fn the_test_agrees_with_a_simulated_cpu() {
        // Small numbers, all that a simple generator gives.
        let mut seed = 1_u64;
        let mut next = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % most + 1
        };
        let (mut admitted, mut refused, mut by_demand) = (0, 0, 0);
        for _ in 0..5000 {
            let count = next(4) as usize;
            let tasks: Vec<(u64, u64, u64)> = (0..count)
                .map(|_| {
                    let period = next(11) + 1;
                    let deadline = next(period);
                    (next(deadline).min(4), deadline, period)
                })
                .collect();
            let all = set(&tasks);
            let verdict = admit(3, &all);
            assert_eq!(verdict.is_ok(), simulated(&tasks), "{tasks:?}: {verdict:?}");
            match verdict {
                Ok(fill) if fill.density > 1.0 + ROUNDING => by_demand += 1,
                Ok(_) => admitted += 1,
                Err(_) => refused += 1,
            }
        }
        assert!(admitted > 100 && refused > 100 && by_demand > 100, "{admitted} {refused} {by_demand}");
    }

    #[test]
    fn a_refusal_says_why_with_figures() {
        let why = |tasks: &[(u64, u64, u64)]| admit(2, &set(tasks)).expect_err("too much").0;
        let much = why(&[(6, 10, 10), (5, 10, 10)]);
        assert!(much.contains("CPU 2 has not enough time") && much.contains("110.0 %"), "{much}");
        assert!(much.contains("60.0 %  6ms in 10ms every 10ms  a task"), "{much}");
        let early = why(&[(3, 4, 20), (3, 5, 20)]);
        assert!(early.contains("in 5ms from a start at the same time, 6ms of work"), "{early}");
        // Full, and all kept.
        assert!(admit(2, &set(&[(5, 10, 10), (10, 20, 20)])).is_ok());
    }

    #[test]
    fn times_that_the_kernel_does_not_take_are_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let system = System::new(directory.path());
        fs::create_dir_all(system.path("/proc/sys/kernel")).expect("made");
        for (name, value) in [("min", "100\n"), ("max", "4194304\n")] {
            let path = format!("/proc/sys/kernel/sched_deadline_period_{name}_us");
            fs::write(system.path(&path), value).expect("written");
        }
        let check = |runtime_ns, deadline_ns, period_ns| {
            valid(&system, &Reservation { runtime_ns, deadline_ns, period_ns }).map_err(|Refusal(why)| why)
        };
        assert_eq!(check(2 * MS, 10 * MS, 10 * MS), Ok(()));
        for (times, why) in [
            ((1000, MS, MS), "1024 ns or more"),
            ((3 * MS, 2 * MS, 5 * MS), "a runtime of 3ms does not fit into a deadline of 2ms"),
            ((MS, 6 * MS, 5 * MS), "is after the end of a period of 5ms"),
            ((2000, 50_000, 50_000), "sched_deadline_period_min_us is 100"),
            ((MS, 5000 * MS, 5000 * MS), "sched_deadline_period_max_us is 4194304"),
        ] {
            let said = check(times.0, times.1, times.2).expect_err("refused");
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn the_kernels_account_is_read() {
        let block = |cpu: u32, bw: &str, total: u64| {
            format!(
                "\n\ncpu#{cpu}, 2000 MHz\n\ndl_rq[{cpu}]:\n  .dl_nr_running                 : 0\n  .dl_bw->bw                     \
                 : {bw}\n  .dl_bw->total_bw               : {total}\n"
            )
        };
        let text =
            block(0, "996147", 104_856) + &block(11, "18446744073709551615", 0) + &block(1, "-1", 52_428);
        let first = parse_account(&text, 0).expect("there");
        assert!((first.of_each.expect("a part") - 0.95).abs() < 1e-5 && (first.reserved - 0.1).abs() < 1e-5);
        for cpu in [1, 11] {
            assert_eq!(parse_account(&text, cpu).expect("there").of_each, None);
        }
        assert_eq!(parse_account(&text, 2), None);
        // A task's name, further down, need not be text.
        let directory = tempfile::tempdir().expect("a directory");
        let system = System::new(directory.path());
        fs::create_dir_all(system.path("/sys/kernel/debug/sched")).expect("made");
        let with_name = [text.as_bytes(), b"\n\nrunnable tasks:\n S ", &[0xff], b"  1\n"].concat();
        fs::write(system.path("/sys/kernel/debug/sched/debug"), with_name).expect("written");
        assert_eq!(account(&system, 0), Some(first));
    }

    #[test]
    fn times_are_written_as_people_do() {
        for (ns, text) in [
            (2_000_000, "2ms"),
            (1_500_000, "1.5ms"),
            (1024, "1.024us"),
            (999, "999ns"),
            (3_000_000_000, "3s"),
        ] {
            assert_eq!(time(ns), text);
        }
        assert_eq!(time(1_000_001), "1000.001us");
    }
}
