// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packets of an ETMv3 stream.

use super::Config;
use super::parse::{Etm3, Packet};
use crate::etm::Sink;
use crate::etm::address32::Last;
use crate::etm::stream::{Counts, Stream};

/// Takes an ETMv3 stream apart, as bytes come.
#[derive(Clone, Debug)]
pub struct Packets(Stream<Etm3>);

impl Packets {
    /// A decoder at the beginning of a stream.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self(Stream::new(Etm3 { config: *config, last: Last::default(), timestamp: 0 }))
    }

    /// Where the bytes went so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        self.0.counts()
    }

    /// The next bytes of the stream; the offset is that of their first one, as the caller counts.
    pub fn push(&mut self, offset: u64, bytes: &[u8], sink: &mut impl Sink<Packet>) {
        self.0.push(offset, bytes, sink);
    }

    /// What comes next does not continue what came before.
    pub fn reset(&mut self, sink: &mut impl Sink<Packet>) {
        self.0.reset(sink);
    }

    /// Ends the stream.
    pub fn finish(&mut self, sink: &mut impl Sink<Packet>) {
        self.0.finish(sink);
    }
}
