// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams of trace units, in pieces whose sizes the first bytes say: every nibble is in a packet or lost, once and in order.

use rtscope_hardware::{itm, spe, stp, syst};
use rtscope_testkit::random::Random;

/// Follows where items are.
#[derive(Default)]
struct Spans {
    end: u64,
}

impl Spans {
    fn item(&mut self, begin: u64, length: u64) {
        assert_eq!(begin, self.end, "an item begins where the one before ended");
        assert!(length > 0, "an item is empty");
        self.end = begin + length;
    }

    fn complete(&self, length: u64) {
        assert_eq!(self.end, length, "nothing is passed over in silence");
    }
}

/// The sizes of the pieces follow from the first byte; the rest is the stream.
fn pieces(data: &[u8]) -> Option<(impl Iterator<Item = &[u8]>, &[u8])> {
    let (seed, stream) = data.split_first()?;
    let mut random = Random(u64::from(*seed));
    let mut rest = stream;
    let next = move || {
        let length = (random.below(90) as usize + 1).min(rest.len());
        let (piece, later) = rest.split_at(length);
        rest = later;
        (!piece.is_empty()).then_some(piece)
    };
    Some((std::iter::from_fn(next), stream))
}

pub fn stp(data: &[u8]) -> Option<()> {
    let (pieces, stream) = pieces(data)?;
    let mut spans = Spans::default();
    let mut sink = |item: stp::Item| match item {
        stp::Item::Packet(packet) => spans.item(packet.nibble, u64::from(packet.nibbles)),
        stp::Item::Lost(lost) => spans.item(lost.nibble, lost.nibbles),
    };
    let mut decoder = stp::Decoder::new();
    pieces.for_each(|piece| decoder.push(piece, &mut sink));
    decoder.finish(&mut sink);
    spans.complete(stream.len() as u64 * 2);
    let mut bytes = 0;
    let mut messages =
        stp::Messages::new(stp::Framing::FlagEnds, |message: &stp::Message<'_>| bytes += message.bytes.len());
    let mut decoder = stp::Decoder::synchronised();
    decoder.push(stream, &mut messages);
    decoder.finish(&mut messages);
    messages.finish();
    assert!(bytes <= stream.len() * 2, "{bytes} bytes of messages in {}", stream.len());
    Some(())
}

pub fn stp_1(data: &[u8]) -> Option<()> {
    let (pieces, stream) = pieces(data)?;
    let mut spans = Spans::default();
    let mut sink = |item: stp::v1::Item| match item {
        stp::v1::Item::Message(message) => spans.item(message.nibble, u64::from(message.nibbles)),
        stp::v1::Item::Sync { nibble, nibbles } => spans.item(nibble, nibbles),
        stp::v1::Item::Lost(lost) => spans.item(lost.nibble, lost.nibbles),
    };
    let mut decoder = stp::v1::Decoder::new();
    pieces.for_each(|piece| decoder.push(piece, &mut sink));
    decoder.finish(&mut sink);
    spans.complete(stream.len() as u64 * 2);
    Some(())
}

pub fn itm(data: &[u8]) -> Option<()> {
    let (pieces, stream) = pieces(data)?;
    let (mut spans, mut clock) = (Spans::default(), itm::Clock::new());
    let mut sink = |item: itm::Item| match item {
        itm::Item::Packet(packet) => {
            clock.packet(&packet);
            let _ = clock.global_ticks();
            spans.item(packet.offset, packet.bytes);
        }
        itm::Item::Lost(lost) => {
            clock.lost();
            spans.item(lost.offset, lost.bytes);
        }
    };
    let mut decoder = itm::Decoder::new();
    pieces.for_each(|piece| decoder.push(piece, &mut sink));
    decoder.finish(&mut sink);
    spans.complete(stream.len() as u64);
    Some(())
}

pub fn spe(data: &[u8]) -> Option<()> {
    let (pieces, stream) = pieces(data)?;
    let mut spans = Spans::default();
    let mut sink = |item: spe::Item| match item {
        spe::Item::Packet(packet) => {
            let _ = packet.payload.to_string();
            spans.item(packet.offset, packet.bytes);
        }
        spe::Item::Lost(lost) => spans.item(lost.offset, lost.bytes),
    };
    let mut decoder = spe::Decoder::new();
    pieces.for_each(|piece| decoder.push(piece, &mut sink));
    decoder.finish(&mut sink);
    spans.complete(stream.len() as u64);
    let mut records = spe::Records::new(|_: &spe::Record| ());
    let mut decoder = spe::Decoder::new();
    decoder.push(stream, &mut records);
    decoder.finish(&mut records);
    records.finish();
    Some(())
}

/// A catalogue, a NUL, and a message.
pub fn syst(data: &[u8]) -> Option<()> {
    let end = data.iter().position(|byte| *byte == 0)?;
    let mut collateral = syst::Collateral::default();
    let _ = std::str::from_utf8(&data[..end]).ok().map(|xml| collateral.add(xml));
    let message = syst::Message::parse(&data[end + 1..]).ok()?;
    let text = collateral.text(&message);
    // A conversion of the widest field may begin just below the limit; a lost character takes three bytes.
    assert!(
        text.text.len() <= syst::TEXT_BYTES_MAX + 3 * data.len() + 4096,
        "{} bytes of text",
        text.text.len()
    );
    Some(())
}

/// Inputs to begin with.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let of = |stream: Vec<u8>| vec![[&[3_u8][..], &stream].concat()];
    match target {
        "stp" => {
            of(stp_seed(stp::Encoding::Binary)).into_iter().chain(of(stp_seed(stp::Encoding::Gray))).collect()
        }
        "stp-1" => {
            let mut encoder = stp::v1::Encoder::new();
            encoder.sync().master(1).channel(2).data(stp::Width::D32, 3, Some((Some(4), 5)));
            encoder.overflow(6).data(stp::Width::D8, 7, Some((None, 8))).sync();
            of(encoder.finish())
        }
        "itm" => {
            let mut encoder = itm::Encoder::new();
            encoder.sync().page(1).stimulus(2, 4, 3).local(4, itm::Delay::None).local(500, itm::Delay::Both);
            encoder.overflow().exception(16, itm::Action::Entered).pc_sample(None).pc_sample(Some(5));
            encoder.global_low(0x3ff_ffff, true, false).global_high(6, true).hardware(9, 2, 7);
            of(encoder.finish())
        }
        "spe" => {
            let mut encoder = spe::Encoder::new();
            encoder.address(spe::AddressKind::Instruction, 1).operation(1, 2).events(3, 2).align(3);
            encoder.counter(spe::CounterKind::Other(9), 4).context(1, 5).data_source(6, 1).timestamp(7).end();
            of(encoder.finish())
        }
        "sys-t" => vec![syst_seed(12, b"%5.1f %-4d|%s|%#x\0"), syst_seed(1, b"text\0"), catalog_seed()],
        _ => Vec::new(),
    }
}

