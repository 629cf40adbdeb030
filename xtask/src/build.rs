// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What cargo builds for the tests: test binaries and the workspace's other programs, in one profile, so that nothing is
//! compiled twice.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cargo;

/// One built test binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestBinary {
    /// Crate and target, as in `cli: it`.
    pub name: String,
    /// The crate, by its directory.
    pub member: String,
    /// Where it is.
    pub executable: PathBuf,
    package_directory: PathBuf,
    /// Integration tests, of which many load real CPUs.
    pub integration: bool,
}

impl TestBinary {
    /// Starts it where its crate is.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.package_directory);
        command
    }

    /// One of a crate.
    #[cfg(test)]
    pub fn of(member: &str) -> TestBinary {
        TestBinary {
            name: format!("{member}: it"),
            member: member.to_owned(),
            executable: PathBuf::from("/t/it-1"),
            package_directory: PathBuf::from("/p"),
            integration: true,
        }
    }
}

/// What cargo built.
#[derive(Debug, Default)]
pub struct Build {
    /// The test binaries.
    pub tests: Vec<TestBinary>,
    /// The workspace's other programs.
    pub programs: Vec<PathBuf>,
}

/// Builds all programs and tests.
pub fn everything() -> Result<Build> {
    built_by(&["test", "--workspace", "--no-run", "--bins", "--lib", "--tests"])
}

/// Builds the programs and tests of these packages, and the programs that all tests use.
pub fn of(packages: &BTreeSet<String>) -> Result<Build> {
    let chosen = packages.iter().flat_map(|package| ["-p", package.as_str()]);
    let arguments =
        ["test", "--no-run", "--bins", "--tests", "-p", "rtscope-testkit"].into_iter().chain(chosen);
    built_by(&arguments.collect::<Vec<_>>())
}

/// Builds the programs and no tests.
pub fn programs() -> Result<Build> {
    built_by(&["build", "--workspace", "--bins"])
}

fn built_by(arguments: &[&str]) -> Result<Build> {
    let mut child = cargo()
        .args(arguments)
        .args(["--message-format", "json-render-diagnostics"])
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo")?;
    let stdout = child.stdout.take().context("cargo's output was asked for as a pipe")?;
    let mut build = Build::default();
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        build.tests.extend(test_binary(&line));
        build.programs.extend(other_program(&line));
    }
    if !child.wait()?.success() {
        bail!("the build failed; see above");
    }
    Ok(build)
}

/// The directory of a build: `target/debug` for a test binary in its `deps`.
pub fn build_directory(program: &Path) -> Option<&Path> {
    let directory = program.parent()?;
    if directory.ends_with("deps") { directory.parent() } else { Some(directory) }
}

/// Reads one of cargo's messages: is it about a program that is not a test?
fn other_program(line: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_test = message.get("profile")?.get("test")?.as_bool()?;
    let is_program = message.get("target")?.get("kind")?.as_array()?.iter().any(|kind| kind == "bin");
    message.get("executable")?.as_str().filter(|_| is_program && !is_test).map(PathBuf::from)
}

/// Reads one of cargo's messages: is it about a test binary?
fn test_binary(line: &str) -> Option<TestBinary> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_test = message.get("profile")?.get("test")?.as_bool()?;
    let executable = message.get("executable")?.as_str().filter(|_| is_test)?;
    let target = message.get("target")?;
    let integration = target.get("kind")?.as_array()?.iter().any(|kind| kind == "test");
    let package_directory = PathBuf::from(message.get("manifest_path")?.as_str()?).parent()?.to_owned();
    let member = package_directory.file_name()?.to_string_lossy().into_owned();
    let name = format!("{member}: {}", target.get("name")?.as_str()?);
    Some(TestBinary { name, member, executable: executable.into(), package_directory, integration })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_messages_name_the_test_binaries() {
        let line = r#"{"manifest_path":"/p/crates/ring/Cargo.toml","target":{"kind":["test"],"name":"it"},
            "profile":{"test":true},"executable":"/t/it-1"}"#;
        let binary = test_binary(line).expect("a test binary");
        assert_eq!(
            (binary.name.as_str(), binary.member.as_str(), binary.integration),
            ("ring: it", "ring", true)
        );
        assert_eq!(test_binary(&line.replace("true", "false")), None);
        assert_eq!(other_program(line), None);
        let other = line.replace("true", "false").replace(r#"["test"]"#, r#"["bin"]"#);
        assert_eq!(other_program(&other), Some(PathBuf::from("/t/it-1")));
        assert_eq!(test_binary(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
