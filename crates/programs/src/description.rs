// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program's description of its events: text in its provider file (include/rtscope/abi.h).
//!
//! Anybody who may write into the directory can have written the text, so every name is checked before it gets into a trace,
//! and no more is kept than was requested and a trace can bear: readers need memory for each event that the metadata describes,
//! whether it occurs or not (babeltrace2 2.0.4: 75 times the size of the metadata, and time that grows with the square of the
//! number of events).

use crate::patterns::RequestedEvents;
use rtscope_abi::program as abi;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// No real name is longer than this.
const NAME_BYTES_MAX: usize = 256;
/// Labels are longer: a format of RTSCOPE_PRINTF is one.
const LABEL_BYTES_MAX: usize = 1024;
const FIELDS_MAX: usize = 16;
const LABELS_MAX: usize = 4096;
/// What the requested events of one program may take: some 10 000 events, or 1000 with 16 fields and an enumeration in each.
pub(crate) const PROGRAM_BYTES_MAX: usize = 4 << 20;
/// In metadata, apart from names: of an event, of a field, of a label wherever its enumeration is used. In memory about as much.
const EVENT_BYTES: usize = 256;
const FIELD_BYTES: usize = 64;
const LABEL_BYTES: usize = 32;
const UNKNOWN_TYPE: Defect = "a field's type is not known";
const MANY_FIELDS: Defect = "it has more than 16 fields";
const MANY_LABELS: Defect = "an enumeration has more than 4096 labels";
const NO_LABELS: Defect = "an enumeration has no labels";
const NO_LABEL: Defect = "a label has no name that can be shown";
const NOT_DESCRIBED: Defect = "a field is of an enumeration that it does not have";
pub(crate) const TOO_LARGE: Defect = "the descriptions of its requested events take more than 4 MiB in a trace; request fewer of its events (-u PROVIDER:EVENT)";

/// An integer's size and how to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Integer {
    /// 1, 2, 4 or 8.
    pub bytes: u8,
    /// Whether it can be negative.
    pub signed: bool,
    /// Whether to show it in hexadecimal.
    pub hex: bool,
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FieldType {
    /// A number.
    Integer(Integer),
    /// 0 or 1, in a byte.
    Bool,
    /// IEEE 754 of 4 or 8 bytes.
    Float(u8),
    /// 32 bits, signed, with names.
    Enumeration(String),
    /// Bytes up to a NUL.
    Text,
    /// A fixed number of elements.
    Array(Integer, u32),
    /// A 32-bit count and that many elements.
    Sequence(Integer),
    /// A fixed number of elements, each IEEE 754 of 4 or 8 bytes.
    FloatArray(u8, u32),
    /// A 32-bit count and that many elements, as above.
    FloatSequence(u8),
}

/// A field of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Field {
    /// A C identifier.
    pub name: String,
    /// Its type.
    pub kind: FieldType,
}

/// An event of a provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EventDescription {
    /// Its number among the events of its provider.
    #[serde(default)]
    pub index: u32,
    /// `PROVIDER:EVENT`, both C identifiers.
    pub name: String,
    /// 0 (emergency) to 7 (debug), as syslog has them; programs may use more.
    pub level: u32,
    /// In the order of the payload.
    pub fields: Vec<Field>,
}

/// Names of an enumeration's values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Enumeration {
    /// A C identifier.
    pub name: String,
    /// Value and name.
    pub labels: Vec<(i32, String)>,
}

/// A requested event that cannot be in a trace. Honest programs have such events, too: the length of an array is written as
/// text, since the preprocessor does not compute, and may be the name of a constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UndescribedEvent {
    /// As in [`EventDescription`].
    pub index: u32,
    /// As in [`EventDescription`]; empty: that is what is wrong with it.
    pub name: String,
    /// What is wrong with it.
    pub why: Cow<'static, str>,
}

/// The descriptions of a provider's requested events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Descriptions {
    /// In the order of their ids.
    pub events: Vec<EventDescription>,
    /// In the order of their ids.
    #[serde(default)]
    pub undescribed: Vec<UndescribedEvent>,
    /// Those that the events use, in the order of their names.
    pub enumerations: Vec<Enumeration>,
    /// Number of events of the provider, those that were not requested among them.
    #[serde(default)]
    pub declared: u32,
}

