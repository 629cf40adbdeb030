// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which process left a file, whether it lives, and how its clocks differ from this process's.
//!
//! A number alone names no process: it can be used again. When a process is first seen its start is compared with the time in the
//! name of its files, and retained: later only the process with this very start is the same one. The time in the name is that of the
//! program's time namespace, where CLOCK_MONOTONIC and CLOCK_BOOTTIME have offsets (time_namespaces(7)); counters have none.
//!
//! A process can keep all of this from being read for as long as its user likes (`rtscope_procs`): then nothing is known of it, it passes for running, and
//! so does whatever else that user's files name until it answers.

use crate::budget::ANSWER;
use crate::is_shortage;
use crate::namespaces::{Ended, user_of};
use nix::sys::stat::makedev;
use rtscope_procs::{NotRead, Reader};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Tolerance of some clock ticks: the kernel reports a process's start in hundredths of a second.
const TICKS_NS: i128 = 30_000_000;

/// What clocks in a time namespace show more than those of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offsets {
    /// Of CLOCK_MONOTONIC.
    pub(crate) monotonic_ns: i64,
    /// Of CLOCK_BOOTTIME.
    pub(crate) boottime_ns: i64,
}

/// A file's device and inode number.
type FileId = (u64, u64);

/// What a process has mapped. `Ok(None)`: that may not be read. `Err`: it does not answer.
type Mapped = Result<Option<HashSet<FileId>>, Life>;

/// What the process has mapped that was asked last: of one process there can be any number of files, and all of its mappings are read for each answer.
#[derive(Debug, Default)]
pub(super) struct MappedFiles(Option<(KnownProcess, Mapped)>);

impl MappedFiles {
    /// Whether this file is mapped there. `Ok(None)`: that may not be read.
    ///
    /// # Errors
    /// When the process does not answer.
    pub(super) fn has(
        &mut self,
        file: FileId,
        known: KnownProcess,
        (processes, user): (&mut Processes, u32),
    ) -> Result<Option<bool>, Life> {
        let last = self.0.take().filter(|(whose, _)| *whose == known);
        let (_, files) =
            self.0.insert(last.unwrap_or_else(|| (known, processes.mapped_files(user, known.pid))));
        match files {
            Ok(files) => Ok(files.as_ref().map(|files| files.contains(&file))),
            Err(life) => Err(*life),
        }
    }
}

/// What is known of processes, of which each question is asked for a user: him on whose account it is.
#[derive(Debug)]
pub(crate) struct Processes {
    /// The time namespace of this process. Of others' nothing is kept: the kernel gives the number of one that is gone to another user's.
    own: Option<(u64, Offsets)>,
    reader: Reader,
    /// Users, with a process of theirs that did not answer, which has not been told.
    silent: Vec<(u32, u32)>,
}

impl Default for Processes {
    fn default() -> Processes {
        Processes { own: None, reader: Reader::new("processes"), silent: Vec::new() }
    }
}

/// What is read of a process.
#[derive(Clone, Copy, Debug)]
struct Facts {
    /// `None`: there is none.
    stat: Result<Option<(char, u64)>, Life>,
    /// The number of its time namespace, and that one's offsets, if they are shown.
    time: Option<(u64, Option<Offsets>)>,
}

impl Facts {
    fn read(pid: u32) -> Facts {
        let process = pid.to_string();
        let time = inode(&process, "time").map(|namespace| {
            // The kernel shows those of the namespace that children get. After unshare(2) that is another one than the process's.
            let is_its_own = inode(&process, "time_for_children") == Some(namespace);
            (namespace, is_its_own.then(|| read(&process)).flatten())
        });
        Facts { stat: stat(pid), time }
    }
}

