// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of threads of a recording, while it is made.
//!
//! What a thread is called has to be known before its events are shown, and whoever selects some events still needs the names that others
//! tell. So the names have a reader of their own, which is always taken to the horizon first.

use super::super::index::StreamGap;
use super::super::kernel::Binding;
use super::super::queue::Output;
use super::super::select::Selection;
use super::super::set::TraceSet;
use super::super::slices::{EventView, Work};
use super::super::source::{Batch, Described, Describing, Gathering};
use super::super::tasks::{SharedTaskNames, is_few};
use super::merge::Take;
use super::{Follower, Round};
use crate::Error;
use std::path::Path;

/// Reads the events that name threads, which are few, and passes over all others.
#[derive(Debug)]
pub struct NamesFollower {
    follower: Follower,
    /// The follower's, that the rest is of.
    generation: Option<u64>,
    describing: Describing,
    /// By class.
    bindings: Vec<Option<Binding>>,
    batch: Batch,
    names: SharedTaskNames,
}

impl NamesFollower {
    /// Of a recording that becomes the directory `target`, from its beginning.
    #[must_use]
    pub fn new(target: &Path) -> NamesFollower {
        NamesFollower {
            follower: Follower::new(target, Selection::default()),
            generation: None,
            describing: Describing::default(),
            bindings: Vec::new(),
            batch: Batch::default(),
            names: SharedTaskNames::default(),
        }
    }

    /// The names so far, and those to come.
    #[must_use]
    pub fn names(&self) -> SharedTaskNames {
        self.names.clone()
    }

    /// Learns what is told before the horizon. What cannot be read is said by those who show the events.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn catch_up(&mut self, is_abandoned: &dyn Fn(&Path) -> bool, horizon_ns: i64) -> Result<(), Error> {
        loop {
            self.follower.look(is_abandoned)?;
            self.describe();
            let mut taking = Taking {
                described: &self.describing.described,
                bindings: &self.bindings,
                batch: &mut self.batch,
            };
            let round = self.follower.round(horizon_ns, &mut taking)?;
            if !self.batch.entries.is_empty() {
                let (batch, schema, bindings) = (&self.batch, &self.describing.schema, &self.bindings);
                self.names.update(|names| {
                    for entry in &batch.entries {
                        let event = batch.event(entry, schema);
                        if let Some(Some(binding)) = bindings.get(event.class.0 as usize) {
                            names.learn(&event, binding);
                        }
                    }
                });
            }
            self.batch = std::mem::take(&mut self.batch).recycled();
            self.follower.take_damaged();
            if round != Round::More {
                return Ok(());
            }
        }
    }

    fn describe(&mut self) {
        let generation = self.follower.generation();
        if self.generation != Some(generation) {
            self.generation = Some(generation);
            self.describing.extend_named(self.follower.set(), &is_few);
            let fresh = self.describing.schema.classes.iter().skip(self.bindings.len());
            self.bindings
                .extend(fresh.map(|class| is_few(&class.name).then(|| Binding::of(class)).flatten()));
        }
    }
}

struct Taking<'t> {
    described: &'t Described,
    bindings: &'t [Option<Binding>],
    batch: &'t mut Batch,
}

impl Take for Taking<'_> {
    fn event(&mut self, _: &TraceSet, event: &mut EventView<'_, '_>) -> bool {
        let class = self.described.places.get(event.stream).and_then(|places| places.get(event.event));
        match class.and_then(|class| self.bindings.get(*class as usize)) {
            Some(Some(_)) => Gathering(self.described).event(self.batch, event),
            _ => event.pass(),
        };
        true
    }

    fn lost(&mut self, _: &TraceSet, _: usize, _: &StreamGap) -> bool {
        true
    }
}
