// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel side: what this kernel can do, rtscope's eBPF programs, ftrace instances, and what is read from `/proc` and
//! `/sys`.
//!
//! [`caps`] finds facts and turns them into sentences. `programs` lists the eBPF programs and what is lost without each; `ebpf`
//! chooses among them, loads and attaches them, and hands out the memory that they share with us (as types of
//! `rtscope-ring`). [`syscalls`] says which system calls there are and whether eBPF may record them; `expiry` watches the
//! timer of one thread. [`tracefs`] records with ftrace what eBPF does not.
//!
//! eBPF programs and maps hang on file descriptors of this process, so the kernel removes them when it ends, however it ends.
//! An ftrace instance is a directory, which stays when its process is killed: the next run removes it.

pub mod caps;
mod descriptors;
mod ebpf;
mod expiry;
pub mod io_calls;
mod irqs;
pub mod perf;
mod program_info;
mod programs;
mod spin;
mod symbols;
pub mod syscalls;
mod tasks;
pub mod tracefs;
mod waits;

pub use descriptors::{DescriptorPrograms, DescriptorSettings};
pub use ebpf::{
    CellId, CountedBy, EbpfConfig, EbpfPrograms, Error, Follows, KeyPart, Memory, OpenIntervals,
    OriginFilter, PairSide, PairTable, RaisedLimits, RecorderConfig, ResponseConfig, SnapshotConfig,
    StackConfig, StreamConfig, Target, TracepointPair, TrackerConfig,
};
pub use expiry::TimerWatch;
pub use irqs::{interrupts, irq_number};
pub use programs::{PROGRAMS, ProgramSpec, SYSCALLS, stream_programs, tracker_programs};
pub use spin::{Spin, SpinKind};
pub use symbols::KernelSymbols;
pub use tasks::{kernel_stack, proc_comm, task_file, task_life};
pub use waits::wait_in;
