// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield table`: the tables of the ARTiS paper, of this machine. How long a thread waits for its timer, and how much
//! of the machine is left for others: without and with load, and with load in each kind of shield.
//!
//! One process does it all, with one thread: the waiter and the loads are forks, which cannot outlive it. Rows are independent
//! of each other: each starts its own loads, and a shield is there for its row only.

mod child;
mod figures;
mod guard;
mod loads;
pub mod options;
mod row;
mod text;
mod waiter;

use crate::exit::Failure;
use crate::output::{note, result};
use crate::schema;
use crate::stop;
use loads::LoadDescriptions;
use options::{RowArg, TableOptions};
use row::{Row, RowResult, RowSettings};
use rtscope_kernel::TimerWatch;
use rtscope_shield::journal::Journal;
use rtscope_shield::{Cpus, Error, System, plan};
use rtscope_view::plot;
use serde_json::json;
use std::io::{IsTerminal, Write, stderr};

/// Memory of the samples: 160 MB.
const MOST_SAMPLES: u64 = 10_000_000;
/// A shorter period is shorter than what is measured.
const LEAST_PERIOD_NS: u64 = 50_000;
const MOST_PERIOD_NS: u64 = 1_000_000_000;

/// All of it.
#[derive(Debug)]
pub struct Table {
    pub rt: Cpus,
    pub others: Cpus,
    pub cpu: u32,
    pub release: String,
    pub settings: RowSettings,
    pub rows: Vec<Row>,
    /// What the loads were; `None` where no row had any.
    pub loads: Option<LoadDescriptions>,
    /// Why kernel latencies are not known.
    pub no_kernel_latency: Option<String>,
    /// Whether t1 is the entry of the interrupt; else of the timer's handler in it.
    pub sees_entry: bool,
    /// What the reader has to know of it.
    pub notes: Vec<String>,
}

/// Measures and reports.
pub fn table(system: &System, options: &TableOptions) -> Result<(), Failure> {
    check(options)?;
    if !system.is_real() {
        return Err(Failure::Usage("shield table measures the real machine only: leave --root out".into()));
    }
    let (rt, others) = cpus(system, options)?;
    if let Some(journal) = Journal::load(system)?.filter(|journal| !super::is_left(journal.state)) {
        return Err(Error::Exists(journal.rt).into());
    }
    let stop = stop::on_signals()?;
    let progress = Progress::new();
    let watch = TimerWatch::start();
    let no_kernel_latency = watch.as_ref().err().map(ToString::to_string);
    let watch = watch.ok();
    let cpu = rt.iter().next().unwrap_or_default();
    let settings = RowSettings::of(options, cpu, rt.len() + others.len());
    let mut table = Table {
        cpu,
        release: release(),
        settings,
        rows: Vec::new(),
        loads: None,
        sees_entry: watch.as_ref().is_some_and(TimerWatch::sees_entry),
        no_kernel_latency,
        notes: Vec::new(),
        rt,
        others,
    };
    for kind in &options.rows {
        if stop.asked() {
            break;
        }
        let row = row::measure(system, *kind, &table, options, watch.as_ref(), &stop, &progress)?;
        if let Some(descriptions) = row.result().and_then(|result| result.loads.clone()) {
            table.loads.get_or_insert(descriptions);
        }
        table.rows.push(row);
    }
    progress.clear();
    table.notes = text::notes(&table);
    report(options, &table)?;
    match stop.asked() {
        true => Err(Failure::Failed("stopped before the table was complete".into())),
        false => Ok(()),
    }
}

fn check(options: &TableOptions) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure::Usage(text.to_owned()));
    if !(1..=MOST_SAMPLES).contains(&options.samples.0) {
        return usage("--samples: from 1 to 10M");
    }
    if !(LEAST_PERIOD_NS..=MOST_PERIOD_NS).contains(&options.rate.0) {
        return usage("--rate: from 1/s to 20000/s");
    }
    if options.duration.is_some_and(|duration| duration.0 == 0) {
        return usage("--duration: it has to be longer than 0");
    }
    if !options.dir.is_dir() {
        return usage(&format!("--dir {}: there is no such directory", options.dir.display()));
    }
    Ok(())
}

/// Those that were asked for, or the last one; and all others.
fn cpus(system: &System, options: &TableOptions) -> Result<(Cpus, Cpus), Failure> {
    if let Some(rt) = &options.rt {
        return Ok(plan::split(system, rt)?);
    }
    let online = system.read("/sys/devices/system/cpu/online").unwrap_or_default();
    let last = Cpus::from_list(&online).unwrap_or_default().iter().last().unwrap_or_default();
    Ok(plan::split(system, &last.to_string())?)
}

fn release() -> String {
    let name = nix::sys::utsname::uname();
    name.map_or_else(|_| "?".to_owned(), |name| name.release().to_string_lossy().into_owned())
}

fn report(options: &TableOptions, table: &Table) -> Result<(), Failure> {
    if let Some(file) = &options.svg {
        let series: Vec<plot::Series<'_>> = table
            .rows
            .iter()
            .filter_map(|row| Some((row.name(), row.result()?.user.as_ref()?.statistics.buckets.as_slice())))
            .collect();
        let labels = ["user latency", "wakeups"];
        std::fs::write(file, plot::svg(&text::title(table), labels, &series))
            .map_err(|error| Failure::doing(format!("writing {}", file.display()), error))?;
    }
    if options.json {
        result(&json(table).to_string());
    } else {
        result(&rtscope_view::clean(&text::text(table)));
    }
    Ok(())
}

fn json(table: &Table) -> serde_json::Value {
    let stock = table.stock().and_then(|result| result.work.as_ref());
    let rows: Vec<serde_json::Value> = table.rows.iter().map(|row| row.json(stock)).collect();
    json!({
        "schema": schema::SHIELD_TABLE,
        "release": table.release,
        "rt": table.rt.to_string(),
        "others": table.others.to_string(),
        "cpu": table.cpu,
        "priority": table.settings.waiter.priority,
        "period_ns": table.settings.waiter.period_ns,
        "samples": table.settings.waiter.samples,
        "t1": match (&table.no_kernel_latency, table.sees_entry) {
            (Some(_), _) => None,
            (None, true) => Some("interrupt entry"),
            (None, false) => Some("timer entry"),
        },
        "t1_missing": table.no_kernel_latency,
        "loads": table.loads,
        "rows": rows,
        "notes": table.notes,
    })
}

impl Table {
    /// The row with which others are compared.
    pub fn stock(&self) -> Option<&RowResult> {
        self.rows.iter().find(|row| row.kind == RowArg::Stock).and_then(Row::result)
    }
}

/// A line on standard error that says what is being done: on a terminal it is written over.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
}

impl Progress {
    fn new() -> Progress {
        Progress { terminal: stderr().is_terminal() }
    }

    /// A row begins, or something in it.
    pub fn begin(&self, text: &str) {
        if self.terminal {
            self.go_on(text);
        } else {
            note(&format!("rtscope: {text}"));
        }
    }

    /// It goes on: only on a terminal.
    pub fn go_on(&self, text: &str) {
        if self.terminal {
            // There is nowhere to report a failure of this.
            let _ = write!(stderr().lock(), "\r\x1b[Krtscope: {text}");
        }
    }

    /// Makes the line free for other output.
    pub fn clear(&self) {
        if self.terminal {
            // As above.
            let _ = write!(stderr().lock(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
