// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope print TRACE`: the events of traces, one a line.

mod follow;

use crate::exit::Failure;
use crate::observer::Terminal;
use crate::output::{as_asked, note};
use crate::stop::Stop;
use crate::trace_args::{FormatArg, PrintOptions};
use rtscope_ctf::{DamagedFile, Format, Piece, Selection, TaskNames, TraceSet, print};
use rtscope_session::traces;
use rtscope_session::wall_clock::time_of_day;
use rtscope_view::{
    Addition, Architecture, CsvFormat, JsonFormat, PrettyFormat, Resolver, Resolving, Saying, Who,
    missing_lines, to_read, why_not,
};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

/// Opens, prints, says what is missing.
pub fn run(options: &PrintOptions) -> Result<(), Failure> {
    if !options.fields.is_empty() && options.format != FormatArg::Csv {
        return Err(Failure::Usage(
            "--fields is for --format csv; add that, or leave --fields out".to_owned(),
        ));
    }
    if options.clock_raw && !matches!(options.format, FormatArg::Text | FormatArg::Babeltrace) {
        return Err(Failure::Usage("--clock-raw is for --format text and babeltrace".to_owned()));
    }
    if options.resolve && options.format == FormatArg::Csv {
        return Err(Failure::Usage("--resolve is for --format text and json".to_owned()));
    }
    if options.resolve && options.follow.follow {
        return Err(Failure::Usage("--resolve needs a finished recording; leave --follow out".to_owned()));
    }
    if options.follow.follow && traces::is_being_made(&options.trace.trace) {
        return follow::run(options);
    }
    let mut set = options.trace.open()?;
    let filter = options.trace.filter();
    let selection = filter.selection(&set, &Terminal::new())?;
    let mut out = Output::new().map_err(|error| Failure::doing("opening standard output", error))?;
    let limit = options.head.unwrap_or(u64::MAX);
    let who = || Who::new(&set, TaskNames::of(&set));
    match options.format {
        FormatArg::Babeltrace => {
            let format = PrettyFormat::new(&set, time_of_day, options.clock_raw);
            match options.resolve {
                true => out.resolved(&set, &selection, limit, format, Addition::Text),
                false => out.events(&set, &selection, limit, &format),
            }
        }
        FormatArg::Text => {
            let format = PrettyFormat::for_people(&set, time_of_day, options.clock_raw, who());
            let format = Saying::new(&set, format, Addition::Text);
            match options.resolve {
                true => out.resolved(&set, &selection, limit, format, Addition::Text),
                false => out.events(&set, &selection, limit, &format),
            }
        }
        FormatArg::Json => {
            let format = Saying::new(&set, JsonFormat::new(&set, who()), Addition::Json);
            match options.resolve {
                true => out.resolved(&set, &selection, limit, format, Addition::Json),
                false => out.events(&set, &selection, limit, &format),
            }
        }
        FormatArg::Csv => {
            let format = CsvFormat::new(&set, &options.fields, who());
            out.bytes(format.header().as_bytes());
            out.events(&set, &selection, limit, &format);
        }
    }
    match out.failure {
        // The reader needs no more.
        Some(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
        Some(error) => return Err(Failure::system("writing to standard output", &error)),
        None => {}
    }
    if limit > 0 {
        filter.note_if_nothing(out.events, &Terminal::new());
    }
    for line in missing_lines(&set, time_of_day) {
        note(&format!("rtscope: {}", rtscope_view::clean(&line)));
    }
    let mut damaged = std::mem::take(&mut set.damaged);
    damaged.append(&mut out.damaged);
    traces::report_end(&options.trace.trace, &mut damaged, &Terminal::new())
}

/// Standard output without a buffer of its own: pieces are large.
struct Output {
    file: File,
    failure: Option<io::Error>,
    damaged: Vec<DamagedFile>,
    /// Printed so far.
    events: u64,
    /// What may end a write that takes long.
    stop: Option<Stop>,
}

impl Output {
    fn new() -> io::Result<Output> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Output { file, failure: None, damaged: Vec::new(), events: 0, stop: None })
    }

    fn bytes(&mut self, bytes: &[u8]) {
        if self.failure.is_none() {
            self.failure = match &self.stop {
                Some(stop) => follow::write(&mut self.file, bytes, stop).err(),
                None => self.file.write_all(bytes).err(),
            };
        }
    }

    fn events<F: Format>(&mut self, set: &TraceSet, selection: &Selection, limit: u64, format: &F) {
        let mut before = None;
        let mut left = limit;
        print(set, selection, limit, format, &mut |piece: &mut Piece| {
            self.piece(piece, left, &mut before, format);
            left = left.saturating_sub(piece.events);
            left > 0 && self.failure.is_none()
        });
    }

    /// The same, with what numbers in system calls mean.
    fn resolved<F: Format>(
        &mut self,
        set: &TraceSet,
        selection: &Selection,
        limit: u64,
        format: F,
        addition: Addition,
    ) {
        let why_not = why_not(set, selection);
        if let Some(why) = why_not {
            note(&format!("rtscope: descriptors are shown as numbers: {why}"));
        }
        let format = Resolving::new(set, format, addition, architecture(set), selection);
        let mut resolver = Resolver::new(addition, why_not.is_none());
        let (mut before, mut left) = (None, limit);
        print(set, &to_read(selection), limit, &format, &mut |piece: &mut Piece| {
            resolver.piece(piece);
            self.piece(piece, left, &mut before, &format);
            left = left.saturating_sub(piece.events);
            left > 0 && self.failure.is_none()
        });
    }

    /// At most `left` events. `before`: of the last event of the piece before.
    fn piece<F: Format>(&mut self, piece: &mut Piece, left: u64, before: &mut Option<u64>, format: &F) {
        let end = if piece.events > left { lines_end(&piece.text, left) } else { piece.text.len() };
        let text = piece.text.get(..end).unwrap_or_default();
        let (head, rest) = text.split_at(piece.first.map_or(0, |(_, at)| at).min(end));
        let mut gap = Vec::new();
        if let Some((first, _)) = piece.first.filter(|_| end > 0) {
            format.gap(*before, first, &mut gap);
        }
        self.bytes(&as_asked(head));
        self.bytes(&gap);
        self.bytes(&as_asked(rest));
        *before = piece.last.or(*before);
        self.events = self.events.saturating_add(piece.events);
        self.damaged.append(&mut piece.damaged);
    }
}

/// That of the traces: several constants of system calls differ between architectures.
fn architecture(set: &TraceSet) -> Architecture {
    let uname = nix::sys::utsname::uname().ok();
    let text =
        |text: Option<&std::ffi::OsStr>| text.and_then(|text| text.to_str()).unwrap_or_default().to_owned();
    let host = text(uname.as_ref().map(|uname| uname.nodename()));
    let kernel = text(uname.as_ref().map(|uname| uname.release()));
    let machine = text(uname.as_ref().map(|uname| uname.machine()));
    Architecture::of(set, (&host, &kernel, &machine))
}

/// Length of the first lines.
fn lines_end(text: &[u8], lines: u64) -> usize {
    let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    match usize::try_from(lines) {
        Ok(0) => 0,
        Ok(lines) => ends.take(lines).last().unwrap_or(0),
        Err(_) => text.len(),
    }
}
