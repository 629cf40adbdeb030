// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's files, below a directory: `/`, or a tree of plain files that imitates a machine.
//!
//! In such a tree no task is ever touched: its process numbers would be those of strangers.

use crate::Error;
use nix::unistd::{AccessFlags, access};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// No setting is longer; a longer file is something else.
const MOST_BYTES: u64 = 64 << 10;

/// A machine.
#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
}

impl System {
    /// The machine whose files are below this directory.
    pub fn new(root: &Path) -> System {
        System { root: root.to_owned() }
    }

    /// Whether it is the one that we run on.
    pub fn is_real(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where a file really is. `path` is absolute, as in messages and in the journal.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The text of a file.
    pub fn read(&self, path: &str) -> io::Result<String> {
        let mut text = String::new();
        File::open(self.path(path))?.take(MOST_BYTES).read_to_string(&mut text)?;
        Ok(text)
    }

    /// The text of a file that has no limit, or that holds names which anybody chooses: a thread's need not be text.
    pub fn read_whole(&self, path: &str) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(self.path(path))?).into_owned())
    }

    /// Writes with one call, as the kernel wants it. Never makes a file.
    pub fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).truncate(true).open(self.path(path))?;
        let written = file.write(value.as_bytes())?;
        if written == value.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Whether there is such a file or directory.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Why this file cannot be written, as far as can be known without writing. Root passes every check of rights, but the kernel's
    /// own files refuse when their mode has no right to write for anybody.
    pub fn refusal(&self, path: &str) -> Option<String> {
        let real = self.path(path);
        let mode = match fs::metadata(&real) {
            Ok(found) => found.permissions().mode(),
            Err(error) => return Some(error.to_string()),
        };
        if mode & 0o222 == 0 {
            return Some("it is read-only on this kernel".to_owned());
        }
        access(&real, AccessFlags::W_OK).err().map(|errno| errno.desc().to_owned())
    }

    /// All files that a pattern stands for: `*` in a part of the path is any text. Sorted, numbers by value.
    pub fn glob(&self, pattern: &str) -> Vec<String> {
        let mut found = vec![String::new()];
        for part in pattern.split('/').filter(|part| !part.is_empty()) {
            found = match part.contains('*') {
                false => found.into_iter().map(|path| format!("{path}/{part}")).collect(),
                true => found.iter().flat_map(|path| self.matching(path, part)).collect(),
            };
        }
        found.retain(|path| self.exists(path));
        found
    }

    fn matching(&self, directory: &str, part: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(&format!("{directory}/"))) else { return Vec::new() };
        let (before, after) = part.split_once('*').unwrap_or((part, ""));
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names
            .filter(|name| {
                name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
            })
            .collect();
        names.sort_by_key(|name| {
            let digits: String = name.chars().filter(char::is_ascii_digit).collect();
            (digits.parse::<u64>().unwrap_or(u64::MAX), name.clone())
        });
        names.into_iter().map(|name| format!("{directory}/{name}")).collect()
    }

    /// Makes a directory.
    pub fn make_directory(&self, path: &str) -> io::Result<()> {
        fs::create_dir(self.path(path))
    }

    /// Removes an empty directory; a cgroup's files do not count.
    pub fn remove_directory(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.path(path))
    }

    /// A directory of ours, which nobody but us may write to, whatever the umask is.
    pub(crate) fn make_own_directory(directory: &Path) -> Result<(), Error> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(directory);
        made.map_err(Error::io("make", directory))
    }

    /// Makes the file have this content, or be as it was, whatever happens in between. All may read it, and nobody but us write.
    pub fn replace(&self, path: &str, content: &str) -> Result<(), Error> {
        let (path, new) = (self.path(path), self.path(&format!("{path}.new")));
        let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
        System::make_own_directory(&directory)?;
        let write = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o644).open(&new)?;
            file.write_all(content.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&directory)?.sync_all()
        };
        let written = write();
        if written.is_err() {
            // Half a file is of no use to anybody, and the disk may be full.
            let _ = fs::remove_file(&new);
        }
        written.map_err(Error::io("write", &path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_find_files_in_order() {
        let directory = tempfile::tempdir().expect("a directory");
        let system = System::new(directory.path());
        for number in ["10", "9", "x"] {
            fs::create_dir_all(system.path(&format!("/proc/irq/{number}"))).expect("made");
            fs::write(system.path(&format!("/proc/irq/{number}/a")), "1").expect("written");
        }
        assert_eq!(system.glob("/proc/irq/*/a"), ["/proc/irq/9/a", "/proc/irq/10/a", "/proc/irq/x/a"]);
        assert_eq!(system.glob("/proc/irq/*/b"), Vec::<String>::new());
        assert_eq!(system.glob("/proc/irq/9/a"), ["/proc/irq/9/a"]);
        assert!(system.write("/proc/irq/9/b", "1").is_err(), "files are never made");
    }
}
