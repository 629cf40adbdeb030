// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the bytes of a record (`kernel_fds.h`) to what it says.

use super::ways;
use crate::syscalls::known_syscalls;
use rtscope_abi::fds as abi;
use rtscope_event::{
    CHUNK_SLOTS, DescriptorChange, DescriptorRecord, Discovery, FileDescription, MonotonicNs, OpenFileId,
    Pid, SlotChunk, SlotState, TableId, TaskChange, TaskTable, Tid,
};
use std::mem::{offset_of, size_of};
use std::sync::OnceLock;

const HEAD: usize = size_of::<abi::rts_fds_head>();
const SOCKET: u32 = libc::S_IFSOCK;
const ANONYMOUS: u32 = 0x0904_1934;
const PIPES: u32 = 0x5049_5045;
const PIDS: u32 = 0x5049_4446;
const NAMESPACES: u32 = 0x6e73_6673;

/// Reads fields at places.
#[derive(Clone, Copy)]
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn u64(self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(self.0.get(at..at + 8)?.try_into().ok()?))
    }

    fn u32(self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }

    fn u16(self, at: usize) -> Option<u16> {
        Some(u16::from_ne_bytes(self.0.get(at..at + 2)?.try_into().ok()?))
    }

    fn text(self, at: usize, bytes: usize) -> Option<String> {
        let text = self.0.get(at..at + bytes)?;
        Some(lossy(text.split(|byte| *byte == 0).next().unwrap_or_default()))
    }

    fn part(self, at: usize, bytes: usize) -> Option<&'b [u8]> {
        self.0.get(at..at + bytes)
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

fn call_name(call: u16, flags: u32) -> Option<&'static str> {
    static NAMES: OnceLock<Vec<&'static str>> = OnceLock::new();
    if flags & abi::RTS_FDS_IO_WORKER != 0 {
        return Some("io_uring");
    }
    if u32::from(call) == abi::RTS_FDS_NONE || flags & abi::RTS_FDS_COMPAT != 0 {
        return None;
    }
    let names = NAMES.get_or_init(|| {
        let mut names = vec![""; abi::RTS_FDS_CALLS as usize];
        for (number, name) in known_syscalls() {
            if let Some(slot) = names.get_mut(number) {
                *slot = name;
            }
        }
        names
    });
    names.get(usize::from(call)).copied().filter(|name| !name.is_empty())
}

/// What a record says; `None`: it makes no sense.
pub(super) fn record(bytes: &[u8]) -> Option<DescriptorRecord> {
    let bytes = Bytes(bytes);
    let flags = bytes.u32(offset_of!(abi::rts_fds_head, flags))?;
    let kind = u32::from(bytes.u16(offset_of!(abi::rts_fds_head, kind))?);
    let call = call_name(bytes.u16(offset_of!(abi::rts_fds_head, call))?, flags);
    let change = match kind {
        abi::RTS_FDS_SLOT | abi::RTS_FDS_FILE | abi::RTS_FDS_FILE_PATH => {
            DescriptorChange::Slot(slot(bytes, kind, flags, call)?)
        }
        abi::RTS_FDS_CHUNK_FILES | abi::RTS_FDS_CHUNK_NONE => {
            DescriptorChange::Chunk(chunk(bytes, kind, flags)?)
        }
        abi::RTS_FDS_TASK => DescriptorChange::Task(task(bytes)?),
        _ => return None,
    };
    Some(DescriptorRecord {
        time: MonotonicNs(bytes.u64(offset_of!(abi::rts_fds_head, time_ns))?),
        table: TableId(bytes.u64(offset_of!(abi::rts_fds_head, table))?),
        tid: Tid(bytes.u32(offset_of!(abi::rts_fds_head, tid))?),
        pid: Pid(bytes.u32(offset_of!(abi::rts_fds_head, pid))?),
        call,
        change,
    })
}

fn slot(bytes: Bytes<'_>, kind: u32, flags: u32, call: Option<&'static str>) -> Option<SlotState> {
    let file = bytes.u64(offset_of!(abi::rts_fds_slot, file))?;
    let file = (file != 0).then_some(OpenFileId(file));
    let (is_copy, may_repeat) = ways::gives(call);
    let description = match kind {
        abi::RTS_FDS_SLOT => None,
        _ if file.is_none() => None,
        _ => Some(Box::new(description(bytes, kind, flags)?)),
    };
    let discovery = match () {
        () if flags & abi::RTS_FDS_SCANNED != 0 => Discovery::Scan,
        () if flags & abi::RTS_FDS_RESULT != 0 || kind == abi::RTS_FDS_SLOT => Discovery::Call,
        () => Discovery::Found,
    };
    Some(SlotState {
        fd: bytes.u32(offset_of!(abi::rts_fds_slot, fd))?,
        file,
        cloexec: flags & abi::RTS_FDS_CLOEXEC != 0,
        description,
        discovery,
        is_copy,
        may_repeat,
    })
}

