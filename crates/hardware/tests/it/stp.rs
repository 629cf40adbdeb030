// SPDX-License-Identifier: Apache-2.0 OR MIT
//! STP: what our encoder writes is read as what was meant.

use rtscope_hardware::LostCause;
use rtscope_hardware::stp::{
    Decoder, Encoder, Encoding, Framing, Item, Lost, Message, Messages, Packet, Payload, Width, v1,
};
use rtscope_testkit::random::Random;

/// What a packet was meant to be: name, value, master, channel, time.
pub type Meant = (&'static str, Payload, u16, u16, Option<u64>);

/// Random packets of every kind, and what they mean.
pub fn random_stream(random: &mut Random, encoding: Encoding, packets: usize) -> (Vec<u8>, Vec<Meant>) {
    stream_of(random, encoding, packets, false)
}

/// Random packets; of those that CoreSight STM has, if that is wished.
pub fn stream_of(
    random: &mut Random,
    encoding: Encoding,
    packets: usize,
    is_coresight: bool,
) -> (Vec<u8>, Vec<Meant>) {
    let mut encoder = Encoder::with(encoding);
    let mut writer = Writer { is_coresight, master: 0, channel: 0, now: 0, meant: Vec::new() };
    for index in 0..packets {
        if index % 50 == 0 {
            encoder.sync();
            writer.sync(encoding);
        } else {
            writer.packet(random, &mut encoder);
        }
    }
    if encoder.nibbles() % 2 == 1 {
        writer.meant.push(("NULL", Payload::Null, writer.master, writer.channel, None));
    }
    (encoder.finish(), writer.meant)
}

struct Writer {
    is_coresight: bool,
    master: u16,
    channel: u16,
    now: u64,
    meant: Vec<Meant>,
}

impl Writer {
    fn sync(&mut self, encoding: Encoding) {
        (self.master, self.channel) = (0, 0);
        let version = if encoding == Encoding::Binary { 3 } else { 4 };
        self.mean("ASYNC", Payload::Async, None);
        self.mean("VERSION", Payload::Version(version), None);
    }

    fn mean(&mut self, name: &'static str, payload: Payload, ticks: Option<u64>) {
        self.meant.push((name, payload, self.master, self.channel, ticks));
    }

    /// A time for half of the packets: a little later, much later, or any.
    fn ticks(&mut self, random: &mut Random) -> Option<u64> {
        self.now = match random.below(8) {
            // All bits, some bits, or near the last one.
            0 => random.next() >> random.below(64),
            1 => self.now.wrapping_add(random.below(1 << 40)),
            2 => self.now,
            _ => self.now.wrapping_add(random.below(1000)),
        };
        random.flag().then_some(self.now)
    }

    fn packet(&mut self, random: &mut Random, encoder: &mut Encoder) {
        let byte = random.below(256) as u8;
        let word = random.below(1 << 16) as u16;
        let ticks = self.ticks(random);
        let named = |plain, timed| if ticks.is_some() { timed } else { plain };
        match random.below(14) {
            // CoreSight STM has no M16, USER, XSYNC, NULL_TS and FREQ_TS.
            2 | 6 if self.is_coresight && ticks.is_some() => self.data(random, encoder, ticks),
            5 | 7 if self.is_coresight => self.data(random, encoder, ticks),
            0 => self.master(encoder, word, byte, random.flag() && !self.is_coresight),
            1 => self.channel(encoder, word, byte, random.flag()),
            2 => {
                encoder.null(ticks);
                self.mean(named("NULL", "NULL_TS"), Payload::Null, ticks);
            }
            3 => {
                encoder.flag(ticks);
                self.mean(named("FLAG", "FLAG_TS"), Payload::Flag, ticks);
            }
            4 => {
                encoder.trigger(byte, ticks);
                self.mean(named("TRIG", "TRIG_TS"), Payload::Trigger(byte), ticks);
            }
            5 => {
                encoder.cross_sync(byte, ticks);
                self.mean(named("XSYNC", "XSYNC_TS"), Payload::CrossSync(byte), ticks);
            }
            6 => {
                let hz = random.next() as u32;
                encoder.frequency(hz, ticks);
                self.mean(named("FREQ", "FREQ_TS"), Payload::Frequency(hz), ticks);
            }
            7 => {
                let nibbles = random.index(16) + 1;
                let value = random.next() >> (64 - 4 * nibbles);
                encoder.user(value, nibbles, ticks);
                let payload = Payload::User { value, nibbles: nibbles as u8 };
                self.mean(named("USER", "USER_TS"), payload, ticks);
            }
            8 if random.flag() => {
                encoder.master_error(byte);
                self.channel = 0;
                self.mean("MERR", Payload::MasterError(byte), None);
            }
            8 => {
                encoder.global_error(byte);
                (self.master, self.channel) = (0, 0);
                self.mean("GERR", Payload::GlobalError(byte), None);
            }
            _ => self.data(random, encoder, ticks),
        }
    }

    fn master(&mut self, encoder: &mut Encoder, word: u16, byte: u8, wide: bool) {
        if wide {
            encoder.master(word);
            self.master = word;
        } else {
            encoder.master_low(byte);
            self.master = self.master & 0xff00 | u16::from(byte);
        }
        self.channel = 0;
        let payload = Payload::Master { master: self.master, wide };
        self.mean(if wide { "M16" } else { "M8" }, payload, None);
    }

    fn channel(&mut self, encoder: &mut Encoder, word: u16, byte: u8, wide: bool) {
        if wide {
            encoder.channel(word);
            self.channel = word;
        } else {
            encoder.channel_low(byte);
            self.channel = self.channel & 0xff00 | u16::from(byte);
        }
        let payload = Payload::Channel { channel: self.channel, wide };
        self.mean(if wide { "C16" } else { "C8" }, payload, None);
    }

    fn data(&mut self, random: &mut Random, encoder: &mut Encoder, ticks: Option<u64>) {
        const NAMES: [[&str; 4]; 5] = [
            ["D4", "D4TS", "D4M", "D4MTS"],
            ["D8", "D8TS", "D8M", "D8MTS"],
            ["D16", "D16TS", "D16M", "D16MTS"],
            ["D32", "D32TS", "D32M", "D32MTS"],
            ["D64", "D64TS", "D64M", "D64MTS"],
        ];
        let index = random.index(5);
        let width = Width::ALL[index];
        let value = random.next() >> (64 - 4 * width.nibbles());
        let marked = random.flag();
        if marked {
            encoder.marked(width, value, ticks);
        } else {
            encoder.data(width, value, ticks);
        }
        let name = NAMES[index][usize::from(marked) * 2 + usize::from(ticks.is_some())];
        self.mean(name, Payload::Data { value, width, marked }, ticks);
    }
}

fn packets(stream: &[u8]) -> (Vec<Packet>, Vec<Lost>) {
    let (mut packets, mut lost) = (Vec::new(), Vec::new());
    let mut sink = |item: Item| match item {
        Item::Packet(packet) => packets.push(packet),
        Item::Lost(what) => lost.push(what),
    };
    let mut decoder = Decoder::new();
    decoder.push(stream, &mut sink);
    decoder.finish(&mut sink);
    (packets, lost)
}

#[test]
fn what_is_written_is_read_in_binary_and_gray() {
    for seed in 0..50 {
        for encoding in [Encoding::Binary, Encoding::Gray] {
            let (stream, meant) = random_stream(&mut Random(seed), encoding, 400);
            let (packets, lost) = packets(&stream);
            let read = |packet: &Packet| {
                let ticks = packet.timestamp.map(|time| time.ticks);
                (packet.name(), packet.payload, packet.master, packet.channel, ticks)
            };
            let read: Vec<Meant> = packets.iter().map(read).collect();
            for (read, meant) in read.iter().zip(&meant) {
                assert_eq!(read, meant, "seed {seed}, {encoding:?}");
            }
            assert_eq!((read.len(), lost), (meant.len(), Vec::new()));
        }
    }
}

#[test]
fn each_length_of_a_timestamp_replaces_its_low_nibbles() {
    for nibbles in 0..=16_u32 {
        let mut encoder = Encoder::new();
        let (before, after) = (0x0123_4567_89ab_cdef_u64, 0xfedc_ba98_7654_3210_u64);
        let mask = if nibbles == 16 { u64::MAX } else { (1_u64 << (4 * nibbles)) - 1 };
        encoder.sync().flag(Some(before));
        let expected = before & !mask | after & mask;
        encoder.flag(Some(expected));
        let (packets, _) = packets(&encoder.finish());
        let last = packets.iter().filter_map(|packet| packet.timestamp).next_back().unwrap();
        // 13 and 15 nibbles cannot be written: one more is.
        let written = match nibbles {
            13 => 14,
            15 => 16,
            nibbles => nibbles as u8,
        };
        assert_eq!((last.ticks, last.nibbles), (expected, written));
    }
}

#[test]
fn a_stream_that_begins_within_a_packet_is_read_from_its_first_synchronisation_on() {
    let mut encoder = Encoder::new();
    encoder.value(0x123_4567, 7).sync().data(Width::D16, 0xbeef, None);
    let (packets, lost) = packets(&encoder.finish());
    assert_eq!(lost, [Lost { nibble: 0, nibbles: 7, cause: LostCause::NotSynchronised }]);
    assert_eq!(lost[0].in_bytes().bytes, 4);
    let names: Vec<_> = packets.iter().map(Packet::name).collect();
    assert_eq!(names, ["ASYNC", "VERSION", "D16"]);
}

#[test]
fn versions_and_lengths_that_are_not_public_are_refused_and_counted() {
    for (refused, nibbles) in [(0xf005_u64, 4), (0xf04, 3), (0xf0f, 3), (0xf64_0000_000f, 11), (0xef, 2)] {
        let mut encoder = Encoder::new();
        encoder.sync().value(refused, nibbles).data(Width::D8, 1, None).sync().data(Width::D8, 2, None);
        let (packets, lost) = packets(&encoder.finish());
        let data: Vec<_> =
            packets.iter().filter(|packet| packet.name() == "D8").map(|packet| packet.payload).collect();
        assert_eq!(data, [Payload::Data { value: 2, width: Width::D8, marked: false }], "{refused:x}");
        assert_eq!(
            lost.iter().map(|lost| lost.cause).collect::<Vec<_>>(),
            [LostCause::Malformed],
            "{refused:x}"
        );
        assert_eq!(lost[0].nibbles, nibbles as u64 + 3, "{refused:x}");
    }
}

#[test]
fn ticks_become_nanoseconds_if_the_frequency_is_known() {
    let mut decoder = Decoder::new();
    let mut sink = |_: Item| ();
    decoder.push(&Encoder::new().sync().frequency(19_200_000, None).null(None).clone().finish(), &mut sink);
    assert_eq!(decoder.nanoseconds(19_200_000 * 3 + 24), Some(3_000_001_250));
    decoder.push(&Encoder::new().sync().frequency(0, None).null(None).clone().finish(), &mut sink);
    assert_eq!((decoder.frequency_hz(), decoder.nanoseconds(5)), (None, None));
}

/// Two channels write at the same time.
fn interleaved(framing: Framing) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.sync().master(1);
    for word in 0..3_u64 {
        for channel in [4, 5] {
            encoder.channel(channel);
            let value = u64::from(channel) << 8 | word;
            let ticks = (word == 0).then_some(100 + u64::from(channel));
            let marked = match framing {
                Framing::FlagEnds => false,
                Framing::MarkEnds => word == 2,
                Framing::MarkBegins => word == 0,
            };
            if marked {
                encoder.marked(Width::D16, value, ticks);
            } else {
                encoder.data(Width::D16, value, ticks);
            }
        }
    }
    for channel in [4, 5] {
        encoder.channel(channel);
        match framing {
            Framing::FlagEnds => encoder.flag(None),
            Framing::MarkEnds => &mut encoder,
            Framing::MarkBegins => encoder.marked(Width::D8, 0, None),
        };
    }
    encoder.finish()
}

