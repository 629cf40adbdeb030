// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each capture of an Arm trace unit against OpenCSD: the same packets at the same places, each byte accounted for.

use super::decode;
use super::oracle;
use crate::captures::{Row, capture, expected};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Which buffer the oracle took where there are two.
const BUFFERS: &[(&str, usize)] = &[("ete.ete-ite-instr", 1)];

/// By the capture's directory: bytes that OpenCSD 1.5.5 leaves out, from its packets and from what it lists as unused, at headers that a unit does not have.
///
/// - `infrastructure` is an ETMv4 trace that is said to be of an ETE, which has no exception return packet (07): 32 times the
///   atom after one is absent. In juno_r1_1, the same trace as ETMv4, the oracle has all of them.
/// - In `a55-test-tpiu`, 4 headers A5 (Q) are absent. TRCIDR0.QSUPP is 0, so they are reserved (IHI 0064, 6.4.18).
const ORACLE_LEAVES_OUT: &[(&str, usize)] = &[("infrastructure", 32), ("a55-test-tpiu", 4)];

/// By the capture's directory: ranges that OpenCSD 1.5.5 made up.
///
/// - In `ete_ip` a return was taken, no address of its target followed, and the unit's return stack is off (TRCCONFIGR.RS is 0),
///   so nobody knows where execution went (IHI 0064, 4.5.4). The oracle goes on behind the return, for 9131 instructions up to
///   the address of the exception.
/// - In `r5f-freertos` an exception cancels the instruction before it (IHI 0014, 7.4.4). The oracle keeps back the last
///   instruction of a P-header for that only where it is the only one, and this header has two.
const ORACLE_MADE_UP: &[(&str, &str)] = &[
    ("ete_ip", "RANGE 0x1aa948 0x1b37f4 9131 4 ISA=A32 E ---"),
    ("freertos", "RANGE 0x700ace30 0x700ace34 1 4 ISA=T32 E ---"),
];

/// By the capture's directory and buffer: Q elements after a return of which nobody says where it went. OpenCSD 1.5.5 has them begin behind the
/// return, where execution did not go on.
const FROM_NOWHERE: &[(&str, usize, usize)] = &[("q_elem", 0, 1)];

/// Captures of which the program is not kept with them.
const NEEDS_PROGRAM: &[&str] = &["r5f-freertos"];

/// Directory of the capture, name of the oracle's listing.
pub const SNAPSHOTS: &[(&str, &str)] = &[
    ("opencsd/juno_r1_1", "juno_r1_1"),
    ("opencsd/juno-uname-001", "juno-uname-001"),
    ("opencsd/a57_single_step", "a57_single_step"),
    ("opencsd/init-short-addr", "init-short-addr"),
    ("opencsd/a55-test-tpiu", "a55-test-tpiu"),
    ("opencsd-ete/event_test", "ete.event_test"),
    ("opencsd-ete/ete-ite-instr", "ete.ete-ite-instr"),
    ("opencsd-ete/ts_marker", "ete.ts_marker"),
    ("opencsd-ete/infrastructure", "ete.infrastructure"),
    ("opencsd-ete/ete_spec_1", "ete.ete_spec_1"),
    ("opencsd-ete/src_addr", "ete.src_addr"),
    ("opencsd-ete/ete-bc-instr", "ete.ete-bc-instr"),
    ("opencsd-ete/tme_simple", "ete.tme_simple"),
    ("opencsd-ete/trace_file_cid_vmid", "ete.trace_file_cid_vmid"),
    ("opencsd-ete/ete_ip", "ete.ete_ip"),
    ("ricsec/branches-trace1", "ricsec-branches1"),
    ("opencsd/TC2", "TC2"),
    ("opencsd/tc2-ptm-rstk-t32", "tc2-ptm-rstk-t32"),
    ("etmv3-r5f/freertos", "r5f-freertos"),
    ("itm/sigrok-stm32f105/ocsd", "stm32f105"),
];

