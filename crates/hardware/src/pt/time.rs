// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When: TSC, TMA, MTC, CYC and CBR become ticks of the time-stamp counter (SDM, section "Packet Generation for Timing").
//!
//! - TSC says the time itself; TMA, which follows it, where the crystal clock was then.
//! - MTC counts that crystal clock: a tick of it is EBX/EAX of CPUID leaf 15h ticks of the TSC. Each MTC is placed from the TMA, not
//!   from the MTC before it, so nothing adds up.
//! - CYC counts core cycles, whose length changes with the frequency. It is taken from the last two MTCs that had a CYC of their own,
//!   else from the last two TSCs in PSB+, else from CBR.
//!
//! Times never decrease. Where a packet says less than what was said already (a CYC was extrapolated too far before its MTC),
//! the old time stays, and the difference is added to its error.

use super::packet::Packet;

/// What the packets do not say: of the processor, and of how tracing was set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockConfig {
    /// MTCFreq of IA32_RTIT_CTL: an MTC each 2^this ticks of the crystal clock.
    pub mtc_frequency: u8,
    /// EBX and EAX of CPUID leaf 15h: TSC ticks for ticks of the crystal clock. `None`: MTC says nothing.
    pub tsc_per_crystal: Option<(u32, u32)>,
    /// The ratio of the frequency of the TSC to the bus clock (bits 15 to 8 of MSR_PLATFORM_INFO). `None`: CBR says nothing.
    pub nominal_ratio: Option<u8>,
}

/// Two numbers with / between them: `308/2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TscRatio {
    /// Ticks of the TSC.
    pub tsc: u32,
    /// For as many of the crystal clock.
    pub crystal: u32,
}

impl std::str::FromStr for TscRatio {
    type Err = String;

    fn from_str(text: &str) -> Result<TscRatio, String> {
        let parts = text.split_once('/').and_then(|(tsc, crystal)| {
            Some(TscRatio { tsc: tsc.parse().ok()?, crystal: crystal.parse().ok()? })
        });
        parts
            .filter(|ratio| ratio.tsc > 0 && ratio.crystal > 0)
            .ok_or_else(|| "write two numbers with / between them, such as 308/2".to_owned())
    }
}

/// A time in ticks of the TSC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// The low 56 bits, continued where they wrapped.
    pub ticks: u64,
    /// What is stamped happened at most this much earlier or later; `None`: no packet says so. It assumes that no MTC was lost
    /// (processors drop them in deep sleep) and that the frequency did not change since it was last measured; if it
    /// did, the error is up to one MTC period.
    pub error_ticks: Option<u64>,
}

/// A count of cycles and the time at which it was.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    cycles: u64,
    ticks: u64,
}

/// Ticks for a number of cycles.
#[derive(Clone, Copy, Debug)]
struct Rate {
    ticks: u64,
    cycles: u64,
}

impl Rate {
    fn ticks_of(self, cycles: u64) -> u64 {
        saturated(u128::from(cycles) * u128::from(self.ticks) / u128::from(self.cycles))
    }

    fn cycles_of(self, ticks: u64) -> u64 {
        if self.ticks == 0 {
            return 0;
        }
        saturated(u128::from(ticks) * u128::from(self.cycles) / u128::from(self.ticks))
    }

    /// The count of cycles is whole, at both ends of the measurement and of the use.
    fn error_of(self, cycles: u64) -> u64 {
        let error = u128::from(self.ticks) * (2 + u128::from(cycles / self.cycles)) / u128::from(self.cycles);
        saturated(error).saturating_add(1)
    }
}

