// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures that others made of real hardware. They are not in the tree: `RTSCOPE_CAPTURES` names their directory.

use std::path::PathBuf;
use std::process::Command;

/// The directory of the captures, if it is given.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os("RTSCOPE_CAPTURES").map(PathBuf::from).filter(|folder| folder.is_dir())
}

/// The path of a capture, or a reason to skip.
macro_rules! capture {
    ($path:expr) => {
        match crate::captures::folder() {
            Some(folder) => folder.join($path),
            None => rtscope_testkit::skip!("RTSCOPE_CAPTURES does not name a directory of captures"),
        }
    };
}
pub(crate) use capture;

/// What another decoder said, which is kept compressed.
pub fn expected(path: &str) -> String {
    let path = folder().unwrap().join("expected").join(path);
    let output = Command::new("xz").arg("-dc").arg(&path).output().expect("xz can be started");
    assert!(output.status.success(), "{}: {output:?}", path.display());
    String::from_utf8(output.stdout).unwrap()
}
