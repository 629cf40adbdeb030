// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table for people.

use super::Table;
use super::figures::{LIMITS_NS, Latency};
use super::row::{Row, RowResult};
use rtscope_measure::npt::PERCENTILES;
use rtscope_view::npt::duration;
use std::fmt::Write;

/// Width of the rows' names, and of a figure.
const NAME: usize = 15;
const FIGURE: usize = 11;
/// What is always shown; of the others, those that a row has.
const SHOWN: usize = 4;

/// Over a plot.
pub fn title(table: &Table) -> String {
    let settings = &table.settings.waiter;
    format!(
        "shield table: CPU {}, SCHED_FIFO {}, {} wakeups at {}/s, Linux {}",
        table.cpu,
        settings.priority,
        settings.samples,
        1_000_000_000 / settings.period_ns,
        table.release
    )
}

/// All of it.
pub fn text(table: &Table) -> String {
    let mut out = title(table);
    let _ = writeln!(
        out,
        "\nreal-time CPUs {}; in a shield everything else is on CPUs {}",
        table.rt, table.others
    );
    latencies(
        &mut out,
        table,
        "user latency, t3-t0: from the programmed time until the thread runs",
        |result| result.user.as_ref(),
    );
    match &table.no_kernel_latency {
        Some(why) => {
            let _ = writeln!(
                out,
                "\nkernel latency, t1-t0: unknown ({})",
                why.lines().next().unwrap_or_default()
            );
        }
        None => {
            let entry =
                if table.sees_entry { "the interrupt is entered" } else { "the timer's handler is entered" };
            let head = format!("kernel latency, t1-t0: from the programmed time until {entry}");
            latencies(&mut out, table, &head, |result| result.kernel.as_ref());
            let head = "of the user latency, t3-t1: from the interrupt until the thread runs";
            latencies(&mut out, table, head, |result| result.wake_up.as_ref());
        }
    }
    work(&mut out, table);
    if !table.notes.is_empty() {
        out.push('\n');
        table.notes.iter().for_each(|note| {
            let _ = writeln!(out, "{note}");
        });
    }
    out
}

fn cell(out: &mut String, text: &str) {
    let _ = write!(out, "{text:>FIGURE$}");
}

fn latencies(out: &mut String, table: &Table, head: &str, of: impl Fn(&RowResult) -> Option<&Latency>) {
    let known = |at: usize| {
        table
            .rows
            .iter()
            .filter_map(Row::result)
            .filter_map(&of)
            .any(|latency| latency.statistics.percentiles_ns[at].is_some())
    };
    let percentiles: Vec<usize> = (0..PERCENTILES.len()).filter(|at| *at < SHOWN || known(*at)).collect();
    let _ = write!(out, "\n{head}\n{:<NAME$}", "");
    cell(out, "wakeups");
    percentiles.iter().for_each(|at| cell(out, &format!("{} %", PERCENTILES[*at])));
    cell(out, "max");
    LIMITS_NS.iter().for_each(|limit| cell(out, &format!("> {}", whole(*limit))));
    out.push('\n');
    for row in &table.rows {
        let _ = write!(out, "{:<NAME$}", row.name());
        match &row.outcome {
            Err(why) => {
                let _ = write!(out, "  not measured: {}", why.lines().next().unwrap_or_default());
            }
            Ok(result) => match of(result) {
                None => out.push_str("  nothing was measured"),
                Some(latency) => figures(out, latency, &percentiles),
            },
        }
        out.push('\n');
    }
}

fn figures(out: &mut String, latency: &Latency, percentiles: &[usize]) {
    let statistics = &latency.statistics;
    cell(out, &statistics.count.to_string());
    for at in percentiles {
        cell(out, &statistics.percentiles_ns[*at].map_or("n/a".to_owned(), duration));
    }
    cell(out, &duration(statistics.max_ns));
    latency.above.iter().for_each(|count| cell(out, &count.to_string()));
}

/// 100 us, 1 ms.
fn whole(ns: u64) -> String {
    match ns {
        ns if ns < 1_000_000 => format!("{} us", ns / 1000),
        ns => format!("{} ms", ns / 1_000_000),
    }
}

fn work(out: &mut String, table: &Table) {
    let worked: Vec<&Row> =
        table.rows.iter().filter(|row| row.result().is_none_or(|result| result.work.is_some())).collect();
    let Some(loads) = &table.loads else { return };
    let _ = write!(out, "\nwhat the loads did\n{:<NAME$}", "");
    ["compute/s", "of stock", "disk MB/s", "echoes/s", "ioctls/s"].iter().for_each(|head| cell(out, head));
    out.push('\n');
    let stock = table.stock().and_then(|result| result.work.as_ref());
    for row in worked {
        let Some(work) = row.result().and_then(|result| result.work.as_ref()) else { continue };
        let _ = write!(out, "{:<NAME$}", row.name());
        cell(out, &format!("{:.0}", work.compute_per_s));
        cell(out, &work.of_stock(stock).map_or("n/a".to_owned(), |part| format!("{:.0} %", part * 100.0)));
        cell(out, &format!("{:.1}", work.disk_mb_per_s));
        cell(out, &format!("{:.0}", work.echoes_per_s));
        cell(out, &format!("{:.0}", work.ioctls_per_s));
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "loads, all at once: {} compute loops; disk: {}; network: {}; ioctl: {}",
        loads.compute_loops, loads.disk, loads.network, loads.ioctl
    );
}

/// What the reader has to know.
pub fn notes(table: &Table) -> Vec<String> {
    let mut notes = Vec::new();
    for row in &table.rows {
        let Some(result) = row.result() else { continue };
        let name = row.name();
        if let Some(why) = &result.cut {
            notes.push(format!("{name}: fewer wakeups than requested: {why}"));
        }
        if result.skipped > 0 {
            notes.push(format!(
                "{name}: {} expiries had passed before they could be waited for, because an earlier response took too long",
                result.skipped
            ));
        }
        if result.elsewhere > 0 {
            notes.push(format!("{name}: {} interrupts came on another CPU", result.elsewhere));
        }
        if let (Some(user), Some(kernel), None) = (&result.user, &result.kernel, &table.no_kernel_latency) {
            let unseen = user.statistics.count - kernel.statistics.count;
            if unseen > 0 {
                let misses = result.misses.map_or("an unknown number of".to_owned(), |n| n.to_string());
                notes.push(format!(
                    "{name}: {unseen} interrupts were not seen; their kernel latency is not known (the kernel skipped the \
                     eBPF programs {misses} times)"
                ));
            }
        }
        result.not_undone.iter().for_each(|what| notes.push(format!("{name}: not restored: {what}")));
    }
    notes.extend(unknown_percentiles(table));
    notes
}

/// Those for which there are too few samples.
fn unknown_percentiles(table: &Table) -> Option<String> {
    let most =
        table.rows.iter().filter_map(|row| Some(row.result()?.user.as_ref()?.statistics.count)).max()?;
    let unknown: Vec<String> = PERCENTILES
        .iter()
        .filter(|percent| most as f64 * (100.0 - **percent) / 100.0 < 1.0 - 1e-6)
        .map(|percent| format!("{percent} % (needs {:.0} wakeups)", 100.0 / (100.0 - percent)))
        .collect();
    (!unknown.is_empty()).then(|| format!("unknown with {most} wakeups: {}", unknown.join(", ")))
}
