// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What fuzzers found, without a fuzzer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use rtscope_fuzz::{TARGETS, Target};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// For one input. They have some kilobytes, and take some milliseconds on an idle machine.
const INPUT_MAX: Duration = Duration::from_secs(5);

/// All inputs of a target in a directory of this crate, with their names.
fn inputs(directory: &str, target: &Target) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(directory).join(target.name);
    let entries = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.display().to_string(), fs::read(&path).unwrap())).collect()
}

/// Panics, memory out of proportion (`Target::run`) and time.
#[test]
fn what_fuzzers_found_is_read_to_an_end() {
    let mut failed = Vec::new();
    for target in TARGETS {
        let seeds = rtscope_fuzz::seeds(target.name);
        let corpus = inputs("corpus", &target);
        assert!(!seeds.is_empty() && !corpus.is_empty(), "{}", target.name);
        let count = seeds.len();
        let seeds = seeds.into_iter().map(|bytes| ("a seed".to_string(), bytes));
        let all: Vec<_> = seeds.chain(corpus).chain(inputs("findings", &target)).collect();
        let mut understood = 0;
        for (place, (name, bytes)) in all.iter().enumerate() {
            let start = Instant::now();
            let result = catch_unwind(AssertUnwindSafe(|| target.run(bytes)));
            if result.is_err() || start.elapsed() > INPUT_MAX {
                failed.push(format!("{}: {name} ({:?})", target.name, start.elapsed()));
            }
            understood += u32::from(place < count && result.is_ok_and(|parsed| parsed));
        }
        if understood == 0 {
            failed.push(format!("{}: no seed is understood", target.name));
        }
        println!("{}: {} inputs", target.name, all.len());
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
