// SPDX-License-Identifier: Apache-2.0 OR MIT
//! perf.data: what our encoder writes is read back, and what perf says of captures is what we say.

use crate::captures::{self, capture};
use rtscope_hardware::perfdata::encode::PerfEncoder;
use rtscope_hardware::perfdata::{
    AuxKind, AuxSegment, AuxtraceInfo, Branch, BtsDecoder, BtsElement, BtsRecord, EtmCpu, EventAttribute,
    PerfError, PerfFile, ReadAt, Record, RecordBody, SampleId,
};
use rtscope_hardware::pt::PerfClock;
use rtscope_hardware::{Lost, LostCause};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

/// TID, TIME, CPU and IDENTIFIER, with IP.
const FIELDS: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 7 | 1 << 16;
const BRANCH_STACK: u64 = 1 << 11;

fn event(sample_type: u64) -> EventAttribute {
    EventAttribute { sample_type, sample_id_all: true, ids: vec![7], ..EventAttribute::default() }
}

fn id(time: u64) -> SampleId {
    SampleId { pid: Some(40), tid: Some(41), time: Some(time), cpu: Some(3), id: Some(7) }
}

/// Each record with what it says as text, or the error at which the file ends.
fn read(bytes: &[u8], each: &mut dyn FnMut(&Record<'_>)) -> Result<u64, PerfError> {
    let mut file = PerfFile::open(bytes)?;
    let mut count = 0;
    while let Some(record) = file.next_record()? {
        count += 1;
        each(&record);
    }
    Ok(count)
}

fn parts(bytes: &[u8]) -> (Option<AuxtraceInfo>, Vec<AuxSegment>) {
    let (mut info, mut segments) = (None, Vec::new());
    read(bytes, &mut |record| match &record.body {
        RecordBody::AuxtraceInfo(found) => info = Some(found.clone()),
        RecordBody::Auxtrace(segment) => segments.push(*segment),
        _ => {}
    })
    .unwrap();
    (info, segments)
}

fn data<'b>(bytes: &'b [u8], segment: &AuxSegment) -> &'b [u8] {
    &bytes[segment.at as usize..(segment.at + segment.there) as usize]
}

fn bts(stream: &[u8], piece: usize) -> Vec<BtsElement> {
    let (mut decoder, mut elements) = (BtsDecoder::new(), Vec::new());
    stream.chunks(piece).for_each(|piece| decoder.push(piece, &mut |element| elements.push(element)));
    decoder.finish(&mut |element| elements.push(element));
    elements
}

/// Branches of a program and of the kernel, in a form that perf prints.
fn branches(count: u64) -> Vec<BtsRecord> {
    let one = |index: u64| BtsRecord {
        offset: index * 24,
        from: if index % 7 == 3 { 0xffff_ffff_8100_0000 } else { 0x40_1000 } + index * 5,
        to: 0x40_2000 + index * 9,
        flags: if index % 3 == 0 { 0 } else { 0x10 },
    };
    (0..count).map(one).collect()
}

fn bts_stream(records: &[BtsRecord]) -> Vec<u8> {
    let words = records.iter().flat_map(|record| [record.from, record.to, record.flags]);
    words.flat_map(u64::to_le_bytes).collect()
}

fn bts_file(stream: &[u8]) -> PerfEncoder {
    let mut encoder = PerfEncoder::new(vec![event(FIELDS)]);
    encoder
        .auxtrace_info(2, &[9, 31, 1_076_264_588, 5, 1, 0])
        .aux(0, stream.len() as u64, 0, &id(100))
        .auxtrace(stream, 0, (0, Some(41), Some(3)))
        .finished_round();
    encoder
}

/// As perf prints a record of BTS.
fn bts_line(record: &BtsRecord) -> String {
    let predicted = if record.predicted() { "pred" } else { "miss" };
    format!("{:x} -> {:x} {predicted}", record.from, record.to)
}

/// The part of perf's dump behind the bytes.
fn perf_bts_lines(dump: &str) -> Vec<String> {
    let lines = dump.lines().filter(|line| line.contains(" -> "));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[words.len() - 4..].join(" ")
        })
        .collect()
}

