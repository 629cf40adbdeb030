// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program has of its own stays its own while it is recorded: descriptors, mappings, the memory that it may lock, files (crates/testkit/c/own.c).

use super::fixture::{Fixture, Recorded};
use super::life::slow_headers;
use rtscope_testkit::skip;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn own(fixture: &Fixture) -> Option<PathBuf> {
    fixture.program("own.c", &["-ldl"], "own")
}

fn plugin(fixture: &Fixture) -> Option<PathBuf> {
    fixture.program("plugin.c", &["-shared", "-fPIC"], "plugin.so")
}

/// Runs it unrecorded.
fn alone(command: &mut Command) -> Output {
    let output = command.output().expect("it can be started");
    assert!(output.status.success(), "{output:?}");
    output
}

/// Records a run in the temporary directory.
fn record(fixture: &Fixture, program: &Path, words: &[&str]) -> Recorded {
    let command = [&[program.to_str().expect("plain")], words].concat();
    let mut recorder = fixture.recorder(&["--user-buffer", "1M"]);
    let output = recorder.current_dir(fixture.dir.path()).arg("--").args(command).output();
    let output = output.expect("it can be started");
    assert!(output.status.success(), "{words:?}: {output:?}");
    Recorded::of(output)
}

#[track_caller]
fn assert_nothing_is_wrong(output: &Output) {
    assert_eq!(Recorded::printed_in(output, "wrong "), 0, "{output:?}");
}

/// Where a thread has a descriptor, and is about to look whether it is still its own: a program closes it there, and another file has its number. Each of
/// these is made as long as it takes the program to do that; at full speed it may also come between such a look and the close, which nothing can join.
const PLACES: [(&str, &str); 6] = [
    ("system.h", "\tif (file.number < 0 || rtscope__is_ours(file))\n"),
    ("new_file.h", "\t/* Somebody who looks for remains may have it"),
    ("new_file.h", "\tif (!error)\n\t\terror = rtscope__allocate("),
    ("new_file.h", "\tif (!rtscope__is_error(rtscope__map_file("),
    ("files.h", "\tif (rtscope__is_ours(file))\n\t\treturn memory;\n"),
    ("sessions.h", "\t/* The directory of the other one is its user's. */"),
];

