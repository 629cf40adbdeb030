// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plant: starts the cameras and the statistics, processes what the cameras send (RT1 workers, by bands of each frame), has each defect
//! analysed (an RT2 task each, so their number varies), and compares what went in with what came out.

use crate::camera::{self, Taken};
use crate::class::{Marks, Soft};
use crate::frame::{Frame, HEIGHT, WIDTH, planted};
use crate::imaging::{self, Blob, Mark};
use crate::statistics::{Record, Sum};
use anyhow::{Context, Result, bail};
use rtscope_queue::{Consumer, Producer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// Records of frames; the statistics look 50 times a second.
const RECORDS: u64 = 1024;

/// What the plant needs to know.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The CPU of each camera, which is an RT0 task: as many cameras as CPUs
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub cpus: Vec<u32>,
    /// The cameras run under rtscope shield run (a shield has to be there), by this program
    #[arg(long, value_name = "RTSCOPE")]
    pub shield: Option<PathBuf>,
    /// Frames of each camera
    #[arg(long, default_value_t = 1000)]
    pub frames: u64,
    /// Each camera takes a frame in so long
    #[arg(long, default_value = "10ms", value_parser = humantime::parse_duration)]
    pub period: Duration,
    /// A frame that is in its queue later than that after it was due is late
    #[arg(long, default_value = "2ms", value_parser = humantime::parse_duration)]
    pub deadline: Duration,
    /// Frames that fit into a camera's queue, a power of two
    #[arg(long, default_value_t = 16)]
    pub room: u64,
    /// Threads that process images
    #[arg(long, default_value_t = 2)]
    pub workers: usize,
    /// Image processing waits so long before each frame: to see queues overflow
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub slow: Duration,
    /// One JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// What has become of a camera's frames.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Its CPU.
    pub cpu: u32,
    /// By the camera's own account.
    pub taken: Taken,
    /// Frames that the queue says it refused.
    pub lost_by_queue: u64,
    /// Numbers of frames that never came.
    pub missing: u64,
    /// Most frames in the queue at a time; 0: never an eighth of it.
    pub high_water: u64,
    /// Frames processed.
    pub processed: u64,
    /// Defects planted in the frames that were processed.
    pub planted: u64,
    /// Defects found in them.
    pub found: u64,
    /// Of these, the ones that are where one was planted, and as bright.
    pub agreed: u64,
    /// Most analyses of one frame.
    pub most_analyses: u64,
    /// Records that found the statistics' queue full.
    pub records_lost: u64,
    /// Soft real-time threads that could not be marked.
    pub unmarked: u64,
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    schema: &'static str,
    /// How RT1 and RT2 are marked.
    pub soft: String,
    /// By camera.
    pub lines: Vec<Line>,
    /// What the statistics say.
    pub statistics: Sum,
    /// What does not agree.
    pub wrong: Vec<String>,
}

/// A part of a frame to be marked, and whom to give the marks.
struct Job {
    frame: Arc<Frame>,
    lines: (usize, usize),
    reply: Sender<(usize, Vec<[Mark; WIDTH]>)>,
}

/// Runs the line until all cameras have taken their frames.
pub fn run(options: &Options) -> Result<Report> {
    if options.workers == 0 || options.cpus.is_empty() {
        bail!("a line has a camera (--cpus) and a worker (--workers) at least");
    }
    let marks = Marks::find();
    let (mut records, mut record_files) = (Vec::new(), Vec::new());
    for _ in &options.cpus {
        let (producer, file) = Producer::<Record>::create(RECORDS)?;
        records.push(producer);
        record_files.push(file);
    }
    let mut statistics = own_program(&["statistics"]);
    statistics.args(record_files.iter().map(path));
    let mut statistics =
        statistics.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("statistics")?;
    let workers = Workers::start(options.workers, &marks);
    let mut feeds = Vec::new();
    for (camera, records) in (0..).zip(records) {
        feeds.push(Feed::start(options, camera, records, workers.jobs.clone(), &marks)?);
    }
    let mut lines = Vec::new();
    for feed in feeds {
        lines.push(feed.finish()?);
    }
    // Its end: nothing more will come.
    drop(statistics.stdin.take());
    let statistics: Sum = answer(statistics, "the statistics")?;
    let unmarked = workers.unmarked.load(Ordering::Relaxed); // ORDER: relaxed; a number, and its writers have answered.
    if let Some(first) = lines.first_mut() {
        first.unmarked += unmarked;
    }
    let wrong = compare(options, &lines, &statistics);
    Ok(Report { schema: "rtscope.production-line/1", soft: marks.name(), lines, statistics, wrong })
}

