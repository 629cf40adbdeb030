// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any tracepoint of the kernel as an event class, made from its format.
//!
//! The tracepoint's fields are the event's fields; the fields that all records have (the running thread, whether interrupts
//! were off, how deep preemption was disabled) are the event's context.

mod lttng;
mod plan;

use super::tsdl::{self, Integer, Shape};
use plan::{Plan, Step};
use rtscope_ftrace::format::{EventFormat, Field, FieldKind, Meaning, Scalar};
use std::collections::HashSet;

/// Fields that do not lie in a record's first 64 KiB do not exist: a location word could not name them either.
const RECORD_BYTES: u32 = 1 << 16;

/// A text that a record only points to: an argument of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenText {
    /// Which argument of the call, from 0.
    pub argument: u8,
    /// Where in the record its address is (8 bytes).
    pub offset: u32,
}

/// A class.
#[derive(Clone, Debug)]
pub(crate) struct Tracepoint {
    pub(super) name: String,
    pub(super) texts: Vec<GivenText>,
    context: Vec<(String, Shape)>,
    fields: Vec<(String, Shape)>,
    plan: Plan,
}

impl Tracepoint {
    /// `paths`: bit i: the caller provides the text behind argument i of the system call; other addresses stay addresses.
    pub(super) fn new(format: &EventFormat, paths: u8) -> Tracepoint {
        let mut building = TracepointBuilder::default();
        for field in format.common.iter().filter(|field| field.name != "common_type") {
            let name = match field.name.as_str() {
                "common_pid" => "tid",
                "common_flags" => "irq_flags",
                other => other.strip_prefix("common_").unwrap_or(other),
            };
            building.generic(name, field, field.name == "common_flags");
        }
        let context = std::mem::take(&mut building.fields);
        building.names.clear();
        match lttng::is_entry(format) {
            Some(entry) => building.system_call(format, if entry { paths } else { 0 }),
            None => building.tracepoint(format),
        }
        let TracepointBuilder { fields, plan, texts, .. } = building;
        Tracepoint { name: String::new(), texts, context, fields, plan }
    }

    /// Appends context and fields. `None`, with some of it appended, when the record is too short.
    #[inline]
    pub(super) fn encode(&self, record: &[u8], texts: &[Option<&[u8]>], out: &mut Vec<u8>) -> Option<()> {
        self.plan.encode(record, texts, out)
    }

    /// The number of patterns of empty texts, including the one without any.
    pub(super) fn patterns(&self) -> u32 {
        self.plan.patterns()
    }

    /// The pattern of an event: 0 where no text is empty.
    #[inline]
    pub(super) fn empty_texts(&self, record: &[u8], texts: &[Option<&[u8]>]) -> u32 {
        self.plan.empty_texts(record, texts)
    }

    /// Prints the class as number `id`.
    pub(super) fn describe(&self, id: u32, text: &mut String) {
        let name = tsdl::quoted(&self.name);
        text.push_str(&format!("event {{\n\tname = {name};\n\tid = {id};\n\tstream_id = 0;\n"));
        for (what, fields) in [("context", &self.context), ("fields", &self.fields)] {
            if what == "context" && fields.is_empty() {
                continue;
            }
            text.push_str(&format!("\t{what} := struct {{\n"));
            tsdl::fields(text, fields);
            text.push_str("\t};\n");
        }
        text.push_str("};\n\n");
    }
}

/// Names for the classes of a trace: LTTng's where it has one, else the tracepoint's, with its system before it where that
/// would not be unique. `taken`: names of built-in events.
pub(super) fn name_all(formats: &[&EventFormat], taken: &HashSet<&str>) -> Vec<String> {
    let wanted: Vec<(String, bool)> = formats.iter().map(|format| lttng::event_name(format)).collect();
    let mut counts = std::collections::HashMap::<&str, usize>::new();
    wanted.iter().for_each(|(name, _)| *counts.entry(name).or_default() += 1);
    let mut used = HashSet::new();
    let mut names = Vec::with_capacity(formats.len());
    for (format, (name, is_lttng)) in formats.iter().zip(&wanted) {
        let clash = !is_lttng && (taken.contains(name.as_str()) || counts[name.as_str()] > 1);
        let first = if clash { format!("{}_{}", format.system, format.name) } else { name.clone() };
        names.push(unused(first, &mut used));
    }
    names
}

