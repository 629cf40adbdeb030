// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptions of events and enumerations, checked when they are compiled: a collector that finds a wrong one leaves the whole
//! program out.

use core::ffi::c_char;

/// As the collector has it (crates/programs/src/description.rs).
const NAME_BYTES_MAX: usize = 256;

/// A description that ends in NUL, when its field names can be in a trace.
#[must_use]
pub const fn checked(text: &'static str, fields: &[&str]) -> &'static str {
    let text_bytes = text.as_bytes();
    assert!(text_bytes[text_bytes.len() - 1] == 0);
    assert!(text.is_ascii(), "names are letters a to z and A to Z, digits and _");
    let (mut at, mut line) = (0, 0);
    while at < text_bytes.len() {
        assert!(text_bytes[at] != b'#', "raw identifiers are not for traces; name it without r#");
        line = if text_bytes[at] == b'\n' { 0 } else { line + 1 };
        assert!(line <= NAME_BYTES_MAX, "a name is too long: with its type at most 256 bytes");
        at += 1;
    }
    let mut one = 0;
    while one < fields.len() {
        let mut other = 0;
        while other < one {
            assert!(!same(fields[one].as_bytes(), fields[other].as_bytes()), "two fields have one name");
            other += 1;
        }
        one += 1;
    }
    text
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Labels, each ending in NUL, when they can be in a trace.
#[must_use]
pub const fn checked_labels<const N: usize>(labels: [(i32, &'static str); N]) -> [(i32, &'static str); N] {
    let mut label = 0;
    while label < N {
        let text = labels[label].1.as_bytes();
        assert!(text.len() > 1 && text.len() <= NAME_BYTES_MAX, "a label has 1 to 255 bytes");
        let mut at = 0;
        while at + 1 < text.len() {
            assert!(text[at] >= b' ' && text[at] != 0x7f, "a label has no control characters");
            at += 1;
        }
        label += 1;
    }
    labels
}

/// `struct rtscope__label`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Label {
    value: i64,
    name: *const c_char,
}

/// All of an enumeration.
#[repr(transparent)]
pub struct Labels<const N: usize>([Label; N]);

// SAFETY: it points to constants, and nothing changes it.
unsafe impl<const N: usize> Sync for Labels<N> {}

impl<const N: usize> Labels<N> {
    /// Of values and names that end in NUL.
    #[must_use]
    pub const fn new(labels: [(i32, &'static str); N]) -> Labels<N> {
        let mut all = [Label { value: 0, name: core::ptr::null() }; N];
        let mut at = 0;
        while at < N {
            all[at] = Label { value: labels[at].0 as i64, name: labels[at].1.as_ptr().cast() };
            at += 1;
        }
        Labels(all)
    }
}

/// `struct rtscope__enumeration`.
#[repr(C)]
pub struct Enumeration {
    name: *const c_char,
    labels: *const Label,
    count: u64,
}

// SAFETY: it points to constants, and nothing changes it.
unsafe impl Sync for Enumeration {}

impl Enumeration {
    /// Of a name that ends in NUL.
    #[must_use]
    pub const fn new<const N: usize>(name: &'static str, labels: &'static Labels<N>) -> Enumeration {
        Enumeration { name: name.as_ptr().cast(), labels: labels.0.as_ptr(), count: N as u64 }
    }
}

/// What `enumeration!` makes.
pub trait EnumerationType {
    /// Its names.
    const ENUMERATION: &'static Enumeration;
}
