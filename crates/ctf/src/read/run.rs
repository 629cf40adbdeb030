// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Running a plan over bits.
//!
//! Nothing in the bytes is trusted: each operation checks that it stays within the content, lengths are compared with the
//! remaining size before anything is repeated, and elements that take no space are limited in number. So the time of a run
//! is bounded by the size of the content.

use super::class::{ByteOrder, NO_SLOT, Slot};
use super::plan::{Case, Count, FieldIndex, Integer, NumberPlace, Op, Plan};
use rtscope_event::exact::{self, index, low_half};

/// Why a run ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The buffered bytes end within the field.
    Short,
    /// The bytes are invalid.
    Bad(&'static str),
}

/// Texts of at most this size are short.
pub const SHORT_LITERAL: usize = 32;

/// Receives the values that a plan shows, in order.
pub trait Visit {
    /// Text of the style.
    fn literal(&mut self, text: &[u8]);
    /// The same for short texts whose following bytes may be read, too: a copy of a size known to the compiler costs a
    /// fraction of a call.
    #[inline]
    fn short_literal(&mut self, text: &[u8; SHORT_LITERAL], length: usize) {
        self.literal(text.get(..length).unwrap_or_default());
    }
    /// A number; sign-extended if it is signed.
    fn integer(&mut self, plan: &Plan, integer: &Integer, value: u64);
    /// A floating point number; one of 32 bits is converted exactly.
    fn float(&mut self, field: FieldIndex, value: f64);
    /// Text up to its end or its first NUL.
    fn text(&mut self, field: FieldIndex, text: &[u8]);
    /// An element of an array begins.
    fn element(&mut self, index: u64);
    /// Discard the values of this event so far: they will come again, from its beginning.
    fn restart(&mut self) {}
    /// A whole array of bytes that are not text.
    fn bytes(&mut self, plan: &Plan, element: &Integer, bytes: &[u8]) {
        for (index, byte) in (0..).zip(bytes) {
            self.element(index);
            let value = if element.signed { exact::bits((*byte as i8).into()) } else { u64::from(*byte) };
            self.integer(plan, element, value);
        }
    }
}

/// Ignores all values.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoVisitor;

impl Visit for NoVisitor {
    fn literal(&mut self, _: &[u8]) {}
    fn integer(&mut self, _: &Plan, _: &Integer, _: u64) {}
    fn float(&mut self, _: FieldIndex, _: f64) {}
    fn text(&mut self, _: FieldIndex, _: &[u8]) {}
    fn element(&mut self, _: u64) {}
    fn bytes(&mut self, _: &Plan, _: &Integer, _: &[u8]) {}
}

/// The state of a stream from field to field.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Values that later fields refer to.
    slots: Vec<i128>,
    /// In the clock's own unit.
    pub(crate) clock: u64,
}

impl State {
    pub(crate) fn new(slots: u32) -> State {
        State { slots: vec![0; slots as usize], clock: 0 }
    }

    pub(crate) fn note(&mut self, slot: Slot, value: i128) {
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = value;
        }
    }

    pub(crate) fn slot(&self, slot: Slot) -> i128 {
        self.slots.get(slot as usize).copied().unwrap_or(0)
    }

    /// Completes a time of few bits: the first moment not before the clock that ends in them.
    pub(crate) fn advance(&mut self, value: u64, bits: u32) {
        if bits >= 64 {
            self.clock = value;
            return;
        }
        let mask = (1 << bits) - 1;
        let wrapped = value & mask < self.clock & mask;
        let completed = (self.clock & !mask) | (value & mask);
        self.clock = if wrapped { completed.wrapping_add(mask + 1) } else { completed };
    }
}

/// Bytes after the end that may be read without effect: fast loads have 8 bytes, whatever the size of a number.
pub(crate) const MARGIN: usize = 16;

/// Elements that take no space, in one run. No tracer writes any; each is shown as text, so a small file of events with
/// thousands of them would take a reader a long time.
const MAX_EMPTY: u64 = 64;

/// A position in bytes. It counts from a place that is a multiple of each alignment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position<'a> {
    bytes: &'a [u8],
    pub(crate) at: u64,
    /// First bit that must not be read.
    pub(crate) end: u64,
}

