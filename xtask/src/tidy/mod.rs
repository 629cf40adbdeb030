// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The project's own rules as checks: what a reviewer would otherwise have to see.
//!
//! The rules are pure functions of file contents (`rules`, `promises`, `coverage`, `needs`, `links`) and of the functions found in them
//! (`catalogue`); this module reads the tree.

mod catalogue;
mod conditions;
mod coverage;
mod links;
mod needs;
mod promises;
mod rules;
mod targets;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use self::catalogue::Catalogue;
use self::conditions::Settings;
use crate::outcome::{Outcome, Tally};
use crate::{lint, lint_c};

/// Directories of the root that hold no sources of ours.
const NOT_OURS: [&str; 4] = [".git", "target", "bench-results", "LICENSES"];
/// Cargo marks its target directories with this file, so that backups leave them out.
const BUILD_RESULTS: &str = "CACHEDIR.TAG";
/// Where the jobs of `./x` are, which set conditions and features.
const JOBS: [&str; 3] = ["x", ".ci/run", "xtask/src/"];

/// A file of the tree, its path relative to the root.
#[derive(Debug)]
pub struct File {
    pub path: String,
    pub text: String,
}

/// Everything that is ours.
#[derive(Debug, Default)]
pub struct Tree {
    pub files: Vec<File>,
    /// Files that are not text.
    pub binaries: Vec<String>,
    /// Symbolic links, which are not followed.
    pub links: Vec<String>,
}

/// Adds the results of all rules.
pub fn add_all(root: &Path, tally: &mut Tally) -> Result<()> {
    let tree = read_tree(root)?;
    let files = &tree.files;
    for file in files {
        rules::long_file_warning(file).into_iter().for_each(|warning| println!("warning: {warning}"));
    }
    for (name, rule) in rules::FILE_RULES {
        tally.add(name, verdict(files.iter().flat_map(rule).collect()));
    }
    tally.add("crates depend only on crates to their left", verdict(rules::layers(files)));
    let lines = rules::command_lines(files);
    let name = format!("the command is small: {lines} of at most {} lines of code", rules::COMMAND_LINES);
    tally.add(&name, verdict(rules::large_command(lines)));
    let catalogue = Catalogue::of(files, &targets::read(root)?, &settings(files));
    tally.add("every module is found", verdict(catalogue.problems.clone()));
    tally.add("tests are run by libtest", verdict(targets::without_libtest(files)));
    let relative = |path: PathBuf| path.strip_prefix(root).unwrap_or(&path).display().to_string();
    let checked = coverage::CheckedFiles {
        rust: &catalogue.compiled,
        c: &lint_c::files()?.into_iter().map(relative).collect::<BTreeSet<String>>(),
        scripts: &lint::SCRIPTS,
    };
    tally.add("every file is checked by something", verdict(coverage::check(&tree, &checked)));
    let licences = files_below(&root.join("LICENSES"))?.into_iter().map(relative);
    let others: Vec<String> = tree.binaries.iter().cloned().chain(licences).collect();
    tally.add("links lead somewhere", verdict(links::check(files, &others)));
    tally.add("privileged tests say where they run", verdict(needs::check(files, &catalogue)));
    let (problems, pending) = promises::check(files, &catalogue);
    for promise in &pending {
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

/// What the jobs set. The rules themselves talk about it, and are none.
fn settings(files: &[File]) -> Settings {
    let is_job = |file: &&File| {
        JOBS.iter().any(|job| file.path.starts_with(job)) && !file.path.starts_with("xtask/src/tidy/")
    };
    let mut settings = Settings::default();
    files.iter().filter(is_job).for_each(|file| settings.add_from(&file.text));
    settings
}

/// All files below a directory, without build results.
pub fn files_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if !path.is_symlink() && path.is_dir() {
            if !path.join(BUILD_RESULTS).exists() {
                files.extend(files_below(&path)?);
            }
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// All files of ours, without build results.
pub fn files_of(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root).with_context(|| root.display().to_string())? {
        let path = entry?.path();
        if NOT_OURS.iter().any(|name| path == root.join(name)) {
            continue;
        }
        let is_directory = !path.is_symlink() && path.is_dir();
        if is_directory {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

fn read_tree(root: &Path) -> Result<Tree> {
    let mut tree = Tree::default();
    for path in files_of(root)? {
        tree.add(root, &path)?;
    }
    tree.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(tree)
}

impl Tree {
    fn add(&mut self, root: &Path, path: &Path) -> Result<()> {
        let relative = path.strip_prefix(root).unwrap_or(path).display().to_string();
        if path.is_symlink() {
            self.links.push(relative);
            return Ok(());
        }
        match String::from_utf8(fs::read(path).with_context(|| relative.clone())?) {
            Ok(text) if !text.contains('\0') => self.files.push(File { path: relative, text }),
            _ => self.binaries.push(relative),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_read_but_for_build_results() {
        let root = std::env::temp_dir().join(format!("rtscope-tidy-{}", std::process::id()));
        for directory in ["target", "crates/a/target", "crates/a/LICENSES", "crates/a/built"] {
            fs::create_dir_all(root.join(directory)).expect("a directory");
            fs::write(root.join(directory).join("f.rs"), "fn f() {}").expect("a file");
        }
        fs::write(root.join("crates/a/built").join(BUILD_RESULTS), "").expect("a file");
        fs::write(root.join("b"), [0xff, 0]).expect("a file");
        std::os::unix::fs::symlink("b", root.join("l")).expect("a link");
        let tree = read_tree(&root).expect("it can be read");
        fs::remove_dir_all(&root).expect("ours");
        let paths: Vec<&str> = tree.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["crates/a/LICENSES/f.rs", "crates/a/target/f.rs"]);
        assert_eq!((tree.binaries, tree.links), (vec!["b".to_string()], vec!["l".to_string()]));
    }
}