impl Processes {
    fn ask<T: Send + 'static>(
        &mut self,
        user: u32,
        pid: u32,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.reader.may_read(Some(user)).ok()?;
        match self.reader.attempt(ANSWER, read) {
            Ok(answer) => Some(answer),
            Err(NotRead::Hangs(hanging)) => {
                self.reader.leave(Some(user), hanging);
                self.silent.push((user, pid));
                None
            }
            Err(NotRead::Failed(_)) => None,
        }
    }

    /// Users of whom a process did not answer, with its number: each time once.
    pub(crate) fn take_silent(&mut self) -> Vec<(u32, u32)> {
        std::mem::take(&mut self.silent)
    }

    /// Recognises the process with this number as the one that made its files at `birth_ns`, by its own CLOCK_BOOTTIME, with the offsets of its clocks; if
    /// those are not shown, with the `claimed` ones. `Ok(None)`: it is another one, or there is none.
    pub(crate) fn recognise(
        &mut self,
        user: u32,
        (pid, birth_ns): (u32, u64),
        claimed: Option<Offsets>,
    ) -> Result<Option<(KnownProcess, Option<Offsets>)>, Life> {
        let facts = self.ask(user, pid, move || Facts::read(pid)).ok_or(Life::Unknown)?;
        let offsets = self.offsets(facts.time).or(claimed);
        let known = KnownProcess::recognise(pid, facts.stat?, birth_ns, offsets);
        Ok(known.map(|known| (known, offsets)))
    }

    /// Whether one still runs.
    pub(crate) fn life(&mut self, user: u32, known: KnownProcess) -> Life {
        let pid = known.pid;
        match self.ask(user, pid, move || stat(pid)) {
            None => Life::Unknown,
            Some(stat) => known.life(stat),
        }
    }

    fn mapped_files(&mut self, user: u32, pid: u32) -> Mapped {
        let maps = self.ask(user, pid, move || fs::read(format!("/proc/{pid}/maps")).ok());
        let files = |maps: Vec<u8>| String::from_utf8_lossy(&maps).lines().filter_map(mapped_file).collect();
        Ok(maps.ok_or(Life::Unknown)?.map(files))
    }

    /// Who made the mount namespace of a process: see [`user_of`]. `None`: it does not answer.
    pub(crate) fn maker_of_mounts(&mut self, user: u32, pid: u32) -> Option<Result<Option<u32>, Ended>> {
        self.ask(user, pid, move || user_of(pid))
    }

    fn own(&mut self) -> Option<(u64, Offsets)> {
        if self.own.is_none() {
            let offsets = read("self").unwrap_or_default();
            self.own = inode("self", "time").map(|namespace| (namespace, offsets));
        }
        self.own
    }

    /// The offsets of a process; `None`: not known.
    fn offsets(&mut self, time: Option<(u64, Option<Offsets>)>) -> Option<Offsets> {
        // Without time namespaces there are no offsets.
        let Some((own, own_offsets)) = self.own() else { return Some(Offsets::default()) };
        let (namespace, offsets) = time?;
        if namespace == own {
            return Some(Offsets::default());
        }
        offsets.map(|offsets| offsets.less(own_offsets))
    }

    /// The offsets of a process that is gone, or does not show its own, by what it said itself: the inode number of its time namespace (0: not known), and that
    /// namespace's offsets. A lie puts its own events into another time.
    pub(crate) fn claimed(&mut self, (namespace, offsets): (u64, Offsets)) -> Offsets {
        match self.own() {
            Some((own, own_offsets)) if namespace != 0 && namespace != own => offsets.less(own_offsets),
            _ => Offsets::default(),
        }
    }
}

impl Offsets {
    fn less(self, other: Offsets) -> Offsets {
        Offsets {
            monotonic_ns: self.monotonic_ns.saturating_sub(other.monotonic_ns),
            boottime_ns: self.boottime_ns.saturating_sub(other.boottime_ns),
        }
    }
}

/// The file of a line of proc_pid_maps(5): "BEGIN-END PERMISSIONS OFFSET MAJOR:MINOR INODE NAME".
fn mapped_file(line: &str) -> Option<FileId> {
    let mut fields = line.split_ascii_whitespace().skip(3);
    let (major, minor) = fields.next()?.split_once(':')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((makedev(number(major)?, number(minor)?), fields.next()?.parse().ok()?))
}

fn inode(process: &str, kind: &str) -> Option<u64> {
    Some(fs::metadata(format!("/proc/{process}/ns/{kind}")).ok()?.ino())
}

/// "monotonic  SECONDS NANOSECONDS", and the same for boottime.
fn read(process: &str) -> Option<Offsets> {
    parse(&fs::read_to_string(format!("/proc/{process}/timens_offsets")).ok()?)
}

fn parse(text: &str) -> Option<Offsets> {
    let of = |clock: &str| -> Option<i64> {
        let mut words = text.lines().find(|line| line.starts_with(clock))?.split_ascii_whitespace().skip(1);
        let (seconds, ns): (i64, i64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(seconds.saturating_mul(1_000_000_000).saturating_add(ns))
    };
    Some(Offsets { monotonic_ns: of("monotonic")?, boottime_ns: of("boottime")? })
}

/// A process that was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownProcess {
    /// Its number in this PID namespace.
    pub(crate) pid: u32,
    /// Its start, in clock ticks since boot.
    start_ticks: u64,
}

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It runs.
    Running,
    /// It has ended, or another process has its number.
    Ended,
    /// Not known, for lack of file descriptors or memory, or since it does not answer.
    Unknown,
}

