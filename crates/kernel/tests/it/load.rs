// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The eBPF programs on the running kernel: they load, attach, record, and leave nothing behind.

use super::skip_without_ebpf;
use libbpf_rs::query::ProgInfoIter;
use rtscope_event::{End, Glob};
use rtscope_kernel::{
    EbpfConfig, EbpfPrograms, Error, Follows, KeyPart, OriginFilter, PairSide, RecorderConfig,
    ResponseConfig, SnapshotConfig, StackConfig, Target, TracepointPair, TrackerConfig,
};
use rtscope_ring::BankImage;
use std::collections::BTreeSet;

fn config() -> EbpfConfig {
    EbpfConfig {
        recorder: Some(RecorderConfig {
            bank_bytes: 1 << 20,
            snapshot: Some(SnapshotConfig { post_ns: 50_000_000, interval_ns: 1_000_000_000 }),
            stream: None,
        }),
        trackers: vec![TrackerConfig {
            counted_by: None,
            target: Target { name: Some(Glob::new("control*").unwrap()), ..Target::default() },
            threshold_ns: 500_000,
            snapshot: true,
            records: false,
            follows: Follows::Responses(ResponseConfig {
                end: End::Blocked,
                origins: OriginFilter::default(),
                sources: Vec::new(),
            }),
        }],
        stacks: Some(StackConfig { bytes: 16 << 10 }),
        only: Vec::new(),
    }
}

/// One of each kind.
fn kinds() -> [TrackerConfig; 11] {
    let one = config().trackers[0].clone();
    let field = KeyPart::Field { offset: 8, size: 4, signed: true };
    let side =
        |name: &str, key| PairSide { system: "sched".to_string(), name: name.to_string(), key, bytes: 128 };
    let of = |follows: &Follows| TrackerConfig { follows: follows.clone(), ..one.clone() };
    [
        of(&Follows::Responses(ResponseConfig {
            end: End::Cycle,
            sources: rtscope_event::WaitKind::SOURCES.to_vec(),
            ..ResponseConfig::default()
        })),
        of(&Follows::Wakeups),
        of(&Follows::OffCpu),
        of(&Follows::Syscalls((0..400).collect())),
        of(&Follows::Locks),
        of(&Follows::Irqs),
        of(&Follows::Softirqs),
        of(&Follows::Blocks),
        of(&Follows::PreemptOff),
        of(&Follows::IrqOff(1_000_000)),
        of(&Follows::Pair(Box::new(TracepointPair {
            from: side("sched_process_fork", vec![field, KeyPart::Tid, KeyPart::Cpu]),
            to: side("sched_process_exec", vec![field, KeyPart::Pid, KeyPart::Cpu]),
        }))),
    ]
}

fn assert_loaded(trackers: Vec<TrackerConfig>, stacks: Option<StackConfig>) {
    let names: Vec<&str> = trackers.iter().map(|tracker| tracker.follows.tracker().name()).collect();
    let started = EbpfPrograms::start(&EbpfConfig { trackers, stacks, ..config() });
    assert!(started.is_ok(), "{names:?}: {:?}", started.err());
}

// NEEDS: verifier
#[test]
fn root_one_tracker_of_each_kind_is_loaded() {
    if skip_without_ebpf() {
        return;
    }
    // As many as there can be at once: the first, and the last.
    let kinds = kinds();
    let at_once = rtscope_abi::RTS_INSTANCES as usize;
    assert_loaded(kinds[..at_once].to_vec(), None);
    assert_loaded(kinds[kinds.len() - at_once..].to_vec(), None);
}

/// How many instructions the verifier looks at, each as often as something else may be known there: that is how long the start of a watch takes. Of other programs here, which
/// belong to others, nothing is said.
// NEEDS: verifier
#[test]
fn root_the_verifier_is_soon_done_with_a_watch_of_responses() {
    if skip_without_ebpf() {
        return;
    }
    let others: BTreeSet<u32> = ProgInfoIter::default().map(|program| program.id).collect();
    let started = EbpfPrograms::start(&EbpfConfig { stacks: None, ..config() });
    assert!(started.is_ok(), "{:?}", started.err());
    let ours = ProgInfoIter::default().filter(|program| !others.contains(&program.id));
    let looks: Vec<(u32, String)> =
        ours.map(|program| (program.verified_insns, program.name.to_string_lossy().into_owned())).collect();
    let sum: u32 = looks.iter().map(|(count, _)| count).sum();
    println!("{sum}, the most of {:?}", looks.iter().max());
    assert!(looks.len() > 20, "{looks:?}");
    assert!(sum < 300_000, "{sum}: {looks:?}");
}

