// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The measuring thread: prepares, measures the counter's rate, runs the loop, and says what of that was not as asked.

use super::Settings;
use super::blame::{BlameRecorder, BlameReport};
use super::gap_loop::{self, GapLoop, LoopResult, LoopSettings, TRACED, UNTRACED};
use super::report::{CoreClock, Events, LongGap, LongGaps, Report, SCHEMA, Section};
use super::statistics::Statistics;
use nix::sys::mman::{MlockAllFlags, mlockall};
use rtscope_event::counted;
use rtscope_programs::clock::Pair;
use rtscope_session::realtime::{become_fifo, require_fifo};
use rtscope_session::{Failure, Stop};
use std::fs;
use std::time::{Duration, Instant};

/// For the clock of the core: some 30 us, which is mostly not interrupted.
const ADDITIONS: u64 = 100_000;
/// A change of the core's clock that is worth a note.
const CLOCK_CHANGE: f64 = 0.02;
/// This many of the longest gaps are listed.
const LISTED: usize = 10;

impl Settings {
    fn loop_settings(&self, ticks_per_ns: f64) -> LoopSettings {
        // At least one: 0 would be no limit.
        let ticks = |ns: u64| if ns == 0 { 0 } else { ((ns as f64 * ticks_per_ns) as u64).max(1) };
        LoopSettings {
            iterations: self.iterations,
            ticks: ticks(self.duration_ns),
            warm_up: self.warm_up,
            window: self
                .windows
                .map_or([0; 2], |windows| [windows.untraced_ns, windows.traced_ns])
                .map(ticks),
            interval: ticks(self.interval_ns),
            threshold: ticks(self.threshold_ns),
            frequency: (ticks_per_ns * 1e9) as u64,
        }
    }
}

/// On the calling thread, which it changes.
pub fn measure(settings: &Settings, stop: &Stop) -> Result<Report, Failure> {
    let mut notes = Vec::new();
    rtscope_cpus::Thread::Calling
        .set_cpus(&[settings.cpu as u32].into_iter().collect())
        .map_err(|error| Failure::doing(format!("going to CPU {}", settings.cpu), error))?;
    let locked = match mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE) {
        Ok(()) => true,
        Err(errno) => {
            notes.push(format!(
                "memory is not locked ({}): a page fault may be among the gaps; ulimit -l or CAP_IPC_LOCK allows it",
                errno.desc()
            ));
            false
        }
    };
    let blame = settings
        .blame_bytes
        .map(|bytes| BlameRecorder::start(bytes, settings.cpu, gap_loop::clock()))
        .transpose()?;
    let gap_loop = GapLoop::prepare(settings.event);
    let fifo = priority(settings.fifo, &mut notes)?;
    let kind = gap_loop::clock();
    let (begin, before_loop) = (spin(settings.spin, kind), spin(settings.spin, kind));
    let warm_up_rate = rate(begin.1, before_loop.1, kind);
    let core_before = ADDITIONS as f64 / gap_loop::core_ticks(ADDITIONS) as f64;
    let first = Pair::now(kind);
    let loop_result = gap_loop.run(&settings.loop_settings(warm_up_rate), stop.flag());
    let last = Pair::now(kind);
    let core_after = ADDITIONS as f64 / gap_loop::core_ticks(ADDITIONS) as f64;
    // The longer of the two measurements is the better one.
    let whole = last.monotonic_ns.saturating_sub(first.monotonic_ns) as u128 > settings.spin.as_nanos();
    let ticks_per_ns = if whole { rate(first, last, kind) } else { warm_up_rate };
    let core_ghz = [core_before, core_after].map(|additions_per_tick| additions_per_tick * ticks_per_ns);
    let sections = sections(settings, &loop_result, 1.0 / ticks_per_ns);
    if sections.is_empty() {
        return Err(Failure::Failed("it ended before the first iteration was counted".to_string()));
    }
    let blame_report = blame.map(|blame| blame_gaps(blame, settings, &loop_result)).transpose()?;
    notes_on_blame(blame_report.as_ref(), &mut notes);
    surroundings(settings, fifo, kind, core_ghz, &mut notes);
    Ok(Report {
        schema: SCHEMA,
        cpu: settings.cpu,
        fifo,
        memory_locked: locked,
        clock: clock_name(kind),
        ticks_per_second: ticks_per_ns * 1e9,
        rate_change_ppm: (ticks_per_ns / warm_up_rate - 1.0) * 1e6,
        core_ghz: CoreClock { before: core_ghz[0], after: core_ghz[1] },
        duration_ns: loop_result.ticks as f64 / ticks_per_ns,
        warm_up: settings.warm_up,
        windows: settings.windows,
        events: Events {
            generated: loop_result.events,
            recorded: loop_result.recorded,
            lost: loop_result.lost,
        },
        long_gaps: long_gaps(settings, &loop_result, ticks_per_ns),
        measured: sections,
        blame: blame_report,
        notes,
    })
}

