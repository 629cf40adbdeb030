// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A target that is watched by its number: a watch ends with it, as the kernel gives its number to others.

use crate::Failure;
use rtscope_event::Tid;
use rtscope_kernel::task_life;
use std::fs;

/// The process or thread of `--pid` or `--tid`.
#[derive(Clone, Copy, Debug)]
pub struct Numbered {
    number: u32,
    is_process: bool,
    /// In ticks since boot: with the number it is of no other.
    started: u64,
}

impl Numbered {
    /// `None`: none is named by its number. A thread goes before its process.
    ///
    /// # Errors
    /// When there is none with this number.
    pub fn of(pid: Option<u32>, tid: Option<u32>) -> Result<Option<Numbered>, Failure> {
        let refuse = |text: String| Err(Failure::Usage(text));
        // It is in execve(2), which its user can make as long as he likes, or has no CPU for that.
        let life = |number: u32| {
            task_life(Tid(number)).map_err(|why| Failure::Usage(format!("{number}: {why}; try again later")))
        };
        if let Some(pid) = pid {
            if life(pid)?.is_none() {
                return refuse(format!("there is no process {pid} (--pid)"));
            }
        }
        if let Some(pid) = pid.filter(|pid| !is_process(*pid)) {
            return refuse(format!(
                "{pid} is a thread; --pid takes its process, which /proc/{pid}/status calls Tgid"
            ));
        }
        let Some(number) = tid.or(pid) else { return Ok(None) };
        match life(number)? {
            Some((_, started)) => Ok(Some(Numbered { number, is_process: tid.is_none(), started })),
            None => refuse(format!("there is no thread {number} (--tid)")),
        }
    }

    /// Whether nothing of it runs any more. A process may outlive its first thread.
    pub fn has_ended(self) -> bool {
        match task_life(Tid(self.number)) {
            Ok(Some((state, started))) if started == self.started => {
                has_ended(state) && !(self.is_process && self.has_threads())
            }
            // Who does not answer is there.
            answer => answer.is_ok(),
        }
    }

    fn has_threads(self) -> bool {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.number)) else { return false };
        let tids = threads.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        tids.map(|tid| task_life(Tid(tid))).any(|life| match life {
            Ok(life) => life.is_some_and(|(state, _)| !has_ended(state)),
            Err(_) => true,
        })
    }
}

impl std::fmt::Display for Numbered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", if self.is_process { "process" } else { "thread" }, self.number)
    }
}

fn has_ended(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

/// `/proc/N` also exists for threads.
fn is_process(pid: u32) -> bool {
    // Its name need not be text.
    fs::read(format!("/proc/{pid}/status")).is_ok_and(|status| {
        String::from_utf8_lossy(&status)
            .lines()
            .any(|line| line.split_whitespace().eq(["Tgid:", &pid.to_string()]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel cuts names to 15 bytes, in the middle of a letter where that is. Such a process was taken for a thread.
    #[test]
    fn a_process_whose_name_is_no_text_is_one() {
        let mut child = crate::test_processes::nameless();
        assert!(is_process(child.id()));
        child.kill().expect("it runs");
        child.wait().expect("it is ours");
    }
}
