// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Modules load in the machines of `./x vm`, and do what tests want of them.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use rtscope_testkit::machine::is_preempt_rt;
use rtscope_testkit::module;
use rtscope_testkit::process::wait_until;

/// Runs a command of the guest; returns what it prints.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {errors}", arguments.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// How many reads and writes a block device has completed.
fn completed(device: &str) -> [u64; 2] {
    let text = read(&format!("/sys/block/{device}/stat"));
    let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    [numbers[0], numbers[4]]
}

// NEEDS: verifier, module loop, module null_blk, module virtio_blk, module dm_delay, module dm_mod, module sch_netem, module veth
#[test]
fn root_vm_the_distributions_modules_load() {
    let Some(_loop) = module::load("loop") else { return };
    a_file_is_a_device();
    let Some(_null) = module::load_with("null_blk", &["nr_devices=1"]) else { return };
    let Some(_delay) = module::load("dm_delay") else { return };
    io_takes_the_way_through_the_delay();
    let Some(_virtio) = module::load("virtio_blk") else { return };
    assert!(Path::new("/sys/bus/virtio/drivers/virtio_blk").exists());
    let Some(_netem) = module::load("sch_netem") else { return };
    let Some(_veth) = module::load("veth") else { return };
    packets_of_a_pair_take_the_way_through_netem();
}

fn a_file_is_a_device() {
    let content: Vec<u8> = (0..1_u32 << 20).map(|at| u8::try_from(at % 251).expect("small")).collect();
    fs::write("/tmp/disk", &content).expect("it can be written");
    let device = run("losetup", &["-f"]);
    run("losetup", &[device.trim(), "/tmp/disk"]);
    let mut read = Vec::new();
    File::open(device.trim()).and_then(|mut file| file.read_to_end(&mut read)).expect("it can be read");
    run("losetup", &["-d", device.trim()]);
    fs::remove_file("/tmp/disk").expect("it is there");
    assert!(read == content, "the device has {} of {} bytes, or others", read.len(), content.len());
}

/// A write to a delayed device completes on the device below.
fn io_takes_the_way_through_the_delay() {
    // A table of one line: sectors, then the device, its offset and the delay in ms.
    run("dmsetup", &["create", "slow", "--noudevsync", "--table", "0 2048 delay /dev/nullb0 0 20"]);
    let minor = run("dmsetup", &["info", "-c", "--noheadings", "-o", "minor", "slow"]);
    let [_, before] = completed("nullb0");
    let node = "/tmp/slow";
    let major = run("dmsetup", &["info", "-c", "--noheadings", "-o", "major", "slow"]);
    run("mknod", &[node, "b", major.trim(), minor.trim()]);
    let mut device = OpenOptions::new().write(true).open(node).expect("it was made");
    device.write_all(&[1; 4096]).and_then(|()| device.sync_all()).expect("it takes everything");
    drop(device);
    // The kernel counts a request after it has told who waits for it.
    wait_until("the write is counted below", || completed("nullb0")[1] > before);
    run("dmsetup", &["remove", "--noudevsync", "slow"]);
    fs::remove_file(node).expect("it is there");
}

fn packets_of_a_pair_take_the_way_through_netem() {
    run("ip", &["link", "add", "left", "type", "veth"]);
    run("ip", &["link", "set", "left", "up"]);
    run("tc", &["qdisc", "add", "dev", "left", "root", "netem", "delay", "10ms"]);
    let shown = run("tc", &["qdisc", "show", "dev", "left"]);
    let other = fs::read_to_string("/sys/class/net/left/iflink").expect("a pair has two ends");
    let own = fs::read_to_string("/sys/class/net/left/ifindex").expect("each has a number");
    run("ip", &["link", "delete", "left"]);
    assert!(shown.contains("netem") && shown.contains("delay 10ms"), "{shown}");
    assert_ne!(own, other);
}

// NEEDS: verifier, module dummy_stm, module stm_p_basic, module stm_p_sys_t
#[test]
fn root_vm_a_dummy_of_a_system_trace_module_appears() {
    let Some(_protocol) = module::load("stm_p_basic") else { return };
    let Some(_other) = module::load("stm_p_sys_t") else { return };
    let Some(_stm) = module::load("dummy_stm") else { return };
    let devices: Vec<String> = fs::read_dir("/sys/class/stm")
        .expect("the core is loaded")
        .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
        .collect();
    assert!(devices.iter().any(|name| name.starts_with("dummy_stm")), "{devices:?}");
    let masters = read(&format!("/sys/class/stm/{}/masters", devices[0]));
    assert_eq!(masters.split_whitespace().count(), 2, "{masters}");
    let loaded = read("/proc/modules");
    assert!(["stm_core", "stm_p_basic", "stm_p_sys_t"].iter().all(|name| loaded.contains(name)), "{loaded}");
}

/// What the injector did, in CLOCK_MONOTONIC.
#[derive(Debug)]
struct Injection {
    cpu: u32,
    begin_ns: u64,
    end_ns: u64,
}

/// Lets the injector do something on the CPU of this thread. Fails where this kernel cannot be made to.
fn inject(what: &str, microseconds: u64) -> io::Result<Injection> {
    let device = "/dev/rtscope_injector";
    let mut file = OpenOptions::new().read(true).write(true).open(device).expect("the injector is loaded");
    file.write_all(format!("{what} {microseconds}\n").as_bytes())?;
    let mut report = String::new();
    file.read_to_string(&mut report).expect("it reports");
    let words: Vec<&str> = report.split_whitespace().collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    assert_eq!([words[0], words[1], words[3], words[5]], [what, "cpu", "begin_ns", "end_ns"], "{report}");
    let cpu = u32::try_from(number(2)).expect("small");
    Ok(Injection { cpu, begin_ns: number(4), end_ns: number(6) })
}

