// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A request to a block device.

use serde::{Deserialize, Serialize};

/// What a request asks of its device: `REQ_OP_*` of include/linux/blk_types.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockOperation {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Bring what was written to where it survives.
    Flush,
    /// These sectors are not needed any more.
    Discard,
    /// The same, beyond recovery.
    SecureErase,
    /// Fill with zeros.
    WriteZeroes,
    /// Of a zoned device: open, close, finish, reset or append to a zone.
    Zone,
    /// A command of the device's own.
    Command,
    /// What is newer than this program.
    Other,
}

impl BlockOperation {
    /// From the flags of a request, whose lowest 8 bits are its operation. A write of nothing is a flush.
    #[must_use]
    pub fn of(flags: u64, bytes: u64) -> BlockOperation {
        match flags & 0xff {
            1 if bytes == 0 => BlockOperation::Flush,
            0 => BlockOperation::Read,
            1 => BlockOperation::Write,
            2 => BlockOperation::Flush,
            3 => BlockOperation::Discard,
            5 => BlockOperation::SecureErase,
            9 => BlockOperation::WriteZeroes,
            7 | 10..=17 => BlockOperation::Zone,
            34 | 35 => BlockOperation::Command,
            _ => BlockOperation::Other,
        }
    }

    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            BlockOperation::Read => "read",
            BlockOperation::Write => "write",
            BlockOperation::Flush => "flush",
            BlockOperation::Discard => "discard",
            BlockOperation::SecureErase => "secure erase",
            BlockOperation::WriteZeroes => "write zeroes",
            BlockOperation::Zone => "operation on a zone",
            BlockOperation::Command => "command",
            BlockOperation::Other => "other operation",
        }
    }
}

/// A request, as it was when it was given to the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRequest {
    /// The disk's major number.
    pub major: u32,
    /// The disk's minor number.
    pub minor: u32,
    /// The disk's name; `None`: not known.
    pub device: Option<String>,
    /// What it asks for.
    pub operation: BlockOperation,
    /// The first sector, of 512 bytes, on the disk; `None`: it is about none, as a flush.
    pub sector: Option<u64>,
    /// How much.
    pub bytes: u64,
    /// What the device said: 0 is good, all else a `BLK_STS_*` of the kernel. `None`: it is not done.
    pub status: Option<u32>,
}

impl BlockRequest {
    /// Major and minor number of a disk as the kernel has them in one (`dev_t`).
    #[must_use]
    pub fn numbers(dev: u64) -> (u32, u32) {
        ((dev >> 20 & 0xfff) as u32, (dev & 0xf_ffff) as u32)
    }
}
