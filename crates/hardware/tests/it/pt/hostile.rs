// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams that nobody should have written: no panic, and each byte accounted for (`decoded` sees to that).

use std::fs;

use super::generated::{Program, followed, traced};
use super::packets::{all, encoded};
use super::{Kept, decoded};
use rtscope_hardware::pt::{Event, Packet, TracerConfig};
use rtscope_testkit::random::Random;

/// Our own stream, and the captures where they are.
fn streams() -> Vec<Vec<u8>> {
    let mut streams = vec![encoded(&[vec![Packet::Psb], all(), all()].concat())];
    if let Some(folder) = crate::captures::folder() {
        let captures = [
            "dynamorio-hello/pt.bin",
            "lldb-single/3842849.trace",
            "quipper/aux/q414-aux0-idx0-cpu0.bin",
            "quipper/aux/q414-aux1-idx3-cpu3.bin",
        ];
        streams.extend(captures.iter().filter_map(|path| fs::read(folder.join("pt").join(path)).ok()));
    }
    streams
}

/// A short stretch is enough for what a change does: decoding is as it was after the next PSB.
const AFTER: usize = 64;

#[test]
fn a_stream_that_is_cut_anywhere_is_read_up_to_there() {
    for stream in streams() {
        let whole = decoded(&stream, &[997]);
        for at in (0..1000).map(|part| stream.len() * part / 1000) {
            let Kept { packets, lost, .. } = decoded(&stream[..at], &[61]);
            assert!(
                packets.len() <= whole.packets.len() && packets == whole.packets[..packets.len()],
                "cut at {at}"
            );
            let in_both = lost.iter().zip(&whole.lost).filter(|(cut, whole)| cut == whole).count();
            assert!(lost.len() <= in_both + 1, "cut at {at}: {lost:?}");
            // And one that begins anywhere, as in a ring.
            let rest = &stream[at..stream.len().min(at + 4096)];
            decoded(rest, &[rest.len().max(1)]);
        }
    }
}

#[test]
fn any_flipped_byte_loses_only_what_it_says() {
    for stream in streams() {
        for at in 0..stream.len().min(64 << 10) {
            // From the packet's surroundings only: the whole each time is quadratic.
            let (begin, end) = (at.saturating_sub(AFTER), stream.len().min(at + AFTER));
            let mut part = [encoded(&[Packet::Psb]), stream[begin..end].to_vec()].concat();
            part[16 + at - begin] ^= 0xff;
            let once = decoded(&part, &[part.len()]);
            assert_eq!(once, decoded(&part, &[7, 1, 16, 3]), "byte {at}");
        }
    }
}

#[test]
fn long_runs_of_a_byte_are_read_to_their_end() {
    for byte in [0xff, 0x00, 0x82, 0x02] {
        for begin in [vec![], encoded(&[Packet::Psb])] {
            let stream = [begin, vec![byte; 64 << 10]].concat();
            assert_eq!(decoded(&stream, &[stream.len()]), decoded(&stream, &[13]));
        }
    }
}

#[test]
fn a_flipped_byte_changes_nothing_of_the_flow_before_it() {
    for seed in 0..4 {
        let random = &mut Random(seed);
        let program = Program::new(random);
        let config = TracerConfig { long_branches: seed % 2 == 1, ..TracerConfig::default() };
        let (stream, _) = traced(&program, config, 3000, random);
        for _ in 0..250 {
            let at = 16 + random.index(stream.len() - 16);
            let mut flipped = stream.clone();
            flipped[at] ^= 1 + random.below(255) as u8;
            let before = followed(&program, &stream[..at - 15], 4096).instructions;
            let all = followed(&program, &flipped, 4096).instructions;
            assert_eq!(before, all[..before.len()], "seed {seed}, byte {at}");
        }
    }
}

#[test]
fn a_cut_stream_is_followed_up_to_the_cut() {
    let random = &mut Random(5);
    let program = Program::new(random);
    let (stream, executed) = traced(&program, TracerConfig::default(), 20_000, random);
    for at in (0..1000).map(|part| stream.len() * part / 1000) {
        let instructions = followed(&program, &stream[..at], 997).instructions;
        assert_eq!(instructions, executed.instructions[..instructions.len()], "cut at {at}");
        // What begins anywhere is followed from the next PSB on.
        followed(&program, &stream[at..], 997);
    }
}

#[test]
fn a_wrong_program_is_said_at_each_place() {
    let random = &mut Random(6);
    let (right, wrong) = (Program::new(random), Program::new(random));
    let (stream, executed) = traced(&right, TracerConfig::default(), 50_000, random);
    let followed = followed(&wrong, &stream, 4096);
    assert_ne!(followed.instructions, executed.instructions);
    let failed = followed.events.iter().filter(|(_, event)| matches!(event, Event::Failed { .. })).count();
    assert!(failed > 100, "{failed} places where the program does not fit");
}
