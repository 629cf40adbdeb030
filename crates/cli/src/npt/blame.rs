// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What ran in the long gaps: rtscope's own flight recorder runs beside the loop, and is read when the loop is over.
//!
//! Nobody empties its buffers meanwhile, so nothing but the recording of what disturbs the loop anyway is added to the gaps:
//! some hundred nanoseconds for each interrupt or switch. The price is that the buffers hold the newest part only.

use crate::exit::Failure;
use rtscope_analyze::gap::{Blamer, Part, Total, totals};
use rtscope_collect::FlightRecorder;
use rtscope_event::{CpuId, MonotonicNs, Tid};
use rtscope_kernel::{PROGRAMS, ProgramSpec, Recorder, Session, SessionConfig, interrupts, stream_programs};
use serde_json::{Value, json};

/// Events that say who has the CPU, or how a task is called.
fn tells_who_runs(spec: &ProgramSpec) -> bool {
    matches!(spec.system, "irq_vectors" | "nmi")
        || matches!(
            spec.name,
            "sched_switch"
                | "irq_handler_entry"
                | "irq_handler_exit"
                | "softirq_entry"
                | "softirq_exit"
                | "cpu_idle"
                | "sched_process_fork"
                | "sched_process_exit"
                | "task_rename"
        )
}

/// The recorder, running.
#[derive(Debug)]
pub struct Blame {
    session: Session,
    recorder: FlightRecorder,
}

/// A gap and who took it.
#[derive(Debug)]
pub struct BlamedGap {
    /// From the loop's begin.
    pub at_ns: f64,
    pub ns: f64,
    /// `None`: it was before the oldest that the buffers still hold.
    pub parts: Option<Vec<Part>>,
}

/// Who took what.
#[derive(Debug)]
pub struct Blamed {
    /// In the order in which they came.
    pub gaps: Vec<BlamedGap>,
    /// Sums over all of them that are known.
    pub totals: Vec<Total>,
    /// Events of this CPU, or of one that is not known, that were lost, of any cause; `None`: not known.
    pub lost: Option<u64>,
}

impl Blame {
    /// Starts recording. `bank_bytes`: for each CPU.
    pub fn start(bank_bytes: usize) -> Result<Blame, Failure> {
        let programs: Vec<&ProgramSpec> = PROGRAMS.iter().filter(|spec| tells_who_runs(spec)).collect();
        let config = SessionConfig {
            recorder: Some(Recorder { bank_bytes, snapshot: None, stream: None }),
            tracker: None,
            only: stream_programs(&programs, false),
        };
        let session = Session::start(&config)?;
        let recorder = FlightRecorder::new(session.memory(&config)?, session.started());
        Ok(Blame { session, recorder })
    }

    /// Stops recording. `gaps`: from and to on CLOCK_MONOTONIC, of thread `tid` on `cpu`; `begin`: the loop's.
    pub fn finish(
        mut self,
        cpu: usize,
        tid: u32,
        begin: MonotonicNs,
        gaps: &[(MonotonicNs, MonotonicNs)],
    ) -> Result<Blamed, Failure> {
        self.session.enable(false);
        let tasks = self.session.dump_tasks()?;
        let misses = self.session.recursion_misses();
        let snapshot = self.recorder.peek(begin);
        let window = snapshot.window(snapshot_reach(begin), Some(begin));
        let recording = snapshot.decode(window, tasks, interrupts());
        let cpu = CpuId(cpu as u32);
        let since = recording.history.iter().find(|history| history.cpu == cpu);
        let since = since.and_then(|history| history.complete_since);
        let blamer = Blamer::new(&recording, cpu, Tid(tid));
        let blamed = |(from, to): &(MonotonicNs, MonotonicNs)| BlamedGap {
            at_ns: from.since(begin) as f64,
            ns: to.since(*from) as f64,
            parts: since.filter(|since| since <= from).map(|_| blamer.blame(*from, *to)),
        };
        let gaps: Vec<BlamedGap> = gaps.iter().map(blamed).collect();
        let totals = totals(gaps.iter().filter_map(|gap| gap.parts.as_deref()));
        let here = recording.losses.iter().filter(|loss| loss.cpu.is_none_or(|other| other == cpu));
        let lost = here.map(|loss| loss.count).chain(misses.iter().map(|(_, count)| *count));
        Ok(Blamed { totals, gaps, lost: lost.sum() })
    }
}

impl Blamed {
    /// For `--json`.
    pub fn json(&self) -> Value {
        let gap = |gap: &BlamedGap| json!({ "at_ns": gap.at_ns, "ns": gap.ns, "parts": gap.parts });
        json!({
            "gaps": self.gaps.iter().map(gap).collect::<Vec<_>>(),
            "totals": self.totals,
            "lost": self.lost,
        })
    }
}

/// From the loop's begin until now.
fn snapshot_reach(begin: MonotonicNs) -> u64 {
    rtscope_collect::monotonic_now().since(begin)
}
