// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is asked about other users' processes, and whom that is charged to.
//!
//! Most of `/proc/PID` is behind locks that the process itself can hold for as long as it likes: its mappings while one of its threads changes them, and
//! its state, its namespaces and its root while it is in execve(2), which waits for a FUSE server of its user's where a file of that is closed by it
//! (measured on Linux 6.18: `stat`, `maps`, `ns/*`, `root`, `io`, `stack` and `wchan` wait; `status`, `comm`, `cgroup` and `children` do not).
//! Such a wait ends only with the process that waits. So one thread asks (`Reader`), and whoever it asks for waits up to a limit.
#![forbid(unsafe_code)]

mod reader;
mod user;

pub use reader::{Hanging, NotRead, Reader};
pub use user::{is_trusted, user_of};
