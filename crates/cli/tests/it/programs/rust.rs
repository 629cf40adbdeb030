// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rust programs with the events of `rtscope-probe` (crates/testkit/src/bin/rtscope-emitter.rs), alone and with C in one process.
//! In each test: recorded + lost = emitted.

use super::fixture::{Fixture, Recorded, begun, block, interrupt, lines, send, waiting};
use crate::command::{root, rtscope};
use nix::sys::signal::Signal;
use rtscope_testkit::process::program;
use rtscope_testkit::skip;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn emitter() -> PathBuf {
    program("rtscope-emitter").expect("built")
}

fn emit(fixture: &Fixture, options: &[&str], arguments: &[&str]) -> Recorded {
    let emitter = emitter();
    let words = [&[emitter.to_str().expect("plain")], arguments].concat();
    let recorded = fixture.record(options, &words);
    recorded.assert_complete();
    if let Ok(read) = Command::new("babeltrace2").arg(fixture.trace()).output() {
        let text = String::from_utf8_lossy(&read.stderr).into_owned();
        let complaint = text.lines().find(|line| !line.is_empty() && !line.contains("Tracer discarded"));
        assert_eq!(complaint, None);
        assert_eq!(read.stdout.iter().filter(|byte| **byte == b'\n').count() as u64, recorded.events());
    }
    recorded
}

#[test]
fn a_rust_program_is_recorded_in_order() {
    let fixture = Fixture::new();
    let options = ["--user-buffer", "16M", "--context", "none"];
    let recorded = emit(&fixture, &options, &["count", "100000"]);
    assert_eq!((recorded.lost(), recorded.events()), (0, 100_000));
    for (number, line) in lines(&fixture.trace()).iter().enumerate() {
        assert!(line.contains(&format!("test:count: {{ n = {number}, thread = 0 }}")), "{line}");
    }
}

#[test]
fn rust_threads_and_their_losses_are_recorded() {
    let fixture = Fixture::new();
    let recorded = emit(&fixture, &["--user-buffer", "64K"], &["count", "300000", "4"]);
    assert!(recorded.lost() > 0, "a ring of 64 KiB holds 2700 of them: {}", recorded.account);
}

#[test]
fn rust_threads_that_end_while_they_are_recorded_lose_nothing() {
    let fixture = Fixture::new();
    let recorded = emit(&fixture, &["--user-buffer", "64K"], &["short", "500"]);
    // One event of each is made while its thread-local values are dropped; and main() has a ring.
    assert_eq!(
        (recorded.lost(), recorded.of_event("test:last"), recorded.account["rings"].as_u64()),
        (0, 500, Some(501))
    );
}

#[test]
fn rust_handlers_that_interrupt_events_are_recorded() {
    let fixture = Fixture::new();
    let recorded = emit(&fixture, &["--user-buffer", "64M"], &["signals", "2000000"]);
    assert!(recorded.of_event("test:handler") > 10, "{}", recorded.account);
}

