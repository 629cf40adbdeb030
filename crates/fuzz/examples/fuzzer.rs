// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All targets in one program, which `./x fuzz` builds for libFuzzer; `RTSCOPE_FUZZ_TARGET` says which one runs. Built as other
//! programs are, it lists the targets, or writes the seeds of one into a directory.

#![cfg_attr(feature = "libfuzzer", no_main)]

/// What libFuzzer calls for each input.
#[cfg(feature = "libfuzzer")]
#[unsafe(no_mangle)]
extern "C" fn LLVMFuzzerTestOneInput(data: *const u8, size: usize) -> i32 {
    static TARGET: std::sync::OnceLock<rtscope_fuzz::Target> = std::sync::OnceLock::new();
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("RTSCOPE_FUZZ_TARGET").expect("RTSCOPE_FUZZ_TARGET names the target");
        rtscope_fuzz::on_one_cpu();
        rtscope_fuzz::target(&name).expect("RTSCOPE_FUZZ_TARGET is the name of a target")
    });
    let data = if size == 0 {
        &[]
    } else {
        // SAFETY: libFuzzer's contract: `size` bytes that nobody changes until this returns. They are not 0, so it is not null.
        unsafe { std::slice::from_raw_parts(data, size) }
    };
    target.run(data);
    0
}

#[cfg(not(feature = "libfuzzer"))]
fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [name, directory] = arguments.as_slice() {
        for (number, seed) in rtscope_fuzz::seeds(name).iter().enumerate() {
            std::fs::write(std::path::Path::new(directory).join(format!("seed-{number}")), seed)?;
        }
        return Ok(());
    }
    for target in rtscope_fuzz::TARGETS {
        println!("{}\t{}\t{}", target.name, target.bytes_max, target.content);
    }
    Ok(())
}
