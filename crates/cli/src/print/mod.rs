// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope print TRACE`: the events of traces, one a line.

mod follow;

use crate::exit::Failure;
use crate::observer::Terminal;
use crate::output::{as_asked, note};
use crate::stop::Stop;
use crate::trace_args::{FormatArg, PrintOptions};
use rtscope_ctf::{Format, Selection, TaskNames, TraceSet};
use rtscope_session::print::Lines;
use rtscope_session::wall_clock::time_of_day;
use rtscope_session::{Observer, traces};
use rtscope_view::{
    Addition, Architecture, CsvFormat, JsonFormat, PrettyFormat, Resolver, Resolving, Saying, Who,
    missing_lines, to_read, why_not,
};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::rc::Rc;

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
    let set = options.trace.open()?;
    let (filter, observer) = (options.trace.filter(), Terminal::new());
    let selection = filter.selection(&set, &observer)?;
    if !options.fields.is_empty() {
        let fields: Vec<&str> = options.fields.iter().map(String::as_str).collect();
        selection.check_fields(&set, &fields).map_err(Failure::Usage)?;
    }
    let mut lines = Lines::new(Events::new(None)?, options.head.unwrap_or(u64::MAX));
    let printing = Printing { set: &set, selection: &selection, resolve: options.resolve };
    let who = || Who::new(&set, TaskNames::of(&set));
    match options.format {
        FormatArg::Babeltrace => {
            let format = PrettyFormat::new(&set, time_of_day, options.clock_raw);
            printing.write(&mut lines, format, Addition::Text);
        }
        FormatArg::Text => {
            let format = PrettyFormat::for_people(&set, time_of_day, options.clock_raw, who());
            printing.write(&mut lines, Saying::new(&set, format, Addition::Text), Addition::Text);
        }
        FormatArg::Json => {
            let format = JsonFormat::new(&set, who());
            printing.write(&mut lines, Saying::new(&set, format, Addition::Json), Addition::Json);
        }
        FormatArg::Csv => {
            let format = CsvFormat::new(&set, &options.fields, who());
            lines.text(format.header().as_bytes());
            lines.print(&set, &selection, &format, &mut |_| {});
        }
    }
    // The reader may need no more.
    let Some(written) = lines.finish()? else { return Ok(()) };
    if options.head != Some(0) {
        filter.note_if_nothing(written.events, &observer);
    }
    missing_lines(&set, time_of_day).iter().for_each(|line| observer.note(line));
    let mut damaged = set.damaged;
    damaged.extend(written.damaged);
    traces::report_end(&options.trace.trace, &mut damaged, &observer)
}

/// What is printed.
struct Printing<'s> {
    set: &'s TraceSet,
    selection: &'s Selection,
    resolve: bool,
}

impl Printing<'_> {
    /// In this format; with what numbers in system calls mean if that was asked for.
    fn write<F: Format>(&self, lines: &mut Lines<Events>, format: F, addition: Addition) {
        let Printing { set, selection, resolve } = self;
        if !resolve {
            return lines.print(set, selection, &format, &mut |_| {});
        }
        let why_not = why_not(set, selection);
        if let Some(why) = why_not {
            note(&format!("rtscope: descriptors are shown as numbers: {why}"));
        }
        let format = Resolving::new(set, format, addition, architecture(set), selection);
        let mut resolver = Resolver::new(addition, why_not.is_none());
        lines.print(set, &to_read(selection), &format, &mut |piece| resolver.piece(piece));
    }
}

/// Standard output without a buffer of its own: pieces are large.
struct Events {
    file: File,
    /// What may end a write that takes long.
    stop: Option<Rc<Stop>>,
}

impl Events {
    fn new(stop: Option<Rc<Stop>>) -> Result<Events, Failure> {
        let file = io::stdout().as_fd().try_clone_to_owned();
        let file = file.map_err(|error| Failure::doing("opening standard output", error))?;
        Ok(Events { file: File::from(file), stop })
    }
}

impl Write for Events {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    /// The one that is provided would try again when somebody has asked to stop.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let asked = as_asked(bytes);
        match &self.stop {
            Some(stop) => follow::write(&mut self.file, &asked, stop),
            None => self.file.write_all(&asked),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
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
