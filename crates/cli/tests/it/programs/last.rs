// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes just before a recording ends, or cannot come: it is recorded, or told.

use super::fixture::{Fixture, Recorded};
use rtscope_testkit::skip;
use serde_json::Value;
use std::process::Command;

/// Starts threads one after the other, of ten events each; then waits.
const THREADS: &str = r#"
#include <rtscope/rtscope.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *one(void *argument)
{
	(void)argument;
	for (int number = 0; number < 10; number++)
		RTSCOPE_EVENT(test, thread, rtscope_u32(n, number));
	return 0;
}
int main(void)
{
	for (int number = 0; number < 60; number++) {
		pthread_t thread;

		if (pthread_create(&thread, 0, one, 0))
			return 1;
		pthread_join(thread, 0);
	}
	puts("emitted 600");
	fflush(stdout);
	pause();
}
"#;

/// A program that has this many events and ends.
const SHORT: &str = r#"
#include <rtscope/rtscope.h>
int main(void)
{
	for (int number = 0; number < 1000; number++)
		RTSCOPE_EVENT(test, short_one, rtscope_u32(n, number));
}
"#;

/// Loads a library of one event 200 times, one after the other; then waits.
const HOST: &str = r#"
#include <rtscope/rtscope.h>
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int count, char **words)
{
	RTSCOPE_EVENT(test, host, rtscope_u32(n, count));
	for (int number = 0; number < 200; number++) {
		void *library = dlopen(words[1], RTLD_NOW);
		void (*emit)(void);

		if (!library)
			return 1;
		*(void **)&emit = dlsym(library, "emit");
		emit();
		dlclose(library);
	}
	puts("emitted 201");
	fflush(stdout);
	pause();
}
"#;
const LIBRARY: &str = r#"
#include <rtscope/rtscope.h>
void emit(void);
void emit(void)
{
	RTSCOPE_EVENT(test, library);
}
"#;

/// Runs a script in a mount namespace of its own, with a `/dev/shm` of its own.
fn alone(options: &str, script: &str) -> Recorded {
    let script = format!("mount -t tmpfs -o mode=1777{options} none /dev/shm && {script}");
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().expect("it is there");
    Recorded::of(output)
}

/// The users whose files were refused for this cause; null is nobody in particular.
fn refused(recorded: &Recorded, cause: &str) -> Vec<Value> {
    let all = recorded.account["refused"].as_array().expect("a list").iter();
    all.filter(|refusal| refusal["cause"] == cause).map(|refusal| refusal["user"].clone()).collect()
}

// NEEDS: host
#[test]
fn root_a_flight_recorder_that_ends_leaves_no_buffers_of_ended_threads() {
    if skip::without_root() || skip::without_tool("unshare") {
        return;
    }
    let fixture = Fixture::new();
    let Some(program) = fixture.text(THREADS, &[], "program") else { return };
    let (program, said) = (program.display(), fixture.path("said"));
    let (said, recorder) = (said.display(), fixture.recorder(&["--flight-recorder"]));
    // The recorder ends with the command that waits for the program's threads. The program goes on.
    let script = format!(
        "{recorder:?} -- sh -c '{program} >{said} & while ! grep -q emitted {said}; do sleep 0.01; done; cat {said}; echo $! >{said}.pid'; \
         echo \"rings $(ls /dev/shm/rtscope-0 | grep -c ^r)\"; kill -KILL $(cat {said}.pid)"
    );
    let recorded = alone("", &script);
    assert_eq!((recorded.events(), recorded.lost()), (600, 0), "{}", recorded.account);
    // That of the main thread, which runs.
    let left = recorded.printed("rings ");
    assert!(left <= 1, "{left}: {}", String::from_utf8_lossy(&recorded.output.stdout));
}

