// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recorders of programs that fail: programs run on, switched off where that is possible, and what they recorded is not lost.

use super::fixture::{Fixture, Recorded, begun, flight_recorder, interrupt, send};
use super::hostile::as_user;
use crate::command::{SmallDisk, rtscope};
use nix::sys::signal::Signal;
use rtscope_testkit::process::KilledWithTest;
use rtscope_testkit::skip;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// An emitter that waits for a line, and then emits this many events.
fn waiting(emitter: &Path, count: &str) -> Child {
    super::fixture::waiting(Command::new(emitter).args(["wait", count]).env("RTSCOPE_ALLOW_BLOCKING", "1"))
}

/// Lets it emit, and waits for its end.
fn emit(mut child: Child) {
    child.stdin.take().expect("piped").write_all(b"\n").expect("it reads");
    assert!(child.wait().expect("it ends").success());
}

/// How many events of a running program are enabled.
fn enabled(child: &Child) -> u64 {
    let listed = rtscope().args(["list", "--json"]).output().expect("it can be run");
    let list: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let programs = list["programs"].as_array().expect("a list");
    let own = programs.iter().find(|program| program["pid"] == child.id());
    own.unwrap_or_else(|| panic!("{list}"))["enabled"].as_u64().expect("a number")
}

#[test]
fn nobody_waits_for_ever_for_a_recorder_that_was_killed() {
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    // What killed programs of other tests have left would be the second recorder's.
    interrupt(begun(&mut fixture.recorder(&[])));
    fs::remove_dir_all(fixture.trace()).expect("it was made");
    let mut recorder = begun(&mut fixture.recorder(&["--user-buffer", "64K", "--blocking"]));
    let child = waiting(&emitter, "50000");
    recorder.kill().expect("it runs");
    recorder.wait().expect("it ends");
    emit(child);
    let recovered = rtscope().args(["record", "--json", "--recover"]).arg(fixture.trace()).output();
    let first = Recorded::of(recovered.expect("it can be run"));
    fs::remove_dir_all(fixture.trace()).expect("it was made");
    let second = begun(&mut fixture.recorder(&[]));
    let second = Recorded::of(interrupt(second));
    println!("{} + {} recorded + {} lost", first.events(), second.events(), second.lost());
    assert!(second.lost() > 0 && second.account["waits"].as_u64() > Some(0), "{}", second.account);
    assert_eq!(first.events() + second.events() + second.lost(), 50_000);
}

/// Four threads, which have their buffers, take turns; says how long all of them took.
const TURNS: &str = r#"
#include <rtscope/rtscope.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int ready, turn = -1;
static void *work(void *mine)
{
	rtscope_thread_init();
	pthread_mutex_lock(&mutex);
	ready++;
	pthread_cond_broadcast(&changed);
	while (turn != *(int *)mine)
		pthread_cond_wait(&changed, &mutex);
	pthread_mutex_unlock(&mutex);
	for (int number = 0; number < 10000; number++)
		RTSCOPE_EVENT(test, work, rtscope_u64(n, number));
	pthread_mutex_lock(&mutex);
	turn++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
	return 0;
}
int main(void)
{
	int numbers[4] = { 0, 1, 2, 3 };
	pthread_t threads[4];
	struct timespec begun, ended;

	for (int i = 0; i < 4; i++)
		if (pthread_create(&threads[i], 0, work, &numbers[i]))
			return 1;
	pthread_mutex_lock(&mutex);
	while (ready < 4)
		pthread_cond_wait(&changed, &mutex);
	pthread_mutex_unlock(&mutex);
	puts("ready");
	fflush(stdout);
	if (getchar() == EOF)
		return 1;
	clock_gettime(CLOCK_MONOTONIC, &begun);
	pthread_mutex_lock(&mutex);
	turn = 0;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], 0);
	clock_gettime(CLOCK_MONOTONIC, &ended);
	printf("took %ld\n", (long)(ended.tv_sec - begun.tv_sec));
	return 0;
}
"#;

