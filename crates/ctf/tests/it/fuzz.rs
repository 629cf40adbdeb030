// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traces changed at random: whatever they hold, reading them ends soon, without a panic, with bounded output and in bounded memory.
//!
//! The changes are the same each time, made to a small corpus: a trace of LTTng's (`tests/corpus`) and one of ours. Half of them are
//! to the metadata, since that decides how the rest is read. `RTSCOPE_FUZZ` sets the number of iterations, for long runs.

use super::memory::{SHAPES, limit};
use rtscope_ctf::{
    EventView, FieldIndex, Format, Integer, NoStyle, Piece, Plan, Selection, TraceSet, Visit, WriteEvent,
    count, print, write_trace,
};
use rtscope_event::{Item, TraceSource};
use rtscope_testkit::memory::{is_alone, peak_of};
use rtscope_testkit::random::Random;
use rtscope_testkit::recordings::info;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Visits every field.
struct FullFormat {
    plans: Vec<(Plan, Vec<Plan>)>,
}

impl FullFormat {
    fn new(set: &TraceSet) -> FullFormat {
        let plans = set.streams.iter().map(|stream| {
            let events = (0..set.event_count(stream)).map(|event| set.event_plan(stream, event, &NoStyle));
            (set.packet_plan(stream, &NoStyle), events.collect())
        });
        FullFormat { plans: plans.collect() }
    }
}

impl Format for FullFormat {
    type Writer<'f> = Writer<'f>;

    fn writer(&self) -> Writer<'_> {
        Writer { format: self, values: 0 }
    }

    fn gap(&self, _: Option<u64>, _: u64, _: &mut Vec<u8>) {}
}

struct Writer<'f> {
    format: &'f FullFormat,
    values: u64,
}

impl WriteEvent for Writer<'_> {
    fn write(&mut self, piece: &mut Piece, event: &mut EventView<'_, '_>) -> bool {
        let (packet, events) = &self.format.plans[event.stream];
        let mut counter = ValueCounter { values: 0 };
        event.show_context(packet, &mut counter);
        let whole = event.show(&events[event.event], &mut counter);
        self.values += counter.values;
        piece.text.push(b'\n');
        whole
    }
}

struct ValueCounter {
    values: u64,
}

impl Visit for ValueCounter {
    fn literal(&mut self, _: &[u8]) {}

    fn integer(&mut self, plan: &Plan, integer: &Integer, value: u64) {
        self.values += 1;
        let labels =
            plan.enumeration(integer).map_or(0, |enumeration| enumeration.labels(value.into()).count());
        self.values += labels as u64;
    }

    fn float(&mut self, _: FieldIndex, _: f64) {}

    fn text(&mut self, _: FieldIndex, text: &[u8]) {
        assert!(!text.contains(&0));
    }

    fn element(&mut self, _: u64) {}
}

/// Reads in every way. Errors are fine.
pub fn read(dir: &Path) {
    let start = Instant::now();
    let Ok(set) = TraceSet::open(dir) else { return };
    let selection = Selection::default();
    let counts = count(&set, &selection, &|_| {});
    let counted: u64 = counts.streams.iter().map(|stream| stream.total()).sum();
    let mut printed = 0;
    print(&set, &selection, u64::MAX, &FullFormat::new(&set), &mut |piece| {
        printed += piece.events;
        true
    });
    // The corpus has some 100 kB, and an event has a byte at least.
    assert!(counted < 1_000_000, "{counted}");
    // What cannot be passed over cannot be shown either; a text that is not shown may be passed over.
    assert!(printed <= counted, "{printed} printed, {counted} counted");
    let mut taken = 0;
    rtscope_ctf::read(&set, &selection, &|_| true, |source| {
        let mut latest_ns = i64::MIN;
        loop {
            match source.next() {
                Item::Event(event) => {
                    assert!(event.time_ns >= latest_ns);
                    latest_ns = event.time_ns;
                    taken += 1;
                }
                Item::End => break,
                _ => {}
            }
        }
    });
    assert!(taken <= counted, "{taken} taken, {counted} counted");
    let _ = rtscope_ctf::read_trace(dir);
    assert!(start.elapsed() < Duration::from_secs(20), "took {:?}", start.elapsed());
}

/// The files of a trace.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let mut files: Vec<(PathBuf, Vec<u8>)> =
        entries.map(|path| (path.clone(), fs::read(&path).unwrap())).collect();
    files.sort();
    files
}