#[test]
fn bts_is_decoded_from_files_and_pipes_in_pieces_of_any_size() {
    let records = branches(300);
    let stream = bts_stream(&records);
    let encoder = bts_file(&stream);
    for bytes in [encoder.file(), encoder.pipe()] {
        let (info, segments) = parts(&bytes);
        let info = info.unwrap();
        assert_eq!(info.kind, AuxKind::IntelBts);
        assert_eq!(info.clock, Some(PerfClock { shift: 31, mult: 1_076_264_588, zero: 5 }));
        assert_eq!((segments.len(), segments[0].tid, segments[0].cpu), (1, Some(41), Some(3)));
        for piece in [1, 7, 24, 4096] {
            let elements = bts(data(&bytes, &segments[0]), piece);
            let expected: Vec<BtsElement> = records.iter().copied().map(BtsElement::Record).collect();
            assert_eq!(elements, expected, "in pieces of {piece}");
        }
    }
}

#[test]
fn a_cut_record_of_bts_is_lost_and_not_invented() {
    let stream = bts_stream(&branches(3));
    let elements = bts(&stream[..60], 60);
    assert_eq!(elements.len(), 3);
    assert_eq!(elements[2], BtsElement::Lost(Lost { offset: 48, bytes: 12, cause: LostCause::Truncated }));
}

#[test]
fn branch_stacks_keep_each_flag() {
    let branches = [
        Branch { from: 0x40_1000, to: 0x40_2000, flags: 1 | 77 << 4 },
        Branch {
            from: 0x40_3000,
            to: 0x40_4000,
            flags: 2 | 1 << 2 | 1 << 3 | 0xffff << 4 | 6 << 20 | 3 << 24,
        },
        Branch::default(),
    ];
    let mut encoder = PerfEncoder::new(vec![event(FIELDS | BRANCH_STACK)]);
    encoder.sample(&id(5_000_000_123), 0x40_2002, &branches).lost(12, &id(5_000_000_200));
    for bytes in [encoder.file(), encoder.pipe()] {
        let (mut found, mut lost) = (Vec::new(), 0);
        read(&bytes, &mut |record| match &record.body {
            RecordBody::Sample(sample) => {
                assert_eq!((sample.id, sample.ip), (id(5_000_000_123), Some(0x40_2002)));
                found.extend(sample.branches());
            }
            RecordBody::Lost { count } => lost += count,
            _ => {}
        })
        .unwrap();
        assert_eq!((found.as_slice(), lost), (branches.as_slice(), 12));
    }
    let [first, second, none] = branches;
    assert_eq!((first.predicted(), first.cycles(), first.kind()), (Some(false), 77, None));
    assert_eq!((second.predicted(), second.cycles(), second.kind()), (Some(true), 65535, Some("RET")));
    assert!(second.in_transaction() && second.is_abort());
    assert_eq!(second.speculation(), Some("SPEC_CORRECT_PATH"));
    assert_eq!(none.predicted(), None);
}

/// What the installed perf says of a stream in a pipe.
fn perf(bytes: &[u8], arguments: &[&str]) -> Option<String> {
    let mut child = Command::new("perf")
        .arg("script")
        .args(arguments)
        .args(["-i", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take()?;
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&bytes));
    let output = child.wait_with_output().ok()?;
    writer.join().ok()?.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn the_installed_perf_decodes_our_bts_as_we_do() {
    let records = branches(100);
    let Some(dump) = perf(&bts_file(&bts_stream(&records)).pipe(), &["-D"]) else {
        rtscope_testkit::skip!("perf is not installed, or refuses to read");
    };
    let ours: Vec<String> = records.iter().map(bts_line).collect();
    assert_eq!(perf_bts_lines(&dump), ours);
}

#[test]
fn the_bts_capture_is_decoded_as_perf_decodes_it() {
    let bytes = fs::read(capture!("bts-synthetic/bts-200.perf.data")).unwrap();
    let (info, segments) = parts(&bytes);
    assert_eq!(info.unwrap().kind, AuxKind::IntelBts);
    let elements = segments.iter().flat_map(|segment| bts(data(&bytes, segment), 100));
    let ours: Vec<String> = elements
        .map(|element| match element {
            BtsElement::Record(record) => bts_line(&record),
            BtsElement::Lost(lost) => format!("{lost:?}"),
        })
        .collect();
    let perf = perf_bts_lines(&captures::expected("perf-6.1/bts-200.perf.data.D.txt.xz"));
    assert_eq!((ours.len(), &ours), (200, &perf));
    row("bts-200.perf.data", "BTS", &[("branches", 200, 200)]);
}

/// A row of the table of captures, of what was asserted.
fn row(capture: &str, unit: &str, compared: &[(&str, usize, usize)]) {
    captures::Row { capture, unit, oracle: "perf 6.1", compared, bytes: None, notes: "" }.print();
}

/// A sample: process, thread, time, and entries as perf prints them.
type Stack = (u32, u32, u64, Vec<String>);

fn perf_stacks(text: &str) -> Vec<Stack> {
    let mut stacks: Vec<Stack> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_entry = |word: &&&str| word.starts_with("0x") && word.contains('/');
        // The first words of a sample: PID/TID SECONDS.NANOSECONDS:
        let head =
            words.first().and_then(|word| word.split_once('/')).filter(|(pid, _)| pid.parse::<u32>().is_ok());
        if let Some((pid, tid)) = head {
            let time = words[1].trim_end_matches(':').replace('.', "").parse().unwrap();
            stacks.push((pid.parse().unwrap(), tid.parse().unwrap(), time, Vec::new()));
        }
        let entries = words.iter().filter(is_entry).map(ToString::to_string);
        if let Some((.., found)) = stacks.last_mut() {
            found.extend(entries);
        }
    }
    stacks
}

