// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What programs have written into channels of an STM: its stream, and the recording's notes about the programs. Both may have come from
//! anybody, and every program writes into the stream what it wants.

use crate::PROCESS;
use rtscope_abi::program as abi;
use rtscope_hardware::decode::{Settings, Unit};
use rtscope_hardware::stp::{Encoder, Width};
use rtscope_programs::patterns::RequestedEvents;
use rtscope_programs::{ProviderInfo, bytes};
use rtscope_session::Failure;
use rtscope_session::hardware::Decoding;
use rtscope_testkit::descriptions::DescriptionText;
use rtscope_testkit::program_files;
use serde_json::{Value, json};
use std::fs;
use std::sync::OnceLock;

/// `channels.json` and a NUL, or a byte that says which of ours; then the stream. Whatever that is, there is a trace, with as many events as are
/// reported.
pub fn decode(data: &[u8]) -> Option<()> {
    let (notes, stream) = if data.first() == Some(&b'{') {
        let end = data.iter().position(|byte| *byte == 0)?;
        (&data[..end], &data[end + 1..])
    } else {
        static OURS: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
        let (which, stream) = data.split_first()?;
        (
            &OURS.get_or_init(|| CLOCKS.map(|clock| notes(clock, Some(device()))))[usize::from(which % 2)][..],
            stream,
        )
    };
    let events = decoded(notes, stream, Unit::Stp)?;
    // Each begins with a word, and ends with a flag.
    assert!(events <= data.len() as u64 / 9, "{events} events in {} bytes", data.len());
    (events > 0).then_some(())
}

/// How many events are in the trace that is made of this stream and these notes; `None`: it is refused.
pub(crate) fn decoded(notes: &[u8], stream: &[u8], unit: Unit) -> Option<u64> {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("channels.json"), notes).unwrap();
    fs::write(at("stream"), stream).unwrap();
    let settings = Settings { unit: Some(unit), ..Settings::default() };
    let mut decoding = Decoding::open(&at("stream"), &settings).unwrap();
    match decoding.write(&at("trace"), 0, Some(dir.path())) {
        Ok(()) => {}
        Err(Failure::Damaged(_)) => return None,
        Err(failure) => panic!("{failure}"),
    }
    let events = decoding.report.trace.as_ref().unwrap().events;
    assert_eq!(crate::ctf::events_of_ours(&at("trace")), events);
    Some(events)
}

const EVENTS: &str = "motor:setpoint 6\nu64 axis\nf64 target\nenum mode how\nstr note\narray x8 0x4u raw\nseq u16 list\n\0\
                      motor:tick 7\n\0motor:work 7\nu64 number\n\0mode\n0 idle\n-7 run fast\n\0";
pub(crate) const START: u64 = 5 << 30;
pub(crate) const CLOCKS: [u32; 2] = [abi::RTU_CLOCK_MONOTONIC, abi::RTU_CLOCK_TSC];

/// Both kinds of clocks, each with its notes and with those that are ours.
pub fn seeds() -> Vec<Vec<u8>> {
    let of_clock = |(which, clock): (u8, u32)| {
        let stream = stream(clock);
        [[notes(clock, Some(device())), vec![0], stream.clone()].concat(), [vec![which], stream].concat()]
    };
    (0..).zip(CLOCKS).flat_map(of_clock).collect()
}

/// Events, and a handler's within one, in the channels of two threads with this clock.
fn stream(clock: u32) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.sync().master(16);
    for (channel, tid) in [(3, 9), (4, 10)] {
        encoder.channel(channel);
        send(&mut encoder, &who(tid, clock));
        // Padded: what is behind the fields is passed over.
        send(&mut encoder, &event(0, 1, 10, &[7; 3].iter().chain(&[0; 5]).copied().collect::<Vec<u64>>()));
        let (outer, inner) = (event(2, 2, 20, &[8]), event(1, 3, 30, &[]));
        encoder.marked(Width::D64, outer[0], Some(1));
        send(&mut encoder, &inner);
        encoder.data(Width::D64, outer[1], None).flag(None);
    }
    encoder.channel(3);
    // One that is missing, and one without an end.
    send(&mut encoder, &event(2, 5, 40, &[9]));
    encoder.marked(Width::D64, event(2, 6, 50, &[9])[0], Some(2)).global_error(1);
    encoder.finish()
}

fn device() -> Value {
    json!({
        "name": "stm0", "policy": "user", "map_bytes": 4096,
        "ports": {"bytes": 256, "first": 0, "next": 24, "last": 104},
    })
}

/// Of a recording of a program with this clock, whose events went to this device, or to PTWRITE.
pub(crate) fn notes(clock: u32, device: Option<Value>) -> Vec<u8> {
    let text = DescriptionText { text: EVENTS.as_bytes().to_vec(), events: 3, enumerations: 1 };
    let file = program_files::provider_of_text(PROCESS.pid, PROCESS.birth_ns, 0, &text);
    let provider = bytes::provider(&file, PROCESS, &RequestedEvents::default()).unwrap();
    let provider = ProviderInfo { clock, ..provider };
    let notes = json!({
        "schema": "rtscope.channels/1",
        "session": {
            "schema": "rtscope.session.user/1", "started_ns": START - 1000, "realtime_offset_ns": 1_700_000_000_000_000_000_u64,
            "hostname": "h", "kernel_release": "6.12", "boot_id": "0b0b0b0b-0000-4000-8000-000000000001", "version": "1",
            "context": ["tid", "cpu"], "trace": "0b0b0b0b-0000-4000-8000-000000000002",
        },
        "device": device,
        "ended_ns": START + 1000,
        "unnoted": 0,
        "providers": [provider],
        "clock": [{"counter": START - 1000, "monotonic_ns": START - 1000}, {"counter": START + 1000, "monotonic_ns": START + 1000}],
    });
    serde_json::to_vec(&notes).unwrap()
}

/// A thread says who it is.
pub(crate) fn who(tid: u64, clock: u32) -> Vec<u64> {
    let word = u64::from(abi::RTU_ID_WHO) | 9 << 24 | START << abi::RTU_TIME_SHIFT;
    let (version, comm) = (u64::from(abi::RTU_CHANNEL_VERSION) << 32, u64::from_le_bytes(*b"motor\0\0\0"));
    let process = u64::from(PROCESS.pid) | tid << 32;
    vec![word, START, 0, 1 | u64::from(clock) << 32, PROCESS.birth_ns, process, version, comm, 0]
}

pub(crate) fn event(id: u64, number: u64, time: u64, payload: &[u64]) -> Vec<u64> {
    let word = id | number << 16 | (1 + payload.len() as u64) << 24 | (START + time) << abi::RTU_TIME_SHIFT;
    [&[word], payload].concat()
}

fn send(encoder: &mut Encoder, words: &[u64]) {
    encoder.marked(Width::D64, words[0], Some(1));
    words[1..].iter().for_each(|word| {
        encoder.data(Width::D64, *word, None);
    });
    encoder.flag(None);
}