fn stp_seed(encoding: stp::Encoding) -> Vec<u8> {
    let mut encoder = stp::Encoder::with(encoding);
    encoder.sync().master(1).channel(2).frequency(3, None).data(stp::Width::D64, 4, Some(5));
    encoder.marked(stp::Width::D8, 6, Some(7)).flag(Some(8)).user(9, 3, Some(10)).trigger(11, None);
    encoder.cross_sync(12, Some(13)).master_error(14).global_error(15).master_low(16).channel_low(17);
    encoder.data(stp::Width::D4, 1, None).null(Some(u64::MAX)).flag(None);
    encoder.finish()
}

fn syst_seed(subtype: u8, payload: &[u8]) -> Vec<u8> {
    let location = Some(syst::Location::Line { file: 1, line: 2 });
    let origin = syst::Origin::Module(3);
    let encoder =
        syst::Encoder { origin, unit: 1, location, ticks: Some(5), has_length: true, has_checksum: true };
    let payload = [payload, &[0, 0, 0, 0, 0, 0, 4, 64, 7, 0, 0, 0, b'x', 0, 9, 0, 0, 0]].concat();
    [&[0_u8][..], &encoder.message(2, subtype, syst::Severity::Info, &payload)].concat()
}

fn catalog_seed() -> Vec<u8> {
    let xml = b"<a><Client Name=\"c\"><Catalog32><Format ID=\"0x7\" File=\"1\" Line=\"2\">%d</Format></Catalog32></Client></a>";
    let origin = syst::Origin::Module(0);
    let encoder = syst::Encoder {
        origin,
        unit: 0,
        location: None,
        ticks: None,
        has_length: false,
        has_checksum: false,
    };
    [&xml[..], &[0], &encoder.message(3, 5, syst::Severity::Info, &[7, 0, 0, 0, 9, 0, 0, 0])].concat()
}
