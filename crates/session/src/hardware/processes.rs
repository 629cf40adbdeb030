// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was mapped before a recording began: the code of processes that are there already, from `/proc`, as records.

use rtscope_hardware::perfdata::{PerfWriter, SampleId};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// Adds the names and mappings of processes that are there now. One that ends meanwhile has fewer.
pub(crate) fn add(writer: &mut PerfWriter, only: Option<u32>) -> io::Result<()> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for pid in numbers.filter(|pid| only.is_none_or(|only| only == *pid)) {
        add_one(writer, pid)?;
    }
    Ok(())
}

/// The same of the processes of these threads.
pub(crate) fn add_of_threads(writer: &mut PerfWriter, tids: &[u32]) -> io::Result<()> {
    let processes: BTreeSet<u32> = tids.iter().filter_map(|tid| process_of(*tid)).collect();
    processes.into_iter().try_for_each(|pid| add_one(writer, pid))
}

/// `None`: it has ended.
fn process_of(tid: u32) -> Option<u32> {
    // A name in it need not be text.
    let status = fs::read(format!("/proc/{tid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn add_one(writer: &mut PerfWriter, pid: u32) -> io::Result<()> {
    let process = format!("/proc/{pid}");
    let of = |tid: u32| SampleId { pid: Some(pid), tid: Some(tid), ..SampleId::default() };
    for thread in fs::read_dir(Path::new(&process).join("task")).into_iter().flatten().flatten() {
        let name = fs::read(thread.path().join("comm")).unwrap_or_default();
        let name = String::from_utf8_lossy(&name);
        if let Some(tid) = thread.file_name().to_str().and_then(|tid| tid.parse().ok()) {
            writer.encoder().comm(pid, tid, name.trim_end(), &of(tid));
        }
    }
    // Line by line: a process may have 65 530 mappings, with names of 4 KB each that need not be text.
    let maps = File::open(Path::new(&process).join("maps")).into_iter();
    for line in maps.flat_map(|maps| BufReader::new(maps).split(b'\n')).map_while(Result::ok) {
        if let Some((place, file)) = code(&String::from_utf8_lossy(&line)) {
            writer.encoder().mmap2(pid, place, file, &of(pid));
            // Written when there is enough of it.
            writer.records(&[])?;
        }
    }
    writer.records(&[])
}

/// Where code of a file is: address, bytes, and the place in the file.
fn code(line: &str) -> Option<((u64, u64, u64), &str)> {
    let mut words = line.splitn(6, ' ');
    let (range, rights, offset) = (words.next()?, words.next()?, words.next()?);
    let file = words.nth(2)?.trim_start();
    let (start, end) = range.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    let is_code = rights.as_bytes().get(2) == Some(&b'x') && file.starts_with('/');
    is_code.then_some(((start, end.checked_sub(start)?, number(offset)?), file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_files_is_mapped() {
        let line = "55d0f6a00000-55d0f6a21000 r-xp 00004000 fe:00 1234                       /usr/bin/a b";
        assert_eq!(code(line), Some(((0x55d0_f6a0_0000, 0x21000, 0x4000), "/usr/bin/a b")));
        assert_eq!(code("7ffd1000-7ffd2000 r-xp 00000000 00:00 0    [vdso]"), None);
        assert_eq!(code("55d0f6a00000-55d0f6a21000 rw-p 00004000 fe:00 1234   /usr/bin/a"), None);
        assert_eq!(code("55d0f6a00000-55d0f6a21000 r-xp 00004000 fe:00 0"), None);
    }
}
