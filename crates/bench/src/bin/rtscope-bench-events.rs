// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Rust program of `bench user-events`: the loops of c/user_events.c with the events of `rtscope-probe`, and the same
//! output. Arguments: CPU ROUNDS ITERATIONS.

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use rtscope_probe::event;
use std::hint::black_box;
use std::thread::sleep;
use std::time::Duration;

const DATA: [u8; 100] = [0; 100];

fn now_ns() -> Result<i64> {
    // As the C program does: not `Instant`, which converts.
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC)?.num_nanoseconds())
}

fn counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: it only reads.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let value: u64;
        // SAFETY: it only reads.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) value, options(nomem, nostack)) };
        value
    }
}

/// Some work that needs its own result: xorshift (Marsaglia, 2003), ten times.
fn arithmetic(mut x: u64) -> u64 {
    for _ in 0..10 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x
}

/// A loop as the C program has them: work, an event or none, and a value that the compiler cannot see through.
macro_rules! looped {
    ($name:ident, $x:ident, $i:ident, $work:expr $(, $what:expr)?) => {
        #[inline(never)]
        fn $name(iterations: u64) -> Result<i64> {
            let mut $x = iterations | 1;
            let begin = now_ns()?;
            for $i in 0..iterations {
                $x = $work;
                $($what;)?
                // SAFETY: no instruction; it stands for a use of both.
                unsafe {
                    core::arch::asm!("/* {0} {1} */", inout(reg) $x, in(reg) $i, options(nostack, preserves_flags));
                }
            }
            black_box($x);
            Ok(now_ns()? - begin)
        }
    };
}

looped!(base, x, i, x);
looped!(base_with_arithmetic, x, i, arithmetic(x));
looped!(two, x, i, x, event!(bench, two, a: u64 = i, b: u64 = x));
looped!(two_with_arithmetic, x, i, arithmetic(x), event!(bench, two, a: u64 = i, b: u64 = x));
looped!(small, x, i, x, event!(bench, small, data: [u8; 3] = black_box(&[0; 3])));
looped!(large, x, i, x, event!(bench, large, data: [u8; 100] = black_box(&DATA)));
looped!(counter_alone, x, i, x ^ counter());

type Loop = fn(u64) -> Result<i64>;

fn compare(name: &str, without: Loop, with: Loop, iterations: u64) -> Result<()> {
    // The first loop finds the CPU as the sleep has left it.
    without(iterations)?;
    let (before, cost, after) = (without(iterations)?, with(iterations)?, without(iterations)?);
    println!("{name} {:.3}", (cost as f64 - (before + after) as f64 / 2.0) / iterations as f64);
    // So that the buffers are emptied.
    sleep(Duration::from_millis(15));
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<u64> = std::env::args().skip(1).map_while(|word| word.parse().ok()).collect();
    let [cpu, rounds, iterations] = arguments[..].try_into().context("CPU ROUNDS ITERATIONS")?;
    let mut cpus = CpuSet::new();
    cpus.set(usize::try_from(cpu)?)?;
    sched_setaffinity(Pid::from_raw(0), &cpus)?;
    for _ in 0..rounds {
        compare("two", base, two, iterations)?;
        compare("two-arithmetic", base_with_arithmetic, two_with_arithmetic, iterations)?;
        compare("small", base, small, iterations)?;
        compare("large", base, large, iterations)?;
        compare("counter", base, counter_alone, iterations)?;
    }
    println!("emitted {}", 4 * iterations * rounds);
    Ok(())
}
