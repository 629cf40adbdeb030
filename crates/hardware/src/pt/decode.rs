// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes become packets.
//!
//! [`Decoder`] is given a stream in pieces of any size and calls a [`Sink`] with each packet, in order, and with each stretch of
//! bytes that is in none. The pieces change nothing of what is called. It holds 16 bytes and allocates nothing.
//!
//! It begins without synchronisation and after a byte that begins no packet of the manual is without it again: then it
//! looks for the next PSB, byte by byte, as a ring that wrapped may have it anywhere.
//!
//! Sixteen bytes are the longest packet (PSB), so while that many are left each kind is read without asking whether it is
//! whole. This is what makes it fast; only the ends of pieces take the other way.

use super::packet::{ExecMode, Ip, IpBytes, Packet, Tnt};
use crate::{Lost, LostCause};

/// Where a packet is in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Of its first byte, from the beginning of the stream.
    pub offset: u64,
    /// How many bytes it has.
    pub bytes: u32,
}

/// Who is called.
pub trait Sink {
    /// A packet. Places follow each other without a gap, except for what [`Sink::lost`] is told.
    fn packet(&mut self, place: Place, packet: Packet);

    /// Bytes that are in no packet. Decoding goes on with a PSB.
    fn lost(&mut self, lost: Lost);
}

/// The longest packet.
pub(super) const BYTES_MAX: usize = 16;

/// Of a PSB: eight times these two.
const PSB_BYTES: [u8; 2] = [0x02, 0x82];

/// Which packets stand for BIP: between BBP and BEP, headers with the low bits 100 do, which are TNT elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Outside,
    /// Items of 4 bytes.
    Narrow,
    /// Items of 8 bytes.
    Wide,
}

/// What bytes are.
enum Step {
    Packet(Packet, usize),
    /// More bytes are needed to tell.
    Incomplete,
    Malformed,
}

/// Decodes a stream of Intel PT packets.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// Of the first byte that has been given but is in no packet yet: of `carried`, or of the next piece.
    offset: u64,
    /// The beginning of a packet, from the end of the last piece.
    carried: [u8; BYTES_MAX],
    carried_len: usize,
    block: Block,
    search: Option<Search>,
}

