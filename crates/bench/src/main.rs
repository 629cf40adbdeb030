// SPDX-License-Identifier: Apache-2.0 OR MIT
//! rtscope's benchmarks. Each measures rtscope beside the tool that people use today, in one run, on one CPU, in random
//! order, and subtracts what the machine does without either. Absolute times on a shared machine drift; the ratios are what counts.

mod blocks;
mod flip;
mod host;
mod idle;
mod inside;
mod kernel_events;
mod peers;
mod pipe;
mod queue;
mod read;
mod record;
mod rtscope;
mod shield;
mod state;
mod table;
mod tracker;
mod user_collector;
mod user_events;
mod user_rate;

use anyhow::{Result, bail};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("benchmark failed: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The CPU that loads are pinned to: the last one. The benchmark itself and its tools' readers stay on the others.
fn pipe_cpu() -> usize {
    std::thread::available_parallelism().map_or(0, |count| count.get() - 1)
}

/// True when every promise held.
fn run(words: &[String]) -> Result<bool> {
    let json = words.iter().any(|word| word == "--json");
    let quick = words.iter().any(|word| word == "--quick");
    let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let names: Vec<&str> = words.iter().map(String::as_str).filter(|word| !word.starts_with("--")).collect();
    let report = match names.as_slice() {
        ["kernel-events"] => kernel_events::run(quick)?,
        ["tracker"] => tracker::run(quick)?,
        ["flip"] => flip::run(quick)?,
        ["idle"] => idle::run(quick)?,
        ["state"] => state::run(quick)?,
        ["record"] => record::run(quick, "")?,
        ["record", only] => record::run(quick, only)?,
        ["system-calls", count] => return record::system_calls(count).map(|()| true),
        ["queue"] => queue::run(quick)?,
        ["shield"] => shield::run(quick)?,
        ["read"] => read::run(quick)?,
        ["user-events"] => user_events::run(quick)?,
        ["user-rate"] => user_rate::run(quick, value("--seconds"), value("--place"))?,
        _ => bail!(
            "name one benchmark: kernel-events, tracker, flip, idle, state, record, read, user-events, user-rate, queue (and --json, --quick; a part of a row's name after record; --seconds=30 and --place=disk with user-rate)"
        ),
    };
    println!("{}", if json { serde_json::to_string(&report)? } else { report.text() });
    Ok(report.promises.iter().all(|promise| promise.held))
}
