// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the scheduler of a shield lends, and how fast it gets it back.

use crate::{Failure, Stop};
use rtscope_artis::counts::{self, Counts};
use rtscope_artis::probe::EVENTS;
use rtscope_shield::{Cpus, Error, System, place};
use std::time::{Duration, Instant};

/// The counters, read once; or what was counted between two readings.
#[derive(Debug)]
pub struct CounterReading {
    at: Instant,
    /// By CPU.
    pub counts: Vec<Counts>,
    /// The kernel's own, by name.
    pub events: Vec<(String, i64)>,
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

/// What to read, and how often.
#[derive(Clone, Copy, Debug)]
pub struct TopSettings {
    /// Between two readings; `None`: only once, all since the scheduler was loaded.
    pub interval: Option<Duration>,
}

/// Reads the counters again and again, until it is asked to stop. `show`: takes a reading, the time that it is of (`None`: all since the scheduler was
/// loaded), and the real-time CPUs.
///
/// # Errors
/// There is no scheduler, or it has ended.
pub fn top(
    system: &System,
    settings: TopSettings,
    stop: &Stop,
    show: &mut dyn FnMut(&CounterReading, Option<Duration>, &Cpus),
) -> Result<(), Failure> {
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
    let mut before = CounterReading::take(id, &cpus)?;
    let Some(interval) = settings.interval else {
        show(&before, None, &rt);
        return Ok(());
    };
    while !stop.asked() {
        let next = before.at + interval;
        while Instant::now() < next && !stop.asked() {
            stop.wait(next.saturating_duration_since(Instant::now()), None);
        }
        if !keeper.lives(system) {
            return Err(gone());
        }
        let now = CounterReading::take(id, &cpus)?;
        show(&now.since(&before), Some(now.at - before.at), &rt);
        before = now;
    }
    Ok(())
}
