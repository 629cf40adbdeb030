// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield top`: what the scheduler lends, and how fast it gets it back.

use super::options::TopOptions;
use crate::exit::Failure;
use crate::output::result;
use crate::schema;
use crate::stop;
use rtscope_artis::counts::{self, CLASSES, ClassCounts, Counts};
use rtscope_artis::probe::EVENTS;
use rtscope_shield::{Cpus, Error, System, place};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The counters, read once.
struct CounterReading {
    at: Instant,
    counts: Vec<Counts>,
    events: Vec<(String, i64)>,
}

impl CounterReading {
    fn take(id: u32, cpus: &Cpus) -> Result<CounterReading, Failure> {
        let most = cpus.iter().last().map_or(0, |last| last + 1);
        let counts = counts::read(id, most)?;
        let counts = counts.into_iter().filter(|counts| cpus.contains(counts.cpu)).collect();
        let text = std::fs::read_to_string(EVENTS).unwrap_or_default();
        let event = |line: &str| {
            let (name, number) = line.split_once(' ')?;
            Some((name.to_owned(), number.trim().parse().ok()?))
        };
        Ok(CounterReading { at: Instant::now(), counts, events: text.lines().filter_map(event).collect() })
    }

    fn since(&self, before: &CounterReading) -> CounterReading {
        let counts = self.counts.iter().zip(&before.counts).map(|(now, old)| now.since(old)).collect();
        let old = |name: &str| before.events.iter().find(|(known, _)| known == name).map_or(0, |(_, n)| *n);
        let events = self.events.iter().map(|(name, number)| (name.clone(), number - old(name))).collect();
        CounterReading { at: self.at, counts, events }
    }
}

/// Shows it again and again, or once: all since the scheduler was loaded.
pub fn top(system: &System, options: &TopOptions) -> Result<(), Failure> {
    if options.interval.0 == 0 {
        return Err(Failure::Usage("--interval: it has to be longer than 0".into()));
    }
    let journal = place::active(system)?;
    let keeper = journal.keeper.as_ref();
    let keeper =
        keeper.ok_or_else(|| Failure::Failed("this shield does not lend CPUs; --mode artis does".into()))?;
    if let Some(why) = &keeper.fallen {
        return Err(Failure::Failed(format!("the scheduler has ended: {why}")));
    }
    let gone = || Failure::Failed("the scheduler has ended; see rtscope shield status".into());
    let id = keeper.counts.filter(|_| keeper.lives(system)).ok_or_else(gone)?;
    let rt = Cpus::from_list(&journal.rt).map_err(Error::Cpus)?;
    let others = Cpus::from_list(&journal.others).map_err(Error::Cpus)?;
    let cpus: Cpus = rt.iter().chain(others.iter()).collect();
    let stop = stop::on_signals()?;
    let mut before = CounterReading::take(id, &cpus)?;
    if options.once {
        show(options.json, &before, None, &rt);
        return Ok(());
    }
    while !stop.asked() {
        let next = before.at + Duration::from_nanos(options.interval.0);
        while Instant::now() < next && !stop.asked() {
            sleep(next.saturating_duration_since(Instant::now()).min(Duration::from_millis(100)));
        }
        if !keeper.lives(system) {
            return Err(gone());
        }
        let now = CounterReading::take(id, &cpus)?;
        show(options.json, &now.since(&before), Some(now.at - before.at), &rt);
        before = now;
    }
    Ok(())
}

/// `window`: the time that this is of; `None`: all since the beginning.
fn show(as_json: bool, reading: &CounterReading, window: Option<Duration>, rt: &Cpus) {
    if as_json {
        result(&object(reading, window, rt).to_string());
    } else {
        result(&text(reading, window, rt));
    }
}

fn object(reading: &CounterReading, window: Option<Duration>, rt: &Cpus) -> Value {
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
        "schema": schema::SHIELD_TOP,
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

fn text(reading: &CounterReading, window: Option<Duration>, rt: &Cpus) -> String {
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
    rtscope_view::clean(&text)
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
