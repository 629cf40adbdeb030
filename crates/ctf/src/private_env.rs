// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts of a recording that CTF has no place for, as `env` entries beginning with `rtscope_`.
//!
//! Losses: CTF knows one counter per stream; rtscope knows causes, and losses of an unknown CPU. History: CTF cannot
//! express "nothing is missing since". Files: CTF does not say which there are, so one that somebody removes, empties or cuts where a packet
//! ends would not be missed. Each entry is one short text, so that people can read it in babeltrace2's details, too.

use crate::{EventLoss, Evidence, Overwritten, RingTrace};
use rtscope_event::{CpuId, Loss, LossCause, MonotonicNs};
use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

const FORMAT: &str = "rtscope_format";
const FORMAT_VERSION: &str = "1";
const HISTORY: &str = "rtscope_complete_since_";
const LOSS: &str = "rtscope_loss_";
/// Ignored by `parse`: these are parts of the losses, for people.
const EVENT_LOSS: &str = "rtscope_event_loss_";
/// What a ring of files has removed: how many events and packets.
const OVERWRITTEN: &str = "rtscope_overwritten_";
/// The same of one user's programs, by number: how many events.
pub const OVERWRITTEN_OF_USER: &str = "rtscope_overwritten_user_";
/// How many of a trace's events are from before the recording: a recorder that was killed had left them in the programs' buffers.
pub const EARLIER_EVENTS: &str = "rtscope_earlier_events";
/// The files of streams are a ring: their names tell what was before them.
const RING: &str = "rtscope_ring_bytes";
/// A file of a whole trace, and its size.
const FILE: &str = "rtscope_file_";
const NEVER: &str = "none";
const UNKNOWN: &str = "?";

/// The content of the entries.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PrivateEnv {
    /// For each CPU of the history, since when it is complete.
    pub(crate) history: BTreeMap<CpuId, Option<MonotonicNs>>,
    pub(crate) losses: Vec<Loss>,
    /// Names and sizes of the files of streams, when the trace was complete.
    pub(crate) files: Vec<(String, u64)>,
}

/// The files of streams in the directory of a trace whose writers are done.
///
/// # Errors
/// When it cannot be listed.
pub(crate) fn files(directory: &Path) -> io::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (name, data) = (entry.file_name(), entry.metadata()?);
        let name = name.to_str().filter(|name| !name.starts_with('.') && *name != "metadata");
        // An empty one has nothing that could be missed.
        if let Some(name) = name.filter(|_| data.is_file() && data.len() > 0) {
            files.push(format!("{} {name}", data.len()));
        }
    }
    files.sort();
    Ok((0..).zip(files).map(|(index, file): (u32, _)| (format!("{FILE}{index}"), file)).collect())
}

/// The entries of a trace.
pub(crate) fn entries(evidence: &Evidence<'_>) -> Vec<(String, String)> {
    let history = evidence.history.iter().map(|history| (history.cpu, history.complete_since));
    let mut entries = entries_of(history, evidence.losses);
    for (index, EventLoss { event, loss }) in evidence.by_event.iter().enumerate() {
        entries.push((format!("{EVENT_LOSS}{index}"), format!("{} event={event}", loss_text(loss))));
    }
    entries
}

/// The same without losses by event.
pub(crate) fn entries_of(
    history: impl Iterator<Item = (CpuId, Option<MonotonicNs>)>,
    losses: &[Loss],
) -> Vec<(String, String)> {
    let mut entries = vec![(FORMAT.to_owned(), FORMAT_VERSION.to_owned())];
    for (cpu, since) in history {
        let since = since.map_or(NEVER.to_owned(), |since| since.0.to_string());
        entries.push((format!("{HISTORY}{cpu}"), since));
    }
    for (index, loss) in losses.iter().enumerate() {
        entries.push((format!("{LOSS}{index}"), loss_text(loss)));
    }
    entries
}

/// What was removed of a trace whose files are a ring.
pub(crate) fn of_ring(overwritten: &Overwritten) -> [(String, String); 2] {
    let entry = |what: &str, count: u64| (format!("{OVERWRITTEN}{what}"), count.to_string());
    [entry("events", overwritten.events), entry("packets", overwritten.packets)]
}

/// The limit of such a trace, known from its beginning.
pub(crate) fn is_ring(ring: &RingTrace) -> (String, String) {
    (RING.to_owned(), ring.ring().limit().to_string())
}

/// Whether a trace is one.
pub(crate) fn has_ring<V>(env: &BTreeMap<String, V>) -> bool {
    env.contains_key(RING)
}

/// Whether an entry says something about all of a trace, and so nothing about a part of it.
pub(crate) fn is_of_a_whole_trace(key: &str) -> bool {
    [FORMAT, HISTORY, LOSS, EVENT_LOSS, OVERWRITTEN, EARLIER_EVENTS, RING, FILE]
        .iter()
        .any(|prefix| key.starts_with(prefix))
}

