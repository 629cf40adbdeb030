// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tracepoints of a spool description: formats by the numbers that records begin with.

use crate::description::{FtraceDescription, SyscallFormat};
use rtscope_ctf::{Classes, TracepointId};
use rtscope_ftrace::format::EventFormat;
use rtscope_ftrace::page::PageLayout;
use std::collections::BTreeMap;

/// Formats, and the layout of sub-buffers.
#[derive(Debug)]
pub(crate) struct Formats {
    /// `None`: ftrace does not record.
    pub(crate) layout: Option<PageLayout>,
    formats: Vec<(EventFormat, u8)>,
    /// Place among the formats plus one, by number of the tracepoint.
    by_id: Vec<u16>,
    calls: CallIds,
    /// Classes of the built-in events that have one of these formats.
    built_in: Vec<u32>,
}

/// Numbers of the tracepoints of system calls' entries and exits, by the number of the call.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallIds {
    entries: Vec<Option<u16>>,
    exits: Vec<Option<u16>>,
}

impl CallIds {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.exits.is_empty()
    }

    #[inline]
    pub(crate) fn get(&self, number: u32, is_exit: bool) -> Option<u16> {
        let ids = if is_exit { &self.exits } else { &self.entries };
        ids.get(number as usize).copied().flatten()
    }

    fn set(&mut self, number: u16, is_exit: bool, id: u16) {
        let ids = if is_exit { &mut self.exits } else { &mut self.entries };
        if ids.len() <= usize::from(number) {
            ids.resize(usize::from(number) + 1, None);
        }
        ids[usize::from(number)] = Some(id);
    }
}

/// How to write the records of a tracepoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TracepointEncoding {
    pub(crate) class: TracepointId,
    /// If the event needs texts: offsets of the system call's number and of the thread's (4 bytes each).
    pub(crate) call_at: Option<(u32, u32)>,
    /// If two threads of the event matter: offsets of their numbers (4 bytes each).
    pub(crate) threads_at: Option<(ThreadPair, u32, u32)>,
}

/// The two threads of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadPair {
    /// `sched_process_fork`: the parent and the child.
    Fork,
    /// `sched_switch`: the one that leaves and the one that comes.
    Switch,
    /// `sched_process_exec`: the number before and the one from now on.
    Exec,
}

impl ThreadPair {
    /// Of an event of the subsystem `sched`: the pair, and the fields that name it.
    fn of(event: &str) -> Option<(ThreadPair, [&'static str; 2])> {
        match event {
            "sched_process_fork" => Some((ThreadPair::Fork, ["parent_pid", "child_pid"])),
            "sched_switch" => Some((ThreadPair::Switch, ["prev_pid", "next_pid"])),
            "sched_process_exec" => Some((ThreadPair::Exec, ["old_pid", "pid"])),
            _ => None,
        }
    }
}

impl TracepointEncoding {
    /// It is sched_switch, which belongs to two threads.
    pub(crate) fn is_switch(&self) -> bool {
        matches!(self.threads_at, Some((ThreadPair::Switch, ..)))
    }
}

impl Formats {
    /// Parses the formats of a spool description. The error names the one that cannot be parsed.
    pub(crate) fn new(
        ftrace: Option<&FtraceDescription>,
        syscalls: &[SyscallFormat],
        paths: &BTreeMap<String, u8>,
    ) -> Result<Formats, String> {
        let layout = ftrace.map(|ftrace| PageLayout::parse(&ftrace.header_page)).transpose();
        let layout = layout.map_err(|error| error.to_string())?;
        let of_ftrace = ftrace.map_or(&[][..], |ftrace| &ftrace.formats);
        let mut formats = Vec::with_capacity(of_ftrace.len() + syscalls.len());
        let mut by_id = vec![0; 1 << 16];
        let mut calls = CallIds::default();
        let of_ftrace = of_ftrace.iter().map(|text| (text, None));
        for (text, number) in of_ftrace.chain(syscalls.iter().map(|call| (&call.format, Some(call.number)))) {
            let format = EventFormat::parse(&text.system, &text.text).map_err(|error| error.to_string())?;
            let number_of_format = u16::try_from(formats.len() + 1).ok().filter(|number| *number < u16::MAX);
            let number_of_format = number_of_format.ok_or("more formats than records can have numbers")?;
            let call = format.name.strip_prefix("sys_enter_").filter(|_| format.system == "syscalls");
            let paths = call.and_then(|call| paths.get(call)).copied().unwrap_or(0);
            by_id[usize::from(format.id)] = number_of_format;
            if let Some(number) = number {
                calls.set(number, call.is_none(), format.id);
            }
            formats.push((format, paths));
        }
        let built_in = rtscope_event::classes().iter().zip(0..).filter(|(class, _)| {
            let name = |format: &EventFormat| rtscope_event::trace_name(&format.system, &format.name);
            formats.iter().any(|(format, _)| name(format) == Some(class.name))
        });
        let built_in = built_in.map(|(_, number)| number).collect();
        Ok(Formats { layout, formats, by_id, calls, built_in })
    }

    /// Whether events of this name are in a trace although nobody asked for them: see `StreamWriter::process`.
    pub(crate) fn is_unasked(&self, name: &str) -> bool {
        let classes = rtscope_event::classes();
        let asked = |number: &u32| classes.get(*number as usize).is_some_and(|class| class.name == name);
        matches!(name, "sched_process_fork" | "sched_process_exit" | "task_rename")
            && !self.built_in.iter().any(asked)
    }

    /// Classes of the built-in events that have one of these formats.
    pub(crate) fn built_in(&self) -> &[u32] {
        &self.built_in
    }

    /// The argument of `Classes::new`.
    pub(crate) fn for_classes(&self) -> Vec<(&EventFormat, u8)> {
        self.formats.iter().map(|(format, paths)| (format, *paths)).collect()
    }

    /// The tracepoints of system calls that eBPF recorded.
    pub(crate) fn calls(&self) -> CallIds {
        self.calls.clone()
    }

    /// The encodings, by number of the tracepoint.
    pub(crate) fn encodings(&self, classes: &Classes) -> Vec<Option<TracepointEncoding>> {
        let encodings = |place: &u16| {
            let index = usize::from(*place).checked_sub(1)?;
            let class = classes.tracepoint(index)?;
            let format = &self.formats[index].0;
            let place = |name: &str| {
                let mut fields = format.common.iter().chain(&format.fields);
                fields.find(|field| field.name == name && field.size == 4).map(|field| field.offset)
            };
            let wants = !classes.texts(class).is_empty();
            let call_at = place("__syscall_nr").zip(place("common_pid")).filter(|_| wants);
            let threads = ThreadPair::of(&format.name).filter(|_| format.system == "sched");
            let threads_at =
                threads.and_then(|(pair, [one, other])| Some((pair, place(one)?, place(other)?)));
            Some(TracepointEncoding { class, call_at, threads_at })
        };
        self.by_id.iter().map(encodings).collect()
    }
}
