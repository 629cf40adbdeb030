// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events that go to channels of an STM (ADR 0031): in guests, into a device whose channels are memory (testkit/modules/stm_memory.c), read back as a
//! stream of STP and decoded. What comes out has to be what the same program leaves in its rings, event by event.

use super::fixture::Fixture;
use crate::command::{root, rtscope};
use rtscope_hardware::stp::{Packet, Payload};
use rtscope_testkit::process::program;
use rtscope_testkit::skip;
use rtscope_testkit::stm::{DEVICE, StmMemory};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Where all events go.
const STM: &str = "stm:user,ports=coresight";

pub(super) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A recording of a program, and what came out of the device.
struct Recording {
    directory: tempfile::TempDir,
    /// What the recorder says of the programs' trace.
    account: Value,
    said: String,
    packets: Vec<Packet>,
    emitted: u64,
}

impl Recording {
    /// `backend`: of `record`; empty: none.
    fn of(stm: &StmMemory, backend: &[&str], command: &[&str]) -> Recording {
        let directory = tempfile::tempdir().expect("a directory");
        stm.clear();
        let mut recorder = rtscope();
        recorder.args(["record", "--json", "--fail-if-lost=100%", "-u", "test:*", "-o"]);
        recorder.arg(directory.path().join("trace"));
        backend.iter().for_each(|backend| {
            recorder.args(["--backend", backend]);
        });
        let output = recorder.arg("--").args(command).output().expect("it can be started");
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        fs::write(directory.path().join("stream"), stm.stream()).expect("ours");
        let mut json = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let account = json.next_back().expect("it prints one object");
        let counts = said.lines().filter_map(|line| line.strip_prefix("emitted ")?.parse::<u64>().ok());
        let (emitted, packets) = (counts.sum(), stm.packets());
        Recording { directory, account, said, packets, emitted }
    }

    /// The events of what came out of the device, and what the decoder says.
    fn decoded(&self) -> (Vec<String>, Value) {
        let target = self.directory.path().join("decoded");
        let output = rtscope()
            .args(["hardware", "decode", "--unit", "stp", "--json", "--fail-if-lost", "-o"])
            .arg(&target)
            .arg("--programs")
            .arg(self.directory.path().join("trace"))
            .arg(self.directory.path().join("stream"))
            .output();
        let output = output.expect("it can be started");
        assert!(output.status.success(), "{}", text(&output));
        let report = serde_json::from_slice(&output.stdout).expect("it prints one object");
        (printed(&target), report)
    }

    /// The events of the recording's own trace.
    fn recorded(&self) -> Vec<String> {
        printed(&self.directory.path().join("trace"))
    }

    fn lost(&self) -> u64 {
        crate::command::lost(&self.account)
    }
}

/// Each event's name and fields, without its time, its thread and its CPU.
pub(super) fn printed(trace: &Path) -> Vec<String> {
    let output = rtscope().arg("print").arg(trace).output().expect("it can be started");
    assert!(output.status.success(), "{}", text(&output));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let event = |line: &str| line.find(" test:").map(|at| line[at + 1..].to_string());
    let events: Vec<String> = lines.lines().filter_map(event).collect();
    assert_eq!(events.len(), lines.lines().count(), "{lines}");
    events
}

pub(super) fn sorted(mut events: Vec<String>) -> Vec<String> {
    events.sort();
    events
}

/// The events of each thread are in the order in which they were emitted.
fn assert_in_order(events: &[String]) {
    let mut next: BTreeMap<(String, String), u64> = BTreeMap::new();
    for event in events {
        let field = |name: &str| {
            let rest = event.split_once(name).unwrap_or_else(|| panic!("{name}: {event}")).1;
            rest.split([',', ' ']).next().unwrap_or_default().to_string()
        };
        let name = event.split(' ').next().unwrap_or_default().to_string();
        let number: u64 = field("number = ").parse().expect("a number");
        let expected = next.entry((name, field("thread = "))).or_default();
        assert_eq!(number, *expected, "{event}");
        *expected += 1;
    }
}

