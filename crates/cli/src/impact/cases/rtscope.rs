// SPDX-License-Identifier: Apache-2.0 OR MIT
//! rtscope itself, as a user runs it: `record -u`, which empties the ring of the loop's thread, and the flight recorder, which
//! leaves it alone until the end.

use super::super::room::{Room, json_of};
use super::{Account, Kernel, Tracer};
use crate::schema;
use nix::sys::signal::Signal;
use rtscope_peers::{ChildProcess, Error};
use serde_json::Value;
use std::process::Command;

const OUTPUT: &str = "rtscope.json";
const EVENT: &str = "npt:loop";

#[derive(Debug)]
struct Rtscope {
    flight: bool,
    kernel: Kernel,
    running: Option<ChildProcess>,
}

/// `rtscope record -u`.
pub fn recorder() -> Box<dyn Tracer> {
    Box::new(Rtscope { flight: false, kernel: Kernel::No, running: None })
}

/// `rtscope record -u --flight-recorder`.
pub fn flight_recorder() -> Box<dyn Tracer> {
    Box::new(Rtscope { flight: true, kernel: Kernel::No, running: None })
}

impl Tracer for Rtscope {
    fn start(&mut self, room: &Room, kernel: Kernel) -> Result<(), Error> {
        let mut command = Command::new(&room.rtscope);
        command.args([
            "record",
            "--json",
            "-u",
            EVENT,
            "--user-buffer",
            &room.buffer_bytes.to_string(),
            "-o",
        ]);
        command.arg(room.fresh("rtscope")?);
        if self.flight {
            command.arg("--flight-recorder");
        }
        if kernel == Kernel::Yes {
            command.args(["-k", "sched:*,irq:*,syscalls", "--buffer", &room.buffer_bytes.to_string()]);
        }
        self.kernel = kernel;
        let running = self.running.insert(room.start(&mut command, "", OUTPUT)?);
        let words: &[&str] = match (self.flight, kernel) {
            (true, _) => &["record into memory"],
            (false, Kernel::No) => &["recording 'npt:loop'"],
            (false, Kernel::Yes) => &["recording 'npt:loop'", "recording tracepoints"],
        };
        running.until("it records", &|| room.stopped(), |running| {
            let said = running.said();
            words.iter().all(|word| said.iter().any(|line| line.contains(word)))
        })
    }

    fn stop(&mut self, room: &Room) -> Result<Account, Error> {
        let Some(mut running) = self.running.take() else { return Ok(Account::default()) };
        let status = running.end(Signal::SIGINT)?;
        if !status.success() {
            return Err(Error::Failed(format!(
                "rtscope record ended with {status}: {}",
                running.last_words()
            )));
        }
        let path = room.path(OUTPUT);
        let user = json_of(&path, schema::RECORD_USER)?;
        let mut account = Account {
            recorded: user["by_event"][EVENT].as_u64().unwrap_or(0),
            lost_said: losses(&user),
            overwrites: self.flight,
            ..Account::default()
        };
        if self.kernel == Kernel::Yes {
            let kernel = json_of(&path, schema::RECORD)?;
            account.kernel = kernel["events"].as_u64();
            account.lost_said = account.lost_said.zip(losses(&kernel)).map(|(user, kernel)| user + kernel);
        }
        Ok(account)
    }

    fn abandon(&mut self) {
        self.running = None;
    }
}

/// `None`: a loss of unknown number is among them.
fn losses(account: &Value) -> Option<u64> {
    account["losses"].as_array()?.iter().map(|loss| loss["count"].as_u64()).sum()
}
