// SPDX-License-Identifier: Apache-2.0 OR MIT
//! LTTng: a session daemon, unless one runs that answers, and sessions in it that are destroyed when they are dropped.
//!
//! A daemon of another user than root keeps its sockets in LTTNG_HOME, so it gets one of its own and nobody else's sessions are
//! in the way. Root's daemon is the machine's: if one runs, it is used.

use crate::Error;
use crate::process::{Running, finished};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

/// How to get it.
const TOOLS: &str = "install lttng-tools (Debian, Fedora: lttng-tools)";
const HEADERS: &str =
    "install LTTng-UST's headers (Debian: liblttng-ust-dev, Fedora: lttng-ust-devel) and a C compiler";

/// A daemon that answers.
#[derive(Debug)]
pub struct Lttng {
    home: PathBuf,
    daemon: Option<Running>,
}

/// How the consumer learns that there is something to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// The writer tells it, by a system call. LTTng's default.
    Writer,
    /// It looks every so many microseconds.
    Timer(u32),
}

/// A channel for user space; the sizes are those of one CPU.
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    /// Of a sub-buffer.
    pub sub_buffer_bytes: usize,
    /// How many.
    pub sub_buffers: usize,
    /// How it is read.
    pub wakeup: Wakeup,
}

impl Lttng {
    /// Starts a daemon or finds one. `home`: a folder for what it keeps; `kernel`: it shall look for the kernel's tracer, too,
    /// which may load LTTng's modules.
    pub fn start(home: &Path, kernel: bool, stop: &dyn Fn() -> bool) -> Result<Lttng, Error> {
        let mut lttng = Lttng { home: home.to_owned(), daemon: None };
        finished(lttng.command().arg("--version"), TOOLS)?;
        if lttng.answers() {
            return Ok(lttng);
        }
        let mut command = Command::new("lttng-sessiond");
        command.env("LTTNG_HOME", home).stdout(Stdio::null());
        if !kernel {
            command.arg("--no-kernel");
        }
        let mut daemon = Running::start(&mut command, TOOLS, None)?;
        daemon.until("it answers", stop, |_| lttng.answers())?;
        lttng.daemon = Some(daemon);
        Ok(lttng)
    }

    /// What traced programs have to have in their environment.
    #[must_use]
    pub fn environment(&self) -> (&'static str, &Path) {
        ("LTTNG_HOME", &self.home)
    }

    /// Why the kernel cannot be traced; `None`: it can.
    #[must_use]
    pub fn no_kernel(&self) -> Option<String> {
        let asked = finished(self.command().args(["list", "--kernel"]), TOOLS);
        asked
            .err()
            .map(|error| format!("the kernel tracer is not there (Debian: lttng-modules-dkms): {error}"))
    }

    fn command(&self) -> Command {
        let mut command = Command::new("lttng");
        command.arg("--no-sessiond").env("LTTNG_HOME", &self.home);
        command
    }

    fn answers(&self) -> bool {
        finished(self.command().arg("list"), TOOLS).is_ok()
    }

    /// A session that records into a folder. `channel`: `None` is LTTng's default.
    pub fn session(
        self: &Rc<Self>,
        name: &str,
        folder: &Path,
        channel: Option<Channel>,
        events: &str,
    ) -> Result<Session, Error> {
        let mut output = std::ffi::OsString::from("--output=");
        output.push(folder);
        finished(self.command().args([OsStr::new("create"), OsStr::new(name), &output]), TOOLS)?;
        let session = Session { lttng: Rc::clone(self), name: name.to_string(), destroyed: false };
        if let Some(channel) = channel {
            session.enable_channel(channel)?;
        }
        session.run(&["enable-event", "--userspace", "--session", name], channel.map(|_| "ch"), &[events])?;
        Ok(session)
    }
}

/// A session. Dropped, it is destroyed.
#[derive(Debug)]
pub struct Session {
    lttng: Rc<Lttng>,
    name: String,
    destroyed: bool,
}

impl Session {
    fn run(&self, words: &[&str], channel: Option<&str>, last: &[&str]) -> Result<(), Error> {
        let mut command = self.lttng.command();
        command.args(words);
        if let Some(channel) = channel {
            command.args(["--channel", channel]);
        }
        finished(command.args(last), TOOLS).map(drop)
    }

    fn enable_channel(&self, channel: Channel) -> Result<(), Error> {
        let mut words: Vec<String> =
            ["enable-channel", "--userspace", "--session", &self.name].map(String::from).to_vec();
        words.push(format!("--subbuf-size={}", channel.sub_buffer_bytes));
        words.push(format!("--num-subbuf={}", channel.sub_buffers));
        if let Wakeup::Timer(us) = channel.wakeup {
            words.push(format!("--read-timer={us}"));
        }
        words.push("ch".to_string());
        finished(self.lttng.command().args(words), TOOLS).map(drop)
    }

    /// Also the kernel's events, by LTTng's names; `syscalls`: and all system calls.
    pub fn enable_kernel(&self, events: &str, syscalls: bool) -> Result<(), Error> {
        self.run(&["enable-event", "--kernel", "--session", &self.name], None, &[events])?;
        if syscalls {
            self.run(&["enable-event", "--kernel", "--session", &self.name], None, &["--syscall", "--all"])?;
        }
        Ok(())
    }

    /// Records from now on.
    pub fn start(&self) -> Result<(), Error> {
        self.run(&["start", &self.name], None, &[])
    }

    /// Ends it; all is on the disk after.
    pub fn destroy(mut self) -> Result<(), Error> {
        self.destroyed = true;
        self.run(&["stop", &self.name], None, &[])?;
        self.run(&["destroy", &self.name], None, &[])
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.destroyed {
            // The daemon is gone, then so is the session.
            let _ = self.run(&["destroy", "--no-wait", &self.name], None, &[]);
        }
    }
}

/// Compiles something that needs LTTng-UST's headers.
pub fn compile(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<(), Error> {
    let mut command = Command::new("cc");
    command.args(["-O2", "-std=gnu11"]).args(arguments).args(["-llttng-ust", "-ldl"]);
    match finished(&mut command, HEADERS) {
        Ok(_) => Ok(()),
        Err(Error::Failed(said)) if said.contains("lttng/tracepoint.h") || said.contains("-llttng-ust") => {
            Err(Error::Missing { program: "LTTng-UST's headers".to_string(), remedy: HEADERS.to_string() })
        }
        Err(error) => Err(error),
    }
}
