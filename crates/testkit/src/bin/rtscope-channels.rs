// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program whose events may go to channels of an STM: `rtscope-channels THREADS EVENTS [WHAT]`. Most are those of its C half
//! (`c/channels.c`); `rust` emits as many in Rust, from one thread. It says how many it emitted.
use rtscope_probe::event;
use std::ffi::{CString, c_char, c_int, c_uint};

unsafe extern "C" {
    /// `what`: text that ends in NUL.
    fn rtscope_channels(threads: c_uint, events: c_uint, what: *const c_char) -> c_int;
}

// The program that emulates PTWRITE has its own.
#[allow(dead_code)]
fn main() {
    run(1);
}

/// `first`: which of the arguments is THREADS.
pub fn run(first: usize) {
    let arguments: Vec<String> = std::env::args().skip(first - 1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(1);
    let what = arguments.get(3).map_or("", String::as_str);
    if what == "rust" {
        for i in 0..number(2) {
            let text = "r".repeat(i as usize % 50);
            event!(test, rusty, number: u32 = i, half: f64 = f64::from(i) * 0.5, text: str = &text);
        }
        println!("emitted {}", number(2));
        return;
    }
    let what = CString::new(what).expect("an argument has no NUL");
    // SAFETY: the text lives for the call.
    unsafe { rtscope_channels(number(1), number(2), what.as_ptr()) };
}
