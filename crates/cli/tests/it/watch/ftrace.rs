// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own tracer as a judge: an instance of ftrace, which records beside a watch.

use rtscope_kernel::tracefs::Tracefs;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// An instance, until it is dropped.
pub(super) struct Ftrace(PathBuf);

/// An event as it is printed.
pub(super) struct Line {
    pub(super) cpu: u32,
    pub(super) event: String,
    /// In whole microseconds.
    pub(super) time_ns: u64,
    fields: String,
}

impl Line {
    /// `"comm=sh pid=1 …  [cpu] … 12.345678: event: fields"`: what is before the time may have blanks in it, and colons.
    fn parse(line: &str) -> Option<Line> {
        let (_, rest) = line.split_once('[')?;
        let (cpu, rest) = rest.split_once("] ")?;
        let (head, rest) = rest.split_once(": ")?;
        let (event, fields) = rest.split_once(':')?;
        let (seconds, micros) = head.rsplit(' ').next()?.split_once('.')?;
        let micros = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
        Some(Line {
            cpu: cpu.parse().ok()?,
            event: event.to_owned(),
            time_ns: micros * 1000,
            fields: fields.to_owned(),
        })
    }

    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let fields = self.fields.split_whitespace();
        fields
            .filter_map(|field| field.split_once('='))
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    pub(super) fn number(&self, field: &str) -> Option<u64> {
        self.field(field)?.parse().ok()
    }
}

impl Ftrace {
    /// Records these, as `sched/sched_switch`.
    pub(super) fn new(events: &[&str]) -> Result<Ftrace, String> {
        let failed = |error: std::io::Error| error.to_string();
        let instances = Tracefs::find().map_err(|error| error.to_string())?.instances();
        let ftrace = Ftrace(instances.join(format!("test-judge-{}", std::process::id())));
        fs::create_dir(&ftrace.0).map_err(failed)?;
        fs::write(ftrace.0.join("trace_clock"), "mono").map_err(failed)?;
        fs::write(ftrace.0.join("buffer_size_kb"), "8192").map_err(failed)?;
        for event in events {
            fs::write(ftrace.0.join("events").join(event).join("enable"), "1").map_err(failed)?;
        }
        Ok(ftrace)
    }

    /// Interrupts and softirqs, too. x86 has those of vectors.
    pub(super) fn with_interrupts(events: &[&str]) -> Result<Ftrace, String> {
        let ftrace = Ftrace::new(&[events, &["irq"]].concat())?;
        let _ = fs::write(ftrace.0.join("events/irq_vectors/enable"), "1");
        Ok(ftrace)
    }

    /// Records this event, too, as often as its fields are so.
    pub(super) fn add(&self, event: &str, filter: &str) -> std::io::Result<()> {
        let event = self.0.join("events").join(event);
        fs::write(event.join("filter"), filter)?;
        fs::write(event.join("enable"), "1")
    }

    fn all(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.0.join("trace")).expect("readable");
        text.lines().filter_map(Line::parse).collect()
    }

    /// These events, in the order of time.
    pub(super) fn lines(&self, events: &[&str]) -> Vec<Line> {
        let mut all = self.all();
        all.retain(|line| events.contains(&line.event.as_str()));
        all
    }

    /// By CPU: when interrupts and softirqs began on it.
    pub(super) fn interrupts(&self) -> BTreeMap<u32, Vec<u64>> {
        let mut all: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for line in self.all().iter().filter(|line| line.event.ends_with("_entry")) {
            all.entry(line.cpu).or_default().push(line.time_ns);
        }
        all
    }

    /// By CPU: when events came on it, whichever ones.
    pub(super) fn times(&self) -> BTreeMap<u32, Vec<u64>> {
        let mut all: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for line in self.all() {
            all.entry(line.cpu).or_default().push(line.time_ns);
        }
        all
    }

    /// By how much later than they were set to the timers of samples came on a CPU. It takes the events `timer/hrtimer_start` and `timer/hrtimer_expire_entry`.
    pub(super) fn sample_delays_ns(&self, cpu: u32) -> Vec<u64> {
        let (mut set, mut delays_ns) = (BTreeMap::new(), Vec::new());
        for line in self.lines(&["hrtimer_start", "hrtimer_expire_entry"]) {
            let is_sample = line.field("function").is_some_and(|function| function.contains("perf_swevent"));
            let Some(timer) = line.field("hrtimer").filter(|_| is_sample && line.cpu == cpu) else {
                continue;
            };
            match (line.number("expires"), line.number("now")) {
                (Some(expires_ns), _) => drop(set.insert(timer.to_owned(), expires_ns)),
                (_, Some(now_ns)) => delays_ns.extend(set.get(timer).map(|expires_ns| now_ns - expires_ns)),
                _ => {}
            }
        }
        delays_ns
    }
}

impl Drop for Ftrace {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("events/enable"), "0");
        let _ = fs::remove_dir(&self.0);
    }
}
