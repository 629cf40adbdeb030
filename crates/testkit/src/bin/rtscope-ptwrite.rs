// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same program as `rtscope-channels`, on a processor that has PTWRITE, as it believes: `rtscope-ptwrite FILE THREADS EVENTS [WHAT]`. What that
//! instruction would write goes into the file (`c/ptwrite.c`). Without arguments: executes the instruction itself, which ends it where there is none.

#[path = "rtscope-channels.rs"]
mod channels;

use std::ffi::{CString, c_char, c_int};

unsafe extern "C" {
    /// `path`: text that ends in NUL.
    fn rtscope_execute_ptwrite();
    fn rtscope_emulate_ptwrite(path: *const c_char) -> c_int;
}

fn main() {
    let Some(path) = std::env::args().nth(1) else {
        // SAFETY: it takes nothing and changes nothing.
        return unsafe { rtscope_execute_ptwrite() };
    };
    let path = CString::new(path).expect("an argument has no NUL");
    // SAFETY: the text lives for the call, and this process has one thread.
    assert_ne!(unsafe { rtscope_emulate_ptwrite(path.as_ptr()) }, 0, "it can be emulated on x86-64 only");
    channels::run(2);
}
