// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The release builds that benchmarks run from: that of the tree, and those of other commits.
//!
//! A commit is unpacked below the target directory (`bench-against/COMMIT`) and has its own target directory there, which is
//! retained: the second comparison with it starts at once. Nothing is written into the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::root;

/// The package whose program runs the benchmarks.
const PACKAGE: &str = "rtscope-bench";
/// Where other commits are, in the target directory.
const PLACE: &str = "bench-against";

/// A directory of sources, and the program with its benchmarks.
#[derive(Debug)]
pub struct Build {
    pub sources: PathBuf,
    pub program: PathBuf,
}

/// Builds the tree, and all programs that its benchmarks start.
pub fn of_tree() -> Result<Build> {
    of_sources(&root(), None)
}

/// Builds a commit.
pub fn of_commit(commit: &Commit) -> Result<Build> {
    let place = target_directory(&metadata(&root())?)?.join(PLACE).join(commit.short());
    let sources = place.join("tree");
    if !sources.is_dir() {
        eprintln!("unpacking {} into {}", commit.short(), sources.display());
        // Under another name until it is whole.
        let partial = place.join("partial");
        if partial.exists() {
            fs::remove_dir_all(&partial).with_context(|| partial.display().to_string())?;
        }
        fs::create_dir_all(&partial).with_context(|| partial.display().to_string())?;
        unpack(commit, &partial)?;
        fs::rename(&partial, &sources).with_context(|| sources.display().to_string())?;
    }
    of_sources(&sources, Some(&place.join("target"))).with_context(|| format!("building {}", commit.short()))
}

fn unpack(commit: &Commit, to: &Path) -> Result<()> {
    let mut archive = git().args(["archive", "--format=tar", &commit.0]).stdout(Stdio::piped()).spawn()?;
    let stdout = archive.stdout.take().context("git's output was asked for as a pipe")?;
    let unpacked = Command::new("tar").arg("-x").arg("-C").arg(to).stdin(stdout).status().context("tar")?;
    let archived = archive.wait()?;
    ensure!(archived.success() && unpacked.success(), "git archive | tar: {archived}, {unpacked}");
    Ok(())
}

/// `target`: another target directory than cargo's choice.
fn of_sources(sources: &Path, target: Option<&Path>) -> Result<Build> {
    let metadata = metadata(sources)?;
    let packages =
        packages(&metadata, &sources.join("crates")).context("cargo metadata has an unknown form")?;
    ensure!(
        packages.iter().any(|package| package == PACKAGE),
        "there are no benchmarks in {}",
        sources.display()
    );
    let mut command = cargo(sources);
    command.args(["build", "--quiet", "--release", "--bins"]);
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    let target = target.map_or_else(|| target_directory(&metadata), |target| Ok(target.to_owned()))?;
    command.arg("--target-dir").arg(&target);
    eprintln!("building {} for release", sources.display());
    ensure!(command.status()?.success(), "it does not build for release; see above");
    Ok(Build { sources: sources.to_owned(), program: target.join("release").join(PACKAGE) })
}

/// The packages below a directory that have programs.
fn packages(metadata: &Value, below: &Path) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for package in metadata["packages"].as_array()? {
        let is_program = |target: &Value| {
            target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "bin"))
        };
        let is_below = Path::new(package["manifest_path"].as_str()?).starts_with(below);
        if is_below && package["targets"].as_array()?.iter().any(is_program) {
            names.push(package["name"].as_str()?.to_string());
        }
    }
    Some(names)
}

fn cargo(sources: &Path) -> Command {
    let mut command = crate::cargo();
    command.current_dir(sources);
    command
}

fn metadata(sources: &Path) -> Result<Value> {
    let output = cargo(sources).args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("cargo metadata")
}

fn target_directory(metadata: &Value) -> Result<PathBuf> {
    Ok(metadata["target_directory"].as_str().context("cargo metadata names no target directory")?.into())
}

/// A commit by its whole number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit(pub String);

impl Commit {
    /// Finds what somebody calls a commit: a number, a branch, `HEAD~3`.
    pub fn find(name: &str) -> Result<Commit> {
        ensure!(!name.starts_with('-'), "'{name}' is not a commit");
        let output = git().args(["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")]).output();
        let output = output.context("git, which finds the commit")?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            bail!("there is no commit '{name}' here {}", words.trim());
        }
        Ok(Commit(String::from_utf8_lossy(&output.stdout).trim().to_string()))
    }

    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

/// Whether the tree has other contents than its commit.
pub fn is_modified() -> Result<bool> {
    let output = git().args(["status", "--porcelain"]).output().context("git")?;
    ensure!(output.status.success(), "git status: {}", String::from_utf8_lossy(&output.stderr));
    Ok(!output.stdout.is_empty())
}

/// git in the tree, which may be somebody else's when root measures.
fn git() -> Command {
    let mut command = Command::new("git");
    command.arg("-c").arg(format!("safe.directory={}", root().display())).current_dir(root());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_with_programs_are_built() {
        let package = |name: &str, manifest: &str, kind: &str| serde_json::json!({"name": name, "manifest_path": manifest, "targets": [{"kind": [kind]}]});
        let metadata = serde_json::json!({"packages": [
            package("rtscope-bench", "/p q/crates/bench/Cargo.toml", "bin"),
            package("rtscope-ring", "/p q/crates/ring/Cargo.toml", "lib"),
            package("xtask", "/p q/xtask/Cargo.toml", "bin"),
        ]});
        assert_eq!(packages(&metadata, Path::new("/p q/crates")), Some(vec!["rtscope-bench".to_string()]));
        assert_eq!(packages(&serde_json::json!({}), Path::new("/p")), None);
    }

    #[test]
    fn what_is_not_a_commit_is_refused() {
        let error = Commit::find("no-such-commit-here").expect_err("there is none").to_string();
        assert!(error.contains("there is no commit 'no-such-commit-here'"), "{error}");
        assert!(Commit::find("--all").is_err());
    }
}
