// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Standard output for results (text or one JSON object a line), standard error for notes.
//!
//! Two threads print (the listener and the writer of snapshots), so each result goes out whole, under a lock. A reader that
//! went away (a closed pipe) is no error: the run goes on, since evidence on disk may be what matters. Any other failure (a
//! full disk) is remembered: the run goes on just so, but does not end as if all had been printed.

use crate::exit::Failure;
use rtscope_view::{in_ascii, with_strings, without_controls};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

static FAILURE: OnceLock<io::Error> = OnceLock::new();
/// Where results go instead of standard output.
static FILE: OnceLock<(PathBuf, Mutex<File>)> = OnceLock::new();
/// Whether integers that many readers of JSON would round are written as strings.
static STRINGS: OnceLock<()> = OnceLock::new();

/// From now on results go to this file (`--json=FILE`).
pub fn to_file(path: &Path) -> Result<(), Failure> {
    let made =
        File::create(path).map_err(|error| Failure::system(format!("making {}", path.display()), &error))?;
    // Only the first one counts, and there is one.
    let _ = FILE.set((path.to_owned(), Mutex::new(made)));
    Ok(())
}

/// From now on large integers in JSON are strings (`--json-strings`).
pub fn large_integers_as_strings() {
    let _ = STRINGS.set(());
}

/// Lines of JSON as they are to be written.
pub fn as_asked(json: &[u8]) -> Cow<'_, [u8]> {
    if json.first() != Some(&b'{') {
        return Cow::Borrowed(json);
    }
    let json = without_controls(json);
    match STRINGS.get() {
        Some(()) => Cow::Owned(with_strings(&json)),
        None => json,
    }
}

/// The same of one text.
pub fn json_as_asked(json: String) -> String {
    match as_asked(json.as_bytes()) {
        Cow::Owned(changed) => String::from_utf8(changed).unwrap_or(json),
        Cow::Borrowed(_) => json,
    }
}

/// Why results could not be written, and where, if that happened.
pub fn failure() -> Option<(&'static io::Error, String)> {
    let doing = match FILE.get() {
        Some((path, _)) => format!("writing {}", path.display()),
        None => "writing to standard output".to_string(),
    };
    FAILURE.get().map(|error| (error, doing))
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
    let is_json = text.starts_with('{');
    let drawn =
        if !is_json && crate::terminal::has_only_ascii() { in_ascii(text) } else { Cow::Borrowed(text) };
    let text = as_asked(drawn.as_bytes());
    let written = match FILE.get() {
        Some((_, file)) => write_lines(&mut *file.lock().unwrap_or_else(PoisonError::into_inner), &text),
        None => write_lines(&mut io::stdout().lock(), &text),
    };
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            // Only the first one counts.
            let _ = FAILURE.set(error);
        }
        _ => {}
    }
}

/// The same of a report that is sentences: they are broken where the terminal ends.
pub fn prose(text: &str) {
    result(&crate::terminal::style(false).fitted(text));
}

fn write_lines(out: &mut impl Write, text: &[u8]) -> io::Result<()> {
    out.write_all(text)?;
    if !text.ends_with(b"\n") {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// A report that became JSON.
pub fn object(json: serde_json::Result<String>) -> Result<String, Failure> {
    json.map_err(|error| Failure::doing("writing JSON", error))
}

/// A file that the user asked for, such as a picture.
pub fn file(path: &Path, text: &str) -> Result<(), Failure> {
    if path == Path::new("-") {
        return Err(Failure::Usage(
            "a picture cannot go to standard output, where the report is; name a file".to_owned(),
        ));
    }
    std::fs::write(path, text).map_err(|error| Failure::system(format!("writing {}", path.display()), &error))
}
