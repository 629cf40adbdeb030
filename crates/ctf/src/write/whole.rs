// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a killed writer has left of a stream.

use super::head::{CONTEXT_BYTES, HEADER_BYTES, MAGIC};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The whole packets at the beginning of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WholePackets {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) discarded: u64,
}

/// Reads the heads of a stream of threads as far as its packets are whole: behind them may be a rest of a killed writer.
/// In a ring, a file can begin with any number.
pub(super) fn whole_packets(
    file: &File,
    uuid: [u8; 16],
    instance: u64,
    is_ring: bool,
) -> io::Result<WholePackets> {
    let size = file.metadata()?.len();
    let mut whole = WholePackets::default();
    let mut head = [0; HEADER_BYTES + CONTEXT_BYTES - 4];
    let mut first = 0;
    while whole.bytes + head.len() as u64 <= size {
        file.read_exact_at(&mut head, whole.bytes)?;
        let half = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap_or_default());
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
        let context = |index: usize| word(HEADER_BYTES + index * 8);
        let is_ours = half(0) == MAGIC && head[4..20] == uuid && word(24) == instance;
        let bytes = context(3) / 8;
        let content = context(2) / 8;
        let fits = (head.len() as u64..=bytes).contains(&content) && bytes <= size - whole.bytes;
        if is_ring && whole.packets == 0 {
            first = context(4);
        }
        if !is_ours || !fits || context(4).wrapping_sub(first) != whole.packets {
            break;
        }
        whole.discarded = context(5);
        whole.bytes += bytes;
        whole.packets += 1;
    }
    Ok(whole)
}
