// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Spools made by the test, converted, and read by babeltrace2 and by our reader.

mod calls;
mod gaps;
mod hostile;
mod limits;
mod live;
mod maker;

use maker::{START, description, end, everything, write, write_to};
use nix::fcntl::{Flock, FlockArg};
use rtscope_ctf::read_trace;
use rtscope_event::{CpuId, Loss, LossCause, MonotonicNs, Recording, Tid};
use rtscope_store::{
    ConversionSummary, EndLoss, Error, Options, Pages, Source, Spool, SpoolDescription, SpoolWriter,
    Tracepoints, convert, remove_unbegun, write_snapshot,
};
use rtscope_testkit::babeltrace2;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Where a recording is written to, in a temporary directory.
struct RecordingPaths {
    _root: tempfile::TempDir,
    /// The trace.
    target: PathBuf,
    /// The spool, while there is no trace.
    partial: PathBuf,
}

impl RecordingPaths {
    fn new() -> RecordingPaths {
        let root = tempfile::tempdir().unwrap();
        let (target, partial) = (root.path().join("trace"), root.path().join("trace.partial"));
        RecordingPaths { _root: root, target, partial }
    }
}

/// What babeltrace2 prints, and its complaints; `None` where it is not installed.
fn lines_and_complaints(dir: &Path) -> Option<(Vec<String>, String)> {
    let output = babeltrace2::run(dir, &["--clock-cycles"])?;
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    Some((lines, String::from_utf8_lossy(&output.stderr).into_owned()))
}

fn loss(cpu: u32, cause: LossCause, count: u64) -> Loss {
    Loss { cpu: Some(CpuId(cpu)), cause, count: Some(count) }
}

/// 2 CPUs × 2000 iterations of a softirq, two switches, an open and a block event; and one fork, of which only the child's name is used.
fn check_counts(converted: &ConversionSummary) {
    let count = |name: &str| converted.by_event.get(name).copied().unwrap_or(0);
    assert_eq!(count("irq_softirq_raise"), 4_000);
    assert_eq!(count("sched_switch"), 8_000);
    assert_eq!(count("syscall_entry_openat"), 4_000);
    assert_eq!(count("block_rq_issue"), 4_000);
    assert_eq!((count("sched_process_fork"), converted.events), (0, 20_000));
    assert_eq!((converted.moved, converted.early), (0, 0));
    // A quarter of the paths was read, and one late.
    assert_eq!(converted.without_text, 3_000 - 1);
}

#[test]
fn both_recorders_become_one_trace_in_order_of_time() {
    let paths = RecordingPaths::new();
    let spool = write(&paths.target, &description(), &everything(), Some(&end())).unwrap();
    let converted = convert(spool, &paths.target, &Options::default()).unwrap();
    check_counts(&converted);
    assert!(!paths.partial.exists());
    let lost = [
        loss(0, LossCause::BufferFull, 1),
        loss(0, LossCause::Overrun, 70),
        loss(1, LossCause::BufferFull, 1),
        loss(1, LossCause::Overrun, 70),
    ];
    assert_eq!(converted.losses, lost);
    let trace = read_trace(&paths.target).unwrap();
    assert!(trace.warnings.is_empty(), "{:?}", trace.warnings);
    assert_eq!(trace.recording.losses, lost);
    let Some((lines, complaints)) = lines_and_complaints(&paths.target) else { return };
    // Beside them four of the state at the beginning, and a fork that nobody asked for: by it readers name a thread.
    assert_eq!(lines.iter().filter(|line| line.contains("sched_process_fork: ")).count(), 1);
    assert_eq!(lines.len() as u64, converted.events + 4 + 1);
    for part in ["discarded 70 events", "discarded 1 event"] {
        assert_eq!(complaints.matches(part).count(), 2, "{complaints}");
    }
    let times: Vec<u64> = lines.iter().map(|line| line[1..21].parse().unwrap()).collect();
    assert!(times.is_sorted());
    let opens: Vec<&String> = lines.iter().filter(|line| line.contains("syscall_entry_openat")).collect();
    for number in (0..2_000).step_by(4) {
        let text = format!("dfd = -100, filename = \"/path/{number}\"");
        assert_eq!(opens.iter().filter(|line| line.contains(&text)).count(), 2, "{number}");
    }
    assert_eq!(opens.iter().filter(|line| line.contains("\"/late\"")).count(), 1);
    // babeltrace2 escapes a question mark, as C does.
    assert_eq!(opens.iter().filter(|line| line.contains("filename = \"\\?\"")).count(), 2_999);
    // The child's name is known on both CPUs, also before its fork, because no other task has that number.
    let switch = lines.iter().find(|line| line.contains("next_tid = 500")).unwrap();
    assert!(switch.contains("next_comm = \"child\"") && switch.contains("prev_comm = \"shell\""), "{switch}");
}

