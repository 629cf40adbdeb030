// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The statistics: an ordinary Linux process that adds up what the line has found, and says so now and then.

use anyhow::{Context, Result};
use bytemuck::{Pod, Zeroable};
use rtscope_queue::Consumer;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::Read;
use std::path::PathBuf;
use std::sync::mpsc::{TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What the line tells of a frame.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Record {
    /// Which frame.
    pub number: u64,
    /// From when it was due until all its defects were analysed.
    pub took_ns: u64,
    /// The camera.
    pub camera: u32,
    /// Defects found.
    pub found: u32,
}

/// The sum of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// Frames told of.
    pub frames: u64,
    /// Defects in them.
    pub defects: u64,
    /// The longest time from when a frame was due until all its defects were analysed.
    pub worst_ns: u64,
    /// The sum of these times.
    pub took_ns: u64,
}

/// Adds up until standard input is closed, and all queues are empty.
pub fn run(queues: &[PathBuf]) -> Result<Sum> {
    let open = |path: &PathBuf| -> Result<Consumer<Record>> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        Ok(Consumer::open(file.with_context(|| path.display().to_string())?)?)
    };
    let mut queues = queues.iter().map(open).collect::<Result<Vec<_>>>()?;
    let (end, ended) = channel::<()>();
    thread::spawn(move || {
        let _end = end;
        // Nothing comes but the end.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    });
    let (mut sum, mut said, mut records) = (Sum::default(), Instant::now(), Vec::new());
    loop {
        // Asked before the queues are emptied: what was pushed before the end is in them.
        let last = ended.try_recv() == Err(TryRecvError::Disconnected);
        for queue in &mut queues {
            while queue.pop_some(&mut records, 64) > 0 {}
        }
        for record in records.drain(..) {
            sum.frames += 1;
            sum.defects += u64::from(record.found);
            sum.took_ns += record.took_ns;
            sum.worst_ns = sum.worst_ns.max(record.took_ns);
        }
        if last {
            return Ok(sum);
        }
        if said.elapsed() >= Duration::from_secs(1) {
            said = Instant::now();
            eprintln!("statistics: {} frames, {} defects", sum.frames, sum.defects);
        }
        thread::sleep(Duration::from_millis(20));
    }
}
