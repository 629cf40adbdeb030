// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decoders against captures of real units and what others' decoders say of them, and against streams of our own encoders.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod hostile;
mod itm;
mod itm_captures;
mod spe;
mod stm_captures;
mod stp;
mod stp_captures;
mod stp_opencsd;
mod syst;
