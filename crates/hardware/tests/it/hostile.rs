// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams that nobody would send: cut, damaged, shifted and senseless ones, in pieces of any size.
//!
//! Of each decoder: no panic, every nibble or byte in a packet or reported lost, in order; the same items whatever the pieces; memory
//! that does not grow with the stream.

use rtscope_hardware::{itm, spe, stp};
use rtscope_testkit::random::Random;

use super::stm_captures;

/// What a decoder said of a stream: where each item is, and all of it as text.
struct Account {
    spans: Vec<(u64, u64)>,
    text: Vec<String>,
}

type Decode = fn(&[u8], &mut dyn FnMut() -> usize) -> Account;

/// The next piece of a stream, and the rest.
fn split<'a>(rest: &mut &'a [u8], piece: &mut dyn FnMut() -> usize) -> Option<&'a [u8]> {
    if rest.is_empty() {
        return None;
    }
    let (now, later) = rest.split_at(piece().clamp(1, rest.len()));
    *rest = later;
    Some(now)
}

fn stp_account(mut bytes: &[u8], piece: &mut dyn FnMut() -> usize) -> Account {
    let mut account = Account { spans: Vec::new(), text: Vec::new() };
    let mut sink = |item: stp::Item| {
        account.spans.push(match item {
            stp::Item::Packet(packet) => (packet.nibble, u64::from(packet.nibbles)),
            stp::Item::Lost(lost) => (lost.nibble, lost.nibbles),
        });
        account.text.push(format!("{item:?}"));
    };
    let mut decoder = stp::Decoder::new();
    while let Some(now) = split(&mut bytes, piece) {
        decoder.push(now, &mut sink);
    }
    decoder.finish(&mut sink);
    account
}

fn v1_account(mut bytes: &[u8], piece: &mut dyn FnMut() -> usize) -> Account {
    let mut account = Account { spans: Vec::new(), text: Vec::new() };
    let mut sink = |item: stp::v1::Item| {
        account.spans.push(match item {
            stp::v1::Item::Message(message) => (message.nibble, u64::from(message.nibbles)),
            stp::v1::Item::Sync { nibble, nibbles } => (nibble, nibbles),
            stp::v1::Item::Lost(lost) => (lost.nibble, lost.nibbles),
        });
        account.text.push(format!("{item:?}"));
    };
    let mut decoder = stp::v1::Decoder::new();
    while let Some(now) = split(&mut bytes, piece) {
        decoder.push(now, &mut sink);
    }
    decoder.finish(&mut sink);
    account
}

fn itm_account(mut bytes: &[u8], piece: &mut dyn FnMut() -> usize) -> Account {
    let mut account = Account { spans: Vec::new(), text: Vec::new() };
    let mut sink = |item: itm::Item| {
        account.spans.push(match item {
            itm::Item::Packet(packet) => (packet.offset * 2, packet.bytes * 2),
            itm::Item::Lost(lost) => (lost.offset * 2, lost.bytes * 2),
        });
        account.text.push(format!("{item:?}"));
    };
    let mut decoder = itm::Decoder::new();
    while let Some(now) = split(&mut bytes, piece) {
        decoder.push(now, &mut sink);
    }
    decoder.finish(&mut sink);
    account
}

fn spe_account(mut bytes: &[u8], piece: &mut dyn FnMut() -> usize) -> Account {
    let mut account = Account { spans: Vec::new(), text: Vec::new() };
    let mut sink = |item: spe::Item| {
        account.spans.push(match item {
            spe::Item::Packet(packet) => (packet.offset * 2, packet.bytes * 2),
            spe::Item::Lost(lost) => (lost.offset * 2, lost.bytes * 2),
        });
        account.text.push(format!("{item:?}"));
    };
    let mut decoder = spe::Decoder::new();
    while let Some(now) = split(&mut bytes, piece) {
        decoder.push(now, &mut sink);
    }
    decoder.finish(&mut sink);
    account
}

const DECODERS: [(&str, Decode); 4] =
    [("stp", stp_account), ("stp::v1", v1_account), ("itm", itm_account), ("spe", spe_account)];