/// A file of this process as another one opens it.
fn path(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))
}

fn own_program(words: &[&str]) -> Command {
    let mut command = Command::new(own_path());
    command.args(words);
    command
}

fn own_path() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "production-line".into())
}

/// Waits for a program, and reads the JSON that it has printed.
fn answer<T: DeserializeOwned>(child: Child, who: &str) -> Result<T> {
    let output = child.wait_with_output().with_context(|| who.to_owned())?;
    if !output.status.success() {
        bail!("{who}: {}", output.status);
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("what {who} said"))
}

/// The RT1 threads.
struct Workers {
    jobs: Vec<Sender<Job>>,
    unmarked: Arc<AtomicU64>,
}

impl Workers {
    fn start(count: usize, marks: &Marks) -> Workers {
        let unmarked = Arc::new(AtomicU64::new(0));
        let start = |number: usize| {
            let (jobs, todo): (Sender<Job>, Receiver<Job>) = channel();
            let (marks, unmarked) = (marks.clone(), Arc::clone(&unmarked));
            let work = move || {
                count_unmarked(&marks, Soft::Rt1, &unmarked);
                for Job { frame, lines: (from, to), reply } in todo {
                    // Who does not want the answer any more has ended.
                    let _ = reply.send((from, imaging::mark_band(&frame, from, to)));
                }
            };
            // It ends when nobody can give it work any more.
            drop(thread::Builder::new().name(format!("line-rt1-{number}")).spawn(work));
            jobs
        };
        Workers { jobs: (0..count).map(start).collect(), unmarked }
    }
}

fn count_unmarked(marks: &Marks, class: Soft, unmarked: &AtomicU64) {
    if !marks.mark(class) {
        // ORDER: relaxed; a number.
        unmarked.fetch_add(1, Ordering::Relaxed);
    }
}

/// What takes a camera's frames out of its queue.
struct Feed {
    camera: Child,
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Line>,
}

impl Feed {
    fn start(
        options: &Options,
        camera: usize,
        records: Producer<Record>,
        jobs: Vec<Sender<Job>>,
        marks: &Marks,
    ) -> Result<Feed> {
        let (queue, file) = Consumer::<Frame>::create(options.room)?;
        let cpu = options.cpus[camera];
        let child = camera_command(options, camera, cpu, &path(&file));
        let child = child_of(child).with_context(|| format!("camera {camera}"))?;
        let over = Arc::new(AtomicBool::new(false));
        let stage = Stage {
            camera: camera as u32,
            slow: options.slow,
            queue,
            _file: file,
            records,
            jobs,
            marks: marks.clone(),
            over: Arc::clone(&over),
        };
        let thread =
            thread::Builder::new().name(format!("line-feed{camera}")).spawn(move || stage.run(cpu))?;
        Ok(Feed { camera: child, over, thread })
    }

    fn finish(self) -> Result<Line> {
        let taken: Result<Taken> = answer(self.camera, "a camera");
        // ORDER: release; pairs with the acquire in Stage::run(): all frames are in the queue when this is seen.
        self.over.store(true, Ordering::Release);
        let Ok(mut line) = self.thread.join() else { bail!("image processing has failed") };
        line.taken = taken?;
        Ok(line)
    }
}

fn camera_command(options: &Options, camera: usize, cpu: u32, queue: &std::path::Path) -> Command {
    let mut words: Vec<OsString> = vec!["camera".into(), "--queue".into(), queue.into()];
    let duration = |time: Duration| format!("{}ns", time.as_nanos());
    for (name, value) in [
        ("--camera", camera.to_string()),
        ("--frames", options.frames.to_string()),
        ("--period", duration(options.period)),
        ("--deadline", duration(options.deadline)),
    ] {
        words.extend([name.into(), value.into()]);
    }
    let Some(rtscope) = &options.shield else {
        let mut command = own_program(&[]);
        command.args(words).args(["--alone-on", &cpu.to_string()]);
        return command;
    };
    let mut command = Command::new(rtscope);
    command.args([
        "shield",
        "run",
        "--class",
        "rt0",
        "--policy",
        "fifo",
        "--prio",
        "80",
        "--cpu",
        &cpu.to_string(),
        "--",
    ]);
    command.arg(own_path()).args(words);
    command
}

