// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs in containers: mount and PID namespaces of their own, with a `/dev/shm` of their own. Root records them from outside.
//! In each: recorded + lost = emitted.

mod unanswered;

use super::fixture::{Fixture, Recorded, begun, interrupt, send};
use crate::command::rtscope;
use nix::sys::signal::Signal;
use rtscope_testkit::process::{KilledWithTest, program, wait_until};
use rtscope_testkit::skip;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A container in which a shell obeys.
struct Container {
    child: Child,
    output: BufReader<ChildStdout>,
    /// The shell, as this machine sees it.
    pid: u32,
}

impl Container {
    /// By root.
    fn start() -> Container {
        Container::start_with(&[], &[])
    }

    /// `prefix`: who starts it. `options` of unshare(1) beside those for the namespaces.
    fn start_with(prefix: &[&str], options: &[&str]) -> Container {
        let script = "mount -t tmpfs none /dev/shm && echo up && while read -r line; do eval \"$line\"; done";
        let words = [prefix, &["unshare"]].concat();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .args(["-m", "-p", "-f", "--mount-proc", "--kill-child"])
            .args(options)
            .args(["sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it was just there");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut container = Container { child, output, pid: 0 };
        assert_eq!(container.line(), "up");
        // setpriv becomes unshare, which has one child.
        let children = format!("/proc/{0}/task/{0}/children", container.child.id());
        let pid = fs::read_to_string(children).expect("it runs");
        container.pid = pid.trim().parse().expect("one child");
        container
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).expect("text") > 0, "it still talks");
        line.trim().to_string()
    }

    fn obey(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().expect("piped"), "{line}").expect("it listens");
    }

    /// Its `/dev/shm`, from outside.
    fn shm(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.pid)).join("dev/shm").join(name)
    }

    /// The number that a program in it printed.
    fn emitted(&mut self) -> u64 {
        let line = self.line();
        line.strip_prefix("emitted ")
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("{line}"))
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A recorder, which ends with the test.
struct Recorder(KilledWithTest);

impl Recorder {
    fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    fn signal(&mut self, signal: Signal) {
        send(self.child(), signal);
    }

    fn end(self) -> Recorded {
        let output = interrupt(self.0);
        assert!(output.status.success(), "{output:?}");
        Recorded::of(output)
    }
}

/// A recorder that has begun.
fn recorder(fixture: &Fixture, options: &[&str]) -> Recorder {
    Recorder(begun(&mut fixture.recorder(options)))
}

/// What `rtscope list` says of programs in containers.
fn listed() -> Vec<Value> {
    let listed = rtscope().args(["list", "--json"]).output().expect("it can be run");
    let list: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let programs = list["programs"].as_array().expect("a list").iter();
    programs.filter(|program| program["container"] == true).cloned().collect()
}

fn emitter() -> String {
    program("rtscope-emitter").expect("built").display().to_string()
}

/// Whether containers can be tried here.
fn skipped() -> bool {
    skip::without_root() || skip::without_tool("unshare")
}

// NEEDS: host
#[test]
fn root_a_program_in_a_container_is_recorded() {
    if skipped() {
        return;
    }
    let fixture = Fixture::new();
    let mut container = Container::start();
    // One that ran before.
    container.obey(&format!("{} wait 7000", emitter()));
    assert_eq!(container.line(), "ready");
    let list = listed();
    assert_eq!(list.len(), 1, "{list:?}");
    let status = fs::read_to_string(format!("/proc/{}/status", list[0]["host_pid"])).expect("it runs");
    let numbers = format!("{}\t{}", list[0]["host_pid"], list[0]["pid"]);
    assert!(status.contains("rtscope-emitter") && status.contains(&numbers), "{numbers}: {status}");
    let recorder = recorder(&fixture, &[]);
    container.obey("");
    let before = container.emitted();
    // One that starts later finds the session.
    assert!(container.shm("rtscope-0/session").exists());
    container.obey(&format!("{} count 3000 2", emitter()));
    let after = container.emitted();
    // It says so before it ends, and what a program holds that still ends is its own: the shell goes on when it is gone.
    container.obey("echo gone");
    assert_eq!(container.line(), "gone");
    let recorded = recorder.end();
    println!("recorded {} + lost {} = emitted {before} + {after}", recorded.events(), recorded.lost());
    assert_eq!(
        (before, after, recorded.events() + recorded.lost()),
        (7000, 6000, 13_000),
        "{}",
        recorded.account
    );
    assert_eq!(recorded.lost(), 0, "{}", recorded.account);
    assert!(!container.shm("rtscope-0/session").exists() && !container.shm("rtscope-session").exists());
    // What was taken to its end is gone.
    let left: Vec<_> = fs::read_dir(container.shm("rtscope-0")).expect("there").flatten().collect();
    assert!(
        left.iter().all(|file| file.file_name() == "collector" || file.file_name() == "look"),
        "{left:?}"
    );
    container.end();
}

