// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope io-profile`, judged by perf's counters in the same run, by a disk's own count, and by a neighbour whose start and end are known.

use crate::command::{count, rtscope};
use crate::hist::{Loop, Perf, named, reads};
use crate::json::assert_documented;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::wait_until;
use rtscope_testkit::skip;
use rtscope_testkit::watch::Rtscope;
use serde_json::Value;
use std::process::{Child, Command, Stdio};

/// How many of a class, in all groups.
fn of_class(report: &Value, class: &str) -> u64 {
    let groups = report["groups"].as_array().expect("groups").iter();
    let classes = groups.flat_map(|group| group["classes"].as_array().expect("classes"));
    let of = classes.filter(|counts| counts["class"] == class);
    of.map(|counts| count(&counts["figures"], "count")).sum()
}

// The program of a guest is busybox, which goes by its name.
// NEEDS: host
#[test]
fn root_the_classes_are_counted_exactly_and_each_reading_begins_anew() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let calls = ["read", "write", "openat", "close", "fdatasync", "pread64"]
        .map(|name| format!("syscalls:sys_exit_{name}"));
    let calls = calls.each_ref().map(String::as_str);
    let Some(perf) = Perf::of(&calls, "prof-dd") else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let dd = named(directory.path(), "dd", "prof-dd");
    let mut command = rtscope();
    command.args(["io-profile", "--json", "--task", "prof-dd"]);
    let mut profile = Rtscope::start(command).expect("it starts");
    profile.wait_for_note("counting input and output").expect("it counts");
    let to = format!("of={}", directory.path().join("file").display());
    let mut copy = |count: &str| {
        let words = ["if=/dev/zero", &to, "bs=512", count, "conv=fdatasync", "status=none"];
        assert!(Command::new(&dd).args(words).status().expect("it runs").success());
        profile.signal(Signal::SIGUSR1).expect("it runs");
        let report = profile.wait_for("a reading", |line| line["kind"] == "interval").expect("a reading");
        assert_documented(&report);
        report
    };
    let (first, second) = (copy("count=3000"), copy("count=50"));
    let output = profile.stop().expect("it stops");
    assert_eq!(output.code(), Some(0), "{:?}", output.notes);
    let total = output.lines.last().expect("a report");
    assert_documented(total);
    let classes = ["read", "write", "open", "close", "sync"].map(|class| of_class(total, class));
    let mut expected = perf.counted();
    // The loader reads with this one.
    expected[0] += expected.pop().expect("the last one");
    assert_eq!(classes.to_vec(), expected);
    // dd reads each block, and a few files at its start.
    assert!(of_class(&first, "write") == 3000 && of_class(&second, "write") == 50, "{first} {second}");
    assert!((3000..3100).contains(&of_class(&first, "read")) && of_class(&second, "read") < 150);
    assert_eq!(of_class(&first, "sync"), 1);
}

// NEEDS: one kernel
#[test]
fn root_a_files_device_is_the_disk_that_it_is_on() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(disk) = Loop::new(directory.path()) else { skip!("there is no loop device here") };
    let before = reads(disk.name());
    let mut command = rtscope();
    command.args(["io-profile", "--json", "--by", "device", "--", "dd", "of=/dev/null", "bs=4096"]);
    command.args(["iflag=direct", "count=700", "status=none", &format!("if={}", disk.path())]);
    let report = crate::command::json_lines(&mut command).pop().expect("a report");
    assert_documented(&report);
    let groups = report["groups"].as_array().expect("groups");
    let group = groups.iter().find(|group| group["name"] == disk.name()).expect("the disk");
    let of = |class: &str| {
        let classes = group["classes"].as_array().expect("classes");
        classes.iter().find(|counts| counts["class"] == class).map_or(0, |c| count(&c["figures"], "count"))
    };
    assert_eq!((of("read"), of("block_read")), (700, 700), "{group}");
    assert!(reads(disk.name()) - before >= 700);
    // dd makes its input descriptor 0, and closes both.
    assert_eq!((of("open"), of("close")), (1, 2), "{group}");
}

fn fio(arguments: &[&str]) -> Option<Child> {
    let mut command = Command::new("fio");
    command.args(arguments).args(["--direct=1", "--time_based", "--size=6M"]).stdout(Stdio::null());
    command.spawn().ok()
}

/// Waits until a baseline is there. It begins anew with each change, also one of the machine itself.
fn baseline(profile: &mut Rtscope) {
    let mut since_ns = 0;
    wait_until("a baseline is there", || {
        profile.signal(Signal::SIGUSR1).expect("it runs");
        let reading = profile.wait_for("a reading", |line| {
            let is_change = line["schema"] == "rtscope.io.change/1" && line["class"] == "read";
            if since_ns == 0 || is_change {
                since_ns = count(line, "at_ns");
            }
            line["kind"] == "interval"
        });
        count(&reading.expect("a reading"), "at_ns") > since_ns + 12 * 300_000_000
    });
}

// NEEDS: real time (an emulated machine's latencies say nothing)
#[test]
fn root_a_noisy_neighbour_is_noticed_when_it_starts_and_when_it_stops() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(disk) = Loop::new(directory.path()) else { skip!("there is no loop device here") };
    let file = format!("--filename={}", disk.path());
    let victim =
        ["--name=victim", &file, "--rw=randread", "--bs=4k", "--rate_iops=500", "--runtime=90", "--thread"];
    let Some(mut victim) = fio(&victim) else { skip!("fio is not installed (apt install fio)") };
    let mut command = rtscope();
    // Its work is in a thread of it.
    command.args(["io-profile", "--json", "--detect", "--window", "300ms"]);
    command.args(["--pid", &victim.id().to_string()]);
    let mut profile = Rtscope::start(command).expect("it starts");
    profile.wait_for_note("counting input and output").expect("it counts");
    baseline(&mut profile);
    let noise = ["--name=noise", &file, "--rw=randread", "--bs=1M", "--ioengine=libaio", "--iodepth=16"];
    let mut noise = fio(&[&noise[..], &["--runtime=60"]].concat()).expect("it was there before");
    let is = |direction: &'static str| {
        move |line: &Value| {
            line["schema"] == "rtscope.io.change/1"
                && line["class"] == "read"
                && line["direction"] == direction
        }
    };
    let worse = profile.wait_for("worse", is("worse")).expect("the neighbour starts");
    baseline(&mut profile);
    // fio's own children end with it only when it is asked to.
    kill(Pid::from_raw(noise.id().cast_signed()), Signal::SIGINT).expect("it runs");
    noise.wait().expect("it ends");
    let better = profile.wait_for("better", is("better")).expect("the neighbour stops");
    let _ = victim.kill();
    victim.wait().expect("it ends");
    [&worse, &better].into_iter().for_each(assert_documented);
    let quantiles = worse["quantiles"].as_array().expect("quantiles");
    // The window may be one in which it only just begins: then most reads are as before, and the slowest are not.
    let slowest = quantiles.iter().find(|quantile| quantile["permille"] == 990).expect("the slowest");
    assert!(count(slowest, "after_ns") > count(slowest, "before_ns"), "{worse}");
    profile.stop().expect("it stops");
}

// NEEDS: host
#[test]
fn root_a_profile_says_what_it_cannot_do() {
    for (arguments, words) in [
        (&["--by", "softirq"][..], "device, cgroup, task or process"),
        (&["--detect", "--alarm", "2"], "below 0.5"),
        (&["--interval", "0s"], "longer than 0"),
    ] {
        let refused = rtscope().arg("io-profile").args(arguments).output().expect("it runs");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && said.contains(words), "{arguments:?}: {said}");
    }
}
