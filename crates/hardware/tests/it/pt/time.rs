// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times of packets: those of libipt's `ptdump --time` on real captures, and what must hold of any stream.

use rtscope_hardware::pt::{Clock, ClockConfig, Packet, PerfClock, Time, Tnt};

use super::decoded;
use crate::captures::{self, capture, expected};

/// The time that `ptdump` prints beside a packet: `tsc  0123…`.
fn theirs(line: &str) -> Option<u64> {
    let (_, time) = line.rsplit_once("  tsc  ")?;
    u64::from_str_radix(time.trim(), 16).ok()
}

/// Compares the times of all packets that have one; returns how many, and the largest difference.
fn differences(capture: &[u8], expected: &str, config: ClockConfig) -> (usize, u64) {
    let mut clock = Clock::new(config);
    let mut lines = expected.lines().filter(|line| !line.starts_with('['));
    let (mut compared, mut largest, mut before) = (0, 0, 0);
    for (place, packet) in decoded(capture, &[4096]).packets {
        clock.packet(packet);
        let line = lines.next().unwrap();
        let Some(theirs) = theirs(line) else { continue };
        let ours = clock.time().unwrap_or_else(|| panic!("no time at {place:?}: {line}"));
        assert!(ours.ticks >= before, "time decreases at {place:?}");
        let difference = ours.ticks.abs_diff(theirs);
        assert!(difference <= ours.error_ticks.unwrap_or(0) + 4, "{line}: here {ours:x?}");
        (compared, largest, before) = (compared + 1, difference.max(largest), ours.ticks);
    }
    (compared, largest)
}

fn row(capture: &str, times: usize, notes: &str) {
    let (unit, oracle, compared) = ("Intel PT", "libipt 2.3, ptdump", &[("times", times, times)][..]);
    captures::Row { capture, unit, oracle, compared, bytes: None, notes }.print();
}

#[test]
fn cycles_of_a_skylake_x_are_within_two_of_those_of_ptdump() {
    let capture = std::fs::read(capture!("pt/dynamorio-hello/pt.bin")).unwrap();
    let config = ClockConfig { mtc_frequency: 3, tsc_per_crystal: Some((308, 2)), nominal_ratio: Some(37) };
    let expected = expected("ptdump-2.3/dynamorio-hello.time.txt.xz");
    let (compared, largest) = differences(&capture, &expected, config);
    assert_eq!(compared, 1084, "545 CYC but the first, 538 MTC, TSC and TMA");
    println!("largest difference: {largest} ticks");
    // A cycle is 308 / 2 * 8 / 400 = 3.08 ticks.
    assert!(largest <= 6, "{largest} ticks are more than two cycles");
    row("dynamorio-hello", compared, &format!("within {largest} ticks, two cycles are 6"));
}

#[test]
fn crystal_ticks_of_a_skylake_m_are_those_of_ptdump() {
    let config = ClockConfig { mtc_frequency: 3, tsc_per_crystal: Some((100, 2)), nominal_ratio: Some(12) };
    for (name, count) in [("q414-aux0-idx0-cpu0", 327), ("q414-aux1-idx3-cpu3", 2523)] {
        let capture = std::fs::read(capture!("pt/quipper/aux").join(name).with_extension("bin")).unwrap();
        let expected = expected(&format!("ptdump-2.3/quipper.{name}.time.txt.xz"));
        assert_eq!(differences(&capture, &expected, config), (count, 0));
        row(name, count, "");
    }
}

fn clock(mtc_frequency: u8) -> Clock {
    Clock::new(ClockConfig { mtc_frequency, tsc_per_crystal: Some((300, 2)), nominal_ratio: Some(30) })
}

fn after(clock: &mut Clock, packets: &[Packet]) -> Time {
    packets.iter().for_each(|packet| clock.packet(*packet));
    clock.time().unwrap()
}

#[test]
fn cycles_before_the_first_tsc_have_no_time_and_are_counted() {
    let mut clock = clock(3);
    clock.packet(Packet::Cyc { cycles: 31 });
    assert_eq!((clock.time(), clock.cycles_without_time()), (None, 31));
    assert_eq!(after(&mut clock, &[Packet::Tsc { ticks: 7 }]).ticks, 7);
}

#[test]
fn an_mtc_is_placed_from_the_tma_at_each_frequency() {
    // 150 TSC ticks for a crystal tick; the TMA is 20 ticks after crystal tick 0x1fff0.
    for frequency in 0..16 {
        let mut clock = clock(frequency);
        after(&mut clock, &[Packet::Tsc { ticks: 1_000_000 }, Packet::Tma { ctc: 0xfff0, fast_counter: 20 }]);
        let period = 1_u64 << frequency;
        for mtc in (0x1fff0 / period + 1..).take(700) {
            let time = after(&mut clock, &[Packet::Mtc { ctc: mtc as u8 }]);
            assert_eq!(time.ticks, 1_000_000 - 20 + (mtc * period - 0x1fff0) * 150, "{frequency}, {mtc:x}");
            assert_eq!(time.error_ticks, Some(period * 150));
        }
    }
}

#[test]
fn times_do_not_decrease_and_the_step_back_is_in_the_error() {
    let mut clock = clock(3);
    after(
        &mut clock,
        &[Packet::Tsc { ticks: 5000 }, Packet::Tma { ctc: 0, fast_counter: 0 }, Packet::Cbr { ratio: 10 }],
    );
    // 3 ticks a cycle: far beyond the MTC that comes then, at 1200 ticks.
    let cycles = after(&mut clock, &[Packet::Cyc { cycles: 1000 }]);
    assert_eq!(cycles.ticks, 8000);
    let mtc =
        after(&mut clock, &[Packet::Pad, Packet::Tnt8(Tnt { bits: 1, count: 1 }), Packet::Mtc { ctc: 1 }]);
    assert_eq!(mtc, Time { ticks: 8000, error_ticks: Some(1200 + 8000 - 6200) });
}

#[test]
fn a_new_frequency_ends_what_was_measured() {
    let mut clock = clock(0);
    after(&mut clock, &[Packet::Tsc { ticks: 0 }, Packet::Tma { ctc: 0, fast_counter: 0 }]);
    let mtc = |ctc| [Packet::Cyc { cycles: 100 }, Packet::Mtc { ctc }];
    after(&mut clock, &[mtc(1), mtc(2)].concat());
    // 150 ticks for 100 cycles.
    assert_eq!(after(&mut clock, &[Packet::Cyc { cycles: 10 }]).ticks, 315);
    let psb = [Packet::Psb, Packet::Cbr { ratio: 60 }, Packet::PsbEnd, Packet::Cyc { cycles: 10 }];
    assert_eq!(after(&mut clock, &psb).ticks, 330, "within PSB+ it is no news");
    assert_eq!(after(&mut clock, &[Packet::Cbr { ratio: 60 }, Packet::Cyc { cycles: 40 }]).ticks, 330);
    assert_eq!(after(&mut clock, &[Packet::Cyc { cycles: 40 }]).ticks, 350, "30/60 ticks for a cycle");
}

#[test]
fn perfs_clock_wraps_as_the_kernels_does() {
    let clock = PerfClock { shift: 31, mult: 581_029_125, zero: 18_444_502_336_406_842_448 };
    // (tsc * mult) >> shift, added to zero modulo 2^64; by an independent calculation with big numbers.
    assert_eq!(clock.nanoseconds(0x2f_a108_8fac_05e2), 1_385_530_563_941_550);
    assert_eq!(clock.duration_ns(0x4d0), 333);
}
