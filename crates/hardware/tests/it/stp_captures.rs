// SPDX-License-Identifier: Apache-2.0 OR MIT
//! STP of CoreSight STM: each packet against OpenCSD's packet lister.

use rtscope_hardware::LostCause;
use rtscope_hardware::stp::{Decoder, Item, Packet, Payload};

use super::stm_captures;

/// A packet as OpenCSD says it: name, number, time, and the nibbles that it prints.
#[derive(Debug)]
struct Said {
    name: String,
    value: Option<u64>,
    ticks: Option<u64>,
    nibbles: Vec<u8>,
}

/// The value behind `key` in a line of OpenCSD.
fn field(line: &str, key: &str) -> Option<u64> {
    let text = &line[line.find(key)? + key.len()..];
    let end = text.find(|char: char| !char.is_ascii_alphanumeric()).unwrap_or(text.len());
    let text = text[..end].trim_end_matches("Hz");
    text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())
}

fn said(listing: &str) -> (Vec<Said>, usize) {
    let (mut packets, mut not_synchronised) = (Vec::new(), 0);
    for line in listing.lines().filter(|line| line.starts_with("Idx:") && line.contains("];\t")) {
        let (bytes, text) = line.split_once("];\t").unwrap();
        let bytes = bytes.split_once('[').unwrap().1.split_whitespace();
        let bytes: Vec<u8> = bytes.map(|byte| u8::from_str_radix(&byte[2..], 16).unwrap()).collect();
        let name = text.split_once(':').unwrap().0.replace("FLAGTS", "FLAG_TS").replace("TRIGTS", "TRIG_TS");
        if name == "NOTSYNC" {
            not_synchronised += bytes.len();
            continue;
        }
        // The last packet, of which the end is missing: bytes that are lost.
        if name == "INCOMPLETE_EOT" {
            continue;
        }
        let keys = ["; Master=", "; Chan=", "; Data=", "; TrigData=", "; Freq=", "; Ver="];
        let value = keys.iter().find_map(|key| field(text, key));
        let nibbles = bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]).collect();
        packets.push(Said { name, value, ticks: field(text, "; TS="), nibbles });
    }
    (packets, not_synchronised)
}

const fn value_of(payload: Payload) -> Option<u64> {
    Some(match payload {
        Payload::Version(version) => version as u64,
        Payload::Master { master, .. } => master as u64,
        Payload::Channel { channel, .. } => channel as u64,
        Payload::Data { value, .. } => value,
        Payload::Trigger(code) => code as u64,
        Payload::Frequency(hz) => hz as u64,
        _ => return None,
    })
}

/// OpenCSD prints bytes of a packet that begins and ends within some. What it is synchronised by is for it all nibbles 15 before the 0, also more than the 21
/// that the packet has: of a byte that begins with one of these it prints both.
fn nibbles_agree(packet: &Packet, stream: &[u8], said: &Said) -> bool {
    let nibbles = packet.nibble as usize..(packet.nibble + u64::from(packet.nibbles)) as usize;
    let ours: Vec<u8> = nibbles.map(|nibble| stream[nibble / 2] >> (nibble % 2 * 4) & 15).collect();
    let agrees = |skip: usize| said.nibbles.get(skip..skip + ours.len()) == Some(&ours[..]);
    let is_longer = matches!(packet.payload, Payload::Async) && said.nibbles.get(1) == Some(&15);
    agrees(0) || agrees(1) || is_longer && agrees(2)
}

/// Fails unless our packets are those of OpenCSD's listing, and every nibble is in one or lost.
pub fn agrees(name: &str, stream: &[u8], listing: &str) {
    agrees_below(name, stream, listing, u64::MAX);
}