/// An ftrace instance that watches a CPU for what may not happen on it.
struct Watch(PathBuf);

/// Group and event.
const WATCHED: [(&str, &str); 4] = [
    ("irq_vectors", "local_timer_entry"),
    ("irq", "irq_handler_entry"),
    ("irq", "softirq_entry"),
    ("sched", "sched_switch"),
];

impl Watch {
    fn new() -> Watch {
        let path = Path::new("/sys/kernel/tracing/instances/injector").to_owned();
        fs::create_dir(&path).expect("instances can be made");
        let watch = Watch(path);
        watch.set("trace_clock", "mono");
        watch.set("buffer_size_kb", "4096");
        for (group, event) in WATCHED {
            watch.set(&format!("events/{group}/{event}/enable"), "1");
        }
        watch
    }

    fn set(&self, file: &str, value: &str) {
        fs::write(self.0.join(file), value).unwrap_or_else(|error| panic!("{file}: {error}"));
    }

    /// How often each event came on the injection's CPU between its stamps, by what is a microsecond.
    fn count(&self, injection: &Injection) -> BTreeMap<&'static str, usize> {
        let file = format!("per_cpu/cpu{}", injection.cpu);
        let stats = fs::read_to_string(self.0.join(&file).join("stats")).expect("every CPU has them");
        assert!(stats.contains("overrun: 0\n"), "{stats}");
        let text = fs::read_to_string(self.0.join(&file).join("trace")).expect("every CPU has one");
        let mut counts = WATCHED.map(|(_, event)| (event, 0)).into_iter().collect::<BTreeMap<_, _>>();
        for line in text.lines() {
            let Some((stamp_us, event)) = stamp_and_event(line) else { continue };
            // Both are cut to microseconds: what is equal to one of the stamps may lie on either side of it.
            if (injection.begin_ns / 1000 < stamp_us) && (stamp_us < injection.end_ns / 1000) {
                *counts.get_mut(event.as_str()).expect("no other is enabled") += 1;
            }
        }
        counts
    }
}

/// "  task-1  [001] d..2.   12.345678: sched_switch: prev_comm=…"
fn stamp_and_event(line: &str) -> Option<(u64, String)> {
    if line.starts_with('#') {
        return None;
    }
    let mut words = line.split_whitespace().skip_while(|word| !word.starts_with('['));
    let stamp = words.nth(2)?.strip_suffix(':')?;
    let (seconds, fraction) = stamp.split_once('.')?;
    let microseconds = seconds.parse::<u64>().ok()? * 1_000_000 + fraction.parse::<u64>().ok()?;
    Some((microseconds, words.next()?.strip_suffix(':')?.to_owned()))
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// A task that wants to run on a CPU all the time.
struct Neighbour(std::process::Child);

impl Neighbour {
    fn new(cpu: usize) -> Neighbour {
        let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("there is a shell");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process"));
        sched_setaffinity(pid, &only(cpu)).expect("there is such a CPU");
        Neighbour(child)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu).expect("a small number");
    set
}

#[test]
fn lines_of_a_trace_are_read() {
    let line = "  rtscope-testkit-12  [001] d..2.    12.345678: local_timer_entry: vector=236";
    assert_eq!(stamp_and_event(line), Some((12_345_678, "local_timer_entry".to_owned())));
    assert_eq!(stamp_and_event("# tracer: nop"), None);
}

// NEEDS: verifier, module injector
#[test]
fn root_vm_the_injector_switches_off_what_it_says_for_the_time_it_says() {
    const CPU: usize = 1;
    const TIME_US: u64 = 300_000;
    let Some(_injector) = module::load("injector") else { return };
    sched_setaffinity(Pid::from_raw(0), &only(CPU)).expect("guests have two CPUs");
    let _neighbour = Neighbour::new(CPU);
    let watch = Watch::new();
    let observe = |what: &str| {
        let injection = inject(what, TIME_US)?;
        assert_eq!(injection.cpu as usize, CPU, "{what}");
        let time_ns = injection.end_ns - injection.begin_ns;
        assert!(time_ns >= TIME_US * 1000, "{what}: {time_ns} ns");
        let counts = watch.count(&injection);
        println!("{what}: {time_ns} ns, {counts:?}");
        Ok::<_, io::Error>(counts)
    };
    // Where nothing is switched off, all of it happens in that time: the clock ticks, and the neighbour gets its share.
    let counts = observe("none").expect("it can be done");
    for event in ["local_timer_entry", "softirq_entry", "sched_switch"] {
        assert!(counts[event] > 0, "none: {event}: {counts:?}");
    }
    let counts = observe("irqs").expect("it can be done");
    assert!(counts.values().all(|count| *count == 0), "irqs: {counts:?}");
    match observe("softirqs") {
        Ok(counts) => {
            assert_eq!(counts["softirq_entry"], 0, "softirqs: {counts:?}");
            assert!(counts["local_timer_entry"] > 0, "softirqs: {counts:?}");
        }
        // With PREEMPT_RT, and without a lock for it, other tasks handle softirqs in that time.
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}");
            assert!(is_preempt_rt(), "only there");
        }
    }
    let counts = observe("preempt").expect("it can be done");
    assert_eq!(counts["sched_switch"], 0, "preempt: {counts:?}");
    assert!(counts["local_timer_entry"] > 0, "preempt: {counts:?}");
}
