// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the C half of a program that has events in C and in Rust.

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
        .compile("rtscope_testkit_linked_c");
}
