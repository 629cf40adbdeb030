// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where tracefs is, and which tracepoints it has.

use super::error::TracefsError;
use rtscope_ftrace::format::EventFormat;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The mounted trace file system.
#[derive(Clone, Debug)]
pub struct Tracefs {
    root: PathBuf,
}

/// A tracepoint's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventName {
    /// `sched`
    pub system: String,
    /// `sched_switch`
    pub name: String,
}

impl EventName {
    /// From `sched:sched_switch`.
    #[must_use]
    pub fn parse(text: &str) -> Option<EventName> {
        let (system, name) = text.split_once(':')?;
        // They become parts of paths.
        let usable = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains('/');
        (usable(system) && usable(name))
            .then(|| EventName { system: system.to_string(), name: name.to_string() })
    }
}

impl fmt::Display for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.system, self.name)
    }
}

impl Tracefs {
    /// Finds it: at its usual place, at the old one, or wherever it is mounted.
    ///
    /// # Errors
    /// [`TracefsError::NotMounted`] and [`TracefsError::NotInKernel`].
    pub fn find() -> Result<Tracefs, TracefsError> {
        // Any user can mount in his directory, whose name need not be text.
        let mounts = read_file(Path::new("/proc/self/mounts")).unwrap_or_default();
        match mounted(&mounts) {
            Some(root) => Ok(Tracefs { root }),
            None => {
                let types = fs::read_to_string("/proc/filesystems").unwrap_or_default();
                let known = types.split_whitespace().any(|word| word == "tracefs");
                Err(if known { TracefsError::NotMounted } else { TracefsError::NotInKernel })
            }
        }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where instances are made.
    #[must_use]
    pub fn instances(&self) -> PathBuf {
        self.root.join("instances")
    }

    /// Every tracepoint of this kernel, sorted. One file is read, none of the descriptions.
    ///
    /// # Errors
    /// [`TracefsError::Permission`], [`TracefsError::Io`].
    pub fn events(&self) -> Result<Vec<EventName>, TracefsError> {
        let path = self.root.join("available_events");
        let text = read_file(&path)
            .map_err(|error| TracefsError::reading("read the list of tracepoints", &path, error))?;
        let mut events: Vec<EventName> = text.lines().filter_map(EventName::parse).collect();
        events.sort_unstable();
        events.dedup();
        Ok(events)
    }

    /// One tracepoint's description.
    ///
    /// # Errors
    /// [`TracefsError::NoEvent`], [`TracefsError::Permission`], [`TracefsError::Format`], [`TracefsError::Io`].
    pub fn format(&self, event: &EventName) -> Result<EventFormat, TracefsError> {
        let path = self.root.join("events").join(&event.system).join(&event.name).join("format");
        let text = read_file(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => TracefsError::NoEvent(event.to_string()),
            _ => TracefsError::reading("read a tracepoint's description", &path, error),
        })?;
        Ok(EventFormat::parse(&event.system, &text)?)
    }
}

/// Reads a file of tracefs, in large pieces: some of them give what fits into the first piece, and then nothing (a small
/// first read, as that of `fs::read_to_string`, cuts `events/header_page`). Bytes that are not UTF-8 are replaced.
pub(super) fn read_file(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut text = Vec::new();
    let mut used = 0;
    loop {
        text.resize(used + (1 << 16), 0);
        match file.read(&mut text[used..]) {
            Ok(0) => break,
            Ok(bytes) => used += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    text.truncate(used);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Writes a file of tracefs. Not `fs::write`: trying to create a file that is not there gives "permission denied".
pub(super) fn write_file(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).truncate(true).open(path)?.write_all(text.as_bytes())
}

/// The best mount point of tracefs in the text of `/proc/self/mounts`.
fn mounted(mounts: &str) -> Option<PathBuf> {
    const USUAL: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let mut points = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (point, kind) = (words.nth(1)?, words.next()?);
        (kind == "tracefs").then(|| unescape(point))
    });
    let all: Vec<PathBuf> = points.by_ref().collect();
    let usual = USUAL.iter().map(Path::new).find(|usual| all.iter().any(|point| point == usual));
    usual.map(Path::to_path_buf).or_else(|| all.into_iter().next())
}

/// `/mnt/a\040b` → `/mnt/a b` (proc(5): blank, tab, line feed and backslash are octal).
fn unescape(text: &str) -> PathBuf {
    let mut out = text.to_string();
    for (code, character) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        out = out.replace(code, character);
    }
    PathBuf::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_point_is_found() {
        let mounts = "proc /proc proc rw 0 0\nnone /mnt/a\\040b tracefs rw 0 0\n";
        assert_eq!(mounted(mounts), Some(PathBuf::from("/mnt/a b")));
        let usual =
            "tracefs /sys/kernel/debug/tracing tracefs rw 0 0\ntracefs /sys/kernel/tracing tracefs rw 0 0\n";
        assert_eq!(mounted(usual), Some(PathBuf::from("/sys/kernel/tracing")));
        assert_eq!(mounted("proc /proc proc rw 0 0\n"), None);
    }

    #[test]
    fn names_stay_inside_their_directory() {
        let name = EventName::parse("sched:sched_switch").unwrap();
        assert_eq!((name.system.as_str(), name.to_string().as_str()), ("sched", "sched:sched_switch"));
        for text in ["sched", ":x", "x:", "../..:x", "x:../y", "a/b:c"] {
            assert_eq!(EventName::parse(text), None, "{text}");
        }
    }
}
