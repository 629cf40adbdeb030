// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who had the loop's CPU while a response was late: read from trace-cmd's report, which shares no code and no buffer with rtscope.
//!
//! The largest part of the lateness names the culprit. rtscope's are: its threads and processes, found by their forks from the first on;
//! work that they queued, in whatever worker it ran; and calls that they sent to the CPU from another one. What an interrupt queued or sent
//! while one of them was current is not theirs. Work that the kernel does later for what they did (RCU, writing dirty pages) names no
//! origin, and counts as that of others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A late response of the loop: when it was to begin, and when it did.
pub type Late = (u64, u64);

/// What had a CPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Occupant {
    /// rtscope, or the kernel for it; in words.
    Rtscope(String),
    /// A thread of somebody else, or an interrupt; in words.
    Other(String),
    /// No thread at all: the hypervisor had the CPU, or the way out of idle was long.
    Idle,
}

/// What was found for a time of the loop.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Late responses of which rtscope is the culprit: by whom, and how late.
    pub of_rtscope: Vec<(String, u64)>,
    /// The culprits of the others.
    pub of_others: BTreeMap<String, u64>,
    /// The longest time without a break that rtscope had the loop's CPU, late or not, and by what.
    pub longest: Option<(String, u64)>,
}

/// A line of `trace-cmd report -t`.
#[derive(Debug)]
struct Event<'a> {
    time_ns: u64,
    cpu: usize,
    pid: u32,
    name: &'a str,
    text: &'a str,
}

impl Event<'_> {
    /// `  comm-12   [001]  1.000000001: sched_switch:   prev:12 [120] S ==> next:13 [120]`
    fn parse(line: &str) -> Option<Event<'_>> {
        // The CPU: three digits between " [" and "]".
        let at = line.match_indices(" [").map(|(at, _)| at).find(|at| {
            let inside = line[at + 2..].split(']').next().unwrap_or_default();
            inside.len() == 3 && inside.bytes().all(|byte| byte.is_ascii_digit())
        })?;
        let (task, rest) = line.split_at(at);
        let (cpu, rest) = rest[2..].split_once(']')?;
        let mut words = rest.split_whitespace();
        let time = words.find_map(|word| word.strip_suffix(':'))?;
        let (seconds, fraction) = time.split_once('.')?;
        let after = rest.split_once(&format!("{time}: "))?.1.trim_start();
        let (name, text) = after.split_once(':')?;
        Some(Event {
            time_ns: seconds.parse::<u64>().ok()? * 1_000_000_000 + fraction.parse::<u64>().ok()?,
            cpu: cpu.parse().ok()?,
            pid: task.trim().rsplit_once('-')?.1.trim().parse().ok()?,
            name,
            text: text.trim(),
        })
    }

    /// The word behind `key`.
    fn value(&self, key: &str) -> Option<&str> {
        self.text.split_once(key)?.1.split([' ', ':', ',']).next()
    }

    fn begins_interrupt(&self) -> bool {
        self.name.ends_with("_entry") && !self.name.starts_with("hrtimer")
    }

    fn ends_interrupt(&self) -> bool {
        self.name.ends_with("_exit") && !self.name.starts_with("hrtimer") && self.name != "sched_process_exit"
    }
}

/// A piece of the loop's CPU.
#[derive(Debug)]
struct Segment {
    from_ns: u64,
    occupant: Occupant,
}

/// Follows the events.
#[derive(Debug, Default)]
struct State {
    cpu: usize,
    /// Threads and processes of rtscope.
    own: BTreeSet<u32>,
    /// Whether work was queued by them.
    queued: HashMap<String, bool>,
    /// What workers are working on.
    working: HashMap<u32, String>,
    /// Interrupts that have begun, for each CPU.
    nested: HashMap<usize, Vec<Occupant>>,
    called: bool,
    current: Option<(u32, String)>,
    segments: Vec<Segment>,
}

impl State {
    fn feed(&mut self, event: &Event<'_>) {
        let in_interrupt = self.nested.get(&event.cpu).is_some_and(|nested| !nested.is_empty());
        let by_own = !in_interrupt && self.own.contains(&event.pid);
        match event.name {
            "sched_process_fork" if self.own.contains(&event.pid) => {
                self.own.extend(event.value("child_pid=").and_then(|pid| pid.parse::<u32>().ok()));
            }
            "workqueue_queue_work" => {
                if let Some(work) = event.value("work struct=") {
                    self.queued.insert(work.to_string(), by_own);
                }
            }
            "workqueue_execute_start" => {
                let work = event.value("work struct ").unwrap_or_default();
                if self.queued.get(work) == Some(&true) {
                    self.working.insert(event.pid, event.value("function ").unwrap_or("?").to_string());
                }
            }
            "workqueue_execute_end" => drop(self.working.remove(&event.pid)),
            "ipi_send_cpu" | "ipi_send_cpumask" if by_own && event.cpu != self.cpu => {
                self.called |= may_mean(event, self.cpu);
            }
            _ => {}
        }
        if event.begins_interrupt() {
            let called = event.cpu == self.cpu && event.name.starts_with("call_function") && self.called;
            let name = event.value("name=").unwrap_or(event.name.trim_end_matches("_entry"));
            let occupant = if called {
                self.called = false;
                Occupant::Rtscope(format!("{name} sent by rtscope"))
            } else {
                Occupant::Other(name.to_string())
            };
            self.nested.entry(event.cpu).or_default().push(occupant);
        } else if event.ends_interrupt() {
            self.nested.entry(event.cpu).or_default().pop();
        }
        if event.cpu == self.cpu {
            self.place(event);
        }
    }

