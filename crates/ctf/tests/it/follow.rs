// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace that is followed while it is written, with a look between any two steps of the writer.

use rtscope_ctf::{
    EventView, FieldIndex, Followed, Follower, Format, Integer, NoStyle, Piece, Plan, Round, Selection,
    Stage, TraceSet, UserClass, UserContext, UserMetadata, UserStreamWriter, Visit, WriteEvent,
};
use rtscope_event::MonotonicNs;
use rtscope_programs::description::{self, EventDescription, Field, FieldType};
use rtscope_testkit::random::Random;
use rtscope_testkit::recordings::info;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An event with a number, and text of its size.
fn class(number: usize) -> UserClass {
    let integer = description::Integer { bytes: 8, signed: false, hex: false };
    let field = |name: &str, kind| Field { name: name.to_string(), kind };
    let fields = vec![field("n", FieldType::Integer(integer)), field("text", FieldType::Text)];
    let event = EventDescription { index: 0, name: format!("test:event{number}"), level: 6, fields };
    UserClass { event, labels: BTreeMap::new(), origin: "".into() }
}

/// A recording as its recorder makes it.
struct Recording {
    target: PathBuf,
    metadata: UserMetadata,
    classes: Vec<UserClass>,
    streams: Vec<UserStreamWriter>,
    /// Number of events.
    written: u64,
    now: u64,
}

impl Recording {
    fn new(target: &Path) -> Recording {
        let directory = partial(target).join("trace");
        fs::create_dir_all(&directory).unwrap();
        let mut metadata = UserMetadata::create(&directory, UserContext::default(), &info()).unwrap();
        metadata.publish().unwrap();
        let target = target.to_owned();
        Recording { target, metadata, classes: vec![class(0)], streams: Vec::new(), written: 0, now: 1000 }
    }

    fn begin_stream(&mut self) {
        let number = u32::try_from(self.streams.len()).unwrap();
        let path = partial(&self.target).join("trace").join(format!("user_{number}"));
        let file = File::create_new(&path).unwrap();
        let begin = MonotonicNs(self.now);
        let uuid = info().trace_uuid;
        let stream = UserStreamWriter::in_file(file, number, uuid, self.classes.len(), begin);
        self.metadata.declare(stream.class(), &self.classes).unwrap();
        self.streams.push(stream);
    }

    fn begin_class(&mut self) {
        self.classes.push(class(self.classes.len()));
        for stream in &mut self.streams {
            self.metadata.declare(stream.class(), &self.classes).unwrap();
            stream.expect_classes(self.classes.len());
        }
    }

    fn event(&mut self, stream: usize, class: usize, bytes: usize) {
        let mut payload = self.written.to_le_bytes().to_vec();
        payload.extend(std::iter::repeat_n(b'x', bytes));
        payload.push(0);
        let class = u32::try_from(class).unwrap();
        self.streams[stream].event(class, MonotonicNs(self.now), &[], &payload).unwrap();
        self.written += 1;
    }

    fn flush(&mut self) {
        self.streams.iter_mut().for_each(|stream| stream.flush().unwrap());
    }

    /// In order.
    fn complete(self) {
        for stream in self.streams {
            stream.finish(MonotonicNs(self.now)).unwrap();
        }
        fs::rename(partial(&self.target).join("trace"), &self.target).unwrap();
        fs::remove_dir(partial(&self.target)).unwrap();
    }
}

fn partial(target: &Path) -> PathBuf {
    target.with_extension("partial")
}

/// `n`, and whether it is late.
struct Lines(Vec<Vec<Plan>>);

impl Lines {
    fn of(set: &TraceSet) -> Lines {
        let plans =
            |stream| (0..set.event_count(stream)).map(|event| set.event_plan(stream, event, &NoStyle));
        Lines(set.streams.iter().map(|stream| plans(stream).collect()).collect())
    }
}

impl Format for Lines {
    type Writer<'f> = &'f Lines;

    fn writer(&self) -> &Lines {
        self
    }

    fn gap(&self, _: Option<u64>, _: u64, _: &mut Vec<u8>) {}
}

struct Number(Option<u64>, usize);

