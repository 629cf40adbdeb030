// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The decoder of STP's packets.
//!
//! Sixteen nibbles are looked at together, wherever they begin, so a packet costs a few loads rather than a turn for each nibble.
//! What is too near to the end of a piece to be looked at like that is copied behind what the piece before left over, in a
//! window with zeros behind it. A packet counts only if all nibbles that were looked at were there.

use super::opcode::{ASYNC_RUN, FIRST, Kind, Opcode, SECOND, THIRD, TIME_NIBBLES};
use super::{Encoding, Lost, Packet, Payload, Sink, Timestamp};
use crate::LostCause;

/// No packet takes more bytes: D64TS has 2 + 16 + 1 + 16 nibbles, USER_TS one more nibble of length, and may begin within a byte.
const PACKET_BYTES_MAX: usize = 20;
/// So many bytes may be looked at from where a packet begins.
const MARGIN: usize = PACKET_BYTES_MAX + 12;
/// Bytes of a piece that are looked at together with what was left over.
const JOINED: usize = 64;
/// What is left over, bytes that are joined to it, and the zeros behind them.
const WINDOW: usize = PACKET_BYTES_MAX + JOINED + MARGIN;

/// Decodes a stream of STP version 2.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
    /// Nibbles decided so far: in packets or lost. While nothing is searched it is where the next packet begins.
    position: u64,
    /// Bytes of which at least a nibble is not decided.
    left: [u8; PACKET_BYTES_MAX],
    left_bytes: usize,
    master: u16,
    channel: u16,
    encoding: Encoding,
    /// The last time, as it was written.
    time: u64,
    frequency_hz: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Synchronised,
    /// Looking for ASYNC since `from`; the last `run` nibbles were F.
    Searching {
        from: u64,
        run: u32,
        cause: LostCause,
    },
}

/// What is at a position.
enum Found {
    Packet(Packet),
    /// Cannot be told before more is there.
    Short,
    Malformed,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// For a stream that may begin anywhere: nothing is believed before the first synchronisation.
    #[must_use]
    pub const fn new() -> Self {
        Self::starting(State::Searching { from: 0, run: 0, cause: LostCause::NotSynchronised })
    }

    /// For a stream that is known to begin with a packet.
    #[must_use]
    pub const fn synchronised() -> Self {
        Self::starting(State::Synchronised)
    }

    const fn starting(state: State) -> Self {
        Self {
            state,
            position: 0,
            left: [0; PACKET_BYTES_MAX],
            left_bytes: 0,
            master: 0,
            channel: 0,
            encoding: Encoding::Binary,
            time: 0,
            frequency_hz: None,
        }
    }

    /// What the last FREQ packet said; None: there was none, or it said that it is not known.
    #[must_use]
    pub const fn frequency_hz(&self) -> Option<u32> {
        self.frequency_hz
    }

    /// Nanoseconds of this many ticks, if the frequency is known.
    #[must_use]
    pub fn nanoseconds(&self, ticks: u64) -> Option<u128> {
        Some(u128::from(ticks) * 1_000_000_000 / u128::from(self.frequency_hz?))
    }

    /// Decodes a piece of the stream.
    pub fn push<S: Sink + ?Sized>(&mut self, bytes: &[u8], sink: &mut S) {
        let mut nibble = (self.position % 2) as usize;
        if self.left_bytes > 0 {
            let taken = bytes.len().min(JOINED);
            nibble = self.join(&bytes[..taken], sink);
            if taken == bytes.len() {
                return;
            }
            self.left_bytes = 0;
        }
        let whole = bytes.len().saturating_sub(MARGIN) * 2;
        if nibble < whole {
            nibble = self.run(bytes, nibble, whole, bytes.len() * 2, sink);
        }
        while nibble < bytes.len() * 2 && self.left_bytes == 0 {
            let piece = &bytes[nibble / 2..];
            let piece = &piece[..piece.len().min(JOINED)];
            let last = nibble / 2 + piece.len() == bytes.len();
            let next = nibble / 2 * 2 + self.join(piece, sink);
            if !last {
                self.left_bytes = 0;
            }
            nibble = next;
        }
    }

    /// The stream has ended: what is in no packet is lost.
    pub fn finish<S: Sink + ?Sized>(&mut self, sink: &mut S) {
        let lost = match self.state {
            State::Searching { from, cause, .. } => {
                Lost { nibble: from, nibbles: self.position - from, cause }
            }
            State::Synchronised => {
                let nibbles =
                    (self.left_bytes * 2) as u64 - self.position % 2 * u64::from(self.left_bytes > 0);
                Lost { nibble: self.position, nibbles, cause: LostCause::Truncated }
            }
        };
        if lost.nibbles > 0 {
            sink.lost(&lost);
        }
        *self = Self { frequency_hz: self.frequency_hz, ..Self::new() };
    }

