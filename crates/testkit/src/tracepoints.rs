// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptions of tracepoints as tracefs has them: made by a test, or all of the running kernel.

use std::fs;
use std::path::Path;

/// The fields that each record begins with.
const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

/// A `format` file; fields are a C declaration, an offset and a size in bytes.
pub fn description(name: &str, id: u16, fields: &[(&str, u32, u32)]) -> String {
    let line = |(declaration, offset, size): &(&str, u32, u32)| {
        format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:0;\n")
    };
    let fields: String = fields.iter().map(line).collect();
    format!("name: {name}\nID: {id}\nformat:\n{COMMON}\n{fields}")
}

/// Every `format` file of the running kernel, with its subsystem; none where tracefs cannot be read.
pub fn of_this_kernel() -> Vec<(String, String)> {
    let below = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let mut all = Vec::new();
    for system in below(Path::new("/sys/kernel/tracing/events")) {
        for event in below(&system.path()) {
            if let Ok(text) = fs::read_to_string(event.path().join("format")) {
                all.push((system.file_name().to_string_lossy().into_owned(), text));
            }
        }
    }
    all
}