/// Of the events of this name there is one of each number. Returns how many there are.
fn assert_each_number_once(events: &[String], name: &str) -> usize {
    let of_name = events.iter().filter(|event| event.split(':').nth(1) == name.split(':').nth(1));
    let number = |event: &String| {
        let rest = event.split_once("number = ").unwrap_or_else(|| panic!("{event}")).1;
        rest.split([',', ' ']).next().and_then(|number| number.parse::<usize>().ok()).expect("a number")
    };
    let mut numbers: Vec<usize> = of_name.map(number).collect();
    numbers.sort_unstable();
    let wrong = numbers.iter().enumerate().find(|(place, number)| place != *number);
    assert_eq!(wrong, None, "{name}: the first that is missing, or there twice");
    numbers.len()
}

/// The channels of each process: its number is in what its threads say of themselves (struct rtu_who).
fn channels_of(packets: &[Packet]) -> BTreeMap<u32, BTreeSet<(u16, u16)>> {
    const WHO: u64 = 0xfffd;
    const PID: usize = 5;
    let mut open: BTreeMap<(u16, u16), (bool, usize)> = BTreeMap::new();
    let mut channels: BTreeMap<u32, BTreeSet<(u16, u16)>> = BTreeMap::new();
    for packet in packets {
        let Payload::Data { value, marked, .. } = packet.payload else { continue };
        let place = (packet.master, packet.channel);
        let (is_who, words) = open.entry(place).or_default();
        if marked {
            (*is_who, *words) = (value & 0xffff == WHO, 0);
        }
        if *is_who && *words == PID {
            channels.entry(value as u32).or_default().insert(place);
        }
        *words += 1;
    }
    channels
}

/// The device, and the program.
fn device() -> Option<(StmMemory, String)> {
    let mut stm = StmMemory::load()?;
    stm.node("user", (16, 19), (32, 63));
    stm.node("few", (20, 20), (0, 15));
    let emitter = program("rtscope-channels").expect("it is built").display().to_string();
    Some((stm, emitter))
}

// NEEDS: verifier, module stm_core, module stm_p_basic, module stm_memory
#[test]
fn root_vm_events_through_an_stm_are_those_of_the_ring() {
    let Some((stm, emitter)) = device() else { return };
    for what in
        [&["1", "100"][..], &["20", "60"], &["3", "20", "fork"], &["1", "70", "rust"], &["1", "40", "faults"]]
    {
        let command = [&[emitter.as_str()], what].concat();
        let (channel, ring) = (Recording::of(&stm, &[STM], &command), Recording::of(&stm, &[], &command));
        let (decoded, report) = channel.decoded();
        assert_eq!(
            (channel.lost(), decoded.len() as u64),
            (0, channel.emitted),
            "{what:?}: {}",
            channel.said
        );
        assert_eq!((ring.lost(), ring.packets.len()), (0, 0), "{what:?}");
        assert!(channel.recorded().is_empty(), "{what:?}");
        if what.len() == 2 {
            assert_in_order(&decoded);
        }
        assert_eq!(sorted(decoded), sorted(ring.recorded()), "{what:?}");
        let losses = &report["trace"]["losses"];
        assert_eq!((losses, report["notes"].as_array().map(Vec::len)), (&0.into(), Some(0)), "{report}");
    }
    assert_eq!((stm.count("refused"), stm.count("lost")), (0, 0));
}

// NEEDS: verifier, module stm_core, module stm_p_basic, module stm_memory
#[test]
fn root_vm_two_programs_at_once_have_their_own_channels_of_an_stm() {
    let Some((stm, emitter)) = device() else { return };
    let script = format!("{emitter} 3 200 & {emitter} 2 300; wait");
    let recording = Recording::of(&stm, &[STM], &["sh", "-c", &script]);
    let channels: Vec<BTreeSet<(u16, u16)>> = channels_of(&recording.packets).into_values().collect();
    let sizes: BTreeSet<usize> = channels.iter().map(BTreeSet::len).collect();
    assert_eq!(sizes, BTreeSet::from([2, 3]), "{channels:?}");
    assert!(channels[0].is_disjoint(&channels[1]), "{channels:?}");
    let (decoded, _) = recording.decoded();
    assert_eq!((decoded.len() as u64, recording.emitted), (2400, 2400));
    for thread in 0..3 {
        let count = if thread == 2 { 200 } else { 500 };
        let of_thread = |event: &&String| event.contains(&format!("tick: {{ thread = {thread},"));
        assert_eq!(decoded.iter().filter(of_thread).count(), count, "{thread}");
    }
}

