// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace that is limited in its size: what it takes at each instant, and which events are left.

use rtscope_ctf::{
    Counts, FileRing, Follower, Overwritten, Round, Selection, UserClass, UserContext, UserMetadata,
    UserStreamWriter,
};
use rtscope_event::MonotonicNs;
use rtscope_programs::description::{EventDescription, Field, FieldType, Integer};
use rtscope_testkit::babeltrace2;
use rtscope_testkit::random::Random;
use rtscope_testkit::recordings::info;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const LIMIT: u64 = 2 << 20;
const STREAMS: u32 = 5;

/// An event with its stream, its number there, and text.
fn class() -> UserClass {
    let integer = FieldType::Integer(Integer { bytes: 8, signed: false, hex: false });
    let field = |name: &str, kind: &FieldType| Field { name: name.to_string(), kind: kind.clone() };
    let fields = vec![field("s", &integer), field("n", &integer), field("text", &FieldType::Text)];
    let event = EventDescription { index: 0, name: "test:event".to_string(), level: 6, fields };
    UserClass { event, labels: BTreeMap::new(), origin: "".into() }
}

/// What the files in a directory take, as `du` sees it.
pub fn bytes_on_disk(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    // What has been removed since takes nothing.
    files.filter_map(|file| file.metadata().ok()).map(|file| file.blocks() * 512).sum()
}

struct Recording {
    ring: FileRing,
    directory: tempfile::TempDir,
    streams: Vec<UserStreamWriter>,
    metadata: UserMetadata,
    written: Vec<u64>,
    now: u64,
}

impl Recording {
    fn new(files: u64) -> Recording {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.partial/trace");
        fs::create_dir_all(&path).unwrap();
        let ring = FileRing::new(LIMIT, files, u64::from(STREAMS)).unwrap();
        let (trace, info) = (ring.trace(), info());
        let path = path.as_path();
        let metadata = UserMetadata::limited(path, UserContext::default(), &info, Some(trace.clone()));
        let mut metadata = metadata.unwrap();
        metadata.publish().unwrap();
        let stream = |number| {
            let name = format!("user_{number}");
            let place = (&trace, path, name.as_str());
            UserStreamWriter::in_ring(place, number, info.trace_uuid, 1, MonotonicNs(1)).unwrap()
        };
        let streams: Vec<UserStreamWriter> = (0..STREAMS).map(stream).collect();
        metadata.declare(streams[0].class(), &[class()]).unwrap();
        Recording { ring, directory, streams, metadata, written: vec![0; STREAMS as usize], now: 1 }
    }

    fn trace(&self) -> PathBuf {
        self.directory.path().join("t.partial/trace")
    }

    fn events(&mut self, stream: usize, count: u64, random: &mut Random) {
        for _ in 0..count {
            let mut payload = (stream as u64).to_le_bytes().to_vec();
            payload.extend(self.written[stream].to_le_bytes());
            payload.extend(std::iter::repeat_n(b'x', random.index(200)));
            payload.push(0);
            self.now += random.below(50);
            self.streams[stream].event(0, MonotonicNs(self.now), &[], &payload).unwrap();
            self.written[stream] += 1;
        }
        self.streams[stream].flush().unwrap();
    }

    fn look(&self) {
        let taken = bytes_on_disk(&self.trace());
        assert!(taken <= LIMIT, "{taken} bytes");
    }

    /// By stream, the numbers that babeltrace2 finds.
    fn numbers(&self) -> Option<BTreeMap<usize, Vec<u64>>> {
        let text = babeltrace2::text(&self.trace(), &[])?;
        let mut numbers: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for line in text.lines() {
            let number = |key: &str| -> u64 {
                let rest = line.split(key).nth(1).unwrap();
                rest.split([',', ' ']).next().unwrap().parse().unwrap()
            };
            numbers.entry(number("s = ") as usize).or_default().push(number("n = "));
        }
        Some(numbers)
    }

    /// What is left is the newest of each stream, without a gap, and with what was removed it is all.
    fn check(&self, is_idle: impl Fn(usize) -> bool) -> Overwritten {
        let overwritten = self.ring.overwritten();
        let Some(numbers) = self.numbers() else { return overwritten };
        let left: u64 = numbers.values().map(|numbers| numbers.len() as u64).sum();
        assert_eq!(left + overwritten.events, self.written.iter().sum::<u64>());
        for (stream, written) in self.written.iter().enumerate() {
            let of_stream = numbers.get(&stream).cloned().unwrap_or_default();
            assert!(!of_stream.is_empty() || is_idle(stream) || *written == 0, "stream {stream} is gone");
            let first = written - of_stream.len() as u64;
            assert!(of_stream.iter().copied().eq(first..*written), "stream {stream} has a gap");
        }
        overwritten
    }
}