#[test]
fn threads_wait_once_together_for_a_recorder_that_was_killed() {
    let fixture = Fixture::new();
    let Some(program) = fixture.text(TURNS, &[], "turns") else { return };
    let mut recorder = begun(&mut fixture.recorder(&["--user-buffer", "64K", "--blocking"]));
    let mut command = Command::new(program);
    let mut child = super::fixture::waiting(command.env("RTSCOPE_ALLOW_BLOCKING", "1"));
    recorder.kill().expect("it runs");
    recorder.wait().expect("it ends");
    child.stdin.take().expect("piped").write_all(b"\n").expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let took = Recorded::printed_in(&output, "took ");
    // Each of the four would wait for 10 s.
    assert!((9..20).contains(&took), "{took} s");
    // What it has left is nobody's.
    fs::remove_dir_all(fixture.trace()).expect("it was made");
    interrupt(begun(&mut fixture.recorder(&[])));
}

/// The numbers of the events of a trace, in their order.
pub fn numbers(trace: &Path) -> Vec<u64> {
    let number = |line: &String| {
        let (_, rest) = line.split_once(" n = ").unwrap_or_else(|| panic!("an event: {line}"));
        let end = rest.find(',').expect("another field");
        rest[..end].parse().expect("a number")
    };
    super::fixture::lines(trace).iter().map(number).collect()
}

