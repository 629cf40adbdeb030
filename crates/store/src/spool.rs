// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of a recording that is not a trace yet.
//!
//! ```text
//! TARGET.partial/
//!   session.json   all that is needed to convert the rest; written first, and locked while the spool is in use
//!   started.json   when all recorders were active; missing after a kill before that
//!   threads.json   the recorder's threads, once they have started
//!   cpuN.bank      eBPF: chunks, each a header and records as they are in memory
//!   cpuN.pages     ftrace: sub-buffers, as they were spliced
//!   end.json       facts that are known only at the end; missing after a kill
//! ```
//!
//! The first file gets its name when it is complete: before that nothing has been recorded ([`remove_unbegun`]).
//!
//! The directory has a visible name, because it is all that is left after a crash. Whether its recorder is alive is known from
//! a lock on `session.json`, which the kernel releases with the process, however that ends.

use crate::Error;
use crate::description::{End, SCHEMA, SpoolDescription};
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::stat::{Mode, fstat};
use rtscope_ctf::Links;
use rtscope_event::{CpuId, MonotonicNs};
use rtscope_ring::{CompleteRecords, SharedMemory};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The first file.
pub(crate) const FIRST: &str = "session.json";
/// The first word of a chunk in a bank file.
pub(crate) const CHUNK_MAGIC: u64 = u64::from_le_bytes(*b"RTSCHNK1");
/// magic, bytes of records, records lost so far, time.
pub(crate) const CHUNK_HEADER_BYTES: usize = 32;
/// The largest `session.json` and `end.json` that are read. All formats of a kernel take some megabytes.
const JSON_BYTES_MAX: u64 = 256 << 20;
/// As many CPUs as Linux can be built for (`NR_CPUS` of x86-64). Each costs a stream in the trace.
const CPUS_MAX: usize = 8192;

/// Where the spool of a trace is while it is being recorded.
pub(crate) fn directory_of(target: &Path) -> Result<PathBuf, Error> {
    let mut name = target.file_name().ok_or_else(|| Error::NoName(target.to_owned()))?.to_owned();
    name.push(OsString::from(".partial"));
    Ok(target.with_file_name(name))
}

/// Makes the spool's directory for a new recording.
pub(crate) fn new_directory(target: &Path) -> Result<PathBuf, Error> {
    let directory = directory_of(target)?;
    if fs::symlink_metadata(target).is_ok() {
        return Err(Error::Exists(target.to_owned()));
    }
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(Error::Unfinished { spool: directory, target: target.to_owned() })
        }
        made => made.map_err(Error::io("make the directory", &directory)).map(|()| directory),
    }
}

/// The name of a spool's first file before it is complete.
pub(crate) fn unbegun(first: &str) -> String {
    format!("{first}.partial")
}

/// Removes the directory of a recorder that was killed before it had begun: nothing is in it, or a first file that is not complete. Gives
/// the directory; `None`: there is none, or something has been recorded.
///
/// # Errors
/// When its recorder is alive, it is another user's, or it cannot be removed.
pub fn remove_unbegun(target: &Path) -> Result<Option<PathBuf>, Error> {
    let path = directory_of(target)?;
    if fs::symlink_metadata(&path).is_err() {
        return Ok(None);
    }
    let directory = SpoolDirectory::open(&path)?;
    let names = [FIRST, crate::user::FIRST].map(unbegun);
    let mut locks = Vec::new();
    for entry in fs::read_dir(directory.path()).map_err(Error::io("read", &path))? {
        let entry = entry.map_err(Error::io("read", &path))?;
        if !names.iter().any(|name| entry.file_name() == name.as_str()) {
            return Ok(None);
        }
        locks.push(lock(open_regular(&entry.path())?, &path)?);
    }
    directory.remove().map_err(Error::io("remove", &path))?;
    Ok(Some(path))
}

/// The directory of a spool, whatever is found under its path later: whoever owns the directory above can rename it, and put a link to
/// anywhere in its place.
#[derive(Clone, Debug)]
pub(crate) struct SpoolDirectory {
    /// For messages.
    pub(crate) shown: PathBuf,
    open: Arc<OwnedFd>,
}

