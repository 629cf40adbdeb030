// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Damaged traces: no panic, no endless loop, and the parts that are intact are read.

use rtscope_ctf::{
    Error, EventView, FieldIndex, Format, Integer, NoStyle, Piece, Plan, Selection, TraceSet, Visit,
    WriteEvent, count, print, read_trace, write_trace,
};
use rtscope_event::{Loss, LossCause};
use rtscope_testkit::random::Random;
use rtscope_testkit::recordings::{every_variant, info};
use std::fs;
use std::path::{Path, PathBuf};

struct WrittenTrace {
    _root: tempfile::TempDir,
    dir: PathBuf,
}

fn written(recording: &rtscope_event::Recording) -> WrittenTrace {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    write_trace(&dir, recording, &info()).unwrap();
    WrittenTrace { dir, _root: root }
}

/// Reads; both outcomes are fine, a panic is not.
fn read(dir: &Path) {
    if let Ok(trace) = read_trace(dir) {
        assert!(trace.recording.events.len() < 1_000_000);
    }
}

/// Hard links cost their owner nothing.
#[test]
fn a_directory_of_many_large_traces_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let metadata = root.path().join("metadata of all");
    let trace = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };";
    fs::write(&metadata, format!("{trace} /* {} */", "x".repeat(60 << 20))).unwrap();
    for number in 0..5 {
        assert!(number == 0 || TraceSet::open(root.path()).is_ok(), "{number}");
        let dir = root.path().join(number.to_string());
        fs::create_dir(&dir).unwrap();
        fs::hard_link(&metadata, dir.join("metadata")).unwrap();
    }
    let refused = TraceSet::open(root.path()).unwrap_err().to_string();
    assert!(refused.contains("256 MiB"), "{refused}");
}

#[test]
fn every_byte_of_a_stream_may_be_wrong() {
    let files = written(&every_variant());
    let path = files.dir.join("kernel_0");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        for flip in [0xff, 0x01, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            fs::write(&path, &bytes).unwrap();
            read(&files.dir);
        }
    }
}

#[test]
fn any_byte_of_the_metadata_may_be_wrong() {
    let files = written(&every_variant());
    let path = files.dir.join("metadata");
    let whole = fs::read(&path).unwrap();
    let mut random = Random(7);
    // Every third, because each try parses the whole text.
    for at in (0..whole.len()).step_by(3) {
        let mut bytes = whole.clone();
        bytes[at] = b"{}[]<>;:=.,\"/*09 zA-"[random.below(20) as usize];
        fs::write(&path, &bytes).unwrap();
        read(&files.dir);
    }
}

#[test]
fn metadata_may_end_anywhere() {
    let files = written(&every_variant());
    let path = files.dir.join("metadata");
    let whole = fs::read(&path).unwrap();
    for end in (0..whole.len()).step_by(7) {
        fs::write(&path, &whole[..end]).unwrap();
        read(&files.dir);
    }
}

#[test]
fn whole_regions_may_be_noise() {
    let files = written(&Random(3).recording(400));
    let path = files.dir.join("kernel_1");
    let whole = fs::read(&path).unwrap();
    let mut random = Random(4);
    for _ in 0..500 {
        let mut bytes = whole.clone();
        let start = random.below(bytes.len() as u64) as usize;
        let length = (1 + random.below(200)) as usize;
        for byte in bytes.iter_mut().skip(start).take(length) {
            *byte = random.next() as u8;
        }
        fs::write(&path, &bytes).unwrap();
        read(&files.dir);
    }
}

#[test]
fn a_stream_may_end_anywhere() {
    let recording = every_variant();
    let files = written(&recording);
    let path = files.dir.join("kernel_1");
    let whole = fs::read(&path).unwrap();
    let others = recording.events.iter().filter(|event| event.cpu.0 != 1).count();
    let mut readable = 0;
    for end in 1..whole.len() {
        fs::write(&path, &whole[..end]).unwrap();
        let trace = read_trace(&files.dir).unwrap();
        // Its events are there up to the end of the file, in order.
        let events = trace.recording.events.iter().filter(|event| event.cpu.0 == 1);
        let events: Vec<_> = events.map(|event| &event.kind).collect();
        let all = recording.events.iter().filter(|event| event.cpu.0 == 1).map(|event| &event.kind);
        assert_eq!(events, all.take(events.len()).collect::<Vec<_>>(), "{end}");
        assert_eq!(trace.recording.events.len(), others + events.len());
        readable = readable.max(events.len());
        assert_eq!(trace.warnings.len(), 1, "{end}: {:?}", trace.warnings);
        let cpu = trace.recording.losses.iter().find_map(|loss| loss.cpu);
        assert!(cpu.is_none_or(|cpu| cpu.0 == 1) && (events.is_empty() || cpu.is_some()));
        assert_eq!(trace.recording.losses, [Loss { cpu, cause: LossCause::Unreadable, count: None }]);
    }
    assert!(readable > 0);
}