    /// Decodes what was left over together with a piece, and keeps what is left over then. Returns the nibble of the piece where that
    /// begins.
    fn join<S: Sink + ?Sized>(&mut self, piece: &[u8], sink: &mut S) -> usize {
        let mut window = [0; WINDOW];
        let before = self.left_bytes;
        window[..before].copy_from_slice(&self.left[..before]);
        window[before..before + piece.len()].copy_from_slice(piece);
        let end = (before + piece.len()) * 2;
        let nibble = self.run(&window, (self.position % 2) as usize, end, end, sink);
        let left = &window[nibble / 2..end / 2];
        self.left[..left.len()].copy_from_slice(left);
        self.left_bytes = left.len();
        nibble.saturating_sub(before * 2)
    }

    /// Decodes packets that begin at `nibble` or later and before `until`, of `end` nibbles. Returns where the next one begins.
    fn run<S: Sink + ?Sized>(
        &mut self,
        bytes: &[u8],
        mut nibble: usize,
        until: usize,
        end: usize,
        sink: &mut S,
    ) -> usize {
        while nibble < until {
            if let State::Searching { .. } = self.state {
                nibble = self.search(bytes, nibble, until, sink);
                continue;
            }
            match self.packet_at(bytes, nibble, end) {
                Found::Packet(packet) => {
                    nibble += packet.nibbles as usize;
                    self.position += u64::from(packet.nibbles);
                    sink.packet(&packet);
                }
                Found::Short => break,
                Found::Malformed => {
                    let from = self.position;
                    self.state = State::Searching { from, run: 0, cause: LostCause::Malformed };
                }
            }
        }
        nibble
    }

    /// Looks for ASYNC. Returns the nibble behind it, or `until`.
    fn search<S: Sink + ?Sized>(
        &mut self,
        bytes: &[u8],
        mut nibble: usize,
        until: usize,
        sink: &mut S,
    ) -> usize {
        let State::Searching { from, mut run, cause } = self.state else { return nibble };
        while nibble < until {
            let value = nibble_at(bytes, nibble);
            nibble += 1;
            self.position += 1;
            if value == 0xf {
                run = run.saturating_add(1);
                continue;
            }
            if value == 0 && run >= ASYNC_RUN {
                self.found_async(from, cause, sink);
                return nibble;
            }
            run = 0;
        }
        self.state = State::Searching { from, run, cause };
        nibble
    }

    /// The position is behind an ASYNC.
    fn found_async<S: Sink + ?Sized>(&mut self, from: u64, cause: LostCause, sink: &mut S) {
        let start = self.position - u64::from(ASYNC_RUN) - 1;
        if start > from {
            sink.lost(&Lost { nibble: from, nibbles: start - from, cause });
        }
        self.state = State::Synchronised;
        self.reset();
        // What was lost may have had times; the first one behind a synchronisation is complete.
        self.time = 0;
        sink.packet(&self.packet(start, ASYNC_RUN as usize + 1, Payload::Async));
    }

    /// At ASYNC and VERSION. The time goes on: senders write it completely then, and other decoders keep it, too.
    fn reset(&mut self) {
        (self.master, self.channel, self.encoding) = (0, 0, Encoding::Binary);
    }

    const fn packet(&self, nibble: u64, nibbles: usize, payload: Payload) -> Packet {
        let (master, channel) = (self.master, self.channel);
        Packet { nibble, nibbles: nibbles as u32, master, channel, payload, timestamp: None }
    }

    #[inline]
    fn packet_at(&mut self, bytes: &[u8], nibble: usize, end: usize) -> Found {
        let head = sixteen_at(bytes, nibble);
        let (opcode, op_nibbles) = opcode_of(head);
        if opcode.kind == Kind::Async {
            return self.async_at(bytes, nibble, end);
        }
        if opcode.kind == Kind::Unknown {
            return if nibble + op_nibbles > end { Found::Short } else { Found::Malformed };
        }
        let mut place = nibble + op_nibbles;
        let mut payload_nibbles = opcode.payload;
        if opcode.kind == Kind::User {
            payload_nibbles = nibble_at(bytes, place) as usize + 1;
            place += 1;
        }
        let value = value_of(sixteen_at(bytes, place), payload_nibbles);
        place += payload_nibbles;
        let mut written = (0, 0);
        if opcode.timed {
            let nibbles = TIME_NIBBLES[nibble_at(bytes, place) as usize];
            if nibbles == 0xff {
                return if place >= end { Found::Short } else { Found::Malformed };
            }
            written = (value_of(sixteen_at(bytes, place + 1), nibbles as usize), nibbles);
            place += 1 + nibbles as usize;
        }
        if place > end {
            return Found::Short;
        }
        let Some(payload) = self.apply(opcode.kind, value, payload_nibbles) else { return Found::Malformed };
        let timestamp = opcode.timed.then(|| self.timestamp(written.0, written.1));
        Found::Packet(Packet { timestamp, ..self.packet(self.position, place - nibble, payload) })
    }

