// SPDX-License-Identifier: Apache-2.0 OR MIT
//! perf.data, as files and as what `perf record -o -` sends through a pipe: records, AUX data, and what describes it.
//!
//! There is a crate for this format. It is not used, because a size in a damaged file makes it ask for that much memory, because it
//! holds the AUX data of a whole round at once, and because it passes over branch stacks. Here nothing is read before it is
//! asked for: AUX data is a place in the file ([`AuxSegment`]), which a decoder reads in pieces. What records itself asks the
//! kernel with an [`EventRequest`] and writes with a [`PerfWriter`].
//!
//! ```text
//! PerfFile ─ attributes, then one Record after the other (record, sample)
//!         ├ AuxtraceInfo  (auxtrace): which unit, its clock, its settings for each CPU
//!         ├ AuxSegment    (auxtrace): where AUX data is ─► decoder of the unit; BtsDecoder (bts) is here
//!         └ Sample ─ Branch (branch): LBR and other branch stacks
//! ```

mod attribute;
mod auxtrace;
mod branch;
mod bts;
mod bytes;
pub mod encode;
mod file;
mod record;
mod request;
mod sample;
mod write;

pub use attribute::EventAttribute;
pub use auxtrace::{AuxKind, AuxSegment, AuxtraceInfo, EtmCpu, EtmInfo, PtInfo};
pub use branch::Branch;
pub use bts::{BtsDecoder, BtsElement, BtsRecord};
pub use bytes::{ReadAt, Spooled};
pub use file::{Feature, PerfFile};
pub use record::{AuxFlags, Record, RecordBody, SampleId};
pub use request::{ATTRIBUTE_BYTES, EventRequest};
pub use sample::Sample;
pub use write::{AuxPlace, PerfWriter, WrittenEvent};

use std::io;

/// Why a perf.data cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// The system did not give the bytes.
    #[error("reading it: {0}")]
    Io(#[from] io::Error),
    /// Another format.
    #[error("it is not a perf.data file")]
    NotPerf,
    /// Made by a machine with the other order of bytes.
    #[error("it was made by a big-endian machine; only those of little-endian machines are read")]
    BigEndian,
    /// `perf record -z`.
    #[error("its records are compressed (perf record -z); perf inject -i IN -o OUT writes them without")]
    Compressed,
    /// It ends too early.
    #[error("it ends at byte {at}, before or within a record that it should have")]
    Truncated {
        /// Where the record begins, or should.
        at: u64,
    },
    /// A number that cannot be.
    #[error("at byte {at}: {what}")]
    Malformed {
        /// Where.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
}
