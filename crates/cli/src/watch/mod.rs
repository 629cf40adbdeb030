// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope watch`: from its arguments to the settings of a watch (`rtscope_session::watch`), and what that says (`report`).

mod config;
pub mod options;
pub mod report;

use crate::args::{Args, Command};
use crate::exit::Failure;
use crate::stop;
use clap::{ArgMatches, FromArgMatches};
use options::{
    EndArg, IrqoffOptions, PairOptions, ResponseOptions, SyscallOptions, WatchArgs, WatchCommand,
    WatchOptions,
};
use report::Report;
use rtscope_analyze::pairing::PairQuestion;
use rtscope_event::{Tracker, WaitKind};
use rtscope_session::Observer;
use rtscope_session::watch::actions::{ActionSettings, CommandAction};
use rtscope_session::watch::{self, Verdict, WatchSettings};
use rtscope_view::clean;
use std::sync::Arc;

/// What was asked for: with options, or in a file.
pub fn run(options: WatchArgs, matches: &ArgMatches) -> Result<(), Failure> {
    if config::is_to_be_printed(matches) {
        crate::output::result(config::printed(matches)?.trim_end());
        return Ok(());
    }
    let Some(file) = &options.config else {
        return options.tracker.map_or(Ok(()), |tracker| start(settings(tracker)?));
    };
    let matches = config::read(file)?;
    let args = Args::from_arg_matches(&matches).map_err(|error| Failure::Usage(error.to_string()))?;
    let Command::Watch(WatchArgs { tracker: Some(tracker), .. }) = args.command else { return Ok(()) };
    let asked = settings(tracker)?;
    if options.check { check(asked, &file.to_string_lossy()) } else { start(asked) }
}

/// A watch, and what else its options ask for.
type Asked = (WatchSettings, WatchOptions);

fn settings(command: WatchCommand) -> Result<Asked, Failure> {
    match command {
        WatchCommand::Response(options) => responses(*options),
        WatchCommand::Wakeup(options) => Ok(tracker(Tracker::Wakeup, *options)),
        WatchCommand::Offcpu(options) => Ok(tracker(Tracker::Offcpu, *options)),
        WatchCommand::Lock(options) => Ok(tracker(Tracker::Lock, *options)),
        WatchCommand::Irq(options) => Ok(tracker(Tracker::Irq, *options)),
        WatchCommand::Softirq(options) => Ok(tracker(Tracker::Softirq, *options)),
        WatchCommand::Block(options) => Ok(tracker(Tracker::Block, *options)),
        WatchCommand::Preemptoff(options) => Ok(tracker(Tracker::Preemptoff, *options)),
        WatchCommand::Irqoff(options) => Ok(irqs_off(*options)),
        WatchCommand::Pair(options) => pairs(*options),
        WatchCommand::Work(options) => Ok(work(*options)),
        WatchCommand::Syscall(options) => Ok(syscalls(*options)),
    }
}

/// Watches responses until a signal, the duration, or COMMAND's end.
fn responses(options: ResponseOptions) -> Result<Asked, Failure> {
    check_waits(&options)?;
    let settings = WatchSettings {
        between: between(&options)?,
        end: options.end.into(),
        irqs: options.irq,
        timer: options.timer,
        begin: options.begin.iter().flat_map(|begin| begin.kinds()).copied().collect(),
        sources: if options.wait.is_empty() { WaitKind::SOURCES.to_vec() } else { options.wait },
        ..WatchSettings::of(options.watch.threshold.0)
    };
    Ok((settings, options.watch))
}

/// The same of a tracker that needs no options of its own.
fn tracker(tracker: Tracker, options: WatchOptions) -> Asked {
    (WatchSettings { tracker, ..WatchSettings::of(options.threshold.0) }, options)
}

/// System calls.
fn syscalls(options: SyscallOptions) -> Asked {
    let settings = WatchSettings::of(options.watch.threshold.0);
    (WatchSettings { tracker: Tracker::Syscall, calls: options.calls, ..settings }, options.watch)
}

/// Sections with interrupts off.
fn irqs_off(options: IrqoffOptions) -> Asked {
    let settings = WatchSettings::of(options.watch.threshold.0);
    let sample_ns = options.period.map(|period| period.0);
    (WatchSettings { tracker: Tracker::Irqoff, sample_ns, ..settings }, options.watch)
}

/// Two events that belong together.
fn pairs(options: PairOptions) -> Result<Asked, Failure> {
    let settings = WatchSettings::of(options.watch.threshold.0);
    let between = keyed_question(&options.from, &options.to, options.key.as_deref())?;
    Ok((WatchSettings { tracker: Tracker::Pair, between: Some(between), ..settings }, options.watch))
}

