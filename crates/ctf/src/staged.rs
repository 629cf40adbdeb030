// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories that appear complete or not at all.
//!
//! babeltrace2 refuses a whole trace for one packet that is cut short, so a trace that a full disk or a kill left
//! incomplete must never be found under its final name. A directory is therefore filled under a hidden name in the same
//! directory (same file system, so that the rename is atomic) and renamed at the end. The files are synced before: without that, ext4
//! may bring back a renamed directory with empty files after a power cut.
//!
//! Who owns the directory above can exchange the hidden one for another, with links in it, and root would write where they lead. So the hidden directory is opened
//! once, and its files are made in what is open.
//!
//! Whether a hidden directory's writer is gone must not be guessed: each is locked by its writer (flock), and what a killed one left is not. Nobody
//! else may open it before it has its name, so nobody else can lock it.

use crate::Error;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// A directory being filled under a hidden name (`.NAME.ID.partial`). Dropping it without [`StagedDir::publish`] removes
/// it with its content. A killed process leaves the hidden directory behind: [`StagedDir::abandoned`] and [`remove_abandoned`].
#[derive(Debug)]
pub struct StagedDir {
    /// Where its files are made.
    path: PathBuf,
    /// Its name until it is published; of one that the caller manages its path.
    temporary: PathBuf,
    target: PathBuf,
    /// What `path` leads to, and the directory above; `None`: the caller manages it.
    open: Option<Open>,
    /// Not removed when it is dropped: it has its name, or somebody may still want it.
    stays: bool,
}

/// Hidden directories of a name.
#[derive(Debug)]
pub enum Abandoned {
    /// There is none.
    Nothing,
    /// A process fills one, or nobody can know.
    InUse,
    /// The newest of those whose writers were killed, which stays if it is not published.
    Left {
        /// It.
        newest: StagedDir,
        /// How many more there are.
        others: usize,
    },
}

#[derive(Debug)]
struct Open {
    parent: OwnedFd,
    this: This,
    /// Of whom it is to be, once it has its name, if that is known before.
    mode: Option<Mode>,
}

/// The directory that is filled. Some file systems have no locks: what is left there stays.
#[derive(Debug)]
enum This {
    Locked(Flock<OwnedFd>),
    Open(OwnedFd),
}

impl AsFd for This {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            This::Locked(lock) => lock.as_fd(),
            This::Open(this) => this.as_fd(),
        }
    }
}

/// A sweeper may take a new directory for abandoned once. Who owns the directory above could move each away.
const TRIES: u32 = 4;

/// A directory of which only the mode is of interest.
const USUAL: &str = "usual";

/// For a directory whose entries are used by its descriptor.
const DIRECTORY: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_CLOEXEC);

impl Open {
    /// Makes a directory and opens what was made. `None`: somebody took it for abandoned before it was locked.
    fn make(parent: &Path, name: &Path) -> io::Result<Option<Open>> {
        let parent: OwnedFd = File::options().read(true).custom_flags(DIRECTORY.bits()).open(parent)?.into();
        mkdirat(&parent, name, Mode::S_IRWXU)?;
        let this = match openat(&parent, name, DIRECTORY | OFlag::O_NOFOLLOW, Mode::empty()) {
            Err(Errno::ENOENT) => return Ok(None),
            this => this?,
        };
        let (status, own) = (fstat(&this)?, nix::unistd::geteuid().as_raw());
        let is_empty = fs::read_dir(path_of(&this))?.next().is_none();
        if status.st_uid != own || !is_empty {
            return Err(io::Error::other("somebody else has exchanged it while it was made"));
        }
        let mode = Some(usual_mode(&this)?);
        let this = match Flock::lock(this, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => This::Locked(lock),
            Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
            Err((this, _)) => This::Open(this),
        };
        let open = Open { parent, this, mode };
        Ok(open.is_still(name).then_some(open))
    }