/// Also in the middle of a message, whose words are then on both sides of the handler's.
// NEEDS: verifier, module stm_core, module stm_p_basic, module stm_memory
#[test]
fn root_vm_a_handlers_events_within_those_that_it_interrupts_come_through_an_stm() {
    let Some((stm, emitter)) = device() else { return };
    let recording = Recording::of(&stm, &[STM], &[&emitter, "1", "2000", "timer"]);
    let (decoded, _) = recording.decoded();
    assert_eq!((stm.count("refused"), stm.count("lost")), (0, 0), "of the device");
    assert_eq!((decoded.len() as u64, recording.lost()), (recording.emitted, 0), "{}", recording.said);
    // Each with what it had to say.
    for name in ["test:many", "test:tick", "test:inner"] {
        let count = assert_each_number_once(&decoded, name);
        assert!(name == "test:inner" || count == 2000, "{name}: {count}");
    }
    let mut open = 0;
    let within = recording.packets.iter().filter(|packet| match packet.payload {
        Payload::Data { marked: true, .. } => {
            open += 1;
            open > 1
        }
        Payload::Flag => {
            open -= 1;
            false
        }
        _ => false,
    });
    assert!(within.count() > 0, "no handler came into a message");
}

/// One handler comes when its event would have the level of the other, another one, of the same stack pointer, while that is copied; and one where the thread
/// has just said who it is, and the handler says it once more.
// NEEDS: verifier, module stm_core, module stm_p_basic, module stm_memory
#[test]
fn root_vm_two_handlers_in_one_event_leave_it_whole_on_its_way_to_an_stm() {
    let Some((stm, _)) = device() else { return };
    let program = program("rtscope-overtaken").expect("it is built").display().to_string();
    let recording = Recording::of(&stm, &[STM], &[&program, "0"]);
    let (decoded, _) = recording.decoded();
    assert_eq!(assert_each_number_once(&decoded, "test:outer"), 200, "{}", recording.said);
    // Two in each event, and one more wherever it has said who it is.
    let inner = assert_each_number_once(&decoded, "test:inner");
    assert!(inner > 400, "{inner}");
    assert_eq!((200 + inner as u64, recording.lost()), (recording.emitted, 0), "{}", recording.said);
}

// NEEDS: verifier, module stm_core, module stm_p_basic, module stm_memory
#[test]
fn root_vm_a_choice_for_each_event_sends_some_to_an_stm() {
    let Some((stm, emitter)) = device() else { return };
    let backends = [STM, "test:tick=software"];
    let recording = Recording::of(&stm, &backends, &[&emitter, "3", "40"]);
    let (decoded, _) = recording.decoded();
    let recorded = recording.recorded();
    assert_eq!((decoded.len(), recorded.len()), (120, 120), "{}", recording.said);
    assert!(decoded.iter().all(|event| event.starts_with("test:many")), "{decoded:?}");
    assert!(recorded.iter().all(|event| event.starts_with("test:tick")), "{recorded:?}");
}

// NEEDS: verifier, module stm_core, module stm_p_basic, module stm_memory
#[test]
fn root_vm_threads_without_a_channel_lose_their_events_with_the_reason_or_use_their_ring() {
    let Some((mut stm, emitter)) = device() else { return };
    // Sixteen channels: one is the main thread's.
    let few = "stm:few,ports=coresight";
    let recording = Recording::of(&stm, &[few], &[&emitter, "20", "5"]);
    let (decoded, _) = recording.decoded();
    assert_eq!((decoded.len(), recording.lost()), (150, 50), "{}", recording.said);
    assert!(
        recording.said.contains(
            "50 events were lost of threads without a channel: the channels of the policy are taken"
        )
    );
    let recording = Recording::of(&stm, &[&format!("{few},or-software")], &[&emitter, "20", "5"]);
    let (decoded, _) = recording.decoded();
    assert_eq!(
        (decoded.len(), recording.recorded().len(), recording.lost()),
        (150, 50, 0),
        "{}",
        recording.said
    );
    // Fewer than a mapping has: nobody gets any.
    stm.node("scraps", (21, 21), (0, 7));
    let recording = Recording::of(&stm, &["stm:scraps,ports=coresight"], &[&emitter, "1", "5"]);
    assert_eq!((recording.packets.len(), recording.lost()), (0, 10), "{}", recording.said);
    assert!(recording.said.contains("it has fewer together than a mapping needs"), "{}", recording.said);
    // A user who may not open the device.
    let script = format!("su nobody -s /bin/sh -c '{emitter} 2 5'");
    if Command::new("su")
        .args(["nobody", "-s", "/bin/sh", "-c", "true"])
        .status()
        .is_ok_and(|done| done.success())
    {
        let recording = Recording::of(&stm, &[STM], &["sh", "-c", &script]);
        assert_eq!((recording.packets.len(), recording.lost()), (0, 20), "{}", recording.said);
        assert!(recording.said.contains("the program may not open the device"), "{}", recording.said);
    } else {
        skip::say("su has no user nobody here: that a program may not open the device is not tested");
    }
    // The device goes away under the recorder's eyes: it is there when the recording begins, and not when the program looks.
    let node = format!("/dev/{DEVICE}");
    let script = format!("mv {node} {node}.gone; {emitter} 1 5; mv {node}.gone {node}");
    let recording = Recording::of(&stm, &[STM], &["sh", "-c", &script]);
    assert_eq!((recording.packets.len(), recording.lost()), (0, 10), "{}", recording.said);
    assert!(recording.said.contains("the device is not there"), "{}", recording.said);
}

