// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sub-buffers written by hand, and garbage. Those of the real kernel are compared with its own text in the tests of
//! `rtscope-kernel`.

use super::*;

const LAYOUT: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;
";

fn word(kind: u32, delta: u32) -> [u8; 4] {
    if cfg!(target_endian = "little") { kind | delta << 5 } else { kind << 27 | delta }.to_ne_bytes()
}

fn page(start_ns: u64, flags: u64, events: &[u8], behind: &[u8]) -> Vec<u8> {
    let mut bytes = start_ns.to_ne_bytes().to_vec();
    bytes.extend((events.len() as u64 | flags).to_ne_bytes());
    bytes.extend(events);
    bytes.extend(behind);
    bytes.resize(4096, 0);
    bytes
}

/// Events with their times, where decoding broke, and what was missed.
type Decoded = (Vec<(u64, Vec<u8>)>, Option<usize>, Option<MissedEvents>);

fn decode(bytes: &[u8]) -> Decoded {
    let page = Page::new(&PageLayout::of_64_bit(4096), bytes).unwrap();
    let mut events = page.events();
    let list = events.by_ref().map(|event| (event.time_ns, event.payload.to_vec())).collect();
    (list, events.broken_at(), page.missed())
}

#[test]
fn the_layout_is_read() {
    assert_eq!(PageLayout::parse(LAYOUT), Ok(PageLayout::of_64_bit(4096)));
    let small =
        LAYOUT.replace("commit;\toffset:8;\tsize:8", "commit;\toffset:8;\tsize:4").replace("16;", "12;");
    assert_eq!(PageLayout::parse(&small).unwrap().page_bytes(), 4092);
    for broken in ["", "timestamp", &LAYOUT.replace("data", "date"), &LAYOUT.replace("offset:8", "offset:88")]
    {
        assert!(PageLayout::parse(broken).is_err(), "{broken}");
    }
}

#[test]
fn short_and_long_events_and_times() {
    let mut events = Vec::new();
    events.extend(word(2, 10));
    events.extend([1; 8]);
    events.extend(word(TIME_EXTEND, 5));
    events.extend(2_u32.to_ne_bytes());
    events.extend(word(1, 0));
    events.extend([2; 4]);
    events.extend(word(0, 3));
    events.extend(132_u32.to_ne_bytes());
    events.extend([3; 128]);
    events.extend(word(PADDING, 1));
    events.extend(8_u32.to_ne_bytes());
    events.extend([9; 4]);
    events.extend(word(PADDING, 7));
    events.extend(4_u32.to_ne_bytes());
    events.extend(word(TIME_STAMP, 77));
    events.extend(1_u32.to_ne_bytes());
    events.extend(word(1, 1));
    events.extend([4; 4]);
    let second = 1010 + 5 + (2 << 27);
    let expected = vec![
        (1010, vec![1; 8]),
        (second, vec![2; 4]),
        (second + 3, vec![3; 128]),
        (77 + (1 << 27) + 1, vec![4; 4]),
    ];
    assert_eq!(decode(&page(1000, 0, &events, &[])), (expected, None, None));
}

#[test]
fn a_withdrawn_event_takes_its_time_unless_that_is_1() {
    let mut events = Vec::new();
    for delta in [1, 50] {
        events.extend(word(PADDING, delta));
        events.extend(8_u32.to_ne_bytes());
        events.extend([9; 4]);
    }
    events.extend(word(1, 1));
    events.extend([4; 4]);
    assert_eq!(decode(&page(1000, 0, &events, &[])).0, [(1051, vec![4; 4])]);
}

#[test]
fn nothing_follows_the_padding_at_the_end() {
    let mut events = word(1, 1).to_vec();
    events.extend([4; 4]);
    events.extend(word(PADDING, 0));
    events.extend([255; 100]);
    assert_eq!(decode(&page(0, 0, &events, &[])), (vec![(1, vec![4; 4])], None, None));
}

#[test]
fn absolute_times_keep_their_upper_bits() {
    let top = 3 << ABSOLUTE_BITS;
    assert_eq!(absolute(10, top | 5), top | 10);
    assert_eq!(absolute(10, top | 15), (4 << ABSOLUTE_BITS) | 10);
    assert_eq!(absolute(10, 15), 10);
}

#[test]
fn lost_events_are_reported() {
    let event = [word(1, 1), [4; 4]].concat();
    let flags = MISSED_EVENTS | MISSED_STORED;
    let missed = |bytes: &[u8]| decode(bytes).2;
    assert_eq!(
        missed(&page(0, flags, &event, &77_u64.to_ne_bytes())),
        Some(MissedEvents { count: Some(77) })
    );
    assert_eq!(missed(&page(0, MISSED_EVENTS, &event, &[])), Some(MissedEvents { count: None }));
    let full = vec![0; 4080];
    assert_eq!(missed(&page(0, flags, &full, &[])), Some(MissedEvents { count: None }));
    assert_eq!(missed(&page(0, 0, &event, &[])), None);
}

#[test]
fn nonsense_is_refused() {
    let layout = PageLayout::of_64_bit(4096);
    assert_eq!(Page::new(&layout, &[0; 15]).err(), Some(PageError::Short(15)));
    let mut bytes = page(0, 0, &[], &[]);
    bytes[8..16].copy_from_slice(&4081_u64.to_ne_bytes());
    assert_eq!(Page::new(&layout, &bytes).err(), Some(PageError::Commit { commit: 4081, capacity: 4080 }));
    // Kinds whose length is missing, too small, or too large.
    for events in [
        word(5, 1).to_vec(),
        word(0, 1).to_vec(),
        [word(0, 1), 3_u32.to_ne_bytes()].concat(),
        [word(0, 1), u32::MAX.to_ne_bytes()].concat(),
        [word(PADDING, 1), 0_u32.to_ne_bytes()].concat(),
        word(TIME_EXTEND, 1).to_vec(),
        vec![0; 3],
    ] {
        assert_eq!(decode(&page(0, 0, &events, &[])), (vec![], Some(0), None), "{events:?}");
    }
}

#[test]
fn garbage_never_panics_and_always_ends() {
    let mut events = Vec::new();
    for index in 0..60_u32 {
        events.extend(word(1 + index % 8, index));
        events.resize(events.len() + 4 * (1 + index as usize % 8), 7);
        events.extend(word([PADDING, TIME_EXTEND, TIME_STAMP, 0][index as usize % 4], 2));
        events.extend(4_u32.to_ne_bytes());
    }
    let whole = page(1 << 50, MISSED_EVENTS | MISSED_STORED, &events, &5_u64.to_ne_bytes());
    let layout = PageLayout::of_64_bit(4096);
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let (mut decoded, mut broken) = (0, 0);
    for _ in 0..50_000 {
        let mut bytes = whole.clone();
        for _ in 0..=random() % 6 {
            let at = usize::try_from(random() % 1500).unwrap();
            bytes[at] = random().to_le_bytes()[0];
        }
        bytes.truncate(usize::try_from(random() % 4097).unwrap());
        if let Ok(page) = Page::new(&layout, &bytes) {
            let mut events = page.events();
            let count = events.by_ref().count();
            assert!(count <= 1024);
            decoded += count;
            broken += usize::from(events.broken_at().is_some());
        }
    }
    assert!(decoded > 100_000 && broken > 1000, "{decoded} {broken}");
}
