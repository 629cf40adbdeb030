// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C of the tree: its format, and the public headers under strict warnings.
//!
//! Programs of others include `include/rtscope`, in which `#pragma GCC system_header` hides every warning from them. It would hide
//! them from us, too: here they are compiled without it (`RTSCOPE_LINT`), in each language and by each compiler that they
//! promise to work with.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::lint::{judge, works};
use crate::outcome::{Outcome, Tally};
use crate::{root, tidy};

/// Where the public headers are.
const HEADERS: &str = "include/rtscope";
/// A compiler, its language and the standard.
const COMPILERS: [(&str, &str, &str); 5] = [
    ("gcc", "c", "-std=c11"),
    ("g++", "c++", "-std=c++17"),
    ("clang-19", "c", "-std=c11"),
    ("clang++-19", "c++", "-std=c++17"),
    ("aarch64-linux-gnu-gcc", "c", "-std=c11"),
];
/// Missing initializers are zeros, which is meant wherever they are missing; C++17 has no way to say so.
const WARNINGS: [&str; 6] =
    ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wno-missing-field-initializers", "-Werror"];
/// Programs that use every macro and function of the headers, in the part of C that is also C++.
const PROGRAMS: [(&str, &[&str]); 3] = [
    ("crates/testkit/c/vectors.c", &[]),
    ("crates/testkit/c/vectors.c", &["-DRTSCOPE_DISABLE"]),
    ("crates/queue/tests/peer.c", &[]),
];

/// Adds the results of all checks of C.
pub fn add_all(tally: &mut Tally) -> Result<()> {
    tally.add("clang-format", format_of(&files()?));
    for (compiler, language, standard) in COMPILERS {
        let name = format!("the C headers by {compiler} {standard}");
        if works(Command::new(compiler).arg("--version")) {
            tally.add(&name, headers(compiler, language, standard)?);
        } else {
            tally.add(&name, Outcome::Skip(format!("{compiler} is not installed (./x setup)")));
        }
    }
    Ok(())
}

/// All C of the tree.
pub fn files() -> Result<Vec<PathBuf>> {
    let mut files = tidy::files_of(&root())?;
    let is_c = |file: &PathBuf| {
        file.extension().is_some_and(|end| ["c", "h", "cpp", "hpp"].iter().any(|known| end == *known))
    };
    files.retain(|file| !file.is_symlink() && is_c(file));
    files.sort();
    Ok(files)
}

fn format_of(files: &[PathBuf]) -> Outcome {
    if !works(Command::new("clang-format-19").arg("--version")) {
        return Outcome::Skip("clang-format-19 is not installed (./x setup)".into());
    }
    judge(Command::new("clang-format-19").args(["--dry-run", "--Werror"]).args(files).current_dir(root()))
}

/// Each header by itself, then programs that use them.
fn headers(compiler: &str, language: &str, standard: &str) -> Result<Outcome> {
    let compile = |arguments: &[&str]| {
        let mut command = Command::new(compiler);
        command.args([standard, "-x", language, "-DRTSCOPE_LINT", "-Iinclude"]).args(WARNINGS);
        judge(command.args(arguments).current_dir(root()))
    };
    let headers = tidy::files_below(&root().join(HEADERS))?;
    for header in headers.iter().filter_map(|path| path.to_str()) {
        let outcome = compile(&["-fsyntax-only", "-include", header, "/dev/null"]);
        if outcome != Outcome::Pass {
            return Ok(outcome);
        }
    }
    for (program, options) in PROGRAMS {
        // Optimized: some warnings come from what the optimizer finds out.
        let outcome = compile(&[&["-O1", "-S", "-o", "/dev/null", program], options].concat());
        if outcome != Outcome::Pass {
            return Ok(outcome);
        }
    }
    Ok(Outcome::Pass)
}
