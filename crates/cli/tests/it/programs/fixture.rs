// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tests of instrumented programs share: a temporary directory, programs compiled as a user would, and the recorder's summary.

use super::compiled::compile;
use crate::command::{lost, root, rtscope};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::KilledWithTest;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

/// A temporary directory for what is compiled and recorded, and the right to be the only recorder of programs.
pub struct Fixture {
    pub dir: tempfile::TempDir,
    _cpus: Cpus,
}

impl Fixture {
    pub fn new() -> Fixture {
        let dir = tempfile::tempdir().expect("a temporary directory");
        // Programs of other users have to reach it.
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("it is ours");
        Fixture { dir, _cpus: Cpus::take().expect("the build directory can be written") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Compiles with warnings as errors. `None`, and the reason reported, without that compiler.
    pub fn compile(&self, compiler: &str, flags: &[&str], source: &Path, to: &str) -> Option<PathBuf> {
        let to = self.path(to);
        compile(compiler, flags, source, &to).then_some(to)
    }

    /// One of the sources in crates/testkit/c.
    pub fn program(&self, source: &str, flags: &[&str], to: &str) -> Option<PathBuf> {
        let source = root().join("crates/testkit/c").join(source);
        self.compile("cc", &[&["-O2", "-std=c11"], flags].concat(), &source, to)
    }

    /// A source that is a text in a test.
    pub fn text(&self, source: &str, flags: &[&str], to: &str) -> Option<PathBuf> {
        let file = self.path(&format!("{to}.c"));
        std::fs::write(&file, source).expect("a temporary directory");
        self.compile("cc", &[&["-O2", "-std=c11"], flags].concat(), &file, to)
    }

    pub fn trace(&self) -> PathBuf {
        self.path("trace")
    }

    pub fn recorder(&self, options: &[&str]) -> Command {
        let mut command = rtscope();
        command.args(["record", "--json", "-u", "test:*", "-o"]).arg(self.trace());
        if !options.iter().any(|option| option.starts_with("--fail-if-lost")) {
            // Many lose most on purpose, and count it themselves.
            command.arg("--fail-if-lost=100%");
        }
        command.args(options);
        command
    }

    /// Records one run of a command.
    pub fn record<S: AsRef<OsStr>>(&self, options: &[&str], command: &[S]) -> Recorded {
        let output = self.recorder(options).arg("--").args(command).output().expect("it can be started");
        assert!(output.status.success(), "{output:?}");
        Recorded::of(output)
    }
}

/// Starts a program that says "ready", and goes on when it gets a line.
pub fn waiting(command: &mut Command) -> Child {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it can be started");
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.as_mut().expect("piped"));
    output.read_line(&mut line).expect("it says that it is ready");
    assert_eq!(line, "ready\n");
    child
}

/// Starts a recorder of `test:*` and waits until it reports that it records.
#[track_caller]
pub fn begun(command: &mut Command) -> KilledWithTest {
    begun_of("test:*", command)
}

/// The same of a recorder of this pattern.
#[track_caller]
pub fn begun_of(pattern: &str, command: &mut Command) -> KilledWithTest {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = KilledWithTest::start(command).expect("it can be started");
    let mut line = String::new();
    let mut notes = BufReader::new(child.stderr.as_mut().expect("piped"));
    notes.read_line(&mut line).expect("it reports that it records");
    assert!(line.contains(&format!("recording '{pattern}'")), "{line}");
    child
}

/// A flight recorder that records, and what it says from then on.
#[track_caller]
pub fn flight_recorder(fixture: &Fixture, options: &[&str]) -> (KilledWithTest, BufReader<ChildStderr>) {
    let mut command = fixture.recorder(&[&["--flight-recorder"], options].concat());
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut recorder = KilledWithTest::start(command).expect("it can be started");
    let mut said = BufReader::new(recorder.stderr.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it says that it records");
    assert!(line.contains(" record into memory"), "{line}");
    (recorder, said)
}

/// Ends a recorder as Ctrl-C does.
pub fn interrupt(recorder: KilledWithTest) -> Output {
    send(&recorder, Signal::SIGINT);
    recorder.wait_with_output().expect("it ends")
}

/// Sends a signal to a process that was not waited for.
pub fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).expect("it is not waited for yet");
}

/// The text of the fenced block of this language in the guide's section on tracing a program.
pub fn block(language: &str) -> String {
    let guide = fs::read_to_string(root().join("docs/programs.md")).expect("it is there");
    let section = guide.split("# Tracing a program").nth(1).expect("the section");
    let fenced = section.split(&format!("```{language}\n")).nth(1).expect("a block");
    fenced.split("```").next().expect("its end").to_string()
}

/// What a recording came to.
pub struct Recorded {
    pub account: Value,
    pub output: Output,
}

impl Recorded {
    pub fn of(output: Output) -> Recorded {
        // With --json what the program prints goes to standard error.
        let output = Output { stdout: [output.stdout, output.stderr.clone()].concat(), ..output };
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find(|line| line.contains("rtscope.record.user/1"));
        let account =
            serde_json::from_str(line.unwrap_or_else(|| panic!("an account: {output:?}"))).expect("JSON");
        Recorded { account, output }
    }

    pub fn events(&self) -> u64 {
        self.account["events"].as_u64().expect("a number")
    }

    pub fn of_event(&self, name: &str) -> u64 {
        self.account["by_event"][name].as_u64().unwrap_or(0)
    }

    pub fn lost(&self) -> u64 {
        lost(&self.account)
    }

    pub fn remarks(&self) -> String {
        self.account["remarks"].to_string()
    }

    /// A number that the program printed behind `word`.
    pub fn printed(&self, word: &str) -> u64 {
        Recorded::printed_in(&self.output, word)
    }

    pub fn printed_in(output: &Output, word: &str) -> u64 {
        let is_both = output.stdout.ends_with(&output.stderr);
        let all = if is_both { output.stdout.clone() } else { [&output.stdout[..], &output.stderr].concat() };
        let text = String::from_utf8_lossy(&all);
        let numbers = text.lines().filter_map(|line| line.strip_prefix(word)?.trim().parse::<u64>().ok());
        numbers.sum()
    }

    #[track_caller]
    pub fn assert_complete(&self) {
        let (recorded, lost, emitted) = (self.events(), self.lost(), self.printed("emitted "));
        println!("recorded {recorded} + lost {lost} = emitted {emitted}");
        assert_eq!(recorded + lost, emitted, "{}", self.account);
    }
}

/// A trace as babeltrace2 prints it, or as rtscope does where that is missing.
pub fn lines(trace: &Path) -> Vec<String> {
    let mut printer = rtscope();
    printer.args(["print", "--format", "babeltrace"]).arg(trace);
    let output = Command::new("babeltrace2").arg(trace).output().or_else(|_| printer.output());
    let output = output.expect("rtscope is there");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect()
}
