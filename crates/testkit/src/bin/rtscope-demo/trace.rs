// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens the saved traces with a reader that knows nothing of rtscope.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// A saved trace as babeltrace2 sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedTrace {
    pub name: String,
    /// Lines that babeltrace2 printed: one per event.
    pub events: usize,
    /// What it printed on standard error: nothing, when the trace is as it should be.
    pub complaints: String,
    pub success: bool,
}

impl SavedTrace {
    /// Whether babeltrace2 read it without complaints.
    pub fn is_clean(&self) -> bool {
        self.success && self.complaints.is_empty() && self.events > 0
    }
}

impl fmt::Display for SavedTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "saved trace {}: babeltrace2 reads {} events", self.name, self.events)?;
        if self.is_clean() {
            f.write_str(" and prints nothing on standard error")
        } else {
            write!(f, ", and complains: {}", self.complaints.trim_end())
        }
    }
}

/// Opens every trace below a directory.
pub fn open_all(directory: &Path) -> Result<Vec<SavedTrace>> {
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut traces = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            traces.push(open(&path)?);
        }
    }
    traces.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(traces)
}

fn open(directory: &Path) -> Result<SavedTrace> {
    let output = Command::new("babeltrace2")
        .arg(directory)
        .output()
        .context("cannot start babeltrace2 (./x setup installs it)")?;
    Ok(SavedTrace {
        name: directory.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        events: output.stdout.iter().filter(|&&byte| byte == b'\n').count(),
        complaints: String::from_utf8_lossy(&output.stderr).into_owned(),
        success: output.status.success(),
    })
}