fn sections(settings: &Settings, loop_result: &LoopResult, ns_per_tick: f64) -> Vec<Section> {
    let names: &[(&'static str, usize)] = match settings.windows {
        None => &[("all", TRACED)],
        Some(_) => &[("traced", TRACED), ("untraced", UNTRACED)],
    };
    let of = |(name, kind): &(&'static str, usize)| {
        let statistics = Statistics::of(&loop_result.windows[*kind], ns_per_tick)?;
        Some(Section { windows: name, statistics })
    };
    names.iter().filter_map(of).collect()
}

/// Asks the recorder about the long gaps.
fn blame_gaps(
    blame: BlameRecorder,
    settings: &Settings,
    loop_result: &LoopResult,
) -> Result<BlameReport, Failure> {
    let place = |gap: &gap_loop::LongGap| {
        let from = loop_result.begin.wrapping_add(gap.begin);
        (from, from.wrapping_add(gap.ticks))
    };
    let gaps: Vec<_> = loop_result.longs.iter().map(place).collect();
    let tid = nix::unistd::gettid().as_raw().unsigned_abs();
    blame.finish(settings.cpu, tid, loop_result.begin, &gaps)
}

fn notes_on_blame(blame_report: Option<&BlameReport>, notes: &mut Vec<String>) {
    let Some(blame_report) = blame_report else { return };
    let early = blame_report.gaps.iter().filter(|gap| gap.parts.is_none()).count();
    if early > 0 {
        notes.push(format!(
            "{} older than the oldest event in the buffer; use a larger --blame-buffer",
            counted(early, "of the long gaps is", "of the long gaps are")
        ));
    }
    match blame_report.lost {
        Some(0) => {}
        Some(lost) => {
            let lost = counted(lost, "event was", "events were");
            notes.push(format!("{lost} lost, so some parts may be attributed to something else"));
        }
        None => notes.push("this kernel does not report how many events it skipped".to_string()),
    }
}

/// A measurement with another priority than the one that was asked for is none.
fn priority(wanted: Option<u8>, notes: &mut Vec<String>) -> Result<Option<u8>, Failure> {
    let Some(priority) = wanted else {
        notes.push(
            "measured as an ordinary thread, so others may have had their share of the CPU; --fifo 80 measures as a \
             real-time thread"
                .to_string(),
        );
        return Ok(None);
    };
    require_fifo(priority)?;
    become_fifo(priority).map_err(|error| Failure::doing("taking a real-time priority", error))?;
    Ok(Some(priority))
}

/// Keeps the CPU busy, and gives counter and time at both ends.
fn spin(time: Duration, kind: u32) -> (Pair, Pair) {
    let begin = Pair::now(kind);
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
    (begin, Pair::now(kind))
}

/// Ticks per nanosecond. The nanosecond is CLOCK_MONOTONIC's.
fn rate(first: Pair, last: Pair, kind: u32) -> f64 {
    let ns = last.monotonic_ns.saturating_sub(first.monotonic_ns);
    if kind == rtscope_abi::program::RTU_CLOCK_MONOTONIC || ns == 0 {
        return 1.0;
    }
    last.counter.wrapping_sub(first.counter) as f64 / ns as f64
}

fn clock_name(kind: u32) -> &'static str {
    match kind {
        rtscope_abi::program::RTU_CLOCK_TSC => "tsc",
        rtscope_abi::program::RTU_CLOCK_CNTVCT => "cntvct",
        _ => "monotonic",
    }
}

/// What of the machine makes the figures mean something else.
fn surroundings(
    settings: &Settings,
    fifo: Option<u8>,
    kind: u32,
    core_ghz: [f64; 2],
    notes: &mut Vec<String>,
) {
    let number = |file: &str| {
        fs::read_to_string(format!("/proc/sys/kernel/{file}"))
            .ok()
            .and_then(|text| text.trim().parse::<i64>().ok())
    };
    let limit = number("sched_rt_runtime_us").zip(number("sched_rt_period_us"));
    let limited = limit.filter(|(runtime, period)| fifo.is_some() && (0..*period).contains(runtime));
    if let Some((runtime, period)) = limited {
        notes.push(format!(
            "real-time threads get at most {runtime} us of each {period} us while others want the CPU: the rest are gaps; \
             sysctl kernel.sched_rt_runtime_us=-1 removes the limit"
        ));
    }
    let [before, after] = core_ghz;
    if (after / before - 1.0).abs() > CLOCK_CHANGE {
        notes.push(format!(
            "the core's clock was {before:.2} GHz before and {after:.2} GHz after (turbo, power saving or a busy sibling): the \
             time of the loop changes with it"
        ));
    }
    if clock_name(kind) == "monotonic" {
        notes.push(
            "this CPU has no counter of constant rate: the kernel's clock was read, which takes longer"
                .to_string(),
        );
    }
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    if flags.split(' ').any(|flag| flag == "hypervisor") {
        notes.push("this is a virtual machine: its host may have caused gaps".to_string());
    }
    if settings.spin < Duration::from_millis(10) {
        notes.push("--spin is too short to measure the rate of the counter well".to_string());
    }
}

fn long_gaps(settings: &Settings, loop_result: &LoopResult, ticks_per_ns: f64) -> LongGaps {
    let mut longs = loop_result.longs.clone();
    longs.sort_by_key(|gap| std::cmp::Reverse(gap.ticks));
    let ns = |ticks: u64| ticks as f64 / ticks_per_ns;
    let listed = longs.iter().take(LISTED);
    LongGaps {
        threshold_ns: settings.threshold_ns,
        count: loop_result.longs_count,
        longest: listed.map(|gap| LongGap { at_ns: ns(gap.begin), ns: ns(gap.ticks) }).collect(),
        complete: loop_result.longs_count as usize <= LongGaps::KEPT,
    }
}