/// What is wrong with a description that cannot be used.
pub type Defect = &'static str;

impl Descriptions {
    /// Reads the text of a provider with this many events and enumerations. Keeps what is `wanted`.
    ///
    /// # Errors
    /// What is wrong with it as a whole. What is wrong with one event is only that event's fault.
    pub fn parse(
        text: &[u8],
        events: u32,
        enumerations: u32,
        wanted: &RequestedEvents,
    ) -> Result<Descriptions, Defect> {
        let text = text.strip_suffix(b"\0").ok_or("its descriptions do not end")?;
        let mut parts = text.split(|byte| *byte == 0);
        let mut descriptions = Descriptions { declared: events, ..Descriptions::default() };
        let mut bytes = 0;
        for index in 0..events {
            let part = parts.next().ok_or("an event has no description")?;
            match requested_event(part, index, wanted) {
                None => continue,
                Some(Ok(event)) => {
                    bytes += event.bytes();
                    descriptions.events.push(event);
                }
                Some(Err(event)) => {
                    bytes += event.bytes();
                    descriptions.undescribed.push(event);
                }
            }
            if bytes > PROGRAM_BYTES_MAX {
                return Err(TOO_LARGE);
            }
        }
        let mut used: HashMap<String, Result<Enumeration, Defect>> = descriptions
            .events
            .iter()
            .flat_map(EventDescription::enumerations)
            .map(|name| (name.to_string(), Err(NOT_DESCRIBED)))
            .collect();
        for _ in 0..enumerations {
            let part = parts.next().ok_or("an enumeration has no description")?;
            let name = part.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let place = std::str::from_utf8(name).ok().and_then(|name| used.get_mut(name));
            match place {
                Some(place @ Err(NOT_DESCRIBED)) => *place = enumeration(part),
                Some(Ok(first)) if first.labels.len() < LABELS_MAX => {
                    first.add(enumeration(part).unwrap_or_default());
                }
                _ => {}
            }
        }
        if parts.next().is_some() {
            return Err("it has more descriptions than events");
        }
        descriptions.drop_events_without_enumerations(&used);
        descriptions.enumerations = used.into_values().flatten().collect();
        descriptions.enumerations.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        if descriptions.bytes() > PROGRAM_BYTES_MAX {
            return Err(TOO_LARGE);
        }
        Ok(descriptions)
    }

    /// Whether [`Descriptions::parse`] can have made them: of descriptions that were in a file since, which anybody may have changed.
    ///
    /// # Errors
    /// What it never makes.
    pub fn check(&self) -> Result<(), Defect> {
        if !self.enumerations.windows(2).all(|two| two[0].name < two[1].name) {
            return Err("its enumerations are not in order");
        }
        if !self.events.windows(2).all(|two| two[0].index < two[1].index) {
            return Err("its events are not in order");
        }
        let undescribed = self.undescribed.iter().map(|event| event.index);
        let mut indexes = self.events.iter().map(|event| event.index).chain(undescribed);
        if indexes.any(|index| index >= self.declared) {
            return Err("an event has a number that its provider does not have");
        }
        self.enumerations.iter().try_for_each(Enumeration::check)?;
        self.events.iter().try_for_each(|event| event.check(self))?;
        for event in &self.undescribed {
            if !event.name.is_empty() {
                event_name(&event.name)?;
            }
            if !is_label(&event.why) {
                return Err("what is wrong with an event cannot be shown");
            }
        }
        if self.bytes() > PROGRAM_BYTES_MAX { Err(TOO_LARGE) } else { Ok(()) }
    }

    fn drop_events_without_enumerations(&mut self, found: &HashMap<String, Result<Enumeration, Defect>>) {
        let why = |event: &EventDescription| {
            event.enumerations().find_map(|name| found.get(name)?.as_ref().err().copied())
        };
        let dropped = self.events.iter().filter_map(|event| {
            let why = Cow::Borrowed(why(event)?);
            Some(UndescribedEvent { index: event.index, name: event.name.clone(), why })
        });
        self.undescribed.extend(dropped);
        self.undescribed.sort_unstable_by_key(|event| event.index);
        self.events.retain(|event| why(event).is_none());
    }

