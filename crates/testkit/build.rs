// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the C half of a program that has events in C and in Rust, and links it with nothing but that program: its constructor would
//! make an instrumented program of everything that uses this crate.

fn main() {
    println!("cargo::rerun-if-changed=c/linked.c");
    println!("cargo::rerun-if-changed=../../include/rtscope");
    cc::Build::new()
        .file("c/linked.c")
        .include("../../include")
        .std("c11")
        .opt_level(2)
        .warnings(true)
        .warnings_into_errors(true)
        .cargo_metadata(false)
        .compile("rtscope_testkit_linked_c");
    let directory = std::env::var("OUT_DIR").expect("cargo sets it");
    println!("cargo::rustc-link-arg-bin=rtscope-emitter={directory}/librtscope_testkit_linked_c.a");
}
