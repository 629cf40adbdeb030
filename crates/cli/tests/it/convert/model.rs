// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Perfetto's tables should have, from the events as `rtscope print --format json` shows them: made with nothing that the
//! conversion uses.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// An event as printed.
pub struct Event {
    /// On the clock of the conversion.
    pub ts: i64,
    pub cpu: i64,
    pub name: String,
    pub fields: Value,
    /// The thread that the event's context names.
    pub tid: Option<i64>,
}

impl Event {
    pub fn number(&self, field: &str) -> i64 {
        self.fields[field].as_i64().unwrap_or_else(|| panic!("{field} of {}", self.name))
    }
}

/// The lines of JSON; `base`: what the clock of the trace is ahead of its own zero.
pub fn events(json: &str, base: i64) -> Vec<Event> {
    let event = |line: &str| {
        let mut json: Value = serde_json::from_str(line).unwrap();
        Event {
            ts: json["time_ns"].as_i64().unwrap() - base,
            cpu: json["cpu"].as_i64().unwrap_or(-1),
            name: json["event"].as_str().unwrap().to_owned(),
            tid: json["event_context"]["tid"].as_i64(),
            fields: json["fields"].take(),
        }
    };
    json.lines().map(event).collect()
}

/// A row of `thread_state`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateRow {
    pub tid: i64,
    pub ts: i64,
    /// -1: open.
    pub dur: i64,
    pub state: Option<String>,
    pub cpu: Option<i64>,
    pub waker: Option<i64>,
    pub in_interrupt: Option<i64>,
}

/// A slice: where, begin, duration, name.
pub type Slice = (String, i64, i64, String);

/// What is expected.
#[derive(Default)]
pub struct Expected {
    pub states: Vec<StateRow>,
    pub interrupts: BTreeSet<Slice>,
    pub calls: BTreeSet<Slice>,
    /// Places where switches do not follow each other.
    pub gaps: u64,
    /// Threads at their edges: they may be on two CPUs at once, of which Perfetto makes something of its own.
    pub at_gaps: BTreeSet<i64>,
    /// Wakings of threads that did not wait.
    pub spurious: u64,
    /// Of each thread that the trace says it of: its process.
    pub processes: BTreeMap<i64, i64>,
    open: HashMap<i64, usize>,
}

/// A thread that nobody knows runs where switches are missing.
const UNKNOWN: i64 = -1;

#[derive(Default)]
struct Cpu {
    running: Option<i64>,
    last: i64,
    last_waking: i64,
    /// Handlers, with names and begins.
    hard: Vec<(String, i64)>,
    soft: Vec<(String, i64)>,
}

/// Events after which the conversion knows a CPU.
fn touches(name: &str) -> bool {
    const PREFIXES: [&str; 5] =
        ["sched_waking", "irq_", "x86_irq_vectors_", "timer_hrtimer_expire_", "workqueue_execute_"];
    const NAMES: [&str; 6] = [
        "sched_switch",
        "sched_pi_setprio",
        "task_rename",
        "power_cpu_idle",
        "sched_process_fork",
        "sched_wakeup_new",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name)
}

impl Expected {
    pub fn of(events: &[Event]) -> Expected {
        let mut expected = Expected::default();
        let mut cpus: BTreeMap<i64, Cpu> = BTreeMap::new();
        let mut softirqs: HashMap<i64, Vec<(String, i64)>> = HashMap::new();
        let mut fresh = BTreeSet::new();
        let mut calls: HashMap<i64, (String, i64)> = HashMap::new();
        for (place, event) in events.iter().enumerate() {
            expected.call(event, &cpus, &mut calls);
            let processes = match event.name.as_str() {
                "lttng_statedump_process_state" => &[("tid", "pid")][..],
                "sched_process_fork" => &[("child_tid", "child_pid"), ("parent_tid", "parent_pid")],
                _ => &[],
            };
            for (tid, pid) in processes.iter().filter(|(_, pid)| event.fields[*pid].is_number()) {
                expected.processes.insert(event.number(tid), event.number(pid));
            }
            if !touches(&event.name) {
                continue;
            }
            let cpu = cpus.entry(event.cpu).or_insert_with(|| expected.first(event, events));
            match event.name.as_str() {
                "sched_switch" => expected.switch(event, cpu, &mut softirqs),
                "sched_waking" => expected.waking(event, cpu, ts_of_waking(&events[place..])),
                "sched_wakeup_new" if !fresh.remove(&event.number("tid")) => {
                    expected.waking(event, cpu, ts_of_waking(&events[place..]));
                }
                "sched_process_fork" => {
                    fresh.insert(event.number("child_tid"));
                    let parent = event.number("parent_tid");
                    expected.state(event.number("child_tid"), event.ts, Some("R"), None, Some((parent, 0)));
                }
                _ => expected.handler(event, cpu),
            }
            cpu.last = event.ts;
        }
        // The first thread of a process has its number.
        for pid in expected.processes.values().copied().collect::<Vec<_>>() {
            expected.processes.entry(pid).or_insert(pid);
        }
        expected.states.retain(|row| row.tid > 0);
        expected
    }

