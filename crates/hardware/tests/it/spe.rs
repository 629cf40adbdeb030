// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SPE: packets as perf reads them, and records.

use std::process::Command;

use rtscope_hardware::spe::{
    AddressKind, CounterKind, Decoder, Encoder, Item, Operation, Payload, Record, Records,
};
use rtscope_hardware::{Lost, LostCause};
use rtscope_testkit::random::Random;

const ADDRESSES: [AddressKind; 5] = [
    AddressKind::Instruction,
    AddressKind::BranchTarget,
    AddressKind::DataVirtual,
    AddressKind::DataPhysical,
    AddressKind::PreviousBranchTarget,
];
const COUNTERS: [CounterKind; 3] = [CounterKind::Total, CounterKind::Issue, CounterKind::Translation];

/// Random packets of every kind, and their payloads.
pub fn random_stream(random: &mut Random, packets: usize) -> (Vec<u8>, Vec<Payload>) {
    let (mut encoder, mut meant) = (Encoder::new(), Vec::new());
    for _ in 0..packets {
        let size = 1 << random.below(4);
        let value = random.next();
        let sized = value >> (64 - 8 * size);
        let flags = random.below(256) as u8;
        meant.push(match random.below(10) {
            0 => {
                encoder.timestamp(value);
                Payload::Timestamp(value)
            }
            1 => {
                encoder.end();
                Payload::End
            }
            2 => {
                encoder.events(sized, size);
                Payload::Events { bits: sized }
            }
            3 => {
                encoder.data_source(sized, size);
                Payload::DataSource(sized)
            }
            4 => {
                let level = random.below(2) as u8 + 1;
                encoder.context(level, value as u32);
                Payload::Context { level, id: value as u32 }
            }
            5 => {
                let class = random.below(3) as u8;
                encoder.operation(class, flags);
                Payload::Operation(match class {
                    0 => Operation::Other(flags),
                    1 => Operation::Memory(flags),
                    _ => Operation::Branch(flags),
                })
            }
            6 => {
                let kind = COUNTERS[random.index(3)];
                encoder.counter(kind, value as u16);
                Payload::Counter { kind, cycles: value as u16 }
            }
            7 => {
                encoder.padding();
                Payload::Padding
            }
            _ => {
                let kind = ADDRESSES[random.index(5)];
                encoder.address(kind, value);
                Payload::Address { kind, value }
            }
        });
    }
    (encoder.finish(), meant)
}

fn read(stream: &[u8]) -> (Vec<Payload>, Vec<Lost>) {
    let (mut payloads, mut lost) = (Vec::new(), Vec::new());
    let mut sink = |item: Item| match item {
        Item::Packet(packet) => payloads.push(packet.payload),
        Item::Lost(what) => lost.push(what),
    };
    let mut decoder = Decoder::new();
    decoder.push(stream, &mut sink);
    decoder.finish(&mut sink);
    (payloads, lost)
}

#[test]
fn what_is_written_is_read() {
    for seed in 0..50 {
        let (stream, meant) = random_stream(&mut Random(seed), 400);
        let (payloads, lost) = read(&stream);
        assert_eq!(lost, Vec::new(), "seed {seed}");
        assert_eq!(payloads, meant, "seed {seed}");
    }
}

/// A file of perf that is made for a pipe, of one buffer (tools/perf/Documentation/perf.data-file-format.txt).
fn perf_data(stream: &[u8]) -> Vec<u8> {
    let mut file = b"PERFILE2".to_vec();
    file.extend_from_slice(&16_u64.to_le_bytes());
    let mut record = |kind: u32, body: &[u8], behind: &[u8]| {
        file.extend_from_slice(&kind.to_le_bytes());
        file.extend_from_slice(&0_u16.to_le_bytes());
        file.extend_from_slice(&(8 + body.len() as u16).to_le_bytes());
        file.extend_from_slice(body);
        file.extend_from_slice(behind);
    };
    let mut attribute = [0; 136];
    attribute[4..8].copy_from_slice(&112_u32.to_le_bytes());
    record(64, &attribute[..112 + 8], &[]);
    // AUXTRACE_INFO of Arm SPE: its type, and the numbers of its PMU and of the buffers' CPUs.
    let mut info = vec![4, 0, 0, 0, 0, 0, 0, 0];
    info.extend_from_slice(&9_u64.to_le_bytes());
    info.extend_from_slice(&0_u64.to_le_bytes());
    record(70, &info, &[]);
    let mut auxtrace = Vec::new();
    for word in [stream.len() as u64, 0, 0] {
        auxtrace.extend_from_slice(&word.to_le_bytes());
    }
    for word in [0_u32, 1, 0, 0] {
        auxtrace.extend_from_slice(&word.to_le_bytes());
    }
    record(71, &auxtrace, stream);
    record(68, &[], &[]);
    file
}

