// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be typed after `rtscope list`.

use crate::exit::help;

pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope list
      Instrumented programs that run now: their events, threads, buffers and losses.
  rtscope list -u 'motor:*' -v
      Only events of that name, with their fields.
  rtscope list -k
      Every tracepoint of the running kernel, and which recorder takes it.
  rtscope list -k 'sched:*' '!sched:sched_stat_*'
      Some of them. A pattern is SYSTEM:NAME with * and ?, a subsystem (irq), a system call (openat), or syscalls for
      all of them; ! leaves out.
  rtscope list -k block:block_rq_issue
      Also its fields, because it is only one.
  rtscope list -k syscalls --json | jq -r '.events[].name'"
);

#[derive(Debug, clap::Args)]
pub struct ListOptions {
    /// Tracepoints of the kernel; also what a PATTERN without -u means
    #[arg(long, short)]
    pub kernel: bool,
    /// Instrumented programs (include/rtscope) that run now; also what is listed without anything
    #[arg(long, short, conflicts_with = "kernel")]
    pub user: bool,
    /// Only what these mean (SYSTEM:NAME with * and ?, a subsystem, syscalls, !PATTERN; with -u PROVIDER:EVENT or PROVIDER);
    /// may be separated by commas
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// Fields too, with their types and names for numbers; they are shown without it when few events are listed
    #[arg(long, short)]
    pub verbose: bool,
    /// One JSON object on standard output, fields included
    #[arg(long)]
    pub json: bool,
}
