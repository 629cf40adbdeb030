// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `watch -k`: tracepoints that ftrace records in addition to those of the eBPF flight recorder, and that are frozen with it.
//!
//! Two ftrace instances alternate as banks. When the eBPF banks have left for a snapshot, recording goes on in the other
//! instance, and the one that has been left is read and cut to the snapshot's window. What a snapshot took is not there for the
//! next one: so ftrace's part of a snapshot begins at the one before at the earliest, and the trigger file says when.

use crate::record::plan::all_match;
use crate::{Failure, Observer};
use rtscope_event::{CpuId, Loss, LossCause, MonotonicNs, counted};
use rtscope_flight::monotonic_now;
use rtscope_ftrace::pattern::Patterns;
use rtscope_kernel::PROGRAMS;
use rtscope_kernel::tracefs::{EventName, FlightInstances, InstanceConfig, Tracefs};
use rtscope_store::{FormatText, FtraceDescription, Pages, Tracepoints};
use std::path::PathBuf;
use std::sync::Arc;

/// The ftrace instances that record for the flight recorder, and from when on.
#[derive(Debug)]
pub struct FtraceRecorder {
    flight: FlightInstances,
    tracepoints: Arc<Tracepoints>,
    /// From here on the instance that records now has everything.
    since: MonotonicNs,
    number: usize,
}

/// ftrace's part of a snapshot.
#[derive(Debug)]
pub struct FtracePart {
    /// How to read it.
    pub tracepoints: Arc<Tracepoints>,
    /// What was held.
    pub pages: Pages,
    /// What could not be recorded.
    pub losses: Vec<Loss>,
}

impl FtraceRecorder {
    /// Starts recording; `None` when no tracepoints were asked for that eBPF does not record anyway.
    pub fn start(
        patterns: &[String],
        buffer_bytes: usize,
        observer: &dyn Observer,
    ) -> Result<Option<FtraceRecorder>, Failure> {
        if patterns.is_empty() {
            return Ok(None);
        }
        let tracefs = Tracefs::find()?;
        let events = choose(patterns, &tracefs)?;
        if events.is_empty() {
            return Ok(None);
        }
        // What killed runs left behind would go on costing.
        tracefs.sweep()?;
        let config =
            InstanceConfig { buffer_kib_per_cpu: buffer_bytes as u64 >> 10, ..InstanceConfig::default() };
        let (flight, refused) = FlightInstances::start(&tracefs, &config, &events, |_| Ok(()))?;
        let since = monotonic_now();
        if let Some(first) = refused.first() {
            observer.note(&format!(
                "{} cannot be enabled; the first is {}",
                counted(refused.len(), "tracepoint", "tracepoints"),
                first.event
            ));
        }
        let session = describe(&tracefs, &flight, &events)?;
        let tracepoints = Tracepoints::new(&session).map_err(|error| Failure::Failed(error.to_string()))?;
        Ok(Some(FtraceRecorder { flight, tracepoints: Arc::new(tracepoints), since, number: events.len() }))
    }

    /// How many tracepoints it records.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Goes on in the other bank and gives what the one before held of the window.
    pub fn freeze(&mut self, from: MonotonicNs, until: MonotonicNs) -> Result<FtracePart, Failure> {
        let since = self.since;
        // Before the swap: the other bank is on from a moment later.
        let next_since = monotonic_now().plus(SWITCH_ON_NS);
        let frozen = self.flight.swap()?;
        self.since = next_since;
        let losses = frozen.iter().filter(|pages| pages.lost != Some(0)).map(|pages| Loss {
            cpu: Some(CpuId(pages.cpu)),
            cause: LossCause::Overrun,
            count: pages.lost,
        });
        let losses = losses.collect();
        let cpus = frozen.into_iter().map(|pages| (CpuId(pages.cpu), pages.pages)).collect();
        let pages = Pages { cpus, from: from.max(since), until };
        Ok(FtracePart { tracepoints: Arc::clone(&self.tracepoints), pages, losses })
    }
}

/// Both banks record for 5 ms after a swap began, so what the new one has from then on is complete.
const SWITCH_ON_NS: u64 = 5_000_000;

/// What was asked for and is not recorded by eBPF in any case.
fn choose(patterns: &[String], tracefs: &Tracefs) -> Result<Vec<EventName>, Failure> {
    let patterns = Patterns::parse_all(patterns).map_err(|error| Failure::Usage(error.to_string()))?;
    let there = tracefs.events()?;
    all_match(&patterns, &there)?;
    let built_in = |event: &EventName| {
        PROGRAMS.iter().any(|spec| spec.system == event.system && spec.tracepoint == event.name)
    };
    let wanted = |event: &EventName| patterns.matches(&event.system, &event.name) && !built_in(event);
    Ok(there.into_iter().filter(wanted).collect())
}

fn describe(
    tracefs: &Tracefs,
    flight: &FlightInstances,
    events: &[EventName],
) -> Result<FtraceDescription, Failure> {
    let format = |event: &EventName| {
        let path: PathBuf =
            tracefs.root().join("events").join(&event.system).join(&event.name).join("format");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Failure::doing(format!("reading {}", path.display()), error))?;
        Ok(FormatText { system: event.system.clone(), text })
    };
    Ok(FtraceDescription {
        header_page: flight.banks()[0].header_page()?,
        formats: events.iter().map(format).collect::<Result<_, Failure>>()?,
    })
}