impl<'a> Position<'a> {
    /// `bytes` should have [`MARGIN`] bytes after `end`; without them the last values are read as 0.
    pub(crate) fn new(bytes: &'a [u8], at: u64, end: u64) -> Position<'a> {
        Position { bytes, at, end: end.min((bytes.len() as u64).saturating_mul(8)) }
    }

    #[inline]
    pub(crate) fn align(&mut self, align: u32) {
        let mask = u64::from(align) - 1;
        self.at = self.at.saturating_add(mask) & !mask;
    }

    #[inline]
    pub(crate) fn skip(&mut self, bits: u64) -> Result<(), Stop> {
        match self.at.checked_add(bits) {
            Some(after) if after <= self.end => {
                self.at = after;
                Ok(())
            }
            _ => Err(Stop::Short),
        }
    }

    #[inline]
    fn load(&self, byte: u64) -> [u8; 8] {
        let byte = index(byte);
        match self.bytes.get(byte..byte + 8) {
            Some(bytes) => bytes.try_into().unwrap_or_default(),
            None => [0; 8],
        }
    }

    /// A little-endian number at a whole byte; `bits` is 8, 16, 32 or 64.
    #[inline]
    pub(crate) fn whole(&mut self, bits: u32) -> Result<u64, Stop> {
        let byte = self.at / 8;
        self.skip(bits.into())?;
        Ok(u64::from_le_bytes(self.load(byte)) & (u64::MAX >> (64 - bits)))
    }

    /// Any number of 1 to 64 bits. Little-endian fills bytes from their lowest bit, big-endian from their highest.
    #[inline]
    pub(crate) fn number(&mut self, bits: u32, order: ByteOrder) -> Result<u64, Stop> {
        let (byte, offset) = (self.at / 8, (self.at % 8) as u32);
        self.skip(bits.into())?;
        let bytes = self.load(byte);
        let over = (offset + bits).saturating_sub(64);
        let more = if over > 0 { u64::from(self.load(byte + 8)[0]) } else { 0 };
        let mask = u64::MAX >> (64 - bits);
        Ok(match order {
            ByteOrder::Little => {
                let low = u64::from_le_bytes(bytes) >> offset;
                let high = if over > 0 { more << (64 - offset) } else { 0 };
                (low | high) & mask
            }
            ByteOrder::Big => {
                let word = u64::from_be_bytes(bytes);
                if over > 0 {
                    ((word << over) | (more >> (8 - over))) & mask
                } else {
                    (word >> (64 - offset - bits)) & mask
                }
            }
        })
    }

    /// The number there, from here on; `None`: it is negative, or not all bytes up to it are here.
    #[inline]
    pub(crate) fn number_at(mut self, place: NumberPlace) -> Option<u64> {
        self.align(place.align);
        self.skip(place.skip).ok()?;
        let value = self.whole(place.bits).ok()?;
        let is_negative = place.is_signed && value >> (place.bits - 1) != 0;
        (!is_negative).then_some(value)
    }

    pub(crate) fn text(&mut self) -> Result<&'a [u8], Stop> {
        let bytes: &'a [u8] = self.bytes;
        let rest = bytes.get((self.at / 8) as usize..(self.end / 8) as usize).ok_or(Stop::Short)?;
        let length = memchr::memchr(0, rest).ok_or(Stop::Short)?;
        self.at += (length as u64 + 1) * 8;
        rest.get(..length).ok_or(Stop::Short)
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], Stop> {
        let bytes: &'a [u8] = self.bytes;
        let first = (self.at / 8) as usize;
        self.skip(count.checked_mul(8).ok_or(Stop::Short)?)?;
        bytes.get(first..first + index(count)).ok_or(Stop::Short)
    }

    fn float(&mut self, bits: u32, order: ByteOrder) -> Result<f64, Stop> {
        let raw = self.number(bits, order)?;
        Ok(if bits == 32 { f64::from(f32::from_bits(low_half(raw))) } else { f64::from_bits(raw) })
    }
}

/// Runs a whole plan.
#[inline]
pub(crate) fn run<V: Visit>(
    plan: &Plan,
    position: &mut Position<'_>,
    state: &mut State,
    visit: &mut V,
) -> Result<(), Stop> {
    let mut runner = Runner { plan, state, visit, empty: 0 };
    runner.operations(0, plan.ops.len(), position)
}

struct Runner<'r, V> {
    plan: &'r Plan,
    state: &'r mut State,
    visit: &'r mut V,
    /// Elements without size so far.
    empty: u64,
}