    /// Who has the loop's CPU from this event on.
    fn place(&mut self, event: &Event<'_>) {
        if event.name == "sched_switch" {
            let next = event.text.split_once("==> ").and_then(|(_, next)| next.rsplit_once(" ["));
            self.current = next.and_then(|(next, _)| {
                let (comm, pid) = next.rsplit_once(':')?;
                Some((pid.parse().ok()?, comm.to_string()))
            });
            // A switch is outside of interrupts: what was missed of them ends here.
            self.nested.remove(&event.cpu);
        } else if self.current.is_none() {
            self.current = Some((event.pid, String::new()));
        }
        let innermost = self.nested.get(&event.cpu).and_then(|nested| nested.last()).cloned();
        let occupant = innermost.unwrap_or_else(|| self.thread());
        if self.segments.last().is_none_or(|last| last.occupant != occupant) {
            self.segments.push(Segment { from_ns: event.time_ns, occupant });
        }
    }

    fn thread(&self) -> Occupant {
        match &self.current {
            None | Some((0, _)) => Occupant::Idle,
            Some((pid, comm)) if self.own.contains(pid) => Occupant::Rtscope(comm.clone()),
            Some((pid, comm)) => match self.working.get(pid) {
                Some(function) => Occupant::Rtscope(format!("{function} in a worker")),
                None => Occupant::Other(comm.clone()),
            },
        }
    }
}

/// Whether an interrupt was sent to this CPU. A mask is a list or hexadecimal, as trace-cmd's version has it: it counts as all CPUs.
fn may_mean(event: &Event<'_>, cpu: usize) -> bool {
    event.name == "ipi_send_cpumask" || event.value("cpu=").is_none_or(|to| to.parse() == Ok(cpu))
}

/// Judges late responses of a loop on `cpu`. `first`: the processes of rtscope that were started.
pub fn judge(report: &str, cpu: usize, first: &[u32], late: &[Late]) -> Result<Verdict, String> {
    let mut state = State { cpu, own: first.iter().copied().collect(), ..State::default() };
    for line in report.lines() {
        if line.contains("EVENTS DROPPED") {
            return Err(format!("trace-cmd lost events: {}", line.trim()));
        }
        if let Some(event) = Event::parse(line) {
            state.feed(&event);
        }
    }
    if state.segments.is_empty() {
        return Err(format!("trace-cmd recorded nothing on CPU {cpu}"));
    }
    let mut verdict = Verdict { longest: longest(&state.segments), ..Verdict::default() };
    for (asked, woke) in late {
        match culprit(&state.segments, *asked, *woke) {
            Occupant::Rtscope(who) => verdict.of_rtscope.push((who, woke - asked)),
            Occupant::Other(who) => *verdict.of_others.entry(who).or_default() += 1,
            Occupant::Idle => *verdict.of_others.entry("nothing that ran".to_string()).or_default() += 1,
        }
    }
    Ok(verdict)
}

/// Who had most of the time. All of rtscope's is one.
fn culprit(segments: &[Segment], from: u64, to: u64) -> Occupant {
    let mut sums = BTreeMap::<Occupant, u64>::new();
    let mut own = (0, String::new());
    let first = segments.partition_point(|segment| segment.from_ns <= from).saturating_sub(1);
    for (at, segment) in segments.iter().enumerate().skip(first).take_while(|(_, it)| it.from_ns < to) {
        let end = segments.get(at + 1).map_or(to, |next| next.from_ns).min(to);
        let time = end.saturating_sub(segment.from_ns.max(from));
        match &segment.occupant {
            Occupant::Rtscope(who) => {
                own.0 += time;
                own.1.clone_from(who);
            }
            other => *sums.entry(other.clone()).or_default() += time,
        }
    }
    let largest = sums.into_iter().max_by_key(|(_, time)| *time);
    match largest {
        Some((occupant, time)) if time > own.0 => occupant,
        _ if own.0 > 0 => Occupant::Rtscope(own.1),
        _ => Occupant::Idle,
    }
}

