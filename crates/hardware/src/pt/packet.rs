// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Intel PT's packets say, as values. The names are those of the manual: Intel SDM, volume 3, chapter "Intel Processor
//! Trace", section "Trace Packets and Data Types"; each kind names its packet definition there.
//!
//! A packet is what the bytes say and no more: addresses are still compressed ([`LastIp`] undoes that), counters still wrap
//! ([`super::time`]), and whether a FUP belongs to an interrupt or to a PTWRITE is for [`super::flow`] to find out.

use core::fmt;

/// How an address is shortened: the field IPBytes of the headers of TIP, TIP.PGE, TIP.PGD and FUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IpBytes {
    /// No address: it is outside of what is traced. The last address stays as it is.
    Suppressed,
    /// The low 16 bits; the others are those of the last address.
    Update16,
    /// The low 32 bits; the others are those of the last address.
    Update32,
    /// 48 bits; bit 47 is continued upwards.
    Extended48,
    /// The low 48 bits; the others are those of the last address.
    Update48,
    /// All 64 bits.
    Full,
}

impl IpBytes {
    /// Of the header's bits 7 to 5; `None`: reserved (5 and 7).
    #[inline]
    #[must_use]
    pub const fn from_header(byte: u8) -> Option<Self> {
        Some(match byte >> 5 {
            0 => Self::Suppressed,
            1 => Self::Update16,
            2 => Self::Update32,
            3 => Self::Extended48,
            4 => Self::Update48,
            6 => Self::Full,
            _ => return None,
        })
    }

    /// The three bits of the header.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Suppressed => 0,
            Self::Update16 => 1,
            Self::Update32 => 2,
            Self::Extended48 => 3,
            Self::Update48 => 4,
            Self::Full => 6,
        }
    }

    /// Bytes of address in the packet.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Suppressed => 0,
            Self::Update16 => 2,
            Self::Update32 => 4,
            Self::Extended48 | Self::Update48 => 6,
            Self::Full => 8,
        }
    }
}

/// An address as a packet has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ip {
    /// How it is shortened.
    pub bytes: IpBytes,
    /// The bytes that are there, as a number; 0 where there are none.
    pub payload: u64,
}

/// The address against which the next one is shortened: that of the last *packet*, not of the last instruction. PSB makes
/// it 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastIp(u64);

impl LastIp {
    /// After a PSB.
    #[must_use]
    pub const fn new() -> Self {
        Self(0)
    }

    /// The whole address; `None`: the packet has none.
    #[inline]
    pub fn update(&mut self, ip: Ip) -> Option<u64> {
        let kept = |bits: u32| self.0 & (!0 << bits);
        self.0 = match ip.bytes {
            IpBytes::Suppressed => return None,
            IpBytes::Update16 => kept(16) | ip.payload,
            IpBytes::Update32 => kept(32) | ip.payload,
            IpBytes::Update48 => kept(48) | ip.payload,
            IpBytes::Extended48 => extended_from_bit_47(ip.payload),
            IpBytes::Full => ip.payload,
        };
        Some(self.0)
    }

    /// As it is.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.0
    }
}

/// Bit 47 is continued upwards.
#[inline]
#[must_use]
pub(super) const fn extended_from_bit_47(address: u64) -> u64 {
    ((address << 16) as i64 >> 16) as u64
}

/// Up to 47 branches: taken (1) or not (0). Also a return to where its call came from, which is a taken one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tnt {
    /// The oldest is bit `count - 1`, the newest bit 0; all above is 0.
    pub bits: u64,
    /// How many.
    pub count: u8,
}

/// The width of the code, from MODE.Exec's bits CS.L and CS.D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExecMode {
    /// 16-bit code.
    Bits16,
    /// 32-bit code, compatibility mode among it.
    Bits32,
    /// 64-bit code.
    Bits64,
}

