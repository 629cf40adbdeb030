// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `print`, `stat` and `convert` have in common: which traces, and which of their events.

use crate::exit::{Failure, help};
use crate::output::note;
use clap::{ValueEnum, ValueHint};
use rtscope_ctf::{
    Comparison, Condition, DamagedFile, Pattern, Selection, SharedTaskNames, Stage, TaskNames, TaskSpans,
    TraceSet,
};
use rtscope_event::counted;
use rtscope_session::units::DurationNs;
use rtscope_session::wall_clock;
use rtscope_view::clean;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

const PRINT_EXAMPLES: &str = help!(
    "Examples:
  rtscope print late/20261120T234107Z-1
      All events, with thread and CPU.
  rtscope print trace/ --format babeltrace
      The same as babeltrace2 prints it.
  rtscope print trace/ --event 'sched_*' --task control --from +1.5s --to +1.6s
      What the scheduler did with a task within a tenth of a second.
  rtscope print trace/ --where 'prev_prio < 0 && next_comm =~ \"kworker*\"' --format json
      One JSON object per line (docs/event-formats.md).
  rtscope print trace/ --event 'irq_*' --format csv --fields irq,name,ret
      A table.
  rtscope print trace/ --event 'syscall_*' --resolve
      System calls, with flags and errors by name and descriptors as files, sockets, ...
  rtscope print --follow trace/ --from -0s --event 'sched_*'
      What happens from now on in a recording to trace/ that is being made.

What is missing from a trace is reported on standard error, after the events."
);

const STAT_EXAMPLES: &str = help!(
    "Examples:
  rtscope stat late/20261120T234107Z-1
      Events by name, streams, and what is missing.
  rtscope stat trace/ --from -1s --cpu 0-3 --json
      The last second, on four CPUs, as one JSON object.
  rtscope stat trace/ --tasks --irqs
      Where each task's time went, and what interrupts took.
  rtscope stat trace/ --tasks --task 'postgres*'
      The same of some tasks, with what they waited in and their system calls.
  rtscope stat trace/ --latency syscalls --task 'postgres*' --svg latency.svg
      How long system calls took: percentiles, the longest with time and task, a histogram.
  rtscope stat trace/ --latency wakeup,block --latency 'oms:order_in -> oms:order_out by id'
      The same of wakeups, of requests to disks, and from one event of a program to another.
  rtscope stat --follow trace/ --tasks
      The same of a recording that is being made, again every two seconds."
);

/// The format of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Lines with time, thread, CPU, name and fields
    Text,
    /// The format of babeltrace2, byte for byte
    Babeltrace,
    /// One JSON object per line
    Json,
    /// Values separated by commas
    Csv,
}

#[derive(Debug, clap::Args)]
#[command(after_help = PRINT_EXAMPLES)]
pub struct PrintOptions {
    #[command(flatten)]
    pub trace: TraceOptions,
    /// The format of events
    #[arg(long, value_enum, default_value_t = FormatArg::Text)]
    pub format: FormatArg,
    /// With --format csv: a column for each of these fields
    #[arg(long, value_name = "FIELD,FIELD...", value_delimiter = ',')]
    pub fields: Vec<String>,
    /// Stop after this many events
    #[arg(long, value_name = "N")]
    pub head: Option<u64>,
    /// With --format text and babeltrace: raw clock values instead of times of day
    #[arg(long)]
    pub clock_raw: bool,
    /// Add what the numbers in system calls mean: flags, errors and signals by name, descriptors with what they are, where that
    /// follows from the trace
    #[arg(long)]
    pub resolve: bool,
    #[command(flatten)]
    pub follow: FollowOptions,
}

#[derive(Debug, clap::Args)]
pub struct FollowOptions {
    /// Follow a recording that is being made, or is about to begin, until it ends
    #[arg(short = 'f', long)]
    pub follow: bool,
    /// With --follow: how long events may take to come. Nobody waits longer: what comes later is late, and is marked or counted as that
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "follow")]
    pub delay: DurationNs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = STAT_EXAMPLES)]