#[test]
fn captures_have_the_packets_of_the_oracle() {
    let folder = capture!("");
    let (mut there, mut different) = (0, Vec::new());
    for (directory, name) in SNAPSHOTS {
        let directory = folder.join(directory);
        if !directory.exists() {
            println!("{} is not there", directory.display());
            continue;
        }
        there += 1;
        let listing = oracle::listing(&expected(&format!("opencsd-1.5.5/{name}.ppl.xz")));
        let buffer = BUFFERS.iter().find(|(of, _)| of == name).map_or(0, |(_, buffer)| *buffer);
        if !compare(name, "OpenCSD 1.5.5", &directory, buffer, listing) {
            different.push(*name);
        }
    }
    assert!(different.is_empty(), "{different:?}");
    if there == 0 {
        rtscope_testkit::skip::say("none of these captures is there");
    }
}

/// Whether a buffer of a snapshot is decoded as the oracle decodes it; prints the row.
pub fn compare(name: &str, by: &str, directory: &Path, buffer: usize, mut listing: oracle::Listing) -> bool {
    let mut found = decode::snapshot(directory, buffer);
    let input = found.values().map(|found| found.input).sum();
    let mut packets = Count::default();
    let left_out = packets_equal(name, &listing, &mut found, &mut packets);
    let mut notes = Vec::new();
    if found.values().any(|found| found.without_program) && NEEDS_PROGRAM.contains(&name) {
        notes.push("its program is not there: packets only".to_owned());
        listing.elements.clear();
    } else if listing.elements.is_empty() {
        notes.push("the oracle listed packets only".to_owned());
    }
    let (mut elements, mut ranges, mut made_up, mut from_nowhere) =
        (Count::default(), Count::default(), 0, 0);
    let folder = directory.file_name().unwrap().to_string_lossy();
    for (id, expected) in &mut listing.elements {
        for (_, range) in ORACLE_MADE_UP.iter().filter(|(of, _)| *of == folder) {
            let place = expected.iter().position(|element| element == range);
            made_up += usize::from(place.map(|place| expected.remove(place)).is_some());
        }
        let none = Vec::new();
        let ours = found.values().find(|found| found.trace_id == *id).map_or(&none, |found| &found.elements);
        for (ours, theirs) in ours.iter().zip(expected.iter_mut()) {
            from_nowhere += usize::from(is_from_nowhere(ours, theirs));
        }
        elements.add(name, *id, "element", ours, expected);
        let is_range = |element: &&String| element.starts_with("RANGE");
        ranges.of += expected.iter().filter(is_range).count();
        let same = ours.iter().zip(&*expected).take_while(|(ours, theirs)| ours == theirs);
        ranges.same += same.filter(|(ours, _)| is_range(ours)).count();
    }
    let known_left_out =
        ORACLE_LEAVES_OUT.iter().find(|(of, _)| *of == folder).map_or(0, |(_, bytes)| *bytes);
    let is_compared = !listing.elements.is_empty();
    let known_made_up = ORACLE_MADE_UP.iter().filter(|(of, _)| *of == folder && is_compared).count();
    let of_buffer = FROM_NOWHERE.iter().find(|(of, index, _)| *of == folder && *index == buffer);
    let known_from_nowhere = of_buffer.map_or(0, |(.., count)| *count);
    // What the oracle has otherwise is exactly what is explained above.
    let found_otherwise = [left_out, made_up, from_nowhere];
    let is_explained = found_otherwise == [known_left_out, known_made_up, known_from_nowhere];
    if !is_explained {
        notes.push(format!("NOT EXPLAINED: left out, made up, from nowhere: {found_otherwise:?}"));
    }
    if left_out > 0 {
        notes.push(format!("{left_out} headers that the unit does not have are left out by the oracle"));
    }
    if made_up > 0 {
        notes.push(format!("{made_up} range is made up by the oracle"));
    }
    if from_nowhere > 0 {
        notes.push(format!("the begin of {from_nowhere} unknown path is made up by the oracle"));
    }
    let lost = found.values().map(|found| found.unused).sum();
    let row = Row {
        capture: name,
        unit: &decode::units_of(directory, buffer),
        oracle: by,
        compared: &[
            ("packets", packets.same, packets.of),
            ("elements", elements.same, elements.of),
            ("ranges", ranges.same, ranges.of),
        ],
        bytes: Some((input, lost)),
        notes: &notes.join("; "),
    };
    row.print();
    row.agrees() && is_explained
}