/// The user nobody, who has no rights, or the one to open all files.
fn as_nobody(command: &mut Command, may_open_all: bool) -> &mut Command {
    const NOBODY: u32 = 65534;
    const DAC_OVERRIDE: libc::c_ulong = 1;
    let become_nobody = move || {
        let bits = if may_open_all { 1_u32 << DAC_OVERRIDE } else { 0 };
        // _LINUX_CAPABILITY_VERSION_3; effective, permitted, inheritable, twice.
        let (header, sets) = ([0x2008_0522_u32, 0], [bits, bits, bits, 0, 0, 0]);
        // SAFETY: they read what lives for them, and change this process, which has one thread.
        let call = |number, a: libc::c_ulong, b: libc::c_ulong, c: libc::c_ulong| unsafe {
            libc::syscall(number, a, b, c, 0, 0)
        };
        let nobody = libc::c_ulong::from(NOBODY);
        let raises = libc::PR_CAP_AMBIENT_RAISE as libc::c_ulong;
        let results = [
            call(libc::SYS_prctl, libc::PR_SET_KEEPCAPS as libc::c_ulong, 1, 0),
            call(libc::SYS_setgroups, 0, 0, 0),
            call(libc::SYS_setresgid, nobody, nobody, nobody),
            call(libc::SYS_setresuid, nobody, nobody, nobody),
            call(libc::SYS_capset, header.as_ptr() as libc::c_ulong, sets.as_ptr() as libc::c_ulong, 0),
            match may_open_all {
                true => call(libc::SYS_prctl, libc::PR_CAP_AMBIENT as libc::c_ulong, raises, DAC_OVERRIDE),
                false => 0,
            },
        ];
        if results == [0; 6] { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec it makes system calls, and allocates nothing.
    unsafe { command.pre_exec(become_nobody) }
}

/// A recorder of that user names the device, which he may open: for a program of his that may open more he names none. Root does.
// NEEDS: verifier, module stm_core, module stm_p_basic, module stm_memory
#[test]
fn root_vm_a_program_that_may_do_more_than_its_user_opens_no_device_for_him() {
    let Some((stm, emitter)) = device() else { return };
    fs::set_permissions(format!("/dev/{DEVICE}"), Permissions::from_mode(0o666)).expect("root may");
    for (is_roots, may_open_all, lost) in
        [(false, false, 0), (false, true, 20), (true, true, 0), (true, false, 0)]
    {
        stm.clear();
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).expect("ours");
        let path = |name: &str| directory.path().join(name);
        let waits = format!(
            "touch {}; while [ ! -e {} ]; do sleep 0.1; done",
            path("begun").display(),
            path("done").display()
        );
        let mut recorder = rtscope();
        recorder.args(["record", "--json", "--fail-if-lost=100%", "-u", "test:*", "--backend", STM, "-o"]);
        recorder.arg(path("trace")).args(["--", "sh", "-c", &waits]);
        if !is_roots {
            as_nobody(&mut recorder, false);
        }
        let mut recorder =
            recorder.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
        while !path("begun").exists() && recorder.try_wait().expect("ours").is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut program = Command::new(&emitter);
        let status = as_nobody(program.args(["2", "5"]), may_open_all).status().expect("it can be started");
        fs::write(path("done"), "").expect("ours");
        let said = text(&recorder.wait_with_output().expect("ours"));
        let case = format!("root's {is_roots}, may open all {may_open_all}: {said}");
        assert!(status.success(), "{case}");
        let account = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).next_back();
        let account = account.unwrap_or_else(|| panic!("{case}"));
        assert_eq!(crate::command::lost(&account), lost, "{case}");
        assert_eq!(stm.packets().is_empty(), lost != 0, "{case}");
        assert_eq!(said.contains("the program may do more than its user"), lost != 0, "{case}");
    }
}