    /// Opens what a killed process left. `None`: it lives.
    fn abandoned(parent: &Path, name: &Path) -> io::Result<Option<Open>> {
        let parent: OwnedFd = File::options().read(true).custom_flags(DIRECTORY.bits()).open(parent)?.into();
        let this = openat(&parent, name, DIRECTORY | OFlag::O_NOFOLLOW, Mode::empty())?;
        if fstat(&this)?.st_uid != nix::unistd::geteuid().as_raw() {
            return Err(io::Error::other("somebody else made it"));
        }
        let this = match Flock::lock(this, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
            Err((_, error)) => return Err(error.into()),
        };
        // Its mode is found out when it gets its name: that changes the time by which the newest is known.
        let open = Open { parent, this: This::Locked(this), mode: None };
        Ok(open.is_still(name).then_some(open))
    }

    fn path(&self) -> PathBuf {
        path_of(&self.this)
    }

    /// Whether this name in the directory above is still what is open.
    fn is_still(&self, name: &Path) -> bool {
        let there = openat(&self.parent, name, DIRECTORY | OFlag::O_NOFOLLOW, Mode::empty());
        let there = there.and_then(|there| fstat(&there));
        let here = fstat(&self.this);
        here.ok()
            .zip(there.ok())
            .is_some_and(|(here, there)| (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino))
    }
}

impl StagedDir {
    /// Makes the hidden directory. The directory that `target` is to be in must exist, `target` itself must not.
    ///
    /// # Errors
    /// When `target` exists, has no name, or the directory cannot be made.
    pub fn new(target: &Path) -> Result<StagedDir, Error> {
        let name = target.file_name().ok_or_else(|| Error::NoName(target.to_owned()))?;
        refuse_existing(target)?;
        for _ in 0..TRIES {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{}.partial", Uuid::new_v4().simple()));
            let temporary = target.with_file_name(&hidden);
            let open = Open::make(parent_of(target), Path::new(&hidden));
            let Some(open) = open.map_err(Error::io("make the directory", &temporary))? else { continue };
            return Ok(StagedDir {
                path: open.path(),
                temporary,
                target: target.to_owned(),
                open: Some(open),
                stays: false,
            });
        }
        let why = io::Error::other("somebody else removes or renames what is made there");
        Err(Error::io("make a directory beside", target)(why))
    }

    /// A directory that the caller manages, on the same file system: if it is not published, it stays.
    ///
    /// # Errors
    /// When `target` exists, or the directory is not there and cannot be made.
    pub fn kept(directory: &Path, target: &Path) -> Result<StagedDir, Error> {
        refuse_existing(target)?;
        fs::create_dir_all(directory).map_err(Error::io("make the directory", directory))?;
        let (temporary, target) = (directory.to_owned(), target.to_owned());
        Ok(StagedDir { path: temporary.clone(), temporary, target, open: None, stays: true })
    }

    /// What killed writers left that is to get this name. What has no content, by its path, is removed.
    ///
    /// # Errors
    /// When `target` has no name, or the directory that it is to be in cannot be read.
    pub fn abandoned(target: &Path, has_content: impl Fn(&Path) -> bool) -> Result<Abandoned, Error> {
        let name = target.file_name().ok_or_else(|| Error::NoName(target.to_owned()))?;
        let parent = parent_of(target);
        let mut found = Vec::new();
        let mut is_used = false;
        for entry in fs::read_dir(parent).map_err(Error::io("read the directory", parent))?.flatten() {
            let hidden = entry.file_name();
            if hidden.to_str().and_then(target_of).is_none_or(|wanted| name != wanted) {
                continue;
            }
            // Of a link and of what another user made nobody knows either what it is.
            let Ok(Some(open)) = Open::abandoned(parent, Path::new(&hidden)) else {
                is_used = true;
                continue;
            };
            let (path, temporary, target) = (open.path(), entry.path(), target.to_owned());
            let changed = fs::metadata(&path).and_then(|status| status.modified()).ok();
            let stays = has_content(&path);
            let left = StagedDir { path, temporary, target, open: Some(open), stays };
            found.extend(stays.then_some((changed, left)));
        }
        found.sort_by_key(|(changed, _)| *changed);
        Ok(match found.pop() {
            Some((_, newest)) => Abandoned::Left { newest, others: found.len() },
            None if is_used => Abandoned::InUse,
            None => Abandoned::Nothing,
        })
    }

