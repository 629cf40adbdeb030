// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Weights and limits of CPU time that control groups have. The scheduler of mode artis does not know them, so those that
//! are set are reported.

use rtscope_shield::System;
use std::fmt;

/// Where control groups are, those of version 2, and by controller those of version 1.
const DIRECTORY: &str = "/sys/fs/cgroup";
/// Settings, and what they are where nobody has set anything.
const SETTINGS: [(&str, &str); 5] = [
    ("cpu.weight", "100"),
    ("cpu.max", "max"),
    ("cpu.idle", "0"),
    ("cpu.shares", "1024"),
    ("cpu.cfs_quota_us", "-1"),
];
/// This many are named.
const NAMED: usize = 3;

/// Settings of control groups that mean nothing while the scheduler runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct IgnoredSettings(Vec<String>);

impl IgnoredSettings {
    /// Looks for them.
    pub fn find(system: &System) -> IgnoredSettings {
        let mut files = Vec::new();
        groups(system, DIRECTORY, &mut files);
        files.sort_unstable();
        IgnoredSettings(files)
    }

    /// Nobody has set anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A group's settings, and those of the groups in it.
fn groups(system: &System, directory: &str, found: &mut Vec<String>) {
    for (name, usual) in SETTINGS {
        let file = format!("{directory}/{name}");
        let value = system.read(&file).unwrap_or_default();
        // A limit has its period behind it.
        if value.split_whitespace().next().is_some_and(|value| value != usual) {
            found.push(file);
        }
    }
    let Ok(entries) = std::fs::read_dir(system.path(directory)) else { return };
    // Not links: version 1 has some from one controller to another.
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        groups(system, &format!("{directory}/{}", entry.file_name().to_string_lossy()), found);
    }
}

impl fmt::Display for IgnoredSettings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.0.len() > NAMED { ", …" } else { "" };
        let named: Vec<&str> = self.0.iter().take(NAMED).map(String::as_str).collect();
        write!(
            out,
            "{} weights or limits of control groups are ignored while the scheduler lends CPUs ({}{more}); nice values still apply",
            self.0.len(),
            named.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_what_somebody_has_set_is_reported() {
        let directory = tempfile::tempdir().expect("a directory");
        let system = System::new(directory.path());
        let write = |file: &str, text: &str| {
            let path = system.path(&format!("/sys/fs/cgroup/{file}"));
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(path, text).expect("written");
        };
        for group in ["a", "a/b", "c"] {
            write(&format!("{group}/cpu.weight"), "100\n");
            write(&format!("{group}/cpu.max"), "max 100000\n");
            write(&format!("{group}/cpu.idle"), "0\n");
        }
        assert!(IgnoredSettings::find(&system).is_empty());
        write("a/b/cpu.max", "50000 100000\n");
        write("c/cpu.weight", "300\n");
        let text = IgnoredSettings::find(&system).to_string();
        assert!(text.starts_with("2 weights or limits"), "{text}");
        assert!(text.contains("/a/b/cpu.max, /sys/fs/cgroup/c/cpu.weight)"), "{text}");
        for group in ["d", "e"] {
            write(&format!("{group}/cpu.shares"), "2\n");
        }
        assert!(IgnoredSettings::find(&system).to_string().contains(", …)"));
    }
}