impl KnownProcess {
    fn recognise(
        pid: u32,
        stat: Option<(char, u64)>,
        birth_ns: u64,
        offsets: Option<Offsets>,
    ) -> Option<KnownProcess> {
        let (state, start_ticks) = stat?;
        // SAFETY: sysconf(3) takes no pointer; this asks for a constant.
        let rate = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1).unsigned_abs();
        let start_ns = i128::from(start_ticks) * i128::from(1_000_000_000 / rate);
        let birth_ns = offsets.map(|offsets| i128::from(birth_ns) - i128::from(offsets.boottime_ns));
        // With unknown offsets the time in the name tells nothing.
        let is_same = birth_ns.is_none_or(|birth_ns| start_ns <= birth_ns + TICKS_NS);
        (is_same && !has_ended(state)).then_some(KnownProcess { pid, start_ticks })
    }

    fn life(self, stat: Result<Option<(char, u64)>, Life>) -> Life {
        match stat {
            Err(life) => life,
            Ok(Some((state, ticks))) if ticks == self.start_ticks && !has_ended(state) => Life::Running,
            Ok(_) => Life::Ended,
        }
    }
}

fn has_ended(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

/// State and start of a process, from proc_pid_stat(5). `None`: there is none.
fn stat(pid: u32) -> Result<Option<(char, u64)>, Life> {
    let text = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        // A failure for lack of file descriptors tells nothing about the process.
        Err(error) if is_shortage(&error) => return Err(Life::Unknown),
        // Its name may be no text, and is not needed.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let bytes = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        }
        Err(_) => return Ok(None),
        Ok(text) => text,
    };
    // After the name, which may contain anything: the state, and as the 20th field the start in ticks since boot.
    let mut fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    let state = fields.next().and_then(|state| state.chars().next()).unwrap_or('X');
    Ok(fields.nth(18).and_then(|ticks| ticks.parse().ok()).map(|ticks| (state, ticks)))
}

/// The seccomp mode of a process.
pub(crate) fn seccomp(pid: u32) -> Option<u32> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: u32 = 1000;

    #[test]
    fn offsets_are_read_as_the_kernel_shows_them() {
        let text = "monotonic         600         0\nboottime           -7 500000000\n";
        let offsets = Offsets { monotonic_ns: 600_000_000_000, boottime_ns: -6_500_000_000 };
        assert_eq!(parse(text), Some(offsets));
        assert_eq!(parse("monotonic 1"), None);
        let mut processes = Processes::default();
        assert_eq!(processes.offsets(Facts::read(std::process::id()).time), Some(Offsets::default()));
    }

    #[test]
    fn a_file_is_mapped_or_is_not() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let status = file.metadata().unwrap();
        let id = (status.dev(), status.ino());
        let stat = stat(std::process::id()).unwrap().unwrap();
        let known = KnownProcess { pid: std::process::id(), start_ticks: stat.1 };
        let mut processes = Processes::default();
        let mut has = |known| MappedFiles::default().has(id, known, (&mut processes, USER));
        assert_eq!(has(known), Ok(Some(false)));
        let mapping = crate::memory::Mapping::new(&file, 4096).unwrap();
        assert_eq!(has(known), Ok(Some(true)));
        drop(mapping);
        assert_eq!(has(known), Ok(Some(false)));
        assert_eq!(has(KnownProcess { pid: u32::MAX, ..known }), Ok(None));
    }

    #[test]
    fn a_process_is_recognised_by_its_start() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).unwrap();
        let now = now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs();
        let (mut processes, id) = (Processes::default(), child.id());
        let recognise = |birth_ns: u64, boottime_ns: i64| {
            let offsets = Offsets { monotonic_ns: 0, boottime_ns };
            KnownProcess::recognise(id, stat(id).unwrap(), birth_ns, Some(offsets))
        };
        let known = recognise(now, 0).unwrap();
        let answer = processes.recognise(USER, (id, now), None).unwrap();
        assert_eq!(answer, Some((known, Some(Offsets::default()))));
        // Files that were made before it started are of an earlier process of its number.
        assert_eq!(recognise(now - 1_000_000_000, 0), None);
        // In a time namespace that is a minute behind, and in one that is ahead.
        assert_eq!(recognise(now - 60_000_000_000, -60_000_000_000), Some(known));
        assert_eq!(recognise(now + 59_000_000_000, 60_000_000_000), None);
        assert_eq!(processes.life(USER, known), Life::Running);
        let later = KnownProcess { start_ticks: known.start_ticks + 1, ..known };
        assert_eq!(processes.life(USER, later), Life::Ended);
        child.kill().unwrap();
        // A zombie, which its parent has not waited for, has ended, too.
        while processes.life(USER, known) == Life::Running {}
        assert_eq!(processes.life(USER, known), Life::Ended);
        child.wait().unwrap();
        assert_eq!(processes.life(USER, known), Life::Ended);
    }
}
