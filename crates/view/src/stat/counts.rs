// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is in traces: counts by event and by stream, losses by cause, as text and as JSON.

use super::columns::Columns;
use crate::event::Clock;
use crate::explanation::loss_line;
use crate::label::clean;
use crate::style::Style;
use crate::units::{count_text, counted, duration_text};
use rtscope_ctf::{
    Counts, EARLIER_EVENTS, OVERWRITTEN_OF_USER, OpenTrace, Selection, Stage, Stream, StreamGap, TraceSet,
};
use rtscope_event::{Loss, LossCause};
use serde::Serialize;
use std::collections::BTreeMap;

/// Name and version of the object.
pub const STAT_SCHEMA: &str = "rtscope.stat/1";

/// All that `rtscope stat` says.
#[derive(Debug, Serialize)]
pub struct TraceStat {
    schema: &'static str,
    /// Whether more may come, or is lost with the recorder.
    #[serde(serialize_with = "stage_name")]
    stage: Stage,
    /// Only some events were asked for.
    filtered: bool,
    events: u64,
    packets: u64,
    bytes: u64,
    first_ns: Option<i64>,
    last_ns: Option<i64>,
    traces: Vec<TraceSummary>,
    by_event: Vec<EventCount>,
    streams: Vec<StreamSummary>,
    /// Events that were removed, since newer ones needed the space.
    overwritten: u64,
    /// What could not be read.
    damaged: Vec<DamageSummary>,
}

#[derive(Debug, Serialize)]
struct DamageSummary {
    file: String,
    packet_at: u64,
    what: String,
}

#[derive(Debug, Serialize)]
struct TraceSummary {
    dirs: Vec<String>,
    uuid: Option<String>,
    env: BTreeMap<String, serde_json::Value>,
    clocks: Vec<ClockSummary>,
    /// By cause, where the tracer says so.
    losses: Option<Vec<Loss>>,
}

#[derive(Debug, Serialize)]
struct ClockSummary {
    name: String,
    frequency_hz: u64,
    offset_ns: i64,
    absolute: bool,
    uuid: Option<String>,
}

#[derive(Debug, Serialize)]
struct EventCount {
    name: String,
    count: u64,
    /// `None` when the events take no time.
    per_second: Option<f64>,
}

#[derive(Debug, Serialize)]
struct StreamSummary {
    trace: usize,
    class: u64,
    id: Option<u64>,
    cpu: Option<u64>,
    files: Vec<String>,
    packets: u64,
    bytes: u64,
    events: u64,
    first_ns: Option<i64>,
    last_ns: Option<i64>,
    lost_events: u64,
    lost_packets: u64,
    /// There are losses of unknown number.
    lost_uncounted: bool,
}

impl TraceStat {
    /// From what was counted.
    #[must_use]
    pub fn new((set, stage): (&TraceSet, Stage), counts: &Counts, selection: &Selection) -> TraceStat {
        let streams: Vec<StreamSummary> = set
            .streams
            .iter()
            .zip(&counts.streams)
            .map(|(stream, count)| stream_summary(stream, count))
            .collect();
        let first_ns = streams.iter().filter_map(|stream| stream.first_ns).min();
        let last_ns = streams.iter().filter_map(|stream| stream.last_ns).max();
        let seconds = first_ns.zip(last_ns).map(|(first, last)| last.saturating_sub(first) as f64 / 1e9);
        TraceStat {
            schema: STAT_SCHEMA,
            stage,
            filtered: !selection.is_everything(),
            events: streams.iter().map(|stream| stream.events).sum(),
            packets: streams.iter().map(|stream| stream.packets).sum(),
            bytes: streams.iter().map(|stream| stream.bytes).sum(),
            first_ns,
            last_ns,
            traces: (0..set.traces.len()).filter_map(|place| trace_summary(set, place)).collect(),
            by_event: by_event(set, counts, seconds.filter(|seconds| *seconds > 0.0)),
            streams,
            overwritten: set.streams.iter().filter_map(|stream| stream.overwritten).sum(),
            damaged: damaged(set, counts),
        }
    }

