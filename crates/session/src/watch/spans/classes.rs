// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Classes of the events of one user that are paired. Each process brings its own description of them; those that say the same are one class, so
//! that processes may come and go for weeks. Those of processes that have ended are forgotten.

use rtscope_event::{ClassId, EventClass, Schema};
use rtscope_programs::collector::NewEvent;
use rtscope_programs::description::Descriptions;
use rtscope_programs::values;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

/// Descriptions whose class is remembered, and that they have none; more are asked anew. Some times as many as there can be classes: who has thousands of
/// descriptions would else have each of their events compared with all classes of its name.
const FOUND_MAX: usize = 1 << 15;

/// All classes of a user.
#[derive(Debug, Default)]
pub(super) struct SpanClasses {
    schema: Schema,
    by_name: HashMap<String, Vec<ClassId>>,
    /// By description and place in it; `None`: that was one too many. A weak reference does not let go of the place: no other descriptions are there as long as this is known.
    found: HashMap<(usize, u32), (Option<ClassId>, Weak<Descriptions>)>,
    /// Numbers that are no class's.
    free: Vec<ClassId>,
}

impl SpanClasses {
    pub(super) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.schema.classes.len() - self.free.len()
    }

    /// The class of an event, and whether it is new. `None`: there would be more than `most`.
    pub(super) fn class(&mut self, event: &NewEvent<'_>, most: usize) -> Option<(ClassId, bool)> {
        let key = (Arc::as_ptr(event.descriptions) as usize, event.event.index);
        if let Some((class, _)) = self.found.get(&key) {
            return class.map(|class| (class, false));
        }
        let number = self.number(values::class(event.event, event.descriptions), most);
        if self.found.len() >= FOUND_MAX {
            self.found.clear();
        }
        self.found.insert(key, (number.map(|(id, _)| id), Arc::downgrade(event.descriptions)));
        number
    }

    fn number(&mut self, class: EventClass, most: usize) -> Option<(ClassId, bool)> {
        let alike = self.by_name.get(&class.name).into_iter().flatten();
        if let Some(id) = alike.copied().find(|id| *self.schema.class(*id) == class) {
            return Some((id, false));
        }
        if self.len() >= most {
            return None;
        }
        let next = u32::try_from(self.schema.classes.len()).ok().map(ClassId);
        let id = self.free.pop().or(next)?;
        self.by_name.entry(class.name.clone()).or_default().push(id);
        match self.schema.classes.get_mut(id.0 as usize) {
            Some(place) => *place = class,
            None => self.schema.classes.push(class),
        }
        Some((id, true))
    }

    /// Forgets those that no program describes any more and that are not in use. Their numbers will be other classes'.
    pub(super) fn forget_ended(&mut self, in_use: &HashSet<ClassId>) -> Vec<ClassId> {
        // Those that were one too many are asked anew.
        self.found.retain(|_, (class, descriptions)| class.is_some() && descriptions.strong_count() > 0);
        let described: HashSet<ClassId> = self.found.values().filter_map(|(class, _)| *class).collect();
        let mut forgotten = Vec::new();
        self.by_name.retain(|_, alike| {
            alike.retain(|id| {
                let stays = described.contains(id) || in_use.contains(id);
                if !stays {
                    forgotten.push(*id);
                }
                stays
            });
            !alike.is_empty()
        });
        for id in &forgotten {
            if let Some(place) = self.schema.classes.get_mut(id.0 as usize) {
                *place = EventClass::default();
            }
        }
        self.free.extend(&forgotten);
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str) -> EventClass {
        EventClass { name: name.to_owned(), ..EventClass::default() }
    }

    #[test]
    fn descriptions_that_say_the_same_are_one_class() {
        let mut classes = SpanClasses::default();
        assert_eq!(classes.number(class("a:begin"), 100), Some((ClassId(0), true)));
        assert_eq!(classes.number(class("a:end"), 100), Some((ClassId(1), true)));
        assert_eq!(classes.number(class("a:begin"), 100), Some((ClassId(0), false)));
        for number in 2..100 {
            assert!(classes.number(class(&number.to_string()), 100).is_some());
        }
        assert_eq!((classes.number(class("one more"), 100), classes.len()), (None, 100));
        assert_eq!(classes.number(class("a:end"), 100), Some((ClassId(1), false)));
    }

    #[test]
    fn classes_of_ended_programs_make_room_unless_they_are_in_use() {
        let mut classes = SpanClasses::default();
        let descriptions = Arc::new(Descriptions::parse(b"a:x 6\n\0", 1, 0, &Default::default()).unwrap());
        for (number, name) in ["described", "open", "gone"].into_iter().enumerate() {
            let (id, _) = classes.number(class(name), 3).unwrap();
            let of = if number == 0 { Arc::downgrade(&descriptions) } else { Weak::new() };
            classes.found.insert((number, 0), (Some(id), of));
        }
        assert_eq!(classes.number(class("new"), 3), None);
        assert_eq!(classes.forget_ended(&HashSet::from([ClassId(1)])), [ClassId(2)]);
        assert_eq!(classes.len(), 2);
        assert_eq!(classes.number(class("new"), 3), Some((ClassId(2), true)));
        assert_eq!(classes.schema().class(ClassId(2)).name, "new");
        assert_eq!(classes.number(class("described"), 3), Some((ClassId(0), false)));
        drop(descriptions);
        assert_eq!(classes.forget_ended(&HashSet::new()).len(), 3);
        assert_eq!((classes.len(), classes.by_name.len(), classes.found.len()), (0, 0, 0));
    }
}