    /// The enumeration of this name.
    #[must_use]
    pub fn enumeration(&self, name: &str) -> Option<&Enumeration> {
        let place = self.enumerations.binary_search_by(|known| known.name.as_str().cmp(name)).ok()?;
        self.enumerations.get(place)
    }

    /// What they take in the metadata of a trace, at most, except for the program's path; and about that in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let bytes_of: HashMap<&str, usize> =
            self.enumerations.iter().map(|known| (known.name.as_str(), known.bytes())).collect();
        let labels = |event: &EventDescription| -> usize {
            event
                .enumerations()
                .filter_map(|name| bytes_of.get(name))
                .fold(0, |sum, more| sum.saturating_add(*more))
        };
        let of = |event: &EventDescription| event.bytes().saturating_add(labels(event));
        let undescribed = self.undescribed.iter().map(UndescribedEvent::bytes);
        self.events.iter().map(of).chain(undescribed).fold(0, usize::saturating_add)
    }
}

impl UndescribedEvent {
    /// For messages.
    #[must_use]
    pub fn shown_name(&self) -> String {
        if self.name.is_empty() { format!("event number {}", self.index) } else { self.name.clone() }
    }

    /// In memory: metadata has none of it.
    fn bytes(&self) -> usize {
        EVENT_BYTES + self.name.len()
    }
}

impl EventDescription {
    fn enumerations(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().filter_map(|field| match &field.kind {
            FieldType::Enumeration(name) => Some(name.as_str()),
            _ => None,
        })
    }

    fn check(&self, all: &Descriptions) -> Result<(), Defect> {
        event_name(&self.name)?;
        if self.fields.len() > FIELDS_MAX {
            return Err(MANY_FIELDS);
        }
        self.fields.iter().try_for_each(|field| field.check(all))
    }

    /// Without its enumerations. A sequence has its name three times.
    fn bytes(&self) -> usize {
        let fields = self.fields.iter().map(|field| FIELD_BYTES + 3 * field.name.len());
        EVENT_BYTES + self.name.len() + fields.sum::<usize>()
    }
}

impl Field {
    fn check(&self, all: &Descriptions) -> Result<(), Defect> {
        identifier(&self.name)?;
        let is_known = match &self.kind {
            FieldType::Bool | FieldType::Text => true,
            FieldType::Enumeration(name) => return all.enumeration(name).map(drop).ok_or(NOT_DESCRIBED),
            FieldType::Integer(integer) | FieldType::Sequence(integer) => integer.is_possible(),
            FieldType::Float(bytes) | FieldType::FloatSequence(bytes) => matches!(bytes, 4 | 8),
            FieldType::Array(integer, count) => {
                integer.is_possible() && elements_in_record(*count, integer.bytes).is_ok()
            }
            FieldType::FloatArray(bytes, count) => {
                matches!(bytes, 4 | 8) && elements_in_record(*count, *bytes).is_ok()
            }
        };
        if is_known { Ok(()) } else { Err(UNKNOWN_TYPE) }
    }
}

impl Integer {
    fn is_possible(self) -> bool {
        matches!(self.bytes, 1 | 2 | 4 | 8) && !(self.signed && self.hex)
    }
}

impl Enumeration {
    fn check(&self) -> Result<(), Defect> {
        identifier(&self.name)?;
        if self.labels.is_empty() {
            return Err(NO_LABELS);
        }
        if self.labels.len() > LABELS_MAX {
            return Err(MANY_LABELS);
        }
        let is_shown = |(_, label): &(i32, String)| !label.is_empty() && is_label(label);
        if self.labels.iter().all(is_shown) { Ok(()) } else { Err(NO_LABEL) }
    }