impl Visit for Number {
    fn literal(&mut self, _: &[u8]) {}
    fn integer(&mut self, _: &Plan, _: &Integer, value: u64) {
        self.0.get_or_insert(value);
    }
    fn float(&mut self, _: FieldIndex, _: f64) {}
    fn text(&mut self, _: FieldIndex, text: &[u8]) {
        self.1 = text.len();
    }
    fn element(&mut self, _: u64) {}
    fn restart(&mut self) {
        *self = Number(None, 0);
    }
}

impl WriteEvent for &Lines {
    fn write(&mut self, piece: &mut Piece, event: &mut EventView<'_, '_>) -> bool {
        let mut number = Number(None, 0);
        assert!(event.show(&self.0[event.stream][event.event], &mut number));
        let late = event.late_ns.map_or(String::new(), |late| format!(" late {late}"));
        let line = format!("{}{late}\n", number.0.unwrap());
        piece.text.extend_from_slice(line.as_bytes());
        true
    }
}

/// Follows, and notes all that it is given.
struct Reader {
    follower: Follower,
    lines: Vec<String>,
    lost: Vec<Option<u64>>,
    /// Number of rounds.
    rounds: Arc<AtomicU64>,
}

impl Reader {
    fn new(target: &Path) -> Reader {
        let follower = Follower::new(target, Selection::default());
        Reader { follower, lines: Vec::new(), lost: Vec::new(), rounds: Arc::default() }
    }

    /// Takes all that there is up to a moment, by the clock of the writer.
    fn take(&mut self, until: u64) -> Stage {
        loop {
            let stage = self.follower.look(&|_| false).unwrap();
            let base = self.follower.set().traces.first().map_or(0, |trace| trace.clocks()[0].base_ns());
            let horizon = base.saturating_add(i64::try_from(until).unwrap());
            let format = Lines::of(self.follower.set());
            let Reader { follower, lines, lost, rounds } = self;
            // ORDER: relaxed; a number, nothing is read because of it.
            rounds.fetch_add(1, Ordering::Relaxed);
            let round = follower.print(&format, horizon, u64::MAX, &mut |_, followed| {
                match followed {
                    Followed::Piece(piece) => {
                        lines.extend(String::from_utf8_lossy(&piece.text).lines().map(str::to_owned));
                    }
                    Followed::Lost(_, gap) => lost.push(gap.count),
                }
                true
            });
            assert_eq!(self.follower.set().damaged, []);
            if round.unwrap() == Round::Dry {
                return stage;
            }
        }
    }

    fn numbers(&self) -> Vec<u64> {
        self.lines.iter().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect()
    }
}

#[test]
fn each_event_comes_once_and_in_order_whatever_the_writer_has_done_in_between() {
    for seed in 0..12 {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("trace");
        let mut reader = Reader::new(&target);
        assert_eq!(reader.take(0), Stage::Waiting);
        let mut recording = Recording::new(&target);
        recording.begin_stream();
        let (mut random, mut lost) = (Random(seed), 0);
        for step in 0..1500 {
            let pause = if random.below(50) == 0 { 1 << 28 } else { 3000 };
            recording.now += 1 + random.below(pause);
            let stream = random.below(recording.streams.len() as u64) as usize;
            match random.below(100) {
                0 if recording.streams.len() < 9 => recording.begin_stream(),
                1..3 => recording.begin_class(),
                3 => {
                    let count = 1 + random.below(5);
                    recording.streams[stream].lost(count).unwrap();
                    lost += count;
                }
                _ => {}
            }
            let stream = random.below(recording.streams.len() as u64) as usize;
            let class = random.below(recording.classes.len() as u64) as usize;
            let most = if random.below(30) == 0 { 70_000 } else { 40 };
            recording.event(stream, class, random.below(most) as usize);
            if random.below(4) == 0 {
                recording.flush();
                assert_eq!(reader.take(recording.now + 1), Stage::Growing);
                assert_eq!(reader.lines.len() as u64, recording.written, "seed {seed}, step {step}");
            }
        }
        let written = recording.written;
        recording.complete();
        assert_eq!(reader.take(i64::MAX as u64 / 4), Stage::Complete);
        assert_eq!(reader.numbers(), (0..written).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(reader.follower.late(), 0);
        assert_eq!(reader.lost.iter().map(|count| count.unwrap()).sum::<u64>(), lost);
    }
}

#[test]
fn what_comes_after_the_horizon_is_given_when_it_comes_and_marked() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("trace");
    let mut recording = Recording::new(&target);
    let mut reader = Reader::new(&target);
    recording.begin_stream();
    recording.begin_stream();
    recording.event(0, 0, 1);
    recording.now += 1000;
    recording.event(1, 0, 1);
    recording.streams[1].flush().unwrap();
    assert_eq!(reader.take(recording.now), Stage::Growing);
    assert_eq!(reader.lines, [""; 0], "not before the horizon");
    reader.take(recording.now + 1);
    assert_eq!(reader.lines, ["1"], "nobody waits for the other stream");
    recording.now += 5;
    recording.event(1, 0, 1);
    recording.flush();
    reader.take(recording.now + 1);
    assert_eq!(reader.lines, ["1", "0 late 1000", "2"]);
    assert_eq!(reader.follower.late(), 1);
    recording.complete();
    assert_eq!(reader.take(u64::MAX >> 2), Stage::Complete);
    assert_eq!(reader.lines.len(), 3);
}