/// Everything that was pushed is in an item, once and in order.
fn complete(name: &str, decode: Decode, bytes: &[u8]) -> Account {
    let account = decode(bytes, &mut || usize::MAX);
    let mut end = 0;
    for (begin, length) in &account.spans {
        assert_eq!(*begin, end, "{name}: an item begins where the one before ended");
        assert!(*length > 0, "{name}: an item is empty");
        end = begin + length;
    }
    assert_eq!(end, bytes.len() as u64 * 2, "{name}: nothing is passed over in silence");
    account
}

/// A stream of each encoder, of some packets of all kinds.
pub fn streams(seed: u64) -> Vec<(&'static str, Vec<u8>)> {
    let mut random = Random(seed);
    let binary = super::stp::random_stream(&mut random, stp::Encoding::Binary, 300).0;
    let gray = super::stp::random_stream(&mut random, stp::Encoding::Gray, 300).0;
    let v1 = super::stp::random_v1_stream(&mut random, 200).0;
    let itm = super::itm::random_stream(&mut random, 300).0;
    let spe = super::spe::random_stream(&mut random, 300).0;
    vec![("stp", binary), ("stp", gray), ("stp::v1", v1), ("itm", itm), ("spe", spe)]
}

fn decoder_of(name: &str) -> Decode {
    DECODERS.iter().find(|(one, _)| *one == name).unwrap().1
}

/// Streams of ours, and captures if there are some: those that are bytes of one of these units.
fn all_streams() -> Vec<(&'static str, Vec<u8>)> {
    let mut all = streams(1);
    if crate::captures::folder().is_some() {
        let frames = ["opencsd/stm_only/cstraceitm.bin", "opencsd/stm_only-juno/cstraceitm.bin"];
        let read = frames.into_iter().filter_map(stm_captures::read);
        all.extend(read.map(|frames| ("stp", stm_captures::source_of(&frames, 0x20))));
        all.extend(stm_captures::read("stp/synthetic-binary-ts/stp.bin").map(|bytes| ("stp", bytes)));
        let itm = ["itm/itm_only.bin", "itm/sigrok-stm32f105/id1.itm.bin", "itm/synthetic-lts-gts.bin"];
        all.extend(itm.into_iter().filter_map(stm_captures::read).map(|bytes| ("itm", bytes)));
    }
    all
}

#[test]
fn pieces_of_any_size_give_the_same_items() {
    let mut random = Random(7);
    for (name, stream) in all_streams() {
        let decode = decoder_of(name);
        let whole = complete(name, decode, &stream);
        for size in [1, 2, 3, 7, 16, 63, 64, 65, 255] {
            let pieces = decode(&stream, &mut || size);
            assert!(whole.text == pieces.text, "{name}: pieces of {size} bytes");
        }
        for _ in 0..20 {
            let pieces = decode(&stream, &mut || random.below(100) as usize + 1);
            assert!(whole.text == pieces.text, "{name}: pieces of random size");
        }
    }
}

#[test]
fn a_stream_that_is_cut_anywhere_is_accounted_for() {
    let mut random = Random(2);
    for (name, stream) in all_streams() {
        let decode = decoder_of(name);
        for _ in 0..1000 {
            let cut = random.below(stream.len() as u64 + 1) as usize;
            complete(name, decode, &stream[..cut]);
            complete(name, decode, &stream[cut..stream.len().min(cut + 2000)]);
        }
    }
}

#[test]
fn each_byte_may_be_wrong() {
    for (name, stream) in streams(3) {
        let decode = decoder_of(name);
        for index in 0..stream.len() {
            for mask in [0xff, 0x01, 0x80] {
                let mut damaged = stream.clone();
                damaged[index] ^= mask;
                complete(name, decode, &damaged);
            }
        }
    }
}