// NEEDS: host
#[test]
fn root_a_container_that_starts_while_recording_is_found() {
    if skipped() {
        return;
    }
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let recorder = recorder(&fixture, &["--user-buffer", "4M"]);
    let mut container = Container::start();
    wait_until("it is found", || container.shm("rtscope-session").exists());
    // It runs for seconds, through several looks at who lives.
    container.obey(&format!("{} paced 30000", emitter.display()));
    let emitted = container.emitted();
    container.end();
    let recorded = recorder.end();
    assert_eq!((emitted, recorded.events(), recorded.lost()), (30_000, 30_000, 0), "{}", recorded.account);
}

// NEEDS: host
#[test]
fn root_what_a_killed_container_had_committed_is_recorded() {
    if skipped() {
        return;
    }
    let fixture = Fixture::new();
    let mut recorder = recorder(&fixture, &["--user-buffer", "64M"]);
    let mut container = Container::start();
    wait_until("it is found", || container.shm("rtscope-session").exists());
    // It fills its ring while nobody empties it: the recorder is stopped. Then all of the container is killed.
    container.obey(&format!("{} wait 100000", emitter()));
    assert_eq!(container.line(), "ready");
    wait_until("its ring is known", || listed().iter().any(|program| program["enabled"] != 0));
    recorder.signal(Signal::SIGSTOP);
    container.obey("");
    assert_eq!(container.emitted(), 100_000);
    drop(container);
    recorder.signal(Signal::SIGCONT);
    let recorded = recorder.end();
    assert_eq!((recorded.events(), recorded.lost()), (100_000, 0), "{}", recorded.account);
}

// NEEDS: host
#[test]
fn root_a_killed_recorder_records_nobody_in_a_container_any_more() {
    if skipped() {
        return;
    }
    let fixture = Fixture::new();
    let mut recorder = recorder(&fixture, &[]);
    let mut container = Container::start();
    wait_until("it is found", || container.shm("rtscope-session").exists());
    recorder.child().kill().expect("it runs");
    recorder.child().wait().expect("it ends");
    // Its session is still there, and nobody holds it.
    assert!(container.shm("rtscope-session").exists());
    container.obey(&format!("{} wait 100", emitter()));
    assert_eq!(container.line(), "ready");
    assert_eq!(listed()[0]["enabled"], 0);
    container.obey("");
    assert_eq!(container.emitted(), 100);
    container.end();
}

// NEEDS: host
#[test]
fn root_a_container_that_records_itself_first_is_told_at_the_end() {
    if skipped() {
        return;
    }
    let fixture = Fixture::new();
    let mut recorder = recorder(&fixture, &[]);
    // It begins where this recorder cannot look, as it is stopped.
    recorder.signal(Signal::SIGSTOP);
    let mut container = Container::start();
    let own = fixture.path("own");
    container.obey(&format!(
        "{} record -u 'test:*' -o {} -- sh -c 'echo begun; read -r line' || echo failed",
        program("rtscope").expect("built").display(),
        own.display()
    ));
    assert_eq!(container.line(), "begun");
    recorder.signal(Signal::SIGCONT);
    // The next look has seen it, too.
    let mut other = Container::start();
    wait_until("it is found", || other.shm("rtscope-session").exists());
    other.obey(&format!("{} count 100", emitter()));
    assert_eq!(other.emitted(), 100);
    other.end();
    container.obey("");
    let recorded = recorder.end();
    container.end();
    assert_eq!((recorded.events(), recorded.lost()), (100, 0), "{}", recorded.account);
    let remarks = recorded.account["remarks"].to_string();
    assert!(remarks.contains("programs in a container of user 0 (/proc/"), "{remarks}");
    assert!(!remarks.contains("programs of user 0 "), "{remarks}");
}

