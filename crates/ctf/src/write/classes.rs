// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The event classes of one trace: those of built-in events, and one for each tracepoint. Built-in ones are declared if they occur.
//!
//! An event begins with its class's number and the lower bits of its time. With at most 31 frequent classes both fit four
//! bytes; with more they take six. Numbers are assigned so that only the state dump, which occurs once, needs the
//! long form, and in a trace that is written while it is recorded, events that were not seen at its beginning.
//!
//! A tracepoint has *twins*: classes that differ in their number only, one for each pattern of empty texts.
//! babeltrace2 2.0.4 does not clear a text that is empty: it shows the content of that field in an earlier event of the same
//! class (corrected upstream in review 4528). `fstat` has an empty path in most programs, so some calls would be shown with
//! the path of another. In a separate class the field is always empty. Only twins that occur are declared.

use super::tracepoint::{GivenText, Tracepoint, name_all};
use crate::layout::{EventLayout, event_layouts, id};
use rtscope_event::exact::count;
use rtscope_ftrace::format::EventFormat;
use std::collections::HashSet;

/// A tracepoint of [`Classes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TracepointId(pub(super) u32);

/// The layout of event headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// 5 bits of number, 27 bits of time.
    Compact,
    /// 16 bits of number, 32 bits of time.
    Large,
}

impl Header {
    /// The shorter one if the numbers of all classes fit.
    pub(super) fn for_classes(count: usize) -> Header {
        if count <= Header::Compact.extended() as usize { Header::Compact } else { Header::Large }
    }

    /// The number of the class of streams that have it, where both occur.
    pub(super) fn stream_class(self) -> u32 {
        match self {
            Header::Compact => 0,
            Header::Large => 1,
        }
    }

    /// The number that announces the long form.
    #[inline]
    pub(super) fn extended(self) -> u32 {
        match self {
            Header::Compact => 31,
            Header::Large => 65_535,
        }
    }

    #[inline]
    pub(super) fn time_bits(self) -> u32 {
        match self {
            Header::Compact => 27,
            Header::Large => 32,
        }
    }
}

/// The classes of a trace.
#[derive(Debug)]
pub struct Classes {
    pub(super) header: Header,
    layouts: Vec<EventLayout>,
    /// For each layout, its number in this trace.
    own: Vec<u32>,
    first_tracepoint: u32,
    tracepoints: Vec<Tracepoint>,
    /// For each tracepoint, its first twin; and at the end the number behind the last.
    twins: Vec<u32>,
}

impl Classes {
    /// The built-in classes, of which `occurs` selects those whose events may be frequent (by the number of `EventKind::class`), and one
    /// for each format. With a format: which arguments of a system call are texts that the caller provides (bit i: argument i).
    #[must_use]
    pub fn new(occurs: impl Fn(u32) -> bool, formats: &[(&EventFormat, u8)]) -> Classes {
        let layouts = event_layouts();
        let is_dump = |number: u32| (id::DUMP_START..=id::DUMP_END).contains(&number);
        let mut own = vec![0; layouts.len()];
        let numbers = 0..count(layouts.len());
        let (rare, occurring): (Vec<u32>, Vec<u32>) =
            numbers.partition(|number| is_dump(*number) || !occurs(*number));
        let first_tracepoint = count(occurring.len());
        let first_rare = first_tracepoint + count(formats.len());
        for (number, layout) in (0..first_tracepoint).zip(occurring).chain((first_rare..).zip(rare)) {
            own[layout as usize] = number;
        }
        let taken: HashSet<&str> = layouts.iter().map(|layout| layout.name).collect();
        let names = name_all(&formats.iter().map(|(format, _)| *format).collect::<Vec<_>>(), &taken);
        let named = |((format, paths), name): (&(&EventFormat, u8), String)| {
            let mut tracepoint = Tracepoint::new(format, *paths);
            tracepoint.name = name;
            tracepoint
        };
        let tracepoints: Vec<Tracepoint> = formats.iter().zip(names).map(named).collect();
        let frequent = first_tracepoint + count(tracepoints.len());
        let header = if frequent <= Header::Compact.extended() { Header::Compact } else { Header::Large };
        let mut next = count(own.len() + tracepoints.len());
        let mut twins = vec![next];
        for tracepoint in &tracepoints {
            next += tracepoint.patterns() - 1;
            twins.push(next);
        }
        Classes { header, layouts, own, first_tracepoint, tracepoints, twins }
    }

    /// The tracepoint made from the format at `index` of those given.
    #[must_use]
    pub fn tracepoint(&self, index: usize) -> Option<TracepointId> {
        (index < self.tracepoints.len()).then_some(TracepointId(count(index)))
    }

    /// Its name in the trace.
    #[must_use]
    pub fn tracepoint_name(&self, id: TracepointId) -> &str {
        self.tracepoints.get(id.0 as usize).map_or("", |class| &class.name)
    }

    /// The texts that its events need, in the order in which they are to be provided.
    #[must_use]
    pub fn texts(&self, id: TracepointId) -> &[GivenText] {
        self.tracepoints.get(id.0 as usize).map_or(&[], |class| &class.texts)
    }

    /// All names, by number in the trace.
    pub(super) fn names(&self) -> Vec<&str> {
        let mut names = vec![""; self.twins.last().map_or(0, |end| *end as usize)];
        for (number, layout) in self.own_classes() {
            names[number as usize] = layout.name;
        }
        for (number, class) in (self.first_tracepoint..).zip(&self.tracepoints) {
            names[number as usize] = &class.name;
        }
        for (number, class) in self.twin_classes() {
            names[number as usize] = &class.name;
        }
        names
    }

    /// Number and layout of a built-in class.
    #[inline]
    pub(super) fn own(&self, layout: u32) -> Option<(u32, &EventLayout)> {
        Some((*self.own.get(layout as usize)?, &self.layouts[layout as usize]))
    }

    /// Class of a tracepoint, and its number for an event with these texts.
    #[inline]
    pub(super) fn class(
        &self,
        id: TracepointId,
        record: &[u8],
        texts: &[Option<&[u8]>],
    ) -> Option<(u32, &Tracepoint)> {
        let class = self.tracepoints.get(id.0 as usize)?;
        let number = match class.empty_texts(record, texts) {
            0 => self.first_tracepoint + id.0,
            pattern => self.twins.get(id.0 as usize)? + pattern - 1,
        };
        Some((number, class))
    }

    /// The built-in classes, with their numbers.
    pub(super) fn own_classes(&self) -> impl Iterator<Item = (u32, &EventLayout)> {
        self.own.iter().copied().zip(&self.layouts)
    }

    /// The tracepoints, with their numbers.
    pub(super) fn tracepoint_classes(&self) -> impl Iterator<Item = (u32, &Tracepoint)> {
        (self.first_tracepoint..).zip(&self.tracepoints)
    }

    /// Their twins.
    pub(super) fn twin_classes(&self) -> impl Iterator<Item = (u32, &Tracepoint)> {
        let numbers = self.twins.windows(2).map(|pair| pair[0]..pair[1]);
        numbers.zip(&self.tracepoints).flat_map(|(numbers, class)| numbers.map(move |number| (number, class)))
    }
}