/// A packet. Bits that the manual reserves are not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packet {
    /// Fills space.
    Pad,
    /// Taken / Not Taken, 8 bits: up to 6 branches.
    Tnt8(Tnt),
    /// Taken / Not Taken, 64 bits: up to 47 branches.
    Tnt64(Tnt),
    /// Target IP: where an indirect branch, an exception or an interrupt went.
    Tip(Ip),
    /// Target IP, Packet Generation Enable: tracing begins here.
    TipPge(Ip),
    /// Target IP, Packet Generation Disable: tracing ended.
    TipPgd(Ip),
    /// Flow Update: the address of something that is no branch.
    Fup(Ip),
    /// Paging Information: CR3 was written.
    Pip {
        /// The new value; only its bits 51 to 5 are traced.
        cr3: u64,
        /// In VMX non-root operation: a guest.
        non_root: bool,
    },
    /// MODE.Exec: the width of the code from the next address on.
    ModeExec {
        /// The width.
        mode: ExecMode,
        /// RFLAGS.IF; processors without Event Trace leave it 0.
        interrupts_enabled: bool,
    },
    /// MODE.TSX: transactions.
    ModeTsx {
        /// In a transaction.
        in_transaction: bool,
        /// It was aborted.
        aborted: bool,
    },
    /// A MODE packet with a leaf that the manual does not have.
    ModeUnknown {
        /// Its byte.
        payload: u8,
    },
    /// TraceStop: the region that ends the trace was reached.
    TraceStop,
    /// Core:Bus Ratio: the frequency, as multiple of the bus clock.
    Cbr {
        /// The multiple.
        ratio: u8,
    },
    /// Time-Stamp Counter: its low 56 bits.
    Tsc {
        /// In ticks.
        ticks: u64,
    },
    /// Mini Time Counter: 8 bits of the crystal clock's counter.
    Mtc {
        /// Its bits N + 7 to N, where N is what MTCFreq was set to.
        ctc: u8,
    },
    /// TSC/MTC Alignment: where the crystal clock was when TSC was taken.
    Tma {
        /// The low 16 bits of the crystal clock's counter.
        ctc: u16,
        /// TSC ticks since that counter's last tick; 9 bits.
        fast_counter: u16,
    },
    /// Cycle Counter: core cycles since the last CYC.
    Cyc {
        /// How many.
        cycles: u64,
    },
    /// VMCS pointer: which guest.
    Vmcs {
        /// Its physical address.
        address: u64,
    },
    /// Overflow: packets were lost within the processor.
    Ovf,
    /// Packet Stream Boundary: decoding may begin here.
    Psb,
    /// The end of the state that follows a PSB.
    PsbEnd,
    /// Maintenance: its content is for Intel.
    Mnt {
        /// As it is.
        payload: u64,
    },
    /// PTWRITE: an operand.
    Ptw {
        /// The operand.
        payload: u64,
        /// It has 8 bytes, not 4.
        wide: bool,
        /// A FUP with the instruction's address follows.
        ip: bool,
    },
    /// Execution Stopped, as the frequency changes or the core sleeps.
    ExStop {
        /// A FUP follows.
        ip: bool,
    },
    /// MWAIT that entered a sleep state deeper than C0.
    Mwait {
        /// EAX.
        hints: u32,
        /// ECX, bits 1 and 0.
        extensions: u32,
    },
    /// Power Entry: a state deeper than C0 is entered.
    Pwre {
        /// Resolved thread C-state.
        state: u8,
        /// Resolved thread sub C-state.
        sub_state: u8,
        /// Entered by the hardware, not by MWAIT.
        hardware: bool,
    },
    /// Power Exit: back to C0.
    Pwrx {
        /// The last core C-state.
        last: u8,
        /// The deepest core C-state.
        deepest: u8,
        /// Why: bit 0 an interrupt, bit 2 a store to the monitored address, bit 3 the hardware.
        reason: u8,
    },
    /// Block Begin: a group of values follows.
    Bbp {
        /// Of what: 1 general registers, 4 to 16 PEBS groups.
        group: u8,
        /// Its items have 4 bytes, not 8.
        narrow: bool,
    },
    /// Block Item: one value of the group.
    Bip {
        /// Which, within the group.
        id: u8,
        /// The value.
        payload: u64,
    },
    /// Block End.
    Bep {
        /// A FUP follows.
        ip: bool,
    },
    /// Control Flow Event: an interrupt, an IRET, an SMI and others.
    Cfe {
        /// Which: 1 INTR, 2 IRET, 3 SMI, 4 RSM, 5 SIPI, 6 INIT, 7 VMENTRY, 8 VMEXIT, 9 VMEXIT by interrupt, 10 SHUTDOWN, 12 UINTR, 13 UIRET.
        kind: u8,
        /// The vector, for those that have one.
        vector: u8,
        /// A FUP follows.
        ip: bool,
    },
    /// Event Data: what belongs to the CFE that follows.
    Evd {
        /// 0 CR2 of a page fault, 1 qualification of a VM exit, 2 its reason.
        kind: u8,
        /// The value.
        payload: u64,
    },
    /// Trigger: one of the trigger events happened.
    Trig {
        /// Which of them, a bit each.
        triggers: u8,
        /// Instructions since the last packet with an address or branches; `None`: not known.
        instructions: Option<u16>,
        /// More than one happened.
        multiple: bool,
        /// A FUP follows.
        ip: bool,
    },
}

