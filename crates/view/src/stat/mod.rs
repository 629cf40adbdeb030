// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `rtscope stat` says: what is in traces, and what tasks, interrupts and system calls did in them.

pub(crate) mod columns;
mod counts;
pub(crate) mod figures;
mod irqs;
pub(crate) mod latency;
mod reports;
mod syscalls;
mod tasks;

pub(crate) use counts::earlier_text;
pub use counts::{STAT_SCHEMA, TraceStat, missing_line, missing_lines};
pub use figures::Wanted;
pub use irqs::{STAT_IRQS_SCHEMA, irqs_json, irqs_text};
pub use latency::{STAT_LATENCY_SCHEMA, latency_json, latency_svg, latency_text};
pub use reports::{figures_json, figures_text};
pub use syscalls::{STAT_SYSCALLS_SCHEMA, syscalls_json, syscalls_text};
pub use tasks::{STAT_TASKS_SCHEMA, tasks_json, tasks_text};
