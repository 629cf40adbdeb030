// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cuts of traces: babeltrace2 prints of them what is printed of the same part of the trace that they were cut from.

use super::babeltrace2::{collection, ours_of, same, theirs};
use super::layouts;
use rtscope_ctf::{Condition, Cut, CutSummary, Error, Selection, TraceSet, cut, write_trace};
use rtscope_event::PatternList;
use rtscope_testkit::babeltrace2;
use rtscope_testkit::random::Random;
use rtscope_testkit::recordings::{every_variant, info};
use std::fs;
use std::path::{Path, PathBuf};

fn try_cut(dir: &Path, out: &Path, selection: &Selection) -> Result<CutSummary, Error> {
    let set = TraceSet::open(dir).unwrap();
    let part = Cut { set: &set, root: dir, selection, conditions: &[] };
    cut(&part, out, &|_| true)
}

/// Events as text, without the time since the one before, which is another in a part. Text in a field may have ends of lines.
fn events(text: &[u8]) -> Vec<String> {
    let mut events: Vec<String> = Vec::new();
    if !text.starts_with(b"[") {
        // No clock, no times.
        return String::from_utf8_lossy(text).lines().map(str::to_owned).collect();
    }
    for line in String::from_utf8_lossy(text).split_inclusive('\n') {
        match (line.starts_with('['), events.last_mut()) {
            (false, Some(last)) => last.push_str(line),
            _ => {
                let (time, rest) = line.split_once(" (").unwrap_or((line, ""));
                events.push(format!("{time}{}", rest.split_once(')').map_or("", |(_, rest)| rest)));
            }
        }
    }
    events
}

/// What a cut has: what is selected, and the state dump.
fn expected(dir: &Path, selection: &Selection) -> Vec<String> {
    let mut selected = events(&ours_of(dir, true, selection).0).into_iter().peekable();
    let all = events(&ours_of(dir, true, &Selection::default()).0).into_iter();
    let by_place = selection.from_ns.is_some() || selection.cpus.is_some();
    let has_dump = by_place && selection.events.is_empty() && selection.conditions.is_empty();
    let expected: Vec<String> = all
        .filter(|event| {
            let is_selected = selected.next_if(|next| next == event).is_some();
            is_selected || (has_dump && event.contains("lttng_statedump_"))
        })
        .collect();
    assert_eq!(selected.next(), None);
    expected
}

/// Cuts, and compares what babeltrace2 prints of the cut, and what we do. Returns the number of events.
#[track_caller]
fn compare(dir: &Path, selection: &Selection) -> u64 {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("cut");
    let summary = try_cut(dir, &out, selection).unwrap();
    let expected = expected(dir, selection);
    let (printed, count) = ours_of(&out, true, &Selection::default());
    assert_eq!(events(&printed), expected, "{}: {selection:?}", dir.display());
    assert_eq!(summary.events, count);
    let Some(theirs) = theirs(&out, &["--clock-cycles"]) else { return count };
    same(&out, &printed, &theirs);
    count
}

/// Times of all events.
fn times(dir: &Path) -> Vec<i64> {
    let set = TraceSet::open(dir).unwrap();
    let mut times = Vec::new();
    rtscope_ctf::read(&set, &Selection::default(), &|_| true, |source| {
        use rtscope_event::{Item, TraceSource};
        loop {
            match source.next() {
                Item::Event(event) => times.push(event.time_ns),
                Item::End => break,
                _ => {}
            }
        }
    });
    times
}

fn between(from: Option<i64>, to: Option<i64>) -> Selection {
    Selection { from_ns: from, to_ns: to, ..Selection::default() }
}

/// All of it, and random parts of time.
#[track_caller]
fn compare_parts(dir: &Path, seed: u64, rounds: u32) {
    compare(dir, &Selection::default());
    let times = times(dir);
    let mut random = Random(seed);
    for _ in 0..rounds {
        let mut edge = || (!times.is_empty()).then(|| times[random.index(times.len())]);
        let (one, other) = (edge(), edge());
        let (from, to) = (one.min(other), one.max(other));
        let part = match random.below(4) {
            0 => between(from, None),
            1 => between(None, to),
            // Between two events, too.
            _ => between(from.map(|from| from + random.below(2) as i64), to),
        };
        compare(dir, &part);
    }
}