fn child_of(mut command: Command) -> std::io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
}

/// Image processing of one camera.
struct Stage {
    camera: u32,
    slow: Duration,
    queue: Consumer<Frame>,
    /// The camera opens it by its number.
    _file: OwnedFd,
    records: Producer<Record>,
    jobs: Vec<Sender<Job>>,
    marks: Marks,
    over: Arc<AtomicBool>,
}

impl Stage {
    fn run(mut self, cpu: u32) -> Line {
        let unmarked = AtomicU64::new(0);
        count_unmarked(&self.marks, Soft::Rt1, &unmarked);
        let mut line = Line {
            cpu,
            taken: Taken::default(),
            lost_by_queue: 0,
            missing: 0,
            high_water: 0,
            processed: 0,
            planted: 0,
            found: 0,
            agreed: 0,
            most_analyses: 0,
            records_lost: 0,
            unmarked: 0,
        };
        let mut next = 0;
        loop {
            // ORDER: acquire; see Feed::finish(). Asked before the queue is looked at.
            let over = self.over.load(Ordering::Acquire);
            match self.queue.pop() {
                Some(frame) => {
                    line.missing += frame.number - next;
                    next = frame.number + 1;
                    self.process(frame, &mut line, &unmarked);
                }
                None if over => break,
                None => {
                    self.queue.wait(None, Some(Duration::from_millis(50)), Duration::from_micros(500));
                }
            }
        }
        let counters = self.queue.counters();
        (line.lost_by_queue, line.high_water) = (counters.lost, counters.high_water);
        // Those after the last one that came are missing, too; who knows how many there were is the camera.
        line.unmarked = unmarked.load(Ordering::Relaxed); // ORDER: relaxed; its writers have ended.
        line
    }

    fn process(&mut self, frame: Frame, line: &mut Line, unmarked: &AtomicU64) {
        thread::sleep(self.slow);
        let (number, due_ns) = (frame.number, frame.due_ns);
        line.planted += u64::from(frame.planted);
        let frame = Arc::new(frame);
        let blobs = imaging::blobs(&self.marks_of(&frame));
        let expected = planted(self.camera, number);
        // As many tasks as there are defects.
        let analyse = |blob: &Blob| {
            count_unmarked(&self.marks, Soft::Rt2, unmarked);
            imaging::agrees(&imaging::analyse(&frame, blob), &expected)
        };
        let agreed = thread::scope(|scope| {
            let start = |blob| {
                let builder = thread::Builder::new().name("line-rt2".to_owned());
                builder.spawn_scoped(scope, move || analyse(blob))
            };
            let all: Vec<_> = blobs.iter().map(start).collect();
            // One that could not be started agrees with nothing, and is missed in the end.
            let verdicts = all.into_iter().map(|one| one.is_ok_and(|one| one.join().unwrap_or(false)));
            verdicts.filter(|agrees| *agrees).count()
        });
        line.processed += 1;
        line.found += blobs.len() as u64;
        line.agreed += agreed as u64;
        line.most_analyses = line.most_analyses.max(blobs.len() as u64);
        let took_ns = camera::now_ns() - due_ns;
        let record = Record { number, took_ns, camera: self.camera, found: blobs.len() as u32 };
        line.records_lost += u64::from(!self.records.push(&record));
    }

    /// The workers' marks, in order.
    fn marks_of(&self, frame: &Arc<Frame>) -> Vec<[Mark; WIDTH]> {
        let (reply, replies) = channel();
        let bands = self.jobs.len();
        for (band, jobs) in self.jobs.iter().enumerate() {
            let lines = (HEIGHT * band / bands, HEIGHT * (band + 1) / bands);
            // A worker that has failed answers nothing, and its lines are missing: then the accounts do not agree.
            let _ = jobs.send(Job { frame: Arc::clone(frame), lines, reply: reply.clone() });
        }
        drop(reply);
        let mut parts: Vec<(usize, Vec<[Mark; WIDTH]>)> = replies.iter().collect();
        parts.sort_by_key(|(from, _)| *from);
        parts.into_iter().flat_map(|(_, lines)| lines).collect()
    }
}