    /// One line of JSON.
    ///
    /// # Errors
    /// When serde_json refuses, which none of these types gives it reason to.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// For people.
    #[must_use]
    pub fn text(&self, clock: Clock, style: Style) -> String {
        let mut text = String::new();
        for trace in &self.traces {
            trace.text(&mut text);
        }
        let span = match self.first_ns.zip(self.last_ns) {
            Some((first, last)) => format!(
                "{} to {} ({})",
                moment(clock, first),
                moment(clock, last),
                duration_text(last.abs_diff(first))
            ),
            None => "unknown".to_owned(),
        };
        line(&mut text, "Time", &span);
        let filtered = if self.filtered { " (of the selected ones)" } else { "" };
        let streams = self.streams.len();
        let counts = format!(
            "{}{filtered} in {}, {}, {}",
            count_text(self.events),
            counted(streams, "stream", "streams"),
            counted(self.packets, "packet", "packets"),
            bytes_text(self.bytes)
        );
        line(&mut text, "Events", &counts);
        let earlier: u64 = self.traces.iter().filter_map(TraceSummary::earlier).sum();
        if earlier > 0 {
            line(&mut text, "", &earlier_text(earlier));
        }
        text = style.fitted(&text);
        self.events_text(&mut text, style);
        self.streams_text(&mut text, clock, style);
        let mut losses = String::new();
        self.losses_text(&mut losses);
        text + &style.fitted(&losses)
    }

    fn events_text(&self, text: &mut String, style: Style) {
        if self.by_event.is_empty() {
            return;
        }
        let mut columns = Columns::new(["event", "count", "per second", "share"], &[0]).expendable(&[2, 3]);
        for event in &self.by_event {
            let share = event.count as f64 * 100.0 / self.events.max(1) as f64;
            columns.row([
                clean(&event.name),
                count_text(event.count),
                event.per_second.map_or("-".to_owned(), |rate| format!("{rate:.1}")),
                format!("{share:.1} %"),
            ]);
        }
        text.push('\n');
        text.push_str(&columns.text(style));
    }

    fn streams_text(&self, text: &mut String, clock: Clock, style: Style) {
        let head = ["stream", "cpu", "packets", "events", "size", "first", "last"];
        let mut columns = Columns::new(head, &[0, 5, 6]).expendable(&[2, 4, 5]).whole(&[5, 6]);
        for stream in &self.streams {
            let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
            let time = |ns: Option<i64>| ns.map_or("-".to_owned(), |ns| moment(clock, ns));
            columns.row([
                format!("{}/{}.{}", stream.trace, stream.class, number(stream.id)),
                number(stream.cpu),
                count_text(stream.packets),
                count_text(stream.events),
                bytes_text(stream.bytes),
                time(stream.first_ns),
                time(stream.last_ns),
            ]);
        }
        text.push('\n');
        text.push_str(&columns.text(style));
    }

    fn losses_text(&self, text: &mut String) {
        let mut lines = Vec::new();
        for loss in self.traces.iter().flat_map(|trace| trace.losses.iter().flatten()) {
            lines.push(loss_line(loss));
        }
        let told = !lines.is_empty();
        for stream in &self.streams {
            let cpu = stream.cpu.map_or_else(
                || format!("stream {}/{}", stream.trace, stream.class),
                |cpu| format!("cpu {cpu}"),
            );
            if stream.lost_events > 0 && !told {
                lines.push(format!(
                    "{cpu}: {} discarded by the tracer",
                    counted(stream.lost_events, "event", "events")
                ));
            }
            if stream.lost_packets > 0 {
                lines.push(format!(
                    "{cpu}: {}",
                    counted(stream.lost_packets, "whole packet", "whole packets")
                ));
            }
            if stream.lost_uncounted && !told {
                lines.push(format!("{cpu}: an unknown number of events"));
            }
        }
        if self.overwritten > 0 {
            let users: Vec<String> = self.traces.iter().flat_map(overwritten_of_users).collect();
            let users = if users.is_empty() { String::new() } else { format!(": {}", users.join(", ")) };
            lines.push(format!(
                "{} overwritten by newer ones (--max-size){users}",
                counted(self.overwritten, "event", "events")
            ));
        }
        if self.stage == Stage::Abandoned {
            lines.push(
                "what its recorder had not written when it was killed: an unknown number of events"
                    .to_owned(),
            );
        }
        for damage in &self.damaged {
            lines.push(format!(
                "what follows in {} from byte {} on, which cannot be read: {}",
                clean(&damage.file),
                damage.packet_at,
                clean(&damage.what)
            ));
        }
        if lines.is_empty() {
            let so_far = if self.stage == Stage::Complete { "" } else { " so far" };
            text.push_str(&format!("\nNothing is missing{so_far}, as far as the trace reports.\n"));
        } else {
            text.push_str("\nMissing:\n");
            for line in lines {
                text.push_str(&format!("  {line}\n"));
            }
        }
    }
}