    /// Where to put the files for now: what is open, whatever its name leads to.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the directory its name.
    ///
    /// # Errors
    /// When something else has taken the name since, or the system refuses; the hidden directory is then removed.
    pub fn publish(mut self) -> Result<(), Error> {
        sync(&self.path)?;
        refuse_existing(&self.target)?;
        // A rename replaces at most an empty directory: one that appeared since the check above loses nothing.
        self.rename().map_err(|source| match source.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
                Error::Exists(self.target.clone())
            }
            _ => Error::io("rename the finished directory to", &self.target)(source),
        })?;
        self.stays = true;
        sync(parent_of(&self.target))
    }

    fn rename(&self) -> io::Result<()> {
        let names = self.temporary.file_name().zip(self.target.file_name());
        let Some((open, (hidden, name))) = self.open.as_ref().zip(names) else {
            return fs::rename(&self.temporary, &self.target);
        };
        if !open.is_still(Path::new(hidden)) {
            return Err(io::Error::other("somebody else has exchanged it"));
        }
        // On a full disk nothing can be made that would show it: then it stays its owner's.
        if let Some(mode) = open.mode.or_else(|| usual_mode(&open.this).ok()) {
            let _ = fchmod(&open.this, mode);
        }
        Ok(renameat(&open.parent, hidden, &open.parent, name)?)
    }
}

