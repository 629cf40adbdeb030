// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits of this process that stand in the way.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Lets this process open as many files as it may: a trace of many streams, or the rings of many programs, are more than the usual 1024.
/// Where that is refused, whatever needs a file says which.
pub fn raise_file_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}