/// One of user 4711, if this kernel lets users make them.
fn container_of_a_user() -> Option<Container> {
    let user = ["setpriv", "--reuid=4711", "--regid=4711", "--clear-groups"];
    if skipped() || skip::without_tool(user[0]) {
        return None;
    }
    let allowed = Command::new(user[0]).args(&user[1..]).args(["unshare", "-U", "-r", "true"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        skip::say("this kernel lets no user make a user namespace");
        return None;
    }
    Some(Container::start_with(&user, &["-U", "-r"]))
}

/// One that root makes with a user namespace, as LXC or Docker's userns-remap: root there is 100 000 here.
fn container_with_users() -> Option<Container> {
    // Somebody holds the namespace until it has its numbers: not a child, of which the container has one.
    const SCRIPT: &str = "h=$( (unshare -U sleep 60 >/dev/null 2>&1 & echo $!) ); \
                          until [ \"$(readlink /proc/$h/ns/user)\" != \"$(readlink /proc/self/ns/user)\" ]; do :; done; \
                          echo 0 100000 65536 >/proc/$h/uid_map; echo 0 100000 65536 >/proc/$h/gid_map; \
                          exec nsenter -U -t $h sh -c \"kill $h\"'; exec \"$@\"' sh \"$@\"";
    if skipped() || skip::without_tool("nsenter") {
        return None;
    }
    Some(Container::start_with(&["sh", "-c", SCRIPT, "sh"], &[]))
}

// NEEDS: host
#[test]
fn root_the_first_program_of_an_ordinary_users_container_is_recorded_from_its_start() {
    // The recorder starts first, and the container; in each no program has been before.
    for (is_recorder_first, is_of_roots) in [(true, false), (false, false), (true, true)] {
        let uid = if is_of_roots { 100_000 } else { 4711 };
        let fixture = Fixture::new();
        let emitter = fixture.path("emitter");
        fs::copy(program("rtscope-emitter").expect("built"), &emitter).expect("it can be written");
        let mut before = is_recorder_first.then(|| recorder(&fixture, &[]));
        let container = if is_of_roots { container_with_users() } else { container_of_a_user() };
        let Some(mut container) = container else { return };
        let recorder = before.take().unwrap_or_else(|| recorder(&fixture, &[]));
        wait_until("it is found", || container.shm("rtscope-session").exists());
        let found = fs::metadata(container.shm("rtscope-session")).expect("it is there");
        assert_eq!((found.uid(), found.mode() & 0o7777), (uid, 0o644), "root there");
        container.obey(&format!("{} count 9000", emitter.display()));
        assert_eq!(container.emitted(), 9000);
        let recorded = recorder.end();
        assert_eq!((recorded.events(), recorded.lost()), (9000, 0), "{}", recorded.account);
        assert!(!container.shm("rtscope-session").exists(), "nothing of root's is left");
        container.end();
    }
}

// NEEDS: host
#[test]
fn root_a_container_of_an_ordinary_user_is_recorded_as_that_users() {
    let Some(mut container) = container_of_a_user() else { return };
    let fixture = Fixture::new();
    let emitter = fixture.path("emitter");
    fs::copy(program("rtscope-emitter").expect("built"), &emitter).expect("it can be written");
    let recorder = recorder(&fixture, &[]);
    container.obey(&format!("{} wait 1000", emitter.display()));
    assert_eq!(container.line(), "ready");
    wait_until("it is enabled", || listed().iter().any(|program| program["enabled"] != 0));
    assert_eq!(listed()[0]["uid"], 4711, "not 0, as it is called there");
    container.obey("");
    assert_eq!(container.emitted(), 1000);
    // The second finds the session that was left in the user's name.
    container.obey(&format!("{} count 2000", emitter.display()));
    assert_eq!(container.emitted(), 2000);
    let recorded = recorder.end();
    assert_eq!((recorded.events(), recorded.lost()), (3000, 0), "{}", recorded.account);
    container.end();
}

// NEEDS: host
#[test]
fn root_what_a_user_mounts_in_a_container_is_not_touched() {
    let Some(mut container) = container_of_a_user() else { return };
    let fixture = Fixture::new();
    // Files of root, which a user may see and mount, but not write.
    let mounted = [
        ("rtscope-0", "collector"),
        ("rtscope-3", "session"),
        ("rtscope-3", "p1-1-0"),
        ("rtscope-3", "r1-1-1-0"),
        ("rtscope-3", "x1-1-28"),
        (".", "rtscope-session"),
    ];
    for (_, name) in mounted {
        fs::write(fixture.path(name), "precious").expect("a file of the test");
    }
    container.obey("cd /dev/shm && mkdir -m 700 rtscope-0 rtscope-1 rtscope-3");
    container.obey(&format!("ln -s {} rtscope-2", fixture.dir.path().display()));
    for (directory, name) in mounted {
        let (from, to) = (fixture.path(name), format!("{directory}/{name}"));
        container.obey(&format!("touch {to} && mount --bind {} {to} && echo done", from.display()));
        assert_eq!(container.line(), "done");
    }
    // Nor a whole directory, with what another user has in it.
    container.obey(&format!("mount --bind {} rtscope-1 && echo done", fixture.dir.path().display()));
    assert_eq!(container.line(), "done");
    // Nor are there directories for the asking: one of each owner is served.
    container.obey("for i in 4 5 6 7 8; do mkdir -m 700 rtscope-$i; done; echo done");
    assert_eq!(container.line(), "done");
    let emitter = program("rtscope-emitter").expect("built");
    let recorded = fixture.record(&[], &[emitter.as_os_str(), "count".as_ref(), "1000".as_ref()]);
    assert_eq!((recorded.events(), recorded.lost()), (1000, 0), "{}", recorded.account);
    // All of that was found, and refused.
    let notes = String::from_utf8_lossy(&recorded.output.stderr).into_owned();
    for refused in ["rtscope-0/collector", "rtscope-1 is", "rtscope-2 is"] {
        assert!(notes.contains(refused), "{refused}: {notes}");
    }
    assert!(recorded.remarks().contains("p1-1-0: Invalid cross-device link"), "{notes} {}", recorded.account);
    // What he has in the place of root's session makes way for it, with what he has mounted there, as everywhere.
    container.obey("echo $(ls | wc -l) $(ls rtscope-[3-8] | grep -c collector)");
    assert_eq!(container.line(), "9 1");
    for (_, name) in mounted {
        let file = fs::metadata(fixture.path(name)).expect("it is still there");
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&file), 0, "{name}");
        assert_eq!(fs::read(fixture.path(name)).expect("readable"), b"precious", "{name}");
    }
    container.end();
}