pub struct StatOptions {
    #[command(flatten)]
    pub trace: TraceOptions,
    /// Where each task's time went: on a CPU, waiting for one, blocked; its switches, wakeups and system calls
    #[arg(long)]
    pub tasks: bool,
    /// What interrupts, softirqs and timers took
    #[arg(long)]
    pub irqs: bool,
    /// What system calls took, and their errors
    #[arg(long)]
    pub syscalls: bool,
    /// How long something takes, with percentiles, the longest and a histogram: syscalls, block (disks), irq, softirq, wakeup, or two
    /// events: 'EVENT -> EVENT by FIELD', with by FIELD=FIELD where it has another name in the second, without by for events of one
    /// thread; several kinds are separated by commas; may be repeated
    #[arg(long, value_name = "WHAT")]
    pub latency: Vec<String>,
    /// With --latency: draw the histograms into this file, as SVG
    #[arg(long, value_name = "FILE", requires = "latency", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// With --tasks, --irqs, --syscalls and --latency as text: rows to show, 20 if not given; 0 for all
    #[arg(long, value_name = "N", conflicts_with = "json")]
    pub top: Option<usize>,
    /// Print one JSON object (docs/json.md); with --follow one for each interval
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub follow: FollowOptions,
    /// With --follow: show what there is so far this often, and once more at the end
    #[arg(long, value_name = "TIME", default_value = "2s", requires = "follow")]
    pub interval: DurationNs,
}

#[derive(Debug, clap::Args)]
pub struct TraceOptions {
    /// The directory of a trace. Traces in directories below it are merged
    #[arg(value_hint = ValueHint::DirPath)]
    pub trace: PathBuf,
    /// Not before this time: 13:05:59.25, 2026-11-20T13:05:59Z, nanoseconds since 1970, +1.5s (after the first event) or
    /// -2s (before the last)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Not after this time (as for --from)
    #[arg(long, visible_alias = "until", value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,
    #[command(flatten)]
    pub events: EventOptions,
}

#[derive(Debug, Default, clap::Args)]
pub struct EventOptions {
    /// Only events with this name (with * and ?), as in the trace or as rtscope list and -k write it (irq:softirq_entry, syscalls,
    /// PROVIDER); separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub event: Vec<String>,
    /// Only events whose fields match: comparisons (== != < <= > >=, =~ for patterns), joined by && || ! and parentheses. Priorities
    /// may be written as rt 90, nice 5 and dl; a higher one is greater
    #[arg(long = "where", value_name = "CONDITION")]
    pub condition: Vec<String>,
    /// Only events of this task, or with it in a field: a thread id, or a pattern for the name it had at that time
    #[arg(long, value_name = "NAME|TID")]
    pub task: Option<String>,
    /// Only events of these CPUs (0,2-3)
    #[arg(long, value_name = "LIST")]
    pub cpu: Option<String>,
}

/// Fields in which tracers name threads.
const TIDS: [&str; 11] = [
    "tid",
    "vtid",
    "prev_tid",
    "next_tid",
    "parent_tid",
    "child_tid",
    "perf_tid",
    "common_pid",
    "prev_pid",
    "next_pid",
    "old_tid",
];
const COMMS: [&str; 9] = [
    "comm",
    "procname",
    "prev_comm",
    "next_comm",
    "parent_comm",
    "child_comm",
    "perf_comm",
    "old_comm",
    "new_comm",
];

impl TraceOptions {
    /// Opens the traces.
    pub fn open(&self) -> Result<TraceSet, Failure> {
        open(&self.trace)
    }

    /// How far the recording is that makes the trace.
    pub fn stage(&self) -> Stage {
        stage(&self.trace)
    }

    /// As the function of this name.
    pub fn report_end(&self, damaged: &mut Vec<DamagedFile>) -> Result<(), Failure> {
        report_end(&self.trace, damaged)
    }

    /// All events within the times.
    pub fn times(&self, set: &TraceSet) -> Result<Selection, Failure> {
        EventOptions::default().selection(set, ("from", &self.from), ("to", &self.to))
    }

    /// Which events are selected.
    pub fn selection(&self, set: &TraceSet) -> Result<Selection, Failure> {
        self.events.selection(set, ("from", &self.from), ("to", &self.to))
    }

    /// The events of a recording that is being made: its last event is now, its first one is not known. What its threads are called is in
    /// `names`, which grow.
    pub fn selection_from_now(&self, names: &SharedTaskNames) -> Result<Selection, Failure> {
        self.selection_now(&self.events, names)
    }

