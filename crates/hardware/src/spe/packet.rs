// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of SPE, and their texts, which are those that perf prints.

use alloc::vec::Vec;
use core::fmt;

use crate::Lost;

/// What an address is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// The sampled instruction.
    Instruction,
    /// The target of the sampled branch.
    BranchTarget,
    /// The data, virtual.
    DataVirtual,
    /// The data, physical.
    DataPhysical,
    /// The target of the branch before.
    PreviousBranchTarget,
    /// Something newer.
    Other(u8),
}

/// What a counter counts, in cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// From dispatch to completion.
    Total,
    /// From dispatch to issue.
    Issue,
    /// Of address translation.
    Translation,
    /// Something newer.
    Other(u8),
}

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Neither of the others; the flags of the packet.
    Other(u8),
    /// A load, store or atomic operation.
    Memory(u8),
    /// A branch or exception return.
    Branch(u8),
    /// Of a class that is newer: its number, and the flags.
    Unknown(u8, u8),
}

/// What a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Nothing.
    Padding,
    /// The record ends, without a time.
    End,
    /// The record ends; ticks of the generic counter.
    Timestamp(u64),
    /// What happened to the operation: one bit each.
    Events {
        /// Bit 0 exception, 1 retired, 2 and 3 level 1 cache, 4 and 5 TLB, 6 not taken, 7 mispredicted, 8 and on others.
        bits: u64,
    },
    /// Where data came from; the processor's manual has the numbers.
    DataSource(u64),
    /// CONTEXTIDR of EL1 or EL2.
    Context {
        /// Of which exception level.
        level: u8,
        /// Its value.
        id: u32,
    },
    /// What the operation is.
    Operation(Operation),
    /// An address, with what its highest byte says.
    Address {
        /// Of what.
        kind: AddressKind,
        /// All 64 bits.
        value: u64,
    },
    /// A counter.
    Counter {
        /// Of what.
        kind: CounterKind,
        /// Cycles.
        cycles: u16,
    },
}

/// A packet with where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its first byte, from the beginning of the stream.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// What it says.
    pub payload: Payload,
}

/// What the decoder gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A packet.
    Packet(Packet),
    /// What is in none.
    Lost(Lost),
}

/// Receives what the decoder gives, in the order of the stream.
pub trait Sink {
    /// A packet.
    fn packet(&mut self, packet: &Packet);
    /// What is in none.
    fn lost(&mut self, lost: &Lost);
}

impl<F: FnMut(Item)> Sink for F {
    fn packet(&mut self, packet: &Packet) {
        self(Item::Packet(*packet));
    }

    fn lost(&mut self, lost: &Lost) {
        self(Item::Lost(*lost));
    }
}

impl Sink for Vec<Item> {
    fn packet(&mut self, packet: &Packet) {
        self.push(Item::Packet(*packet));
    }

    fn lost(&mut self, lost: &Lost) {
        self.push(Item::Lost(*lost));
    }
}

/// Names of events, by their bits.
const EVENTS: [(u32, &str); 14] = [
    (0, "EXCEPTION-GEN"),
    (1, "RETIRED"),
    (2, "L1D-ACCESS"),
    (3, "L1D-REFILL"),
    (4, "TLB-ACCESS"),
    (5, "TLB-REFILL"),
    (6, "NOT-TAKEN"),
    (7, "MISPRED"),
    (8, "LLC-ACCESS"),
    (9, "LLC-REFILL"),
    (10, "REMOTE-ACCESS"),
    (11, "ALIGNMENT"),
    (17, "SVE-PARTIAL-PRED"),
    (18, "SVE-EMPTY-PRED"),
];

