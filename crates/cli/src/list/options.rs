// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of `rtscope list`.

use crate::exit::help;

pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope list
      Running instrumented programs: their events, threads, buffers and losses.
  rtscope list -u 'motor:*' -v
      Only events of this provider, with their fields.
  rtscope list -k
      Every tracepoint of the running kernel, and which recorder takes it.
  rtscope list -k 'sched:*' '!sched:sched_stat_*'
      Some of them. A pattern is SYSTEM:NAME with * and ?, a subsystem (irq), a system call (openat),
      or syscalls for all system calls; ! excludes.
  rtscope list -k block:block_rq_issue
      One tracepoint, with its fields.
  rtscope list -k syscalls --json | jq -r '.events[].name'"
);

#[derive(Debug, clap::Args)]
pub struct ListOptions {
    /// List tracepoints of the kernel (the default if a PATTERN is given)
    #[arg(long, short)]
    pub kernel: bool,
    /// List running instrumented programs (the default without a PATTERN)
    #[arg(long, short, conflicts_with = "kernel")]
    pub user: bool,
    /// Only what matches: SYSTEM:NAME with * and ?, a subsystem, syscalls, !PATTERN; with -u: PROVIDER:EVENT or PROVIDER, !PATTERN.
    /// May be separated by commas
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// Show fields, their types and the names of values even if many events are listed
    #[arg(long, short)]
    pub verbose: bool,
    /// Print one JSON object, fields included (docs/json.md)
    #[arg(long)]
    pub json: bool,
}
