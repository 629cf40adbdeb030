// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The integration tests of this crate, one module for each subject.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod babeltrace2;
mod cut;
mod golden;
mod layouts;
mod perfetto;
mod priorities;
mod stat;
mod terminal;