/// The lower 56 bits: the address.
const ADDRESS: u64 = (1 << 56) - 1;

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Payload::Padding => f.write_str("PAD"),
            Payload::End => f.write_str("END"),
            Payload::Timestamp(ticks) => write!(f, "TS {ticks}"),
            Payload::Events { bits } => {
                f.write_str("EV")?;
                let set = EVENTS.iter().filter(|(bit, _)| bits >> bit & 1 != 0);
                set.into_iter().try_for_each(|(_, name)| write!(f, " {name}"))
            }
            Payload::DataSource(source) => write!(f, "DATA-SOURCE {source}"),
            Payload::Context { level, id } => write!(f, "CONTEXT 0x{id:x} el{level}"),
            Payload::Operation(operation) => operation.fmt(f),
            Payload::Address { kind, value } => address_text(f, kind, value),
            Payload::Counter { kind, cycles } => {
                write!(f, "LAT {cycles} ")?;
                f.write_str(match kind {
                    CounterKind::Total => "TOT",
                    CounterKind::Issue => "ISSUE",
                    CounterKind::Translation => "XLAT",
                    CounterKind::Other(_) => "",
                })
            }
        }
    }
}

fn address_text(f: &mut fmt::Formatter<'_>, kind: AddressKind, value: u64) -> fmt::Result {
    let (not_secure, level) = (value >> 63, value >> 61 & 3);
    let name = match kind {
        AddressKind::Instruction => "PC",
        AddressKind::BranchTarget => "TGT",
        AddressKind::PreviousBranchTarget => "PBT",
        AddressKind::DataVirtual => return write!(f, "VA 0x{value:x}"),
        AddressKind::DataPhysical => {
            let (checked, pattern) = (value >> 62 & 1, value >> 56 & 0xf);
            let address = value & ADDRESS;
            return write!(f, "PA 0x{address:x} ns={not_secure} ch={checked} pat={pattern:x}");
        }
        AddressKind::Other(index) => return write!(f, "ADDR 0x{value:x} ({index})"),
    };
    write!(f, "{name} 0x{:x} el{level} ns={not_secure}", value & ADDRESS)
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Operation::Other(flags) if flags & 0x89 == 8 => {
                write!(f, "SVE-OTHER EVLEN {}", vector_bits(flags))?;
                let mut flag = |is_set: bool, name: &str| if is_set { write!(f, " {name}") } else { Ok(()) };
                flag(flags & 2 != 0, "FP")?;
                flag(flags & 4 != 0, "PRED")
            }
            Operation::Other(flags) => {
                f.write_str(if flags & 1 != 0 { "OTHER COND-SELECT" } else { "OTHER INSN-OTHER" })
            }
            Operation::Memory(flags) => memory_text(f, flags),
            Operation::Branch(flags) => {
                f.write_str("B")?;
                let mut flag = |is_set: bool, name: &str| if is_set { write!(f, " {name}") } else { Ok(()) };
                flag(flags & 1 != 0, "COND")?;
                flag(flags & 0xfe == 2, "IND")
            }
            Operation::Unknown(class, flags) => write!(f, "OP-TYPE 0x{flags:x} ({class})"),
        }
    }
}

/// The effective length of vectors.
const fn vector_bits(flags: u8) -> u32 {
    32 << (flags >> 4 & 7)
}

fn memory_text(f: &mut fmt::Formatter<'_>, flags: u8) -> fmt::Result {
    f.write_str(if flags & 1 != 0 { "ST" } else { "LD" })?;
    let mut flag = |is_set: bool, name: &str| if is_set { write!(f, " {name}") } else { Ok(()) };
    if flags & 0xe2 == 2 {
        flag(flags & 4 != 0, "AT")?;
        flag(flags & 8 != 0, "EXCL")?;
        flag(flags & 16 != 0, "AR")?;
    }
    match flags & 0xfe {
        0x00 => flag(true, "GP-REG")?,
        0x04 => flag(true, "SIMD-FP")?,
        0x10 => flag(true, "UNSPEC-REG")?,
        0x14 => flag(true, "MTE-TAG")?,
        0x20 => flag(true, "MEMCPY")?,
        0x30 => flag(true, "NV-SYSREG")?,
        _ => {}
    }
    if flags & 0x0a == 8 {
        write!(f, " EVLEN {}", vector_bits(flags))?;
        let mut flag = |is_set: bool, name: &str| if is_set { write!(f, " {name}") } else { Ok(()) };
        flag(flags & 4 != 0, "PRED")?;
        flag(flags & 0x80 != 0, "SG")?;
    }
    Ok(())
}
