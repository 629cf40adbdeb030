// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield verify`: who is named of what ran on a CPU. Changes no setting.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::skip;
use serde_json::Value;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

fn verify(words: &[&str]) -> Output {
    let mut command = crate::command::rtscope();
    command.args(["shield", "verify"]).args(words).output().expect("it runs")
}

/// The last CPU, when there are two.
fn last_cpu() -> Option<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).expect("told");
    let mut cpus = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
    cpus.next().and_then(|_| cpus.next_back())
}

/// Does it while a thread with a name of its own keeps a CPU busy.
fn while_spinning<T>(name: &str, cpu: usize, what: impl FnOnce() -> T) -> T {
    let (running, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let spin = || {
            let mut set = CpuSet::new();
            set.set(cpu).expect("a CPU");
            sched_setaffinity(Pid::from_raw(0), &set).expect("allowed");
            running.store(true, Ordering::Release);
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, spin).expect("started");
        while !running.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let result = what();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

// NEEDS: host
#[test]
fn root_who_ran_on_a_cpu_is_named_with_its_share() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let Some(cpu) = last_cpu() else {
        skip!("it needs two CPUs");
    };
    let rt = cpu.to_string();
    let words = ["--rt", rt.as_str(), "--duration", "2s", "--json"];
    let output = while_spinning("verify-spinner", cpu, || verify(&words));
    assert_eq!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let of_cpu = &said["cpus"][0];
    assert_eq!(of_cpu["cpu"], cpu);
    let watched = of_cpu["watched_ns"].as_u64().expect("a number");
    assert!((2_000_000_000..4_000_000_000).contains(&watched), "{watched}");
    let ran = of_cpu["ran"].as_array().expect("a list");
    let time = |is: &dyn Fn(&Value) -> bool| -> u64 {
        ran.iter().filter(|one| is(&one["who"])).filter_map(|one| one["visit"]["time_ns"].as_u64()).sum()
    };
    let own = time(&|who| who["name"] == "verify-spinner");
    let (all, unknown) = (time(&|_| true), time(&|who| who["kind"] == "unknown"));
    // Others have their shares of the CPU; what it has, all of them had, but for the time that no event tells of.
    assert!(own > watched / 20, "{own} of {watched}: {said}");
    assert!(all <= watched && all + unknown >= watched * 9 / 10, "{all} of {watched}: {said}");
    let promises = of_cpu["promises"].as_array().expect("a list");
    let tasks = promises.iter().find(|promise| promise["name"] == "tasks").expect("promised");
    assert_eq!(tasks["verdict"], "fail");
    let by = tasks["by"].to_string();
    assert!(by.contains("verify-spinner (thread "), "{by}");
    assert!(ran.iter().any(|one| one["who"]["vector"] == "local_timer"), "no tick: {said}");
}

#[test]
fn what_cannot_be_verified_is_refused() {
    for (words, why) in [
        (&["--rt", "0-4095"][..], "is not online"),
        (&["--rt", ""], "no CPU is named"),
        (&["--rt", "1", "--duration", "0s"], "it has to be longer than 0"),
    ] {
        let output = verify(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why) || said.contains("one CPU online"), "{said}");
    }
}
