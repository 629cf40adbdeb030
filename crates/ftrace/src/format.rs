// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One tracepoint, as its `format` file in tracefs describes it.

/// A tracepoint of the running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFormat {
    /// The number in the first two bytes of each of its records. Different after every boot, and on every kernel.
    pub id: u16,
    /// Its subsystem: `sched`, `block`, `syscalls`.
    pub system: String,
    /// Its name in the subsystem: `sched_switch`, `sys_enter_openat`.
    pub name: String,
    /// The fields that all tracepoints have: `common_type`, `common_flags`, `common_preempt_count`, `common_pid`.
    pub common: Vec<Field>,
    /// Its own fields, in the order of the description.
    pub fields: Vec<Field>,
    /// The kernel's C expression that prints it, as written; names for numbers can be found in it.
    pub print_fmt: String,
}

/// One field of a tracepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its C type as the kernel wrote it, without the name: `unsigned long`, `__data_loc char[]`, `const char *`.
    pub declaration: String,
    /// Bytes from the beginning of the record.
    pub offset: u32,
    /// Bytes in the record.
    pub size: u32,
    /// How to read them. A scalar can be smaller than `size`: an argument `int dfd` of a system call is in the first four
    /// of a register's eight bytes.
    pub kind: FieldKind,
}

/// How a field's bytes are to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// One integer of 1, 2, 4 or 8 bytes (enumerations and booleans too).
    Scalar(Scalar),
    /// A fixed number of elements, in place. Text ends at the first zero byte.
    Array {
        /// The type of each element.
        element: Scalar,
        /// How many.
        len: u32,
    },
    /// Elements elsewhere in the record: the field holds `length in bytes << 16 | offset`.
    Dynamic {
        /// The type of each element.
        element: Scalar,
        /// The offset counts from the end of this field (`__rel_loc`), not from the beginning of the record (`__data_loc`).
        relative: bool,
    },
    /// Something that the description does not resolve (a structure by value): bytes.
    Opaque,
}

/// One integer, or one character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// Bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Two's complement.
    pub signed: bool,
    /// How a reader is to take it.
    pub meaning: Meaning,
}

/// What an integer means to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A number.
    Number,
    /// An address, or a set of bits: shown in base 16.
    Hex,
    /// A character of a text.
    Text,
    /// Part of a set of CPUs (`cpumask_t`): a bit for each.
    CpuMask,
    /// The address of a text in user space (`const char *` of a system call).
    UserText,
}