#[test]
fn descriptors_that_a_program_closes_and_opens_anew_are_its_own() {
    let fixture = Fixture::new();
    for (round, place) in PLACES.iter().enumerate() {
        let headers = tempfile::tempdir().expect("a temporary directory");
        slow_headers(headers.path(), &[*place]);
        let include = format!("-I{}", headers.path().display());
        let Some(own) = fixture.program("own.c", &[&include], &format!("own{round}")) else { return };
        let recorded = record(&fixture, &own, &["closing", "5"]);
        assert_nothing_is_wrong(&recorded.output);
        assert_eq!(recorded.events() + recorded.lost(), 5 * 8 * 5, "{place:?}: {}", recorded.account);
        std::fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

#[test]
fn threads_that_get_no_buffer_leave_nothing() {
    let fixture = Fixture::new();
    let Some(own) = own(&fixture) else { return };
    let recorded = record(&fixture, &own, &["refused", "2000"]);
    let mappings = Recorded::printed_in(&recorded.output, "mappings ");
    assert!(mappings < 20, "{mappings} mappings of 2000 threads");
    assert_eq!((recorded.events(), recorded.lost()), (0, 2010));
}

#[test]
fn buffers_take_none_of_the_memory_that_a_program_may_lock() {
    let fixture = Fixture::new();
    let Some(own) = own(&fixture) else { return };
    let recorded = record(&fixture, &own, &["locked", "6"]);
    if Recorded::printed_in(&recorded.output, "wrong ") == 77 {
        return skip::say("memory cannot be locked here");
    }
    assert_nothing_is_wrong(&recorded.output);
    assert_eq!((recorded.events(), recorded.lost()), (6, 0));
}

/// There the right to lock more is none in the kernel's eyes.
// NEEDS: host
#[test]
fn root_neither_do_they_in_a_user_namespace() {
    if skip::without_root() || skip::without_tool("setpriv") || skip::without_user_namespaces() {
        return;
    }
    let fixture = Fixture::new();
    let Some(own) = own(&fixture) else { return };
    let mut recorder = fixture.recorder(&["--user-buffer", "1M"]);
    let user = ["setpriv", "--reuid=4714", "--regid=4714", "--clear-groups", "unshare", "-Ur"];
    let output = recorder.arg("--").args(user).arg(&own).args(["kept", "6"]).output();
    let recorded = Recorded::of(output.expect("it can be started"));
    if Recorded::printed_in(&recorded.output, "wrong ") == 77 {
        return skip::say("memory cannot be locked here");
    }
    assert_nothing_is_wrong(&recorded.output);
    assert_eq!((recorded.events(), recorded.lost()), (6, 0), "{}", recorded.account);
}

/// Such as systemd's `SystemCallFilter=~@memlock`. Of a user, for whom locked memory has a limit.
// NEEDS: host
#[test]
fn root_a_program_that_may_not_unlock_memory_is_recorded() {
    if skip::without_root() || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let Some(own) = own(&fixture) else { return };
    let mut recorder = fixture.recorder(&["--user-buffer", "1M"]);
    let user = ["setpriv", "--reuid=4714", "--regid=4714", "--clear-groups"];
    let output = recorder.arg("--").args(user).arg(&own).args(["filtered", "3"]).output();
    let recorded = Recorded::of(output.expect("it can be started"));
    if Recorded::printed_in(&recorded.output, "wrong ") == 77 {
        return skip::say("there are no filters of system calls here");
    }
    assert_nothing_is_wrong(&recorded.output);
    assert!(recorded.output.status.success(), "{:?}", recorded.output);
    assert_eq!((recorded.events(), recorded.lost()), (3, 0), "{}", recorded.account);
}

/// The kernel ends a process that blocks the signal of what it does itself.
#[test]
fn handlers_of_what_a_program_does_itself_run_also_while_a_buffer_is_made() {
    let fixture = Fixture::new();
    let Some(own) = own(&fixture) else { return };
    for mode in ["written", "stepped"] {
        let recorded = record(&fixture, &own, &[mode, "5"]);
        assert_nothing_is_wrong(&recorded.output);
        assert_eq!((recorded.events(), recorded.lost()), (5, 0), "{mode}: {}", recorded.account);
        let handled = Recorded::printed_in(&recorded.output, "handled ");
        assert!(handled > 4 || !cfg!(target_arch = "x86_64"), "{mode}: {handled}");
        std::fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

#[test]
fn threads_that_leave_in_the_middle_of_work_keep_nobody_waiting() {
    let fixture = Fixture::new();
    let (Some(own), Some(plugin)) = (own(&fixture), plugin(&fixture)) else { return };
    let recorded = record(&fixture, &own, &["left", "40", plugin.to_str().expect("plain")]);
    assert_nothing_is_wrong(&recorded.output);
    let emitted = Recorded::printed_in(&recorded.output, "emitted ");
    assert_eq!(recorded.events() + recorded.lost(), emitted, "{}", recorded.account);
    let left = Recorded::printed_in(&recorded.output, "left ");
    assert!(left > 20 || !cfg!(target_arch = "x86_64"), "{left}");
    assert_eq!(Recorded::printed_in(&recorded.output, "works "), 0);
    // Their own first events lie after the jump, when their threads have buffers still.
    println!("{left} of 40 left, {} of {emitted} events were lost", recorded.lost());
    assert!(recorded.lost() <= left, "{}", recorded.account);
}

/// Signals let through or not, and the thread asleep or running.
#[test]
fn a_thread_that_has_jumped_out_of_work_and_is_idle_keeps_no_library_waiting() {
    let fixture = Fixture::new();
    let (Some(own), Some(plugin)) = (own(&fixture), plugin(&fixture)) else { return };
    let recorded = record(&fixture, &own, &["idle", "8", plugin.to_str().expect("plain")]);
    assert_nothing_is_wrong(&recorded.output);
    let left = Recorded::printed_in(&recorded.output, "left ");
    assert!(left == 8 || !cfg!(target_arch = "x86_64"), "{left}");
    let longest_ms = Recorded::printed_in(&recorded.output, "longest ");
    println!("{longest_ms} ms");
    assert!(longest_ms < 10_000, "{longest_ms} ms");
    assert_eq!((recorded.events(), recorded.lost()), (8, 0), "{}", recorded.account);
}

/// `RTSCOPE_LAZY=0`; the C library runs what unloads each object.
#[test]
fn a_program_that_has_given_up_system_calls_ends_by_exit_with_its_libraries() {
    let fixture = Fixture::new();
    let (Some(own), Some(plugin)) = (own(&fixture), plugin(&fixture)) else { return };
    let words = ["ends", "0", plugin.to_str().expect("plain")];
    let unrecorded = alone(Command::new(&own).args(words).env("RTSCOPE_LAZY", "0"));
    assert_nothing_is_wrong(&unrecorded);
    let lazy = [&["env", "RTSCOPE_LAZY=0", own.to_str().expect("plain")], words.as_slice()].concat();
    let output = fixture.recorder(&["--user-buffer", "1M"]).arg("--").args(lazy).output();
    let recorded = Recorded::of(output.expect("it can be started"));
    assert!(recorded.output.status.success(), "{:?}", recorded.output);
    assert_eq!((recorded.events(), recorded.lost()), (1, 0), "{}", recorded.account);
}

#[test]
fn a_library_with_a_long_path_is_recorded_where_the_program_has_no_events() {
    let fixture = Fixture::new();
    let Some(plugin) = plugin(&fixture) else { return };
    let host = fixture.path("host.c");
    let code = "#include <dlfcn.h>\nint main(int n, char **words)\n{\n\tvoid *library = dlopen(words[n - 1], RTLD_NOW);\n\t\
                ((void (*)(void))dlsym(library, \"library_emits\"))();\n\treturn dlclose(library);\n}\n";
    std::fs::write(&host, code).expect("a file of the test");
    let built = Command::new("cc").arg(&host).args(["-ldl", "-o"]).arg(fixture.path("host")).status();
    assert!(built.expect("it was there").success());
    let long = fixture.path(&"d".repeat(150)).join("e".repeat(150));
    std::fs::create_dir_all(&long).expect("a directory of the test");
    let library = long.join("plugin.so");
    std::fs::copy(plugin, &library).expect("it was made");
    let recorded = record(&fixture, &fixture.path("host"), &[library.to_str().expect("plain")]);
    assert_eq!((recorded.events(), recorded.lost()), (1, 0), "{}", recorded.account);
}

#[test]
fn a_host_of_plug_ins_does_not_grow_with_each() {
    let fixture = Fixture::new();
    let (Some(own), Some(plugin)) = (own(&fixture), plugin(&fixture)) else { return };
    let output = alone(Command::new(&own).args(["plugin", "500"]).arg(&plugin));
    // The C library takes some now and then.
    assert_nothing_is_wrong(&output);
    let grown_kib = Recorded::printed_in(&output, "grown ");
    assert!(grown_kib < 500, "by {grown_kib} KiB");
}

/// Anybody may have a file of that name in /dev/shm, and exchange it.
// NEEDS: host
#[test]
fn root_a_session_that_is_exchanged_all_the_time_costs_programs_no_descriptors() {
    if skip::without_root() || skip::without_tool("unshare") {
        return;
    }
    let fixture = Fixture::new();
    let (Some(own), Some(plugin)) = (own(&fixture), plugin(&fixture)) else { return };
    let script = "mount -t tmpfs -o mode=1777 none /dev/shm && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(&own).args(["exchanged", "1000"]).arg(&plugin);
    let output = alone(&mut command);
    assert_nothing_is_wrong(&output);
    let descriptors = Recorded::printed_in(&output, "descriptors ");
    assert!(descriptors < 3, "{descriptors} more");
}

/// Not root, who reads what its owner may not.
#[test]
fn a_programs_mask_for_new_files_is_not_that_of_its_recording() {
    if skip::without_root() || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let Some(own) = own(&fixture) else { return };
    let place = fixture.path("place");
    std::fs::create_dir(&place).expect("ours");
    nix::unistd::chown(&place, Some(4712.into()), Some(4712.into())).expect("root may");
    let recorder = fixture.recorder(&[]);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=4712", "--regid=4712", "--clear-groups"]).arg(recorder.get_program());
    let trace = place.join("trace");
    command
        .args(recorder.get_args().map(|word| if word == fixture.trace() { trace.as_os_str() } else { word }));
    let output = command.arg("--").arg(&own).args(["masked", "20"]).output().expect("it can be started");
    assert!(output.status.success(), "{output:?}");
    let recorded = Recorded::of(output);
    assert_nothing_is_wrong(&recorded.output);
    assert_eq!((recorded.events(), recorded.lost()), (20, 0), "{}", recorded.account);
}

/// For that a program would wait until nobody reads `/dev/shm`, which any user can do for as long as he likes.
#[test]
fn a_program_whose_users_directory_is_there_makes_none() {
    if skip::without_tool("strace") {
        return;
    }
    let fixture = Fixture::new();
    let emitter = rtscope_testkit::process::program("rtscope-emitter").expect("built");
    let calls = fixture.path("calls");
    let run = || {
        let mut command = Command::new("strace");
        let status = command.args(["-f", "-qq", "-e", "trace=mkdirat,mkdir,statx", "-o"]).arg(&calls);
        assert!(
            status.arg(&emitter).args(["count", "1", "1"]).output().expect("it is there").status.success()
        );
        std::fs::read_to_string(&calls).expect("strace writes it")
    };
    run();
    let calls = run();
    assert!(calls.contains("/dev/shm/rtscope-"), "{calls}");
    assert!(!calls.contains("mkdir"), "{calls}");
}

/// Programs with another version of the header may be looking at what is behind.
#[test]
fn a_look_page_that_another_version_made_larger_stays_so() {
    if skip::without_root() || skip::without_tool("setpriv") {
        return;
    }
    const USER: u32 = 4713;
    let place = PathBuf::from(format!("/dev/shm/rtscope-{USER}"));
    let _ = std::fs::remove_dir_all(&place);
    let fixture = Fixture::new();
    let Some(own) = own(&fixture) else { return };
    let run = || {
        let user = [format!("--reuid={USER}"), format!("--regid={USER}"), "--clear-groups".to_owned()];
        let status = Command::new("setpriv").args(user).arg(&own).args(["masked", "0"]).output();
        assert!(status.expect("it is there").status.success());
        std::fs::metadata(place.join("look")).expect("a program has made it").len()
    };
    let bytes = run();
    let look = std::fs::File::options().write(true).open(place.join("look"));
    look.and_then(|look| look.set_len(2 * bytes)).expect("root may");
    assert_eq!(run(), 2 * bytes);
    std::fs::remove_dir_all(&place).expect("root may");
}

/// For any other look at it a program would wait until nobody reads or changes `/dev/shm`.
#[test]
fn a_program_asks_for_roots_session_only_what_the_kernel_has_at_hand() {
    if skip::without_tool("strace") {
        return;
    }
    let fixture = Fixture::new();
    let emitter = rtscope_testkit::process::program("rtscope-emitter").expect("built");
    let calls = fixture.path("calls");
    let mut command = Command::new("strace");
    command
        .args(["-f", "-qq", "-e", "trace=%file", "-o"])
        .arg(&calls)
        .arg(&emitter)
        .args(["count", "1", "1"]);
    alone(&mut command);
    let calls = std::fs::read_to_string(&calls).expect("strace writes it");
    let looks: Vec<&str> = calls.lines().filter(|line| line.contains("/dev/shm/rtscope-session")).collect();
    if looks.iter().any(|line| line.contains("ENOSYS") || line.contains("EINVAL")) {
        return skip::say("this kernel has no openat2(2) for what is at hand");
    }
    assert!(!looks.is_empty(), "{calls}");
    assert!(looks.iter().all(|line| line.contains("RESOLVE_CACHED")), "{looks:#?}");
}

/// One that is not recorded because of its rights says so, if there is anybody.
// NEEDS: host
#[test]
fn root_a_program_that_gives_up_asks_for_roots_session_only_what_the_kernel_has_at_hand() {
    if skip::without_root() || skip::without_tool("strace") {
        return;
    }
    let fixture = Fixture::new();
    let Some(own) = fixture.program("own.c", &["-ldl"], "own") else { return };
    nix::unistd::chown(&own, None, Some(4715.into())).expect("root may");
    let is_set = std::os::unix::fs::PermissionsExt::from_mode(0o2755);
    std::fs::set_permissions(&own, is_set).expect("root may");
    let calls = fixture.path("calls");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-u", "nobody", "-e", "trace=%file", "-o"]);
    alone(command.arg(&calls).arg(&own).args(["masked", "0"]));
    let calls = std::fs::read_to_string(&calls).expect("strace writes it");
    let looks: Vec<&str> = calls.lines().filter(|line| line.contains("/dev/shm/rtscope-session")).collect();
    if looks.iter().any(|line| line.contains("ENOSYS") || line.contains("EINVAL")) {
        return skip::say("this kernel has no openat2(2) for what is at hand");
    }
    assert!(!looks.is_empty() && looks.iter().all(|line| line.contains("RESOLVE_CACHED")), "{looks:#?}");
}

/// A path leads wherever its user has put a link meanwhile, and the program's group may write there.
// NEEDS: host
#[test]
fn root_a_set_group_id_program_changes_no_file_by_its_path() {
    if skip::without_root() || skip::without_tool("strace") {
        return;
    }
    let _ = std::fs::remove_dir_all("/dev/shm/rtscope-65534");
    let fixture = Fixture::new();
    let Some(own) = fixture.program("own.c", &["-DRTSCOPE_ALLOW_PRIVILEGED", "-ldl"], "own") else { return };
    nix::unistd::chown(&own, None, Some(4715.into())).expect("root may");
    let is_set = std::os::unix::fs::PermissionsExt::from_mode(0o2755);
    std::fs::set_permissions(&own, is_set).expect("root may");
    let calls = fixture.path("calls");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-u", "nobody", "-e", "trace=truncate,fallocate", "-o"]);
    alone(command.arg(&calls).arg(&own).args(["masked", "0"]));
    let calls = std::fs::read_to_string(&calls).expect("strace writes it");
    assert!(gives_size(&calls) && !calls.contains(" truncate("), "{calls}");
    let _ = std::fs::remove_dir_all("/dev/shm/rtscope-65534");
}

/// Whether a file gets a size by its descriptor: fallocate(2) without a mode.
fn gives_size(calls: &str) -> bool {
    calls.lines().any(|call| call.contains("fallocate(") && call.contains(", 0, "))
}

/// It has its group from its start, as a service with SupplementaryGroups=, or a right as an ambient one.
// NEEDS: host
#[test]
fn root_a_program_with_more_rights_than_its_user_changes_no_file_by_its_path() {
    if skip::without_root() || skip::without_tool("strace") || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let Some(own) = fixture.program("own.c", &["-ldl"], "own") else { return };
    let calls = fixture.path("calls");
    let as_nobody = ["--reuid=65534", "--regid=65534"];
    for more in [["--groups=4715", "--bounding-set=+all"], ["--inh-caps=+fowner", "--ambient-caps=+fowner"]] {
        let _ = std::fs::remove_dir_all("/dev/shm/rtscope-65534");
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-e", "trace=truncate,fallocate,chmod,fchmod,fchmodat", "-o"]).arg(&calls);
        command.arg("setpriv").args(as_nobody).args(more);
        if !more[0].contains("groups") {
            command.arg("--clear-groups");
        }
        alone(command.arg(&own).args(["masked", "0"]));
        let calls = std::fs::read_to_string(&calls).expect("strace writes it");
        let by_path = [" truncate(", " chmod(", " fchmodat("].iter().any(|call| calls.contains(call));
        assert!(gives_size(&calls) && !by_path, "{more:?}: {calls}");
    }
    let _ = std::fs::remove_dir_all("/dev/shm/rtscope-65534");
}
