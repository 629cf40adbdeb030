// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a benchmark is at, on standard error: most take minutes, and have nothing else to say before they end. It is written between
//! measurements, never during one.

use crate::table::Row;
use std::time::{Duration, Instant};

/// Between two lines, at least.
const EVERY: Duration = Duration::from_secs(5);

/// The numbers of the rounds of a measurement; each that begins is told, with the time that the rest takes if it is as the past.
pub fn rounds(what: &str, count: usize) -> impl Iterator<Item = usize> {
    let begun = Instant::now();
    let mut told: Option<Instant> = None;
    (0..count).inspect(move |round| {
        if told.is_none_or(|told| told.elapsed() >= EVERY) {
            told = Some(Instant::now());
            eprintln!("{what}: {}", place(*round, count, begun.elapsed()));
        }
    })
}

/// As words: "round 3 of 50, about 94 s left".
fn place(round: usize, count: usize, past: Duration) -> String {
    let of = format!("round {} of {count}", round + 1);
    match round {
        0 => of,
        _ => format!("{of}, about {:.0} s left", past.as_secs_f64() / round as f64 * (count - round) as f64),
    }
}

/// One thing that takes long and has no rounds.
pub fn step(what: &str) {
    eprintln!("{what}");
}

/// What the table will have, where more is still to be measured: who does not wait for the end has this.
pub fn rows(rows: &[Row]) {
    for row in rows.iter().filter(|row| !row.samples.is_empty()) {
        eprintln!("  {:<58} median {:>9.2} of {}", row.what, row.median(), row.samples.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_the_past() {
        assert_eq!(place(0, 50, Duration::ZERO), "round 1 of 50");
        assert_eq!(place(10, 50, Duration::from_secs(5)), "round 11 of 50, about 20 s left");
        assert_eq!(rounds("a test", 3).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
