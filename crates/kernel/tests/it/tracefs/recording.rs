// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The events recorded are those that happened: each once, or counted as lost.

use super::{call, decode, drain, names, tempfile, tracefs};
use rtscope_ftrace::page::RawEvent;
use rtscope_kernel::tracefs::{
    EventName, FlightInstances, FrozenPages, Instance, InstanceConfig, RawReader, TracefsError,
};
use rtscope_testkit::sched::tid;
use rtscope_testkit::skip;
use rtscope_testkit::time::now_ns;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

// NEEDS: verifier
#[test]
fn root_recorded_events_are_those_that_happened() {
    let Some(tracefs) = tracefs() else { return };
    let close = names(&["syscalls:sys_enter_close"]);
    let instance = Instance::create(&tracefs, &InstanceConfig::default()).unwrap();
    assert!(instance.enable(&close).unwrap().is_empty());
    instance.set_filter(&close[0], "fd >= 100000 && fd < 300000").unwrap();
    let before = now_ns();
    call(100_001);
    instance.start().unwrap();
    for number in 0..50_000 {
        call(200_000 + number);
    }
    instance.stop().unwrap();
    call(100_002);
    let after = now_ns();
    let (layout, readers) = (instance.page_layout(), instance.readers().unwrap());
    let id = tracefs.format(&close[0]).unwrap().id;
    let mut numbers: Vec<(u64, u64)> = Vec::new();
    for (cpu, bytes) in drain(readers) {
        let decoded = decode(&layout, &bytes);
        let stats = &instance.stats().unwrap()[cpu as usize];
        assert_eq!((stats.read, stats.lost()), (Some(decoded.events.len() as u64), Some(0)), "{stats:?}");
        assert_eq!((stats.entries, decoded.missed), (Some(0), 0));
        for (time_ns, payload) in decoded.events {
            assert_eq!(payload[..2], id.to_ne_bytes());
            assert!((before..after).contains(&time_ns));
            numbers.push((time_ns, u64::from_ne_bytes(payload[16..24].try_into().unwrap())));
        }
    }
    numbers.sort_unstable();
    let numbers: Vec<u64> = numbers.into_iter().map(|(_, number)| number).collect();
    assert_eq!(numbers, (200_000..250_000).collect::<Vec<u64>>());
}

// NEEDS: verifier
#[test]
fn root_what_a_full_buffer_loses_is_counted() {
    let Some(tracefs) = tracefs() else { return };
    let close = names(&["syscalls:sys_enter_close"]);
    for overwrite in [false, true] {
        let config = InstanceConfig { buffer_kib_per_cpu: 64, overwrite, ..InstanceConfig::default() };
        let instance = Instance::create(&tracefs, &config).unwrap();
        assert!(instance.enable(&close).unwrap().is_empty());
        instance.set_filter(&close[0], "fd >= 200000 && fd < 300000").unwrap();
        instance.start().unwrap();
        (0..50_000).for_each(|number| call(200_000 + number));
        instance.stop().unwrap();
        let (layout, readers) = (instance.page_layout(), instance.readers().unwrap());
        let recorded: usize =
            drain(readers).iter().map(|(_, bytes)| decode(&layout, bytes).events.len()).sum();
        let stats = instance.stats().unwrap();
        let lost: u64 = stats.iter().map(|stats| stats.lost().unwrap()).sum();
        let by_cause: u64 = match overwrite {
            true => stats.iter().map(|stats| stats.overrun.unwrap()).sum(),
            false => stats.iter().map(|stats| stats.dropped.unwrap()).sum(),
        };
        assert_eq!((recorded as u64 + lost, by_cause), (50_000, lost), "{stats:?}");
        assert!(recorded > 500 && lost > 10_000, "{recorded} {lost}");
    }
}

