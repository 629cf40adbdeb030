// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory and time of reading are in proportion to the input, whatever the metadata says.
//!
//! The allocator of the test binary counts, for all threads; each of these tests has a process to itself.

use super::fuzz::read;
use rtscope_testkit::memory::{CountingAllocator, is_alone, peak_of};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// What reading may take, for an input of this size.
pub const fn limit(input: usize) -> usize {
    input * 400 + (16 << 20)
}

const INT: &str = "typealias integer { size = 8; align = 8; } := u8;\n";

/// Metadata of about a size, whose meaning is as large as it can be.
type Shape = fn(usize) -> String;

/// `text` with `more` as often as it takes.
fn fill(text: String, bytes: usize, end: &str, more: impl Fn(usize) -> String) -> String {
    let mut text = text;
    let mut number = 0;
    while text.len() + end.len() < bytes {
        text += &more(number);
        number += 1;
    }
    text + end
}

fn fields(count: usize) -> String {
    (0..count).fold(String::new(), |mut text, field| {
        let _ = write!(text, "u8 f{field};");
        text
    })
}

pub const SHAPES: [(&str, Shape); 15] = [
    ("typedefs of one struct", |bytes| {
        let begin = format!("{INT}typedef struct {{ {} }} a", fields(3000));
        fill(begin, bytes, ";", |number| format!(",a{number}"))
    }),
    ("members of one struct", |bytes| {
        let begin = format!("{INT}struct all {{ struct {{ {} }} a", fields(100));
        fill(begin, bytes, "; };", |number| format!(",a{number}"))
    }),
    ("uses of one struct", |bytes| {
        let begin = format!("{INT}struct s {{ {} }};", fields(2000));
        fill(begin, bytes, "", |number| format!("event {{ id = {number}; fields := struct s; }};"))
    }),
    ("structs in structs", |bytes| {
        let mut text = format!("{INT}struct s0 {{ {} }};", fields(1000));
        for level in 1..8 {
            let _ = write!(text, "struct s{level} {{ struct s{} a; struct s{} b; }};", level - 1, level - 1);
        }
        fill(text, bytes, "", |number| format!("event {{ id = {number}; fields := struct s1; }};"))
    }),
    ("a context of many texts for each event", |bytes| {
        let context: String = (0..bytes / 40).map(|field| format!("string s{field};")).collect();
        let begin = format!("stream {{ event.context := struct {{ {context} }}; }};");
        fill(begin, bytes, "", |number| format!("event {{ id = {number}; }};"))
    }),
    ("a header of many lengths for each event", |bytes| {
        let context: String = (0..bytes / 40).map(|field| format!("u8 s{field}[n];")).collect();
        let begin = format!("{INT}stream {{ event.header := struct {{ u8 n; {context} }}; }};");
        fill(begin, bytes, "", |number| format!("event {{ id = {number}; }};"))
    }),
    ("events of one long enumeration", |bytes| {
        let labels: String = (0..bytes / 20).map(|label| format!("l{label},")).collect();
        let begin = format!("{INT}typealias enum : u8 {{ {labels} }} := e;");
        fill(begin, bytes, "", |number| format!("event {{ id = {number}; fields := struct {{ e f; }}; }};"))
    }),
    ("variants of one long enumeration", |bytes| {
        let labels = "one,".repeat(bytes / 10);
        let begin = format!(
            "{INT}event {{ fields := struct {{ enum : u8 {{ {labels} }} h; typealias variant {{ u8 one; }} := v;"
        );
        fill(begin, bytes, " }; };", |number| format!("variant <h> {{ u8 one; }} v{number};"))
    }),
    ("variants of many options", |bytes| {
        let labels: String = (0..2000).map(|label| format!("l{label},")).collect();
        let options: String = (0..2000).map(|label| format!("u8 l{label};")).collect();
        let begin = INT.to_string();
        fill(begin, bytes, "", |number| {
            format!(
                "event {{ id = {number}; fields := struct {{ enum : u8 {{ {labels} }} h; variant <h> {{ {options} }} v; }}; }};"
            )
        })
    }),
    ("references far back", |bytes| {
        fill(INT.to_string(), bytes, "", |number| {
            let far: String = (0..1800).map(|field| format!("u8 r{field}[n];")).collect();
            format!("event {{ id = {number}; fields := struct {{ u8 n; {far} }}; }};")
        })
    }),
    ("arrays in arrays", |bytes| {
        fill(INT.to_string(), bytes, "", |number| {
            let dimensions = "[1]".repeat(22);
            format!(
                "event {{ id = {number}; fields := struct {{ string s{dimensions}; u8 a{dimensions}; }}; }};"
            )
        })
    }),
    ("long names around many fields", |bytes| {
        let long = "n".repeat(bytes / 60);
        let open: String = (0..20).map(|_| "struct { ".to_string()).collect();
        let close: String = (0..20).map(|level| format!("}} {long}{level};")).collect();
        let inner = fields((bytes / 4 / 8).min(3900));
        let begin = format!("{INT}event {{ fields := struct {{ {open} {inner} {close} }}; }};");
        fill(begin, bytes, "", |number| format!("event {{ id = {}; }};", number + 1))
    }),
    ("streams and events", |bytes| {
        fill(INT.to_string(), bytes, "", |number| {
            format!("stream {{ id = {number}; }}; event {{ stream_id = {number}; }};")
        })
    }),
    ("streams of one id", |bytes| {
        fill(INT.to_string(), bytes, "", |number| format!("stream {{ }}; event {{ id = {number}; }};"))
    }),
    ("clocks", |bytes| {
        let begin = String::from("stream { event.header := struct { ");
        fill(begin, bytes, " }; };", |number| {
            format!("integer {{ size = 8; map = clock.c{number}.value; }} f{number};")
        })
    }),
];

fn write(dir: &Path, text: &str) {
    fs::write(dir.join("metadata"), text).unwrap();
    fs::write(dir.join("stream"), [0; 64]).unwrap();
}

#[test]
fn metadata_takes_memory_and_time_in_proportion_to_its_size() {
    if !is_alone() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    for (what, shape) in SHAPES {
        for bytes in [56 << 10, 448 << 10] {
            let text = shape(bytes);
            write(root.path(), &text);
            let start = Instant::now();
            let peak = peak_of(|| read(root.path()));
            let took = start.elapsed();
            println!("{what}: {} bytes take {} KiB and {took:?}", text.len(), peak >> 10);
            assert!(peak < limit(text.len()), "{what}: {peak} bytes for {}", text.len());
            assert!(took < Duration::from_secs(8), "{what}: {took:?} for {} bytes", text.len());
        }
    }
}
