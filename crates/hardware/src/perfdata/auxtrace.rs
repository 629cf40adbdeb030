// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `PERF_RECORD_AUXTRACE_INFO` and `PERF_RECORD_AUXTRACE`: which unit made AUX data, how it was set, and where the data is.
//!
//! The words behind the unit's number are written by perf (tools/perf/util: intel-pt.h, intel-bts.h, cs-etm.h, arm-spe.h); older
//! versions write fewer, so each is optional.

use super::bytes::{Cursor, word};
use crate::pt::PerfClock;

/// Which unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuxKind {
    /// Intel PT.
    IntelPt,
    /// Intel BTS.
    IntelBts,
    /// Arm ETM or ETE.
    CsEtm,
    /// Arm SPE.
    ArmSpe,
    /// Another one, by perf's number.
    Other(u32),
}

impl AuxKind {
    pub(super) fn of(number: u32) -> AuxKind {
        match number {
            1 => AuxKind::IntelPt,
            2 => AuxKind::IntelBts,
            3 => AuxKind::CsEtm,
            4 => AuxKind::ArmSpe,
            number => AuxKind::Other(number),
        }
    }

    /// Its name, as `--unit` has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AuxKind::IntelPt => "pt",
            AuxKind::IntelBts => "bts",
            AuxKind::CsEtm => "etm",
            AuxKind::ArmSpe => "spe",
            AuxKind::Other(_) => "unknown",
        }
    }
}

/// Intel PT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PtInfo {
    /// The number of the PMU; its event's configuration is that of the trace.
    pub pmu: u64,
    /// Which bits of the configuration ask for TSC packets.
    pub tsc_bit: u64,
    /// Which bits ask for no compressed returns.
    pub noretcomp_bit: u64,
    /// Whether the recording has switches of threads.
    pub have_sched_switch: u64,
    /// The trace was a circle, of which the last part was kept.
    pub snapshot_mode: bool,
    /// A buffer for each CPU, not for each thread.
    pub per_cpu: bool,
    /// Which bits ask for MTC packets.
    pub mtc_bit: u64,
    /// Which bits have the period of MTC.
    pub mtc_freq_bits: u64,
    /// CPUID 15h: TSC is crystal clock × numerator / denominator. 0 where unknown.
    pub tsc_ctc: (u32, u32),
    /// Which bits ask for CYC packets.
    pub cyc_bit: u64,
    /// The nominal frequency, in the unit of CBR.
    pub max_nonturbo_ratio: u64,
    /// The filters that were set.
    pub filter: String,
}

impl PtInfo {
    /// The exponent of the period of MTC in this configuration.
    #[must_use]
    pub fn mtc_freq(&self, config: u64) -> u8 {
        let bits = self.mtc_freq_bits;
        if bits == 0 { 0 } else { u8::try_from((config & bits) >> bits.trailing_zeros()).unwrap_or(0) }
    }

    /// The last words of the description: how many bytes a filter has, and it, with at least one NUL behind it (intel_pt_info_fill() of perf).
    #[must_use]
    pub fn filter_words(filter: &str) -> Vec<u64> {
        let mut bytes = filter.as_bytes().to_vec();
        if !bytes.is_empty() {
            bytes.resize((bytes.len() + 1).next_multiple_of(8), 0);
        }
        let words = bytes.chunks_exact(8).map(|bytes| word(bytes, 0).unwrap_or(0));
        std::iter::once(filter.len() as u64).chain(words).collect()
    }

