// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The modules of `testkit/modules`, built for the kernel of a guest.
//!
//! Debian's headers of a kernel are packages: its configuration, its sources' headers, and the tools of its build. They are kept as
//! they come, since unpacked they have 80 MB each, and are needed only when a source has changed. The compiler is this
//! machine's: it is older than that of new kernels, so it is not asked for what it does not know.
//!
//! The tools of the build are linked to the C library of their release, which is newer than the one here. They are run
//! with that library, through its own dynamic linker.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::apt::{self, Apt, keep};
use super::locks::{Lock, TemporaryDirectory};
use crate::root;

/// Below the top of the tree.
const SOURCES: &str = "testkit/modules";
/// What the tools of the build are linked to, beside `libelf`, whose package has another name in each release.
const LIBRARIES: [&str; 3] = ["libc6", "zlib1g", "libzstd1"];
/// The tools that need a newer C library. Debian's are programs that choose one for an architecture and start it.
const TOOLS: [(&str, &str); 2] =
    [("scripts/mod/modpost", "modpost.real-lsb-64"), ("tools/objtool/objtool", "objtool.real-x86")];
/// What the kernel's configuration has and this build does without: a compiler's option that GCC has since 14, debugging
/// information, and type information of modules, which takes the kernel's.
const WITHOUT: [&str; 3] =
    ["CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT=", "CONFIG_DEBUG_INFO=", "CONFIG_DEBUG_INFO_BTF_MODULES="];

/// Downloads all packages that a build takes.
pub fn download(apt: &Apt, suite: &str, release: &str, to: &Path) -> Result<()> {
    let headers = format!("linux-headers-{release}");
    let description = apt.show(suite, &headers)?;
    let dependencies = apt::dependencies(&description);
    let find = |begin: &str, end: &str| {
        let name = dependencies.iter().find(|name| name.starts_with(begin) && name.contains(end));
        name.copied().with_context(|| format!("{headers} depends on no package {begin}*{end}"))
    };
    let (common, kbuild) = (find("linux-headers-", "-common")?, find("linux-kbuild-", "")?);
    let description = apt.show(suite, kbuild)?;
    let libelf = apt::dependencies(&description).into_iter().find(|name| name.starts_with("libelf"));
    let libelf = libelf.with_context(|| format!("{kbuild} does not depend on libelf"))?;
    fs::create_dir_all(to)?;
    let packages = [&[headers.as_str(), common, kbuild, libelf], &LIBRARIES[..]].concat();
    for deb in apt.download(suite, &packages)? {
        keep(&deb, &to.join(deb.file_name().context("a package without a name")?))?;
    }
    Ok(())
}

/// The names of the modules that the tree has.
pub fn sources() -> Result<Vec<String>> {
    let files = fs::read_dir(root().join(SOURCES)).context(SOURCES)?.filter_map(Result::ok);
    let names = files.filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".c")?.to_owned()));
    Ok(names.collect())
}

/// What this machine lacks for a build; `None` if it has all.
pub fn missing_tool() -> Option<String> {
    let works = |tool: &&str| {
        let mut command = Command::new(tool);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let missing = ["make", "gcc", "ld"].into_iter().find(|tool| !works(tool))?;
    Some(format!("{SOURCES} cannot be built: {missing} is missing (./x setup installs it)"))
}

/// The directory with the built modules of the tree. `directory`: of the release, in the cache.
pub fn build(directory: &Path, release: &str) -> Result<PathBuf> {
    let built = directory.join("built");
    fs::create_dir_all(&built)?;
    let _lock = Lock::exclusive(&built.join("lock"), "waiting for another ./x vm that builds modules")?;
    let sources = read_sources()?;
    // What was built from the same sources is taken, whichever checkout they are of.
    let place = built.join(hash(&sources));
    if place.is_dir() {
        return Ok(place);
    }
    eprintln!("xtask: building {SOURCES} for {release}");
    // Not in the cache: make has no names with spaces, and a home directory may have some.
    let work = TemporaryDirectory::create(&std::env::temp_dir().join("rtscope-modules"), "build")?;
    unpack(&directory.join("headers"), work.path())?;
    let modules = work.path().join("modules");
    fs::create_dir_all(&modules)?;
    for (name, content) in &sources {
        fs::write(modules.join(name), content)?;
    }
    let objects: Vec<String> = self::sources()?.into_iter().map(|name| format!("{name}.o")).collect();
    fs::write(modules.join("Kbuild"), format!("obj-m := {}\n", objects.join(" ")))?;
    make(work.path(), release, &modules)?;
    let new = built.join("new");
    if new.exists() {
        fs::remove_dir_all(&new)?;
    }
    fs::create_dir_all(&new)?;
    for name in self::sources()? {
        let file = format!("{name}.ko");
        fs::copy(modules.join(&file), new.join(&file))
            .with_context(|| format!("make has not made {file}"))?;
    }
    keep(&new, &place)?;
    Ok(place)
}

/// All files that a build depends on.
fn read_sources() -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join(SOURCES)).context(SOURCES)? {
        let path = entry?.path();
        let name = path.file_name().context("a file without a name")?.to_string_lossy().into_owned();
        if name.ends_with(".c") || name.ends_with(".h") {
            files.push((name, fs::read(&path)?));
        }
    }
    files.sort();
    Ok(files)
}

