// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel modules for the guests: those of the distribution that tests may ask for, and those of `testkit/modules`.
//!
//! A kernel package has thousands of modules; `WANTED` and what they depend on are kept, unpacked, in the cache. A test says which
//! it needs (`needs`), and the archive of its boot has these, where modprobe looks for them. Debian makes the list of
//! dependencies when a package is installed, so here it is made from what the modules say themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::headers;
use super::initramfs::Initramfs;

/// Modules of the distribution that tests may ask for.
const WANTED: [&str; 11] = [
    "dm_delay",
    "dm_mod",
    "dummy_stm",
    "loop",
    "null_blk",
    "sch_netem",
    "stm_core",
    "stm_p_basic",
    "stm_p_sys_t",
    "veth",
    "virtio_blk",
];
/// The list of dependencies, as modprobe reads it.
const LIST: &str = "modules.dep";
/// The wanted modules that are not there: a name and the reason a line.
const MISSING: &str = "missing";

/// Changes when other modules are kept.
pub fn version_of_list() -> String {
    // FNV-1a; the order is part of it.
    let hash = WANTED
        .iter()
        .flat_map(|name| name.bytes().chain([0]))
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

/// What can be loaded into a kernel.
#[derive(Debug, Clone)]
pub struct Modules {
    release: String,
    /// The release's directory in the cache, or why there is none.
    directory: Result<PathBuf, String>,
}

impl Modules {
    /// Of a release in the cache.
    pub fn of(directory: &Path, release: &str) -> Modules {
        Modules { release: release.to_owned(), directory: Ok(directory.to_owned()) }
    }

    /// Of a kernel that has none, for a reason.
    pub fn none(release: &str, reason: &str) -> Modules {
        Modules { release: release.to_owned(), directory: Err(reason.to_owned()) }
    }

    /// Adds modules and what they depend on to an archive, and why some of them are missing. Those of the tree are built now.
    pub fn add_to(&self, archive: &mut Initramfs, names: &[&str]) -> Result<()> {
        let (mut list, mut reasons) = (String::new(), String::new());
        let missing = self.missing();
        let place = format!("lib/modules/{}", self.release);
        let mut added = BTreeSet::new();
        for name in names.iter().map(|name| plain(name)) {
            if let Some(reason) = self.reason(&missing, &name) {
                reasons += &format!("{name} {reason}\n");
                continue;
            }
            for (file, dependencies) in self.with_dependencies(&name)? {
                let file_name = file.file_name().context("a module without a name")?.to_string_lossy();
                if added.insert(file_name.to_string()) {
                    archive.file(&format!("{place}/{file_name}"), &fs::read(&file)?)?;
                    list += &format!("{file_name}: {}\n", dependencies.join(" "));
                }
            }
        }
        archive.file(&format!("{place}/{LIST}"), list.as_bytes())?;
        archive.file(&format!("{place}/{MISSING}"), reasons.as_bytes())
    }

    /// All modules that there are.
    pub fn all() -> Result<Vec<String>> {
        Ok(WANTED.map(str::to_owned).into_iter().chain(headers::sources()?).collect())
    }

    /// Why a module is not there.
    fn reason(&self, missing: &BTreeMap<String, String>, name: &str) -> Option<String> {
        match &self.directory {
            Err(reason) => Some(reason.clone()),
            Ok(_) if headers::sources().is_ok_and(|sources| sources.iter().any(|source| source == name)) => {
                headers::missing_tool()
            }
            Ok(_) if WANTED.contains(&name) => missing.get(name).cloned(),
            Ok(_) => Some(format!("xtask/src/vm/modules.rs keeps no module {name}")),
        }
    }

    fn missing(&self) -> BTreeMap<String, String> {
        let Ok(directory) = &self.directory else { return BTreeMap::new() };
        let text = fs::read_to_string(directory.join("modules").join(MISSING)).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, why)| (name.into(), why.into()))
            .collect()
    }

    /// The files of a module and of those that it depends on, each with its line of the list.
    fn with_dependencies(&self, name: &str) -> Result<Vec<(PathBuf, Vec<String>)>> {
        let Ok(directory) = &self.directory else { return Ok(Vec::new()) };
        if headers::sources()?.iter().any(|source| source == name) {
            return Ok(vec![(
                headers::build(directory, &self.release)?.join(format!("{name}.ko")),
                Vec::new(),
            )]);
        }
        let modules = directory.join("modules");
        let list = modules.join(LIST);
        let list = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
        let lines = parse_list(&list);
        let Some((file, dependencies)) = lines.get(name) else {
            // It is part of the kernel's image.
            return Ok(Vec::new());
        };
        let mut files = vec![(modules.join(file), dependencies.clone())];
        for dependency in dependencies {
            let (file, own) = lines.get(&plain_file(dependency)).with_context(|| dependency.clone())?;
            files.push((modules.join(file), own.clone()));
        }
        Ok(files)
    }
}