fn longest(segments: &[Segment]) -> Option<(String, u64)> {
    let pieces = segments.windows(2).filter_map(|pair| match &pair[0].occupant {
        Occupant::Rtscope(who) => Some((who.clone(), pair[1].from_ns - pair[0].from_ns)),
        _ => None,
    });
    pieces.max_by_key(|(_, time)| *time)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loop is on CPU 1 and was to begin at 1 ms; rtscope is process 20.
    fn culprit_of(lines: &[&str]) -> Verdict {
        let report = format!("cpus=2\n{}\n", lines.join("\n"));
        judge(&report, 1, &[20], &[(1_000_000, 2_000_000)]).expect("a report")
    }

    const LOOP: &str = "  x-30 [001] 0.002000000: sched_switch: x:30 [120] R ==> beat:40 [49]";

    #[test]
    fn a_thread_of_rtscope_that_had_the_cpu_is_the_culprit() {
        let verdict = culprit_of(&[
            "     rtscope-20    [000]     0.000100000: sched_process_fork:   comm=rtscope pid=20 child_comm=rtscope child_pid=21",
            "      <idle>-0     [001]     0.000900000: sched_switch:         swapper/1:0 [120] R ==> rtscope-writer:21 [120]",
            "rtscope-writer-21  [001] d..1  0.001000500: local_timer_entry:    vector=236",
            "rtscope-writer-21  [001]     0.001004500: local_timer_exit:     vector=236",
            LOOP,
        ]);
        assert_eq!(verdict.of_rtscope, [("rtscope-writer".to_string(), 1_000_000)]);
        assert_eq!(verdict.longest, Some(("rtscope-writer".to_string(), 995_500)));
    }

    #[test]
    fn another_thread_and_a_cpu_that_was_idle_are_not_rtscope() {
        let other =
            "  [kworker]-9 [001] 0.000900000: sched_switch: swapper/1:0 [120] R ==> a [001] b:9 [120]";
        assert_eq!(culprit_of(&[other, LOOP]).of_others, [("a [001] b".to_string(), 1)].into());
        let idle = "  a-9 [001] 0.000900000: sched_switch: a:9 [120] S ==> swapper/1:0 [120]";
        assert_eq!(culprit_of(&[idle, LOOP]).of_others, [("nothing that ran".to_string(), 1)].into());
    }

    #[test]
    fn work_that_rtscope_queued_is_its_own_and_what_an_interrupt_queued_is_not() {
        let queue = "  rtscope-20 [000] 0.000200000: workqueue_queue_work: work struct=0xff00 function=free_fn workqueue=events req_cpu=256 cpu=1";
        let run = [
            "  x-30 [001] 0.000900000: sched_switch: x:30 [120] S ==> kworker/1:1:50 [120]",
            "  kworker/1:1-50 [001] 0.000900100: workqueue_execute_start: work struct 0xff00: function free_fn",
            LOOP,
        ];
        let verdict = culprit_of(&[&[queue][..], &run].concat());
        assert_eq!(verdict.of_rtscope, [("free_fn in a worker".to_string(), 1_000_000)]);
        let begin = "  rtscope-20 [000] 0.000100000: irq_handler_entry: irq=3 name=disk";
        let end = "  rtscope-20 [000] 0.000300000: irq_handler_exit: irq=3 ret=handled";
        let verdict = culprit_of(&[&[begin, queue, end][..], &run].concat());
        assert!(verdict.of_rtscope.is_empty(), "{verdict:?}");
        assert_eq!(verdict.of_others, [("kworker/1:1".to_string(), 1)].into());
    }

    #[test]
    fn a_call_that_rtscope_sent_to_the_cpu_is_its_own() {
        let call = "  x-30 [001] 0.001000100: call_function_entry: vector=252";
        let end = "  x-30 [001] 0.001900000: call_function_exit: vector=252";
        let begin = "  a-30 [001] 0.000900000: sched_switch: a:31 [120] S ==> x:30 [120]";
        let send = |pid: u32, to: u32| {
            format!("  r-{pid} [000] 0.000950000: ipi_send_cpu: cpu={to} callsite=0x1 callback=0x2")
        };
        let own = culprit_of(&[begin, &send(20, 1), call, end, LOOP]);
        assert_eq!(own.of_rtscope, [("call_function sent by rtscope".to_string(), 1_000_000)]);
        for other in [send(30, 1), send(20, 0)] {
            assert!(culprit_of(&[begin, &other, call, end, LOOP]).of_rtscope.is_empty(), "{other}");
        }
    }

    #[test]
    fn lost_events_are_no_verdict() {
        let dropped = judge("CPU:1 [133 EVENTS DROPPED]\n", 1, &[], &[]);
        assert!(dropped.is_err());
        assert!(judge("cpus=2\n", 1, &[], &[]).is_err());
    }
}