fn our_stacks(bytes: &[u8]) -> Vec<Stack> {
    let mut stacks = Vec::new();
    read(bytes, &mut |record| {
        let RecordBody::Sample(sample) = &record.body else { return };
        let entries = sample.branches().map(|branch| {
            let predicted = match branch.predicted() {
                Some(true) => 'P',
                Some(false) => 'M',
                None => '-',
            };
            let transaction = if branch.in_transaction() { 'X' } else { '-' };
            let abort = if branch.is_abort() { 'A' } else { '-' };
            let Branch { from, to, .. } = branch;
            format!("0x{from:x}/0x{to:x}/{predicted}/{transaction}/{abort}/{}/", branch.cycles())
        });
        let id = sample.id;
        stacks.push((id.pid.unwrap(), id.tid.unwrap(), id.time.unwrap(), entries.collect()));
    })
    .unwrap();
    // perf prints in order of time.
    stacks.sort_by_key(|(.., time, _)| *time);
    stacks
}

fn branch_stacks_are_those_of_perf(name: &str, samples: usize, entries: usize) {
    let bytes = fs::read(capture!(format!("lbr/{name}"))).unwrap();
    let ours = our_stacks(&bytes);
    let perf = perf_stacks(&captures::expected(&format!("perf-6.1/{name}.brstack.txt.xz")));
    assert_eq!(ours.len(), samples);
    assert_eq!(ours.iter().map(|(.., entries)| entries.len()).sum::<usize>(), entries);
    assert!(ours == perf, "{:?}", ours.iter().zip(&perf).find(|(ours, perf)| ours != perf));
    row(name, "LBR", &[("samples", samples, samples), ("entries", entries, entries)]);
}

#[test]
fn the_lbr_capture_has_the_stacks_that_perf_shows() {
    branch_stacks_are_those_of_perf("perf.data.branch-4.14", 13, 416);
}

#[test]
fn the_lbr_capture_with_callers_has_the_stacks_that_perf_shows() {
    branch_stacks_are_those_of_perf("perf.data.callgraph_and_branch-3.4", 923, 14768);
}

