// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that do unusual things (crates/testkit/c/unusual.c) run on, and recorded + lost = emitted.

use super::fixture::{Fixture, lines};
use super::room::{in_own_room, recorded_late};
use crate::command::{field, root, rtscope};
use rtscope_testkit::skip;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn a_library_that_is_loaded_later_shares_the_threads_ring() {
    let fixture = Fixture::new();
    let Some(unusual) = fixture.program("unusual.c", &[], "unusual") else { return };
    let Some(library) = fixture.program("library.c", &["-shared", "-fPIC"], "library.so") else { return };
    let words = [unusual.as_os_str(), "dlopen".as_ref(), "100".as_ref(), library.as_os_str()];
    let recorded = fixture.record(&["--context", "none"], &words);
    recorded.assert_complete();
    assert_eq!((recorded.lost(), recorded.account["rings"].as_u64()), (0, Some(1)), "{}", recorded.account);
    // Two events of one name with other fields are two classes, and each payload is read as its own.
    assert_eq!((recorded.of_event("test:same"), recorded.of_event("test:library")), (200, 100));
    let lines = lines(&fixture.trace());
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!(count("text = \"of the library\""), 100);
    assert_eq!((0..100).filter(|n| count(&format!("test:same: {{ number = {n} }}")) == 1).count(), 100);
    let metadata = fs::read_to_string(fixture.trace().join("ust/metadata")).expect("it is text");
    let origins: Vec<&str> = metadata.lines().filter(|line| line.contains("model.emf.uri")).collect();
    assert!(origins.iter().any(|origin| origin != &origins[0]), "{origins:?}");
}

#[test]
fn a_static_program_is_recorded() {
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &["-static"], "emitter") else { return };
    let recorded = fixture.record(&[], &[emitter.as_os_str(), "count".as_ref(), "5000".as_ref()]);
    recorded.assert_complete();
    assert_eq!(recorded.lost(), 0);
}

#[test]
fn a_tracer_of_functions_made_of_events_is_recorded() {
    let fixture = Fixture::new();
    let source = root().join("crates/testkit/c/tracer.c");
    let functions: &[&str] = &["-std=c11", "-finstrument-functions"];
    let coverage: &[&str] = &["-std=c11", "-fsanitize-coverage=trace-pc", "-DCOVERAGE"];
    for (compiler, flags) in [("gcc", functions), ("clang-19", functions), ("gcc", coverage)] {
        for level in ["-O0", "-O2"] {
            let flags = [&[level], flags].concat();
            let Some(tracer) = fixture.compile(compiler, &flags, &source, "tracer") else { continue };
            let recorded = fixture.record(&[], &[tracer.as_os_str(), "100".as_ref()]);
            recorded.assert_complete();
            assert!(recorded.events() >= 200 && recorded.lost() == 0, "{compiler} {flags:?}");
            fs::remove_dir_all(fixture.trace()).expect("it was made");
        }
    }
}

#[test]
fn a_program_with_another_c_library_is_recorded() {
    let fixture = Fixture::new();
    let source = root().join("crates/testkit/c/emitter.c");
    // musl has no headers of the kernel.
    let headers = ["-idirafter", "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu"];
    for way in ["-static", "-pie"] {
        let flags = [&["-O2", "-std=c11", "-fPIE", way][..], &headers].concat();
        let Some(emitter) = fixture.compile("musl-gcc", &flags, &source, "emitter") else { return };
        for words in [["count", "5000"], ["signals", "5000"], ["forks", "20"]] {
            let recorded = fixture.record(
                &["--user-buffer", "4M"],
                &[&[emitter.as_os_str()], &words.map(OsStr::new)[..]].concat(),
            );
            recorded.assert_complete();
            assert!(recorded.events() >= 2000, "{way} {words:?}: {}", recorded.account);
            fs::remove_dir_all(fixture.trace()).expect("it was made");
        }
    }
}

