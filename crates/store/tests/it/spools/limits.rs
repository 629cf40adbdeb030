// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Spools at the limits: time, memory and names stay bounded, and what is missing is reported.

use super::maker::{
    Cpu, START, cut_path, description, end, everything, open, pages, path, softirq, switch, write,
};
use super::{RecordingPaths, lines_and_complaints};
use rtscope_event::CpuId;
use rtscope_store::{ConversionSummary, Error, Options, Spool, convert};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn of_one_cpu(target: &Path, words: Vec<u64>, pages: Vec<u8>) -> ConversionSummary {
    let mut description = description();
    description.cpus = vec![CpuId(0)];
    let cpu = Cpu { chunks: vec![(0, words)], pages };
    let spool = write(target, &description, &[cpu], Some(&end())).unwrap();
    convert(spool, target, &Options::default()).unwrap()
}

/// All times of the horizon go back: each record belongs before all that are held.
#[test]
fn times_that_go_back_cost_little_more_than_others() {
    const EVENTS: u64 = 200_000;
    let time_of = |order: &mut dyn Iterator<Item = u64>| {
        let paths = RecordingPaths::new();
        let words = order.flat_map(|number| softirq(START + 1_000 + number * 95, 3)).collect();
        let began = Instant::now();
        let converted = of_one_cpu(&paths.target, words, Vec::new());
        assert_eq!((converted.events, converted.moved), (EVENTS, 0));
        began.elapsed()
    };
    let forward = time_of(&mut (0..EVENTS));
    let back = time_of(&mut (0..EVENTS).rev());
    println!("forward {forward:?}, back {back:?}");
    // Quadratic it is some hundred times as much.
    assert!(back < forward * 10 + Duration::from_secs(1), "forward {forward:?}, back {back:?}");
}

#[test]
fn events_at_the_same_time_stay_in_order_also_when_they_come_late() {
    let paths = RecordingPaths::new();
    let mut words = softirq(START + 5_000, 9);
    for number in 0..100 {
        words.extend(softirq(START + 1_000 + number % 2, number as u32));
    }
    assert_eq!(of_one_cpu(&paths.target, words, Vec::new()).moved, 0);
    let Some((lines, _)) = lines_and_complaints(&paths.target) else { return };
    let of = |line: &String| {
        line.split("vec = ").nth(1).map(|rest| rest.trim_end_matches(" }").parse::<u64>().unwrap())
    };
    let found: Vec<u64> = lines.iter().filter_map(of).collect();
    let expected = (0..100).step_by(2).chain((1..100).step_by(2)).chain([9]);
    assert_eq!(found, expected.collect::<Vec<u64>>());
}

/// Whatever the other recorder's next event is: a text is there as long as a call can refer to it.
#[test]
fn a_text_is_found_where_the_next_record_is_long_after() {
    let paths = RecordingPaths::new();
    let mut words = path(START + 1_000, 11, 0x7000, START + 1_000, false, "/first");
    words.extend(switch(START + 90_000_000, 10, 11));
    let converted = of_one_cpu(&paths.target, words, pages(&[(START + 1_010, open(11, 0x7000))], None));
    assert_eq!((converted.events, converted.without_text), (2, 0));
}

#[test]
fn a_path_that_was_cut_ends_with_a_mark_and_is_counted() {
    let paths = RecordingPaths::new();
    let long = format!("/{}", "d".repeat(510));
    let mut words = cut_path(START + 1_000, 11, 0x7000, START + 1_000, false, &long);
    words.extend(path(START + 2_000, 11, 0x7000, START + 2_000, false, &long));
    words.extend(cut_path(START + 90_000, 11, 0x7000, START + 60_000_000, true, &long));
    let opens = [1_010, 2_010, 60_000_010].map(|time| (START + time, open(11, 0x7000)));
    let converted = of_one_cpu(&paths.target, words, pages(&opens, None));
    assert_eq!((converted.events, converted.without_text, converted.cut_texts), (3, 0, 2));
    let trace = rtscope_ctf::TraceSet::open(&paths.target).unwrap();
    assert!(trace.damaged.is_empty());
    let stream = String::from_utf8_lossy(&fs::read(paths.target.join("kernel_0")).unwrap()).into_owned();
    assert_eq!(stream.matches(&long).count(), 3);
    assert_eq!(stream.matches(&format!("{long}…\0")).count(), 2);
    let Some((lines, _)) = lines_and_complaints(&paths.target) else { return };
    assert_eq!(lines.iter().filter(|line| line.contains(&format!("filename = \"{long}…\""))).count(), 2);
}

#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    for name in ["cpu0.bank", "cpu1.pages", "started.json", "end.json"] {
        for kind in ["pipe", "link", "device"] {
            let paths = RecordingPaths::new();
            drop(write(&paths.target, &description(), &everything(), Some(&end())));
            let (path, aside) = (paths.partial.join(name), paths.partial.join("aside"));
            if path.exists() {
                fs::rename(&path, &aside).unwrap();
            } else {
                fs::write(&aside, "{\"started\":5000000000000}").unwrap();
            }
            // The pipe has a writer, so that opening it would succeed at once and the test always ends.
            let _writer = (kind == "pipe").then(|| {
                assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
                fs::File::options().read(true).write(true).open(&path).unwrap()
            });
            match kind {
                "link" => std::os::unix::fs::symlink(&aside, &path).unwrap(),
                "device" => std::os::unix::fs::symlink("/dev/null", &path).unwrap(),
                _ => {}
            }
            let spool = Spool::open(&paths.partial);
            let error =
                spool.and_then(|spool| convert(spool, &paths.target, &Options::default())).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::Broken { .. }) && text.contains(name), "{name} {kind}: {text}");
            assert!(text.contains("it is not a regular file"), "{name} {kind}: {text}");
        }
    }
}

#[test]
fn a_spool_of_more_cpus_than_linux_can_have_is_refused() {
    let paths = RecordingPaths::new();
    let mut description = description();
    description.cpus = (0..8_192).map(CpuId).collect();
    drop(write(&paths.target, &description, &everything(), Some(&end())));
    fs::write(paths.partial.join("cpu4000000000.bank"), "").unwrap();
    let refused = |path: &Path| {
        Spool::open(path).and_then(|spool| convert(spool, &paths.target, &Options::default())).unwrap_err()
    };
    let error = refused(&paths.partial);
    assert!(error.to_string().contains("8193 CPUs; there cannot be more than 8192"), "{error}");
    assert!(!paths.target.exists() && paths.partial.exists());
}
