// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `print`, `stat` and `convert` have in common: which traces, and which of their events.

use crate::exit::{Failure, help};
use crate::observer::Terminal;
use clap::{ValueEnum, ValueHint};
use rtscope_ctf::TraceSet;
use rtscope_session::stat::StatSettings;
use rtscope_session::traces::{self, EventFilter};
use rtscope_session::units::DurationNs;
use rtscope_session::wall_clock::time_of_day;
use rtscope_view::{EventFormat, EventPrinter};
use std::path::PathBuf;

const PRINT_EXAMPLES: &str = help!(
    "Examples:
  rtscope print late/20261120T234107Z-1
      All events, with thread and CPU.
  rtscope print trace/ --format babeltrace
      The same as babeltrace2 prints it.
  rtscope print trace/ --event 'sched_*' --task control --from +1.5s --to +1.6s
      What the scheduler did with a task within a tenth of a second.
  rtscope print trace/ --event 'sched:*,!sched_stat_*'
      All events of the scheduler but these.
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

#[derive(Debug, clap::Args)]
pub struct EventOptions {
    /// Only events with this name (with * and ?), as in the trace or as rtscope list and -k write it (irq:softirq_entry, syscalls,
    /// PROVIDER); !NAME leaves out; separated by commas
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

impl TraceOptions {
    /// Opens the traces.
    pub fn open(&self) -> Result<TraceSet, Failure> {
        traces::open(&self.trace, &Terminal::new())
    }

    /// Which of their events are wanted.
    pub fn filter(&self) -> EventFilter {
        EventFilter { from: self.from.clone(), until: self.to.clone(), ..self.events.filter() }
    }
}

impl PrintOptions {
    /// How events are printed.
    pub fn printer(&self) -> EventPrinter<'_> {
        let format = match self.format {
            FormatArg::Text => EventFormat::Text,
            FormatArg::Babeltrace => EventFormat::Babeltrace,
            FormatArg::Json => EventFormat::Json,
            FormatArg::Csv => EventFormat::Csv,
        };
        EventPrinter {
            format,
            fields: &self.fields,
            clock_raw: self.clock_raw,
            resolve: self.resolve,
            clock: time_of_day,
        }
    }
}

impl StatOptions {
    /// What they ask for, beside counts.
    pub fn settings(&self) -> StatSettings {
        StatSettings {
            tasks: self.tasks,
            irqs: self.irqs,
            syscalls: self.syscalls,
            latency: self.latency.clone(),
            filter: self.trace.filter(),
        }
    }
}

impl EventOptions {
    /// What they ask for, at any time.
    pub fn filter(&self) -> EventFilter {
        EventFilter {
            events: self.event.clone(),
            conditions: self.condition.clone(),
            task: self.task.clone(),
            cpus: self.cpu.clone(),
            ..EventFilter::default()
        }
    }
}