/// Where a recording is made, and where its trace is to be.
#[derive(Clone, Debug)]
pub struct SpoolPlace {
    pub(crate) directory: SpoolDirectory,
    pub(crate) target: PathBuf,
}

impl SpoolPlace {
    /// Where the trace is while it is made.
    pub(crate) fn trace(&self) -> PathBuf {
        self.directory.path().join("trace")
    }
}

impl SpoolDirectory {
    /// Another user's spool is not used: what is converted is removed afterwards, and in another user's directory that can be anything.
    pub(crate) fn open(directory: &Path) -> Result<SpoolDirectory, Error> {
        let opened = SpoolDirectory::open_any(directory)?;
        opened.check(nix::unistd::geteuid().as_raw())?;
        Ok(opened)
    }

    /// One that has just been made. Whose it is, its first file tells ([`SpoolDirectory::check_made`]).
    pub(crate) fn open_any(directory: &Path) -> Result<SpoolDirectory, Error> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let open = nix::fcntl::open(directory, flags, Mode::empty());
        let open = open.map_err(|errno| Error::io("open", directory)(errno.into()))?;
        Ok(SpoolDirectory { shown: directory.to_owned(), open: Arc::new(open) })
    }

    /// Fails if another user has put a directory in the place of the one that was made: its owner is not the owner of a file that was made
    /// in it. Where a file system has owners of its own (NFS for root, vfat), both are the same one.
    pub(crate) fn check_made(&self, file: &File) -> Result<(), Error> {
        let maker = fstat(file).map_err(|errno| Error::io("look at", &self.shown)(errno.into()))?;
        self.check(maker.st_uid)
    }

    fn check(&self, wanted: u32) -> Result<(), Error> {
        let status = fstat(&self.open).map_err(|errno| Error::io("look at", &self.shown)(errno.into()))?;
        if status.st_uid == wanted {
            return Ok(());
        }
        Err(Error::OfAnother { spool: self.shown.clone(), owner: status.st_uid })
    }

    /// For what is in it.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.open.as_raw_fd()))
    }

    /// Removes it with its content.
    pub(crate) fn remove(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.path())? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        // An empty directory: if it is another one by now, nothing is lost.
        fs::remove_dir(&self.shown)
    }
}

/// Writes a spool.
#[derive(Debug)]
pub struct SpoolWriter {
    place: SpoolPlace,
    lock: Flock<File>,
}

impl SpoolWriter {
    /// Makes the directory `TARGET.partial` with the description in it.
    ///
    /// # Errors
    /// When `target` or the directory exist, or the directory cannot be made.
    pub fn create(target: &Path, description: &SpoolDescription) -> Result<SpoolWriter, Error> {
        let directory = SpoolDirectory::open_any(&new_directory(target)?)?;
        let shown = directory.shown.join(FIRST);
        let unbegun = directory.path().join(unbegun(FIRST));
        let made = new_file(&unbegun).map_err(Error::io("make the file", &shown));
        let made = made.and_then(|file| lock(file, &directory.shown));
        // If it is another directory by now, nothing in it is ours to remove.
        let made = made.and_then(|file| directory.check_made(&file).map(|()| file));
        let written = made.and_then(|mut file| {
            let named = |()| fs::rename(&unbegun, directory.path().join(FIRST));
            let written = write_json(&mut file, description).and_then(named);
            written.map_err(Error::io("write", &shown)).map(|()| file)
        });
        match written {
            Ok(lock) => Ok(SpoolWriter { place: SpoolPlace { directory, target: target.to_owned() }, lock }),
            Err(error) => {
                // Nothing has been recorded, so nothing is lost. The error matters more than a failure to remove.
                if !matches!(error, Error::OfAnother { .. }) {
                    let _ = directory.remove();
                }
                Err(error)
            }
        }
    }

    /// Where it is, for who converts it while it is written.
    #[must_use]
    pub fn place(&self) -> SpoolPlace {
        self.place.clone()
    }