impl Packet {
    /// The name in the manual, in lower case, as other decoders print it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Packet::Pad => "pad",
            Packet::Tnt8(_) => "tnt.8",
            Packet::Tnt64(_) => "tnt.64",
            Packet::Tip(_) => "tip",
            Packet::TipPge(_) => "tip.pge",
            Packet::TipPgd(_) => "tip.pgd",
            Packet::Fup(_) => "fup",
            Packet::Pip { .. } => "pip",
            Packet::ModeExec { .. } => "mode.exec",
            Packet::ModeTsx { .. } => "mode.tsx",
            Packet::ModeUnknown { .. } => "mode",
            Packet::TraceStop => "stop",
            Packet::Cbr { .. } => "cbr",
            Packet::Tsc { .. } => "tsc",
            Packet::Mtc { .. } => "mtc",
            Packet::Tma { .. } => "tma",
            Packet::Cyc { .. } => "cyc",
            Packet::Vmcs { .. } => "vmcs",
            Packet::Ovf => "ovf",
            Packet::Psb => "psb",
            Packet::PsbEnd => "psbend",
            Packet::Mnt { .. } => "mnt",
            Packet::Ptw { .. } => "ptw",
            Packet::ExStop { .. } => "exstop",
            Packet::Mwait { .. } => "mwait",
            Packet::Pwre { .. } => "pwre",
            Packet::Pwrx { .. } => "pwrx",
            Packet::Bbp { .. } => "bbp",
            Packet::Bip { .. } => "bip",
            Packet::Bep { .. } => "bep",
            Packet::Cfe { .. } => "cfe",
            Packet::Evd { .. } => "evd",
            Packet::Trig { .. } => "trig",
        }
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = 2 * self.bytes.bytes();
        match self.bytes {
            IpBytes::Suppressed => f.write_str("none"),
            _ => write!(f, "{}: {:0digits$x}", self.bytes.code(), self.payload),
        }
    }
}

impl fmt::Display for Tnt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for bit in (0..self.count).rev() {
            f.write_str(if self.bits >> bit & 1 == 1 { "!" } else { "." })?;
        }
        Ok(())
    }
}

impl fmt::Display for Packet {
    /// The name and the content, for people: `tip 1: d794`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let flag = |set: bool, name: &'static str| if set { name } else { "" };
        match *self {
            Packet::Pad | Packet::TraceStop | Packet::Ovf | Packet::Psb | Packet::PsbEnd => Ok(()),
            Packet::Tnt8(tnt) | Packet::Tnt64(tnt) => write!(f, " {tnt}"),
            Packet::Tip(ip) | Packet::TipPge(ip) | Packet::TipPgd(ip) | Packet::Fup(ip) => write!(f, " {ip}"),
            Packet::Pip { cr3, non_root } => write!(f, " {cr3:x}{}", flag(non_root, " nr")),
            Packet::ModeExec { mode, interrupts_enabled } => {
                let bits = match mode {
                    ExecMode::Bits16 => 16,
                    ExecMode::Bits32 => 32,
                    ExecMode::Bits64 => 64,
                };
                write!(f, " {bits}-bit{}", flag(interrupts_enabled, " if"))
            }
            Packet::ModeTsx { in_transaction, aborted } => {
                write!(f, "{}{}", flag(in_transaction, " intx"), flag(aborted, " abrt"))
            }
            Packet::ModeUnknown { payload } => write!(f, " {payload:x}"),
            Packet::Cbr { ratio } => write!(f, " {ratio:x}"),
            Packet::Tsc { ticks } => write!(f, " {ticks:x}"),
            Packet::Mtc { ctc } => write!(f, " {ctc:x}"),
            Packet::Tma { ctc, fast_counter } => write!(f, " {ctc:x}, {fast_counter:x}"),
            Packet::Cyc { cycles } => write!(f, " {cycles:x}"),
            Packet::Vmcs { address } => write!(f, " {address:x}"),
            Packet::Mnt { payload } => write!(f, " {payload:x}"),
            Packet::Ptw { payload, wide: _, ip } => write!(f, " {payload:x}{}", flag(ip, " ip")),
            Packet::ExStop { ip } | Packet::Bep { ip } => write!(f, "{}", flag(ip, " ip")),
            Packet::Mwait { hints, extensions } => write!(f, " {hints:x}, {extensions:x}"),
            Packet::Pwre { state, sub_state, hardware } => {
                write!(
                    f,
                    " c{}.{}{}",
                    state.wrapping_add(1),
                    sub_state.wrapping_add(1),
                    flag(hardware, " hw")
                )
            }
            Packet::Pwrx { last, deepest, reason } => {
                let (interrupt, store) = (flag(reason & 1 != 0, " int"), flag(reason & 4 != 0, " st"));
                write!(f, " c{last}, c{deepest}{interrupt}{store}{}", flag(reason & 8 != 0, " hw"))
            }
            Packet::Bbp { group, narrow } => write!(f, " {group}, {}", if narrow { 4 } else { 8 }),
            Packet::Bip { id, payload } => write!(f, " {id}: {payload:x}"),
            Packet::Cfe { kind, vector, ip } => write!(f, " {kind}: {vector}{}", flag(ip, " ip")),
            Packet::Evd { kind, payload } => write!(f, " {kind}: {payload:x}"),
            Packet::Trig { triggers, instructions, multiple, ip } => {
                write!(f, " {triggers:x}{}{}", flag(multiple, " mult"), flag(ip, " ip"))?;
                instructions.map_or(Ok(()), |count| write!(f, " {count} instructions"))
            }
        }
    }
}