/// What went in against what came out.
fn compare(options: &Options, lines: &[Line], statistics: &Sum) -> Vec<String> {
    let mut wrong = Vec::new();
    for (camera, line) in lines.iter().enumerate() {
        let taken = &line.taken;
        // What was lost at the end leaves no gap.
        let missing = taken.frames - line.processed;
        for (what, one, other) in [
            ("frames taken, and asked for", taken.frames, options.frames),
            ("frames lost: the camera's and the queue's count", taken.lost, line.lost_by_queue),
            ("frames lost, and frames that never came", taken.lost, missing),
            ("defects planted in frames that came", taken.planted - taken.planted_lost, line.planted),
            ("defects planted and found", line.planted, line.found),
            ("defects found, and those where one was planted", line.found, line.agreed),
        ] {
            if one != other {
                wrong.push(format!("camera {camera}: {what}: {one} and {other}"));
            }
        }
        if line.missing > missing {
            wrong
                .push(format!("camera {camera}: {} numbers are missing, but {missing} frames", line.missing));
        }
    }
    let sum = |of: fn(&Line) -> u64| lines.iter().map(of).sum::<u64>();
    let records_lost = sum(|line| line.records_lost);
    if statistics.frames + records_lost != sum(|line| line.processed) {
        wrong.push(format!(
            "statistics: told of {} frames, {records_lost} records lost, but {} were processed",
            statistics.frames,
            sum(|line| line.processed)
        ));
    }
    if records_lost == 0 && statistics.defects != sum(|line| line.found) {
        wrong.push(format!(
            "statistics: {} defects, but {} were found",
            statistics.defects,
            sum(|line| line.found)
        ));
    }
    wrong
}

/// For people.
pub fn text(report: &Report) -> String {
    let ms = |ns: u64| format!("{:.3} ms", ns as f64 / 1e6);
    let mut text = format!(
        "{:<7} {:>4} {:>8} {:>6} {:>12} {:>6} {:>9} {:>8} {:>8} {:>9}\n",
        "camera", "CPU", "frames", "late", "worst", "lost", "processed", "planted", "found", "analyses"
    );
    for line in &report.lines {
        let taken = &line.taken;
        text.push_str(&format!(
            "{:<7} {:>4} {:>8} {:>6} {:>12} {:>6} {:>9} {:>8} {:>8} {:>9}\n",
            taken.camera,
            line.cpu,
            taken.frames,
            taken.late,
            ms(taken.worst_ns),
            taken.lost,
            line.processed,
            line.planted,
            line.found,
            format!("<= {}", line.most_analyses)
        ));
        for why in &taken.refused {
            text.push_str(&format!("        camera {}: not allowed: {why}\n", taken.camera));
        }
        if taken.lost > 0 {
            text.push_str(&format!(
                "        camera {}: {} frames with {} defects found the queue full (image processing was too slow)\n",
                taken.camera, taken.lost, taken.planted_lost
            ));
        }
    }
    let sum = &report.statistics;
    let mean = sum.took_ns.checked_div(sum.frames).unwrap_or(0);
    text.push_str(&format!(
        "image processing and analyses: {}; a frame took {} on average, {} at worst\n",
        report.soft,
        ms(mean),
        ms(sum.worst_ns)
    ));
    let unmarked: u64 = report.lines.iter().map(|line| line.unmarked).sum();
    if unmarked > 0 {
        text.push_str(&format!(
            "{unmarked} of their threads were not allowed to be more than ordinary ones\n"
        ));
    }
    text.push_str(&format!("statistics: {} frames, {} defects\n", sum.frames, sum.defects));
    match report.wrong.is_empty() {
        true => text.push_str("planted and found agree, and so do all counts\n"),
        false => report.wrong.iter().for_each(|wrong| text.push_str(&format!("WRONG: {wrong}\n"))),
    }
    text
}
