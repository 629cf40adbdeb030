// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope record -u`: instrumented programs in C and Rust, usual and unusual ones, and recorders that fail.

mod c;
mod channels;
mod chosen;
mod clock;
mod compile;
mod compiled;
mod containers;
mod elsewhere;
mod failing;
mod fields;
mod fixture;
mod flight;
mod follow;
mod hardened;
mod hostile;
mod interrupted;
mod last;
mod life;
pub mod limited;
mod lto;
mod own;
mod ptwrite;
mod room;
mod rust;
mod sanitizers;
mod starts;
mod surroundings;
mod unusual;
mod vectors;
mod versions;
mod who;