/// Names what is built from these files.
fn hash(files: &[(String, Vec<u8>)]) -> String {
    // FNV-1a of 64 bits; changes of how it is built count, too.
    let parts = files.iter().flat_map(|(name, content)| [name.as_bytes(), content]);
    let parts = parts.chain(WITHOUT.iter().map(|option| option.as_bytes()));
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        let size = part.len().to_le_bytes();
        for byte in size.iter().chain(part) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

/// Unpacks the packages, and makes the tools of the build run here.
fn unpack(debs: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(debs).with_context(|| debs.display().to_string())? {
        apt::unpack(&entry?.path(), to)?;
    }
    let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|place| to.join(place));
    let linker = libraries.iter().map(|place| place.join("ld-linux-x86-64.so.2")).find(|file| file.is_file());
    let linker = linker.context("libc6 has no dynamic linker")?;
    let path = libraries.each_ref().map(|place| place.display().to_string()).join(":");
    let kbuild = only(&to.join("usr/lib"), "linux-kbuild-", "")?;
    for (tool, real) in TOOLS {
        let tool = kbuild.join(tool);
        let chosen = tool.with_file_name(real);
        let real = tool.with_extension("real");
        // Where there is only one, it is the tool itself.
        fs::rename(if chosen.is_file() { &chosen } else { &tool }, &real)
            .context("the tools of linux-kbuild")?;
        let script =
            format!("#!/bin/sh\nexec {} --library-path {path} {} \"$@\"\n", linker.display(), real.display());
        fs::write(&tool, script)?;
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn make(tree: &Path, release: &str, modules: &Path) -> Result<()> {
    let headers = tree.join(format!("usr/src/linux-headers-{release}"));
    let common = only(&tree.join("usr/src"), "linux-headers-", "-common")?;
    let mut command = Command::new("make");
    command.arg("-C").arg(&headers).arg("-f").arg(common.join("Makefile"));
    command.arg(format!("KBUILD_OUTPUT={}", headers.display())).arg(format!("M={}", modules.display()));
    command.arg(format!("KERNELRELEASE={release}"));
    command.args([
        "ARCH=x86",
        "CROSS_COMPILE=",
        "CC=gcc",
        "HOSTCC=gcc",
        "DEBIAN_KERNEL_NO_CC_VERSION_CHECK=y",
    ]);
    command.args(WITHOUT).arg("modules").env_remove("MAKEFLAGS").env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().context("make")?;
    if !output.status.success() {
        // Old compilers do not know all attributes, and print many warnings about them.
        let errors = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<&str> = errors.lines().filter(|line| line.to_lowercase().contains("error")).collect();
        bail!("{SOURCES} could not be built for {release}:\n{}", errors.join("\n"));
    }
    Ok(())
}

/// The one directory with such a name.
fn only(parent: &Path, begin: &str, end: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(parent).with_context(|| parent.display().to_string())?.filter_map(Result::ok);
    let found: BTreeSet<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(begin) && name.contains(end)
        })
        .collect();
    ensure!(found.len() == 1, "{}: {} directories {begin}*{end}", parent.display(), found.len());
    found.into_iter().next().context("there is one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_built_again_when_a_source_changes() {
        let file = |name: &str, content: &str| (name.to_owned(), content.as_bytes().to_vec());
        let all = [
            vec![file("a.c", "1"), file("b.c", "2")],
            vec![file("a.c", "1b"), file("b.c", "2")],
            vec![file("a.c", "1"), file("b.h", "2")],
            vec![file("a.c", "1")],
        ];
        let hashes: BTreeSet<String> = all.iter().map(|files| hash(files)).collect();
        assert_eq!(hashes.len(), all.len());
        assert_eq!(hash(&all[0]), hash(&all[0].clone()));
    }

    #[test]
    fn the_tree_has_an_injector() {
        assert!(sources().expect("they can be read").contains(&"injector".to_owned()));
        assert!(read_sources().expect("they can be read").iter().any(|(name, _)| name == "injector.c"));
    }
}
