// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Late responses that watches have saved: in one directory, in all directories of a directory, or in a file of `--json`.

use super::files;
use crate::Failure;
use rtscope_ctf::{Links, open_regular};
use rtscope_event::LateResponse;
use serde::Deserialize;
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

/// A line of a file of `--json` that is read at most; one of ours has some hundred kilobytes.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// All of them, each once: snapshots may have the same.
///
/// # Errors
/// When there are none, or they cannot be read.
pub fn late_in(path: &Path) -> Result<Vec<LateResponse>, Failure> {
    let mut late = if path.is_dir() { in_directories(path)? } else { in_lines(path)? };
    let mut known = HashSet::new();
    // Of one that is not over there is no number.
    late.retain(|late| {
        known.insert((late.tracker, late.instance, late.cpu, late.sequence, late.tid, late.end_ns))
    });
    Ok(late)
}

fn in_directories(path: &Path) -> Result<Vec<LateResponse>, Failure> {
    if let Some(trigger) = files::trigger(path)? {
        return Ok(trigger.late);
    }
    let failed = |error| Failure::doing(format!("reading {}", path.display()), error);
    let mut below: Vec<PathBuf> = fs::read_dir(path)
        .map_err(failed)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    below.sort();
    let mut late = Vec::new();
    let mut found = false;
    for directory in below {
        if let Some(trigger) = files::trigger(&directory)? {
            found = true;
            late.extend(trigger.late);
        }
    }
    if found {
        return Ok(late);
    }
    Err(Failure::Failed(format!(
        "{}: no trigger.json here or in a directory in it; rtscope watch --snapshot-dir writes such directories",
        path.display()
    )))
}

/// What a line of a watch may be.
#[derive(Deserialize)]
struct Line {
    schema: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

fn in_lines(path: &Path) -> Result<Vec<LateResponse>, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::doing(format!("reading {}", path.display()), error);
    let file = open_regular(path, Links::Follow).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => failed(&"neither a regular file nor a directory"),
        _ => failed(&error),
    })?;
    let mut reader = BufReader::new(file);
    let (mut late, mut found, mut number) = (Vec::new(), false, 0);
    loop {
        let mut line = String::new();
        let mut limited = std::io::Read::take(&mut reader, LINE_BYTES_MAX);
        if limited.read_line(&mut line).map_err(|error| failed(&error))? == 0 {
            break;
        }
        number += 1;
        let wrong = |error: &dyn std::fmt::Display| failed(&format!("line {number}: {error}"));
        let head: Line = serde_json::from_str(&line).map_err(|error| wrong(&error))?;
        found |= head.schema.is_some_and(|schema| schema.starts_with("rtscope.watch/"));
        if head.kind.as_deref() == Some("late") {
            late.push(serde_json::from_str(&line).map_err(|error| wrong(&error))?);
        }
    }
    if found { Ok(late) } else { Err(failed(&"no line of rtscope watch --json in it")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_watch_is_refused_with_a_reason() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let said = |path: &Path| late_in(path).expect_err("it is no watch").to_string();
        assert!(said(directory.path()).contains("--snapshot-dir"), "{}", said(directory.path()));
        let file = directory.path().join("a");
        for (text, why) in
            [("", "no line"), ("{}\n", "no line"), ("{}\nabc\n", "line 2"), ("\u{0}", "line 1")]
        {
            fs::write(&file, text).expect("it is written");
            assert!(said(&file).contains(why), "{text:?}: {}", said(&file));
        }
        assert!(said(Path::new("/dev/null")).contains("neither"), "{}", said(Path::new("/dev/null")));
        assert!(said(&directory.path().join("b")).contains("reading"));
    }
}
