// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope hardware capture` and `watch --hardware`, on the real kernel's AUX areas: the unit is a test-only module (aux_replay.c),
//! whose bytes are those that our encoder makes and a process writes. So what comes out can be compared with what went in.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod comparators;

use crate::command::{SmallDisk, rtscope};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rtscope_hardware::pt::{Ip, IpBytes, Packet};
use rtscope_programs::clock::{Pair, counter_kind};
use rtscope_testkit::hardware::{beginning, full, packets, taken};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::module::{self, Module};
use rtscope_testkit::process::{Workload, wait_until};
use rtscope_testkit::skip;
use rtscope_testkit::watch::{Rtscope, WatchOutput};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

/// The CPU whose unit emits.
const CPU: usize = 1;

/// The unit, under the name of the one that it stands for.
fn unit() -> Option<Module> {
    module::load_with("aux_replay", &["name=intel_pt"])
}

/// What the unit of a CPU counted itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    emitted: u64,
    stored: u64,
    refused: u64,
    unheard: u64,
    starts: u64,
}

impl Counted {
    fn now() -> Counted {
        let mut text = String::new();
        File::open("/dev/rtscope_aux_replay").unwrap().read_to_string(&mut text).unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("cpu {CPU} "))).unwrap();
        let number = |name: &str| {
            let mut words = line.split(' ').skip_while(|word| *word != name);
            words.nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{name}: {line}"))
        };
        Counted {
            emitted: number("emitted"),
            stored: number("stored"),
            refused: number("refused"),
            unheard: number("unheard"),
            starts: number("starts"),
        }
    }
}

/// Lets the unit of this test's CPU emit bytes, one write at a time.
fn emit(bytes: &[u8]) {
    pin();
    let mut device = OpenOptions::new().write(true).open("/dev/rtscope_aux_replay").unwrap();
    device.write_all(bytes).unwrap();
}

/// To the CPU whose unit emits.
fn pin() {
    let mut set = CpuSet::new();
    set.set(CPU).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).expect("guests have two CPUs");
}

fn counter() -> u64 {
    Pair::now(counter_kind()).counter
}

/// A value that a program wrote into the trace.
fn value(number: u32) -> Packet {
    Packet::Ptw { payload: number.into(), wide: false, ip: false }
}

/// A capture that runs.
struct Capture {
    rtscope: Rtscope,
    directory: PathBuf,
    _folder: TempDir,
}

impl Capture {
    /// Returns when the units are on.
    fn start(arguments: &[&str]) -> Capture {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("capture");
        let mut command = rtscope();
        command.args(["hardware", "capture", "intel_pt", "--json", "--duration", "120s", "-o"]);
        command.arg(&directory).args(arguments);
        let mut rtscope = Rtscope::start(command).unwrap();
        rtscope.wait_for_note("capturing intel_pt on ").unwrap();
        Capture { rtscope, directory, _folder: folder }
    }

    /// Ends it; gives what it says, and what was saved.
    fn stop(self) -> (Value, PathBuf, TempDir) {
        let WatchOutput { lines, notes, status } = self.rtscope.stop().unwrap();
        assert!(status.is_some_and(|status| status.success()), "{notes:?}");
        let info = lines.into_iter().next().expect("it prints one object");
        assert_eq!(info["schema"], "rtscope.hardware.capture/1");
        let saved = fs::read_to_string(self.directory.join("capture.json")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&saved).unwrap(), info);
        (info, self.directory, self._folder)
    }
}

fn of_cpu(info: &Value, cpu: usize) -> &Value {
    info["cpus"].as_array().unwrap().iter().find(|of| of["cpu"] == cpu).unwrap()
}

fn decode(capture: &Path, arguments: &[&str]) -> Output {
    rtscope().args(["hardware", "decode"]).arg(capture).args(arguments).output().unwrap()
}

