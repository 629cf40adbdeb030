// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Event headers: which event, and when.
//!
//! Each event has one, so the forms that tracers write have code of their own: LTTng's compact and large headers, and
//! headers that are just numbers. All others are run as a plan.

use super::class::{ByteOrder, FieldClass, IntegerClass, NO_SLOT, Slot, StructClass};
use super::compile::picking;
use super::plan::{FieldIndex, Integer, NO_FIELD, Plan, Scope};
use super::run::{Position, State, Stop, Visit, run};

/// How to read a stream's event headers.
#[derive(Clone, Debug)]
pub(crate) enum Header {
    /// A small id and a short time, or a mark and then an id of 32 and a time of 64 bits.
    Lttng(Lttng),
    /// Numbers one after the other.
    Plain { align: u32, numbers: Vec<Number> },
    /// Anything else.
    Other(Box<Plan>, Vec<FieldIndex>),
}

/// LTTng's two headers differ in sizes only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lttng {
    align: u32,
    /// Events may have fields that depend on their id.
    id_slot: Slot,
    id_bits: u32,
    time_bits: u32,
    time_align: u32,
    /// The id that announces an extended header.
    extended: u64,
    extended_align: u32,
}

/// A number of a plain header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    align: u32,
    bits: u32,
    order: ByteOrder,
    id: bool,
    clock: bool,
}

impl Header {
    pub(crate) fn new(class: Option<&StructClass>) -> Header {
        let Some(class) = class else { return Header::Plain { align: 1, numbers: Vec::new() } };
        lttng(class).map(Header::Lttng).or_else(|| plain(class)).unwrap_or_else(|| other(class))
    }

    /// Whether each header has the whole time.
    pub(crate) fn says_whole_time(&self) -> bool {
        match self {
            Header::Plain { numbers, .. } => numbers.iter().any(|number| number.clock && number.bits == 64),
            _ => false,
        }
    }

    /// Reads a header, moves the clock, and gives the event's id.
    ///
    /// Inline wherever it is used, which compilers do not do by themselves: a call is a sixth of what it takes to count an event.
    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    pub(crate) fn read(&self, position: &mut Position<'_>, state: &mut State) -> Result<Option<u64>, Stop> {
        match self {
            Header::Lttng(header) => header.read(position, state).map(Some),
            other => other.read_any(position, state),
        }
    }

    fn read_any(&self, position: &mut Position<'_>, state: &mut State) -> Result<Option<u64>, Stop> {
        match self {
            Header::Lttng(header) => header.read(position, state).map(Some),
            Header::Plain { align, numbers } => {
                position.align(*align);
                let mut id = None;
                for number in numbers {
                    position.align(number.align);
                    let value = position.number(number.bits, number.order)?;
                    if number.id {
                        id = Some(value);
                    }
                    if number.clock {
                        state.advance(value, number.bits);
                    }
                }
                Ok(id)
            }
            Header::Other(plan, ids) => {
                let mut find = FindId { ids, id: None };
                run(plan, position, state, &mut find)?;
                Ok(find.id)
            }
        }
    }
}

impl Lttng {
    #[inline]
    fn read(&self, position: &mut Position<'_>, state: &mut State) -> Result<u64, Stop> {
        const LITTLE: ByteOrder = ByteOrder::Little;
        position.align(self.align);
        let id = position.number(self.id_bits, LITTLE)?;
        state.note(self.id_slot, id.into());
        if id != self.extended {
            position.align(self.time_align);
            let time = position.number(self.time_bits, LITTLE)?;
            state.advance(time, self.time_bits);
            return Ok(id);
        }
        position.align(self.extended_align);
        let id = position.whole(32)?;
        position.align(self.extended_align);
        state.advance(position.whole(64)?, 64);
        Ok(id)
    }
}

fn integer(class: &FieldClass) -> Option<&IntegerClass> {
    match class {
        FieldClass::Integer(integer) => Some(integer),
        _ => None,
    }
}

