// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Standard output for results (text or one JSON object a line), standard error for notes.
//!
//! Two threads print (the listener and the writer of snapshots), so each result goes out whole, under a lock. A reader that
//! went away (a closed pipe) is no error: the run goes on, since evidence on disk may be what matters.

use std::io::{self, IsTerminal, Write};

/// A note to the user, on standard error. Fails only when that is closed.
pub fn try_note(text: &str) -> io::Result<()> {
    writeln!(io::stderr().lock(), "{text}")
}

/// A note to the user, on standard error.
pub fn note(text: &str) {
    // A closed standard error leaves nobody to tell.
    let _ = try_note(text);
}

/// One result: lines of text, or one line of JSON.
pub fn result(text: &str) {
    let mut out = io::stdout().lock();
    // See the module's comment: a closed pipe is no error.
    let _ = out
        .write_all(text.as_bytes())
        .and_then(|()| if text.ends_with('\n') { Ok(()) } else { writeln!(out) });
    let _ = out.flush();
}

/// Whether to use colours on standard output.
pub fn colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
