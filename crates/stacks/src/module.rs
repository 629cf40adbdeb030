// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file that is mapped: its unwind information, and what is needed to name its places later.

use crate::Caution;
use crate::maps::Mapping;
use crate::names::Names;
use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, NativeEndian, ParsedEhFrameHdr};
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSegment};
use rtscope_event::{Function, Pid};
use rtscope_procs::is_trusted;
use std::cell::OnceCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The largest section with unwind information that is read; those of the largest browsers have 30 MiB.
const EH_FRAME_BYTES_MAX: u64 = 64 << 20;
/// The same without a table to search in, which is then read from its begin for each frame: 2 ms. All linkers make that table.
const EH_FRAME_WITHOUT_TABLE_MAX: usize = 1 << 20;

/// Bytes of a file that is not trusted, read for its unwind information, and again for its names; what is further back in it is not there. Large programs have
/// some 100 MiB of symbols and names.
const UNTRUSTED_BYTES_MAX: usize = 512 << 20;

/// Those of linkers have 20 or 32.
const BUILD_ID_BYTES_MAX: usize = 64;

/// Which file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModuleId {
    /// Of its file system.
    pub device: String,
    /// There.
    pub inode: u64,
    /// As the process calls it.
    pub path: String,
}

/// A part of the file that is loaded.
#[derive(Clone, Copy, Debug)]
struct Segment {
    file_offset: u64,
    bytes: u64,
    address: u64,
}

/// A file that is mapped.
#[derive(Debug)]
pub struct Module {
    segments: Vec<Segment>,
    build_id: Option<String>,
    eh_frame: Option<Box<[u8]>>,
    eh_frame_hdr: Option<Box<[u8]>>,
    bases: BaseAddresses,
    /// To be read when the first name is asked for.
    file: ModuleFile,
    names: OnceCell<Names>,
}

/// Where the bytes of a module are.
#[derive(Debug)]
pub enum ModuleFile {
    /// On disk.
    File(File),
    /// In memory: the kernel's code for programs, which is the same in all processes.
    Bytes {
        /// All of it.
        bytes: Vec<u8>,
        /// Whether its writer can be trusted.
        is_trusted: bool,
    },
}

impl ModuleFile {
    /// What is mapped there: the very file, by the kernel's link to it, so also one that was removed, or one in a container; where that is not allowed, by
    /// its name below the process's root. A program can map another file there at any time, so what is judged is what is open, and not what the list says.
    pub fn open(pid: Pid, mapping: &Mapping, caution: Caution) -> Result<ModuleFile, String> {
        if mapping.is_vdso() {
            let file = |bytes| ModuleFile::Bytes { bytes, is_trusted: true };
            return vdso().map(file).map_err(|error| format!("[vdso]: {error}"));
        }
        let named = |why| format!("{}: {why}", mapping.path());
        let link = PathBuf::from(format!("/proc/{pid}/map_files/{}", mapping.range_name()));
        let below_root = |error| match caution.root_of(pid) {
            Some(root) => open_path(&root.path().join(mapping.path().trim_start_matches('/'))),
            None => Err(error),
        };
        let place = open_path(&link).or_else(below_root).map_err(|error| named(error.to_string()))?;
        (caution.file)(pid.0, place.as_fd()).map_err(named)?;
        let file = open_regular(&PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd())));
        file.map(ModuleFile::File).map_err(|error| named(error.to_string()))
    }

    fn is_trusted(&self) -> bool {
        match self {
            ModuleFile::File(file) => file.metadata().is_ok_and(|status| is_trusted(status.uid())),
            ModuleFile::Bytes { is_trusted, .. } => *is_trusted,
        }
    }

    fn reader(&self) -> io::Result<Box<dyn ReadSeek>> {
        Ok(match self {
            ModuleFile::File(file) if self.is_trusted() => Box::new(file.try_clone()?),
            ModuleFile::File(file) => {
                Box::new(Limited { file: file.try_clone()?, left: UNTRUSTED_BYTES_MAX })
            }
            ModuleFile::Bytes { bytes, .. } => Box::new(io::Cursor::new(bytes.clone())),
        })
    }
}

/// A file of which only so many bytes are read: what it says of the size of its sections is anybody's word, and they may be holes.
#[derive(Debug)]
struct Limited<F> {
    file: F,
    left: usize,
}

impl<F: Read> Read for Limited<F> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(bytes.len());
        self.left =
            left.ok_or_else(|| io::Error::other("more of it would have to be read than is allowed"))?;
        self.file.read(bytes)
    }
}

impl<F: Seek> Seek for Limited<F> {
    fn seek(&mut self, place: SeekFrom) -> io::Result<u64> {
        let at = self.file.seek(place)?;
        // Memory for a section is filled before it is read, unless it is beyond the end.
        let is_asked_for_end = matches!(place, SeekFrom::End(_));
        Ok(if is_asked_for_end { at.min(self.left as u64) } else { at })
    }
}

/// What [`ReadCache`] needs.
pub trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

/// Without asking the file system anything.
fn open_path(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)
}