/// All of it with stacks is too much for the verifier of Linux 7.2.
// NEEDS: one kernel
#[test]
fn root_what_is_too_much_for_the_verifier_is_refused_in_a_sentence() {
    if skip_without_ebpf() {
        return;
    }
    let trackers = kinds()[..rtscope_abi::RTS_INSTANCES as usize].to_vec();
    match EbpfPrograms::start(&EbpfConfig { trackers, ..config() }) {
        Ok(_) => println!("this kernel takes one tracker of each kind with stacks"),
        Err(Error::TooMuch(what)) => assert!(what.starts_with("leave stacks out"), "{what}"),
        Err(other) => panic!("{other}"),
    }
}

// NEEDS: verifier
#[test]
fn root_trackers_that_have_stacks_are_loaded_with_them() {
    if skip_without_ebpf() {
        return;
    }
    let has_stacks = |tracker: &TrackerConfig| tracker.follows.tracker().has_stacks();
    let kinds: Vec<TrackerConfig> = kinds().into_iter().filter(has_stacks).collect();
    assert_eq!(kinds.len(), 3);
    assert_loaded(kinds, config().stacks);
}

fn eight_of(kinds: &[TrackerConfig]) -> Vec<TrackerConfig> {
    kinds.iter().cycle().take(8).cloned().collect()
}

/// As many as there can be, of the kind that is most for a verifier. That of Linux 7.2 goes further into loops than others.
// NEEDS: verifier
#[test]
fn root_eight_trackers_of_responses_are_loaded() {
    if skip_without_ebpf() {
        return;
    }
    let kinds = kinds();
    let responses = kinds.iter().find(|kind| kind.follows.tracker().name() == "response").unwrap();
    assert_loaded(eight_of(std::slice::from_ref(responses)), None);
}

/// As many as there can be, of whatever kinds. By hand in guests, where it takes ten minutes.
// NEEDS: host
#[test]
fn root_eight_trackers_of_any_kinds_are_loaded() {
    if skip_without_ebpf() {
        return;
    }
    let kinds = kinds();
    // There is one of pairs at most.
    let kinds = &kinds[..kinds.len() - 1];
    let mixes = kinds.iter().map(|kind| eight_of(std::slice::from_ref(kind))).chain([eight_of(kinds)]);
    mixes.for_each(|kinds| assert_loaded(kinds, None));
}

// NEEDS: verifier
#[test]
fn root_programs_load_record_and_leave() {
    if skip_without_ebpf() {
        return;
    }
    let config = config();
    let ebpf = EbpfPrograms::start(&config).unwrap();
    let memory = ebpf.memory(&config).unwrap();
    let tasks = ebpf.dump_tasks().unwrap();
    assert!(
        tasks.iter().any(|task| task.tid.0 == std::process::id()),
        "this process is not in the task dump"
    );
    let mut image = BankImage::default();
    let (mut records, mut unreadable) = (0, 0);
    // Something always happens: this very test sleeps and is woken.
    while records < 100 || unreadable > 0 {
        std::thread::yield_now();
        (records, unreadable) = (0, 0);
        for cpu in 0..ebpf.cpus() {
            image.copy_from(memory.banks.as_ref().unwrap(), &memory.controls, (cpu, cpu), 0, 1 << 20);
            let gaps = image.walk(0..u64::MAX, |_| records += 1);
            // The other CPU may have reserved a record that does not begin yet; in the next copy it is there.
            assert!(gaps.unreadable <= 1, "{gaps:?}");
            unreadable += gaps.unreadable;
        }
    }
    assert!(ebpf.recursion_misses().iter().all(|(_, misses)| misses.is_some()));
}
