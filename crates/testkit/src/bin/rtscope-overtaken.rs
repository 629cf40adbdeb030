// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program whose forks overtake a thread that opens a device: `rtscope-overtaken FORKS DEVICE`. All is in its C half (`c/overtaken.c`), which has
//! headers with pauses.
use std::ffi::{CString, c_char, c_int, c_uint};

unsafe extern "C" {
    /// `device`: text that ends in NUL.
    fn rtscope_overtaken(forks: c_uint, device: *const c_char) -> c_int;
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let forks = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let device = CString::new(arguments.get(2).map_or("", String::as_str)).expect("an argument has no NUL");
    // SAFETY: the text lives for the call.
    unsafe { rtscope_overtaken(forks, device.as_ptr()) };
}
