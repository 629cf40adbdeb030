// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptions as programs write them, and as liars do.

use super::*;
use rtscope_testkit::descriptions::{self, DescriptionText};
use rtscope_testkit::random::Random;

const TEXT: &str = "motor:setpoint 6\nu64 axis\nf64 target\nenum mode how\nstr note\narray x8 0x4u raw\nseq u16 list\n\0motor:tick 7\n\0mode\n0 idle\n-7 run fast\n\0";

fn parse(text: &[u8]) -> Result<Descriptions, Defect> {
    Descriptions::parse(text, 2, 1, &RequestedEvents::default())
}

#[test]
fn text_written_by_the_macros_is_read() {
    let all = parse(TEXT.as_bytes()).unwrap();
    assert_eq!(all.events[0].fields.len(), 6);
    assert_eq!(
        all.events[0].fields[4].kind,
        FieldType::Array(Integer { bytes: 1, signed: false, hex: true }, 4)
    );
    assert_eq!(all.enumeration("mode").unwrap().labels[1], (-7, "run fast".to_string()));
    assert_eq!((all.events[1].level, all.events[1].fields.len()), (7, 0));
}

/// Compared one by one, these were 6 billion labels.
#[test]
fn thousands_of_labels_of_enumerations_of_one_name_are_read_as_fast_as_those_of_several() {
    let labels: String = (0..4000).map(|label| format!("0 l{label}\n")).collect();
    let read = |enumerations: usize, times: usize| {
        let text = format!("p:e 6\nenum E v\n\0{}", format!("E\n{labels}\0").repeat(enumerations));
        let begun = std::time::Instant::now();
        for _ in 0..times {
            let count = u32::try_from(enumerations).unwrap();
            let all = Descriptions::parse(text.as_bytes(), 1, count, &RequestedEvents::default()).unwrap();
            assert_eq!(all.enumeration("E").unwrap().labels.len(), 4000);
        }
        begun.elapsed()
    };
    let (together, apart) = (read(400, 1), read(1, 400));
    println!("{together:?}, apart {apart:?}");
    assert!(together < apart * 6, "{together:?}, apart {apart:?}");
}

#[test]
fn what_is_wrong_with_one_event_is_only_its_own_fault() {
    let wrong = [
        "p:e 6\narray u32 N v\n",
        "p:e 6\narray u32 (1 << 2) v\n",
        "p:e 6\narray u32 0 v\n",
        "p:e 6\narray u64 (1024) v\n",
        "p:e 6\nu32 a-b\n",
        "p:e 6\nu7 a\n",
        "p:e 6\nu8 a",
        "p:e LEVEL\n",
        "p:e 4294967296\n",
        "p:a-b 6\n",
        "p 6\n",
        "p:e 6\nenum missing a\n",
        "p:e 6\nenum nameless a\n",
        "p:e 6\nenum control a\n",
        "p:e 6\nenum latin a\n",
        "p:e 6\nu8 gr\u{fc}n\n",
    ];
    for wrong in wrong {
        let text = format!(
            "p:one 6\n\0{wrong}\0p:two 7\nenum e a\n\0e\n0 \n1 x\n\0nameless\n0 \n\0control\n0 \t\n\0"
        );
        let mut text = text.into_bytes();
        text.extend(b"latin\n0 gr\xfcn\n\0");
        let all = Descriptions::parse(&text, 3, 4, &RequestedEvents::default()).unwrap();
        let names: Vec<(u32, &str)> =
            all.events.iter().map(|event| (event.index, event.name.as_str())).collect();
        assert_eq!(names, [(0, "p:one"), (2, "p:two")], "{wrong}");
        assert_eq!(all.enumerations.len(), 1, "{wrong}");
        assert_eq!(all.enumerations[0].labels, [(1, "x".to_string())]);
        let [only] = all.undescribed.as_slice() else { panic!("{wrong}: {:?}", all.undescribed) };
        assert_eq!((only.index, only.name.is_empty()), (1, !wrong.starts_with("p:e")), "{wrong}");
        let others = RequestedEvents::parse(&["!p:e*".to_string(), "!p".to_string(), "p:*o*".to_string()], 7);
        let others = Descriptions::parse(&text, 3, 4, &others.unwrap()).unwrap();
        assert_eq!(others.undescribed, [], "nobody asked for it");
    }
}