    /// For a recording that is limited in its size: the file system must be able to free parts of files. Gives the bytes of what was
    /// written so far.
    ///
    /// # Errors
    /// When it cannot, or the system refuses.
    pub fn check_ring(&self) -> Result<u64, Error> {
        let directory = &self.place.directory;
        let path = directory.path().join("hole");
        let tried = new_file(&path).and_then(|mut file| {
            file.write_all(&[0; 1 << 13])?;
            crate::lane::punch(&file, 0, 1 << 12)
        });
        let removed = fs::remove_file(&path);
        let shown = &directory.shown;
        tried.and(removed).map_err(Error::io("free a part of a file, as --max-size requires, in", shown))?;
        let bytes = fs::metadata(directory.path().join(FIRST)).map(|data| data.len());
        bytes.map_err(Error::io("look at", &shown.join(FIRST)))
    }

    /// Makes the file for the records of a CPU.
    ///
    /// # Errors
    /// When it exists or cannot be made.
    pub fn bank(&self, cpu: CpuId) -> Result<BankWriter, Error> {
        Ok(BankWriter { file: Arc::new(self.file(cpu, "bank")?), bytes: 0 })
    }

    /// Makes the file for the sub-buffers of a CPU. Whole ones are to be written, in order, one after the other.
    ///
    /// # Errors
    /// When it exists or cannot be made.
    pub fn pages(&self, cpu: CpuId) -> Result<Arc<File>, Error> {
        self.file(cpu, "pages").map(Arc::new)
    }

    fn file(&self, cpu: CpuId, what: &str) -> Result<File, Error> {
        let path = self.place.directory.path().join(format!("cpu{cpu}.{what}"));
        new_file(&path).map_err(Error::io("make the file", &path))
    }

    /// All recorders are active as of `time`: the trace begins there, instead of at the description's `started`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn started(&self, time: MonotonicNs) -> Result<(), Error> {
        self.json("started.json", &StartFile { started: time })
    }

    /// The recorder has these threads, whose ftrace events are left out, too, if those of the description are. The end of the recording tells
    /// of all; after a kill these are known.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn own_threads(&self, tids: &[u32]) -> Result<(), Error> {
        self.json("threads.json", &tids)
    }

    /// Writes a file that gets its name when it is complete: half a file would be worse than none.
    fn json(&self, name: &str, value: &impl Serialize) -> Result<(), Error> {
        let directory = self.place.directory.path();
        let (path, partial) = (directory.join(name), directory.join(format!("{name}.partial")));
        // The rest of an earlier attempt; create_new() does not follow a link in its place.
        let _ = fs::remove_file(&partial);
        let written = new_file(&partial).and_then(|mut file| write_json(&mut file, value));
        let shown = self.place.directory.shown.join(name);
        written.and_then(|()| fs::rename(&partial, &path)).map_err(Error::io("write", &shown))
    }

    /// Completes the spool after an orderly end of the recording.
    ///
    /// # Errors
    /// When the system refuses. The spool can be opened as if the recorder had been killed.
    pub fn finish(self, end: &End) -> Result<Spool, Error> {
        self.json("end.json", end)?;
        Spool::read(self.place, self.lock)
    }

    /// Removes the spool, of which nothing is needed.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn discard(self) -> Result<(), Error> {
        let directory = &self.place.directory;
        directory.remove().map_err(Error::io("remove", &directory.shown))
    }
}

/// Writes the records of one CPU.
#[derive(Debug)]
pub struct BankWriter {
    file: Arc<File>,
    bytes: u64,
}

impl BankWriter {
    /// The file, for who reads it while it is written.
    #[must_use]
    pub fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Bytes of whole chunks in it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends whole records that are in a ring, with one call and without a copy. `time`: when they were taken from the ring; no
    /// record is newer. `lost`: how many records this CPU has lost since the start, as of then. Without records and without new
    /// losses there is no need to call it.
    ///
    /// # Errors
    /// When the system refuses (a full disk). The file may then end within the chunk, and no more may be appended.
    pub fn chunk_of_ring(
        &mut self,
        time: MonotonicNs,
        lost: u64,
        memory: &SharedMemory,
        records: &CompleteRecords,
    ) -> io::Result<()> {
        let header = chunk_header(records.bytes(), time, lost);
        memory.write_to(&self.file, &header, records.parts())?;
        self.bytes += header.len() as u64 + records.bytes();
        Ok(())
    }

