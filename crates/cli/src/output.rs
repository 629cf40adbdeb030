// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Standard output for results (text or one JSON object a line), standard error for notes.
//!
//! Two threads print (the listener and the writer of snapshots), so each result goes out whole, under a lock. A reader that
//! went away (a closed pipe) is no error: the run goes on, since evidence on disk may be what matters. Any other failure (a
//! full disk) is remembered: the run goes on just so, but does not end as if all had been printed.

use crate::exit::Failure;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::OnceLock;

static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Why results could not be written, if that happened.
pub fn failure() -> Option<&'static io::Error> {
    FAILURE.get()
}

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
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| if text.ends_with('\n') { Ok(()) } else { writeln!(out) })
        .and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            // Only the first one counts.
            let _ = FAILURE.set(error);
        }
        _ => {}
    }
}

/// A report that became JSON.
pub fn object(json: serde_json::Result<String>) -> Result<String, Failure> {
    json.map_err(|error| Failure::doing("writing JSON", error))
}

/// A file that the user asked for, such as a picture.
pub fn file(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::doing(format!("writing {}", path.display()), error))
}

/// Whether to use colours on standard output.
pub fn colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
