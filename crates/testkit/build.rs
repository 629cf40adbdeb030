// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the C halves of programs, and links each with nothing but that program: the constructor of one that has events would make an
//! instrumented program of everything that uses this crate.

fn main() {
    println!("cargo::rerun-if-changed=../../include/rtscope");
    let directory = std::env::var("OUT_DIR").expect("cargo sets it");
    for (source, program) in [
        ("linked", "rtscope-emitter"),
        ("descriptors", "rtscope-descriptors"),
        ("channels", "rtscope-channels"),
    ] {
        println!("cargo::rerun-if-changed=c/{source}.c");
        cc::Build::new()
            .file(format!("c/{source}.c"))
            .include("../../include")
            .std("c11")
            .opt_level(2)
            .warnings(true)
            .warnings_into_errors(true)
            .cargo_metadata(false)
            .compile(&format!("rtscope_testkit_{source}_c"));
        println!("cargo::rustc-link-arg-bin={program}={directory}/librtscope_testkit_{source}_c.a");
    }
}
