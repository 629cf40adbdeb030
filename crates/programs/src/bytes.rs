// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The content of programs' files, given as bytes: what fuzzers read in place of a directory with programs.

use crate::budget::Account;
use crate::directory::{FileKind, FileName, OpenFile, ProcessId};
use crate::patterns::RequestedEvents;
use crate::provider::u64_at;
use crate::ring::Ring;
use crate::{ProviderInfo, RingInfo, provider as providers};
use rtscope_abi::program as abi;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Reads a provider's file.
///
/// # Errors
/// What is wrong with it.
pub fn provider(bytes: &[u8], process: ProcessId, wanted: &RequestedEvents) -> Result<ProviderInfo, String> {
    if bytes.len() < abi::RTU_PROVIDER_BYTES_1 as usize {
        return Err("it has no whole header".to_string());
    }
    providers::read(bytes, FileName { process, kind: FileKind::Provider(0) }, 0, 0, wanted)
}

/// What was taken from a ring.
#[derive(Debug)]
pub struct TakenRecords {
    /// The ring, when it was opened.
    pub info: RingInfo,
    /// Positions and bytes of complete records, in the order in which they were taken.
    pub chunks: Vec<(u64, Vec<u8>)>,
    /// What a snapshot found before anything was taken.
    pub snapshot: Vec<(u64, Vec<u8>)>,
    /// What is wrong with it.
    pub fault: Option<String>,
}

/// Reads a ring of the smallest size with this header. Each of `records` is written where the header says that records begin, and
/// then taken; the last time as at the end of a recording. `Ok(None)`: it is not complete yet.
///
/// # Errors
/// What is wrong with the header.
///
/// # Panics
/// When there is no memory for a file.
pub fn ring(header: &[u8], process: ProcessId, records: &[&[u8]]) -> Result<Option<TakenRecords>, String> {
    const SIZE: u64 = abi::RTU_RING_BYTES_MIN as u64;
    let file = nix::sys::memfd::memfd_create(c"ring", nix::sys::memfd::MFdFlags::empty());
    let file = File::from(file.expect("memory for a file"));
    let bytes = u64::from(abi::RTU_RING_OFFSET) + SIZE;
    let write = |bytes: &[u8], at: u64| file.write_all_at(bytes, at).expect("memory for a file");
    file.set_len(bytes).expect("memory for a file");
    write(header, 0);
    let tail = u64_at(header, offset_of!(abi::rtu_ring, tail));
    let change = |records: &[u8]| {
        let begin = tail % SIZE;
        let first = usize::try_from(SIZE - begin).unwrap_or(usize::MAX).min(records.len());
        write(&records[..first], u64::from(abi::RTU_RING_OFFSET) + begin);
        write(&records[first..], u64::from(abi::RTU_RING_OFFSET));
    };
    change(records.first().copied().unwrap_or_default());
    let opened = OpenFile { file: file.try_clone().expect("a descriptor"), bytes, id: (0, 0), hole_bytes: 0 };
    let name = FileName { process, kind: FileKind::Ring(1, 0) };
    let opened =
        Ring::open(&opened, name, 0, &Arc::new(Account::default())).map_err(|refused| refused.why)?;
    let Some(mut ring) = opened else { return Ok(None) };
    let (image, _) = ring.snapshot(2 * SIZE).expect("memory for a copy");
    let snapshot = image.rows();
    let mut taken = TakenRecords { info: ring.info.clone(), chunks: Vec::new(), snapshot, fault: None };
    for (number, part) in records.iter().enumerate() {
        change(part);
        let is_last = number + 1 == records.len();
        let result = ring.take(is_last, is_last, |records| {
            let chunk = records.chunk();
            if chunk.bytes > 0 {
                taken.chunks.push((chunk.position, chunk.copy()));
            }
            Ok(())
        });
        taken.fault = result.unwrap_or_else(|error| Err(error.to_string())).err();
    }
    Ok(Some(taken))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with these first bytes, opened when it had `then` bytes; it has `now`.
    fn opened(header: &[u8], then: u32, now: u32) -> OpenFile {
        let file = nix::sys::memfd::memfd_create(c"file", nix::sys::memfd::MFdFlags::empty());
        let file = File::from(file.expect("memory for a file"));
        file.set_len(u64::from(now)).expect("memory for a file");
        file.write_all_at(header, 0).expect("memory for a file");
        OpenFile { file, bytes: u64::from(then), id: (0, 0), hole_bytes: 0 }
    }

    /// Programs allocate a file in pieces. One was dropped (and its events with it) that was opened between two pieces and looked into when
    /// it was complete.
    #[test]
    fn a_ring_that_grew_while_it_was_looked_at_is_looked_at_again() {
        let process = ProcessId { pid: 7, birth_ns: 9 };
        let (least, most) = (abi::RTU_RING_BYTES_MIN, 2 * abi::RTU_RING_BYTES_MIN);
        let mut header = vec![0; size_of::<abi::rtu_ring>()];
        let mut put =
            |offset: usize, bytes: &[u8]| header[offset..offset + bytes.len()].copy_from_slice(bytes);
        put(offset_of!(abi::rtu_ring, magic), &abi::RTU_RING_MAGIC.to_le_bytes());
        put(offset_of!(abi::rtu_ring, birth_ns), &process.birth_ns.to_le_bytes());
        for (offset, value) in [
            (offset_of!(abi::rtu_ring, abi_version), abi::RTU_ABI_VERSION),
            (offset_of!(abi::rtu_ring, ready), 1),
            (offset_of!(abi::rtu_ring, pid), process.pid),
            (offset_of!(abi::rtu_ring, clock), abi::RTU_CLOCK_MONOTONIC),
            (offset_of!(abi::rtu_ring, ring_bytes), most),
            (offset_of!(abi::rtu_ring, sub_buffers), 8),
            (offset_of!(abi::rtu_ring, key), 1),
        ] {
            put(offset, &value.to_le_bytes());
        }
        let name = FileName { process, kind: FileKind::Ring(1, 0) };
        let open = |then: u32| {
            let opened = opened(&header, abi::RTU_RING_OFFSET + then, abi::RTU_RING_OFFSET + most);
            Ring::open(&opened, name, 0, &Arc::new(Account::default())).map_err(|refused| refused.why)
        };
        assert!(open(most).expect("no fault").is_some());
        assert!(open(least).expect("no fault").is_none());
    }
}