/// The writer never waits, so the reader comes at any moment: between the writes of one step, and while a head is written.
/// The streams of a writer that is behind wait for each other, in time and in what analyses are promised; one that is not written to is not
/// waited for, and none is where the newest comes in time.
#[test]
fn streams_of_a_writer_that_is_behind_are_merged() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("trace");
    let mut recording = Recording::new(&target);
    let mut reader = Reader::new(&target);
    // Longer than this takes.
    let _ = reader.follower.horizon(Duration::from_secs(3600));
    let late = 1 << 40;
    let of_stream = |recording: &mut Recording, stream: usize, at: u64| {
        recording.now = at;
        recording.event(stream, 0, 1);
        recording.streams[stream].flush().unwrap();
    };
    recording.begin_stream();
    recording.begin_stream();
    of_stream(&mut recording, 0, 1000);
    of_stream(&mut recording, 1, 1001);
    reader.take(late);
    assert_eq!(reader.lines, ["0"], "the other one may have something before its own");
    let base = reader.follower.set().traces[0].clocks()[0].base_ns();
    assert_eq!(reader.follower.reached_ns() - base, 1001);
    // One CPU's second, then the other's.
    of_stream(&mut recording, 0, 3000);
    of_stream(&mut recording, 0, 5000);
    reader.take(late);
    assert_eq!(reader.numbers(), [0, 1]);
    of_stream(&mut recording, 1, 2000);
    of_stream(&mut recording, 1, 4000);
    reader.take(late);
    assert_eq!(reader.numbers(), [0, 1, 4, 2, 5]);
    assert_eq!(reader.follower.late(), 0);
    // Its file was written to two hours ago.
    let idle = File::options().write(true).open(partial(&target).join("trace/user_1")).unwrap();
    idle.set_modified(std::time::SystemTime::now() - Duration::from_secs(7200)).unwrap();
    reader.take(late);
    assert_eq!(reader.numbers(), [0, 1, 4, 2, 5, 3]);
    // In time; and the other one, now, is not.
    of_stream(&mut recording, 0, 9000);
    reader.take(9000);
    of_stream(&mut recording, 1, 6000);
    of_stream(&mut recording, 0, 9500);
    reader.take(9400);
    assert_eq!(reader.numbers(), [0, 1, 4, 2, 5, 3, 7, 6]);
    recording.complete();
    assert_eq!(reader.take(u64::MAX >> 2), Stage::Complete);
    assert_eq!(reader.numbers(), [0, 1, 4, 2, 5, 3, 7, 6, 8]);
}