/// Looks for a PSB.
#[derive(Clone, Copy, Debug)]
struct Search {
    /// How many bytes of a PSB the newest bytes are.
    matched: u8,
    /// The first byte that is lost.
    from: u64,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// For a stream of which nothing is known: up to the first PSB it is lost.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            offset: 0,
            carried: [0; BYTES_MAX],
            carried_len: 0,
            block: Block::Outside,
            search: Some(Search { matched: 0, from: 0 }),
        }
    }

    /// For a stream that begins with a packet, whichever.
    #[must_use]
    pub const fn synchronised() -> Self {
        Self { search: None, ..Self::new() }
    }

    /// Decodes what comes next.
    pub fn push(&mut self, mut bytes: &[u8], sink: &mut impl Sink) {
        while !bytes.is_empty() {
            bytes = if self.search.is_some() {
                self.find_psb(bytes, sink)
            } else if self.carried_len > 0 {
                self.complete_carried(bytes, sink)
            } else {
                self.decode(bytes, sink)
            };
        }
    }

    /// The stream has ended: what is left is lost. The next piece begins another one, which counts on from here.
    pub fn finish(&mut self, sink: &mut impl Sink) {
        let end = self.offset;
        match self.search {
            Some(search) if search.from < end => {
                sink.lost(Lost {
                    offset: search.from,
                    bytes: end - search.from,
                    cause: LostCause::NotSynchronised,
                });
            }
            None if self.carried_len > 0 => {
                let bytes = self.carried_len as u64;
                sink.lost(Lost { offset: end, bytes, cause: LostCause::Truncated });
                self.offset += bytes;
            }
            _ => {}
        }
        *self = Self {
            offset: self.offset,
            search: Some(Search { matched: 0, from: self.offset }),
            ..Self::new()
        };
    }

    /// Where the next byte that is pushed is in the stream.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.offset + self.carried_len as u64
    }

    /// Returns the bytes after the PSB, none if it is not there.
    fn find_psb<'a>(&mut self, bytes: &'a [u8], sink: &mut impl Sink) -> &'a [u8] {
        let Some(search) = &mut self.search else { return bytes };
        for (at, &byte) in bytes.iter().enumerate() {
            if byte == PSB_BYTES[usize::from(search.matched % 2)] {
                search.matched += 1;
            } else {
                search.matched = u8::from(byte == PSB_BYTES[0]);
            }
            if usize::from(search.matched) == BYTES_MAX {
                let end = self.offset + at as u64 + 1;
                let begin = end - BYTES_MAX as u64;
                if begin > search.from {
                    let bytes = begin - search.from;
                    sink.lost(Lost { offset: search.from, bytes, cause: LostCause::NotSynchronised });
                }
                self.search = None;
                self.block = Block::Outside;
                self.offset = end;
                sink.packet(Place { offset: begin, bytes: BYTES_MAX as u32 }, Packet::Psb);
                return &bytes[at + 1..];
            }
        }
        self.offset += bytes.len() as u64;
        &[]
    }

    /// The first byte at `offset` begins no packet; those that are known to follow it may be of a PSB.
    #[cold]
    fn lose(&mut self, following: &[u8], sink: &mut impl Sink) {
        sink.lost(Lost { offset: self.offset, bytes: 1, cause: LostCause::Malformed });
        self.offset += 1;
        self.search = Some(Search { matched: 0, from: self.offset });
        // Fewer than a PSB has, so it is not found here.
        self.find_psb(following, sink);
    }

    /// Decodes the packet whose beginning is carried; returns the bytes after it.
    fn complete_carried<'a>(&mut self, bytes: &'a [u8], sink: &mut impl Sink) -> &'a [u8] {
        let carried_len = self.carried_len;
        let mut window = self.carried;
        let taken = bytes.len().min(BYTES_MAX - carried_len);
        window[carried_len..carried_len + taken].copy_from_slice(&bytes[..taken]);
        match read(&window, carried_len + taken, self.block) {
            Step::Packet(packet, len) => {
                self.carried_len = 0;
                sink.packet(Place { offset: self.offset, bytes: len as u32 }, packet);
                self.block = self.block.after(&packet);
                self.offset += len as u64;
                // What was carried was no whole packet.
                &bytes[len - carried_len..]
            }
            Step::Incomplete => {
                self.carried = window;
                self.carried_len += taken;
                &bytes[taken..]
            }
            Step::Malformed => {
                self.carried_len = 0;
                self.lose(&window[1..carried_len], sink);
                bytes
            }
        }
    }

    /// Decodes as long as packets are whole; returns what is not looked at because synchronisation was lost.
    fn decode<'a>(&mut self, bytes: &'a [u8], sink: &mut impl Sink) -> &'a [u8] {
        let base = self.offset;
        let mut block = self.block;
        let mut rest = bytes;
        let at = |rest: &[u8]| base + (bytes.len() - rest.len()) as u64;
        let mut malformed = false;
        while let Some(window) = rest.first_chunk::<BYTES_MAX>() {
            // Most packets by far, apart from the others: with those it takes a fifth longer.
            let header = window[0];
            if header & 1 == 0 && header > 2 && block == Block::Outside {
                sink.packet(Place { offset: at(rest), bytes: 1 }, short_branches(header));
                rest = &rest[1..];
                continue;
            }
            match read(window, BYTES_MAX, block) {
                Step::Packet(packet, len) => {
                    sink.packet(Place { offset: at(rest), bytes: len as u32 }, packet);
                    block = block.after(&packet);
                    rest = &rest[len..];
                }
                Step::Incomplete | Step::Malformed => {
                    malformed = true;
                    break;
                }
            }
        }
        while !malformed && !rest.is_empty() && rest.len() < BYTES_MAX {
            let mut window = [0; BYTES_MAX];
            window[..rest.len()].copy_from_slice(rest);
            match read(&window, rest.len(), block) {
                Step::Packet(packet, len) => {
                    sink.packet(Place { offset: at(rest), bytes: len as u32 }, packet);
                    block = block.after(&packet);
                    rest = &rest[len..];
                }
                Step::Incomplete => {
                    self.carried = window;
                    self.carried_len = rest.len();
                    break;
                }
                Step::Malformed => malformed = true,
            }
        }
        self.block = block;
        self.offset = at(rest);
        if malformed {
            self.lose(&[], sink);
            return &rest[1..];
        }
        &[]
    }
}

