// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules of response chains, each with a sequence of events and the responses that must come out.
//!
//! A vector (`vectors/*.events`) is a text file of cases:
//!
//! ```text
//! case: what it shows
//! config: end=blocked target=ctl threshold=0 irqs=5,6 timer
//! task: 7 ctl [kthread]
//! 1000 0 irq_handler_entry irq=36
//! expect: tid=7 end=blocked ...
//! count: seen=1 late=1 ...
//! ```
//!
//! `config: tracker=wakeup` (or `offcpu`) asks that tracker instead, which has no counters. `task:` says what a state dump would; counters that `count:` leaves out are 0.

use rtscope_analyze::chain::{Config, Counters, EndCondition, Response, Target, replay, replay_intervals};
use rtscope_event::{
    Comm, Glob, Irq, OriginKind, Pid, Policy, Priority, Recording, TaskInfo, Tid, Tracker, parse_event,
};
use std::fmt::Write;

struct Case {
    name: String,
    tracker: Tracker,
    config: Config,
    tasks: Vec<TaskInfo>,
    recording: Recording,
    expect: String,
    counters: Counters,
}

impl Case {
    fn new(name: &str) -> Case {
        let mut config = Config::new(0);
        config.target = Target::Comm(Glob::new("ctl").unwrap());
        Case {
            name: name.to_owned(),
            tracker: Tracker::Response,
            config,
            tasks: Vec::new(),
            recording: Recording::default(),
            expect: String::new(),
            counters: Counters::default(),
        }
    }

    fn replay(&mut self) -> (Vec<Response>, Counters) {
        for event in &self.recording.events {
            self.recording.names.observe(event);
        }
        for task in std::mem::take(&mut self.tasks) {
            self.recording.names.add_task(task);
        }
        assert!(
            self.recording.events.is_sorted_by_key(|event| (event.time, event.cpu)),
            "{}: order",
            self.name
        );
        match self.tracker {
            Tracker::Response => replay(&self.recording, &self.config),
            other => {
                let Config { target, threshold_ns, .. } = &self.config;
                (replay_intervals(&self.recording, other, target, *threshold_ns), Counters::default())
            }
        }
    }

    /// What is wrong, if anything.
    fn check(mut self) -> Option<String> {
        let (responses, counters) = self.replay();
        let mut got = String::new();
        for response in &responses {
            assert_eq!(response.end_ns, response.chain.end_ns(), "{}: steps add up", self.name);
            writeln!(got, "{response}").unwrap();
        }
        let right = got == self.expect && counters == self.counters;
        let Case { name, expect, counters: counts, .. } = self;
        (!right).then(|| format!("{name}\nexpected:\n{expect}{counts:?}\ngot:\n{got}{counters:?}\n"))
    }
}

fn parse_config(config: &mut Config, text: &str) {
    for word in text.split_whitespace() {
        match word.split_once('=').unwrap_or((word, "")) {
            ("end", "running") => config.end = EndCondition::Running,
            ("end", "blocked") => config.end = EndCondition::Blocked,
            ("end", "cycle") => config.end = EndCondition::Cycle,
            ("begin", list) => {
                let kind = |name| OriginKind::ALL.into_iter().find(|kind| kind.name() == name).unwrap();
                config.origins.kinds = list.split(',').map(kind).collect();
            }
            ("waits", list) => config.sources = list.split(',').map(|wait| wait.parse().unwrap()).collect(),
            ("target", "any") => config.target = Target::AnyUser,
            ("target", glob) => config.target = Target::Comm(Glob::new(glob).unwrap()),
            ("pid", pid) => {
                let comm = match &config.target {
                    Target::Comm(glob) if glob.to_string() != "ctl" => Some(glob.clone()),
                    _ => None,
                };
                config.target = Target::Process { pid: Pid(pid.parse().unwrap()), comm };
            }
            ("tids", list) => {
                config.target = Target::Tids(list.split(',').map(|tid| Tid(tid.parse().unwrap())).collect());
            }
            ("threshold", ns) => config.threshold_ns = ns.parse().unwrap(),
            ("irqs", list) => {
                config.origins.kinds = vec![OriginKind::Irq];
                config.origins.irqs = list.split(',').map(|irq| Irq(irq.parse().unwrap())).collect();
            }
            ("timer", "") if config.origins.irqs.is_empty() => config.origins.kinds = vec![OriginKind::Timer],
            ("timer", "") => config.origins.kinds.push(OriginKind::Timer),
            other => panic!("config: {other:?}"),
        }
    }
}