/// A file whose opening has no effect, and which can be read.
pub fn open_regular(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// From our own memory.
fn vdso() -> io::Result<Vec<u8>> {
    let own =
        crate::maps::Mappings::read(Pid(std::process::id())).map_err(|why| io::Error::other(why.words()))?;
    let range = own.vdso().ok_or_else(|| io::Error::other("not mapped here"))?;
    let mut memory = File::open("/proc/self/mem")?;
    memory.seek(SeekFrom::Start(range.start))?;
    let mut bytes = vec![0; usize::try_from(range.end - range.start).map_err(io::Error::other)?];
    memory.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl Module {
    /// Reads what a file says about unwinding, or says why not.
    pub fn read(file: ModuleFile) -> Result<Module, String> {
        let cache = ReadCache::new(file.reader().map_err(|error| error.to_string())?);
        let elf = object::File::parse(&cache).map_err(|error| error.to_string())?;
        let segment = |segment: object::Segment<'_, '_, _>| {
            let (file_offset, bytes) = segment.file_range();
            Segment { file_offset, bytes, address: segment.address() }
        };
        let address = |name: &str| elf.section_by_name(name).map(|section| section.address());
        let mut bases = BaseAddresses::default();
        for (name, set) in [
            (".text", BaseAddresses::set_text as fn(BaseAddresses, u64) -> BaseAddresses),
            (".got", BaseAddresses::set_got),
            (".eh_frame", BaseAddresses::set_eh_frame),
            (".eh_frame_hdr", BaseAddresses::set_eh_frame_hdr),
        ] {
            if let Some(address) = address(name) {
                bases = set(bases, address);
            }
        }
        let build_id = elf.build_id().ok().flatten().filter(|id| id.len() <= BUILD_ID_BYTES_MAX).map(hex);
        let (segments, eh_frame, eh_frame_hdr) = (
            elf.segments().map(segment).collect(),
            section(&elf, ".eh_frame")?,
            section(&elf, ".eh_frame_hdr")?,
        );
        drop(elf);
        Ok(Module { segments, build_id, eh_frame, eh_frame_hdr, bases, file, names: OnceCell::new() })
    }

    /// In hex.
    pub fn build_id(&self) -> Option<&str> {
        self.build_id.as_deref()
    }

    /// The address, as the file counts it, of a place in the file.
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|segment| {
            file_offset.checked_sub(segment.file_offset).is_some_and(|inside| inside < segment.bytes)
        })?;
        Some((file_offset - segment.file_offset).wrapping_add(segment.address))
    }

    /// The unwind information; `None`: it has none, or too much without a table to search in.
    pub fn unwind_table(&self) -> Option<UnwindTable<'_>> {
        let eh_frame = EhFrame::new(self.eh_frame.as_ref()?, NativeEndian);
        let header = self.eh_frame_hdr.as_ref();
        let header = header.and_then(|bytes| EhFrameHdr::new(bytes, NativeEndian).parse(&self.bases, 8).ok());
        let has_table = header.as_ref().is_some_and(|header| header.table().is_some());
        let is_small = self.eh_frame.as_ref().is_some_and(|bytes| bytes.len() <= EH_FRAME_WITHOUT_TABLE_MAX);
        (has_table || is_small).then_some(UnwindTable { eh_frame, header, bases: &self.bases })
    }

    /// The functions at an address, as the file counts it, the innermost first. `root`: below which more debug information may be.
    pub fn names(&self, root: Option<&Path>, address: u64) -> Vec<Function> {
        let read = || {
            let reader = self.file.reader().ok();
            Names::read(reader, self.build_id.as_deref(), root, self.file.is_trusted())
        };
        self.names.get_or_init(read).find(address)
    }
}

/// Unwind information, borrowed from its module.
#[derive(Debug)]
pub struct UnwindTable<'a> {
    /// All of it.
    pub eh_frame: EhFrame<EndianSlice<'a, NativeEndian>>,
    /// A table to search in, where the file has one.
    pub header: Option<ParsedEhFrameHdr<EndianSlice<'a, NativeEndian>>>,
    /// From where its addresses count.
    pub bases: &'a BaseAddresses,
}

fn section<'a>(elf: &impl Object<'a>, name: &str) -> Result<Option<Box<[u8]>>, String> {
    let Some(section) = elf.section_by_name(name) else { return Ok(None) };
    if section.size() > EH_FRAME_BYTES_MAX {
        return Err(format!("{name} has {} bytes: at most {EH_FRAME_BYTES_MAX} are read", section.size()));
    }
    let data = section.data().map_err(|error| format!("{name}: {error}"))?;
    Ok((!data.is_empty()).then(|| data.into()))
}

/// `0aff`.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use object::read::ReadRef;

    /// With this unwind information, and no table.
    pub(crate) fn module(eh_frame: Vec<u8>) -> Module {
        Module {
            segments: Vec::new(),
            build_id: None,
            eh_frame: Some(eh_frame.into()),
            eh_frame_hdr: None,
            bases: BaseAddresses::default().set_eh_frame(0),
            file: ModuleFile::Bytes { bytes: Vec::new(), is_trusted: true },
            names: OnceCell::new(),
        }
    }

    #[test]
    fn what_would_be_read_from_its_begin_for_each_frame_is_small() {
        assert!(module(vec![0; EH_FRAME_WITHOUT_TABLE_MAX]).unwind_table().is_some());
        assert!(module(vec![0; EH_FRAME_WITHOUT_TABLE_MAX + 1]).unwind_table().is_none());
    }

    #[test]
    fn of_a_file_that_is_not_trusted_no_more_is_read_than_is_allowed() {
        let limited = || Limited { file: io::Cursor::new(vec![0; 100]), left: 60 };
        let (mut file, mut bytes) = (limited(), [1; 50]);
        file.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, [0; 50]);
        file.seek(SeekFrom::Start(0)).unwrap();
        assert!(file.read_exact(&mut bytes).unwrap_err().to_string().contains("allowed"));
        // However large a section is said to be: it is beyond the end, so no memory is asked for.
        let cache = ReadCache::new(limited());
        assert_eq!(ReadRef::len(&cache), Ok(60));
        assert!(
            ReadRef::read_bytes_at(&cache, 0, 80).is_err() && ReadRef::read_bytes_at(&cache, 0, 40).is_ok()
        );
    }
}
