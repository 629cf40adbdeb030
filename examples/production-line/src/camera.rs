// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A camera: an RT0 task that takes a frame each period and pushes it into its queue. Between waking up and going to sleep it makes no
//! system call.

use crate::class;
use crate::frame::{self, Frame};
use anyhow::{Context, Result};
use bytemuck::Zeroable;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use rtscope_queue::Producer;
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::time::Duration;

/// What a camera needs to know.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Its number
    #[arg(long)]
    pub camera: u32,
    /// Its queue, as a file
    #[arg(long)]
    pub queue: PathBuf,
    /// Frames to take
    #[arg(long)]
    pub frames: u64,
    /// One frame in so long
    #[arg(long, value_parser = humantime::parse_duration)]
    pub period: Duration,
    /// A frame that is in the queue later than that after it was due is late
    #[arg(long, value_parser = humantime::parse_duration)]
    pub deadline: Duration,
    /// Get a FIFO priority and this CPU by itself: there is no shield
    #[arg(long)]
    pub alone_on: Option<u32>,
}

/// What it has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The camera.
    pub camera: u32,
    /// Frames taken.
    pub frames: u64,
    /// Of these, the ones that were in the queue too late.
    pub late: u64,
    /// Of these, the ones that found the queue full.
    pub lost: u64,
    /// The longest time from when a frame was due to when it was in the queue.
    pub worst_ns: u64,
    /// Defects in all frames.
    pub planted: u64,
    /// Defects in frames that found the queue full.
    pub planted_lost: u64,
    /// What the system did not allow.
    pub refused: Vec<String>,
}

/// Now, in nanoseconds of CLOCK_MONOTONIC.
pub fn now_ns() -> u64 {
    // The kernel has this clock always.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| Duration::from(time).as_nanos() as u64)
}

/// Takes all frames.
pub fn run(options: &Options) -> Result<Taken> {
    let name = CString::new(format!("line-camera{}", options.camera)).context("a name")?;
    prctl::set_name(&name).context("naming this task")?;
    // A camera whose plant was killed would go on for nobody, before all others. The plant's main thread has started us, and lives as long.
    prctl::set_pdeathsig(Signal::SIGKILL).context("ending with the plant")?;
    let queue = OpenOptions::new().read(true).write(true).open(&options.queue);
    let queue = queue.with_context(|| options.queue.display().to_string())?;
    let mut producer = Producer::<Frame>::open(queue)?;
    let mut taken = Taken { camera: options.camera, ..Taken::default() };
    // Working that out takes memory, which a real-time task asks for beforehand.
    let defects: Vec<Vec<frame::Defect>> =
        (0..options.frames).map(|number| frame::planted(options.camera, number)).collect();
    let mut frame = Frame::zeroed();
    if let Some(cpu) = options.alone_on {
        taken.refused = class::become_rt0(Some(cpu), 80);
    }
    taken.refused.extend(class::lock_memory());
    let (period_ns, deadline_ns) = (options.period.as_nanos() as u64, options.deadline.as_nanos() as u64);
    let begin_ns = now_ns() + period_ns;
    for (number, defects) in (0..).zip(&defects) {
        let due_ns = begin_ns + number * period_ns;
        sleep_until(due_ns);
        frame.due_ns = due_ns;
        frame.taken_ns = now_ns();
        frame::take(&mut frame, options.camera, number, defects);
        let pushed = producer.push(&frame);
        let took_ns = now_ns() - due_ns;
        taken.frames += 1;
        taken.planted += defects.len() as u64;
        taken.late += u64::from(took_ns > deadline_ns);
        taken.worst_ns = taken.worst_ns.max(took_ns);
        if !pushed {
            taken.lost += 1;
            taken.planted_lost += defects.len() as u64;
        }
    }
    Ok(taken)
}

fn sleep_until(due_ns: u64) {
    let due = TimeSpec::from_duration(Duration::from_nanos(due_ns));
    // A signal wakes it too early: then it sleeps again.
    while clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &due)
        == Err(nix::errno::Errno::EINTR)
    {}
}
