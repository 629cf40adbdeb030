// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope list`: instrumented programs (`programs`), or with `-k` the kernel's tracepoints, their fields, and which
//! recorder takes each.
//!
//! The list is one file of tracefs; descriptions are only read of those whose fields are shown.

pub mod options;
mod programs;
mod text;

use crate::exit::Failure;
use crate::{output, schema};
use options::ListOptions;
use rtscope_ftrace::format::{EventFormat, Field, FieldKind, Meaning, Scalar};
use rtscope_ftrace::pattern::Patterns;
use rtscope_kernel::PROGRAMS;
use rtscope_kernel::caps::{self, Tracepoints};
use rtscope_kernel::tracefs::{EventName, Tracefs};
use rtscope_session::record::plan::{call_of, takes_calls};
use serde_json::{Value, json};

/// This many tracepoints are shown with their fields without being asked.
const FEW: usize = 10;

/// Which recorder takes a tracepoint in `rtscope record`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecorderKind {
    Ebpf,
    Ftrace,
}

impl RecorderKind {
    /// The built-in events are taken by eBPF, where the kernel's types know it; system calls, where `calls` is something; everything else
    /// by ftrace.
    fn of(event: &EventName, tracepoints: &Tracepoints, calls: Option<&Tracefs>) -> RecorderKind {
        let built_in = PROGRAMS
            .iter()
            .any(|spec| spec.interrupts_off && spec.system == event.system && spec.tracepoint == event.name);
        let call = calls.is_some_and(|tracefs| call_of(tracefs, event).is_some());
        if built_in && tracepoints.has(&event.name) || call {
            RecorderKind::Ebpf
        } else {
            RecorderKind::Ftrace
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            RecorderKind::Ebpf => "eBPF",
            RecorderKind::Ftrace => "ftrace",
        }
    }
}

/// Prints the list.
pub fn run(options: &ListOptions) -> Result<(), Failure> {
    if options.user || !options.kernel && options.patterns.is_empty() {
        return programs::run(options);
    }
    let patterns = match options.patterns.is_empty() {
        true => Patterns::parse("*"),
        false => Patterns::parse_all(&options.patterns),
    }
    .map_err(|error| Failure::Usage(error.to_string()))?;
    let tracefs = Tracefs::find()?;
    let all = tracefs.events()?;
    let pairs = all.iter().map(|event| (event.system.as_str(), event.name.as_str()));
    let unknown = patterns.without_match(pairs);
    let wanted: Vec<&EventName> =
        all.iter().filter(|event| patterns.matches(&event.system, &event.name)).collect();
    if wanted.is_empty() || !unknown.is_empty() {
        let which = if unknown.is_empty() { options.patterns.join(" ") } else { unknown.join(" ") };
        return Err(Failure::Usage(format!(
            "no tracepoint of this kernel matches '{which}'; rtscope list -k shows all {}",
            all.len()
        )));
    }
    let tracepoints = Tracepoints::read();
    let calls =
        Some(&tracefs).filter(|_| caps::stream_missing().is_none() && takes_calls(wanted.iter().copied()));
    let with_recorder = wanted
        .into_iter()
        .map(|event| (event, RecorderKind::of(event, &tracepoints, calls)))
        .collect::<Vec<_>>();
    if options.json {
        let events = with_recorder
            .iter()
            .map(|(event, by)| Ok(event_json(&tracefs.format(event)?, *by)))
            .collect::<Result<Vec<Value>, Failure>>()?;
        output::result(&json!({ "schema": schema::LIST, "events": events }).to_string());
    } else if options.verbose || with_recorder.len() <= FEW {
        let described = with_recorder
            .iter()
            .map(|(event, by)| Ok(text::described(&tracefs.format(event)?, *by, options.verbose)))
            .collect::<Result<Vec<String>, Failure>>()?;
        output::result(&described.join("\n"));
    } else {
        output::result(&text::names(&with_recorder));
    }
    Ok(())
}

fn event_json(format: &EventFormat, by: RecorderKind) -> Value {
    let fields: Vec<Value> = format.fields.iter().map(|field| field_json(format, field)).collect();
    json!({
        "system": format.system,
        "name": format.name,
        "id": format.id,
        "recorder": by.label().to_lowercase(),
        "fields": fields,
    })
}

fn field_json(format: &EventFormat, field: &Field) -> Value {
    let mut value = json!({
        "name": field.name,
        "type": field.declaration,
        "offset": field.offset,
        "size": field.size,
    });
    match &field.kind {
        FieldKind::Scalar(scalar) => value["scalar"] = scalar_json(scalar),
        FieldKind::Array { element, len } => {
            value["array"] = json!({ "element": scalar_json(element), "length": len });
        }
        FieldKind::Dynamic { element, .. } => value["dynamic"] = scalar_json(element),
        FieldKind::Opaque => value["opaque"] = json!(true),
    }
    if let Some(symbols) = format.symbols(&field.name) {
        let key = if symbols.flags { "flags" } else { "names" };
        let names = symbols.names.iter().map(|(number, name)| json!({ "value": number, "name": name }));
        value[key] = names.collect();
    }
    value
}

fn scalar_json(scalar: &Scalar) -> Value {
    let meaning = match scalar.meaning {
        Meaning::Number => "number",
        Meaning::Hex => "hex",
        Meaning::Text => "text",
        Meaning::CpuMask => "cpus",
        Meaning::UserText => "user-text",
    };
    json!({ "size": scalar.size, "signed": scalar.signed, "meaning": meaning })
}
