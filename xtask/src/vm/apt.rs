// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packages of Debian, fetched and unpacked without installing anything.
//!
//! apt finds, fetches and checks them (their signatures too), with private directories: nothing of this machine's apt is
//! read or changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::locks::TemporaryDirectory;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const MIRROR: &str = "http://deb.debian.org/debian";

/// Fetches packages. Its directory is removed when it is dropped.
#[derive(Debug)]
pub struct Apt {
    directory: TemporaryDirectory,
}

impl Apt {
    /// Apt with private directories below the cache.
    pub fn new(cache: &Path) -> Result<Apt> {
        ensure!(cfg!(target_arch = "x86_64"), "the kernels are built for x86-64, and so must the tests be");
        ensure!(
            Path::new(KEYRING).is_file(),
            "{KEYRING} is missing: kernels come from Debian (package debian-archive-keyring)"
        );
        Ok(Apt { directory: TemporaryDirectory::create(cache, "apt")? })
    }

    /// Where files may be prepared that belong into the cache: the same file system, and removed when this ends.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The description of the newest version of a package.
    pub fn show(&self, suite: &str, package: &str) -> Result<String> {
        self.run(suite, "apt-cache", &["show", "--no-all-versions", package])
    }

    /// Fetches packages and unpacks them all into one directory, in place of what was there.
    pub fn unpack_all(&self, suite: &str, packages: &[&str], to: &Path) -> Result<()> {
        let tree = self.unpack(suite, packages)?;
        if to.exists() {
            fs::remove_dir_all(to)?;
        }
        keep(&tree, to)
    }

    /// Downloads packages and unpacks them into one directory, which it returns.
    pub fn unpack(&self, suite: &str, packages: &[&str]) -> Result<PathBuf> {
        let tree = self.directory().join("tree");
        if tree.exists() {
            fs::remove_dir_all(&tree)?;
        }
        for deb in self.download(suite, packages)? {
            unpack(&deb, &tree)?;
            fs::remove_file(deb)?;
        }
        Ok(tree)
    }

    /// Downloads packages, all at once, since apt reads its lists each time; returns their files.
    pub fn download(&self, suite: &str, packages: &[&str]) -> Result<Vec<PathBuf>> {
        eprintln!("xtask: fetching {} ({suite})", packages.join(" "));
        self.run(suite, "apt-get", &[&["download"], packages].concat())?;
        let entries = fs::read_dir(self.directory())?.filter_map(Result::ok).map(|entry| entry.path());
        let debs: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|end| end == "deb")).collect();
        let find = |package: &&str| {
            // Its version follows: linux-kbuild-6.1_6.1.176-1_amd64.deb.
            let begin = format!("{package}_");
            let is_it = |path: &&PathBuf| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begin))
            };
            let found = debs.iter().find(is_it).cloned();
            found.with_context(|| format!("apt-get download {package} left no file"))
        };
        packages.iter().map(find).collect()
    }

    /// Runs one of apt's programs on the lists of one suite, which are fetched before the first use.
    fn run(&self, suite: &str, program: &str, arguments: &[&str]) -> Result<String> {
        let state = self.directory().join(format!("lists-{suite}"));
        if !state.is_dir() {
            for directory in ["lists/partial", "archives/partial"] {
                fs::create_dir_all(state.join(directory))?;
            }
            fs::write(state.join("status"), "")?;
            fs::write(
                state.join("sources.list"),
                format!("deb [arch=amd64 signed-by={KEYRING}] {MIRROR} {suite} main\n"),
            )?;
            eprintln!("xtask: fetching Debian's list of packages ({suite})");
            if let Err(error) = self.call(&state, "apt-get", &["update", "-q", "--error-on=any"]) {
                fs::remove_dir_all(&state)?;
                return Err(error);
            }
        }
        self.call(&state, program, arguments)
    }

    fn call(&self, state: &Path, program: &str, arguments: &[&str]) -> Result<String> {
        let state = state.display();
        let options = [
            "APT::Architecture=amd64".to_owned(),
            // The directories belong to the caller; apt's user for downloads may not be able to write there.
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "Acquire::Retries=2".to_owned(),
            "Acquire::http::Timeout=20".to_owned(),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::Etc::sourcelist={state}/sources.list"),
            format!("Dir::State::lists={state}/lists"),
            format!("Dir::State::status={state}/status"),
            format!("Dir::Cache={state}"),
        ];
        let mut command = Command::new(program);
        command.args(options.iter().flat_map(|option| ["-o", option]));
        command.args(arguments).current_dir(self.directory()).stdin(Stdio::null());
        let output = command.output().with_context(|| format!("{program}: kernels are fetched with apt"))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("{program} {}: {}", arguments.join(" "), errors.lines().last().unwrap_or_default());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Unpacks the file of a package into a directory.
pub fn unpack(deb: &Path, to: &Path) -> Result<()> {
    let status = Command::new("dpkg-deb").arg("-x").arg(deb).arg(to).status().context("dpkg-deb")?;
    ensure!(status.success(), "dpkg-deb could not unpack {}", deb.display());
    Ok(())
}

/// Moves a file or directory to its place within the same file system, at once.
pub fn keep(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))
}

/// The packages that a description depends on; of alternatives, the first.
pub fn dependencies(description: &str) -> Vec<&str> {
    let depends = description.lines().find_map(|line| line.strip_prefix("Depends: ")).unwrap_or_default();
    depends.split(',').filter_map(|dependency| dependency.split_whitespace().next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_without_versions_and_alternatives() {
        let text = "Package: x\nDepends: gcc-14, linux-image-1 (= 1) | linux-image-1-unsigned (= 1), kmod\n";
        assert_eq!(dependencies(text), ["gcc-14", "linux-image-1", "kmod"]);
        assert!(dependencies("Package: x\n").is_empty());
    }
}
