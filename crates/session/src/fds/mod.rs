// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope fds`: which file descriptors are open, and how that came about.

mod follower;

pub use follower::Follower;

use crate::command::{Child, CommandOutput, complain};
use crate::placement::{ObservedTasks, Placement};
use crate::watch::numbered::Numbered;
use crate::{Failure, Observer, Stop};
use rtscope_analyze::descriptors::{DescriptorLimits, DescriptorQuery, DescriptorReport};
use rtscope_event::{DescriptorLosses, MonotonicNs, Pid};
use rtscope_flight::monotonic_now;
use rtscope_kernel::DescriptorSettings;
use serde::Serialize;
use std::ffi::OsString;
use std::time::Duration;

/// Between two looks at the ring: at most what comes in this time has to fit.
const LOOK: Duration = Duration::from_millis(10);

/// What is followed, for how long, and what is said of it.
#[derive(Clone, Debug)]
pub struct FdsSettings {
    /// What is asked for. Its processes, and their children, are all that is followed.
    pub query: DescriptorQuery,
    /// What is kept.
    pub limits: DescriptorLimits,
    /// Bytes of the ring.
    pub ring_bytes: u32,
    /// Ends after this time.
    pub duration_ns: Option<u64>,
    /// A report each time that this has passed.
    pub interval_ns: Option<u64>,
    /// Started, and followed with its children; its end ends it.
    pub command: Vec<OsString>,
    /// Where its standard output goes.
    pub command_output: CommandOutput,
}

/// What is known at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct FdsReport {
    /// When, `CLOCK_MONOTONIC`.
    #[serde(rename = "time_ns")]
    pub time: MonotonicNs,
    /// Since the start.
    pub at_ns: u64,
    /// Closed descriptors are kept for so long.
    pub closed_for_ns: u64,
    /// The answer.
    #[serde(flatten)]
    pub report: DescriptorReport,
    /// What is missing, since the start.
    pub losses: DescriptorLosses,
    /// How often all was told: once at the start, and after losses.
    pub scans: u64,
    /// Records that the kernel told.
    pub records: u64,
    /// Whether what io_uring opens and closes is seen.
    pub follows_io_uring: bool,
}

/// Follows until it is asked to stop, the time is over, COMMAND has ended, or the only process that was asked for has. Gives the last report, and
/// how COMMAND ended if not well.
///
/// # Errors
/// What kept it from following.
pub fn run(
    settings: &FdsSettings,
    stop: &Stop,
    observer: &dyn Observer,
    show: &mut dyn FnMut(&FdsReport),
) -> Result<(FdsReport, Result<(), Failure>), Failure> {
    if settings.interval_ns == Some(0) {
        return Err(Failure::Usage("--interval: it has to be longer than 0".to_owned()));
    }
    let asked = &settings.query.pids;
    let only = if let [pid] = asked[..] { Numbered::of(Some(pid.0), None)? } else { None };
    let targets =
        ObservedTasks { processes: asked.iter().map(|pid| pid.0).collect(), ..ObservedTasks::default() };
    let mut placement = Placement::take(targets, !settings.command.is_empty())?;
    let mut child = placement.hold(&settings.command, settings.command_output)?;
    stop.begin()?;
    let mut processes: Vec<Pid> = asked.clone();
    processes.extend(child.as_ref().map(Child::pid));
    let programs = DescriptorSettings {
        ring_bytes: settings.ring_bytes,
        processes: (!processes.is_empty()).then_some(processes),
        with_self: false,
    };
    let mut follower = Follower::start(&programs, settings.limits)?;
    let started = monotonic_now();
    if !follower.follows_io_uring() {
        observer.note("descriptors that io_uring opens and closes are found only behind other calls: this kernel has no io_uring_complete");
    }
    if let Some(child) = child.as_mut().filter(|_| !stop.asked()) {
        child.release();
    }
    let report = |follower: &Follower| report(settings, follower, started);
    let end = child.as_ref().and_then(Child::end);
    let mut next = settings.interval_ns;
    loop {
        let has_ended = child.as_mut().is_some_and(Child::has_ended)
            || only.is_some_and(|target| child.is_none() && target.has_ended());
        let now_ns = monotonic_now().since(started);
        if stop.asked() || has_ended || settings.duration_ns.is_some_and(|duration_ns| now_ns >= duration_ns)
        {
            break;
        }
        if follower.follow_up()? {
            observer.note(
                "events were lost: all descriptors were told again; what happened in between is not known",
            );
        }
        if next.is_some_and(|next| now_ns >= next) {
            follower.catch_up()?;
            show(&report(&follower));
            next = settings.interval_ns.map(|interval| (now_ns / interval + 1) * interval);
        }
        placement.follow(monotonic_now(), || None);
        stop.wait(LOOK, end.as_ref());
    }
    follower.catch_up()?;
    follower.detach();
    let last = report(&follower);
    drop(follower);
    if let Some(child) = &mut child {
        child.terminate();
    }
    if let Some(end) = child.as_mut().and_then(Child::ending) {
        observer.command_ended(end);
    }
    Ok((last, complain(child.as_mut(), observer)))
}

fn report(settings: &FdsSettings, follower: &Follower, started: MonotonicNs) -> FdsReport {
    let now = monotonic_now();
    let (scans, records) = follower.effort();
    FdsReport {
        time: now,
        at_ns: now.since(started),
        closed_for_ns: settings.limits.closed_for_ns,
        report: follower.report(&settings.query),
        losses: follower.losses(),
        scans,
        records,
        follows_io_uring: follower.follows_io_uring(),
    }
}