fn loss_text(loss: &Loss) -> String {
    let cpu = loss.cpu.map_or(UNKNOWN.to_owned(), |cpu| cpu.to_string());
    let count = loss.count.map_or(UNKNOWN.to_owned(), |count| count.to_string());
    format!("cpu={cpu} cause={} count={count}", cause_name(loss.cause))
}

/// Reads the entries back; `None` when the trace is not rtscope's, or its format is unknown to this version.
pub(crate) fn parse<V: ToString>(env: &BTreeMap<String, V>) -> Option<PrivateEnv> {
    if env.get(FORMAT).map(ToString::to_string).as_deref() != Some(FORMAT_VERSION) {
        return None;
    }
    let mut private = PrivateEnv::default();
    let mut losses = BTreeMap::new();
    for (key, value) in env {
        let value = &value.to_string();
        if let Some(cpu) = key.strip_prefix(HISTORY).and_then(|cpu| cpu.parse().ok()) {
            private.history.insert(CpuId(cpu), value.parse().ok().map(MonotonicNs));
        } else if let Some(index) = key.strip_prefix(LOSS).and_then(|index| index.parse::<u64>().ok()) {
            losses.insert(index, parse_loss(value)?);
        } else if key.starts_with(FILE) {
            // A name leads nowhere else.
            let file = value.split_once(' ').filter(|(_, name)| !name.contains('/'));
            private.files.extend(file.and_then(|(bytes, name)| Some((name.to_owned(), bytes.parse().ok()?))));
        }
    }
    private.losses = losses.into_values().collect();
    Some(private)
}

fn parse_loss(text: &str) -> Option<Loss> {
    let mut parts = text.split(' ');
    let mut value = |key: &str| parts.next()?.strip_prefix(key)?.strip_prefix('=');
    let cpu = optional(value("cpu")?)?;
    let cause = value("cause")?;
    let cause = CAUSES.into_iter().find(|known| cause_name(*known) == cause)?;
    let count = optional(value("count")?)?;
    Some(Loss { cpu: cpu.map(CpuId), cause, count })
}

/// `Some(None)` for the sign of the unknown, `None` for text that is not a number.
fn optional<T: std::str::FromStr>(text: &str) -> Option<Option<T>> {
    if text == UNKNOWN { Some(None) } else { text.parse().ok().map(Some) }
}

const CAUSES: [LossCause; 15] = [
    LossCause::RecursionMiss,
    LossCause::Unfinished,
    LossCause::Unreadable,
    LossCause::Overwritten,
    LossCause::Discarded,
    LossCause::ReportRingFull,
    LossCause::Gap,
    LossCause::BufferFull,
    LossCause::Overrun,
    LossCause::NoBuffer,
    LossCause::TooLarge,
    LossCause::Undescribed,
    LossCause::Refused,
    LossCause::TableFull,
    LossCause::EntryBusy,
];

fn cause_name(cause: LossCause) -> &'static str {
    match cause {
        LossCause::RecursionMiss => "recursion_miss",
        LossCause::Unfinished => "unfinished",
        LossCause::Unreadable => "unreadable",
        LossCause::Overwritten => "overwritten",
        LossCause::Discarded => "discarded",
        LossCause::Gap => "gap",
        LossCause::ReportRingFull => "report_ring_full",
        LossCause::BufferFull => "buffer_full",
        LossCause::Overrun => "overrun",
        LossCause::NoBuffer => "no_buffer",
        LossCause::TooLarge => "too_large",
        LossCause::Undescribed => "undescribed",
        LossCause::Refused => "refused",
        LossCause::TableFull => "table_full",
        LossCause::EntryBusy => "entry_busy",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::CpuHistory;

    #[test]
    fn losses_and_history_survive() {
        let losses: Vec<Loss> = (0..)
            .zip(CAUSES)
            .map(|(i, cause)| Loss {
                cpu: (i % 2 == 0).then_some(CpuId(i)),
                cause,
                count: (i % 3 != 0).then_some(u64::MAX),
            })
            .collect();
        let history = vec![
            CpuHistory { cpu: CpuId(0), complete_since: Some(MonotonicNs(5)), events: 0 },
            CpuHistory { cpu: CpuId(10), complete_since: None, events: 0 },
        ];
        let part = EventLoss { event: "sched_switch".to_owned(), loss: losses[0].clone() };
        let evidence = Evidence { losses: &losses, history: &history, by_event: &[part] };
        let private = parse(&entries(&evidence).into_iter().collect()).unwrap();
        assert_eq!(private.losses, losses);
        let expected = BTreeMap::from([(CpuId(0), Some(MonotonicNs(5))), (CpuId(10), None)]);
        assert_eq!(private.history, expected);
    }

    #[test]
    fn another_trace_is_not_ours() {
        assert_eq!(parse(&BTreeMap::from([("hostname".to_owned(), "here".to_owned())])), None);
    }
}
