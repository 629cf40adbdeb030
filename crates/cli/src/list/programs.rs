// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instrumented programs that run now, as their files describe them. Nothing of them is changed; files of programs that have
//! ended, and hold nothing that a recording would want, are removed on the way.

use super::options::ListOptions;
use crate::exit::Failure;
use crate::{output, schema};
use rtscope_event::counted;
use rtscope_programs::collector::{DiscardingSink, ProcessReport, Programs};
use rtscope_programs::description::{EventDescription, Field, FieldType, Integer};
use rtscope_programs::directory::SHARED_MEMORY;
use rtscope_programs::patterns::RequestedEvents;
use rtscope_view::clean;
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// This many events of a program are shown with their fields without being asked.
const FEW: usize = 10;

/// Prints the list.
pub fn run(options: &ListOptions) -> Result<(), Failure> {
    let patterns: Vec<String> =
        options.patterns.iter().flat_map(|word| word.split(',')).map(str::to_string).collect();
    let wanted = RequestedEvents::parse(&patterns, u32::MAX)?;
    let mut programs = Programs::watching(Path::new(SHARED_MEMORY))?;
    programs.poll(&mut DiscardingSink).map_err(|error| Failure::doing("looking for programs", error))?;
    programs.refused.iter().for_each(|why| output::note(&format!("rtscope: {}", clean(why))));
    programs
        .refusals()
        .iter()
        .for_each(|refusal| output::note(&format!("rtscope: {}", clean(&refusal.to_string()))));
    let mut reports = programs.reports();
    for provider in reports.iter_mut().flat_map(|report| &mut report.providers) {
        Arc::make_mut(&mut provider.descriptions)
            .events
            .retain(|event| wanted.matches(&event.name, event.level));
    }
    reports.retain(|report| {
        let has_event = report.providers.iter().any(|provider| !provider.descriptions.events.is_empty());
        !report.dead && (has_event || options.patterns.is_empty())
    });
    let recorders = programs.recorded_by();
    if options.json {
        let programs: Vec<Value> = reports.iter().map(|report| program_json(report, &recorders)).collect();
        output::result(&json!({ "schema": schema::LIST_PROGRAMS, "programs": programs }).to_string());
        return Ok(());
    }
    if reports.is_empty() {
        output::note(
            "rtscope: no instrumented program is running (docs/programs.md); rtscope list -k lists the kernel's tracepoints",
        );
        return Ok(());
    }
    let texts: Vec<String> =
        reports.iter().map(|report| program_text(report, &recorders, options.verbose)).collect();
    output::result(&texts.join("\n"));
    Ok(())
}

fn recorder(report: &ProcessReport, recorders: &[(u32, u32)]) -> Option<u32> {
    recorders.iter().find(|(uid, _)| *uid == report.uid).map(|(_, pid)| *pid)
}

fn program_json(report: &ProcessReport, recorders: &[(u32, u32)]) -> Value {
    let mut value = json!(report);
    value["recorded_by"] = json!(recorder(report, recorders));
    value
}

fn program_text(report: &ProcessReport, recorders: &[(u32, u32)], verbose: bool) -> String {
    let events: usize = report.providers.iter().map(|provider| provider.descriptions.events.len()).sum();
    let mut text = format!(
        "{}  {}, user {}: {}, {} enabled",
        clean(&report.comm),
        report.who(),
        report.uid,
        counted(events, "event", "events"),
        report.enabled
    );
    if let Some(pid) = recorder(report, recorders) {
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
