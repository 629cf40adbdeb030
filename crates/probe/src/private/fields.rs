// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values on their way into a payload: little endian, one behind the other, as CTF has them. A value is taken once; what it
//! needs is then fixed, so that exactly the reserved bytes are written.

use super::EnumerationType;
use core::marker::PhantomData;
use core::mem::MaybeUninit;

/// The arguments of a USDT probe.
pub const ARGUMENTS: usize = 12;
/// Elements of a sequence beyond these bytes are cut off, as the header does.
const SEQUENCE_BYTES_MAX: usize = 1024;
/// The header's limit for texts.
const TEXT_BYTES_MAX: usize = 4096;
/// Text in USDT arguments: 255 bytes and a NUL each.
const PROBE_TEXT_BYTES: usize = 256;

/// A value as it is written.
///
/// # Safety
/// `write` writes the `bytes()` bytes from its argument on, all of them and no other, and returns where they end.
pub unsafe trait Field {
    /// In the payload.
    fn bytes(&self) -> usize;
    /// Writes it.
    ///
    /// # Safety
    /// `bytes()` bytes from `at` on are the caller's.
    unsafe fn write(&self, at: *mut u8) -> *mut u8;
    /// For a USDT probe.
    fn argument(&self, arguments: &mut Arguments);
}

/// All values of an event.
///
/// # Safety
/// As for one field.
pub unsafe trait Fields {
    /// In the payload.
    fn bytes(&self) -> usize;
    /// Writes all, in order.
    ///
    /// # Safety
    /// `bytes()` bytes from `at` on are the caller's.
    unsafe fn write(&self, at: *mut u8);
    /// For a USDT probe.
    fn arguments(&self, arguments: &mut Arguments);
}

macro_rules! tuples {
    ($($name:ident)*) => {
        // SAFETY: each field writes its own bytes, and the next follows where it ended.
        unsafe impl<$($name: Field),*> Fields for ($($name,)*) {
            #[inline(always)]
            #[allow(non_snake_case)]
            fn bytes(&self) -> usize {
                let ($($name,)*) = self;
                0 $(+ $name.bytes())*
            }

            #[inline(always)]
            #[allow(non_snake_case, unused_mut, unused_variables, unused_assignments)]
            unsafe fn write(&self, mut at: *mut u8) {
                let ($($name,)*) = self;
                $(
                    // SAFETY: the caller has reserved bytes for all of them.
                    at = unsafe { $name.write(at) };
                )*
            }

            #[cold]
            #[allow(non_snake_case, unused_variables)]
            fn arguments(&self, arguments: &mut Arguments) {
                let ($($name,)*) = self;
                $($name.argument(arguments);)*
            }
        }
    };
}

tuples!();
tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);
tuples!(A B C D E F G H I);
tuples!(A B C D E F G H I J);
tuples!(A B C D E F G H I J K);
tuples!(A B C D E F G H I J K L);
tuples!(A B C D E F G H I J K L M);
tuples!(A B C D E F G H I J K L M N);
tuples!(A B C D E F G H I J K L M N O);
tuples!(A B C D E F G H I J K L M N O P);

/// What a USDT probe is given.
pub struct Arguments {
    words: [u64; ARGUMENTS],
    count: usize,
    texts: [MaybeUninit<[u8; PROBE_TEXT_BYTES]>; ARGUMENTS],
}

impl Arguments {
    /// None yet.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Arguments {
        Arguments { words: [0; ARGUMENTS], count: 0, texts: [const { MaybeUninit::uninit() }; ARGUMENTS] }
    }

    /// Where they are.
    #[inline(always)]
    #[must_use]
    pub fn words(&self) -> *const u64 {
        self.words.as_ptr()
    }

    fn push(&mut self, word: u64) {
        if let Some(place) = self.words.get_mut(self.count) {
            *place = word;
            self.count += 1;
        }
    }

    /// A copy that ends in NUL, as the readers of probes want it.
    fn push_text(&mut self, text: &str) {
        if let Some(place) = self.texts.get_mut(self.count) {
            let place = place.write([0; PROBE_TEXT_BYTES]);
            let bytes = text.len().min(PROBE_TEXT_BYTES - 1);
            place[..bytes].copy_from_slice(&text.as_bytes()[..bytes]);
            let address = place.as_ptr() as u64;
            self.push(address);
        }
    }
}

/// A number.
pub struct Number<T>(T);

/// Takes a number.
#[inline(always)]
pub fn number<T>(value: T) -> Number<T>
where
    Number<T>: Field,
{
    Number(value)
}