#[test]
fn reading_what_a_killed_recorder_left_is_no_success() {
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let mut recorder = begun(&mut fixture.recorder(&["--user-buffer", "64K", "--blocking"]));
    emit(waiting(&emitter, "50000"));
    let perfetto = fixture.path("perfetto");
    let trace = fixture.trace();
    let read = |arguments: &[&str]| {
        let output = rtscope().args(arguments).arg(&trace).output().expect("it can be started");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    let stage = || {
        let (code, line) = read(&["stat", "--json"]);
        let stat: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        (code, stat["stage"].as_str().expect("a string").to_owned())
    };
    assert_eq!(stage(), (Some(0), "growing".to_owned()));
    recorder.kill().expect("it runs");
    recorder.wait().expect("it ends");
    assert_eq!(stage(), (Some(5), "abandoned".to_owned()));
    let (code, text) = read(&["stat"]);
    assert!(code == Some(5) && text.contains("an unknown number of events"), "{code:?} {text}");
    assert_eq!(read(&["stat", "--latency", "wakeup"]).0, Some(5));
    assert_eq!(read(&["print"]).0, Some(5));
    let mut convert = rtscope();
    convert.args(["convert", "--to", "perfetto"]).arg(&trace).arg(&perfetto);
    let converted = convert.output().expect("it can be started");
    assert!(converted.status.code() == Some(5) && perfetto.exists(), "{converted:?}");
    let recovered = rtscope().args(["record", "--recover"]).arg(&trace).output();
    assert!(recovered.expect("it can be started").status.success());
    assert_eq!(stage(), (Some(0), "complete".to_owned()));
}

#[test]
fn what_a_recorder_had_taken_when_it_was_killed_is_a_whole_trace() {
    const EVENTS: u64 = 100_000;
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let second = fixture.path("second");
    for bytes in [1, 300_000, 1_000_000] {
        let mut recorder = begun(&mut fixture.recorder(&["--user-buffer", "64K", "--blocking"]));
        let mut child = waiting(&emitter, &EVENTS.to_string());
        child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
        let stream = fixture.trace().join("ust.partial/trace/user_0");
        while fs::metadata(&stream).map_or(0, |file| file.len()) < bytes {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        recorder.kill().expect("it runs");
        recorder.wait().expect("it ends");
        let mut command = rtscope();
        command.args(["record", "--json", "-u", "test:*", "--blocking", "-o"]).arg(&second);
        let follower = begun(&mut command);
        assert!(child.wait().expect("it ends").success());
        let followed = Recorded::of(interrupt(follower));
        assert_eq!(followed.lost(), 0, "{}", followed.account);
        let unrepaired = numbers(&fixture.trace());
        let recovered = rtscope().args(["record", "--json", "--recover"]).arg(fixture.trace()).output();
        let recovered = Recorded::of(recovered.expect("it can be run"));
        let (before, after) = (numbers(&fixture.trace()), numbers(&second));
        println!("killed after {bytes} bytes: {} events, then {}", before.len(), after.len());
        assert_eq!(unrepaired, before, "it is a trace as the kill has left it");
        assert_eq!((recovered.events(), followed.events()), (before.len() as u64, after.len() as u64));
        assert_eq!(recovered.of_event("test:count"), recovered.events());
        // A kill in the middle of the first write leaves nothing of it.
        assert!(!before.is_empty() || bytes == 1);
        // What was written and not given back yet when it was killed is in both.
        assert!(after.first().is_none_or(|first| *first <= before.len() as u64), "{:?}", after.first());
        assert_eq!(before, (0..before.len() as u64).collect::<Vec<_>>());
        let first = EVENTS - after.len() as u64;
        assert_eq!(after, (first..EVENTS).collect::<Vec<_>>());
        fs::remove_dir_all(fixture.trace()).expect("it was made");
        fs::remove_dir_all(&second).expect("it was made");
    }
}

#[test]
fn a_flight_recorder_goes_on_after_a_snapshot_that_could_not_be_written() {
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let child = waiting(&emitter, "1000");
    let (mut recorder, mut said) = flight_recorder(&fixture, &[]);
    emit(child);
    // The first snapshot's place is taken.
    fs::create_dir(fixture.trace().join("1")).expect("the directory is there");
    send(&recorder, Signal::SIGUSR1);
    let mut line = String::new();
    while !line.contains("recording goes on") {
        line.clear();
        assert!(said.read_line(&mut line).expect("text") > 0, "it ended");
    }
    let asked = rtscope().arg("snapshot").output().expect("it can be run");
    assert!(asked.status.success(), "{asked:?}");
    let asked = String::from_utf8_lossy(&asked.stdout).into_owned();
    assert!(asked.trim().ends_with("/2"), "{asked}");
    assert_eq!(super::fixture::lines(Path::new(asked.trim())).len(), 1000);
    send(&recorder, Signal::SIGINT);
    assert!(recorder.wait().expect("it ends").success());
}

// NEEDS: host
#[test]
fn root_who_cannot_see_whether_a_user_runs_a_flight_recorder_is_told_so() {
    if skip::without_root() || skip::without_tool("setpriv") {
        return;
    }
    let program = rtscope_testkit::process::program("rtscope").expect("it is built");
    let asked = as_user(4711).arg(program).args(["snapshot", "--user", "0"]).output().expect("it is there");
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(asked.status.code() == Some(3) && said.contains("only root and user 0 can see"), "{said}");
    // Who may look is told what there is.
    let asked = rtscope().args(["snapshot", "--user", "4711"]).output().expect("it is there");
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(asked.status.code() == Some(2) && said.contains("user 4711 runs no flight recorder"), "{said}");
}

/// Two traces get their name together: where the disk is too small for one, neither is there, nor their directory.
// NEEDS: one kernel
#[test]
fn root_a_snapshot_of_the_kernel_and_programs_is_there_when_both_are() {
    let Some(disk) = SmallDisk::new("size=8k") else { return };
    let target = disk.path().join("late");
    let mut command = rtscope();
    command
        .args(["record", "-k", "sched:sched_switch", "-u", "test:*", "--flight-recorder", "-o"])
        .arg(&target);
    let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut recorder = KilledWithTest::start(command).expect("it can be started");
    let mut said = BufReader::new(recorder.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.contains(" record into memory") {
        line.clear();
        assert!(said.read_line(&mut line).expect("text") > 0, "it ended");
    }
    let names = || {
        let entries = fs::read_dir(&target).expect("it is there").flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let asked = rtscope().arg("snapshot").output().expect("it can be run");
    assert!(!asked.status.success(), "{asked:?}");
    assert_eq!(names(), [""; 0]);
    let larger = Command::new("mount").args(["-o", "remount,size=64m"]).arg(disk.path()).status();
    assert!(larger.is_ok_and(|status| status.success()));
    let asked = rtscope().arg("snapshot").output().expect("it can be run");
    assert!(asked.status.success(), "{asked:?}");
    let both = ["kernel", "ust"].map(|name| target.join("2").join(name).join("metadata").is_file());
    assert_eq!((names(), both), (vec!["2".to_string()], [true; 2]));
    send(&recorder, Signal::SIGINT);
    assert!(recorder.wait().expect("it ends").success());
}

#[test]
fn a_flight_recorder_survives_a_program_that_truncates_its_ring() {
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let (mut recorder, _said) = flight_recorder(&fixture, &[]);
    let mut liar = Command::new(&emitter).args(["paced", "1000000000"]).spawn().expect("it can be started");
    // The recorder has mapped its ring; the program itself never comes back to it.
    let maps =
        |recorder: &Child| fs::read_to_string(format!("/proc/{}/maps", recorder.id())).unwrap_or_default();
    let of_ring = format!("/r{}-", liar.id());
    let mut ring = None;
    while ring.is_none() {
        assert!(recorder.try_wait().expect("a child").is_none(), "it ended");
        let maps = maps(&recorder);
        let line = maps.lines().find(|line| line.contains(&of_ring));
        ring = line.and_then(|line| line.find('/').map(|at| line[at..].to_string()));
    }
    send(&liar, Signal::SIGSTOP);
    let path = ring.expect("it was found");
    fs::OpenOptions::new().write(true).open(&path).expect("it is ours").set_len(0).expect("it is ours");
    // Zeros come in its place once the recorder has touched it.
    while maps(&recorder).contains(&of_ring) && recorder.try_wait().expect("a child").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let ended = recorder.try_wait().expect("a child");
    liar.kill().expect("it runs");
    liar.wait().expect("it ends");
    assert_eq!(ended, None, "the recorder was ended by a program");
    let asked = rtscope().arg("snapshot").output().expect("it can be run");
    assert!(asked.status.success(), "{asked:?}");
    send(&recorder, Signal::SIGINT);
    assert!(recorder.wait().expect("it ends").success());
}

#[test]
fn a_recorder_without_room_switches_programs_off() {
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let (other, child) = (waiting(&emitter, "1000"), waiting(&emitter, "1000000"));
    // Its files may have 256 KiB: a disk that is full, for it alone.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -c 0; ulimit -f 512; exec \"$0\" \"$@\""]);
    let recorder = fixture.recorder(&[]);
    command.arg(recorder.get_program()).args(recorder.get_args());
    let recorder = begun(&mut command);
    assert!(enabled(&other) > 0);
    emit(child);
    let output = recorder.wait_with_output().expect("it ends by itself");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(enabled(&other), 0);
    emit(other);
    // What there was room for is there: the first events, and all of them up to some.
    let taken = if fixture.trace().exists() {
        numbers(&fixture.trace())
    } else {
        let recovered = rtscope().args(["record", "--json", "--recover"]).arg(fixture.trace()).output();
        let recovered = Recorded::of(recovered.expect("it can be run"));
        let taken = numbers(&fixture.trace());
        assert_eq!(recovered.events(), taken.len() as u64);
        taken
    };
    println!("{} events in 256 KiB", taken.len());
    assert!(taken.len() > 3000 && taken.len() < 14_000, "{}", taken.len());
    assert_eq!(taken, (0..taken.len() as u64).collect::<Vec<_>>());
}

// NEEDS: host
#[test]
fn root_a_recording_that_cannot_begin_leaves_nothing() {
    let fixture = Fixture::new();
    if skip::without_root() {
        return;
    }
    if skip::without_watching() {
        return;
    }
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let child = waiting(&emitter, "1000");
    let kernel = ["-k", "sched:sched_switch", "--filter", "sched:sched_switch: no_such_field == 1"];
    let output = fixture.recorder(&kernel).output().expect("it can be started");
    assert!(!output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no_such_field"), "{output:?}");
    let left: Vec<_> = fs::read_dir(fixture.dir.path()).expect("it is there").flatten().collect();
    assert_eq!(left.len(), 1, "the emitter alone: {left:?}");
    assert_eq!(enabled(&child), 0);
    emit(child);
    // The right to record is free again.
    fixture.record(&[], &[emitter.as_os_str(), "count".as_ref(), "10".as_ref()]).assert_complete();
}

// NEEDS: host
#[test]
fn root_a_recording_whose_first_word_finds_the_disk_full_leaves_nothing_and_says_so() {
    let fixture = Fixture::new();
    if skip::without_root() || skip::without_watching() {
        return;
    }
    let full = fixture.path("full");
    fs::create_dir(&full).expect("it is ours");
    // A disk of one page, which is taken, in a namespace that ends with the shell.
    let script = "mount -t tmpfs -o size=4k none \"$1\" && head -c 4096 /dev/zero > \"$1/taken\" || exit 77; set -f; \
                  for what in '-u test:*' '-k sched:sched_switch'; do \
                  \"$0\" record $what -o \"$1/trace\" --duration 10s; echo \"status $?\"; ls \"$1\"; done";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(rtscope().get_program()).arg(&full);
    let Some(output) = command.output().ok().filter(|output| output.status.code() != Some(77)) else {
        skip!("nothing can be mounted here");
    };
    let reported = String::from_utf8_lossy(&output.stderr);
    assert_eq!(reported.matches("the disk is full").count(), 2, "{output:?}");
    // Not 2: the arguments are right.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "status 1\ntaken\n".repeat(2), "{output:?}");
}

// NEEDS: host
#[test]
fn root_a_directory_that_is_not_its_users_alone_has_one_exit_code() {
    let fixture = Fixture::new();
    if skip::without_root() || skip::without_watching() {
        return;
    }
    let script = "mount -t tmpfs none /dev/shm && mkdir -m 777 /dev/shm/rtscope-0 || exit 77; cd \"$1\"; \
                  \"$0\" record -u 'test:*' -o a --duration 1ms; echo $?; \
                  \"$0\" record -u 'test:*' -o b --duration 1ms --flight-recorder; echo $?; \
                  \"$0\" watch response --threshold 1h -u 'test:*' --duration 1ms; echo $?";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(rtscope().get_program()).arg(fixture.dir.path());
    let Some(output) = command.output().ok().filter(|output| output.status.code() != Some(77)) else {
        skip!("nothing can be mounted here");
    };
    let reported = String::from_utf8_lossy(&output.stderr);
    assert_eq!(reported.matches("is open to others than its user").count(), 3, "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n1\n1\n", "{output:?}");
}

// NEEDS: host
#[test]
fn root_the_place_of_roots_files_that_another_user_had_is_told() {
    let fixture = Fixture::new();
    if skip::without_root() || skip::without_tool("setpriv") {
        return;
    }
    let script = "mount -t tmpfs -o mode=1777 none /dev/shm && \
                  setpriv --reuid 12345 --regid 12345 --clear-groups mkdir /dev/shm/rtscope-0 || exit 77; cd \"$1\"; \
                  for place in a b; do \"$0\" record --json -u 'test:*' -o $place --duration 1ms; done";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(rtscope().get_program()).arg(fixture.dir.path());
    let Some(output) = command.output().ok().filter(|output| output.status.code() != Some(77)) else {
        skip!("nothing can be mounted here");
    };
    let told = String::from_utf8_lossy(&output.stdout);
    let told: Vec<bool> = told.lines().map(|line| line.contains("place_taken")).collect();
    // Programs of root may have started meanwhile: it is known of no number that it is 0.
    assert_eq!(told, [true, false], "{output:?}");
}

#[test]
fn a_recorder_that_is_told_to_end_many_times_ends_in_order() {
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let child = waiting(&emitter, "1000");
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let mut recorder = begun(&mut fixture.recorder(&[]));
        assert!(enabled(&child) > 0);
        // As a parent with many threads tells of its death, or a terminal and its shell of theirs.
        while recorder.try_wait().expect("it was started").is_none() {
            send(&recorder, signal);
            // It shall also come to its own work.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Recorded::of(recorder.wait_with_output().expect("it has ended"));
        assert_eq!(enabled(&child), 0);
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
    emit(child);
}

/// Some callers leave SIGCHLD ignored; the kernel then keeps no status of children.
#[test]
fn the_status_of_command_is_known_where_ends_of_children_are_ignored() {
    use std::os::unix::process::CommandExt;
    let fixture = Fixture::new();
    let mut recorder = fixture.recorder(&["--", "sh", "-c", "exit 9"]);
    let ignored = || {
        // SAFETY: the default of no handler; it only sets what the child inherits.
        unsafe { nix::sys::signal::signal(Signal::SIGCHLD, nix::sys::signal::SigHandler::SigIgn) }?;
        Ok(())
    };
    // SAFETY: one system call between fork and exec.
    unsafe { recorder.pre_exec(ignored) };
    let output = recorder.output().expect("it can be started");
    assert_eq!(output.status.code(), Some(9), "{output:?}");
}