/// Traces of several tracers, each with a name.
fn traces(root: &Path) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    for (name, recording) in [
        ("every", every_variant()),
        ("few", Random(31).recording(300)),
        ("many", Random(32).recording(60_000)),
    ] {
        dirs.push(root.join(name));
        write_trace(&root.join(name), &recording, &info()).unwrap();
    }
    let theirs = root.join("theirs");
    if let Some(written) = babeltrace2::run(&dirs[2], &["-o", "ctf", "-w", theirs.to_str().unwrap()]) {
        assert!(written.status.success());
        dirs.push(theirs);
    }
    dirs.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../ctf/tests/corpus/lttng-ust"));
    dirs
}

#[test]
fn a_part_of_time_is_what_babeltrace2_shows_of_it() {
    let root = tempfile::tempdir().unwrap();
    for (seed, dir) in (0..).zip(traces(root.path())) {
        compare_parts(&dir, seed, 6);
    }
}

#[test]
fn layouts_of_any_kind_are_cut() {
    let root = tempfile::tempdir().unwrap();
    for (seed, (name, layout)) in (0..).zip(layouts::all()) {
        let dir = root.path().join(name);
        layout.write(&dir);
        compare_parts(&dir, seed, 6);
    }
}

#[test]
fn selected_events_alone_are_copied_wherever_they_come_to_lie() {
    let root = tempfile::tempdir().unwrap();
    let dirs = traces(root.path());
    let mut selected = 0;
    for (dir, names) in [
        (&dirs[1], "sched_*"),
        (&dirs[1], "sched_*,!sched_switch"),
        (&dirs[2], "irq_*"),
        (&dirs[3], "sched_switch"),
        (&dirs[4], "probe:text"),
    ] {
        let events = PatternList::new(names.split(','));
        selected += compare(dir, &Selection { events, ..Selection::default() });
        let times = times(dir);
        let (from_ns, to_ns) = (Some(times[times.len() / 3]), Some(times[times.len() / 2]));
        let events = PatternList::new(names.split(','));
        compare(dir, &Selection { from_ns, to_ns, events, ..Selection::default() });
        compare(dir, &Selection { cpus: Some([0].into()), ..Selection::default() });
        compare(dir, &Selection { from_ns, cpus: Some([1].into()), ..Selection::default() });
    }
    let condition = Condition::parse("next_tid > 10 && prev_prio < 120").unwrap();
    selected += compare(&dirs[2], &Selection { conditions: vec![condition], ..Selection::default() });
    assert!(selected > 1000, "{selected}");
    // Aligned fields: every other event is left out, so that the rest has to move.
    for (name, layout) in layouts::all() {
        let dir = root.path().join(format!("layout-{name}"));
        layout.write(&dir);
        for condition in
            ["n == 1", "row =~ \"*\"", "perf_tid % 2 == 0", "f0_true_decimal == 0", "last > 5", "n > 7"]
        {
            let Ok(condition) = Condition::parse(condition) else { continue };
            compare(&dir, &Selection { conditions: vec![condition], ..Selection::default() });
        }
    }
}

