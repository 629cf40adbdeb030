// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ITM: what our encoder writes is read as what was meant.

use rtscope_hardware::itm::{Action, Clock, Decoder, Delay, Encoder, Item, Packet, Payload};
use rtscope_hardware::{Lost, LostCause};
use rtscope_testkit::random::Random;

/// Random packets of every kind, and what they mean.
pub fn random_stream(random: &mut Random, packets: usize) -> (Vec<u8>, Vec<Payload>) {
    let (mut encoder, mut meant, mut page) = (Encoder::new(), Vec::new(), 0);
    for index in 0..packets {
        if index % 40 == 0 {
            encoder.sync();
            meant.push(Payload::Sync);
            page = 0;
        }
        let size = [1, 2, 4][random.index(3)];
        let value = random.next() as u32 >> (32 - 8 * u32::from(size));
        let comparator = random.below(4) as u8;
        meant.push(match random.below(14) {
            0 => {
                encoder.overflow();
                Payload::Overflow
            }
            1 => {
                page = random.below(8) as u8;
                encoder.page(page);
                Payload::Page(page)
            }
            2 => local(random, &mut encoder),
            3 => global(random, &mut encoder),
            4 => {
                let bits = random.below(64) as u8;
                encoder.hardware(0, 1, u32::from(bits));
                Payload::Counters(bits)
            }
            5 => {
                let number = random.below(512) as u16;
                let action = [Action::Entered, Action::Exited, Action::Returned][random.index(3)];
                encoder.exception(number, action);
                Payload::Exception { number, action }
            }
            6 => {
                let pc = random.flag().then_some(random.next() as u32);
                encoder.pc_sample(pc);
                Payload::PcSample(pc)
            }
            7 => {
                let pc = random.next() as u32;
                encoder.hardware(8 + comparator * 2, 4, pc);
                Payload::DataPc { comparator, pc }
            }
            8 => {
                let address = random.next() as u16;
                encoder.hardware(9 + comparator * 2, 2, u32::from(address));
                Payload::DataAddress { comparator, address }
            }
            9 => {
                let written = random.flag();
                encoder.hardware(16 + comparator * 2 + u8::from(written), size, value);
                Payload::DataValue { comparator, written, size, value }
            }
            10 => {
                encoder.hardware(30, size, value);
                Payload::Hardware { id: 30, size, value }
            }
            _ => {
                let port = random.below(32) as u8;
                encoder.stimulus(port, size, value);
                Payload::Stimulus { port: page << 5 | port, size, value }
            }
        });
    }
    (encoder.finish(), meant)
}

fn local(random: &mut Random, encoder: &mut Encoder) -> Payload {
    let delay = [Delay::None, Delay::Timestamp, Delay::Event, Delay::Both][random.index(4)];
    let delta_ticks = (random.next() as u32 & 0xfff_ffff) >> random.below(28);
    encoder.local(delta_ticks, delay);
    let short = delay == Delay::None && (1..=6).contains(&delta_ticks);
    Payload::LocalTimestamp { delta_ticks, delay, short }
}

fn global(random: &mut Random, encoder: &mut Encoder) -> Payload {
    if random.flag() {
        let wide = random.flag();
        let value = random.next() >> if wide { 26 } else { 42 };
        encoder.global_high(value, wide);
        return Payload::GlobalHigh { value, wide };
    }
    let value = (random.next() as u32 & 0x3ff_ffff) >> random.below(26);
    let (wrapped, clock_changed) = (random.below(4) == 0, random.below(4) == 0);
    encoder.global_low(value, wrapped, clock_changed);
    let groups = if wrapped || clock_changed { 4 } else { (32 - value.leading_zeros()).div_ceil(7).max(1) };
    Payload::GlobalLow { value, bits: (groups * 7).min(26) as u8, wrapped, clock_changed }
}

fn read(stream: &[u8]) -> (Vec<Packet>, Vec<Lost>) {
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
fn what_is_written_is_read() {
    for seed in 0..50 {
        let (stream, meant) = random_stream(&mut Random(seed), 400);
        let (packets, lost) = read(&stream);
        for (packet, meant) in packets.iter().zip(&meant) {
            assert_eq!(packet.payload, *meant, "seed {seed}");
            assert!(packet.certain);
        }
        assert_eq!((packets.len(), lost), (meant.len(), Vec::new()));
    }
}

#[test]
fn before_a_synchronisation_and_after_an_error_packets_are_not_certain() {
    let mut encoder = Encoder::new();
    encoder
        .stimulus(1, 1, 7)
        .sync()
        .stimulus(1, 1, 8)
        .raw(&[0x04])
        .stimulus(1, 1, 9)
        .sync()
        .stimulus(1, 1, 10);
    let (packets, lost) = read(&encoder.finish());
    let certain: Vec<_> = packets.iter().filter(|packet| packet.payload != Payload::Sync).collect();
    let certain: Vec<_> = certain.iter().map(|packet| packet.certain).collect();
    assert_eq!(certain, [false, true, false, true]);
    assert_eq!(lost, [Lost { offset: 10, bytes: 1, cause: LostCause::Malformed }]);
}

#[test]
fn zeros_are_a_synchronisation_only_with_what_ends_it() {
    let (packets, lost) = read(&[0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0x70]);
    let payloads: Vec<_> = packets.iter().map(|packet| (packet.bytes, packet.payload)).collect();
    assert_eq!(payloads, [(8, Payload::Sync), (1, Payload::Overflow)]);
    let spans: Vec<_> = lost.iter().map(|lost| (lost.offset, lost.bytes)).collect();
    assert_eq!(spans, [(8, 3), (11, 1), (12, 5)]);
}

#[test]
fn times_are_sums_of_local_timestamps_until_something_is_missing() {
    let mut encoder = Encoder::new();
    encoder.sync().stimulus(0, 1, 1).local(100, Delay::None).stimulus(0, 1, 2).local(50, Delay::Both);
    encoder.overflow().local(7, Delay::None);
    let (packets, _) = read(&encoder.finish());
    let mut clock = Clock::new();
    let times: Vec<_> = packets.iter().filter_map(|packet| clock.packet(packet)).collect();
    let times: Vec<_> = times.iter().map(|time| (time.local_ticks, time.delay, time.complete)).collect();
    assert_eq!(times, [(100, Delay::None, true), (150, Delay::Both, true), (157, Delay::None, false)]);
}

#[test]
fn the_global_time_is_known_when_both_parts_are() {
    let mut encoder = Encoder::new();
    encoder.sync().global_low(0x3ff_fff0, false, false).global_high(0x12345, false);
    encoder.global_low(0x7a, false, false).global_low(0x3, true, false).global_high(0x12346, false);
    let (packets, _) = read(&encoder.finish());
    let mut clock = Clock::new();
    let mut times = Vec::new();
    for packet in &packets {
        clock.packet(packet);
        times.push(clock.global_ticks());
    }
    let high = 0x12345_u64 << 26;
    let expected =
        [None, None, Some(high | 0x3ff_fff0), Some(high | 0x3ff_fffa), None, Some((0x12346 << 26) | 3)];
    assert_eq!(times, expected);
}
