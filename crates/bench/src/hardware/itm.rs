// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ITM and DWT: a mix of packets, and the stream of a Cortex-M.

use super::{Case, capture, repeated};
use rtscope_hardware::Lost;
use rtscope_hardware::itm::{Action, Decoder, Delay, Encoder, Packet, Payload, Sink};

/// The same as for STP.
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
        let said = match packet.payload {
            Payload::Stimulus { value, .. } | Payload::DataValue { value, .. } => value,
            Payload::PcSample(Some(pc)) => pc,
            Payload::LocalTimestamp { delta_ticks, .. } => delta_ticks,
            _ => 0,
        };
        self.sum = self.sum.wrapping_add(u64::from(said));
    }

    fn lost(&mut self, lost: &Lost) {
        self.sum = self.sum.wrapping_add(lost.bytes);
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

/// Samples, exceptions and what programs write, with local times.
fn mix(at_least: usize) -> (Vec<u8>, u64) {
    let (mut bytes, mut packets, mut turn) = (Vec::new(), 0, 0_u32);
    while bytes.len() < at_least {
        let mut encoder = Encoder::new();
        encoder.sync();
        packets += 1;
        for _ in 0..64 {
            encoder.pc_sample(Some(0x0800_0200 + turn)).local(40 + turn % 300, Delay::None);
            encoder.stimulus(1, 4, turn).stimulus(2, 1, turn & 0xff).local(3, Delay::None);
            encoder.exception(44, Action::Entered).hardware(17, 4, turn).exception(0, Action::Returned);
            packets += 8;
            turn += 1;
        }
        bytes.extend(encoder.finish());
    }
    (bytes, packets)
}

pub(super) fn cases(at_least: usize) -> Vec<Case> {
    let (bytes, packets) = mix(at_least);
    let what = "ITM: a mix of our encoder".to_string();
    let mut cases = vec![Case { what, bytes, packets: Some(packets), decode, limit: LIMIT }];
    let path = "itm/itm_only.bin";
    if let Some(bytes) = capture(path) {
        let bytes = repeated(&bytes, at_least);
        cases.push(Case { what: format!("ITM: {path}"), bytes, packets: None, decode, limit: LIMIT });
    }
    cases
}
