// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope stat --syscalls`: what system calls took.

use super::columns::Columns;
use super::figures::{Wanted, mean_text, missing_text, percentile_text, span_text};
use crate::event::Clock;
use crate::label::clean;
use crate::style::Style;
use crate::units::{count_text, duration_text};
use nix::errno::Errno;
use rtscope_analyze::stat::SyscallsReport;
use serde::Serialize;

/// Name and version of the object.
pub const STAT_SYSCALLS_SCHEMA: &str = "rtscope.stat.syscalls/1";

#[derive(Serialize)]
struct Object<'r> {
    schema: &'static str,
    #[serde(flatten)]
    report: &'r SyscallsReport,
}

/// One line of JSON.
///
/// # Errors
/// When serde_json refuses, which none of these types gives it reason to.
pub fn syscalls_json(report: &SyscallsReport) -> serde_json::Result<String> {
    serde_json::to_string(&Object { schema: STAT_SYSCALLS_SCHEMA, report })
}

/// For people.
#[must_use]
pub fn syscalls_text(report: &SyscallsReport, wanted: &Wanted, clock: Clock, style: Style) -> String {
    let mut text = format!("Time     {}\n\n", span_text(&report.span, clock));
    if report.syscalls.is_empty() {
        text.push_str("The trace has no system calls. `rtscope record -k syscalls` records them.\n");
        return text;
    }
    let mut columns = Columns::new(
        ["system call", "times", "unfinished", "in all", "mean", "99 %", "longest", "by", "errors", ""],
        &[0, 7, 9],
    )
    .expendable(&[2, 9, 5, 4, 7])
    .whole(&[9]);
    for call in report.syscalls.iter().take(wanted.limit()) {
        let by = call
            .longest_by
            .as_ref()
            .map_or("-".to_owned(), |who| format!("{} ({})", clean(&who.comm), who.tid));
        let errors = call
            .error_numbers
            .iter()
            .map(|(number, count)| format!("{} {}", error_name(*number), count_text(*count)));
        columns.row([
            clean(&call.calls.name),
            count_text(call.calls.count),
            count_text(call.calls.unfinished),
            duration_text(call.calls.total_ns),
            mean_text(call.calls.total_ns, call.calls.count - call.calls.unfinished),
            percentile_text(&call.percentiles, 99_000),
            duration_text(call.calls.longest_ns),
            by,
            count_text(call.calls.errors),
            errors.collect::<Vec<_>>().join(", "),
        ]);
    }
    text.push_str(&columns.text(style));
    if report.syscalls.len() > wanted.limit() {
        let more = report.syscalls.len() - wanted.limit();
        text.push_str(&format!("and {more} more (--top 0 shows all)\n"));
    }
    text.push('\n');
    text.push_str(&missing_text(&report.missing));
    text
}

/// As errno(3) has it; the kernel's own numbers for calls that are begun again are named as strace does.
fn error_name(number: u16) -> String {
    match number {
        512 => "ERESTARTSYS".to_owned(),
        513 => "ERESTARTNOINTR".to_owned(),
        514 => "ERESTARTNOHAND".to_owned(),
        516 => "ERESTART_RESTARTBLOCK".to_owned(),
        _ => match Errno::from_raw(number.into()) {
            Errno::UnknownErrno => number.to_string(),
            known => format!("{known:?}"),
        },
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn errors_have_their_names() {
        assert_eq!(super::error_name(2), "ENOENT");
        assert_eq!(super::error_name(512), "ERESTARTSYS");
        assert_eq!(super::error_name(4000), "4000");
    }
}
