// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope npt`: the non-preempt test. A thread that has a CPU for itself, as far as the kernel lets it, reads the counter
//! again and again; what lies between two readings and is no iteration of the loop is what others took.
//!
//! The counter's rate is measured, not read from somewhere, and after the CPU was kept busy for a while: a clock that
//! just woke up runs differently on some machines. All that needs system calls is done before the loop and after it.

mod blame;
pub mod gap_loop;
mod measure;
pub mod options;
pub mod plot;
pub mod statistics;
pub mod text;

use crate::exit::Failure;
use crate::output;
use crate::stop;
use measure::Measurement;
use options::NptOptions;
use std::sync::Arc;
use std::thread::Builder;

/// Measures and reports.
pub fn run(options: &NptOptions) -> Result<(), Failure> {
    check(options)?;
    let cpu = cpu(options.cpu)?;
    // Before there is another thread, and before memory is locked.
    let event = gap_loop::Event::named(options.event.as_deref())
        .map_err(|why| Failure::Usage(format!("--event-of: {why}")))?;
    let stop = Arc::new(stop::on_signals()?);
    let (theirs, plan) = (Arc::clone(&stop), measure::Plan::of(options, event, cpu));
    // A thread of its own, so that its policy and its place end with it.
    let thread = Builder::new().name("npt".to_string()).spawn(move || measure::measure(&plan, &theirs));
    let thread = thread.map_err(|error| Failure::doing("starting a thread", error))?;
    let measurement = thread
        .join()
        .map_err(|_| Failure::Failed("the thread that measures has ended unexpectedly".to_string()))??;
    report(options, &measurement)
}

fn report(options: &NptOptions, measurement: &Measurement) -> Result<(), Failure> {
    measurement.notes.iter().for_each(|note| output::note(&format!("rtscope: {note}")));
    if let Some(file) = &options.plot {
        let series: Vec<plot::Series<'_>> = measurement
            .sections
            .iter()
            .map(|(name, statistics)| (*name, statistics.buckets.as_slice()))
            .collect();
        std::fs::write(
            file,
            plot::svg(&text::title(measurement), ["gap between two iterations", "iterations"], &series),
        )
        .map_err(|error| Failure::doing(format!("writing {}", file.display()), error))?;
    }
    output::result(&if options.json { measurement.json().to_string() } else { text::text(measurement) });
    Ok(())
}

fn check(options: &NptOptions) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure::Usage(text.to_string()));
    if options.loops.is_some_and(|loops| loops.0 == 0) {
        return usage("--loops: at least one iteration is needed");
    }
    if options.duration.is_some_and(|duration| duration.0 == 0) {
        return usage("--duration: it has to be longer than 0");
    }
    let windows = options.windows.map(|window| (window.0, window.0));
    let burst = options.burst.map(|burst| (burst.on, burst.off));
    if windows.or(burst).is_some_and(|(on, off)| on.min(off) < 1000) {
        return usage("--windows and --burst: a window lasts at least 1us");
    }
    Ok(())
}

/// The requested one, if this process may use it; without a request the last.
pub fn cpu(wanted: Option<usize>) -> Result<usize, Failure> {
    let allowed = rtscope_cpus::Thread::Calling
        .cpus()
        .map_err(|error| Failure::doing("asking which CPUs may be used", error))?;
    let mut usable = allowed.iter().map(|cpu| cpu as usize);
    match wanted {
        None => usable.last().ok_or_else(|| Failure::Failed("this process may use no CPU".to_string())),
        Some(cpu) if usable.any(|usable| usable == cpu) => Ok(cpu),
        Some(cpu) => {
            Err(Failure::Usage(format!("--cpu {cpu}: there is no such CPU, or this process may not use it")))
        }
    }
}
