// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The list as text.

use super::RecorderKind;
use rtscope_ftrace::format::EventFormat;
use rtscope_kernel::tracefs::EventName;
use rtscope_view::clean;

/// This many names for a field's numbers are shown without `--verbose`.
const NAMES: usize = 6;

/// One line each: name and recorder.
pub fn names(events: &[(&EventName, RecorderKind)]) -> String {
    let width = events.iter().map(|(event, _)| event.to_string().len()).max().unwrap_or(0);
    let line = |(event, by): &(&EventName, RecorderKind)| {
        format!("{:width$}  {}\n", clean(&event.to_string()), by.label())
    };
    events.iter().map(line).collect()
}

/// One tracepoint with its fields.
pub fn described(format: &EventFormat, by: RecorderKind, all_names: bool) -> String {
    let mut text = format!("{}:{}  ({})\n", clean(&format.system), clean(&format.name), by.label());
    let widest = |length: fn(&rtscope_ftrace::format::Field) -> usize| {
        format.fields.iter().map(length).max().unwrap_or(0)
    };
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