macro_rules! numbers {
    ($($kind:ty: $this:ident => $word:expr),* $(,)?) => {
        $(
            // SAFETY: it writes its bytes.
            unsafe impl Field for Number<$kind> {
                #[inline(always)]
                fn bytes(&self) -> usize {
                    size_of::<$kind>()
                }

                #[inline(always)]
                unsafe fn write(&self, at: *mut u8) -> *mut u8 {
                    // SAFETY: the caller has reserved the bytes; a payload is aligned to nothing.
                    unsafe { at.cast::<$kind>().write_unaligned(self.0) };
                    // SAFETY: as above.
                    unsafe { at.add(size_of::<$kind>()) }
                }

                fn argument(&self, arguments: &mut Arguments) {
                    let $this = self;
                    arguments.push($word);
                }
            }
        )*
    };
}

// A signed one's sign is extended. USDT has no floating point that all tools read: its address. A bool is the byte 0 or 1.
numbers!(
    u8: this => u64::from(this.0),
    u16: this => u64::from(this.0),
    u32: this => u64::from(this.0),
    u64: this => this.0,
    i8: this => i64::from(this.0) as u64,
    i16: this => i64::from(this.0) as u64,
    i32: this => i64::from(this.0) as u64,
    i64: this => this.0 as u64,
    bool: this => u64::from(this.0),
    f32: this => &raw const this.0 as u64,
    f64: this => &raw const this.0 as u64,
);

/// Takes a value of an enumeration.
#[inline(always)]
#[must_use]
pub fn label<E: EnumerationType>(value: i32) -> Number<i32> {
    Number(value)
}

/// What a text ends in that was cut, as in the header.
const MARKED_BYTES_MAX: usize = 255;
const MARK: &[u8] = "\u{2026}".as_bytes();

/// Takes a text: what is before its first NUL, at most 255 bytes, whole characters. The end of what is cut is marked.
#[inline]
#[must_use]
pub fn marked_text(value: &str) -> Text<'_> {
    let taken = text(value, MARKED_BYTES_MAX);
    let is_cut = value.as_bytes().get(taken.text.len()).is_some_and(|byte| *byte != 0);
    if is_cut { Text { mark: MARK, ..text(value, MARKED_BYTES_MAX - MARK.len()) } } else { taken }
}

/// Takes a text: what is before its first NUL, at most `max` bytes, whole characters.
#[inline]
#[must_use]
pub fn text(value: &str, max: usize) -> Text<'_> {
    let mut end = value.len().min(max).min(TEXT_BYTES_MAX);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    let value = &value[..end];
    let end = value.bytes().position(|byte| byte == 0).unwrap_or(end);
    Text { text: &value[..end], mark: &[] }
}

/// A text without a NUL, and what tells that there was more.
pub struct Text<'a> {
    text: &'a str,
    mark: &'static [u8],
}

// SAFETY: it writes the text, the mark and a NUL.
unsafe impl Field for Text<'_> {
    #[inline(always)]
    fn bytes(&self) -> usize {
        self.text.len() + self.mark.len() + 1
    }

    #[inline(always)]
    unsafe fn write(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: the caller has reserved the bytes, and no reference points into them.
        let end = unsafe { copy(self.text.as_bytes(), at) };
        // SAFETY: as above.
        let end = if self.mark.is_empty() { end } else { unsafe { copy(self.mark, end) } };
        // SAFETY: there is one byte more.
        unsafe { end.write(0) };
        // SAFETY: as above.
        unsafe { end.add(1) }
    }

    fn argument(&self, arguments: &mut Arguments) {
        arguments.push_text(self.text);
    }
}

/// What arrays have: numbers, of which every byte is data.
///
/// # Safety
/// The type has no padding.
pub unsafe trait Element: Copy {}

macro_rules! elements {
    ($($kind:ty)*) => {
        $(
            // SAFETY: a number.
            unsafe impl Element for $kind {}
        )*
    };
}

elements!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

#[inline(always)]
fn bytes_of<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: all of their bytes are data, and live as long.
    unsafe { core::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// # Safety
/// The bytes at `at` are reserved for them, and the two do not overlap.
#[inline(always)]
unsafe fn copy(bytes: &[u8], at: *mut u8) -> *mut u8 {
    // SAFETY: as the caller guarantees.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
    // SAFETY: still within what was reserved, or its end.
    unsafe { at.add(bytes.len()) }
}

/// This many elements.
pub struct Array<'a, T, const N: usize>(&'a [T; N]);

/// Takes an array.
#[inline(always)]
#[must_use]
pub fn array<T: Element, const N: usize>(value: &[T; N]) -> Array<'_, T, N> {
    const { assert!(N > 0, "an array has an element") };
    Array(value)
}