#[test]
fn packets_before_one_cut_short_are_kept() {
    let recording = Random(99).recording(90_000);
    let files = written(&recording);
    let path = files.dir.join("kernel_0");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let trace = read_trace(&files.dir).unwrap();
    let missing = recording.events.len() - trace.recording.events.len();
    assert!(missing == 1, "{missing}");
    let loss = trace.recording.losses.last().unwrap();
    assert_eq!((loss.cpu.map(|cpu| cpu.0), loss.cause, loss.count), (Some(0), LossCause::Unreadable, None));
    assert!(trace.warnings[0].contains("cut short"), "{:?}", trace.warnings);
}

/// Its events would be shown with times of another day, or nowhere, as if nothing were wrong.
#[test]
fn a_packet_that_ends_before_it_begins_is_damage() {
    // Behind magic number, UUID, stream and instance.
    const BEGIN_AT: usize = 32;
    let files = written(&every_variant());
    let path = files.dir.join("kernel_0");
    let whole = fs::read(&path).unwrap();
    let all = read_trace(&files.dir).unwrap().recording.events;
    for bit in [45, 55, 63] {
        let mut bytes = whole.clone();
        bytes[BEGIN_AT + bit / 8] |= 1 << (bit % 8);
        fs::write(&path, &bytes).unwrap();
        let trace = read_trace(&files.dir).unwrap();
        assert_eq!(trace.warnings.len(), 1, "{bit}: {:?}", trace.warnings);
        assert!(trace.warnings[0].contains("ends before it begins"), "{:?}", trace.warnings);
        let others = all.iter().filter(|event| event.cpu.0 != 0).count();
        assert_eq!(trace.recording.events.len(), others, "{bit}");
    }
    // One that was not closed is none.
    let mut bytes = whole;
    bytes[BEGIN_AT + 8..BEGIN_AT + 16].fill(0);
    fs::write(&path, &bytes).unwrap();
    let trace = read_trace(&files.dir).unwrap();
    assert_eq!((trace.recording.events.len(), trace.warnings.len()), (all.len(), 0), "{:?}", trace.warnings);
}

/// A mapping would be a SIGBUS.
#[test]
fn a_file_may_become_shorter_while_it_is_read() {
    let files = written(&Random(98).recording(60_000));
    let set = TraceSet::open(&files.dir).unwrap();
    assert!(set.damaged.is_empty());
    let path = files.dir.join("kernel_2");
    let whole = fs::metadata(&path).unwrap().len();
    let all = count(&set, &Selection::default(), &|_| {});
    for left in [whole - 1, whole / 2, 100, 0] {
        fs::File::options().write(true).open(&path).unwrap().set_len(left).unwrap();
        let counts = count(&set, &Selection::default(), &|_| {});
        assert!(!counts.damaged.is_empty() && counts.damaged.iter().all(|file| file.path == path), "{left}");
        assert_eq!(counts.streams[0], all.streams[0]);
        assert!(counts.streams[2].total() < all.streams[2].total(), "{left}");
    }
}

#[test]
fn a_file_that_was_removed_emptied_or_cut_between_packets_is_missed() {
    // Behind the header, the times of begin and end, and the size of the content.
    const SIZE_AT: usize = 32 + 3 * 8;
    let files = written(&Random(99).recording(60_000));
    let path = files.dir.join("kernel_2");
    let whole = fs::read(&path).unwrap();
    let second = u64::from_le_bytes(whole[SIZE_AT..SIZE_AT + 8].try_into().unwrap()) / 8;
    for left in [0, second, whole.len() as u64] {
        fs::write(&path, &whole[..usize::try_from(left).unwrap()]).unwrap();
        let damaged = TraceSet::open(&files.dir).unwrap().damaged;
        let warnings = read_trace(&files.dir).unwrap().warnings;
        if left == whole.len() as u64 {
            assert_eq!((damaged.len(), warnings.len()), (0, 0));
            continue;
        }
        let says =
            format!("kernel_2: packet at byte {left}: the recorder wrote {} bytes, and {left}", whole.len());
        assert!(damaged.len() == 1 && damaged[0].to_string().contains(&says), "{damaged:?}");
        assert!(warnings.len() == 1 && warnings[0].contains(&says), "{warnings:?}");
    }
    fs::remove_file(&path).unwrap();
    let damaged = TraceSet::open(&files.dir).unwrap().damaged;
    assert!(damaged.len() == 1 && damaged[0].path == path, "{damaged:?}");
    // What others leave in the directory is not missed when it goes.
    fs::write(
        files.dir.join("metadata"),
        fs::read_to_string(files.dir.join("metadata")).unwrap().replace("kernel_2", "../x"),
    )
    .unwrap();
    assert_eq!(TraceSet::open(&files.dir).unwrap().damaged, []);
}

#[test]
fn metadata_of_no_use_is_named() {
    let files = written(&every_variant());
    for (text, word) in [
        (&b"/* CTF 1.8 */\n\nnonsense"[..], "line 3"),
        (&b"\x1e{\"type\":\"preamble\"}"[..], "CTF 2"),
        (&b"\xff\xfe"[..], "not UTF-8"),
    ] {
        fs::write(files.dir.join("metadata"), text).unwrap();
        let error = read_trace(&files.dir).unwrap_err();
        assert!(matches!(error, Error::Metadata { .. }) && error.to_string().contains(word), "{error}");
    }
}