    /// All of them within the times.
    pub fn times_from_now(&self) -> Result<Selection, Failure> {
        self.selection_now(&EventOptions::default(), &SharedTaskNames::default())
    }

    /// As [`EventOptions::note_if_nothing`].
    pub fn note_if_nothing(&self, events: u64) {
        self.events.note_if_nothing(events, self.from.is_some() || self.to.is_some());
    }

    fn selection_now(&self, events: &EventOptions, names: &SharedTaskNames) -> Result<Selection, Failure> {
        let now = UNIX_EPOCH.elapsed().ok().and_then(|now| i64::try_from(now.as_nanos()).ok());
        for (option, text) in [("from", &self.from), ("to", &self.to)] {
            if text.as_ref().is_some_and(|text| text.starts_with('+')) {
                return Err(Failure::Usage(format!(
                    "--{option} with + counts from the first event, which --follow does not wait for; give a time of day, or -2s (two seconds before now)"
                )));
            }
        }
        let spans = |named: &str| TaskSpans::growing(named, names);
        events.selection_in((now, now), ("from", &self.from), ("to", &self.to), &spans)
    }
}

/// Opens the traces below a directory.
pub fn open(path: &Path) -> Result<TraceSet, Failure> {
    rtscope_session::limits::raise_file_limit();
    let unfinished = interrupted(path);
    let opened = TraceSet::open(path);
    if let (Ok(_), Some(target)) = (&opened, &unfinished) {
        note(&format!(
            "rtscope: {} is not complete: {}",
            path.display(),
            match stage(path) {
                Stage::Abandoned => format!(
                    "its recorder was killed; what it lost is not known, and rtscope record --recover {} completes it",
                    target.display()
                ),
                _ => "it is being recorded; what is there by now is read (--follow waits for what comes)"
                    .to_owned(),
            }
        ));
    }
    opened.map_err(|error| match unfinished {
        Some(target) => Failure::Failed(format!(
            "{} has no trace yet: its recorder was killed, or still works; rtscope record --recover {} makes the trace (print --follow and \
             stat --follow read one that is being made)",
            path.display(),
            target.display()
        )),
        None => Failure::Failed(of_another_tool(path).unwrap_or_else(|| error.to_string())),
    })
}

/// What to do with the file of a tool that does not write CTF.
fn of_another_tool(path: &Path) -> Option<String> {
    let mut begin = [0; 10];
    File::open(path).ok()?.read_exact(&mut begin).ok()?;
    let path = path.display();
    match &begin {
        // "PERFILE2" on the machine's side of bytes.
        [b'P', b'E', b'R', b'F', b'I', b'L', b'E', b'2', ..]
        | [b'2', b'E', b'L', b'I', b'F', b'R', b'E', b'P', ..] => Some(format!(
            "{path} is perf's own format; perf data convert -i {path} --to-ctf DIRECTORY makes a CTF trace, which this command reads"
        )),
        [0x17, 0x08, 0x44, b't', b'r', b'a', b'c', b'i', b'n', b'g'] => Some(format!(
            "{path} is trace-cmd's own format, which nothing makes CTF of; trace-cmd report reads it, and rtscope record -k records the same \
             tracepoints as CTF"
        )),
        _ => None,
    }
}

/// How far the recording is that makes the traces below a directory.
fn stage(path: &Path) -> Stage {
    match interrupted(path).and_then(|target| rtscope_session::record::is_abandoned(&target)) {
        None => Stage::Complete,
        Some(false) => Stage::Growing,
        Some(true) => Stage::Abandoned,
    }
}

/// The trace that a recording was to make which has not been completed: `path` is that, the directory that it is in, or that of what was
/// recorded.
fn interrupted(path: &Path) -> Option<PathBuf> {
    let named = path.file_name()?.to_str()?.strip_suffix(".partial").map(|name| path.with_file_name(name));
    let is_there = |target: &PathBuf| rtscope_session::record::is_unfinished(target);
    named.into_iter().chain([path.to_owned()]).find(is_there)
}

/// Times of the first and of the last event.
type TimeSpan = (Option<i64>, Option<i64>);

/// An option with a time.
type TimeOption<'o> = (&'o str, &'o Option<String>);

