// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording of instrumented programs: converted while it is made; the part that cannot be is spooled and converted afterwards.
//!
//! Events of the first rings become streams of the trace at once (`live`, [ADR 0014](../../../../docs/adr/0014-programs-events-are-converted-while-they-are-recorded.md)).
//! Those of more threads have to be merged, which takes all of them: their records are written as they are (`spool`), and decoded
//! when the recording is over (`convert`). The spool also has the descriptions of both, in the order in which they came, so a killed
//! recorder leaves everything that it had taken.

mod classes;
mod convert;
mod end;
mod live;
mod spool;

pub use convert::{UserConversionSummary, UserOptions, convert_user};
pub use end::UserEnd;
pub(crate) use spool::SPOOL as FIRST;
pub use spool::{UserSpool, UserSpoolDescription, UserSpoolWriter};