    /// Takes in another one of the same name, of another source of the program: which of them an event means is not known, so a value
    /// that has a label in each has both.
    fn add(&mut self, other: Enumeration) {
        let room = LABELS_MAX.saturating_sub(self.labels.len());
        // A program can have thousands of the same name.
        let known: HashSet<&(i32, String)> = self.labels.iter().collect();
        let new = other.labels.into_iter().filter(|label| !known.contains(label));
        let new: Vec<(i32, String)> = new.take(room).collect();
        self.labels.extend(new);
    }

    /// Each character may have to be escaped.
    fn bytes(&self) -> usize {
        self.labels.iter().map(|(_, label)| LABEL_BYTES + 2 * label.len()).sum()
    }
}

/// `None`: nobody wants it.
fn requested_event(
    part: &[u8],
    index: u32,
    wanted: &RequestedEvents,
) -> Option<Result<EventDescription, UndescribedEvent>> {
    let text = String::from_utf8_lossy(part);
    let (name, level) = text.split('\n').next().and_then(|line| line.split_once(' ')).unwrap_or_default();
    // As a program itself finds out whether an event is wanted: by the digits at the beginning (rtscope__wanted, include/rtscope/sessions.h).
    let digits = level.bytes().take_while(u8::is_ascii_digit);
    let number =
        digits.fold(0_u32, |number, digit| number.saturating_mul(10).saturating_add(u32::from(digit - b'0')));
    if !wanted.matches(name, number) {
        return None;
    }
    let event = std::str::from_utf8(part).map_err(|_| "its description is not text in UTF-8");
    Some(event.and_then(|text| event_of(text, index)).map_err(|why| {
        let name = if event_name(name).is_ok() { name.to_string() } else { String::new() };
        UndescribedEvent { index, name, why: Cow::Borrowed(why) }
    }))
}

fn event_of(text: &str, index: u32) -> Result<EventDescription, Defect> {
    let mut lines = text.strip_suffix('\n').ok_or("its description does not end")?.split('\n');
    let (name, level) = lines.next().and_then(|line| line.split_once(' ')).ok_or("it has no level")?;
    let name = event_name(name)?.to_string();
    let level = level.parse().map_err(|_| "its level is not a number; it has to be written as one")?;
    let mut fields = Vec::new();
    for line in lines {
        if fields.len() == FIELDS_MAX {
            return Err(MANY_FIELDS);
        }
        fields.push(field(line)?);
    }
    Ok(EventDescription { index, name, level, fields })
}

pub(crate) fn event_name(name: &str) -> Result<&str, Defect> {
    let (provider, short) = name.split_once(':').ok_or("its name has no provider")?;
    identifier(provider)?;
    identifier(short).map(|_| name)
}

fn field(line: &str) -> Result<Field, Defect> {
    let (kind, name) = line.rsplit_once(' ').ok_or("a field has no name")?;
    let words: Vec<&str> = kind.split(' ').collect();
    let kind = match words[..] {
        ["bool"] => FieldType::Bool,
        ["f32"] => FieldType::Float(4),
        ["f64"] => FieldType::Float(8),
        ["str"] => FieldType::Text,
        ["enum", name] => FieldType::Enumeration(identifier(name)?.to_string()),
        ["seq", "f32"] => FieldType::FloatSequence(4),
        ["seq", "f64"] => FieldType::FloatSequence(8),
        ["seq", element] => FieldType::Sequence(integer(element)?),
        ["array", "f32", ref count @ ..] => FieldType::FloatArray(4, elements(count, 4)?),
        ["array", "f64", ref count @ ..] => FieldType::FloatArray(8, elements(count, 8)?),
        ["array", element, ref count @ ..] => {
            let element = integer(element)?;
            FieldType::Array(element, elements(count, element.bytes)?)
        }
        [word] => FieldType::Integer(integer(word)?),
        _ => return Err(UNKNOWN_TYPE),
    };
    Ok(Field { name: identifier(name)?.to_string(), kind })
}

/// The number of an array's elements, each of this many bytes.
fn elements(count: &[&str], bytes: u8) -> Result<u32, Defect> {
    elements_in_record(count_in_c(&count.join(" "))?, bytes)
}