/// `name`, or with a number behind it if that is used already.
fn unused(name: String, used: &mut HashSet<String>) -> String {
    let mut candidate = name.clone();
    let mut number = 2;
    while !used.insert(candidate.clone()) {
        candidate = format!("{name}_{number}");
        number += 1;
    }
    candidate
}

#[derive(Debug, Default)]
struct TracepointBuilder {
    names: HashSet<String>,
    fields: Vec<(String, Shape)>,
    texts: Vec<GivenText>,
    plan: Plan,
}

impl TracepointBuilder {
    fn add(&mut self, name: &str, shape: Shape, step: Step) {
        let clean = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
        let mut name: String = name.chars().map(clean).collect();
        if let Shape::Sequence(_) = shape {
            // The name of its length may be that of another field.
            while self.names.contains(&format!("_{name}_length")) {
                name.push('_');
            }
        }
        let name = unused(name, &mut self.names);
        if let Shape::Sequence(_) = shape {
            self.names.insert(format!("_{name}_length"));
        }
        self.fields.push((name, shape));
        self.plan.add(step);
    }

    fn tracepoint(&mut self, format: &EventFormat) {
        for field in &format.fields {
            let name = lttng::field_name(format, field);
            if lttng::is_priority(format, field) {
                self.add(&name, Shape::One(Integer::Signed(4)), Step::Priority { at: field.offset });
            } else if lttng::is_prev_state(format, field) {
                self.add(&name, Shape::One(Integer::Signed(8)), Step::ShownState { at: field.offset });
            } else if lttng::is_request(format, field) && fits(field.offset, field.size) {
                let step = Step::RequestMask { at: field.offset, bytes: field.size };
                self.add(&name, Shape::One(Integer::Unsigned(4)), step);
            } else {
                self.generic(&name, field, false);
            }
        }
        for (index, name) in (0..).zip(lttng::given(format)) {
            self.add(name, Shape::One(Integer::Signed(4)), Step::GivenNumber { index });
        }
        if let Some(field) = format.fields.iter().find(|field| lttng::is_request(format, field)) {
            self.generic("rwbs_text", field, false);
        }
        // As in built-in events: the kernel's value, after the one that tools understand.
        if let Some(field) = format.fields.iter().find(|field| lttng::is_prev_state(format, field)) {
            self.add("prev_state_raw", Shape::One(Integer::Unsigned(4)), Step::RawState { at: field.offset });
            // The same step writes both.
            let name = unused("preempt".to_owned(), &mut self.names);
            self.fields.push((name, Shape::One(Integer::Unsigned(1))));
        }
    }

    /// The number of the call is in its name.
    fn system_call(&mut self, format: &EventFormat, paths: u8) {
        let arguments: Vec<&Field> =
            format.fields.iter().filter(|field| field.name != "__syscall_nr").collect();
        let in_record = |name: &str| {
            let text = format!("__{name}_val");
            arguments.iter().find(|field| field.name == text && is_text(&field.kind)).copied()
        };
        let in_kernel: HashSet<&str> =
            arguments.iter().filter_map(|field| in_record(&field.name)).map(|f| f.name.as_str()).collect();
        let given = |place: usize| u8::try_from(place).ok().filter(|bit| *bit < 8 && paths & 1 << bit != 0);
        for (place, field) in arguments.iter().enumerate() {
            if in_kernel.contains(field.name.as_str()) {
                continue;
            }
            if let Some(Field { kind: FieldKind::Dynamic { relative, .. }, offset, .. }) =
                in_record(&field.name)
            {
                // Newer kernels read the text themselves.
                let step = Step::DynamicText { at: *offset, relative: *relative };
                self.add(&field.name, Shape::Text, step);
            } else if let Some(argument) = given(place).filter(|_| field.size == 8) {
                // At most one for each bit of `paths`.
                let index = u8::try_from(self.texts.len()).unwrap_or(u8::MAX);
                self.texts.push(GivenText { argument, offset: field.offset });
                self.add(&field.name, Shape::Text, Step::GivenText { index });
            } else {
                self.generic(&field.name, field, false);
            }
        }
    }

