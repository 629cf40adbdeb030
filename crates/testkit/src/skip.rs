// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A test that cannot run here reports why, and returns: `SKIP: name: reason` on standard output.
//!
//! `./x test` counts these lines; a skipped test is not a passed one. The name is that of the thread: libtest runs each test in
//! a thread of its own, which has the full path of the test as its name, so that nobody types it a second time.

use std::fmt::Display;
use std::process::{Command, Stdio};

use crate::machine;

/// Reports that the test of this thread is skipped. For helper functions that decide; the test itself has to return.
pub fn say(reason: impl Display) {
    println!("{}", line(reason));
}

fn line(reason: impl Display) -> String {
    let thread = std::thread::current();
    format!("SKIP: {}: {reason}", thread.name().unwrap_or("a thread without a name"))
}

/// Whether the test is skipped because this is not root.
pub fn without_root() -> bool {
    skip_if(!nix::unistd::geteuid().is_root(), "only root may do that")
}

/// Whether the test is skipped because a command is not installed.
pub fn without_tool(name: &str) -> bool {
    let mut command = Command::new(name);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    skip_if(command.status().is_err(), format_args!("{name} is missing (./x setup installs it)"))
}

/// Whether the test is skipped because it changes the machine and this is not a guest of `./x vm`.
pub fn outside_guests() -> bool {
    skip_if(!machine::is_emulated(), "it changes settings of the whole machine, and runs in ./x vm only")
}

/// Whether the test is skipped because rtscope cannot watch here. A test that also loads the CPUs begins with
/// [`machine::Cpus::for_watching`] instead.
pub fn without_watching() -> bool {
    let reason = machine::cannot_watch();
    skip_if(reason.is_some(), reason.unwrap_or_default())
}

/// Whether the test is skipped because this kernel has no schedulers in eBPF.
pub fn without_sched_ext() -> bool {
    let is_missing = !std::path::Path::new("/sys/kernel/sched_ext").exists();
    skip_if(is_missing, "this kernel has no schedulers in eBPF (CONFIG_SCHED_CLASS_EXT)")
}

/// Whether the test is skipped because nobody may make a user namespace here.
pub fn without_user_namespaces() -> bool {
    let made = Command::new("unshare").args(["-Ur", "true"]).output();
    skip_if(!made.is_ok_and(|output| output.status.success()), "this machine has no user namespaces")
}

fn skip_if(is_missing: bool, reason: impl Display) -> bool {
    if is_missing {
        say(reason);
    }
    is_missing
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
