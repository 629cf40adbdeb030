// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield create --mode artis` while CPUs are switched off and on, in a virtual machine: a lent one, one of several others,
//! and the last other one, without which no scheduler can lend anything.

use super::fixture::{
    ARTIS, COMPUTES, Load, all_accounted, class, keeper, number, ran, skipped, switch, top, undone,
};
use crate::shield::fixture::{Shield, assert_same_as, facts, facts_of, good, json};
use rtscope_testkit::process::wait_until;
use std::fs;

/// What the scheduler says when it ends by itself. Anything else would be the kernel's word for a stall.
const LAST: &str = "the last CPU that is not for real-time work goes offline";

// NEEDS: machine, sched_ext, hotplug
#[test]
fn root_vm_artis_a_lent_cpu_goes_and_comes_back() {
    if skipped() {
        return;
    }
    let before = facts();
    let load = Load::of(COMPUTES, 3);
    let shielded = Shield::of(&ARTIS);
    let lent = || number(&class(&top(), 1, "linux")["moved_here"]);
    let held_by = keeper();
    for _ in 0..3 {
        wait_until("it is lent", || lent() > 0);
        switch(1, false);
        let pids = load.pids();
        let start: Vec<u64> = pids.iter().map(|pid| ran(*pid)).collect();
        let all_ran = || pids.iter().zip(&start).all(|(pid, start)| ran(*pid) > start + 10);
        wait_until("all go on without it", all_ran);
        let so_far = lent();
        switch(1, true);
        wait_until("it is lent again", || lent() > so_far + 5);
    }
    assert_eq!(keeper(), held_by, "the scheduler went on all the time");
    drop(load);
    println!("{} evictions", all_accounted());
    undone(&before, "after the CPU was off and on");
    drop(shielded);
}

// NEEDS: machine, sched_ext, hotplug
#[test]
fn root_vm_artis_without_the_last_other_cpu_ends_at_once_and_says_so() {
    if skipped() {
        return;
    }
    // Processor 0 can be switched off on few machines: here it is the one for real-time work.
    let before = facts_of("0");
    let load = Load::of(COMPUTES, 3);
    let shielded = Shield::of(&["--rt", "0", "--mode", "artis"]);
    wait_until("it is lent", || number(&class(&top(), 0, "linux")["moved_here"]) > 5);
    switch(1, false);
    wait_until("it is said", || json(&["status", "--json"])["scheduler"]["fallen"].is_string());
    let said = good(&["status"]);
    println!("{said}");
    assert!(said.contains(LAST) && said.contains("could NOT be isolated"), "{said}");
    let pids = load.pids();
    let start: Vec<u64> = pids.iter().map(|pid| ran(*pid)).collect();
    wait_until("all go on", || pids.iter().zip(&start).all(|(pid, start)| ran(*pid) > start + 5));
    switch(1, true);
    let partition = super::fixture::PARTITION;
    wait_until("it is isolated when it can be", || {
        fs::read_to_string(partition).is_ok_and(|state| state == "isolated\n")
    });
    wait_until("that is said, too", || json(&["status", "--json"])["scheduler"]["apart"] == true);
    let said = good(&["status"]);
    assert!(said.contains(LAST) && said.contains("isolated instead"), "{said}");
    let undo = good(&["undo"]);
    assert!(!undo.contains("left ") && !undo.contains("FAILED"), "{undo}");
    assert_same_as(&before, facts_of("0"), "after the last other CPU was off and on");
    drop((shielded, load));
}

// NEEDS: machine, sched_ext, hotplug, cpus 4
#[test]
fn root_vm_artis_lends_as_long_as_one_other_cpu_is_there_on_four_cpus() {
    if skipped() {
        return;
    }
    let load = Load::of(COMPUTES, 6);
    let shielded = Shield::of(&["--rt", "0,3", "--mode", "artis"]);
    let lent = |cpu| number(&class(&top(), cpu, "linux")["moved_here"]);
    wait_until("both are lent", || lent(0) > 5 && lent(3) > 5);
    switch(2, false);
    let so_far = [lent(0), lent(3)];
    wait_until("both still are", || lent(0) > so_far[0] + 5 && lent(3) > so_far[1] + 5);
    keeper();
    switch(1, false);
    wait_until("it is said", || json(&["status", "--json"])["scheduler"]["fallen"].is_string());
    let said = good(&["status"]);
    assert!(said.contains(LAST), "{said}");
    switch(1, true);
    switch(2, true);
    wait_until("they are isolated when they can be", || {
        fs::read_to_string(super::fixture::PARTITION).is_ok_and(|state| state == "isolated\n")
    });
    drop((load, shielded));
}
