// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `TARGET.partial/user.session`: what a recording of programs is, and what its trace does not say until it is complete. While somebody
//! records, it is locked. `TARGET.partial/trace` is the trace, which can be read at every instant and becomes `TARGET`.
//!
//! The file has one JSON text in each line; a kill leaves whole lines and perhaps a part of one.

use super::end::UserEnd;
use crate::Error;
use crate::spool::SpoolDirectory;
use nix::fcntl::Flock;
use rtscope_ctf::{TraceInfo, UserContext};
use rtscope_programs::clock::Pair;
use rtscope_programs::clock_watch::ClockProblem;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use uuid::Uuid;

const SCHEMA: &str = "rtscope.session.user/1";
/// The file.
pub(crate) const FIRST: &str = "user.session";
/// The directory beside it that becomes the trace.
const TRACE: &str = "trace";
/// No recording writes a larger file.
const BYTES_MAX: u64 = 64 << 20;

/// What is known when a recording begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserSession {
    schema: String,
    /// CLOCK_MONOTONIC at the start.
    pub started_ns: u64,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC.
    pub realtime_offset_ns: u64,
    /// The machine's name.
    pub hostname: String,
    /// As `uname -r` shows it.
    pub kernel_release: String,
    /// Identifies the clock.
    pub boot_id: String,
    /// Version of rtscope.
    pub version: String,
    /// Context fields of each event: of `pid`, `tid`, `comm`, `cpu`.
    pub context: Vec<String>,
    /// The UUID of the trace.
    trace: String,
}

/// A later line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    /// The programs' counter has jumped.
    Clock(ClockProblem),
    /// What is to be said of events that no trace can have.
    Undescribed(String),
    /// The recording has ended in order.
    End(Box<UserEnd>),
}

impl UserSession {
    /// Describes this machine, now.
    ///
    /// # Errors
    /// When the system's names or clocks cannot be read.
    pub fn of_this_machine(version: &str, context: Vec<String>) -> Result<UserSession, Error> {
        let info = TraceInfo::of_this_machine(version)?;
        let started_ns = Pair::now(rtscope_abi::program::RTU_CLOCK_MONOTONIC).monotonic_ns;
        Ok(UserSession {
            schema: SCHEMA.to_string(),
            started_ns,
            realtime_offset_ns: info.realtime_offset_ns,
            hostname: info.hostname,
            kernel_release: info.kernel_release,
            boot_id: info.clock_uuid.to_string(),
            version: info.producer_version,
            context,
            trace: Uuid::new_v4().to_string(),
        })
    }

    pub(super) fn trace(&self) -> Uuid {
        Uuid::parse_str(&self.trace).unwrap_or(Uuid::nil())
    }

    pub(super) fn info(&self) -> TraceInfo {
        TraceInfo {
            hostname: self.hostname.clone(),
            kernel_release: self.kernel_release.clone(),
            clock_uuid: Uuid::parse_str(&self.boot_id).unwrap_or(Uuid::nil()),
            realtime_offset_ns: self.realtime_offset_ns,
            trace_uuid: self.trace(),
            producer_version: self.version.clone(),
            window_begin: None,
        }
    }

    pub(super) fn context(&self) -> UserContext {
        let has = |name: &str| self.context.iter().any(|known| known == name);
        UserContext { pid: has("pid"), tid: has("tid"), comm: has("comm"), cpu: has("cpu"), uid: has("uid") }
    }
}

/// The directory `TARGET.partial` and its file, which is locked as long as this lives.
#[derive(Debug)]
pub(super) struct SessionFile {
    pub(super) directory: SpoolDirectory,
    file: Flock<File>,
}

/// What the file of a recording says.
#[derive(Debug)]
pub(super) struct SessionContent {
    pub(super) session: UserSession,
    pub(super) clock: Vec<ClockProblem>,
    pub(super) undescribed: Vec<String>,
    pub(super) end: Option<UserEnd>,
}

impl SessionFile {
    /// Makes the directory.
    ///
    /// # Errors
    /// When `target` or the directory exist, or the directory cannot be made.
    pub(super) fn create(target: &Path, session: &UserSession) -> Result<SessionFile, Error> {
        let directory = SpoolDirectory::open_any(&crate::spool::new_directory(target)?)?;
        let shown = directory.shown.join(FIRST);
        let unbegun = directory.path().join(crate::spool::unbegun(FIRST));
        // Where nothing has been recorded, the next attempt must not find it.
        let made = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&unbegun);
        let made = made.map_err(Error::io("make the file", &shown));
        let file = made.and_then(|made| crate::spool::lock(made, &directory.shown));
        let file = file.inspect_err(|_| drop(directory.remove()))?;
        // If it is another directory by now, nothing in it is ours to remove.
        directory.check_made(&file)?;
        let mut made = SessionFile { directory, file };
        let begun = made.append(session);
        match begun.and_then(|()| std::fs::rename(&unbegun, made.directory.path().join(FIRST))) {
            Ok(()) => Ok(made),
            Err(error) => {
                // The error matters more than a failure to remove.
                let _ = made.directory.remove();
                Err(Error::io("write", &shown)(error))
            }
        }
    }

    /// That of an interrupted recording to `target`, if there is one.
    pub(super) fn find(target: &Path) -> Option<PathBuf> {
        let directory = crate::spool::directory_of(target).ok()?;
        directory.join(FIRST).is_file().then_some(directory)
    }

    /// Opens it.
    ///
    /// # Errors
    /// When there is none, its recorder is alive, or it cannot be parsed.
    pub(super) fn open(target: &Path) -> Result<(SessionFile, SessionContent), Error> {
        let directory = SessionFile::find(target).ok_or_else(|| Error::NoSpool(target.to_owned()))?;
        let directory = SpoolDirectory::open(&directory)?;
        let file = crate::spool::open_regular(&directory.path().join(FIRST))?;
        let file = crate::spool::lock(file, &directory.shown)?;
        let opened = SessionFile { directory, file };
        let content = opened.read()?;
        Ok((opened, content))
    }

    fn read(&self) -> Result<SessionContent, Error> {
        let path = self.directory.shown.join(FIRST);
        let broken = |what: &str| Error::broken(&path, what.to_string());
        let mut bytes = Vec::new();
        let read = (&*self.file).take(BYTES_MAX + 1).read_to_end(&mut bytes);
        if read.map_err(Error::io("read", &path))? as u64 > BYTES_MAX {
            return Err(broken("it is too large"));
        }
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        let first = lines.next().ok_or_else(|| broken("it has no beginning"))?;
        let session: UserSession =
            serde_json::from_slice(first).map_err(|error| broken(&error.to_string()))?;
        if session.schema != SCHEMA {
            return Err(broken(&format!("its format is {}; this rtscope reads {SCHEMA}", session.schema)));
        }
        let mut content = SessionContent { session, clock: Vec::new(), undescribed: Vec::new(), end: None };
        for line in lines {
            match serde_json::from_slice(line).map_err(|error| broken(&error.to_string()))? {
                Line::Clock(problem) => content.clock.push(problem),
                Line::Undescribed(remark) => content.undescribed.push(remark),
                Line::End(end) => content.end = Some(*end),
            }
        }
        Ok(content)
    }

    /// Adds a line.
    pub(super) fn append(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(value).map_err(io::Error::other)?;
        text.push(b'\n');
        (&*self.file).write_all(&text)
    }

    /// The directory of the trace while it is written.
    pub(super) fn trace(&self) -> PathBuf {
        self.directory.path().join(TRACE)
    }
}
