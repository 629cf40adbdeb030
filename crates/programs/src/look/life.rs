// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which process left a file, whether it lives, and how its clocks differ from this process's.
//!
//! A number alone names no process: it can be used again. When a process is first seen its start is compared with the time in the
//! name of its files, and retained: later only the process with this very start is the same one. The time in the name is that of the
//! program's time namespace, where CLOCK_MONOTONIC and CLOCK_BOOTTIME have offsets (time_namespaces(7)); counters have none.

use crate::is_shortage;
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

/// The offsets of time namespaces. Of others' nothing is kept: the kernel gives the number of one that is gone to another user's.
#[derive(Debug, Default)]
pub(crate) struct TimeNamespaces {
    own: Option<(u64, Offsets)>,
}

impl TimeNamespaces {
    /// The offsets of a process; `None`: not known.
    pub(crate) fn of(&mut self, pid: u32) -> Option<Offsets> {
        let (own, own_offsets) = match self.own {
            Some(own) => own,
            // Without time namespaces there are no offsets.
            None => {
                let Some(namespace) = inode("self", "time") else { return Some(Offsets::default()) };
                let offsets = read(&std::process::id().to_string()).unwrap_or_default();
                *self.own.insert((namespace, offsets))
            }
        };
        let process = pid.to_string();
        let namespace = inode(&process, "time")?;
        if namespace == own {
            return Some(Offsets::default());
        }
        // The kernel shows those of the namespace that children get. After unshare(2) that is another one than the process's.
        let is_its_own = inode(&process, "time_for_children") == Some(namespace);
        is_its_own.then(|| read(&process)).flatten().map(|offsets| offsets.less(own_offsets))
    }

    /// The offsets of a process that is gone, or does not show its own, by what it said itself: the inode number of its time namespace (0: not known), and that
    /// namespace's offsets. A lie puts its own events into another time.
    pub(crate) fn claimed(&mut self, (namespace, offsets): (u64, Offsets)) -> Offsets {
        // For this process's own.
        let _ = self.of(std::process::id());
        match self.own {
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
    /// Not known, for lack of file descriptors or memory.
    Unknown,
}

impl KnownProcess {
    /// Recognises the process with this number as the one that made its files at `birth_ns`, by its own CLOCK_BOOTTIME. `Ok(None)`: it is
    /// another one, or there is none.
    pub(crate) fn recognise(
        pid: u32,
        birth_ns: u64,
        offsets: Option<Offsets>,
    ) -> Result<Option<KnownProcess>, Life> {
        let Some((state, start_ticks)) = stat(pid)? else { return Ok(None) };
        // SAFETY: sysconf(3) takes no pointer; this asks for a constant.
        let rate = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1).unsigned_abs();
        let start_ns = i128::from(start_ticks) * i128::from(1_000_000_000 / rate);
        let birth_ns = offsets.map(|offsets| i128::from(birth_ns) - i128::from(offsets.boottime_ns));
        // With unknown offsets the time in the name tells nothing.
        let is_same = birth_ns.is_none_or(|birth_ns| start_ns <= birth_ns + TICKS_NS);
        Ok((is_same && !has_ended(state)).then_some(KnownProcess { pid, start_ticks }))
    }

    /// Whether it still runs.
    pub(crate) fn life(self) -> Life {
        match stat(self.pid) {
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

    #[test]
    fn offsets_are_read_as_the_kernel_shows_them() {
        let text = "monotonic         600         0\nboottime           -7 500000000\n";
        let offsets = Offsets { monotonic_ns: 600_000_000_000, boottime_ns: -6_500_000_000 };
        assert_eq!(parse(text), Some(offsets));
        assert_eq!(parse("monotonic 1"), None);
        assert_eq!(TimeNamespaces::default().of(std::process::id()), Some(Offsets::default()));
    }

    #[test]
    fn a_process_is_recognised_by_its_start() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).unwrap();
        let now = now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs();
        let recognise = |birth_ns: u64, boottime_ns: i64| {
            let offsets = Offsets { monotonic_ns: 0, boottime_ns };
            KnownProcess::recognise(child.id(), birth_ns, Some(offsets)).unwrap()
        };
        let known = recognise(now, 0).unwrap();
        // Files that were made before it started are of an earlier process of its number.
        assert_eq!(recognise(now - 1_000_000_000, 0), None);
        // In a time namespace that is a minute behind, and in one that is ahead.
        assert_eq!(recognise(now - 60_000_000_000, -60_000_000_000), Some(known));
        assert_eq!(recognise(now + 59_000_000_000, 60_000_000_000), None);
        assert_eq!(known.life(), Life::Running);
        assert_eq!(KnownProcess { start_ticks: known.start_ticks + 1, ..known }.life(), Life::Ended);
        child.kill().unwrap();
        // A zombie, which its parent has not waited for, has ended, too.
        while known.life() == Life::Running {}
        assert_eq!(known.life(), Life::Ended);
        child.wait().unwrap();
        assert_eq!(known.life(), Life::Ended);
    }
}
