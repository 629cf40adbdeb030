// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernels that the tests run on, and how they come here.
//!
//! They are Debian's: current, with type information, and the same for everybody. apt finds, fetches and checks them
//! (their signatures too), with folders of its own: nothing of this machine's apt is read or changed, and nothing is
//! installed. Only the kernel's image is kept, so a second run needs no network.
//!
//! Plain kernels are of the `cloud` flavour: the same configuration for what is traced here, with a quarter of the
//! drivers to download.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const MIRROR: &str = "http://deb.debian.org/debian";
/// Where a static busybox is taken from: one program is the guest's shell and all its tools.
const BUSYBOX: (&str, &str) = ("trixie", "busybox-static");

/// A kernel that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// As it is called on the command line.
    pub name: &'static str,
    /// Debian's name for the release that has it.
    pub suite: &'static str,
    /// The package that depends on the current image.
    meta: &'static str,
    /// What it is started with, beside what all are.
    pub append: &'static str,
    /// Its locks are preemptible (`CONFIG_PREEMPT_RT`).
    pub preempt_rt: bool,
    /// It takes schedulers in eBPF (`CONFIG_SCHED_CLASS_EXT`).
    pub sched_ext: bool,
}

const PLAIN: &str = "linux-image-cloud-amd64";
const RT: &str = "linux-image-rt-amd64";
/// The memory of BPF schedulers' tasks comes from a path of the allocator that wants the 16-byte compare-and-exchange, which the
/// emulated CPU must not have (boot.rs); or checks of consistency, which need no such instruction.
const CHECKED: &str = "slub_debug=F,kmalloc-*";

/// All that can be asked for, oldest first.
pub const KERNELS: [Kernel; 5] = [
    Kernel { name: "6.1", suite: "bookworm", meta: PLAIN, append: "", preempt_rt: false, sched_ext: false },
    Kernel { name: "6.12", suite: "trixie", meta: PLAIN, append: "", preempt_rt: false, sched_ext: false },
    Kernel { name: "6.12-rt", suite: "trixie", meta: RT, append: "", preempt_rt: true, sched_ext: false },
    Kernel { name: "newest", suite: "sid", meta: PLAIN, append: CHECKED, preempt_rt: false, sched_ext: true },
    Kernel { name: "newest-rt", suite: "sid", meta: RT, append: CHECKED, preempt_rt: true, sched_ext: true },
];

/// A kernel that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The file to boot.
    pub path: PathBuf,
    /// Its release, as `uname -r` says it.
    pub release: String,
}

/// The folder that outlives a build: `$XDG_CACHE_HOME/rtscope/vm`.
pub fn cache_folder() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?)
            .join(".cache"),
    };
    Ok(base.join("rtscope/vm"))
}

/// The image of a kernel, if it was fetched before.
pub fn cached(cache: &Path, kernel: &Kernel) -> Option<Image> {
    let folder = cache.join(kernel.name);
    let release = fs::read_to_string(folder.join("release")).ok()?;
    let path = folder.join("vmlinuz");
    path.is_file().then(|| Image { path, release: release.trim().to_owned() })
}

/// A static busybox, if it was fetched before.
pub fn cached_busybox(cache: &Path) -> Option<PathBuf> {
    Some(cache.join("busybox")).filter(|path| path.is_file())
}

/// Fetches packages. Its folder goes when it is dropped.
#[derive(Debug)]
pub struct Apt {
    folder: PathBuf,
    cache: PathBuf,
}

