// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernels that the tests run on, and how they get here.
//!
//! They are Debian's: current, with type information, and the same for everybody. `apt` fetches them. What is kept of each is
//! in one directory of the cache: the image, the modules that tests may load (`modules`), and what it takes to build others for it
//! (`headers`). So a second run needs no network. The directory is complete from the moment when it has its name, and nobody
//! removes it while it is used.
//!
//! Plain kernels are of the `cloud` flavour: the same configuration for what is traced here, with a quarter of the
//! drivers to download.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};

use super::apt::{self, Apt, keep};
use super::headers;
use super::locks::Lock;
use super::modules::{self, Modules};

/// Where a static busybox is taken from: one program is the guest's shell and all its tools.
const BUSYBOX: (&str, &str) = ("trixie", "busybox-static");
/// In a kernel's part of the cache: the release that is used.
const CURRENT: &str = "current";
/// In a release's directory: those that use it have a shared lock on this.
const USED: &str = "used.lock";

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
#[derive(Debug, Clone)]
pub struct Image {
    /// The file to boot.
    pub path: PathBuf,
    /// Its release, as `uname -r` prints it.
    pub release: String,
    /// What can be loaded into it.
    pub modules: Modules,
    /// Nobody removes it until then.
    _used: Option<Arc<Lock>>,
}

/// The directory that outlives a build: `$XDG_CACHE_HOME/rtscope/vm`.
pub fn cache_folder() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|directory| !directory.is_empty()) {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from(std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?)
            .join(".cache"),
    };
    Ok(base.join("rtscope/vm"))
}

/// The lock that a process takes before it adds something to the cache.
pub fn lock(cache: &Path) -> Result<Lock> {
    fs::create_dir_all(cache).with_context(|| cache.display().to_string())?;
    Lock::exclusive(&cache.join("lock"), "waiting for another ./x vm that is fetching kernels")
}

/// A kernel, if all that belongs to it was fetched before.
pub fn cached(cache: &Path, kernel: &Kernel) -> Option<Image> {
    let home = cache.join(kernel.name);
    let release = fs::read_to_string(home.join(CURRENT)).ok()?;
    open(&home, release.trim())
}

/// A kernel whose image was fetched by a version that kept no modules.
fn without_modules(cache: &Path, kernel: &Kernel) -> Option<Image> {
    let [release, path] = OLD_FILES.map(|name| cache.join(kernel.name).join(name));
    let release = fs::read_to_string(release).ok()?.trim().to_owned();
    let modules = Modules::none(&release, "the modules of this kernel could not be fetched");
    path.is_file().then_some(Image { path, release, modules, _used: None })
}

/// What such a version kept.
const OLD_FILES: [&str; 2] = ["release", "vmlinuz"];

/// All wanted kernels, and busybox; fetches what is not here. `update`: looks for newer kernels.
pub fn provide(kernels: &[Kernel], update: bool) -> Result<(Vec<(Kernel, Image)>, PathBuf)> {
    let cache = cache_folder()?;
    let _lock = lock(&cache)?;
    let mut fetcher = Fetcher { cache: &cache, apt: None };
    let busybox = fetcher.busybox().context("busybox")?;
    let mut images = Vec::new();
    for kernel in kernels {
        let image = fetcher.kernel(kernel, update, &busybox);
        images.push((*kernel, image.with_context(|| format!("kernel {}", kernel.name))?));
    }
    Ok((images, busybox))
}

/// Fetches what is not in the cache.
struct Fetcher<'a> {
    cache: &'a Path,
    apt: Option<Apt>,
}

impl Fetcher<'_> {
    fn apt(&mut self) -> Result<&Apt> {
        if self.apt.is_none() {
            self.apt = Some(Apt::new(self.cache)?);
        }
        self.apt.as_ref().context("just made")
    }

    /// A static busybox.
    fn busybox(&mut self) -> Result<PathBuf> {
        let path = self.cache.join("busybox");
        if !path.is_file() {
            let tree = self.apt()?.unpack(BUSYBOX.0, &[BUSYBOX.1])?;
            let places = ["usr/bin/busybox", "bin/busybox"].map(|place| tree.join(place));
            let found =
                places.iter().find(|place| place.is_file()).context("busybox-static has no busybox")?;
            keep(found, &path)?;
        }
        Ok(path)
    }

    fn kernel(&mut self, kernel: &Kernel, update: bool, busybox: &Path) -> Result<Image> {
        if let Some(image) = cached(self.cache, kernel).filter(|_| !update) {
            return Ok(image);
        }
        match (self.fetch(kernel, busybox), without_modules(self.cache, kernel)) {
            (Err(error), Some(image)) if !update => {
                let name = kernel.name;
                eprintln!("xtask: {name}: {error:#}: tests that need modules of this kernel are skipped");
                Ok(image)
            }
            (fetched, _) => fetched,
        }
    }

    /// Fetches the current release of a kernel, in place of an older one.
    fn fetch(&mut self, kernel: &Kernel, busybox: &Path) -> Result<Image> {
        let home = self.cache.join(kernel.name);
        let apt = self.apt()?;
        let shown = apt.show(kernel.suite, kernel.meta)?;
        let image =
            image_package(&shown).with_context(|| format!("{} names no image package", kernel.meta))?;
        let release = image.trim_start_matches("linux-image-");
        if open(&home, release).is_none() {
            let new = apt.directory().join("kernel");
            fill(&new, apt, kernel.suite, release, busybox)?;
            fs::create_dir_all(&home)?;
            keep(&new, &home.join(directory_name(release)))?;
        }
        let current = apt.directory().join(CURRENT);
        fs::write(&current, release)?;
        keep(&current, &home.join(CURRENT))?;
        remove_others(&home, release)?;
        open(&home, release).context("the kernel that was fetched is not there")
    }
}

