// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who started a process, and who is trusted.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// Whether something of this user's is believed: it is root, this user, or who has become root by sudo(8).
#[must_use]
pub fn is_trusted(uid: u32) -> bool {
    let by_sudo = || std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    uid == 0 || uid == nix::unistd::geteuid().as_raw() || by_sudo() == Some(uid)
}

/// Who started a process: who owns `/proc/PID`; its real user where that is root, since it is where a program says that it is not to be dumped. For the
/// latter the kernel writes all groups that the process is in, which can take 17 ms. `None`: it has ended.
#[must_use]
pub fn user_of(pid: u32) -> Option<u32> {
    match fs::metadata(format!("/proc/{pid}")).ok()?.uid() {
        // With a name in it, which need not be text.
        0 => real_user(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/status")).ok()?)),
        user => Some(user),
    }
}

fn real_user(status: &str) -> Option<u32> {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_user_and_root_are_trusted() {
        assert!(is_trusted(0) && is_trusted(nix::unistd::geteuid().as_raw()) && !is_trusted(u32::MAX));
    }

    #[test]
    fn the_real_user_is_the_first_number() {
        assert_eq!(real_user("Name:\ta\nUid:\t1000\t0\t0\t0\nGid:\t5\t5\t5\t5\n"), Some(1000));
        assert_eq!(user_of(std::process::id()), Some(nix::unistd::getuid().as_raw()));
        assert_eq!(user_of(u32::MAX), None);
        // Its name need not be text.
        let name = fs::read("/proc/self/comm").unwrap();
        fs::write("/proc/self/comm", [0xff]).unwrap();
        assert_eq!(user_of(std::process::id()), Some(nix::unistd::getuid().as_raw()));
        fs::write("/proc/self/comm", name).unwrap();
    }
}