/// A fork waits for a thread that opens the device only for a moment. Here it takes longer.
// NEEDS: verifier, module stm_core, module stm_p_basic, module stm_memory
#[test]
fn root_vm_children_of_a_fork_that_could_not_wait_inherit_no_channels_of_an_stm() {
    let Some((stm, _)) = device() else { return };
    let program = program("rtscope-overtaken").expect("it is built").display().to_string();
    let node = format!("/dev/{DEVICE}");
    let recording = Recording::of(&stm, &[STM], &[&program, "60", &node]);
    let line = recording.said.lines().find(|line| line.starts_with("children ")).expect("it counts them");
    assert!(line.starts_with("children 60 descriptors 0 mappings 0 unknown 0 "), "{}", recording.said);
    let pages: BTreeSet<u16> = recording.packets.iter().map(|packet| packet.channel / 16).collect();
    assert!(pages.len() > 1, "the device was mapped more than once: {}", recording.said);
    let (decoded, _) = recording.decoded();
    println!("{} events through {} pages: {}", decoded.len(), pages.len(), recording.said);
    // What found a fork going on has no channel, and is counted.
    assert!(decoded.len() > 3, "{}", recording.said);
    assert_eq!(decoded.len() as u64 + recording.lost(), recording.emitted, "{}", recording.said);
    // Nothing has been kept: the policy has all its channels again.
    assert_eq!(stm.count("refused"), 0);
}

// NEEDS: verifier, module stm_core, module stm_p_basic, module stm_memory
#[test]
fn root_vm_what_cannot_go_to_an_stm_is_refused_with_the_reason() {
    let Some((_stm, emitter)) = device() else { return };
    for (options, why) in [
        (&["--backend", "stm:nobody,ports=coresight"][..], "has no nobody, but: few, user"),
        (&["--backend", "stm:user"], "what channels of rtscope_stm look like is not known"),
        (&["--backend", "stm,ports=coresight"], "which policy?"),
        (&["--backend", STM, "--blocking"], "--blocking is for the recorder"),
        (&["--backend", STM, "--flight-recorder"], "leave --flight-recorder out"),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut command = rtscope();
        command.args(["record", "-u", "test:*"]).args(options).arg("-o").arg(directory.path().join("trace"));
        let output = command.arg("--").arg(&emitter).output().expect("it can be started");
        assert!(!output.status.success() && text(&output).contains(why), "{}", text(&output));
    }
}

// NEEDS: verifier, module stm_core, module stm_p_basic, module stm_memory
#[test]
fn root_vm_an_event_through_an_stm_takes_so_many_instructions() {
    let Some((stm, emitter)) = device() else { return };
    let recording = Recording::of(&stm, &[STM], &[&emitter, "1", "1", "steps"]);
    let line = recording.said.lines().find(|line| line.starts_with("channel ")).expect("it counts them");
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    println!("instructions of an event with two fields of 64 bits: {line}");
    // Nobody asks for the other event, so it takes what a disabled one does.
    assert!(numbers[0] < 500 && numbers[1] < 30, "{line}");
}

