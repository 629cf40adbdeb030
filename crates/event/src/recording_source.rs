// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording in memory as a source: a snapshot, or one made for a test.

use crate::exact::signed;
use crate::table::classes;
use crate::{
    ClassId, Comm, Domain, EventClass, EventRef, FieldClass, Item, Lost, Recording, Schema, StreamId,
    StreamInfo, TraceField, TraceSink, TraceSource, TraceType, Value, ValueBuffer,
};

/// The events of a recording, as values.
#[derive(Debug)]
pub struct RecordingSource<'r> {
    recording: &'r Recording,
    schema: Schema,
    values: ValueBuffer,
    next_event: usize,
    next_loss: usize,
}

impl<'r> RecordingSource<'r> {
    /// From the beginning. All events are in one stream, at the times of the kernel's clock.
    #[must_use]
    pub fn new(recording: &'r Recording) -> RecordingSource<'r> {
        let class = |name: &str, fields: &[TraceField]| EventClass {
            name: name.to_owned(),
            domain: Domain::Kernel,
            fields: fields.iter().filter(|(_, kind)| *kind != TraceType::PartOfName).map(field).collect(),
        };
        let since = recording.history.iter().map(|history| history.complete_since);
        let complete_since_ns = since.flatten().max().map(|since| signed(since.0));
        let schema = Schema {
            classes: classes().iter().map(|layout| class(layout.name, layout.fields)).collect(),
            streams: vec![StreamInfo { domain: Domain::Kernel, complete_since_ns, ..StreamInfo::default() }],
        };
        RecordingSource { recording, schema, values: ValueBuffer::default(), next_event: 0, next_loss: 0 }
    }
}

fn field((name, kind): &TraceField) -> FieldClass {
    let labels = match kind {
        TraceType::Labels(labels) => {
            (1..).zip(*labels).map(|(value, label)| (value, value, (*label).to_owned())).collect()
        }
        _ => [].into(),
    };
    FieldClass { name: (*name).to_owned(), is_payload: true, is_hex: *kind == TraceType::Address, labels }
}

impl TraceSource for RecordingSource<'_> {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn next(&mut self) -> Item<'_> {
        let Some(event) = self.recording.events.get(self.next_event) else {
            // When it happened is not known.
            let Some(loss) = self.recording.losses.get(self.next_loss) else { return Item::End };
            self.next_loss += 1;
            return Item::Lost(Lost {
                cause: loss.cause,
                count: loss.count,
                packets: false,
                stream: Some(StreamId(0)),
                cpu: loss.cpu,
                since_ns: None,
                until_ns: None,
            });
        };
        self.next_event += 1;
        let class = event.kind.class();
        self.values.clear();
        self.values.begin(self.schema.class(ClassId(class)).fields.len());
        event.kind.put(event.time, &self.recording.names, &mut Filler { values: &mut self.values, next: 0 });
        Item::Event(EventRef {
            schema: &self.schema,
            time_ns: signed(event.time.0),
            stream: StreamId(0),
            class: ClassId(class),
            cpu: Some(event.cpu),
            values: self.values.current(),
        })
    }
}

struct Filler<'b> {
    values: &'b mut ValueBuffer,
    next: usize,
}

impl Filler<'_> {
    fn put(&mut self, value: Value<'_>) {
        self.values.set(self.next, value);
        self.next += 1;
    }
}

impl TraceSink for Filler<'_> {
    fn number(&mut self, kind: TraceType, bits: u64) {
        let value = match kind {
            TraceType::U8 | TraceType::Labels(_) => Value::Unsigned(bits & 0xff),
            TraceType::U32 => Value::Unsigned(bits & 0xffff_ffff),
            TraceType::S32 => Value::Signed(i64::from(crate::exact::low_half(bits) as i32)),
            TraceType::U64 | TraceType::Address => Value::Unsigned(bits),
            TraceType::S64 => Value::Signed(signed(bits)),
            TraceType::PartOfName | TraceType::Comm | TraceType::Text => return,
        };
        self.put(value);
    }

    fn comm(&mut self, comm: Comm) {
        self.put(Value::Bytes(comm.as_bytes()));
    }

    fn text(&mut self, text: &str) {
        self.put(Value::Bytes(text.as_bytes()));
    }
}
