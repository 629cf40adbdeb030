// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Complaints of the kernel while the tests ran.

use std::process::Command;

use crate::outcome::Outcome;

const COMPLAINTS: [&str; 9] = [
    "WARNING:",
    "BUG:",
    "Oops",
    "general protection",
    "soft lockup",
    "hard LOCKUP",
    "rcu: INFO",
    "blocked for more than",
    "RT throttling activated",
];

/// Faults of kernels that tools of others meet, too. ext4 of 6.18 demands a lock, once after each start, when a page is read for a uprobe: seen
/// with bpftrace. And what a test's program has coming: it makes every system call, rt_sigreturn(2) with whatever is on its stack among them.
const KNOWN: [&str; 2] = ["ext4_check_map_extents_env", "traps: rtscope-every-c["];

/// The kernel's log as it was before the tests.
#[derive(Debug)]
pub struct KernelLog(Option<Vec<String>>);

impl KernelLog {
    /// Reads the log now.
    pub fn read() -> Self {
        let output = Command::new("dmesg").output().ok().filter(|output| output.status.success());
        KernelLog(output.map(|o| String::from_utf8_lossy(&o.stdout).lines().map(str::to_owned).collect()))
    }

    /// Reads the log again and looks for complaints in what is new.
    pub fn check(&self) -> Outcome {
        let (Some(before), Some(after)) = (&self.0, Self::read().0) else {
            return Outcome::Skip("dmesg cannot be read (root, or kernel.dmesg_restrict=0)".into());
        };
        let complaints: Vec<&str> = complaints(before, &after).collect();
        if complaints.is_empty() { Outcome::Pass } else { Outcome::Fail(complaints.join("\n    ")) }
    }
}

/// Lines of `after` that came after the last line of `before` and are complaints.
pub fn complaints<'a>(before: &[String], after: &'a [String]) -> impl Iterator<Item = &'a str> + use<'a> {
    let seen =
        before.last().and_then(|last| after.iter().rposition(|line| line == last)).map_or(0, |i| i + 1);
    let is_complaint = |line: &&str| COMPLAINTS.iter().any(|complaint| line.contains(complaint));
    let is_known = |line: &&str| KNOWN.iter().any(|known| line.contains(known));
    after[seen..].iter().map(String::as_str).filter(is_complaint).filter(move |line| !is_known(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn only_new_complaints_count() {
        let before = lines("[1] WARNING: old\n[2] fine");
        let after = lines("[1] WARNING: old\n[2] fine\n[3] usb\n[4] BUG: new");
        assert_eq!(complaints(&before, &after).collect::<Vec<_>>(), ["[4] BUG: new"]);
        assert_eq!(complaints(&before, &before).count(), 0);
        assert_eq!(complaints(&[], &after).count(), 2);
        let known =
            lines("[5] WARNING: CPU: 0 PID: 7 at fs/ext4/inode.c:460 ext4_check_map_extents_env+0xbc/0xd0");
        assert_eq!(complaints(&[], &known).count(), 0);
    }
}