#[test]
fn a_killed_recording_is_converted_and_what_only_its_end_knew_is_unknown() {
    let paths = RecordingPaths::new();
    write(&paths.target, &description(), &everything(), None);
    // The kill came while both files were being written.
    for (name, cut) in [("cpu0.bank", 20), ("cpu0.pages", 2_000)] {
        let file = fs::OpenOptions::new().write(true).open(paths.partial.join(name)).unwrap();
        file.set_len(file.metadata().unwrap().len() - cut).unwrap();
    }
    let again = SpoolWriter::create(&paths.target, &description()).unwrap_err();
    assert!(again.to_string().contains("record --recover"), "{again}");
    let spool = Spool::open(&paths.target).unwrap();
    assert!(matches!(Spool::open(&paths.partial), Err(Error::Busy(_))));
    assert_eq!(spool.target(), paths.target);
    let converted = convert(spool, &paths.target, &Options::default()).unwrap();
    assert!(converted.interrupted && (19_900..=20_001).contains(&converted.events), "{converted:?}");
    for cause in [LossCause::RecursionMiss, LossCause::BufferFull, LossCause::Overrun] {
        assert!(converted.losses.contains(&Loss { cpu: None, cause, count: None }), "{:?}", converted.losses);
    }
    assert!(matches!(Spool::open(&paths.target), Err(Error::NoSpool(_))));
    let Some((lines, _)) = lines_and_complaints(&paths.target) else { return };
    // Beside them four of the state at the beginning, and a fork that nobody asked for: by it readers name a thread.
    assert_eq!(lines.iter().filter(|line| line.contains("sched_process_fork: ")).count(), 1);
    assert_eq!(lines.len() as u64, converted.events + 4 + 1);
}

#[test]
fn threads_of_a_recorder_that_was_killed_are_left_out() {
    let paths = RecordingPaths::new();
    let description = SpoolDescription { leave_out: vec![1], ..description() };
    let writer = write_to(&paths.target, &description, &everything());
    // Of the one whose block events are recorded.
    writer.own_threads(&[10]).unwrap();
    drop(writer);
    let spool = Spool::open(&paths.target).unwrap();
    let converted = convert(spool, &paths.target, &Options::default()).unwrap();
    assert!(converted.interrupted);
    assert_eq!(converted.by_event.get("block_rq_issue"), None);
    assert_eq!(
        (converted.by_event["syscall_entry_openat"], converted.by_event["sched_switch"]),
        (4_000, 8_000)
    );
}

#[test]
fn a_recording_begins_when_it_is_told_to_have_started() {
    let paths = RecordingPaths::new();
    let writer = SpoolWriter::create(&paths.target, &description()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&paths.partial), mode(&paths.partial.join("session.json"))), (0o700, 0o600));
    // A link in the way is replaced, not followed.
    let other = paths.target.with_file_name("other");
    std::os::unix::fs::symlink(&other, paths.partial.join("started.json.partial")).unwrap();
    writer.started(MonotonicNs(START + 7)).unwrap();
    assert!(!other.exists());
    let spool = writer.finish(&end()).unwrap();
    assert_eq!(spool.description().started, MonotonicNs(START + 7));
    drop(spool);
    assert_eq!(Spool::open(&paths.partial).unwrap().description().started, MonotonicNs(START + 7));
    fs::remove_file(paths.partial.join("started.json")).unwrap();
    assert_eq!(Spool::open(&paths.partial).unwrap().description().started, MonotonicNs(START));
}

