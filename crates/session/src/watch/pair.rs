// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pairs of the kernel's tracepoints: whether two names are of them, where their records have the key, and what a record says.
//!
//! Names of tracepoints and of programs' events look alike. What this kernel has under a name is its tracepoint; all others are of programs,
//! which may be started later. A subsystem that the kernel has is not a program's provider: a name that is wrong there is a mistake.

use crate::Failure;
use rtscope_abi::{RTS_PAIR_BYTES, RTS_PAIR_PARTS};
use rtscope_analyze::pairing::PairQuestion;
use rtscope_event::{EventSpan, FieldValue, MonotonicNs, SpanEvent};
use rtscope_flight::monotonic_now;
use rtscope_ftrace::format::{EventFormat, Field, FieldKind, Meaning, Scalar};
use rtscope_kernel::tracefs::{EventName, Tracefs, TracefsError};
use rtscope_kernel::{KeyPart, PairSide, TracepointPair};
use std::collections::BTreeMap;

const BYTES: u32 = RTS_PAIR_BYTES;

/// Both tracepoints of a pair, as tracefs describes them.
#[derive(Clone, Debug)]
pub struct Tracepoints {
    question: PairQuestion,
    from: EventFormat,
    to: EventFormat,
}

impl Tracepoints {
    /// `None`: both ends are events of programs.
    ///
    /// # Errors
    /// One end is the kernel's and the other is not, a tracepoint is not there, or it lacks a field of the key.
    pub fn of(question: &PairQuestion) -> Result<Option<Tracepoints>, Failure> {
        let (begin, end) = (question.begin.to_string(), question.end.to_string());
        let names = match (tracepoint(&begin)?, tracepoint(&end)?) {
            (None, None) => return Ok(None),
            (Some(from), Some(to)) => (from, to),
            (from, _) => {
                let (kernel, program) = if from.is_some() { (&begin, &end) } else { (&end, &begin) };
                return Err(Failure::Usage(format!(
                    "'{kernel}' is a tracepoint of the kernel and '{program}' is not: a pair is of two tracepoints, or of two events of \
                     programs. Record both (rtscope record -k -u), and ask the trace: rtscope stat --latency '{question}'"
                )));
            }
        };
        let tracefs = Tracefs::find().map_err(|error| Failure::Usage(error.to_string()))?;
        let format = |name| tracefs.format(name).map_err(|error| Failure::Usage(error.to_string()));
        let found =
            Tracepoints { from: format(&names.0)?, to: format(&names.1)?, question: question.clone() };
        found.pair().map(|_| Some(found))
    }

    /// What the kernel's side follows.
    ///
    /// # Errors
    /// A field of the key is not there, or it is not an integer; or the key has too many parts.
    pub fn pair(&self) -> Result<TracepointPair, Failure> {
        let key = |which: fn(&(String, String)) -> &String, format: &EventFormat| {
            let parts = self.question.key.iter().map(|part| key_part(which(part), format));
            let parts: Vec<KeyPart> = parts.collect::<Result<_, _>>().map_err(Failure::Usage)?;
            // Without a key they belong together when they are of one thread.
            Ok::<_, Failure>(if parts.is_empty() { vec![KeyPart::Tid] } else { parts })
        };
        if self.question.key.len() > RTS_PAIR_PARTS as usize {
            return Err(Failure::Usage(format!("--key: at most {RTS_PAIR_PARTS} fields")));
        }
        Ok(TracepointPair {
            from: side(&self.from, key(|part| &part.0, &self.from)?),
            to: side(&self.to, key(|part| &part.1, &self.to)?),
        })
    }

    /// Names of both events and of their fields; until then they have their records, in hex.
    pub fn describe(&self, span: &mut EventSpan, is_pending: bool) {
        describe(&mut span.from, &self.from);
        describe(&mut span.to, &self.to);
        if !is_pending {
            span.noticed_after_ns = monotonic_now().since(MonotonicNs(span.to.time_ns.0));
        }
    }
}

