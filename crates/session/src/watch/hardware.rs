// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `watch --hardware`: a trace unit writes into circles while the watch goes on. They are frozen at the first look after something was
//! late, and saved with its snapshot: what the processors executed before it was known.
//!
//! The rings go with the snapshot to the writer, which takes their content straight to its file, and come back when that is done. Until
//! then the units are off: what is late meanwhile has no such trace.

use crate::hardware::capture::traced_cpus;
use crate::hardware::comparators::Comparators;
use crate::hardware::processes;
use crate::hardware::rings::{RingsConfig, TracedTasks, UnitRings};
use crate::hardware::unit::UnitPlan;
use crate::{Failure, Observer};
use rtscope_event::{MonotonicNs, counted};
use rtscope_flight::monotonic_now;
use rtscope_hardware::capture::{CaptureMode, Frozen};
use std::cell::RefCell;
use std::fs;
use std::path::Path;

/// The name below a snapshot's directory.
const DIRECTORY: &str = "hardware";

/// Units that trace for the flight recorder.
#[derive(Debug)]
pub struct HardwareFlight {
    /// `None`: the writer has them.
    rings: Option<UnitRings>,
    /// They are off since then.
    frozen: Option<MonotonicNs>,
}

/// Frozen circles, which belong to a snapshot.
#[derive(Debug)]
pub struct HardwarePart {
    rings: RefCell<UnitRings>,
    frozen: Frozen,
}

impl HardwareFlight {
    /// Switches the units of all CPUs on; `None`: no unit was asked for.
    pub fn start(
        plan: Option<(UnitPlan, usize)>,
        observer: &dyn Observer,
    ) -> Result<Option<HardwareFlight>, Failure> {
        let Some((plan, aux_bytes)) = plan else { return Ok(None) };
        let name = plan.pmu.name.clone();
        let cpus = traced_cpus(None)?;
        let config = RingsConfig {
            tasks: TracedTasks::All,
            with_children: false,
            from_exec: false,
            cpus,
            aux_bytes,
            mode: CaptureMode::Snapshot,
            comparators: Comparators::default(),
        };
        let rings = UnitRings::open(plan, config)?;
        rings.enable()?;
        observer.note(&format!(
            "{name} traces {}; the newest {} KiB of each are saved with what is late",
            counted(rings.cpus(), "CPU", "CPUs"),
            aux_bytes >> 10
        ));
        Ok(Some(HardwareFlight { rings: Some(rings), frozen: None }))
    }

    /// Switches the units off, if they are on.
    pub fn freeze(&mut self) -> Result<(), Failure> {
        let Some(rings) = self.rings.as_ref().filter(|_| self.frozen.is_none()) else { return Ok(()) };
        rings.freeze()?;
        self.frozen = Some(monotonic_now());
        Ok(())
    }

    /// What they hold, for a snapshot; `None`: that of the snapshot before is still being saved.
    pub fn take(&mut self, detected: MonotonicNs) -> Result<Option<HardwarePart>, Failure> {
        self.freeze()?;
        let frozen = self.frozen.take();
        let rings = self.rings.take();
        Ok(rings.zip(frozen).map(|(rings, frozen)| HardwarePart {
            rings: RefCell::new(rings),
            frozen: Frozen { detected_ns: Some(detected.0), frozen_ns: frozen.0 },
        }))
    }

    /// It has been saved, or is not wanted: the units go on.
    pub fn give_back(&mut self, part: HardwarePart) -> Result<(), Failure> {
        let rings = part.rings.into_inner();
        rings.enable()?;
        self.rings = Some(rings);
        Ok(())
    }
}

impl HardwarePart {
    /// Writes it into a snapshot's directory.
    pub fn write(&self, snapshot: &Path) -> Result<(), Failure> {
        let directory = snapshot.join(DIRECTORY);
        let failed =
            |error: std::io::Error| Failure::system(format!("writing {}", directory.display()), &error);
        fs::create_dir(&directory).map_err(failed)?;
        let mut rings = self.rings.borrow_mut();
        let mut writer = rings.begin(&directory)?;
        processes::add(&mut writer, None).map_err(failed)?;
        rings.save(&mut writer).map_err(failed)?;
        rings.end(writer, &directory, Some(self.frozen)).map(drop)
    }
}