/// Unpacks the wanted modules and what they depend on from the tree of a package into a directory. Returns those that the package
/// does not have.
pub fn keep_wanted(tree: &Path, release: &str, busybox: &Path, to: &Path) -> Result<Vec<&'static str>> {
    fs::create_dir_all(to)?;
    let mut files = BTreeMap::new();
    let mut builtin = BTreeSet::new();
    for root in ["lib/modules", "usr/lib/modules"].map(|place| tree.join(place).join(release)) {
        find(&root, &mut files)?;
        let list = fs::read_to_string(root.join("modules.builtin")).unwrap_or_default();
        builtin.extend(list.lines().map(plain_file));
    }
    let mut needed = BTreeMap::new();
    let mut missing = Vec::new();
    for name in WANTED {
        if files.contains_key(name) {
            collect(name, &files, busybox, to, &mut needed)?;
        } else if !builtin.contains(name) {
            missing.push(name);
        }
    }
    let list = needed.keys().map(|name| list_line(name, &needed)).collect::<Result<String>>()?;
    fs::write(to.join(LIST), list)?;
    let reason = |name: &&str| format!("{name} linux-image-{release} has no module {name}\n");
    fs::write(to.join(MISSING), missing.iter().map(reason).collect::<String>())?;
    Ok(missing)
}

/// A module's file name, and what it depends on itself.
type Needed = BTreeMap<String, (String, Vec<String>)>;

/// Unpacks a module and what it depends on.
fn collect(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    busybox: &Path,
    to: &Path,
    needed: &mut Needed,
) -> Result<()> {
    if needed.contains_key(name) {
        return Ok(());
    }
    let file = files.get(name).with_context(|| format!("a module depends on {name}, which is not there"))?;
    let packed = file.file_name().context("a module without a name")?.to_string_lossy().into_owned();
    let unpacked = packed.trim_end_matches(".xz").to_owned();
    ensure!(unpacked.ends_with(".ko"), "{packed} is compressed in an unknown way");
    let bytes = if packed == unpacked { fs::read(file)? } else { unxz(file, busybox)? };
    let dependencies = depends(&bytes).with_context(|| format!("{packed} is not a module"))?;
    fs::write(to.join(&unpacked), bytes)?;
    needed.insert(name.to_owned(), (unpacked, dependencies.clone()));
    dependencies.iter().try_for_each(|dependency| collect(dependency, files, busybox, to, needed))
}

/// "dm-delay.ko: dm-mod.ko": all that has to be loaded before, what depends on others first, as depmod writes it.
fn list_line(name: &str, needed: &Needed) -> Result<String> {
    let mut order: Vec<&str> = Vec::new();
    let (mut open, mut steps) = (vec![name], 0);
    while let Some(next) = open.pop() {
        steps += 1;
        ensure!(steps < 1000, "{name} depends on itself");
        // What others depend on goes to the end.
        order.retain(|known| *known != next);
        order.push(next);
        let (_, dependencies) = needed.get(next).with_context(|| next.to_owned())?;
        open.extend(dependencies.iter().map(String::as_str));
    }
    let file = |name: &&str| needed.get(*name).map(|(file, _)| file.as_str()).unwrap_or_default();
    let dependencies: Vec<&str> = order[1..].iter().map(file).collect();
    Ok(format!("{}: {}\n", file(&name), dependencies.join(" ")))
}

/// A file and what it depends on, by the name of the module.
fn parse_list(text: &str) -> BTreeMap<String, (String, Vec<String>)> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let words = |rest: &str| rest.split_whitespace().map(str::to_owned).collect();
    lines.map(|(file, rest)| (plain_file(file), (file.to_owned(), words(rest)))).collect()
}

/// All modules below a directory, by their names.
fn find(directory: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            find(&path, files)?;
        } else if path.to_string_lossy().contains(".ko") {
            files.insert(plain_file(&path.to_string_lossy()), path);
        }
    }
    Ok(())
}

/// Modules are named with underscores; in files both are used.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

/// "kernel/drivers/md/dm-delay.ko.xz" is dm_delay.
fn plain_file(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    plain(name.split(".ko").next().unwrap_or(name))
}