/// The tracepoint of this name; `None`: it is another's event.
fn tracepoint(text: &str) -> Result<Option<EventName>, Failure> {
    let Some(name) = EventName::parse(text).filter(|_| !text.contains(['*', '?'])) else { return Ok(None) };
    // Without tracefs no tracepoint can be followed; events of programs can.
    let Ok(tracefs) = Tracefs::find() else { return Ok(None) };
    let all = match tracefs.events() {
        Ok(all) => all,
        Err(TracefsError::Permission { .. }) => return Ok(None),
        Err(error) => return Err(Failure::Usage(error.to_string())),
    };
    if all.contains(&name) {
        return Ok(Some(name));
    }
    let beside: Vec<&str> =
        all.iter().filter(|known| known.system == name.system).map(|known| known.name.as_str()).collect();
    if beside.is_empty() {
        return Ok(None);
    }
    let words: Vec<&str> = name.name.split('_').filter(|word| word.len() > 2).collect();
    let alike = |known: &str| words.iter().filter(|word| known.contains(**word)).count();
    let mut near: Vec<&str> = beside.into_iter().filter(|known| alike(known) > 0).collect();
    near.sort_by_key(|known| std::cmp::Reverse(alike(known)));
    near.truncate(8);
    let near = if near.is_empty() { String::new() } else { format!("; it has {}", near.join(", ")) };
    Err(Failure::Usage(format!(
        "this kernel has no tracepoint '{name}' in '{}'{near} (rtscope list -k '{}:*' lists all)",
        name.system, name.system
    )))
}

/// A field, or what is known of the moment where there is no field of that name.
fn key_part(name: &str, format: &EventFormat) -> Result<KeyPart, String> {
    let given = match name {
        "tid" => Some(KeyPart::Tid),
        "pid" => Some(KeyPart::Pid),
        "cpu" => Some(KeyPart::Cpu),
        _ => None,
    };
    let event = format!("{}:{}", format.system, format.name);
    let Some(field) = format.fields.iter().find(|field| field.name == name) else {
        let fields: Vec<&str> = format.fields.iter().map(|field| field.name.as_str()).collect();
        let missing = || {
            format!(
                "--key: '{event}' has no field '{name}'; it has {}, and all have tid, pid and cpu",
                fields.join(", ")
            )
        };
        return given.ok_or_else(missing);
    };
    match (&field.kind, u16::try_from(field.offset)) {
        (FieldKind::Scalar(scalar), Ok(offset)) => {
            Ok(KeyPart::Field { offset, size: scalar.size, signed: scalar.signed })
        }
        _ => Err(format!(
            "--key: '{name}' of '{event}' is '{}', and a key is of integers of 1 to 8 bytes",
            field.declaration
        )),
    }
}

fn side(format: &EventFormat, key: Vec<KeyPart>) -> PairSide {
    let end = |field: &Field| field.offset.saturating_add(field.size);
    let fixed = format.fields.iter().map(end).max().unwrap_or(8);
    // Texts lie behind the fields. But not those of system calls: there nothing else is the event's.
    let has_more = format.system != "syscalls"
        && format.fields.iter().any(|field| matches!(field.kind, FieldKind::Dynamic { .. }));
    PairSide {
        system: format.system.clone(),
        name: format.name.clone(),
        key,
        bytes: if has_more { BYTES } else { fixed.min(BYTES) },
    }
}

fn describe(event: &mut SpanEvent, format: &EventFormat) {
    event.event = format!("{}:{}", format.system, format.name);
    let Some(FieldValue::Text(hex)) = event.fields.remove("") else { return };
    let kept = side(format, Vec::new()).bytes as usize;
    let mut record: Vec<u8> = hex.as_bytes().chunks(2).filter_map(byte).collect();
    record.truncate(kept);
    event.fields = fields(&record, format);
}

