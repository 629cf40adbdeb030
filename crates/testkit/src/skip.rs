// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A test that cannot run here reports why, and returns: `SKIP: name: reason` on standard output.
//!
//! `./x test` counts these lines; a skipped test is not a passed one. The name is that of the thread: libtest runs each test in
//! a thread of its own, which has the full path of the test as its name, so that nobody types it a second time.

use std::fmt::Display;

/// Reports that the test of this thread is skipped. For helper functions that decide; the test itself has to return.
pub fn say(reason: impl Display) {
    println!("{}", line(reason));
}

fn line(reason: impl Display) -> String {
    let thread = std::thread::current();
    format!("SKIP: {}: {reason}", thread.name().unwrap_or("a thread without a name"))
}

/// Reports that this test is skipped, with a reason as for `format!`, and returns from the function.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::skip::say(::std::format_args!($($reason)+));
        return;
    }};
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_skip_names_its_test() {
        assert_eq!(super::line("no disk"), "SKIP: skip::tests::a_skip_names_its_test: no disk");
    }

    #[test]
    fn a_skipped_test_goes_no_further() {
        fn test(goes_on: &mut bool, disks: u32) {
            if disks == 0 {
                crate::skip!("{disks} disks");
            }
            *goes_on = true;
        }
        let [mut without, mut with] = [false, false];
        test(&mut without, 0);
        test(&mut with, 1);
        assert_eq!([without, with], [false, true]);
    }
}