// NEEDS: host
#[test]
fn root_libraries_that_were_unloaded_while_they_were_recorded_leave_no_files() {
    if skip::without_root() || skip::without_tool("unshare") {
        return;
    }
    let fixture = Fixture::new();
    let Some(library) = fixture.text(LIBRARY, &["-shared", "-fPIC"], "library") else { return };
    let Some(program) = fixture.text(HOST, &[], "program") else { return };
    let (program, library, said) = (program.display(), library.display(), fixture.path("said"));
    let said = said.display();
    // Those of the program go first, while the recorder runs; and none comes back at its end. The program goes on.
    let count = "ls /dev/shm/rtscope-0 | grep -c ^p";
    for (options, tries) in [(&[][..], 1000), (&[][..], 1), (&["--flight-recorder"][..], 1000)] {
        let recorder = fixture.recorder(options);
        let script = format!(
            "{recorder:?} -- sh -c '{program} {library} >{said} & while ! grep -q emitted {said}; do sleep 0.01; done; cat {said}; \
             echo $! >{said}.pid; n={tries}; while [ $({count}) -gt 1 ] && [ $n -gt 1 ]; do n=$((n-1)); sleep 0.01; done; \
             echo \"tries $n\"'; echo \"files $({count})\"; kill -KILL $(cat {said}.pid)"
        );
        let recorded = alone("", &script);
        assert_eq!((recorded.events(), recorded.lost()), (201, 0), "{}", recorded.account);
        assert!(recorded.printed("tries ") > 1 || tries == 1, "they were there for 10 s");
        assert_eq!(recorded.printed("files "), 1, "that of the program, which runs");
        std::fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

// NEEDS: host
#[test]
fn root_that_only_root_may_make_directories_for_programs_is_told() {
    if skip::without_root() || skip::without_tool("unshare") || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let Some(program) = fixture.text(SHORT, &[], "program") else { return };
    let (program, recorder) = (program.display(), fixture.recorder(&[]));
    for (mode, told) in [("0755", 1), ("1777", 0)] {
        let script = format!(
            "chmod {mode} /dev/shm && chmod 755 {} && {recorder:?} -- sh -c \
             '{program}; setpriv --reuid 4001 --regid 4001 --clear-groups {program}'",
            fixture.dir.path().display()
        );
        let recorded = alone("", &script);
        assert_eq!(refused(&recorded, "closed"), vec![Value::Null; told], "{}", recorded.account);
        assert_eq!(recorded.events(), 2000 - 1000 * told as u64, "{}", recorded.account);
        std::fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

// NEEDS: host
#[test]
fn root_programs_of_many_users_that_end_just_before_a_flight_recorder_are_in_its_trace() {
    if skip::without_root() || skip::without_tool("unshare") || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let Some(program) = fixture.text(SHORT, &[], "program") else { return };
    // Where others can reach it.
    let (program, recorder) = (program.display(), fixture.recorder(&["--flight-recorder"]));
    let script = format!(
        "chmod 755 {} && cp {program} /dev/shm/program && chmod 755 /dev/shm/program && {recorder:?} -- sh -c \
         'for u in $(seq 4001 4030); do setpriv --reuid $u --regid $u --clear-groups /dev/shm/program & done; wait'",
        fixture.dir.path().display()
    );
    let recorded = alone("", &script);
    let untold = refused(&recorded, "not_looked_at").is_empty();
    // On a busy machine there may be no time for all of them: then that is told.
    assert!(recorded.events() == 30_000 || !untold, "{}", recorded.account);
    println!("    {} of 30000, untold: {untold}", recorded.events());
}

// NEEDS: host
#[test]
fn root_that_there_is_no_room_for_files_of_programs_is_told() {
    if skip::without_root() || skip::without_tool("unshare") || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let Some(program) = fixture.text(SHORT, &[], "program") else { return };
    let (program, recorder) = (program.display(), fixture.recorder(&[]));
    // As many files as there can be, of anybody. The program's user has no directory yet, and can make none.
    let script = format!(
        "chmod 755 {} && cp {program} /dev/shm/program && chmod 755 /dev/shm/program && {recorder:?} -- sh -c \
         'n=0; while (: >/dev/shm/f$n) 2>/dev/null && [ $n -lt 500 ]; do n=$((n+1)); done; \
          setpriv --reuid 4001 --regid 4001 --clear-groups /dev/shm/program'",
        fixture.dir.path().display()
    );
    let recorded = alone(",nr_inodes=60", &script);
    assert_eq!(refused(&recorded, "no_room"), [Value::Null], "{}", recorded.account);
    let losses = recorded.account["losses"].as_array().expect("a list");
    let is_unknown = |loss: &Value| loss["cause"] == "refused" && loss["count"].is_null();
    assert!(losses.iter().any(is_unknown), "{}", recorded.account);
    // With room there is nothing to be told.
    std::fs::remove_dir_all(fixture.trace()).expect("it was made");
    let recorded = alone("", &script.replace("-lt 500", "-lt 0"));
    assert_eq!(recorded.events(), 1000, "{}", recorded.account);
    assert!(refused(&recorded, "no_room").is_empty(), "{}", recorded.account);
}
