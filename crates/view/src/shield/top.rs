// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the scheduler of a shield lends, for `rtscope shield top`. `window`: the time that a reading is of; `None`: all since the scheduler was
//! loaded.

use crate::clean;
use rtscope_artis::counts::{CLASSES, ClassCounts};
use rtscope_session::shield::top::CounterReading;
use rtscope_shield::Cpus;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::Duration;

/// The JSON object (docs/json.md).
pub const SCHEMA: &str = "rtscope.shield.top/1";

/// One JSON object.
#[must_use]
pub fn json(reading: &CounterReading, window: Option<Duration>, rt: &Cpus) -> Value {
    let cpus = reading.counts.iter().map(|counts| {
        let classes = CLASSES.iter().zip(&counts.classes);
        let classes: Map<String, Value> =
            classes.map(|(name, class)| ((*name).to_owned(), json!(class))).collect();
        json!({
            "cpu": counts.cpu,
            "rt": rt.contains(counts.cpu),
            "classes": classes,
            "ring_full": counts.ring_full,
            "emptied": counts.emptied,
            "eviction_ns": {
                "count": counts.delays.count(),
                "p50": counts.delays.percentile_ns(500),
                "p99": counts.delays.percentile_ns(990),
                "max_since_start": counts.delays.max_ns,
            },
        })
    });
    let events: Map<String, Value> =
        reading.events.iter().map(|(name, n)| (name.clone(), json!(n))).collect();
    json!({
        "schema": SCHEMA,
        "window_ns": window.map(|window| window.as_nanos() as u64),
        "cpus": cpus.collect::<Vec<Value>>(),
        "scx_events": events,
    })
}

/// Times as people read them.
fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{} us", ns / 1000),
        10_000_000..10_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{} s", ns / 1_000_000_000),
    }
}

/// A table for people.
#[must_use]
pub fn text(reading: &CounterReading, window: Option<Duration>, rt: &Cpus) -> String {
    let mut text = match window {
        Some(window) => format!("In {}:\n", time(window.as_nanos() as u64)),
        None => "Since the scheduler was loaded:\n".to_owned(),
    };
    let _ = writeln!(
        text,
        "{:>5} {:<6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "CPU", "class", "ran", "lent", "evicted", "moved", "otherwise", "on way", "refused"
    );
    for counts in &reading.counts {
        for (name, class) in CLASSES.iter().zip(&counts.classes) {
            let is_rt = rt.contains(counts.cpu);
            if *class != ClassCounts::default() || is_rt {
                let _ = writeln!(text, "{}", row(counts.cpu, name, class, is_rt));
            }
        }
    }
    for counts in reading.counts.iter().filter(|counts| rt.contains(counts.cpu)) {
        let known = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), time);
        let _ = writeln!(
            text,
            "CPU {}: evictions took p50 {}, p99 {}, max {} (since the start); hand-overs without a ring {}; emptied for RT0 {}",
            counts.cpu,
            known(counts.delays.percentile_ns(500)),
            known(counts.delays.percentile_ns(990)),
            time(counts.delays.max_ns),
            counts.ring_full,
            counts.emptied
        );
    }
    let happened = reading.events.iter().filter(|(_, number)| *number != 0);
    let happened: Vec<String> = happened
        .map(|(name, n)| format!("{} {n}", name.trim_start_matches("SCX_EV_").to_lowercase()))
        .collect();
    let _ =
        writeln!(text, "kernel: {}", if happened.is_empty() { "-".to_owned() } else { happened.join(", ") });
    clean(&text)
}

fn row(cpu: u32, name: &str, class: &ClassCounts, is_rt: bool) -> String {
    let (begun, ended) = (class.evictions.total(), class.ended.total());
    // Only real-time CPUs lend and evict; the others' columns would be zeros that mean nothing.
    let number = |number: u64| if is_rt && name != "rt0" { number.to_string() } else { "-".to_owned() };
    format!(
        "{cpu:>5} {name:<6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        if is_rt || name != "rt0" { time(class.ran_ns) } else { "-".to_owned() },
        number(class.moved_here),
        number(begun),
        number(class.ended.moved),
        number(ended - class.ended.moved),
        number(begun.saturating_sub(ended)),
        number(class.refused.bound + class.refused.pinned),
    )
}