#[test]
fn a_limited_trace_has_the_newest_events_at_each_instant_and_never_takes_more() {
    for (seed, files) in [(1, 4), (2, 16), (3, 16), (4, 50)] {
        let mut random = Random(seed);
        let mut recording = Recording::new(files);
        for round in 0..3000 {
            let stream = random.index(STREAMS as usize);
            let most = if stream == 0 { 400 } else { 30 };
            let count = random.below(most);
            recording.events(stream, count, &mut random);
            if round % 10 == 0 {
                recording.streams.iter_mut().for_each(|stream| stream.turn().unwrap());
            }
            recording.look();
            if round % 1000 == 999 {
                recording.check(|_| false);
            }
        }
        let taken = bytes_on_disk(&recording.trace());
        assert!(taken > LIMIT / files * (files - 2) * 3 / 4, "{taken} bytes of {LIMIT} are used");
        let of_stream = |stream: usize| {
            let files = fs::read_dir(recording.trace()).unwrap().map(|file| file.unwrap().file_name());
            files.filter(|name| name.to_string_lossy().starts_with(&format!("user_{stream}_"))).count() as u64
        };
        assert!((0..STREAMS as usize).all(|stream| of_stream(stream) <= files));
        let now = MonotonicNs(recording.now);
        recording.streams.drain(..).for_each(|stream| drop(stream.finish(now).unwrap()));
        let overwritten = recording.check(|_| false);
        assert!(overwritten.events > 10 * overwritten.files && overwritten.packets >= overwritten.files);
    }
}

/// A thread that ended long ago.
/// Packets that begin at the same time are swapped by babeltrace2, which then finds time going back, and stops.
#[test]
fn packets_full_of_events_of_one_instant_are_read_in_their_order() {
    for seed in 0..4 {
        let mut random = Random(seed);
        let mut recording = Recording::new(16);
        for round in 0..200 {
            let stream = random.index(STREAMS as usize);
            recording.now += random.below(2) * 1000;
            let now = MonotonicNs(recording.now);
            for _ in 0..random.below(1500) {
                let mut payload = (stream as u64).to_le_bytes().to_vec();
                payload.extend(recording.written[stream].to_le_bytes());
                payload.extend([b'x'; 90]);
                payload.push(0);
                recording.streams[stream].event(0, now, &[], &payload).unwrap();
                recording.written[stream] += 1;
            }
            recording.streams[stream].flush().unwrap();
            if round % 3 == 0 {
                recording.streams.iter_mut().for_each(|stream| stream.turn().unwrap());
            }
            if round % 20 == 19 {
                recording.check(|_| true);
            }
        }
    }
}

#[test]
fn a_stream_that_is_idle_disappears_when_it_is_old() {
    let mut random = Random(7);
    let mut recording = Recording::new(8);
    recording.events(3, 100, &mut random);
    assert!(recording.numbers().is_none_or(|numbers| numbers.contains_key(&3)));
    for _ in 0..100 {
        recording.events(1, 400, &mut random);
        recording.streams.iter_mut().for_each(|stream| stream.turn().unwrap());
        recording.look();
    }
    let overwritten = recording.check(|stream| stream == 3);
    assert!(recording.numbers().is_none_or(|numbers| !numbers.contains_key(&3)));
    // It comes again, and goes on counting.
    recording.events(3, 10, &mut random);
    recording.check(|_| false);
    assert!(overwritten.until > MonotonicNs(1));
}

/// Of the recorder's own (the kernel's events) another user removes nothing, who is the only one with events; only its own user's may.
#[test]
fn one_user_alone_removes_nothing_of_the_recorders_own() {
    let own = nix::unistd::geteuid().as_raw();
    for (uid, is_kept) in [(own ^ 1000, true), (own, false)] {
        let mut random = Random(1);
        let mut recording = Recording::new(16);
        recording.streams[0].set_account(Some(uid)).unwrap();
        recording.events(1, 200, &mut random);
        for _ in 0..2000 {
            recording.events(0, 800, &mut random);
            recording.streams.iter_mut().for_each(|stream| stream.turn().unwrap());
            recording.look();
        }
        recording.check(|stream| stream == 1 && !is_kept);
        let Some(numbers) = recording.numbers() else { return };
        assert_eq!(numbers.get(&1).map_or(0, Vec::len), if is_kept { 200 } else { 0 });
    }
}

