// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Root's commands among hostile users, and programs whose clocks are not this machine's: `rtscope` itself, where crates/programs tests its
//! collector.

use super::fixture::{Fixture, Recorded};
use crate::command::rtscope;
use nix::fcntl::{FcntlArg, fcntl};
use rtscope_testkit::skip;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

/// A user without a program of his own.
const HOSTILE: u32 = 4711;

/// That user's directory in the machine's `/dev/shm`, removed in the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        let path = PathBuf::from(format!("/dev/shm/rtscope-{HOSTILE}"));
        // Of an earlier test.
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o700).create(&path).expect("it was removed");
        chown(&path, Some(HOSTILE), Some(HOSTILE)).expect("root may");
        Directory(path)
    }

    /// A file of the hostile user.
    fn file(&self, name: &str, text: &str) -> File {
        let path = self.0.join(name);
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create_new(true).mode(0o600).open(&path).expect("it is new");
        file.write_all(text.as_bytes()).expect("there is space");
        chown(&path, Some(HOSTILE), Some(HOSTILE)).expect("root may");
        file
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn snapshot_of_hostile() -> Output {
    let mut command = rtscope();
    command.args(["snapshot", "--user", &HOSTILE.to_string(), "--timeout", "1s"]);
    command.output().expect("it can be run")
}

/// Ends it by SIGTERM. A signal with a lower number that came before would have ended it first: that one is returned.
fn ended_by(mut child: Child) -> Option<i32> {
    super::fixture::send(&child, nix::sys::signal::Signal::SIGTERM);
    child.wait().expect("it ends").signal()
}

// NEEDS: host
#[test]
fn root_asks_another_users_flight_recorder_and_signals_no_process() {
    if skip::without_root() {
        return;
    }
    let _fixture = Fixture::new();
    let directory = Directory::new();
    // As this user's collector would: a locked file that names a process, and where it saves.
    let victim = Command::new("sleep").arg("60").spawn().expect("it is there");
    let collector = directory.file("collector", &format!("{}\n/tmp\n", victim.id()));
    let lock = nix::libc::flock {
        l_type: nix::libc::F_WRLCK as i16,
        l_whence: nix::libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&collector, FcntlArg::F_OFD_SETLK(&lock)).expect("nobody else has it");
    let asked = snapshot_of_hostile();
    assert_eq!(asked.status.code(), Some(2), "{asked:?}");
    // A socket of somebody else, one that is a link, and one that nobody answers.
    let socket = directory.0.join("snapshot");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("it is new");
    let asked = snapshot_of_hostile();
    assert_eq!(asked.status.code(), Some(2), "root listens there, not this user: {asked:?}");
    drop(listener);
    fs::remove_file(&socket).expect("it is there");
    std::os::unix::fs::symlink("/run/systemd/notify", &socket).expect("it is new");
    assert_eq!(snapshot_of_hostile().status.code(), Some(2));
    assert_eq!(ended_by(victim), Some(nix::libc::SIGTERM), "nothing else was sent to it");
}

// NEEDS: host
#[test]
fn root_what_a_user_made_of_a_recording_removes_nothing_elsewhere() {
    if skip::without_root() {
        return;
    }
    let fixture = Fixture::new();
    let mut recorder = super::fixture::begun(&mut fixture.recorder(&[]));
    recorder.kill().expect("it runs");
    recorder.wait().expect("it ends");
    let spool = fixture.trace().join("ust.partial");
    let precious = tempfile::tempdir().expect("a temporary directory");
    let files = ["user_3", "metadata", "letter"].map(|name| precious.path().join(name));
    files.iter().for_each(|file| fs::write(file, "precious").expect("ours"));
    // Where the streams are, as its owner likes.
    let _ = fs::remove_dir_all(spool.join("trace"));
    std::os::unix::fs::symlink(precious.path(), spool.join("trace")).expect("it was removed");
    for owner in [HOSTILE, 0] {
        chown(&spool, Some(owner), Some(owner)).expect("root may");
        let recovered = rtscope().args(["record", "--recover"]).arg(fixture.trace()).output();
        let recovered = recovered.expect("it can be run");
        let text = String::from_utf8_lossy(&recovered.stderr).into_owned();
        let why = if owner == 0 { "not a directory" } else { "belongs to user 4711" };
        assert!(!recovered.status.success() && text.contains(why), "{recovered:?}");
        for file in &files {
            assert_eq!(fs::read_to_string(file).expect("it is there"), "precious", "{}", file.display());
        }
    }
    fs::remove_file(spool.join("trace")).expect("the link");
    let recovered = rtscope().args(["record", "--recover"]).arg(fixture.trace()).output();
    assert!(recovered.expect("it can be run").status.success(), "it is as it was");
}

/// Records a program beside directories of 200 users, in a mount namespace of its own; before that, `prepare` is run.
fn beside_many_users(fixture: &Fixture, emitter: &Path, prepare: &str) -> Recorded {
    let recorder = format!("{:?}", fixture.recorder(&[]));
    let script = format!(
        "mount -t tmpfs -o mode=1777 none /dev/shm && {prepare} && \
         for i in $(seq 300000 300199); do mkdir -m 700 /dev/shm/rtscope-$i && chown $i:$i /dev/shm/rtscope-$i; done && \
         {recorder} -- {} count 2000",
        emitter.display()
    );
    let output = Command::new("unshare").args(["-m", "bash", "-c", &script]).output().expect("it is there");
    assert!(output.status.success(), "{output:?}");
    let recorded = Recorded::of(output);
    fs::remove_dir_all(fixture.trace()).expect("it was made");
    recorded
}

// NEEDS: host
#[test]
fn root_subordinate_users_have_the_account_of_one_user() {
    if skip::without_root() || skip::without_tool("unshare") {
        return;
    }
    if !Path::new("/etc/subuid").exists() {
        skip!("this machine has no subordinate users (/etc/subuid)");
    }
    let fixture = Fixture::new();
    let emitter = rtscope_testkit::process::program("rtscope-emitter").expect("built");
    let ranges = fixture.dir.path().join("subuid");
    fs::write(&ranges, format!("{HOSTILE}:300000:65536\n")).expect("a file of the test");
    let prepare = format!("mount --bind {} /etc/subuid", ranges.display());
    let recorded = beside_many_users(&fixture, &emitter, &prepare);
    assert_eq!((recorded.events(), recorded.lost()), (2000, 0), "{}", recorded.account);
    let refused = recorded.account["refused"].as_array().expect("a list");
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!((&refused[0]["user"], &refused[0]["cause"]), (&HOSTILE.into(), &"too_many_containers".into()));
}

// NEEDS: host
#[test]
fn root_a_crowd_of_users_leaves_files_for_those_who_are_recorded() {
    if skip::without_root() || skip::without_tool("unshare") {
        return;
    }
    let fixture = Fixture::new();
    let emitter = rtscope_testkit::process::program("rtscope-emitter").expect("built");
    // Less than their directories would need.
    let recorded = beside_many_users(&fixture, &emitter, "ulimit -n 256");
    assert_eq!((recorded.events(), recorded.lost()), (2000, 0), "{}", recorded.account);
    let refused = recorded.account["refused"].as_array().expect("a list");
    assert!(
        refused.len() > 50 && refused.iter().all(|refusal| refusal["cause"] == "shortage"),
        "{refused:?}"
    );
}

/// The times of a trace's events, in CLOCK_MONOTONIC's nanoseconds.
fn times(trace: &Path) -> Option<Vec<u64>> {
    let output = Command::new("babeltrace2").arg("--clock-cycles").arg(trace).output().ok()?;
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let time = |line: &str| line.trim_start_matches('[').split(']').next().and_then(|time| time.parse().ok());
    Some(text.lines().map(|line| time(line).unwrap_or_else(|| panic!("a time: {line}"))).collect())
}

// NEEDS: host
#[test]
fn root_programs_in_time_namespaces_are_recorded_at_their_times() {
    if skip::without_root() || skip::without_tool("unshare") {
        return;
    }
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let make = ["--time", "--fork", "--boottime", "1", "true"];
    if !Command::new("unshare").args(make).status().is_ok_and(|status| status.success()) {
        skip!("this kernel or this unshare(1) makes no time namespaces");
    }
    for (ahead, clock, namespaces) in [
        ("600", "tsc", &["--fork"][..]),
        ("600", "monotonic", &["--fork"]),
        ("-600", "tsc", &["--fork"]),
        ("-600", "monotonic", &["--fork", "--pid", "--mount-proc", "--kill-child"]),
    ] {
        let clock = format!("RTSCOPE_CLOCK={clock}");
        let offsets = ["--time", "--boottime", ahead, "--monotonic", ahead];
        let emitter = emitter.to_str().expect("plain");
        // Some seconds: processes are looked at several times.
        let words =
            [&["unshare"], &offsets[..], namespaces, &["env", &clock, emitter, "paced", "20000"]].concat();
        let recorded: Recorded = fixture.record(&["--user-buffer", "1M"], &words);
        recorded.assert_complete();
        assert_eq!(recorded.lost(), 0, "{ahead} s, {clock}: {}", recorded.account);
        let limits = ["from_ns", "until_ns"].map(|name| recorded.account[name].as_u64().expect("a number"));
        if let Some(times) = times(&fixture.trace()) {
            let (first, last) = (times[0], times[times.len() - 1]);
            assert!(
                limits[0] <= first && last <= limits[1],
                "{ahead} s, {clock}: {first}..{last} in {limits:?}"
            );
        }
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

/// A container in which this place is a FUSE file system whose server never answers.
fn with_silent_server(place: &str) -> Option<Child> {
    let server = OpenOptions::new().read(true).write(true).open("/dev/fuse").ok()?;
    // For the child, and those that it starts: as long as it is open the server lives.
    let server = nix::unistd::dup(&server).ok()?;
    let number = std::os::fd::AsRawFd::as_raw_fd(&server);
    let script = format!(
        "mount -i -t fuse -o fd={number},rootmode=40000,user_id=0,group_id=0 none {place} && echo up && \
         exec unshare -p -f --kill-child sleep 60"
    );
    let mut child = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .ok()?;
    let mut line = String::new();
    let output = child.stdout.take()?;
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).ok()?;
    (line == "up\n").then_some(child)
}

// NEEDS: host
#[test]
fn root_a_container_whose_files_wait_for_a_server_holds_up_nobody() {
    if skip::without_root() || skip::without_tool("unshare") {
        return;
    }
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    for place in ["/dev/shm", "/dev"] {
        let Some(mut container) = with_silent_server(place) else {
            skip!("no FUSE file system can be mounted here");
        };
        let children = format!("/proc/{0}/task/{0}/children", container.id());
        rtscope_testkit::process::wait_until("it has a PID namespace of its own", || {
            fs::read_to_string(&children).is_ok_and(|children| !children.trim().is_empty())
        });
        let begun = Instant::now();
        let words = [emitter.as_os_str(), "paced".as_ref(), "20000".as_ref()];
        let recorded = fixture.record(&["--user-buffer", "1M"], &words);
        let took = begun.elapsed();
        container.kill().expect("it runs");
        container.wait().expect("it ends");
        recorded.assert_complete();
        assert_eq!(recorded.lost(), 0, "{}", recorded.account);
        let refused = recorded.account["refused"].to_string();
        assert!(refused.contains("unreachable") && refused.contains("waits for a server"), "{refused}");
        // 20 000 events take some 2 s; the walk would take for ever.
        assert!(took < Duration::from_secs(20), "{took:?}");
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

/// That user holds his directory from now on, for a minute at most. `None`: no FUSE file system can be mounted here.
fn held(fixture: &Fixture, directory: &Directory, holder: &Path) -> Option<Child> {
    let mut command = as_user(HOSTILE);
    command.args(["unshare", "--user", "--map-root-user", "--mount"]);
    holding(command.args([holder, &fuse(fixture)?, &directory.0]).arg("60"))
}

/// The same of `/dev/shm` of a container of his, or of `/dev`, in which that is looked for.
pub fn held_container(fixture: &Fixture, holder: &Path, place: &str) -> Option<Child> {
    let mut command = as_user(HOSTILE);
    command.args(["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]);
    // Its numbers, by which the holder sees that somebody waits.
    command.arg("--mount-proc");
    let script = "mount -t tmpfs -o mode=1777 none $2 && exec \"$0\" \"$1\" $2 60 made";
    command.args(["sh", "-c", script]);
    holding(command.args([holder, &fuse(fixture)?]).arg(place))
}

/// A device for everybody, as udev has it.
fn fuse(fixture: &Fixture) -> Option<PathBuf> {
    let device = fixture.path("fuse");
    if !device.exists() {
        let (kind, mode) = (nix::sys::stat::SFlag::S_IFCHR, nix::sys::stat::Mode::from_bits_truncate(0o666));
        nix::sys::stat::mknod(&device, kind, mode, nix::sys::stat::makedev(10, 229)).ok()?;
        fs::set_permissions(&device, std::os::unix::fs::PermissionsExt::from_mode(0o666)).ok()?;
    }
    Some(device)
}

/// Starts what says that it holds something.
fn holding(command: &mut Command) -> Option<Child> {
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().ok()?;
    let mut line = String::new();
    let output = child.stdout.take()?;
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).ok()?;
    (line == "held\n").then_some(child)
}

pub fn as_user(user: u32) -> Command {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
    command
}

// NEEDS: host
#[test]
fn root_a_user_who_holds_his_directory_holds_up_neither_others_nor_the_end() {
    if skip::without_root() || skip::without_tool("unshare") || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let Some(holder) = fixture.program("holds.c", &["-std=gnu11"], "holds") else { return };
    for is_before in [true, false] {
        let directory = Directory::new();
        let early = if is_before { held(&fixture, &directory, &holder) } else { None };
        if is_before && early.is_none() {
            skip!("no FUSE file system can be mounted here");
        }
        let recorder = super::fixture::begun(&mut fixture.recorder(&["--user-buffer", "1M"]));
        let session = directory.0.join("session");
        let mut holder = early.unwrap_or_else(|| {
            rtscope_testkit::process::wait_until("he is recorded", || session.exists());
            held(&fixture, &directory, &holder).expect("as before")
        });
        // Behind whoever makes a name there, those who read the directory wait, too.
        let mut maker =
            as_user(HOSTILE).arg("touch").arg(directory.0.join("x")).spawn().expect("it was there");
        std::thread::sleep(Duration::from_secs(1));
        let emitted =
            as_user(HOSTILE + 1).arg(&emitter).args(["paced", "20000"]).output().expect("it was there");
        let begun = Instant::now();
        let output = super::fixture::interrupt(recorder);
        let took = begun.elapsed();
        let is_left = is_before || session.exists();
        // The server is the child: with it the kernel gives up the page.
        holder.kill().expect("it runs");
        holder.wait().expect("it ends");
        maker.wait().expect("it ends");
        let recorded = Recorded::of(output);
        println!("{took:?} after SIGINT: {}", recorded.account["refused"]);
        assert_eq!(recorded.events(), Recorded::printed_in(&emitted, "emitted "), "{}", recorded.account);
        assert_eq!(recorded.lost(), 0, "{}", recorded.account);
        assert!(took < Duration::from_secs(5), "{took:?}");
        let refused = recorded.account["refused"].to_string();
        assert!(refused.contains("\"held\"") && refused.contains(&HOSTILE.to_string()), "{refused}");
        assert!(is_left, "nobody could remove it before");
        rtscope_testkit::process::wait_until("his session is removed when he lets go", || !session.exists());
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

// NEEDS: host
#[test]
fn root_a_user_who_holds_the_shm_of_his_container_or_the_way_to_it_holds_up_neither_others_nor_the_end() {
    if skip::without_root() || skip::without_tool("unshare") || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let Some(holder) = fixture.program("holds.c", &["-std=gnu11"], "holds") else { return };
    let (shm, above) =
        (("/dev/shm", "\"held\""), ("/dev", "a user holds the directory in which its shm is looked for"));
    for ((place, told), is_before) in [(shm, true), (shm, false), (above, true), (above, false)] {
        let hold = || held_container(&fixture, &holder, place);
        let early = if is_before { hold() } else { None };
        if is_before && early.is_none() {
            skip!("no FUSE file system can be mounted here");
        }
        let recorder = super::fixture::begun(&mut fixture.recorder(&["--user-buffer", "1M"]));
        let mut holder = early.unwrap_or_else(|| hold().expect("as before"));
        // It is found within that.
        std::thread::sleep(Duration::from_secs(3));
        let emitted =
            as_user(HOSTILE + 1).arg(&emitter).args(["paced", "20000"]).output().expect("it was there");
        super::fixture::send(&recorder, nix::sys::signal::Signal::SIGINT);
        // Until he lets go, which would let the recorder end as well.
        let begun = Instant::now();
        let has_ended = |recorder: &Child| {
            fs::read_to_string(format!("/proc/{}/stat", recorder.id()))
                .is_ok_and(|stat| stat.contains(") Z "))
        };
        while !has_ended(&recorder) && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let took = begun.elapsed();
        holder.kill().expect("it runs");
        holder.wait().expect("it ends");
        let recorded = Recorded::of(recorder.wait_with_output().expect("it ends"));
        println!("{took:?} after SIGINT: {}", recorded.account["refused"]);
        assert_eq!(recorded.events(), Recorded::printed_in(&emitted, "emitted "), "{}", recorded.account);
        assert_eq!(recorded.lost(), 0, "{}", recorded.account);
        assert!(took < Duration::from_secs(5), "{took:?}");
        let refused = recorded.account["refused"].to_string();
        assert!(refused.contains(told) && refused.contains(&HOSTILE.to_string()), "{refused}");
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}

#[test]
fn what_is_refused_is_in_the_summary_with_its_user_and_cause() {
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let directory = format!("/dev/shm/rtscope-{}", nix::unistd::geteuid());
    let script = format!(
        "cd {directory} && : > r1-7-1-0 && ln r1-7-1-0 r1-7-1-1 && mkfifo p1-9-0 && truncate -s 1052672 r1-8-1-0; cd -; \
         {} paced 20000; cd {directory} && rm -f p1-* r1-*",
        emitter.display()
    );
    let recorded = fixture.record(&[], &["sh", "-c", &script]);
    recorded.assert_complete();
    let refused = recorded.account["refused"].as_array().expect("a list").clone();
    let invalid = refused.iter().find(|refusal| refusal["cause"] == "invalid").expect("a FIFO is not valid");
    assert_eq!(invalid["user"], nix::unistd::geteuid().as_raw(), "{refused:?}");
    assert_eq!(invalid["example"], "p1-9-0", "{refused:?}");
    let notes = String::from_utf8_lossy(&recorded.output.stderr).into_owned();
    assert!(notes.contains("its files are not valid (refused: 1; first: p1-9-0)"), "{notes}");
}
