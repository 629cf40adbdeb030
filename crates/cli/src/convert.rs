// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope convert TRACE OUT --to FORMAT`: traces for other tools.

use crate::exit::{Failure, help};
use crate::observer::Terminal;
use crate::output::note;
use crate::progress::Progress;
use crate::stop::on_signals;
use crate::trace_args::EventOptions;
use clap::{ValueEnum, ValueHint};
use rtscope_ctf::{Cut, cut};
use rtscope_session::Observer;
use rtscope_session::traces::{self, EventFilter};
use rtscope_session::watch::files;
use rtscope_session::whole_file;
use rtscope_view::perfetto::{self, CounterField, Settings};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

const EXAMPLES: &str = help!(
    "Examples:
  rtscope convert trace/ trace.pftrace --to perfetto
      Everything, for ui.perfetto.dev and for Perfetto's trace_processor.
  rtscope convert late/20261120T234107Z-1 late.pftrace --to perfetto
      A saved late response: a span for it, with its steps.
  rtscope convert trace/ part.pftrace --to perfetto --from +1.5s --until +1.6s
      A tenth of a second.
  rtscope convert trace/ motor.pftrace --to perfetto --counter motor:setpoint.target
      Also draw a field of a program's event as a curve.
  rtscope convert trace/ - --to perfetto | gzip > trace.pftrace.gz
      Perfetto opens compressed traces, too.
  rtscope convert trace/ part/ --to ctf --from 13:05:59.2 --until 13:05:59.3
      A smaller trace, for any reader of CTF: events as they are, losses where they were.
  rtscope convert trace/ control/ --to ctf --task control --event 'sched_*'
      Of certain events alone.

What the views show: docs/perfetto.md. What a cut keeps and loses: docs/how-to/traces.md."
);

/// What traces are converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// A file for ui.perfetto.dev
    Perfetto,
    /// A trace with a part of the events
    Ctf,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ConvertOptions {
    /// The directory of a trace. Traces in directories below it are merged
    #[arg(value_hint = ValueHint::DirPath)]
    pub trace: PathBuf,
    /// The file to write; - is standard output. With --to ctf: the directory to make
    #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub out: PathBuf,
    /// The format to convert to
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub to: Target,
    /// Not before this time: 13:05:59.25, 2026-11-20T13:05:59Z, nanoseconds since 1970, +1.5s (after the first event) or
    /// -2s (before the last)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Not after this time (as for --from)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub until: Option<String>,
    #[command(flatten)]
    pub events: EventOptions,
    /// With --to perfetto: draw this field of an event (whose name may have * and ?) as a counter; may be repeated
    #[arg(long, value_name = "EVENT.FIELD")]
    pub counter: Vec<CounterField>,
}

impl ConvertOptions {
    /// Which events are wanted.
    fn filter(&self) -> EventFilter {
        EventFilter {
            from: self.from.clone(),
            until: self.until.clone(),
            options: ("from", "until"),
            ..self.events.filter()
        }
    }
}

/// Opens, converts, says what is missing.
pub fn run(options: &ConvertOptions) -> Result<(), Failure> {
    match options.to {
        Target::Perfetto => to_perfetto(options),
        Target::Ctf => to_ctf(options),
    }
}

fn to_ctf(options: &ConvertOptions) -> Result<(), Failure> {
    if !options.counter.is_empty() {
        return Err(Failure::Usage("--counter goes with --to perfetto; leave it out".to_owned()));
    }
    if options.out.as_os_str() == "-" {
        return Err(Failure::Usage("a trace is a directory: give OUT a name".to_owned()));
    }
    let mut set = traces::open(&options.trace, &Terminal::new())?;
    let filter = options.filter();
    let selection = filter.selection(&set, &Terminal::new())?;
    let part = Cut {
        set: &set,
        root: &options.trace,
        selection: &selection,
        conditions: &filter.conditions_as_written(),
    };
    let stop = on_signals()?;
    let done = AtomicU64::new(0);
    let progress = Progress::new(set.streams.iter().map(|stream| stream.bytes).sum());
    let made = cut(&part, &options.out, &|bytes| {
        // ORDER: none; a sum that nothing else depends on.
        progress.at(done.fetch_add(bytes, Ordering::Relaxed) + bytes);
        !stop.asked()
    });
    progress.finish();
    let made = made.map_err(|error| Failure::Failed(error.to_string()))?;
    let selected = made.events.saturating_sub(made.dump_events);
    filter.note_if_nothing(selected, &Terminal::new());
    let mut damaged = made.damaged;
    damaged.append(&mut set.damaged);
    traces::report_end(&options.trace, &mut damaged, &Terminal::new())
}

fn to_perfetto(options: &ConvertOptions) -> Result<(), Failure> {
    let mut set = traces::open(&options.trace, &Terminal::new())?;
    let filter = options.filter();
    let selection = filter.selection(&set, &Terminal::new())?;
    let doubts = perfetto::check_counters(&set, &options.counter).map_err(Failure::Usage)?;
    doubts.iter().for_each(|text| Terminal::new().note(text));
    let settings = Settings {
        kernel_release: perfetto::kernel_release(&set),
        is_selection: !selection.events.is_empty() || !selection.conditions.is_empty(),
        late: files::trigger(&options.trace)?.map(|trigger| trigger.late).unwrap_or_default(),
        counters: options.counter.clone(),
    };
    let stop = on_signals()?;
    let mut damaged = std::mem::take(&mut set.damaged);
    let failed = |error| Failure::system(format!("writing {}", options.out.display()), &error);
    let progress = Progress::new(100);
    let mut at = |percent| {
        progress.at(percent);
        !stop.asked()
    };
    let written = match options.out.as_os_str() == "-" {
        true => perfetto::convert_traces((&set, &selection), io::stdout().lock(), &settings, &mut at),
        false => whole_file::make(&options.out, |file| {
            perfetto::convert_traces((&set, &selection), file, &settings, &mut at)
        }),
    };
    progress.finish();
    let (summary, mut found) = match written {
        // The reader needs no more.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
        written => written.map_err(failed)?,
    };
    for line in perfetto::notes(&summary) {
        note(&format!("rtscope: {line}"));
    }
    damaged.append(&mut found);
    traces::report_end(&options.trace, &mut damaged, &Terminal::new())
}
