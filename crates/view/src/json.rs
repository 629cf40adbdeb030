// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One object a line, each with the schema's name and version.
//!
//! A field is never renamed or given another meaning within a version; new fields may come. Times are nanoseconds of
//! `CLOCK_MONOTONIC`; `unix_ns` is added where the caller knows the wall clock.

use rtscope_analyze::explain::Explanation;
use rtscope_analyze::summary::Report;
use rtscope_event::WallClock;
use rtscope_event::{LateResponse, MonotonicNs, Stuck};
use rtscope_session::command::CommandEnd;
use rtscope_session::watch::actions::ActionReport;
use serde::Serialize;

/// Name and version of the objects of a watch.
pub const SCHEMA: &str = "rtscope.watch/1";

#[derive(Serialize)]
struct Line<'a, T> {
    schema: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    unix_ns: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_ns: Option<u64>,
    #[serde(flatten)]
    body: &'a T,
}

fn line<T: Serialize>(
    kind: &'static str,
    at: Option<(MonotonicNs, &WallClock)>,
    response_ns: Option<u64>,
    body: &T,
) -> serde_json::Result<String> {
    let unix_ns = at.map(|(time, clock)| clock.unix_ns(time));
    serde_json::to_string(&Line { schema: SCHEMA, kind, unix_ns, response_ns, body })
}

/// A late response at the moment of detection: `"type":"late"`.
///
/// # Errors
/// When serde_json refuses, which none of these types gives it reason to.
pub fn late_json(late: &LateResponse, clock: Option<&WallClock>) -> serde_json::Result<String> {
    line("late", clock.map(|clock| (late.end_ns, clock)), Some(late.response_ns()), late)
}

/// What hangs: `"type":"stuck"`.
///
/// # Errors
/// As [`late_json`].
pub fn stuck_json(stuck: &Stuck, clock: Option<&WallClock>) -> serde_json::Result<String> {
    let late = &stuck.late;
    line("stuck", clock.map(|clock| (late.end_ns, clock)), Some(late.response_ns()), stuck)
}

/// An explanation: `"type":"explanation"`.
///
/// # Errors
/// As [`late_json`].
pub fn explanation_json(explanation: &Explanation, clock: Option<&WallClock>) -> serde_json::Result<String> {
    line("explanation", clock.map(|clock| (explanation.end_ns, clock)), None, explanation)
}

/// The end of a watch: `"type":"summary"`. `command`: how COMMAND ended, if there was one and it ended by itself.
///
/// # Errors
/// As [`late_json`].
pub fn summary_json(report: &Report, command: Option<CommandEnd>) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Summary<'a> {
        #[serde(flatten)]
        report: &'a Report,
        #[serde(skip_serializing_if = "Option::is_none")]
        command: Option<serde_json::Value>,
    }
    line("summary", None, None, &Summary { report, command: command.map(command_json) })
}

/// What the actions of a watch came to: `"type":"actions"`.
///
/// # Errors
/// As [`late_json`].
pub fn actions_json(report: &ActionReport) -> serde_json::Result<String> {
    line("actions", None, None, report)
}

/// A report as an object of one line. `command`: how COMMAND ended, if there was one and it ended by itself.
pub(crate) fn report_json<T: Serialize>(
    schema: &'static str,
    report: &T,
    command: Option<CommandEnd>,
) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Object<'r, T> {
        schema: &'static str,
        #[serde(flatten)]
        report: &'r T,
        #[serde(skip_serializing_if = "Option::is_none")]
        command: Option<serde_json::Value>,
    }
    serde_json::to_string(&Object { schema, report, command: command.map(command_json) })
}

/// How COMMAND ended.
#[must_use]
pub fn command_json(end: CommandEnd) -> serde_json::Value {
    serde_json::json!({ "status": end.status, "signal": end.signal })
}

/// A report whose keys have always been in the order of the alphabet.
pub(crate) fn sorted<T: Serialize>(report: &T) -> serde_json::Result<String> {
    serde_json::to_value(report).map(|object| object.to_string())
}