fn elements_in_record(count: u32, bytes: u8) -> Result<u32, Defect> {
    let is_possible =
        count > 0 && u64::from(count) * u64::from(bytes) <= u64::from(abi::RTU_RECORD_BYTES_MAX);
    is_possible.then_some(count).ok_or("an array is empty, or larger than a record can be")
}

/// A count as written in C, since the preprocessor does not compute. Constants that macros stand for often have parentheses.
fn count_in_c(text: &str) -> Result<u32, Defect> {
    let mut inner = text.trim();
    while let Some(less) = inner.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        inner = less.trim();
    }
    let digits = inner.trim_end_matches(['u', 'U', 'l', 'L']);
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    // from_str_radix() also takes a sign.
    let value = u32::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'));
    value.ok_or("an array's count is not a number; it has to be written as one, or be a macro that is one")
}

fn integer(word: &str) -> Result<Integer, Defect> {
    let (kind, bits) = word.split_at_checked(1).ok_or(UNKNOWN_TYPE)?;
    let bytes = match bits {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        "64" => 8,
        _ => return Err(UNKNOWN_TYPE),
    };
    match kind {
        "u" | "s" | "x" => Ok(Integer { bytes, signed: kind == "s", hex: kind == "x" }),
        _ => Err(UNKNOWN_TYPE),
    }
}

fn enumeration(part: &[u8]) -> Result<Enumeration, Defect> {
    let text = std::str::from_utf8(part).map_err(|_| "an enumeration's labels are not text in UTF-8")?;
    let mut lines = text.strip_suffix('\n').ok_or("an enumeration's description does not end")?.split('\n');
    let name = identifier(lines.next().unwrap_or_default())?.to_string();
    let mut labels = Vec::new();
    for line in lines {
        let (value, label) = line.split_once(' ').ok_or("a label has no value")?;
        let value = value.parse().map_err(|_| "a label's value has more than 32 bits")?;
        if !is_label(label) {
            return Err(NO_LABEL);
        }
        if labels.len() == LABELS_MAX {
            return Err(MANY_LABELS);
        }
        // A value whose label is empty is shown as the others that have none.
        if !label.is_empty() {
            labels.push((value, label.to_string()));
        }
    }
    if labels.is_empty() {
        return Err(NO_LABELS);
    }
    Ok(Enumeration { name, labels })
}

fn is_label(text: &str) -> bool {
    text.len() <= LABEL_BYTES_MAX && !text.contains(char::is_control)
}

fn identifier(name: &str) -> Result<&str, Defect> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let rest = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if starts && rest && name.len() <= NAME_BYTES_MAX { Ok(name) } else { Err("a name is not an identifier") }
}

/// Checks a payload against the fields and gives how many bytes of it are used: the rest is padding.
///
/// `None`: the payload does not match the fields.
#[must_use]
pub fn payload_bytes(fields: &[Field], payload: &[u8]) -> Option<usize> {
    let mut at = 0_usize;
    for field in fields {
        let rest = payload.get(at..)?;
        at += match &field.kind {
            FieldType::Integer(integer) => usize::from(integer.bytes),
            FieldType::Bool => 1,
            FieldType::Float(bytes) => usize::from(*bytes),
            FieldType::Enumeration(_) => 4,
            FieldType::Text => memchr::memchr(0, rest)? + 1,
            FieldType::Array(element, count) => usize::from(element.bytes) * *count as usize,
            FieldType::FloatArray(bytes, count) => usize::from(*bytes) * *count as usize,
            FieldType::Sequence(element) => sequence_bytes(rest, element.bytes)?,
            FieldType::FloatSequence(bytes) => sequence_bytes(rest, *bytes)?,
        };
    }
    (at <= payload.len()).then_some(at)
}

/// Of a sequence, by the count at its beginning.
fn sequence_bytes(payload: &[u8], element_bytes: u8) -> Option<usize> {
    let count = u32::from_le_bytes(payload.get(..4)?.try_into().ok()?);
    (count as usize).checked_mul(usize::from(element_bytes))?.checked_add(4)
}

#[cfg(test)]
mod tests;
