// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What counts by key, from its start to the last reading: what histograms, profiles and tables of the worst are made from.
//!
//! Nothing is recorded and nothing is reported. Trackers count in the kernel, in cells, and a reading is a look at mapped memory: one that looks once a
//! second costs the targets no more than one that looks at the end. Events of programs, which the kernel does not see, are counted by `hist::programs`.

use crate::command::{Child, CommandOutput, complain};
use crate::hist::cells::{self, CellReading};
use crate::placement::{ObservedTasks, Placement};
use crate::watch::numbered::Numbered;
use crate::watch::spans::{CountedIntervals, SpanCounts};
use crate::{Failure, Observer, Stop};
use rtscope_event::{Glob, MonotonicNs, Pid, TaskInfo, Tid};
use rtscope_flight::{MissCounter, TrackerStats, monotonic_now};
use rtscope_kernel::{EbpfConfig, EbpfPrograms, Memory, PairTable, Target};
use serde::Serialize;
use std::ffi::OsString;
use std::time::Duration;

/// Whose operations are counted, and for how long.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Tasks with this name, with `*` and `?`.
    pub task: Option<String>,
    /// The tasks of this process.
    pub pid: Option<u32>,
    /// This thread.
    pub tid: Option<u32>,
    /// Ends after this time.
    pub duration_ns: Option<u64>,
    /// Started when all is counted; its end ends the count. Empty: nothing is started.
    pub command: Vec<OsString>,
    /// Where its standard output goes.
    pub command_output: CommandOutput,
}

impl Counted {
    /// As the eBPF programs have it.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        let name = self.task.as_deref().map(Glob::new).transpose();
        let name = name.map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(Target { name, pid: self.pid.map(Pid), tid: self.tid.map(Tid), is_command: false })
    }

    /// Whether anybody is named; COMMAND is the target if not.
    pub(crate) fn is_named(&self) -> bool {
        self.task.is_some() || self.pid.is_some() || self.tid.is_some()
    }

    /// In words; `all`: where nobody is named.
    pub(crate) fn words(&self, all: &str) -> String {
        let command = self.command.first().map(|name| name.to_string_lossy().into_owned());
        match (&self.task, self.pid, self.tid, command) {
            (Some(task), None, None, _) => format!("tasks named '{task}'"),
            (Some(task), Some(pid), None, _) => format!("tasks of process {pid} named '{task}'"),
            (None, Some(pid), None, _) => format!("tasks of process {pid}"),
            (_, _, Some(tid), _) => format!("thread {tid}"),
            (None, None, None, Some(command)) => format!("the tasks of {command}"),
            (None, None, None, None) => all.to_owned(),
        }
    }
}

/// What was not counted, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CountLosses {
    /// Counted, and under no key nor in any figure: there was no cell for it.
    pub without_key: u64,
    /// No state could be had for it: a table was full, or another CPU held its place for too long.
    pub untracked: u64,
    /// Block requests whose end the kernel did not report.
    pub unended: u64,
    /// Switches to a target that this host keeps from eBPF.
    pub hidden: u64,
    /// Of a pair: ends without a beginning.
    pub without_begin: u64,
    /// Of a pair: beginnings after which another one with the same key came before an end.
    pub begun_again: u64,
    /// Of a pair: beginnings for which there was no place, or that were given up to make room for others.
    pub given_up: u64,
    /// Runs of eBPF programs that the kernel skipped; `None`: it does not say.
    pub skipped_programs: Option<u64>,
    /// Of events of programs; `None`: the kernel's are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub programs: Option<ProgramLosses>,
}

/// What is missing of programs' events, which are paired as they come, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProgramLosses {
    /// Looks that came too late: older events of a thread had been overwritten, nobody knows how many.
    pub missed_looks: u64,
    /// Beginnings that were given up, since what was missed may have ended them.
    pub given_up: u64,
    /// Events that cannot be read.
    pub unreadable: u64,
    /// Events beyond what the programs of one user may have at a look, or may describe.
    pub too_many: u64,
    /// Events of threads that had no buffer.
    pub without_buffer: u64,
    /// Events without a field of the key.
    pub without_field: u64,
    /// Intervals counted under no key, nor in any figure, since theirs is no number (a text), or is not known.
    pub without_number: u64,
    /// Programs and users whose events are not recorded at all.
    pub left_out: u64,
}

impl CountLosses {
    /// Of these trackers.
    pub(crate) fn of(stats: &[TrackerStats], skipped_programs: Option<u64>) -> CountLosses {
        let sum = |of: fn(&TrackerStats) -> u64| stats.iter().map(of).sum();
        CountLosses {
            without_key: sum(|stats| stats.unkeyed),
            untracked: sum(|stats| stats.untracked + stats.raced + stats.pairs_failed),
            unended: sum(|stats| stats.unended),
            hidden: sum(|stats| stats.hidden),
            without_begin: sum(|stats| stats.without_begin),
            begun_again: sum(|stats| stats.begun_again),
            given_up: sum(|stats| stats.pairs_full),
            skipped_programs,
            programs: None,
        }
    }

