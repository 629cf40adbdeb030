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
//! `task:` says what a state dump would; counters that `count:` leaves out are 0.

use rtscope_analyze::chain::{Config, Counters, EndCondition, Target, replay};
use rtscope_event::{Comm, Glob, Irq, Pid, Policy, Priority, Recording, TaskInfo, Tid, parse_event};
use std::fmt::Write;

struct Case {
    name: String,
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
            config,
            tasks: Vec::new(),
            recording: Recording::default(),
            expect: String::new(),
            counters: Counters::default(),
        }
    }

    /// What is wrong, if anything.
    fn check(mut self) -> Option<String> {
        for event in &self.recording.events {
            self.recording.names.observe(event);
        }
        for task in self.tasks {
            self.recording.names.add_task(task);
        }
        assert!(
            self.recording.events.is_sorted_by_key(|event| (event.time, event.cpu)),
            "{}: order",
            self.name
        );
        let (responses, counters) = replay(&self.recording, &self.config);
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
                config.origins.irqs = list.split(',').map(|irq| Irq(irq.parse().unwrap())).collect();
            }
            ("timer", "") => config.origins.timer = true,
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
            Some(("config", rest)) => parse_config(&mut case.config, rest),
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
