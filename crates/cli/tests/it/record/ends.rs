// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a recording ends that is not let end in order, and what is left of it then.

use crate::command::rtscope;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::{KilledWithTest, wait_until};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A recording by ftrace that has events.
struct Recorder {
    process: KilledWithTest,
    notes: PathBuf,
    trace: PathBuf,
}

impl Recorder {
    fn start(directory: &Path, options: &[&str]) -> Recorder {
        let (notes, trace) = (directory.join("notes"), directory.join("trace"));
        let mut command = rtscope();
        command.args(["record", "-k", "sched:*,irq:*", "--by", "ftrace", "-o"]).arg(&trace).args(options);
        let file = File::create(&notes).expect("a temporary directory");
        let process = KilledWithTest::start(command.stdout(Stdio::null()).stderr(file)).expect("it starts");
        let recorder = Recorder { process, notes, trace };
        wait_until("it records", || recorder.notes().contains("recording tracepoints"));
        recorder
    }

    fn notes(&self) -> String {
        fs::read_to_string(&self.notes).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id() as i32), signal).expect("it runs");
    }

    /// Its instances of ftrace.
    fn instances(&self) -> Vec<PathBuf> {
        let own = format!("rtscope-{}-", self.process.id());
        let all = fs::read_dir("/sys/kernel/tracing/instances").expect("tracefs").flatten();
        all.filter(|entry| entry.file_name().to_string_lossy().starts_with(&own))
            .map(|entry| entry.path())
            .collect()
    }

    fn is_on(&self) -> bool {
        let text = |path: PathBuf| fs::read_to_string(path.join("tracing_on")).unwrap_or_default();
        self.instances().into_iter().any(|path| text(path).trim() == "1")
    }

    fn code(&mut self) -> Option<i32> {
        self.process.wait().expect("it ends").code()
    }
}

// NEEDS: host
#[test]
fn root_a_recording_that_is_ended_at_once_leaves_nothing_in_the_kernel() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    for first in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut recorder = Recorder::start(directory.path(), &[]);
        let [instance] = &recorder.instances()[..] else { panic!("{}", recorder.notes()) };
        // As long as somebody has it open it cannot be removed, which is tried for a tenth of a second: it does not end in order before.
        let held = File::open(instance.join("trace_options")).expect("it is there");
        let begun = Instant::now();
        recorder.signal(first);
        wait_until("it ends, and a Ctrl-C is another one", || {
            !recorder.is_on() && begun.elapsed() > Duration::from_millis(25)
        });
        recorder.signal(Signal::SIGINT);
        let words = format!("/proc/{}/cmdline", recorder.process.id());
        wait_until("it tidies up", || fs::read(&words).is_ok_and(|words| words.ends_with(b"sweep\0")));
        drop(held);
        let (code, left, notes) = (recorder.code(), recorder.instances(), recorder.notes());
        assert_eq!((code, left), (Some(130), Vec::new()), "{first}: {notes}");
        assert!(notes.contains("record --recover"), "{notes}");
        let recovered =
            rtscope().args(["record", "--recover"]).arg(&recorder.trace).output().expect("it starts");
        assert!(recovered.status.success(), "{}", String::from_utf8_lossy(&recovered.stderr));
        assert!(recorder.trace.join("kernel/metadata").is_file());
    }
}

// NEEDS: host
#[test]
fn root_other_signals_at_the_end_of_a_recording_change_nothing() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    for second in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGPIPE] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut recorder = Recorder::start(directory.path(), &["--convert-after"]);
        recorder.signal(Signal::SIGINT);
        wait_until("it ends", || !recorder.is_on());
        recorder.signal(second);
        assert_eq!((recorder.code(), recorder.instances()), (Some(0), Vec::new()), "{second}");
        assert!(recorder.trace.join("kernel/metadata").is_file());
    }
}

/// timeout(1) sends its signal to the process, and to the group that it is in.
// NEEDS: host
#[test]
fn root_a_ctrl_c_that_comes_twice_at_once_is_one() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut recorder = Recorder::start(directory.path(), &[]);
    recorder.signal(Signal::SIGINT);
    recorder.signal(Signal::SIGINT);
    assert_eq!((recorder.code(), recorder.instances()), (Some(0), Vec::new()), "{}", recorder.notes());
    assert!(recorder.trace.join("kernel/metadata").is_file());
}

// NEEDS: host
#[test]
fn root_recovering_takes_the_instance_of_the_killed_recorder_away() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut recorder = Recorder::start(directory.path(), &[]);
    recorder.signal(Signal::SIGKILL);
    assert_eq!(recorder.code(), None);
    assert_eq!(recorder.instances().len(), 1, "nothing takes it away after SIGKILL");
    assert!(!recorder.is_on(), "but the kernel stops it");
    let recovered = Command::output(rtscope().args(["record", "--recover"]).arg(&recorder.trace));
    assert!(recovered.expect("it starts").status.success());
    assert_eq!(recorder.instances(), Vec::<PathBuf>::new());
}