/// The same, of times up to the last one that the listing has right.
pub fn agrees_below(name: &str, stream: &[u8], listing: &str, last_ticks: u64) {
    let (said, not_synchronised) = said(listing);
    let mut items: Vec<Item> = Vec::new();
    let mut decoder = Decoder::new();
    decoder.push(stream, &mut items);
    decoder.finish(&mut items);
    let packets: Vec<Packet> = items
        .iter()
        .filter_map(|item| if let Item::Packet(packet) = item { Some(*packet) } else { None })
        .collect();
    let (mut same, mut lost, mut compared, mut is_right) = (0, 0, 0, true);
    for (packet, said) in packets.iter().zip(&said) {
        assert_eq!(
            (packet.name(), value_of(packet.payload)),
            (&*said.name, said.value),
            "{name}: {packet:?}"
        );
        if let Some(time) = packet.timestamp {
            // A time that it has wrong spoils those that are written in part.
            is_right = time.ticks <= last_ticks && (is_right || time.nibbles == 16);
            compared += usize::from(is_right);
            assert!(!is_right || said.ticks == Some(time.ticks), "{name}: {packet:?} {said:?}");
        }
        assert_eq!(packet.timestamp.is_some(), said.ticks.is_some(), "{name}: {packet:?} {said:?}");
        assert!(nibbles_agree(packet, stream, said), "{name}: {packet:?} {said:x?}");
        same += 1;
    }
    assert_eq!(packets.len(), said.len(), "{name}");
    for item in &items {
        if let Item::Lost(what) = item {
            lost += what.nibbles;
            assert!(what.nibble == 0 || what.cause == LostCause::Truncated, "{name}: {what:?}");
        }
    }
    let in_packets: u64 = packets.iter().map(|packet| u64::from(packet.nibbles)).sum();
    assert_eq!(in_packets + lost, stream.len() as u64 * 2, "{name}: every nibble is in a packet or lost");
    println!("{name}: {compared} times are the same");
    println!(
        "{name}: OpenCSD lists {not_synchronised} bytes as not synchronised; here {lost} nibbles are lost"
    );
    stm_captures::row(
        name,
        "STM (STPv2)",
        "OpenCSD",
        same,
        said.len(),
        stream.len() as u64,
        lost.div_ceil(2),
    );
}

#[test]
fn each_packet_of_the_stm_captures_is_opencsds() {
    for name in ["stm_only", "stm_only-juno"] {
        let Some(frames) = stm_captures::read(&format!("opencsd/{name}/cstraceitm.bin")) else { return };
        let Some(listing) = stm_captures::expected(&format!("opencsd-1.5.5/{name}.ppl.xz")) else { return };
        agrees(name, &stm_captures::source_of(&frames, 0x20), &listing);
    }
    let Some(stream) = stm_captures::read("stp/synthetic-binary-ts/stp.bin") else { return };
    let Some(listing) = stm_captures::expected("opencsd-1.5.5/stp-synthetic-binary-ts.ppl.xz") else {
        return;
    };
    agrees("stp/synthetic-binary-ts", &stream, &listing);
}

/// The packets of a vector of Zephyr's decoder.
fn zephyr_item(packet: &Packet) -> serde_json::Value {
    let name = match packet.payload {
        Payload::Master { .. } => "M",
        Payload::Channel { .. } => "C",
        _ => packet.name(),
    };
    let value = match packet.payload {
        Payload::MasterError(code) | Payload::GlobalError(code) => Some(u64::from(code)),
        payload => value_of(payload),
    };
    let mut all = vec![serde_json::Value::from(name)];
    all.extend(value.map(serde_json::Value::from));
    all.extend(packet.timestamp.map(|time| serde_json::Value::from(time.ticks)));
    all.into()
}

#[test]
fn zephyrs_vectors_are_decoded_as_zephyr_does() {
    let Some(text) = stm_captures::read("stp/zephyr-vectors.json") else { return };
    let vectors: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let (mut same, mut of, mut bytes) = (0, 0, 0);
    for vector in vectors["vectors"].as_array().unwrap() {
        let (mut decoder, mut ours) = (Decoder::synchronised(), Vec::new());
        let mut sink = |item: Item| {
            if let Item::Packet(packet) = item {
                ours.push(zephyr_item(&packet));
            }
        };
        for chunk in vector["chunks"].as_array().unwrap() {
            let chunk = chunk.as_str().unwrap();
            if chunk == "<LOSS>" {
                decoder.finish(&mut sink);
                continue;
            }
            let chunk: Vec<u8> = (0..chunk.len() / 2)
                .map(|at| u8::from_str_radix(&chunk[2 * at..2 * at + 2], 16).unwrap())
                .collect();
            bytes += chunk.len();
            decoder.push(&chunk, &mut sink);
        }
        let expected = vector["out"].as_array().unwrap();
        for (ours, expected) in ours.iter().zip(expected) {
            assert_eq!(ours, expected, "{}", vector["name"]);
            same += 1;
        }
        // After the packets that Zephyr's test looks at, a vector may be filled up.
        assert!(ours.len() >= expected.len(), "{}: {ours:?}", vector["name"]);
        assert!(ours[expected.len()..].iter().all(|rest| rest[0] == "NULL"), "{}: {ours:?}", vector["name"]);
        of += expected.len();
    }
    stm_captures::row("stp/zephyr-vectors.json", "STPv2", "Zephyr's values", same, of, bytes as u64, 0);
}