    /// The thread that the first switch of a CPU leaves has run there since the first event.
    fn first(&mut self, event: &Event, events: &[Event]) -> Cpu {
        let is_switch = |other: &&Event| other.cpu == event.cpu && other.name == "sched_switch";
        let switch = events.iter().find(is_switch).expect("each CPU has a switch");
        let running = switch.number("prev_tid");
        let since = if switch.ts == event.ts { event.ts - 1 } else { event.ts };
        self.state(running, since, Some("Running"), Some(event.cpu), None);
        Cpu { running: Some(running), ..Cpu::default() }
    }

    fn state(&mut self, tid: i64, ts: i64, state: Option<&str>, cpu: Option<i64>, woken: Option<(i64, i64)>) {
        if tid <= 0 {
            return;
        }
        if let Some(open) = self.open.insert(tid, self.states.len()) {
            self.states[open].dur = ts - self.states[open].ts;
        }
        let (waker, in_interrupt) = woken.unzip();
        let state = state.map(str::to_owned);
        self.states.push(StateRow { tid, ts, dur: -1, state, cpu, waker, in_interrupt });
    }

    fn switch(&mut self, event: &Event, cpu: &mut Cpu, softirqs: &mut HashMap<i64, Vec<(String, i64)>>) {
        let (prev, next) = (event.number("prev_tid"), event.number("next_tid"));
        if cpu.running != Some(prev) {
            self.gaps += 1;
            self.at_gaps.extend(cpu.running.into_iter().chain([prev]));
            let unknown = cpu.last + i64::from(cpu.last == cpu.last_waking);
            self.state(cpu.running.unwrap_or(UNKNOWN), unknown, None, None, None);
            self.state(prev, (event.ts - 1).max(unknown), Some("Running"), Some(event.cpu), None);
            let open: Vec<_> = cpu.hard.drain(..).chain(cpu.soft.drain(..)).collect();
            let on = |name: &str| track(name, event.cpu);
            self.interrupts
                .extend(open.into_iter().map(|(name, ts)| (on(&name), ts, cpu.last - ts, slice_name(&name))));
        }
        self.state(prev, event.ts, Some(state_letter(event)), None, None);
        self.state(next, event.ts, Some("Running"), Some(event.cpu), None);
        cpu.running = Some(next);
        let left = std::mem::take(&mut cpu.soft);
        if !left.is_empty() && prev != 0 {
            softirqs.insert(prev, left);
        }
        cpu.soft = softirqs.remove(&next).unwrap_or_default();
    }

    fn waking(&mut self, event: &Event, cpu: &mut Cpu, ts: i64) {
        let tid = event.number("tid");
        cpu.last_waking = event.ts;
        let state = self.open.get(&tid).and_then(|open| self.states[*open].state.as_deref());
        if self.open.contains_key(&tid) && matches!(state, Some("R" | "Running")) {
            self.spurious += 1;
            return;
        }
        let in_interrupt = i64::from(!cpu.hard.is_empty() || !cpu.soft.is_empty());
        let waker = cpu.running.expect("known since the first event");
        self.state(tid, ts, Some("R"), None, Some((waker, in_interrupt)));
    }

