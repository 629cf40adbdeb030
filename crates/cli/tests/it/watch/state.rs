// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope state`: what hangs now in the watches that run, asked of these.

use crate::command::{PublicCopy, json_lines, rtscope};
use rtscope_event::{StepKind, Tracker, WaitKind};
use rtscope_session::watch::state::WatchState;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::{KilledWithTest, wait_until};
use rtscope_testkit::watch::Rtscope;
use std::process::{Command, Stdio};

fn watch(options: &[&str]) -> Rtscope {
    let mut command = rtscope();
    command.args(["watch", "offcpu", "--json", "--threshold", "100ms"]).args(options);
    let mut watch = Rtscope::start(command).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    watch
}

/// What a watch says, if it runs. Other watches of this user may, too.
fn state_of(watch: u32, options: &[&str]) -> Option<WatchState> {
    let states = json_lines(rtscope().args(["state", "--json"]).args(options));
    let of_watch = states.into_iter().find(|state| state["pid"].as_u64() == Some(watch.into()));
    of_watch.map(|state| serde_json::from_value(state).expect("of its own type"))
}

/// A process that waits for a byte which nobody writes.
fn reader() -> (KilledWithTest, u32) {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let reader = KilledWithTest::start(&mut command).expect("cat is there");
    let pid = reader.id();
    (reader, pid)
}

// NEEDS: host
#[test]
fn root_what_hangs_is_told_to_who_asks() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let watch = watch(&["--task", "cat", "--and", "syscall:1h", "--and", "irq:1s"]);
    let (_reader, pid) = reader();
    let mut found = None;
    // It takes a while to come to its read.
    wait_until("the read is under way", || {
        found = state_of(watch.pid(), &[]);
        let operations = found.iter().flat_map(|state| &state.operations);
        operations.filter(|one| one.late.tid.0 == pid).count() == 2
    });
    let found = found.expect("it was there");
    let followed: Vec<_> = found.trackers.iter().map(|one| (one.tracker, one.is_seen_pending)).collect();
    assert_eq!(followed, [(Tracker::Offcpu, true), (Tracker::Syscall, true), (Tracker::Irq, false)]);
    assert_eq!((found.target.as_str(), found.more), ("tasks named 'cat'", 0));
    for operation in found.operations.iter().filter(|one| one.late.tid.0 == pid) {
        let last = operation.late.chain.steps.last().expect("it has steps");
        assert_eq!((last.kind, last.wait), (StepKind::Wait, WaitKind::Read), "{operation:?}");
        let call = operation.late.call.as_ref().and_then(|call| call.name.clone());
        let is_call = operation.late.tracker == Tracker::Syscall;
        assert_eq!(call.as_deref(), is_call.then_some("read"), "{operation:?}");
        assert_eq!(operation.late.threshold_ns, if is_call { 3_600_000_000_000 } else { 100_000_000 });
    }
    let old = state_of(watch.pid(), &["--older", "1h"]).expect("it watches");
    assert!(old.operations.is_empty(), "{old:?}");
    let text = rtscope().arg("state").output().expect("it runs");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains(&format!("watch {} of tasks named 'cat': offcpu > 100 ms", watch.pid())), "{text}");
    assert!(text.contains(&format!("syscall cat/{pid}")), "{text}");

    let pid = watch.pid();
    watch.stop().expect("it stops");
    assert_eq!(state_of(pid, &[]), None);
}

// NEEDS: host
#[test]
fn root_a_killed_watch_leaves_nothing_that_answers_or_stays() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let watch = watch(&["--task", "e2e-nobody"]);
    let pid = watch.pid();
    assert!(state_of(pid, &[]).is_some());
    let socket = std::path::Path::new("/run/rtscope/watches").join(pid.to_string());
    assert!(socket.exists());
    watch.signal(nix::sys::signal::Signal::SIGKILL).expect("it is there");
    let _ = watch.finish();
    assert!(socket.exists(), "a killed process removes nothing");
    assert_eq!(state_of(pid, &[]), None);
    assert!(!socket.exists());
}

// NEEDS: host
#[test]
fn root_other_users_ask_for_their_own_watches() {
    let copy = PublicCopy::new();
    let mut command = copy.as_nobody(&["state"]);
    let refused = command.env_remove("XDG_RUNTIME_DIR").output().expect("it runs");
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("XDG_RUNTIME_DIR"), "{refused:?}");
    let mut command = copy.as_nobody(&["state"]);
    let none = command.env("XDG_RUNTIME_DIR", "/nonexistent").output().expect("it runs");
    assert_eq!((none.status.code(), none.stdout.as_slice()), (Some(0), b"no watch runs\n".as_slice()));
}
