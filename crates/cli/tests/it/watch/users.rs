// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of two users in one watch of root: what one does hides nothing of the other (crates/testkit/c/users.c, describes.c).

use crate::command::root;
use rtscope_event::{FieldValue, LateResponse};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::{KilledWithTest, program, wait_until};
use rtscope_testkit::skip;
use rtscope_testkit::watch::Rtscope;
use std::collections::BTreeSet;
use std::fs::{DirEntry, Permissions, read_dir, set_permissions, symlink_metadata};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const COUNT: u64 = 12;
const LIAR: u32 = 12345;
const HONEST: u32 = 12346;

/// The program, in a directory that both users can read.
struct Users {
    directory: TempDir,
    program: PathBuf,
}

impl Users {
    fn new() -> Users {
        let directory = tempfile::tempdir().expect("a temporary directory");
        set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("it is this test's");
        let program = directory.path().join("users");
        build("users.c", &program, &[]);
        Users { directory, program }
    }

    fn run_as(&self, user: u32, what: &str, count: u64) -> Command {
        let mut command = as_user(user);
        command.arg(&self.program).arg(what).arg(count.to_string());
        command
    }

    /// A program that describes just below 4 MiB; one of another name describes other events.
    fn describe_as(&self, user: u32, name: &str) -> Command {
        let program = self.directory.path().join(name);
        build("describes.c", &program, &[&format!("-DEVENT={name}")]);
        let mut command = as_user(user);
        command.arg(program).env("RTSCOPE_BUFFER", "64K").stdin(Stdio::piped());
        command
    }
}

fn build(source: &str, program: &Path, options: &[&str]) {
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-std=c11", "-Wall", "-Werror", "-pthread", "-I"]).arg(root().join("include"));
    cc.args(options).arg(root().join("crates/testkit/c").join(source)).arg("-o").arg(program);
    assert!(cc.status().expect("it was there").success());
}

/// A command that runs what follows as this user.
fn as_user(user: u32) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()]);
    command
}

/// A watch of work that saves 20 snapshots a second at most.
fn watch_saving(saved: &Path, options: &[&str]) -> Rtscope {
    let mut command = Command::new(program("rtscope").expect("it is built"));
    command.args([
        "watch",
        "work",
        "--json",
        "--threshold",
        "10ms",
        "--duration",
        "120s",
        "--buffer",
        "256K",
    ]);
    command.args(["--rate", "20/s", "--post", "1ms", "--pre", "200ms", "--snapshot-dir"]).arg(saved);
    command.args(options);
    let mut watch = Rtscope::start(command).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    watch
}

fn number(late: &LateResponse) -> u64 {
    let events = late.events.as_ref().expect("two events");
    let Some(FieldValue::Unsigned(number)) = events.from.fields.get("cookie") else { panic!("{late:?}") };
    *number
}

// NEEDS: host
#[test]
fn root_what_programs_of_one_user_do_hides_no_late_work_of_another() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_root() || skip::without_tool("setpriv") || skip::without_tool("cc") {
        return;
    }
    let users = Users::new();
    let mut command = Command::new(program("rtscope").expect("it is built"));
    command.args(["watch", "work", "--json", "--threshold", "10ms", "--duration", "120s"]);
    let mut watch = Rtscope::start(command).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    let mut liar = users.run_as(LIAR, "hides", COUNT).stdin(Stdio::piped()).spawn().expect("it starts");
    let is_liars = |line: &serde_json::Value| line["type"] == "late" && line["from"]["tid"] != 0;
    watch.wait_for("late work of the first user", is_liars).expect("it has some");
    let honest = users.run_as(HONEST, "late", COUNT).output().expect("it starts");
    assert!(honest.status.success(), "{honest:?}");
    let said = watch.stop().expect("it stops");
    drop(liar.stdin.take());
    assert!(liar.wait().expect("it was started").success());

    let late = said.late().expect("of its own type");
    let found: Vec<u64> = late.iter().map(number).filter(|number| *number <= COUNT).collect();
    assert_eq!((found.len() as u64, found.iter().collect::<BTreeSet<_>>().len() as u64), (COUNT, COUNT));
    let between = said.report().expect("it prints one").between.expect("of two events");
    let [liars] = between.users.as_slice() else { panic!("{:?}", between.users) };
    assert!(liars.user == LIAR && liars.missed_looks > 0 && liars.lost > 0, "{liars:?}");
}

/// What a directory takes, with all in it.
fn bytes_on_disk(path: &Path) -> u64 {
    let Ok(status) = symlink_metadata(path) else { return 0 };
    let inside = read_dir(path).into_iter().flatten().flatten();
    status.len() + inside.map(|entry| bytes_on_disk(&entry.path())).sum::<u64>()
}

