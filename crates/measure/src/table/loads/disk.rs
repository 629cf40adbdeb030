// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disk writes and reads: a file that has no name, so that it goes with the process.

use super::super::child::StartReport;
use super::super::waiter::Board;
use nix::errno::Errno;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::statfs::fstatfs;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const CHUNK: usize = 256 << 10;
const CHUNKS: usize = 128;

/// Magic numbers as in statfs(2).
const FILE_SYSTEMS: [(i64, &str); 6] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x794c_7630, "overlay"),
    (0x0102_1994, "tmpfs, in memory"),
    (0x8584_58f6, "ramfs, in memory"),
];

/// For ever.
pub fn run(
    board: &Board,
    counter: usize,
    directory: &Path,
    report: &mut Option<StartReport>,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("a file in {}: {error}", directory.display());
    let file = tempfile::tempfile_in(directory).map_err(failed)?;
    let statistics = fstatfs(&file).map_err(|errno| errno.desc().to_owned())?;
    let free = statistics.blocks_available() * statistics.block_size() as u64;
    let chunks = CHUNKS.min((free / 4 / CHUNK as u64) as usize);
    if chunks == 0 {
        return Err(format!("{} is full", directory.display()));
    }
    let magic = statistics.filesystem_type().0 as i64;
    let name = FILE_SYSTEMS.iter().find(|(known, _)| *known == magic).map_or("?", |(_, name)| *name);
    if let Some(report) = report.take() {
        report.ready(&format!(
            "{} MiB written, synchronised and read in {} ({name})",
            (chunks * CHUNK) >> 20,
            directory.display()
        ));
    }
    let mut bytes = vec![0x5a; CHUNK];
    loop {
        write_and_read(&file, &mut bytes, chunks, |done| board.add(counter, done as u64)).map_err(failed)?;
    }
}

fn write_and_read(file: &File, bytes: &mut [u8], chunks: usize, done: impl Fn(usize)) -> std::io::Result<()> {
    let at = |chunk: usize| (chunk * CHUNK) as u64;
    for chunk in 0..chunks {
        file.write_all_at(bytes, at(chunk))?;
        done(CHUNK);
    }
    file.sync_data()?;
    // What is still in memory would be read from there.
    let forgot = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    if let Err(errno) = forgot.or_else(|errno| if errno == Errno::EINVAL { Ok(()) } else { Err(errno) }) {
        return Err(errno.into());
    }
    for chunk in 0..chunks {
        file.read_exact_at(bytes, at(chunk))?;
        done(CHUNK);
    }
    Ok(())
}