    fn parse(words: &[u8]) -> PtInfo {
        let number = |index: usize| word(words, index).unwrap_or(0);
        let half = |index: usize| u32::try_from(number(index)).unwrap_or(0);
        const FIRST_OF_FILTER: usize = 17 * 8;
        let length = usize::try_from(number(16)).unwrap_or(0);
        let filter = words.get(FIRST_OF_FILTER..).and_then(|rest| rest.get(..length)).unwrap_or_default();
        PtInfo {
            pmu: number(0),
            tsc_bit: number(5),
            noretcomp_bit: number(6),
            have_sched_switch: number(7),
            snapshot_mode: number(8) != 0,
            per_cpu: number(9) != 0,
            mtc_bit: number(10),
            mtc_freq_bits: number(11),
            tsc_ctc: (half(12), half(13)),
            cyc_bit: number(14),
            max_nonturbo_ratio: number(15),
            filter: String::from_utf8_lossy(filter).trim_end_matches('\0').to_owned(),
        }
    }
}

/// The settings of the unit of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtmCpu {
    /// ETMv3 or PTM.
    Etm3 {
        /// The CPU.
        cpu: u64,
        /// `ETMCR`.
        control: u64,
        /// The number in frames.
        trace_id: u64,
        /// `ETMCCER`.
        code_extension: u64,
        /// `ETMIDR`.
        id: u64,
    },
    /// ETMv4 or ETE.
    Etm4 {
        /// The CPU.
        cpu: u64,
        /// It is an ETE.
        is_ete: bool,
        /// `TRCCONFIGR`.
        config: u64,
        /// `TRCTRACEIDR`.
        trace_id: u64,
        /// `TRCIDR0`, 1, 2 and 8.
        ids: [u64; 4],
        /// `TRCDEVARCH`, of an ETE.
        device: u64,
        /// Its timestamps are the counter that programs read (`CNTVCT_EL0`), by the driver's `ts_source`.
        has_virtual_timestamps: bool,
    },
}

impl EtmCpu {
    /// The CPU.
    #[must_use]
    pub fn cpu(&self) -> u64 {
        match self {
            EtmCpu::Etm3 { cpu, .. } | EtmCpu::Etm4 { cpu, .. } => *cpu,
        }
    }

    /// The number of its stream in frames. From Linux 6.2 on records tell it instead (`AUX_OUTPUT_HW_ID`), and bit 31 says that this
    /// one means nothing.
    #[must_use]
    pub fn trace_id(&self) -> Option<u8> {
        let (EtmCpu::Etm3 { trace_id, .. } | EtmCpu::Etm4 { trace_id, .. }) = self;
        if trace_id & 1 << 31 != 0 { None } else { u8::try_from(trace_id & 0x7f).ok() }
    }
}

/// Arm CoreSight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtmInfo {
    /// The number of the PMU.
    pub pmu: u64,
    /// The trace was a circle, of which the last part was kept.
    pub snapshot_mode: bool,
    /// By CPU.
    pub cpus: Vec<EtmCpu>,
    /// Units that are described in a way that is not known here; what is behind the first of them is not read.
    pub unknown: bool,
}

const MAGIC_ETM3: u64 = 0x3030_3030_3030_3030;
const MAGIC_ETM4: u64 = 0x4040_4040_4040_4040;
const MAGIC_ETE: u64 = 0x5050_5050_5050_5050;

impl EtmInfo {
    fn parse(words: &[u8]) -> EtmInfo {
        let mut cursor = Cursor(words);
        let version = cursor.u64().unwrap_or(0);
        let cpus = cursor.u64().unwrap_or(0);
        let mut info =
            EtmInfo { pmu: cpus >> 32, snapshot_mode: cursor.u64().unwrap_or(0) != 0, ..EtmInfo::default() };
        for _ in 0..cpus & 0xffff_ffff {
            match one_cpu(&mut cursor, version) {
                Some(cpu) => info.cpus.push(cpu),
                None => {
                    info.unknown = true;
                    break;
                }
            }
        }
        info
    }
}