#[test]
fn the_pt_capture_has_its_clock_its_settings_and_its_data() {
    let folder = capture!("pt/quipper");
    let bytes = fs::read(folder.join("perf.data.intel_pt-4.14")).unwrap();
    let (info, segments) = parts(&bytes);
    let info = info.unwrap();
    assert_eq!(info.kind, AuxKind::IntelPt);
    let clock = PerfClock { shift: 31, mult: 1_789_569_706, zero: 18_446_744_041_015_200_657 };
    assert_eq!(info.clock, Some(clock));
    let pt = info.pt.unwrap();
    assert_eq!((pt.tsc_ctc, pt.max_nonturbo_ratio, pt.per_cpu), ((100, 2), 12, true));
    assert_eq!(pt.mtc_freq(0x300_e601), 3);
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    read(&bytes, &mut |record| {
        let name = match &record.body {
            RecordBody::Aux { .. } => "aux",
            RecordBody::TraceStart { .. } => "start",
            RecordBody::Switch { .. } => "switch",
            RecordBody::Mmap { .. } if record.number == 10 => "mmap2",
            _ => "other",
        };
        *counts.entry(name).or_default() += 1;
        let needs_time = !matches!(name, "other" | "mmap2");
        assert!(!needs_time || record.id.time.is_some_and(|time| time > 0), "{record:?}");
    })
    .unwrap();
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    assert_eq!((count("aux"), count("start"), count("switch"), count("mmap2")), (10, 2, 152, 10));
    // Each chunk was cut out of the file by perf's own tools.
    let mut chunks: Vec<Vec<u8>> = fs::read_dir(folder.join("aux"))
        .unwrap()
        .map(|file| fs::read(file.unwrap().path()).unwrap())
        .collect();
    chunks.sort_by_key(Vec::len);
    let mut ours: Vec<Vec<u8>> = segments.iter().map(|segment| data(&bytes, segment).to_vec()).collect();
    ours.sort_by_key(Vec::len);
    assert_eq!(ours.iter().map(Vec::len).collect::<Vec<_>>(), [12_240, 137_728]);
    assert!(ours == chunks);
    row("perf.data.intel_pt-4.14", "Intel PT, AUX data", &[("bytes", 149_968, 149_968)]);
}

#[test]
fn the_etm_captures_tell_their_units_and_that_data_is_missing() {
    let bytes = fs::read(capture!("etm-perfdata/perf_etm.data")).unwrap();
    let (info, segments) = parts(&bytes);
    let etm = info.unwrap().etm.unwrap();
    assert!(!etm.unknown);
    assert_eq!(segments.len(), 1);
    assert_eq!((segments[0].size, segments[0].there, segments[0].cpu), (384, 384, Some(7)));
    let cpu = etm.cpus.iter().find(|cpu| cpu.cpu() == 7).unwrap();
    assert_eq!(cpu.trace_id(), Some(0x1e));
    assert!(matches!(cpu, EtmCpu::Etm4 { is_ete: false, .. }));

    let bytes = fs::read(capture!("etm-perfdata/perf_with_missing_aux_data.data")).unwrap();
    let (info, segments) = parts(&bytes);
    assert!(info.unwrap().etm.is_some() && segments.is_empty());
    let mut written = 0;
    read(&bytes, &mut |record| {
        if let RecordBody::Aux { size, .. } = record.body {
            written += size;
        }
    })
    .unwrap();
    let missing = 0xa6fc0 + 0x57870 + 0x74e30 + 0x30 + 0x30 + 0x36b0;
    assert_eq!(written, missing);
    let missing = missing as usize;
    row("perf_with_missing_aux_data.data", "ETMv4, AUX data", &[("bytes missing", missing, missing)]);
}

#[test]
fn words_of_perf_become_settings() {
    let etm4 = [0x4040_4040_4040_4040, 2, 0xc1, 0x1e, 0x2800_0ea1, 0x4100_f403, 0x488, 0, 0xcc];
    let mut words = vec![0, 8 << 32 | 1, 1];
    words.extend(etm4);
    let ete = [0x5050_5050_5050_5050, 5, 9, 0xc1, 1 << 31 | 4, 1, 2, 3, 4, 0xcc, 0x4771_5a13, 1];
    let mut newer = vec![1, 8 << 32 | 1, 0];
    newer.extend(ete);
    let info = |words: &[u64]| {
        let mut encoder = PerfEncoder::new(vec![event(FIELDS)]);
        parts(&encoder.auxtrace_info(3, words).file()).0.unwrap().etm.unwrap()
    };
    let old = info(&words);
    assert_eq!((old.pmu, old.snapshot_mode, old.unknown), (8, true, false));
    let expected = EtmCpu::Etm4 {
        cpu: 2,
        is_ete: false,
        config: 0xc1,
        trace_id: 0x1e,
        ids: [0x2800_0ea1, 0x4100_f403, 0x488, 0],
        device: 0,
        has_virtual_timestamps: false,
    };
    assert_eq!(old.cpus, [expected]);
    let new = info(&newer);
    assert_eq!(new.cpus[0].trace_id(), None);
    assert!(matches!(
        new.cpus[0],
        EtmCpu::Etm4 { is_ete: true, device: 0x4771_5a13, has_virtual_timestamps: true, .. }
    ));
    assert!(info(&[0, 1, 0, 0x7777, 1]).unknown);
}

