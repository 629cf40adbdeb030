// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program with two functions, on a processor whose trace unit is the test-only module `aux_replay`: `rtscope-passes TIMES [THREADS]`. Each time that it
//! comes to one of them it asks the unit whether that is on for the address, and if so, writes what Intel PT would. It comes to the second one twice as
//! often, and prints where both are, as the file counts it. With THREADS, these are there before it prints that, and begin when standard input has ended.

use rtscope_hardware::pt::{Ip, IpBytes, Packet};
use rtscope_testkit::hardware::{beginning, full, packets};
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::sync::Barrier;

/// The module's AUX_REPLAY_PASS.
const PASS: libc::c_ulong = 0x4008_7202;

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn rtscope_passes_here(number: u64) -> u64 {
    black_box(number + 1)
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn rtscope_passes_there(number: u64) -> u64 {
    black_box(number + 2)
}

/// The unit, as the instruction at this address is executed.
fn execute(unit: &mut File, address: u64) {
    // SAFETY: the module takes a number.
    let passes = unsafe { libc::ioctl(unit.as_raw_fd(), PASS, address) };
    assert!(passes >= 0, "the module has no such request");
    if passes == 1 {
        let mut stream = beginning(tsc());
        stream.push(Packet::TipPge(full(address)));
        stream.push(Packet::TipPgd(Ip { bytes: IpBytes::Suppressed, payload: 0 }));
        unit.write_all(&packets(&stream)).expect("the module takes all");
    }
}

/// Where this program's file begins in memory.
fn first_byte() -> u64 {
    let maps = fs::read_to_string("/proc/self/maps").expect("every process has them");
    let own = std::env::current_exe().expect("/proc/self/exe").display().to_string();
    let first = maps.lines().find(|line| line.ends_with(&own)).expect("it is in its own memory");
    let address = first.split('-').next().expect("an address");
    u64::from_str_radix(address, 16).expect("in hexadecimal")
}

#[cfg(target_arch = "x86_64")]
fn tsc() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn tsc() -> u64 {
    0
}

fn main() {
    let first_byte = first_byte();
    let (here, there) = (rtscope_passes_here as *const () as u64, rtscope_passes_there as *const () as u64);
    let say = || println!("{:#x} {:#x}", here - first_byte, there - first_byte);
    let number =
        |index: usize| std::env::args().nth(index).map(|text| text.parse::<usize>().expect("a number"));
    let (times, threads) = (number(1).expect("TIMES"), number(2).unwrap_or(0));
    let open =
        || OpenOptions::new().write(true).open("/dev/rtscope_aux_replay").expect("the module is loaded");
    if threads == 0 {
        say();
        return if times > 0 {
            pass(&mut open(), times, (here, there))
        };
    }
    let begin = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        for mut unit in std::iter::repeat_with(open).take(threads) {
            let begin = &begin;
            scope.spawn(move || {
                begin.wait();
                pass(&mut unit, times, (here, there));
            });
        }
        say();
        io::copy(&mut io::stdin(), &mut io::sink()).expect("standard input ends");
        begin.wait();
    });
}

/// Comes to both functions.
fn pass(unit: &mut File, times: usize, (here, there): (u64, u64)) {
    // What the unit writes when it is switched on, whether a place is executed or not.
    unit.write_all(&packets(&beginning(tsc()))).expect("the module takes all");
    for number in 0..times as u64 {
        execute(unit, here);
        rtscope_passes_here(number);
        for _ in 0..2 {
            execute(unit, there);
            rtscope_passes_there(number);
        }
    }
}