/// Pieces of work of programs.
fn work(options: WatchOptions) -> Asked {
    let settings = WatchSettings::of(options.threshold.0);
    (WatchSettings { between: Some(PairQuestion::of_work()), ..settings }, options)
}

/// Two events and what they have in common, from --from, --to and --key.
pub fn keyed_question(from: &str, to: &str, key: Option<&str>) -> Result<PairQuestion, Failure> {
    question(from, to, key).map_err(|why| Failure::Usage(format!("--from, --to, --key: {why}")))
}

fn question(from: &str, to: &str, key: Option<&str>) -> Result<PairQuestion, String> {
    let by = key.map_or(String::new(), |key| format!(" by {key}"));
    PairQuestion::parse(&format!("{from} -> {to}{by}"))
}

/// All that can be refused before anything is started.
fn check((settings, options): Asked, file: &str) -> Result<(), Failure> {
    verdict(&options).check()?;
    watch::check(&with_options(settings, options))
        .map_err(|failure| Failure::Usage(format!("{file}: {failure}")))?;
    crate::output::note(&format!(
        "rtscope: {}: all keys and values are known, and what they name is there; whether this kernel and these privileges allow it is seen when it starts",
        clean(file)
    ));
    Ok(())
}

fn start((settings, options): Asked) -> Result<(), Failure> {
    watch::keep_one_pool();
    let verdict = verdict(&options);
    verdict.check()?;
    let observer: Arc<dyn Observer> = Arc::new(Report::new(options.json.begin()?, options.verbose)?);
    let settings = with_options(settings, options);
    let (reports, command) = watch::run(&settings, &stop::on_signals_later(None)?, &observer)?;
    verdict.judge(&reports, rtscope_view::loss_line)?;
    command
}

fn verdict(options: &WatchOptions) -> Verdict {
    Verdict {
        fail_if_late: options.fail_if_late,
        fail_if_lost: options.fail_if_lost,
        conditions: options.fail_if.clone(),
    }
}

/// What would be ignored, or could begin no cycle, is refused.
fn check_waits(options: &ResponseOptions) -> Result<(), Failure> {
    if !options.wait.is_empty() && options.end != EndArg::Cycle {
        return Err(Failure::Usage("--wait says which waits begin cycles: it needs --end cycle".to_string()));
    }
    if options.wait.contains(&WaitKind::Stop) {
        return Err(Failure::Usage(
            "--wait stop: a thread that was stopped does not wait for its work; no cycle begins with that"
                .to_string(),
        ));
    }
    Ok(())
}

/// The two events between which the time is watched.
fn between(options: &ResponseOptions) -> Result<Option<PairQuestion>, Failure> {
    let (Some(from), Some(to)) = (&options.from, &options.to) else { return Ok(None) };
    question(from, to, options.by.as_deref())
        .map(Some)
        .map_err(|why| Failure::Usage(format!("--from, --to, --by: {why}")))
}

fn with_options(settings: WatchSettings, options: WatchOptions) -> WatchSettings {
    WatchSettings {
        task: options.task,
        pid: options.pid,
        tid: options.tid,
        also: options.and,
        snapshot_dir: options.snapshot_dir,
        snapshots_bytes: options.snapshots_size.map(|size| size.0),
        explain_text: Some(|trigger, explanations| {
            rtscope_view::explanation_file(trigger, explanations, rtscope_view::Style::default())
        }),
        record_breakers: options.record_breakers,
        actions: ActionSettings {
            report_interval_ns: options.report_rate.map(|rate| rate.0),
            command: options
                .exec
                .map(|exec| CommandAction { words: exec.0, interval_ns: options.exec_rate.0 }),
        },
        record_text: Some(|late, clock| {
            rtscope_view::late_json(late, Some(clock)).map(crate::output::json_as_asked)
        }),
        metrics: options.metrics.map(|address| address.0),
        kernel: options.kernel,
        programs: options.user,
        hardware: options.hardware.map(|event| (event, options.hardware_buffer.0)),
        bank_bytes: options.buffer.0,
        pre_ns: options.pre.0,
        post_ns: options.post.0,
        interval_ns: options.rate.0,
        stack_bytes: options.stacks.map(|bytes| u32::try_from(bytes.0).unwrap_or(u32::MAX)),
        duration_ns: options.duration.map(|duration| duration.0),
        timeout_ns: options.timeout.map(|timeout| timeout.0),
        command_output: options.json.of_command(),
        command: options.command,
        ..settings
    }
}
