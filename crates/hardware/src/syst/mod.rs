// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MIPI SyS-T: what a message of STP, or of any other transport, says.
//!
//! A message is a header word, whatever it says is there (origin, location, length, time), the payload, and a checksum
//! (MIPI SyS-T 1.0, “Message Header Format” and its neighbours). Formats are in the message itself, or in a catalogue that the
//! sender's maker publishes as XML ([`Collateral`]).
//!
//! - [`Message::parse`]: bytes → message.
//! - [`Collateral::text`]: message → text.
//!
//! With STP, the bytes are those of [`stp::Messages`](crate::stp::Messages) with [`Framing::FlagEnds`](crate::stp::Framing).

mod collateral;
mod crc;
mod encode;
mod printf;

use core::fmt;

pub use collateral::{Collateral, CollateralError, Text, TextError};
pub use crc::checksum;
pub use encode::Encoder;
pub use printf::{FormatError, TEXT_BYTES_MAX};

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// They end within what the header says is there.
    TooShort,
    /// The header has a type or a form that the specification does not have.
    Unknown,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParseError::TooShort => "shorter than its header says",
            ParseError::Unknown => "of a type that SyS-T 1.0 does not have",
        })
    }
}

impl core::error::Error for ParseError {}

/// How urgent a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Not to be filtered.
    Max,
    /// The system cannot go on.
    Fatal,
    /// An error.
    Error,
    /// A warning.
    Warning,
    /// Information.
    Info,
    /// As the sender likes.
    User1,
    /// As the sender likes.
    User2,
    /// For whoever looks for a defect.
    Debug,
}

impl Severity {
    const ALL: [Severity; 8] = [
        Severity::Max,
        Severity::Fatal,
        Severity::Error,
        Severity::Warning,
        Severity::Info,
        Severity::User1,
        Severity::User2,
        Severity::Debug,
    ];

    /// As the specification writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["MAX", "FATAL", "ERROR", "WARNING", "INFO", "USER1", "USER2", "DEBUG"][self as usize]
    }
}

/// Who sent a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A module, whose name is in the catalogue.
    Module(u8),
    /// A client, by its identifier.
    Guid([u8; 16]),
}

/// Where a message was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// A file, whose name is in the catalogue, and its line.
    Line {
        /// Of the catalogue.
        file: u32,
        /// From 1.
        line: u32,
    },
    /// The address of the call.
    Address(u64),
}

/// Whether a message's checksum (CRC-32C) is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// It has none.
    None,
    /// It is right.
    Right,
    /// It is not.
    Wrong,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// The sender's version.
    Build {
        /// A number.
        version: u64,
        /// A text, of bytes before its NUL.
        text: &'a [u8],
    },
    /// 28 bits, that a catalogue explains.
    Short32(u32),
    /// 60 bits, that a catalogue explains.
    Short64(u64),
    /// A text.
    String {
        /// As in the header: 1 generic, 2 and 3 a function's begin and end, 5 an invalid parameter, 7 an assertion.
        subtype: u8,
        /// Up to its NUL.
        text: &'a [u8],
    },
    /// A format and its arguments.
    Printf {
        /// Pointers and longs have 64 bits.
        wide: bool,
        /// Up to its NUL.
        format: &'a [u8],
        /// Behind the NUL.
        arguments: &'a [u8],
    },
    /// Arguments of a format in a catalogue.
    Catalog {
        /// Its number there.
        id: u64,
        /// The number has 64 bits.
        wide_id: bool,
        /// Pointers and longs have 64 bits.
        wide: bool,
        /// All of them.
        arguments: &'a [u8],
    },
    /// Bytes of another protocol.
    Raw {
        /// Its number.
        protocol: u8,
        /// All of them.
        bytes: &'a [u8],
    },
    /// Two clocks at the same moment.
    Clock {
        /// As in the header.
        subtype: u8,
        /// The value.
        value: u64,
        /// Its frequency.
        hz: u64,
    },
}

/// A message of SyS-T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// How urgent it is.
    pub severity: Severity,
    /// Who sent it; short messages do not say.
    pub origin: Option<Origin>,
    /// Which part of the sender.
    pub unit: u8,
    /// Where it was sent.
    pub location: Option<Location>,
    /// When, in ticks of the sender's clock.
    pub ticks: Option<u64>,
    /// Whether it arrived as it was sent.
    pub checksum: Checksum,
    /// What it says.
    pub body: Body<'a>,
    /// Bytes behind what its length says, that are no part of it.
    pub behind: usize,
}

