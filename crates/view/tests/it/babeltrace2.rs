// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The text of events, compared byte for byte with what babeltrace2 prints of the same trace.

use super::layouts;
use rtscope_ctf::{Selection, TraceSet, count, print, write_trace};
use rtscope_testkit::random::Random;
use rtscope_testkit::recordings::{every_variant, info};
use rtscope_testkit::{babeltrace2, skip};
use rtscope_view::PrettyFormat;
use std::path::Path;

/// UTC, as babeltrace2 with `--clock-gmt`.
fn utc(unix_s: i64) -> [u8; 9] {
    let of_day = unix_s.rem_euclid(24 * 3600);
    let text = format!("{:02}:{:02}:{:02}.", of_day / 3600, of_day / 60 % 60, of_day % 60);
    text.as_bytes().try_into().unwrap()
}

/// What babeltrace2 prints, in UTC; warnings that say nothing about the events are passed over.
pub fn theirs(dir: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let output = babeltrace2::run(dir, &[&["--clock-gmt"], arguments].concat())?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    let harmless = |line: &str| line.starts_with("WARNING: Tracer ") || line.contains("meaningless");
    let is_clean = output.status.success() && complaints.lines().all(harmless);
    assert!(is_clean, "{}: {complaints}", dir.display());
    Some(output.stdout)
}

/// What rtscope prints, and its count.
fn ours(dir: &Path, raw: bool) -> (Vec<u8>, u64) {
    ours_of(dir, raw, &Selection::default())
}

/// The same of a part.
pub fn ours_of(dir: &Path, raw: bool, selection: &Selection) -> (Vec<u8>, u64) {
    let set = TraceSet::open(dir).unwrap();
    assert!(set.damaged.is_empty(), "{:?}", set.damaged);
    let format = PrettyFormat::new(&set, utc, raw);
    let mut text = Vec::new();
    let mut before = None;
    print(&set, selection, u64::MAX, &format, &mut |piece| {
        use rtscope_ctf::Format;
        assert!(piece.damaged.is_empty(), "{:?}", piece.damaged);
        let at = piece.first.map_or(0, |(_, at)| at);
        text.extend_from_slice(&piece.text[..at]);
        if let Some((first, _)) = piece.first {
            format.gap(before, first, &mut text);
        }
        text.extend_from_slice(&piece.text[at..]);
        before = piece.last.or(before);
        true
    });
    let counts = count(&set, selection, &|_| {});
    assert!(counts.damaged.is_empty(), "{:?}", counts.damaged);
    (text, counts.streams.iter().map(|stream| stream.total()).sum())
}

fn same_text(dir: &Path) {
    let Some(expected) = theirs(dir, &[]) else { return };
    let (text, events) = ours(dir, false);
    same(dir, &text, &expected);
    assert_eq!(events, expected.iter().filter(|byte| **byte == b'\n').count() as u64);
    let Some(expected) = theirs(dir, &["--clock-cycles"]) else { return };
    same(dir, &ours(dir, true).0, &expected);
}

/// Names the first line that differs.
pub fn same(dir: &Path, ours: &[u8], theirs: &[u8]) {
    let (ours, theirs) = (String::from_utf8_lossy(ours), String::from_utf8_lossy(theirs));
    assert_eq!(ours.lines().count(), theirs.lines().count(), "{}", dir.display());
    for (line, (ours, theirs)) in ours.lines().zip(theirs.lines()).enumerate() {
        if !same_line(ours, theirs) {
            assert_eq!(ours, theirs, "{}, line {}", dir.display(), line + 1);
        }
    }
}

/// babeltrace2 2.0.4 shows an empty text as what its memory had there for an earlier event; any text will do then.
fn same_line(ours: &str, theirs: &str) -> bool {
    const EMPTY: &str = "= \"\"";
    let Some((before, after)) = ours.split_once(EMPTY) else { return ours == theirs };
    let Some(rest) = theirs.strip_prefix(before).and_then(|rest| rest.strip_prefix("= \"")) else {
        return false;
    };
    // The earlier text may have quotes in it.
    rest.match_indices('"').any(|(at, _)| same_line(after, &rest[at + 1..]))
}

#[test]
fn our_own_traces_are_printed_as_babeltrace2_does() {
    let root = tempfile::tempdir().unwrap();
    for (name, recording) in [
        ("every", every_variant()),
        ("few", Random(11).recording(300)),
        // Several packets per stream, and slices of time.
        ("many", Random(12).recording(120_000)),
    ] {
        let dir = root.path().join(name);
        write_trace(&dir, &recording, &info()).unwrap();
        same_text(&dir);
    }
    // All three have one UUID, but that makes no difference for files of other names.
    for name in ["every", "few"] {
        same_text(&root.path().join(name));
    }
}

#[test]
fn traces_that_babeltrace2_wrote_are_printed_as_it_does() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("ours");
    write_trace(&dir, &Random(13).recording(20_000), &info()).unwrap();
    let out = root.path().join("theirs");
    let Some(written) = babeltrace2::run(&dir, &["-o", "ctf", "-w", out.to_str().unwrap()]) else { return };
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    same_text(&out);
}

#[test]
fn every_kind_of_field_is_printed_as_babeltrace2_does() {
    let root = tempfile::tempdir().unwrap();
    for (name, layout) in layouts::all() {
        let dir = root.path().join(name);
        layout.write(&dir);
        same_text(&dir);
    }
}

#[test]
fn large_packets_without_times_are_printed_as_babeltrace2_does() {
    let root = tempfile::tempdir().unwrap();
    for bits in [64, 32, 24] {
        let (metadata, streams) = layouts::large(bits, 2);
        let dir = root.path().join(bits.to_string());
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("metadata"), metadata).unwrap();
        for (place, stream) in streams.iter().enumerate() {
            std::fs::write(dir.join(format!("stream{place}")), stream).unwrap();
        }
        same_text(&dir);
    }
}

/// babeltrace2's collection of traces, where it is installed: the directory `tests/data/ctf-traces/succeed` of its sources.
pub fn collection() -> Option<Vec<std::path::PathBuf>> {
    const VARIABLE: &str = "RTSCOPE_BABELTRACE_TRACES";
    let Some(directory) = std::env::var_os(VARIABLE) else {
        skip::say(format_args!("{VARIABLE} does not name a directory of traces"));
        return None;
    };
    Some(std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect())
}

#[test]
fn the_traces_of_babeltrace2s_tests_are_printed_as_it_does() {
    for dir in collection().unwrap_or_default() {
        // What babeltrace2 itself refuses, or complains of, is no oracle.
        let Some(theirs) = babeltrace2::run(&dir, &["--clock-gmt"]) else { return };
        if theirs.status.success() {
            same(&dir, &ours(&dir, false).0, &theirs.stdout);
        }
    }
}

#[test]
fn traces_below_a_folder_are_merged_as_babeltrace2_does() {
    let root = tempfile::tempdir().unwrap();
    for (name, seed) in [("b/one", 21), ("a/two/three", 22)] {
        let dir = root.path().join(name);
        std::fs::create_dir_all(dir.parent().unwrap()).unwrap();
        let info = rtscope_ctf::TraceInfo { trace_uuid: uuid::Uuid::from_u128(seed), ..info() };
        write_trace(&dir, &Random(seed as u64).recording(2000), &info).unwrap();
    }
    same_text(root.path());
}

/// Small traces of other tracers, made for this test (see its README).
#[test]
fn traces_of_other_tracers_are_printed_as_babeltrace2_does() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ctf/tests/corpus");
    same_text(&corpus.join("lttng-ust"));
}
