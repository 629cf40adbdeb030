// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The workspace's crates: which file belongs to which, and which depend on which.
//!
//! Cargo rebuilds what a change touches by itself; it does not say which tests that change could break. That is asked here:
//! the crates with changed files, and all that depend on them. A dependency for tests only counts when the crate itself has
//! changed: nearly every crate's tests use `testkit`, which uses the analyses, and do not test these by that.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{cargo, root};

/// Files that belong to no crate's directory, and the crates that are built or tested from them; an empty list: all crates.
const SHARED: [(&str, &[&str]); 8] = [
    ("include/", &["probe", "queue", "programs", "cli", "testkit", "fuzz"]),
    ("include/rtscope/abi.h", &["abi"]),
    ("Cargo.toml", &[]),
    ("Cargo.lock", &[]),
    (".cargo/", &[]),
    ("clippy.toml", &[]),
    ("docs/", &["cli"]),
    ("dist/", &["cli"]),
];

/// A crate of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its directory's name, which is how people call it.
    pub name: String,
    /// Its directory, relative to the workspace's.
    directory: String,
    /// Its package's name.
    pub package: String,
    /// Names of packages, of the workspace or not.
    dependencies: BTreeSet<String>,
    /// Those that only its tests use.
    of_tests: BTreeSet<String>,
}

/// All crates of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    members: Vec<Member>,
}

impl Workspace {
    /// Asks cargo.
    pub fn read() -> Result<Workspace> {
        let output = cargo().args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
        if !output.status.success() {
            bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        }
        Workspace::parse(&serde_json::from_slice(&output.stdout)?, &root())
    }

    fn parse(metadata: &Value, root: &Path) -> Result<Workspace> {
        let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
        let members = packages.iter().map(|package| member(package, root));
        Ok(Workspace {
            members: members.collect::<Option<_>>().context("cargo metadata in an unknown form")?,
        })
    }

    /// Every crate's name.
    pub fn names(&self) -> BTreeSet<&str> {
        self.members.iter().map(|member| member.name.as_str()).collect()
    }

    /// The crate that somebody calls so: by its directory or by its package.
    pub fn find(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name || member.package == name)
    }

    /// The crates that these files (relative to the workspace) belong to.
    pub fn owners(&self, files: &[String]) -> BTreeSet<&str> {
        let mut owners = BTreeSet::new();
        for file in files {
            let own =
                self.members.iter().filter(|member| file.starts_with(&format!("{}/", member.directory)));
            owners.extend(own.map(|member| member.name.as_str()));
            for (_, crates) in SHARED.iter().filter(|(start, _)| file.starts_with(start)) {
                let of_these = |name: &&str| crates.is_empty() || crates.contains(name);
                owners.extend(self.names().into_iter().filter(of_these));
            }
        }
        owners
    }

    /// These crates, and all that depend on them.
    pub fn with_dependents<'a>(&'a self, changed: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
        let mut all = changed.clone();
        loop {
            let before = all.len();
            let (reached, themselves) = (self.packages(&all), self.packages(changed));
            let uses = |member: &&Member| {
                !member.dependencies.is_disjoint(&reached) || !member.of_tests.is_disjoint(&themselves)
            };
            all.extend(self.members.iter().filter(uses).map(|member| member.name.as_str()));
            if all.len() == before {
                return all;
            }
        }
    }

    /// The packages of these crates.
    pub fn packages(&self, crates: &BTreeSet<&str>) -> BTreeSet<String> {
        let of_these = |member: &&Member| crates.contains(member.name.as_str());
        self.members.iter().filter(of_these).map(|member| member.package.clone()).collect()
    }
}

fn member(package: &Value, root: &Path) -> Option<Member> {
    let directory = Path::new(package["manifest_path"].as_str()?).parent()?;
    let dependencies = package["dependencies"].as_array()?;
    let named = |of_tests: bool| {
        let of_kind = dependencies.iter().filter(move |one| (one["kind"] == "dev") == of_tests);
        of_kind.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
    };
    Some(Member {
        name: directory.file_name()?.to_str()?.to_owned(),
        directory: directory.strip_prefix(root).ok()?.to_str()?.to_owned(),
        package: package["name"].as_str()?.to_owned(),
        dependencies: named(false),
        of_tests: named(true),
    })
}

