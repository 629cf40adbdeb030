// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One phase: the control loop, perhaps a disturber, and rtscope watching.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rtscope_testkit::machine;
use rtscope_testkit::process::{Workload, WorkloadOutput};

use crate::trace::{self, SavedTrace};
use crate::watch::{Observations, Watch};

/// The softirq that receives from the network.
const NET_RX: u32 = 3;

/// What rtscope should name in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Culprit {
    /// The disturbing thread itself.
    Thread,
    /// A softirq vector, by number, in the context of the disturbing thread.
    Softirq(u32),
}

/// A disturber and how to start it.
#[derive(Debug)]
pub struct Disturber {
    pub program: &'static str,
    pub arguments: &'static [&'static str],
    pub culprit: Culprit,
}

/// One of the four phases.
#[derive(Debug)]
pub struct Phase {
    pub name: &'static str,
    /// What happens, in plain words.
    pub heading: &'static str,
    pub disturber: Option<Disturber>,
}

/// The phases. No disturber may use its CPU for more than a few percent of the time; intervals are odd numbers of
/// milliseconds, so that bursts meet the loop's 2 ms period at different places.
pub const PHASES: [Phase; 4] = [
    Phase {
        name: "hog",
        heading: "a thread of higher priority (fifo 80) keeps the CPU for 3 ms now and then",
        disturber: Some(Disturber {
            program: "rtscope-hog",
            arguments: &["--name", "hog", "--policy", "fifo:80", "--burst", "3ms", "--every", "101.3ms"],
            culprit: Culprit::Thread,
        }),
    },
    Phase {
        name: "flood",
        heading: "an ordinary program floods the loopback network; the CPU is in the network softirq for 2 ms",
        disturber: Some(Disturber {
            program: "rtscope-flood",
            arguments: &["--name", "flood", "--policy", "other", "--burst", "2ms", "--every", "71.3ms"],
            culprit: Culprit::Softirq(NET_RX),
        }),
    },
    Phase {
        name: "equal",
        heading: "a thread of the same priority (fifo 50) computes for 4 ms now and then and does not yield",
        disturber: Some(Disturber {
            program: "rtscope-hog",
            arguments: &["--name", "equal", "--policy", "fifo:50", "--burst", "4ms", "--every", "91.3ms"],
            culprit: Culprit::Thread,
        }),
    },
    Phase { name: "nothing", heading: "nothing disturbs", disturber: None },
];

/// What all phases share.
#[derive(Debug)]
pub struct Setting {
    pub rtscope: PathBuf,
    /// Where the traces are saved, a subdirectory per phase.
    pub directory: PathBuf,
    pub cpu: usize,
    pub duration: Duration,
    pub quiet: bool,
}

/// All that is known about a phase that is over.
#[derive(Debug)]
pub struct PhaseRecord {
    pub victim: WorkloadOutput,
    pub disturber: Option<WorkloadOutput>,
    pub seen: Observations,
    pub traces: Vec<SavedTrace>,
    /// Time that a hypervisor took from the CPU during the phase. This machine cannot see what it was used for.
    pub stolen: Duration,
}

impl Setting {
    /// Runs a phase. The control loop is watched from before its first to after its last response.
    pub fn observe(&self, number: u32, phase: &Phase) -> Result<PhaseRecord> {
        self.print(&format!("\n--- {number} of {}: {}", PHASES.len(), phase.heading));
        let snapshots = self.directory.join(phase.name);
        let stolen_before = machine::stolen(self.cpu);
        let mut watch = Watch::start(&self.rtscope, &snapshots, self.duration, self.quiet)?;
        let disturber = phase.disturber.as_ref().map(|d| self.start(d.program, d.arguments)).transpose()?;
        let victim = self.start("rtscope-victim", &["--deadline", "500us"])?;
        watch.listen_until(Instant::now() + self.duration)?;
        let victim = victim.stop().context("the control loop")?;
        let disturber = disturber.map(Workload::stop).transpose().context("the disturber")?;
        let seen = watch.stop()?;
        let stolen = machine::stolen(self.cpu).saturating_sub(stolen_before);
        let traces = trace::open_all(&snapshots)?;
        for trace in &traces {
            self.print(&format!("    {trace}"));
        }
        Ok(PhaseRecord { victim, disturber, seen, traces, stolen })
    }

    fn start(&self, program: &str, arguments: &[&str]) -> Result<Workload> {
        let mut all: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        all.extend(["--cpu".into(), self.cpu.to_string().into()]);
        Workload::start(program, all)
    }

    fn print(&self, line: &str) {
        if !self.quiet {
            println!("{line}");
        }
    }
}
