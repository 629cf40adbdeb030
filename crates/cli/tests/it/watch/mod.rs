// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope watch`: whom it watches, what it finds and explains, what it saves, and how it ends.

mod actions;
mod blame;
mod blocks;
mod chains;
mod config;
mod cycles;
mod earlier;
mod ends;
mod evidence;
mod ftrace;
mod handlers;
mod locks;
pub mod pairs;
mod sections;
mod soak;
mod spans;
mod stacks;
mod state;
mod stuck;
mod syscalls;
mod targets;
mod tracepoints;
mod trackers;
mod truth;
mod users;
mod wakings;
pub mod work;
