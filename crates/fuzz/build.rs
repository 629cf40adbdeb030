// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the part of the header that reads sessions: for the fuzzer with its counters and with AddressSanitizer.

fn main() {
    println!("cargo::rerun-if-changed=c/session.c");
    println!("cargo::rerun-if-changed=../../include/rtscope");
    let mut build = cc::Build::new();
    build.file("c/session.c").include("../../include").std("c11").opt_level(1).warnings(true);
    if std::env::var_os("CARGO_FEATURE_LIBFUZZER").is_some() {
        build.compiler("clang-19").flag("-fsanitize=fuzzer-no-link,address").flag("-g");
    }
    build.warnings_into_errors(true).compile("rtscope_fuzz_session");
}
