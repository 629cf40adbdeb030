// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope convert TRACE OUT --to FORMAT`: traces for other tools.

use crate::exit::{Failure, help};
use crate::observer::Terminal;
use crate::output::note;
use crate::progress::Progress;
use crate::stop::{Stop, on_signals};
use crate::trace_args::EventOptions;
use clap::{ValueEnum, ValueHint};
use rtscope_ctf::{Cut, Pattern, Selection, TraceSet, cut, read};
use rtscope_session::traces::{self, EventFilter};
use rtscope_session::watch::files;
use rtscope_session::whole_file;
use rtscope_view::perfetto::{self, CounterField, Settings, Summary};
use std::io::{self, BufWriter, Write};
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
    check_counters(&set, &options.counter)?;
    let settings = Settings {
        kernel_release: perfetto::kernel_release(&set),
        is_selection: !selection.events.is_empty() || !selection.conditions.is_empty(),
        late: files::trigger(&options.trace)?.map(|trigger| trigger.late).unwrap_or_default(),
        counters: options.counter.clone(),
    };
    let stop = on_signals()?;
    let mut damaged = std::mem::take(&mut set.damaged);
    let failed = |error| Failure::system(format!("writing {}", options.out.display()), &error);
    let written = match options.out.as_os_str() == "-" {
        true => convert(&set, &selection, &settings, io::stdout().lock(), &stop),
        false => whole_file::make(&options.out, |file| convert(&set, &selection, &settings, file, &stop)),
    };
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

/// A misspelt name would draw nothing.
fn check_counters(set: &TraceSet, counters: &[CounterField]) -> Result<(), Failure> {
    for counter in counters {
        let (event, field) = counter.names();
        let refused = |why| Failure::Usage(format!("--counter {event}.{field}: {why}"));
        let having = Selection { events: vec![Pattern::new(event)], ..Selection::default() };
        let notes = having.check(set).map_err(refused)?;
        notes.iter().for_each(|text| note(&format!("rtscope: {}", rtscope_view::clean(text))));
        if notes.is_empty() {
            having.check_fields(set, &[field]).map_err(refused)?;
        }
    }
    Ok(())
}

type Converted = (Summary, Vec<rtscope_ctf::DamagedFile>);

fn convert(
    set: &TraceSet,
    selection: &Selection,
    settings: &Settings,
    out: impl Write,
    stop: &Stop,
) -> io::Result<Converted> {
    const BUFFER: usize = 1 << 20;
    let (begin, end) = set.span();
    let (begin, end) = (selection.from_ns.or(begin).unwrap_or(0), selection.to_ns.or(end).unwrap_or(0));
    let progress = Progress::new(end.abs_diff(begin));
    read(set, selection, &|_| true, |source| {
        let out = BufWriter::with_capacity(BUFFER, out);
        let converted = perfetto::convert(source, out, settings, &mut |time| {
            progress.at(time.abs_diff(begin));
            !stop.asked()
        });
        progress.finish();
        if stop.asked() {
            return Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "stopped before the end; no file was made",
            ));
        }
        let summary = converted?;
        // Perfetto opens no file without events.
        if summary.events == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no event is selected; no file was made",
            ));
        }
        Ok((summary, std::mem::take(&mut source.damaged)))
    })
}
