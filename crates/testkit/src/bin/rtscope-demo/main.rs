// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `./x demo`: a control loop with a deadline, three disturbers one after the other and then none, and `rtscope watch`
//! that has to name them.
//!
//! The output of rtscope is checked against the notes of the programs themselves: how many responses were late, what
//! disturbed them, and for how much of a late response. Each saved trace is opened with babeltrace2.

mod check;
mod phase;
mod trace;
mod watch;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use rtscope_testkit::notes::print_line;
use rtscope_testkit::process::program;
use rtscope_testkit::sched;
use rtscope_testkit::time::parse_duration;
use serde_json::json;

use crate::check::Verdict;
use crate::phase::{PHASES, Setting};

/// Shows and checks rtscope on a control loop that real disturbers make late (about 20 seconds, as root).
#[derive(Debug, Parser)]
struct Options {
    /// How long each of the four phases lasts
    #[arg(long, default_value = "4s", value_parser = parse_duration)]
    phase: Duration,
    /// CPU of the control loop and its disturbers (default: the last one)
    #[arg(long)]
    cpu: Option<usize>,
    /// Keep the saved traces in this directory (default: a temporary one, removed at the end)
    #[arg(long)]
    keep: Option<PathBuf>,
    /// One JSON object at the end and no other output
    #[arg(long)]
    json: bool,
}

fn run(options: &Options) -> Result<bool> {
    let rtscope = program("rtscope")?;
    if !nix::unistd::Uid::effective().is_root() {
        bail!(
            "rtscope loads eBPF programs into the kernel and the demo uses real-time priorities: run it as root"
        );
    }
    let temporary =
        tempfile::Builder::new().prefix("rtscope-demo-").tempdir().context("a temporary directory")?;
    let directory = options.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    let cpu = options.cpu.map_or_else(sched::last_cpu, Ok)?;
    let setting = Setting { rtscope, directory, cpu, duration: options.phase, quiet: options.json };
    let mut verdicts = Vec::new();
    for (number, phase) in (1..).zip(&PHASES) {
        let observed =
            setting.observe(number, phase).with_context(|| format!("phase {number}, {}", phase.name))?;
        verdicts.push(check::judge(phase, &observed)?);
    }
    let ok = verdicts.iter().all(Verdict::ok);
    if options.json {
        let phases: Vec<_> = verdicts.iter().map(Verdict::to_json).collect();
        print_line(&json!({"schema": "rtscope.demo/1", "ok": ok, "phases": phases}));
    } else {
        // A reader that went away is not a reason to fail.
        let _ = io::stdout().write_all(report(&verdicts, ok).as_bytes());
    }
    Ok(ok)
}

fn report(verdicts: &[Verdict], ok: bool) -> String {
    let mut text = format!("\n{}\n", Verdict::TABLE_HEAD);
    for verdict in verdicts {
        text.push_str(&format!("{}\n", verdict.table_row()));
    }
    for problem in verdicts.iter().flat_map(|v| &v.problems) {
        text.push_str(&format!("FAILED: {problem}\n"));
    }
    for verdict in verdicts.iter().filter(|v| !v.ok() && !v.stolen.is_zero()) {
        let (phase, stolen) = (verdict.phase, verdict.stolen);
        text.push_str(&format!(
            "{phase}: a hypervisor took {stolen:?} of the CPU's time; try again when it is quiet\n"
        ));
    }
    text.push_str(if ok { "\nOK\n" } else { "\nFAILED\n" });
    text
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("rtscope-demo: {error:#}");
            ExitCode::from(2)
        }
    }
}
