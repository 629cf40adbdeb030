// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope print --resolve`: behind each system call, what its numbers mean.
//!
//! Events are formatted by several threads, each a part of the time; what a descriptor is depends on all calls before. So threads write a
//! *note* behind a line: the names of flags, and what happens to descriptors; [`Resolver`] gets the pieces in order, follows the
//! descriptors, and replaces each note by text. A note is between two control characters, which no format has in its lines.

mod descriptors;
mod names;

pub use names::Architecture;
pub(crate) use names::error;

use super::tame::tame;
use descriptors::{Descriptors, makes_descriptor};
use names::{Kind, kind_of, named};
use rtscope_ctf::{
    EventView, FieldIndex, Format, Integer, NoStyle, Pattern, Piece, Plan, Scope, Selection, TraceSet, Visit,
    WriteEvent,
};
use rtscope_event::is_event_named;

const BEGIN: u8 = 1;
const END: u8 = 2;
/// Between the parts of a note, and between the words of a part.
const PART: char = '\u{1e}';
const WORD: char = '\u{1f}';

const ENTRY: &str = "syscall_entry_";
const EXIT: &str = "syscall_exit_";

/// How resolved values are added to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addition {
    /// ` # name = value, ...` at the end of a line of text.
    Text,
    /// `"resolved":{...}` as the last member of an object.
    Json,
}

/// What has to be read, so that what is selected can be resolved: also what tells of descriptors before and beside it.
#[must_use]
pub fn to_read(selected: &Selection) -> Selection {
    let mut all = Selection { from_ns: None, ..selected.clone() };
    all.events.exclude.clear();
    if !all.events.include.is_empty() {
        let more = ["syscall_*", "sched_process_*", "lttng_statedump_process_state"];
        all.events.include.extend(more.into_iter().map(Pattern::new));
    }
    all
}

/// Why descriptors cannot be followed; `None` if they can.
#[must_use]
pub fn why_not(set: &TraceSet, selected: &Selection) -> Option<&'static str> {
    let has = |name: &str| {
        set.streams
            .iter()
            .any(|stream| (0..set.event_count(stream)).any(|event| set.event_name(stream, event) == name))
    };
    let changes = ["entry_close", "entry_dup3", "entry_fcntl", "exit_execve", "exit_openat"];
    let mut hosts: Vec<&str> = set.traces.iter().map(|trace| trace.host()).collect();
    hosts.dedup();
    let lost = set.streams.iter().any(|stream| !stream.losses.list.is_empty()) || !set.damaged.is_empty();
    if !has("syscall_entry_close") {
        Some("the trace does not have the system calls that close them")
    } else if !changes.iter().all(|call| has(&format!("syscall_{call}"))) {
        Some("the trace does not have all system calls")
    } else if !selected.conditions.is_empty() || selected.cpus.is_some() {
        Some("what they are follows from all events, and --where, --task and --cpu select some")
    } else if lost {
        Some("events were lost")
    } else if hosts.len() > 1 {
        Some("the traces are of several hosts")
    } else if set.traces.iter().any(|trace| trace.cut_from_ns().is_some() || trace.is_selection()) {
        Some("the trace is a part of another")
    } else {
        None
    }
}

/// What an event is to a resolver.
#[derive(Debug)]
enum Role {
    Nothing,
    /// The name of the call, and its arguments that mean something.
    Entry(String, Vec<(usize, String, Option<Kind>)>),
    Exit(String, Option<usize>),
    /// Parent, child, and its process.
    Fork([Option<usize>; 3]),
    Exited(Option<usize>),
    /// Thread and process.
    Dump([Option<usize>; 2]),
}

#[derive(Debug)]
struct Class {
    role: Role,
    plan: Plan,
    tid: Option<usize>,
    /// It is not printed: it only tells what descriptors are.
    hidden: bool,
}

/// A format with notes.
pub struct Resolving<F> {
    inner: F,
    classes: Vec<Vec<Class>>,
    architecture: Architecture,
    addition: Addition,
    from_ns: Option<i64>,
}

