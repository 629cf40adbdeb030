// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that were built with another version of the headers: recorded, or refused by name with the reason.

use super::fixture::{Fixture, Recorded, begun, interrupt, waiting};
use crate::command::root;
use rtscope_testkit::process::wait_until;
use rtscope_testkit::skip;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// A program of version 1 has no lock that tells that it runs, and one leader. That a later one began in the same process does not mean that it has ended.
#[test]
fn a_program_of_version_1_that_loads_a_later_library_is_recorded_as_long_as_it_runs() {
    let fixture = Fixture::new();
    let Some(program) = build(&fixture, &version_1(), "unusual.c", &[], "unusual") else { return };
    let short = build(&fixture, &version_1(), "emitter.c", &[], "short").expect("as above");
    let files_of = |pid: u32| {
        let own = PathBuf::from(format!("/dev/shm/rtscope-{}", nix::unistd::geteuid()));
        let names = fs::read_dir(own).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy()[1..].starts_with(&format!("{pid}-"))).count()
    };
    for headers in [today(), version_2()] {
        let library =
            build(&fixture, &headers, "library.c", &["-fPIC", "-shared"], "library.so").expect("as above");
        let recorder = begun(&mut fixture.recorder(&[]));
        let mut program = waiting(Command::new(&program).args(["dlopen", "1000"]).arg(library).arg("waits"));
        assert!(files_of(program.id()) > 2, "it and its library have files");
        // Where the files of another one are gone, the recorder has looked who runs.
        let mut short =
            Command::new(&short).args(["count", "10"]).stdout(Stdio::null()).spawn().expect("it was built");
        assert!(short.wait().expect("it ends").success());
        wait_until("the files of who has ended are removed", || files_of(short.id()) == 0);
        program.stdin.take().expect("piped").write_all(b"\n").expect("it waits");
        let said = program.wait_with_output().expect("it ends");
        let recorded = Recorded::of(interrupt(recorder));
        fs::remove_dir_all(fixture.trace()).expect("it was made");
        let emitted = Recorded::printed_in(&said, "emitted ") + 10;
        assert_eq!(recorded.events(), emitted, "{}", recorded.account);
    }
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
