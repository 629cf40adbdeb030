// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures of STP, ITM and SyS-T.

use crate::captures::{Row, folder, said};

/// A capture's bytes; None: it is not there, and the test is skipped.
pub fn read(path: &str) -> Option<Vec<u8>> {
    there(path, folder().and_then(|folder| std::fs::read(folder.join(path)).ok()))
}

/// What another decoder said; None: the test is skipped.
pub fn expected(path: &str) -> Option<String> {
    there(path, said(path))
}

fn there<T>(path: &str, what: Option<T>) -> Option<T> {
    if what.is_none() {
        rtscope_testkit::skip::say(format_args!("RTSCOPE_CAPTURES names no directory with {path}"));
    }
    what
}

/// A row of the table of captures.
pub fn row(capture: &str, unit: &str, oracle: &str, same: usize, of: usize, bytes: u64, lost: u64) {
    let (compared, bytes) = (&[("packets", same, of)][..], Some((bytes, lost)));
    Row { capture, unit, oracle, compared, bytes, notes: "" }.print();
}

/// The bytes of one source in formatter frames (Arm's CoreSight architecture, chapter D4): enough for captures without padding
/// between frames.
pub fn source_of(frames: &[u8], wanted: u8) -> Vec<u8> {
    let (mut id, mut data) = (0, Vec::new());
    for frame in frames.chunks_exact(16) {
        let low_bits = frame[15];
        for (pair, bytes) in frame.chunks(2).enumerate() {
            let flag = low_bits >> pair & 1;
            let (first, second) = (bytes[0], (pair < 7).then(|| bytes[1]));
            let give = |id: u8, byte: u8, data: &mut Vec<u8>| {
                if id == wanted {
                    data.push(byte);
                }
            };
            if first & 1 == 0 {
                give(id, first | flag, &mut data);
                second.into_iter().for_each(|byte| give(id, byte, &mut data));
                continue;
            }
            // With the flag, the byte after a new source is still of the old one.
            let before = std::mem::replace(&mut id, first >> 1);
            second.into_iter().for_each(|byte| give(if flag == 1 { before } else { id }, byte, &mut data));
        }
    }
    data
}
