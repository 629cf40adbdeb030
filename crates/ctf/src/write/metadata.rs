// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The metadata file: the layout in TSDL.
//!
//! Two choices are for others' sake. `env`: Trace Compass takes a trace for a kernel trace when `domain` is "kernel",
//! and expects today's event names only when `tracer_name` is "lttng-modules" of at least 2.9; so we say that, and
//! who we are in `producer`. (2.14: babeltrace2 works around faults of versions before 2.11.) Every payload field's name
//! has a leading underscore, which readers strip: it keeps names such as `event` or `clock` apart from TSDL's keywords.

use crate::layout::{EventLayout, Type};
use crate::{TraceInfo, private_env};
use rtscope_event::Recording;
use std::fmt::Write;

/// Whole text of the metadata file.
pub(super) fn text(layouts: &[EventLayout], recording: &Recording, info: &TraceInfo) -> String {
    let mut text = String::with_capacity(16 * 1024);
    text.push_str(TYPES);
    trace(&mut text, info);
    env(&mut text, recording, info);
    clock(&mut text, info);
    text.push_str(STREAM);
    for (id, layout) in layouts.iter().enumerate() {
        event(&mut text, id, layout);
    }
    text
}

const TYPES: &str = "/* CTF 1.8 */

typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 32; align = 8; signed = true; } := int32_t;
typealias integer { size = 64; align = 8; signed = true; } := int64_t;
typealias integer { size = 64; align = 8; signed = false; base = 16; } := address_t;
typealias integer { size = 8; align = 8; signed = false; encoding = UTF8; } := char8_t;
typealias integer { size = 5; align = 1; signed = false; } := uint5_t;

";

fn trace(text: &mut String, info: &TraceInfo) {
    // Writing to a String cannot fail, here and below.
    let _ = write!(
        text,
        "trace {{
\tmajor = 1;
\tminor = 8;
\tuuid = \"{}\";
\tbyte_order = le;
\tpacket.header := struct {{
\t\tuint32_t magic;
\t\tuint8_t uuid[16];
\t\tuint32_t stream_id;
\t\tuint64_t stream_instance_id;
\t}};
}};

",
        info.trace_uuid
    );
}

fn env(text: &mut String, recording: &Recording, info: &TraceInfo) {
    text.push_str("env {\n");
    let window = info.window_begin.map(|begin| begin.0.to_string());
    let texts = [
        ("domain", Some("kernel")),
        ("sysname", Some("Linux")),
        ("tracer_name", Some("lttng-modules")),
        ("hostname", Some(&info.hostname)),
        ("kernel_release", Some(&info.kernel_release)),
        ("producer", Some("rtscope")),
        ("producer_version", Some(&info.producer_version)),
        ("rtscope_window_begin", window.as_deref()),
    ];
    for (key, value) in texts.into_iter().filter_map(|(key, value)| Some((key, value?))) {
        let _ = writeln!(text, "\t{key} = {};", quoted(value));
    }
    for (key, value) in [("tracer_major", 2), ("tracer_minor", 14), ("tracer_patchlevel", 0)] {
        let _ = writeln!(text, "\t{key} = {value};");
    }
    for (key, value) in private_env::entries(recording) {
        let _ = writeln!(text, "\t{key} = {};", quoted(&value));
    }
    text.push_str("};\n\n");
}

/// A TSDL string. Control characters, which a host name or version cannot have anyway, become blanks.
fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    for character in value.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            c if c.is_control() => text.push(' '),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

fn clock(text: &mut String, info: &TraceInfo) {
    // `absolute`: without it babeltrace2 refuses to show this trace together with one of LTTng.
    let _ = write!(
        text,
        "clock {{
\tname = \"monotonic\";
\tuuid = \"{}\";
\tdescription = \"Monotonic Clock\";
\tfreq = 1000000000;
\toffset = {};
\tabsolute = TRUE;
}};

",
        info.clock_uuid, info.realtime_offset_ns
    );
}

const STREAM: &str =
    "typealias integer { size = 27; align = 1; signed = false; map = clock.monotonic.value; } := time27_t;
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := time64_t;

struct packet_context {
\ttime64_t timestamp_begin;
\ttime64_t timestamp_end;
\tuint64_t content_size;
\tuint64_t packet_size;
\tuint64_t packet_seq_num;
\tuint64_t events_discarded;
\tuint32_t cpu_id;
};

struct event_header_compact {
\tenum : uint5_t { compact = 0 ... 30, extended = 31 } id;
\tvariant <id> {
\t\tstruct {
\t\t\ttime27_t timestamp;
\t\t} compact;
\t\tstruct {
\t\t\tuint32_t id;
\t\t\ttime64_t timestamp;
\t\t} extended;
\t} v;
} align(8);

stream {
\tid = 0;
\tevent.header := struct event_header_compact;
\tpacket.context := struct packet_context;
};

";

fn event(text: &mut String, id: usize, layout: &EventLayout) {
    let _ = write!(
        text,
        "event {{\n\tname = \"{}\";\n\tid = {id};\n\tstream_id = 0;\n\tfields := struct {{\n",
        layout.name
    );
    for (name, kind) in layout.fields {
        let _ = match kind {
            Type::U8 => writeln!(text, "\t\tuint8_t _{name};"),
            Type::U32 => writeln!(text, "\t\tuint32_t _{name};"),
            Type::S32 => writeln!(text, "\t\tint32_t _{name};"),
            Type::U64 => writeln!(text, "\t\tuint64_t _{name};"),
            Type::S64 => writeln!(text, "\t\tint64_t _{name};"),
            Type::Address => writeln!(text, "\t\taddress_t _{name};"),
            Type::Comm => writeln!(text, "\t\tchar8_t _{name}[16];"),
            Type::Text => writeln!(text, "\t\tstring _{name};"),
            Type::Origin => {
                writeln!(text, "\t\tenum : uint8_t {{ timer = 1, irq = 2, vector = 3 }} _{name};")
            }
            Type::End => {
                writeln!(text, "\t\tenum : uint8_t {{ running = 1, blocked = 2, rewoken = 3 }} _{name};")
            }
        };
    }
    text.push_str("\t};\n};\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_host_name_stays_inside_its_quotes() {
        assert_eq!(quoted("a\"; }; \\ \n"), "\"a\\\"; }; \\\\  \"");
    }
}
