// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs: their providers, events, threads and losses.

use super::PROGRAMS_SCHEMA;
use crate::label::clean;
use crate::units::counted;
use rtscope_programs::description::{EventDescription, Field, FieldType, Integer};
use rtscope_session::list::ListedProgram;
use serde_json::json;
use std::io;

/// This many events of a program are shown with their fields without being asked.
const FEW: usize = 10;

/// One object.
#[must_use]
pub fn programs_json(programs: &[ListedProgram]) -> String {
    json!({ "schema": PROGRAMS_SCHEMA, "programs": programs }).to_string()
}

/// A paragraph for each. `verbose`: with all fields.
#[must_use]
pub fn programs_text(programs: &[ListedProgram], verbose: bool) -> String {
    let texts: Vec<String> = programs.iter().map(|program| program_text(program, verbose)).collect();
    texts.join("\n")
}

fn program_text(ListedProgram { report, recorded_by }: &ListedProgram, verbose: bool) -> String {
    let events: usize = report.providers.iter().map(|provider| provider.descriptions.events.len()).sum();
    let mut text = format!(
        "{}  {}, user {}: {}, {} enabled",
        clean(&report.comm),
        report.who(),
        report.uid,
        counted(events, "event", "events"),
        report.enabled
    );
    if let Some(pid) = recorded_by {
        text.push_str(&format!(", recorded by process {pid}"));
    }
    text.push('\n');
    if let Some(errno) = report.untraced {
        text.push_str(&format!("    runs untraced: {}\n", io::Error::from_raw_os_error(errno)));
    }
    if let Some(why) = &report.dropped {
        text.push_str(&format!("    cannot be recorded: {}\n", clean(why)));
    }
    for provider in &report.providers {
        text.push_str(&format!("  {}\n", clean(&provider.object)));
        for event in &provider.descriptions.events {
            text.push_str(&event_text(event, verbose || events <= FEW));
        }
        for event in &provider.descriptions.undescribed {
            text.push_str(&format!(
                "    {}  cannot be recorded: {}\n",
                event.shown_name(),
                clean(&event.why)
            ));
        }
    }
    for ring in &report.rings {
        let state = if ring.ended { ", ended" } else { "" };
        text.push_str(&format!(
            "  thread {} ({}): buffer {} KiB, {} waiting, lost {}{state}\n",
            ring.tid,
            clean(&ring.comm),
            ring.bytes >> 10,
            counted(ring.waiting_bytes, "byte", "bytes"),
            ring.lost
        ));
    }
    let outside = report.lost_outside.lost();
    if outside > 0 {
        text.push_str(&format!("  lost by threads without a buffer: {outside}\n"));
    }
    text
}

fn event_text(event: &EventDescription, with_fields: bool) -> String {
    let mut text = format!("    {}  (level {})", event.name, event.level);
    if with_fields && !event.fields.is_empty() {
        let fields: Vec<String> = event.fields.iter().map(field_text).collect();
        text.push_str(&format!("  {}", fields.join(", ")));
    }
    text.push('\n');
    text
}

fn field_text(Field { name, kind }: &Field) -> String {
    let integer = |integer: &Integer| {
        let letter = match integer {
            Integer { hex: true, .. } => 'x',
            Integer { signed: true, .. } => 's',
            Integer { .. } => 'u',
        };
        format!("{letter}{}", u32::from(integer.bytes) * 8)
    };
    let kind = match kind {
        FieldType::Integer(element) => integer(element),
        FieldType::Bool => "bool".to_string(),
        FieldType::Float(bytes) => format!("f{}", u32::from(*bytes) * 8),
        FieldType::Enumeration(name) => format!("enum {name}"),
        FieldType::Text => "str".to_string(),
        FieldType::Array(element, count) => format!("{}[{count}]", integer(element)),
        FieldType::Sequence(element) => format!("{}[]", integer(element)),
        FieldType::FloatArray(bytes, count) => format!("f{}[{count}]", u32::from(*bytes) * 8),
        FieldType::FloatSequence(bytes) => format!("f{}[]", u32::from(*bytes) * 8),
    };
    format!("{kind} {name}")
}