/// Words that mean something in metadata.
const WORDS: [&str; 22] = [
    "0",
    "1",
    "63",
    "64",
    "65",
    "4096",
    "18446744073709551615",
    "-1",
    "size",
    "align",
    "struct { }",
    "string",
    "signed = true;",
    "[4294967295]",
    "[_n]",
    "variant <id> {",
    "};",
    "{",
    "map = clock.monotonic.value;",
    "byte_order = be;",
    "integer {",
    "enum : uint8_t {",
];

fn change(random: &mut Random, bytes: &mut Vec<u8>, text: bool) {
    if bytes.is_empty() {
        return;
    }
    if text && random.below(60) == 0 {
        // A few lines that mean much.
        let (_, shape) = SHAPES[random.index(SHAPES.len())];
        bytes.extend(shape(8 << 10 << random.below(4)).bytes());
        return;
    }
    let at = random.below(bytes.len() as u64) as usize;
    let length = (1 + random.below(16) as usize).min(bytes.len() - at);
    match random.below(8) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.next() as u8,
        2 => bytes[at..at + length].fill([0, 0xff, b'0', b'9'][random.below(4) as usize]),
        3 if text => drop(bytes.splice(at..at + length, WORDS[random.below(22) as usize].bytes())),
        3 => (0..length).for_each(|place| bytes[at + place] = random.next() as u8),
        4 => bytes.truncate(at),
        5 => drop(bytes.drain(at..at + length)),
        6 => {
            let piece = bytes[at..at + length].to_vec();
            let to = random.below(bytes.len() as u64) as usize;
            drop(bytes.splice(to..to, piece));
        }
        // A number of 8 bytes, such as a size.
        _ => {
            let number = [0, 1, u64::MAX, 1 << 32, random.next()][random.below(5) as usize].to_le_bytes();
            let end = (at + 8).min(bytes.len());
            bytes[at..end].copy_from_slice(&number[..end - at]);
        }
    }
}

#[test]
fn traces_changed_at_random_are_read_to_an_end() {
    if !is_alone() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let ours = root.path().join("ours");
    write_trace(&ours, &Random(5).recording(600), &info()).unwrap();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/lttng-ust");
    let seeds = [files(&ours), files(&corpus)];
    let iterations = std::env::var("RTSCOPE_FUZZ").ok().and_then(|text| text.parse().ok()).unwrap_or(1500);
    let dir = root.path().join("changed");
    let mut random = Random(20);
    for iteration in 0..iterations {
        let seed = &seeds[iteration % seeds.len()];
        fs::create_dir_all(&dir).unwrap();
        let metadata = seed.iter().position(|(path, _)| path.ends_with("metadata")).unwrap();
        let chosen = if random.below(2) == 0 { metadata } else { random.below(seed.len() as u64) as usize };
        let mut size = 0;
        for (place, (path, bytes)) in seed.iter().enumerate() {
            let mut bytes = bytes.clone();
            if place == chosen {
                (0..1 + random.below(4)).for_each(|_| change(&mut random, &mut bytes, place == metadata));
            }
            size += bytes.len();
            fs::write(dir.join(path.file_name().unwrap()), bytes).unwrap();
        }
        let peak = peak_of(|| read(&dir));
        assert!(peak < limit(size), "iteration {iteration}: {peak} bytes for {size}");
    }
}

/// A byte per event, and thousands of elements without size in each: text would be a million times the trace.
#[test]
fn elements_without_size_are_limited() {
    let root = tempfile::tempdir().unwrap();
    let metadata = "/* CTF 1.8 */ trace { byte_order = le; };
        typealias integer { size = 8; align = 8; } := u8;
        event { name = \"e\"; fields := struct { u8 n; struct { } none[1000000]; }; };";
    fs::write(root.path().join("metadata"), metadata).unwrap();
    fs::write(root.path().join("stream"), vec![1; 100_000]).unwrap();
    let set = TraceSet::open(root.path()).unwrap();
    let mut damaged = Vec::new();
    print(&set, &Selection::default(), u64::MAX, &FullFormat::new(&set), &mut |piece| {
        damaged.append(&mut piece.damaged);
        true
    });
    assert!(damaged[0].damage.what.contains("take no space"), "{damaged:?}");
}