#[test]
fn children_of_a_rust_program_are_recorded_or_counted() {
    let fixture = Fixture::new();
    for (mode, rings, events) in [("fork", 2, 3000), ("clone", 1, 2000)] {
        let recorded = emit(&fixture, &[], &[mode, "1000"]);
        assert_eq!((recorded.account["rings"].as_u64(), recorded.events()), (Some(rings), events), "{mode}");
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

#[test]
fn events_larger_than_a_record_are_counted_and_harm_no_other() {
    let fixture = Fixture::new();
    let in_c = fixture.program("emitter.c", &[], "emitter");
    for emitter in in_c.into_iter().chain([emitter()]) {
        let recorded = fixture.record(&[], &[emitter.as_os_str(), "large".as_ref(), "1000".as_ref()]);
        recorded.assert_complete();
        assert_eq!((recorded.events(), recorded.lost()), (1000, 1000), "{}", recorded.account);
        assert_eq!(recorded.account["losses"][0]["cause"], "too_large", "{}", recorded.account);
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

#[test]
fn disabled_events_of_a_rust_program_are_nothing() {
    let fixture = Fixture::new();
    if skip::without_tool("rustc") {
        return;
    }
    // As cargo compiles it with the feature `disable`.
    let library = fixture.path("librtscope_probe.rlib");
    let output = Command::new("rustc")
        .args(["--edition", "2024", "--crate-type", "rlib", "--crate-name", "rtscope_probe"])
        .args(["--cfg", "rtscope_disabled", "-o"])
        .args([&library, &root().join("crates/probe/src/lib.rs")])
        .output()
        .expect("it was just there");
    assert!(output.status.success(), "{output:?}");
    let source = "rtscope_probe::enumeration!(Mode { 0 => \"idle\" });\nfn value() -> u64 { panic!(\"it is evaluated\") }\n\
        fn main() { rtscope_probe::thread_init().unwrap(); \
        rtscope_probe::event!(a, b, x: u64 = value(), m: enum(Mode) = 0, t: [u8; 1] = &[1]); }\n";
    let (path, to) = (fixture.path("source.rs"), fixture.path("disabled"));
    fs::write(&path, source).expect("a file of the test");
    let mut compiler = Command::new("rustc");
    compiler.args(["--edition", "2024", "-D", "warnings", "-o"]).args([&to, &path]);
    compiler.arg("--extern").arg(format!("rtscope_probe={}", library.display()));
    let output = compiler.output().expect("it was just there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(Command::new(&to).status().expect("it runs").success());
    let program = fs::read(&to).expect("it is there");
    for trace in ["rtscope_events", "rtscope_enums", "/dev/shm/rtscope-"] {
        assert!(!program.windows(trace.len()).any(|bytes| bytes == trace.as_bytes()), "{trace}");
    }
}

#[test]
fn an_argument_that_panics_leaves_no_record() {
    let fixture = Fixture::new();
    let recorded = emit(&fixture, &[], &["panic", "1000"]);
    assert_eq!((recorded.of_event("test:never"), recorded.of_event("test:after")), (0, 1000));
    assert!(lines(&fixture.trace()).iter().all(|line| line.contains("\"true\"")));
}

#[test]
fn a_process_with_events_in_rust_and_c_has_one_ring_a_thread() {
    let fixture = Fixture::new();
    // C linked into the program: two threads.
    let mixed = emit(&fixture, &[], &["mixed", "1000"]);
    assert_eq!((mixed.lost(), mixed.of_event("test:linked_c")), (0, 2000));
    assert_eq!(mixed.account["rings"], 2, "{}", mixed.account);
    fs::remove_dir_all(fixture.trace()).expect("it was made");
    // C in a library that is loaded later: one thread, and two objects with descriptions.
    let Some(library) = fixture.program("library.c", &["-shared", "-fPIC"], "library.so") else { return };
    let loaded = emit(&fixture, &[], &["load", library.to_str().expect("plain")]);
    assert_eq!((loaded.lost(), loaded.of_event("test:library")), (0, 100));
    assert_eq!(loaded.account["rings"], 1, "{}", loaded.account);
}

/// Compiles with this build's crate, as cargo would for a user. `None`, and the reason reported, without a compiler.
fn rustc(fixture: &Fixture, flags: &[&str], source: &str, to: &str) -> Option<PathBuf> {
    if skip::without_tool("rustc") {
        return None;
    }
    let directory = crate::command::path().with_file_name("deps");
    let libraries = fs::read_dir(&directory).expect("it is there").flatten();
    let library = libraries
        .filter(|file| {
            let name = file.file_name().to_string_lossy().into_owned();
            name.starts_with("librtscope_probe-") && name.ends_with(".rlib")
        })
        .max_by_key(|file| file.metadata().and_then(|data| data.modified()).expect("it is there"))
        .expect("this test's programs use it");
    let (path, to) = (fixture.path("source.rs"), fixture.path(to));
    fs::write(&path, source).expect("a file of the test");
    let output = Command::new("rustc")
        .args(["--edition", "2024", "-D", "warnings", "-O"])
        .args(flags)
        .arg("--extern")
        .arg(format!("rtscope_probe={}", library.path().display()))
        .arg("-L")
        .arg(&directory)
        .arg("-o")
        .args([&to, &path])
        // So that it is the compiler of this workspace.
        .current_dir(root())
        .output()
        .expect("it was just there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(to)
}

#[test]
fn a_c_program_with_a_rust_library_has_one_ring_a_thread() {
    let fixture = Fixture::new();
    let source = "#![forbid(unsafe_op_in_unsafe_fn)]\n#[unsafe(no_mangle)]\npub extern \"C\" fn library_emit(count: u64) {\n for n in 0..count {\n rtscope_probe::event!(test, library, n: u64 = n);\n rtscope_probe::event!(test, same, text: str = \"of Rust\");\n }\n}\n";
    let Some(library) = rustc(&fixture, &["--crate-type", "cdylib"], source, "library.so") else { return };
    let Some(unusual) = fixture.program("unusual.c", &[], "unusual") else { return };
    let words = [unusual.as_os_str(), "dlopen".as_ref(), "100".as_ref(), library.as_os_str()];
    let recorded = fixture.record(&[], &words);
    recorded.assert_complete();
    assert_eq!((recorded.lost(), recorded.account["rings"].as_u64()), (0, Some(1)), "{}", recorded.account);
    assert_eq!(recorded.of_event("test:library"), 100);
    let texts = lines(&fixture.trace()).iter().filter(|line| line.contains("text = \"of Rust\"")).count();
    assert_eq!(texts, 100);
}

#[test]
fn the_readmes_rust_example_traces_as_printed() {
    let fixture = Fixture::new();
    // Users who forbid unsafe code may have events.
    let source = format!("#![forbid(unsafe_code)]\n{}", block("rust"));
    for (flags, name) in [(&[][..], "plain"), (&["-C", "target-feature=+crt-static"][..], "static")] {
        let Some(motor) = rustc(&fixture, flags, &source, name) else { return };
        let mut command = rtscope();
        command.args(["record", "-u", "motor:*", "-o"]).arg(fixture.trace()).arg("--").arg(&motor);
        assert!(command.output().expect("it can be started").status.success());
        let events = |text: &str| -> Vec<String> {
            let found =
                text.lines().filter_map(|line| Some(line[line.find("motor:setpoint:")?..].to_string()));
            found.collect()
        };
        let printed = rtscope().arg("print").arg(fixture.trace()).output().expect("it can be started");
        let printed = events(&String::from_utf8_lossy(&printed.stdout));
        assert_eq!((printed.len(), printed), (3, events(&block("text"))), "{name}");
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

#[test]
fn what_cannot_be_described_does_not_compile() {
    if skip::without_tool("rustc") {
        return;
    }
    let fixture = Fixture::new();
    for (event, complaint) in [
        ("event!(a, b, x: u8 = 1, x: u8 = 2)", "two fields have one name"),
        ("event!(a, b, r#type: u8 = 1)", "raw identifiers"),
        ("event!(a, größe)", "names are letters"),
        ("event!(a, b, x: u8 = 1_u16)", "mismatched types"),
        ("event!(a, b, x: u9 = 1)", "u9"),
        ("event!(a, b, x: enum(Nowhere) = 1)", "Nowhere"),
        ("event!(a, b, x: [u8; 0] = &[])", "an array has an element"),
    ] {
        let source = format!("use rtscope_probe::event; fn main() {{ {event}; }}");
        let refused = std::panic::catch_unwind(|| rustc(&fixture, &[], &source, "refused"));
        let message = refused.expect_err(event);
        let message = message.downcast_ref::<String>().expect("rustc's own words");
        assert!(message.contains(complaint), "{event}: {message}");
    }
    // Seventeen fields.
    let fields: String = (0..17).map(|n| format!(", f{n}: u8 = 1")).collect();
    let source = format!("fn main() {{ rtscope_probe::event!(a, b{fields}); }}");
    assert!(std::panic::catch_unwind(|| rustc(&fixture, &[], &source, "refused")).is_err());
}

#[test]
fn what_a_killed_rust_program_had_committed_is_recorded() {
    let fixture = Fixture::new();
    let mut child = waiting(Command::new(emitter()).args(["wait", "100000"]));
    let recorder = begun(&mut fixture.recorder(&["--user-buffer", "64M"]));
    // It fills its ring while nobody empties it: the recorder is stopped. Then it is killed.
    send(&recorder, Signal::SIGSTOP);
    child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
    let mut said = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut said).expect("it says how many");
    child.kill().expect("it runs, or has ended");
    child.wait().expect("it ends");
    send(&recorder, Signal::SIGCONT);
    let recorded = Recorded::of(interrupt(recorder));
    assert_eq!((said.as_str(), recorded.lost(), recorded.events()), ("emitted 100000\n", 0, 100_000));
}

#[test]
fn a_traced_rust_thread_makes_no_system_call() {
    let fixture = Fixture::new();
    if skip::without_tool("strace") {
        return;
    }
    let calls = |count: &str| -> String {
        let log = fixture.path("strace");
        let mut command = fixture.recorder(&["--user-buffer", "1M"]);
        command.args(["--", "strace", "-f", "-c", "-o"]).arg(&log).arg(emitter()).args(["count", count]);
        let output = command.output().expect("it was just there");
        assert!(output.status.success(), "{output:?}");
        fs::remove_dir_all(fixture.trace()).expect("it was made");
        let text = fs::read_to_string(&log).expect("strace's table");
        let total = text.lines().find(|line| line.ends_with("total")).expect("a sum");
        total.split_whitespace().nth(3).expect("a number").to_string()
    };
    let [few, many] = ["10000", "1000000"].map(calls);
    println!("system calls with 10 000 events: {few}, with a million: {many}");
    assert_eq!(few, many);
}

#[test]
fn a_rust_program_waits_for_room_when_it_allows_that_and_never_in_real_time() {
    let fixture = Fixture::new();
    let run = |prefix: &[&str]| {
        let mut command = fixture.recorder(&["--user-buffer", "64K", "--blocking"]);
        command.arg("--").args(prefix).arg(emitter()).args(["count", "300000"]);
        let output = command.env("RTSCOPE_ALLOW_BLOCKING", "1").output().expect("it can be started");
        assert!(output.status.success(), "{output:?}");
        let recorded = Recorded::of(output);
        recorded.assert_complete();
        fs::remove_dir_all(fixture.trace()).expect("it was made");
        (recorded.lost(), recorded.account["waits"].as_u64().expect("a number"))
    };
    let (lost, waits) = run(&[]);
    assert!(lost == 0 && waits > 0, "lost {lost}, waits {waits}");
    if !skip::without_root() {
        let (lost, waits) = run(&["chrt", "-f", "1"]);
        assert!(lost > 0 && waits == 0, "real-time: lost {lost}, waits {waits}");
    }
}

#[test]
fn a_rust_program_keeps_the_newest_events_in_a_flight_recorder() {
    let fixture = Fixture::new();
    let mut command = fixture.recorder(&["--flight-recorder", "--user-buffer", "64K", "--"]);
    let output = command.arg(emitter()).args(["count", "1000000"]).output().expect("it can be started");
    assert!(output.status.success(), "{output:?}");
    // 64 KiB hold some 2700 of them; the last one is there, and nothing is missing before it.
    let lines = lines(&fixture.trace().join("1"));
    assert!((1000..3000).contains(&lines.len()), "{}", lines.len());
    for (line, number) in lines.iter().rev().zip((0..1_000_000).rev()) {
        assert!(line.contains(&format!("{{ n = {number}, ")), "{number}: {line}");
    }
}

#[test]
fn a_rust_program_obeys_the_environment() {
    let fixture = Fixture::new();
    let run = |variable: &str, mode: &str| {
        let emitter = emitter();
        let words = ["env", variable, emitter.to_str().expect("plain"), mode, "1000"];
        let recorded = fixture.record(&[], &words);
        fs::remove_dir_all(fixture.trace()).expect("it was made");
        recorded
    };
    let off = run("RTSCOPE=0", "count");
    assert_eq!((off.printed("emitted "), off.events(), off.lost()), (1000, 0, 0));
    // main() has a ring from the start; the threads that nobody asked for have none.
    let lazy = run("RTSCOPE_LAZY=0", "short");
    lazy.assert_complete();
    assert_eq!((lazy.events(), lazy.lost()), (0, 2000));
}

// NEEDS: host
#[test]
fn root_other_tools_get_a_rust_programs_events() {
    if skip::without_root() || skip::without_tool("bpftrace") {
        return;
    }
    let _fixture = Fixture::new();
    let emitter = emitter();
    // Tools take the difference between this section and what the notes say for what the file was moved by.
    let readelf = |what: &str| {
        let output = Command::new("readelf").args(["-W", what]).arg(&emitter).output().expect("binutils");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let sections = readelf("-S");
    let line = sections.lines().find(|line| line.contains(" .stapsdt.base ")).expect("the section");
    let base = format!("Base: 0x{},", line.split_whitespace().rev().nth(7).expect("its address"));
    let notes = readelf("-n");
    let (right, all) = (notes.matches(&base).count(), notes.matches("Base: ").count());
    assert!(right == all && all >= 7, "{base} {line}\n{notes}");
    let probe = format!("usdt:{}:test", emitter.display());
    let script = format!("{probe}:count {{ @n = count(); @most = max(arg0); @thread = max(arg1); }}");
    let mut bpftrace = Command::new("bpftrace");
    bpftrace.args(["-e", &script, "-c"]).arg(format!("{} count 1000", emitter.display()));
    let output = bpftrace.output().expect("it was just there");
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        skip!("bpftrace: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    for expected in ["@n: 1000", "@most: 999", "@thread: 0"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let vectors = program("rtscope-vectors").expect("built");
    // Otherwise the kernel may count in another segment's copy of the page that a probe is wanted, and the probe never fires.
    let output = Command::new("readelf").args(["-SW"]).arg(&vectors).output().expect("binutils");
    let sections = String::from_utf8_lossy(&output.stdout).into_owned();
    let probes = sections.lines().find(|line| line.contains(" .probes ")).expect("the section");
    let address =
        probes.split_whitespace().skip_while(|word| *word != "PROGBITS").nth(1).expect("an address");
    assert!(address.ends_with("000"), "{probes}");
    text_of_a_probe(&vectors);
}

/// A text is where the probe says, and ends.
fn text_of_a_probe(vectors: &Path) {
    let script = format!(
        "usdt:{}:vectors:texts {{ printf(\"<%s> <%s> <%s>\\n\", str(arg0), str(arg1), str(arg2)); }}",
        vectors.display()
    );
    let mut bpftrace = Command::new("bpftrace");
    bpftrace.args(["-e", &script, "-c"]).arg(vectors).stdin(Stdio::null());
    let output = bpftrace.output().expect("it is there");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("<hello> <> <cut o>"), "{output:?}");
}
