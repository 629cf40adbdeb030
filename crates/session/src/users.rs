// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Users, as people know them.

/// The name of a user, if this machine has one.
#[must_use]
pub fn name(uid: u32) -> Option<String> {
    nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
}

/// The number, which options take, and the name.
#[must_use]
pub fn shown(uid: u32) -> String {
    name(uid).map_or_else(|| uid.to_string(), |name| format!("{uid} ({name})"))
}

/// Whether a process may have files in the directory of a user: it has one of its ids, or once was root's. A number is what whoever wrote a
/// file says. `true` where that cannot be told: the process has ended.
pub(crate) fn may_be_of(pid: u32, uid: u32) -> bool {
    let Ok(status) = std::fs::read(format!("/proc/{pid}/status")) else { return true };
    let status = String::from_utf8_lossy(&status);
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    uid == 0 || ids.split_whitespace().any(|id| id == uid.to_string())
}
