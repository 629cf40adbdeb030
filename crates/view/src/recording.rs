// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording while it goes on: what records, and how far it is.

use crate::record::BEHIND_NS;
use crate::units::{counted, reach_text, size_text};
use rtscope_session::record::{KernelStart, RecordProgress, RecordStart};
use std::path::Path;

/// What records, and where to. `is_root`: programs of all users are recorded.
#[must_use]
pub fn recording_notes(start: &RecordStart<'_>, is_root: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(patterns) = start.programs {
        let whose = if is_root { "of all users" } else { "of this user" };
        notes.push(format!(
            "recording '{}' of programs {whose} into {}; Ctrl-C ends it",
            patterns.join(","),
            start.target.display()
        ));
    }
    if let Some(kernel) = &start.kernel {
        notes.extend(kernel_notes(kernel, start.target));
    }
    notes
}

fn kernel_notes(kernel: &KernelStart<'_>, target: &Path) -> Vec<String> {
    let who = [("eBPF", kernel.by_ebpf), ("ftrace", kernel.by_ftrace)];
    let who = who.into_iter().filter(|(_, count)| *count > 0);
    let who: Vec<String> = who.map(|(name, count)| format!("{count} by {name}")).collect();
    let mut notes = vec![format!(
        "recording tracepoints ({}) on {} into {}; Ctrl-C ends it",
        who.join(", "),
        counted(kernel.cpus, "CPU", "CPUs"),
        target.display()
    )];
    if let Some(reason) = kernel.without_ebpf {
        notes.push(format!("ftrace records everything, eBPF nothing: {reason}"));
    }
    if kernel.leaves_itself_out {
        notes.push(
            "its own activity is left out, except switches to and from it (--with-self records it)"
                .to_owned(),
        );
    }
    notes
}

/// What a flight recorder records: this many tracepoints and programs; `None`: none of them.
#[must_use]
pub fn flight_recording_note(tracepoints: Option<usize>, programs: Option<u32>, target: &Path) -> String {
    let tracepoints = tracepoints.map(|count| counted(count, "tracepoint", "tracepoints"));
    let programs = programs.map(|count| counted(count, "program", "programs"));
    let what = tracepoints.into_iter().chain(programs).collect::<Vec<_>>().join(" and ");
    format!(
        "{what} record into memory; rtscope snapshot saves a trace in {}, Ctrl-C saves one and ends",
        target.display()
    )
}

/// A line of how far it is. `before`: at the line before, for rates.
#[must_use]
pub fn progress_line(progress: &RecordProgress, before: Option<&RecordProgress>) -> String {
    let events_of = |progress: &RecordProgress| progress.programs.unwrap_or_default().events;
    let (last_ns, last_bytes, last_events) =
        before.map_or((0, 0, 0), |before| (before.passed_ns, before.bytes, events_of(before)));
    let passed_ns = progress.passed_ns.saturating_sub(last_ns);
    let rate = progress.bytes.saturating_sub(last_bytes) as f64 / passed_ns as f64 * 1e3;
    let mut text = format!(
        "{:.1} s  {:.1} MB  {rate:.1} MB/s  lost {}",
        progress.passed_ns as f64 / 1e9,
        progress.bytes as f64 / 1e6,
        progress.lost
    );
    if let Some(behind_ns) = progress.behind_ns.filter(|behind_ns| *behind_ns > BEHIND_NS) {
        text.push_str(&format!("  trace {:.1} s behind", behind_ns as f64 / 1e9));
    }
    if let Some(kept) = &progress.kept {
        let (size, reach) = (size_text(kept.max_bytes), reach_text(kept.reach_ns));
        text.push_str(&format!("  keeps the newest {size}: now {reach}"));
    }
    if let Some(programs) = &progress.programs {
        let rate = programs.events.saturating_sub(last_events) as f64 / passed_ns as f64 * 1e9;
        text.push_str(&format!(
            "  {rate:.0} events/s  programs {}  rings {}",
            programs.programs, programs.rings
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_session::record::{KeptProgress, ProgramsProgress};

    #[test]
    fn rates_are_those_since_the_line_before() {
        let first = RecordProgress {
            passed_ns: 1_000_000_000,
            bytes: 2_000_000,
            lost: 0,
            behind_ns: Some(BEHIND_NS),
            programs: None,
            kept: None,
        };
        assert_eq!(progress_line(&first, None), "1.0 s  2.0 MB  2.0 MB/s  lost 0");
        let programs = ProgramsProgress { events: 500, rings: 2, programs: 1, ..ProgramsProgress::default() };
        let kept = KeptProgress { max_bytes: 1 << 30, reach_ns: 0, overwritten: 0 };
        let second = RecordProgress {
            passed_ns: 1_500_000_000,
            bytes: 2_500_000,
            behind_ns: Some(3_000_000_000),
            programs: Some(programs),
            kept: Some(kept),
            ..first
        };
        let line = progress_line(&second, Some(&first));
        assert!(
            line.starts_with("1.5 s  2.5 MB  1.0 MB/s  lost 0  trace 3.0 s behind  keeps the newest"),
            "{line}"
        );
        assert!(line.ends_with("  1000 events/s  programs 1  rings 2"), "{line}");
    }
}
