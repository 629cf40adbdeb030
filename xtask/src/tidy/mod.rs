// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The project's own rules as checks: what a reviewer would otherwise have to see.
//!
//! The rules are pure functions of file contents (`rules`, `promises`); this module reads the tree.

mod promises;
mod rules;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::outcome::{Outcome, Tally};

/// Folders that hold no sources of ours.
const NOT_OURS: [&str; 4] = [".git", "target", "bench-results", "LICENSES"];
/// Extensions of files that people read and write.
const TEXT: [&str; 7] = ["rs", "c", "h", "md", "toml", "sh", "yml"];

/// A file of the tree, its path relative to the root.
#[derive(Debug)]
pub struct File {
    pub path: String,
    pub text: String,
}

/// Adds the results of all rules.
pub fn add_all(root: &Path, tally: &mut Tally) -> Result<()> {
    let files = read_tree(root)?;
    for file in &files {
        rules::long_file_warning(file).into_iter().for_each(|warning| println!("warning: {warning}"));
    }
    for (name, rule) in rules::FILE_RULES {
        tally.add(name, verdict(files.iter().flat_map(rule).collect()));
    }
    tally.add("crates depend only on crates to their left", verdict(rules::layers(&files)));
    let (problems, pending) = promises::check(&files);
    for promise in pending {
        println!("warning: pending: {promise}");
    }
    tally.add("every promise names a test or benchmark that exists", verdict(problems));
    Ok(())
}

fn verdict(problems: Vec<String>) -> Outcome {
    if problems.is_empty() {
        Outcome::Pass
    } else {
        Outcome::Fail(format!("\n    {}", problems.join("\n    ")))
    }
}

/// All files below a folder, without build results.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_symlink() || NOT_OURS.iter().any(|n| name == *n) {
            continue;
        }
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

fn read_tree(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for path in files_below(root)? {
        let relative = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if TEXT.contains(&extension) || relative == "x" || relative == ".ci/run" {
            let text = fs::read_to_string(&path).with_context(|| relative.clone())?;
            files.push(File { path: relative, text });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}
