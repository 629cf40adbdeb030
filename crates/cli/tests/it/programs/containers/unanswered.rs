// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Containers beside a process that keeps readers of its state waiting.

use super::{Container, emitter, recorder, skipped};
use crate::programs::fixture::Fixture;
use nix::sched::CloneFlags;
use rtscope_testkit::held::HeldExec;
use rtscope_testkit::process::wait_until;
use rtscope_testkit::skip;
use serde_json::Value;
use std::time::{Duration, Instant};

/// A container that is found while a user's process does not answer, and a recorder that begins and ends then.
// NEEDS: host
#[test]
fn root_a_process_that_does_not_answer_hides_no_container() {
    if skipped() {
        return;
    }
    let held = match HeldExec::start(4712) {
        Ok(held) if held.keeps_readers_waiting() => held,
        Ok(_) => skip!("this kernel tells of a process in execve(2) what it is"),
        Err(error) => skip!("no process is held in execve(2) here: {error}"),
    };
    let fixture = Fixture::new();
    let mut container = Container::start();
    container.obey(&format!("{} wait 7000", emitter()));
    assert_eq!(container.line(), "ready");
    let recorder = recorder(&fixture, &[]);
    container.obey("");
    assert_eq!(container.emitted(), 7000);
    container.obey(&format!("{} count 3000 2", emitter()));
    assert_eq!(container.emitted(), 6000);
    let ends = Instant::now();
    let recorded = recorder.end();
    let took = ends.elapsed();
    assert!(held.keeps_readers_waiting(), "it was held all the time");
    assert_eq!((recorded.events(), recorded.lost()), (13_000, 0), "{}", recorded.account);
    // It is in no container, which the kernel says all the same: nothing is missed.
    assert_eq!(recorded.account["refused"], serde_json::json!([]));
    assert!(took < Duration::from_secs(3), "{took:?}");
    container.end();
}

/// It was visited, and walked to, before.
// NEEDS: host
#[test]
fn root_a_container_that_does_not_answer_any_more_hides_no_other() {
    if skipped() {
        return;
    }
    let ready = match HeldExec::prepare(4713, CloneFlags::CLONE_NEWPID) {
        Ok(ready) => ready,
        Err(error) => skip!("no process is held in execve(2) here: {error}"),
    };
    let fixture = Fixture::new();
    let recorder = recorder(&fixture, &[]);
    let held = ready.hold().expect("it was there");
    if !held.keeps_readers_waiting() {
        skip!("this kernel tells of a process in execve(2) what it is");
    }
    // With the first one there was a census in which the other did not answer, and what comes of that comes before the second one is found.
    for emitted in [3000, 4000] {
        let mut container = Container::start();
        wait_until("it is found", || container.shm("rtscope-session").exists());
        container.obey(&format!("{} count {emitted} 1", emitter()));
        assert_eq!(container.emitted(), emitted);
        container.end();
    }
    let recorded = recorder.end();
    assert!(held.keeps_readers_waiting(), "it was held all the time");
    assert_eq!((recorded.events(), recorded.lost()), (7000, 0), "{}", recorded.account);
    let refused = recorded.account["refused"].as_array().expect("a list");
    let told = |refused: &Value| (refused["user"].as_u64(), refused["cause"].as_str().map(str::to_owned));
    let told: Vec<_> = refused.iter().map(told).collect();
    assert_eq!(told, [(Some(4713), Some("no_answer".to_owned()))], "{refused:?}");
}
