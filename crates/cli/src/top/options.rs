// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `rtscope top` takes.

use crate::exit::{Failure, help};
use crate::hist::options::FollowedArgs;
use clap::{ValueHint, value_parser};
use rtscope_session::command::CommandOutput;
use rtscope_session::counting::Counted;
use rtscope_session::hist::{CELLS, HistKey, HistOrder, HistSettings};
use rtscope_session::top::TopSettings;
use rtscope_session::units::DurationNs;
use std::ffi::OsString;

pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope top wakeup
      Which tasks wait for a CPU after they were woken, how often and how long, each second anew.
  rtscope top block --by device --interval 200ms
      The same of requests, by disk.
  rtscope top offcpu --task postgres --threshold 20ms
      What takes longer is explained as rtscope watch does; Enter shows it for a task.
  rtscope top syscall --by syscall --sort longest -- ./server --selftest
      The system calls of a program; what was counted stays on the screen when it ends, until q.
  rtscope top pair --from sched:sched_process_fork --to sched:sched_process_exec --key child_pid=pid
      How long new processes take to become another program, and which do not.
  rtscope top work --threshold 5ms
      Pieces of work of instrumented programs, by the thread that ends them.

Keys: up and down choose a row, Enter shows its histogram and its late responses, t w n sort by
total time, worst time and number, p pauses, r begins anew, q ends, and ? shows help. The last line
says what was not counted, and what rtscope itself takes of a CPU, without its eBPF programs, which
run in the tasks' own time.

Standard output has to be a terminal, or it ends with exit code 2: rtscope hist counts the same for
files and pipes. What COMMAND would read from the terminal and write to it goes to /dev/null."
);

#[derive(Debug, clap::Args)]
pub struct TopOptions {
    #[command(flatten)]
    pub followed: FollowedArgs,
    /// A row for each task, process, cgroup, cpu, device, interrupt, softirq, syscall, operation or field, as rtscope hist has them
    /// [default: device of block, interrupt of irq, softirq of softirq, cpu of irqoff, task of all others]
    #[arg(long, value_name = "KEY")]
    pub by: Option<HistKey>,
    /// Which rows come first: those with the largest total time, the longest single time, or the largest number of operations
    /// (total, longest, number) [default: total]
    #[arg(long, value_name = "ORDER")]
    pub sort: Option<HistOrder>,
    /// What takes longer is late: the newest and the worst of each row can be looked at, explained as rtscope watch does
    #[arg(long, value_name = "TIME")]
    pub threshold: Option<DurationNs>,
    /// Between two readings; at least 50ms
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub interval: DurationNs,
    /// Of syscall: only these calls, as for rtscope watch syscall
    #[arg(long, value_name = "CALLS", value_delimiter = ',')]
    pub calls: Vec<String>,
    /// Of irqoff: the time between two samples of a CPU [default: 1ms; with --threshold half of that, from 50us to 1ms]
    #[arg(long, value_name = "TIME")]
    pub period: Option<DurationNs>,
    /// Places for keys and their ranges, as for rtscope hist
    #[arg(long, value_name = "N", default_value_t = CELLS, value_parser = value_parser!(u32).range(64..=1 << 22))]
    pub cells: u32,
    /// Count tasks with this name (with * and ?). Without --task, --pid, --tid and COMMAND: all of user space; of what CPUs and block
    /// devices do, all of it
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    /// Count the tasks of this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Count this thread
    #[arg(long, value_name = "TID")]
    pub tid: Option<u32>,
    /// End after this time
    #[arg(long, value_name = "TIME")]
    pub duration: Option<DurationNs>,
    /// Start this program, and count its process (unless --task, --pid or --tid are given)
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

impl TopOptions {
    /// For the engine.
    pub fn settings(self) -> Result<TopSettings, Failure> {
        let (tracker, between) = self.followed.question()?;
        Ok(TopSettings {
            hist: HistSettings {
                tracker,
                between,
                by: self.by,
                order: self.sort.unwrap_or_default(),
                calls: self.calls,
                sample_ns: self.period.map(|period| period.0),
                counted: Counted {
                    task: self.task,
                    pid: self.pid,
                    tid: self.tid,
                    duration_ns: self.duration.map(|duration| duration.0),
                    command_output: CommandOutput::OffTheTerminal,
                    command: self.command,
                },
                interval_ns: Some(self.interval.0),
                cells: self.cells,
            },
            threshold_ns: self.threshold.map(|threshold| threshold.0),
        })
    }
}
