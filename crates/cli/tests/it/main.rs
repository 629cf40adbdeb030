// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The integration tests of the command `rtscope`, in one binary: what they share is compiled and linked once.
//!
//! They load real CPUs with real-time tasks, and some change the machine, so they run one at a time. A test that needs root has a
//! name that begins with `root_`, and a line `NEEDS:` above it that says on which kernels and machines it tells something.

mod capture;
mod command;
mod convert;
mod fds;
mod hardware;
mod hist;
mod impact;
mod io_profile;
mod json;
mod list;
mod npt;
mod placement;
mod programs;
mod record;
mod refusals;
mod shield;
mod stories;
mod top;
mod traces;
mod watch;
mod widths;
