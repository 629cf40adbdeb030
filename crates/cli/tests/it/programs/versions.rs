// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that were built with another version of the headers: recorded, or refused by name with the reason.

use super::fixture::{Fixture, Recorded, begun, begun_of, interrupt};
use crate::command::{root, rtscope};
use rtscope_testkit::process::wait_until;
use rtscope_testkit::skip;
use std::fmt::Display;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Compiles a source of crates/testkit/c with the headers in a directory.
fn build(fixture: &Fixture, headers: &Path, source: &str, flags: &[&str], to: &str) -> Option<PathBuf> {
    if skip::without_tool("cc") {
        return None;
    }
    let to = fixture.path(to);
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-std=c11", "-pthread", "-I"]).arg(headers).args(flags);
    compiler.arg(root().join("crates/testkit/c").join(source)).arg("-o").arg(&to);
    let output = compiler.output().expect("it was just there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(to)
}

fn today() -> PathBuf {
    root().join("include")
}

fn version_1() -> PathBuf {
    root().join("crates/testkit/headers/v1")
}

fn version_2() -> PathBuf {
    root().join("crates/testkit/headers/v2")
}

fn complete(fixture: &Fixture, command: &[&str]) -> Recorded {
    let recorded = fixture.record(&["--user-buffer", "16M"], command);
    recorded.assert_complete();
    assert_eq!(recorded.lost(), 0, "{command:?}: {}", recorded.account);
    fs::remove_dir_all(fixture.trace()).expect("it was made");
    recorded
}

#[test]
fn programs_of_version_1_are_recorded() {
    let fixture = Fixture::new();
    let Some(emitter) = build(&fixture, &version_1(), "emitter.c", &[], "emitter") else { return };
    let emitter = emitter.to_str().expect("plain");
    for arguments in [&["count", "20000", "8"][..], &["fork", "1000"], &["signals", "50000"]] {
        complete(&fixture, &[&[emitter], arguments].concat());
    }
    // Both lives of it; the second prints.
    let recorded = fixture.record(&["--user-buffer", "16M"], &[emitter, "exec", "1000"]);
    assert_eq!((recorded.events(), recorded.lost()), (2000, 0), "{}", recorded.account);
    fs::remove_dir_all(fixture.trace()).expect("it was made");
    let unusual = build(&fixture, &version_1(), "unusual.c", &[], "unusual").expect("as above");
    complete(&fixture, &[unusual.to_str().expect("plain"), "short", "50"]);
}

#[test]
fn a_program_and_its_library_may_be_of_different_versions() {
    let fixture = Fixture::new();
    let pairs =
        [(version_1(), today()), (today(), version_1()), (version_2(), today()), (today(), version_2())];
    for (program, library) in pairs {
        let Some(unusual) = build(&fixture, &program, "unusual.c", &[], "unusual") else { return };
        let flags = ["-fPIC", "-shared"];
        let library = build(&fixture, &library, "library.c", &flags, "library.so").expect("as above");
        let paths = [&unusual, &library].map(|path| path.to_str().expect("plain"));
        let recorded = complete(&fixture, &[paths[0], "dlopen", "1000", paths[1]]);
        assert_eq!(recorded.of_event("test:library"), 1000, "{}", recorded.account);
    }
}

/// Compiles a program whose objects are each of another version: which is the program's, and in what order they are linked, tells the number of the turn.
/// The linker takes the first of each weak definition, so each version comes first once.
fn build_mixed(fixture: &Fixture, turn: usize) -> Option<String> {
    const PARTS: [&str; 3] = ["PROGRAM", "FIRST", "SECOND"];
    let versions = [today(), version_1(), version_2()];
    let mut objects = Vec::new();
    for (at, part) in PARTS.iter().enumerate() {
        let headers = &versions[(at + turn) % versions.len()];
        let define = format!("-D{part}");
        objects.push(build(fixture, headers, "mixed.c", &["-c", &define], &format!("{part}-{turn}.o"))?);
    }
    let mixed = fixture.path(&format!("mixed-{turn}"));
    // Once the program is first, once last, and once in between.
    objects.rotate_left(turn);
    let linked = Command::new("cc").args(&objects).args(["-pthread", "-o"]).arg(&mixed).output();
    let linked = linked.expect("it compiled");
    assert!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
    Some(mixed.to_str().expect("plain").to_string())
}

#[test]
fn objects_of_one_program_may_be_of_different_versions() {
    let fixture = Fixture::new();
    for turn in 0..3 {
        let Some(mixed) = build_mixed(&fixture, turn) else { return };
        // They are short, and found at any moment of their life.
        for _ in 0..12 {
            record_mixed(&fixture, &mixed);
        }
    }
}

/// The program asked.c: it is told what to do.
struct Asked {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Asked {
    fn start(program: &Path) -> Asked {
        let mut command = Command::new(program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it was built");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        let mut asked = Asked { child, answers };
        asked.hear("ready");
        asked
    }

    fn hear(&mut self, expected: &str) {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        assert_eq!(line.trim_end(), expected);
    }

    /// It has done this.
    fn ask(&mut self, order: &str, what: impl Display) {
        let input = self.child.stdin.as_mut().expect("piped");
        writeln!(input, "{order} {what}").expect("it reads");
        self.hear(if order == "become" { "ready" } else { "ok" });
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it ends").success());
    }
}

/// The names of its files that begin with this.
fn files_of(pid: u32, kind: &str) -> usize {
    let own = PathBuf::from(format!("/dev/shm/rtscope-{}", nix::unistd::geteuid()));
    let names = fs::read_dir(own).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().starts_with(&format!("{kind}{pid}-"))).count()
}

/// Waits until the recorder has looked who runs: then the files of one of version 1 that has ended are gone.
fn wait_for_a_look(short: &Path) {
    let mut short = Asked::start(short);
    let pid = short.child.id();
    short.ask("emit", 1);
    short.end();
    wait_until("the files of who has ended are removed", || files_of(pid, "p") == 0);
}

fn build_asked(fixture: &Fixture, headers: &Path) -> Option<(PathBuf, PathBuf)> {
    let name = |what: &str| format!("{what}-{}", headers.file_name().expect("it has one").to_string_lossy());
    let program = build(fixture, headers, "asked.c", &[], &name("asked"))?;
    let library = build(fixture, headers, "library.c", &["-fPIC", "-shared"], &name("library.so"))?;
    Some((program, library))
}

/// A program of version 1 has no lock that tells that it runs. That a later leader began in the same process does not mean that it has ended.
#[test]
fn a_program_of_version_1_that_loads_libraries_is_recorded_as_long_as_it_runs() {
    let fixture = Fixture::new();
    let Some((program, first)) = build_asked(&fixture, &version_1()) else { return };
    let (_, second) = build_asked(&fixture, &version_2()).expect("as above");
    let (_, todays) = build_asked(&fixture, &today()).expect("as above");
    let recorder = begun(&mut fixture.recorder(&[]));
    for (order, library) in [("load", &todays), ("load", &second), ("apart", &first), ("apart", &todays)] {
        let mut asked = Asked::start(&program);
        asked.ask(order, library.display());
        asked.ask("emit", 1);
        asked.ask("library", 1);
        assert!(files_of(asked.child.id(), "p") > 1, "it and its library have files");
        wait_for_a_look(&program);
        asked.ask("emit", 999);
        asked.ask("library", 999);
        asked.end();
    }
    let recorded = Recorded::of(interrupt(recorder));
    let counts = ["a", "library", "same"].map(|name| recorded.of_event(&format!("test:{name}")));
    assert_eq!(counts, [4 * 1001, 4000, 4000], "{}", recorded.account);
}

/// It would keep the files and their memory as long as it lives.
#[test]
fn of_a_program_of_version_1_that_becomes_a_later_one_nothing_is_left() {
    let fixture = Fixture::new();
    let Some((program, _)) = build_asked(&fixture, &version_1()) else { return };
    let (todays, _) = build_asked(&fixture, &today()).expect("as above");
    let recorder = begun(&mut fixture.recorder(&[]));
    let mut asked = Asked::start(&program);
    asked.ask("emit", 10);
    asked.ask("become", todays.display());
    asked.ask("emit", 10);
    let pid = asked.child.id();
    wait_until("the files that it had are removed", || (files_of(pid, "p"), files_of(pid, "r")) == (1, 1));
    asked.end();
    let recorded = Recorded::of(interrupt(recorder));
    assert_eq!((recorded.events(), recorded.lost()), (20, 0), "{}", recorded.account);
}

/// What a recorder of other events that was killed has left enabled, and lost, in a library of a program that it has found before.
#[test]
fn what_a_killed_recorder_lost_of_a_library_of_version_1_is_no_loss_of_the_next_one() {
    let fixture = Fixture::new();
    for headers in [version_1(), today()] {
        let Some((program, library)) = build_asked(&fixture, &headers) else { return };
        for _ in 0..6 {
            let mut asked = Asked::start(&program);
            let mut first = begun_of("test:library", &mut recorder_of(&fixture, "test:library"));
            wait_until("it is found", || files_of(asked.child.id(), "p") == 1);
            asked.ask("load", library.display());
            asked.ask("library", 20_000);
            first.kill().expect("it runs");
            first.wait().expect("it was killed");
            fs::remove_dir_all(fixture.trace()).expect("it was made");
            let second = begun_of("test:a", &mut recorder_of(&fixture, "test:a"));
            wait_for_a_look(&program);
            asked.ask("emit", 7);
            asked.end();
            let recorded = Recorded::of(interrupt(second));
            fs::remove_dir_all(fixture.trace()).expect("it was made");
            assert_eq!((recorded.events(), recorded.lost()), (8, 0), "{}", recorded.account);
        }
    }
}

fn recorder_of(fixture: &Fixture, pattern: &str) -> Command {
    let mut command = rtscope();
    command.args(["record", "--json", "--fail-if-lost=100%", "--user-buffer", "64k", "-u", pattern, "-o"]);
    command.arg(fixture.trace());
    command
}

fn record_mixed(fixture: &Fixture, mixed: &str) {
    let recorded = fixture.record(&["--user-buffer", "16M"], &[mixed, "3000"]);
    recorded.assert_complete();
    fs::remove_dir_all(fixture.trace()).expect("it was made");
    let [handled, early] = ["handled ", "early "].map(|what| recorded.printed(what));
    assert!(handled > 0, "{}", String::from_utf8_lossy(&recorded.output.stdout));
    // A handler has an event of each object; the rest must all be there.
    assert!(recorded.lost() <= 3 * early, "{mixed}: {early} early, {}", recorded.account);
    let expected = [("program", 9000, 0), ("first", 9000, handled), ("second", 9000, handled)];
    for (name, threads, handlers) in expected.into_iter().chain([("handler", 0, handled)]) {
        let count = recorded.of_event(&format!("test:{name}"));
        let least = threads + handlers.saturating_sub(early);
        assert!((least..=threads + handlers).contains(&count), "{mixed}: {name}: {count}, {early} early");
    }
}

#[test]
fn programs_of_version_2_are_recorded() {
    let fixture = Fixture::new();
    let Some(emitter) = build(&fixture, &version_2(), "emitter.c", &[], "emitter") else { return };
    let emitter = emitter.to_str().expect("plain");
    for arguments in [&["count", "20000", "8"][..], &["fork", "1000"], &["signals", "50000"]] {
        complete(&fixture, &[&[emitter], arguments].concat());
    }
}

#[test]
fn a_program_of_a_later_version_is_refused_by_name_with_the_reason() {
    let fixture = Fixture::new();
    let headers = fixture.path("later");
    fs::create_dir_all(headers.join("rtscope")).expect("a directory of the test");
    for entry in fs::read_dir(today().join("rtscope")).expect("the headers are there").flatten() {
        let mut text = fs::read_to_string(entry.path()).expect("text");
        if entry.file_name() == "abi.h" {
            let begin = text.find("#define RTU_ABI_VERSION ").expect("it has a version");
            let end = begin + text[begin..].find('\n').expect("a line");
            text.replace_range(begin..end, "#define RTU_ABI_VERSION 9");
        }
        fs::write(headers.join("rtscope").join(entry.file_name()), text).expect("a file of the test");
    }
    let Some(program) = build(&fixture, &headers, "emitter.c", &[], "from-tomorrow") else { return };
    let recorded = fixture.record(&[], &[program.to_str().expect("plain"), "count", "100"]);
    assert_eq!((recorded.events(), recorded.printed("emitted ")), (0, 100), "it runs on");
    let notes = String::from_utf8_lossy(&recorded.output.stderr);
    for said in [recorded.remarks(), notes.to_string()] {
        assert!(said.contains("from-tomorrow") && said.contains("built with version 9"), "{said}");
    }
}