/// A release in a kernel's part of the cache.
fn open(home: &Path, release: &str) -> Option<Image> {
    let directory = home.join(directory_name(release));
    let path = directory.join("vmlinuz");
    if !path.is_file() {
        return None;
    }
    let used = Lock::shared(&directory.join(USED)).ok()??;
    let modules = Modules::of(&directory, release);
    Some(Image { path, release: release.to_owned(), modules, _used: Some(Arc::new(used)) })
}

/// The directory of a release says what is kept of it, so that it is fetched again when more is kept.
fn directory_name(release: &str) -> String {
    format!("{release}.{}", modules::version_of_list())
}

/// Fetches a release and puts what is kept of it into a directory.
fn fill(new: &Path, apt: &Apt, suite: &str, release: &str, busybox: &Path) -> Result<()> {
    let image = format!("linux-image-{release}");
    // Since Linux 7 Debian has the parts of an image in separate packages.
    let parts = ["binary", "modules", "base"].map(|part| format!("linux-{part}-{release}"));
    let in_parts = apt.show(suite, &parts[0]).is_ok();
    let packages: Vec<&str> =
        if in_parts { parts.iter().map(String::as_str).collect() } else { vec![&image] };
    let tree = apt.unpack(suite, &packages)?;
    if new.exists() {
        fs::remove_dir_all(new)?;
    }
    fs::create_dir_all(new)?;
    let places = [format!("boot/vmlinuz-{release}"), format!("usr/lib/modules/{release}/vmlinuz")];
    let found = places.iter().map(|place| tree.join(place)).find(|place| place.is_file());
    keep(&found.with_context(|| format!("{image} has no kernel image"))?, &new.join("vmlinuz"))?;
    let missing = modules::keep_wanted(&tree, release, busybox, &new.join("modules"))?;
    if !missing.is_empty() {
        eprintln!("xtask: {image} has no module {}", missing.join(", "));
    }
    headers::download(apt, suite, release, &new.join("headers"))
}

/// Removes what older versions kept, and other releases that nobody uses.
fn remove_others(home: &Path, release: &str) -> Result<()> {
    for name in OLD_FILES {
        let _ = fs::remove_file(home.join(name));
    }
    for entry in fs::read_dir(home)?.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        // Another checkout may keep more or less of the same release.
        let same = name.strip_prefix(release).is_some_and(|rest| rest.starts_with('.'));
        let path = entry.path();
        if path.is_dir() && !same && Lock::try_exclusive(&path.join(USED))?.is_some() {
            fs::remove_dir_all(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// The image that a package's description says it depends on.
fn image_package(description: &str) -> Option<&str> {
    apt::dependencies(description).into_iter().find(|name| {
        name.strip_prefix("linux-image-").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::initramfs::Initramfs;
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

    /// A cache that is removed at the end.
    struct Cache(PathBuf);

    impl Cache {
        fn new(name: &str) -> Cache {
            Cache(std::env::temp_dir().join(format!("rtscope-cache-{name}.{}", std::process::id())))
        }

        /// As a fetch leaves a release.
        fn add(&self, kernel: &Kernel, release: &str) -> PathBuf {
            let directory = self.0.join(kernel.name).join(directory_name(release));
            fs::create_dir_all(&directory).expect("it can be made");
            fs::write(directory.join("vmlinuz"), release).expect("it can be written");
            fs::write(self.0.join(kernel.name).join(CURRENT), release).expect("it can be written");
            directory
        }
    }

    impl Drop for Cache {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_older_release_is_removed_once_nobody_uses_it() {
        let (cache, kernel) = (Cache::new("older"), &KERNELS[1]);
        let old = cache.add(kernel, "6.12.1");
        let user = cached(&cache.0, kernel).expect("it is there");
        let new = cache.add(kernel, "6.12.2");
        let home = cache.0.join(kernel.name);
        remove_others(&home, "6.12.2").expect("it can be asked");
        assert!(old.exists() && new.exists(), "somebody boots the old one");
        drop(user);
        remove_others(&home, "6.12.2").expect("it can be asked");
        assert!(!old.exists() && new.exists());
        assert_eq!(cached(&cache.0, kernel).map(|image| image.release).as_deref(), Some("6.12.2"));
    }

    #[test]
    fn an_image_of_an_older_version_has_no_modules_and_is_replaced() {
        let (cache, kernel) = (Cache::new("image"), &KERNELS[0]);
        let home = cache.0.join(kernel.name);
        fs::create_dir_all(&home).expect("it can be made");
        for name in OLD_FILES {
            fs::write(home.join(name), "6.1.0\n").expect("it can be written");
        }
        assert!(cached(&cache.0, kernel).is_none(), "it has to be completed");
        let image = without_modules(&cache.0, kernel).expect("it can be booted");
        assert_eq!(image.release, "6.1.0");
        let path = cache.0.join("archive");
        let mut archive = Initramfs::create(&path).expect("it can be written");
        image.modules.add_to(&mut archive, &["loop"]).expect("the reason can be added");
        archive.finish().expect("it can be written");
        let archive = fs::read(&path).expect("it is there");
        assert!(
            String::from_utf8_lossy(&archive)
                .contains("loop the modules of this kernel could not be fetched\n")
        );
        cache.add(kernel, "6.1.0");
        remove_others(&home, "6.1.0").expect("it can be asked");
        assert!(without_modules(&cache.0, kernel).is_none() && cached(&cache.0, kernel).is_some());
    }
}
