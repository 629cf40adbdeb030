// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What becomes of each event of short rows that are known.

use super::{Begun, Emitter, Ended, Matcher, Outcome, PairQuestion};
use rtscope_event::{ClassId, EventClass, EventRef, FieldClass, Schema, StreamId, Value, ValueBuffer};

struct Fake {
    schema: Schema,
    matcher: Matcher<i64>,
}

impl Fake {
    /// Classes `begin` with the field `id`, `end` with `order`, and `other`.
    fn new(question: &str) -> Fake {
        let class = |name: &str, field: &str| EventClass {
            name: name.to_owned(),
            fields: vec![FieldClass { name: field.to_owned(), is_payload: true, ..FieldClass::default() }],
            ..EventClass::default()
        };
        let classes = vec![class("a:begin", "id"), class("a:end", "order"), class("a:other", "id")];
        let matcher = Matcher::new(&PairQuestion::parse(question).unwrap());
        Fake { schema: Schema { classes, ..Schema::default() }, matcher }
    }

    /// An event of a thread, with the value of its field; it is remembered by its time.
    fn at(&mut self, time_ns: i64, thread: Option<u64>, class: u32, value: Value<'_>) -> Outcome<i64> {
        self.of(Emitter { thread, user: None }, time_ns, class, value)
    }

    fn of(&mut self, of: Emitter, time_ns: i64, class: u32, value: Value<'_>) -> Outcome<i64> {
        let mut values = ValueBuffer::default();
        values.begin(1);
        values.set(0, value);
        let event = EventRef {
            schema: &self.schema,
            time_ns,
            stream: StreamId(0),
            class: ClassId(class),
            cpu: None,
            values: values.current(),
        };
        self.matcher.event(&event, of, time_ns)
    }
}

fn n(number: u64) -> Value<'static> {
    Value::Unsigned(number)
}

fn begun<V>(begun: Begun<V>) -> Outcome<V> {
    Outcome { ended: None, begun: Some(begun) }
}

fn ended<V>(ended: Ended<V>) -> Outcome<V> {
    Outcome { ended: Some(ended), begun: None }
}

#[test]
fn events_are_paired_by_thread_and_what_has_no_counterpart_is_said() {
    let mut fake = Fake::new("a:begin -> a:end");
    assert_eq!(fake.at(10, Some(1), 0, n(5)), begun(Begun::First));
    assert_eq!(fake.at(20, Some(2), 0, n(5)), begun(Begun::First));
    assert_eq!(fake.at(30, Some(1), 1, n(9)), ended(Ended::With(10)));
    assert_eq!(fake.at(40, Some(1), 1, n(9)), ended(Ended::WithoutBegin));
    assert_eq!(fake.at(50, Some(2), 0, n(5)), begun(Begun::Again(20)));
    assert_eq!(fake.at(60, None, 0, n(5)), begun(Begun::WithoutKey));
    assert_eq!(fake.at(70, Some(2), 2, n(5)), Outcome { ended: None, begun: None });
    assert_eq!(fake.matcher.waiting().collect::<Vec<_>>(), [&50]);
}

#[test]
fn events_are_paired_by_fields_across_threads() {
    let mut fake = Fake::new("a:begin -> a:end by id=order");
    assert_eq!(fake.at(10, Some(1), 0, n(5)), begun(Begun::First));
    assert_eq!(fake.at(20, Some(1), 0, Value::Signed(6)), begun(Begun::First));
    assert_eq!(fake.at(30, Some(2), 1, n(6)), ended(Ended::With(20)));
    assert_eq!(fake.at(40, Some(2), 1, Value::Bytes(b"5")), ended(Ended::WithoutBegin));
    assert_eq!(fake.at(50, Some(2), 1, Value::None), ended(Ended::WithoutKey));
    assert_eq!(fake.at(60, None, 1, Value::Signed(5)), ended(Ended::With(10)));
}

#[test]
fn events_of_different_users_do_not_belong_together() {
    let mut fake = Fake::new("a:begin -> a:end by id=order");
    let of = |user| Emitter { thread: Some(1), user: Some(user) };
    assert_eq!(fake.of(of(1), 10, 0, n(5)), begun(Begun::First));
    assert_eq!(fake.of(of(2), 20, 1, n(5)), ended(Ended::WithoutBegin));
    assert_eq!(fake.of(of(2), 30, 0, n(5)), begun(Begun::First));
    assert_eq!(fake.of(of(1), 40, 1, n(5)), ended(Ended::With(10)));
    fake.matcher.forget_oldest();
    assert_eq!((fake.matcher.open(), fake.matcher.forgotten()), (0, 1));
}

#[test]
fn a_number_of_a_class_that_is_given_again_is_the_new_ones() {
    let mut fake = Fake::new("a:begin -> a:end by id=order");
    assert_eq!(fake.at(10, None, 2, n(5)), Outcome { ended: None, begun: None });
    fake.schema.classes[2] = fake.schema.classes[0].clone();
    fake.matcher.forget_class(ClassId(2));
    assert_eq!(fake.at(20, None, 2, n(5)), begun(Begun::First));
}

#[test]
fn in_a_row_each_event_ends_one_and_begins_the_next() {
    let mut fake = Fake::new("a:begin -> a:begin");
    assert!(fake.matcher.is_row());
    let both = |end, begin| Outcome { ended: Some(end), begun: Some(begin) };
    assert_eq!(fake.at(10, Some(1), 0, n(5)), both(Ended::WithoutBegin, Begun::First));
    assert_eq!(fake.at(20, Some(1), 0, n(5)), both(Ended::With(10), Begun::First));
}

#[test]
fn after_a_loss_only_the_threads_that_lost_begin_anew() {
    let mut fake = Fake::new("a:begin -> a:end");
    fake.at(10, Some(1), 0, n(5));
    fake.at(20, Some(2), 0, n(5));
    assert_eq!(fake.matcher.give_up(|time_ns| *time_ns == 10), [10]);
    assert_eq!(fake.at(30, Some(1), 1, n(9)), ended(Ended::WithoutBegin));
    assert_eq!(fake.at(40, Some(2), 1, n(9)), ended(Ended::With(20)));
}
