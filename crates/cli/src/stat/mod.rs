// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope stat TRACE`: how many events of which kind, from when to when, and what is missing; or what tasks, interrupts and
//! system calls did (`figures`).

mod figures;
mod follow;

use crate::exit::Failure;
use crate::observer::Terminal;
use crate::output::{object, result};
use crate::progress::Progress;
use crate::trace_args::StatOptions;
use rtscope_ctf::count;
use rtscope_session::traces;
use rtscope_session::wall_clock::time_of_day;
use rtscope_view::TraceStat;

/// Opens, counts, shows.
pub fn run(options: &StatOptions) -> Result<(), Failure> {
    let settings = options.settings();
    if options.follow.follow && traces::is_being_made(&options.trace.trace) {
        return follow::run(options);
    }
    if settings.wants_figures() {
        return figures::run(options);
    }
    if options.top.is_some() {
        return Err(Failure::Usage(
            "--top goes with --tasks, --irqs, --syscalls or --latency; add one, or leave --top out"
                .to_owned(),
        ));
    }
    let set = options.trace.open()?;
    let filter = settings.filter;
    let selection = filter.selection(&set, &Terminal::new())?;
    let bytes = set.streams.iter().map(|stream| stream.bytes).sum();
    let progress = Progress::new(bytes);
    let counts = count(&set, &selection, &|done| progress.at(done));
    progress.finish();
    let events = counts.streams.iter().flat_map(|stream| &stream.events).sum();
    let stat = TraceStat::new((&set, traces::stage(&options.trace.trace)), &counts, &selection);
    result(&match options.json {
        true => object(stat.json())?,
        false => stat.text(time_of_day, crate::terminal::style(false)),
    });
    filter.note_if_nothing(events, &Terminal::new());
    let mut damaged = set.damaged;
    damaged.extend(counts.damaged);
    traces::report_end(&options.trace.trace, &mut damaged, &Terminal::new())
}
