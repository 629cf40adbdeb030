// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories that appear complete or not at all.
//!
//! babeltrace2 refuses a whole trace for one packet that is cut short, so a trace that a full disk or a kill left
//! incomplete must never be found under its final name. A directory is therefore filled under a hidden name in the same
//! directory (same file system, so that the rename is atomic) and renamed at the end. The files are synced before: without that, ext4
//! may bring back a renamed directory with empty files after a power cut.

use crate::Error;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// A directory being filled under a hidden name (`.NAME.ID.partial`). Dropping it without [`StagedDir::publish`] removes
/// it with its content. A killed process leaves the hidden directory behind; it is safe to remove.
#[derive(Debug)]
pub struct StagedDir {
    temporary: PathBuf,
    target: PathBuf,
    published: bool,
    is_kept: bool,
}

impl StagedDir {
    /// Makes the hidden directory. The directory that `target` is to be in must exist, `target` itself must not.
    ///
    /// # Errors
    /// When `target` exists, has no name, or the directory cannot be made.
    pub fn new(target: &Path) -> Result<StagedDir, Error> {
        let name = target.file_name().ok_or_else(|| Error::NoName(target.to_owned()))?;
        refuse_existing(target)?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.partial", Uuid::new_v4().simple()));
        let temporary = target.with_file_name(hidden);
        fs::create_dir(&temporary).map_err(Error::io("make the directory", &temporary))?;
        Ok(StagedDir { temporary, target: target.to_owned(), published: false, is_kept: false })
    }

    /// A directory that the caller manages, on the same file system: if it is not published, it stays.
    ///
    /// # Errors
    /// When `target` exists, or the directory is not there and cannot be made.
    pub fn kept(directory: &Path, target: &Path) -> Result<StagedDir, Error> {
        refuse_existing(target)?;
        fs::create_dir_all(directory).map_err(Error::io("make the directory", directory))?;
        let (temporary, target) = (directory.to_owned(), target.to_owned());
        Ok(StagedDir { temporary, target, published: false, is_kept: true })
    }

    /// Where to put the files for now.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// Gives the directory its name.
    ///
    /// # Errors
    /// When something else has taken the name since, or the system refuses; the hidden directory is then removed.
    pub fn publish(mut self) -> Result<(), Error> {
        sync(&self.temporary)?;
        refuse_existing(&self.target)?;
        // A rename replaces at most an empty directory: one that appeared since the check above loses nothing.
        fs::rename(&self.temporary, &self.target).map_err(|source| match source.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
                Error::Exists(self.target.clone())
            }
            _ => Error::io("rename the finished directory to", &self.target)(source),
        })?;
        self.published = true;
        match self.target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => sync(parent),
            _ => sync(Path::new(".")),
        }
    }
}

impl Drop for StagedDir {
    fn drop(&mut self) {
        if !self.published && !self.is_kept {
            // A failure here is ignored: the error that led here is being reported already.
            let _ = fs::remove_dir_all(&self.temporary);
        }
    }
}

fn refuse_existing(target: &Path) -> Result<(), Error> {
    match fs::symlink_metadata(target) {
        Ok(_) => Err(Error::Exists(target.to_owned())),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(Error::io("look at", target)(source)),
    }
}

fn sync(directory: &Path) -> Result<(), Error> {
    match File::open(directory).and_then(|directory| directory.sync_all()) {
        // Some file systems (FUSE, network) do not sync directories; the rename is atomic nevertheless.
        Err(source) if source.kind() == io::ErrorKind::InvalidInput => Ok(()),
        result => result.map_err(Error::io("sync", directory)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_folder_appears_when_it_is_published() {
        let root = tempfile::tempdir().unwrap();
        let staged = StagedDir::new(&root.path().join("final")).unwrap();
        fs::write(staged.path().join("file"), "text").unwrap();
        assert!(names(root.path())[0].starts_with(".final."));
        staged.publish().unwrap();
        assert_eq!(names(root.path()), ["final"]);
        assert_eq!(names(&root.path().join("final")), ["file"]);
    }

    #[test]
    fn a_dropped_folder_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let staged = StagedDir::new(&root.path().join("final")).unwrap();
        fs::write(staged.path().join("file"), "text").unwrap();
        drop(staged);
        assert!(names(root.path()).is_empty());
    }

    #[test]
    fn a_taken_name_is_refused_early_and_late() {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("final");
        let staged = StagedDir::new(&target).unwrap();
        fs::create_dir(&target).unwrap();
        fs::write(target.join("other"), "theirs").unwrap();
        assert!(matches!(staged.publish(), Err(Error::Exists(_))));
        assert!(matches!(StagedDir::new(&target), Err(Error::Exists(_))));
        assert_eq!(names(root.path()), ["final"]);
        assert_eq!(names(&target), ["other"]);
    }
}
