// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures that others made of real hardware. They are not in the tree: `RTSCOPE_CAPTURES` names their directory, as
//! `./x captures DIRECTORY` does, which prints the rows below as a table.

use std::path::PathBuf;
use std::process::Command;

/// The directory of the captures, if it is given.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os("RTSCOPE_CAPTURES").map(PathBuf::from).filter(|folder| folder.is_dir())
}

/// The path of a capture; or the test is skipped, with the reason.
macro_rules! capture {
    ($path:expr) => {
        match crate::captures::folder().map(|folder| folder.join($path)) {
            Some(path) if path.exists() => path,
            Some(path) => rtscope_testkit::skip!("{} is not there", path.display()),
            None => rtscope_testkit::skip!("RTSCOPE_CAPTURES does not name a directory of captures"),
        }
    };
}
pub(crate) use capture;

/// What another decoder said of a capture that is there.
pub fn expected(path: &str) -> String {
    said(path).unwrap_or_else(|| panic!("expected/{path} is not there"))
}

/// The same, if it was kept; as text, or compressed.
pub fn said(path: &str) -> Option<String> {
    let path = folder()?.join("expected").join(path);
    if !path.exists() {
        return None;
    }
    if path.extension().is_none_or(|extension| extension != "xz") {
        return Some(std::fs::read_to_string(path).unwrap());
    }
    let output = Command::new("xz").arg("-dc").arg(&path).output().expect("xz can be started");
    assert!(output.status.success(), "{}: {output:?}", path.display());
    Some(String::from_utf8(output.stdout).unwrap())
}

/// What an oracle says of a capture, and how much of that is said here.
pub struct Row<'a> {
    pub capture: &'a str,
    pub unit: &'a str,
    /// Empty: there is none, and nothing is compared.
    pub oracle: &'a str,
    /// What was compared, as much as is the same before the first difference, and of how many.
    pub compared: &'a [(&'a str, usize, usize)],
    /// Bytes of the stream, and those of them that are reported as lost; each of the others is in a packet.
    pub bytes: Option<(u64, u64)>,
    /// What the oracle has otherwise, and is told where it is compared.
    pub notes: &'a str,
}

impl Row<'_> {
    /// Whether everything is the same.
    pub fn agrees(&self) -> bool {
        self.compared.iter().all(|(_, same, of)| same == of)
    }

    /// Prints the row for `./x captures`.
    pub fn print(&self) {
        let compared: Vec<_> = self
            .compared
            .iter()
            .filter(|(_, _, of)| *of > 0)
            .map(|(what, same, of)| serde_json::json!({"what": what, "same": same, "of": of}))
            .collect();
        let row = serde_json::json!({
            "capture": self.capture,
            "unit": self.unit,
            "oracle": self.oracle,
            "compared": compared,
            "bytes": self.bytes.map(|(all, _)| all),
            "lost_bytes": self.bytes.map(|(_, lost)| lost),
            "notes": self.notes,
        });
        // In one piece: other tests print at the same time.
        println!("CAPTURE: {row}");
    }
}
