// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What runs: recordings, flight recorders and watches, for whoever starts them.
//!
//! Nothing here knows arguments, terminals, signals or exit codes. Whoever runs an engine gives it plain settings, an [`Observer`] that
//! hears what people may want to know, and a [`Stop`] that can be asked for from anywhere; what an engine comes to is a value. What
//! went wrong is a [`Failure`]: its kind, which the caller can act on, and a sentence for people.

#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::exit,
    reason = "whoever runs an engine decides what is said, and when the process ends"
)]

pub mod command;
pub mod counting;
pub mod cpu_recorder;
pub mod devices;
pub mod fail_if;
mod failure;
pub mod fds;
pub mod following;
pub mod hardware;
pub mod hist;
pub mod io_profile;
pub mod kernel_flight;
pub mod limits;
pub mod list;
pub mod metrics;
mod observer;
pub mod placement;
pub mod print;
pub mod program_flight;
pub mod realtime;
pub mod record;
pub mod schema;
pub mod shield;
pub mod stat;
mod stop;
mod supply;
#[cfg(test)]
mod test_processes;
pub mod top;
pub mod traces;
pub mod units;
pub mod users;
pub mod wall_clock;
pub mod watch;
pub mod whole_file;

pub use failure::Failure;
pub use observer::Observer;
pub use stop::{Stop, StopHandle};