/// The files that differ from a commit, and those that git does not know yet, relative to the workspace.
pub fn changed_files(since: &str) -> Result<Vec<String>> {
    let mut files = git(&["-c", "core.quotePath=false", "diff", "--name-only", "--no-renames", since])?;
    files.extend(git(&["-c", "core.quotePath=false", "ls-files", "--others", "--exclude-standard"])?);
    Ok(files)
}

/// Where this branch left the one that it follows; else the last commit.
pub fn base() -> Result<String> {
    let base = git(&["merge-base", "HEAD", "@{upstream}"]).or_else(|_| git(&["rev-parse", "HEAD"]))?;
    base.into_iter().next().context("there is no commit yet")
}

/// The commit that is checked out, with `+` when files differ from it; `unknown` outside of git.
pub fn commit() -> String {
    let head = git(&["rev-parse", "--short=10", "HEAD"]).ok().and_then(|lines| lines.into_iter().next());
    let differs =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_ok_and(|lines| !lines.is_empty());
    head.map_or_else(|| "unknown".to_owned(), |head| head + if differs { "+" } else { "" })
}

/// The day of the commit that is checked out, in days since 1970, by UTC; 0 outside of git.
pub fn commit_day() -> usize {
    let seconds =
        git(&["log", "-1", "--format=%ct"]).ok().and_then(|lines| lines.first()?.parse::<usize>().ok());
    seconds.unwrap_or(0) / 86_400
}

fn git(arguments: &[&str]) -> Result<Vec<String>> {
    let output = Command::new("git").args(arguments).current_dir(root()).output().context("git")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workspace() -> Workspace {
        let package = |name: &str, dependencies: &[&str], of_tests: &[&str]| {
            let one = |kind: Value| move |name: &&str| json!({ "name": name, "kind": kind });
            let dependencies: Vec<Value> = dependencies
                .iter()
                .map(one(Value::Null))
                .chain(of_tests.iter().map(one("dev".into())))
                .collect();
            json!({ "name": format!("p-{name}"), "manifest_path": format!("/w/crates/{name}/Cargo.toml"),
                "dependencies": dependencies })
        };
        let metadata = json!({ "packages": [
            package("abi", &["libc"], &[]),
            package("ring", &["p-abi"], &[]),
            package("cli", &["p-ring", "clap"], &["p-testkit"]),
            package("testkit", &["p-ring"], &[]),
            package("queue", &[], &["p-testkit"]),
        ] });
        Workspace::parse(&metadata, Path::new("/w")).expect("good metadata")
    }

    #[test]
    fn a_change_reaches_all_that_depend_on_it() {
        let workspace = workspace();
        let reached = |files: &[&str]| {
            let files: Vec<String> = files.iter().map(|&file| file.to_owned()).collect();
            workspace.with_dependents(&workspace.owners(&files)).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(reached(&["crates/ring/src/lib.rs"]), ["cli", "ring", "testkit"]);
        assert_eq!(reached(&["crates/abi/kernel_abi.h"]), ["abi", "cli", "ring", "testkit"]);
        assert_eq!(reached(&["crates/testkit/src/lib.rs"]), ["cli", "queue", "testkit"]);
        assert_eq!(reached(&["include/rtscope/queue.h"]), ["cli", "queue", "testkit"]);
        assert_eq!(reached(&["Cargo.toml"]).len(), 5);
        assert!(reached(&["README.md"]).is_empty());
    }

    #[test]
    fn crates_are_found_by_both_of_their_names() {
        let workspace = workspace();
        assert_eq!(workspace.find("ring"), workspace.find("p-ring"));
        assert!(workspace.find("ring").is_some() && workspace.find("rin").is_none());
    }
}
