// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life of an instrumented program (crates/testkit/c/life.c): forks, libraries, threads that end, recorders that die. Nothing of it
//! may harm the program, leave anything behind, or lose an event that is not counted.

use super::fixture::{Fixture, Recorded, begun, interrupt, send, waiting};
use super::room::{in_own_room, recorded_late};
use crate::command::root;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::Signal;
use rtscope_testkit::skip;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

/// Of a program whose recorder takes nothing (RTU_BEAT_RINGS in abi.h), and some that were being made.
const BUFFERS_MAX: usize = 4096 + 16;

fn life(fixture: &Fixture) -> Option<PathBuf> {
    fixture.program("life.c", &["-ldl"], "life")
}

/// The same program without events: then a library leads.
fn host(fixture: &Fixture) -> Option<PathBuf> {
    fixture.program("life.c", &["-DRTSCOPE_DISABLE", "-ldl"], "host")
}

/// Libraries with events.
fn plugins(fixture: &Fixture, count: usize) -> Vec<String> {
    plugins_with(fixture, count, &[])
}

fn plugins_with(fixture: &Fixture, count: usize, flags: &[&str]) -> Vec<String> {
    let flags = [&["-shared", "-fPIC"], flags].concat();
    let compiled =
        (0..count).filter_map(|number| fixture.program("plugin.c", &flags, &format!("plugin{number}.so")));
    compiled.map(|path| path.display().to_string()).collect()
}

fn arguments<'a>(mode: &'a str, count: &'a str, libraries: &'a [String]) -> Vec<&'a str> {
    [mode, count].into_iter().chain(libraries.iter().map(String::as_str)).collect()
}

/// Names of programs' files of this user that begin with this letter.
fn files(kind: &str) -> Vec<String> {
    let directory = format!("/dev/shm/rtscope-{}", nix::unistd::geteuid());
    let names = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_programs = |name: &String| {
        name.starts_with(kind) && name.chars().nth(1).is_some_and(|second| second.is_ascii_digit())
    };
    names.filter(is_programs).collect()
}

fn run(program: &Path, words: &[&str]) -> Output {
    run_command(Command::new(program).args(words))
}