    /// A field as its format has it.
    fn generic(&mut self, name: &str, field: &Field, hex: bool) {
        let (at, bytes) = (field.offset, field.size);
        if !fits(at, bytes) {
            return;
        }
        match field.kind {
            FieldKind::Scalar(scalar) => match integer(scalar, hex) {
                // An argument of a system call may be narrower than the register that it is in.
                Some(integer) if u32::from(scalar.size) <= bytes => {
                    let bytes = scalar.size.into();
                    self.add(name, Shape::One(integer), Step::Copy { at, bytes });
                }
                _ => self.bytes(name, at, bytes),
            },
            FieldKind::Array { element, len: 0 } => self.rest(name, at, element),
            FieldKind::Array { element, len } => match integer(element, hex) {
                _ if is_character(element) => self.add(name, Shape::Text, Step::Text { at, bytes }),
                Some(integer) if len.checked_mul(u32::from(element.size)) == Some(bytes) => {
                    self.add(name, Shape::Array(integer, len), Step::Copy { at, bytes });
                }
                _ => self.bytes(name, at, bytes),
            },
            FieldKind::Dynamic { element, relative } if bytes == 4 => {
                if is_character(element) {
                    self.add(name, Shape::Text, Step::DynamicText { at, relative });
                } else {
                    let integer = integer(element, hex).unwrap_or(Integer::Hex(1));
                    let step = Step::Dynamic { at, relative, element: integer_bytes(integer) };
                    self.add(name, Shape::Sequence(integer), step);
                }
            }
            FieldKind::Opaque if bytes == 0 => {
                self.rest(name, at, Scalar { size: 1, signed: false, meaning: Meaning::Hex });
            }
            FieldKind::Dynamic { .. } | FieldKind::Opaque => self.bytes(name, at, bytes),
        }
    }

    fn bytes(&mut self, name: &str, at: u32, bytes: u32) {
        if bytes > 0 {
            self.add(name, Shape::Array(Integer::Hex(1), bytes), Step::Copy { at, bytes });
        }
    }

    /// An array without a length, which only a record's last field can be: all following bytes.
    fn rest(&mut self, name: &str, at: u32, element: Scalar) {
        if is_character(element) {
            self.add(name, Shape::Text, Step::RestText { at });
        } else {
            let integer = integer(element, false).unwrap_or(Integer::Hex(1));
            let step = Step::Rest { at, element: integer_bytes(integer) };
            self.add(name, Shape::Sequence(integer), step);
        }
    }
}

fn fits(at: u32, bytes: u32) -> bool {
    at.checked_add(bytes).is_some_and(|end| end <= RECORD_BYTES)
}

fn is_character(scalar: Scalar) -> bool {
    scalar.meaning == Meaning::Text && scalar.size == 1
}

fn is_text(kind: &FieldKind) -> bool {
    matches!(kind, FieldKind::Dynamic { element, .. } if is_character(*element))
}

fn integer(scalar: Scalar, hex: bool) -> Option<Integer> {
    let hex = hex || matches!(scalar.meaning, Meaning::Hex | Meaning::CpuMask | Meaning::UserText);
    Integer::of(scalar.size, scalar.signed, hex)
}

fn integer_bytes(integer: Integer) -> u32 {
    match integer {
        Integer::Unsigned(bytes) | Integer::Signed(bytes) | Integer::Hex(bytes) => bytes.into(),
    }
}

#[cfg(test)]
mod tests;
