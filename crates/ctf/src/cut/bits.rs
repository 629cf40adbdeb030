// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers written at any bit, and events written where their alignment takes other space than in the packet that they come from.

use crate::read::class::{ByteOrder, FieldClass, IntegerClass, NO_SLOT, StructClass, VariantClass};
use crate::read::run::{Position, State, Stop};
use rtscope_event::exact;

/// Writes a number over what is there. Bytes beyond the end are ignored.
pub(super) fn put(bytes: &mut [u8], at: u64, bits: u32, order: ByteOrder, value: u64) {
    let (first, offset) = (exact::index(at / 8), at % 8);
    if offset == 0 && bits % 8 == 0 {
        let size = exact::index(u64::from(bits / 8));
        let Some(place) = bytes.get_mut(first..first + size) else { return };
        match order {
            ByteOrder::Little => place.copy_from_slice(&value.to_le_bytes()[..size]),
            ByteOrder::Big => place.copy_from_slice(&value.to_be_bytes()[8 - size..]),
        }
        return;
    }
    for place in 0..bits {
        let to = at + u64::from(place);
        let Some(byte) = bytes.get_mut(exact::index(to / 8)) else { return };
        let (bit, shift) = match order {
            ByteOrder::Little => (value >> place & 1, to % 8),
            ByteOrder::Big => (value >> (bits - 1 - place) & 1, 7 - to % 8),
        };
        *byte = if bit == 1 { *byte | 1 << shift } else { *byte & !(1 << shift) };
    }
}

/// Appends bits.
pub(super) struct BitWriter<'b> {
    pub(super) bytes: &'b mut Vec<u8>,
    /// The next bit, from the beginning of the bytes, which is a multiple of each alignment.
    pub(super) at: u64,
}

impl BitWriter<'_> {
    pub(super) fn align(&mut self, align: u32) {
        self.at = self.at.next_multiple_of(u64::from(align.max(1)));
    }

    fn number(&mut self, value: u64, bits: u32, order: ByteOrder) {
        let end = self.at + u64::from(bits);
        self.bytes.resize(exact::index(end.div_ceil(8)), 0);
        put(self.bytes, self.at, bits, order, value);
        self.at = end;
    }
}

/// Copies values one by one from a place to another: what a class describes.
pub(super) struct Recoder<'r, 'b> {
    pub(super) from: Position<'r>,
    pub(super) state: &'r mut State,
    pub(super) to: BitWriter<'b>,
}

impl Recoder<'_, '_> {
    pub(super) fn align(&mut self, align: u32) {
        self.from.align(align.max(1));
        self.to.align(align);
    }

    pub(super) fn structure(&mut self, class: &StructClass) -> Result<(), Stop> {
        self.align(class.align);
        class.fields.iter().try_for_each(|(_, field)| self.field(field))
    }

    fn field(&mut self, class: &FieldClass) -> Result<(), Stop> {
        match class {
            FieldClass::Integer(integer) => self.integer(integer),
            FieldClass::Float { bits, align, order } => {
                self.align(*align);
                self.number(*bits, *order).map(drop)
            }
            FieldClass::Text => self.text(),
            FieldClass::Struct(class) => self.structure(class),
            FieldClass::Array { element, length } => self.elements(element, *length),
            FieldClass::Sequence { element, length } => {
                let length = u64::try_from(self.state.slot(length.slot));
                self.elements(element, length.map_err(|_| Stop::Bad("a length is negative"))?)
            }
            FieldClass::Variant(class) => self.variant(class),
        }
    }

    fn number(&mut self, bits: u32, order: ByteOrder) -> Result<u64, Stop> {
        let value = self.from.number(bits, order)?;
        self.to.number(value, bits, order);
        Ok(value)
    }

    fn integer(&mut self, class: &IntegerClass) -> Result<(), Stop> {
        self.align(class.align);
        let raw = self.number(class.bits, class.order)?;
        if class.slot != NO_SLOT {
            let unused = 64 - class.bits;
            let signed = i128::from(exact::signed(raw << unused) >> unused);
            self.state.note(class.slot, if class.signed { signed } else { i128::from(raw) });
        }
        Ok(())
    }

    fn text(&mut self) -> Result<(), Stop> {
        self.align(8);
        for byte in self.from.text()?.iter().chain(&[0]) {
            self.to.number(u64::from(*byte), 8, ByteOrder::Little);
        }
        Ok(())
    }

    fn elements(&mut self, element: &FieldClass, length: u64) -> Result<(), Stop> {
        self.align(element.align());
        (0..length).try_for_each(|_| self.field(element))
    }

    fn variant(&mut self, class: &VariantClass) -> Result<(), Stop> {
        let tag = class.tag.as_ref().map_or(0, |tag| self.state.slot(tag.slot));
        let choice = class.choices.iter().find(|choice| (choice.first..=choice.last).contains(&tag));
        let option = choice.and_then(|choice| class.options.get(choice.option));
        let (_, option) = option.ok_or(Stop::Bad("a variant's tag chooses no option"))?;
        self.field(option)
    }
}

/// The largest alignment in these scopes.
pub(super) fn largest_align<'c>(scopes: impl Iterator<Item = &'c StructClass>) -> u32 {
    fn of(class: &FieldClass) -> u32 {
        let inside = match class {
            FieldClass::Struct(class) => within(class),
            FieldClass::Array { element, .. } | FieldClass::Sequence { element, .. } => of(element),
            FieldClass::Variant(class) => {
                class.options.iter().map(|(_, option)| of(option)).max().unwrap_or(1)
            }
            FieldClass::Integer(_) | FieldClass::Float { .. } | FieldClass::Text => 1,
        };
        inside.max(class.align())
    }
    fn within(class: &StructClass) -> u32 {
        class.fields.iter().map(|(_, field)| of(field)).max().unwrap_or(1).max(class.align)
    }
    scopes.map(within).max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_back_at_every_place() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for bits in 1..=64 {
                for at in 0..20 {
                    let value = 0xa5c3_9617_f00d_4bd2 & (u64::MAX >> (64 - bits));
                    for before in [0, 0xff] {
                        let mut bytes = [before; 32];
                        put(&mut bytes, at, bits, order, value);
                        let read = Position::new(&bytes, at, 128).number(bits, order);
                        assert_eq!(read, Ok(value), "{at} {bits} {order:?}");
                        let beside = Position::new(&bytes, at + u64::from(bits), 128).number(3, order);
                        assert_eq!(beside, Ok(u64::from(before) & 7), "{at} {bits} {order:?}");
                    }
                }
            }
        }
    }
}