fn run_command(command: &mut Command) -> Output {
    let output = command.output().expect("it can be started");
    assert!(output.status.success(), "{command:?}: {output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("wrong 0\n"), "{command:?}: {output:?}");
    output
}

/// Records a run; nothing of it went wrong, and no event is missing.
fn record(fixture: &Fixture, program: &Path, words: &[&str]) -> Recorded {
    let command = [&[program.to_str().expect("plain")], words].concat();
    let recorded = fixture.record(&["--user-buffer", "64K"], &command);
    assert!(
        String::from_utf8_lossy(&recorded.output.stdout).contains("wrong 0\n"),
        "{words:?}: {:?}",
        recorded.output
    );
    fs::remove_dir_all(fixture.trace()).expect("it was made");
    recorded
}

#[test]
fn programs_that_nobody_records_leave_no_files() {
    let fixture = Fixture::new();
    let Some(life) = life(&fixture) else { return };
    let libraries = plugins(&fixture, 2);
    run(&life, &["forks", "0"]);
    let before = files("").len();
    for words in [vec!["forks", "200"], arguments("reload", "300", &libraries)] {
        let mut child = Command::new(&life).args(&words).stdout(Stdio::piped()).spawn().expect("it starts");
        assert!(child.wait().expect("it ends").success());
        // Not even until another program starts.
        let own = format!("p{}-", child.id());
        assert_eq!(files("p").iter().filter(|name| name.starts_with(&own)).count(), 0, "{words:?}");
        assert_eq!(files("").len(), before, "{words:?}");
        // Those of the program, and of the library that is loaded at the end.
        let output = child.wait_with_output().expect("it has ended");
        assert!(Recorded::printed_in(&output, "files ") <= 2, "{words:?}: {output:?}");
    }
    for _ in 0..100 {
        let mut child = waiting(Command::new(&life).args(["sleeper", "1"]));
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        // Its child sees the end of its input, and ends.
    }
    run(&life, &["forks", "0"]);
    let after = files("");
    assert!(after.len() <= before + 1, "after kills: {after:?}");
}

#[test]
fn children_of_a_program_that_loads_libraries_do_not_hang_and_inherit_none_of_its_files() {
    let fixture = Fixture::new();
    let Some(life) = life(&fixture) else { return };
    let libraries = plugins(&fixture, 1);
    run(&life, &arguments("loading", "300", &libraries));
    record(&fixture, &life, &arguments("loading", "100", &libraries)).assert_complete();
    let Some(host) = host(&fixture) else { return };
    run(&host, &arguments("loading", "300", &libraries));
}

/// The headers, in which a thread that makes or leaves a file takes longer than a fork waits for it, at these places.
pub fn slow_headers(to: &Path, places: &[(&str, &str)]) {
    headers_slow_by(60, to, places);
}

/// The same, by so many milliseconds.
fn headers_slow_by(ms: u32, to: &Path, places: &[(&str, &str)]) {
    let directory = to.join("rtscope");
    fs::create_dir(&directory).expect("ours");
    for file in fs::read_dir(root().join("include/rtscope")).expect("it is there").flatten() {
        fs::copy(file.path(), directory.join(file.file_name())).expect("ours");
    }
    let pause = format!(
        "{{ struct timespec slow = {{ 0, {ms}000000 }}; rtscope__call(__NR_nanosleep, (long)&slow, 0, 0, 0, 0, 0); }}"
    );
    for (name, place) in places {
        let text = fs::read_to_string(directory.join(name)).expect("it was just copied");
        assert!(text.contains(place), "{place}");
        let slow = text.replace(place, &format!("{pause}\n{place}"));
        fs::write(directory.join(name), slow).expect("ours");
    }
}

/// Before its number is noted; while its file is open; while it is mapped and in no list; and while it is left.
const IS_OPENED: (&str, &str) =
    ("files.h", "\tif (file.number < 0)\n\t\trtscope__end_opening(shared, opened);\n");
const IS_OPEN: (&str, &str) = ("new_file.h", "\t/* Somebody who looks for remains may have it");
const IS_MAPPED: (&str, &str) =
    ("new_file.h", "\tif (place || rtscope__is_error(memory))\n\t\trtscope__note_mapping(made, NULL, 1);");
const IS_LEFT: (&str, &str) = ("pages.h", "\tif (!rtscope__confined(shared))\n\t\trtscope__map_over(ring");

#[test]
fn children_of_a_fork_that_could_not_wait_inherit_none_of_its_files() {
    for places in [&[IS_OPENED][..], &[IS_OPEN, IS_MAPPED], &[IS_LEFT]] {
        let fixture = Fixture::new();
        let headers = tempfile::tempdir().expect("a temporary directory");
        slow_headers(headers.path(), places);
        let include = format!("-I{}", headers.path().display());
        let Some(life) = fixture.program("life.c", &[&include, "-ldl"], "life") else { return };
        let libraries = plugins_with(&fixture, 1, &[&include]);
        run(&life, &arguments("loading", "30", &libraries));
        record(&fixture, &life, &arguments("loading", "10", &libraries)).assert_complete();
        record(&fixture, &life, &arguments("starting", "20", &[])).assert_complete();
        record(&fixture, &life, &arguments("ending", "20", &[])).assert_complete();
    }
}

/// By numbers that were noted: of 15 000 descriptors each takes a microsecond, and the child waits for it.
#[test]
fn children_of_a_fork_that_could_not_wait_do_not_look_at_every_descriptor() {
    if skip::without_tool("strace") {
        return;
    }
    let (fixture, headers) = (Fixture::new(), tempfile::tempdir().expect("a temporary directory"));
    // Longer than a fork waits whose system calls are traced, each of which takes a tenth of a millisecond then.
    headers_slow_by(250, headers.path(), &[IS_OPEN]);
    let include = format!("-I{}", headers.path().display());
    let Some(life) = fixture.program("life.c", &[&include, "-ldl"], "life") else { return };
    let calls = headers.path().join("calls");
    let calls_path = calls.to_str().expect("text");
    let program = life.to_str().expect("text");
    let words = ["-f", "-qq", "-e", "trace=openat,readlinkat", "-o", calls_path, program, "starting", "20"];
    record(&fixture, Path::new("strace"), &words).assert_complete();
    let calls = fs::read_to_string(&calls).expect("strace writes it");
    let count =
        |of: &str, more: &str| calls.lines().filter(|line| line.contains(of) && line.contains(more)).count();
    let by_number = count("readlinkat(AT_FDCWD, \"/proc/self/fd/", "/dev/shm/rtscope-");
    // The test's own program opens it, too, and follows links.
    let every = count("openat(AT_FDCWD, \"/proc/self/fd\"", "O_NOFOLLOW");
    println!("{by_number} by number, {every} times all of them");
    assert!(by_number >= 3 && every * 3 <= by_number, "{by_number} by number, {every} times all of them");
}

#[test]
fn libraries_are_loaded_and_unloaded_in_any_order() {
    let fixture = Fixture::new();
    let (Some(life), Some(host)) = (life(&fixture), host(&fixture)) else { return };
    let libraries = plugins(&fixture, 8);
    for program in [life, host] {
        run(&program, &arguments("orders", "1000", &libraries));
        record(&fixture, &program, &arguments("orders", "300", &libraries)).assert_complete();
    }
}

#[test]
fn a_host_loads_its_plug_ins_again_and_again() {
    let fixture = Fixture::new();
    let (Some(life), Some(host)) = (life(&fixture), host(&fixture)) else { return };
    // With more events, all in all, than there are numbers for; and, if they are asked for, with more text than a program may describe.
    for (program, more) in [(&life, "unasked"), (&host, "unasked"), (&life, "test")] {
        let libraries = plugins_with(&fixture, 2, &[&format!("-DMORE={more}")]);
        let recorded = record(&fixture, program, &arguments("reload", "1000", &libraries));
        recorded.assert_complete();
        assert_eq!((recorded.events(), recorded.lost()), (1000, 0), "{}", recorded.account);
    }
}

#[test]
fn threads_with_new_stacks_have_buffers_without_end_where_a_library_leads() {
    let fixture = Fixture::new();
    let Some(host) = host(&fixture) else { return };
    let libraries = plugins(&fixture, 1);
    // More than the table of threads has entries.
    for mode in ["pointers", "keyless"] {
        let mut command = Command::new(&host);
        // Small buffers: nearly all of the time is the kernel's, for their pages.
        run_command(command.args(arguments(mode, "20000", &libraries)).env("RTSCOPE_BUFFER", "64K"));
        assert_eq!(files("r").len(), 0, "{mode}");
    }
}

#[test]
fn events_of_static_objects_are_recorded_when_a_library_is_loaded_and_unloaded() {
    let fixture = Fixture::new();
    let (Some(life), Some(host)) = (life(&fixture), host(&fixture)) else { return };
    let source = root().join("crates/testkit/c/statics.cpp");
    for compiler in ["c++", "clang++-19"] {
        let flags = ["-O2", "-shared", "-fPIC"];
        let Some(library) = fixture.compile(compiler, &flags, &source, "statics.so") else { continue };
        for program in [&life, &host] {
            let recorded = record(&fixture, program, &["once", "1", library.to_str().expect("plain")]);
            let counts = ["constructed", "library", "unloaded", "destroyed"]
                .map(|event| recorded.of_event(&format!("test:{event}")));
            assert_eq!(counts, [2, 1, 1, 2], "{compiler}: {}", recorded.account);
            assert_eq!(recorded.lost(), 0, "{compiler}: {}", recorded.account);
        }
    }
}

#[test]
fn events_at_the_end_of_a_thread_are_recorded_or_counted() {
    let fixture = Fixture::new();
    let (Some(life), Some(host)) = (life(&fixture), host(&fixture)) else { return };
    let libraries = plugins(&fixture, 1);
    let words = arguments("late", "300", &libraries);
    run(&life, &words);
    let recorded = record(&fixture, &life, &words);
    recorded.assert_complete();
    // Those of the destructors' first rounds are there.
    assert!(recorded.events() > 2 * 300, "{}", recorded.account);
    let recorded = record(&fixture, &host, &words);
    assert_eq!(recorded.of_event("test:library"), 300, "{}", recorded.account);
}

#[test]
fn threads_of_a_program_with_many_keys_leave_no_buffers() {
    let fixture = Fixture::new();
    let flags = ["-DRTSCOPE_START_BY_HAND", "-ldl"];
    let Some(life) = fixture.program("life.c", &flags, "life") else { return };
    let recorded = record(&fixture, &life, &["keys", "200"]);
    recorded.assert_complete();
    // Nor while it runs.
    let buffers = recorded.printed("buffers ");
    assert!(buffers <= 10, "{buffers} buffers of 200 threads that have ended");
    assert_eq!(files("r"), Vec::<String>::new());
}

#[test]
fn a_fork_in_a_handler_that_interrupts_an_event_harms_no_child() {
    let fixture = Fixture::new();
    let Some(life) = life(&fixture) else { return };
    run(&life, &["nested", "300"]);
    let recorded = record(&fixture, &life, &["nested", "300"]);
    assert_eq!(recorded.printed("forked "), 300);
    assert_eq!(recorded.printed("emitted "), 300, "each child has emitted after it");
    // In the middle of writing, each time.
    let recorded = record(&fixture, &life, &["faults", "50"]);
    assert_eq!((recorded.printed("forked "), recorded.printed("emitted ")), (50, 50));
}

#[test]
fn forks_and_first_events_in_handlers_need_little_stack() {
    let fixture = Fixture::new();
    for compiler in ["cc", "clang-19"] {
        let source = root().join("crates/testkit/c/life.c");
        let compile = |flags: &[&str], to: &str| {
            fixture.compile(compiler, &[&["-O2", "-std=c11", "-ldl"], flags].concat(), &source, to)
        };
        let (Some(life), Some(host)) = (compile(&[], "life"), compile(&["-DRTSCOPE_DISABLE"], "host")) else {
            continue;
        };
        for (mode, count) in [("small", "10"), ("handler", "5"), ("child", "5")] {
            // What the C library's fork() takes is in both.
            let without = Recorded::printed_in(&run(&host, &[mode, count]), "depth ");
            let with = record(&fixture, &life, &[mode, count]);
            with.assert_complete();
            let depth = with.printed("depth ");
            let told = format!("{compiler}, {mode}: {without} bytes without events, {depth} with");
            println!("{told}");
            assert!(depth <= without + 1024, "{told}");
        }
    }
}

#[test]
fn system_calls_that_a_signal_interrupted_are_tried_again() {
    if skip::without_tool("strace") {
        return;
    }
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &["-static"], "emitter") else { return };
    let log = fixture.path("log").display().to_string();
    for call in [
        "fallocate",
        "openat",
        "flock",
        "mkdirat",
        "statx",
        "mmap",
        "fcntl",
        "pread64",
        "newfstatat",
        "truncate",
        "mremap",
    ] {
        let inject = format!("inject={call}:error=EINTR:when=1..3");
        let emitter = emitter.to_str().expect("plain");
        let command = ["strace", "-f", "-o", &log, "-e", &inject, emitter, "count", "100", "2"];
        let recorded = fixture.record(&[], &command);
        recorded.assert_complete();
        assert_eq!((recorded.events(), recorded.lost()), (200, 0), "{call}: {}", recorded.account);
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

/// A program whose threads come and go, and its lines.
fn churn(program: &Path) -> (Child, BufReader<ChildStdout>) {
    let mut child = waiting(Command::new(program).args(["churn", "0"]));
    let output = BufReader::new(child.stdout.take().expect("piped"));
    (child, output)
}

/// Waits until this many times 500 threads have come and gone.
fn await_threads(output: &mut BufReader<ChildStdout>, times: usize) {
    for _ in 0..times {
        let mut line = String::new();
        output.read_line(&mut line).expect("text");
        assert_eq!(line, "500 threads\n");
    }
}

fn end(mut child: Child, output: BufReader<ChildStdout>) -> u64 {
    child.stdin.take().expect("piped").write_all(b"\n").expect("it reads");
    assert!(child.wait().expect("it ends").success());
    let lines: Vec<String> = output.lines().map_while(Result::ok).collect();
    let emitted = lines.iter().find_map(|line| line.strip_prefix("emitted ")?.parse().ok());
    emitted.expect("it printed that")
}

#[test]
fn threads_that_end_after_the_recorder_was_killed_leave_no_buffers() {
    let fixture = Fixture::new();
    let Some(life) = life(&fixture) else { return };
    let mut recorder = begun(&mut fixture.recorder(&["--user-buffer", "64K"]));
    let (child, mut output) = churn(&life);
    await_threads(&mut output, 2);
    recorder.kill().expect("it runs");
    recorder.wait().expect("it ends");
    // One that was being made may still come.
    let before = files("r").len();
    await_threads(&mut output, 10);
    let after = files("r").len();
    println!("{before} buffers when the recorder died, {after} after 5000 threads");
    assert!(after <= before + 1, "{before} buffers when the recorder died, {after} after 5000 threads");
    end(child, output);
    // The next recorder finds what is left, and takes it away.
    fs::remove_dir_all(fixture.trace()).expect("the recorder was killed");
    fixture.record(&[], &["true"]);
    assert_eq!(files("r"), Vec::<String>::new());
}

#[test]
fn a_lock_for_reading_does_not_keep_a_killed_recorder_alive() {
    let fixture = Fixture::new();
    let Some(life) = life(&fixture) else { return };
    let mut recorder = begun(&mut fixture.recorder(&["--user-buffer", "64K"]));
    let mut sessions = vec![format!("/dev/shm/rtscope-{}/session", nix::unistd::geteuid())];
    // Root's can be read, and so locked for reading, by everybody.
    sessions.extend(nix::unistd::geteuid().is_root().then(|| "/dev/shm/rtscope-session".to_string()));
    recorder.kill().expect("it runs");
    recorder.wait().expect("it ends");
    // SAFETY: all zeros are a valid `flock`: the whole file.
    let mut lock: nix::libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = i16::try_from(nix::libc::F_RDLCK).expect("a small constant");
    let locked: Vec<fs::File> = sessions
        .iter()
        .map(|path| {
            let file = fs::File::open(path).expect("the recorder could not remove it");
            fcntl(&file, FcntlArg::F_OFD_SETLK(&lock)).expect("nobody else has it");
            file
        })
        .collect();
    let left = (0..5).flat_map(|_| {
        let mut child =
            Command::new(&life).args(["keys", "2"]).stdout(Stdio::null()).spawn().expect("it starts");
        assert!(child.wait().expect("it ends").success());
        let own = format!("{}-", child.id());
        [files("p"), files("r")].concat().into_iter().filter(move |name| name[1..].starts_with(&own))
    });
    let left: Vec<String> = left.collect();
    drop(locked);
    fs::remove_dir_all(fixture.trace()).expect("the recorder was killed");
    fixture.record(&[], &["true"]);
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn a_recorder_that_was_stopped_goes_on_and_buffers_are_bounded_and_losses_counted() {
    let fixture = Fixture::new();
    let Some(life) = life(&fixture) else { return };
    let recorder = begun(&mut fixture.recorder(&["--user-buffer", "64K"]));
    let (child, mut output) = churn(&life);
    await_threads(&mut output, 2);
    send(&recorder, Signal::SIGSTOP);
    // It is silent for as long as it takes until threads get no more buffers.
    let (mut before, mut now) = (usize::MAX, 0);
    while now != before {
        await_threads(&mut output, 4);
        (before, now) = (now, files("r").len());
        assert!(now <= BUFFERS_MAX, "{now} buffers while the recorder is stopped");
    }
    send(&recorder, Signal::SIGCONT);
    // Then it takes them, while the program goes on, and threads have buffers again.
    while files("r").len() > now / 4 {
        await_threads(&mut output, 1);
        // At first as many again.
        assert!(files("r").len() <= 2 * BUFFERS_MAX);
    }
    await_threads(&mut output, 4);
    let emitted = end(child, output);
    let recorded = Recorded::of(interrupt(recorder));
    println!("recorded {} + lost {} = emitted {emitted}", recorded.events(), recorded.lost());
    assert_eq!(recorded.events() + recorded.lost(), emitted, "{}", recorded.account);
    assert!(recorded.lost() > 0, "{}", recorded.account);
}

#[test]
fn threads_that_come_and_go_without_end_do_not_fill_the_memory_with_buffers() {
    let fixture = Fixture::new();
    let Some(life) = life(&fixture) else { return };
    let recorder = begun(&mut fixture.recorder(&["--user-buffer", "64K"]));
    let (child, mut output) = churn(&life);
    let mut most = 0;
    for _ in 0..60 {
        await_threads(&mut output, 1);
        most = most.max(files("r").len());
        assert!(most <= 2 * BUFFERS_MAX, "{most} buffers");
    }
    let emitted = end(child, output);
    let recorded = Recorded::of(interrupt(recorder));
    println!("{most} buffers; recorded {} + lost {} = emitted {emitted}", recorded.events(), recorded.lost());
    assert_eq!(recorded.events() + recorded.lost(), emitted, "{}", recorded.account);
}

#[test]
fn children_that_were_forked_before_the_recorder_began_are_recorded() {
    let fixture = Fixture::new();
    let Some(life) = life(&fixture) else { return };
    let mut child = waiting(Command::new(&life).args(["sleeper", "5"]));
    assert_eq!(files("p").iter().filter(|name| name.starts_with(&format!("p{}-", child.id()))).count(), 1);
    let recorder = begun(&mut fixture.recorder(&[]));
    child.stdin.take().expect("piped").write_all(b"\n").expect("it reads");
    assert!(child.wait().expect("it ends").success());
    let recorded = Recorded::of(interrupt(recorder));
    assert_eq!((recorded.events(), recorded.lost()), (5, 0), "{}", recorded.account);
}

/// A handler in between made a buffer in the page of a thread that was about to give it back, and children of forks then lost whatever was there.
/// Such a child has its parent's memory. It may only call `_exit()`, but without rtscope its parent would go on as before.
// NEEDS: host
#[test]
fn root_a_child_of_a_vfork_that_calls_exit_takes_nothing_from_its_parent() {
    if skip::without_root() || skip::without_tool("unshare") {
        return;
    }
    let fixture = Fixture::new();
    let Some(unusual) = fixture.program("unusual.c", &[], "unusual") else { return };
    // It has files: whoever is the first of its user makes them.
    let script =
        recorded_late(&fixture, &format!("{} exits 1000", unusual.display()), "ls /dev/shm/rtscope-0/p* >&2");
    let recorded = in_own_room(&fixture, "64m", &script);
    assert_eq!((recorded.events(), recorded.lost()), (2000, 0), "{}", recorded.account);
}

/// Between the moment in which its first event finds no buffer and the one from which on signals are blocked.
#[test]
fn a_thread_has_one_buffer_whatever_its_handlers_emit_around_its_first_event() {
    let fixture = Fixture::new();
    let Some(program) = fixture.program("first.c", &[], "first") else { return };
    let recorded = fixture.record(&["--user-buffer", "64K"], &[program.to_str().expect("text"), "1000"]);
    // That of its first thread, whose buffer is made when it is recorded from its start.
    assert_eq!(recorded.printed("mapped"), 1, "{}", recorded.account);
    assert_eq!(recorded.events() + recorded.lost(), recorded.printed("emitted"), "{}", recorded.account);
}

#[test]
fn children_keep_their_memory_whatever_handlers_emit_at_the_end_of_threads() {
    let fixture = Fixture::new();
    let Some(ends) = fixture.program("ends.c", &[], "ends") else { return };
    let recorded = fixture.record(&["--user-buffer", "64K"], &[ends.as_os_str(), "3".as_ref()]);
    let printed = |word| Recorded::printed_in(&recorded.output, word);
    assert!(printed("emitted ") > 3000, "{:?}", recorded.output);
    assert_eq!(printed("died "), 0, "{:?}", recorded.output);
    assert_eq!(recorded.events() + recorded.lost(), printed("emitted "), "{}", recorded.account);
}