#[test]
fn counts_are_read_as_c_has_them() {
    for (text, count) in [
        ("4", 4),
        ("0x10", 16),
        ("0X1fUL", 31),
        ("(4)", 4),
        ("( ( 4u ) )", 4),
        ("010", 8),
        ("0b11", 3),
        ("0", 0),
    ] {
        assert_eq!(count_in_c(text), Ok(count), "{text}");
    }
    for text in ["", "()", "N", "2*2", "1 << 2", "-1", "4294967296", "(4", "4)", "08", "0x", "+4", "0x+4"] {
        assert!(count_in_c(text).is_err(), "{text}");
    }
}

#[test]
fn every_truncation_and_every_changed_byte_is_refused_or_harmless() {
    for end in 0..TEXT.len() {
        assert!(parse(&TEXT.as_bytes()[..end]).is_err(), "{end}");
    }
    for place in 0..TEXT.len() {
        for byte in [0, b'\n', b' ', b'"', b';', 0xff] {
            let mut text = TEXT.as_bytes().to_vec();
            text[place] = byte;
            if let Ok(all) = parse(&text) {
                let names = all.events.iter().flat_map(|event| &event.fields).map(|field| &field.name);
                names.for_each(|name| assert!(identifier(name).is_ok()));
                assert_eq!(all.check(), Ok(()));
            }
        }
    }
}

#[test]
fn whatever_is_read_from_a_program_is_believed_when_it_is_read_again() {
    let all = RequestedEvents::default();
    let mut read = 0;
    for seed in 0..2000 {
        let DescriptionText { text, events, enumerations } = descriptions::provider(&mut Random(seed));
        if let Ok(found) = Descriptions::parse(&text, events, enumerations, &all) {
            assert_eq!(found.check(), Ok(()), "{seed}: {found:?}");
            read += 1;
        }
    }
    assert!(read > 500, "{read}");
}

#[test]
fn only_requested_events_and_their_enumerations_are_kept() {
    let wanted = |pattern: &str, level| RequestedEvents::parse(&[pattern.to_string()], level).unwrap();
    let parse = |wanted| Descriptions::parse(TEXT.as_bytes(), 2, 1, &wanted).unwrap();
    let tick = parse(wanted("motor:tick", 7));
    assert_eq!((tick.events.len(), tick.events[0].index, tick.declared), (1, 1, 2));
    assert_eq!(tick.enumerations, []);
    let setpoint = parse(wanted("*", 6));
    assert_eq!((setpoint.events.len(), setpoint.events[0].index), (1, 0));
    assert_eq!(setpoint.enumerations.len(), 1);
    assert_eq!(parse(wanted("pump", 7)).events, []);
}

#[test]
fn what_no_trace_can_bear_is_refused_unless_it_is_not_requested() {
    let fields: String = (0..16).map(|field| format!("u64 field_{field}\n")).collect();
    let text: String = (0..60_000).map(|event| format!("load:event{event} 6\n{fields}\0")).collect();
    let all = RequestedEvents::default();
    assert_eq!(Descriptions::parse(text.as_bytes(), 60_000, 0, &all), Err(TOO_LARGE));
    // Of what cannot be described no more is kept either.
    let wrong: String = (0..60_000).map(|event| format!("load:event{event} 6\nu7 a\n\0")).collect();
    assert_eq!(Descriptions::parse(wrong.as_bytes(), 60_000, 0, &all), Err(TOO_LARGE));
    let few = RequestedEvents::parse(&["load:event5999?".to_string()], 7).unwrap();
    let kept = Descriptions::parse(text.as_bytes(), 60_000, 0, &few).unwrap();
    assert_eq!((kept.events.len(), kept.events[0].index), (10, 59_990));
    // Small as text, large where each field has its labels.
    let labels: String = (0..4096).map(|label| format!("{label} label\n")).collect();
    let uses: String = (0..16).map(|field| format!("enum e f{field}\n")).collect();
    let text: String = (0..100).map(|event| format!("load:event{event} 6\n{uses}\0")).collect();
    let text = format!("{text}e\n{labels}\0");
    assert_eq!(Descriptions::parse(text.as_bytes(), 100, 1, &all), Err(TOO_LARGE));
}

#[test]
fn a_payload_ends_where_its_fields_do() {
    let all = parse(TEXT.as_bytes()).unwrap();
    let mut payload = vec![1; 20];
    payload.extend_from_slice(b"hello\0");
    payload.extend_from_slice(&[9; 4]);
    payload.extend_from_slice(&[2, 0, 0, 0, 1, 1, 2, 2]);
    let whole = payload.len();
    payload.extend_from_slice(&[0; 2]);
    assert_eq!(payload_bytes(&all.events[0].fields, &payload), Some(whole));
    assert_eq!(payload_bytes(&all.events[0].fields, &payload[..whole - 1]), None);
    assert_eq!(payload_bytes(&all.events[1].fields, &[]), Some(0));
}