/// A Q element after a return whose target nobody says: the oracle has it begin behind the return. Then theirs becomes ours.
fn is_from_nowhere(ours: &str, theirs: &mut String) -> bool {
    let unknown = |text: &str| Some(text.strip_prefix("UNKNOWN_PATH ")?.split_once(' ')?.1.to_owned());
    let is_it = ours.starts_with("UNKNOWN_PATH ? ") && unknown(ours) == unknown(theirs);
    if is_it {
        ours.clone_into(theirs);
    }
    is_it
}

/// How many are the same up to the first difference of each source, and of how many.
#[derive(Default)]
struct Count {
    same: usize,
    of: usize,
}

impl Count {
    fn add<T: PartialEq + std::fmt::Debug>(
        &mut self,
        name: &str,
        id: u8,
        what: &str,
        ours: &[T],
        theirs: &[T],
    ) {
        let same = ours.iter().zip(theirs).take_while(|(ours, theirs)| ours == theirs).count();
        // What only we have is a difference as well.
        let more = same == theirs.len() && ours.len() > theirs.len();
        self.same += same - usize::from(more && same > 0);
        self.of += theirs.len().max(usize::from(more));
        if same < ours.len().max(theirs.len()) {
            let around = same.saturating_sub(2)..;
            let some = |all: &[T]| format!("{:?}", all[around.clone()].iter().take(5).collect::<Vec<_>>());
            println!("{name} {id:#x}: {what} {same}: here {}\nthe oracle: {}", some(ours), some(theirs));
        }
    }
}

/// Compares packets and bytes without synchronisation; gives how many the oracle leaves out.
fn packets_equal(
    name: &str,
    listing: &oracle::Listing,
    found: &mut BTreeMap<u8, decode::Found>,
    packets: &mut Count,
) -> usize {
    let mut left_out = 0;
    for (id, expected) in &listing.packets {
        let mut none = decode::Found::default();
        let ours = found.get_mut(id).unwrap_or(&mut none);
        left_out += leave_out(ours, expected);
        if let (Some(ours), Some(last)) = (ours.packets.last_mut(), expected.last()) {
            // The oracle gives a packet of which the end is missing the name of the whole one.
            if ours.1.starts_with("INCOMPLETE") && ours.0 == last.0 {
                ours.1.clone_from(&last.1);
            }
        }
        packets.add(name, *id, "packet", &ours.packets, expected);
        // OpenCSD 1.5.5 lists a byte that is in no frame behind some that it cannot use: more than the source has.
        let made_up = listing.bytes.get(id).map_or(0, |listed| listed.saturating_sub(ours.input));
        let unused = listing.unused.get(id).map_or(0, |unused| unused.saturating_sub(made_up));
        if ours.unused != unused {
            packets.same = packets.same.saturating_sub(1);
            println!("{name} {id:#x}: {} bytes without synchronisation, not {unused}", ours.unused);
        }
    }
    left_out
}

/// Removes headers that the unit does not have, and what is right after them, if the oracle has nothing there.
fn leave_out(ours: &mut decode::Found, expected: &[(u64, String)]) -> usize {
    let places: BTreeSet<_> = expected.iter().map(|(offset, _)| *offset).collect();
    let absent = |place: &usize| ours.packets.get(*place).is_some_and(|packet| !places.contains(&packet.0));
    let out: BTreeSet<_> = ours.doubtful.iter().copied().filter(absent).collect();
    let mut place = 0;
    ours.packets.retain(|_| {
        place += 1;
        !out.contains(&(place - 1))
    });
    out.len()
}

