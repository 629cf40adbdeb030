// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns `kernel_abi.h` into Rust, and tells the crates that build eBPF where the header is (`DEP_RTSCOPE_ABI_INCLUDE`).

use std::env;
use std::path::PathBuf;

fn main() {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let header = here.join("kernel_abi.h");
    println!("cargo:include={}", here.display());
    println!("cargo:rerun-if-changed={}", header.display());
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("kernel_abi.rs");
    bindgen::Builder::default()
        .header(header.display().to_string())
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(true)
        .use_core()
        // bindgen reads it as -1.
        .blocklist_item("RTS_NEVER")
        .blocklist_type("rts_(u8|u16|u32|u64|s16|s32|s64)")
        .generate()
        .expect("bindgen reads kernel_abi.h (libclang is needed: ./x setup installs it)")
        .write_to_file(out)
        .expect("OUT_DIR can be written");
}