    /// Of events of programs. `without_buffer`: events of threads that had none; `left_out`: programs and users
    /// that are not recorded.
    pub(crate) fn of_programs(
        counts: &SpanCounts,
        counted: &CountedIntervals,
        (without_buffer, left_out): (u64, u64),
    ) -> CountLosses {
        let unmatched = &counts.unmatched;
        CountLosses {
            without_key: counted.without_key,
            without_begin: unmatched.without_begin,
            begun_again: unmatched.begun_again,
            given_up: unmatched.forgotten,
            skipped_programs: Some(0),
            programs: Some(ProgramLosses {
                missed_looks: counts.sum(|user| user.missed_looks),
                given_up: unmatched.lost,
                unreadable: counts.sum(|user| user.damaged),
                too_many: counts.sum(|user| user.too_many_events + user.too_many_descriptions),
                without_buffer,
                without_field: unmatched.without_key,
                without_number: counted.without_number,
                left_out,
            }),
            ..CountLosses::default()
        }
    }

    /// What ended and is in no figure.
    #[must_use]
    pub fn in_no_figure(&self) -> u64 {
        self.without_key + self.programs.map_or(0, |programs| programs.without_number)
    }

    /// Whether nothing is missing, as far as is known.
    #[must_use]
    pub fn are_none(&self) -> bool {
        let programs = self.programs.map(|_| ProgramLosses::default());
        *self == CountLosses { skipped_programs: Some(0), programs, ..CountLosses::default() }
    }
}

/// Everything at one moment, since the start.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Since the start.
    pub at_ns: u64,
    pub cells: CellReading,
    pub losses: CountLosses,
}

impl Reading {
    /// Of intervals of programs, which are counted outside the kernel, as its counts are.
    pub(crate) fn of_programs(at_ns: u64, counted: CountedIntervals, losses: CountLosses) -> Reading {
        let CountedIntervals { histograms, names, used, .. } = counted;
        let names = names.into_iter().map(|(id, comm)| ((0, id), comm)).collect();
        Reading { at_ns, cells: CellReading { instances: vec![histograms], names, used }, losses }
    }
}

/// Something that counts, wherever that is done.
pub(crate) trait Counter {
    /// Since the start.
    fn elapsed_ns(&self) -> u64;
    /// Sleeps until this time since the start. Whether it goes on then.
    fn wait_until(&mut self, until_ns: u64, stop: &Stop) -> bool;
    /// What has been counted by now.
    fn read(&mut self) -> Reading;
    /// Switches off, and reads what there is then: nothing is counted any more.
    fn finish(&mut self) -> Reading;
    /// What could not be seen, in sentences.
    fn blind_spots(&self) -> Vec<String>;
    /// How COMMAND ended, if not well.
    fn end_command(&mut self, observer: &dyn Observer) -> Result<(), Failure>;
}

/// Whose operations are counted, while they are: the targets, their CPUs, and COMMAND.
#[derive(Debug)]
pub(crate) struct CountedRun {
    placement: Placement,
    child: Option<Child>,
    numbered: Option<Numbered>,
    started: MonotonicNs,
    duration_ns: Option<u64>,
}

impl CountedRun {
    /// Leaves the CPUs of the targets, and holds COMMAND at its gate.
    pub(crate) fn prepare(counted: &Counted) -> Result<CountedRun, Failure> {
        let numbered = Numbered::of(counted.pid, counted.tid)?;
        let targets = ObservedTasks {
            names: counted.target()?.name.into_iter().collect(),
            processes: counted.pid.into_iter().collect(),
            threads: counted.tid.into_iter().collect(),
            ..ObservedTasks::default()
        };
        let mut placement = Placement::take(targets, !counted.command.is_empty())?;
        let child = placement.hold(&counted.command, counted.command_output)?;
        let (started, duration_ns) = (monotonic_now(), counted.duration_ns);
        Ok(CountedRun { placement, child, numbered, started, duration_ns })
    }

    /// The process of COMMAND.
    pub(crate) fn command_pid(&self) -> Option<Pid> {
        self.child.as_ref().map(Child::pid)
    }

    /// All is counted from here on: COMMAND goes.
    pub(crate) fn begin(&mut self, stop: &Stop) {
        self.started = monotonic_now();
        if let Some(child) = self.child.as_mut().filter(|_| !stop.asked()) {
            child.release();
        }
    }

    /// Since the start.
    pub(crate) fn elapsed_ns(&self) -> u64 {
        monotonic_now().since(self.started)
    }

