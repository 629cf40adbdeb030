// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tracepoints: names alone, or with their fields and what their numbers are called.

use super::SCHEMA;
use crate::label::clean;
use rtscope_ftrace::format::{EventFormat, Field, FieldKind, Meaning, Scalar};
use rtscope_kernel::tracefs::EventName;
use rtscope_session::list::RecorderKind;
use serde_json::{Value, json};

/// This many names for a field's numbers are shown without `--verbose`.
const NAMES: usize = 6;

/// One line each: name and recorder.
#[must_use]
pub fn names_text(events: &[(EventName, RecorderKind)]) -> String {
    let width = events.iter().map(|(event, _)| event.to_string().len()).max().unwrap_or(0);
    let line = |(event, by): &(EventName, RecorderKind)| {
        format!("{:width$}  {}\n", clean(&event.to_string()), by.label())
    };
    events.iter().map(line).collect()
}

/// A paragraph for each, with its fields. `all_names`: with the names of all values.
#[must_use]
pub fn described_text(events: &[(EventFormat, RecorderKind)], all_names: bool) -> String {
    let texts: Vec<String> = events.iter().map(|(format, by)| described(format, *by, all_names)).collect();
    texts.join("\n")
}

fn described(format: &EventFormat, by: RecorderKind, all_names: bool) -> String {
    let mut text = format!("{}:{}  ({})\n", clean(&format.system), clean(&format.name), by.label());
    let widest = |length: fn(&Field) -> usize| format.fields.iter().map(length).max().unwrap_or(0);
    let (types, names) = (widest(|field| field.declaration.len()), widest(|field| field.name.len()));
    for field in &format.fields {
        let declaration = clean(&field.declaration);
        let line = format!("    {declaration:types$}  {:names$}", clean(&field.name));
        let numbers = format.symbols(&field.name).map(|symbols| {
            let limit = if all_names { usize::MAX } else { NAMES };
            let one = |(number, name): &(u64, String)| match symbols.flags {
                true => format!("{number:#x}={}", clean(name)),
                false => format!("{number}={}", clean(name)),
            };
            let shown: Vec<String> = symbols.names.iter().take(limit).map(one).collect();
            let more = symbols.names.len() - shown.len();
            let more = if more > 0 { format!(" and {more} more (-v)") } else { String::new() };
            format!("  {}{more}", shown.join(" "))
        });
        text.push_str(format!("{line}{}", numbers.unwrap_or_default()).trim_end());
        text.push('\n');
    }
    if format.fields.is_empty() {
        text.push_str("    (no fields)\n");
    }
    text
}

/// One object.
#[must_use]
pub fn tracepoints_json(events: &[(EventFormat, RecorderKind)]) -> String {
    let events: Vec<Value> = events.iter().map(|(format, by)| event_json(format, *by)).collect();
    json!({ "schema": SCHEMA, "events": events }).to_string()
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
