// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The events of vectors/user_events.json by the Rust macro; c/vectors.c emits the same by the C header. Prints "ready", waits for
//! a line, and emits each once.

use rtscope_probe::{enumeration, event, event_level};

#[allow(non_camel_case_types)]
mod names {
    rtscope_probe::enumeration!(pub vectors_mode { 0 => "idle", 1 => "run fast", -7 => "stopped" });
}
use names::vectors_mode;

// No event uses this one: it is described, too.
enumeration!(Unused { 3 => "three" });

fn numbers() {
    event!(vectors, unsigned_numbers, a: u8 = 0xfe, b: u16 = 0xfedc, c: u32 = 0xfedc_ba98, d: u64 = 0xfedc_ba98_7654_3210);
    event!(vectors, signed_numbers, a: i8 = -2, b: i16 = -300, c: i32 = -70000, d: i64 = -5_000_000_000);
    event!(vectors, hex_numbers, a: x8 = 0xfe, b: x16 = 0xfedc, c: x32 = 0xfedc_ba98, d: x64 = 0xfedc_ba98_7654_3210);
    event!(vectors, other_numbers, yes: bool = true, no: bool = false, f: f32 = 1.5, g: f64 = -0.1);
    event!(vectors, names, a: enum(vectors_mode) = 1, b: enum(vectors_mode) = -7, c: enum(vectors_mode) = 5);
    event!(vectors, nothing);
    event_level!(err, vectors, loud, code: u8 = 9);
    event!(vectors, sixteen, a: u8 = 1, b: u8 = 2, c: u8 = 3, d: u8 = 4, e: u8 = 5, f: u8 = 6, g: u8 = 7, h: u8 = 8, i: u8 = 9,
        j: u8 = 10, k: u8 = 11, l: u8 = 12, m: u8 = 13, n: u8 = 14, o: u8 = 15, p: u8 = 16);
}

fn texts() {
    event!(vectors, texts, plain: str = "hello", empty: str = "", cut: str(5) = "cut off here", umlauts: str = "grüße");
    let text = "x".repeat(300);
    let many: Vec<u16> = (0..600).collect();
    event!(vectors, cut, text: str = &text, many: [u16] = &many);
}

fn arrays() {
    let (u8s, u16s, u32s, u64s) =
        ([1, 2, 3], [0x102, 0x304], [0x102_0304, 0x506_0708], [0x102_0304_0506_0708]);
    let (i8s, i16s, i32s, i64s) = ([-1, 2, -3], [-1, 300], [-1, 70000], [-5_000_000_000]);
    event!(vectors, arrays, a: [u8; 3] = &u8s, b: [u16; 2] = &u16s, c: [u32; 2] = &u32s, d: [u64; 1] = &u64s,
        e: [i8; 3] = &i8s, f: [i16; 2] = &i16s, g: [i32; 2] = &i32s, h: [i64; 1] = &i64s,
        i: [x8; 3] = &u8s, j: [x16; 2] = &u16s, k: [x32; 2] = &u32s, l: [x64; 1] = &u64s);
    event!(vectors, sequences, a: [u8] = &u8s, b: [u16] = &u16s, c: [u32] = &u32s, d: [u64] = &u64s,
        e: [i8] = &i8s, f: [i16] = &i16s, g: [i32] = &i32s, h: [i64] = &i64s,
        i: [x8] = &u8s, j: [x16] = &u16s, k: [x32] = &u32s, l: [x64] = &u64s, m: bytes = b"raw", n: [u64] = &[]);
}

fn floats() {
    event!(vectors, floats, a: [f32; 2] = &[1.5, -0.25], b: [f64; 1] = &[0.1],
        c: [f32] = &[1.0, 2.0, -3.0], d: [f64] = &[-1e100], e: [f64] = &[]);
}

fn main() -> std::io::Result<()> {
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    numbers();
    texts();
    arrays();
    floats();
    println!("emitted 13");
    Ok(())
}
