// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Intel PT.

mod emulated;
mod flow;
mod generated;
mod hostile;
mod oracle;
mod packets;
mod time;

use rtscope_hardware::Lost;
use rtscope_hardware::pt::{Decoder, Packet, Place, Sink};

/// Keeps all that a decoder says, and sees that nothing is passed over.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub packets: Vec<(Place, Packet)>,
    pub lost: Vec<Lost>,
    next: u64,
}

impl Kept {
    fn advance(&mut self, offset: u64, bytes: u64) {
        assert_eq!(offset, self.next, "what follows begins where the last ended");
        assert!(bytes > 0);
        self.next += bytes;
    }
}

impl Sink for Kept {
    fn packet(&mut self, place: Place, packet: Packet) {
        self.advance(place.offset, place.bytes.into());
        self.packets.push((place, packet));
    }

    fn lost(&mut self, lost: Lost) {
        self.advance(lost.offset, lost.bytes);
        self.lost.push(lost);
    }
}

/// Decodes a stream in pieces of these sizes, in turn.
pub fn decoded(stream: &[u8], sizes: &[usize]) -> Kept {
    let (mut kept, mut decoder, mut rest) = (Kept::default(), Decoder::new(), stream);
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
        decoder.push(piece, &mut kept);
        rest = after;
    }
    decoder.finish(&mut kept);
    assert_eq!(kept.next, stream.len() as u64, "each byte is in a packet or lost");
    kept
}
