// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Integration tests of the crate: on streams of its own encoders, and on captures of others where they are.
#![allow(missing_docs, clippy::unwrap_used)]

mod arm;
mod arm_time;
mod capture;
mod captures;
mod hostile;
mod inventory;
mod itm;
mod itm_captures;
mod one_trace;
mod perfdata;
mod place;
mod pt;
mod spe;
mod stm_captures;
mod stp;
mod stp_captures;
mod stp_opencsd;
mod syst;

use rtscope_testkit::memory::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;