impl Block {
    /// Which packets end a block is in the manual's section on BBP; those that may stand among its items do not.
    #[inline(always)]
    fn after(self, packet: &Packet) -> Self {
        match *packet {
            Packet::Bbp { narrow: true, .. } => Block::Narrow,
            Packet::Bbp { narrow: false, .. } => Block::Wide,
            Packet::Tnt8(_)
            | Packet::Tnt64(_)
            | Packet::Tip(_)
            | Packet::TipPge(_)
            | Packet::TipPgd(_)
            | Packet::Pip { .. }
            | Packet::Vmcs { .. }
            | Packet::TraceStop
            | Packet::Ovf
            | Packet::Psb
            | Packet::PsbEnd
            | Packet::ModeExec { .. }
            | Packet::ModeTsx { .. }
            | Packet::Ptw { .. }
            | Packet::Mwait { .. }
            | Packet::Cfe { .. }
            | Packet::Evd { .. }
            | Packet::Trig { .. }
            | Packet::Bep { .. } => Block::Outside,
            _ => self,
        }
    }
}

/// `len` bytes beginning at `from`, as a number.
#[inline(always)]
fn number(window: &[u8; BYTES_MAX], from: usize, len: usize) -> u64 {
    let whole = u128::from_le_bytes(*window) >> (8 * from);
    let whole = whole as u64;
    if len == 8 { whole } else { whole & ((1 << (8 * len)) - 1) }
}

/// The packet at the beginning of `window`, of which `available` bytes are real and the others 0.
#[inline(always)]
fn read(window: &[u8; BYTES_MAX], available: usize, block: Block) -> Step {
    let header = window[0];
    if header & 1 == 0 {
        if header & 7 == 4 && block != Block::Outside {
            return block_item(window, available, block);
        }
        return match header {
            0 => Step::Packet(Packet::Pad, 1),
            2 => extended(window, available),
            _ => Step::Packet(short_branches(header), 1),
        };
    }
    let whole = |packet, len| if len > available { Step::Incomplete } else { Step::Packet(packet, len) };
    if header & 3 == 3 {
        return cycles(window, available);
    }
    match header & 0x1f {
        0x0d | 0x11 | 0x01 | 0x1d => {
            let Some(bytes) = IpBytes::from_header(header) else { return Step::Malformed };
            let len = bytes.bytes();
            let ip = Ip { bytes, payload: number(window, 1, len) };
            let packet = match header & 0x1f {
                0x0d => Packet::Tip(ip),
                0x11 => Packet::TipPge(ip),
                0x01 => Packet::TipPgd(ip),
                _ => Packet::Fup(ip),
            };
            whole(packet, 1 + len)
        }
        0x19 => match header {
            0x19 => whole(Packet::Tsc { ticks: number(window, 1, 7) }, 8),
            0x59 => whole(Packet::Mtc { ctc: window[1] }, 2),
            0x99 => whole(mode(window[1]), 2),
            _ => trigger(window, available),
        },
        _ => Step::Malformed,
    }
}

/// TNT.8: the highest bit that is set ends the others.
#[inline(always)]
fn short_branches(header: u8) -> Packet {
    let count = 6 - header.leading_zeros() as u8;
    Packet::Tnt8(Tnt { bits: u64::from(header >> 1) & ((1 << count) - 1), count })
}

/// CYC: five bits in the header, seven in each byte after it.
#[inline(always)]
fn cycles(window: &[u8; BYTES_MAX], available: usize) -> Step {
    let mut cycles = u64::from(window[0] >> 3);
    if window[0] & 4 == 0 {
        return Step::Packet(Packet::Cyc { cycles }, 1);
    }
    // More bytes than fit into 64 bits are in no processor's counter.
    for (at, byte) in window.iter().enumerate().take(9).skip(1) {
        if at >= available {
            return Step::Incomplete;
        }
        cycles |= u64::from(byte >> 1) << (5 + 7 * (at - 1));
        if byte & 1 == 0 {
            return Step::Packet(Packet::Cyc { cycles }, at + 1);
        }
    }
    Step::Malformed
}

#[inline(always)]
fn mode(payload: u8) -> Packet {
    match payload >> 5 {
        0 => Packet::ModeExec {
            mode: match payload & 3 {
                0 => ExecMode::Bits16,
                2 => ExecMode::Bits32,
                // Both bits are reserved; other decoders take L for the stronger one.
                _ => ExecMode::Bits64,
            },
            interrupts_enabled: payload & 4 != 0,
        },
        1 => Packet::ModeTsx { in_transaction: payload & 1 != 0, aborted: payload & 2 != 0 },
        _ => Packet::ModeUnknown { payload },
    }
}

