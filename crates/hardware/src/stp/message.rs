// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data packets of each channel → messages.
//!
//! STP does not say what a message is; senders do ([`Framing`]). Channels that have an open message are few at any time, so they
//! are in one list, of bounded length.

use alloc::vec::Vec;

use super::{Lost, Packet, Payload, Sink, Timestamp};

/// How senders mark messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A FLAG ends it: Linux's p_basic and p_sys-t, MIPI SyS-T. A datum with mark and time is a message of its own where none is
    /// open (SyS-T's short ones).
    FlagEnds,
    /// A marked datum is its last.
    MarkEnds,
    /// A marked datum is its first.
    MarkBegins,
}

/// A message of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Whose.
    pub master: u16,
    /// Whose.
    pub channel: u16,
    /// Of its first packet that has one.
    pub timestamp: Option<Timestamp>,
    /// Its first nibble, from the beginning of the stream.
    pub nibble: u64,
    /// Its data, little endian; a nibble takes a byte.
    pub bytes: &'a [u8],
}

/// What became no message, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageLosses {
    /// Messages that were open when bytes of the stream were lost.
    pub cut: u64,
    /// Messages of more bytes than allowed.
    pub too_long: u64,
    /// Messages that were given up for others since too many were open.
    pub too_many: u64,
    /// Messages that were open when the stream ended.
    pub unfinished: u64,
    /// Packets in which a unit says that it could not write what was sent (MERR, GERR).
    pub errors: u64,
}

impl MessageLosses {
    /// Messages of all causes.
    #[must_use]
    pub const fn messages(&self) -> u64 {
        self.cut + self.too_long + self.too_many + self.unfinished
    }
}

#[derive(Clone, Debug)]
struct Open {
    master: u16,
    channel: u16,
    timestamp: Option<Timestamp>,
    nibble: u64,
    bytes: Vec<u8>,
    too_long: bool,
}

/// Makes messages of packets, and hands them on.
#[derive(Debug)]
pub struct Messages<F> {
    framing: Framing,
    open: Vec<Open>,
    /// Emptied buffers, to be used again.
    spare: Vec<Vec<u8>>,
    /// Bytes of all open messages.
    held: usize,
    losses: MessageLosses,
    give: F,
}

impl<F: FnMut(&Message<'_>)> Messages<F> {
    /// So many messages are open at most, each of so many bytes.
    pub const OPEN_MAX: usize = 1024;
    /// Longer ones are counted and not given.
    pub const BYTES_MAX: usize = 64 * 1024;
    /// And together they hold so many bytes at most: what does not fit counts as too long.
    pub const HELD_BYTES_MAX: usize = 2 * 1024 * 1024;

    /// Gives messages to `give`.
    pub const fn new(framing: Framing, give: F) -> Self {
        let losses = MessageLosses { cut: 0, too_long: 0, too_many: 0, unfinished: 0, errors: 0 };
        Self { framing, open: Vec::new(), spare: Vec::new(), held: 0, losses, give }
    }

    /// What became no message so far.
    pub const fn losses(&self) -> MessageLosses {
        self.losses
    }

    /// The stream has ended.
    pub fn finish(&mut self) -> MessageLosses {
        self.losses.unfinished += self.open.len() as u64;
        self.open.clear();
        self.held = 0;
        self.losses
    }

    fn append(&mut self, packet: &Packet, data: &[u8]) {
        let index = self.open_of(packet).unwrap_or_else(|| self.begin(packet));
        let open = &mut self.open[index];
        open.timestamp = open.timestamp.or(packet.timestamp);
        let fits = open.bytes.len() + data.len() <= Self::BYTES_MAX
            && self.held + data.len() <= Self::HELD_BYTES_MAX;
        open.too_long |= !fits;
        if !open.too_long {
            open.bytes.extend_from_slice(data);
            self.held += data.len();
        }
    }

    /// Where the open message of a packet's channel is.
    fn open_of(&self, packet: &Packet) -> Option<usize> {
        self.open.iter().rposition(|open| (open.master, open.channel) == (packet.master, packet.channel))
    }

    fn begin(&mut self, packet: &Packet) -> usize {
        if self.open.len() == Self::OPEN_MAX {
            let oldest = self.open.remove(0);
            self.losses.too_many += 1;
            self.keep(oldest.bytes);
        }
        let bytes = self.spare.pop().unwrap_or_default();
        let Packet { master, channel, nibble, .. } = *packet;
        self.open.push(Open { master, channel, timestamp: None, nibble, bytes, too_long: false });
        self.open.len() - 1
    }

    fn end(&mut self, packet: &Packet) {
        let Some(index) = self.open_of(packet) else { return };
        let open = self.open.swap_remove(index);
        if open.too_long {
            self.losses.too_long += 1;
        } else {
            let Open { master, channel, nibble, .. } = open;
            let timestamp = open.timestamp.or(packet.timestamp);
            (self.give)(&Message { master, channel, timestamp, nibble, bytes: &open.bytes });
        }
        self.keep(open.bytes);
    }

    fn keep(&mut self, mut bytes: Vec<u8>) {
        self.held -= bytes.len();
        bytes.clear();
        if self.spare.len() < 8 {
            self.spare.push(bytes);
        }
    }

    fn cut_all(&mut self) {
        self.losses.cut += self.open.len() as u64;
        self.open.clear();
        self.held = 0;
    }
}

impl<F: FnMut(&Message<'_>)> Sink for Messages<F> {
    fn packet(&mut self, packet: &Packet) {
        match packet.payload {
            Payload::Data { value, width, marked } => {
                if marked && self.framing == Framing::MarkBegins {
                    self.end(packet);
                }
                let is_short = marked && packet.timestamp.is_some() && self.open_of(packet).is_none();
                self.append(packet, &value.to_le_bytes()[..width.bytes()]);
                match self.framing {
                    Framing::FlagEnds if is_short => self.end(packet),
                    Framing::MarkEnds if marked => self.end(packet),
                    _ => {}
                }
            }
            Payload::Flag if self.framing == Framing::FlagEnds => self.end(packet),
            Payload::MasterError(_) | Payload::GlobalError(_) => {
                self.losses.errors += 1;
                self.cut_all();
            }
            _ => {}
        }
    }

    fn lost(&mut self, _: &Lost) {
        self.cut_all();
    }
}