#[test]
fn the_branches_of_ricsec_are_all_found() {
    let folder = capture!("ricsec");
    let found = decode::snapshot(&folder.join("branches-trace1"), 0);
    let base = 0xAAAA_CEAA_0000;
    let ranges = found[&0x10].elements.iter().filter_map(|element| element.strip_prefix("RANGE 0x"));
    let starts =
        ranges.map(|range| u64::from_str_radix(range.split(' ').next().unwrap(), 16).unwrap() - base);
    let starts: Vec<_> = starts.collect();
    // An edge is from the beginning of one range to that of the next.
    let edges: BTreeSet<_> = starts.windows(2).map(|two| (two[0], two[1])).collect();
    let text = std::fs::read_to_string(folder.join("expected_edge_coverage.out")).unwrap();
    let address = |text: &str| {
        u64::from_str_radix(text.split(' ').next().unwrap().trim_start_matches("0x"), 16).unwrap()
    };
    let expected: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_once(" -> "))
        .map(|(from, to)| (address(from), address(to)))
        .collect();
    let absent: Vec<_> = expected.iter().filter(|edge| !edges.contains(edge)).collect();
    Row {
        capture: "ricsec, edges",
        unit: "ETMv4",
        oracle: "by hand",
        compared: &[("edges", expected.len() - absent.len(), expected.len())],
        bytes: None,
        notes: "",
    }
    .print();
    assert_eq!(expected.len(), 42);
    assert!(absent.is_empty(), "{absent:x?}");
}

/// The AUX data of a perf.data of Android: 384 bytes at this place, by perf's own listing.
#[test]
fn the_packets_of_an_android_capture_are_those_of_perf() {
    let bytes = std::fs::read(capture!("etm-perfdata/perf_etm.data")).unwrap();
    let aux = &bytes[0x26A8 + 0x30..][..0x180];
    let listing = expected("perf-6.1/perf_etm.data.D.txt.xz");
    let lines =
        listing.lines().map(str::trim).filter(|line| line.starts_with("Idx:")).collect::<Vec<_>>().join("\n");
    let listing = oracle::listing(&lines);
    let found = decode::frames(aux, 0x1E);
    assert_eq!(found.packets, listing.packets[&0x1E]);
    let count = found.packets.len();
    Row {
        capture: "perf_etm.data",
        unit: "ETMv4",
        oracle: "perf 6.1",
        compared: &[("packets", count, count)],
        bytes: Some((found.input, found.unused)),
        notes: "",
    }
    .print();
}

/// Frames without synchronisation, of which bytes were inserted on the way: the sources as two other decoders took them apart.
#[test]
fn swo_frames_are_aligned_by_their_content() {
    let folder = capture!("itm/sigrok-stm32f105");
    let bytes = std::fs::read(folder.join("swo.bin")).unwrap();
    let found = rtscope_hardware::coresight::align::find(&bytes).unwrap();
    let mut sources = decode::Sources::default();
    let mut deformatter =
        rtscope_hardware::coresight::Deformatter::new(rtscope_hardware::coresight::Framing::Aligned);
    deformatter.push(&bytes[found.start..], &mut sources);
    deformatter.finish(&mut sources);
    for (id, name) in [(1, "id1.itm.bin"), (2, "id2.etmv3.bin")] {
        let expected = std::fs::read(folder.join(name)).unwrap();
        let ours = &sources.0[&id];
        println!("{name}: {} bytes, {} expected", ours.len(), expected.len());
        assert_eq!(*ours, expected);
    }
    println!("frames begin at {}, {} synchronisations", found.start, found.syncs);
    Row {
        capture: "sigrok-stm32f105/swo.bin",
        unit: "TPIU frames",
        oracle: "sigrok 0.7.2",
        compared: &[("sources", 2, 2)],
        bytes: Some((bytes.len() as u64, found.start as u64)),
        notes: "",
    }
    .print();
}
