// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope record` of the kernel's events: nothing is missing that is not counted as lost.

mod addresses;
mod complete;
mod ends;
mod figures;
mod kernel;
mod latency;
mod limited;
mod live;
mod lttng;
mod misses;
mod oracles;
mod places;
mod resolve;
mod stateful;
