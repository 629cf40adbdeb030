// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield`: on imitated machines here, on real kernels in virtual machines.

mod admission;
mod artis;
mod fixture;
mod hotplug;
mod imitation;
mod isolation;
mod table;
mod table_in_time;
mod verify;
