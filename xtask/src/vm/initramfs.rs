// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest's whole file system, as one archive that the kernel unpacks into memory.
//!
//! It needs no disk, no driver and no root to be made. It has busybox, the test programs, what they call, and the shared
//! libraries of all of these, at the paths that they have here. The archive is not compressed: copying it costs the
//! emulated CPU less than unpacking it.
//!
//! The format is cpio's "newc" (Documentation/driver-api/early-userspace/buffer-format.rst in the kernel's sources).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive that is being written.
#[derive(Debug)]
pub struct Initramfs {
    out: BufWriter<File>,
    written: u64,
    entries: u32,
    /// What is in it already.
    paths: BTreeSet<PathBuf>,
}

impl Initramfs {
    /// Begins an archive.
    pub fn create(path: &Path) -> Result<Initramfs> {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        let mut archive =
            Initramfs { out: BufWriter::new(file), written: 0, entries: 0, paths: BTreeSet::new() };
        for folder in ["dev", "proc", "sys", "tmp", "bin", "etc", "root"] {
            archive.folder(Path::new(folder))?;
        }
        // The kernel opens it for the first program, before anything can be mounted: 5, 1 is its number.
        archive.entry(Path::new("dev/console"), CHARACTER_DEVICE, (5, 1), &[])?;
        Ok(archive)
    }

    /// Adds a file with this content, executable.
    pub fn file(&mut self, path: &str, content: &[u8]) -> Result<()> {
        let path = relative(Path::new(path));
        self.parents(&path)?;
        self.entry(&path, PROGRAM, (0, 0), content)
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) -> Result<()> {
        let path = relative(Path::new(path));
        self.parents(&path)?;
        self.entry(&path, LINK, (0, 0), target.as_bytes())
    }

    /// Adds a program and the libraries that it needs.
    pub fn program(&mut self, path: &str, source: &Path) -> Result<()> {
        self.file(path, &read(source)?)?;
        self.libraries(source)
    }

    /// Adds one of this machine's programs with its libraries, if it is there; says whether it is.
    pub fn tool(&mut self, name: &str) -> Result<bool> {
        let Some(source) = find(name) else { return Ok(false) };
        self.program(&format!("usr/bin/{name}"), &source)?;
        Ok(true)
    }

    /// Adds all plain files of a directory, at the same path, with the libraries that they need.
    pub fn plugins(&mut self, dir: &Path) -> Result<()> {
        let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
        for entry in entries {
            let path = entry?.path();
            if path.is_file() && path.extension().is_some_and(|end| end == "so") {
                self.program(&path.to_string_lossy(), &path)?;
            }
        }
        Ok(())
    }

    /// Ends the archive; returns its size.
    pub fn finish(mut self) -> Result<u64> {
        self.entry(Path::new("TRAILER!!!"), 0, (0, 0), &[])?;
        self.out.flush()?;
        Ok(self.written)
    }

    fn libraries(&mut self, program: &Path) -> Result<()> {
        for library in libraries(program)? {
            if !self.paths.contains(&relative(&library)) {
                self.file(&library.to_string_lossy(), &read(&library)?)?;
            }
        }
        Ok(())
    }

    fn parents(&mut self, path: &Path) -> Result<()> {
        let mut folders: Vec<&Path> =
            path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()).collect();
        folders.reverse();
        folders.into_iter().try_for_each(|folder| self.folder(folder))
    }

    fn folder(&mut self, path: &Path) -> Result<()> {
        if self.paths.contains(path) { Ok(()) } else { self.entry(path, FOLDER, (0, 0), &[]) }
    }

    fn entry(&mut self, path: &Path, mode: u32, device: (u32, u32), content: &[u8]) -> Result<()> {
        let name = path.to_str().context("a name that is not UTF-8")?;
        self.paths.insert(path.to_owned());
        self.entries += 1;
        let size = u32::try_from(content.len()).with_context(|| format!("{name} is too big"))?;
        let name_size = u32::try_from(name.len() + 1)?;
        let numbers = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
        let mut header = String::from("070701");
        numbers.iter().for_each(|number| header += &format!("{number:08x}"));
        self.put(header.as_bytes())?;
        self.put(name.as_bytes())?;
        self.put(&[0])?;
        self.pad()?;
        self.put(content)?;
        self.pad()
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.written += bytes.len() as u64;
        Ok(self.out.write_all(bytes)?)
    }

    fn pad(&mut self) -> Result<()> {
        let missing = self.written.next_multiple_of(4) - self.written;
        self.put(&[0; 4][..usize::try_from(missing)?])
    }
}

/// Inside an archive paths begin at its top.
fn relative(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, std::path::Component::Normal(_))).collect()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

/// A program on the `PATH`, or where only root has them.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.into_iter().map(|folder| folder.join(name)).find(|file| {
        file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    })
}

/// The shared libraries of a program, as the dynamic linker finds them here, and the linker itself.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let missing = text.lines().find(|line| line.contains("not found"));
    ensure!(missing.is_none(), "{}: {}", program.display(), missing.unwrap_or_default().trim());
    Ok(library_paths(&text))
}

fn library_paths(ldd: &str) -> Vec<PathBuf> {
    let words = ldd.lines().filter_map(|line| {
        let line = line.split_once(" => ").map_or(line, |(_, path)| path);
        line.split_whitespace().next().filter(|word| word.starts_with('/'))
    });
    words.map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x00007ffe)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(
            library_paths(text),
            ["/lib/x/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from)
        );
        assert!(library_paths("\tstatically linked\n").is_empty());
    }

    #[test]
    fn an_archive_is_as_the_kernel_wants_it() {
        let path = std::env::temp_dir().join(format!("rtscope-cpio-test.{}", std::process::id()));
        let mut archive = Initramfs::create(&path).expect("it can be written");
        archive.file("/a/b/hello", b"hi").expect("it can be written");
        let size = archive.finish().expect("it can be written");
        let bytes = fs::read(&path).expect("it is there");
        fs::remove_file(&path).expect("it is there");
        assert_eq!(bytes.len() as u64, size);
        assert_eq!(size % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        // Directories come before what is in them, and content follows its padded name.
        let places = ["dev/console\0", "a\0", "a/b\0", "a/b/hello\0", "hi\0\0", "TRAILER!!!\0"]
            .map(|part| text.find(part));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
    }
}
