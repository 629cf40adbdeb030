// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield create --mode artis` on kernels that have schedulers in eBPF, in virtual machines.

mod fixture;
mod hotplug;
mod lending;
mod stress;
mod traps;
mod witness;
