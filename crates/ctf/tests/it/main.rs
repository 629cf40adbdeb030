// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The integration tests of this crate, one module for each subject.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod atomic;
mod babeltrace2;
mod cut;
mod descriptions;
mod follow;
mod fuzz;
mod hostile;
mod killed;
mod memory;
mod ring;
mod round_trip;
mod source;
mod tasks;
mod tracepoints;
