// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The slow part, on a thread of its own: decode a snapshot, explain the late responses in it, save it.
//!
//! There is at most one snapshot under way. While it is, the frozen banks of the next one simply stay frozen; the kernel
//! side goes on recording in the other banks and counts the triggers that found none free.

use super::actions::Actions;
use super::files;
use super::ftrace::FtracePart;
use super::hardware::HardwarePart;
use super::memory::give_back;
use super::observable::{is_judged_later, is_observable};
use super::settings::ExplainText;
use super::shares::SavedBytes;
use crate::program_flight::{ProgramBytes, UserPart};
use crate::{Failure, Observer, wall_clock};
use rtscope_analyze::explain::{Explainer, Explanation};
use rtscope_analyze::own::{OwnPart, OwnTime};
use rtscope_ctf::TraceInfo;
use rtscope_event::WallClock;
use rtscope_event::{Irq, LateResponse, Loss, Pid, Recording, TaskInfo};
use rtscope_flight::{Snapshot, Window};
use rtscope_store::trigger::TriggerFile;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

/// What others than eBPF held of a snapshot, if they record.
#[derive(Debug, Default)]
pub struct Parts {
    /// ftrace.
    pub ftrace: Option<FtracePart>,
    /// Programs' rings.
    pub user: Option<UserPart>,
    /// A trace unit.
    pub hardware: Option<HardwarePart>,
}

/// A snapshot and what goes with it.
#[derive(Debug)]
pub struct Job {
    /// The copied banks.
    pub snapshot: Snapshot,
    /// What the trace shall cover; `None`: this is for explanations only, nothing is saved.
    pub trace: Option<Window>,
    /// What others held of that.
    pub parts: Parts,
    /// What is decoded: the trace, and before it the late responses since the last snapshot.
    pub window: Window,
    /// State dump.
    pub tasks: Vec<TaskInfo>,
    /// State dump.
    pub irqs: Vec<(Irq, String)>,
    /// Events that the kernel skipped in that time.
    pub misses: Loss,
    /// The late response that pulled the trigger (if its report was not lost), then the others to be explained.
    pub late: Vec<LateResponse>,
}

/// What became of a snapshot.
#[derive(Debug)]
pub struct FinishedJob {
    /// Its memory, for the next one.
    pub snapshot: Snapshot,
    /// Explanations of the late responses in it, and rtscope's own part in each.
    pub explanations: Vec<(Explanation, OwnPart)>,
    /// What was not late, as far as could be observed.
    pub unobserved: Vec<LateResponse>,
    /// There was no late response for which it was taken, so it was not kept.
    pub dropped: bool,
    /// It was to be saved, and that failed.
    pub failed: bool,
    /// What it takes on the disk, if it was saved.
    pub saved: Option<SavedBytes>,
    /// What there was of programs in it.
    pub programs: ProgramBytes,
    /// The unit's rings, which go on.
    pub hardware: Option<HardwarePart>,
}

/// What the thread needs to know of the watch.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to save, if at all.
    pub dir: Option<PathBuf>,
    /// History requested before a detection.
    pub pre_ns: u64,
    /// Time after it.
    pub post_ns: u64,
    /// What is watched, in words.
    pub watched: String,
    /// What `explain.txt` says.
    pub explain_text: Option<ExplainText>,
    /// For names and for people.
    pub clock: WallClock,
}

/// The thread, and the channels to it.
#[derive(Debug)]
pub struct Writer {
    jobs: Option<SyncSender<Job>>,
    done: Receiver<FinishedJob>,
    thread: Option<JoinHandle<()>>,
    under_way: bool,
}

