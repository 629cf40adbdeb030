// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel side: what this kernel can do, rtscope's eBPF programs, and what is read from `/proc` and `/sys`.
//!
//! `caps` finds facts and turns them into sentences, `plan` says which programs a configuration needs, `session` loads and
//! attaches them and hands out the memory they share with us (as types of `rtscope-ring`). Everything that is left in the
//! kernel hangs on file descriptors of this process, so nothing stays when it ends, however it ends.

pub mod caps;
mod expiry;
mod irqs;
mod program_info;
mod programs;
mod session;
pub mod syscalls;
mod tasks;
pub mod tracefs;

pub use expiry::TimerWatch;
pub use irqs::{interrupts, irq_number};
pub use programs::{PROGRAMS, ProgramSpec, SYSCALLS, stream_programs};
pub use session::{
    Error, Memory, OriginFilter, Recorder, Session, SessionConfig, SnapshotConfig, StreamConfig, Target,
    TrackerConfig,
};
pub use tasks::{proc_comm, proc_tasks};
