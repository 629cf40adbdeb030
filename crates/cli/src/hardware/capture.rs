// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope hardware capture`: what it does is in `rtscope_session::hardware::capture`.

use super::options::CaptureOptions;
use crate::exit::Failure;
use crate::observer::Terminal;
use crate::output::{object, result};
use crate::stop;
use rtscope_session::hardware::capture::{self, CaptureMode, CaptureSettings};
use rtscope_view::hardware::{capture_json, capture_text};

/// Captures, and says what there is and what is missing.
pub fn run(options: &CaptureOptions) -> Result<(), Failure> {
    let json = options.json.begin()?;
    let settings = CaptureSettings {
        event: options.event.clone(),
        // One of them is there.
        output: options.recover.as_ref().or(options.output.as_ref()).cloned().unwrap_or_default(),
        recovers: options.recover.is_some(),
        cpus: options.cpu.clone(),
        pid: options.pid,
        places: options.at.clone(),
        aux_bytes: options.buffer.0,
        mode: if options.snapshot { CaptureMode::Snapshot } else { CaptureMode::Full },
        duration_ns: options.duration.map(|duration| duration.0),
        command: options.command.clone(),
        command_output: options.json.of_command(),
    };
    let (info, command) = capture::run(&settings, &stop::on_signals_later(None)?, &Terminal::new())?;
    if json {
        result(&object(capture_json(&info))?);
    } else {
        result(&capture_text(&info, &settings.output));
    }
    command?;
    match options.fail_if_lost && info.has_losses() {
        true => Err(Failure::Lost("something is missing (--fail-if-lost)".to_owned())),
        false => Ok(()),
    }
}
