// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times of packets: those of libipt's `ptdump --time` on real captures, and what must hold of any stream.

use rtscope_hardware::pt::{Clock, ClockConfig};

use super::decoded;
use crate::captures::{capture, expected};

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
}

#[test]
fn crystal_ticks_of_a_skylake_m_are_those_of_ptdump() {
    let config = ClockConfig { mtc_frequency: 3, tsc_per_crystal: Some((100, 2)), nominal_ratio: Some(12) };
    for (name, count) in [("q414-aux0-idx0-cpu0", 327), ("q414-aux1-idx3-cpu3", 2523)] {
        let capture = std::fs::read(capture!("pt/quipper/aux").join(name).with_extension("bin")).unwrap();
        let expected = expected(&format!("ptdump-2.3/quipper.{name}.time.txt.xz"));
        assert_eq!(differences(&capture, &expected, config), (count, 0));
    }
}
