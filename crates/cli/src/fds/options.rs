// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `rtscope fds` takes.

use crate::args::JsonOutput;
use crate::exit::{Failure, help};
use clap::ValueHint;
use rtscope_analyze::descriptors::{DescriptorLimits, DescriptorQuery};
use rtscope_event::{Pattern, Pid};
use rtscope_session::fds::FdsSettings;
use rtscope_session::units::{Bytes, DurationNs};
use std::ffi::OsString;

pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope fds --for 10s -- ./server --once
      Each descriptor that the command and its children had open in the last 10 s before its end,
      with who opened it, when, in which call, and how it was closed.
  rtscope fds --pid 812
      What process 812 and its children open and close, until Ctrl-C; then what is open.
  rtscope fds --path '/var/log/*' --duration 1m
      Which processes have or had files there.
  rtscope fds --pid 812 --interval 1s --open --json
      What is open each second, for programs.

Descriptors are followed as they come: also those that come in messages (SCM_RIGHTS), from ioctl
and from io_uring. What cannot be seen is counted: docs/fds.md."
);

#[derive(Debug, clap::Args)]
pub struct FdsOptions {
    /// Follow this process and the children that it makes from now on; may be repeated. Without --pid and COMMAND: all processes
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Only descriptors with this number
    #[arg(long, value_name = "N")]
    pub fd: Option<u32>,
    /// Only files with this path (with * and ?); what has none has a name, as in /proc: 'socket:*', 'pipe:*'
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// Keep what was closed for this time
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    pub closed_for: DurationNs,
    /// Only what is open, nothing that was closed
    #[arg(long)]
    pub open: bool,
    /// Print what is known at the end of each interval of this length, and at the end
    #[arg(long, value_name = "TIME")]
    pub interval: Option<DurationNs>,
    /// Stop after this time
    #[arg(long, value_name = "TIME")]
    pub duration: Option<DurationNs>,
    /// Memory between the kernel and rtscope: a power of two. What finds it full is lost, counted, and looked up again
    #[arg(long, value_name = "SIZE", default_value = "16M")]
    pub buffer: Bytes,
    /// Closed descriptors that are kept at most; the oldest are forgotten, and counted
    #[arg(long, value_name = "N", default_value_t = DescriptorLimits::default().closed)]
    pub keep: usize,
    #[command(flatten)]
    pub json: JsonOutput,
    /// Start this program, follow it and its children, and stop when it ends
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

impl FdsOptions {
    /// For the engine.
    pub fn settings(self) -> Result<FdsSettings, Failure> {
        let usage = |text: String| rtscope_session::Failure::Usage(text);
        let path = self.path.as_deref().map(Pattern::new);
        let ring_bytes = u32::try_from(self.buffer.0).ok().filter(|bytes| bytes.is_power_of_two());
        let ring_bytes =
            ring_bytes.ok_or_else(|| usage("--buffer: a power of two, from 64K to 2G".to_owned()))?;
        Ok(FdsSettings {
            query: DescriptorQuery {
                pids: self.pid.into_iter().map(Pid).collect(),
                fd: self.fd,
                path,
                with_closed: !self.open,
            },
            limits: DescriptorLimits {
                closed: self.keep,
                closed_for_ns: self.closed_for.0,
                ..DescriptorLimits::default()
            },
            ring_bytes,
            duration_ns: self.duration.map(|duration| duration.0),
            interval_ns: self.interval.map(|interval| interval.0),
            command_output: self.json.of_command(),
            command: self.command,
        })
    }
}