#[test]
fn the_ends_losses_are_in_the_stream_and_by_event() {
    let paths = RecordingPaths::new();
    let mut end = end();
    let expected = |source, cpu, cause, event: Option<&str>, count| EndLoss {
        source,
        cpu,
        cause,
        event: event.map(str::to_owned),
        count: Some(count),
    };
    let cpu = Some(CpuId(1));
    end.losses = vec![
        expected(Source::Ebpf, cpu, LossCause::BufferFull, Some("sched_switch"), 4),
        expected(Source::Ebpf, cpu, LossCause::BufferFull, Some("irq_softirq_raise"), 2),
        expected(Source::Ebpf, None, LossCause::RecursionMiss, Some("sched_switch"), 3),
        expected(Source::Ftrace, cpu, LossCause::Overrun, None, 75),
        expected(Source::Ftrace, cpu, LossCause::BufferFull, None, 9),
    ];
    let spool = write(&paths.target, &description(), &everything(), Some(&end)).unwrap();
    let converted = convert(spool, &paths.target, &Options::default()).unwrap();
    let expected = [
        Loss { cpu: None, cause: LossCause::RecursionMiss, count: Some(3) },
        loss(0, LossCause::BufferFull, 1),
        loss(0, LossCause::Overrun, 70),
        loss(1, LossCause::BufferFull, 6 + 9),
        loss(1, LossCause::Overrun, 75),
    ];
    assert_eq!(converted.losses, expected);
    assert_eq!(converted.event_losses.len(), 3);
    let metadata = fs::read_to_string(paths.target.join("metadata")).unwrap();
    assert!(metadata.contains("cpu=1 cause=buffer_full count=2 event=irq_softirq_raise"), "{metadata}");
    // 1 and 70 at their places, 5 + 5 at the end; 9 were anywhere.
    let Some((_, complaints)) = lines_and_complaints(&paths.target) else { return };
    assert_eq!(complaints.matches("discarded 9 events").count(), 1, "{complaints}");
    assert_eq!(complaints.matches("discarded 10 events").count(), 1, "{complaints}");
}

#[test]
fn events_from_before_the_start_are_left_out() {
    let paths = RecordingPaths::new();
    let mut description = description();
    description.started = MonotonicNs(START + 40_000_000);
    let spool = write(&paths.target, &description, &everything(), Some(&end())).unwrap();
    let converted = convert(spool, &paths.target, &Options::default()).unwrap();
    assert_eq!(converted.events + converted.early, 20_000);
    assert!((9_900..10_100).contains(&converted.early), "{}", converted.early);
}

