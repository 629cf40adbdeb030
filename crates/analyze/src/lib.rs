// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pure analyses of recorded events: one module a question, no I/O, no clock.
//!
//! - [`chain`]: which interrupt or timer did a thread respond to, and in which steps? The same state machine as the
//!   tracker in the kernel, replayable on recorded events.
#![forbid(unsafe_code)]

pub mod chain;
