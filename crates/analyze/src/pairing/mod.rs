// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two events that have the same key: fields of both, or the thread.
//!
//! One matcher for all sources of events, in order of time: `stat --latency 'A -> B by KEY'` for those of a trace, a watch for those
//! that programs have just written. It pairs, and says of each event what became of it; what is counted, and how, is its caller's.
//!
//! Of several beginnings with one key the last counts. An event may be both: then it ends one and begins the next.

mod pending;
mod question;
#[cfg(test)]
mod tests;

pub(crate) use pending::Pending;
pub use question::PairQuestion;
pub(crate) use question::is_given;

use rtscope_event::{ClassId, EventClass, EventName, EventRef, Value};
use std::sync::Arc;

/// A value in a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum KeyValue {
    Number(i128),
    Text(Vec<u8>),
}

/// A field of a key in a class.
#[derive(Clone, Copy, Debug)]
enum Place {
    Field(usize),
    Thread,
    Cpu,
    /// The class does not have it.
    Nowhere,
}

/// What a class is to a pair: the places of its key as a beginning, and as an end.
#[derive(Clone, Debug, Default)]
struct Role {
    begin: Option<Arc<[Place]>>,
    end: Option<Arc<[Place]>>,
    step: Option<Arc<[Place]>>,
}

/// What an event is as an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended<V> {
    /// Of this beginning.
    With(V),
    /// Its beginning is not known.
    WithoutBegin,
    /// It has no key: a field is missing, or its thread is not known.
    WithoutKey,
}

/// What an event is as a beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun<V> {
    /// It waits for its end.
    First,
    /// It waits for its end in place of this one, which has none.
    Again(V),
    /// It has no key.
    WithoutKey,
}

/// What became of an event; `None`: it is not one of the two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome<V> {
    /// As an end.
    pub ended: Option<Ended<V>>,
    /// As a beginning.
    pub begun: Option<Begun<V>>,
}

/// Whose an event is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Emitter {
    /// A number that tells its thread from all others, where that is known.
    pub thread: Option<u64>,
    /// Only events of the same user belong together; `None`: where users are not told apart.
    pub user: Option<u32>,
}

/// Pairs events. `V`: what is remembered of a beginning.
#[derive(Clone, Debug)]
pub struct Matcher<V> {
    question: PairQuestion,
    /// By class.
    roles: Vec<Option<Role>>,
    begun: Pending<Vec<KeyValue>, V>,
}

impl<V: Clone> Matcher<V> {
    /// Nothing has begun yet.
    #[must_use]
    pub fn new(question: &PairQuestion) -> Matcher<V> {
        Matcher { question: question.clone(), roles: Vec::new(), begun: Pending::default() }
    }

    /// Which events it pairs.
    #[must_use]
    pub fn question(&self) -> &PairQuestion {
        &self.question
    }

    /// The next event. `value`: what is to be remembered of it as a beginning.
    pub fn event(&mut self, event: &EventRef<'_>, of: Emitter, value: V) -> Outcome<V> {
        let role = self.role(event.class, &event.schema.classes);
        let ended = role.end.as_deref().map(|places| match key(places, event, of) {
            Some(key) => self.begun.end(&key).map_or(Ended::WithoutBegin, Ended::With),
            None => Ended::WithoutKey,
        });
        let begun = role.begin.as_deref().map(|places| match key(places, event, of) {
            Some(key) => self.begun.begin(key, value).map_or(Begun::First, Begun::Again),
            None => Begun::WithoutKey,
        });
        Outcome { ended, begun }
    }

    /// What an event is a step of: what is remembered of its beginning.
    pub fn step(&mut self, event: &EventRef<'_>, of: Emitter) -> Option<&mut V> {
        let role = self.role(event.class, &event.schema.classes);
        let key = key(role.step.as_deref()?, event, of)?;
        self.begun.get_mut(&key)
    }

    fn role(&mut self, class: ClassId, classes: &[EventClass]) -> Role {
        let place = class.0 as usize;
        let Some(known) = classes.get(place) else { return Role::default() };
        if self.roles.len() <= place {
            self.roles.resize(place + 1, None);
        }
        self.roles[place].get_or_insert_with(|| role(&self.question, known)).clone()
    }

    /// The number of this class is another class's from now on.
    pub fn forget_class(&mut self, class: ClassId) {
        if let Some(role) = self.roles.get_mut(class.0 as usize) {
            *role = None;
        }
    }

    /// How many beginnings wait for their end.
    #[must_use]
    pub fn open(&self) -> usize {
        self.begun.len()
    }

    /// Gives up the oldest beginning, which counts as forgotten.
    pub fn forget_oldest(&mut self) {
        self.begun.forget_oldest();
    }

    /// Beginnings that still wait for their end.
    pub fn waiting(&self) -> impl Iterator<Item = &V> {
        self.begun.values()
    }

    /// Gives up the beginnings for which this is true, because the end may be among what was lost.
    pub fn give_up(&mut self, is_meant: impl FnMut(&V) -> bool) -> Vec<V> {
        self.begun.take_if(is_meant)
    }

    /// Beginnings that were given up because too many waited for their end.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.begun.forgotten
    }

    /// Whether each event of a row ends one and begins the next: the first has nothing before it, and the last nothing after it.
    #[must_use]
    pub fn is_row(&self) -> bool {
        self.question.begin == self.question.end
    }
}

fn role(question: &PairQuestion, class: &EventClass) -> Role {
    let place = |field: &String| match class.field(field) {
        Some(place) => Place::Field(place),
        None if is_given(field) && field == "tid" => Place::Thread,
        None if is_given(field) => Place::Cpu,
        None => Place::Nowhere,
    };
    let places = |name: &EventName, fields: Vec<&String>| {
        name.matches(class).then(|| match fields.is_empty() {
            true => Arc::from([Place::Thread]),
            false => fields.into_iter().map(place).collect(),
        })
    };
    let begin = |name| places(name, question.key.iter().map(|(begin, _)| begin).collect());
    Role {
        begin: begin(&question.begin),
        step: question.steps.as_ref().and_then(begin),
        end: places(&question.end, question.key.iter().map(|(_, end)| end).collect()),
    }
}

/// The key of an event; `None` when a part of it is not there.
fn key(places: &[Place], event: &EventRef<'_>, of: Emitter) -> Option<Vec<KeyValue>> {
    let user = of.user.map(|user| Some(KeyValue::Number(user.into())));
    let value = |place: &Place| match place {
        Place::Thread => of.thread.map(|thread| KeyValue::Number(thread.into())),
        Place::Cpu => event.cpu.map(|cpu| KeyValue::Number(cpu.0.into())),
        Place::Nowhere => None,
        Place::Field(place) => match event.values.get(*place) {
            Value::None => None,
            Value::Unsigned(number) => Some(KeyValue::Number(number.into())),
            Value::Signed(number) => Some(KeyValue::Number(number.into())),
            Value::Float(number) => Some(KeyValue::Number(number.to_bits().into())),
            Value::Bytes(bytes) => Some(KeyValue::Text(bytes.to_vec())),
        },
    };
    places.iter().map(value).chain(user).collect()
}