fn byte(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// What a record says, as far as it was kept; what was not is [`FieldValue::Other`].
fn fields(record: &[u8], format: &EventFormat) -> BTreeMap<String, FieldValue> {
    let value = |field: &Field| value(record, field).unwrap_or(FieldValue::Other(()));
    format.fields.iter().map(|field| (field.name.clone(), value(field))).collect()
}

fn value(record: &[u8], field: &Field) -> Option<FieldValue> {
    let at = field.offset as usize;
    let bytes = record.get(at..at.checked_add(field.size as usize)?)?;
    match &field.kind {
        FieldKind::Scalar(scalar) => number(bytes, *scalar),
        FieldKind::Array { element, .. } if element.meaning == Meaning::Text => Some(text(bytes)),
        FieldKind::Dynamic { element, relative } if element.meaning == Meaning::Text => {
            let word = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
            let from = (word & 0xffff).checked_add(if *relative { at + bytes.len() } else { 0 })?;
            record.get(from..from.checked_add(word >> 16)?).map(text)
        }
        FieldKind::Array { .. } | FieldKind::Dynamic { .. } | FieldKind::Opaque => None,
    }
}

fn number(bytes: &[u8], scalar: Scalar) -> Option<FieldValue> {
    let size = usize::from(scalar.size);
    let mut wide = [0; 8];
    // Machines that rtscope runs on have the lowest byte first.
    wide.get_mut(..size)?.copy_from_slice(bytes.get(..size)?);
    let unused = 64 - 8 * u32::from(scalar.size);
    let value = u64::from_le_bytes(wide);
    let signed = ((value << unused) as i64) >> unused;
    Some(if scalar.signed && signed < 0 { FieldValue::Signed(signed) } else { FieldValue::Unsigned(value) })
}

fn text(bytes: &[u8]) -> FieldValue {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    FieldValue::Text(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: sched_process_fork\nID: 300\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:__data_loc char[] parent_comm;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:pid_t parent_pid;\toffset:12;\tsize:4;\tsigned:1;\n\
        \tfield:char child_comm[16];\toffset:16;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t child_pid;\toffset:32;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n";

    fn format() -> EventFormat {
        EventFormat::parse("sched", FORMAT).expect("a description of a kernel")
    }

    #[test]
    fn a_key_is_an_integer_of_the_record_or_what_is_known_of_the_moment() {
        let part = |name: &str| key_part(name, &format());
        assert_eq!(part("child_pid"), Ok(KeyPart::Field { offset: 32, size: 4, signed: true }));
        assert_eq!(
            (part("pid"), part("cpu"), part("tid")),
            (Ok(KeyPart::Pid), Ok(KeyPart::Cpu), Ok(KeyPart::Tid))
        );
        assert!(part("child_comm").is_err_and(|why| why.contains("'char[16]'")), "{:?}", part("child_comm"));
        assert!(
            part("nothing").is_err_and(|why| why.contains("parent_comm, parent_pid, child_comm, child_pid"))
        );
    }

    #[test]
    fn a_record_says_what_was_kept_of_it_and_no_more() {
        let mut record = vec![0; 36];
        record[8..12].copy_from_slice(&(5_u32 << 16 | 36).to_le_bytes());
        record[12..16].copy_from_slice(&(-7_i32).to_le_bytes());
        record[16..20].copy_from_slice(b"sh\0x");
        record[32..36].copy_from_slice(&77_i32.to_le_bytes());
        record.extend(b"bash\0");
        let all = fields(&record, &format());
        let text = |text: &str| FieldValue::Text(text.to_owned());
        assert_eq!((&all["parent_comm"], &all["child_comm"]), (&text("bash"), &text("sh")));
        assert_eq!(
            (&all["parent_pid"], &all["child_pid"]),
            (&FieldValue::Signed(-7), &FieldValue::Unsigned(77))
        );
        // A byte less, and the text is not whole; fewer, and the last field is not there.
        assert_eq!(fields(&record[..40], &format())["parent_comm"], FieldValue::Other(()));
        assert_eq!(fields(&record[..35], &format())["child_pid"], FieldValue::Other(()));
    }

    #[test]
    fn of_a_system_call_only_the_fields_are_kept() {
        let kept =
            |system: &str| side(&EventFormat { system: system.to_owned(), ..format() }, Vec::new()).bytes;
        assert_eq!((kept("sched"), kept("syscalls")), (128, 36));
    }
}
