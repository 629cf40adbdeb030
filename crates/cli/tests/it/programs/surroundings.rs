// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs whose surroundings change while they run (crates/testkit/c/surroundings.c), those that share theirs with others who
//! never heard of rtscope, and those under filters that do not know each call.

use super::fixture::{Fixture, Recorded, begun, interrupt, lines};
use crate::command::{root, rtscope};
use rtscope_testkit::skip;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Users who have no programs, and no directory.
const NEW_USERS: Range<u32> = 47_200..47_216;

/// The compiled program; `None`, and the reason reported, without a compiler.
fn fixture() -> Option<(Fixture, PathBuf)> {
    let fixture = Fixture::new();
    let program = fixture.program("surroundings.c", &[], "surroundings")?;
    Some((fixture, program))
}

fn words<'a>(program: &'a Path, words: &'a [&str]) -> Vec<&'a OsStr> {
    [program.as_os_str()].into_iter().chain(words.iter().map(OsStr::new)).collect()
}

/// Runs a script in a mount namespace of its own, with a /dev/shm of this size.
fn in_own_room(size: &str, script: &str) -> Output {
    let script = format!("mount -t tmpfs -o mode=1777,size={size} none /dev/shm && {script}");
    let output = Command::new("unshare").args(["-m", "bash", "-c", &script]).output().expect("it is there");
    assert!(output.status.success(), "{output:?}");
    output
}

fn cannot_have_rooms() -> bool {
    skip::without_root() || skip::without_tool("unshare") || skip::without_tool("setpriv")
}

// NEEDS: host
#[test]
fn root_a_new_mount_with_the_same_directory_costs_new_threads_their_ring_only() {
    if skip::without_root() {
        return;
    }
    let Some((fixture, program)) = fixture() else { return };
    let another = format!("{} count 1 >/dev/null", program.display());
    let recorded = fixture.record(&[], &words(&program, &["mount", &another]));
    assert_eq!((recorded.events(), recorded.lost()), (200, 1), "{}", recorded.account);
    assert_eq!(recorded.printed("emitted "), 201);
}

// NEEDS: host
#[test]
fn a_sandbox_of_its_own_costs_a_program_no_event() {
    let Some((fixture, program)) = fixture() else { return };
    if skip::without_tool("unshare") || skip::without_user_namespaces() {
        return;
    }
    let recorded = fixture.record(&[], &words(&program, &["sandbox"]));
    recorded.assert_complete();
    assert_eq!((recorded.events(), recorded.lost()), (210, 0), "{}", recorded.account);
}

/// In a user namespace a user may have any number, also root's: the directory has the one outside.
// NEEDS: host
#[test]
fn root_a_user_who_is_root_in_a_namespace_takes_nobodys_place_and_is_recorded() {
    if cannot_have_rooms() || skip::without_user_namespaces() {
        return;
    }
    let Some((fixture, program)) = fixture() else { return };
    let user = "setpriv --reuid=12345 --regid=12345 --clear-groups";
    let (program, recorder) = (program.display(), format!("{:?}", fixture.recorder(&[])));
    let script = format!(
        "{user} unshare -Ur {program} count 1 >/dev/null && ls /dev/shm >&2 && {recorder} -- {user} unshare -Ur {program} count 5"
    );
    let recorded = Recorded::of(in_own_room("64m", &script));
    recorded.assert_complete();
    assert_eq!(recorded.events(), 5, "{}", recorded.account);
    let said = String::from_utf8_lossy(&recorded.output.stderr).into_owned();
    assert_eq!(said.lines().next(), Some("rtscope-12345"), "{said}");
}

// NEEDS: host
#[test]
fn root_rings_leave_a_quarter_of_a_small_tmpfs_to_others() {
    if cannot_have_rooms() {
        return;
    }
    let Some((fixture, program)) = fixture() else { return };
    let (program, recorder) = (program.display(), format!("{:?}", fixture.recorder(&[])));
    // More rings at once than there is space for; whoever needs memory there all the time has some.
    let others = "head -c 15M /dev/zero > /dev/shm/others && rm /dev/shm/others";
    let script = format!(
        "{recorder} -- bash -c 'for i in {{1..20}}; do for j in {{1..10}}; do {program} count 1 & done; {others} || exit 9; done; wait'"
    );
    let recorded = Recorded::of(in_own_room("64m", &script));
    assert_eq!(recorded.printed("emitted "), 200);
    let said = String::from_utf8_lossy(&recorded.output.stderr).into_owned();
    assert!(!said.contains("COMMAND ended"), "{said}");
    assert!(recorded.lost() > 0, "there was space for all: this shows nothing; {}", recorded.account);
    recorded.assert_complete();
}

