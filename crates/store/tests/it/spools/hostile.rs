// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Damaged spools: whatever their bytes, a conversion ends with a trace or an error.

use super::RecordingPaths;
use super::maker::{description, end, everything, files, write};
use rtscope_ctf::read_trace;
use rtscope_store::{Options, Spool, convert};
use rtscope_testkit::random::Random;
use std::fs;

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(8) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = [0, 0xff, 0x7f, 0x80][random.below(4) as usize],
            3 => {
                let length = random.below(64).min((bytes.len() - at) as u64) as usize;
                bytes[at..at + length].fill(random.below(256) as u8);
            }
            4 => {
                bytes.drain(at..(at + random.below(40) as usize).min(bytes.len()));
            }
            _ => {
                let piece: Vec<u8> = bytes[at..].iter().take(random.below(5_000) as usize).copied().collect();
                let to = random.below(bytes.len() as u64) as usize;
                bytes.splice(to..to, piece);
            }
        }
    }
}

#[test]
fn a_damaged_spool_is_a_trace_or_an_error() {
    let (mut traces, mut errors) = (0, 0);
    let whole = RecordingPaths::new();
    drop(write(&whole.target, &description(), &everything(), Some(&end())));
    let originals = files(&whole.partial);
    for seed in 0..150 {
        let mut random = Random(seed);
        let paths = RecordingPaths::new();
        fs::create_dir(&paths.partial).unwrap();
        for (name, bytes) in &originals {
            let mut bytes = bytes.clone();
            // The description is seldom hit: most hits end the conversion there.
            if !name.ends_with(".json") || random.below(6) == 0 {
                mutate(&mut bytes, &mut random);
            }
            fs::write(paths.partial.join(name), bytes).unwrap();
        }
        match Spool::open(&paths.partial).and_then(|spool| convert(spool, &paths.target, &Options::default()))
        {
            Ok(converted) => {
                traces += 1;
                assert!(!paths.partial.exists());
                let trace = read_trace(&paths.target).unwrap();
                assert!(trace.recording.events.len() as u64 <= converted.events, "seed {seed}");
            }
            Err(error) => {
                errors += 1;
                assert!(!error.to_string().is_empty() && !paths.target.exists(), "seed {seed}: {error}");
                assert!(paths.partial.exists());
            }
        }
    }
    println!("{traces} traces, {errors} errors");
    assert!(traces > 50 && errors > 5, "{traces} {errors}");
}