#[test]
fn messages_of_channels_that_write_at_the_same_time_are_apart() {
    for framing in [Framing::FlagEnds, Framing::MarkEnds, Framing::MarkBegins] {
        let mut read = Vec::new();
        let mut messages = Messages::new(framing, |message: &Message<'_>| {
            let ticks = message.timestamp.map(|time| time.ticks);
            read.push((message.master, message.channel, ticks, message.bytes.to_vec()));
        });
        let mut decoder = Decoder::new();
        decoder.push(&interleaved(framing), &mut messages);
        decoder.finish(&mut messages);
        let unfinished = if framing == Framing::MarkBegins { 2 } else { 0 };
        assert_eq!(messages.finish().unfinished, unfinished, "{framing:?}");
        let expected = [(1, 4, Some(104), vec![0, 4, 1, 4, 2, 4]), (1, 5, Some(105), vec![0, 5, 1, 5, 2, 5])];
        assert_eq!(read, expected, "{framing:?}");
    }
}

#[test]
fn a_message_of_which_a_part_was_lost_is_counted_and_not_given() {
    let mut encoder = Encoder::new();
    encoder.sync().data(Width::D8, 1, None).value(0xf04, 3).sync().data(Width::D8, 2, None).flag(None);
    encoder.data(Width::D8, 3, None).master_error(1).flag(None).data(Width::D8, 4, None);
    let mut read = Vec::new();
    let mut messages =
        Messages::new(Framing::FlagEnds, |message: &Message<'_>| read.push(message.bytes.to_vec()));
    let mut decoder = Decoder::new();
    decoder.push(&encoder.finish(), &mut messages);
    decoder.finish(&mut messages);
    let losses = messages.finish();
    assert_eq!((losses.cut, losses.errors, losses.unfinished), (2, 1, 1));
    assert_eq!(read, [[2]]);
}

/// Random messages of version 1 in blocks, and what they mean.
pub fn random_v1_stream(random: &mut Random, messages: usize) -> (Vec<u8>, Vec<(v1::Payload, Option<u64>)>) {
    let (mut encoder, mut meant) = (v1::Encoder::new(), Vec::new());
    for index in 0..messages {
        if index % 20 == 0 {
            encoder.sync();
        }
        let byte = random.below(256) as u8;
        match random.below(8) {
            0 => {
                encoder.master(byte);
                meant.push((v1::Payload::Master(byte), None));
            }
            1 => {
                encoder.channel(byte);
                meant.push((v1::Payload::Channel(byte), None));
            }
            2 => {
                encoder.overflow(byte);
                meant.push((v1::Payload::Overflow(byte), None));
            }
            _ => {
                let width = [Width::D8, Width::D16, Width::D32][random.index(3)];
                let value = random.next() as u32 >> (32 - 4 * width.nibbles());
                let (time, ticks) = match random.below(3) {
                    0 => (None, None),
                    1 => (Some((None, byte)), Some(u64::from(byte))),
                    // Exponent 3: 128 + low bits, times 8.
                    _ => (Some((Some(3), byte | 0x80)), Some((1 << 10) + (u64::from(byte & 0x7f) << 3))),
                };
                encoder.data(width, value, time);
                meant.push((v1::Payload::Data { value, width }, ticks));
            }
        }
    }
    encoder.sync();
    (encoder.finish(), meant)
}

#[test]
fn version_1_is_read_backwards_between_synchronisations() {
    for seed in 0..50 {
        let (stream, meant) = random_v1_stream(&mut Random(seed), 300);
        let mut read = Vec::new();
        let mut sink = |item: v1::Item| match item {
            v1::Item::Message(message) => read.push((message.payload, message.delta_ticks)),
            v1::Item::Sync { .. } => {}
            v1::Item::Lost(lost) => panic!("seed {seed}: {lost:?}"),
        };
        let mut decoder = v1::Decoder::new();
        decoder.push(&stream, &mut sink);
        decoder.finish(&mut sink);
        assert_eq!(read, meant, "seed {seed}");
    }
}

#[test]
fn a_block_of_version_1_that_begins_within_a_message_gives_what_is_behind_it() {
    let mut encoder = v1::Encoder::new();
    encoder.data(Width::D32, 0x7777_7777, None).channel(9).data(Width::D8, 5, None).sync();
    let stream = encoder.finish();
    let (mut read, mut lost) = (Vec::new(), 0);
    let mut sink = |item: v1::Item| match item {
        v1::Item::Message(message) => read.push(message.payload),
        v1::Item::Sync { .. } => {}
        v1::Item::Lost(what) => lost += what.nibbles,
    };
    let mut decoder = v1::Decoder::new();
    // The first two nibbles of the first datum are missing.
    decoder.push(&stream[1..], &mut sink);
    decoder.finish(&mut sink);
    assert_eq!(read, [v1::Payload::Channel(9), v1::Payload::Data { value: 5, width: Width::D8 }]);
    assert_eq!(lost, 7);
}
