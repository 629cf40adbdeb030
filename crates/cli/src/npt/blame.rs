// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What ran in the long gaps: rtscope's own flight recorder runs beside the loop, and is read when the loop is over.

use crate::exit::Failure;
use crate::who_runs::WhoRuns;
use rtscope_analyze::gap::{Blamer, Part, Total, totals};
use rtscope_event::{CpuId, MonotonicNs, Tid};
use serde_json::{Value, json};

/// The recorder, running.
#[derive(Debug)]
pub struct Blame {
    recorder: WhoRuns,
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
        Ok(Blame { recorder: WhoRuns::start(bank_bytes, &[])? })
    }

    /// Stops recording. `gaps`: from and to on CLOCK_MONOTONIC, of thread `tid` on `cpu`; `begin`: the loop's.
    pub fn finish(
        mut self,
        cpu: usize,
        tid: u32,
        begin: MonotonicNs,
        gaps: &[(MonotonicNs, MonotonicNs)],
    ) -> Result<Blamed, Failure> {
        self.recorder.stop();
        let (recording, _) = self.recorder.look(begin)?;
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
        let lost = here.map(|loss| loss.count).chain([self.recorder.misses()]);
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
