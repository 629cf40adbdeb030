// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which QEMU emulates a guest.
//!
//! This machine's, but in virtual time: there 7.2 lets the first CPU go on and on, because what it gives to the next one is what is left
//! until the next timer, and that is nothing; 10.0 divides that time (`icount_percpu_budget`). On Debian 12, which has 7.2, the
//! one of its backports is fetched as kernels are, and unpacked into the cache.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::apt::Apt;
use super::kernels;

/// The emulator.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// The oldest that was tried and is fair in virtual time.
const FAIR: (u32, u32) = (10, 0);
/// Where a newer one is for this machine's Debian.
const SUITE: &str = "bookworm-backports";
/// What it needs beside the libraries that every QEMU needs.
const PACKAGES: [&str; 3] = ["qemu-system-x86", "qemu-system-data", "seabios"];

/// An emulator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qemu {
    program: PathBuf,
    /// Where its firmware is; empty: where it looks by itself.
    folders: Vec<PathBuf>,
}

impl Qemu {
    /// This machine's.
    pub fn installed() -> Qemu {
        Qemu { program: PROGRAM.into(), folders: Vec::new() }
    }

    /// One for virtual time: this machine's if it is new enough, or one that was or is fetched.
    pub fn for_virtual_time(cache: &Path) -> Result<Qemu> {
        let installed = Qemu::installed();
        if installed.version().is_some_and(|version| version >= FAIR) {
            return Ok(installed);
        }
        let tree = cache.join("qemu");
        let _lock = kernels::lock(cache)?;
        if Qemu::unpacked(&tree).version().is_none() {
            Apt::new(cache)?.unpack_all(SUITE, &PACKAGES, &tree).context("QEMU 10.0 or newer")?;
        }
        keep_together(&tree)?;
        let fetched = Qemu::unpacked(&tree);
        ensure!(
            fetched.version().is_some_and(|version| version >= FAIR),
            "virtual time needs QEMU {}.{} or newer, and the one of {SUITE} does not run here",
            FAIR.0,
            FAIR.1
        );
        Ok(fetched)
    }

    fn unpacked(tree: &Path) -> Qemu {
        let folders = ["usr/share/qemu", "usr/share/seabios"].map(|folder| tree.join(folder));
        Qemu { program: tree.join("usr/bin").join(PROGRAM), folders: folders.to_vec() }
    }

    /// To be completed with what it shall emulate. It leaves the CPUs to tests on this machine: a guest's times mean nothing. It ends with the thread that
    /// started it, also when that is killed.
    pub fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "nice", "-n", "10", "--"]).arg(&self.program);
        for folder in &self.folders {
            command.arg("-L").arg(folder);
        }
        command
    }

    /// `None`: it does not run here.
    pub fn version(&self) -> Option<(u32, u32)> {
        let output = self.command().arg("--version").stdin(Stdio::null()).output().ok()?;
        version(&String::from_utf8_lossy(&output.stdout))
    }
}

/// What is named `qemu-bundle` beside the program is where QEMU looks for its parts, instead of in `/usr`. There the modules of the
/// installed one are, which are not its own: it ends with a failed assertion where it finds those of `qemu-system-gui`.
fn keep_together(tree: &Path) -> Result<()> {
    let bundle = tree.join("usr/bin/qemu-bundle");
    if !bundle.is_symlink() {
        symlink("../..", &bundle).with_context(|| bundle.display().to_string())?;
    }
    Ok(())
}

/// "QEMU emulator version 7.2.22 (Debian …)"
fn version(text: &str) -> Option<(u32, u32)> {
    let (_, rest) = text.split_once(" version ")?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared() {
        assert_eq!(version("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright"), Some((7, 2)));
        assert_eq!(version("QEMU emulator version 10.0.2 (x)"), Some((10, 0)));
        assert_eq!(version("no such thing"), None);
        assert!(
            [(11, 0), (10, 0), (9, 2), (7, 2)].map(|version| version >= FAIR) == [true, true, false, false]
        );
    }
}
