// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel modules in the machines of `./x vm`: the distribution's, and those of `testkit/modules`.
//!
//! A test states which ones it needs in its line `// NEEDS: module NAME`; these are in its guest (xtask/src/vm/modules.rs). On a
//! developer's machine nothing is ever loaded.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{machine, skip};

/// A module that is loaded until this is dropped.
#[derive(Debug)]
pub struct Module {
    name: String,
    /// Whether it was not there before.
    loaded: bool,
}

/// Loads a module and what it depends on; `None`, and the reason reported, where that cannot be.
///
/// # Panics
///
/// If the module is there and the kernel does not take it.
pub fn load(name: &str) -> Option<Module> {
    load_with(name, &[])
}

/// The same with parameters, each `name=value`.
pub fn load_with(name: &str, parameters: &[&str]) -> Option<Module> {
    if !machine::is_emulated() {
        skip::say("kernel modules are loaded in ./x vm only");
        return None;
    }
    if let Some(reason) = missing(name) {
        skip::say(reason);
        return None;
    }
    let module = Path::new("/sys/module").join(name);
    let loaded = !module.exists();
    if loaded {
        let output = Command::new("modprobe").arg(name).args(parameters).output().expect("busybox has it");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && module.exists(), "modprobe {name}: {errors}");
    }
    Some(Module { name: name.to_owned(), loaded })
}

/// What the host reports to be missing on this kernel.
fn missing(name: &str) -> Option<String> {
    let text = fs::read_to_string(directory().join("missing")).unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(missing, _)| *missing == name).map(|(_, reason)| reason.to_owned())
}

/// Where the modules of the running kernel are.
fn directory() -> PathBuf {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("every kernel has a name");
    Path::new("/lib/modules").join(release.trim())
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.loaded {
            // One that is still used stays.
            let _ = Command::new("modprobe").args(["-r", &self.name]).output();
        }
    }
}
