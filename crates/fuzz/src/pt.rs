// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams of Intel PT, and programs that nobody wrote.

use rtscope_hardware::Lost;
use rtscope_hardware::pt::{
    Block, ClockConfig, Decoder, Event, Flow, FlowDecoder, FlowSink, Packet, Place, Sink, SpaceId, Stamp,
    encode,
};

const CODE: u64 = 0x1000;

/// Sees that each byte is in a packet or lost.
#[derive(Default)]
struct Accounted {
    next: u64,
    packets: usize,
}

impl Sink for Accounted {
    fn packet(&mut self, place: Place, packet: Packet) {
        assert_eq!(place.offset, self.next, "{packet}");
        self.next += u64::from(place.bytes);
        self.packets += 1;
    }

    fn lost(&mut self, lost: Lost) {
        assert_eq!(lost.offset, self.next, "{lost:?}");
        self.next += lost.bytes;
    }
}

pub fn packets(data: &[u8]) -> Option<()> {
    let (mut decoder, mut accounted) = (Decoder::synchronised(), Accounted::default());
    for piece in data.chunks(7) {
        decoder.push(piece, &mut accounted);
    }
    decoder.finish(&mut accounted);
    assert_eq!(accounted.next, data.len() as u64);
    (accounted.packets > 0).then_some(())
}

/// Sees that blocks are in the program, and that times do not decrease.
struct Followed {
    code: u64,
    ticks: u64,
    blocks: u64,
}

impl Followed {
    fn time(&mut self, stamp: &Stamp) {
        let ticks = stamp.time.map_or(0, |time| time.ticks);
        assert!(ticks >= self.ticks, "time goes back at {stamp:?}");
        self.ticks = ticks;
    }
}

impl FlowSink for Followed {
    fn block(&mut self, block: &Block, stamp: &Stamp) {
        let from = block.address - CODE;
        assert!(from + u64::from(block.bytes) <= self.code, "{block:x?}");
        self.time(stamp);
        self.blocks += 1;
    }

    fn event(&mut self, _: Event, stamp: &Stamp) {
        self.time(stamp);
    }
}

/// The first byte says how much of the rest is the program, in 256ths; the stream is behind it.
pub fn flow(data: &[u8]) -> Option<()> {
    let (&part, rest) = data.split_first()?;
    let (code, stream) = rest.split_at(rest.len() * usize::from(part) / 256);
    let clock =
        ClockConfig { mtc_frequency: part % 16, tsc_per_crystal: Some((308, 2)), nominal_ratio: Some(37) };
    let mut flow = Flow::new(clock);
    flow.change(SpaceId::FIRST, |memory| memory.add(CODE, code.into()));
    let (mut decoder, mut followed) =
        (FlowDecoder::new(flow), Followed { code: code.len() as u64, ticks: 0, blocks: 0 });
    decoder.push(stream, &mut followed);
    decoder.finish(&mut followed);
    (followed.blocks > 0).then_some(())
}

/// A program of some branches, and a stream that follows it.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let ip = |address| encode::shortest_ip(address, 0);
    let tnt = rtscope_hardware::pt::Tnt { bits: 0b101, count: 3 };
    let mut stream = Vec::new();
    for packet in [
        Packet::Psb,
        Packet::Tsc { ticks: 1 << 40 },
        Packet::Tma { ctc: 8, fast_counter: 3 },
        Packet::Cbr { ratio: 12 },
        Packet::PsbEnd,
        Packet::TipPge(ip(CODE)),
        Packet::Cyc { cycles: 77 },
        Packet::Mtc { ctc: 2 },
        Packet::Tnt8(tnt),
        Packet::Tip(ip(CODE)),
        Packet::Ptw { payload: 9, wide: true, ip: true },
        Packet::Fup(ip(CODE)),
        Packet::Ovf,
        Packet::Fup(ip(CODE)),
        Packet::Tnt64(tnt),
    ] {
        encode::packet(packet, &mut stream);
    }
    match target {
        "pt" => vec![stream],
        "pt-flow" => {
            // JE -2; CALL +1; RET; JMP RAX.
            let code = [0x74, 0xfe, 0xe8, 1, 0, 0, 0, 0xc3, 0xff, 0xe0];
            let part = (code.len() * 256).div_ceil(code.len() + stream.len()) as u8;
            vec![[&[part][..], &code, &stream].concat()]
        }
        _ => Vec::new(),
    }
}