#[test]
fn each_byte_of_the_captures_may_be_wrong() {
    for (name, mut stream) in all_streams().into_iter().skip(5) {
        let decode = decoder_of(name);
        // Each byte, with what is near it: a decoder's memory is shorter than that, but for its masters and times.
        for index in 0..stream.len().min(64 << 10) {
            stream[index] ^= 0xff;
            complete(name, decode, &stream[index.saturating_sub(100)..stream.len().min(index + 200)]);
            stream[index] ^= 0xff;
        }
    }
}

#[test]
fn senseless_streams_end() {
    let mut random = Random(4);
    let noise: Vec<u8> = (0..64 << 10).map(|_| random.below(256) as u8).collect();
    for (name, decode) in DECODERS {
        for byte in [0xff, 0x00, 0x82, 0x80, 0x0f, 0xf0, 0x70, 0x20] {
            complete(name, decode, &vec![byte; 64 << 10]);
        }
        complete(name, decode, &noise);
        for (other, stream) in streams(5) {
            println!("{name} reads a stream of {other}");
            complete(name, decode, &stream);
            // Shifted by a nibble.
            let shifted: Vec<u8> = stream.windows(2).map(|pair| pair[0] >> 4 | pair[1] << 4).collect();
            complete(name, decode, &shifted);
        }
    }
}

#[test]
fn stp_finds_the_next_synchronisation_after_an_error() {
    let mut encoder = stp::Encoder::new();
    encoder.sync().data(stp::Width::D8, 1, None);
    // Not a packet, and then an ASYNC that is broken by a 5.
    encoder.value(0xf04, 3).value(0xffff_ffff_ffff, 12).nibble(5);
    encoder.sync().data(stp::Width::D8, 2, None);
    let mut values = Vec::new();
    let mut lost = Vec::new();
    let mut sink = |item: stp::Item| match item {
        stp::Item::Packet(packet) => values.push(packet.name()),
        stp::Item::Lost(what) => lost.push((what.nibble, what.nibbles)),
    };
    let mut decoder = stp::Decoder::new();
    decoder.push(&encoder.finish(), &mut sink);
    decoder.finish(&mut sink);
    let mut expected = vec!["ASYNC", "VERSION", "D8", "ASYNC", "VERSION", "D8"];
    values.retain(|name| *name != "NULL");
    assert_eq!(values, std::mem::take(&mut expected));
    assert_eq!(lost, [(29, 16)]);
}

#[test]
fn messages_take_memory_for_open_channels_only() {
    let mut encoder = stp::Encoder::new();
    encoder.sync();
    for channel in 0..3000 {
        encoder.channel(channel).data(stp::Width::D64, 1, None);
    }
    encoder.channel(7).data(stp::Width::D64, 1, None);
    for _ in 0..20_000 {
        encoder.data(stp::Width::D64, 1, None);
    }
    encoder.flag(None);
    let mut given = 0;
    let mut messages = stp::Messages::new(stp::Framing::FlagEnds, |_: &stp::Message<'_>| given += 1);
    let mut decoder = stp::Decoder::new();
    decoder.push(&encoder.finish(), &mut messages);
    decoder.finish(&mut messages);
    let losses = messages.finish();
    // 1024 are open at most: the oldest ones were given up, and of channel 7 a new one was begun.
    assert_eq!((losses.too_many, losses.too_long, losses.unfinished), (3000 - 1024 + 1, 1, 1023));
    assert_eq!(given, 0);
}

#[test]
fn open_messages_hold_a_bounded_number_of_bytes_together() {
    let mut encoder = stp::Encoder::new();
    encoder.sync();
    for channel in 0..40 {
        encoder.channel(channel);
        for _ in 0..60 << 7 {
            encoder.data(stp::Width::D64, 1, None);
        }
    }
    for channel in 0..40 {
        encoder.channel(channel).flag(None);
    }
    let mut given = 0;
    let mut messages = stp::Messages::new(stp::Framing::FlagEnds, |_: &stp::Message<'_>| given += 1);
    let mut decoder = stp::Decoder::new();
    decoder.push(&encoder.finish(), &mut messages);
    decoder.finish(&mut messages);
    // Of 60 KiB each, 34 fit into 2 MiB.
    assert_eq!((messages.finish().too_long, given), (6, 34));
}
