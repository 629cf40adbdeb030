// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A writer in Rust that does what `reserve()` in recorder.bpf.h does, and how the reader decodes its banks.

use super::*;
use std::mem::offset_of;

const SIZE: usize = 1 << 16;

struct Writer {
    memory: SharedMemory,
    controls: Controls,
    head: u64,
    head_memory: SharedMemory,
}

impl Writer {
    fn new() -> Writer {
        let control_bytes = Controls::bytes(1);
        let head_memory = SharedMemory::anonymous(control_bytes).unwrap();
        let controls = Controls::new(SharedMemory::anonymous(control_bytes).unwrap(), 1);
        Writer {
            memory: SharedMemory::anonymous(BankImage::bytes(SIZE) * 2).unwrap(),
            controls,
            head: 0,
            head_memory,
        }
    }

    fn write(&mut self, kind: u8, time_ns: u64, payload_words: usize, state: u32) {
        let words = HEADER_WORDS + payload_words;
        let (at, after) = (self.head, self.head + words as u64 * 8);
        let sub_shift = (SIZE as u64 / SUBS).trailing_zeros();
        if (at ^ after) >> sub_shift != 0 {
            self.memory.store_release(index((after >> sub_shift) % SUBS) * 8, after);
        }
        let base = STARTS * 8 + index(at) % SIZE;
        let lap = (at >> SIZE.trailing_zeros()) + 1;
        let word = words as u64 | u64::from(kind) << 8 | u64::from(state) << 16 | lap << 32;
        self.memory.store_release(base, word);
        self.memory.store_release(base + 8, time_ns);
        for index in HEADER_WORDS..words {
            self.memory.store_release(base + index * 8, time_ns * 10);
        }
        self.head = after;
    }

    fn image(&mut self) -> BankImage {
        self.head_memory.store_release(offset_of!(abi::rts_cpu_control, head), self.head);
        let memory =
            std::mem::replace(&mut self.head_memory, SharedMemory::anonymous(Controls::bytes(1)).unwrap());
        self.controls = Controls::new(memory, 1);
        let mut image = BankImage::default();
        image.copy_from(&self.memory, &self.controls, (0, 0), 0, SIZE);
        image
    }
}

fn times(image: &BankImage) -> (Vec<u64>, Gaps) {
    let mut times = Vec::new();
    let gaps = image.walk(0..u64::MAX, |frame| times.push(frame.time_ns));
    (times, gaps)
}

#[test]
fn a_bank_that_was_never_full_holds_all() {
    let mut writer = Writer::new();
    (1..=100).for_each(|time| writer.write(1, time, (time % 7) as usize, abi::RTS_COMMITTED));
    let image = writer.image();
    assert_eq!(times(&image), ((1..=100).collect(), Gaps::default()));
    assert!(image.holds(0));
}

#[test]
fn a_bank_that_wrapped_around_holds_its_last_part_without_a_gap() {
    let mut writer = Writer::new();
    let last = 20_000;
    (1..=last).for_each(|time| writer.write(1, time, (time % 11) as usize, abi::RTS_COMMITTED));
    let image = writer.image();
    let (times, gaps) = times(&image);
    assert_eq!(gaps, Gaps::default());
    let expected: Vec<u64> = (times[0]..=last).collect();
    assert_eq!(times, expected);
    assert!(times.len() > SIZE / (7 * 8) / 2, "only {} records", times.len());
    assert!(!image.holds(0));
}

#[test]
fn an_unfinished_record_is_stepped_over_and_counted() {
    let mut writer = Writer::new();
    (1..=50).for_each(|time| {
        let state = if time == 20 { abi::RTS_OPEN } else { abi::RTS_COMMITTED };
        writer.write(1, time, 3, state);
    });
    let (times, gaps) = times(&writer.image());
    assert_eq!(times.len(), 49);
    assert!(!times.contains(&20));
    assert_eq!(gaps, Gaps { unfinished: 1, unreadable: 0 });
}