/// The packets that perf prints: offsets, bytes and text.
fn perfs_packets(stream: &[u8]) -> Option<Vec<(u64, String)>> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("perf.data");
    std::fs::write(&file, perf_data(stream)).unwrap();
    // Through a real pipe: perf reads what is redirected differently.
    let command = format!("cat {} | perf script -D -i -", file.display());
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut packets = Vec::new();
    for line in text.lines() {
        let Some((offset, rest)) = line.trim_start().trim_start_matches('.').trim_start().split_once(":  ")
        else {
            continue;
        };
        // Others are dumps of perf's own records.
        let Some(offset) = (offset.len() == 8).then(|| u64::from_str_radix(offset, 16).ok()).flatten() else {
            continue;
        };
        // Up to 16 bytes, then the text.
        let words = rest.split(' ').filter(|word| !word.is_empty());
        let is_byte = |word: &&str| word.len() == 2 && word.chars().all(|char| char.is_ascii_hexdigit());
        let text: Vec<&str> = words.skip_while(is_byte).collect();
        packets.push((offset, text.join(" ")));
    }
    (!packets.is_empty()).then_some(packets)
}

#[test]
fn perf_reads_our_packets_as_we_do() {
    if rtscope_testkit::skip::without_tool("perf") {
        return;
    }
    let (stream, _) = random_stream(&mut Random(11), 400);
    let Some(perfs) = perfs_packets(&stream) else {
        return rtscope_testkit::skip::say("this perf does not print packets of SPE");
    };
    let mut ours = Vec::new();
    let mut sink = |item: Item| {
        if let Item::Packet(packet) = item {
            ours.push((packet.offset, packet.payload.to_string().trim_end().to_string()));
        }
    };
    let mut decoder = Decoder::new();
    decoder.push(&stream, &mut sink);
    decoder.finish(&mut sink);
    // perf has runs of padding in one line.
    ours.dedup_by(|after, before| after.1 == "PAD" && before.1 == "PAD");
    for (ours, perfs) in ours.iter().zip(&perfs) {
        assert_eq!(ours.0, perfs.0);
        // perf 6.1 has no name for this address, newer ones do.
        let is_nameless =
            ours.1.starts_with("PBT ") && perfs.1.starts_with("ADDR ") && perfs.1.ends_with(" (4)");
        // These neither.
        let known = ours.1.replace(" MTE-TAG", "").replace(" MEMCPY", "");
        // perf prints times of 2^63 and more as negative numbers.
        let unsigned = |text: &str| {
            let (name, number) = text.split_once(' ')?;
            Some(format!("{name} {}", number.parse::<i64>().ok()? as u64))
        };
        let perfs = (perfs.0, unsigned(&perfs.1).unwrap_or_else(|| perfs.1.clone()));
        assert!(ours.1 == perfs.1 || known == perfs.1 || is_nameless, "{ours:?} {perfs:?}");
    }
    assert_eq!(ours.len(), perfs.len());
    let count = ours.len();
    crate::captures::Row {
        capture: "(our encoder)",
        unit: "SPE",
        oracle: "perf",
        compared: &[("packets", count, count)],
        bytes: None,
        notes: "",
    }
    .print();
}

#[test]
fn records_are_what_lies_between_two_ends() {
    let mut encoder = Encoder::new();
    encoder.address(AddressKind::Instruction, 0xa000_0000_0040_1234).operation(1, 0).events(0x16, 2);
    encoder.counter(CounterKind::Total, 120).counter(CounterKind::Issue, 20);
    encoder.address(AddressKind::DataVirtual, 0xffff_8000).context(1, 4321).data_source(8, 1).timestamp(999);
    encoder.padding().align(3).operation(2, 1).end();
    // A byte that begins no packet: the record is not believed.
    encoder.raw(&[0x02]).operation(2, 3).timestamp(1000).operation(0, 0).timestamp(1001).operation(0, 0);
    let mut records = Vec::new();
    let mut sink = Records::new(|record: &Record| records.push(*record));
    let mut decoder = Decoder::new();
    decoder.push(&encoder.finish(), &mut sink);
    decoder.finish(&mut sink);
    sink.finish();
    assert_eq!(sink.damaged_records(), 2);
    assert_eq!(records.len(), 3);
    let first = Record {
        offset: 0,
        ticks: Some(999),
        pc: Some(0x40_1234),
        data_virtual: Some(0xffff_8000),
        events: Some(0x16),
        data_source: Some(8),
        operation: Some(Operation::Memory(0)),
        context: Some(4321),
        total_cycles: Some(120),
        issue_cycles: Some(20),
        ..Record::default()
    };
    assert_eq!(records[0], first);
    assert_eq!((records[1].operation, records[1].ticks), (Some(Operation::Branch(1)), None));
    assert_eq!((records[2].operation, records[2].ticks), (Some(Operation::Other(0)), Some(1001)));
}

#[test]
fn alignment_reaches_over_pieces() {
    let mut encoder = Encoder::new();
    encoder.operation(0, 0).align(3).end();
    let stream = encoder.finish();
    assert_eq!(stream.len(), 17);
    let (payloads, lost) = read(&stream);
    assert_eq!(payloads, [Payload::Operation(Operation::Other(0)), Payload::Padding, Payload::End]);
    assert_eq!(lost, Vec::new());
    let (_, lost) = read(&stream[..9]);
    assert_eq!(lost, [Lost { offset: 2, bytes: 7, cause: LostCause::Truncated }]);
}
