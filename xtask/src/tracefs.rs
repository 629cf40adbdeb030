// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's trace file system, which a third of the privileged tests need and minimal systems do not mount.

use std::path::Path;
use std::process::Command;

const PLACE: &str = "/sys/kernel/tracing";

/// Mounted for the tests; unmounted when dropped if it was not mounted before.
#[derive(Debug)]
pub struct Tracefs {
    mounted_here: bool,
}

impl Tracefs {
    /// Mounts it if root may. Where that fails the tests that need it say so.
    pub fn mount() -> Tracefs {
        let is_there = Path::new(PLACE).join("events").is_dir();
        let mount = || Command::new("mount").args(["-t", "tracefs", "nodev", PLACE]).output();
        Tracefs { mounted_here: !is_there && mount().is_ok_and(|output| output.status.success()) }
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        if self.mounted_here {
            // Somebody may still look into it; then it stays.
            let _ = Command::new("umount").arg(PLACE).output();
        }
    }
}
