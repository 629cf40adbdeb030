// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope print TRACE`: the events of traces, one a line.

mod follow;

use crate::exit::Failure;
use crate::observer::Terminal;
use crate::output::as_asked;
use crate::stop::Stop;
use crate::trace_args::{FormatArg, PrintOptions};
use rtscope_session::following::write_until;
use rtscope_session::print::Lines;
use rtscope_session::wall_clock::time_of_day;
use rtscope_session::{Observer, traces};
use rtscope_view::missing_lines;
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
    let printer = options.printer();
    printer.note(&set, &selection).iter().for_each(|text| observer.note(text));
    printer.print(&mut lines, &set, &selection);
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
            Some(stop) => write_until(&mut self.file, &asked, stop),
            None => self.file.write_all(&asked),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
