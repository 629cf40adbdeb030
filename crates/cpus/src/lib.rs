// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets of CPUs of any size, the CPUs that a thread may use, and where work runs that must not be felt by others.
//!
//! A crate of its own because several need it that do not know each other, and because the C library's `cpu_set_t` (and so
//! nix's `CpuSet`) ends at 1024 CPUs: `sched_getaffinity` fails with it on a larger machine. Kernels are built for up to 8192.

mod affinity;
mod machine;
mod placement;
mod set;

pub use affinity::{Affinity, Thread};
pub use machine::Machine;
pub use placement::{Place, Surroundings};
pub use set::Cpus;