#[test]
fn bytes_that_are_not_a_record_cost_at_most_one_sub_buffer() {
    let mut writer = Writer::new();
    (1..=1000).for_each(|time| writer.write(1, time, 3, abi::RTS_COMMITTED));
    let mut image = writer.image();
    for garbage in [0, u64::MAX, 0x0000_0001_00a5_0101, 0x0000_0002_00a5_0105] {
        image.words[500] = garbage;
        let (times, gaps) = times(&image);
        assert_eq!(gaps.unreadable, 1);
        assert!(times.len() >= 1000 - SIZE / STARTS / 40 - 1, "{} left", times.len());
        assert_eq!(*times.last().unwrap(), 1000);
    }
}

#[test]
fn arbitrary_bytes_never_stop_the_walk() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..200 {
        let image = BankImage {
            size: SIZE as u64,
            sub_shift: (SIZE as u64 / SUBS).trailing_zeros(),
            head_before: random() >> (random() % 64),
            head_after: random() >> (random() % 64),
            first: (0..SUBS).map(|_| random() >> (random() % 64)).collect(),
            words: (0..SIZE / 8 + MAX_RECORD_WORDS).map(|_| random() >> (random() % 64)).collect(),
        };
        image.walk(random()..random(), |_| {});
        times(&image);
    }
}

#[test]
fn each_cpus_banks_are_behind_those_of_the_one_before() {
    // In bytes: the starts, the ring, and what may run past its end.
    let bank = 8 * usize::try_from(SUBS).expect("few") + SIZE + abi::RTS_BANK_SLACK as usize;
    let memory = SharedMemory::anonymous(bank * 6).unwrap();
    let head_memory = SharedMemory::anonymous(Controls::bytes(3)).unwrap();
    for number in 0..6 {
        let base = number * bank + 8 * usize::try_from(SUBS).expect("few");
        memory.store_release(base, 3 | 7 << 8 | u64::from(abi::RTS_COMMITTED) << 16 | 1 << 32);
        memory.store_release(base + 8, 100 + number as u64);
        let head = offset_of!(abi::rts_cpu_control, head) + number % 2 * 8;
        head_memory.store_release(number / 2 * size_of::<abi::rts_cpu_control>() + head, 24);
    }
    let controls = Controls::new(head_memory, 3);
    let mut image = BankImage::default();
    for (cpu, place, bank) in [(0, 0, 0), (0, 0, 1), (2, 2, 1), (1, 2, 0)] {
        image.copy_from(&memory, &controls, (cpu, place), bank, SIZE);
        assert_eq!(times(&image).0, [100 + 2 * place as u64 + bank as u64]);
        assert_eq!(image.head(), 24);
    }
}

#[test]
fn memory_is_there_before_it_is_needed() {
    let mut image = BankImage::default();
    image.reserve(SIZE);
    assert_eq!(
        (image.first.len(), image.words.len() * 8),
        (usize::try_from(SUBS).expect("few"), SIZE + abi::RTS_BANK_SLACK as usize)
    );
}

#[test]
fn a_record_is_no_longer_than_what_may_run_past_the_end() {
    let word = |length: u64, lap: u64| length | 7 << 8 | u64::from(abi::RTS_COMMITTED) << 16 | lap << 32;
    let longest = u64::from(abi::RTS_BANK_SLACK) / 8;
    assert_eq!(record_word(word(longest, 1), 0, SIZE as u64), Some((longest as usize, true)));
    assert_eq!(record_word(word(longest + 1, 1), 0, SIZE as u64), None);
    assert_eq!(record_word(word(2, 1), 0, SIZE as u64), Some((2, true)));
    assert_eq!(record_word(word(1, 1), 0, SIZE as u64), None);
    assert_eq!(record_word(word(2, 3), 2 * SIZE as u64, SIZE as u64), Some((2, true)));
    assert_eq!(record_word(word(2, 2), 2 * SIZE as u64, SIZE as u64), None);
}