impl EventOptions {
    /// Which events are selected, with those between two times.
    pub fn selection(
        &self,
        set: &TraceSet,
        from: TimeOption<'_>,
        until: TimeOption<'_>,
    ) -> Result<Selection, Failure> {
        let spans = |named: &str| TaskSpans::new(named, TaskNames::of(set));
        let selection = self.selection_in(set.span(), from, until, &spans)?;
        for text in selection.check(set).map_err(Failure::Usage)? {
            note(&format!("rtscope: {}", clean(&text)));
        }
        Ok(selection)
    }

    /// The same for the time from the first to the last event. `spans`: when threads had a name.
    fn selection_in(
        &self,
        span: TimeSpan,
        from: TimeOption<'_>,
        until: TimeOption<'_>,
        spans: &dyn Fn(&str) -> TaskSpans,
    ) -> Result<Selection, Failure> {
        let time = |(option, text): TimeOption<'_>| match text {
            Some(text) => moment(text, span)
                .map(Some)
                .map_err(|why| Failure::Usage(format!("--{option} {text}: {why}"))),
            None => Ok(None),
        };
        let mut conditions = Vec::new();
        for text in &self.condition {
            let condition = Condition::parse(text);
            conditions.push(condition.map_err(|why| Failure::Usage(format!("--where '{text}': {why}")))?);
        }
        if let Some(task) = &self.task {
            conditions.push(match task.parse::<u32>() {
                Ok(_) => Condition::any_of(&TIDS, Comparison::Equal, task),
                // Many events have only the number of their thread.
                Err(_) => Condition::any_of(&COMMS, Comparison::Like, task)
                    .or(Condition::any_task_of(&TIDS, Arc::new(spans(task)))),
            });
        }
        Ok(Selection {
            from_ns: time(from)?,
            to_ns: time(until)?,
            events: self.patterns(),
            cpus: self.cpus()?,
            conditions,
        })
    }
}

impl EventOptions {
    /// Says that nothing was selected, if a filter was given: an empty output looks like an empty trace.
    pub fn note_if_nothing(&self, events: u64, has_times: bool) {
        let filters = self.event.iter().map(|event| format!("--event {event}"));
        let filters = filters
            .chain(self.condition.iter().map(|condition| format!("--where '{condition}'")))
            .chain(self.task.iter().map(|task| format!("--task {task}")))
            .chain(self.cpu.iter().map(|cpu| format!("--cpu {cpu}")))
            .chain(has_times.then(|| "the given times".to_owned()));
        let filters: Vec<String> = filters.collect();
        if events == 0 && !filters.is_empty() {
            note(&format!("rtscope: no event matches {}", clean(&filters.join(" and "))));
        }
    }

    /// The names that were asked for; people write a blank behind a comma.
    pub fn patterns(&self) -> Vec<Pattern> {
        self.event.iter().map(|pattern| Pattern::new(pattern.trim())).collect()
    }

    /// The CPUs that were asked for.
    pub fn cpus(&self) -> Result<Option<BTreeSet<u64>>, Failure> {
        let cpus = self.cpu.as_deref().map(cpu_list).transpose();
        cpus.map_err(|why| Failure::Usage(format!("--cpu: {why}")))
    }

    /// What fields have to be, for people.
    pub fn conditions_as_written(&self) -> Vec<String> {
        let task = self.task.iter().map(|task| format!("task {task}"));
        self.condition.iter().cloned().chain(task).collect()
    }
}

const SECOND: i64 = 1_000_000_000;

