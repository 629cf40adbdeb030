// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of ETMv4 and ETE, with what is compressed in the stream already in full.

use core::fmt;

/// Atoms, oldest in bit 0; 1 is E, a waypoint that was executed or a branch that was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Atoms {
    /// One bit each.
    pub bits: u32,
    /// How many.
    pub count: u8,
}

/// How an address was in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressForm {
    /// The n-th of the three last ones.
    Match(u8),
    /// Its lowest bits.
    Short,
    /// Its low 32 bits.
    Long32,
    /// All of it.
    Long64,
}

/// An address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// In full.
    pub value: u64,
    /// IS1: T32, else A64 or A32.
    pub is1: bool,
    /// How it was in the stream.
    pub form: AddressForm,
}

/// The state of the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Exception level.
    pub level: u8,
    /// SF: AArch64.
    pub is_64_bit: bool,
    /// NS: not secure.
    pub non_secure: bool,
    /// NSE: with [`Context::non_secure`] realm, else root (ETE, FEAT_RME).
    pub nse: bool,
    /// CONTEXTIDR, where it is traced and changed.
    pub context_id: Option<u32>,
    /// VMID or CONTEXTIDR_EL2, where it is traced and changed.
    pub vmid: Option<u32>,
}

/// How the trace goes on after a synchronisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceInfo {
    /// INFO: bit 0 cycle counts are on, bit 6 within a transaction (ETE).
    pub info: u32,
    /// The next key of a P0 element (data trace).
    pub p0_key: u32,
    /// How many elements are not yet committed.
    pub speculation: u32,
    /// The least cycles that are counted.
    pub cycle_threshold: u32,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A-Sync, 6.4.2.
    Async,
    /// Elements that were not committed never will be, 6.4.4.
    Discard,
    /// Trace was lost in the unit, 6.4.5.
    Overflow,
    /// State at a synchronisation, 6.4.3.
    TraceInfo(TraceInfo),
    /// Tracing begins, or goes on after a gap, 6.4.6.
    TraceOn,
    /// The time, with the cycles since the last count, 6.4.10.
    Timestamp {
        /// In full.
        value: u64,
        /// Cycles since the last count.
        cycles: Option<u32>,
    },
    /// Timestamps are of this place (ETE 1.1, ETMv4.6).
    TimestampMarker,
    /// A function returned with data from the stack (Armv8-M).
    FunctionReturn,
    /// An exception, 6.4.8. Address packets follow: its preferred return address.
    Exception {
        /// TYPE.
        number: u16,
        /// Bits E1, E0: 2 says that the address is also that of a branch before the exception.
        address: u8,
        /// A fault is pending (Armv8-M).
        fault_pending: bool,
    },
    /// The processor was reset (ETE).
    Reset,
    /// A transaction failed (ETE).
    TransactionFailed,
    /// Return from an exception, 6.4.9.
    ExceptionReturn,
    /// A transaction began (ETE).
    TransactionStart,
    /// A transaction ended well (ETE).
    TransactionCommit,
    /// TRCIT, a value that the program wrote (ETE 1.3).
    Instrumentation {
        /// Exception level, at which it ran.
        level: u8,
        /// The value.
        value: u64,
    },
    /// Cycles, 6.4.11.
    Cycles {
        /// Format 1, 2 or 3.
        format: u8,
        /// Cycles; `None` where the unit does not know them.
        cycles: Option<u32>,
        /// P0 elements that are now sure.
        commit: Option<u32>,
    },
    /// P0 elements that are now sure, 6.4.15.
    Commit(u32),
    /// P0 elements that never were, 6.4.16. `atoms` come first; `mispredict` says that the last atom was the other one.
    Cancel {
        /// Format 1, 2 or 3.
        format: u8,
        /// How many.
        elements: u32,
        /// Whether the last remaining atom is to be turned.
        mispredict: bool,
        /// Atoms before it.
        atoms: Atoms,
    },
    /// The last atom was the other one, 6.4.17.
    Mispredict(Atoms),
    /// A marker of data trace, 6.4.19.
    DataSync {
        /// Whether it has a number.
        numbered: bool,
        /// It.
        value: u8,
    },
    /// A condition was flushed, 6.4.23.
    ConditionalFlush,
    /// A conditional instruction, 6.4.21. Its format.
    Conditional(u8),
    /// Its result, 6.4.22. Its format.
    ConditionalResult(u8),
    /// Padding (ETMv4.3).
    Ignore,
    /// Events, one bit each, 6.4.14.
    Event(u8),
    /// The state of the processor, 6.4.13; `None`: as before.
    Context(Option<Context>),
    /// Where execution goes on, 6.4.12.
    Address(Address),
    /// Both.
    AddressContext(Address, Context),
    /// Where a waypoint is (ETE).
    SourceAddress(Address),
    /// Instructions of which the path is not known, 6.4.18.
    Q {
        /// How many, if known.
        count: Option<u32>,
        /// Where execution goes on; if absent, address packets follow.
        address: Option<Address>,
    },
    /// Waypoints, 6.4.7.
    Atoms {
        /// Format 1 to 6.
        format: u8,
        /// They.
        atoms: Atoms,
    },
}

impl fmt::Display for Atoms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in 0..self.count {
            f.write_str(if self.bits >> place & 1 == 1 { "E" } else { "N" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.value)?;
        if self.is1 { f.write_str(" T32") } else { Ok(()) }
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = match (self.nse, self.non_secure) {
            (false, false) => "secure",
            (false, true) => "non-secure",
            (true, false) => "root",
            (true, true) => "realm",
        };
        let state = if self.is_64_bit { "AArch64" } else { "AArch32" };
        write!(f, "EL{} {world} {state}", self.level)?;
        if let Some(id) = self.context_id {
            write!(f, " context {id:#x}")?;
        }
        self.vmid.map_or(Ok(()), |id| write!(f, " vmid {id:#x}"))
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Packet::TraceInfo(info) => write!(
                f,
                "TraceInfo info={:#x} speculation={} cycle threshold={}",
                info.info, info.speculation, info.cycle_threshold
            ),
            Packet::Timestamp { value, cycles: None } => write!(f, "Timestamp {value}"),
            Packet::Timestamp { value, cycles: Some(cycles) } => {
                write!(f, "Timestamp {value} after {cycles} cycles")
            }
            Packet::Exception { number, .. } => write!(f, "Exception {number}"),
            Packet::Instrumentation { level, value } => write!(f, "Instrumentation {value:#x} at EL{level}"),
            Packet::Cycles { cycles: Some(cycles), .. } => write!(f, "Cycles {cycles}"),
            Packet::Cycles { cycles: None, .. } => write!(f, "Cycles unknown"),
            Packet::Context(Some(context)) => write!(f, "Context {context}"),
            Packet::Context(None) => write!(f, "Context as before"),
            Packet::Address(address) => write!(f, "Address {address}"),
            Packet::AddressContext(address, context) => write!(f, "Address {address} {context}"),
            Packet::SourceAddress(address) => write!(f, "SourceAddress {address}"),
            Packet::Atoms { atoms, .. } => write!(f, "Atoms {atoms}"),
            Packet::Mispredict(atoms) => write!(f, "Mispredict {atoms}"),
            Packet::Commit(elements) => write!(f, "Commit {elements}"),
            other => write!(f, "{other:?}"),
        }
    }
}
