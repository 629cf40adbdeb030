// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stories in examples/stories: scripts that use rtscope as a user would, on a real program, and check that what it says is what that
//! program knows itself. They exit with 77 and a reason where they cannot run.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::command::root;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::skip;
use std::process::Command;

fn tell(story: &str) {
    if ["cc", "jq"].into_iter().any(skip::without_tool) {
        return;
    }
    let script = root().join("examples/stories").join(story).join("run");
    let rtscope = env!("CARGO_BIN_EXE_rtscope");
    let output = Command::new("timeout").args(["300"]).arg(&script).arg(rtscope).output().unwrap();
    let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(0) => println!("{said}"),
        Some(77) => skip!("{}", why.lines().last().unwrap_or("no reason")),
        code => panic!("{story}: {code:?} {said} {why}"),
    }
}

#[test]
fn a_job_is_decided_by_exit_codes_and_jq() {
    let _cpus = Cpus::take().unwrap();
    tell("ci-job");
}

#[test]
fn damaged_traces_are_shown_up_to_the_damage_and_every_command_says_the_same() {
    let _cpus = Cpus::take().unwrap();
    tell("damaged-traces");
}

// NEEDS: real time (an emulated machine is too slow for cycles of 5 ms)
#[test]
fn root_the_xruns_of_an_audio_engine_are_found_and_explained() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    tell("audio");
}

// NEEDS: real time (an emulated machine is too slow for wakeups each millisecond)
#[test]
fn root_each_wakeup_of_cyclictest_is_measured_as_by_itself_and_its_break_takes_a_snapshot() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    tell("cyclictest");
}

// NEEDS: host
#[test]
fn root_the_slow_transactions_of_a_database_are_found() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    tell("pgbench");
}
