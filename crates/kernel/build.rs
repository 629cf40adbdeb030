// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the eBPF programs into two objects, which the library carries inside. libbpf's headers are those of the libbpf
//! that is linked (crate libbpf-sys), so the two always fit.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// In this order: the name that Debian gives the version we need, then whatever `clang` is.
const COMPILERS: [&str; 2] = ["clang-19", "clang"];

fn main() {
    let here = PathBuf::from(var("CARGO_MANIFEST_DIR"));
    let sources = here.join("bpf");
    let arch = match var("CARGO_CFG_TARGET_ARCH").as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => panic!("rtscope's eBPF programs have not been tried on {other}"),
    };
    println!("cargo:rerun-if-changed={}", sources.display());
    println!("cargo:rerun-if-env-changed=RTSCOPE_CLANG");
    let compiler = env::var("RTSCOPE_CLANG").unwrap_or_else(|_| {
        COMPILERS.into_iter().find(|name| works(name)).unwrap_or(COMPILERS[0]).to_string()
    });
    // Descriptors are followed by programs of their own: nobody else loads them.
    for (name, variable) in [("rtscope", "RTSCOPE_BPF_OBJECT"), ("fds", "RTSCOPE_FDS_OBJECT")] {
        let object = PathBuf::from(var("OUT_DIR")).join(format!("{name}.bpf.o"));
        compile(&compiler, arch, &sources.join(format!("{name}.bpf.c")), &object);
        println!("cargo:rustc-env={variable}={}", object.display());
    }
}

fn compile(compiler: &str, arch: &str, source: &Path, object: &Path) {
    let sources = source.parent().expect("it is in a directory");
    let status = Command::new(compiler)
        .args([
            "-g",
            "-O2",
            "-target",
            "bpf",
            "-mcpu=v3",
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",
            "-Werror",
        ])
        .arg(format!("-D__TARGET_ARCH_{arch}"))
        .arg(format!("-I{}", var("DEP_RTSCOPE_ABI_INCLUDE")))
        .arg(format!("-I{}", var("DEP_BPF_INCLUDE")))
        .arg(format!("-I{}", sources.display()))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .status()
        .unwrap_or_else(|error| panic!("cannot run {compiler}: {error} (./x setup installs it)"));
    assert!(status.success(), "{compiler} could not compile the eBPF programs");
}

fn works(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn var(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
