// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Responses that pass through workers, on any machine: what is written to one end of a pseudo-terminal is handed to the reader
//! of the other end by a work item.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};

/// A thread that writes to several terminals, and a thread for each that reads, until dropped.
#[derive(Debug)]
pub struct Terminals {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Terminals {
    /// Starts them; the readers have this name. Every millisecond each reader gets a line, all at about the same time, so that
    /// some of the work items have to wait for a busy worker.
    pub fn start(readers: &str, number: usize) -> Result<Terminals> {
        let mut ends = Vec::new();
        let mut threads = Vec::new();
        for _ in 0..number {
            let (end, mut terminal) = pair().context("a pseudo-terminal")?;
            ends.push(end);
            let read = move || {
                let mut line = [0; 64];
                // Without its other end, reading is an error.
                while matches!(terminal.read(&mut line), Ok(1..)) {}
            };
            threads.push(std::thread::Builder::new().name(readers.to_owned()).spawn(read)?);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let write = move || {
            // ORDER: relaxed; the flag stands for itself.
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                ends.iter_mut().for_each(|end| drop(end.write(b"x\n")));
                drain(&mut ends);
            }
        };
        threads.push(std::thread::Builder::new().name("terminals".to_owned()).spawn(write)?);
        Ok(Terminals { stop, threads })
    }
}

/// Reads what the terminals echo; otherwise their buffers would fill up.
fn drain(ends: &mut [File]) {
    let mut echo = [0; 256];
    for end in ends {
        while matches!(end.read(&mut echo), Ok(1..)) {}
    }
}

/// The end that is written to (without waiting), and the one that is read.
fn pair() -> Result<(File, File)> {
    let end = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_NONBLOCK)?;
    grantpt(&end)?;
    unlockpt(&end)?;
    let terminal = OpenOptions::new().read(true).write(true).open(ptsname_r(&end)?)?;
    Ok((File::from(std::os::fd::OwnedFd::from(end)), terminal))
}

impl Drop for Terminals {
    fn drop(&mut self) {
        // ORDER: relaxed; see the writer.
        self.stop.store(true, Ordering::Relaxed);
        // The writer is last, and closes the ends, which ends the readers.
        for thread in self.threads.drain(..).rev() {
            let _ = thread.join();
        }
    }
}