fn decoded(capture: &Path) -> Value {
    let output = decode(capture, &["--json"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

/// What was found of the emitting CPU.
fn stream(report: &Value) -> &Value {
    let streams = report["streams"].as_array().unwrap();
    streams.iter().find(|stream| stream["name"] == format!("CPU {CPU}")).unwrap_or_else(|| panic!("{report}"))
}

/// Packets by kind.
fn counts(stream: &Value) -> BTreeMap<String, u64> {
    let kinds = stream["packets"].as_array().unwrap().iter();
    kinds.map(|kind| (kind["name"].as_str().unwrap().to_owned(), kind["count"].as_u64().unwrap())).collect()
}

/// The values in a capture, in order.
fn values(capture: &Path) -> Vec<u32> {
    let output = decode(capture, &["--packets"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let number = |line: &str| u32::from_str_radix(line.split_once("ptw ")?.1, 16).ok();
    text.lines().filter_map(number).collect()
}

/// A synchronisation with a time, and values: some 4 KiB.
fn block(from: u32) -> Vec<u8> {
    let mut stream = beginning(counter());
    stream.extend((from..from + VALUES).map(value));
    packets(&stream)
}

/// Values of a block.
const VALUES: u32 = 680;

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_a_capture_has_each_byte_that_the_unit_wrote() {
    let Some(_unit) = unit() else { return };
    let capture = Capture::start(&[]);
    let (mut emitted, mut expected) = (0, BTreeMap::new());
    for round in 0..200_u32 {
        let mut stream = beginning(counter());
        stream.push(Packet::TipPge(full(0x40_1000)));
        stream.extend((0..1000).map(|_| taken()));
        stream.push(value(round));
        stream.push(Packet::TipPgd(Ip { bytes: IpBytes::Suppressed, payload: 0 }));
        for (kind, count) in [
            ("psb", 1),
            ("tsc", 1),
            ("psbend", 1),
            ("tip.pge", 1),
            ("ptw", 1),
            ("tip.pgd", 1),
            ("tnt.8", 1000),
        ] {
            *expected.entry(kind).or_insert(0) += count;
        }
        let bytes = packets(&stream);
        emitted += bytes.len() as u64;
        emit(&bytes);
    }
    let (info, directory, _folder) = capture.stop();
    let counted = Counted::now();
    assert_eq!((counted.emitted, counted.stored), (emitted, emitted), "{counted:?}");
    let cpu = of_cpu(&info, CPU);
    assert_eq!(cpu["aux_bytes"], emitted);
    for cause in ["truncated", "partial", "collisions", "lost_records"] {
        assert_eq!(cpu[cause], 0, "{info}");
    }
    let report = decoded(&directory);
    let stream = stream(&report);
    let found = counts(stream);
    for (kind, count) in expected {
        assert_eq!(found.get(kind), Some(&count), "{kind}: {found:?}");
    }
    assert_eq!(stream["lost"].as_array().map(Vec::len), Some(0), "{stream}");
    assert_eq!(report["recorder_losses"], 0, "{report}");
    assert_eq!(values(&directory), (0..200).collect::<Vec<_>>());
}

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_a_full_buffer_is_a_loss_that_is_counted_and_the_unit_goes_on() {
    /// A write is as large as the buffer, of which the kernel leaves a byte free.
    const BUFFER: usize = 64 << 10;
    let Some(_unit) = unit() else { return };
    let capture = Capture::start(&["--buffer", "64K"]);
    let many: Vec<u8> = (0..32).flat_map(|index| block(index * VALUES)).collect();
    assert!(many.len() > BUFFER);
    for _ in 0..3 {
        // The kernel disables the event, and the capture enables it once it has taken what there is.
        let before = Counted::now();
        emit(&many[..BUFFER]);
        assert!(Counted::now().refused > before.refused, "the kernel leaves a byte free");
        wait_until("the unit is on again", || Counted::now().starts > before.starts);
    }
    let last = block(1_000_000);
    emit(&last);
    let (info, directory, _folder) = capture.stop();
    let (counted, cpu) = (Counted::now(), of_cpu(&info, CPU));
    assert_eq!(cpu["aux_bytes"], counted.stored, "{counted:?}");
    assert_eq!(cpu["truncated"], 3, "{info}");
    let report = decoded(&directory);
    assert_eq!(report["recorder_losses"], 3, "{report}");
    // What was cut off by the loss is not taken for a packet, and what came after it is there.
    let values = values(&directory);
    assert!(values.ends_with(&(1_000_000..1_000_000 + VALUES).collect::<Vec<_>>()), "{:?}", values.last());
    let notes = decode(&directory, &["--fail-if-lost"]);
    assert_eq!(notes.status.code(), Some(6));
    assert!(String::from_utf8_lossy(&notes.stderr).contains("--buffer"), "{notes:?}");
}

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_a_full_disk_ends_a_capture_and_what_was_written_is_decoded() {
    let Some(_unit) = unit() else { return };
    let Some(disk) = SmallDisk::new("size=256k") else { skip!("a small disk cannot be mounted here") };
    let directory = disk.path().join("capture");
    let mut command = rtscope();
    command.args(["hardware", "capture", "intel_pt", "--duration", "120s", "-o"]).arg(&directory);
    let mut rtscope = Rtscope::start(command).unwrap();
    rtscope.wait_for_note("capturing intel_pt on ").unwrap();
    // Twice as much as there is room for, and less than the buffer in memory has.
    (0..128).for_each(|index| emit(&block(index * VALUES)));
    let said = rtscope.finish().unwrap();
    assert_eq!(said.code(), Some(1), "{:?}", said.notes);
    assert!(said.noted("No space left"), "{:?}", said.notes);
    let values = values(&directory);
    assert!(values.len() > 10 * VALUES as usize, "{}", values.len());
    assert_eq!(values, (0..u32::try_from(values.len()).unwrap()).collect::<Vec<_>>());
    let said = fs::read_to_string(directory.join("capture.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["complete"], false, "{said}");
    // What could not be written is a loss, and not silence.
    assert_eq!(decode(&directory, &["--fail-if-lost"]).status.code(), Some(6));
    // Nothing of rtscope is left that uses it.
    disk.unmount();
}

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_a_killed_capture_is_recovered() {
    let Some(_unit) = unit() else { return };
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("capture");
    let captured = |arguments: &[&str]| {
        let output =
            rtscope().args(["hardware", "capture"]).args(arguments).arg(&directory).output().unwrap();
        (output.status.code(), text_of(&output.stdout), text_of(&output.stderr))
    };
    let (code, _, said) = captured(&["--recover"]);
    assert_eq!((code, said.contains("no capture that was killed")), (Some(2), true), "{said}");
    let mut command = rtscope();
    command.args(["hardware", "capture", "intel_pt", "--duration", "120s", "-o"]).arg(&directory);
    let mut rtscope = Rtscope::start(command).unwrap();
    rtscope.wait_for_note("capturing intel_pt on ").unwrap();
    emit(&block(0));
    let written = || -> u64 {
        let hidden = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        hidden.filter_map(|path| fs::metadata(path.join("perf.data")).ok()).map(|status| status.len()).sum()
    };
    wait_until("it is written", || written() > block(0).len() as u64);
    let (code, _, said) = captured(&["--recover"]);
    assert_eq!((code, said.contains("is going on")), (Some(2), true), "{said}");
    rtscope.signal(Signal::SIGKILL).unwrap();
    rtscope.finish().unwrap();
    // The next one of this name does not pass over it.
    let (code, _, said) = captured(&["intel_pt", "--duration", "1s", "-o"]);
    assert_eq!((code, said.contains("--recover")), (Some(2), true), "{said}");
    // A description that nobody can read keeps nothing from anybody for good.
    let hidden = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let description = fs::read(hidden.join("capture.json")).unwrap();
    fs::write(hidden.join("capture.json"), b"{").unwrap();
    let (code, _, said) = captured(&["--recover"]);
    let way = format!("rtscope hardware decode {}/perf.data", hidden.display());
    assert_eq!((code, said.contains(&way)), (Some(5), true), "{said}");
    fs::write(hidden.join("capture.json"), description).unwrap();
    let (code, said, notes) = captured(&["--json", "--recover"]);
    assert_eq!(code, Some(0), "{notes}");
    let info: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&info["complete"], &info["clock"]["drift_ns"]),
        (&Value::Bool(false), &Value::Null),
        "{info}"
    );
    // What is not 8 bytes yet is written with what follows.
    let values = values(&directory);
    assert!(values.len() + 1 >= VALUES as usize, "{}", values.len());
    assert_eq!(values, (0..u32::try_from(values.len()).unwrap()).collect::<Vec<_>>());
    assert_eq!(decode(&directory, &["--fail-if-lost"]).status.code(), Some(6));
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["capture"]);
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_a_snapshot_has_the_newest_that_the_unit_wrote() {
    const BUFFER: u64 = 64 << 10;
    let Some(_unit) = unit() else { return };
    for blocks in [3, 50] {
        let before = Counted::now();
        let capture = Capture::start(&["--snapshot", "--buffer", "64K"]);
        (0..blocks).for_each(|index| emit(&block(index * VALUES)));
        let (info, directory, _folder) = capture.stop();
        let counted = Counted::now();
        let (stored, refused) = (counted.stored - before.stored, counted.refused - before.refused);
        assert_eq!(refused, 0, "a circle takes all");
        assert_eq!(of_cpu(&info, CPU)["aux_bytes"], stored.min(BUFFER), "{info}");
        assert!(info["frozen"]["frozen_ns"].as_u64() > Some(0), "{info}");
        let values = values(&directory);
        // Without a gap up to the last one, and as many as the circle holds behind its first synchronisation.
        let (first, last) = (values[0], values[values.len() - 1]);
        assert_eq!(last, blocks * VALUES - 1);
        assert_eq!(values, (first..=last).collect::<Vec<_>>());
        let least = if blocks == 3 { blocks * VALUES } else { 14 * VALUES };
        assert!(last + 1 - first >= least, "{first} to {last}");
        assert!((first == 0) == (blocks == 3), "{first}");
    }
}

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_a_command_is_captured_and_nobody_else() {
    let Some(_unit) = unit() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (directory, stream) = (folder.path().join("capture"), folder.path().join("stream"));
    fs::write(&stream, block(7)).unwrap();
    // The shell executes a program before it writes, so the unit has been switched on.
    let script = format!("exec sh -c 'cat {} > /dev/rtscope_aux_replay'", stream.display());
    let mut command = rtscope();
    command.args(["hardware", "capture", "intel_pt", "--json", "-o"]);
    command.arg(&directory).args(["--", "sh", "-c", &script]);
    let output = Rtscope::start(command).unwrap().finish().unwrap();
    assert!(output.status.is_some_and(|status| status.success()), "{:?}", output.notes);
    assert_eq!(values(&directory), (7..7 + VALUES).collect::<Vec<_>>());
    // Whoever else emits while such a capture runs is not in it.
    let other = folder.path().join("other");
    let mut command = rtscope();
    command.args(["hardware", "capture", "intel_pt", "--json", "-o"]).arg(&other);
    command.args(["--", "sleep", "1000"]);
    let mut capture = Rtscope::start(command).unwrap();
    capture.wait_for_note("capturing intel_pt on ").unwrap();
    let before = Counted::now();
    emit(&block(7));
    let counted = Counted::now();
    assert_eq!(counted.unheard - before.unheard, counted.emitted - before.emitted);
    capture.stop().unwrap();
    assert!(values(&other).is_empty());
}

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_events_of_a_capture_are_on_clock_monotonic_and_their_thread() {
    let Some(_unit) = unit() else { return };
    let capture = Capture::start(&[]);
    // What is read before is a time at which another thread had that CPU.
    pin();
    let before = monotonic();
    let mut stream = beginning(counter());
    stream.extend([Packet::TipPge(full(0x40_1000)), Packet::Tsc { ticks: counter() }, value(42)]);
    emit(&packets(&stream));
    let after = monotonic();
    let (info, directory, folder) = capture.stop();
    if info["clock"].is_null() {
        rtscope_testkit::skip::say("the kernel of this guest does not tell how its counter becomes time");
        return;
    }
    let trace = folder.path().join("trace");
    let output = decode(&directory, &["-o", trace.to_str().unwrap(), "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for end in ["first_ns", "last_ns"] {
        let time_ns = report["trace"][end].as_u64().unwrap_or_else(|| panic!("{report}"));
        // The counter is read before the bytes are emitted.
        assert!((before..=after).contains(&time_ns), "{end}: {before} {time_ns} {after}");
    }
    let printed = rtscope().arg("print").arg(&trace).args(["--format", "json"]).output().unwrap();
    let text = String::from_utf8_lossy(&printed.stdout);
    let line = text.lines().find(|line| line.contains("hardware:write"));
    let event: Value = serde_json::from_str(line.unwrap_or_else(|| panic!("{printed:?}"))).unwrap();
    assert_eq!(event["fields"]["value"], 42, "{event}");
    assert_eq!(event["tid"], nix::unistd::gettid().as_raw(), "{event}");
    assert_eq!(event["pid"], std::process::id(), "{event}");
}

/// A program that emits a value each millisecond, and notes when.
struct Emitter {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u64>>,
}

impl Emitter {
    fn start() -> Emitter {
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut times = Vec::new();
            // ORDER: relaxed; a flag that stands for itself.
            while !theirs.load(Ordering::Relaxed) {
                let mut stream = beginning(counter());
                stream.push(value(times.len().try_into().unwrap()));
                // Before: what has this time or a later one was not emitted earlier.
                times.push(monotonic());
                emit(&packets(&stream));
                std::thread::sleep(Duration::from_millis(1));
            }
            times
        });
        Emitter { stop, thread }
    }

    /// When each value was about to be emitted.
    fn stop(self) -> Vec<u64> {
        // ORDER: relaxed; as above.
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn monotonic() -> u64 {
    Pair::now(counter_kind()).monotonic_ns
}

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_what_the_unit_wrote_before_a_late_response_is_saved_with_it() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let Some(_unit) = unit() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let emitter = Emitter::start();
    let mut watch = Rtscope::watch(&[
        "--task",
        "e2e-capture",
        "--threshold",
        "50us",
        "--snapshot-dir",
        path,
        "--hardware",
        "intel_pt",
        "--hardware-buffer",
        "64K",
        "--pre",
        "50ms",
        "--post",
        "20ms",
    ])
    .unwrap();
    let victim = Workload::start(
        "rtscope-victim",
        ["--name", "e2e-capture", "--period", "40ms", "--deadline", "50us"],
    );
    let victim = victim.unwrap();
    (0..2).for_each(|_| drop(watch.wait_for_type("snapshot").unwrap()));
    drop(victim);
    let output = watch.stop().unwrap();
    let times = emitter.stop();
    assert!(output.noted("intel_pt traces 2 CPUs"), "{:?}", output.notes);
    let mut snapshots: Vec<PathBuf> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    snapshots.sort();
    assert!(snapshots.len() >= 2);
    for snapshot in &snapshots {
        let directory = snapshot.join("hardware");
        let info = fs::read_to_string(directory.join("capture.json")).unwrap();
        let info: Value = serde_json::from_str(&info).unwrap();
        let at = |key: &str| info["frozen"][key].as_u64().unwrap();
        let (detected_ns, frozen_ns) = (at("detected_ns"), at("frozen_ns"));
        println!("frozen {} us after the detection", (frozen_ns - detected_ns) / 1000);
        let values = values(&directory);
        let emitted_at = |value: &u32| times[*value as usize];
        let (first, last) = (values.first().unwrap(), values.last().unwrap());
        assert!(emitted_at(first) < detected_ns, "something is from before it was late");
        assert!(emitted_at(last) < frozen_ns, "nothing is from after it was frozen");
        // And it was not frozen before it was late: at most, two values were under way.
        let next = times.get(*last as usize + 2);
        assert!(next.is_none_or(|next_ns| *next_ns > detected_ns), "{last} of {}: {info}", times.len());
        assert!(values.is_sorted(), "{values:?}");
        let explained = rtscope().arg("explain").arg(snapshot).output().unwrap();
        assert!(explained.status.success(), "{explained:?}");
    }
    let frozen = snapshots.iter().map(|snapshot| values(&snapshot.join("hardware"))).collect::<Vec<_>>();
    assert!(frozen[1].last() > frozen[0].last(), "the units went on");
}

// NEEDS: one kernel, module aux_replay
#[test]
fn root_vm_a_full_disk_loses_a_snapshot_with_its_capture_and_the_unit_goes_on() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let Some(_unit) = unit() else { return };
    let Some(disk) = SmallDisk::new("size=600k") else { skip!("a small disk cannot be mounted here") };
    let emitter = Emitter::start();
    let arguments = ["--task", "e2e-capture", "--threshold", "50us", "--pre", "50ms", "--post", "20ms"];
    let hardware = ["--hardware", "intel_pt", "--hardware-buffer", "64K", "--snapshot-dir"];
    let path = disk.path().to_str().unwrap();
    let mut watch = Rtscope::watch(&[&arguments[..], &hardware, &[path]].concat()).unwrap();
    let periods = ["--name", "e2e-capture", "--period", "40ms", "--deadline", "50us"];
    let victim = Workload::start("rtscope-victim", periods).unwrap();
    let lost = watch.wait_for_type("snapshot_lost").expect("600 KiB are soon full");
    assert!(lost["why"].as_str().is_some_and(|why| why.contains("No space left")), "{lost}");
    let snapshots = || fs::read_dir(disk.path()).unwrap().map(|entry| entry.unwrap().path());
    let before: Vec<PathBuf> = snapshots().collect();
    assert!(before.iter().all(|path| path.join("hardware/capture.json").exists()), "{before:?}");
    disk.resize("size=64m");
    let is_saved = |line: &Value| line["type"] == "snapshot" && line["path"].is_string();
    let saved = watch.wait_for("a snapshot that is saved", is_saved).unwrap();
    drop(victim);
    let output = watch.stop().unwrap();
    emitter.stop();
    assert_eq!(output.code(), Some(1), "what was asked for is missing: {:?}", output.notes);
    let saved = PathBuf::from(saved["path"].as_str().unwrap());
    assert!(!before.contains(&saved) && !values(&saved.join("hardware")).is_empty(), "{saved:?}");
}
