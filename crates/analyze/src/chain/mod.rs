// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Response chains from events: the rules of `docs/response-chains.md` as a pure state machine.
//!
//! The tracker in the kernel implements the same page. [`replay`] runs this one on a recording and [`compare`] says
//! whether both found the same chains, so that either can be tested against the other on any machine.

mod compare;
mod config;
mod context;
mod cycle;
mod growing;
mod handlers;
mod interval;
mod replay;
mod state;
mod tracker;
mod waking;
mod work;

pub use compare::{Comparison, Difference, compare};
pub use config::{Config, EndCondition, OriginFilter, Target};
pub use handlers::Handlers;
pub use interval::Intervals;
pub use replay::{replay, replay_handlers, replay_intervals};
pub use tracker::{Counters, Response, Tracker};
