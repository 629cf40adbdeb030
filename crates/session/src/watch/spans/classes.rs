// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Classes of the events that are paired. Each process brings its own description of them; those that say the same are one class, so
//! that processes may come and go for weeks.

use rtscope_event::{ClassId, EventClass, Schema};
use rtscope_programs::collector::NewEvent;
use rtscope_programs::description::Descriptions;
use rtscope_programs::values;
use std::collections::HashMap;
use std::sync::Arc;

/// Different classes, at most. The two names of a pair are of a handful; only a program that wants to fill this memory gets there.
const CLASSES_MAX: usize = 4096;
/// Descriptions whose class is remembered; more are asked anew.
const FOUND_MAX: usize = 4096;

/// All classes so far.
#[derive(Debug, Default)]
pub(super) struct SpanClasses {
    schema: Schema,
    by_name: HashMap<String, Vec<ClassId>>,
    /// By description and place in it. The descriptions are held as long as this is: no others are in that place meanwhile.
    found: HashMap<(usize, u32), (ClassId, Arc<Descriptions>)>,
}

impl SpanClasses {
    pub(super) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The class of an event, and whether it is new. `None`: there are too many.
    pub(super) fn class(&mut self, event: &NewEvent<'_>) -> Option<(ClassId, bool)> {
        let key = (Arc::as_ptr(event.descriptions) as usize, event.event.index);
        if let Some((class, _)) = self.found.get(&key) {
            return Some((*class, false));
        }
        let (id, is_new) = self.number(values::class(event.event, event.descriptions))?;
        if self.found.len() >= FOUND_MAX {
            self.found.clear();
        }
        self.found.insert(key, (id, Arc::clone(event.descriptions)));
        Some((id, is_new))
    }

    fn number(&mut self, class: EventClass) -> Option<(ClassId, bool)> {
        let alike = self.by_name.get(&class.name).into_iter().flatten();
        if let Some(id) = alike.copied().find(|id| *self.schema.class(*id) == class) {
            return Some((id, false));
        }
        let place = self.schema.classes.len();
        let id = ClassId(u32::try_from(place).ok().filter(|_| place < CLASSES_MAX)?);
        self.by_name.entry(class.name.clone()).or_default().push(id);
        self.schema.classes.push(class);
        Some((id, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_that_say_the_same_are_one_class() {
        let mut classes = SpanClasses::default();
        let class = |name: &str| EventClass { name: name.to_owned(), ..EventClass::default() };
        assert_eq!(classes.number(class("a:begin")), Some((ClassId(0), true)));
        assert_eq!(classes.number(class("a:end")), Some((ClassId(1), true)));
        assert_eq!(classes.number(class("a:begin")), Some((ClassId(0), false)));
        for number in 2..CLASSES_MAX {
            assert!(classes.number(class(&number.to_string())).is_some());
        }
        assert_eq!(classes.number(class("one more")), None);
        assert_eq!(classes.number(class("a:end")), Some((ClassId(1), false)));
    }
}
