// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns `kernel_abi.h` and the programs' `abi.h` into Rust, and tells the crates that build eBPF where the header is (`DEP_RTSCOPE_ABI_INCLUDE`).

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    println!("cargo:include={}", here.display());
    translate(&here.join("kernel_abi.h"), "kernel_abi.rs");
    translate(&here.join("../../include/rtscope/abi.h"), "program_abi.rs");
}

fn translate(header: &Path, to: &str) {
    let name = header.file_name().unwrap_or_default().to_string_lossy();
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
        .allowlist_file(format!(".*{name}"))
        .generate()
        .expect("bindgen reads the header (libclang is needed: ./x setup installs it)")
        .write_to_file(out)
        .expect("OUT_DIR can be written");
}
