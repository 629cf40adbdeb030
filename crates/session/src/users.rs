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
