// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the header that C programs include, behind functions; or says that events are to be nothing.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=src/shim.c");
    println!("cargo::rerun-if-changed=../../include/rtscope");
    println!("cargo::rustc-check-cfg=cfg(rtscope_disabled)");
    let of_target = |what: &str| env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    // As rtscope.h says for C: on other machines events are nothing.
    let known = of_target("OS") == "linux"
        && of_target("POINTER_WIDTH") == "64"
        && ["x86_64", "aarch64"].contains(&of_target("ARCH").as_str());
    if !known || env::var_os("CARGO_FEATURE_DISABLE").is_some() {
        println!("cargo::rustc-cfg=rtscope_disabled");
        return;
    }
    // Always optimized: a debug build's events should not disturb more than others.
    cc::Build::new()
        .file("src/shim.c")
        .include("../../include")
        .std("c11")
        .opt_level(2)
        .force_frame_pointer(false)
        .warnings(true)
        .warnings_into_errors(true)
        .compile("rtscope_probe_shim");
}
