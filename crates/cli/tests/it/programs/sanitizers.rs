// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that are compiled with sanitizers run, without a report, and are recorded.

use super::fixture::Fixture;
use crate::command::root;
use rtscope_testkit::skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const WAYS: [(&str, &str); 8] = [
    ("gcc", "thread"),
    ("gcc", "address"),
    ("gcc", "undefined"),
    ("clang-19", "thread"),
    ("clang-19", "address"),
    ("clang-19", "undefined"),
    ("clang-19", "memory"),
    ("clang-19", "integer"),
];

/// Whether a compiler has this sanitizer's library.
fn has(fixture: &Fixture, compiler: &str, sanitizer: &str) -> bool {
    if skip::without_tool(compiler) {
        return false;
    }
    let source = fixture.path("empty.c");
    fs::write(&source, "int main(void) { return 0; }\n").expect("a file of the test");
    let mut command = Command::new(compiler);
    command.arg(format!("-fsanitize={sanitizer}")).arg(&source).arg("-o").arg(fixture.path("empty"));
    let is_there = command.output().expect("it was just there").status.success();
    if !is_there {
        skip::say(format_args!(
            "{compiler} has no library for -fsanitize={sanitizer} (./x setup installs it)"
        ));
    }
    is_there
}

fn build(fixture: &Fixture, compiler: &str, flags: &[&str], source: &Path, to: &str) -> PathBuf {
    fixture
        .compile(compiler, &[&["-std=c11", "-g"], flags].concat(), source, to)
        .expect("the compiler is there")
}

#[test]
fn programs_with_sanitizers_run_and_are_recorded() {
    let fixture = Fixture::new();
    let sources = root().join("crates/testkit/c");
    for (compiler, sanitizer) in WAYS {
        if !has(&fixture, compiler, sanitizer) {
            continue;
        }
        for level in ["-O0", "-O2"] {
            let flags = [level, &format!("-fsanitize={sanitizer}"), "-fno-sanitize-recover=all"];
            let library = [&flags[..], &["-fPIC", "-shared"]].concat();
            let program = build(&fixture, compiler, &flags, &sources.join("sanitized.c"), "sanitized");
            let library = build(&fixture, compiler, &library, &sources.join("library.c"), "library.so");
            // What a handler emits while its thread has no ring yet is counted.
            let recorded = fixture.record(&[], &[program, library]);
            recorded.assert_complete();
            assert!(recorded.events() >= 4200, "{compiler} {sanitizer} {level}: {}", recorded.account);
            let report = String::from_utf8_lossy(&recorded.output.stderr);
            assert!(!report.contains("Sanitizer") && !report.contains("runtime error"), "{report}");
            fs::remove_dir_all(fixture.trace()).expect("it was made");
        }
    }
}
