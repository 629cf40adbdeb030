// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The metadata file: the layout in TSDL.
//!
//! Two choices are for other tools. `env`: Trace Compass takes a trace for a kernel trace when `domain` is "kernel",
//! and expects today's event names only when `tracer_name` is "lttng-modules" of at least 2.9; so these are written, and
//! the real name is in `producer`. (2.14: babeltrace2 works around faults of versions before 2.11.) Every payload field's name
//! has a leading underscore, which readers strip: it keeps names such as `event` or `clock` apart from TSDL's keywords.

use super::classes::{Classes, Header};
use super::tsdl::{self, quoted};
use crate::TraceInfo;
use crate::layout::EventLayout;
use std::fmt::Write;

/// The text of the metadata file. `private`: entries of `env` that only rtscope knows. `occurs`: whether the trace has events of the class of this number.
pub(super) fn text(
    classes: &Classes,
    private: &[(String, String)],
    info: &TraceInfo,
    occurs: impl Fn(u32) -> bool,
) -> String {
    let mut text = beginning(classes, info, private);
    for (id, layout) in classes.own_classes().filter(|(number, _)| occurs(*number)) {
        own_class(id, layout, &mut text);
    }
    let twins = classes.twin_classes().filter(|(number, _)| occurs(*number));
    for (id, class) in classes.tracepoint_classes().chain(twins) {
        class.describe(id, &mut text);
    }
    text
}

/// What comes before the declarations of classes. `private`: entries of `env` that only rtscope knows.
pub(super) fn beginning(classes: &Classes, info: &TraceInfo, private: &[(String, String)]) -> String {
    let mut text = String::with_capacity(16 * 1024);
    text.push_str("/* CTF 1.8 */\n\n");
    text.push_str(tsdl::ALIASES);
    trace(&mut text, info);
    env(&mut text, private, info);
    clock(&mut text, info);
    packet_context(&mut text, true);
    stream(&mut text, 0, classes.header, "");
    text
}

/// The declaration of a built-in class.
pub(super) fn own_class(id: u32, layout: &EventLayout, text: &mut String) {
    let name = quoted(layout.name);
    let _ =
        write!(text, "event {{\n\tname = {name};\n\tid = {id};\n\tstream_id = 0;\n\tfields := struct {{\n");
    layout.fields.iter().for_each(|(name, kind)| tsdl::own_field(text, name, *kind));
    text.push_str("\t};\n};\n\n");
}

/// An `env` of what is known only at the end.
pub(super) fn end_env(entries: &[(String, String)]) -> String {
    let mut text = String::from("env {\n");
    for (key, value) in entries {
        let _ = writeln!(text, "\t{key} = {};", quoted(value));
    }
    text.push_str("};\n");
    text
}

pub(super) fn trace(text: &mut String, info: &TraceInfo) {
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

fn env(text: &mut String, private: &[(String, String)], info: &TraceInfo) {
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
    for (key, value) in private {
        let _ = writeln!(text, "\t{key} = {};", quoted(value));
    }
    text.push_str("};\n\n");
}

pub(super) fn clock(text: &mut String, info: &TraceInfo) {
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

pub(super) fn packet_context(text: &mut String, has_cpu: bool) {
    let cpu = if has_cpu { "\tuint32_t cpu_id;\n" } else { "" };
    let _ = write!(text, "{CONTEXT}{cpu}}};\n\n");
}

pub(super) fn stream(text: &mut String, class: u32, header: Header, event_context: &str) {
    let (header_name, header_type) = match header {
        Header::Compact => ("event_header_compact", HEADER_COMPACT),
        Header::Large => ("event_header_large", HEADER_LARGE),
    };
    let _ = write!(
        text,
        "{header_type}stream {{
\tid = {class};
\tevent.header := struct {header_name};
{event_context}\tpacket.context := struct packet_context;
}};

"
    );
}

const CONTEXT: &str =
    "typealias integer { size = 27; align = 1; signed = false; map = clock.monotonic.value; } := time27_t;
typealias integer { size = 32; align = 8; signed = false; map = clock.monotonic.value; } := time32_t;
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := time64_t;

struct packet_context {
\ttime64_t timestamp_begin;
\ttime64_t timestamp_end;
\tuint64_t content_size;
\tuint64_t packet_size;
\tuint64_t packet_seq_num;
\tuint64_t events_discarded;
";

const HEADER_COMPACT: &str = "struct event_header_compact {
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

";

const HEADER_LARGE: &str = "struct event_header_large {
\tenum : uint16_t { compact = 0 ... 65534, extended = 65535 } id;
\tvariant <id> {
\t\tstruct {
\t\t\ttime32_t timestamp;
\t\t} compact;
\t\tstruct {
\t\t\tuint32_t id;
\t\t\ttime64_t timestamp;
\t\t} extended;
\t} v;
} align(8);

";