    /// The same with records from elsewhere.
    ///
    /// # Errors
    /// As [`BankWriter::chunk_of_ring`].
    pub fn chunk(&mut self, time: MonotonicNs, lost: u64, words: &[u64]) -> io::Result<()> {
        let mut bytes = chunk_header(words.len() as u64 * 8, time, lost).to_vec();
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        (&*self.file).write_all(&bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

fn chunk_header(bytes: u64, time: MonotonicNs, lost: u64) -> [u8; CHUNK_HEADER_BYTES] {
    let mut header = [0; CHUNK_HEADER_BYTES];
    for (place, word) in header.chunks_exact_mut(8).zip([CHUNK_MAGIC, bytes, lost, time.0]) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    header
}

/// A recording that waits for its conversion. While it is open, no other process can open it.
#[derive(Debug)]
pub struct Spool {
    pub(crate) place: SpoolPlace,
    pub(crate) description: SpoolDescription,
    pub(crate) end: Option<End>,
    _lock: Flock<File>,
}

impl Spool {
    /// The spool of an interrupted recording to `target`, if there is one.
    #[must_use]
    pub fn find(target: &Path) -> Option<PathBuf> {
        let directory = directory_of(target).ok()?;
        directory.join(FIRST).is_file().then_some(directory)
    }

    /// Opens the spool of an interrupted recording: `path` is the directory itself, or the trace that it was to become.
    ///
    /// # Errors
    /// When there is none, its recorder is alive, or it cannot be parsed.
    pub fn open(path: &Path) -> Result<Spool, Error> {
        let directory = if path.join(FIRST).is_file() {
            path.to_owned()
        } else {
            Spool::find(path).ok_or_else(|| Error::NoSpool(path.to_owned()))?
        };
        let target =
            directory.file_stem().map_or_else(|| directory.clone(), |name| directory.with_file_name(name));
        let directory = SpoolDirectory::open(&directory)?;
        let lock = lock(open_regular(&directory.path().join(FIRST))?, &directory.shown)?;
        Spool::read(SpoolPlace { directory, target }, lock)
    }

    fn read(place: SpoolPlace, lock: Flock<File>) -> Result<Spool, Error> {
        let directory = place.directory.path();
        let path = directory.join(FIRST);
        let text = read_json(&path)?;
        let version: Version = serde_json::from_str(&text).map_err(|error| Error::broken(&path, error))?;
        if version.schema != SCHEMA {
            let what = format!("its format is {}; this rtscope converts {SCHEMA}", version.schema);
            return Err(Error::broken(&path, what));
        }
        let mut description: SpoolDescription =
            serde_json::from_str(&text).map_err(|error| Error::broken(&path, error))?;
        if description.ebpf && description.abi_version != rtscope_abi::RTS_ABI_VERSION {
            let what = "its records are those of another version of rtscope: convert it with that version";
            return Err(Error::broken(&path, what));
        }
        let path = directory.join("started.json");
        if fs::symlink_metadata(&path).is_ok() {
            let started: StartFile =
                serde_json::from_str(&read_json(&path)?).map_err(|error| Error::broken(&path, error))?;
            description.started = started.started;
        }
        let path = directory.join("threads.json");
        if !description.leave_out.is_empty() && fs::symlink_metadata(&path).is_ok() {
            let own: Vec<u32> =
                serde_json::from_str(&read_json(&path)?).map_err(|error| Error::broken(&path, error))?;
            description.leave_out.extend(own);
        }
        let path = directory.join("end.json");
        let end = match fs::symlink_metadata(&path) {
            Ok(_) => {
                let text = read_json(&path)?;
                Some(serde_json::from_str(&text).map_err(|error| Error::broken(&path, error))?)
            }
            Err(_) => None,
        };
        Ok(Spool { place, description, end, _lock: lock })
    }

    /// The description that was written at the start.
    #[must_use]
    pub fn description(&self) -> &SpoolDescription {
        &self.description
    }

    /// The end of the recording; `None`: it was not orderly.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.place.directory.shown
    }

    /// Where the trace was to be.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.place.target
    }

    /// All CPUs of the description or of a file. Error: there are more than a machine can have.
    pub(crate) fn cpus(&self) -> Result<Vec<CpuId>, Error> {
        let mut cpus = self.description.cpus.clone();
        for entry in fs::read_dir(self.place.directory.path()).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("cpu")?.split_once('.'));
            if let Some(Ok(cpu)) = number.map(|(cpu, _)| cpu.parse()) {
                cpus.push(CpuId(cpu));
            }
        }
        cpus.sort_unstable();
        cpus.dedup();
        if cpus.len() > CPUS_MAX {
            let what = format!("it names {} CPUs; there cannot be more than {CPUS_MAX}", cpus.len());
            return Err(Error::broken(self.directory(), what));
        }
        Ok(cpus)
    }

    pub(crate) fn path(&self, cpu: CpuId, what: &str) -> PathBuf {
        self.place.directory.path().join(format!("cpu{cpu}.{what}"))
    }

    /// Size of a file; 0 when there is none.
    pub(crate) fn bytes(&self, cpu: CpuId, what: &str) -> u64 {
        fs::metadata(self.path(cpu, what)).map_or(0, |file| file.len())
    }

    /// Removes the spool after the trace is complete.
    pub(crate) fn remove(self) -> Result<(), Error> {
        let directory = &self.place.directory;
        directory.remove().map_err(Error::io("remove", &directory.shown))
    }
}

