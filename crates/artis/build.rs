// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the scheduler into one object, which the library carries inside, and turns what both sides share into Rust.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// In this order: the name that Debian gives the version we need, then whatever `clang` is.
const COMPILERS: [&str; 2] = ["clang-19", "clang"];

fn main() {
    let sources = PathBuf::from(var("CARGO_MANIFEST_DIR")).join("bpf");
    println!("cargo:rerun-if-changed={}", sources.display());
    println!("cargo:rerun-if-env-changed=RTSCOPE_CLANG");
    let out = PathBuf::from(var("OUT_DIR"));
    compile(&sources, &out.join("artis.bpf.o"));
    println!("cargo:rustc-env=RTSCOPE_ARTIS_OBJECT={}", out.join("artis.bpf.o").display());
    bindgen::Builder::default()
        .header(sources.join("artis_abi.h").display().to_string())
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(false)
        .use_core()
        .blocklist_type("rts_(u8|u16|u32|u64|s64)")
        .generate()
        .expect("bindgen reads the header (libclang is needed: ./x setup installs it)")
        .write_to_file(out.join("artis_abi.rs"))
        .expect("OUT_DIR can be written");
}

fn compile(sources: &Path, object: &Path) {
    let arch = match var("CARGO_CFG_TARGET_ARCH").as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => panic!("rtscope's eBPF programs have not been tried on {other}"),
    };
    let compiler = env::var("RTSCOPE_CLANG").unwrap_or_else(|_| {
        COMPILERS.into_iter().find(|name| works(name)).unwrap_or(COMPILERS[0]).to_string()
    });
    let words = "-g -O2 -target bpf -mcpu=v3 -Wall -Wextra -Wno-unused-parameter -Werror";
    let status = Command::new(&compiler)
        .args(words.split(' '))
        .arg(format!("-D__TARGET_ARCH_{arch}"))
        .arg(format!("-I{}", var("DEP_RTSCOPE_ABI_INCLUDE")))
        .arg(format!("-I{}", var("DEP_BPF_INCLUDE")))
        .arg("-c")
        .arg(sources.join("artis.bpf.c"))
        .arg("-o")
        .arg(object)
        .status()
        .unwrap_or_else(|error| panic!("cannot run {compiler}: {error} (./x setup installs it)"));
    assert!(status.success(), "{compiler} could not compile the scheduler");
}

fn works(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn var(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
