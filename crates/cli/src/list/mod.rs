// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope list`: instrumented programs, or with `-k` the kernel's tracepoints.

pub mod options;

use crate::exit::Failure;
use crate::observer::Terminal;
use crate::output::{note, result};
use options::ListOptions;
use rtscope_session::list::{self, TracepointList};
use rtscope_view::list as view;

/// This many tracepoints are shown with their fields without being asked.
const FEW: usize = 10;

/// Prints the list.
pub fn run(options: &ListOptions) -> Result<(), Failure> {
    if options.user || !options.kernel && options.patterns.is_empty() {
        return programs(options);
    }
    let list = TracepointList::matching(&options.patterns)?;
    if options.json {
        result(&view::tracepoints_json(&list.formats()?));
    } else if options.verbose || list.tracepoints.len() <= FEW {
        result(&view::described_text(&list.formats()?, options.verbose));
    } else {
        result(&view::names_text(&list.tracepoints));
    }
    Ok(())
}

fn programs(options: &ListOptions) -> Result<(), Failure> {
    let programs = list::programs(&options.patterns, &Terminal::new())?;
    if options.json {
        result(&view::programs_json(&programs));
    } else if programs.is_empty() {
        note(
            "rtscope: no instrumented program is running (docs/programs.md); rtscope list -k lists the kernel's tracepoints",
        );
    } else {
        result(&view::programs_text(&programs, options.verbose));
    }
    Ok(())
}
