// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flight recorders of the kernel: what a snapshot has.

use super::c::babeltrace2;
use super::fixture::{Fixture, flight_recorder, interrupt};
use rtscope_testkit::skip;
use serde_json::Value;
use std::process::Command;

// NEEDS: host
#[test]
fn root_a_flight_recorder_of_the_kernel_has_each_event_that_was_asked_for_and_names_new_threads() {
    if skip::without_watching() || skip::without_tool("babeltrace2") {
        return;
    }
    let fixture = Fixture::new();
    // Of those that eBPF records, some fire with interrupts off and some do not.
    let asked = ["sched_switch", "sched_process_fork", "sched_process_exec", "irq_softirq_entry"];
    let patterns = "sched:sched_switch,sched:sched_process_fork,sched:sched_process_exec,irq:softirq_entry";
    let (recorder, _said) = flight_recorder(&fixture, &["-k", patterns, "--buffer", "1M"]);
    // A name that was nowhere when the recording began.
    let late = fixture.path("late-comer");
    std::os::unix::fs::symlink("/bin/sleep", &late).expect("it can be linked");
    let mut child = Command::new(&late).arg("0.05").spawn().expect("it can be started");
    let (tid, _) = (child.id(), child.wait().expect("it ends"));
    let output = interrupt(recorder);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut accounts = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let account = accounts.find(|account| account["schema"] == "rtscope.record/1").expect("the kernel's");
    let recorded = account["by_event"].as_object().expect("an object");
    for name in asked {
        assert!(recorded.get(name).and_then(Value::as_u64) > Some(0), "no {name}: {account}");
    }
    assert_eq!(recorded.len(), asked.len(), "nothing else is counted: {account}");
    let lines = babeltrace2(&fixture.trace().join("1/kernel")).expect("it is there");
    let comes = format!("next_tid = {tid},");
    assert!(
        lines.iter().any(|line| line.contains(&comes) && line.contains("next_comm = \"late-comer\"")),
        "thread {tid} has no name: {:?}",
        lines.iter().filter(|line| line.contains(&comes)).take(3).collect::<Vec<_>>()
    );
}
