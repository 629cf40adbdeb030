// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Uprobes: breakpoints of the kernel's in the code of programs, each of which is an event of ftrace.
//!
//! They are defined for the whole machine, in a group that is named after an instance of ours: who owns that owns them, and they go when it
//! goes. The file that lists them (`uprobe_events`) is everybody's: opening it to write it anew would remove the probes of others, so lines
//! are only ever appended.

use super::error::TracefsError;
use super::instance::last_message;
use super::mount::{EventName, Tracefs, read_file};
use super::sweep;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const LIST: &str = "uprobe_events";
/// Characters of a function's name in the kernel's name of a probe, which has at most 63.
const NAME_CHARS: usize = 40;

/// A place in the code of programs.
#[derive(Clone, Debug)]
pub struct UprobePlace {
    /// The file, open: it is the one that was looked into, whatever its name has become since, and whatever characters are in that.
    pub file: Arc<File>,
    /// Where in the file.
    pub file_offset: u64,
    /// What people call it. The kernel's name has what it takes of that.
    pub name: String,
}

/// The group of an instance's probes: its name, with what the kernel allows there.
pub(super) fn group_of(instance: &str) -> String {
    instance.replace('-', "_")
}

/// The instance that owns a group, if it has a name like ours.
pub(super) fn instance_of(group: &str) -> Option<String> {
    let instance = group.replace('_', "-");
    (!group.contains('-') && sweep::owner(&instance).is_some()).then_some(instance)
}

impl EventName {
    /// Whether it is a uprobe of some recording of rtscope's, which goes with that.
    #[must_use]
    pub fn is_own_uprobe(&self) -> bool {
        instance_of(&self.system).is_some()
    }
}

/// Defines places in a group; gives their events, in order. Where one is refused, those before it stay: the caller removes the group.
pub(super) fn define(
    tracefs: &Tracefs,
    group: &str,
    places: &[UprobePlace],
) -> Result<Vec<EventName>, TracefsError> {
    let path = list_of(tracefs);
    let mut list = append_to(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => TracefsError::NoUprobes,
        io::ErrorKind::PermissionDenied => TracefsError::NotYours { path: path.clone() },
        _ => TracefsError::writing("define places in programs", &path, error),
    })?;
    let mut events = Vec::with_capacity(places.len());
    for (number, place) in places.iter().enumerate() {
        let name = event_name(number, &place.name);
        let (file, offset) = (place.file.as_raw_fd(), place.file_offset);
        // One write each: what is refused is known.
        let line = format!("p:{group}/{name} /proc/self/fd/{file}:0x{offset:x}\n");
        list.write_all(line.as_bytes())
            .map_err(|error| TracefsError::Uprobe { place: place.name.clone(), why: why(tracefs, &error) })?;
        events.push(EventName { system: group.to_owned(), name });
    }
    Ok(events)
}

/// In the kernel's words, where it has some.
fn why(tracefs: &Tracefs, error: &io::Error) -> String {
    let log = read_file(&tracefs.root().join("error_log")).unwrap_or_default();
    let said = last_message(&log).filter(|_| error.kind() == io::ErrorKind::InvalidInput);
    said.map_or_else(|| error.to_string(), |said| format!("{error} ({said})"))
}

/// Removes the probes of the groups for which this is true; gives those groups. One that somebody uses stays.
pub(super) fn remove(
    tracefs: &Tracefs,
    is_meant: impl Fn(&str) -> bool,
) -> Result<Vec<String>, TracefsError> {
    let path = list_of(tracefs);
    // Where there are none, or we may not see them, there is nothing of ours.
    let Ok(listed) = read_file(&path) else { return Ok(Vec::new()) };
    let probes: Vec<(&str, &str)> =
        listed.lines().filter_map(probe).filter(|(group, _)| is_meant(group)).collect();
    if probes.is_empty() {
        return Ok(Vec::new());
    }
    let failed = |error| TracefsError::writing("remove places in programs", &path, error);
    let mut list = append_to(&path).map_err(failed)?;
    let mut groups = Vec::new();
    let mut refused = None;
    for (group, name) in probes {
        match list.write_all(format!("-:{group}/{name}\n").as_bytes()) {
            // Gone already: two sweeps can meet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                refused = Some(TracefsError::UprobesInUse(group.to_owned()));
            }
            Err(error) => refused = Some(failed(error)),
            Ok(()) => groups.push(group.to_owned()),
        }
    }
    groups.dedup();
    refused.map_or(Ok(groups), Err)
}

fn list_of(tracefs: &Tracefs) -> PathBuf {
    tracefs.root().join(LIST)
}

/// Without truncating it, which would remove all probes of everybody.
fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(path)
}

/// `p:GROUP/NAME PATH:0x…` or `r:…`, which others make.
fn probe(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("p:")?.split(' ').next()?.split_once('/')
}

fn event_name(number: usize, name: &str) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let name: String = name.chars().take(NAME_CHARS).map(clean).collect();
    format!("p{number}_{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_belong_to_instances() {
        assert_eq!(instance_of(&group_of("rtscope-12-34-0")).as_deref(), Some("rtscope-12-34-0"));
        for foreign in
            ["uprobes", "rtscope", "rtscope_1_2", "rtscope_1_2_x", "rtscope-1-2-3", "rtscope_1_2_3_4"]
        {
            assert_eq!(instance_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn names_are_such_as_the_kernel_takes() {
        assert_eq!(event_name(3, "std::vector<int>+0x10"), "p3_std__vector_int__0x10");
        assert!(event_name(999_999, &"ü".repeat(300)).len() <= 63);
        assert_eq!(probe("p:a/b /bin/sh:0x10 x=1"), Some(("a", "b")));
        assert_eq!(probe("r:a/b /bin/sh:0x10"), None);
    }
}
