// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading CTF 1.8: rtscope's own, LTTng's, perf's, and in general.
//!
//! ```text
//! metadata ─ lexer ─ parser, blocks ─ resolve ─► class ─ compile ─► plan ─┐   (once per trace)
//! files ─ index ─► segments ──────────────────────────────────────────────┼─ cursor + run ─► events
//! ```
//!
//! The layout comes from the metadata, so that all traces take the same path. Nothing is trusted: sizes are checked
//! before they are used, and memory is bounded by the windows, not by the trace. [`TraceSet`] has the streams;
//! `count` and `slices` read them on all CPUs; `recording` makes a recording for rtscope's analyses from them.

pub(crate) mod blocks;
mod check;
pub(crate) mod class;
pub(crate) mod compile;
mod condition;
mod count;
pub(crate) mod cursor;
pub(crate) mod files;
mod follow;
mod gather;
pub(crate) mod header;
pub(crate) mod index;
pub(crate) mod judge;
mod kernel;
pub(crate) mod lane;
pub(crate) mod lexer;
pub(crate) mod packet;
pub(crate) mod parallel;
mod parser;
pub(crate) mod plan;
mod print;
mod queue;
mod recording;
mod refine;
mod resolve;
pub(crate) mod run;
pub(crate) mod select;
pub(crate) mod set;
mod slices;
mod source;
mod tasks;
mod values;

pub use class::{Base, ClockClass, EnvValue};
pub use condition::{Comparison, Condition, ConditionValue, Test};
pub use count::{Counts, StreamCount, count};
pub use cursor::Damage;
pub use follow::{FollowSource, Followed, Follower, Host, NamesFollower, Round, Stage};
pub use index::{Losses, StreamGap};
pub use plan::{
    Enumeration, Field, FieldIndex, Integer, NO_FIELD, NoStyle, NumberPlace, Plan, Scope, Shape, Style,
};
pub use print::{Format, Piece, WriteEvent, print};
pub use recording::{Trace, read_trace};
pub use rtscope_event::{Pattern, PatternList, is_event_named, nearest};
pub use run::{SHORT_LITERAL, Visit};
pub use select::Selection;
pub use set::{DamagedFile, OpenTrace, Stream, TraceSet};
pub use slices::EventView;
pub use source::{CtfSource, read};
pub use tasks::{SharedTaskNames, TaskName, TaskNames, TaskSpans};