/// A stream that is written to, but brings no events, is not waited for beyond the delay.
#[test]
fn a_writer_that_is_behind_holds_nobody_up_for_longer_than_the_delay() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("trace");
    let mut recording = Recording::new(&target);
    let mut reader = Reader::new(&target);
    let delay = Duration::from_millis(300);
    let _ = reader.follower.horizon(delay);
    for stream in 0..2 {
        recording.begin_stream();
        recording.now += 1;
        recording.event(stream, 0, 1);
        recording.streams[stream].flush().unwrap();
    }
    let began = Instant::now();
    while reader.lines.len() < 2 {
        assert!(began.elapsed() < 20 * delay, "it is waited for still: {:?}", reader.lines);
        let idle = File::options().write(true).open(partial(&target).join("trace/user_0")).unwrap();
        idle.set_modified(std::time::SystemTime::now()).unwrap();
        reader.take(1 << 40);
    }
    assert!(began.elapsed() >= delay, "it was not waited for");
}

#[test]
fn each_event_comes_once_from_a_writer_that_does_not_wait() {
    const EVENTS: u64 = 50_000;
    const ROUNDS: u64 = 100;
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("trace");
    let mut reader = Reader::new(&target);
    let seen = Arc::clone(&reader.rounds);
    let mut recording = Recording::new(&target);
    recording.begin_stream();
    let writer = std::thread::spawn(move || {
        let mut random = Random(7);
        // ORDER: relaxed; as there.
        while recording.written < EVENTS || seen.load(Ordering::Relaxed) < ROUNDS {
            // A reader that has less of the CPUs than the writer would have more to read in each round, without end.
            if recording.written >= EVENTS {
                std::thread::sleep(Duration::from_micros(100));
            }
            recording.now += 1 + random.below(3000);
            match random.below(400) {
                0 if recording.streams.len() < 4 => recording.begin_stream(),
                1 if recording.classes.len() < 400 => recording.begin_class(),
                2..100 => recording.flush(),
                _ => {}
            }
            // A new class is used at once.
            let class = recording.classes.len() - 1;
            let stream = random.below(recording.streams.len() as u64) as usize;
            recording.event(stream, class, random.below(200) as usize);
        }
        let written = recording.written;
        recording.complete();
        written
    });
    while reader.take(u64::MAX >> 2) != Stage::Complete {}
    let written = writer.join().unwrap();
    let mut numbers = reader.numbers();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..written));
}

#[test]
fn a_trace_that_is_removed_or_made_anew_ends_what_follows_it() {
    let directory = tempfile::tempdir().unwrap();
    // A pipe would be waited for by whoever opens it.
    for then in ["nothing", "another", "a pipe"] {
        let target = directory.path().join(then);
        let mut reader = Reader::new(&target);
        let mut recording = Recording::new(&target);
        recording.begin_stream();
        recording.event(0, 0, 1);
        recording.flush();
        assert_eq!(reader.take(0), Stage::Growing);
        recording.event(0, 0, 1);
        recording.flush();
        fs::remove_dir_all(partial(&target).join("trace")).unwrap();
        match then {
            "another" => {
                fs::create_dir(&target).unwrap();
                fs::write(target.join("metadata"), "/* CTF 1.8 */").unwrap();
            }
            "a pipe" => {
                let made = Command::new("mkfifo").arg(partial(&target).join("trace")).arg(&target).status();
                assert!(made.unwrap().success());
            }
            _ => {}
        }
        assert_eq!(reader.take(u64::MAX >> 2), Stage::Removed);
        assert_eq!(reader.lines, ["0", "1"], "what it has open it reads");
    }
}

#[test]
fn a_complete_trace_that_is_moved_away_is_read_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("trace");
    let mut reader = Reader::new(&target);
    let mut recording = Recording::new(&target);
    recording.begin_stream();
    recording.event(0, 0, 1);
    recording.flush();
    assert_eq!(reader.take(0), Stage::Growing);
    // A stream that the reader has not seen, and the end, before it looks again.
    recording.begin_stream();
    recording.event(1, 0, 1);
    let metadata = partial(&target).join("trace/metadata");
    let mut text = fs::read_to_string(&metadata).unwrap();
    text.push_str("  env { rtscope_format = \"1\"; };\n");
    // Metadata may be replaced, too (--recover).
    fs::remove_file(&metadata).unwrap();
    fs::write(&metadata, text).unwrap();
    recording.complete();
    fs::rename(&target, directory.path().join("elsewhere")).unwrap();
    assert_eq!(reader.take(u64::MAX >> 2), Stage::Complete);
    assert_eq!(reader.lines, ["0", "1"]);
}
