// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What measures a machine: what interrupts a loop that has a CPU for itself ([`npt`]), and how late timers are, with load and in a
//! shield ([`table`]), and what tracers cost ([`impact`]).
//!
//! As in `session`, nothing here knows arguments, terminals, signals or exit codes. Each measurement takes plain settings, an observer
//! and a stop, and comes to one report: a structure that can be serialised, from which text, JSON and pictures are drawn elsewhere
//! (`view`).

#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::exit,
    reason = "whoever runs an engine decides what is said, and when the process ends"
)]

pub mod impact;
pub mod npt;
pub mod table;
