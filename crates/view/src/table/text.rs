// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table for people.

use crate::clean;
use crate::npt::duration;
use rtscope_measure::npt::PERCENTILES;
use rtscope_measure::table::{KernelLatencyEnd, LIMITS_NS, Latency, Report, Row, RowResult};
use std::fmt::Write;

/// Width of the rows' names, and of a figure.
const NAME: usize = 15;
const FIGURE: usize = 11;
/// What is always shown; of the others, those that a row has.
const SHOWN: usize = 4;

/// Over a plot.
#[must_use]
pub fn title(report: &Report) -> String {
    format!(
        "shield table: CPU {}, SCHED_FIFO {}, {} wakeups at {}/s, Linux {}",
        report.cpu,
        report.priority,
        report.samples,
        1_000_000_000 / report.period_ns,
        report.release
    )
}

/// All of it. Names of others are in it only as they can be printed.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = title(report);
    let _ = writeln!(
        out,
        "\nreal-time CPUs {}; in a shield everything else is on CPUs {}",
        report.rt, report.others
    );
    latencies(
        &mut out,
        report,
        "user latency, t3-t0: from the programmed time until the thread runs",
        |result| result.user.as_ref(),
    );
    match &report.no_kernel_latency {
        Some(why) => {
            let _ = writeln!(
                out,
                "\nkernel latency, t1-t0: unknown ({})",
                why.lines().next().unwrap_or_default()
            );
        }
        None => {
            let entry = match report.kernel_latency_end {
                Some(KernelLatencyEnd::InterruptEntry) => "the interrupt is entered",
                _ => "the timer's handler is entered",
            };
            let head = format!("kernel latency, t1-t0: from the programmed time until {entry}");
            latencies(&mut out, report, &head, |result| result.kernel.as_ref());
            let head = "of the user latency, t3-t1: from the interrupt until the thread runs";
            latencies(&mut out, report, head, |result| result.wake_up.as_ref());
        }
    }
    work(&mut out, report);
    if !report.notes.is_empty() {
        out.push('\n');
        report.notes.iter().for_each(|note| {
            let _ = writeln!(out, "{note}");
        });
    }
    clean(&out)
}

fn cell(out: &mut String, text: &str) {
    let _ = write!(out, "{text:>FIGURE$}");
}

fn latencies(out: &mut String, report: &Report, head: &str, of: impl Fn(&RowResult) -> Option<&Latency>) {
    let known = |at: usize| {
        report
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
    for row in &report.rows {
        let _ = write!(out, "{:<NAME$}", row.kind.name());
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

fn work(out: &mut String, report: &Report) {
    let worked: Vec<&Row> =
        report.rows.iter().filter(|row| row.result().is_none_or(|result| result.work.is_some())).collect();
    let Some(loads) = &report.loads else { return };
    let _ = write!(out, "\nwhat the loads did\n{:<NAME$}", "");
    ["compute/s", "of stock", "disk MB/s", "echoes/s", "ioctls/s"].iter().for_each(|head| cell(out, head));
    out.push('\n');
    for row in worked {
        let Some(work) = row.result().and_then(|result| result.work.as_ref()) else { continue };
        let _ = write!(out, "{:<NAME$}", row.kind.name());
        cell(out, &format!("{:.0}", work.compute_per_s));
        cell(out, &work.compute_of_stock.map_or("n/a".to_owned(), |part| format!("{:.0} %", part * 100.0)));
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
