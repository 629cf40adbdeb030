// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two processes of mode artis, as `rtscope shield create` starts them: what they do is in `rtscope_session::shield::keeper`.

use super::options::{GuardOptions, KeepOptions};
use crate::exit::Failure;
use crate::output::{result, try_note};
use crate::stop;
use rtscope_session::Observer;
use rtscope_session::shield::keeper::{self, Surroundings};
use rtscope_shield::System;
use rtscope_view::clean;
use std::fs::OpenOptions;
use std::io::{Write, stdin};

/// Our log, and the kernel's, which is read first after an accident.
#[derive(Debug)]
struct Logs;

impl Observer for Logs {
    fn note(&self, text: &str) {
        let text = clean(text).replace('\n', " ");
        // A closed standard error leaves the kernel's log.
        let _ = try_note(&format!("rtscope: {text}"));
        if let Ok(mut log) = OpenOptions::new().write(true).open("/dev/kmsg") {
            // One write is one message. Our own log has it, too.
            let _ = log.write_all(format!("<4>rtscope: {text}\n").as_bytes());
        }
    }
}

/// For our log alone.
fn dump(text: &str) {
    let _ = try_note(clean(text).trim_end());
}

/// Holds the scheduler until it gets a signal, or the scheduler has ended.
pub fn keep(system: &System, options: &KeepOptions) -> Result<(), Failure> {
    let around = Surroundings { stdin: &stdin(), answer: result, observer: &Logs, dump };
    keeper::keep(system, &options.rt, &stop::on_signals()?, &around)
}

/// Waits until the keeper has ended, and isolates the CPUs unless the shield is being undone.
pub fn guard(system: &System, options: &GuardOptions) -> Result<(), Failure> {
    let around = Surroundings { stdin: &stdin(), answer: result, observer: &Logs, dump };
    keeper::guard(system, (&options.rt, &options.keeper()), &stop::on_signals()?, &around)
}
