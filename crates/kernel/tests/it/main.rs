// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The integration tests of this crate, one module for each subject: eBPF programs and ftrace instances on the running kernel.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod load;
mod stream;
mod table;
mod tracefs;

use rtscope_kernel::caps;
use rtscope_testkit::skip;

/// Whether the eBPF programs cannot run here; then the test is reported as skipped.
fn skip_without_ebpf() -> bool {
    let missing = caps::probe().into_iter().find(|cap| cap.required && cap.found == Some(false));
    if let Some(missing) = &missing {
        // They are tried only when nothing else is missing: then it is a defect, and no reason to skip a test.
        assert_ne!(missing.id, "programs", "{}", missing.sentence());
        skip::say(missing.sentence());
    }
    missing.is_some()
}
