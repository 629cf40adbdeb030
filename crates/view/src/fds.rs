// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope fds`: descriptors as a table and as JSON.

use crate::json::report_json;
use crate::label::clean;
use crate::style::Style;
use crate::units::{counted, duration_text, reach_text};
use rtscope_analyze::descriptors::{ClosedBy, ClosedRow, DescriptorRow, Opener, Reached};
use rtscope_event::{Discovery, MonotonicNs};
use rtscope_session::command::CommandEnd;
use rtscope_session::fds::FdsReport;
use std::fmt::Write;

/// Name and version of a report.
pub const FDS_SCHEMA: &str = "rtscope.fds/1";

/// One line of JSON. `command`: how COMMAND ended, if there was one and it ended by itself.
///
/// # Errors
/// When serde_json refuses, which none of these types gives it reason to.
pub fn fds_json(report: &FdsReport, command: Option<CommandEnd>) -> serde_json::Result<String> {
    report_json(FDS_SCHEMA, report, command)
}

const FILE: usize = 40;

/// A report for people.
#[must_use]
pub fn fds_text(report: &FdsReport, style: Style) -> String {
    let rows = &report.report.descriptors;
    let open = rows.iter().filter(|row| row.closed.is_none()).count();
    let title = format!(
        "{} open after {}, {} closed in the last {}",
        counted(open as u64, "descriptor", "descriptors"),
        duration_text(report.at_ns / 1_000_000 * 1_000_000),
        rows.len() - open,
        reach_text(report.closed_for_ns)
    );
    let mut text = format!("{}\n", style.strong(&title));
    let mut last = None;
    for row in rows {
        let section = (row.pid, row.closed.is_some());
        if last != Some(section) {
            let word = if row.closed.is_some() { "closed" } else { "open" };
            let _ =
                writeln!(text, "\n{}", style.strong(&format!("{}/{} {word}", clean(&row.comm), row.pid.0)));
            last = Some(section);
        }
        text.push_str(&style.line(&line(row, report.time)));
        text.push('\n');
    }
    text.push_str(&missing(report, style));
    text
}

fn line(row: &DescriptorRow, now: MonotonicNs) -> String {
    let file = row.file.as_deref().map_or_else(|| "not known".to_owned(), clean);
    let mut line = format!("{:>5}  {file:<FILE$}", row.fd);
    if let Some(access) = row.open_flags.map(access) {
        let _ = write!(line, " {access}");
    }
    if row.cloexec {
        line.push_str(" cloexec");
    }
    let ago = |time: MonotonicNs| format!("{} ago", duration_text(now.since(time)));
    match row.given.reached {
        Reached::Before => line.push_str(", from before"),
        Reached::Inherited => {
            let _ = write!(line, ", inherited {}", ago(row.given.by.time));
        }
        Reached::Given => {
            let _ = write!(line, ", {} {}", by(&row.given.by, row), ago(row.given.by.time));
        }
    }
    if let Some(opened) = row.opened.filter(|opened| *opened != row.given.by) {
        let _ = write!(line, "; file {} {}", by(&opened, row), ago(opened.time));
    }
    if let Some(closed) = row.closed {
        let _ = write!(line, "; closed {} {}", closed_by(&closed, row), ago(closed.time));
    }
    if !row.shared_with.is_empty() {
        let pids: Vec<String> = row.shared_with.iter().map(|pid| pid.0.to_string()).collect();
        let _ = write!(line, "; shared with {}", pids.join(", "));
    }
    line
}

/// `openat by 12`: the thread where it is not the process's first.
fn by(opener: &Opener, row: &DescriptorRow) -> String {
    let call = opener.call.unwrap_or("a call");
    let found = if opener.discovery == Discovery::Found { "found behind " } else { "" };
    match opener.tid.0 == row.pid.0 {
        true => format!("{found}{call}"),
        false => format!("{found}{call} by {}", opener.tid.0),
    }
}

fn closed_by(closed: &ClosedRow, row: &DescriptorRow) -> String {
    let who = closed.tid.filter(|tid| tid.0 != row.pid.0).map(|tid| format!(" by {}", tid.0));
    let what = match closed.by {
        ClosedBy::Call => format!("by {}", closed.call.unwrap_or("a call")),
        ClosedBy::Replaced => {
            format!("by {}, which put another in its place", closed.call.unwrap_or("a call"))
        }
        ClosedBy::Exec => "by exec".to_owned(),
        ClosedBy::Exit => "at the end".to_owned(),
        ClosedBy::Unknown => "unseen".to_owned(),
    };
    format!("{what}{}", who.unwrap_or_default())
}

/// `rw`, `r`, `w`, or `path`: the way it was opened.
fn access(flags: u32) -> &'static str {
    const O_PATH: u32 = 0o10_000_000;
    match flags {
        flags if flags & O_PATH != 0 => "path",
        flags if flags & 3 == 0 => "r",
        flags if flags & 3 == 1 => "w",
        _ => "rw",
    }
}

/// What is missing, by cause.
fn missing(report: &FdsReport, style: Style) -> String {
    let (losses, counts) = (&report.losses, &report.report.counts);
    let mut parts = Vec::new();
    let mut add = |count: u64, what: &str| {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    };
    add(losses.ring_full, "records found no room (--buffer)");
    add(losses.skipped_programs.unwrap_or(0), "runs of eBPF programs were skipped by the kernel");
    add(losses.unsettled, "slots were changed by others each time that they were looked at");
    add(losses.malformed, "records could not be understood");
    add(losses.remote, "descriptors were put into another process (seccomp)");
    add(losses.unfollowed, "children are not followed, as there are too many");
    add(losses.beyond, "times only the beginning of a large table was told");
    add(
        losses.large,
        "times a table had more than 4096 numbers, and what came in a message beyond them was not looked for",
    );
    add(counts.files_not_known, "files are not known");
    add(counts.ends_not_seen, "ends of tasks were not seen");
    add(counts.open_not_kept, "open descriptors were not kept, as there are too many");
    add(counts.tasks_not_kept, "tasks were not kept, as there are too many");
    add(counts.closed_forgotten, "closed descriptors were forgotten before their time (--keep)");
    if losses.skipped_programs.is_none() {
        parts.push("the kernel does not say how often it skipped eBPF programs".to_owned());
    }
    let mut text = String::new();
    if !parts.is_empty() {
        let mended = match report.scans {
            0 | 1 => String::new(),
            scans => format!("; all was told again {}", counted(scans - 1, "time", "times")),
        };
        let parts = style.wrap(&format!("missing: {}{mended}", parts.join("; ")), 0, 4);
        let _ = writeln!(text, "\n{}", style.alarm(parts.trim_end()));
    }
    text
}