impl<V: Visit> Runner<'_, V> {
    /// Recursive for loops in loops, as deep as the metadata's types nest, which the parser limits.
    #[inline]
    fn operations(&mut self, from: usize, to: usize, position: &mut Position<'_>) -> Result<(), Stop> {
        let mut next = from;
        while next < to {
            let Some(op) = self.plan.ops.get(next) else { return Ok(()) };
            next += 1;
            match op {
                Op::Literal(place, length) => self.literal(*place, *length),
                Op::Align(align) => position.align(*align),
                Op::Skip(bits) => position.skip(*bits)?,
                Op::Bytes(integer) => {
                    let raw = position.whole(integer.bits.into())?;
                    self.integer(integer, raw);
                }
                Op::Bits(integer) => {
                    let raw = position.number(integer.bits.into(), integer.order)?;
                    self.integer(integer, raw);
                }
                Op::Text(field) => {
                    let text = position.text()?;
                    self.visit.text(*field, text);
                }
                Op::SkipText => {
                    position.text()?;
                }
                Op::Characters { count, field } => {
                    let text = position.take(self.count(*count)?)?;
                    let length = memchr::memchr(0, text).unwrap_or(text.len());
                    self.visit.text(*field, text.get(..length).unwrap_or_default());
                }
                Op::Jump(distance) => next = next - 1 + *distance as usize,
                Op::Choose { tag, table } => next = self.choose(*tag, *table)?,
                Op::Loop { count, body } => {
                    let after = next + *body as usize;
                    self.repeat(*count, next, after, position)?;
                    next = after;
                }
                other => self.rare(other, position)?,
            }
        }
        Ok(())
    }

    /// Operations that few events have.
    fn rare(&mut self, op: &Op, position: &mut Position<'_>) -> Result<(), Stop> {
        match op {
            Op::Float { bits, order, field } => {
                let value = position.float(*bits, *order)?;
                self.visit.float(*field, value);
            }
            Op::Array { count, element } => {
                let bytes = position.take(self.count(*count)?)?;
                self.visit.bytes(self.plan, element, bytes);
            }
            Op::SkipElements { count, bits } => {
                let count = self.count(*count)?;
                position.skip(count.checked_mul(*bits).ok_or(Stop::Short)?)?;
                if *bits == 0 {
                    self.without_size(count)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    #[inline]
    fn literal(&mut self, place: u32, length: u32) {
        let (place, length) = (place as usize, length as usize);
        let padded = self.plan.literals.get(place..place + SHORT_LITERAL);
        if let (Some(Ok(text)), ..=SHORT_LITERAL) = (padded.map(<&[u8; SHORT_LITERAL]>::try_from), length) {
            return self.visit.short_literal(text, length);
        }
        self.visit.literal(self.plan.literals.get(place..place + length).unwrap_or_default());
    }

    #[inline]
    fn integer(&mut self, integer: &Integer, raw: u64) {
        let unused = 64 - u32::from(integer.bits);
        let value = if integer.signed { exact::bits((raw << unused) as i64 >> unused) } else { raw };
        if integer.slot != NO_SLOT {
            let noted = if integer.signed { i128::from(value as i64) } else { i128::from(value) };
            self.state.note(integer.slot, noted);
        }
        if integer.clock {
            self.state.advance(raw, integer.bits.into());
        }
        if integer.shown {
            self.visit.integer(self.plan, integer, value);
        }
    }

    fn count(&self, count: Count) -> Result<u64, Stop> {
        match count {
            Count::Fixed(count) => Ok(count),
            Count::Noted(slot) => {
                u64::try_from(self.state.slot(slot)).map_err(|_| Stop::Bad("a length is negative"))
            }
        }
    }

    fn choose(&self, tag: Slot, table: u32) -> Result<usize, Stop> {
        let tag = self.state.slot(tag);
        let cases: &[Case] = self.plan.tables.get(table as usize).map_or(&[], Vec::as_slice);
        let case = cases.iter().find(|case| (case.first..=case.last).contains(&tag));
        case.map(|case| case.place as usize).ok_or(Stop::Bad("a variant's tag chooses no option"))
    }

    fn repeat(
        &mut self,
        count: Count,
        from: usize,
        to: usize,
        position: &mut Position<'_>,
    ) -> Result<(), Stop> {
        for index in 0..self.count(count)? {
            let before = position.at;
            self.visit.element(index);
            self.operations(from, to, position)?;
            if position.at == before {
                self.without_size(1)?;
            }
        }
        Ok(())
    }

    fn without_size(&mut self, elements: u64) -> Result<(), Stop> {
        self.empty = self.empty.saturating_add(elements);
        if self.empty > MAX_EMPTY {
            return Err(Stop::Bad("an array has too many elements that take no space"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8], at: u64, bits: u32, order: ByteOrder) -> u64 {
        let mut padded = bytes.to_vec();
        padded.extend([0xee; MARGIN]);
        Position::new(&padded, at, bytes.len() as u64 * 8).number(bits, order).unwrap()
    }

    /// Bit by bit: the reference for the fast loads.
    fn slowly(bytes: &[u8], at: u64, bits: u32, order: ByteOrder) -> u64 {
        let bit = |place: u64| {
            let byte = u64::from(bytes[(place / 8) as usize]);
            match order {
                ByteOrder::Little => byte >> (place % 8) & 1,
                ByteOrder::Big => byte >> (7 - place % 8) & 1,
            }
        };
        (0..u64::from(bits)).fold(0, |value, place| match order {
            ByteOrder::Little => value | bit(at + place) << place,
            ByteOrder::Big => value << 1 | bit(at + place),
        })
    }

    #[test]
    fn numbers_of_all_sizes_at_all_places() {
        let bytes: Vec<u8> =
            (0..18_u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13).to_le_bytes()[0]).collect();
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for bits in 1..=64 {
                for at in 0..=(18 * 8 - u64::from(bits)) {
                    assert_eq!(
                        number(&bytes, at, bits, order),
                        slowly(&bytes, at, bits, order),
                        "{at} {bits} {order:?}"
                    );
                }
            }
        }
    }

    /// What a plan shows.
    struct Shown(Vec<u64>);

    impl Visit for Shown {
        fn literal(&mut self, _: &[u8]) {}
        fn integer(&mut self, _: &Plan, _: &Integer, value: u64) {
            self.0.push(value);
        }
        fn float(&mut self, _: FieldIndex, _: f64) {}
        fn text(&mut self, _: FieldIndex, _: &[u8]) {}
        fn element(&mut self, _: u64) {}
    }

    fn integer(bits: u8, signed: bool) -> Integer {
        let (base, order) = (crate::read::class::Base::Decimal, ByteOrder::Little);
        let (field, enumeration, shown, clock) = (0, 0, true, false);
        Integer { bits, signed, base, field, enumeration, order, shown, clock, slot: NO_SLOT }
    }

    #[test]
    fn the_only_number_of_a_plan_is_what_the_plan_shows() {
        let mut bytes: Vec<u8> = (0..40_u8).map(|i| i.wrapping_mul(0x9d) ^ 0x80).collect();
        bytes.extend([0xee; MARGIN]);
        let begin = [vec![], vec![Op::Skip(8)], vec![Op::Align(32)], vec![Op::Align(32), Op::Skip(40)]];
        let middle = [vec![], vec![Op::Align(8)], vec![Op::Align(32)], vec![Op::Align(64), Op::Skip(16)]];
        let (mut known, mut negative) = (0, 0);
        for (begin, middle) in begin.iter().flat_map(|begin| middle.iter().map(move |middle| (begin, middle)))
        {
            for (bits, signed) in [(8, true), (16, false), (32, true), (32, false), (64, true)] {
                let ops = [begin.clone(), middle.clone(), vec![Op::Bytes(integer(bits, signed))]].concat();
                let plan = Plan { ops, ..Plan::default() };
                let Some(place) = plan.only_number() else { continue };
                for at in (0..40).map(|byte| byte * 8) {
                    let mut shown = Shown(Vec::new());
                    let position = Position::new(&bytes, at, 40 * 8);
                    let ran = run(&plan, &mut position.clone(), &mut State::default(), &mut shown);
                    let value =
                        shown.0.first().copied().filter(|value| !signed || exact::signed(*value) >= 0);
                    assert_eq!(position.number_at(place), value, "{plan:?} at {at}");
                    known += u32::from(ran.is_ok());
                    negative += u32::from(ran.is_ok() && value.is_none());
                }
            }
        }
        assert!(known > 1000 && negative > 100, "{known}, {negative}");
        // Where it is depends on what is before it.
        for ops in [vec![Op::SkipText], vec![Op::Skip(8), Op::Align(32)]] {
            let ops = [ops, vec![Op::Bytes(integer(32, true))]].concat();
            assert_eq!(Plan { ops, ..Plan::default() }.only_number(), None);
        }
        let noted = Integer { slot: 0, ..integer(32, true) };
        assert_eq!(Plan { ops: vec![Op::Bytes(noted)], ..Plan::default() }.only_number(), None);
    }

    #[test]
    fn a_short_time_is_completed_from_the_one_before() {
        let advance = |clock, value, bits| {
            let mut state = State { clock, ..State::default() };
            state.advance(value, bits);
            state.clock
        };
        assert_eq!(advance(0x1234, 0x40, 8), 0x1240);
        assert_eq!(advance(0x1234, 0x34, 8), 0x1234);
        assert_eq!(advance(0x1234, 0x33, 8), 0x1333);
        assert_eq!(advance(u64::MAX, 0, 8), 0);
        assert_eq!(advance(7, 3, 64), 3);
    }

    #[test]
    fn nothing_beyond_the_end() {
        let bytes = [b'a'; 24];
        let mut position = Position::new(&bytes, 0, 16);
        assert_eq!(position.text(), Err(Stop::Short));
        assert_eq!(position.take(u64::MAX), Err(Stop::Short));
        assert_eq!(position.take(2), Ok(&b"aa"[..]));
        assert_eq!(position.whole(8), Err(Stop::Short));
        position.align(64);
        assert_eq!(position.skip(1), Err(Stop::Short));
        assert_eq!(position.text(), Err(Stop::Short));
    }
}
