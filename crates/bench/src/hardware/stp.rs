// SPDX-License-Identifier: Apache-2.0 OR MIT
//! STP: a mix of packets, and the stream of a CoreSight STM.

use super::{Case, capture, repeated};
use rtscope_hardware::stp::{Decoder, Encoder, Lost, Packet, Payload, Sink, Width};

/// OpenCSD's packet lister needs 60 to 110 ns for each byte.
const LIMIT: f64 = 5.0;

/// Counts, and looks at what packets say.
#[derive(Default)]
struct Count {
    packets: u64,
    sum: u64,
}

impl Sink for Count {
    fn packet(&mut self, packet: &Packet) {
        self.packets += 1;
        if let Payload::Data { value, .. } = packet.payload {
            self.sum = self.sum.wrapping_add(value);
        }
        self.sum = self.sum.wrapping_add(packet.timestamp.map_or(0, |time| time.ticks));
    }

    fn lost(&mut self, lost: &Lost) {
        self.sum = self.sum.wrapping_add(lost.nibbles);
    }
}

fn decode(bytes: &[u8]) -> (u64, u64) {
    let (mut decoder, mut count) = (Decoder::new(), Count::default());
    for piece in bytes.chunks(64 << 10) {
        decoder.push(piece, &mut count);
    }
    decoder.finish(&mut count);
    (count.packets, count.sum)
}

/// What the software of a system writes: messages of some words on changing channels.
fn messages(at_least: usize) -> (Vec<u8>, u64) {
    let (mut encoder, mut packets, mut now) = (Encoder::new(), 0, 0_u64);
    let mut message = 0_u64;
    while encoder.nibbles() / 2 < at_least {
        if message % 256 == 0 {
            encoder.sync().master(64);
            packets += 3;
        }
        now += 977 + message % 31;
        encoder.channel_low(message as u8 % 7).data(Width::D32, message, Some(now));
        encoder.data(Width::D64, message.wrapping_mul(0x9e37_79b9_7f4a_7c15), None);
        encoder.data(Width::D64, now, None).data(Width::D8, message, None).flag(None);
        packets += 6;
        message += 1;
    }
    // Half a byte is filled up.
    packets += (encoder.nibbles() % 2) as u64;
    (encoder.finish(), packets)
}

pub(super) fn cases(at_least: usize) -> Vec<Case> {
    let (bytes, packets) = messages(at_least);
    let what = "STP: messages of our encoder".to_string();
    let mut cases = vec![Case { what, bytes, packets: Some(packets), decode, limit: LIMIT }];
    for path in ["stp/synthetic-binary-ts/stp.bin"] {
        if let Some(bytes) = capture(path) {
            let bytes = repeated(&bytes, at_least);
            cases.push(Case { what: format!("STP: {path}"), bytes, packets: None, decode, limit: LIMIT });
        }
    }
    cases
}
