// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `hardware`: what decoding costs for each byte of a trace unit's stream. Streams of our own encoders, and captures of real units
//! where RTSCOPE_CAPTURES names their directory.

mod etm;
mod itm;
mod pt;
mod stp;

use crate::blocks::Order;
use crate::host::Host;
use crate::table::{Promise, Report, Row};
use anyhow::{Result, ensure};
use std::path::PathBuf;
use std::time::Instant;

/// A stream that is decoded over and over.
struct Case {
    what: String,
    bytes: Vec<u8>,
    /// How many packets it has, if something else than the decoder says so.
    packets: Option<u64>,
    /// Decodes it once. Returns the number of packets, and a sum of what they say, so that nothing is left out.
    decode: fn(&[u8]) -> (u64, u64),
    /// At most so many nanoseconds for each byte.
    limit: f64,
}

/// A capture, if there is one.
fn capture(path: &str) -> Option<Vec<u8>> {
    let directory = std::env::var_os("RTSCOPE_CAPTURES").map(PathBuf::from)?;
    std::fs::read(directory.join(path)).ok()
}

/// A stream again and again, up to about this many bytes.
fn repeated(bytes: &[u8], at_least: usize) -> Vec<u8> {
    bytes.repeat(at_least.div_ceil(bytes.len().max(1)))
}

/// Runs it.
pub fn run(quick: bool) -> Result<Report> {
    let (rounds, bytes) = if quick { (5, 2 << 20) } else { (31, 16 << 20) };
    let cases: Vec<Case> = [pt::cases(bytes), etm::cases(bytes), stp::cases(bytes), itm::cases(bytes)]
        .into_iter()
        .flatten()
        .collect();
    let (mut order, mut costs) = (Order::new(), vec![Vec::new(); cases.len()]);
    let mut checks = Vec::new();
    for round in 0..=rounds {
        for which in order.shuffled(cases.len()) {
            let case = &cases[which];
            let start = Instant::now();
            let (packets, sum) = (case.decode)(&case.bytes);
            let ns = start.elapsed().as_nanos() as f64 / case.bytes.len() as f64;
            std::hint::black_box(sum);
            ensure!(
                case.packets.is_none_or(|expected| expected == packets),
                "{}: {packets} packets",
                case.what
            );
            if round == 0 {
                checks.push(format!("{}: {packets} packets in {} bytes", case.what, case.bytes.len()));
            } else {
                costs[which].push(ns);
            }
        }
    }
    let rows: Vec<Row> = cases.iter().zip(costs).map(|(case, costs)| Row::new(&case.what, costs)).collect();
    let promise = |(case, row): (&Case, &Row)| Promise::at_most(&case.what, row.median(), case.limit);
    let mut promises: Vec<Promise> = cases.iter().zip(&rows).map(promise).collect();
    promises.extend(etm::against_opencsd(&cases, &rows));
    let unit = "ns for each byte; 5 are 200 MB/s".to_string();
    Ok(Report {
        schema: "rtscope.bench.hardware/1",
        name: "hardware",
        unit,
        host: Host::this(0),
        rows,
        promises,
        checks,
    })
}
