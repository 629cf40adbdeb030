// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of STP's opcodes: one nibble, two after F, three after F0. Decoder and encoder are made from it.

use super::Width;

/// What an opcode means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Master,
    MasterWide,
    MasterError,
    Channel,
    ChannelWide,
    Data(Width),
    DataMarked(Width),
    Flag,
    GlobalError,
    Version,
    User,
    Trigger,
    Frequency,
    CrossSync,
    /// F F: the begin of ASYNC.
    Async,
    /// Not a packet, or one whose length is not public.
    Unknown,
}

/// An opcode: its meaning, the nibbles of its payload, and whether a timestamp follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opcode {
    pub kind: Kind,
    pub payload: usize,
    pub timed: bool,
}

const fn op(kind: Kind, payload: usize) -> Opcode {
    Opcode { kind, payload, timed: false }
}

const fn timed(kind: Kind, payload: usize) -> Opcode {
    Opcode { kind, payload, timed: true }
}

const UNKNOWN: Opcode = op(Kind::Unknown, 0);

use Kind::{Data, DataMarked};
use Width::{D4, D8, D16, D32, D64};

/// By the first nibble. F is the escape to the next table.
pub(super) static FIRST: [Opcode; 16] = [
    op(Kind::Null, 0),
    op(Kind::Master, 2),
    op(Kind::MasterError, 2),
    op(Kind::Channel, 2),
    op(Data(D8), 2),
    op(Data(D16), 4),
    op(Data(D32), 8),
    op(Data(D64), 16),
    timed(DataMarked(D8), 2),
    timed(DataMarked(D16), 4),
    timed(DataMarked(D32), 8),
    timed(DataMarked(D64), 16),
    op(Data(D4), 1),
    timed(DataMarked(D4), 1),
    timed(Kind::Flag, 0),
    UNKNOWN,
];

/// By the second nibble, after F. 0 is the escape to the next table.
pub(super) static SECOND: [Opcode; 16] = [
    UNKNOWN,
    op(Kind::MasterWide, 4),
    op(Kind::GlobalError, 2),
    op(Kind::ChannelWide, 4),
    timed(Data(D8), 2),
    timed(Data(D16), 4),
    timed(Data(D32), 8),
    timed(Data(D64), 16),
    op(DataMarked(D8), 2),
    op(DataMarked(D16), 4),
    op(DataMarked(D32), 8),
    op(DataMarked(D64), 16),
    timed(Data(D4), 1),
    op(DataMarked(D4), 1),
    op(Kind::Flag, 0),
    op(Kind::Async, 0),
];

/// By the third nibble, after F0. The payload of USER begins with a nibble that says how long the rest is.
pub(super) static THIRD: [Opcode; 16] = [
    op(Kind::Version, 1),
    timed(Kind::Null, 0),
    op(Kind::User, 1),
    timed(Kind::User, 1),
    UNKNOWN, // TIME
    UNKNOWN, // TIME_TS
    op(Kind::Trigger, 2),
    timed(Kind::Trigger, 2),
    op(Kind::Frequency, 8),
    timed(Kind::Frequency, 8),
    op(Kind::CrossSync, 2),
    timed(Kind::CrossSync, 2),
    UNKNOWN,
    UNKNOWN,
    UNKNOWN,
    UNKNOWN,
];

/// How many nibbles a timestamp has, by its first nibble. F is none.
pub(super) static TIME_NIBBLES: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 0xff];

/// The nibbles F of ASYNC, before its 0.
pub(super) const ASYNC_RUN: u32 = 21;
