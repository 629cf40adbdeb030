// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `rtscope hist` takes.

use crate::args::JsonOutput;
use crate::exit::{Failure, help};
use crate::watch::keyed_question;
use clap::{ValueHint, value_parser};
use rtscope_analyze::pairing::PairQuestion;
use rtscope_event::Tracker;
use rtscope_session::counting::Counted;
use rtscope_session::hist::{CELLS, HistKey, HistOrder};
use rtscope_session::units::DurationNs;
use std::ffi::OsString;
use std::path::PathBuf;

pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope hist wakeup --by task --duration 10s
      How long tasks waited for a CPU after each wakeup, by task, and over time.
  rtscope hist wakeup --by task --sort longest --top 5 --interval 1s
      Each second, the five tasks that waited longest for a CPU.
  rtscope hist block --by device --interval 1s
      How long each disk takes for its requests, each second until Ctrl-C, and in all at the end
  rtscope hist syscall --by syscall -- ./server --selftest
      Each system call of a program, until it ends.
  rtscope hist irq --by interrupt --duration 1min --json --svg irq.svg
      The handlers of interrupts, as one JSON object, and a heat map.
  rtscope hist pair --from irq:softirq_raise --to irq:softirq_entry --key vec,cpu --by field
      How long softirqs wait from where they are raised, by their number: any two tracepoints.
  rtscope hist work --by task --interval 1s
      How long pieces of work of instrumented programs take, from RTSCOPE_WORK_BEGIN to
      RTSCOPE_WORK_END, by the thread that ends them; of your own programs without any privilege.

Everything is counted, not only what is late, and in the kernel but for events of programs, which
are paired while they stay in the programs' buffers. Counts are exact; what was not counted is said.
Times are known to 3.2 %. Of system calls those in which a thread waits for others or for time are
left out, unless --calls '*' or a name asks for them."
);

#[derive(Debug, clap::Args)]
pub struct HistOptions {
    #[command(flatten)]
    pub followed: FollowedArgs,
    /// Count apart by task, process, cgroup or cpu; by device (block, syscall), operation (block), interrupt (irq; response and
    /// wakeup: with what it began), softirq (softirq), syscall (syscall, lock), field (pair: the first one of --key, its low 32 bits)
    #[arg(long, value_name = "KEY")]
    pub by: Option<HistKey>,
    /// Which keys come first: those with the largest total time, the longest single time, or the largest number of operations
    /// (total, longest, number) [default: total]
    #[arg(long, value_name = "ORDER", requires = "by")]
    pub sort: Option<HistOrder>,
    /// Print what came in each interval of this length, and everything at the end
    #[arg(long, value_name = "TIME")]
    pub interval: Option<DurationNs>,
    /// Print at most this many keys; --json has all [default: 20]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Write a heat map over time
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Of syscall: only these calls, as for rtscope watch syscall
    #[arg(long, value_name = "CALLS", value_delimiter = ',')]
    pub calls: Vec<String>,
    /// Of irqoff: the time between two samples of a CPU [default: 1ms]
    #[arg(long, value_name = "TIME")]
    pub period: Option<DurationNs>,
    /// Places for keys and their ranges, 32 bytes each, of each CPU: from 64 to 4194304, rounded up to a power of two; of
    /// events of programs in all, of which one user's get half of what others leave. What finds none is counted under no key, and
    /// reported
    #[arg(long, value_name = "N", default_value_t = CELLS, value_parser = value_parser!(u32).range(64..=1 << 22))]
    pub cells: u32,
    #[command(flatten)]
    pub of: CountedOptions,
}

/// What is followed.
#[derive(Debug, clap::Args)]
pub struct FollowedArgs {
    /// What is followed: response, wakeup, offcpu, syscall, lock, irq, softirq, block, preemptoff, irqoff, pair, work (see rtscope watch)
    #[arg(value_name = "TRACKER")]
    tracker: TrackerOrWork,
    /// Of pair: the event with which the time begins: a tracepoint (SYSTEM:EVENT) or a program's event (PROVIDER:EVENT)
    #[arg(long, value_name = "EVENT", requires = "to")]
    from: Option<String>,
    /// Of pair: the event that ends it
    #[arg(long, value_name = "EVENT", requires = "from")]
    to: Option<String>,
    /// Of pair: the fields that have to be the same in both: FIELD, or FIELD=FIELD where it has two names, up to three with commas
    /// between [default: the thread]
    #[arg(long, value_name = "FIELD", requires = "from")]
    key: Option<String>,
}

/// A tracker, or work, which is a pair of events of programs and has a name all the same.
#[derive(Clone, Copy, Debug)]
enum TrackerOrWork {
    Tracker(Tracker),
    Work,
}

impl std::str::FromStr for TrackerOrWork {
    type Err = String;

    fn from_str(text: &str) -> Result<TrackerOrWork, String> {
        match text {
            "work" => Ok(TrackerOrWork::Work),
            name => {
                name.parse().map(TrackerOrWork::Tracker).map_err(|error: String| format!("{error}, work"))
            }
        }
    }
}

impl FollowedArgs {
    /// The tracker, and of pairs and work the two events.
    pub fn question(&self) -> Result<(Tracker, Option<PairQuestion>), Failure> {
        let both = self.from.as_deref().zip(self.to.as_deref());
        match (self.tracker, both) {
            (TrackerOrWork::Work, None) => Ok((Tracker::Pair, Some(PairQuestion::of_work()))),
            (TrackerOrWork::Work, Some(_)) => {
                Err(Failure::Usage("--from, --to: work has events of its own; pair takes any two".to_owned()))
            }
            (TrackerOrWork::Tracker(tracker), both) => {
                let question =
                    both.map(|(from, to)| keyed_question(from, to, self.key.as_deref())).transpose()?;
                Ok((tracker, question))
            }
        }
    }
}

/// Whose operations are counted, and for how long.
#[derive(Debug, clap::Args)]
pub struct CountedOptions {
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
    /// Stop after this time
    #[arg(long, value_name = "TIME")]
    pub duration: Option<DurationNs>,
    #[command(flatten)]
    pub json: JsonOutput,
    /// Start this program, count its process (unless --task, --pid or --tid are given), and stop when it ends
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

impl CountedOptions {
    /// For the engine.
    pub fn counted(self) -> Counted {
        Counted {
            task: self.task,
            pid: self.pid,
            tid: self.tid,
            duration_ns: self.duration.map(|duration| duration.0),
            command_output: self.json.of_command(),
            command: self.command,
        }
    }
}