impl Writer {
    /// Starts the thread.
    pub fn start(
        settings: Settings,
        observer: Arc<dyn Observer>,
        actions: Arc<Actions>,
    ) -> Result<Writer, Failure> {
        let (jobs, to_do) = sync_channel::<Job>(1);
        let (finished, done) = sync_channel(2);
        let thread = std::thread::Builder::new()
            .name("rtscope-writer".to_string())
            .spawn(move || {
                while let Ok(job) = to_do.recv() {
                    if finished.send(work(job, &settings, observer.as_ref(), &actions)).is_err() {
                        return;
                    }
                    give_back();
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
    pub fn poll(&mut self) -> Result<Option<FinishedJob>, Failure> {
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

    /// Waits for what is under way.
    pub fn wait(&mut self) -> Result<Option<FinishedJob>, Failure> {
        if !self.under_way {
            return Ok(None);
        }
        self.under_way = false;
        let died = |_| Failure::Failed("the thread that saves snapshots has died".to_string());
        self.done.recv().map(Some).map_err(died)
    }

    /// Waits for what is under way, and ends the thread.
    pub fn finish(&mut self) -> Vec<FinishedJob> {
        self.jobs = None;
        let rest: Vec<FinishedJob> = self.done.iter().collect();
        if let Some(thread) = self.thread.take() {
            // It panicked: its message is on standard error already.
            let _ = thread.join();
        }
        self.under_way = false;
        rest
    }
}

fn work(mut job: Job, settings: &Settings, observer: &dyn Observer, actions: &Actions) -> FinishedJob {
    let mut recording = {
        let (tasks, irqs) = (std::mem::take(&mut job.tasks), std::mem::take(&mut job.irqs));
        job.snapshot.decode(job.window, tasks, irqs)
    };
    recording.losses.extend(job.parts.ftrace.iter().flat_map(|part| part.losses.iter().cloned()));
    if job.misses.count != Some(0) {
        recording.losses.push(job.misses.clone());
    }
    let saved =
        |late: &&LateResponse| job.trace.is_some_and(|trace| is_inside(late, job.snapshot.generation, trace));
    let others = job.late.split_off(job.late.iter().take_while(saved).count());
    let others = Judged::new(&recording, others);
    // Those that are saved are explained from what is saved, and not from what came before: whoever repeats it finds the same.
    if let Some(trace) = job.trace {
        recording.cut_before(trace.from);
    }
    let mut judged = Judged::new(&recording, std::mem::take(&mut job.late));
    judged.append(others);
    let Judged { late, explanations, parts, unobserved } = judged;
    late.iter().filter(|late| is_judged_later(late)).for_each(|late| actions.late(late));
    job.late = late;
    let pulled = |late: &LateResponse| job.trace.is_some() && late.snapshot == Some(job.snapshot.generation);
    let dropped = unobserved.iter().any(pulled);
    let (saved, failed) = match job.trace.filter(|_| !dropped) {
        Some(trace) => {
            let saved = keep(&job, trace, &recording, &explanations, settings, observer);
            (saved.as_ref().ok().copied().flatten(), saved.is_err())
        }
        None => {
            observer.explained(&explanations);
            (None, false)
        }
    };
    let programs = job.parts.user.as_ref().map(UserPart::program_bytes).unwrap_or_default();
    let explanations = explanations.into_iter().zip(parts).collect();
    let hardware = job.parts.hardware;
    FinishedJob {
        snapshot: job.snapshot,
        explanations,
        unobserved,
        dropped,
        failed,
        saved,
        programs,
        hardware,
    }
}

/// Late responses with their explanations and rtscope's own part in each, and those that could not be observed.
struct Judged {
    late: Vec<LateResponse>,
    explanations: Vec<Explanation>,
    parts: Vec<OwnPart>,
    unobserved: Vec<LateResponse>,
}

impl Judged {
    fn new(recording: &Recording, all: Vec<LateResponse>) -> Judged {
        let explainer = Explainer::new(recording);
        let own = OwnTime::new(recording, Pid(std::process::id()));
        let mut judged =
            Judged { late: Vec::new(), explanations: Vec::new(), parts: Vec::new(), unobserved: Vec::new() };
        for late in all {
            let explanation = explainer.explain(&late);
            if is_observable(&explanation, recording) {
                judged.parts.push(own.part(&explanation));
                judged.explanations.push(explanation);
                judged.late.push(late);
            } else {
                judged.unobserved.push(late);
            }
        }
        judged
    }

    fn append(&mut self, mut others: Judged) {
        self.late.append(&mut others.late);
        self.explanations.append(&mut others.explanations);
        self.parts.append(&mut others.parts);
        self.unobserved.append(&mut others.unobserved);
    }
}

/// Saves a snapshot, if that was asked for, and prints it. An error has been told.
fn keep(
    job: &Job,
    trace: Window,
    recording: &Recording,
    explanations: &[Explanation],
    settings: &Settings,
    observer: &dyn Observer,
) -> Result<Option<SavedBytes>, ()> {
    let trigger = trigger_file(job, trace, settings, recording);
    let saved =
        settings.dir.as_ref().map(|dir| save(dir, &trigger, (recording, &job.parts), explanations, settings));
    let saved = saved.transpose().map_err(|failure| observer.snapshot_lost(&trigger, &failure));
    let path = saved.as_ref().ok().and_then(|saved| saved.as_ref());
    observer.snapshot(&trigger, explanations, path.map(|(path, _)| path.as_path()));
    saved.map(|saved| saved.map(|(_, bytes)| bytes))
}

fn save(
    dir: &Path,
    trigger: &TriggerFile,
    evidence: files::Evidence<'_>,
    explanations: &[Explanation],
    settings: &Settings,
) -> Result<(PathBuf, SavedBytes), Failure> {
    let stamp = wall_clock::file_stamp(&settings.clock, trigger.detected_ns);
    let mut info = TraceInfo::of_this_machine(env!("CARGO_PKG_VERSION"))
        .map_err(|error| Failure::doing("reading the clocks", error))?;
    info.window_begin = Some(trigger.from_ns);
    // The saved text is what `rtscope explain` makes of the saved files: only what the trace covers.
    let kept = explanations.iter().take(trigger.late.len());
    let kept: Vec<Explanation> = kept.cloned().collect();
    let text = settings.explain_text.map(|text| text(trigger, &kept));
    loop {
        let target = files::free_name(dir, &stamp, trigger.number);
        if let Some(bytes) = files::write(&target, trigger, text.as_deref(), evidence, &info)? {
            return Ok((target, bytes));
        }
    }
}

fn trigger_file(job: &Job, trace: Window, settings: &Settings, recording: &Recording) -> TriggerFile {
    let wanted = job.snapshot.detected.minus(settings.pre_ns);
    TriggerFile {
        schema: rtscope_store::trigger::SCHEMA.to_string(),
        producer: format!("rtscope {}", env!("CARGO_PKG_VERSION")),
        number: job.snapshot.generation,
        detected_ns: job.snapshot.detected,
        detected_at: wall_clock::rfc3339(&settings.clock, job.snapshot.detected),
        pre_ns: settings.pre_ns,
        post_ns: settings.post_ns,
        from_ns: trace.from,
        until_ns: trace.until,
        ftrace_from_ns: job.parts.ftrace.as_ref().map(|part| part.pages.from),
        pre_met: recording
            .history
            .iter()
            .all(|history| history.complete_since.is_none_or(|since| since <= wanted)),
        history: recording.history.clone(),
        losses: recording.losses.clone(),
        copied_ns: job.snapshot.copied_ns,
        watched: settings.watched.clone(),
        late: job
            .late
            .iter()
            .take_while(|late| is_inside(late, job.snapshot.generation, trace))
            .cloned()
            .collect(),
    }
}

/// Whether a saved trace covers a late response from its origin to its end.
fn is_inside(late: &LateResponse, generation: u64, trace: Window) -> bool {
    late.snapshot == Some(generation)
        || (trace.from <= late.chain.origin.time_ns && late.end_ns <= trace.until)
}

/// The late responses in the order that a job has them: the one that pulled the trigger, those that the trace covers, the rest.
pub fn in_order(mut late: Vec<LateResponse>, generation: u64, trace: Option<Window>) -> Vec<LateResponse> {
    late.sort_by_key(|late| {
        let inside = trace.is_some_and(|trace| is_inside(late, generation, trace));
        (late.snapshot != Some(generation), !inside, late.end_ns)
    });
    late
}
