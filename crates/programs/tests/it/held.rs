// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Root's collector beside users who hold the locks of their directories: here the process that works for it in a directory (`hand`) is stopped instead.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_abi::program as abi;
use rtscope_programs::collector::{DiscardingSink, Programs};
use rtscope_programs::session::Settings;
use rtscope_testkit::process::wait_until;
use rtscope_testkit::program_files::put64;
use rtscope_testkit::skip;
use std::fs::{self, DirBuilder};
use std::mem::offset_of;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The user who holds his directory.
const HOLDER: u32 = 4712;

/// A directory with those of users.
fn above(users: &[u32]) -> tempfile::TempDir {
    let above = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    fs::set_permissions(above.path(), fs::Permissions::from_mode(0o1777)).expect("it is ours");
    for user in users {
        let path = directory(above.path(), *user);
        DirBuilder::new().mode(0o700).create(&path).expect("a directory of the test");
        chown(&path, Some(*user), Some(*user)).expect("root may");
    }
    above
}

fn directory(above: &Path, user: u32) -> PathBuf {
    above.join(format!("rtscope-{user}"))
}

/// A process's number and that of its parent, if it is one of the collector's.
fn parent_of_hand(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let is_hand = status.lines().next()?.ends_with("rtscope-hand");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
    is_hand.then_some(parent)
}

/// The hands of this process's collectors, without those who start them.
fn hands() -> Vec<Pid> {
    let own = i32::try_from(std::process::id()).expect("numbers are small");
    let all = fs::read_dir("/proc").expect("it is there");
    let all = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let is_ours = |pid: &i32| parent_of_hand(*pid).and_then(parent_of_hand).is_some_and(|above| above == own);
    all.filter(is_ours).map(Pid::from_raw).collect()
}

/// They do nothing until this is dropped.
struct Stopped(Vec<Pid>);

impl Stopped {
    fn new(hands: Vec<Pid>) -> Stopped {
        assert!(!hands.is_empty(), "the collector has hands");
        hands.iter().for_each(|hand| kill(*hand, Signal::SIGSTOP).expect("it is there"));
        Stopped(hands)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.iter().for_each(|hand| kill(*hand, Signal::SIGCONT).expect("it is there"));
    }
}

// NEEDS: host
#[test]
fn root_who_empties_rings_waits_for_no_users_directory() {
    if skip::without_root() {
        return;
    }
    let above = above(&[HOLDER]);
    let session = directory(above.path(), HOLDER).join("session");
    let mut took = Vec::new();
    // What waits, waits each time; a busy machine is late now and then.
    for _ in 0..5 {
        let mut programs =
            Programs::recording(above.path(), Settings::default()).expect("nobody else records here");
        programs.poll(&mut DiscardingSink).expect("it looks");
        assert!(session.exists());
        let stopped = Stopped::new(hands());
        let begun = Instant::now();
        assert_eq!((programs.lost(), programs.count(), programs.past_by_user().len()), (0, 0, 2));
        programs.drain(&mut DiscardingSink).expect("nothing refuses");
        took.push(begun.elapsed());
        drop(stopped);
        programs.stop(&mut DiscardingSink).expect("nothing refuses");
        drop(programs);
        wait_until("its hands have ended", || hands().is_empty());
    }
    println!("{took:?}");
    assert!(took.iter().min().is_some_and(|took| *took < Duration::from_millis(20)), "{took:?}");
}

// NEEDS: host
#[test]
fn root_what_was_lost_without_a_file_is_counted_from_the_beginning_to_the_end() {
    if skip::without_root() {
        return;
    }
    let above = above(&[HOLDER]);
    let page = directory(above.path(), HOLDER).join("look");
    let write = |lost: u64| {
        let mut bytes = vec![0; size_of::<abi::rtu_look>()];
        put64(&mut bytes, 0, abi::RTU_LOOK_MAGIC);
        put64(&mut bytes, offset_of!(abi::rtu_look, lost), lost);
        fs::write(&page, bytes).expect("there is space");
        chown(&page, Some(HOLDER), Some(HOLDER)).expect("root may");
    };
    for is_before in [true, false] {
        if is_before {
            write(7);
        }
        let mut programs =
            Programs::recording(above.path(), Settings::default()).expect("nobody else records here");
        programs.poll(&mut DiscardingSink).expect("it looks");
        assert_eq!(programs.lost(), 0);
        let before = if is_before { 7 } else { 0 };
        write(before + 5);
        programs.poll_now(&mut DiscardingSink, Duration::from_secs(10)).expect("it looks");
        assert_eq!(programs.lost(), 5);
        write(before + 6);
        programs.stop(&mut DiscardingSink).expect("nothing refuses");
        assert_eq!((programs.lost(), programs.past_by_user()[&HOLDER].lost_without_file), (6, 6));
        drop(programs);
        fs::remove_file(&page).expect("it is there");
    }
}
