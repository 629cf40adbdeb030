// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which unit is captured, and with which settings; and what to tell where there is none.

use crate::Failure;
use rtscope_hardware::inventory::{Inventory, Machine, State};
use rtscope_hardware::perfdata::{AuxKind, EventRequest, PtInfo};
use rtscope_hardware::pmu::{EventSpec, Pmu, PmuError};
use rtscope_hardware::pt::PerfClock;
use std::path::Path;

/// Records of the kernel are read when there are as many bytes; a page is what they may lose at the end.
const WATERMARK: u32 = 4096;

/// A unit and an event of it.
#[derive(Clone, Debug)]
pub(crate) struct UnitPlan {
    pub pmu: Pmu,
    pub kind: AuxKind,
    pub config: [u64; 3],
    pub request: EventRequest,
}

/// How it is recorded.
#[derive(Clone, Debug)]
pub(crate) struct RecordedTasks {
    /// AUX areas are circles.
    pub is_snapshot: bool,
    /// All tasks of CPUs, and not those of a process.
    pub whole_cpus: bool,
    /// What is traced of their programs, in perf's words; empty: everything.
    pub filter: String,
}

impl UnitPlan {
    /// Of this machine.
    pub fn new(spec: &EventSpec) -> Result<UnitPlan, Failure> {
        let pmu = Pmu::read(Path::new("/"), &spec.pmu).map_err(|error| refused(error, &spec.pmu))?;
        let kind = match spec.pmu.as_str() {
            "intel_pt" => AuxKind::IntelPt,
            "intel_bts" => AuxKind::IntelBts,
            other => {
                return Err(Failure::Usage(format!(
                    "{other}: rtscope captures intel_pt and intel_bts; of another unit with an AUX area, record with \
                     perf record -e {other}// and decode that (rtscope hardware decode perf.data)"
                )));
            }
        };
        let config = pmu.event(spec).map_err(|error| Failure::Usage(error.to_string()))?;
        let request = EventRequest {
            pmu: pmu.number,
            config,
            exclude_user: spec.kernel_only,
            exclude_kernel: spec.user_only,
            watermark: WATERMARK,
            ..EventRequest::default()
        };
        Ok(UnitPlan { pmu, kind, config, request })
    }

    /// What perf's headers have of the unit (tools/perf/util: intel-pt.h, intel-bts.h): its number there, and words.
    pub fn auxtrace_info(&self, clock: Option<PerfClock>, of: &RecordedTasks) -> (u32, Vec<u64>) {
        let is_snapshot = of.is_snapshot;
        let has_clock = u64::from(clock.is_some());
        let clock = clock.unwrap_or(PerfClock { shift: 0, mult: 0, zero: 0 });
        let mut words =
            vec![self.pmu.number.into(), clock.shift.into(), clock.mult.into(), clock.zero, has_clock];
        if self.kind == AuxKind::IntelBts {
            words.push(is_snapshot.into());
            return (2, words);
        }
        let pmu = &self.pmu;
        let ratio = pmu.attribute("tsc_art_ratio").unwrap_or_default();
        let (numerator, denominator) = ratio.split_once(':').unwrap_or_default();
        let number = |text: &str| text.parse::<u64>().unwrap_or(0);
        // perf's numbers for switches with and without the other task.
        let switches = if of.whole_cpus { 3 } else { 2 };
        words.extend([
            pmu.mask("tsc"),
            pmu.mask("noretcomp"),
            switches,
            is_snapshot.into(),
            1,
            pmu.mask("mtc"),
            pmu.mask("mtc_period"),
            number(numerator),
            number(denominator),
            pmu.mask("cyc"),
            number(&pmu.attribute("max_nonturbo_ratio").unwrap_or_default()),
        ]);
        words.extend(PtInfo::filter_words(&of.filter));
        (1, words)
    }
}

/// Where there is no such PMU, the inventory knows why, and what to do.
fn refused(error: PmuError, name: &str) -> Failure {
    let PmuError::Absent(_) = error else { return Failure::Failed(error.to_string()) };
    let inventory = Inventory::of(&Machine::here());
    match inventory.unit(name) {
        Some(unit) if unit.state == State::NoDriver => {
            Failure::Missing(format!("{}: {}; to get it: {}", unit.name, unit.why, unit.enable))
        }
        Some(unit) => Failure::Missing(format!(
            "{}: {}; rtscope hardware says which units this machine has, and rtscope hardware decode reads captures of others",
            unit.name, unit.why
        )),
        None => Failure::Missing(format!("{error}; rtscope hardware says which units this machine has")),
    }
}