impl<F: Format> Resolving<F> {
    /// Prints what is `selected` by time and name. What is to be read is [`to_read`].
    pub fn new(
        set: &TraceSet,
        inner: F,
        addition: Addition,
        architecture: Architecture,
        selected: &Selection,
    ) -> Resolving<F> {
        let (events, from_ns) = (&selected.events, selected.from_ns);
        let classes = set.streams.iter().map(|stream| {
            let class = |event| {
                let name = set.event_name(stream, event);
                let plan = set.event_plan(stream, event, &NoStyle);
                let hidden = !events.matches(|event| is_event_named(event, name));
                Class { role: role(name, &plan), tid: context_tid(&plan), plan, hidden }
            };
            (0..set.event_count(stream)).map(class).collect()
        });
        Resolving { inner, classes: classes.collect(), architecture, addition, from_ns }
    }
}

fn context_tid(plan: &Plan) -> Option<usize> {
    plan.fields.iter().position(|field| field.scope != Scope::Fields && field.path == "tid")
}

fn role(name: &str, plan: &Plan) -> Role {
    let field =
        |name: &str| plan.fields.iter().position(|field| field.scope == Scope::Fields && field.path == name);
    if let Some(call) = name.strip_prefix(ENTRY) {
        let fields = plan.fields.iter().enumerate().filter(|(_, field)| field.scope == Scope::Fields);
        let arguments =
            fields.map(|(place, field)| (place, field.path.clone(), kind_of(call, &field.path))).collect();
        return Role::Entry(call.to_owned(), arguments);
    }
    if let Some(call) = name.strip_prefix(EXIT) {
        return Role::Exit(call.to_owned(), field("ret"));
    }
    match name {
        "sched_process_fork" => Role::Fork([field("parent_tid"), field("child_tid"), field("child_pid")]),
        "sched_process_exit" => Role::Exited(field("tid")),
        "lttng_statedump_process_state" => Role::Dump([field("tid"), field("pid")]),
        _ => Role::Nothing,
    }
}

impl<F: Format> Format for Resolving<F> {
    type Writer<'f>
        = ResolvingWriter<'f, F>
    where
        F: 'f;

    fn writer(&self) -> ResolvingWriter<'_, F> {
        ResolvingWriter { format: self, inner: self.inner.writer(), values: Collected::default() }
    }

    fn gap(&self, before: Option<u64>, first: u64, text: &mut Vec<u8>) {
        self.inner.gap(before, first, text);
    }
}

/// The values of one event, by field.
#[derive(Debug, Default)]
struct Collected {
    numbers: Vec<Option<u64>>,
    texts: Vec<(usize, Vec<u8>)>,
}

impl Collected {
    fn clear(&mut self, fields: usize) {
        self.numbers.clear();
        self.numbers.resize(fields, None);
        self.texts.clear();
    }

    fn number(&self, place: Option<usize>) -> Option<u64> {
        self.numbers.get(place?).copied().flatten()
    }

    fn tid(&self, place: Option<usize>) -> Option<u32> {
        self.number(place).map(|value| value as u32)
    }
}

impl Visit for Collected {
    fn literal(&mut self, _: &[u8]) {}

    fn integer(&mut self, _: &Plan, integer: &Integer, value: u64) {
        if let Some(place) = self.numbers.get_mut(usize::from(integer.field)) {
            *place = Some(value);
        }
    }

    fn float(&mut self, _: FieldIndex, _: f64) {}

    fn text(&mut self, field: FieldIndex, text: &[u8]) {
        self.texts.push((usize::from(field), text.to_vec()));
    }

    fn element(&mut self, _: u64) {}

    fn restart(&mut self) {
        let fields = self.numbers.len();
        self.clear(fields);
    }
}

/// Writes lines with notes.
pub struct ResolvingWriter<'f, F: Format + 'f> {
    format: &'f Resolving<F>,
    inner: F::Writer<'f>,
    values: Collected,
}