#[cold]
fn trigger(window: &[u8; BYTES_MAX], available: usize) -> Step {
    // d9 is the only one left.
    if window[0] != 0xd9 {
        return Step::Malformed;
    }
    let counted = window[1] & 0x40 != 0;
    let len = if counted { 5 } else { 3 };
    if len > available {
        return Step::Incomplete;
    }
    let packet = Packet::Trig {
        triggers: window[2],
        instructions: counted.then(|| number(window, 3, 2) as u16),
        multiple: window[1] & 0x20 != 0,
        ip: window[1] & 0x80 != 0,
    };
    Step::Packet(packet, len)
}

#[cold]
fn block_item(window: &[u8; BYTES_MAX], available: usize, block: Block) -> Step {
    let bytes = if block == Block::Narrow { 4 } else { 8 };
    if 1 + bytes > available {
        return Step::Incomplete;
    }
    Step::Packet(Packet::Bip { id: window[0] >> 3, payload: number(window, 1, bytes) }, 1 + bytes)
}

/// Those whose first byte is 02.
#[inline(always)]
fn extended(window: &[u8; BYTES_MAX], available: usize) -> Step {
    if available < 2 {
        return Step::Incomplete;
    }
    let whole = |packet, len| if len > available { Step::Incomplete } else { Step::Packet(packet, len) };
    match window[1] {
        0xa3 => {
            let payload = number(window, 2, 6);
            if available < 8 {
                return Step::Incomplete;
            }
            // The highest bit that is set ends the others.
            let Some(count) = payload.checked_ilog2() else { return Step::Malformed };
            whole(Packet::Tnt64(Tnt { bits: payload & ((1 << count) - 1), count: count as u8 }), 8)
        }
        0x43 => {
            let payload = number(window, 2, 6);
            whole(Packet::Pip { cr3: payload >> 1 << 5, non_root: payload & 1 != 0 }, 8)
        }
        0x03 => whole(Packet::Cbr { ratio: window[2] }, 4),
        0x73 => {
            let (ctc, fast_counter) = (number(window, 2, 2) as u16, number(window, 5, 2) as u16 & 0x1ff);
            whole(Packet::Tma { ctc, fast_counter }, 7)
        }
        0x82 if available < BYTES_MAX => Step::Incomplete,
        0x82 if *window == [0x02, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82] => {
            Step::Packet(Packet::Psb, BYTES_MAX)
        }
        0x23 => whole(Packet::PsbEnd, 2),
        0xf3 => whole(Packet::Ovf, 2),
        0x83 => whole(Packet::TraceStop, 2),
        code @ (0x12 | 0x32 | 0x92 | 0xb2) => {
            let wide = code & 0x20 != 0;
            let bytes = if wide { 8 } else { 4 };
            whole(Packet::Ptw { payload: number(window, 2, bytes), wide, ip: code & 0x80 != 0 }, 2 + bytes)
        }
        code => rare(code, window, available),
    }
}

/// Those that hardly matter for the speed.
#[inline(never)]
fn rare(code: u8, window: &[u8; BYTES_MAX], available: usize) -> Step {
    let (packet, len) = match code {
        0xc8 => (Packet::Vmcs { address: number(window, 2, 5) << 12 }, 7),
        0xc3 if available < 3 => return Step::Incomplete,
        0xc3 if window[2] == 0x88 => (Packet::Mnt { payload: number(window, 3, 8) }, 11),
        0x62 | 0xe2 => (Packet::ExStop { ip: code == 0xe2 }, 2),
        0xc2 => {
            let (hints, extensions) = (number(window, 2, 4) as u32, number(window, 6, 4) as u32 & 3);
            (Packet::Mwait { hints, extensions }, 10)
        }
        0x22 => {
            let (hardware, states) = (window[2] & 8 != 0, window[3]);
            (Packet::Pwre { state: states >> 4, sub_state: states & 15, hardware }, 4)
        }
        0xa2 => {
            let (states, reason) = (window[2], window[3] & 15);
            (Packet::Pwrx { last: states >> 4, deepest: states & 15, reason }, 7)
        }
        0x63 => (Packet::Bbp { group: window[2] & 0x1f, narrow: window[2] & 0x80 != 0 }, 3),
        0x33 | 0xb3 => (Packet::Bep { ip: code == 0xb3 }, 2),
        0x13 => {
            let (kind, ip) = (window[2] & 0x1f, window[2] & 0x80 != 0);
            (Packet::Cfe { kind, vector: window[3], ip }, 4)
        }
        0x53 => (Packet::Evd { kind: window[2] & 0x3f, payload: number(window, 3, 8) }, 11),
        _ => return Step::Malformed,
    };
    if len > available { Step::Incomplete } else { Step::Packet(packet, len) }
}
