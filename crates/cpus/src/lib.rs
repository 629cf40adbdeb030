// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets of CPUs of any size, and the CPUs that a thread may use.
//!
//! A crate of its own because several need it that do not know each other, and because the C library's `cpu_set_t` (and so
//! nix's `CpuSet`) ends at 1024 CPUs: `sched_getaffinity` fails with it on a larger machine. Kernels are built for up to 8192.

mod affinity;
mod set;

pub use affinity::{Affinity, Thread};
pub use set::Cpus;