fn unxz(file: &Path, busybox: &Path) -> Result<Vec<u8>> {
    let mut command = Command::new(busybox);
    let output = command.args(["unxz", "-c"]).arg(file).stdin(Stdio::null()).output().context("busybox")?;
    if !output.status.success() {
        bail!("{}: {}", file.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

/// What a module says that it depends on: the entry `depends=` of its section `.modinfo`.
fn depends(module: &[u8]) -> Option<Vec<String>> {
    let information = section(module, b".modinfo")?;
    let entries = information.split(|byte| *byte == 0);
    let names = entries.filter_map(|entry| entry.strip_prefix(b"depends=")).next()?;
    let names = std::str::from_utf8(names).ok()?;
    Some(names.split(',').filter(|name| !name.is_empty()).map(plain).collect())
}

/// A section of a 64-bit little-endian ELF file.
fn section<'a>(file: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let number = |at: usize, size: usize| {
        let bytes = file.get(at..at.checked_add(size)?)?;
        let value = bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        usize::try_from(value).ok()
    };
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (table, size) = (number(0x28, 8)?, number(0x3a, 2)?);
    let (count, names) = (number(0x3c, 2)?, number(0x3e, 2)?);
    let header = |index: usize| table.checked_add(index.checked_mul(size)?);
    let content = |index: usize| {
        let (offset, length) = (number(header(index)? + 0x18, 8)?, number(header(index)? + 0x20, 8)?);
        file.get(offset..offset.checked_add(length)?)
    };
    let names = content(names)?;
    let is_it = |index: &usize| {
        let begin = header(*index).and_then(|at| number(at, 4)).and_then(|at| names.get(at..));
        begin.is_some_and(|begin| begin.split(|byte| *byte == 0).next() == Some(name))
    };
    content((0..count).find(is_it)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(modules: &[(&str, &[&str])]) -> Needed {
        let entry = |(name, dependencies): &(&str, &[&str])| {
            let dependencies = dependencies.iter().map(|&name| name.to_owned()).collect();
            ((*name).to_owned(), (format!("{}.ko", name.replace('_', "-")), dependencies))
        };
        modules.iter().map(entry).collect()
    }

    #[test]
    fn what_a_module_depends_on_is_loaded_before_it() {
        let modules = needed(&[
            ("virtio_blk", &["virtio", "virtio_ring"]),
            ("virtio_ring", &["virtio"]),
            ("virtio", &[]),
        ]);
        let line = list_line("virtio_blk", &modules).expect("all are there");
        // modprobe begins at the end.
        assert_eq!(line, "virtio-blk.ko: virtio-ring.ko virtio.ko\n");
        assert_eq!(list_line("virtio", &modules).expect("it is there"), "virtio.ko: \n");
        assert!(list_line("loop", &modules).is_err());
        assert!(list_line("a", &needed(&[("a", &["b"]), ("b", &["a"])])).is_err());
        let read = parse_list(&line);
        assert_eq!(read["virtio_blk"].1, ["virtio-ring.ko", "virtio.ko"]);
    }

    #[test]
    fn names_of_files_are_names_of_modules() {
        assert_eq!(plain_file("kernel/drivers/md/dm-delay.ko.xz"), "dm_delay");
        assert_eq!(plain_file("loop.ko"), "loop");
    }

    #[test]
    fn dependencies_are_read_from_the_module() {
        let module = elf(b".modinfo", b"license=GPL\0depends=dm-mod,dax\0vermagic=6\0");
        assert_eq!(depends(&module).expect("a module"), ["dm_mod", "dax"]);
        assert_eq!(depends(&elf(b".modinfo", b"depends=\0")).expect("a module"), [""; 0]);
        assert_eq!(depends(&elf(b".text", b"depends=a\0")), None);
        // The last 24 bytes are of a header's fields that are not asked for.
        for end in 0..module.len() - 24 {
            assert_eq!(depends(&module[..end]), None, "{end}");
        }
    }

    /// A file with one section.
    fn elf(name: &[u8], content: &[u8]) -> Vec<u8> {
        let mut file = vec![0_u8; 0x40];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let names = [b"\0", name, b"\0"].concat();
        let (names_at, content_at) = (file.len(), file.len() + names.len());
        file.extend(&names);
        file.extend(content);
        let table = file.len();
        for (name, at, size) in [(0, names_at, names.len()), (1, content_at, content.len())] {
            let mut header = [0_u8; 0x40];
            header[0] = name;
            header[0x18..0x20].copy_from_slice(&(at as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(size as u64).to_le_bytes());
            file.extend(header);
        }
        file[0x28..0x30].copy_from_slice(&(table as u64).to_le_bytes());
        file[0x3a] = 0x40;
        file[0x3c] = 2;
        file
    }
}