/// Of which users a trace's removed events are.
fn overwritten_of_users(trace: &TraceSummary) -> impl Iterator<Item = String> {
    trace.env.iter().filter_map(|(key, value)| {
        let uid: u32 = key.strip_prefix(OVERWRITTEN_OF_USER)?.parse().ok()?;
        let events: u64 = value.as_str()?.parse().ok()?;
        Some(format!("{} of user {uid}", count_text(events)))
    })
}

/// Each place once: it is found when the trace is opened, and when its events are read.
fn stage_name<S: serde::Serializer>(stage: &Stage, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match stage {
        Stage::Waiting => "waiting",
        Stage::Growing => "growing",
        Stage::Complete => "complete",
        Stage::Abandoned => "abandoned",
        Stage::Removed => "removed",
    })
}

fn damaged(set: &TraceSet, counts: &Counts) -> Vec<DamageSummary> {
    let all = set.damaged.iter().chain(&counts.damaged);
    let places: BTreeMap<(String, u64), String> = all
        .map(|file| ((file.path.display().to_string(), file.damage.packet_at), file.damage.what.clone()))
        .collect();
    places.into_iter().map(|((file, packet_at), what)| DamageSummary { file, packet_at, what }).collect()
}

/// Of a trace's events, those that an earlier recorder should have had.
pub(crate) fn earlier_text(events: u64) -> String {
    let events = counted(events, "event", "events");
    format!(
        "from before this recording: {events}, which a recorder that was killed had left in the programs' buffers"
    )
}

impl TraceSummary {
    /// Of its events, those from before the recording.
    fn earlier(&self) -> Option<u64> {
        self.env.get(EARLIER_EVENTS)?.as_str()?.parse().ok()
    }

    fn text(&self, text: &mut String) {
        for dir in &self.dirs {
            line(text, "Trace", &clean(dir));
        }
        let word = |key: &str| match self.env.get(key) {
            Some(serde_json::Value::String(word)) => Some(clean(word)),
            Some(serde_json::Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let tracer =
            word("producer").zip(word("producer_version")).map(|(name, version)| format!("{name} {version}"));
        let tracer = tracer.or_else(|| {
            let version =
                ["tracer_major", "tracer_minor"].iter().filter_map(|key| word(key)).collect::<Vec<_>>();
            Some(format!("{} {}", word("tracer_name")?, version.join(".")))
        });
        let system =
            word("sysname").zip(word("kernel_release")).map(|(name, release)| format!("{name} {release}"));
        let host = word("hostname").map(|host| format!("host {host}"));
        let process = word("procname").zip(word("vpid")).map(|(name, pid)| format!("process {name} ({pid})"));
        let made: Vec<String> = [tracer, system, host, process].into_iter().flatten().collect();
        if !made.is_empty() {
            line(text, "Made by", &made.join(", "));
        }
        for clock in &self.clocks {
            let origin = if clock.absolute || clock.offset_ns != 0 { "" } else { ", origin unknown" };
            line(
                text,
                "Clock",
                &format!("{}, {} Hz{origin}", clean(&clock.name), count_text(clock.frequency_hz)),
            );
        }
    }
}

fn line(text: &mut String, what: &str, value: &str) {
    text.push_str(&format!("{what:<8} {value}\n"));
}

fn trace_summary(set: &TraceSet, place: usize) -> Option<TraceSummary> {
    let trace = set.traces.get(place)?;
    let env = trace.env().iter().map(|(key, value)| {
        let value = match value {
            rtscope_ctf::EnvValue::Text(text) => serde_json::Value::from(text.as_str()),
            rtscope_ctf::EnvValue::Number(number) => serde_json::Value::from(*number),
        };
        (key.clone(), value)
    });
    let clocks = trace.clocks().iter().map(|clock| ClockSummary {
        name: clock.name.clone(),
        frequency_hz: clock.frequency,
        offset_ns: clock.base_ns(),
        absolute: clock.absolute,
        uuid: clock.uuid.map(|uuid| uuid.to_string()),
    });
    Some(TraceSummary {
        dirs: trace.dirs.iter().map(|dir| dir.display().to_string()).collect(),
        uuid: trace.uuid().map(|uuid| uuid.to_string()),
        env: env.collect(),
        clocks: clocks.collect(),
        losses: trace.losses_by_cause(),
    })
}

fn stream_summary(stream: &Stream, count: &rtscope_ctf::StreamCount) -> StreamSummary {
    StreamSummary {
        trace: stream.trace,
        class: stream.class_id,
        id: stream.instance,
        cpu: stream.cpu,
        files: stream.files.iter().map(|path| path.display().to_string()).collect(),
        packets: stream.packets,
        bytes: stream.bytes,
        events: count.total(),
        first_ns: count.first_ns,
        last_ns: count.last_ns,
        lost_events: stream.losses.events,
        lost_packets: stream.losses.packets,
        lost_uncounted: stream.losses.uncounted,
    }
}

/// The most frequent first.
fn by_event(set: &TraceSet, counts: &Counts, seconds: Option<f64>) -> Vec<EventCount> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (stream, count) in set.streams.iter().zip(&counts.streams) {
        for (event, count) in count.events.iter().enumerate().filter(|(_, count)| **count > 0) {
            *sums.entry(set.event_name(stream, event)).or_default() += count;
        }
    }
    let mut events: Vec<EventCount> = sums
        .into_iter()
        .map(|(name, count)| EventCount {
            name: name.to_owned(),
            count,
            per_second: seconds.map(|seconds| count as f64 / seconds),
        })
        .collect();
    events.sort_by_key(|event| std::cmp::Reverse(event.count));
    events
}

/// A size with a unit.
fn bytes_text(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.1} {unit}", bytes as f64 / f64::from(1_u32 << shift)),
        None => format!("{bytes} B"),
    }
}

