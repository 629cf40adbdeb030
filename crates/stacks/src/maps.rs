// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process has mapped where: `/proc/PID/maps`.

use crate::module::ModuleId;
use rtscope_event::{Incomplete, Pid};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;

/// The largest list that is read: some ten thousand mappings, which the kernel and this take some milliseconds for. It is read for each stack, and others'
/// stacks and reports wait.
const BYTES_MAX: usize = 1 << 20;

/// A process's mappings that can be executed, by address.
#[derive(Debug)]
pub struct Mappings(Vec<Mapping>);

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    /// `08:01`, as the kernel writes it.
    device: String,
    inode: u64,
    path: String,
}

impl Mappings {
    /// As they are now.
    pub fn read(pid: Pid) -> Result<Mappings, Incomplete> {
        Mappings::read_at_most(pid, BYTES_MAX)
    }

    fn read_at_most(pid: Pid, bytes_max: usize) -> Result<Mappings, Incomplete> {
        let path = format!("/proc/{pid}/maps");
        let mut text = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(bytes_max as u64 + 1).read_to_end(&mut text));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Incomplete::ProcessGone),
            // The process ended between the two.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Err(Incomplete::ProcessGone),
            Err(error) => Err(Incomplete::Unreadable { why: format!("{path}: {error}") }),
            // Of a process whose parent has not asked how it ended.
            Ok(0) => Err(Incomplete::ProcessGone),
            Ok(bytes) if bytes > bytes_max => {
                Err(Incomplete::Unreadable { why: format!("{path}: it has more than {bytes_max} bytes") })
            }
            Ok(_) => Ok(Mappings::parse(&String::from_utf8_lossy(&text))),
        }
    }

    fn parse(text: &str) -> Mappings {
        let mut all: Vec<Mapping> = text.lines().filter_map(Mapping::parse).collect();
        all.sort_by_key(|mapping| mapping.start);
        Mappings(all)
    }

    /// Where the kernel's own code for programs is.
    pub fn vdso(&self) -> Option<Range<u64>> {
        self.0.iter().find(|mapping| mapping.is_vdso()).map(|mapping| mapping.start..mapping.end)
    }

    /// The one that has this address.
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let behind = self.0.partition_point(|mapping| mapping.start <= address);
        self.0.get(behind.checked_sub(1)?).filter(|mapping| address < mapping.end)
    }
}

impl Mapping {
    /// `55d0c0a00000-55d0c0a21000 r-xp 00002000 fe:00 1234    /usr/bin/cat`; `None` for what cannot be executed.
    fn parse(line: &str) -> Option<Mapping> {
        let (range, rest) = line.split_once(' ')?;
        let (permissions, rest) = rest.split_once(' ')?;
        let (offset, rest) = rest.split_once(' ')?;
        let (device, rest) = rest.split_once(' ')?;
        let (inode, path) = rest.split_once(' ').unwrap_or((rest, ""));
        let (start, end) = range.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        permissions.contains('x').then_some(Mapping {
            start: hex(start)?,
            end: hex(end)?,
            offset: hex(offset)?,
            device: device.to_owned(),
            inode: inode.parse().ok()?,
            path: path.trim_start().to_owned(),
        })
    }

    /// As the process calls it; empty: no file.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The file; `None`: there is none.
    pub fn module_id(&self) -> Option<ModuleId> {
        let is_file = self.inode != 0 || self.is_vdso();
        is_file.then(|| ModuleId { device: self.device.clone(), inode: self.inode, path: self.path.clone() })
    }

    /// The kernel's own code for programs.
    pub fn is_vdso(&self) -> bool {
        self.path == "[vdso]"
    }

    /// Where in the file an address of this mapping is.
    pub fn file_offset(&self, address: u64) -> u64 {
        (address - self.start).wrapping_add(self.offset)
    }

    /// First and last address, as the files in `/proc/PID/map_files` are called.
    pub fn range_name(&self) -> String {
        format!("{:x}-{:x}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0c0a00000-55d0c0a02000 r--p 00000000 fe:00 1234                       /usr/bin/cat
55d0c0a02000-55d0c0a07000 r-xp 00002000 fe:00 1234                       /usr/bin/with space
7f0000000000-7f0000001000 rwxp 00000000 00:00 0 
7ffd5a5f2000-7ffd5a5f4000 r-xp 00000000 00:00 0                          [vdso]
bad line
";

    #[test]
    fn an_address_has_the_file_that_is_mapped_there() {
        let mappings = Mappings::parse(MAPS);
        let cat = mappings.find(0x55d0_c0a0_2010).expect("is mapped");
        assert_eq!((cat.path(), cat.file_offset(0x55d0_c0a0_2010)), ("/usr/bin/with space", 0x2010));
        assert_eq!(cat.range_name(), "55d0c0a02000-55d0c0a07000");
        assert_eq!(mappings.find(0x55d0_c0a0_7000), None, "the end is outside");
        assert_eq!(mappings.find(0x55d0_c0a0_0000), None, "cannot be executed");
        assert_eq!(mappings.find(0), None);
        let made = mappings.find(0x7f00_0000_0fff).expect("is mapped");
        assert_eq!((made.path(), made.module_id()), ("", None));
        let vdso = mappings.find(0x7ffd_5a5f_2000).expect("is mapped");
        assert!(vdso.is_vdso() && vdso.module_id().is_some());
    }

    #[test]
    fn of_a_list_that_is_too_long_there_is_none() {
        let own = Pid(std::process::id());
        let Err(Incomplete::Unreadable { why }) = Mappings::read_at_most(own, 100) else {
            panic!("it is longer")
        };
        assert!(why.ends_with("it has more than 100 bytes"), "{why}");
        assert!(Mappings::read(own).is_ok());
    }

    #[test]
    fn a_process_that_is_not_there_is_gone() {
        assert_eq!(Mappings::read(Pid(u32::MAX)).expect_err("no such process"), Incomplete::ProcessGone);
        assert!(Mappings::read(Pid(std::process::id())).is_ok());
    }
}
