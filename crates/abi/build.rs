// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns `kernel_abi.h`, with `kernel_trackers.h`, `kernel_fds.h` and the programs' `abi.h` into Rust, and tells the crates that build eBPF where the header is (`DEP_RTSCOPE_ABI_INCLUDE`).

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    println!("cargo:include={}", here.display());
    println!("cargo:rerun-if-changed={}", here.join("kernel_trackers.h").display());
    translate(&here.join("kernel_abi.h"), "kernel_(abi|trackers).h", "kernel_abi.rs");
    translate(&here.join("kernel_fds.h"), "kernel_fds.h", "kernel_fds.rs");
    translate(&here.join("../../include/rtscope/abi.h"), "abi.h", "program_abi.rs");
}

/// `ours`: the files whose definitions are wanted, a regular expression.
fn translate(header: &Path, ours: &str, to: &str) {
    println!("cargo:rerun-if-changed={}", header.display());
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join(to);
    bindgen::Builder::default()
        .header(header.display().to_string())
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(true)
        .use_core()
        // bindgen reads it as -1.
        .blocklist_item("RTS_NEVER")
        .blocklist_type("rts_(u8|u16|u32|u64|s16|s32|s64)")
        // What it includes is the C library's.
        .allowlist_file(format!(".*{ours}"))
        .generate()
        .expect("bindgen reads the header (libclang is needed: ./x setup installs it)")
        .write_to_file(out)
        .expect("OUT_DIR can be written");
}
