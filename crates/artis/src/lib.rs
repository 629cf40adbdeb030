// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The asymmetric scheduler: real-time CPUs are lent to other tasks while these are in user mode, and taken back when they enter
//! the kernel. The idea is ARTiS' (Piel, Marquet, Soula, Dekeyser); the kernel part (`bpf/`) is a sched_ext scheduler, so
//! that it runs on a stock kernel.
//!
//! This crate finds out whether the kernel can do that (`probe`), loads and holds the scheduler (`scheduler`), and reads what it
//! counts (`counts`). Everything belongs to the process that holds it: when that ends, however it ends, the kernel takes the
//! scheduler out, and all tasks are ordinary ones again.

pub mod counts;
mod grants;
pub mod hooks;
pub mod probe;
pub mod scheduler;

pub use counts::Counts;
pub use grants::grant;
pub use scheduler::{Scheduler, SchedulerExit, Settings};

mod abi {
    //! Made from `bpf/artis_abi.h`, which has the documentation.
    #![allow(
        non_camel_case_types,
        dead_code,
        missing_docs,
        clippy::undocumented_unsafe_blocks,
        reason = "generated from C"
    )]
    type rts_u8 = u8;
    type rts_u16 = u16;
    type rts_u32 = u32;
    type rts_u64 = u64;
    type rts_s64 = i64;
    include!(concat!(env!("OUT_DIR"), "/artis_abi.rs"));
}

/// Why there is no scheduler.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel lacks something.
    #[error("{0}")]
    Missing(String),
    /// These CPUs cannot be used.
    #[error("{0}")]
    Cpus(String),
    /// libbpf or the kernel refused.
    #[error("{doing}: {error}{}", if .log.is_empty() { String::new() } else { format!("\nlibbpf said:\n{}", .log) })]
    Bpf {
        /// What was being done.
        doing: String,
        /// What libbpf said.
        error: libbpf_rs::Error,
        /// The last lines of libbpf's log.
        log: String,
    },
}