// NEEDS: host
#[test]
fn root_snapshots_that_one_users_programs_cause_leave_others_their_room() {
    const SHARED: u64 = 48 << 20;
    const PIECES: u64 = 2000;
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_root() || skip::without_tool("setpriv") || skip::without_tool("cc") {
        return;
    }
    let users = Users::new();
    let saved = users.directory.path().join("late");
    let mut watch = watch_saving(&saved, &["--snapshots-size", "48M"]);
    let mut fills = users.run_as(LIAR, "fills", 0);
    fills.env("RTSCOPE_BUFFER", "8M").stdin(Stdio::piped());
    let _fills = KilledWithTest::start(&mut fills).expect("it starts");
    watch.wait_for_note(&format!("because of programs of user {LIAR}, which is his share")).expect("it ends");
    let of_liar = bytes_on_disk(&saved);
    // The last one may exceed it by what it has of the kernel.
    assert!(of_liar < SHARED / 2 + (4 << 20), "{of_liar}");

    let mut honest = users.run_as(HONEST, "late", PIECES);
    let _honest = KilledWithTest::start(honest.stdout(Stdio::null())).expect("it starts");
    let is_his = |line: &serde_json::Value| {
        line["type"] == "late" && line["from"]["fields"]["cookie"].as_u64().is_some_and(|it| it <= PIECES)
    };
    let is_saved = |line: &serde_json::Value| is_his(line) && !line["snapshot"].is_null();
    for _ in 0..4 {
        watch.wait_for("late work of the other user with a snapshot", is_saved).expect("it has one");
    }
    let said = watch.stop().expect("it stops");
    assert_eq!(said.report().expect("it prints one").snapshots_failed, 0);
    let late = said.late().expect("of its own type");
    let (his, all): (Vec<&LateResponse>, _) = late.iter().partition(|late| number(late) <= PIECES);
    let after: Vec<&LateResponse> =
        all.into_iter().filter(|late| late.end_ns > his[0].end_ns && late.snapshot.is_some()).collect();
    assert!(after.is_empty(), "{after:?}");
    // In those of the other, there is nothing more of the first one's.
    assert!(bytes_on_disk(&saved) < of_liar + (4 << 20), "{} {of_liar}", bytes_on_disk(&saved));
}

// NEEDS: host
#[test]
fn root_what_one_user_describes_takes_nobody_elses_room_in_snapshots() {
    const PIECES: u64 = 16;
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_root() || skip::without_tool("setpriv") || skip::without_tool("cc") {
        return;
    }
    let users = Users::new();
    let saved = users.directory.path().join("late");
    let mut watch = watch_saving(&saved, &["--snapshots-size", "60M", "-u", "describes:*"]);
    let describe = |name| KilledWithTest::start(&mut users.describe_as(LIAR, name)).expect("it starts");
    let _describe = ["first", "second"].map(describe);
    let metadata =
        |entry: &DirEntry| symlink_metadata(entry.path().join("ust/metadata")).map_or(0, |it| it.len());
    let with_his = || {
        let snapshots = read_dir(&saved).into_iter().flatten().flatten();
        snapshots.filter(|entry| metadata(entry) > 1 << 20).count() as u64
    };
    // A piece at a time: each is to have a snapshot of its own.
    let is_his = |line: &serde_json::Value| line["type"] == "late" && line["from"]["fields"]["cookie"] == 1;
    let (mut pieces, mut after) = (0, 0);
    while after < PIECES {
        let mut honest = users.run_as(HONEST, "late", 1);
        honest.env("RTSCOPE_BUFFER", "1M");
        assert!(honest.stdout(Stdio::null()).status().expect("it starts").success());
        watch.wait_for("late work of the honest user", is_his).expect("it is late");
        pieces += 1;
        // The programs that describe have to be found first.
        after += u64::from(with_his() > 0);
        assert!(pieces < 200, "no snapshot has what they describe");
        // What is being written has its place in memory meanwhile.
        wait_until("its snapshot is saved", || {
            let names = read_dir(&saved).into_iter().flatten().flatten().map(|entry| entry.file_name());
            names.filter(|name| !name.as_encoded_bytes().starts_with(b".")).count() as u64 == pieces
        });
    }
    let said = watch.stop().expect("it stops");
    assert_eq!(said.report().expect("it prints one").snapshots_failed, 0);
    let late = said.late().expect("of its own type");
    let with_snapshot = late.iter().filter(|late| late.snapshot.is_some()).count() as u64;
    assert_eq!((late.len() as u64, with_snapshot), (pieces, pieces), "{:?}", said.notes);
    let is_told = |user: u32| said.noted(&format!("because of programs of user {user}, which is his share"));
    assert!(!is_told(HONEST));
    // What he describes is in those snapshots alone that were saved before his share was used up.
    let with_his = with_his();
    assert!(with_his > 0 && with_his < PIECES / 2, "{with_his} of {pieces}");
}