// NEEDS: verifier
#[test]
fn root_a_filter_that_cannot_be_used_is_explained() {
    let Some(tracefs) = tracefs() else { return };
    let switch = names(&["sched:sched_switch"]).remove(0);
    let instance = Instance::create(&tracefs, &InstanceConfig::default()).unwrap();
    let refusal = |expression: &str| instance.set_filter(&switch, expression).unwrap_err().to_string();
    let text = refusal("next_prio < 100 && nobody == 1");
    assert!(text.contains("sched:sched_switch") && text.contains("nobody"), "{text}");
    assert!(text.contains("Field not found"), "{text}");
    assert!(refusal("next_prio <").contains("sched:sched_switch"));
    assert!(refusal("0").contains("empty"));
    for fine in ["next_prio < 100 && next_comm ~ \"cyc*\"", "CPU == 1", "COMM == \"x\""] {
        instance.set_filter(&switch, fine).unwrap();
    }
    instance.set_system_filter("sched", "common_pid != 1").unwrap();
    let nobody = names(&["sched:nobody"]).remove(0);
    assert!(matches!(instance.set_filter(&nobody, "a == 1"), Err(TracefsError::NoEvent(_))));
}

// NEEDS: verifier
#[test]
fn root_threads_are_included_and_excluded() {
    let Some(tracefs) = tracefs() else { return };
    let close = names(&["syscalls:sys_enter_close"]);
    let own = tid().unsigned_abs();
    let recorded = |config: InstanceConfig| {
        let instance = Instance::create(&tracefs, &config).unwrap();
        assert!(instance.enable(&close).unwrap().is_empty());
        instance.set_filter(&close[0], "fd >= 500000 && fd < 500020").unwrap();
        instance.start().unwrap();
        // Whether a running thread is left out is decided when it is next switched in.
        let switch_in = || std::thread::sleep(Duration::from_millis(1));
        let other = std::thread::spawn(move || {
            switch_in();
            (0..10).for_each(|number| call(500_000 + number));
        });
        other.join().unwrap();
        switch_in();
        (10..20).for_each(|number| call(500_000 + number));
        instance.stop().unwrap();
        let (layout, readers) = (instance.page_layout(), instance.readers().unwrap());
        drain(readers).iter().map(|(_, bytes)| decode(&layout, bytes).events.len()).sum::<usize>()
    };
    let config = InstanceConfig::default;
    assert_eq!(recorded(config()), 20);
    assert_eq!(recorded(InstanceConfig { tids: vec![own], ..config() }), 10);
    assert_eq!(recorded(InstanceConfig { tids: vec![own], follow_forks: true, ..config() }), 20);
    assert_eq!(recorded(InstanceConfig { exclude_tids: vec![own], ..config() }), 10);
    assert_eq!(recorded(InstanceConfig { exclude_tids: vec![own], follow_forks: true, ..config() }), 0);
}