/// One user writes a hundred times what the limit is. Of others, who write a little, nothing is removed, and of those who write more than their share
/// only their own.
#[test]
fn who_writes_much_removes_only_his_own_oldest_events() {
    for seed in 1..5 {
        let mut random = Random(seed);
        let mut recording = Recording::new(16);
        // The first, and what is the recorder's own.
        recording.events(4, 200, &mut random);
        for (stream, uid) in [(0, 1000), (1, 1001), (2, 1001), (3, 1002)] {
            recording.streams[stream].set_account(Some(uid)).unwrap();
        }
        for round in 0..2000 {
            recording.events(0, 800, &mut random);
            recording.events(1, 1, &mut random);
            recording.events(2, random.below(3), &mut random);
            if round > 1000 {
                recording.events(3, 100, &mut random);
            }
            recording.streams.iter_mut().for_each(|stream| stream.turn().unwrap());
            recording.look();
        }
        let taken = bytes_on_disk(&recording.trace());
        assert!(taken > LIMIT / 4 * 3, "{taken} bytes of {LIMIT} are used");
        let by_account = recording.ring.overwritten_by_account();
        assert_eq!(by_account.keys().copied().collect::<Vec<_>>(), [Some(1000), Some(1002)]);
        let overwritten = recording.check(|_| false);
        assert_eq!(by_account.values().sum::<u64>(), overwritten.events);
        let Some(numbers) = recording.numbers() else { return };
        let left = |stream: usize| numbers[&stream].len() as u64;
        assert_eq!([1, 2, 4].map(left), [1, 2, 4].map(|stream| recording.written[stream]));
        // Both have as much.
        assert!(left(0).abs_diff(left(3)) < left(0) / 2, "{} and {}", left(0), left(3));
        // A stream that another user gets goes on in other files.
        recording.streams[0].set_account(Some(1003)).unwrap();
        recording.events(0, 10, &mut random);
        for _ in 0..1000 {
            recording.events(3, 400, &mut random);
            recording.streams.iter_mut().for_each(|stream| stream.turn().unwrap());
            recording.look();
        }
        recording.check(|_| false);
        assert!(!recording.ring.overwritten_by_account().contains_key(&Some(1003)));
    }
}

#[test]
fn a_limit_without_room_for_a_packet_of_each_stream_is_refused_with_the_least_one() {
    let least = FileRing::new(1 << 20, 16, 64).unwrap_err();
    assert_eq!(least, FileRing::least(64));
    assert!(FileRing::new(least, 16, 64).is_ok() && FileRing::new(least - 1, 16, 64).is_err());
}

/// All that a trace has at its end is declared: the metadata says what was removed.
#[test]
fn what_was_overwritten_is_in_the_metadata() {
    let mut random = Random(9);
    let mut recording = Recording::new(8);
    for _ in 0..100 {
        recording.events(0, 400, &mut random);
    }
    let now = MonotonicNs(recording.now);
    recording.streams.drain(..).for_each(|stream| drop(stream.finish(now).unwrap()));
    let overwritten = recording.ring.overwritten();
    let path = recording.trace().join("metadata");
    recording.metadata.finish(&rtscope_ctf::Evidence::default(), &[]).unwrap();
    let text = fs::read_to_string(path).unwrap();
    let entry = |what: &str, count: u64| format!("rtscope_overwritten_{what} = \"{count}\";");
    assert!(text.contains(&entry("events", overwritten.events)), "{text}");
    assert!(text.contains(&entry("packets", overwritten.packets)), "{text}");
}

/// It reads between any two steps, or does not for a long time.
#[test]
fn a_follower_that_was_overtaken_says_how_much_it_missed_of_each_stream() {
    for seed in 1..5 {
        let mut random = Random(seed);
        let mut recording = Recording::new(6);
        let target = recording.directory.path().join("t");
        let mut follower = Follower::new(&target, Selection::default());
        let mut counts = Counts::default();
        let mut read = |looks: u32| {
            for _ in 0..looks {
                follower.look(&|_| false).unwrap();
                while follower.count(i64::MAX, &mut counts).unwrap() == Round::More {
                    follower.look(&|_| false).unwrap();
                }
            }
            let shown: u64 = counts.streams.iter().map(|stream| stream.total()).sum();
            let losses = follower.set().streams.iter().map(|stream| &stream.losses);
            let (events, packets) =
                losses.fold((0, 0), |sum, losses| (sum.0 + losses.events, sum.1 + losses.packets));
            assert!(follower.take_damaged().is_empty());
            (shown, events, packets)
        };
        (0..STREAMS as usize).for_each(|stream| recording.events(stream, 10, &mut random));
        assert_eq!(read(1), (10 * u64::from(STREAMS), 0, 0));
        for round in 0..600 {
            recording.events(random.index(STREAMS as usize), random.below(300), &mut random);
            recording.streams.iter_mut().for_each(|stream| stream.turn().unwrap());
            if round < 300 && random.below(3) == 0 {
                read(1);
            }
            if round == 299 {
                // Two looks for each file at most.
                assert_eq!(read(20), (recording.written.iter().sum(), 0, 0));
            }
        }
        let (shown, events, packets) = read(40);
        assert!(events > 1000 && packets > 0, "{events} in {packets}");
        assert_eq!(shown + events, recording.written.iter().sum::<u64>());
    }
}