#[test]
fn a_program_for_arm64_is_recorded_in_an_emulator() {
    let fixture = Fixture::new();
    // The name of Debian 12's, and that of later ones.
    let names = ["qemu-aarch64-static", "qemu-aarch64"];
    let is_there = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    let Some(emulator) = names.into_iter().find(is_there) else {
        skip!("there is no {} here", names[0]);
    };
    let source = root().join("crates/testkit/c/emitter.c");
    let flags = ["-O2", "-std=c11", "-static"];
    let Some(emitter) = fixture.compile("aarch64-linux-gnu-gcc", &flags, &source, "emitter") else { return };
    for words in [["count", "20000"], ["signals", "20000"]] {
        let command =
            ["env".as_ref(), "RTSCOPE_CLOCK=monotonic".as_ref(), emulator.as_ref(), emitter.as_os_str()];
        let recorded =
            fixture.record(&["--user-buffer", "64M"], &[&command[..], &words.map(OsStr::new)].concat());
        recorded.assert_complete();
        assert!(recorded.events() > 0 && recorded.lost() == 0, "{}", recorded.account);
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
    // The emulated counter says nothing here: refused, with what to do.
    let recorded =
        fixture.record(&[], &[emulator.as_ref(), emitter.as_os_str(), "count".as_ref(), "10".as_ref()]);
    assert!(
        recorded.events() == 0 && recorded.remarks().contains("RTSCOPE_CLOCK=monotonic"),
        "{}",
        recorded.remarks()
    );
}

#[test]
fn jumps_out_of_events_are_survived_and_counted() {
    let fixture = Fixture::new();
    let Some(unusual) = fixture.program("unusual.c", &[], "unusual") else { return };
    let words = [unusual.as_os_str(), "jump".as_ref(), "200000".as_ref()];
    let recorded = fixture.record(&["--user-buffer", "64M"], &words);
    let (all, done, begun) =
        (recorded.events() + recorded.lost(), recorded.printed("emitted "), recorded.printed("begun "));
    println!("done {done} <= recorded {} + lost {} <= begun {begun}", recorded.events(), recorded.lost());
    assert!(done < begun, "handlers interrupted events");
    assert!(done <= all && all <= begun, "{}", recorded.account);
    assert!(recorded.events() > 1000 && recorded.remarks() == "[]", "{}", recorded.account);
}

#[test]
fn what_follows_events_that_a_thread_jumped_away_from_is_recorded() {
    let fixture = Fixture::new();
    let Some(unusual) = fixture.program("unusual.c", &[], "unusual") else { return };
    // Three times what the buffer holds, in 0.7 s at least: a buffer that stands still for a second loses most of it.
    let words = [unusual.as_os_str(), "leave".as_ref(), "300".as_ref()];
    let recorded = fixture.record(&["--user-buffer", "256K"], &words);
    recorded.assert_complete();
    assert_eq!((recorded.of_event("test:count"), recorded.lost()), (30_000, 300), "{}", recorded.account);
    let losses = recorded.account["losses"].as_array().expect("a list");
    let causes: Vec<&str> = losses.iter().filter_map(|loss| loss["cause"].as_str()).collect();
    assert_eq!(causes, ["unfinished"], "{}", recorded.account);
}

#[test]
fn events_in_functions_that_replace_the_c_librarys_do_not_call_themselves() {
    let fixture = Fixture::new();
    let source = root().join("crates/testkit/c/interposed.c");
    let library = ["-shared", "-fPIC", "-fno-builtin"];
    let ways: [(&str, &str, &[&str]); 3] = [
        ("gcc", "-O2", &["-fno-tree-loop-distribute-patterns"]),
        ("gcc", "-O0", &[]),
        ("clang-19", "-O0", &[]),
    ];
    for (compiler, level, more) in ways {
        let flags = [&[level, "-std=c11"], &library[..], more].concat();
        let Some(library) = fixture.compile(compiler, &flags, &source, "interposed.so") else { continue };
        let flags = [level, "-std=c11", "-fno-builtin", "-DPROGRAM"];
        let Some(program) = fixture.compile(compiler, &flags, &source, "interposed") else { continue };
        let preload = format!("LD_PRELOAD={}", library.display());
        let words =
            ["env".as_ref(), preload.as_ref(), "RTSCOPE_CLOCK=monotonic".as_ref(), program.as_os_str()];
        let recorded =
            fixture.record(&["--user-buffer", "16M"], &[&words[..], &[OsStr::new("1000")]].concat());
        recorded.assert_complete();
        for name in ["program", "large", "clock", "copy", "set", "length", "find"] {
            assert!(recorded.of_event(&format!("test:{name}")) >= 1000, "{compiler} {level} {name}");
        }
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

/// What a fork's child calls while it finds out whether it is recorded has events itself.
#[test]
fn a_forks_child_does_not_wait_for_itself() {
    let fixture = Fixture::new();
    let source = root().join("crates/testkit/c/interposed.c");
    let flags = ["-O2", "-std=c11", "-shared", "-fPIC", "-fno-builtin", "-fno-tree-loop-distribute-patterns"];
    let Some(library) = fixture.compile("gcc", &flags, &source, "interposed.so") else { return };
    let flags = ["-O2", "-std=c11", "-DPROGRAM"];
    let Some(program) = fixture.compile("gcc", &flags, &source, "interposed") else { return };
    let preload = format!("LD_PRELOAD={}", library.display());
    let words = ["env".as_ref(), preload.as_ref(), program.as_os_str(), "20".as_ref(), "forks".as_ref()];
    // Of children's events in what rtscope calls meanwhile, which are counted, nobody has the number.
    let recorded = fixture.record(&["--fail-if-lost=100%"], &words);
    let of_children = recorded.of_event("test:program");
    assert_eq!((recorded.printed("waited "), of_children), (0, 20), "{}", recorded.account);
}

#[test]
fn a_thread_that_the_c_library_does_not_know_is_on_the_cpu_it_is_on_or_on_none() {
    let fixture = Fixture::new();
    let Some(bare) = fixture.program("bare.c", &[], "bare") else { return };
    let recorded = fixture.record(&["--context", "cpu"], &[bare.as_os_str(), "1000".as_ref()]);
    recorded.assert_complete();
    if recorded.events() == 0 {
        skip!("it needs x86-64 and two CPUs");
    }
    for line in lines(&fixture.trace()).iter().filter(|line| line.contains("test:bare")) {
        let number = |name| field(line, name).and_then(|text| text.parse::<u32>().ok()).expect(line);
        let (noted, here) = (number("cpu_id"), number("here"));
        assert!(noted == here || noted == u32::MAX, "{line}");
    }
}

#[test]
fn an_event_whose_handler_emits_more_than_there_is_space_for_spoils_no_other() {
    let fixture = Fixture::new();
    let Some(inside) = fixture.program("inside.c", &[], "inside") else { return };
    let words = [inside.as_os_str(), "flood".as_ref(), "4".as_ref()];
    let recorded = fixture.record(&["--user-buffer", "64K"], &words);
    recorded.assert_complete();
    assert!(recorded.of_event("test:flood") > 1000 && recorded.lost() > 0, "{}", recorded.account);
    assert_eq!(recorded.of_event("test:faults"), 4, "{}", recorded.account);
    for line in lines(&fixture.trace()).iter().filter(|line| line.contains("test:flood")) {
        let number = |name| field(line, name).and_then(|text| text.parse::<u64>().ok());
        let (n, inverse) = (number("n").expect(line), number("inverse").expect(line));
        assert_eq!(n, !inverse, "{line}");
    }
}

#[test]
fn a_program_that_may_not_read_the_counter_lives() {
    let fixture = Fixture::new();
    // The dynamic loader reads the counter itself.
    let Some(inside) = fixture.program("inside.c", &["-static"], "inside") else { return };
    let output = Command::new(inside).arg("counterless").output().expect("it starts");
    assert!(output.status.success() && output.stdout == b"alive\n", "{output:?}");
}

#[test]
fn children_of_vfork_that_are_killed_leave_their_parent_nothing_to_wait_for() {
    let fixture = Fixture::new();
    let Some(inside) = fixture.program("inside.c", &[], "inside") else { return };
    let recorded = fixture.record(&[], &[inside.as_os_str(), "vforks".as_ref(), "300".as_ref()]);
    let said = String::from_utf8_lossy(&recorded.output.stdout);
    assert!(said.contains("at work 0\n"), "{said}");
    // The program's own is recorded; those of children that lived so long are counted.
    assert!(recorded.events() == 1 && recorded.lost() <= 300, "{}", recorded.account);
}

/// As the first of its PID namespace, such a child has its parent's number.
// NEEDS: host
#[test]
fn root_children_of_vfork_in_a_namespace_of_their_own_make_no_buffer_for_their_parent() {
    if skip::without_root() || skip::without_tool("unshare") {
        return;
    }
    let fixture = Fixture::new();
    let Some(inside) = fixture.program("inside.c", &[], "inside") else { return };
    let words = ["unshare", "--pid", "--fork"].map(std::ffi::OsStr::new);
    let words = [&words[..], &[inside.as_os_str(), "spaces".as_ref(), "20".as_ref()]].concat();
    let recorded = fixture.record(&[], &words);
    let said = String::from_utf8_lossy(&recorded.output.stdout);
    assert!(said.contains("alike 20\n"), "{said}");
    assert_eq!((recorded.events(), recorded.lost()), (1, 20), "{}", recorded.account);
}

#[test]
fn a_library_that_cannot_have_a_file_is_a_loss_with_its_cause() {
    let fixture = Fixture::new();
    let Some(unusual) = fixture.program("unusual.c", &[], "unusual") else { return };
    let Some(library) = fixture.program("plugin.c", &["-shared", "-fPIC"], "plugin.so") else { return };
    let words = [unusual.as_os_str(), "refused".as_ref(), "10".as_ref(), library.as_os_str()];
    let recorded = fixture.record(&[], &words);
    recorded.assert_complete();
    assert_eq!((recorded.events(), recorded.lost()), (2, 10), "{}", recorded.account);
    assert!(recorded.remarks().contains("1 library runs untraced: File too large"), "{}", recorded.account);
}

/// The child of a fork before the recording, which has gone these ways since: what it emits is recorded, or counted as lost.
fn hidden_children(ways: &[&str]) {
    let fixture = Fixture::new();
    let Some(hidden) = fixture.program("hidden.c", &[], "hidden") else { return };
    for way in ways {
        let mut program = super::fixture::waiting(Command::new(&hidden).args([way, "100"]));
        let recorder = super::fixture::begun(&mut fixture.recorder(&[]));
        program.stdin.take().expect("piped").write_all(b"\n").expect("it reads");
        let output = program.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{way}: {output:?}");
        let recorded = super::fixture::Recorded::of(super::fixture::interrupt(recorder));
        let expected = if *way == "nothing" { (100, 0) } else { (0, 100) };
        assert_eq!((recorded.events(), recorded.lost()), expected, "{way}: {}", recorded.account);
        let is_said =
            recorded.remarks().contains("100 events were lost of processes that could make no file");
        assert_eq!(is_said, *way != "nothing", "{way}: {}", recorded.account);
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
    // It is told once.
    let recorded = fixture.record(&[], &["true"]);
    assert_eq!((recorded.events(), recorded.lost()), (0, 0), "{}", recorded.account);
}

#[test]
fn a_child_that_cannot_make_a_file_when_somebody_records_is_counted() {
    hidden_children(&["nothing", "landlock", "filter", "files"]);
}

/// What nobody asks for is not lost.
#[test]
fn a_child_of_a_recorded_program_that_can_make_no_file_is_counted_exactly() {
    let fixture = Fixture::new();
    let Some(hidden) = fixture.program("hidden.c", &[], "hidden") else { return };
    for (more, lost) in [(None, 5000), (Some("!test:hidden"), 0)] {
        let more: Vec<&str> = more.into_iter().flat_map(|pattern| ["-u", pattern]).collect();
        let words = [hidden.as_os_str(), "forked".as_ref(), "5000".as_ref()];
        let recorded = fixture.record(&more, &words);
        assert_eq!((recorded.events(), recorded.lost()), (0, lost), "{}", recorded.account);
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

// NEEDS: host
#[test]
fn root_a_child_in_another_root_or_shared_memory_is_counted() {
    hidden_children(&["root", "memory"]);
}

#[test]
fn many_short_threads_are_recorded() {
    let fixture = Fixture::new();
    let Some(unusual) = fixture.program("unusual.c", &[], "unusual") else { return };
    let words = [unusual.as_os_str(), "short".as_ref(), "2000".as_ref()];
    let recorded = fixture.record(&["--user-buffer", "64K"], &words);
    recorded.assert_complete();
    // One of main(), which starts before it is known who will emit.
    assert_eq!((recorded.lost(), recorded.account["rings"].as_u64()), (0, Some(2001)));
}

#[test]
fn a_program_under_a_seccomp_filter_runs_on_and_its_losses_are_counted() {
    let fixture = Fixture::new();
    let Some(unusual) = fixture.program("unusual.c", &[], "unusual") else { return };
    for lazy in ["1", "0"] {
        let lazily = format!("RTSCOPE_LAZY={lazy}");
        let words =
            ["env".as_ref(), lazily.as_ref(), unusual.as_os_str(), "filter".as_ref(), "1000".as_ref()];
        let recorded = fixture.record(&[], &words);
        recorded.assert_complete();
        // main() had its ring before; the thread that started under the filter has none.
        assert_eq!((recorded.events(), recorded.lost()), (1000, 1000), "{}", recorded.account);
        fs::remove_dir_all(fixture.trace()).expect("it was made");
        // Nor is it ended by its own end, when nobody records it.
        let status = Command::new(&unusual).env("RTSCOPE_LAZY", lazy).args(["filter", "10"]).output();
        assert!(status.expect("it runs").status.success());
    }
}

#[test]
fn programs_with_locked_memory_or_closed_files_are_recorded() {
    let fixture = Fixture::new();
    let Some(unusual) = fixture.program("unusual.c", &[], "unusual") else { return };
    for mode in ["locked", "closed"] {
        let recorded = fixture.record(&[], &[unusual.as_os_str(), mode.as_ref(), "1000".as_ref()]);
        recorded.assert_complete();
        assert_eq!(recorded.events(), 2000, "{mode}");
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

#[test]
fn programs_that_may_not_make_files_run_untraced_and_that_is_said() {
    let fixture = Fixture::new();
    let Some(unusual) = fixture.program("unusual.c", &["-static"], "unusual") else { return };
    let run = |limit: &str| {
        let script = format!("{limit}; exec {} closed 1000", unusual.display());
        let recorded = fixture.record(&[], &["sh", "-c", &script]);
        assert_eq!((recorded.printed("emitted "), recorded.events()), (2000, 0));
        fs::remove_dir_all(fixture.trace()).expect("it was made");
        recorded
    };
    // Large enough for the description, not for a ring.
    let small = run("ulimit -f 100");
    small.assert_complete();
    assert!(small.remarks().contains("2 threads got no buffer: File too large"), "{}", small.account);
    let none = run("ulimit -n 3");
    assert!(none.remarks().contains("runs untraced: Too many open files"), "{}", none.account);
    // A loss like others, of an unknown number.
    let unknown =
        none.account["losses"].as_array().expect("a list").iter().any(|loss| loss["count"].is_null());
    assert!(unknown, "{}", none.account);
}

#[test]
fn what_program_and_recorder_left_when_both_were_killed_is_recorded() {
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let mut recorder = fixture.recorder(&["--user-buffer", "64M"]);
    let mut recorder = recorder
        .arg("--")
        .args(["sh", "-c", &format!("{} count 100000; echo said $$; exec sleep 60", emitter.display())])
        .stdout(Stdio::null())
        // With --json, COMMAND's output is here.
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be started");
    let mut line = String::new();
    let mut output = std::io::BufReader::new(recorder.stderr.as_mut().expect("piped"));
    while !line.starts_with("said") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut output, &mut line).expect("text") > 0, "it emitted");
    }
    let command = line.trim().trim_start_matches("said ").parse().expect("a number");
    recorder.kill().expect("it runs");
    let killed =
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(command), nix::sys::signal::Signal::SIGKILL);
    killed.expect("it runs");
    recorder.wait().expect("it ends");
    let recovered = rtscope().args(["record", "--json", "--recover"]).arg(fixture.trace()).output();
    let first = super::fixture::Recorded::of(recovered.expect("it runs"));
    let before = super::failing::numbers(&fixture.trace());
    fs::remove_dir_all(fixture.trace()).expect("it was made");
    let second = fixture.record(&[], &["true"]);
    let after = super::failing::numbers(&fixture.trace());
    println!("before {} after {}", before.len(), after.len());
    assert_eq!((first.lost(), second.lost()), (0, 0));
    // What was written and not given back yet when the recorder was killed is in both.
    let until = before.len() as u64;
    assert_eq!(before, (0..until).collect::<Vec<_>>());
    let from = after.first().copied().unwrap_or(100_000);
    assert!(from <= until, "{from} {until}");
    assert_eq!(after, (from..100_000).collect::<Vec<_>>());
}

// NEEDS: host
#[test]
fn root_a_full_tmpfs_leaves_programs_untraced_and_that_is_counted() {
    if skip::without_root() || skip::without_tool("unshare") {
        return;
    }
    let fixture = Fixture::new();
    let Some(unusual) = fixture.program("unusual.c", &[], "unusual") else { return };
    let recorder = format!("{:?}", fixture.recorder(&[]));
    // No room for a ring of 1 MiB.
    let recorded = in_own_room(&fixture, "256k", &format!("{recorder} -- {} closed 1000", unusual.display()));
    recorded.assert_complete();
    assert_eq!(recorded.lost(), 2000);
    assert!(recorded.remarks().contains("No space left on device"), "{}", recorded.account);
    // No room for anything but names.
    let fill = format!(
        "{recorder} -- sh -c 'dd if=/dev/zero of=/dev/shm/fill bs=4k 2>/dev/null; {} closed 1000'",
        unusual.display()
    );
    let recorded = in_own_room(&fixture, "256k", &fill);
    assert_eq!((recorded.printed("emitted "), recorded.events()), (2000, 0));
    assert!(recorded.remarks().contains("runs untraced: No space left"), "{}", recorded.account);
}

/// It tries again when somebody records.
// NEEDS: host
#[test]
fn root_a_program_that_found_no_room_at_its_start_is_recorded_once_there_is() {
    if skip::without_root() || skip::without_tool("unshare") {
        return;
    }
    let fixture = Fixture::new();
    let Some(unusual) = fixture.program("unusual.c", &[], "unusual") else { return };
    let unusual = unusual.display();
    let late = recorded_late(&fixture, &format!("{unusual} late 1000"), "rm /dev/shm/fill");
    // The first one leaves its user's directory, with the look page.
    let script =
        format!("{unusual} closed 1 >/dev/null; dd if=/dev/zero of=/dev/shm/fill bs=4k 2>/dev/null; {late}");
    let recorded = in_own_room(&fixture, "16m", &script);
    assert_eq!((recorded.events(), recorded.lost()), (2000, 0), "{}", recorded.account);
}

// NEEDS: host
#[test]
fn root_a_program_whose_place_another_user_had_is_recorded_once_root_has_taken_it_back() {
    if skip::without_root() || skip::without_tool("unshare") || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let Some(unusual) = fixture.program("unusual.c", &[], "unusual") else { return };
    let late = recorded_late(&fixture, &format!("{} late 5000", unusual.display()), ":");
    // Nothing tells the program that its place is free: the first 1023 events are not recorded, and nobody knows how many there were.
    let script = format!(
        "chmod 1777 /dev/shm; setpriv --reuid 12345 --regid 12345 --clear-groups mkdir /dev/shm/rtscope-0; {late}"
    );
    let recorded = in_own_room(&fixture, "16m", &script);
    assert_eq!(recorded.printed("emitted "), 10_000);
    assert_eq!((recorded.events(), recorded.lost()), (10_000 - 1023, 0), "{}", recorded.account);
    assert_eq!(recorded.account["refused"][0]["cause"], "place_taken");
}

/// To make it could wait for as long as another user likes, who holds `/dev/shm`.
// NEEDS: host
#[test]
fn root_no_event_makes_the_place_that_another_user_had() {
    if skip::without_root() || skip::without_tool("unshare") || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let Some(unusual) = fixture.program("unusual.c", &[], "unusual") else { return };
    let (line, said) = (fixture.path("line"), fixture.path("said"));
    let (unusual, line, said) = (unusual.display(), line.display(), said.display());
    let script = format!(
        "mount -t tmpfs none /dev/shm && chmod 1777 /dev/shm && \
         setpriv --reuid 12345 --regid 12345 --clear-groups mkdir /dev/shm/rtscope-0 && mkfifo {line}; \
         {unusual} late 5000 <{line} >{said} & exec 3>{line}; while ! grep -q ready {said}; do sleep 0.01; done; \
         rmdir /dev/shm/rtscope-0; echo >&3; while ! grep -q emitted {said}; do sleep 0.01; done; cat {said}; ls /dev/shm"
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().expect("it is there");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("emitted 10000"), "{output:?}");
    assert!(!text.contains("rtscope-"), "{text}");
}

// NEEDS: host
#[test]
fn root_a_program_with_its_own_room_runs_on() {
    if skip::without_root() || skip::without_tool("unshare") {
        return;
    }
    let fixture = Fixture::new();
    let Some(unusual) = fixture.program("unusual.c", &[], "unusual") else { return };
    let script = format!("mount -t tmpfs none /dev/shm && exec {} closed 1000", unusual.display());
    let recorded = fixture.record(&[], &["unshare", "-m", "sh", "-c", &script]);
    assert_eq!((recorded.printed("emitted "), recorded.events()), (2000, 0));
}

// NEEDS: host
#[test]
fn root_a_new_root_folder_costs_new_threads_their_ring_only() {
    if skip::without_root() {
        return;
    }
    let fixture = Fixture::new();
    let Some(unusual) = fixture.program("unusual.c", &[], "unusual") else { return };
    let recorded = fixture.record(&[], &[unusual.as_os_str(), "root".as_ref(), "1000".as_ref()]);
    recorded.assert_complete();
    assert_eq!((recorded.events(), recorded.lost()), (1000, 1000), "{}", recorded.account);
}

// NEEDS: host
#[test]
fn root_programs_of_other_users_are_recorded_by_root_and_not_by_each_other() {
    if skip::without_root() || skip::without_tool("setpriv") || skip::without_tool("unshare") {
        return;
    }
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    // Where everybody can run it, and write the trace.
    let own = fixture.path("rtscope");
    fs::copy(rtscope().get_program(), &own).expect("it can be copied");
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let run = |user: &str| format!("{user} {} count 1000", emitter.display());
    let (trace, emitter) = (fixture.trace(), emitter.display());
    let everybodys = format!("chmod 1777 /dev/shm && mkdir -m 777 -p {}/t", fixture.dir.path().display());
    let both = format!(
        "{everybodys} && {:?} -- sh -c '{}; {emitter} count 1000'",
        fixture.recorder(&["--context", "pid,uid"]),
        run(nobody)
    );
    let kept = fixture.path("kept");
    let keep = format!("{both} && cp -r {} {}", trace.display(), kept.display());
    let recorded = in_own_room(&fixture, "64m", &keep);
    recorded.assert_complete();
    assert_eq!(recorded.events(), 2000);
    let lines = super::fixture::lines(&kept);
    for user in ["uid = 65534 }", "uid = 0 }"] {
        assert_eq!(
            lines.iter().filter(|line| line.contains(user)).count(),
            1000,
            "{user}: {:?}",
            lines.first()
        );
    }
    // After root has recorded nobody's programs, nobody can, and finds no others.
    let script = format!(
        "{both} >/dev/null && rm -r {} && {nobody} {} record --json -u 'test:*' -o {}/t/trace -- {emitter} count 500 && {emitter} count 700 >/dev/null && mv {}/t/trace {}",
        trace.display(),
        own.display(),
        fixture.dir.path().display(),
        fixture.dir.path().display(),
        trace.display()
    );
    let recorded = in_own_room(&fixture, "64m", &script);
    assert_eq!((recorded.events(), recorded.lost()), (500, 0), "{}", recorded.account);
}

#[test]
fn programs_that_lie_do_not_cost_others_their_events() {
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let directory = format!("/dev/shm/rtscope-{}", nix::unistd::geteuid());
    let liars = format!(
        "cd {directory} && ln -s /etc/passwd p1-7-0; mkfifo r1-8-1-0; head -c 100000 /dev/urandom > r1-9-1-0; \
         head -c 600 /dev/urandom > p1-9-0; for i in $(seq 2000); do : > r1-a-$i-$i; done; for i in $(seq 500); do ln r1-9-1-0 r1-9-2-$i; done; cd -; \
         {} paced 40000; cd {directory} && rm -f p1-* r1-*",
        emitter.display()
    );
    // Four times what its buffer holds, in some 3 s: only who empties it all the time loses nothing.
    let recorded = fixture.record(&["--user-buffer", "256K"], &["sh", "-c", &liars]);
    recorded.assert_complete();
    assert_eq!((recorded.events(), recorded.lost()), (40_000, 0), "{}", recorded.account);
    assert!(recorded.remarks().contains("was dropped: p1-7-0"), "{}", recorded.account);
    // What the refused ones would have recorded nobody knows.
    let losses = recorded.account["losses"].as_array().expect("a list");
    let unknown = |loss: &&Value| loss["cause"] == "refused" && loss["count"].is_null();
    assert_eq!(losses.iter().filter(unknown).count(), 1, "{}", recorded.account);
    let metadata = fs::read_to_string(fixture.trace().join("ust/metadata")).expect("it is text");
    assert!(metadata.lines().any(|line| line.contains("cause=refused count=?")), "{metadata}");
}