// SAFETY: it writes its elements.
unsafe impl<T: Element, const N: usize> Field for Array<'_, T, N> {
    #[inline(always)]
    fn bytes(&self) -> usize {
        size_of::<[T; N]>()
    }

    #[inline(always)]
    unsafe fn write(&self, at: *mut u8) -> *mut u8 {
        // SAFETY: the caller has reserved the bytes, and no reference points into them.
        unsafe { copy(bytes_of(self.0), at) }
    }

    fn argument(&self, arguments: &mut Arguments) {
        arguments.push(self.0.as_ptr() as u64);
    }
}

/// A count of 32 bits, and this many elements.
pub struct Sequence<'a, T> {
    bytes: &'a [u8],
    of: PhantomData<T>,
}

/// Takes a sequence, as much as may be in an event.
#[inline(always)]
#[must_use]
pub fn sequence<T: Element>(value: &[T]) -> Sequence<'_, T> {
    let count = value.len().min(SEQUENCE_BYTES_MAX / size_of::<T>());
    Sequence { bytes: bytes_of(&value[..count]), of: PhantomData }
}

// SAFETY: it writes the count and the elements.
unsafe impl<T: Element> Field for Sequence<'_, T> {
    #[inline(always)]
    fn bytes(&self) -> usize {
        4 + self.bytes.len()
    }

    #[inline(always)]
    unsafe fn write(&self, at: *mut u8) -> *mut u8 {
        let count = Number((self.bytes.len() / size_of::<T>()) as u32);
        // SAFETY: the caller has reserved the bytes.
        let at = unsafe { count.write(at) };
        // SAFETY: as above; no reference points into it.
        unsafe { copy(self.bytes, at) }
    }

    fn argument(&self, arguments: &mut Arguments) {
        arguments.push(self.bytes.as_ptr() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload<F: Fields>(fields: &F) -> Vec<u8> {
        // One byte more on each side, which must stay as it is.
        let mut room = vec![0xaa; fields.bytes() + 2];
        let place = room[1..].as_mut_ptr();
        // SAFETY: there are bytes for them.
        unsafe { fields.write(place) };
        assert_eq!((room[0], room[room.len() - 1]), (0xaa, 0xaa));
        room[1..room.len() - 1].to_vec()
    }

    #[test]
    fn texts_end_at_whole_characters_and_at_a_nul() {
        assert_eq!(payload(&(text("a\0b", 255),)), b"a\0");
        assert_eq!(payload(&(text("äöü", 3),)), "ä\0".as_bytes());
        assert_eq!(payload(&(text("ä", 1), text("", 0))), b"\0\0");
        assert_eq!(payload(&(text(&"x".repeat(300), 255),)).len(), 256);
        assert_eq!(payload(&(marked_text(&"x".repeat(255)),)).len(), 256);
        let long = "x".repeat(251) + "äää";
        assert_eq!(payload(&(marked_text(&long),)), ("x".repeat(251) + "\u{2026}\0").as_bytes());
        assert_eq!(payload(&(marked_text("a\0b"),)), b"a\0");
        assert_eq!(payload(&(text(&"x".repeat(5000), usize::MAX),)).len(), 4097);
    }

    #[test]
    fn sequences_are_cut_at_a_whole_element() {
        assert_eq!(payload(&(sequence::<u16>(&[1, 0x203]),)), [2, 0, 0, 0, 1, 0, 3, 2]);
        assert_eq!(payload(&(sequence::<i64>(&[-1; 200]),)).len(), 4 + 1024);
        assert_eq!(payload(&(sequence::<u8>(&[]), number(7_u8))), [0, 0, 0, 0, 7]);
    }

    #[test]
    fn probes_get_words_and_texts_that_end() {
        let mut arguments = Arguments::new();
        let fields = (number(-2_i16), text("hello", 255), number(0.5_f64), array(&[9_u32, 8]));
        fields.arguments(&mut arguments);
        assert_eq!((arguments.words[0], arguments.count), (-2_i64 as u64, 4));
        // SAFETY: the text is in `arguments`, and ends.
        let text = unsafe { core::ffi::CStr::from_ptr(arguments.words[1] as *const core::ffi::c_char) };
        assert_eq!(text.to_bytes(), b"hello");
        // SAFETY: the number is in `fields`.
        assert_eq!(unsafe { *(arguments.words[2] as *const f64) }, 0.5);
        let many = [(); 5].map(|()| (number(1_u8), number(2_u8), number(3_u8)));
        many.iter().for_each(|fields| fields.arguments(&mut arguments));
        assert_eq!(arguments.count, ARGUMENTS);
    }
}
