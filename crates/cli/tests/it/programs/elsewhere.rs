// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that are no more where, or who, they were when they began, or may no more what they could: nobody else can use that to stop or end them.

use super::fixture::{Fixture, Recorded, begun, interrupt};
use super::hostile::{as_user, held_container};
use rtscope_testkit::process::wait_until;
use rtscope_testkit::skip;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A user without a program of his own.
const OTHER: u32 = 4711;
/// A look-up that waits for him takes as long as he holds what is looked into, a minute.
const AT_ONCE: Duration = Duration::from_secs(20);

fn elsewhere(fixture: &Fixture) -> Option<PathBuf> {
    fixture.program("elsewhere.c", &[], "elsewhere")
}

/// Whether it ends while nothing lets it go.
fn ends(child: &mut Child) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < AT_ONCE {
        if child.try_wait().expect("it was started").is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

// NEEDS: host
#[test]
fn root_a_program_of_roots_in_a_users_container_waits_for_nobody() {
    if skip::without_root() || skip::without_tool("unshare") || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let Some(elsewhere) = elsewhere(&fixture) else { return };
    let Some(holder) = fixture.program("holds.c", &["-std=gnu11"], "holds") else { return };
    for (how, is_recorded, printed) in [
        ("ends", false, None),
        ("forks", false, Some("child ")),
        ("ends", true, None),
        ("forks", true, Some("child ")),
        ("serves", true, Some("child ")),
        ("thread", true, Some("emitted ")),
    ] {
        let recorder = is_recorded.then(|| begun(&mut fixture.recorder(&["--user-buffer", "1M"])));
        let Some(mut holder) = held_container(&fixture, &holder, "/dev/shm") else {
            skip!("no FUSE file system can be mounted here");
        };
        let mut program = Command::new(&elsewhere);
        program.args([how, &holder.id().to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = program.spawn().expect("it was compiled");
        let has_ended = ends(&mut program);
        // With it the kernel gives up the page.
        holder.kill().expect("it runs");
        holder.wait().expect("it ends");
        let output = program.wait_with_output().expect("it ends now");
        assert!(has_ended, "{how}, recorded: {is_recorded}");
        assert!(output.status.success(), "{how}: {output:?}");
        if let Some(word) = printed {
            assert_eq!(Recorded::printed_in(&output, word), u64::from(how == "thread"), "{how}: {output:?}");
        }
        let Some(recorder) = recorder else { continue };
        let recorded = Recorded::of(interrupt(recorder));
        // What it emits there nobody could find.
        assert_eq!(recorded.of_event("test:here"), 1, "{how}: {}", recorded.account);
        assert_eq!(recorded.lost(), u64::from(how != "ends"), "{how}: {}", recorded.account);
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

/// To ask without a descriptor could wait for whoever holds `/dev/shm`.
#[test]
fn a_program_without_a_descriptor_does_not_look_for_roots_session() {
    if skip::without_tool("strace") || skip::without_tool("prlimit") {
        return;
    }
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &["-static"], "emitter") else { return };
    let (calls, emitter) = (fixture.path("calls"), emitter.display());
    let script = format!("exec 3>&- 4>&- 5>&-; exec prlimit --nofile=3 {emitter} count 1 1");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=%file", "-o"]).arg(&calls).args(["sh", "-c", &script]);
    let output = command.output().expect("it is there");
    let calls = fs::read_to_string(&calls).expect("strace writes it");
    assert!(output.status.success() && calls.contains("EMFILE"), "{output:?} {calls}");
    let asked: Vec<&str> =
        calls.lines().filter(|line| line.contains("\"/dev/shm/rtscope-session\"")).collect();
    let waits =
        asked.iter().filter(|line| !line.contains("RESOLVE_CACHED") && !line.contains("resolve=0x20"));
    assert_eq!(waits.count(), 0, "{asked:?}");
    assert!(!asked.is_empty(), "{calls}");
}

/// Threads that write to the standard error, which the program has closed, while others make their buffers.
const DAEMON: &str = r#"
#include <rtscope/rtscope.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static void *work(void *line)
{
	ssize_t written = write(2, line, strlen(line));

	(void)written;
	for (int number = 0; number < 100; number++)
		RTSCOPE_EVENT(test, work, rtscope_u32(n, number));
	return 0;
}
int main(void)
{
	static char line[151];
	int output = fcntl(1, F_DUPFD, 100);

	memset(line, 'a', sizeof(line) - 1);
	for (int stream = 0; stream < 3; stream++)
		close(stream);
	for (int round = 0; round < 1000; round++) {
		pthread_t threads[3];

		for (int i = 0; i < 3; i++)
			if (pthread_create(&threads[i], 0, work, line))
				return 1;
		for (int i = 0; i < 3; i++)
			pthread_join(threads[i], 0);
	}
	dprintf(output, "emitted %d\n", 1000 * 3 * 100);
	return 0;
}
"#;

#[test]
fn what_threads_write_to_a_stream_that_was_closed_gets_into_no_buffer() {
    let fixture = Fixture::new();
    let Some(program) = fixture.text(DAEMON, &["-D_GNU_SOURCE"], "daemon") else { return };
    for _ in 0..3 {
        let recorded = fixture.record(&[], &[program.as_os_str()]);
        recorded.assert_complete();
        assert_eq!((recorded.events(), recorded.lost()), (300_000, 0), "{}", recorded.account);
        assert_eq!(recorded.account["refused"], serde_json::json!([]), "{}", recorded.account);
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

/// A program that closes all descriptors that it does not know, while a thread makes its buffer, may have a file of its own under their numbers.
// NEEDS: host
#[test]
fn root_a_programs_own_file_under_the_number_of_one_of_ours_keeps_its_size() {
    if skip::without_root() || skip::without_tool("setpriv") {
        return;
    }
    const BYTES: u64 = 8 << 20;
    let fixture = Fixture::new();
    let Some(closes) = fixture.program("closes.c", &[], "closes") else { return };
    fs::set_permissions(fixture.dir.path(), fs::Permissions::from_mode(0o755)).expect("it is the test's");
    let recorder = begun(&mut fixture.recorder(&["--user-buffer", "1M"]));
    let mut met = 0;
    // With groups it has no path to its files, and goes by their descriptors.
    for groups in ["--clear-groups", "--groups=4712"] {
        for (call, most) in [(libc::SYS_ftruncate, 3), (libc::SYS_fallocate, 12), (libc::SYS_truncate, 3)] {
            for place in 1..=most {
                let own = fixture.path("own");
                fs::write(&own, vec![7; BYTES as usize]).expect("it can be written");
                std::os::unix::fs::chown(&own, Some(OTHER), None).expect("root may");
                let mut program = Command::new("setpriv");
                program.args([&format!("--reuid={OTHER}"), &format!("--regid={OTHER}"), groups]);
                program.arg(&closes).arg(&own).args([call.to_string(), place.to_string()]);
                let output = program.output().expect("it was compiled");
                let said = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success(), "{groups} {call} {place}: {output:?}");
                assert!(said.ends_with(&format!("{BYTES} {BYTES}\n")), "{groups} {call} {place}: {said}");
                assert!(fs::read(&own).expect("it is there").iter().all(|byte| *byte == 7));
                met += u32::from(said.starts_with("met"));
                if said.starts_with("not") {
                    break;
                }
            }
        }
    }
    // Killed, it would leave events, which are the next test's.
    interrupt(recorder);
    assert!(met > 8, "{met} of these calls were met");
}

/// Where such a program has a directory of its own under the number of what was ours, nothing is made there.
// NEEDS: host
#[test]
fn root_no_file_of_ours_gets_into_a_programs_own_directory() {
    if skip::without_root() || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let Some(closes) = fixture.program("closes.c", &[], "closes") else { return };
    fs::set_permissions(fixture.dir.path(), fs::Permissions::from_mode(0o755)).expect("it is the test's");
    let own = fixture.path("own");
    fs::create_dir(&own).expect("it is new");
    std::os::unix::fs::chown(&own, Some(OTHER), None).expect("root may");
    let recorder = begun(&mut fixture.recorder(&["--user-buffer", "1M"]));
    let (mut met, mut runs) = (0, 0);
    for call in
        [libc::SYS_openat, libc::SYS_openat2, libc::SYS_fallocate, libc::SYS_flock, libc::SYS_unlinkat]
    {
        for place in 1..=6 {
            let mut program = Command::new("setpriv");
            program.args([&format!("--reuid={OTHER}"), &format!("--regid={OTHER}"), "--groups=4712"]);
            program.arg(&closes).arg(&own).args([call.to_string(), place.to_string()]);
            let output = program.output().expect("it was compiled");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains(" 0 closed "), "{call} {place}: {output:?}");
            let made: Vec<_> = fs::read_dir(&own).expect("it is there").flatten().collect();
            assert!(made.is_empty(), "{call} {place}: {made:?}");
            runs += 1;
            met += u32::from(said.starts_with("met"));
            if said.starts_with("not") {
                break;
            }
        }
    }
    let recorded = Recorded::of(interrupt(recorder));
    assert!(met > 8, "{met} of these calls were met");
    assert_eq!(recorded.events() + recorded.lost(), 2 * runs, "{}", recorded.account);
}

/// As in images in which it is `/run/shm`. It is root's link, and not one that a user has put in the place of his directory.
// NEEDS: host
#[test]
fn root_where_dev_shm_is_a_link_programs_with_groups_are_recorded() {
    if skip::without_root() || skip::without_tool("unshare") || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    fs::set_permissions(fixture.dir.path(), fs::Permissions::from_mode(0o755)).expect("it is the test's");
    let (shm, recorder) = (fixture.path("shm"), format!("{:?}", fixture.recorder(&[])));
    let script = format!(
        "mkdir {shm} && mount -t tmpfs -o mode=1777 none {shm} && mount -t tmpfs -o mode=755 none /dev && \
         mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9 && ln -s {shm} /dev/shm && \
         {recorder} -- setpriv --reuid {OTHER} --regid {OTHER} --groups 4712 {} count 1000 2",
        emitter.display(),
        shm = shm.display(),
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().expect("it is there");
    assert!(output.status.success(), "{output:?}");
    let recorded = Recorded::of(output);
    assert_eq!((recorded.of_event("test:count"), recorded.lost()), (2000, 0), "{}", recorded.account);
}

/// Root's programs ask where /dev/shm is, by a descriptor that is a place only.
// NEEDS: host
#[test]
fn root_a_programs_own_place_under_the_number_of_ours_stays_open() {
    if skip::without_root() {
        return;
    }
    let fixture = Fixture::new();
    let Some(closes) = fixture.program("closes.c", &[], "closes") else { return };
    let recorder = begun(&mut fixture.recorder(&["--user-buffer", "1M"]));
    let (mut met, mut runs) = (0, 0);
    for call in [libc::SYS_newfstatat, libc::SYS_fcntl] {
        for place in 1..=8 {
            let mut program = Command::new(&closes);
            program.args(["/etc", &call.to_string(), &place.to_string(), "path"]);
            let output = program.output().expect("it was compiled");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains(" 0 closed "), "{call} {place}: {output:?}");
            runs += 1;
            met += u32::from(said.starts_with("met"));
        }
    }
    let recorded = Recorded::of(interrupt(recorder));
    assert!(met > 8, "{met} of these calls were met");
    // It is where it was, whatever the number was of for a moment.
    assert_eq!((recorded.events(), recorded.lost()), (2 * runs, 0), "{}", recorded.account);
}

/// What one thread cannot have, for its own root or a moment without memory, the others can.
// NEEDS: host
#[test]
fn root_a_thread_that_lacks_something_costs_the_other_threads_nothing() {
    if skip::without_root() {
        return;
    }
    let fixture = Fixture::new();
    let Some(elsewhere) = elsewhere(&fixture) else { return };
    for how in ["away", "starved"] {
        let recorder = begun(&mut fixture.recorder(&["--user-buffer", "1M"]));
        let output = Command::new(&elsewhere).args([how, "200"]).output().expect("it was compiled");
        assert!(output.status.success(), "{how}: {output:?}");
        let recorded = Recorded::of(interrupt(recorder));
        assert_eq!(recorded.of_event("test:own"), 600, "{how}: {}", recorded.account);
        assert_eq!(recorded.events() + recorded.lost(), 801, "{how}: {}", recorded.account);
        // Its own are lost.
        assert!(recorded.lost() > 100, "{how}: {}", recorded.account);
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

// NEEDS: host
#[test]
fn root_a_thread_that_became_another_user_makes_no_files_for_its_process() {
    if skip::without_root() {
        return;
    }
    let fixture = Fixture::new();
    let Some(elsewhere) = elsewhere(&fixture) else { return };
    // Of an earlier test.
    let directory = PathBuf::from(format!("/dev/shm/rtscope-{OTHER}"));
    let _ = fs::remove_dir_all(&directory);
    let mut program = Command::new(&elsewhere);
    program.args(["user", &OTHER.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = program.spawn().expect("it was compiled");
    let mut said = BufReader::new(program.stdout.take().expect("piped")).lines();
    let mut line = || said.next().expect("a line").expect("of text");
    assert_eq!(line(), "ready");
    let recorder = begun(&mut fixture.recorder(&["--user-buffer", "1M"]));
    let mut stdin = program.stdin.take().expect("piped");
    stdin.write_all(b"\n").expect("it reads it");
    assert_eq!(line(), "emitted");
    let files = || fs::read_dir(&directory).into_iter().flatten().flatten();
    let others: Vec<_> =
        files().filter(|file| file.metadata().is_ok_and(|file| file.uid() == OTHER)).collect();
    // Of a file of his it would be the end.
    for file in &others {
        fs::OpenOptions::new()
            .write(true)
            .open(file.path())
            .and_then(|file| file.set_len(0))
            .expect("root may");
    }
    stdin.write_all(b"\n").expect("it reads it");
    assert_eq!(line(), "child 0", "{others:?}");
    program.wait().expect("it ends");
    let recorded = Recorded::of(interrupt(recorder));
    let _ = fs::remove_dir_all(&directory);
    assert!(
        others.iter().all(|file| !file.file_name().to_string_lossy().starts_with(['p', 'r'])),
        "{others:?}"
    );
    // The thread's own event is lost, and what came before somebody made the files again.
    assert_eq!(recorded.events() + recorded.lost(), 11, "{}", recorded.account);
    assert_eq!(recorded.of_event("test:own"), 10, "{}", recorded.account);
}

// NEEDS: host
#[test]
fn root_a_limit_for_files_that_is_lowered_meanwhile_ends_nobody() {
    if skip::without_root() || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let Some(elsewhere) = elsewhere(&fixture) else { return };
    let recorder = begun(&mut fixture.recorder(&["--user-buffer", "1M"]));
    for _ in 0..3 {
        let status = as_user(OTHER).arg(&elsewhere).args(["limited", "300"]).status().expect("it is there");
        assert!(status.success(), "{status}");
    }
    let recorded = Recorded::of(interrupt(recorder));
    assert_eq!(recorded.events() + recorded.lost(), 900, "{}", recorded.account);
    // Of those the limit was lowered for at the right moment.
    assert!(recorded.lost() > 0, "{}", recorded.account);
    wait_until("its directory is empty", || {
        let names = fs::read_dir(format!("/dev/shm/rtscope-{OTHER}")).into_iter().flatten().flatten();
        names.filter(|name| name.file_name().to_string_lossy().starts_with('r')).count() == 0
    });
}
