// SPDX-License-Identifier: Apache-2.0 OR MIT
//! rtscope itself, as a user runs it: `record -u`, which empties the ring of the loop's thread, and the flight recorder, which
//! leaves it alone until the end.

use super::super::setup::{Setup, json_of};
use super::{KernelEvents, TraceCounts, Tracer};
use nix::sys::signal::Signal;
use rtscope_session::schema;
use rtscope_tracers::{ChildProcess, Error};
use serde_json::Value;
use std::process::Command;

const OUTPUT: &str = "rtscope.json";
const EVENT: &str = "npt:loop";

#[derive(Debug)]
struct Rtscope {
    flight: bool,
    kernel: KernelEvents,
    running: Option<ChildProcess>,
}

/// `rtscope record -u`.
pub fn recorder() -> Box<dyn Tracer> {
    Box::new(Rtscope { flight: false, kernel: KernelEvents::No, running: None })
}

/// `rtscope record -u --flight-recorder`.
pub fn flight_recorder() -> Box<dyn Tracer> {
    Box::new(Rtscope { flight: true, kernel: KernelEvents::No, running: None })
}

impl Tracer for Rtscope {
    fn start(&mut self, setup: &Setup<'_>, kernel: KernelEvents) -> Result<(), Error> {
        let mut command = Command::new(&setup.rtscope);
        command.args([
            "record",
            "--json",
            // How much is lost is what is measured.
            "--fail-if-lost=100%",
            "-u",
            EVENT,
            "--user-buffer",
            &setup.buffer_bytes.to_string(),
            "-o",
        ]);
        command.arg(setup.fresh("rtscope")?);
        if self.flight {
            command.arg("--flight-recorder");
        }
        if kernel == KernelEvents::Yes {
            command.args(["-k", "sched:*,irq:*,syscalls", "--buffer", &setup.buffer_bytes.to_string()]);
        }
        self.kernel = kernel;
        let running = self.running.insert(setup.start(&mut command, "", OUTPUT)?);
        let words: &[&str] = match (self.flight, kernel) {
            (true, _) => &["record into memory"],
            (false, KernelEvents::No) => &["recording 'npt:loop'"],
            (false, KernelEvents::Yes) => &["recording 'npt:loop'", "recording tracepoints"],
        };
        running.until("it records", &|| setup.stopped(), |running| {
            let said = running.said();
            words.iter().all(|word| said.iter().any(|line| line.contains(word)))
        })
    }

    fn stop(&mut self, setup: &Setup<'_>) -> Result<TraceCounts, Error> {
        let Some(mut running) = self.running.take() else { return Ok(TraceCounts::default()) };
        let status = running.end(Signal::SIGINT)?;
        if !status.success() {
            return Err(Error::Failed(format!(
                "rtscope record ended with {status}: {}",
                running.last_words()
            )));
        }
        let path = setup.path(OUTPUT);
        let user = json_of(&path, schema::RECORD_USER)?;
        let mut counts = TraceCounts {
            recorded: user["by_event"][EVENT].as_u64().unwrap_or(0),
            lost_reported: losses(&user),
            overwrites: self.flight,
            ..TraceCounts::default()
        };
        if self.kernel == KernelEvents::Yes {
            let kernel = json_of(&path, schema::RECORD)?;
            counts.kernel = kernel["events"].as_u64();
            counts.lost_reported =
                counts.lost_reported.zip(losses(&kernel)).map(|(user, kernel)| user + kernel);
        }
        Ok(counts)
    }

    fn abandon(&mut self) {
        self.running = None;
    }
}

/// `None`: a loss of unknown number is among them.
fn losses(summary: &Value) -> Option<u64> {
    // A gap is no lost event: the host hid switches there.
    let losses = summary["losses"].as_array()?.iter().filter(|loss| loss["cause"] != "gap");
    losses.map(|loss| loss["count"].as_u64()).sum()
}