impl<'a> Message<'a> {
    /// Reads a message: all of its bytes.
    ///
    /// # Errors
    /// When they are not one.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut rest = Bytes(bytes);
        let header = rest.u32()?;
        let severity = Severity::ALL[(header >> 4 & 7) as usize];
        match header & 0xf {
            // They are nothing else: the bytes of any text may begin like them.
            1 if rest.0.is_empty() => return Ok(Self::short(Body::Short32(header >> 4))),
            7 => {
                let all = u64::from(header) | u64::from(rest.u32()?) << 32;
                let is_all = rest.0.is_empty();
                return is_all.then(|| Self::short(Body::Short64(all >> 4))).ok_or(ParseError::Unknown);
            }
            1 => return Err(ParseError::Unknown),
            _ => {}
        }
        let module_and_unit = header >> 12 & 0x7ff;
        let origin = if header & 1 << 23 == 0 {
            Origin::Module((module_and_unit >> 4) as u8)
        } else {
            Origin::Guid(*rest.take(16)?.first_chunk().ok_or(ParseError::TooShort)?)
        };
        let location = if header & 1 << 8 == 0 { None } else { Some(rest.location()?) };
        let length = if header & 1 << 9 == 0 { None } else { Some(rest.u16()?) };
        let ticks = if header & 1 << 11 == 0 { None } else { Some(rest.u64()?) };
        let trailer = if header & 1 << 10 == 0 { 0 } else { 4 };
        let behind = length.map_or(0, |length| rest.0.len().saturating_sub(usize::from(length) + trailer));
        let checksum = if header & 1 << 10 == 0 { Checksum::None } else { rest.checksum(bytes, length)? };
        let payload = match length {
            Some(length) => rest.take(usize::from(length))?,
            None => rest.0,
        };
        let body = Body::parse((header & 0xf) as u8, (header >> 24 & 0x3f) as u8, payload)?;
        let unit = (module_and_unit & 0xf) as u8;
        Ok(Self { severity, origin: Some(origin), unit, location, ticks, checksum, body, behind })
    }

    const fn short(body: Body<'a>) -> Self {
        let (severity, checksum) = (Severity::Max, Checksum::None);
        Self { severity, origin: None, unit: 0, location: None, ticks: None, checksum, body, behind: 0 }
    }
}

impl<'a> Body<'a> {
    fn parse(kind: u8, subtype: u8, payload: &'a [u8]) -> Result<Self, ParseError> {
        let mut rest = Bytes(payload);
        Ok(match (kind, subtype) {
            (0, 2) => Body::Build { version: rest.u64()?, text: until_nul(rest.0).0 },
            (2, 11 | 12) => {
                let (format, arguments) = until_nul(payload);
                Body::Printf { wide: subtype == 12, format, arguments }
            }
            (2, _) => Body::String { subtype, text: until_nul(payload).0 },
            (3, 1 | 2 | 5 | 6) => {
                let wide_id = matches!(subtype, 2 | 6);
                let id = if wide_id { rest.u64()? } else { u64::from(rest.u32()?) };
                Body::Catalog { id, wide_id, wide: subtype >= 5, arguments: rest.0 }
            }
            (6, protocol) => Body::Raw { protocol, bytes: payload },
            (8, 1 | 2) => Body::Clock { subtype, value: rest.u64()?, hz: rest.u64()? },
            _ => return Err(ParseError::Unknown),
        })
    }

    /// As the specification names it, such as `STRING:PRINTF64`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Body::Build { .. } => "BUILD:LONG",
            Body::Short32(_) => "SHORT32",
            Body::Short64(_) => "SHORT64",
            Body::String { subtype: 1, .. } => "STRING:GENERIC",
            Body::String { subtype: 2, .. } => "STRING:FUNCTIONENTER",
            Body::String { subtype: 3, .. } => "STRING:FUNCTIONEXIT",
            Body::String { subtype: 5, .. } => "STRING:INVALIDPARAM",
            Body::String { subtype: 7, .. } => "STRING:ASSERT",
            Body::String { .. } => "STRING",
            Body::Printf { wide: false, .. } => "STRING:PRINTF32",
            Body::Printf { wide: true, .. } => "STRING:PRINTF64",
            Body::Catalog { wide_id: false, wide: false, .. } => "CATALOG:ID32P32",
            Body::Catalog { wide_id: true, wide: false, .. } => "CATALOG:ID64P32",
            Body::Catalog { wide_id: false, wide: true, .. } => "CATALOG:ID32P64",
            Body::Catalog { wide_id: true, wide: true, .. } => "CATALOG:ID64P64",
            Body::Raw { .. } => "RAW",
            Body::Clock { .. } => "CLOCK",
        }
    }
}

/// What is before the first NUL, and what is behind it.
fn until_nul(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[]),
    }
}

/// Bytes that are taken from their begin.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], ParseError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(ParseError::TooShort)?;
        self.0 = rest;
        Ok(taken)
    }

    fn little(&mut self, count: usize) -> Result<u64, ParseError> {
        Ok(self.take(count)?.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn u16(&mut self) -> Result<u16, ParseError> {
        Ok(self.little(2)? as u16)
    }

    fn u32(&mut self) -> Result<u32, ParseError> {
        Ok(self.little(4)? as u32)
    }

    fn u64(&mut self) -> Result<u64, ParseError> {
        self.little(8)
    }

    fn location(&mut self) -> Result<Location, ParseError> {
        Ok(match self.little(1)? {
            0 => Location::Line { file: u32::from(self.u16()?), line: u32::from(self.u16()?) },
            1 => Location::Line { file: self.u32()?, line: self.u32()? },
            2 => Location::Address(u64::from(self.u32()?)),
            3 => Location::Address(self.u64()?),
            _ => return Err(ParseError::Unknown),
        })
    }

    /// Takes the checksum of `message` away, which is behind the payload.
    fn checksum(&mut self, message: &[u8], length: Option<u16>) -> Result<Checksum, ParseError> {
        let end = length.map_or(self.0.len().checked_sub(4), |length| Some(usize::from(length)));
        let end = end.ok_or(ParseError::TooShort)?;
        let (payload, rest) = self.0.split_at_checked(end).ok_or(ParseError::TooShort)?;
        let sent = Bytes(rest).u32()?;
        let before = message.len() - rest.len();
        self.0 = payload;
        let is_right = checksum(&message[..before]) == sent;
        Ok(if is_right { Checksum::Right } else { Checksum::Wrong })
    }
}