/// Fields that are aligned more than their event: what is before an event decides how much space is in it.
#[test]
fn events_that_come_to_lie_elsewhere_have_other_space_in_them() {
    let root = tempfile::tempdir().unwrap();
    let metadata = "/* CTF 1.8 */
        typealias integer { size = 8; align = 8; } := u8;
        typealias integer { size = 16; align = 16; } := u16;
        typealias integer { size = 32; align = 32; } := u32;
        trace { major = 1; minor = 8; byte_order = le; };
        clock { name = mono; freq = 1000000000; };
        typealias integer { size = 64; align = 8; map = clock.mono.value; } := time64;
        stream { event.header := struct { u8 id; time64 timestamp; }; };
        event { id = 1; name = \"odd\"; fields := struct { u8 n; u32 a; string text; u16 b; u8 tail[n]; }; };";
    let dir = root.path().join("odd");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("metadata"), metadata).unwrap();
    let (mut bytes, mut random) = (Vec::new(), Random(3));
    let align = |bytes: &mut Vec<u8>, to: usize| bytes.resize(bytes.len().next_multiple_of(to), 0xee);
    for time in 0..200_u64 {
        let n = random.below(5) as u8;
        bytes.push(1);
        bytes.extend_from_slice(&(time * 10).to_le_bytes());
        // A struct is aligned as the largest of its fields.
        align(&mut bytes, 4);
        bytes.push(n);
        align(&mut bytes, 4);
        bytes.extend_from_slice(&(time as u32).to_le_bytes());
        bytes.extend_from_slice(&b"some text"[..random.index(9)]);
        bytes.push(0);
        align(&mut bytes, 2);
        bytes.extend_from_slice(&(time as u16).to_le_bytes());
        bytes.resize(bytes.len() + usize::from(n), n);
    }
    fs::write(dir.join("stream"), bytes).unwrap();
    compare_parts(&dir, 9, 5);
    for condition in ["n == 1", "n > 2", "a > 100", "b < 50 && n != 0"] {
        let conditions = vec![Condition::parse(condition).unwrap()];
        assert!(compare(&dir, &Selection { conditions, ..Selection::default() }) > 10);
    }
}

#[test]
fn the_traces_of_babeltrace2s_tests_are_cut() {
    for dir in collection().unwrap_or_default() {
        let Some(theirs) = babeltrace2::run(&dir, &["--clock-gmt"]) else { return };
        if !theirs.status.success() {
            continue;
        }
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("cut");
        try_cut(&dir, &out, &Selection::default()).unwrap();
        let Some(cut) = babeltrace2::run(&out, &["--clock-gmt"]) else { return };
        assert!(cut.status.success(), "{}: {}", dir.display(), String::from_utf8_lossy(&cut.stderr));
        same(&dir, &cut.stdout, &theirs.stdout);
    }
}

#[test]
fn two_halves_together_have_all_events_once() {
    let root = tempfile::tempdir().unwrap();
    for (place, dir) in traces(root.path()).into_iter().enumerate() {
        let halves = root.path().join(format!("halves-{place}"));
        fs::create_dir(&halves).unwrap();
        let times = times(&dir);
        let middle = times[times.len() / 2];
        try_cut(&dir, &halves.join("a"), &between(None, Some(middle - 1))).unwrap();
        try_cut(&dir, &halves.join("b"), &between(Some(middle), None)).unwrap();
        let of = |dir: &Path| {
            let mut all = events(&ours_of(dir, true, &Selection::default()).0);
            all.retain(|event| !event.contains("lttng_statedump_"));
            all.sort();
            all
        };
        assert_eq!(of(&halves), of(&dir), "{}", dir.display());
        let set = TraceSet::open(&halves).unwrap();
        assert_eq!(set.traces.len(), 2, "each half is a trace");
    }
}

#[test]
fn what_cannot_be_said_in_a_layout_is_refused_and_nothing_is_left() {
    let root = tempfile::tempdir().unwrap();
    let (metadata, streams) = layouts::large(24, 1);
    let dir = root.path().join("large");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("metadata"), metadata).unwrap();
    fs::write(dir.join("stream"), &streams[0]).unwrap();
    let times = times(&dir);
    let out = root.path().join("cut");
    // 24 bits of time, which wrap many times, and no packets that say when they begin.
    let error = try_cut(&dir, &out, &between(Some(times[times.len() / 2]), None)).unwrap_err().to_string();
    assert!(error.contains("ambiguous") && error.contains("24 bits"), "{error}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    // The beginning can be had.
    compare(&dir, &between(None, Some(times[times.len() / 2])));
    compare(&dir, &Selection::default());
}
