// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The slow part, on a thread of its own: decode a snapshot, explain the late responses in it, save it.
//!
//! There is at most one snapshot under way. While it is, the frozen banks of the next one simply stay frozen; the kernel
//! side goes on recording in the other banks and counts the triggers that found none free.

use super::files::{self, TriggerFile};
use super::report::Report;
use crate::exit::Failure;
use rtscope_analyze::explain::{Explainer, Explanation};
use rtscope_collect::{Snapshot, Window};
use rtscope_ctf::TraceInfo;
use rtscope_event::{Irq, LateResponse, Loss, MonotonicNs, Recording, TaskInfo};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

/// A snapshot and what goes with it.
#[derive(Debug)]
pub struct Job {
    /// The copied banks.
    pub snapshot: Snapshot,
    /// What the trace shall cover.
    pub window: Window,
    /// State dump.
    pub tasks: Vec<TaskInfo>,
    /// State dump.
    pub irqs: Vec<(Irq, String)>,
    /// Events that the kernel skipped in that time.
    pub misses: Loss,
    /// The late response that pulled the trigger (if its account was not lost), then the others in the window.
    pub late: Vec<LateResponse>,
}

/// What became of a snapshot.
#[derive(Debug)]
pub struct Done {
    /// Its memory, for the next one.
    pub snapshot: Snapshot,
    /// Explanations of the late responses in it.
    pub explanations: Vec<Explanation>,
    /// It was to be saved, and that failed.
    pub failed: bool,
}

/// What the thread needs to know of the watch.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to save, if at all.
    pub dir: Option<PathBuf>,
    /// History wanted before a detection.
    pub pre_ns: u64,
    /// Time after it.
    pub post_ns: u64,
    /// What is watched, in words.
    pub watched: String,
}

/// The thread, and the channels to it.
#[derive(Debug)]
pub struct Writer {
    jobs: Option<SyncSender<Job>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
    under_way: bool,
}

impl Writer {
    /// Starts the thread.
    pub fn start(settings: Settings, report: Arc<Report>) -> Result<Writer, Failure> {
        let (jobs, to_do) = sync_channel::<Job>(1);
        let (finished, done) = sync_channel(2);
        let thread = std::thread::Builder::new()
            .name("rtscope-writer".to_string())
            .spawn(move || {
                while let Ok(job) = to_do.recv() {
                    if finished.send(work(job, &settings, &report)).is_err() {
                        return;
                    }
                }
            })
            .map_err(|error| Failure::doing("starting a thread", error))?;
        Ok(Writer { jobs: Some(jobs), done, thread: Some(thread), under_way: false })
    }

    /// Whether a snapshot can be given to it.
    pub fn is_free(&self) -> bool {
        !self.under_way
    }

    /// Hands a snapshot over.
    pub fn give(&mut self, job: Job) -> Result<(), Failure> {
        let jobs = self.jobs.as_ref().ok_or_else(|| Failure::Failed("the writer has ended".to_string()))?;
        jobs.send(job)
            .map_err(|_| Failure::Failed("the thread that saves snapshots has died".to_string()))?;
        self.under_way = true;
        Ok(())
    }

    /// What it has finished, if anything. A thread that died is an error, never a silent end of saving.
    pub fn poll(&mut self) -> Result<Option<Done>, Failure> {
        match self.done.try_recv() {
            Ok(done) => {
                self.under_way = false;
                Ok(Some(done))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                Err(Failure::Failed("the thread that saves snapshots has died".to_string()))
            }
        }
    }

    /// Waits for what is under way, and ends the thread.
    pub fn finish(&mut self) -> Vec<Done> {
        self.jobs = None;
        let rest: Vec<Done> = self.done.iter().collect();
        if let Some(thread) = self.thread.take() {
            // It panicked: its message is on standard error already.
            let _ = thread.join();
        }
        self.under_way = false;
        rest
    }
}

fn work(mut job: Job, settings: &Settings, report: &Report) -> Done {
    let recording = {
        let (tasks, irqs) = (std::mem::take(&mut job.tasks), std::mem::take(&mut job.irqs));
        let mut recording = job.snapshot.decode(job.window, tasks, irqs);
        if job.misses.count != Some(0) {
            recording.losses.push(job.misses.clone());
        }
        recording
    };
    let explainer = Explainer::new(&recording);
    let explanations: Vec<Explanation> = job.late.iter().map(|late| explainer.explain(late)).collect();
    let trigger = trigger_file(&job, settings, &recording, report);
    let text = report.explanation_file(&trigger, &explanations);
    let mut saved = None;
    let mut failed = false;
    if let Some(dir) = &settings.dir {
        let target =
            files::free_name(dir, &report.file_stamp(job.snapshot.detected), job.snapshot.generation);
        let info = TraceInfo::of_this_machine(env!("CARGO_PKG_VERSION"))
            .map_err(|error| Failure::Failed(error.to_string()));
        let result = info.and_then(|mut info| {
            info.window_begin = Some(trigger.from_ns);
            files::write(&target, &trigger, &text, &recording, &info)
        });
        match result {
            Ok(()) => saved = Some(target),
            Err(failure) => {
                failed = true;
                report.not_saved(&trigger, &failure);
            }
        }
    }
    report.snapshot(&trigger, &explanations, saved.as_deref());
    Done { snapshot: job.snapshot, explanations, failed }
}

fn trigger_file(job: &Job, settings: &Settings, recording: &Recording, report: &Report) -> TriggerFile {
    let wanted = job.snapshot.detected.minus(settings.pre_ns);
    TriggerFile {
        schema: files::SCHEMA.to_string(),
        producer: format!("rtscope {}", env!("CARGO_PKG_VERSION")),
        number: job.snapshot.generation,
        detected_ns: job.snapshot.detected,
        detected_at: report.wall_clock(job.snapshot.detected),
        pre_ns: settings.pre_ns,
        post_ns: settings.post_ns,
        from_ns: job.window.from,
        until_ns: job.window.until,
        pre_met: recording
            .history
            .iter()
            .all(|history| history.complete_since.is_none_or(|since| since <= wanted)),
        history: recording.history.clone(),
        losses: recording.losses.clone(),
        copied_ns: job.snapshot.copied_ns,
        watched: settings.watched.clone(),
        late: job.late.clone(),
    }
}

/// The late responses that belong to a snapshot: the one that pulled the trigger first, then those whose end is in the window.
pub fn in_window(
    all: impl Iterator<Item = LateResponse>,
    generation: u64,
    window: Window,
) -> Vec<LateResponse> {
    let inside = |at: MonotonicNs| window.from <= at && at <= window.until;
    let mut late: Vec<LateResponse> =
        all.filter(|late| late.snapshot == Some(generation) || inside(late.end_ns)).collect();
    late.sort_by_key(|late| (late.snapshot != Some(generation), late.end_ns));
    late
}