fn description(bytes: Bytes<'_>, kind: u32, flags: u32) -> Option<FileDescription> {
    let [inode, mode] = [
        bytes.u64(offset_of!(abi::rts_fds_file, inode))?,
        u64::from(bytes.u32(offset_of!(abi::rts_fds_file, mode))?),
    ];
    let mode = mode as u32;
    let magic = bytes.u32(offset_of!(abi::rts_fds_file, magic))?;
    let last = bytes.text(offset_of!(abi::rts_fds_file, name), abi::RTS_FDS_NAME as usize)?;
    let is_cut = flags & abi::RTS_FDS_CUT != 0;
    let is_pseudo = flags & abi::RTS_FDS_PSEUDO != 0;
    // The kernel's own names are those of `d_dname` of each of these file systems.
    let name = match magic {
        _ if mode & libc::S_IFMT == SOCKET && is_pseudo => format!("socket:[{inode}]"),
        PIPES if is_pseudo => format!("pipe:[{inode}]"),
        ANONYMOUS => format!("anon_inode:{last}"),
        PIDS => "anon_inode:[pidfd]".to_string(),
        NAMESPACES => format!("namespace:[{inode}]"),
        _ if is_pseudo => format!("/{last}"),
        _ if kind == abi::RTS_FDS_FILE_PATH => {
            let length = bytes.u32(offset_of!(abi::rts_fds_file, path_length))? as usize;
            let whole = bytes.part(offset_of!(abi::rts_fds_file_path, path), abi::RTS_FDS_PATH as usize)?;
            path(whole.get(..length).unwrap_or(whole), is_cut)
        }
        // Not told by these programs.
        _ => format!(".../{last}"),
    };
    let is_deleted = flags & abi::RTS_FDS_DELETED != 0 || (is_pseudo && name.starts_with("/memfd:"));
    Some(FileDescription {
        name: if is_deleted { format!("{name} (deleted)") } else { name },
        is_cut,
        inode,
        device: bytes.u32(offset_of!(abi::rts_fds_file, device))?,
        special: bytes.u32(offset_of!(abi::rts_fds_file, rdev))?,
        mode,
        open_flags: bytes.u32(offset_of!(abi::rts_fds_file, open_flags))?,
    })
}

/// From parts, the last one first, to a path.
fn path(parts: &[u8], is_cut: bool) -> String {
    let mut parts: Vec<String> =
        parts.split(|byte| *byte == 0).filter(|part| !part.is_empty()).map(lossy).collect();
    parts.reverse();
    format!("{}/{}", if is_cut { "..." } else { "" }, parts.join("/"))
}

fn chunk(bytes: Bytes<'_>, kind: u32, flags: u32) -> Option<SlotChunk> {
    let is_full = kind == abi::RTS_FDS_CHUNK_FILES;
    let files = is_full.then(|| {
        let mut files = Box::new([0; CHUNK_SLOTS]);
        for (index, file) in files.iter_mut().enumerate() {
            *file = bytes.u64(offset_of!(abi::rts_fds_chunk, files) + 8 * index)?;
        }
        Some(files)
    });
    let word = match is_full {
        true => offset_of!(abi::rts_fds_chunk, cloexec),
        false => offset_of!(abi::rts_fds_chunk_none, open),
    };
    Some(SlotChunk {
        first: bytes.u32(offset_of!(abi::rts_fds_chunk, first))?,
        files: match files {
            None => None,
            Some(files) => Some(files?),
        },
        cloexec_or_open: bytes.u64(word)?,
        is_first: flags & abi::RTS_FDS_FIRST != 0,
        is_last: flags & abi::RTS_FDS_LAST != 0,
        is_scan: flags & abi::RTS_FDS_SCANNED != 0,
    })
}

fn task(bytes: Bytes<'_>) -> Option<TaskTable> {
    let other = Tid(bytes.u32(offset_of!(abi::rts_fds_task, other_tid))?);
    let change = match bytes.u32(offset_of!(abi::rts_fds_task, what))? {
        abi::RTS_FDS_TASK_SEEN => TaskChange::Seen,
        abi::RTS_FDS_TASK_FORK => TaskChange::Fork(other),
        abi::RTS_FDS_TASK_EXEC => TaskChange::Exec(other),
        abi::RTS_FDS_TASK_EXIT => TaskChange::Exit,
        abi::RTS_FDS_TASK_UNSHARE => TaskChange::Unshare,
        _ => return None,
    };
    Some(TaskTable {
        change,
        parent: Pid(bytes.u32(offset_of!(abi::rts_fds_task, parent_pid))?),
        start: MonotonicNs(bytes.u64(offset_of!(abi::rts_fds_task, start_ns))?),
        comm: bytes.text(offset_of!(abi::rts_fds_task, comm), 16)?,
    })
}

const _: () = assert!(HEAD == 32 && CHUNK_SLOTS == abi::RTS_FDS_CHUNK as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_put_together_from_its_end() {
        assert_eq!(path(b"c\0b\0a\0", false), "/a/b/c");
        assert_eq!(path(b"c\0b\0a\0", true), ".../a/b/c");
        assert_eq!(path(b"", false), "/");
    }

    #[test]
    fn a_record_that_is_too_short_or_unknown_is_none() {
        assert_eq!(record(&[0; 8]), None);
        assert_eq!(record(&[0; 64]), None);
        let mut bytes = [0; HEAD];
        bytes[offset_of!(abi::rts_fds_head, kind)] = abi::RTS_FDS_SLOT as u8;
        assert_eq!(record(&bytes), None);
        let mut bytes = [0; size_of::<abi::rts_fds_slot>()];
        bytes[offset_of!(abi::rts_fds_head, kind)] = abi::RTS_FDS_SLOT as u8;
        bytes[offset_of!(abi::rts_fds_slot, fd)] = 7;
        let Some(DescriptorRecord { change: DescriptorChange::Slot(slot), .. }) = record(&bytes) else {
            panic!("it is a slot")
        };
        assert_eq!((slot.fd, slot.file), (7, None));
    }
}
