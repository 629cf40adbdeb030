// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the C halves of programs, and links each with nothing but that program: the constructor of one that has events would make an
//! instrumented program of everything that uses this crate.

use std::fs;
use std::path::{Path, PathBuf};

/// The headers, in which a thread that opens or gives up a device takes longer than a fork waits for it: wherever a fork's child would have what it knows
/// nothing of. And where an event has a level, and is not in it yet, and where a thread has said who it is, and does not know it yet, the program is called: a
/// handler may come there.
fn slow_headers(directory: &Path) -> PathBuf {
    const PAUSE: &str = "{ struct timespec slow = { 0, 100000000 }; rtscope__call(__NR_nanosleep, (long)&slow, 0, 0, 0, 0, 0); }";
    let to = directory.join("slow");
    fs::create_dir_all(to.join("rtscope")).expect("cargo's own");
    for file in fs::read_dir("../../include/rtscope").expect("it is there").flatten() {
        let mut text = fs::read_to_string(file.path()).expect("a header");
        let places: &[&str] = match file.file_name().to_str() {
            Some("channel.h") => &[
                "\tmemory = file.number < 0 ? file.number : 0;\n",
                "\tif (!memory) {\n\t\t/* What was put there",
                "\tif (!memory)\n\t\tmemory = rtscope__call_again(__NR_mmap",
                "\t/* The mapping keeps the channels. */",
                "\trtscope__end_mapping(made);\n\treturn",
            ],
            Some("pages.h") => &["\t\trtscope__unmap(memory, page->bytes);\n"],
            _ => &[],
        };
        for place in places {
            assert!(text.contains(place), "{place}");
            text = text.replace(place, &format!("{PAUSE}\n{place}"));
        }
        if file.file_name() == "channel.h" {
            for (place, called) in [
                ("\tRTSCOPE__STORE(channel->depth, level + 1);\n", "rtscope_overtaken_between"),
                ("\tchannel->cpu = cpu;\n", "rtscope_overtaken_said"),
            ] {
                assert!(text.contains(place), "{place}");
                text = text.replace(place, &format!("{{ void {called}(void); {called}(); }}\n{place}"));
            }
        }
        fs::write(to.join("rtscope").join(file.file_name()), text).expect("cargo's own");
    }
    to
}

fn main() {
    println!("cargo::rerun-if-changed=../../include/rtscope");
    let directory = std::env::var("OUT_DIR").expect("cargo sets it");
    let (headers, slow) = (PathBuf::from("../../include"), slow_headers(Path::new(&directory)));
    for (sources, program, headers) in [
        (&["linked"][..], "rtscope-emitter", &headers),
        (&["descriptors"], "rtscope-descriptors", &headers),
        (&["channels"], "rtscope-channels", &headers),
        (&["channels", "ptwrite"], "rtscope-ptwrite", &headers),
        (&["overtaken"], "rtscope-overtaken", &slow),
    ] {
        let source = sources.join("_");
        let files: Vec<String> = sources.iter().map(|source| format!("c/{source}.c")).collect();
        files.iter().for_each(|file| println!("cargo::rerun-if-changed={file}"));
        cc::Build::new()
            .files(&files)
            .include(headers)
            .std("c11")
            .opt_level(2)
            .warnings(true)
            .warnings_into_errors(true)
            .cargo_metadata(false)
            .compile(&format!("rtscope_testkit_{source}_c"));
        println!("cargo::rustc-link-arg-bin={program}={directory}/librtscope_testkit_{source}_c.a");
    }
}
