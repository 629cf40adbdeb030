// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is the same for all streams of a class: a trace has a stream for each CPU or thread, and thousands of event classes may have to be
//! prepared for each.

use rtscope_ctf::Stream;
use std::collections::HashMap;
use std::sync::Arc;

/// Lists that are made once for each class of streams.
#[derive(Debug)]
pub(super) struct SharedByClass<T> {
    /// By trace and class.
    known: HashMap<(usize, usize), Arc<[T]>>,
}

impl<T> Default for SharedByClass<T> {
    fn default() -> SharedByClass<T> {
        SharedByClass { known: HashMap::new() }
    }
}

impl<T> SharedByClass<T> {
    /// The list of a stream's class, which is made if it is the first.
    pub(super) fn of(&mut self, stream: &Stream, make: impl FnOnce() -> Vec<T>) -> Arc<[T]> {
        let list = self.known.entry((stream.trace, stream.class_place())).or_insert_with(|| make().into());
        Arc::clone(list)
    }
}