impl<F: Format> WriteEvent for ResolvingWriter<'_, F> {
    fn write(&mut self, piece: &mut Piece, event: &mut EventView<'_, '_>) -> bool {
        let class = self.format.classes.get(event.stream).and_then(|classes| classes.get(event.event));
        let Some(class) = class else { return false };
        let early = event.ns.zip(self.format.from_ns).is_some_and(|(ns, from)| ns < from);
        let hidden = class.hidden || early;
        if matches!(class.role, Role::Nothing) && !hidden {
            return self.inner.write(piece, event);
        }
        self.values.clear(class.plan.fields.len());
        let collected = match hidden {
            true => event.show(&class.plan, &mut self.values),
            false => event.peek(&class.plan, &mut self.values),
        };
        if !collected || (!hidden && !self.inner.write(piece, event)) {
            return false;
        }
        let note = note(class, &self.values, self.format.architecture, hidden);
        if note.is_empty() {
            return !hidden;
        }
        let text = &mut piece.text;
        let end: &[u8] = match (hidden, self.format.addition) {
            (true, _) => b"",
            (false, Addition::Text) => b"\n",
            (false, Addition::Json) => b"}\n",
        };
        text.truncate(text.len() - end.len());
        text.push(BEGIN);
        text.extend_from_slice(note.as_bytes());
        text.push(END);
        text.extend_from_slice(end);
        !hidden
    }
}

/// A text that has no control characters: those of a path are shown by their numbers.
fn plain(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            c if c.is_control() => plain.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => plain.push(c),
        }
    }
    plain
}

/// What an event says, for [`Resolver`].
fn note(class: &Class, values: &Collected, architecture: Architecture, hidden: bool) -> String {
    let join = |words: &[&str]| words.join(&WORD.to_string());
    let tid = values.tid(class.tid);
    let mut parts: Vec<String> = Vec::new();
    match &class.role {
        Role::Nothing => {}
        Role::Entry(call, arguments) => {
            let thread = tid.map(|tid| tid.to_string()).unwrap_or_default();
            for (place, name, kind) in arguments {
                let Some((kind, value)) = kind.zip(values.number(Some(*place))) else { continue };
                match named(kind, value, architecture) {
                    Some(text) => parts.push(join(&["=", name, &text])),
                    None if matches!(kind, Kind::Descriptor | Kind::Directory) => {
                        parts.push(join(&["f", name, &thread, &(value as u32 as i32).to_string()]));
                    }
                    None => {}
                }
            }
            if tid.is_some() {
                let number = |index: usize| {
                    let value = arguments.get(index).and_then(|(place, ..)| values.number(Some(*place)));
                    // Descriptors and flags have 32 bits, whatever the trace makes of them.
                    (value.unwrap_or(0) as u32 as i32).to_string()
                };
                let path = values.texts.first().map(|(_, text)| plain(text)).unwrap_or_default();
                parts.push(join(&["e", &thread, call, &number(0), &number(1), &number(2), &path]));
            }
        }
        Role::Exit(call, ret) => {
            let Some(result) = values.number(*ret).map(|value| value as i64) else { return String::new() };
            if let Some(tid) = tid {
                let thread = tid.to_string();
                parts.push(join(&["x", &thread, call, &result.to_string()]));
                if result >= 0 && makes_descriptor(call) {
                    parts.push(join(&["f", "ret", &thread, &result.to_string()]));
                }
            }
            parts.extend(error(result).map(|text| join(&["=", "ret", &text])));
        }
        Role::Fork(places) => {
            if let [Some(parent), Some(child), Some(pid)] = places.map(|place| values.tid(place)) {
                parts.push(join(&["p", &parent.to_string(), &child.to_string(), &pid.to_string()]));
            }
        }
        Role::Exited(place) => parts.extend(values.tid(*place).map(|tid| join(&["q", &tid.to_string()]))),
        Role::Dump(places) => {
            if let [Some(tid), Some(pid)] = places.map(|place| values.tid(place)) {
                parts.push(join(&["d", &tid.to_string(), &pid.to_string()]));
            }
        }
    }
    if hidden {
        parts.retain(|part| !part.starts_with(['=', 'f']));
    }
    parts.join(&PART.to_string())
}