/// `started.json`.
#[derive(Serialize, Deserialize)]
struct StartFile {
    started: MonotonicNs,
}

/// Only the version: another one may have other fields.
#[derive(Deserialize)]
struct Version {
    schema: String,
}

/// A new file that only its owner may read: it shows what other users do on this machine.
fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

pub(crate) fn lock(file: File, directory: &Path) -> Result<Flock<File>, Error> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        nix::Error::EWOULDBLOCK => Error::Busy(directory.to_owned()),
        other => Error::io("lock", directory)(io::Error::from(other)),
    })
}

fn write_json(file: &mut File, value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string(value).map_err(io::Error::other)?;
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")
}

/// Opens a file of a spool. A recorder makes no links, and a pipe in place of a file must not block the opener.
pub(crate) fn open_regular(path: &Path) -> Result<File, Error> {
    rtscope_ctf::open_regular(path, Links::Refuse).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => Error::broken(path, error),
        _ => Error::io("open", path)(error),
    })
}

/// Reads a file, up to a largest size.
fn read_json(path: &Path) -> Result<String, Error> {
    let file = open_regular(path)?;
    if !file.metadata().is_ok_and(|file| file.len() <= JSON_BYTES_MAX) {
        return Err(Error::broken(path, "it is larger than 256 MiB"));
    }
    let mut text = String::new();
    file.take(JSON_BYTES_MAX).read_to_string(&mut text).map_err(Error::io("read", path))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, fchown};

    /// As on a file system that gives everything to one user, whoever makes it.
    #[test]
    fn a_directory_is_ours_if_what_is_made_in_it_has_its_owner() {
        if rtscope_testkit::skip::without_root() {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let file = File::create(directory.path().join("file")).expect("a file");
        let own = SpoolDirectory::open_any(directory.path()).expect("opened");
        own.check_made(&file).expect("root's directory and file");
        chown(directory.path(), Some(1000), None).expect("root may");
        assert!(matches!(own.check_made(&file), Err(Error::OfAnother { owner: 1000, .. })));
        assert!(matches!(SpoolDirectory::open(directory.path()), Err(Error::OfAnother { owner: 1000, .. })));
        fchown(&file, Some(1000), None).expect("root may");
        own.check_made(&file).expect("the owner is the same");
    }
}
