// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The head of a packet: packet header and packet context, as the metadata describes them.

use super::classes::Header;
use rtscope_event::{CpuId, MonotonicNs};
use std::ops::Deref;

/// First word of every packet.
pub(crate) const MAGIC: u32 = 0xc1fc_1fc1;

/// Size of packet header (magic, uuid, stream_id, stream_instance_id) and context, and where the context's fields are.
pub(super) const HEADER_BYTES: usize = 4 + 16 + 4 + 8;
pub(super) const CONTEXT_BYTES: usize = 6 * 8 + 4;
pub(super) const HEAD_BYTES_MAX: usize = HEADER_BYTES + CONTEXT_BYTES;

/// The source of a stream's events.
#[derive(Clone, Copy, Debug)]
pub(super) enum EventSource {
    /// One CPU, which its packets name.
    Cpu(CpuId),
    /// Some threads, on any CPU.
    Threads(u64),
}

impl EventSource {
    fn instance(self) -> u64 {
        match self {
            EventSource::Cpu(cpu) => u64::from(cpu.0),
            EventSource::Threads(number) => number,
        }
    }

    /// The class of the stream: in traces of threads both occur.
    fn class(self, header: Header) -> u32 {
        match self {
            EventSource::Cpu(_) => 0,
            EventSource::Threads(_) => header.stream_class(),
        }
    }

    pub(super) fn head_bytes(self) -> usize {
        match self {
            EventSource::Cpu(_) => HEAD_BYTES_MAX,
            EventSource::Threads(_) => HEADER_BYTES + CONTEXT_BYTES - 4,
        }
    }
}

/// What the heads of a stream have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadFormat {
    pub(super) uuid: [u8; 16],
    pub(super) header: Header,
    pub(super) place: EventSource,
}

/// What a head says of its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketHead {
    pub(super) begin: MonotonicNs,
    pub(super) end: MonotonicNs,
    /// The head and the events.
    pub(super) content_bytes: u64,
    /// With the unused space behind them.
    pub(super) packet_bytes: u64,
    pub(super) sequence: u64,
    pub(super) discarded: u64,
}

impl HeadFormat {
    pub(super) fn bytes(self) -> usize {
        self.place.head_bytes()
    }

    pub(super) fn encode(&self, head: &PacketHead) -> HeadBytes {
        let mut bytes = HeadBytes { bytes: [0; HEAD_BYTES_MAX], length: 0 };
        bytes.push(&MAGIC.to_le_bytes());
        bytes.push(&self.uuid);
        bytes.push(&self.place.class(self.header).to_le_bytes());
        bytes.push(&self.place.instance().to_le_bytes());
        let PacketHead { begin, end, content_bytes, packet_bytes, sequence, discarded } = *head;
        for word in [begin.0, end.0, content_bytes * 8, packet_bytes * 8, sequence, discarded] {
            bytes.push(&word.to_le_bytes());
        }
        if let EventSource::Cpu(cpu) = self.place {
            bytes.push(&cpu.0.to_le_bytes());
        }
        bytes
    }
}

/// A head as it is in a file. No memory is allocated for it: each piece of a stream has some.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadBytes {
    bytes: [u8; HEAD_BYTES_MAX],
    length: usize,
}

impl HeadBytes {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

impl Deref for HeadBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