/// What a choice for each event costs those that go to a ring: counted in a program that steps over its own instructions, which is compared with one
/// whose header has no channels.
#[test]
fn channels_cost_events_of_rings_nothing() {
    if !cfg!(target_arch = "x86_64") {
        skip::say("instructions are counted by x86's trap flag");
        return;
    }
    let fixture = Fixture::new();
    let source = root().join("crates/testkit/c/steps.c");
    // The same headers without them.
    let plain = fixture.path("plain");
    fs::create_dir_all(plain.join("rtscope")).expect("ours");
    for entry in fs::read_dir(root().join("include/rtscope")).expect("it is there") {
        let path = entry.expect("it can be read").path();
        let content = fs::read_to_string(&path).expect("a header");
        let name = path.file_name().expect("a name");
        let without = match name.to_str() {
            Some("ring.h") => without_channels(&content),
            _ => content,
        };
        // An event of a ring has nothing else of channels on its way.
        if matches!(name.to_str(), Some("ring.h" | "event.h" | "fields.h")) {
            assert_eq!(about_channels(&without), MENTIONS_BESIDE[usize::from(name != "ring.h")], "{name:?}");
        }
        fs::write(plain.join("rtscope").join(name), without).expect("ours");
    }
    for compiler in ["cc", "clang-19"] {
        let mut counts = Vec::new();
        for include in [Some(&plain), None] {
            let include = include.map(|plain| format!("-I{}", plain.display()));
            let flags: Vec<&str> = include.iter().map(String::as_str).chain(["-O2", "-std=gnu11"]).collect();
            let name = format!("steps-{compiler}-{}", counts.len());
            // The first directory that has a header wins, and the tree's comes before those of flags.
            let Some(program) = compile(&fixture, compiler, &flags, &source, &name) else { return };
            let _ = fs::remove_dir_all(fixture.trace());
            let recorded = fixture.record(&[], &[program]);
            let said = text(&recorded.output);
            let line = said.lines().find(|line| line.starts_with("unwanted ")).expect("it counts");
            counts.push(line.split(' ').filter_map(|word| word.parse::<i64>().ok()).collect::<Vec<i64>>());
        }
        let [without, with] = counts.as_slice() else { panic!("two programs") };
        let more: Vec<i64> = with.iter().zip(without).map(|(with, without)| with - without).collect();
        println!(
            "{compiler}: unwanted, wanted and a span, instructions and branches: {without:?}, with channels {more:?} more"
        );
        assert_eq!(&more[..4], [0, 0, 0, 0], "of events that nobody wants, and of rings");
        assert!(more[4] <= 1 && more[5] <= 1, "of a span: {more:?}");
        assert!(without[2] > 20, "the event was recorded");
    }
}

/// What is on the way of events in ring.h, and stays without channels: fields of a thread's page, a bit, and what is called out of line. In event.h and fields.h: nothing.
const MENTIONS_BESIDE: [&[&str]; 2] = [
    &[
        "struct rtscope__channel *channel;",
        "uint64_t no_channel;",
        "#define RTSCOPE__TO_CHANNEL 0x80000000U",
        "rtscope__reserved_slowly(id | RTSCOPE__TO_CHANNEL, bytes, rtscope__stack()) :",
    ],
    &[],
];

/// The header without what channels have brought, each of which has to be there.
fn without_channels(header: &str) -> String {
    let changes = [
        ("return (int32_t)word > 0;", "return word != 0;"),
        ("RTSCOPE__LOAD(*enabled) & RTU_TO_CHANNEL ?", "0 ?"),
        ("\telse\n\t\trtscope__commit_slowly(record.place);\n", ""),
    ];
    changes.iter().fold(header.to_string(), |header, (with, without)| {
        assert_eq!(header.matches(with).count(), 1, "{with}");
        header.replace(with, without)
    })
}

/// Lines of a header, outside of comments, with channels in them.
fn about_channels(header: &str) -> Vec<&str> {
    let mut is_comment = false;
    let mut lines = Vec::new();
    for line in header.lines().map(str::trim) {
        is_comment |= line.starts_with("/*");
        if !is_comment && line.to_lowercase().contains("channel") {
            lines.push(line);
        }
        is_comment &= !line.ends_with("*/");
    }
    lines
}

/// As [`Fixture::compile`], but directories of the flags come first.
fn compile(
    fixture: &Fixture,
    compiler: &str,
    flags: &[&str],
    source: &Path,
    to: &str,
) -> Option<std::path::PathBuf> {
    if skip::without_tool(compiler) {
        return None;
    }
    let to = fixture.path(to);
    let output = Command::new(compiler)
        .args(flags)
        .arg("-I")
        .arg(root().join("include"))
        .arg(source)
        .arg("-o")
        .arg(&to)
        .output()
        .expect("it was just there");
    assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
    Some(to)
}