    fn handler(&mut self, event: &Event, cpu: &mut Cpu) {
        let name = event.name.as_str();
        let (kind, is_entry) = match (name.strip_suffix("_entry"), name.strip_suffix("_exit")) {
            (Some(kind), _) => (kind, true),
            (None, Some(kind)) => (kind, false),
            (None, None) => return,
        };
        let kind = match kind {
            "irq_handler" if is_entry => format!("irq_handler {}", event.fields["name"].as_str().unwrap()),
            "irq_softirq" if is_entry => format!("irq_softirq {}", event.number("vec")),
            "timer_hrtimer_expire" if is_entry => {
                format!("timer_hrtimer_expire {:#x}", event.fields["function"].as_u64().unwrap())
            }
            kind => kind.to_owned(),
        };
        let stack = if kind.starts_with("irq_softirq") { &mut cpu.soft } else { &mut cpu.hard };
        if is_entry {
            stack.push((kind, event.ts));
        } else if let Some((begun, ts)) = stack.pop() {
            let slice = (track(&begun, event.cpu), ts, event.ts - ts, slice_name(&begun));
            self.interrupts.insert(slice);
        }
    }

    fn call(&mut self, event: &Event, cpus: &BTreeMap<i64, Cpu>, calls: &mut HashMap<i64, (String, i64)>) {
        let running = || cpus.get(&event.cpu).and_then(|cpu| cpu.running);
        let tid = match event.name.as_str() {
            "sched_process_exit" => event.fields["tid"].as_i64(),
            _ => event.tid.or_else(running),
        };
        let Some(tid) = tid.filter(|tid| *tid != 0) else { return };
        let entry = event.name.strip_prefix("syscall_entry_");
        let ends =
            entry.is_some() || event.name.starts_with("syscall_exit_") || event.name == "sched_process_exit";
        if let Some((name, ts)) = ends.then(|| calls.remove(&tid)).flatten() {
            self.calls.insert((tid.to_string(), ts, event.ts - ts, name));
        }
        if let Some(name) = entry {
            calls.insert(tid, (format!("sys_{name}"), event.ts));
        }
    }
}

/// A waking at the time of the CPU's next switch is put a nanosecond earlier, since Perfetto would take it for one by the next thread.
/// The first event is the waking.
fn ts_of_waking(events: &[Event]) -> i64 {
    let (ts, cpu) = (events[0].ts, events[0].cpu);
    let at_once = events.iter().skip(1).take_while(|event| event.ts == ts);
    ts - i64::from(at_once.into_iter().any(|event| event.cpu == cpu && event.name == "sched_switch"))
}

/// `prev_state_raw` in one letter, as the kernel's own tools show it.
fn state_letter(event: &Event) -> &'static str {
    match event.number("prev_state_raw") {
        _ if event.number("preempt") != 0 => "R+",
        0 => "R",
        0x402 => "I",
        raw if raw & 0x1000 != 0 => "D",
        raw if raw & 0x40 != 0 => "P",
        raw if raw & 0x20 != 0 => "Z",
        raw if raw & 0x10 != 0 => "X",
        raw if raw & 8 != 0 => "t",
        raw if raw & 4 != 0 => "T",
        raw if raw & 2 != 0 => "D",
        raw if raw & 1 != 0 => "S",
        raw if raw & 0x80 != 0 => "X",
        raw => panic!("state {raw:#x}"),
    }
}

fn track(handler: &str, cpu: i64) -> String {
    let kind = match handler.split(' ').next() {
        Some("irq_softirq") => "SoftIrq",
        Some("timer_hrtimer_expire") => "Hrtimer",
        _ => "Irq",
    };
    format!("{kind} Cpu {cpu}")
}

/// The name that Perfetto gives to it.
fn slice_name(handler: &str) -> String {
    const SOFTIRQS: [&str; 10] =
        ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "BLOCK_IOPOLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];
    match handler.split_once(' ') {
        Some(("irq_softirq", vec)) => SOFTIRQS[vec.parse::<usize>().unwrap()].to_owned(),
        Some(("irq_handler", name)) => format!("IRQ ({name})"),
        Some((_, function)) => function.to_owned(),
        None if handler == "x86_irq_vectors_local_timer" => "IRQ (LocalTimer)".to_owned(),
        None => format!("IRQ ({})", handler.trim_start_matches("x86_irq_vectors_")),
    }
}
