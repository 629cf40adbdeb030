// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope record -u`: instrumented programs in C and Rust, usual and unusual ones, and recorders that fail.

mod c;
mod clock;
mod compile;
mod containers;
mod failing;
mod fixture;
mod follow;
mod hardened;
mod hostile;
mod life;
mod limited;
mod lto;
mod rust;
mod sanitizers;
mod surroundings;
mod unusual;
mod vectors;
mod versions;
