// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flip`: from the end of the post-trigger window until full banks of 8 MiB of every CPU are in private memory.

use crate::host::Host;
use crate::table::{Promise, Report, Row};
use anyhow::{Result, bail, ensure};
use rtscope_event::{End, Glob, MonotonicNs};
use rtscope_flight::{FlightRecorder, monotonic_now};
use rtscope_kernel::{
    EbpfConfig, EbpfPrograms, Follows, OriginFilter, RecorderConfig, ResponseConfig, SnapshotConfig, Target,
    TrackerConfig,
};
use rtscope_testkit::process::Workload;
use std::time::{Duration, Instant};

const BANK: usize = 8 << 20;

fn config() -> Result<EbpfConfig> {
    Ok(EbpfConfig {
        recorder: Some(RecorderConfig {
            bank_bytes: BANK,
            snapshot: Some(SnapshotConfig { post_ns: 5_000_000, interval_ns: 50_000_000 }),
            stream: None,
        }),
        trackers: vec![TrackerConfig {
            counted_by: None,
            target: Target { name: Some(Glob::new("control*")?), ..Target::default() },
            threshold_ns: 1,
            snapshot: true,
            records: false,
            follows: Follows::Responses(ResponseConfig {
                end: End::Blocked,
                origins: OriginFilter::default(),
                sources: Vec::new(),
            }),
        }],
        stacks: None,
        only: Vec::new(),
    })
}

/// Runs it.
pub fn run(quick: bool) -> Result<Report> {
    let cpus = std::thread::available_parallelism()?.get();
    let config = config()?;
    let ebpf = EbpfPrograms::start(&config)?;
    let mut recorder = FlightRecorder::new(ebpf.memory(&config)?, ebpf.started());
    // Fill the banks: a pair that wakes each other on every CPU.
    let pipes = (0..cpus).map(crate::pipe::Pipe::start).collect::<Result<Vec<_>>>()?;
    let _victim =
        Workload::start("rtscope-victim", ["--period", "2ms", "--work", "10us", "--duration", "600s"])?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while recorder.written().iter().take(cpus).any(|bytes| *bytes < 3 * BANK as u64) {
        ensure!(Instant::now() < deadline, "the banks did not fill");
        recorder.late_responses();
        std::thread::sleep(Duration::from_millis(4));
    }
    drop(pipes);
    let mut copied_ms = Vec::new();
    while copied_ms.len() < if quick { 5 } else { 60 } {
        if Instant::now() > deadline + Duration::from_secs(60) {
            bail!("no snapshots");
        }
        recorder.late_responses();
        if let Some(trigger) = recorder.ready() {
            let snapshot = recorder.take(trigger, MonotonicNs(monotonic_now().0.saturating_sub(1)));
            copied_ms.push(snapshot.copied_ns as f64 / 1e6);
            recorder.recycle(snapshot);
        }
        std::thread::sleep(Duration::from_millis(4));
    }
    let row = Row::new(&format!("{cpus} banks of 8 MiB, poll of 4 ms included"), copied_ms);
    Ok(Report {
        schema: "rtscope.bench.flip/1",
        name: "flip",
        unit: "ms from the flip to the private copy".to_string(),
        host: Host::this(cpus - 1),
        promises: vec![
            Promise::at_most("median, ms", row.median(), 20.0),
            Promise::at_most("90 %, ms", row.quantile(0.9), 20.0),
        ],
        checks: vec![format!("each bank had been written {} times over or more", 3)],
        rows: vec![row],
    })
}