/// What the kernel itself prints of one CPU: microseconds since boot and the event's name, oldest first.
fn printed(instance: &Instance, cpu: u32) -> Vec<(u64, String)> {
    let text = fs::read_to_string(instance.path().join(format!("per_cpu/cpu{cpu}/trace"))).expect("readable");
    // `task-123 [000] d..2. 1234.567890: sched_switch: prev_comm=...`; a task's name can hold anything.
    let line = |line: &str| {
        let behind = &line[line.find(&format!(" [{cpu:03}] "))?..];
        let (seconds, micros, name) = behind.match_indices(": ").find_map(|(at, _)| {
            let (seconds, micros) = behind[..at].rsplit_once(' ')?.1.split_once('.')?;
            let name = behind[at + 2..].split(':').next()?.split('(').next()?.trim();
            Some((seconds.parse::<u64>().ok()?, micros.parse::<u64>().ok()?, name.to_string()))
        })?;
        Some((seconds * 1_000_000 + micros, name))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(line).collect()
}

// NEEDS: verifier
#[test]
fn root_decoded_pages_are_what_the_kernel_prints() {
    let Some(tracefs) = tracefs() else { return };
    for page_kib in [None, Some(16)] {
        let config = InstanceConfig { buffer_kib_per_cpu: 16 << 10, page_kib, ..InstanceConfig::default() };
        let instance = Instance::create(&tracefs, &config).unwrap();
        let layout = instance.page_layout();
        // Old kernels have no file for the size.
        assert!([4096, 16384].contains(&layout.page_bytes()) || page_kib.is_none());
        let wanted = tracefs.events().unwrap();
        let systems = ["sched", "irq", "irq_vectors", "timer", "ipi", "workqueue", "kmem", "rcu"];
        let wanted: Vec<EventName> =
            wanted.into_iter().filter(|event| systems.contains(&&*event.system)).collect();
        let names_by_id: std::collections::HashMap<u16, String> =
            wanted.iter().map(|event| (tracefs.format(event).unwrap().id, event.name.clone())).collect();
        assert!(instance.enable(&wanted).unwrap().is_empty());
        instance.start().unwrap();
        // Pauses longer than 2^27 ns need entries of their own.
        for pause_ms in [1, 1, 1, 150, 1] {
            (0..20).for_each(|_| drop(vec![1_u8; 1 << 20]));
            std::thread::sleep(Duration::from_millis(pause_ms));
        }
        instance.stop().unwrap();
        let texts: Vec<_> =
            instance.stats().unwrap().iter().map(|stats| printed(&instance, stats.cpu)).collect();
        for ((cpu, bytes), text) in drain(instance.readers().unwrap()).into_iter().zip(texts) {
            let decoded = decode(&layout, &bytes).events.into_iter().map(|(time_ns, payload)| {
                let id = u16::from_ne_bytes([payload[0], payload[1]]);
                // The kernel prints rounded microseconds.
                ((time_ns + 500) / 1000, names_by_id[&id].clone())
            });
            let decoded: Vec<(u64, String)> = decoded.collect();
            println!("cpu {cpu}: {} events in pages of {}", decoded.len(), layout.page_bytes());
            assert_eq!(decoded.len(), text.len());
            let different = decoded.iter().zip(&text).find(|(decoded, text)| decoded != text);
            assert_eq!(different, None);
        }
    }
}

// NEEDS: verifier
#[test]
fn root_reading_while_recording_loses_and_repeats_nothing() {
    let Some(tracefs) = tracefs() else { return };
    const CALLS: i32 = 100_000;
    let close = names(&["syscalls:sys_enter_close"]);
    let instance = Instance::create(&tracefs, &InstanceConfig::default()).unwrap();
    assert!(instance.enable(&close).unwrap().is_empty());
    instance.set_filter(&close[0], "fd >= 1000000 && fd < 2000000").unwrap();
    let mut readers: Vec<(RawReader, File)> =
        instance.readers().unwrap().into_iter().map(|reader| (reader, tempfile())).collect();
    instance.start().unwrap();
    let callers = [0, 1]
        .map(|half| std::thread::spawn(move || (0..CALLS / 2).for_each(|n| call(1_000_000 + 2 * n + half))));
    let mut while_recording = 0;
    while !callers.iter().all(std::thread::JoinHandle::is_finished) {
        for (reader, file) in &mut readers {
            while_recording += reader.splice_to(file).unwrap();
        }
        std::thread::yield_now();
    }
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    instance.stop().unwrap();
    let mut seen = vec![false; CALLS as usize];
    let stats = |instance: &Instance| instance.stats().unwrap();
    for (mut reader, mut file) in readers {
        reader.drain_to(&file).unwrap();
        assert_eq!(reader.pending_bytes(), 0);
        file.rewind().unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        for (_, payload) in decode(&instance.page_layout(), &bytes).events {
            let number = u64::from_ne_bytes(payload[16..24].try_into().unwrap());
            let seen = &mut seen[usize::try_from(number).unwrap() - 1_000_000];
            assert!(!*seen, "{number} twice");
            *seen = true;
        }
    }
    let recorded = seen.iter().filter(|seen| **seen).count() as u64;
    let lost: u64 = stats(&instance).iter().map(|stats| stats.lost().unwrap()).sum();
    println!("{recorded} recorded, {lost} lost, {while_recording} bytes read while recording");
    assert_eq!(recorded + lost, u64::try_from(CALLS).unwrap());
    assert!(while_recording > 1 << 20);
}

/// Fewer than fit into a bank of 8 MiB.
const BANK_EVENTS: i32 = 100_000;

// NEEDS: real time (an emulated CPU reads a bank more slowly than its circle is written)
#[test]
fn root_no_event_is_missed_while_the_instances_swap() {
    let Some(tracefs) = tracefs() else { return };
    let close = names(&["syscalls:sys_enter_close"]);
    let config = InstanceConfig { buffer_kib_per_cpu: 8192, ..InstanceConfig::default() };
    let filter = |instance: &Instance| instance.set_filter(&close[0], "fd >= 1000000 && fd < 2000000");
    let (mut flight, refused) = FlightInstances::start(&tracefs, &config, &close, filter).unwrap();
    assert!(refused.is_empty());
    let layout = flight.page_layout();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    // The caller does not run further ahead than a bank is large, however late this thread comes to read it.
    let read_up_to = Arc::new(Mutex::new((1_000_000, 1_000_000)));
    let shared = Arc::clone(&read_up_to);
    let caller = std::thread::spawn(move || {
        let mut number = 1_000_000;
        while number < 1_990_000 && stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let mut ahead = shared.lock().unwrap();
            ahead.0 = number;
            if number >= ahead.1 + BANK_EVENTS {
                drop(ahead);
                std::thread::yield_now();
                continue;
            }
            drop(ahead);
            call(number);
            number += 1;
        }
        number
    });
    let mut seen = vec![0_u32; 1_000_000];
    let mut note = |frozen: &[FrozenPages]| {
        let mut count = 0;
        for cpu in frozen {
            assert_eq!(cpu.lost, Some(0));
            let decoded = decode(&layout, &cpu.pages);
            assert_eq!(decoded.missed, 0, "nothing was overwritten");
            for (_, payload) in decoded.events {
                let number = u64::from_ne_bytes(payload[16..24].try_into().unwrap());
                seen[usize::try_from(number).unwrap() - 1_000_000] += 1;
                count += 1;
            }
        }
        count
    };
    let mut swaps = 0;
    while swaps < 20 && !caller.is_finished() {
        let begin = Instant::now();
        let made = read_up_to.lock().unwrap().0;
        let frozen = flight.swap().unwrap();
        let took = begin.elapsed();
        let count = note(&frozen);
        read_up_to.lock().unwrap().1 = made;
        // A swap counts when there was something to lose.
        swaps += u32::from(count > 0);
        if swaps == 20 {
            println!("{count} events, swapped and read in {took:?}");
        }
    }
    drop(stop);
    let end = usize::try_from(caller.join().unwrap()).unwrap() - 1_000_000;
    note(&flight.stop().unwrap());
    let missing = seen[..end].iter().filter(|times| **times == 0).count();
    let twice = seen[..end].iter().filter(|times| **times > 1).count();
    println!("{end} events, {missing} missing, {twice} twice, {swaps} swaps");
    assert_eq!(missing, 0);
    assert!(swaps >= 5, "{swaps}");
}