    /// Sleeps until this time since the start. Whether it goes on then. `look` is called at least so often; `tasks`: all there are, from where
    /// that is cheap.
    pub(crate) fn wait_until(
        &mut self,
        until_ns: u64,
        stop: &Stop,
        (often, mut look): (Option<Duration>, impl FnMut()),
        tasks: impl Fn() -> Option<Vec<TaskInfo>>,
    ) -> bool {
        /// Between two looks at whether a target that was named by its number is still there.
        const LOOK: Duration = Duration::from_secs(1);
        let end = self.child.as_ref().and_then(Child::end);
        loop {
            self.placement.follow(monotonic_now(), &tasks);
            look();
            let now_ns = self.elapsed_ns();
            let has_ended = self.child.as_mut().is_some_and(Child::has_ended)
                || self.numbered.is_some_and(|target| self.child.is_none() && target.has_ended());
            if stop.asked() || has_ended || self.duration_ns.is_some_and(|duration_ns| now_ns >= duration_ns)
            {
                return false;
            }
            let next_ns = until_ns.min(self.duration_ns.unwrap_or(u64::MAX));
            if now_ns >= next_ns {
                return true;
            }
            // Without a descriptor that tells of COMMAND's end it is asked for again and again.
            let longest = match often {
                Some(often) => often,
                None if self.child.is_some() && end.is_none() => LOOK / 20,
                None => LOOK,
            };
            stop.wait(Duration::from_nanos(next_ns - now_ns).min(longest), end.as_ref());
        }
    }

    /// How COMMAND ended, if not well.
    pub(crate) fn end_command(&mut self, observer: &dyn Observer) -> Result<(), Failure> {
        if let Some(child) = &mut self.child {
            child.terminate();
        }
        if let Some(end) = self.child.as_mut().and_then(Child::ending) {
            observer.command_ended(end);
        }
        complain(self.child.as_mut(), observer)
    }
}

/// Trackers that count in the kernel.
#[derive(Debug)]
pub(crate) struct Counting {
    memory: Memory,
    instances: usize,
    misses: MissCounter,
    run: CountedRun,
    pairs: Option<PairTable>,
    /// Beginnings of pairs for which there was no place, when room was made for the last time, and how many were given up for that.
    pairs_full: u64,
    given_up: u64,
    /// Behind its mappings: see [`EbpfPrograms`].
    ebpf: EbpfPrograms,
}

impl Counting {
    /// Loads, attaches, and lets COMMAND go.
    pub(crate) fn start(mut config: EbpfConfig, counted: &Counted, stop: &Stop) -> Result<Counting, Failure> {
        let mut run = CountedRun::prepare(counted)?;
        let target = counted.target()?;
        for tracker in &mut config.trackers {
            tracker.target = target.clone();
            if let Some(pid) = run.command_pid().filter(|_| !counted.is_named()) {
                tracker.target = Target { pid: Some(pid), is_command: true, ..Target::default() };
            }
        }
        stop.begin()?;
        let ebpf = EbpfPrograms::start(&config)?;
        let memory = ebpf.memory(&config)?;
        let mut misses = MissCounter::default();
        misses.add(monotonic_now(), &ebpf.recursion_misses());
        let pairs = ebpf.pair_table()?;
        run.begin(stop);
        let instances = config.trackers.len();
        Ok(Counting { memory, instances, misses, run, pairs, pairs_full: 0, given_up: 0, ebpf })
    }

    fn reading(&self, at_ns: u64) -> Reading {
        let stats: Vec<TrackerStats> =
            (0..self.instances).map(|instance| TrackerStats::read(&self.memory, instance)).collect();
        let mut losses = CountLosses::of(&stats, self.misses.total());
        losses.given_up += self.given_up;
        Reading { at_ns, cells: cells::read(&self.memory), losses }
    }
}

/// Beginnings that never end, such as forks without exec, would else leave no place for any other: what was given up is counted.
fn make_room(table: Option<&PairTable>, memory: &Memory, (seen, given_up): (&mut u64, &mut u64)) {
    let Some(table) = table else { return };
    let full = TrackerStats::read(memory, 0).pairs_full;
    if full > *seen {
        *seen = full;
        *given_up += table.give_up_older_half();
    }
}

impl Counter for Counting {
    fn elapsed_ns(&self) -> u64 {
        self.run.elapsed_ns()
    }

    fn wait_until(&mut self, until_ns: u64, stop: &Stop) -> bool {
        /// Between two looks at whether pairs that end find room.
        const PAIRS_LOOK: Duration = Duration::from_millis(20);
        let Counting { memory, run, pairs, pairs_full, given_up, ebpf, .. } = self;
        let look = || make_room(pairs.as_ref(), memory, (pairs_full, given_up));
        run.wait_until(until_ns, stop, (pairs.as_ref().map(|_| PAIRS_LOOK), look), || ebpf.dump_tasks().ok())
    }

    fn read(&mut self) -> Reading {
        let at_ns = self.elapsed_ns();
        self.misses.add(monotonic_now(), &self.ebpf.recursion_misses());
        self.reading(at_ns)
    }

    fn finish(&mut self) -> Reading {
        let at_ns = self.elapsed_ns();
        self.ebpf.enable(false);
        self.misses.add(monotonic_now(), &self.ebpf.recursion_misses());
        // The kernel waits for programs that run when it takes them off.
        self.ebpf.detach();
        self.reading(at_ns)
    }

    fn blind_spots(&self) -> Vec<String> {
        self.ebpf.blind_spots()
    }

    fn end_command(&mut self, observer: &dyn Observer) -> Result<(), Failure> {
        self.run.end_command(observer)
    }
}
