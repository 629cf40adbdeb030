// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the registers say of the stream: the stream itself does not have it, and the wrong sizes make nonsense of all of it.

/// For which kind of processor the trace is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Application processors (and those for real time, which trace alike).
    #[default]
    A,
    /// Microcontrollers.
    M,
}

/// Registers of a trace unit, as snapshots, perf's AUXTRACE_INFO and sysfs have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// TRCCONFIGR: what is traced.
    pub configr: u32,
    /// TRCTRACEIDR: the identifier in formatter frames.
    pub trace_id: u8,
    /// TRCIDR0: what the unit can.
    pub idr0: u32,
    /// TRCIDR1: its version.
    pub idr1: u32,
    /// TRCIDR2: sizes of addresses and identifiers.
    pub idr2: u32,
    /// TRCIDR8: how many elements may be speculative.
    pub idr8: u32,
    /// TRCDEVARCH of an ETE; it has the version then.
    pub devarch: Option<u32>,
    /// The kind of processor.
    pub profile: Profile,
}

impl Default for Config {
    /// An ETMv4.0 with 64-bit addresses, which traces nothing optional.
    fn default() -> Self {
        Self {
            configr: 0,
            trace_id: 0x10,
            idr0: 0x2800_0EA1,
            idr1: 0x4100_F403,
            idr2: 0x488,
            idr8: 0,
            devarch: None,
            profile: Profile::A,
        }
    }
}

impl Config {
    /// Major version: 4 for ETMv4, 5 for ETE (TRCIDR1.TRCARCHMAJ, TRCDEVARCH.ARCHVER).
    #[must_use]
    pub fn major(&self) -> u8 {
        self.devarch.map_or(self.idr1 >> 8 & 0xF, |devarch| devarch >> 12 & 0xF) as u8
    }

    /// Minor version (TRCIDR1.TRCARCHMIN, TRCDEVARCH.REVISION).
    #[must_use]
    pub fn minor(&self) -> u8 {
        self.devarch.map_or(self.idr1 >> 4 & 0xF, |devarch| devarch >> 16 & 0xF) as u8
    }

    /// Whether it is at least this version.
    #[must_use]
    pub fn at_least(&self, major: u8, minor: u8) -> bool {
        (self.major(), self.minor()) >= (major, minor)
    }

    /// An Embedded Trace Extension.
    #[must_use]
    pub fn is_ete(&self) -> bool {
        self.major() >= 5
    }

    /// Bytes of a virtual context identifier (TRCIDR2.VMIDSIZE).
    #[must_use]
    pub fn vmid_bytes(&self) -> usize {
        match self.idr2 >> 10 & 0x1F {
            1 => 1,
            2 if self.at_least(4, 1) => 2,
            4 if self.at_least(4, 1) => 4,
            _ => 0,
        }
    }

    /// Bytes of a context identifier (TRCIDR2.CIDSIZE).
    #[must_use]
    pub fn context_id_bytes(&self) -> usize {
        if self.idr2 >> 5 & 0x1F == 4 { 4 } else { 0 }
    }

    /// Bits of a cycle count (TRCIDR2.CCSIZE).
    #[must_use]
    pub fn cycle_bits(&self) -> u32 {
        12 + (self.idr2 >> 25 & 0xF)
    }

    /// Whether cycles are counted (TRCCONFIGR.CCI).
    #[must_use]
    pub fn counts_cycles(&self) -> bool {
        self.configr & 1 << 4 != 0
    }

    /// Whether cycle counts come without a number of elements to commit (TRCIDR0.COMMOPT).
    #[must_use]
    pub fn cycle_counts_do_not_commit(&self) -> bool {
        self.idr0 & 1 << 29 != 0 && self.idr0 & 1 << 7 != 0
    }

    /// How many elements may be speculative (TRCIDR8.MAXSPEC).
    #[must_use]
    pub fn max_speculation(&self) -> u32 {
        self.idr8
    }

    /// Whether returns that the unit foresaw have no address (TRCCONFIGR.RS).
    #[must_use]
    pub fn return_stack(&self) -> bool {
        self.configr & 1 << 12 != 0
    }

    /// Whether Q elements are possible (TRCIDR0.QSUPP).
    #[must_use]
    pub fn has_q(&self) -> bool {
        self.idr0 >> 15 & 3 != 0
    }

    /// Whether loads and stores are traced as P0 elements (TRCCONFIGR.INSTP0), or as data.
    #[must_use]
    pub fn traces_data(&self) -> bool {
        self.idr0 & 0x18 == 0x18 && self.configr & 6 != 0 && self.configr & 3 << 16 != 0
    }

    /// Whether non-branch conditional instructions are traced (TRCCONFIGR.COND).
    #[must_use]
    pub fn traces_conditions(&self) -> bool {
        self.idr0 & 1 << 6 != 0 && self.configr >> 8 & 7 != 0
    }

    /// Whether WFI and WFE count as branches (TRCIDR2.WFXMODE, from ETMv4.3).
    #[must_use]
    pub fn waits_are_branches(&self) -> bool {
        self.idr2 & 1 << 31 != 0 && self.at_least(4, 3)
    }

    /// Whether the start of a transaction is a P0 element (TRCIDR0.COMMTRANS).
    #[must_use]
    pub fn transaction_start_is_p0(&self) -> bool {
        self.idr0 & 1 << 30 == 0
    }

    /// Whether timestamps come after a marker that says what they stamp (TRCIDR0.TSMARK, from ETE 1.1).
    #[must_use]
    pub fn has_timestamp_markers(&self) -> bool {
        self.at_least(5, 1) && self.idr0 & 1 << 23 != 0
    }
}
