// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a decoder could not read, said in the same words by all of them.

use core::fmt;

/// Why bytes of a stream became no packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LostCause {
    /// Before the first synchronisation, or between an error and the next one.
    NotSynchronised,
    /// A packet that the specification does not have, or has otherwise.
    Malformed,
    /// The stream ended within a packet.
    Truncated,
}

/// Bytes of a stream that are in no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Of the first such byte, from the beginning of the stream.
    pub offset: u64,
    /// How many there are.
    pub bytes: u64,
    /// Why.
    pub cause: LostCause,
}

impl fmt::Display for LostCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LostCause::NotSynchronised => "before a synchronisation",
            LostCause::Malformed => "not a packet",
            LostCause::Truncated => "cut off",
        })
    }
}