/// A damaged stream may say any number.
fn saturated(ticks: u128) -> u64 {
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// Where the crystal clock was at a TSC.
#[derive(Clone, Copy, Debug)]
struct Crystal {
    /// When it was `ctc`.
    ticks: u64,
    /// The count of crystal ticks, continued; its low 16 bits are those of the TMA.
    ctc: u64,
    /// The count of the last MTC.
    last: u64,
    /// An MTC came since: before, bits above 15 are not known.
    counted: bool,
}

/// Follows the time of one stream.
#[derive(Clone, Debug)]
pub struct Clock {
    config: ClockConfig,
    now: Option<Time>,
    /// The TSC before its TMA.
    tsc: Option<u64>,
    crystal: Option<Crystal>,
    /// Core cycles since the beginning.
    cycles: u64,
    anchor: Option<Anchor>,
    /// The last MTC whose own CYC came directly before it.
    measured: Option<Anchor>,
    rate: Option<Rate>,
    ratio: Option<u8>,
    /// The last TSC within PSB+.
    psb: Option<Anchor>,
    in_psb: bool,
    after_cyc: bool,
    /// CYC packets that came before any time.
    cycles_without_time: u64,
    /// Ticks between MTCs, while they come.
    period: Option<u64>,
}

const TSC_BITS: u32 = 56;

impl Clock {
    /// Before the first packet.
    #[must_use]
    pub const fn new(config: ClockConfig) -> Self {
        Self {
            config,
            now: None,
            tsc: None,
            crystal: None,
            cycles: 0,
            anchor: None,
            measured: None,
            rate: None,
            ratio: None,
            psb: None,
            in_psb: false,
            after_cyc: false,
            cycles_without_time: 0,
            period: None,
        }
    }

    /// When the next packet that is no timing packet was made; `None`: no TSC came yet. What it tells of happened before that,
    /// and after the packet before it.
    #[inline]
    #[must_use]
    pub const fn time(&self) -> Option<Time> {
        self.now
    }

    /// Cycles that CYC packets counted before the first TSC: they have no time.
    #[must_use]
    pub const fn cycles_without_time(&self) -> u64 {
        self.cycles_without_time
    }

    /// Takes note of a packet; those without time are passed over.
    pub fn packet(&mut self, packet: Packet) {
        match packet {
            Packet::Tsc { ticks } => self.time_stamp(ticks),
            Packet::Tma { ctc, fast_counter } => self.alignment(ctc, fast_counter),
            Packet::Mtc { ctc } => self.crystal_tick(ctc),
            Packet::Cyc { cycles } => {
                self.core_cycles(cycles);
                self.after_cyc = true;
                return;
            }
            Packet::Cbr { ratio } => self.frequency(ratio),
            Packet::Psb => self.in_psb = true,
            Packet::PsbEnd => self.in_psb = false,
            Packet::Ovf => self.overflow(),
            Packet::Pad => return,
            _ => {}
        }
        self.after_cyc = false;
    }

    /// Bytes were lost: with them, maybe, CYC and MTC packets. The next TSC or MTC says the time again.
    pub fn lose(&mut self) {
        self.overflow();
        self.in_psb = false;
    }

    /// Times do not decrease.
    fn set(&mut self, ticks: u64, error_ticks: Option<u64>) {
        let floor = self.now.map_or(0, |now| now.ticks);
        let late = floor.saturating_sub(ticks);
        self.now = Some(Time {
            ticks: ticks.max(floor),
            error_ticks: error_ticks.map(|error| error.saturating_add(late)),
        });
    }

    fn time_stamp(&mut self, ticks: u64) {
        let ticks = self.continued(ticks);
        if self.in_psb {
            if let (Some(before), None) = (self.psb, self.measured) {
                let (elapsed, cycles) =
                    (ticks.saturating_sub(before.ticks), self.cycles.saturating_sub(before.cycles));
                if elapsed > 0 && cycles > 0 {
                    self.rate = Some(Rate { ticks: elapsed, cycles });
                }
            }
            self.psb = Some(Anchor { cycles: self.cycles, ticks });
        }
        self.tsc = Some(ticks);
        self.anchor = Some(Anchor { cycles: self.cycles, ticks });
        self.set(ticks, Some(0));
        self.expect_other_packets();
    }

    /// After a time that is exact at its packet: what comes then may be up to a period of MTC later.
    fn expect_other_packets(&mut self) {
        if let Some(now) = &mut self.now {
            // A stream with MTC has a bound; one with CYC has it from the CYC of the packet.
            now.error_ticks = self.period;
        }
    }

    /// The 56 bits of a TSC packet wrap after months; what is known then is near.
    fn continued(&self, ticks: u64) -> u64 {
        let Some(now) = self.now else { return ticks };
        let high = now.ticks >> TSC_BITS << TSC_BITS;
        let ticks = high | ticks;
        if now.ticks.saturating_sub(ticks) > 1 << (TSC_BITS - 1) {
            ticks.saturating_add(1 << TSC_BITS)
        } else {
            ticks
        }
    }

    fn alignment(&mut self, ctc: u16, fast_counter: u16) {
        // Without its TSC it says nothing.
        let Some(tsc) = self.tsc.take() else { return };
        let ticks = tsc.saturating_sub(fast_counter.into());
        let ctc = u64::from(ctc);
        self.crystal = Some(Crystal { ticks, ctc, last: ctc, counted: false });
        self.period = self.crystal_ticks(1 << self.config.mtc_frequency.min(15));
        self.expect_other_packets();
    }

    /// TSC ticks of ticks of the crystal clock.
    fn crystal_ticks(&self, ctc: u64) -> Option<u64> {
        let (numerator, denominator) =
            self.config.tsc_per_crystal.filter(|ratio| ratio.0 != 0 && ratio.1 != 0)?;
        Some(saturated(u128::from(ctc) * u128::from(numerator) / u128::from(denominator)))
    }

    fn crystal_tick(&mut self, ctc: u8) {
        let shift = self.config.mtc_frequency.min(15);
        // One between TSC and TMA is of which side of the TSC? The next one tells.
        let (None, Some(crystal)) = (self.tsc, self.crystal) else { return };
        let bits = u32::from(shift) + 8;
        let now = u64::from(ctc) << shift;
        // Of a TMA 16 bits are known, of an MTC those that the next one has.
        let known = if crystal.counted { bits } else { bits.min(16) };
        let mask = (1u64 << known) - 1;
        let delta = now.wrapping_sub(crystal.last) & mask;
        let (mut crystal, last) = (crystal, crystal.last.wrapping_add(delta));
        if !crystal.counted && known < bits {
            // The bits above those of the TMA are those of this MTC.
            crystal.ctc = now.wrapping_sub(crystal.last.wrapping_sub(crystal.ctc).wrapping_add(delta));
            crystal.last = now;
        } else {
            crystal.last = last;
        }
        crystal.counted = true;
        self.crystal = Some(crystal);
        let Some(elapsed) = self.crystal_ticks(crystal.last.wrapping_sub(crystal.ctc)) else { return };
        // A stream may say any time, also one near the last.
        let ticks = crystal.ticks.saturating_add(elapsed);
        self.calibrate(ticks);
        self.set(ticks, self.period);
    }

    /// An MTC came at `ticks`.
    fn calibrate(&mut self, ticks: u64) {
        if self.after_cyc {
            // Its own CYC: the cycles at this time are known.
            let here = Anchor { cycles: self.cycles, ticks };
            if let Some(before) = self.measured {
                let (elapsed, cycles) =
                    (ticks.saturating_sub(before.ticks), here.cycles.saturating_sub(before.cycles));
                if elapsed > 0 && cycles > 0 {
                    self.rate = Some(Rate { ticks: elapsed, cycles });
                }
            }
            self.measured = Some(here);
            self.anchor = Some(here);
        } else if let (Some(anchor), Some(rate)) = (self.anchor, self.rate()) {
            // CYC comes less often than MTC: its next one counts from before this time.
            let cycles = anchor.cycles.saturating_add(rate.cycles_of(ticks.saturating_sub(anchor.ticks)));
            self.anchor = Some(Anchor { cycles, ticks });
        }
    }

    fn rate(&self) -> Option<Rate> {
        let from_ratio = || {
            let (nominal, ratio) = (self.config.nominal_ratio?, self.ratio?);
            (nominal > 0 && ratio > 0).then_some(Rate { ticks: nominal.into(), cycles: ratio.into() })
        };
        self.rate.or_else(from_ratio)
    }

    fn core_cycles(&mut self, cycles: u64) {
        self.cycles = self.cycles.wrapping_add(cycles);
        let Some(anchor) = self.anchor else {
            self.cycles_without_time = self.cycles_without_time.saturating_add(cycles);
            return;
        };
        let Some(rate) = self.rate() else { return };
        let cycles = self.cycles.saturating_sub(anchor.cycles);
        let error = rate.error_of(cycles);
        // An MTC would have come.
        let error = self.period.map_or(error, |period| error.min(period));
        self.set(anchor.ticks.saturating_add(rate.ticks_of(cycles)), Some(error));
    }

    fn frequency(&mut self, ratio: u8) {
        self.ratio = Some(ratio);
        if !self.in_psb {
            // It changed: what was measured is over.
            self.rate = None;
            self.measured = None;
        }
    }

    fn overflow(&mut self) {
        self.tsc = None;
        self.measured = None;
        self.psb = None;
        self.after_cyc = false;
        self.anchor = self.now.map(|now| Anchor { cycles: self.cycles, ticks: now.ticks });
    }
}

/// From ticks of the TSC to nanoseconds of perf's clock, as the kernel publishes it (`time_shift`, `time_mult` and `time_zero` of
/// `perf_event_mmap_page`; in files TIME_CONV and AUXTRACE_INFO).
///
/// That clock is `sched_clock`, which runs as CLOCK_MONOTONIC does but for the corrections of NTP, and begins elsewhere: the
/// difference has to be measured where the trace was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfClock {
    /// `time_shift`.
    pub shift: u16,
    /// `time_mult`.
    pub mult: u32,
    /// `time_zero`; often just below 2^64.
    pub zero: u64,
}

impl PerfClock {
    /// As the kernel computes it, wrapping as it does.
    #[must_use]
    pub fn nanoseconds(&self, ticks: u64) -> u64 {
        let (shift, mult) = (u32::from(self.shift.min(63)), u64::from(self.mult));
        let whole = (ticks >> shift).wrapping_mul(mult);
        let rest = (ticks & ((1 << shift) - 1)).wrapping_mul(mult) >> shift;
        self.zero.wrapping_add(whole).wrapping_add(rest)
    }

    /// How long `ticks` are.
    #[must_use]
    pub fn duration_ns(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.mult)) >> self.shift.min(63)) as u64
    }
}
