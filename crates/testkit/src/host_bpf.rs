// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The eBPF sources compiled for this machine, so that a test steps through what is shipped, access by access; and with faults
//! planted in a copy of them, so that the test shows that it would find such a fault.
//!
//! `crates/kernel/tests/host` has the headers that stand in for libbpf's, and the steps.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A fault to plant: in this file below `crates/kernel/bpf`, this text, which is there once, is replaced.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// What the fault is.
    pub name: &'static str,
    /// The file.
    pub file: &'static str,
    /// The text.
    pub from: &'static str,
    /// What stands there instead.
    pub to: &'static str,
}

/// What to make of the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A program with a `main`.
    Program,
    /// A shared object for `dlopen`.
    SharedObject,
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory for the copies");
    for entry in std::fs::read_dir(from).expect("the sources").flatten() {
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_tree(&path, &copy);
        } else {
            std::fs::copy(&path, &copy).expect("a copy");
        }
    }
}

/// Compiles `source` of `crates/kernel/tests/host` as for the architecture `arch` (`x86` or `arm64`), into `directory`. `None`: there
/// is no compiler with this sanitizer's calls.
///
/// # Panics
/// When the sources do not compile, or the text of the mutation is not there exactly once.
#[must_use]
pub fn compile(
    directory: &Path,
    source: &str,
    arch: &str,
    output: Output,
    mutation: Option<&Mutation>,
) -> Option<PathBuf> {
    if !Command::new("gcc").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return None;
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let (kernel, abi) = (crates.join("kernel"), crates.join("abi"));
    let name = mutation.map_or("shipped", |mutation| mutation.name).replace(' ', "-");
    let built = directory.join(format!("{name}-{arch}"));
    std::fs::create_dir_all(&built).expect("a directory for what is compiled");
    let mut sources = kernel.join("bpf");
    if let Some(mutation) = mutation {
        let copies = built.join("bpf");
        copy_tree(&sources, &copies);
        let file = copies.join(mutation.file);
        let text = std::fs::read_to_string(&file).expect("a source");
        assert_eq!(text.matches(mutation.from).count(), 1, "{mutation:?}");
        std::fs::write(&file, text.replace(mutation.from, mutation.to)).expect("a copy");
        sources = copies;
    }
    let host = kernel.join("tests/host");
    let object = |name: &str| built.join(name).with_extension("o");
    // `const`: the configuration is constant for the verifier only. Warnings: the types are cut out of the kernel's.
    let mut stepped = Command::new("gcc");
    stepped.args(["-O1", "-g", "-w", "-fPIC", "-Dconst=", "-fsanitize=thread", "-c"]);
    stepped.arg(format!("-D__TARGET_ARCH_{arch}"));
    for include in [&host, &sources, &abi] {
        stepped.arg("-I").arg(include);
    }
    run(stepped.arg(host.join(source)).arg("-o").arg(object(source)));
    let mut steps = Command::new("gcc");
    steps.args(["-O1", "-Wall", "-Wextra", "-Wno-builtin-declaration-mismatch", "-fPIC", "-c"]);
    run(steps.arg(host.join("steps.c")).arg("-o").arg(object("steps")));
    let result = built.join(if output == Output::Program { "program" } else { "object.so" });
    let mut link = Command::new("gcc");
    if output == Output::SharedObject {
        link.arg("-shared");
    }
    run(link.arg(object(source)).arg(object("steps")).arg("-o").arg(&result));
    Some(result)
}
