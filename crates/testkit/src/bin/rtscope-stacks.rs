// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread that waits in nested functions until another one lets it in, once for each line of standard input; for stacks, on kernels for which there is no compiler.
//!
//! Prints "ready" with the addresses of its functions, since guests have it without symbols, and "round N" after each round. With `--read` it waits for
//! its input itself, in a system call.

use std::hint::black_box;
use std::io::{BufRead, Write, stdin, stdout};
use std::process::ExitCode;
use std::sync::{Condvar, Mutex};
use std::thread;

/// What the gate is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    Closed,
    Open,
    /// Nobody keeps it any more.
    Left,
}

/// The one.
static OPEN: Mutex<Gate> = Mutex::new(Gate::Closed);
static OPENED: Condvar = Condvar::new();

/// The innermost.
#[inline(never)]
fn waits_at_the_gate() -> u32 {
    let mut open = OPEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    while *open == Gate::Closed {
        open = OPENED.wait(open).unwrap_or_else(std::sync::PoisonError::into_inner);
    }
    let goes_in = *open == Gate::Open;
    *open = Gate::Closed;
    black_box(u32::from(goes_in))
}

#[inline(never)]
fn reads_its_input() -> u32 {
    black_box(u32::from(matches!(stdin().lock().read_line(&mut String::new()), Ok(1..))))
}

#[inline(never)]
fn stands_in_the_queue(before: u32, waits: fn() -> u32) -> u32 {
    let said = if before > 0 { stands_in_the_queue(before - 1, waits) } else { waits() };
    black_box(said)
}

#[inline(never)]
fn lets_in(gate: Gate) -> u32 {
    *OPEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = gate;
    OPENED.notify_one();
    black_box(1)
}

#[inline(never)]
fn keeps_the_gate() {
    for _ in stdin().lock().lines().map_while(Result::ok) {
        black_box(lets_in(Gate::Open));
    }
    black_box(lets_in(Gate::Left));
}

fn main() -> ExitCode {
    let reads = std::env::args().any(|argument| argument == "--read");
    if !reads {
        thread::spawn(keeps_the_gate);
    }
    let say = |text: &str| writeln!(stdout(), "{text}").and_then(|()| stdout().flush()).is_ok();
    let functions = [
        ("waits_at_the_gate", waits_at_the_gate as fn() -> u32 as usize),
        ("reads_its_input", reads_its_input as fn() -> u32 as usize),
        ("stands_in_the_queue", stands_in_the_queue as fn(u32, fn() -> u32) -> u32 as usize),
        ("lets_in", lets_in as fn(Gate) -> u32 as usize),
        ("keeps_the_gate", keeps_the_gate as fn() as usize),
        ("main", main as fn() -> ExitCode as usize),
    ];
    let addresses = functions.map(|(name, address)| format!(" {name}={address}"));
    if !say(&format!("ready{}", addresses.concat())) {
        return ExitCode::FAILURE;
    }
    let waits = if reads { reads_its_input } else { waits_at_the_gate };
    for round in 0.. {
        if stands_in_the_queue(2, waits) == 0 || !say(&format!("round {round}")) {
            break;
        }
    }
    ExitCode::SUCCESS
}