impl Apt {
    /// Apt with folders of its own below the cache.
    pub fn new(cache: &Path) -> Result<Apt> {
        ensure!(cfg!(target_arch = "x86_64"), "the kernels are built for x86-64, and so must the tests be");
        ensure!(
            Path::new(KEYRING).is_file(),
            "{KEYRING} is missing: kernels come from Debian (package debian-archive-keyring)"
        );
        let folder = cache.join(format!("apt.{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Apt { folder, cache: cache.to_owned() })
    }

    /// Fetches the current image of a kernel, in place of an older one.
    pub fn fetch(&self, kernel: &Kernel) -> Result<Image> {
        let shown = self.run(kernel.suite, "apt-cache", &["show", "--no-all-versions", kernel.meta])?;
        let image =
            image_package(&shown).with_context(|| format!("{} names no image package", kernel.meta))?;
        let release = image.trim_start_matches("linux-image-").to_owned();
        // Since Linux 7 Debian keeps the image in a package of its own, apart from 100 MB of drivers.
        let binary = format!("linux-binary-{release}");
        let package =
            if self.run(kernel.suite, "apt-cache", &["show", &binary]).is_ok() { &binary } else { image };
        let tree = self.unpack(kernel.suite, package)?;
        let folder = self.cache.join(kernel.name);
        fs::create_dir_all(&folder)?;
        let places = [format!("boot/vmlinuz-{release}"), format!("usr/lib/modules/{release}/vmlinuz")];
        let found = places.iter().map(|place| tree.join(place)).find(|place| place.is_file());
        // The name of the release goes last: it says that the image is whole.
        keep(&found.with_context(|| format!("{package} has no kernel image"))?, &folder.join("vmlinuz"))?;
        fs::write(self.folder.join("release"), &release)?;
        keep(&self.folder.join("release"), &folder.join("release"))?;
        cached(&self.cache, kernel).context("the image that was fetched is not there")
    }

    /// Fetches a static busybox.
    pub fn fetch_busybox(&self) -> Result<PathBuf> {
        let tree = self.unpack(BUSYBOX.0, BUSYBOX.1)?;
        let places = ["usr/bin/busybox", "bin/busybox"].map(|place| tree.join(place));
        let found = places.iter().find(|place| place.is_file()).context("busybox-static has no busybox")?;
        keep(found, &self.cache.join("busybox"))?;
        Ok(self.cache.join("busybox"))
    }

    /// Fetches packages and unpacks them all into one folder, in place of what was there.
    pub fn unpack_all(&self, suite: &str, packages: &[&str], to: &Path) -> Result<()> {
        let whole = self.folder.join("whole");
        fs::create_dir_all(&whole)?;
        for package in packages {
            let tree = self.unpack(suite, package)?;
            let copied =
                Command::new("cp").arg("-a").arg(tree.join(".")).arg(&whole).status().context("cp")?;
            ensure!(copied.success(), "{package} could not be copied to {}", whole.display());
        }
        if to.exists() {
            fs::remove_dir_all(to)?;
        }
        keep(&whole, to)
    }

    /// Downloads and unpacks one package; gives the folder of its files.
    fn unpack(&self, suite: &str, package: &str) -> Result<PathBuf> {
        eprintln!("xtask: fetching {package} ({suite})");
        self.run(suite, "apt-get", &["download", package])?;
        let downloaded = fs::read_dir(&self.folder)?.filter_map(|entry| Some(entry.ok()?.path()));
        let deb = downloaded
            .filter(|path| path.extension().is_some_and(|end| end == "deb"))
            .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(package)))
            .with_context(|| format!("apt-get download {package} left no file"))?;
        let tree = self.folder.join(package);
        let mut command = Command::new("dpkg-deb");
        let status = command.arg("-x").arg(&deb).arg(&tree).status().context("dpkg-deb")?;
        ensure!(status.success(), "dpkg-deb could not unpack {}", deb.display());
        fs::remove_file(deb)?;
        Ok(tree)
    }

    /// Runs one of apt's programs on the lists of one suite, which are fetched before the first use.
    fn run(&self, suite: &str, program: &str, arguments: &[&str]) -> Result<String> {
        let state = self.folder.join(format!("lists-{suite}"));
        if !state.is_dir() {
            for folder in ["lists/partial", "archives/partial"] {
                fs::create_dir_all(state.join(folder))?;
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
            // The folders are the caller's own; apt's user for downloads may not be able to write there.
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
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::null());
        let output = command.output().with_context(|| format!("{program}: kernels are fetched with apt"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{program} {}: {}", arguments.join(" "), said.lines().last().unwrap_or_default());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Apt {
    fn drop(&mut self) {
        // What stays is only rubbish in a cache.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Moves a file to its place within the same file system, at once.
fn keep(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))
}

/// The image that a package's description says it depends on.
fn image_package(description: &str) -> Option<&str> {
    let depends = description.lines().find_map(|line| line.strip_prefix("Depends: "))?;
    let names = depends.split(',').filter_map(|dependency| dependency.split_whitespace().next());
    names.into_iter().find(|name| {
        name.strip_prefix("linux-image-").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_image_is_found() {
        let old = "Package: x\nDepends: linux-image-6.1.0-50-cloud-amd64 (= 6.1.176-1)\n";
        assert_eq!(image_package(old), Some("linux-image-6.1.0-50-cloud-amd64"));
        let new =
            "Depends: linux-base-cloud-amd64 (= 7.2.13-1), linux-image-7.2.13+deb14-cloud-amd64 (= 7.2.13-1)";
        assert_eq!(image_package(new), Some("linux-image-7.2.13+deb14-cloud-amd64"));
        assert_eq!(image_package("Depends: linux-image-cloud-amd64"), None);
        assert_eq!(image_package("Package: x"), None);
    }
}