/// Without it nothing can be said of what is lost, so it may take more than buffers, but not the last page.
// NEEDS: host
#[test]
fn root_what_describes_events_leaves_an_eighth_of_a_small_tmpfs_to_others() {
    if cannot_have_rooms() {
        return;
    }
    let Some((fixture, program)) = fixture() else { return };
    let (program, recorder) = (program.display(), format!("{:?}", fixture.recorder(&[])));
    for (others, is_counted) in [("800K", true), ("940K", false)] {
        let fill = format!("head -c {others} /dev/zero > /dev/shm/fill");
        let script = format!("{recorder} -- sh -c '{fill}; {program} count 3; rm /dev/shm/fill'");
        let recorded = Recorded::of(in_own_room("1m", &script));
        assert_eq!((recorded.printed("emitted "), recorded.events()), (3, 0), "{}", recorded.account);
        let losses = recorded.account["losses"].as_array().expect("a list");
        let is_unknown = losses.iter().any(|loss| loss["cause"] == "no_buffer" && loss["count"].is_null());
        assert_eq!(is_unknown, !is_counted, "{others}: {}", recorded.account);
        std::fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

// NEEDS: host
#[test]
fn root_a_flight_recorders_snapshot_counts_what_programs_without_buffers_lost() {
    if cannot_have_rooms() {
        return;
    }
    let Some((fixture, program)) = fixture() else { return };
    let (program, recorder) = (program.display(), format!("{:?}", fixture.recorder(&["--flight-recorder"])));
    let script = format!("{recorder} -- bash -c 'for i in {{1..100}}; do {program} count 3; done'");
    let recorded = Recorded::of(in_own_room("64m", &script));
    assert_eq!(recorded.printed("emitted "), 300);
    assert!(recorded.lost() > 0, "there was space for all: this shows nothing; {}", recorded.account);
    recorded.assert_complete();
    std::fs::remove_dir_all(fixture.trace()).expect("it was made");
    // A program that can have no file at all counts nothing: how many it lost is unknown, not none.
    let fill = "dd if=/dev/zero of=/dev/shm/fill bs=4k 2>/dev/null";
    let script = format!("{recorder} -- sh -c '{fill}; {program} count 3; rm /dev/shm/fill'");
    let recorded = Recorded::of(in_own_room("1m", &script));
    assert_eq!((recorded.printed("emitted "), recorded.events()), (3, 0), "{}", recorded.account);
    let losses = recorded.account["losses"].as_array().expect("a list");
    let unknown = losses.iter().any(|loss| loss["cause"] == "no_buffer" && loss["count"].is_null());
    assert!(unknown, "{}", recorded.account);
}

// NEEDS: host
#[test]
fn root_a_mask_that_leaves_nothing_takes_no_user_its_place() {
    if cannot_have_rooms() {
        return;
    }
    let Some((fixture, program)) = fixture() else { return };
    let (program, recorder) = (program.display(), format!("{:?}", fixture.recorder(&[])));
    let user = "setpriv --reuid=12345 --regid=12345 --clear-groups";
    let script = format!(
        "{user} sh -c 'umask 0777; {program} count 1' >/dev/null && {recorder} -- {user} {program} count 7"
    );
    let recorded = Recorded::of(in_own_room("64m", &script));
    recorded.assert_complete();
    assert_eq!(recorded.events(), 7, "{}", recorded.account);
}

/// The recorder was killed. What another user puts in the place of root's session is none, and nobody waits for whom it is of: threads make
/// no rings that would stay.
// NEEDS: host
#[test]
fn root_what_is_in_the_place_of_roots_session_keeps_no_dead_one_alive() {
    if cannot_have_rooms() {
        return;
    }
    let fixture = Fixture::new();
    let emitter = root().join("crates/testkit/c/emitter.c");
    let Some(program) = fixture.compile("cc", &["-O2", "-std=c11"], &emitter, "emitter") else { return };
    let (program, rtscope) =
        (program.display(), rtscope_testkit::process::program("rtscope").expect("built"));
    let (user, other) =
        ("setpriv --reuid=12345 --regid=12345 --clear-groups", "setpriv --reuid=12346 --clear-groups");
    let left = |attack: &str| -> u64 {
        let script = format!(
            "set -e; d=/dev/shm/room; mkdir -m 777 $d; cd $d; cp {rtscope} {program} .; mkfifo in
            {user} ./emitter wait 1 300 <in >out & emitter=$!
            exec 5>in; until grep -q ready out; do sleep .01; done
            {user} ./rtscope record -u 'test:*' -o t 2>said & recorder=$!
            until grep -q recording said; do sleep .01; done
            kill -9 $recorder; wait $recorder 2>/dev/null || true; {attack}
            echo >&5; wait $emitter; grep -q 'emitted 300' out; rm -r $d
            echo \"left $(ls /dev/shm/rtscope-12345 | wc -l)\"",
            rtscope = rtscope.display(),
        );
        Recorded::printed_in(&in_own_room("2g", &script), "left ")
    };
    let alone = left("true");
    let socket = r#"perl -MIO::Socket::UNIX -e "IO::Socket::UNIX->new(Local => q(/dev/shm/rtscope-session), Listen => 1) or die""#;
    for attack in
        ["umask 077; : >/dev/shm/rtscope-session", "ln -s /nowhere /dev/shm/rtscope-session", socket]
    {
        let attacked = left(&format!("{other} sh -c '{attack}'"));
        println!("{alone} files alone, {attacked} with: {attack}");
        assert!(attacked <= alone + 10, "{attack}: {attacked} files are left, {alone} without it");
    }
}

/// It could be led to make files where the other user wants them.
// NEEDS: host
#[test]
fn root_a_program_that_can_become_another_user_again_leaves_no_files_with_that_one() {
    if cannot_have_rooms() {
        return;
    }
    let Some((fixture, program)) = fixture() else { return };
    let (program, recorder) = (program.display(), format!("{:?}", fixture.recorder(&[])));
    // Its real user is still root.
    let script = format!("{recorder} -- setpriv --euid=12345 {program} count 5");
    let recorded = Recorded::of(in_own_room("64m", &script));
    assert_eq!((recorded.printed("emitted "), recorded.events()), (5, 0), "{}", recorded.account);
}

#[test]
fn what_a_program_writes_to_closed_streams_gets_into_no_buffer() {
    let Some((fixture, program)) = fixture() else { return };
    let recorded = fixture.record(&[], &words(&program, &["streams"]));
    recorded.assert_complete();
    assert_eq!((recorded.events(), recorded.remarks().as_str()), (2000, "[]"), "{}", recorded.account);
}

/// What its parent lost is not lost again, and it does not hold its parent's ring.
#[test]
fn a_fork_without_private_memory_counts_what_it_loses_and_nothing_else() {
    let Some((fixture, program)) = fixture() else { return };
    let recorded = fixture.record(&[], &words(&program, &["limited"]));
    assert_eq!(recorded.printed("emitted "), 45);
    assert_eq!(recorded.events() + recorded.lost(), 45, "{}", recorded.account);
    assert!(recorded.events() >= 10, "{}", recorded.account);
}

#[test]
fn a_negative_count_is_an_empty_sequence() {
    let Some((fixture, program)) = fixture() else { return };
    let recorded = fixture.record(&[], &words(&program, &["negative"]));
    assert_eq!((recorded.events(), recorded.lost()), (1, 0), "{}", recorded.account);
    let line = lines(&fixture.trace()).join("\n");
    assert!(line.contains("_data_length = 0") && line.contains("data_count = 7"), "{line}");
}

#[test]
fn temporaries_live_until_their_event_is_written() {
    let fixture = Fixture::new();
    let source = root().join("crates/testkit/c/temporaries.cpp");
    for flags in [&["-O2"][..], &["-O1", "-g", "-fsanitize=address"]] {
        let Some(program) = fixture.compile("c++", flags, &source, "temporaries") else { return };
        let recorded = fixture.record(&[], &[&program]);
        recorded.assert_complete();
        for (number, line) in lines(&fixture.trace()).iter().enumerate() {
            let letter = char::from(b'a' + number as u8);
            let text = format!("path = \"{}\"", String::from(letter).repeat(40));
            assert!(line.contains(&text) && line.contains(&format!("[19] = {number}")), "{line}");
        }
        std::fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

/// Records 100 events of the emitter with this value of the variable RTSCOPE; what is recorded, and what the recorder says.
fn with_switch(value: &str) -> Option<(u64, String)> {
    let fixture = Fixture::new();
    let emitter = fixture.program("emitter.c", &[], "emitter")?;
    let mut recorder = fixture.recorder(&[]);
    let recorder = recorder.env("RTSCOPE", value).arg("--").args(words(&emitter, &["count", "100"]));
    let output = recorder.output().expect("it can be started");
    assert!(output.status.success(), "{output:?}");
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    Some((Recorded::of(output).events(), notes))
}

#[test]
fn a_variable_of_another_program_does_not_make_one_untraceable() {
    let Some((events, notes)) = with_switch("/usr/bin/rtscope") else { return };
    assert_eq!(events, 100, "{notes}");
    assert!(!notes.contains("cannot be recorded"), "{notes}");
}

#[test]
fn a_switch_that_makes_a_command_untraceable_is_said() {
    let Some((events, notes)) = with_switch("0") else { return };
    assert_eq!(events, 0, "{notes}");
    assert!(notes.contains("RTSCOPE=0 is set") && notes.contains("env -u RTSCOPE"), "{notes}");
}

#[test]
fn a_recording_that_has_lost_most_is_no_success() {
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let record = |trace: &str, options: &[&str], count: &str| {
        let mut recorder = rtscope();
        recorder.args(["record", "--json", "-u", "test:*", "--user-buffer", "64K", "-o"]);
        recorder.arg(fixture.path(trace)).args(options).arg("--").args(words(&emitter, &["count", count]));
        let output = recorder.output().expect("it can be started");
        let (code, notes) = (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned());
        let account = Recorded::of(output).account;
        (code, account["lost_share"].as_f64().expect("a share"), notes)
    };
    let (code, lost, notes) = record("most", &[], "3000000");
    assert!(lost > 0.5, "not slow enough: {lost}");
    assert_eq!(code, Some(6), "{notes}");
    for words in ["MUCH IS LOST", "--user-buffer", "--fail-if-lost=100%"] {
        assert!(notes.contains(words), "{words}: {notes}");
    }
    let (code, lost, notes) = record("accepted", &["--fail-if-lost=100%"], "3000000");
    assert_eq!((code, lost > 0.5), (Some(0), true), "{notes}");
    let (code, lost, notes) = record("little", &[], "100");
    assert_eq!((code, lost), (Some(0), 0.0), "{notes}");
}

/// Users whose first program this is: the recorder finds their directories while it runs, so it goes by root's session, which is nobody's in its namespace.
// NEEDS: host
#[test]
fn root_a_fork_into_a_user_namespace_before_the_recorder_knows_the_user_is_recorded() {
    if skip::without_root() || skip::without_tool("setpriv") || skip::without_user_namespaces() {
        return;
    }
    let fixture = Fixture::new();
    let Some(program) = fixture.program("namespaces.c", &[], "namespaces") else { return };
    fs::set_permissions(fixture.dir.path(), fs::Permissions::from_mode(0o755)).expect("it is the test's");
    let recorder = begun(&mut fixture.recorder(&[]));
    let directories: Vec<_> = NEW_USERS.map(|user| format!("/dev/shm/rtscope-{user}")).collect();
    for (user, directory) in NEW_USERS.zip(&directories) {
        assert!(!Path::new(directory).exists(), "{directory} is not left by somebody");
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
        let output = command.arg(&program).output().expect("it was compiled");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "emitted 30\n", "{output:?}");
    }
    let recorded = Recorded::of(interrupt(recorder));
    for directory in directories {
        fs::remove_dir_all(directory).expect("it was made");
    }
    let emitted = 30 * u64::from(NEW_USERS.end - NEW_USERS.start);
    assert_eq!((recorded.events(), recorded.lost()), (emitted, 0), "{}", recorded.account);
}

/// 100 events as this user, by way of these words.
fn emit_as(user: u32, before: &[&str], program: &Path) {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
    let output = command.args(before).arg(program).args(["count", "100"]).output();
    let output = output.expect("it was compiled");
    assert!(output.status.success(), "{output:?}");
}

/// Users whose first program begins in a user namespace: there root's session is that of somebody without a number, as anybody's file in its place is.
// NEEDS: host
#[test]
fn root_a_first_program_in_a_user_namespace_is_recorded_and_goes_by_nobody_elses_session() {
    if cannot_have_rooms() || skip::without_user_namespaces() {
        return;
    }
    let Some((fixture, program)) = fixture() else { return };
    fs::set_permissions(fixture.dir.path(), fs::Permissions::from_mode(0o755)).expect("it is the test's");
    let run = |user, before: &[&str]| emit_as(user, before, &program);
    let recorder = begun(&mut fixture.recorder(&[]));
    let session = fs::read("/dev/shm/rtscope-session").expect("everybody may read it");
    let ways: [&[&str]; 3] =
        [&["unshare", "-Ur"], &["unshare", "-Urm"], &["unshare", "-Urpf", "--mount-proc"]];
    for (user, way) in NEW_USERS.zip(ways.iter().cycle()) {
        run(user, way);
    }
    // Whose /run is another's has nothing that root vouches for; it is found by its directory, or not.
    let own = format!("mount -t tmpfs none /run && {} count 1 >/dev/null", program.display());
    let other = NEW_USERS.end;
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={other}"), &format!("--regid={other}"), "--clear-groups"]);
    assert!(command.args(["unshare", "-Urm", "sh", "-c", &own]).status().expect("it is there").success());
    let recorded = Recorded::of(interrupt(recorder));
    let emitted = 100 * u64::from(NEW_USERS.end - NEW_USERS.start);
    assert!([emitted, emitted + 1].contains(&recorded.events()), "{}", recorded.account);
    assert_eq!(recorded.lost(), 0, "{}", recorded.account);
    let left = fs::read_dir("/run/rtscope").expect("root vouched from there").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name().into_string().unwrap_or_default()).collect();
    assert!(!left.iter().any(|name| name.starts_with("session-")), "{left:?}");
    // The same session as somebody else's, who has it locked: nobody makes a buffer for him.
    let mut others = File::create_new("/dev/shm/rtscope-session").expect("root's is gone");
    std::os::unix::fs::fchown(&others, Some(other), Some(other)).expect("this is root");
    others.write_all(&session).expect("there is room");
    let lock =
        libc::flock { l_type: libc::F_WRLCK as libc::c_short, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
    nix::fcntl::fcntl(&others, nix::fcntl::FcntlArg::F_OFD_SETLK(&lock)).expect("nobody has it locked");
    run(NEW_USERS.start, &["unshare", "-Ur"]);
    fs::remove_file("/dev/shm/rtscope-session").expect("it is there");
    let names = fs::read_dir(format!("/dev/shm/rtscope-{}", NEW_USERS.start)).expect("it was made").flatten();
    let names: Vec<_> = names.map(|entry| entry.file_name().into_string().unwrap_or_default()).collect();
    assert!(!names.iter().any(|name| name.starts_with('r')), "{names:?}");
    for user in NEW_USERS.chain([other]) {
        fs::remove_dir_all(format!("/dev/shm/rtscope-{user}")).expect("it was made");
    }
}

/// In a user namespace without a map (unshare -U) all users look like nobody: a program that begins there makes nobody's place for none of them.
// NEEDS: host
#[test]
fn root_a_program_that_begins_without_a_number_takes_nobodys_place_from_nobody() {
    const NOBODY: u32 = 65_534;
    if cannot_have_rooms() || skip::without_user_namespaces() {
        return;
    }
    let Some((fixture, program)) = fixture() else { return };
    let place = Path::new("/dev/shm/rtscope-65534");
    if place.exists() {
        skip!("nobody has programs here");
    }
    fs::set_permissions(fixture.dir.path(), fs::Permissions::from_mode(0o755)).expect("it is the test's");
    let recorder = begun(&mut fixture.recorder(&[]));
    let run = |user, before: &[&str]| emit_as(user, before, &program);
    for user in [0, NEW_USERS.start] {
        run(user, &["unshare", "-U"]);
        assert!(!place.exists(), "made as user {user}");
    }
    run(NOBODY, &[]);
    let recorded = Recorded::of(interrupt(recorder));
    fs::remove_dir_all(place).expect("nobody's program made it");
    assert_eq!((recorded.events(), recorded.lost()), (100, 0), "{}", recorded.account);
}

/// As filters of containers and sandboxes are that were made before these calls were.
#[test]
fn a_program_under_a_filter_that_is_older_than_calls_of_the_header_is_recorded() {
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let Some(refused) = fixture.program("refused.c", &[], "refused") else { return };
    let statx: &[i64] = &[libc::SYS_statx];
    let newer = [libc::SYS_statx, libc::SYS_openat2, libc::SYS_rseq, libc::SYS_preadv2, libc::SYS_faccessat2];
    for (error, calls) in [
        (libc::EPERM, statx),
        (libc::EACCES, statx),
        (libc::ENOSYS, statx),
        (libc::EPERM, &newer),
        (libc::ENOSYS, &newer),
    ] {
        let calls: Vec<String> = [i64::from(error)].iter().chain(calls).map(i64::to_string).collect();
        let words = [refused.as_os_str()].into_iter().chain(calls.iter().map(OsStr::new));
        let command = ["--".as_ref(), emitter.as_os_str(), "count".as_ref(), "100".as_ref()];
        let recorded = fixture.record(&[], &words.chain(command).collect::<Vec<_>>());
        if recorded.output.status.code() == Some(77) {
            return skip::say("there are no filters of system calls here");
        }
        recorded.assert_complete();
        assert_eq!((recorded.events(), recorded.lost()), (100, 0), "{calls:?}: {}", recorded.account);
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}
