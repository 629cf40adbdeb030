// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes a test vector of a saved late response: the events around it as text, and the responses that must come out.
//!
//! ```text
//! cargo run -p rtscope-analyze --example capture -- late/20261120T234107Z-1 "hog, Linux 6.18" >> tests/vectors/captured.events
//! ```
//!
//! The expectation is the kernel's: the example fails unless the replay of these very events contains the chain that the
//! tracker in the kernel reported, step by step.

use rtscope_analyze::chain::{Config, EndCondition, Target, replay};
use rtscope_ctf::read_trace;
use rtscope_event::{End, LateResponse, Recording, event_line};
use std::collections::BTreeSet;
use std::path::Path;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder, title] = words.as_slice() else { return Err("usage: capture FOLDER TITLE".into()) };
    let folder = Path::new(folder);
    let trigger: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("trigger.json"))?)?;
    let late: LateResponse = serde_json::from_value(trigger["late"][0].clone())?;
    let recording = read_trace(&folder.join("kernel"))?.recording;
    print!("{}", vector(title, &late, recording)?);
    Ok(())
}

fn vector(title: &str, late: &LateResponse, mut recording: Recording) -> Result<String, Failure> {
    let (from, until) = (late.chain.origin.time_ns.minus(100_000), late.end_ns.plus(20_000));
    recording.events.retain(|event| from <= event.time && event.time <= until);
    let end = if late.end == End::Running { EndCondition::Running } else { EndCondition::Blocked };
    let mut config = Config::new(late.threshold_ns);
    config.end = end;
    config.target = Target::Tids(BTreeSet::from([late.tid]));
    let (responses, counters) = replay(&recording, &config);
    if !responses.iter().any(|response| response.chain == late.chain && response.end_ns == late.end_ns) {
        return Err(format!("the replay does not find what the kernel reported: {late:?}").into());
    }
    let end = if late.end == End::Running { "running" } else { "blocked" };
    let mut text =
        format!("\ncase: {title}\nconfig: end={end} tids={} threshold={}\n", late.tid, late.threshold_ns);
    for event in &recording.events {
        text.push_str(&event_line(event));
        text.push('\n');
    }
    for response in &responses {
        text.push_str(&format!("expect: {response}\n"));
    }
    let counts = serde_json::to_value(counters)?;
    let counts: Vec<String> = counts
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, count)| count.as_u64() != Some(0))
        .map(|(name, count)| format!("{name}={count}"))
        .collect();
    text.push_str(&format!("count: {}\n", counts.join(" ")));
    Ok(text)
}
