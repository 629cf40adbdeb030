// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of tests, compiled as users do it. Each source with the header takes seconds, and many tests want the same program: it is compiled once.

use rtscope_testkit::skip;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Compiler, flags, source.
type Wanted = (String, Vec<String>, PathBuf);

/// The programs that this process has compiled, each of some hundred kilobytes.
static COMPILED: LazyLock<Mutex<HashMap<Wanted, Vec<u8>>>> = LazyLock::new(Mutex::default);

/// Compiles with warnings as errors, or copies what was compiled from the same before. False, and the reason reported, without that compiler.
pub fn compile(compiler: &str, flags: &[&str], source: &Path, to: &Path) -> bool {
    if skip::without_tool(compiler) {
        return false;
    }
    let wanted =
        (compiler.to_owned(), flags.iter().map(|&flag| flag.to_owned()).collect(), source.to_owned());
    let is_kept = stays_the_same(flags, source);
    let kept = || COMPILED.lock().unwrap_or_else(PoisonError::into_inner).get(&wanted).cloned();
    if let Some(program) = is_kept.then(kept).flatten() {
        // Removed first: it may be a program that runs.
        let _ = fs::remove_file(to);
        fs::write(to, program).expect("a file of the test");
        fs::set_permissions(to, fs::Permissions::from_mode(0o755)).expect("it is ours");
        return true;
    }
    let output = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"])
        .args(flags)
        .arg("-I")
        .arg(crate::command::root().join("include"))
        .arg(source)
        .arg("-o")
        .arg(to)
        .output()
        .expect("it was just there");
    assert!(output.status.success(), "{compiler} {flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    if is_kept {
        let program = fs::read(to).expect("it was just made");
        COMPILED.lock().unwrap_or_else(PoisonError::into_inner).insert(wanted, program);
    }
    true
}

/// Whether the same words give the same program for as long as the tests run: not of files that a test has made, which another makes otherwise.
fn stays_the_same(flags: &[&str], source: &Path) -> bool {
    source.starts_with(crate::command::root()) && !flags.iter().any(|flag| flag.contains('/'))
}