/// Replaces notes by what they mean.
#[derive(Debug)]
pub struct Resolver {
    addition: Addition,
    /// Whether what descriptors are can be known at all.
    follows: bool,
    descriptors: Descriptors,
}

impl Resolver {
    /// `follows`: whether all events that change descriptors come here, and none was lost.
    #[must_use]
    pub fn new(addition: Addition, follows: bool) -> Resolver {
        Resolver { addition, follows, descriptors: Descriptors::default() }
    }

    /// The next piece.
    pub fn piece(&mut self, piece: &mut Piece) {
        if memchr(&piece.text).is_none() {
            return;
        }
        let (head, rest) = piece.text.split_at(piece.first.map_or(0, |(_, at)| at).min(piece.text.len()));
        let mut text = Vec::with_capacity(piece.text.len());
        self.resolve(head, &mut text);
        if let Some((_, at)) = &mut piece.first {
            *at = text.len();
        }
        self.resolve(rest, &mut text);
        piece.text = text;
    }

    fn resolve(&mut self, text: &[u8], out: &mut Vec<u8>) {
        let mut rest = text;
        while let Some(at) = memchr(rest) {
            let (before, note) = rest.split_at(at);
            out.extend_from_slice(before);
            let end = note.iter().position(|byte| *byte == END).unwrap_or(note.len());
            self.note(&String::from_utf8_lossy(&note[1..end]), out);
            rest = note.get(end + 1..).unwrap_or_default();
        }
        out.extend_from_slice(rest);
    }

    fn note(&mut self, note: &str, out: &mut Vec<u8>) {
        let mut values: Vec<(String, String)> = Vec::new();
        for part in note.split(PART) {
            let words: Vec<&str> = part.split(WORD).collect();
            if let ["=", name, text] = words.as_slice() {
                values.push(((*name).to_owned(), (*text).to_owned()));
            } else if self.follows {
                values.extend(self.follow(&words));
            }
        }
        if values.is_empty() {
            return;
        }
        match self.addition {
            Addition::Text => {
                let shown: Vec<String> =
                    values.iter().map(|(name, text)| format!("{name} = {text}")).collect();
                let start = out.len();
                out.extend_from_slice(b" # ");
                out.extend_from_slice(shown.join(", ").as_bytes());
                tame(out, start);
            }
            Addition::Json => {
                let quoted = |text: &str| serde_json::Value::from(text).to_string();
                let shown: Vec<String> =
                    values.iter().map(|(name, text)| format!("{}:{}", quoted(name), quoted(text))).collect();
                out.extend_from_slice(format!(",\"resolved\":{{{}}}", shown.join(",")).as_bytes());
            }
        }
    }

    fn follow(&mut self, words: &[&str]) -> Option<(String, String)> {
        let all = &mut self.descriptors;
        let tid = |text: &str| text.parse::<u32>().ok();
        let number = |text: &str| text.parse::<i64>().ok();
        match words {
            ["f", name, thread, fd] => {
                let what = all.what(tid(thread)?, number(fd)?)?;
                return Some(((*name).to_owned(), format!("{fd}<{what}>")));
            }
            ["e", thread, call, first, second, third, path] => {
                let path = (!path.is_empty()).then(|| (*path).to_owned());
                all.entry(tid(thread)?, call, [number(first)?, number(second)?, number(third)?], path);
            }
            ["x", thread, call, result] => all.done(tid(thread)?, call, number(result)?),
            ["p", parent, child, pid] => all.fork(tid(parent)?, tid(child)?, tid(pid)?),
            ["q", thread] => all.exit(tid(thread)?),
            ["d", thread, pid] => all.thread(tid(thread)?, tid(pid)?),
            _ => {}
        }
        None
    }
}

fn memchr(text: &[u8]) -> Option<usize> {
    text.iter().position(|byte| *byte == BEGIN)
}