/// An event of one bit and no fields, for which a file of noise has millions.
#[test]
fn events_without_size_end_the_packet() {
    let files = written(&every_variant());
    let metadata = "/* CTF 1.8 */ stream { event.header := struct { }; };
        event { name = \"irq_softirq_raise\"; fields := struct { }; };";
    fs::write(files.dir.join("metadata"), metadata).unwrap();
    let trace = read_trace(&files.dir).unwrap();
    let ended = trace.warnings.iter().filter(|warning| warning.contains("smaller than a byte"));
    assert_eq!(ended.count(), 4, "{:?}", trace.warnings);
    assert!(trace.recording.events.is_empty());
}

/// Counts the elements that a reader would make text of.
struct Elements(Plan);

impl Format for Elements {
    type Writer<'f> = &'f Elements;

    fn writer(&self) -> &Elements {
        self
    }

    fn gap(&self, _: Option<u64>, _: u64, _: &mut Vec<u8>) {}
}

impl WriteEvent for &Elements {
    fn write(&mut self, piece: &mut Piece, event: &mut EventView<'_, '_>) -> bool {
        let mut seen = Seen(0);
        let whole = event.show(&self.0, &mut seen);
        piece.text.resize(piece.text.len() + seen.0, b'.');
        whole
    }
}

struct Seen(usize);

impl Visit for Seen {
    fn literal(&mut self, _: &[u8]) {}
    fn integer(&mut self, _: &Plan, _: &Integer, _: u64) {}
    fn float(&mut self, _: FieldIndex, _: f64) {}
    fn text(&mut self, _: FieldIndex, _: &[u8]) {}
    fn element(&mut self, _: u64) {
        self.0 += 1;
    }
}

/// Each event of one byte holds thousands of elements of no size: text a hundred thousand times as long as the trace.
#[test]
fn elements_without_size_make_no_text_without_end() {
    const BYTES: usize = 50_000;
    for (fields, whole) in [
        ("u8 n; struct { } none[64];", true),
        ("u8 n; struct { } none[4096];", false),
        ("u8 n; struct { struct { } none[64]; } rows[64];", false),
        ("u8 n; struct { u8 a; struct { } none[8]; } rows[9];", false),
        ("u8 n; struct { } none[n];", true),
        ("u8 n; u8 m[0]; struct { u8 z[0]; struct { } none[n]; } rows[4096];", false),
    ] {
        let root = tempfile::tempdir().unwrap();
        let metadata = format!(
            "/* CTF 1.8 */ trace {{ byte_order = le; }}; typealias integer {{ size = 8; align = 8; }} := u8;
            event {{ name = \"e\"; fields := struct {{ {fields} }}; }};"
        );
        fs::write(root.path().join("metadata"), metadata).unwrap();
        fs::write(root.path().join("stream"), vec![1; BYTES]).unwrap();
        let set = TraceSet::open(root.path()).unwrap();
        let (mut elements, mut damaged) = (0, Vec::new());
        let format = Elements(set.event_plan(&set.streams[0], 0, &NoStyle));
        print(&set, &Selection::default(), u64::MAX, &format, &mut |piece| {
            elements += piece.text.len();
            damaged.append(&mut piece.damaged);
            true
        });
        let counts = count(&set, &Selection::default(), &|_| {});
        let says = |what: &str| what.contains("too many elements that take no space");
        let wanted = usize::from(!whole);
        assert_eq!(damaged.iter().filter(|file| says(&file.damage.what)).count(), wanted, "{fields}");
        assert_eq!(counts.damaged.iter().filter(|file| says(&file.damage.what)).count(), wanted, "{fields}");
        assert!(elements <= 70 * BYTES && (elements < 1_000 || whole), "{fields}: {elements}");
    }
}

#[test]
fn metadata_is_not_read_without_a_bound() {
    let files = written(&every_variant());
    let path = files.dir.join("metadata");
    // The file has a hole, which takes no space on the disk.
    fs::File::options().write(true).open(&path).unwrap().set_len(1 << 30).unwrap();
    let error = read_trace(&files.dir).unwrap_err();
    assert!(error.to_string().contains("larger than 64 MiB"), "{error}");
    // A type that is copied by its name: 100 kB of text for 16 million parts.
    let fields: String = (0..4_000).map(|place| format!("u8 f{place};")).collect();
    let uses: String = (0..4_000)
        .map(|id| format!("event {{ id = {id}; name = \"e\"; fields := struct large; }};"))
        .collect();
    let filler = " ".repeat(40 << 20);
    let text = format!(
        "/* CTF 1.8 */{filler} trace {{ byte_order = le; }}; typealias integer {{ size = 8; align = 8; }} := u8;
        struct large {{ {fields} }}; {uses}"
    );
    fs::write(&path, text).unwrap();
    let error = read_trace(&files.dir).unwrap_err();
    assert!(error.to_string().contains("more parts than"), "{error}");
}
