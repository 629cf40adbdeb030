// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pure analyses of recorded events: one module a question, no I/O, no clock.
//!
//! - [`chain`]: which interrupt or timer did a thread respond to, and in which steps? The same state machine as the
//!   tracker in the kernel, replayable on recorded events.
//! - [`timeline`]: what did a CPU do in an interval, net of what nested in it?
//! - [`explain`]: why was a response late? Every nanosecond of it goes to a cause, or to "unknown".
//! - [`gap`]: what took the CPU from a thread that never gives it up?
//! - [`visits`]: what ran on a CPU that should be quiet?
//! - [`summary`]: what do many late responses have in common?
//! - [`own`]: what did the observer itself cost its target?
//! - [`stat`]: what did tasks, interrupts and system calls of a whole trace do? These are incremental ([`analysis`]).
//! - [`pairing`]: which two events belong together? The same matcher for traces and for events that have just come.
//! - [`keyed`], [`heat`]: the same by task, device or call, and over time.
//! - [`descriptors`]: which file descriptors are open, how, by whom and since when?
//! - [`change`]: has a distribution become another one, and for better or worse?
//! - [`histogram`]: what do the counts of the tracker say of the distribution?
#![forbid(unsafe_code)]

pub mod analysis;
pub mod chain;
pub mod change;
pub mod descriptors;
pub mod explain;
pub mod flame;
pub mod gap;
pub mod heat;
pub mod histogram;
pub mod keyed;
pub mod own;
pub mod pairing;
pub mod share;
pub mod stat;
pub mod summary;
pub mod timeline;
pub mod visits;
