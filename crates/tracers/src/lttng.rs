// SPDX-License-Identifier: Apache-2.0 OR MIT
//! LTTng: a private session daemon, and sessions in it that are destroyed when they are dropped.
//!
//! Nobody else's sessions shall record our programs, nor ours theirs. A daemon of another user than root keeps its sockets in
//! LTTNG_HOME, which is a directory of ours. Root's are in one place of the machine: daemon, commands and traced programs see a directory
//! of ours there, each by a mount in a separate namespace. Where that is not allowed, the machine's daemon is used if one runs.

use crate::Error;
use crate::process::{ChildProcess, finished};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

/// How to get it.
const TOOLS: &str = "install lttng-tools (Debian, Fedora: lttng-tools)";
const HEADERS: &str =
    "install LTTng-UST's headers (Debian: liblttng-ust-dev, Fedora: lttng-ust-devel) and a C compiler";

/// Where root's daemon has its sockets.
const RUN: &CStr = c"/var/run/lttng";

/// A daemon that answers.
#[derive(Debug)]
pub struct Lttng {
    home: PathBuf,
    /// The directory that is seen in RUN; `None`: what is there for everybody.
    own_run: Option<CString>,
    /// RUN had to be made, and goes again.
    made_run: bool,
    daemon: Option<ChildProcess>,
}

/// How the consumer learns that there is something to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// The writer tells it, by a system call. LTTng's default.
    Writer,
    /// It polls every so many microseconds.
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
    /// Starts a daemon or finds one. `home`: a directory for its files; `kernel`: it shall look for the kernel's tracer, too,
    /// which may load LTTng's modules.
    pub fn start(home: &Path, kernel: bool, stop: &dyn Fn() -> bool) -> Result<Lttng, Error> {
        let mut lttng = Lttng { home: home.to_owned(), own_run: None, made_run: false, daemon: None };
        finished(lttng.command().arg("--version"), TOOLS)?;
        if nix::unistd::geteuid().is_root() {
            lttng.hide_run();
        }
        if lttng.answers() {
            return Ok(lttng);
        }
        let mut command = Command::new("lttng-sessiond");
        lttng.dress(command.stdout(Stdio::null()));
        if !kernel {
            command.arg("--no-kernel");
        }
        let mut daemon = ChildProcess::start(&mut command, TOOLS, None)?;
        daemon.until("it answers", stop, |_| lttng.answers())?;
        lttng.daemon = Some(daemon);
        Ok(lttng)
    }

    /// Makes a directory that stands for RUN, if namespaces can be made here.
    fn hide_run(&mut self) {
        let (own, run) = (self.home.join("run"), Path::new(OsStr::from_bytes(RUN.to_bytes())));
        self.made_run = std::fs::create_dir(run).is_ok();
        let made = std::fs::create_dir_all(&own);
        self.own_run = made.ok().and_then(|()| CString::new(own.as_os_str().as_bytes()).ok());
        if finished(self.dress(&mut Command::new("true")), "").is_err() {
            self.own_run = None;
        }
    }

    /// Makes a command one that finds this daemon: the programs to be traced, too.
    pub fn dress<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("LTTNG_HOME", &self.home);
        if let Some(own) = self.own_run.clone() {
            let none = None::<&CStr>;
            let before_exec = move || {
                unshare(CloneFlags::CLONE_NEWNS)?;
                mount(none, c"/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
                mount(Some(own.as_c_str()), RUN, none, MsFlags::MS_BIND, none)?;
                Ok(())
            };
            // SAFETY: between fork and exec only system calls are made, with texts that were made before: no memory is allocated.
            unsafe { command.pre_exec(before_exec) };
        }
        command
    }

    /// Why the kernel cannot be traced; `None`: it can.
    #[must_use]
    pub fn no_kernel(&self) -> Option<String> {
        let asked = finished(self.command().args(["list", "--kernel"]), TOOLS);
        asked.err().map(|_| "LTTng's kernel modules are not there (Debian: lttng-modules-dkms)".to_string())
    }

    fn command(&self) -> Command {
        let mut command = Command::new("lttng");
        self.dress(command.arg("--no-sessiond"));
        command
    }

    fn answers(&self) -> bool {
        finished(self.command().arg("list"), TOOLS).is_ok()
    }

    /// A session that records into a directory. `channel`: `None` is LTTng's default.
    pub fn session(
        self: &Rc<Self>,
        name: &str,
        directory: &Path,
        channel: Option<Channel>,
        events: &str,
    ) -> Result<Session, Error> {
        let mut output = std::ffi::OsString::from("--output=");
        output.push(directory);
        finished(self.command().args([OsStr::new("create"), OsStr::new(name), &output]), TOOLS)?;
        let session = Session { lttng: Rc::clone(self), name: name.to_string(), destroyed: false };
        if let Some(channel) = channel {
            session.enable_channel(channel)?;
        }
        session.run(&["enable-event", "--userspace", "--session", name], channel.map(|_| "ch"), &[events])?;
        Ok(session)
    }
}

impl Drop for Lttng {
    fn drop(&mut self) {
        // Before its directories go.
        self.daemon = None;
        if self.made_run {
            // Another process uses it by now: then it stays.
            let _ = std::fs::remove_dir(OsStr::from_bytes(RUN.to_bytes()));
        }
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