/// A time as people write it, in nanoseconds since 1970.
fn moment(text: &str, (begin, end): TimeSpan) -> Result<i64, String> {
    let distance = |text: &str| {
        let duration = text.parse::<rtscope_session::units::DurationNs>()?;
        i64::try_from(duration.0).map_err(|_| "too far away".to_owned())
    };
    if let Some(text) = text.strip_prefix('+') {
        return Ok(begin.ok_or(NO_TIMES)?.saturating_add(distance(text)?));
    }
    if let Some(text) = text.strip_prefix('-') {
        return Ok(end.ok_or(NO_TIMES)?.saturating_sub(distance(text)?));
    }
    if let Ok(ns) = text.parse::<i64>() {
        return Ok(ns);
    }
    if text.contains('T') || text.contains('-') {
        let time = humantime::parse_rfc3339_weak(text).map_err(|error| error.to_string())?;
        let since = time.duration_since(UNIX_EPOCH).map_err(|_| "before 1970".to_owned())?;
        return i64::try_from(since.as_nanos()).map_err(|_| "too far away".to_owned());
    }
    let of_day = time_of_day(text)?;
    let begin = begin.ok_or(NO_TIMES)?;
    let offset = wall_clock::offset_s_at(begin.div_euclid(SECOND)) * SECOND;
    let day = 24 * 3600 * SECOND;
    let midnight = (begin + offset).div_euclid(day) * day - offset;
    let moment = midnight + of_day;
    // A trace may go on past midnight.
    let next_day = moment < begin && end.is_some_and(|end| moment + day <= end);
    Ok(if next_day { moment + day } else { moment })
}

const NO_TIMES: &str = "the trace does not say when it begins and ends";

/// `HH:MM[:SS[.fraction]]` in nanoseconds since midnight.
fn time_of_day(text: &str) -> Result<i64, String> {
    let wrong =
        || format!("'{text}' is not a time; write 13:05:59.25, +1.5s, -2s, or nanoseconds since 1970");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(wrong());
    }
    let fraction: i64 = format!("{fraction:0<9}").parse().map_err(|_| wrong())?;
    let parts: Vec<i64> =
        whole.split(':').map(|part| part.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
    match parts.as_slice() {
        [hours @ 0..24, minutes @ 0..60, rest @ ..]
            if rest.len() < 2 && rest.iter().all(|s| (0..61).contains(s)) =>
        {
            Ok((hours * 3600 + minutes * 60 + rest.first().unwrap_or(&0)) * SECOND + fraction)
        }
        _ => Err(wrong()),
    }
}

/// `0,2-3`
fn cpu_list(text: &str) -> Result<BTreeSet<u64>, String> {
    const MOST: u64 = 1 << 16;
    let mut cpus = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u64>().ok().filter(|cpu| *cpu < MOST);
        let range = number(first).zip(number(last)).filter(|(first, last)| first <= last);
        let (first, last) = range.ok_or_else(|| format!("'{part}' is not a CPU; write 0,2-3"))?;
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// Says what of a trace could not be read, and gives an error if there was any, or if its recorder was killed.
pub fn report_end(trace: &Path, damaged: &mut Vec<DamagedFile>) -> Result<(), Failure> {
    report_damage(damaged)?;
    match stage(trace) {
        Stage::Abandoned => crate::following::how_it_ended(Stage::Abandoned, trace),
        // One that goes on is no error: what there was at the time was read.
        _ => Ok(()),
    }
}

/// Says what could not be read, each place once; the error at the end if there was any.
pub fn report_damage(damaged: &mut Vec<DamagedFile>) -> Result<(), Failure> {
    const SHOWN: usize = 20;
    let key = |file: &DamagedFile| (file.path.clone(), file.damage.packet_at);
    damaged.sort_by_key(key);
    damaged.dedup_by_key(|file| key(file));
    for file in damaged.iter().take(SHOWN) {
        crate::output::note(&format!("rtscope: {}", rtscope_view::clean(&file.to_string())));
    }
    if damaged.len() > SHOWN {
        crate::output::note(&format!("rtscope: and {} more", damaged.len() - SHOWN));
    }
    match damaged.len() {
        0 => Ok(()),
        count => Err(Failure::Damaged(format!(
            "the trace is damaged in {}; the readable part was shown",
            counted(count, "place", "places")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day() {
        assert_eq!(time_of_day("00:00"), Ok(0));
        assert_eq!(time_of_day("13:05:59.25"), Ok((13 * 3600 + 5 * 60 + 59) * SECOND + 250_000_000));
        for wrong in ["", "1", "24:00", "1:60", "1:2:3:4", "1:2:3.x", "1:2:3.1234567890"] {
            assert!(time_of_day(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpu_list("0,2-3").unwrap(), BTreeSet::from([0, 2, 3]));
        for wrong in ["", "a", "3-1", "0-99999999"] {
            assert!(cpu_list(wrong).is_err(), "{wrong}");
        }
    }
}
