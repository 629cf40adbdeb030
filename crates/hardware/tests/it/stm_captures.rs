// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures of others, which are not in the tree: a directory that the environment variable RTSCOPE_CAPTURES names.

use std::path::PathBuf;
use std::process::Command;

/// The directory; None: the test is skipped.
pub fn directory() -> Option<PathBuf> {
    let Some(directory) = std::env::var_os("RTSCOPE_CAPTURES") else {
        rtscope_testkit::skip::say("RTSCOPE_CAPTURES does not name a directory with captures");
        return None;
    };
    Some(PathBuf::from(directory))
}

/// A capture's bytes; None: it is not there, and the test is skipped.
pub fn read(path: &str) -> Option<Vec<u8>> {
    let path = directory()?.join(path);
    if !path.exists() {
        rtscope_testkit::skip::say(format_args!("{} is not there", path.display()));
        return None;
    }
    Some(std::fs::read(path).unwrap())
}

/// What another decoder said, unpacked.
pub fn expected(path: &str) -> Option<String> {
    let path = directory()?.join("expected").join(path);
    if !path.exists() {
        rtscope_testkit::skip::say(format_args!("{} is not there", path.display()));
        return None;
    }
    if path.extension().is_none_or(|extension| extension != "xz") {
        return Some(std::fs::read_to_string(path).unwrap());
    }
    let output = Command::new("xz").args(["-dc"]).arg(&path).output().expect("xz unpacks what is expected");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// A row of the table of captures.
pub fn row(capture: &str, oracle: &str, same: usize, of: usize, stream_bytes: u64, lost_bytes: u64) {
    println!(
        "CAPTURE: {capture:32} {oracle:18} {same:>7} of {of:>7} packets the same, {stream_bytes:>7} bytes, {lost_bytes:>5} lost"
    );
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
