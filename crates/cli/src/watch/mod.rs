// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope watch response`: from its arguments to the settings of a watch (`rtscope_session::watch`), and what that says (`report`).

pub mod report;

use crate::args::ResponseOptions;
use crate::exit::Failure;
use crate::stop;
use report::Report;
use rtscope_session::Observer;
use rtscope_session::watch::{self, WatchSettings};
use std::sync::Arc;

/// Watches until a signal, the duration, or COMMAND's end.
pub fn run(options: ResponseOptions) -> Result<(), Failure> {
    watch::keep_one_pool();
    let fail_if_late = options.fail_if_late;
    let report: Arc<dyn Observer> = Arc::new(Report::new(options.json)?);
    let late = watch::run(&settings(options), &stop::on_signals_later(None)?, &report)?;
    if fail_if_late && late > 0 { Err(Failure::Late(late)) } else { Ok(()) }
}

fn settings(options: ResponseOptions) -> WatchSettings {
    WatchSettings {
        threshold_ns: options.threshold.0,
        task: options.task,
        pid: options.pid,
        end: options.end.into(),
        irqs: options.irq,
        timer: options.timer,
        snapshot_dir: options.snapshot_dir,
        explain_text: Some(rtscope_view::explanation_file),
        kernel: options.kernel,
        programs: options.user,
        bank_bytes: options.buffer.0,
        pre_ns: options.pre.0,
        post_ns: options.post.0,
        interval_ns: options.rate.0,
        duration_ns: options.duration.map(|duration| duration.0),
        command: options.command,
    }
}