/// Local time of day with nanoseconds.
pub(super) fn moment(clock: Clock, ns: i64) -> String {
    let second = clock(ns.div_euclid(1_000_000_000));
    format!("{}{:09}", String::from_utf8_lossy(&second), ns.rem_euclid(1_000_000_000))
}

/// What is missing from the streams, a line each, as `print` says it after the events; and behind it what has no place in a stream.
#[must_use]
pub fn missing_lines(set: &TraceSet, clock: Clock) -> Vec<String> {
    const SHOWN: usize = 100;
    let mut lines = Vec::new();
    let mut more = 0_u64;
    for stream in &set.streams {
        for missing in &stream.losses.list {
            if lines.len() < SHOWN {
                lines.push(missing_line(stream, missing, clock));
            } else {
                more += 1;
            }
        }
    }
    if more > 0 {
        lines.push(format!("and {more} more losses like these (rtscope stat has the sums)"));
    }
    let losses = set.traces.iter().filter_map(OpenTrace::losses_by_cause).flatten();
    lines.extend(losses.filter(has_no_stream).map(|loss| loss_line(&loss)));
    lines
}

/// Whether no stream can have the loss as discarded events: it is not a number of events, or of no CPU.
fn has_no_stream(loss: &Loss) -> bool {
    matches!(loss.cause, LossCause::Gap | LossCause::RecursionMiss)
}

/// A loss of a stream as a line.
#[must_use]
pub fn missing_line(stream: &Stream, missing: &StreamGap, clock: Clock) -> String {
    let what = if missing.packets { "packet" } else { "event" };
    let count = match missing.count {
        Some(1) => format!("1 {what}"),
        Some(count) => format!("{count} {what}s"),
        None => format!("an unknown number of {what}s"),
    };
    let when = match missing.from_ns.zip(missing.to_ns) {
        Some((from, to)) => format!("between [{}] and [{}]", moment(clock, from), moment(clock, to)),
        None => "at an unknown time".to_owned(),
    };
    let of = match stream.cpu {
        Some(cpu) => format!("cpu {cpu}"),
        None => stream.files.first().map_or(String::new(), |file| file.display().to_string()),
    };
    if missing.is_overwritten {
        return format!("{count} {when} were overwritten before they were read ({of})");
    }
    format!("the tracer lost {count} {when} ({of})")
}
