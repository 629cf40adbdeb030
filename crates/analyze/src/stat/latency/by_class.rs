// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Something that is found out once for each class.

use rtscope_event::{EventClass, EventRef};

/// By the number of the class.
#[derive(Clone, Debug)]
pub(super) struct ByClass<T>(Vec<T>);

impl<T> Default for ByClass<T> {
    fn default() -> ByClass<T> {
        ByClass(Vec::new())
    }
}

impl<T> ByClass<T> {
    pub(super) fn of(&mut self, event: &EventRef<'_>, find: impl Fn(&EventClass) -> T) -> Option<&T> {
        let known = self.0.len();
        self.0.extend(event.schema.classes.iter().skip(known).map(find));
        self.0.get(event.class.0 as usize)
    }
}
