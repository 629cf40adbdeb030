// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instances come and go, at the same time as others and as CPUs, and leave nothing behind.

use super::{call, decode, drain, names, tracefs};
use rtscope_kernel::tracefs::{EventName, Instance, InstanceConfig, Tracefs, TracefsError};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::{sched, skip};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

// NEEDS: real time (an emulated CPU takes seconds for what a real one does in a tenth of one)
#[test]
fn root_all_tracepoints_start_and_stop_within_a_second() {
    let Some(tracefs) = tracefs() else { return };
    let all = tracefs.events().unwrap();
    let built_in: Vec<&str> = rtscope_kernel::PROGRAMS.iter().map(|program| program.tracepoint).collect();
    let rest: Vec<EventName> =
        all.iter().filter(|event| !built_in.contains(&&*event.name)).cloned().collect();
    assert!(rest.len() + 20 < all.len(), "the kernel has the built-in events");
    let _cpus = Cpus::take().unwrap();
    for wanted in [&all, &rest] {
        // Other work on the machine makes it take longer: the best of ten attempts counts.
        let within = |(on, off): &(Duration, Duration)| *on < SECOND && *off < SECOND;
        let mut times = vec![start_and_stop(&tracefs, wanted)];
        while times.len() < 10 && !times.last().is_some_and(within) {
            times.push(start_and_stop(&tracefs, wanted));
        }
        println!("{} of {} tracepoints: on and off {times:?}", wanted.len(), all.len());
        assert!(times.last().is_some_and(within));
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// How long it takes to make an instance with these events on, and to remove it.
fn start_and_stop(tracefs: &Tracefs, wanted: &[EventName]) -> (Duration, Duration) {
    let begin = Instant::now();
    let instance = Instance::create(tracefs, &InstanceConfig::default()).expect("root");
    let refused = instance.enable(wanted).expect("root");
    instance.start().expect("root");
    let on = begin.elapsed();
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(instance.enabled().expect("root"), wanted.iter().cloned().collect());
    let begin = Instant::now();
    instance.remove().expect("nobody has it open");
    (on, begin.elapsed())
}

/// An instance of another program, removed at the end.
struct Foreign(PathBuf);

impl Foreign {
    fn create(tracefs: &Tracefs, name: &str) -> Foreign {
        let path = tracefs.instances().join(name);
        fs::create_dir(&path).expect("an instance can be made");
        Foreign(path)
    }

    /// All that rtscope could have changed.
    fn state(&self) -> Vec<String> {
        let files =
            ["tracing_on", "set_event", "trace_clock", "trace_options", "set_event_pid", "tracing_cpumask"];
        files.iter().map(|file| fs::read_to_string(self.0.join(file)).expect("readable")).collect()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

fn state_of_the_top(tracefs: &Tracefs) -> Vec<String> {
    let files =
        ["tracing_on", "set_event", "trace_clock", "trace_options", "buffer_size_kb", "set_event_pid"];
    files.iter().map(|file| fs::read_to_string(tracefs.root().join(file)).expect("readable")).collect()
}

// NEEDS: host
#[test]
fn root_two_instances_record_at_once_and_others_are_left_alone() {
    let Some(tracefs) = tracefs() else { return };
    // Its name begins like those of rtscope.
    let foreign = Foreign::create(&tracefs, &format!("rtscope-foreign-{}", std::process::id()));
    fs::write(foreign.0.join("events/sched/sched_switch/enable"), "1").unwrap();
    let (before, top) = (foreign.state(), state_of_the_top(&tracefs));
    let close = names(&["syscalls:sys_enter_close"]);
    let config = InstanceConfig::default();
    let both = [(), ()].map(|()| Instance::create(&tracefs, &config).unwrap());
    for (index, instance) in both.iter().enumerate() {
        assert!(instance.enable(&close).unwrap().is_empty());
        instance.set_filter(&close[0], &format!("fd >= {}", 400_000 + index * 10)).unwrap();
        instance.start().unwrap();
    }
    (0..20).for_each(|number| call(400_000 + number));
    let swept = tracefs.sweep().unwrap();
    assert!(both.iter().all(|instance| !swept.iter().any(|name| instance.path().ends_with(name))));
    let counts = both.each_ref().map(|instance| {
        instance.stop().unwrap();
        let (layout, readers) = (instance.page_layout(), instance.readers().unwrap());
        drain(readers).iter().map(|(_, bytes)| decode(&layout, bytes).events.len()).sum::<usize>()
    });
    assert_eq!(counts, [20, 10]);
    let paths = both.each_ref().map(|instance| instance.path().to_path_buf());
    drop(both);
    assert!(!paths.iter().any(|path| path.exists()));
    assert_eq!((foreign.state(), state_of_the_top(&tracefs)), (before, top));
}

// NEEDS: host
#[test]
fn root_an_instance_whose_owner_cannot_be_seen_is_kept_while_it_holds_its_lock() {
    let Some(tracefs) = tracefs() else { return };
    // As of a process in another PID namespace: no process has this number here.
    let name = format!("rtscope-{}-1-0", 1 << 30);
    let hidden = Foreign::create(&tracefs, &name);
    let lock = locked(&hidden.0.join("tracing_on"));
    assert!(!tracefs.sweep().unwrap().contains(&name));
    assert!(exists(&hidden.0));
    drop(lock);
    assert!(tracefs.sweep().unwrap().contains(&name));
    assert!(!exists(&hidden.0));
}

/// A file with an exclusive lock.
fn locked(path: &Path) -> File {
    use std::os::fd::AsRawFd;
    let file = File::open(path).expect("it can be read");
    // SAFETY: the descriptor belongs to the file, and the call touches no memory of ours.
    assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }, 0);
    file
}

fn exists(path: &Path) -> bool {
    path.join("tracing_on").exists()
}

// NEEDS: host
#[test]
fn root_a_busy_instance_is_switched_off_and_stays_for_later() {
    let Some(tracefs) = tracefs() else { return };
    let instance = Instance::create(&tracefs, &InstanceConfig::default()).unwrap();
    assert!(instance.enable(&names(&["syscalls:sys_enter_close"])).unwrap().is_empty());
    instance.start().unwrap();
    let path = instance.path().to_path_buf();
    let open = File::open(path.join("trace_pipe")).unwrap();
    assert!(matches!(instance.remove(), Err(TracefsError::Busy(_))));
    assert!(exists(&path));
    assert_eq!(fs::read_to_string(path.join("tracing_on")).unwrap().trim(), "0");
    assert_eq!(fs::read_to_string(path.join("set_event")).unwrap().trim(), "");
    drop(open);
    fs::remove_dir(&path).unwrap();
}

/// With this variable the test below is the process that will be killed.
const TO_BE_KILLED: &str = "RTSCOPE_TEST_TO_BE_KILLED";

// NEEDS: host
#[test]
fn root_what_a_killed_process_left_is_swept() {
    let Some(tracefs) = tracefs() else { return };
    if std::env::var_os(TO_BE_KILLED).is_some() {
        let instance = Instance::create(&tracefs, &InstanceConfig::default()).unwrap();
        instance.enable(&tracefs.events().unwrap()).unwrap();
        instance.start().unwrap();
        let readers = instance.readers().unwrap();
        println!("\ninstance: {}", instance.path().display());
        // Until this process is killed.
        let _ = std::io::stdin().read_line(&mut String::new());
        drop(readers);
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", std::thread::current().name().unwrap(), "--nocapture"])
        .env(TO_BE_KILLED, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let path =
        lines.map_while(Result::ok).find_map(|line| Some(line.strip_prefix("instance: ")?.to_string()));
    let path = PathBuf::from(path.expect("the child prints its instance"));
    tracefs.sweep().unwrap();
    assert!(exists(&path), "a living process keeps its instance");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(exists(&path), "nothing cleans up after SIGKILL");
    // But the kernel stops it and frees its buffers, which costs memory and each event time.
    let said = |file: &str| fs::read_to_string(path.join(file)).expect("it is there");
    assert_eq!(said("tracing_on").trim(), "0");
    let kib = said("buffer_total_size_kb");
    assert!(kib.trim().parse::<u64>().expect("a number") < 256, "{kib}");
    let begin = Instant::now();
    let swept = tracefs.sweep().unwrap();
    println!("swept {swept:?} in {:?}", begin.elapsed());
    assert!(swept.iter().any(|name| path.ends_with(name)));
    assert!(!exists(&path));
}

/// A CPU that is switched off, and on again when dropped.
struct Offline(&'static str);

impl Offline {
    const CPU1: &'static str = "/sys/devices/system/cpu/cpu1/online";

    fn cpu1() -> std::io::Result<Offline> {
        fs::write(Offline::CPU1, "0")?;
        Ok(Offline(Offline::CPU1))
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        fs::write(self.0, "1").expect("a CPU can be switched on");
    }
}

// NEEDS: hotplug
#[test]
fn root_a_cpu_that_comes_and_goes_while_recording_is_recorded() {
    let Some(tracefs) = tracefs() else { return };
    let _cpus = Cpus::take().unwrap();
    let offline = match Offline::cpu1() {
        Ok(offline) => offline,
        Err(error) => skip!("CPU 1 cannot be switched off: {error}"),
    };
    let instance = Instance::create(&tracefs, &InstanceConfig::default()).unwrap();
    let events = names(&["sched:sched_switch", "cpuhp:cpuhp_enter"]);
    assert!(instance.enable(&events).unwrap().is_empty());
    let (layout, readers) = (instance.page_layout(), instance.readers().unwrap());
    assert!(readers.iter().any(|reader| reader.cpu() == 1), "all possible CPUs have a reader");
    instance.start().unwrap();
    drop(offline);
    // A thread that may run only there. A sleep whose timer fires before the thread is off the CPU is not a switch, so the kernel's own count says how many there were.
    let switches = std::thread::spawn(|| {
        sched::pin_to_cpu(1).expect("CPU 1 is online");
        (0..100).for_each(|_| std::thread::sleep(Duration::from_micros(500)));
        voluntary_switches()
    })
    .join()
    .unwrap();
    let again = Offline::cpu1().unwrap();
    instance.stop().unwrap();
    let counts: Vec<(u32, u64)> = drain(readers)
        .iter()
        .map(|(cpu, bytes)| (*cpu, decode(&layout, bytes).events.len() as u64))
        .collect();
    let stats = instance.stats().unwrap();
    drop(again);
    println!("events by CPU: {counts:?}, switches of the thread: {switches}");
    assert!(switches > 0, "the thread slept");
    for (cpu, count) in &counts {
        let stats = stats.iter().find(|stats| stats.cpu == *cpu).unwrap();
        assert_eq!((stats.read, stats.entries, stats.lost()), (Some(*count), Some(0), Some(0)), "{stats:?}");
    }
    // Each switch is a pair of events, off and on. Some hosts hide switches from every tracer, at most half of them.
    assert!(
        counts.iter().any(|(cpu, count)| *cpu == 1 && *count >= switches),
        "{counts:?}, {switches} switches"
    );
}

/// How often the calling thread has given up its CPU, by the scheduler's count (getrusage(2)).
fn voluntary_switches() -> u64 {
    // SAFETY: plain numbers; all zero is a value of the type.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure lives here, and is the kernel's to write.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
    u64::try_from(usage.ru_nvcsw).expect("a count is not negative")
}