    /// What an opcode and its value do, and say. None: it is not valid.
    #[inline]
    fn apply(&mut self, kind: Kind, value: u64, nibbles: usize) -> Option<Payload> {
        Some(match kind {
            Kind::Null => Payload::Null,
            Kind::Data(width) => Payload::Data { value, width, marked: false },
            Kind::DataMarked(width) => Payload::Data { value, width, marked: true },
            Kind::Flag => Payload::Flag,
            Kind::Master | Kind::MasterWide => {
                let wide = kind == Kind::MasterWide;
                self.master = if wide { value as u16 } else { self.master & 0xff00 | value as u16 };
                self.channel = 0;
                Payload::Master { master: self.master, wide }
            }
            Kind::Channel | Kind::ChannelWide => {
                let wide = kind == Kind::ChannelWide;
                self.channel = if wide { value as u16 } else { self.channel & 0xff00 | value as u16 };
                Payload::Channel { channel: self.channel, wide }
            }
            Kind::MasterError => {
                self.channel = 0;
                Payload::MasterError(value as u8)
            }
            Kind::GlobalError => {
                (self.master, self.channel) = (0, 0);
                Payload::GlobalError(value as u8)
            }
            Kind::Version => {
                self.reset();
                self.encoding = match value {
                    3 => Encoding::Binary,
                    4 => Encoding::Gray,
                    _ => return None,
                };
                Payload::Version(value as u8)
            }
            Kind::User => Payload::User { value, nibbles: nibbles as u8 },
            Kind::Trigger => Payload::Trigger(value as u8),
            Kind::CrossSync => Payload::CrossSync(value as u8),
            Kind::Frequency => {
                self.frequency_hz = (value != 0).then_some(value as u32);
                Payload::Frequency(value as u32)
            }
            Kind::Async | Kind::Unknown => return None,
        })
    }

    /// The nibbles that were written replace the low ones of the time before, in its encoding.
    #[inline]
    const fn timestamp(&mut self, written: u64, nibbles: u8) -> Timestamp {
        let kept = if nibbles >= 16 { 0 } else { u64::MAX << (4 * nibbles as u32) };
        self.time = self.time & kept | written;
        let ticks = match self.encoding {
            Encoding::Binary => self.time,
            Encoding::Gray => binary_of(self.time),
        };
        Timestamp { ticks, nibbles }
    }

    fn async_at(&mut self, bytes: &[u8], nibble: usize, end: usize) -> Found {
        let length = ASYNC_RUN as usize + 1;
        let first = sixteen_at(bytes, nibble).trailing_ones() as usize / 4;
        let rest = sixteen_at(bytes, nibble + 16).trailing_ones() as usize / 4;
        let run = if first == 16 { 16 + rest } else { first };
        // What is behind the end are zeros, or bytes of this stream that were not asked for.
        if nibble + run.min(length) >= end {
            return Found::Short;
        }
        if run != ASYNC_RUN as usize || nibble_at(bytes, nibble + run) != 0 {
            return Found::Malformed;
        }
        self.reset();
        Found::Packet(self.packet(self.position, length, Payload::Async))
    }
}

#[inline]
fn opcode_of(head: u64) -> (&'static Opcode, usize) {
    let nibble = |index: u32| (head >> (4 * index) & 0xf) as usize;
    match (nibble(0), nibble(1)) {
        (0xf, 0) => (&THIRD[nibble(2)], 3),
        (0xf, second) => (&SECOND[second], 2),
        (first, _) => (&FIRST[first], 1),
    }
}

#[inline]
fn nibble_at(bytes: &[u8], nibble: usize) -> u8 {
    bytes[nibble / 2] >> (nibble % 2 * 4) & 0xf
}

/// Sixteen nibbles, the first one in the lowest bits.
#[inline]
fn sixteen_at(bytes: &[u8], nibble: usize) -> u64 {
    let place = nibble / 2;
    let nine: &[u8; 9] = match bytes[place..].first_chunk() {
        Some(nine) => nine,
        None => return slowly_sixteen_at(bytes, nibble),
    };
    let low = u64::from_le_bytes([nine[0], nine[1], nine[2], nine[3], nine[4], nine[5], nine[6], nine[7]]);
    if nibble % 2 == 0 { low } else { low >> 4 | u64::from(nine[8]) << 60 }
}

/// The same at the end of `bytes`, which does not happen with the margin that callers keep.
#[cold]
fn slowly_sixteen_at(bytes: &[u8], nibble: usize) -> u64 {
    let there = (nibble..bytes.len() * 2).take(16);
    there.enumerate().fold(0, |all, (index, place)| all | u64::from(nibble_at(bytes, place)) << (4 * index))
}

/// The first `nibbles` of sixteen as a number, the first one the most significant.
#[inline]
const fn value_of(sixteen: u64, nibbles: usize) -> u64 {
    const LOW: u64 = 0x0f0f_0f0f_0f0f_0f0f;
    if nibbles == 0 {
        return 0;
    }
    let bytes = sixteen.swap_bytes();
    let reversed = (bytes & LOW) << 4 | bytes >> 4 & LOW;
    reversed >> (64 - 4 * nibbles)
}

/// The number that is gray coded.
pub(super) const fn binary_of(gray: u64) -> u64 {
    let mut value = gray;
    let mut shift = 1;
    while shift < 64 {
        value ^= value >> shift;
        shift *= 2;
    }
    value
}