#[test]
fn a_conversion_that_is_stopped_can_begin_again() {
    let paths = RecordingPaths::new();
    let spool = write(&paths.target, &description(), &everything(), Some(&end())).unwrap();
    let before = maker::files(&paths.partial);
    let (cancel, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let progress = |progress: rtscope_store::Progress| {
        assert!(progress.done <= progress.total);
        if calls.fetch_add(1, Ordering::Relaxed) == 3 {
            cancel.store(true, Ordering::Relaxed);
        }
    };
    let options = Options { threads: 1, progress: Some(&progress), cancel: Some(&cancel) };
    let stopped = convert(spool, &paths.target, &options).unwrap_err();
    assert!(matches!(stopped, Error::Cancelled(_)), "{stopped}");
    assert!(!paths.target.exists());
    assert_eq!(maker::files(&paths.partial), before);
    assert_eq!(fs::read_dir(paths.partial.parent().unwrap()).unwrap().count(), 1);
    let spool = Spool::open(&paths.partial).unwrap();
    check_counts(&convert(spool, &paths.target, &Options::default()).unwrap());
}

/// The size of files is limited for this process's child, which is what a full disk is like: a write is refused.
#[test]
fn a_full_disk_leaves_the_recording_and_says_so() {
    let paths = RecordingPaths::new();
    drop(write(&paths.target, &description(), &everything(), Some(&end())));
    let before = maker::files(&paths.partial);
    let test = std::env::current_exe().unwrap();
    let child = Command::new("sh")
        .args([
            "-c",
            "ulimit -f 64; trap '' XFSZ; exec \"$0\" --exact spools::converts_what_the_environment_names --nocapture",
        ])
        .arg(test)
        .env("RTSCOPE_TEST_SPOOL", &paths.target)
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(
        output.contains("the disk is full: the recording stays in") && output.contains("--recover"),
        "{output}"
    );
    assert!(!paths.target.exists());
    assert_eq!(maker::files(&paths.partial), before);
    let spool = Spool::open(&paths.target).unwrap();
    check_counts(&convert(spool, &paths.target, &Options::default()).unwrap());
}

/// The child of the test above; by itself it has nothing to do.
#[test]
fn converts_what_the_environment_names() {
    let Some(target) = std::env::var_os("RTSCOPE_TEST_SPOOL").map(PathBuf::from) else { return };
    match convert(Spool::open(&target).unwrap(), &target, &Options::default()) {
        Ok(_) => println!("converted"),
        Err(error) => println!("{error}"),
    }
}

#[test]
fn a_taken_name_is_refused_and_nothing_is_lost() {
    let paths = RecordingPaths::new();
    let spool = write(&paths.target, &description(), &everything(), Some(&end())).unwrap();
    fs::create_dir(&paths.target).unwrap();
    assert!(convert(spool, &paths.target, &Options::default()).is_err());
    assert!(matches!(SpoolWriter::create(&paths.target, &description()), Err(Error::Exists(_))));
    fs::remove_dir(&paths.target).unwrap();
    check_counts(&convert(Spool::open(&paths.target).unwrap(), &paths.target, &Options::default()).unwrap());
}

/// Nobody has to remove it by hand, and nothing that was recorded is removed.
#[test]
fn what_a_recorder_left_that_had_not_begun_is_removed() {
    let firsts = ["session.json", "user.session"];
    let left: [&[&str]; 3] = [&[], &["session.json.partial"], &["user.session.partial"]];
    for names in left {
        let paths = RecordingPaths::new();
        fs::create_dir(&paths.partial).unwrap();
        names.iter().for_each(|name| fs::write(paths.partial.join(name), "{").unwrap());
        if let [name] = names {
            let lives =
                Flock::lock(fs::File::open(paths.partial.join(name)).unwrap(), FlockArg::LockExclusive);
            assert!(matches!(remove_unbegun(&paths.target), Err(Error::Busy(_))), "its recorder lives");
            drop(lives);
        }
        assert_eq!(remove_unbegun(&paths.target).unwrap(), Some(paths.partial.clone()));
        assert!(!paths.partial.exists());
        assert_eq!(remove_unbegun(&paths.target).unwrap(), None);
    }
    for name in firsts.into_iter().chain(["cpu0.bank", "another"]) {
        let paths = RecordingPaths::new();
        fs::create_dir(&paths.partial).unwrap();
        fs::write(paths.partial.join("session.json.partial"), "{").unwrap();
        fs::write(paths.partial.join(name), "").unwrap();
        assert_eq!(remove_unbegun(&paths.target).unwrap(), None, "{name}");
        assert!(paths.partial.join(name).exists());
    }
    // As long as its recorder is there, the first file has its name.
    let paths = RecordingPaths::new();
    let _spool = SpoolWriter::create(&paths.target, &description()).unwrap();
    assert_eq!(fs::read_dir(&paths.partial).unwrap().count(), 1);
    assert_eq!(remove_unbegun(&paths.target).unwrap(), None);
}

#[test]
fn an_empty_recording_is_a_trace() {
    let paths = RecordingPaths::new();
    let mut nothing = description();
    nothing.cpus.clear();
    let spool = write(&paths.target, &nothing, &[], Some(&end())).unwrap();
    let converted = convert(spool, &paths.target, &Options::default()).unwrap();
    assert_eq!((converted.events, converted.losses.len()), (0, 0));
    let Some((lines, complaints)) = lines_and_complaints(&paths.target) else { return };
    assert_eq!((lines.len(), complaints.as_str()), (4, ""));
}

#[test]
fn a_snapshot_takes_ftraces_events_of_its_window() {
    let paths = RecordingPaths::new();
    let mut cpus = everything();
    let mut info = rtscope_ctf::TraceInfo::of_this_machine("1").unwrap();
    info.window_begin = Some(MonotonicNs(START));
    let mut recording = Recording::default();
    let kind = rtscope_event::EventKind::SchedMigrateTask {
        tid: Tid(10),
        prio: rtscope_event::Priority(120),
        orig_cpu: CpuId(0),
        dest_cpu: CpuId(1),
    };
    for number in 0..100 {
        let time = MonotonicNs(START + 20_000_000 + number * 100_000);
        recording.events.push(rtscope_event::Event {
            time,
            cpu: CpuId((number % 2) as u32),
            kind: kind.clone(),
        });
    }
    let pages = Pages {
        cpus: cpus.drain(..).zip(0..).map(|(cpu, number)| (CpuId(number), cpu.pages)).collect(),
        from: MonotonicNs(START + 20_000_000),
        until: MonotonicNs(START + 30_000_000),
    };
    let tracepoints = Tracepoints::new(&maker::ftrace()).unwrap();
    let done = write_snapshot(&paths.target, &recording, &info, &tracepoints, &pages).unwrap();
    // Two events each 40 µs on each of two CPUs, for 10 ms.
    assert!(done.ftrace_events.abs_diff(1_000) <= 4, "{done:?}");
    assert_eq!(done.summary.events, 100 + done.ftrace_events);
    let Some((lines, complaints)) = lines_and_complaints(&paths.target) else { return };
    assert_eq!((lines.len() as u64, complaints.as_str()), (done.summary.events + 2, ""));
}
