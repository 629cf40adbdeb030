// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A block request in a line: `vda read of 4096 bytes at sector 2048`, and what the device said.

use crate::clean;
use crate::units::count_text;
use rtscope_event::BlockRequest;

/// What was asked of which disk.
pub(crate) fn block_label(block: &BlockRequest) -> String {
    let device = match &block.device {
        Some(name) => clean(name),
        None => format!("disk {}:{}", block.major, block.minor),
    };
    let what = block.operation.words();
    match block.sector {
        None => format!("{device} {what}"),
        Some(sector) => format!("{device} {what} of {} bytes at sector {sector}", count_text(block.bytes)),
    }
}

/// How it ended.
pub(crate) fn status_label(block: &BlockRequest) -> String {
    match block.status {
        None => "not completed".to_owned(),
        Some(0) => "completed".to_owned(),
        Some(status) => format!("failed, {}", error_words(status)),
    }
}

/// `BLK_STS_*` of include/linux/blk_types.h, those that all kernels since 6.1 have.
fn error_words(status: u32) -> String {
    let words = match status {
        1 => "not supported",
        2 => "timeout",
        3 => "no space",
        4 => "the link is broken",
        5 => "the target failed",
        6 => "reserved by another host",
        7 => "the medium failed",
        8 => "protection failed",
        9 | 13 => "no resources",
        10 => "I/O error",
        _ => return format!("status {status}"),
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::BlockOperation;

    #[test]
    fn a_request_says_what_was_asked_of_which_disk_and_how_it_ended() {
        let read = BlockRequest {
            major: 254,
            minor: 0,
            device: Some("vda".to_owned()),
            operation: BlockOperation::Read,
            sector: Some(2048),
            bytes: 1_048_576,
            status: Some(0),
        };
        assert_eq!(block_label(&read), "vda read of 1 048 576 bytes at sector 2048");
        assert_eq!(status_label(&read), "completed");
        let flush = BlockRequest {
            sector: None,
            device: None,
            operation: BlockOperation::Flush,
            status: Some(10),
            ..read
        };
        assert_eq!(
            (block_label(&flush).as_str(), status_label(&flush).as_str()),
            ("disk 254:0 flush", "failed, I/O error")
        );
        assert_eq!(status_label(&BlockRequest { status: None, ..flush }), "not completed");
    }
}