fn one_cpu(cursor: &mut Cursor<'_>, version: u64) -> Option<EtmCpu> {
    let magic = cursor.u64()?;
    let cpu = cursor.u64()?;
    let fixed = match magic {
        MAGIC_ETM3 => 4,
        MAGIC_ETM4 => 7,
        MAGIC_ETE => 8,
        _ => return None,
    };
    // The first version had a fixed number; later ones say how many.
    let count = if version == 0 { fixed } else { usize::try_from(cursor.u64()?).ok()? };
    let parameters = cursor.take(count.checked_mul(8)?)?;
    let number = |index: usize| word(parameters, index).unwrap_or(0);
    Some(match magic {
        MAGIC_ETM3 => EtmCpu::Etm3 {
            cpu,
            control: number(0),
            trace_id: number(1),
            code_extension: number(2),
            id: number(3),
        },
        _ => EtmCpu::Etm4 {
            cpu,
            is_ete: magic == MAGIC_ETE,
            config: number(0),
            trace_id: number(1),
            ids: [number(2), number(3), number(4), number(5)],
            device: if magic == MAGIC_ETE { number(7) } else { 0 },
            // The last word, which older versions of perf do not write: 1 in the driver's words (coresight-etm4x.h).
            has_virtual_timestamps: number(fixed) == 1,
        },
    })
}

/// What describes the AUX data of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuxtraceInfo {
    /// Which unit.
    pub kind: AuxKind,
    /// The unit's counter on perf's clock, where it was told.
    pub clock: Option<PerfClock>,
    /// Intel PT.
    pub pt: Option<PtInfo>,
    /// Arm ETM or ETE.
    pub etm: Option<EtmInfo>,
    /// The number of the PMU.
    pub pmu: u64,
}

impl AuxtraceInfo {
    pub(super) fn parse(body: &[u8]) -> Option<AuxtraceInfo> {
        let mut cursor = Cursor(body);
        let kind = AuxKind::of(cursor.u32()?);
        let _reserved = cursor.u32()?;
        let words = cursor.0;
        let number = |index: usize| word(words, index);
        let has_clock = matches!(kind, AuxKind::IntelPt | AuxKind::IntelBts);
        let clock = || {
            let (shift, mult) =
                (u16::try_from(number(1)?).ok()?, u32::try_from(number(2)?).ok().filter(|mult| *mult != 0)?);
            // cap_user_time_zero: without it the zero means nothing.
            (number(4)? != 0).then_some(PerfClock { shift, mult, zero: number(3)? })
        };
        let etm = (kind == AuxKind::CsEtm).then(|| EtmInfo::parse(words));
        Some(AuxtraceInfo {
            kind,
            clock: if has_clock { clock() } else { None },
            pt: (kind == AuxKind::IntelPt).then(|| PtInfo::parse(words)),
            pmu: etm.as_ref().map_or_else(|| number(0).unwrap_or(0), |etm| etm.pmu),
            etm,
        })
    }
}

/// Where a piece of AUX data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxSegment {
    /// Of its record, in the file.
    pub record_at: u64,
    /// Of its first byte, in the file.
    pub at: u64,
    /// Bytes that are there. Fewer than `size` when the file was cut.
    pub there: u64,
    /// Bytes that it should have.
    pub size: u64,
    /// Where it begins in the stream of its buffer.
    pub offset: u64,
    /// perf's reference: a time.
    pub reference: u64,
    /// The number of its buffer.
    pub index: u32,
    /// The thread, where the buffer is that of a thread.
    pub tid: Option<u32>,
    /// The CPU, where the buffer is that of a CPU.
    pub cpu: Option<u32>,
}

impl AuxSegment {
    /// `body`: the record's, without the data behind it.
    pub(super) fn parse(record_at: u64, record_size: u64, body: &[u8], end: u64) -> Option<AuxSegment> {
        const NONE: u32 = u32::MAX;
        let mut cursor = Cursor(body);
        let (size, offset, reference) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
        let (index, tid, cpu) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        let at = record_at.saturating_add(record_size);
        Some(AuxSegment {
            record_at,
            at,
            there: size.min(end.saturating_sub(at)),
            size,
            offset,
            reference,
            index,
            tid: (tid != NONE).then_some(tid),
            cpu: (cpu != NONE).then_some(cpu),
        })
    }
}
