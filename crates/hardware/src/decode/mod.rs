// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures of any form → streams with their decoders → packets, flow, and events.
//!
//! ```text
//! raw file, perf.data, snapshot directory ─ open ─► Capture: streams (bytes at places, the unit and its settings)
//!     Stream ─ StreamLane ─► Findings: what is printed, counted, or put into one trace
//!                └ unit: one file for each, which speaks the unit's words
//! ```

mod bts;
mod captured;
mod clock;
mod etm;
mod follow;
mod itm;
mod lane;
mod open;
mod operands;
mod perf;
mod pt;
mod pt_flow;
mod samples;
mod snapshot;
mod spe;
mod stp;
mod summary;

pub use clock::Conversion;
pub use lane::StreamLane;
pub use open::{Capture, DecodeError, Settings, SourceUnit, Stream, StreamKind, Unit, open, read_catalogs};
pub use operands::OperandSink;
pub use pt::PtSettings;
pub use samples::SampleLane;
pub use summary::{KindCount, LostBytes, StreamSummary};

use crate::Lost;
use crate::trace::HardwareEvent;
use std::fmt;

/// A packet, as all units have them.
#[derive(Clone, Copy)]
pub struct SeenPacket<'p> {
    /// Of its first byte, from the beginning of its stream.
    pub offset: u64,
    /// Nanoseconds, or ticks of the unit's clock where nothing says how long they are; `None`: not known.
    pub time: Option<u64>,
    /// All that it says.
    pub text: &'p dyn fmt::Display,
}

/// Takes what a decoder finds.
pub trait Findings {
    /// A packet.
    fn packet(&mut self, packet: &SeenPacket<'_>);
    /// Something of the flow of instructions.
    fn flow(&mut self, time: Option<u64>, text: &dyn fmt::Display);
    /// An event.
    fn event(&mut self, event: HardwareEvent);
    /// Bytes that are in no packet.
    fn lost(&mut self, lost: Lost);
}

/// A decoder of a unit.
pub(crate) trait UnitDecoder {
    /// Takes the next bytes.
    fn push(&mut self, bytes: &[u8], found: &mut dyn Findings);
    /// What comes next does not continue what came before.
    fn interrupt(&mut self, found: &mut dyn Findings);
    /// The stream ends.
    fn finish(&mut self, found: &mut dyn Findings);
}

/// The first word of what something says of itself: formatting ends behind it.
pub(crate) fn first_word(text: &dyn fmt::Display) -> String {
    struct Word(String);
    impl fmt::Write for Word {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for c in text.chars() {
                if !c.is_ascii_alphanumeric() && !matches!(c, '_' | '.' | '-') {
                    return Err(fmt::Error);
                }
                self.0.push(c);
            }
            Ok(())
        }
    }
    let mut word = Word(String::new());
    // The error is how it ends early.
    let _ = fmt::write(&mut word, format_args!("{text}"));
    word.0
}
