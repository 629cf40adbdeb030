// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The decoder of SPE's packets.

use super::{AddressKind, CounterKind, Operation, Packet, Payload, Sink};
use crate::{Lost, LostCause};

/// Two bytes of header, and eight of payload.
const PACKET_BYTES_MAX: usize = 10;

/// Decodes the bytes of a buffer, or of what was copied out of it.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    offset: u64,
    left: [u8; PACKET_BYTES_MAX],
    left_bytes: usize,
    /// Bytes of an alignment packet that are still to come, and all of its bytes.
    skipping: Option<(u64, u64)>,
}

enum Found {
    Packet(Payload, usize),
    /// Padding up to a multiple of so many bytes.
    Alignment(u64),
    Short,
    Malformed,
}

impl Decoder {
    /// The first byte begins a packet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes a piece of the stream.
    pub fn push<S: Sink + ?Sized>(&mut self, mut bytes: &[u8], sink: &mut S) {
        while !bytes.is_empty() {
            if let Some((to_come, all)) = self.skipping {
                let skipped = to_come.min(bytes.len() as u64);
                bytes = &bytes[skipped as usize..];
                self.skipping = Some((to_come - skipped, all));
                self.end_of_skip(sink);
                continue;
            }
            if self.left_bytes == 0 {
                bytes = self.whole(bytes, sink);
                continue;
            }
            self.left[self.left_bytes] = bytes[0];
            self.left_bytes += 1;
            bytes = &bytes[1..];
            let (left, count) = (self.left, self.left_bytes);
            self.left_bytes = 0;
            self.whole(&left[..count], sink);
        }
    }

    /// Decodes what is complete; keeps what is not. Returns what is behind an alignment packet's header, if there is one.
    fn whole<'a, S: Sink + ?Sized>(&mut self, mut bytes: &'a [u8], sink: &mut S) -> &'a [u8] {
        while !bytes.is_empty() {
            match found(bytes) {
                Found::Packet(payload, length) => {
                    self.give(payload, length as u64, sink);
                    bytes = &bytes[length..];
                }
                Found::Alignment(alignment) => {
                    // At least its header, which is two bytes.
                    let all = (alignment - self.offset % alignment).max(2);
                    self.skipping = Some((all - 2, all));
                    self.end_of_skip(sink);
                    return &bytes[2..];
                }
                Found::Short => {
                    self.left[..bytes.len()].copy_from_slice(bytes);
                    self.left_bytes = bytes.len();
                    return &[];
                }
                Found::Malformed => {
                    let (offset, cause) = (self.offset, LostCause::Malformed);
                    sink.lost(&Lost { offset, bytes: 1, cause });
                    self.offset += 1;
                    bytes = &bytes[1..];
                }
            }
        }
        bytes
    }

    fn end_of_skip<S: Sink + ?Sized>(&mut self, sink: &mut S) {
        if let Some((0, all)) = self.skipping {
            self.skipping = None;
            self.give(Payload::Padding, all, sink);
        }
    }

    fn give<S: Sink + ?Sized>(&mut self, payload: Payload, bytes: u64, sink: &mut S) {
        sink.packet(&Packet { offset: self.offset, bytes, payload });
        self.offset += bytes;
    }

    /// The stream has ended.
    pub fn finish<S: Sink + ?Sized>(&mut self, sink: &mut S) {
        let skipped = self.skipping.map_or(0, |(to_come, all)| all - to_come);
        let bytes = skipped + self.left_bytes as u64;
        if bytes > 0 {
            sink.lost(&Lost { offset: self.offset, bytes, cause: LostCause::Truncated });
        }
        *self = Self::default();
    }
}

fn found(bytes: &[u8]) -> Found {
    let header = bytes[0];
    match header {
        0x00 => return Found::Packet(Payload::Padding, 1),
        0x01 => return Found::Packet(Payload::End, 1),
        0x71 => return with_payload(bytes, 1, |value, _| Payload::Timestamp(value)),
        _ => {}
    }
    match header & 0xcf {
        0x42 => return with_payload(bytes, 1, |bits, _| Payload::Events { bits }),
        0x43 => return with_payload(bytes, 1, |source, _| Payload::DataSource(source)),
        _ => {}
    }
    match header & 0xfc {
        0x64 => {
            return with_payload(bytes, 1, |id, header| Payload::Context {
                level: (header & 3) + 1,
                id: id as u32,
            });
        }
        0x48 => return with_payload(bytes, 1, |flags, header| operation(header & 3, flags as u8)),
        0x20 => {
            let Some(second) = bytes.get(1) else { return Found::Short };
            if *second == 0 {
                return Found::Alignment(2 << (header & 0xf));
            }
            let index = (header & 3) << 3 | second & 7;
            return indexed(bytes, 2, *second, index);
        }
        _ => {}
    }
    indexed(bytes, 1, header, header & 7)
}

/// Addresses and counters: the header's last byte, and their index.
fn indexed(bytes: &[u8], header_bytes: usize, header: u8, index: u8) -> Found {
    match header & 0xf8 {
        0xb0 => {
            with_payload(bytes, header_bytes, |value, _| Payload::Address { kind: address(index), value })
        }
        0x98 => with_payload(bytes, header_bytes, |value, _| Payload::Counter {
            kind: counter(index),
            cycles: value as u16,
        }),
        _ => Found::Malformed,
    }
}

/// The header's last byte has the size of the payload.
fn with_payload(bytes: &[u8], header_bytes: usize, make: impl Fn(u64, u8) -> Payload) -> Found {
    let header = bytes[header_bytes - 1];
    let size = 1 << (header >> 4 & 3);
    let Some(payload) = bytes.get(header_bytes..header_bytes + size) else { return Found::Short };
    let value = payload.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
    Found::Packet(make(value, header), header_bytes + size)
}

fn operation(class: u8, flags: u8) -> Payload {
    Payload::Operation(match class {
        0 => Operation::Other(flags),
        1 => Operation::Memory(flags),
        2 => Operation::Branch(flags),
        class => Operation::Unknown(class, flags),
    })
}

fn address(index: u8) -> AddressKind {
    match index {
        0 => AddressKind::Instruction,
        1 => AddressKind::BranchTarget,
        2 => AddressKind::DataVirtual,
        3 => AddressKind::DataPhysical,
        4 => AddressKind::PreviousBranchTarget,
        index => AddressKind::Other(index),
    }
}

fn counter(index: u8) -> CounterKind {
    match index {
        0 => CounterKind::Total,
        1 => CounterKind::Issue,
        2 => CounterKind::Translation,
        index => CounterKind::Other(index),
    }
}
