// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield` while CPUs are switched off and on, with several shielded CPUs, and with an interrupt that is kept: in a virtual
//! machine only.

use super::fixture::{Shield, Sleeper, assert_same, assert_same_as, facts, facts_of, good, json, shield};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::wait_until;
use rtscope_testkit::serial::Serial;
use rtscope_testkit::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Switches a CPU, and back at the end.
struct Switched(u32);

impl Switched {
    fn off(cpu: u32) -> Result<Switched, String> {
        switch(cpu, "0").map(|()| Switched(cpu))
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        switch(self.0, "1").expect("what was on can be switched on");
    }
}

fn switch(cpu: u32, state: &str) -> Result<(), String> {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(&file, state).map_err(|error| format!("{file}: {error}"))
}

fn problems() -> Vec<(bool, String)> {
    let status = json(&["status", "--json"]);
    let all = status["problems"].as_array().expect("a list").iter();
    let one =
        |problem: &Value| (problem["is_down"] == true, problem["what"].as_str().expect("a text").to_owned());
    all.map(one).collect()
}

/// Its exit code and what it says.
fn verify() -> (Option<i32>, String) {
    let output = shield(&["verify", "--duration", "100ms"]).output().expect("it runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

// NEEDS: machine, cgroups, hotplug
#[test]
fn root_vm_a_shielded_cpu_goes_and_comes_back() {
    if skip::outside_guests() {
        return;
    }
    let before = facts();
    let shielded = Shield::of(&["--rt", "1"]);
    let resident = Sleeper::start(shield(&["run", "--cpu", "1", "--", "sleep", "1000"]));
    let off = match Switched::off(1) {
        Ok(off) => off,
        Err(why) => {
            skip!("{why}");
        }
    };
    let there = problems();
    println!("{there:?}");
    assert!(there[0].0 && there[0].1.contains("all shielded CPUs (1) are offline"), "{there:?}");
    assert!(good(&["status"]).contains("NO SHIELD: all shielded CPUs (1) are offline"));
    let (code, said) = verify();
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("every check fails: all shielded CPUs (1) are offline"), "{said}");
    drop(off);
    wait_until("the kernel isolates it again", || problems().is_empty());
    assert_eq!(resident.cpus(), "1");
    let status = json(&["status", "--json"]);
    assert_eq!(status["drifted"], 0, "{status}");
    good(&["undo"]);
    assert_same(&before, "after it was off and on");
    assert_eq!(resident.cpus(), "0-1");
    // Undone while it is off, it has nothing left of it when it is back.
    drop(shielded);
    let _shielded = Shield::of(&["--rt", "1"]);
    let bystander = Sleeper::plain();
    let off = Switched::off(1).expect("as before");
    let undone = shield(&["undo"]).output().expect("it runs");
    let (said, why) = (String::from_utf8_lossy(&undone.stdout), String::from_utf8_lossy(&undone.stderr));
    println!("{said}{why}");
    drop(off);
    if !undone.status.success() {
        // Some kernels take settings of a CPU only while it is online.
        assert!(said.contains("FAILED") && why.contains("all shielded CPUs (1) are offline"), "{said}{why}");
        good(&["undo"]);
    }
    let what = "after it was undone while off";
    if bystander.cpus() == "0-1" {
        assert_same(&before, what);
    } else {
        // Kernels before 6.2, which is said; the settings are as they were.
        assert!(why.contains("Kernels before Linux 6.2 forget"), "{why}");
        let settings = |facts: BTreeMap<String, String>| -> BTreeMap<String, String> {
            facts.into_iter().filter(|(name, _)| !name.starts_with("thread ")).collect()
        };
        assert_same_as(&settings(before), settings(facts()), what);
    }
}

// NEEDS: machine, cgroups, hotplug, cpus 4
#[test]
fn root_vm_shielded_cpus_and_the_last_other_one_go_and_come_back_on_four_cpus() {
    if skip::outside_guests() {
        return;
    }
    // Processor 0 can be switched off on few machines: what is left for the rest is CPU 1.
    let before = facts_of("0,2-3");
    let _shielded = Shield::of(&["--rt", "0,2-3"]);
    let status = json(&["status", "--json"]);
    assert_eq!((status["rt"].as_str(), status["others"].as_str()), (Some("0,2-3"), Some("1")));
    let run = |cpu: &str| Sleeper::start(shield(&["run", "--cpu", cpu, "--", "sleep", "1000"]));
    let residents = [run("0"), run("2"), run("3")];
    assert_eq!(residents.each_ref().map(Sleeper::cpus), ["0", "2", "3"]);
    let stranger = Sleeper::plain();
    assert_eq!(stranger.cpus(), "1");

    let off = Switched::off(3).expect("CPUs can be switched here");
    let there = problems();
    assert!(!there[0].0 && there[0].1.contains("CPUs 3 of the shield are offline"), "{there:?}");
    assert!(good(&["status"]).contains("DEGRADED: CPUs 3 of the shield are offline"));
    let (_, said) = verify();
    assert!(said.contains("CPUs 3 of the shield are offline"), "{said}");
    drop(off);
    wait_until("all is well again", || problems().is_empty());

    match Switched::off(1) {
        // As good: the kernel does not let the last one go.
        Err(why) => println!("CPU 1 stays: {why}"),
        Ok(off) => {
            let there = problems();
            println!("{there:?}");
            let what =
                "CPUs 1, which had everything else, are offline: all of it runs on the shielded CPUs now";
            assert!(there.iter().any(|(is_down, said)| *is_down && said.contains(what)), "{there:?}");
            let (code, said) = verify();
            assert_eq!(code, Some(4), "{said}");
            assert!(said.contains(what), "{said}");
            drop(off);
            wait_until("all is well again", || problems().is_empty());
        }
    }
    good(&["undo"]);
    assert_same_of(&before, "after CPUs were off and on");
    assert_eq!(stranger.cpus(), "0-3");
    assert_eq!(residents.each_ref().map(Sleeper::cpus), ["0-3", "0-3", "0-3"]);
}

fn assert_same_of(before: &BTreeMap<String, String>, what: &str) {
    assert_same_as(before, facts_of("0,2-3"), what);
}

// NEEDS: machine, cgroups, serial
#[test]
fn root_vm_an_interrupt_that_is_kept_comes_to_its_cpu_and_is_no_broken_promise() {
    if skip::outside_guests() {
        return;
    }
    let Some(_cpus) = Cpus::for_watching() else { return };
    let Some(mut serial) = Serial::for_test() else { return };
    let irq = serial.irq().expect("told");
    let file = format!("/proc/irq/{irq}/smp_affinity_list");
    let before = facts();
    let was = fs::read_to_string(&file).expect("there");
    let shielded = Shield::of(&["--rt", "1", "--keep-irq", &irq.to_string()]);
    assert_eq!(fs::read_to_string(&file).expect("there").trim(), "1");
    // Ten at a time, so that none is under way when this is over.
    let over = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                serial.ask(10, Duration::from_millis(20)).expect("asked");
                serial.port().read_exact(&mut [0; 10]).expect("they come");
            }
        });
        let output = shield(&["verify", "--duration", "2s", "--json"]).output().expect("it runs");
        over.store(true, Ordering::Release);
        output
    });
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    println!("{said}");
    let promise = |name: &str| {
        let mut all = said["cpus"][0]["promises"].as_array().expect("a list").iter();
        all.find(|one| one["name"] == name).cloned().expect("there")
    };
    assert_eq!(promise("interrupts")["verdict"], "pass");
    let kept = promise("kept-interrupts");
    assert!(kept["count"].as_u64().is_some_and(|count| count >= 10), "{kept}");
    assert!(kept["by"].to_string().contains(&format!("irq {irq}")), "{kept}");
    good(&["undo"]);
    drop(shielded);
    assert_eq!(fs::read_to_string(&file).expect("there"), was);
    assert_same(&before, "with a kept interrupt");
    // The interrupt controller moves an interrupt when the next one comes. When the port is closed before, its file shows what was to come,
    // whatever is written to it.
    serial.ask(10, Duration::from_millis(20)).expect("asked");
    serial.port().read_exact(&mut [0; 10]).expect("they come");
}
