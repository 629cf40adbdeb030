// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs whose sources are optimized together: two events that the compiler could take for one keep their own descriptions.

use super::fixture::{Fixture, lines};
use crate::command::root;
use rtscope_testkit::skip;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A compiler, whether it compiles C++, and the ways in which it is called.
const WAYS: [(&str, bool, &[&str]); 18] = [
    ("gcc", false, &["-O0"]),
    ("gcc", false, &["-O2"]),
    ("gcc", false, &["-O0", "-flto"]),
    ("gcc", false, &["-O1", "-flto"]),
    ("gcc", false, &["-O2", "-flto"]),
    ("gcc", false, &["-O3", "-flto", "-flto-partition=one"]),
    ("gcc", false, &["-O2", "-flto", "-flto-partition=none", "-fno-pie", "-no-pie"]),
    ("gcc", false, &["-O2", "-flto", "-flto-partition=max", "-fPIC"]),
    ("gcc", false, &["-O2", "-flto", "-masm=intel"]),
    ("gcc", false, &["-O2", "-flto", "-static"]),
    ("gcc", false, &["-O2", "-flto", "-mcmodel=large"]),
    ("g++", true, &["-O0", "-flto"]),
    ("g++", true, &["-O2", "-flto"]),
    ("clang-19", false, &["-O0", "-flto", "-fuse-ld=gold"]),
    ("clang-19", false, &["-O2", "-flto", "-fuse-ld=gold"]),
    ("clang-19", false, &["-O2", "-flto=thin", "-fuse-ld=gold", "-fPIC"]),
    ("clang-19", false, &["-O3", "-flto", "-mcmodel=large", "-fuse-ld=gold"]),
    ("clang++-19", true, &["-O2", "-flto", "-fuse-ld=gold"]),
];

/// Compiles both parts of collide.c, and links them.
fn build(fixture: &Fixture, compiler: &str, is_cpp: bool, flags: &[&str]) -> Option<PathBuf> {
    if skip::without_tool(compiler) {
        return None;
    }
    let run = |arguments: &[&str]| {
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-command-line-argument", "-pthread", "-I"]);
        command.arg(root().join("include")).args(flags).args(arguments).current_dir(fixture.dir.path());
        let output = command.output().expect("it was just there");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler} {flags:?}: {errors}");
    };
    let source = root().join("crates/testkit/c/collide.c");
    let language = if is_cpp { ["-x", "c++", "-std=c++17"] } else { ["-x", "c", "-std=c11"] };
    for part in ["1", "2"] {
        let (define, object) = (format!("-DPART={part}"), format!("{part}.o"));
        let source = source.to_str().expect("plain");
        run(&[&language[..], &["-c", &define, source, "-o", &object]].concat());
    }
    run(&["1.o", "2.o", "-o", "collide"]);
    Some(fixture.path("collide"))
}

/// How often each line was printed, without time and host, sorted.
fn fields(fixture: &Fixture) -> Vec<String> {
    let lines = lines(&fixture.trace());
    let mut fields: Vec<String> =
        lines.iter().filter_map(|line| Some(line[line.find(" test:")? + 1..].to_string())).collect();
    fields.sort();
    fields
}

fn expected(is_cpp: bool) -> Vec<String> {
    let mut all = Vec::new();
    for n in 0..3 {
        let wide = format!("wide = {}, text = \"hello\"", n + 1000);
        all.push(format!("test:same: {{ narrow = {n} }}"));
        all.push(format!("test:same: {{ {wide} }}"));
        all.push(format!("test:level: {{ narrow = {n}, last = 1 }}"));
        all.push(format!("test:level: {{ {wide}, last = 2 }}"));
        for part in 1..=2 {
            all.push(format!("test:shared: {{ n = {}, who = \"header\" }}", n + part * 100));
            all.extend(is_cpp.then(|| format!("test:box: {{ size = 2, value = {n} }}")));
        }
    }
    all.sort();
    all
}

#[test]
fn events_of_two_sources_stay_apart_when_they_are_optimized_together() {
    let fixture = Fixture::new();
    for (compiler, is_cpp, flags) in WAYS {
        let Some(program) = build(&fixture, compiler, is_cpp, flags) else { continue };
        let recorded = fixture.record(&["--context", "none"], &[program]);
        recorded.assert_complete();
        assert_eq!(recorded.lost(), 0, "{compiler} {flags:?}: {}", recorded.account);
        assert_eq!(fields(&fixture), expected(is_cpp), "{compiler} {flags:?}");
        fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}
