// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events on their way out in the format that was asked for: of finished traces, and of a recording that is being made.

use super::{
    Addition, Architecture, Clock, CsvFormat, JsonFormat, PrettyFormat, Resolver, Resolving, Saying, Who,
    to_read, why_not,
};
use rtscope_ctf::{Format, Selection, Stage, TaskNames, TraceSet};
use rtscope_session::Failure;
use rtscope_session::print::{Audience, FollowedLines, Lines};
use std::io::Write;

/// The format of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFormat {
    /// Lines with time, thread, CPU, name and fields.
    Text,
    /// That of babeltrace2, byte for byte.
    Babeltrace,
    /// One JSON object a line.
    Json,
    /// Values separated by commas.
    Csv,
}

/// How events are printed.
#[derive(Clone, Copy, Debug)]
pub struct EventPrinter<'p> {
    /// In which format.
    pub format: EventFormat,
    /// Columns of CSV.
    pub fields: &'p [String],
    /// Raw values of clocks instead of times of day.
    pub clock_raw: bool,
    /// With what numbers in system calls mean.
    pub resolve: bool,
    /// Times of day.
    pub clock: Clock,
}

impl EventPrinter<'_> {
    /// What is to be said before the events.
    #[must_use]
    pub fn note(&self, set: &TraceSet, selection: &Selection) -> Option<String> {
        let why = why_not(set, selection).filter(|_| self.resolve)?;
        Some(format!("descriptors are shown as numbers: {why}"))
    }

    /// Events of traces.
    pub fn print<W: Write>(&self, lines: &mut Lines<W>, set: &TraceSet, selection: &Selection) {
        let who = || Who::new(set, TaskNames::of(set));
        let of = (set, selection);
        match self.format {
            EventFormat::Babeltrace => {
                let format = PrettyFormat::new(set, self.clock, self.clock_raw);
                self.write(lines, of, format, Addition::Text);
            }
            EventFormat::Text => {
                let format = PrettyFormat::for_people(set, self.clock, self.clock_raw, who());
                self.write(lines, of, Saying::new(set, format, Addition::Text), Addition::Text);
            }
            EventFormat::Json => {
                let format = JsonFormat::new(set, who());
                self.write(lines, of, Saying::new(set, format, Addition::Json), Addition::Json);
            }
            EventFormat::Csv => {
                let format = CsvFormat::new(set, self.fields, who());
                lines.text(format.header().as_bytes());
                lines.print(set, selection, &format, &mut |_| {});
            }
        }
    }

    /// With what numbers in system calls mean, if that was asked for.
    fn write<W: Write, F: Format>(
        &self,
        lines: &mut Lines<W>,
        (set, selection): (&TraceSet, &Selection),
        format: F,
        addition: Addition,
    ) {
        if !self.resolve {
            return lines.print(set, selection, &format, &mut |_| {});
        }
        let follows = why_not(set, selection).is_none();
        let format = Resolving::new(set, format, addition, architecture(set), selection);
        let mut resolver = Resolver::new(addition, follows);
        lines.print(set, &to_read(selection), &format, &mut |piece| resolver.piece(piece));
    }

    /// Events of a recording, until it ends or its audience has seen enough.
    ///
    /// # Errors
    /// When the trace cannot be read, and for a format that has to know all kinds of events at the beginning.
    pub fn follow<W: Write>(
        &self,
        lines: &mut Lines<W>,
        followed: &mut FollowedLines<'_>,
        audience: &mut dyn Audience,
    ) -> Result<Stage, Failure> {
        let names = followed.names();
        let who = |set: &TraceSet| Who::new(set, names.clone());
        let (clock, raw) = (self.clock, self.clock_raw);
        match self.format {
            EventFormat::Text => {
                let format = |set: &TraceSet| {
                    let format = PrettyFormat::for_people(set, clock, raw, who(set));
                    Saying::new(set, format, Addition::Text)
                };
                followed.print(lines, &format, audience)
            }
            EventFormat::Babeltrace => {
                followed.print(lines, &|set| PrettyFormat::new(set, clock, raw), audience)
            }
            EventFormat::Json => {
                let format = |set: &TraceSet| Saying::new(set, JsonFormat::new(set, who(set)), Addition::Json);
                followed.print(lines, &format, audience)
            }
            EventFormat::Csv => Err(Failure::Usage(
                "--format csv needs all kinds of events at the beginning, which --follow does not know; use text or json"
                    .to_owned(),
            )),
        }
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
