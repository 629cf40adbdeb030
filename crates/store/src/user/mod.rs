// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recording of instrumented programs, which is a trace while it is made ([ADR 0014](../../../../docs/adr/0014-programs-events-are-converted-while-they-are-recorded.md)).
//!
//! Records of rings (`ring`) are merged (`merge`) into the streams of the trace (`streams`), with the classes that programs have described
//! (`classes`), as far as they are wanted (`filter`). `recorder` does that for a recording and `snapshot` for what flight recorders' rings held. Beside the trace is a file that
//! is locked meanwhile, and has what the trace has not (`session_file`): with it the trace is completed (`finish`), after its end (`end`) or
//! after a kill.

mod classes;
mod end;
mod filter;
mod finish;
mod merge;
mod recorder;
mod ring;
mod room;
mod session_file;
mod snapshot;
mod streams;

pub use end::UserEnd;
pub use filter::{ChooseThreads, UserFilter};
pub use finish::{UserRecording, UserSummary};
pub use recorder::UserRecorder;
pub(crate) use session_file::FIRST;
pub use session_file::UserSession;
pub use snapshot::write_snapshot;