// NEEDS: host
#[test]
fn root_buffers_larger_than_the_memory_are_refused() {
    let Some(tracefs) = tracefs() else { return };
    let config = InstanceConfig { buffer_kib_per_cpu: 1 << 32, ..InstanceConfig::default() };
    let refused = Instance::create(&tracefs, &config).unwrap_err();
    assert!(refused.is_usage() && refused.to_string().contains("--buffer"), "{refused}");
}

// NEEDS: verifier
#[test]
fn root_interrupts_of_an_excluded_thread_are_hidden_too_and_can_be_told_apart() {
    let Some(tracefs) = tracefs() else { return };
    let timer = names(&["irq_vectors:local_timer_entry", "syscalls:sys_enter_close"]);
    if timer.iter().any(|event| tracefs.format(event).is_err()) {
        skip!("this kernel has no event for its timer's interrupt");
    }
    let own = tid().unsigned_abs();
    // Counts events of this thread outside and inside of interrupts, while it runs for half a second.
    let own_events = |config: InstanceConfig| {
        let instance = Instance::create(&tracefs, &config).unwrap();
        assert!(instance.enable(&timer).unwrap().is_empty());
        std::thread::sleep(Duration::from_millis(1));
        instance.start().unwrap();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(500) {
            call(700_000);
        }
        instance.stop().unwrap();
        let (layout, readers) = (instance.page_layout(), instance.readers().unwrap());
        let mut counts = [0, 0];
        for (_, bytes) in drain(readers) {
            for (time_ns, payload) in decode(&layout, &bytes).events {
                let event = RawEvent { time_ns, payload: &payload };
                if event.pid() == Some(own) {
                    counts[usize::from(event.in_interrupt())] += 1;
                }
            }
        }
        counts
    };
    let all = own_events(InstanceConfig::default());
    let excluded = own_events(InstanceConfig { exclude_tids: vec![own], ..InstanceConfig::default() });
    println!("calls and interrupts: {all:?}, excluded {excluded:?}");
    assert!(all[0] > 100 && all[1] > 5, "{all:?}");
    assert_eq!(excluded, [0, 0]);
}
