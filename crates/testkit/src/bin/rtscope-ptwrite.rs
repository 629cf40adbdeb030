// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same program as `rtscope-channels`, on a processor that has PTWRITE, as it believes: `rtscope-ptwrite FILE THREADS EVENTS [WHAT]`. What that
//! instruction would write goes into the file (`c/ptwrite.c`).

#[path = "rtscope-channels.rs"]
mod channels;

use std::ffi::{CString, c_char, c_int};

unsafe extern "C" {
    /// `path`: text that ends in NUL.
    fn rtscope_emulate_ptwrite(path: *const c_char) -> c_int;
}

fn main() {
    let path = std::env::args().nth(1).expect("a file");
    let path = CString::new(path).expect("an argument has no NUL");
    // SAFETY: the text lives for the call, and this process has one thread.
    assert_ne!(unsafe { rtscope_emulate_ptwrite(path.as_ptr()) }, 0, "it can be emulated on x86-64 only");
    channels::run(2);
}