/// Emits `2 * count` events as each of these users, all at the same time.
fn emit_as(container: &mut Container, fixture: &Fixture, users: std::ops::Range<u32>, count: u32) {
    let emitter = fixture.path("emitter");
    fs::copy(program("rtscope-emitter").expect("built"), &emitter).expect("it can be written");
    container.obey(&format!(
        "for u in $(seq {} {}); do setpriv --reuid $u --regid $u --clear-groups {} count {count} 2 & done; wait; echo done",
        users.start,
        users.end - 1,
        emitter.display()
    ));
    for _ in users {
        assert_eq!(container.emitted(), u64::from(2 * count));
    }
    assert_eq!(container.line(), "done");
}

// NEEDS: host
#[test]
fn root_all_users_of_a_container_of_roots_are_recorded() {
    if skipped() || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let recorder = recorder(&fixture, &[]);
    let mut container = Container::start();
    wait_until("it is found", || container.shm("rtscope-session").exists());
    emit_as(&mut container, &fixture, 4800..4840, 500);
    container.end();
    let recorded = recorder.end();
    assert_eq!((recorded.events(), recorded.lost()), (40_000, 0), "{}", recorded.account);
    assert_eq!(recorded.account["refused"], serde_json::json!([]));
}

// NEEDS: host
#[test]
fn root_names_of_one_user_in_a_container_of_roots_hide_no_other() {
    if skipped() || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let mut container = Container::start();
    // Before the other and after him: some file systems list what is new first.
    let names = |from: u32| {
        format!(
            "setpriv --reuid 4711 --regid 4711 --clear-groups sh -c 'cd /dev/shm; seq -f n%.0f {from} {} | xargs touch'; echo done",
            from + 33_000
        )
    };
    container.obey(&names(100_000));
    assert_eq!(container.line(), "done");
    emit_as(&mut container, &fixture, 4712..4713, 1);
    container.obey(&names(200_000));
    assert_eq!(container.line(), "done");
    let recorder = recorder(&fixture, &[]);
    wait_until("it is found", || container.shm("rtscope-session").exists());
    emit_as(&mut container, &fixture, 4712..4713, 5000);
    container.end();
    let recorded = recorder.end();
    assert_eq!((recorded.events(), recorded.lost()), (10_000, 0), "{}", recorded.account);
    assert_eq!(recorded.account["refused"], serde_json::json!([]));
}