#[test]
fn perfs_clock_wraps_as_the_kernels_arithmetic_does() {
    let clock = PerfClock { shift: 31, mult: 1_789_569_706, zero: 18_446_744_041_015_200_657 };
    // 0xbc4cd2cfe8 is the first TSC of the capture of quipper; ptdump --time and perf agree on its moment.
    let tsc = 0xbc_4cd2_cfe8_u64;
    let exact = ((u128::from(tsc) * 1_789_569_706) >> 31) as u64;
    assert_eq!(clock.nanoseconds(tsc), exact.wrapping_add(clock.zero));
    assert_eq!(PerfClock { shift: 0, mult: 3, zero: 1 }.nanoseconds(5), 16);
}

#[test]
fn other_files_are_refused_with_what_to_do() {
    let refusal = |bytes: &[u8]| read(bytes, &mut |_| {}).unwrap_err().to_string();
    assert_eq!(refusal(b"#!/bin/sh\n"), "it is not a perf.data file");
    let mut swapped = b"2ELIFREP".to_vec();
    swapped.extend([0; 96]);
    assert!(refusal(&swapped).contains("big-endian"));
    let mut encoder = PerfEncoder::new(vec![event(FIELDS)]);
    encoder.kernel(81, 0, &[0; 32], &SampleId::default());
    assert!(refusal(&encoder.pipe()).contains("perf inject"));
}

#[test]
fn damaged_files_end_with_an_error_or_an_end_and_take_no_memory() {
    let mut encoder = bts_file(&bts_stream(&branches(4)));
    let branches = [Branch { from: 1, to: 2, flags: 3 }];
    encoder
        .sample(&id(1), 2, &branches)
        .mmap2(40, (0x40_0000, 0x1000, 0), "/bin/x", &id(2))
        .comm(40, 41, "x", &id(3))
        .switch(true, (1, 2), &id(4))
        .lost(3, &id(5));
    for bytes in [encoder.file(), encoder.pipe()] {
        let whole = read(&bytes, &mut |_| {}).unwrap();
        for length in 0..bytes.len() {
            // What is read of a part is the beginning of the whole.
            let mut count = 0;
            let _ = read(&bytes[..length], &mut |_| count += 1);
            assert!(count <= whole, "{length}");
        }
        for place in 0..bytes.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[place] ^= flip;
                let mut there = 0u64;
                let _ = read(&damaged, &mut |record| {
                    if let RecordBody::Auxtrace(segment) = &record.body {
                        there += segment.there;
                    }
                });
                assert!(there <= bytes.len() as u64, "{place}: data that is not there");
            }
        }
    }
}

#[test]
fn a_place_behind_the_end_has_no_bytes() {
    let mut into = [0; 4];
    assert_eq!(ReadAt::read_at(&b"abc"[..], 1, &mut into).unwrap(), 2);
    assert_eq!(ReadAt::read_at(&b"abc"[..], u64::MAX, &mut into).unwrap(), 0);
}

/// Each of up to 65 536 events could name the same numbers, and each would be given a copy of all of them.
#[test]
fn events_that_share_their_numbers_are_refused() {
    let event = |ids: Vec<u64>| EventAttribute { ids, ..EventAttribute::default() };
    let mut file = PerfEncoder::new(vec![event((1..=64).collect()), event((65..=128).collect())]).file();
    assert_eq!(PerfFile::open(&file[..]).unwrap().events().len(), 2);
    let sections: Vec<usize> = (0..file.len() - 16)
        .filter(|at| file[at + 8..at + 16] == 512_u64.to_le_bytes() && file[at + 2..at + 8] == [0; 6])
        .collect();
    // Both are all of the file.
    let all = file.len() as u64;
    for at in sections {
        file[at..at + 8].copy_from_slice(&0_u64.to_le_bytes());
        file[at + 8..at + 16].copy_from_slice(&all.to_le_bytes());
    }
    let refused = PerfFile::open(&file[..]).unwrap_err().to_string();
    assert!(refused.contains("share their numbers"), "{refused}");
}