fn parse_task(text: &str) -> TaskInfo {
    let words: Vec<&str> = text.split_whitespace().collect();
    let tid: u32 = words[0].parse().unwrap();
    TaskInfo {
        tid: Tid(tid),
        pid: Pid(tid),
        ppid: Pid(1),
        comm: Comm::from(words[1]),
        prio: Priority(120),
        policy: Policy(0),
        kthread: words.get(2) == Some(&"kthread"),
    }
}

fn parse_count(counters: &mut Counters, text: &str) {
    for word in text.split_whitespace() {
        let (name, value) = word.split_once('=').unwrap();
        let slot = match name {
            "seen" => &mut counters.seen,
            "late" => &mut counters.late,
            "filtered" => &mut counters.filtered,
            "merged" => &mut counters.merged,
            "unlinked" => &mut counters.unlinked,
            "busy" => &mut counters.busy,
            "healed" => &mut counters.healed,
            "folded" => &mut counters.folded,
            "too_long" => &mut counters.too_long,
            "hidden" => &mut counters.hidden,
            "abandoned" => &mut counters.abandoned,
            other => panic!("count: {other}"),
        };
        *slot = value.parse().unwrap();
    }
}

fn parse_cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("case:") {
            cases.push(Case::new(name.trim()));
            continue;
        }
        let case = cases.last_mut().expect("a file begins with a case");
        match line.split_once(':').map(|(key, rest)| (key, rest.trim())) {
            Some(("config", rest)) => match rest.strip_prefix("tracker=") {
                Some(rest) => {
                    let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                    case.tracker = Tracker::ALL.into_iter().find(|tracker| tracker.name() == name).unwrap();
                    parse_config(&mut case.config, rest);
                }
                None => parse_config(&mut case.config, rest),
            },
            Some(("task", rest)) => case.tasks.push(parse_task(rest)),
            Some(("expect", rest)) => writeln!(case.expect, "{rest}").unwrap(),
            Some(("count", rest)) => parse_count(&mut case.counters, rest),
            _ => case.recording.events.push(parse_event(line).unwrap_or_else(|e| panic!("{line}: {e}"))),
        }
    }
    cases
}

#[test]
fn vectors() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors");
    let mut checked = 0;
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "events") {
            for case in parse_cases(&std::fs::read_to_string(&path).unwrap()) {
                wrong.extend(case.check());
                checked += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 20, "only {checked} cases");
}

/// Programs sleep once before they begin to work. What they wait for afterwards was steps of that sleep's cycle for ever: nothing was
/// measured, and nothing said so.
#[test]
fn a_cycle_whose_begin_does_not_come_back_is_given_up() {
    use std::fmt::Write;
    const PERIODS: u64 = 100;
    let mut text = String::from("case: c\nconfig: end=cycle begin=timer threshold=1000000\ntask: 7 ctl\n");
    let mut wait = |at: u64, kind: &str| {
        let (expiry, handler, waking) = (at + 90, at + 110, at + 120);
        writeln!(
            text,
            "{at} 0 sched_switch prev_tid=7 prev_state=1 prev_wait={kind} next_tid=0\n\
             {handler} 0 hrtimer_expire_entry softexpires_ns={expiry} expires_ns={expiry}\n\
             {waking} 0 sched_waking tid=7\n{} 0 hrtimer_expire_exit\n\
             {} 0 sched_switch prev_tid=0 next_tid=7",
            at + 130,
            at + 140
        )
        .unwrap();
    };
    wait(0, "sleep");
    for period in 1..=PERIODS {
        wait(period * 1000, "poll");
    }
    // And a wait of another kind in each of two cycles, with the source between them, is a step.
    for period in PERIODS + 1..=2 * PERIODS {
        wait(period * 1000, if period % 2 == 0 { "sleep" } else { "poll" });
    }
    let (responses, counters) = parse_cases(&text).remove(0).replay();
    // The 64th wait for poll gives the sleep's cycle up and begins one of its own.
    let expected = PERIODS - 64 + PERIODS / 2;
    assert_eq!((counters.abandoned, counters.seen), (1, expected), "{counters:?}");
    assert_eq!(responses.len() as u64, expected);
}