/// `struct { enum : uintN { compact = 0 ... M-1, extended = M } id; variant <id> { struct { time; } compact;
/// struct { uint32 id; uint64 time; } extended; } v; }`, little-endian.
fn lttng(class: &StructClass) -> Option<Lttng> {
    let [(id_name, id), (_, FieldClass::Variant(variant))] = class.fields.as_slice() else { return None };
    let id = integer(id).filter(|id| id_name == "id" && !id.signed && id.order == ByteOrder::Little)?;
    if id.clock.is_some() || id.slot == NO_SLOT || variant.tag.as_ref()?.slot != id.slot {
        return None;
    }
    let limit = u64::MAX >> (64 - id.bits);
    let [compact, extended] = variant.choices.as_slice() else { return None };
    let whole = (compact.first, compact.last) == (0, i128::from(limit) - 1)
        && (extended.first, extended.last) == (i128::from(limit), i128::from(limit));
    let option = |place: usize| match variant.options.get(place) {
        Some((_, FieldClass::Struct(class))) => Some(class),
        _ => None,
    };
    let (short, long) = (option(compact.option)?, option(extended.option)?);
    let [(_, time)] = short.fields.as_slice() else { return None };
    let [(long_id_name, long_id), (_, long_time)] = long.fields.as_slice() else { return None };
    let (time, long_id, long_time) = (integer(time)?, integer(long_id)?, integer(long_time)?);
    let simple = |class: &IntegerClass, clock: bool| {
        !class.signed
            && class.order == ByteOrder::Little
            && class.clock.is_some() == clock
            && class.slot == NO_SLOT
    };
    let sizes = long_id.bits == 32 && long_time.bits == 64;
    // All three align the same or less: then aligning to the largest before each is not the same, so they must be equal.
    let aligned = long.align == long_id.align && long_id.align == long_time.align && long.align >= 8;
    let fits = whole && sizes && aligned && long_id_name == "id";
    let fits = fits && simple(time, true) && simple(long_id, false) && simple(long_time, true);
    fits.then_some(Lttng {
        align: class.align,
        id_slot: id.slot,
        id_bits: id.bits,
        time_bits: time.bits,
        time_align: time.align.max(short.align),
        extended: limit,
        extended_align: long.align,
    })
}

fn plain(class: &StructClass) -> Option<Header> {
    let numbers = class.fields.iter().map(|(name, field)| {
        let integer = integer(field).filter(|integer| integer.slot == NO_SLOT)?;
        let (align, bits, order) = (integer.align, integer.bits, integer.order);
        Some(Number {
            align,
            bits,
            order,
            id: name == "id" && !integer.signed,
            clock: integer.clock.is_some(),
        })
    });
    Some(Header::Plain { align: class.align, numbers: numbers.collect::<Option<Vec<_>>>()? })
}

fn other(class: &StructClass) -> Header {
    let plan = picking(Scope::EventHeader, Some(class));
    let fields = (0..NO_FIELD).zip(&plan.fields);
    let ids = fields.filter(|(_, field)| field.path == "id" || field.path.ends_with(".id"));
    let ids = ids.map(|(index, _)| index).collect();
    Header::Other(Box::new(plan), ids)
}

/// Of several fields `id` the last one present counts.
struct FindId<'i> {
    ids: &'i [FieldIndex],
    id: Option<u64>,
}

impl Visit for FindId<'_> {
    fn literal(&mut self, _: &[u8]) {}

    fn integer(&mut self, _: &Plan, integer: &Integer, value: u64) {
        if self.ids.contains(&integer.field) {
            self.id = Some(value);
        }
    }

    fn float(&mut self, _: FieldIndex, _: f64) {}

    fn text(&mut self, _: FieldIndex, _: &[u8]) {}

    fn element(&mut self, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::super::blocks;
    use super::*;

    /// The form that LTTng and rtscope write has to be recognised, else reading is half as fast.
    #[test]
    fn the_compact_header_has_code_of_its_own() {
        let text = "trace { byte_order = le; }; clock { name = c; };
            typealias integer { size = 27; align = 1; map = clock.c.value; } := t27;
            typealias integer { size = 64; align = 8; map = clock.c.value; } := t64;
            stream { event.header := struct {
                enum : integer { size = 5; align = 1; } { compact = 0 ... 30, extended = 31 } id;
                variant <id> { struct { t27 timestamp; } compact;
                    struct { integer { size = 32; align = 8; } id; t64 timestamp; } extended; } v; } align(8); };";
        let trace = blocks::parse(text).unwrap();
        let header = Header::new(trace.streams[0].event_header.as_ref());
        assert!(matches!(header, Header::Lttng(_)), "{header:?}");
        let mut bytes = vec![31, 7, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0];
        bytes.extend((5_u32 | 0x203 << 5).to_le_bytes());
        let size = bytes.len() as u64 * 8;
        bytes.resize(bytes.len() + 16, 0);
        let mut position = Position::new(&bytes, 0, size);
        let mut state = State::new(trace.slots);
        assert_eq!((header.read(&mut position, &mut state), state.clock), (Ok(Some(7)), 0x201));
        assert_eq!((header.read(&mut position, &mut state), state.clock), (Ok(Some(5)), 0x203));
        assert_eq!(header.read(&mut position, &mut state), Err(Stop::Short));
    }
}