/// Removes the hidden directories that writers left which were killed, of those whose target's name is one of these. Those that live keep theirs,
/// and somebody else's lock on `directory` itself does not matter.
pub fn remove_abandoned(directory: &Path, is_wanted: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if !name.to_str().and_then(target_of).is_some_and(&is_wanted) {
            continue;
        }
        let flags = DIRECTORY | OFlag::O_NOFOLLOW;
        let open = File::options().read(true).custom_flags(flags.bits()).open(entry.path());
        // Held until it is gone: its writer, if it is just beginning, makes another then.
        if let Some(_lock) =
            open.ok().and_then(|open| Flock::lock(open, FlockArg::LockExclusiveNonblock).ok())
        {
            // It costs disk space and nothing else: not worth a failure.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The name that a hidden directory would get.
fn target_of(hidden: &str) -> Option<&str> {
    let (name, id) = hidden.strip_prefix('.')?.strip_suffix(".partial")?.rsplit_once('.')?;
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then_some(name)
}

/// The mode that a directory gets in this one, by the umask and what the file system adds.
fn usual_mode(directory: &impl AsFd) -> io::Result<Mode> {
    mkdirat(directory, USUAL, Mode::from_bits_truncate(0o777))?;
    let status = fstatat(directory, USUAL, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    unlinkat(directory, USUAL, UnlinkatFlags::RemoveDir)?;
    Ok(Mode::from_bits_truncate(status.st_mode))
}

fn path_of(open: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_fd().as_raw_fd()))
}

/// `.` for what has only a name.
fn parent_of(target: &Path) -> &Path {
    target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What somebody would call a path: of one through an open directory that directory's name.
pub(crate) fn named(path: &Path) -> PathBuf {
    let inside = path.strip_prefix("/proc/self/fd").ok().and_then(|rest| {
        let mut parts = rest.components();
        let opened = fs::read_link(Path::new("/proc/self/fd").join(parts.next()?)).ok()?;
        Some(opened.join(parts.as_path()))
    });
    inside.unwrap_or_else(|| path.to_owned())
}

impl Drop for StagedDir {
    fn drop(&mut self) {
        let Some(open) = self.open.as_ref().filter(|_| !self.stays) else { return };
        let Some(hidden) = self.temporary.file_name() else { return };
        if open.is_still(Path::new(hidden)) {
            // A failure here is ignored: the error that led here is being reported already.
            let _ = fs::remove_dir_all(path_of(&open.parent).join(hidden));
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
    use std::os::unix::fs::PermissionsExt;

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
    fn what_a_killed_writer_left_gets_its_name_and_what_lives_does_not() {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("final");
        let find = || StagedDir::abandoned(&target, |path| path.join("file").exists()).unwrap();
        assert!(matches!(find(), Abandoned::Nothing));
        let writer = StagedDir::new(&target).unwrap();
        fs::write(writer.path().join("file"), "of one that lives").unwrap();
        assert!(matches!(find(), Abandoned::InUse));
        drop(writer);
        for (id, age_s) in [(1, 20), (2, 10), (3, 15), (4, 0)] {
            let left = root.path().join(format!(".final.{id:032}.partial"));
            fs::create_dir(&left).unwrap();
            // The youngest has nothing in it.
            (id < 4).then(|| fs::write(left.join("file"), id.to_string()).unwrap());
            let when = std::time::SystemTime::now() - std::time::Duration::from_secs(age_s);
            File::open(&left).unwrap().set_modified(when).unwrap();
        }
        let Abandoned::Left { newest, others } = find() else { panic!("nothing was found") };
        assert_eq!(others, 2);
        assert!(matches!(find(), Abandoned::Left { others: 1, .. }), "the newest is locked");
        drop(newest);
        let Abandoned::Left { newest, .. } = find() else { panic!("it is gone") };
        newest.publish().unwrap();
        assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "2");
        // The one without content is gone.
        assert_eq!(names(root.path()).len(), 3);
        // A name that is taken: what is left stays.
        let Abandoned::Left { newest, .. } = find() else { panic!("the other is gone") };
        assert!(matches!(newest.publish(), Err(Error::Exists(_))));
        assert_eq!(names(root.path()).len(), 3);
    }

    /// As who owns the directory above can do between any two files.
    #[test]
    fn files_are_made_in_the_directory_that_was_made_whoever_exchanges_it() {
        let root = tempfile::tempdir().unwrap();
        let staged = StagedDir::new(&root.path().join("final")).unwrap();
        let hidden = root.path().join(&names(root.path())[0]);
        let precious = root.path().join("precious");
        fs::write(&precious, "of root's").unwrap();
        fs::rename(&hidden, root.path().join("moved")).unwrap();
        fs::create_dir(&hidden).unwrap();
        std::os::unix::fs::symlink(&precious, hidden.join("file")).unwrap();
        fs::write(staged.path().join("file"), "text").unwrap();
        let failed = staged.publish().unwrap_err().to_string();
        assert!(failed.contains("somebody else"), "{failed}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "of root's");
        assert_eq!(names(&hidden), ["file"], "what is not ours is not removed");
        assert_eq!(fs::read_to_string(root.path().join("moved/file")).unwrap(), "text");
    }

    #[test]
    fn errors_name_the_directory_and_not_its_descriptor() {
        let root = tempfile::tempdir().unwrap();
        let staged = StagedDir::new(&root.path().join("final")).unwrap();
        let inner = StagedDir::new(&staged.path().join("kernel")).unwrap();
        for (path, name) in [(staged.path().join("a/b"), "a/b"), (inner.path().to_owned(), ".partial")] {
            let text = Error::io("write", &path)(io::Error::other("full")).to_string();
            assert!(text.contains(root.path().to_str().unwrap()) && text.contains(name), "{text}");
        }
    }

    #[test]
    fn what_a_killed_writer_left_is_removed_and_what_one_fills_stays() {
        let root = tempfile::tempdir().unwrap();
        let hidden =
            |name: &str| root.path().join(format!(".{name}.0123456789abcdef0123456789abcdef.partial"));
        for name in ["final", "others"] {
            fs::create_dir(hidden(name)).unwrap();
            fs::write(hidden(name).join("file"), "text").unwrap();
        }
        fs::create_dir(root.path().join(".final.0123.partial")).unwrap();
        let staged = StagedDir::new(&root.path().join("final")).unwrap();
        // Whoever may read it can lock the directory above.
        let above = Flock::lock(File::open(root.path()).unwrap(), FlockArg::LockExclusive).unwrap();
        remove_abandoned(root.path(), |name| name == "final");
        drop(above);
        assert!(!hidden("final").exists() && hidden("others").exists());
        assert_eq!(names(root.path()).len(), 3);
        staged.publish().unwrap();
    }

    #[test]
    fn nobody_else_can_lock_what_is_filled_and_all_can_read_what_is_complete() {
        let root = tempfile::tempdir().unwrap();
        let usual = root.path().join("usual");
        fs::create_dir(&usual).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let staged = StagedDir::new(&root.path().join("final")).unwrap();
        assert_eq!(mode(staged.path()), 0o700);
        staged.publish().unwrap();
        assert_eq!(mode(&root.path().join("final")), mode(&usual));
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
