// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own tracer, through tracefs: which tracepoints there are, and recording them with a private instance.
//!
//! eBPF records the few events that are needed for following responses at the least cost. Everything else is recorded by
//! ftrace: it knows every tracepoint with all its fields, filters in the kernel, loses nothing in interrupt context under
//! system calls, and starts and stops all of them in a tenth of a second (detaching as many eBPF programs takes minutes).
//!
//! An [`Instance`] has its own buffers, clock, events and filters, so nobody else's tracing is touched. Unlike eBPF programs
//! it does not go with the process: it is removed when dropped, and one that was left by a killed process is removed by the
//! next run ([`Tracefs::sweep`]). The same holds for the uprobes of an instance ([`Instance::define_uprobes`]).

mod enable;
mod error;
mod flight;
mod instance;
mod mount;
mod reader;
mod stats;
mod sweep;
mod uprobes;

pub use enable::EnableFailure;
pub use error::TracefsError;
pub use flight::{FlightInstances, FrozenPages};
pub use instance::{Instance, InstanceConfig};
pub use mount::{EventName, Tracefs};
pub use reader::RawReader;
pub use stats::CpuStats;
pub use sweep::has_instances;
pub use uprobes::UprobePlace;