/// A directory in the machine's `/dev/shm` with this owner and mode; removed in the end.
fn directory_of(user: u32, mode: u32) -> tempfile::TempDir {
    let made = tempfile::Builder::new().prefix("rtscope-test-").tempdir_in("/dev/shm").expect("root may");
    std::os::unix::fs::chown(made.path(), Some(user), Some(user)).expect("root may");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::set_permissions(made.path(), mode).expect("root may");
    made
}

/// A user can mount any directory over his `/dev/shm`: that of another user, who would lose events, or one in which all may make files.
// NEEDS: host
#[test]
fn root_a_directory_of_somebody_elses_is_no_containers() {
    if skipped() || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let user = ["setpriv", "--reuid=4711", "--regid=4711", "--clear-groups"];
    let allowed = Command::new(user[0]).args(&user[1..]).args(["unshare", "-U", "-r", "true"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        skip!("this kernel lets no user make a user namespace");
    }
    let (open, theirs, his) =
        (directory_of(0, 0o1777), directory_of(4712, 0o700), directory_of(4711, 0o1777));
    let containers = [&open, &theirs, &his].map(|directory| {
        let mut container = Container::start_with(&user, &["-U", "-r"]);
        container.obey(&format!(
            "umount /dev/shm && mount --bind {} /dev/shm && echo done",
            directory.path().display()
        ));
        assert_eq!(container.line(), "done");
        container
    });
    let recorder = recorder(&fixture, &[]);
    // His own is as good as a file system of his.
    wait_until("it is found", || his.path().join("rtscope-session").exists());
    // Of the others the second visit tells, after another second.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert!(!open.path().join("rtscope-session").exists(), "root makes no file there");
    let recorded = recorder.end();
    let refused = recorded.account["refused"].as_array().expect("a list");
    assert_eq!(refused.len(), 1, "{refused:?}");
    let wanted = (&"shm_of_others".into(), &4711.into(), &2.into());
    assert_eq!((&refused[0]["cause"], &refused[0]["user"], &refused[0]["count"]), wanted, "{refused:?}");
    containers.into_iter().for_each(Container::end);
}

/// A descriptor in it would keep all of its memory.
// NEEDS: host
#[test]
fn root_of_containers_that_have_ended_the_recorder_holds_nothing() {
    if skipped() {
        return;
    }
    let fixture = Fixture::new();
    let mut recorder = recorder(&fixture, &[]);
    let id = recorder.child().id();
    // Files of the trace are made with the first event of a thread.
    let held = || {
        let all = fs::read_dir(format!("/proc/{id}/fd")).expect("it runs").flatten();
        let links = all.filter_map(|fd| fs::read_link(fd.path()).ok());
        links.filter(|link| !link.starts_with(fixture.path(""))).count()
    };
    let mut with_one = None;
    for _ in 0..8 {
        let mut container = Container::start();
        wait_until("it is found", || container.shm("rtscope-session").exists());
        with_one.get_or_insert_with(held);
        container.obey(&format!("{} count 200 1", emitter()));
        assert_eq!(container.emitted(), 200);
        container.end();
    }
    // If it kept as little as one of each, it would have more.
    let with_one = with_one.expect("there was one");
    wait_until("it has less than with one of them", || held() < with_one);
    let recorded = recorder.end();
    assert_eq!((recorded.events(), recorded.lost()), (1600, 0), "{}", recorded.account);
}
