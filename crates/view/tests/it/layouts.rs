// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traces with layouts that our writer does not have: both byte orders, odd sizes, nested and chosen types.

use std::fs;
use std::path::Path;

/// A trace of one stream file.
pub struct Layout {
    metadata: String,
    stream: Vec<u8>,
}

impl Layout {
    pub fn write(&self, dir: &Path) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("metadata"), &self.metadata).unwrap();
        fs::write(dir.join("stream"), &self.stream).unwrap();
    }
}

/// Bits, one after the other, in either order.
struct Bits {
    bytes: Vec<u8>,
    at: usize,
    big: bool,
}

impl Bits {
    fn new(big: bool) -> Bits {
        Bits { bytes: Vec::new(), at: 0, big }
    }

    fn align(&mut self, bits: usize) -> &mut Bits {
        self.at = self.at.next_multiple_of(bits);
        self
    }

    fn put(&mut self, value: u64, bits: usize) -> &mut Bits {
        for place in 0..bits {
            let bit = if self.big { value >> (bits - 1 - place) & 1 } else { value >> place & 1 };
            self.bytes.resize(self.bytes.len().max(self.at / 8 + 1), 0);
            let shift = if self.big { 7 - self.at % 8 } else { self.at % 8 };
            self.bytes[self.at / 8] |= (bit as u8) << shift;
            self.at += 1;
        }
        self
    }

    fn text(&mut self, text: &[u8]) -> &mut Bits {
        self.align(8);
        for byte in text {
            self.put(u64::from(*byte), 8);
        }
        self.put(0, 8)
    }
}

/// All layouts, by name.
pub fn all() -> Vec<(&'static str, Layout)> {
    vec![
        ("numbers-le", numbers(false)),
        ("numbers-be", numbers(true)),
        ("compounds", compounds()),
        ("references", references()),
        ("no-clock", no_clock()),
        ("other-clock", other_clock()),
        ("implied-clock", implied_clock()),
        ("perf", perf()),
    ]
}

fn trace(order: &str, rest: &str) -> String {
    format!(
        "/* CTF 1.8 */
typealias integer {{ size = 8; align = 8; signed = false; }} := u8;
typealias integer {{ size = 16; align = 16; signed = false; }} := u16;
typealias integer {{ size = 32; align = 32; signed = false; }} := u32;
typealias integer {{ size = 64; align = 64; signed = false; }} := u64;
typealias integer {{ size = 32; align = 32; signed = true; }} := int;
trace {{ major = 1; minor = 8; byte_order = {order}; }};
{rest}"
    )
}

const CLOCK: &str = "clock { name = mono; freq = 1000000000; offset_s = 1700000000; offset = 5; };
typealias integer { size = 64; align = 64; map = clock.mono.value; } := time64;
stream { event.header := struct { u8 id; time64 timestamp; }; };
";

/// Integers of all sizes, signs and bases; floating point numbers.
fn numbers(big: bool) -> Layout {
    let order = if big { "be" } else { "le" };
    // babeltrace2 shows 61 to 63 bits in base 16 as 0: a shift that C leaves undefined.
    let sizes = [1, 3, 7, 8, 12, 31, 32, 33, 60, 64];
    let bases = ["decimal", "hex", "oct", "binary"];
    let mut fields = String::new();
    for (place, size) in sizes.iter().enumerate() {
        for signed in [true, false] {
            for base in bases {
                let name = format!("f{place}_{signed}_{base}");
                fields += &format!(
                    "integer {{ size = {size}; align = 1; signed = {signed}; base = {base}; }} {name};\n"
                );
            }
        }
    }
    let floats = "floating_point { exp_dig = 8; mant_dig = 24; align = 8; } f;
        floating_point { exp_dig = 11; mant_dig = 53; align = 1; } d;";
    let event = format!("event {{ id = 0; name = \"numbers\"; fields := struct {{ {fields} {floats} }}; }};");
    let mut bits = Bits::new(big);
    let values = [0, u64::MAX, 0x0123_4567_89ab_cdef, 0x8000_0000_8000_0001, 5];
    let floats = [0.0, -1.5, 123_456_789.0, 1e-7, f64::INFINITY];
    for (time, (value, float)) in values.into_iter().zip(floats).enumerate() {
        bits.align(64).put(0, 8).align(64).put(time as u64 * 1_000_000_007, 64);
        for size in sizes {
            for _ in 0..2 * bases.len() {
                bits.put(value & (u64::MAX >> (64 - size)), size);
            }
        }
        bits.align(8).put(u64::from((float as f32).to_bits()), 32).put(f64::to_bits(float), 64);
        bits.align(8);
    }
    Layout { metadata: trace(order, &format!("{CLOCK}{event}")), stream: bits.bytes }
}

/// Structs, arrays, sequences, text, enumerations.
fn compounds() -> Layout {
    let event = "typealias integer { size = 8; align = 8; encoding = UTF8; } := char;
        typealias integer { size = 8; align = 8; encoding = ASCII; signed = true; } := schar;
        typedef struct { u8 a; u32 b; } pair;
        event { id = 7; name = \"compounds\"; loglevel = 6; context := struct { string who; };
        fields := struct {
            struct { u8 x; struct { string y; } inner; } nested;
            struct { } _empty;
            pair pairs[2];
            u16 grid[2][3];
            u8 n; pair many[n]; string words[n]; char letters[n]; schar fixed[6];
            enum : u8 { ZERO, FEW = 1 ... 3, TWO = 2, \"with blank\" = 10, MANY = 100 ... 255 } e;
            enum : int { MINUS = -5 ... -1, PLUS = 0 ... 5 } s;
            u8 plain[3]; integer { size = 4; } nibbles[3]; u32 last;
        }; };";
    let header = "clock { name = mono; freq = 1000000000; offset = 1700000000000000000; };
        typealias integer { size = 64; align = 64; map = clock.mono.value; } := time64;
        stream { event.header := struct { u8 id; time64 timestamp; }; event.context := struct { u8 _depth; }; };";
    let mut bits = Bits::new(false);
    for round in 0..4_u64 {
        bits.align(64).put(7, 8).align(64).put(round * 3, 64);
        bits.put(round, 8).text(b"me, \"you\" \\ 'him'?\x01\x1b\t\xff");
        bits.put(1, 8).text(b"inner");
        bits.align(32);
        for pair in 0..2 {
            bits.align(32).put(pair, 8).align(32).put(pair * 1000, 32);
        }
        bits.align(16);
        for number in 0..6 {
            bits.put(number * round, 16);
        }
        let n = [1, 3, 1, 2][round as usize];
        bits.put(n, 8).align(32);
        for pair in 0..n {
            bits.align(32).put(pair, 8).align(32).put(pair, 32);
        }
        for _ in 0..n {
            bits.text(b"word");
        }
        for _ in 0..n {
            bits.put(u64::from(b'x'), 8);
        }
        for byte in b"ab\0cd\0" {
            bits.put(u64::from(*byte), 8);
        }
        bits.put([0, 2, 10, 50][round as usize], 8);
        bits.align(32).put([-3_i64, 4, -9, 0][round as usize] as u64 & 0xffff_ffff, 32);
        for byte in [1, 0, 255] {
            bits.put(byte, 8);
        }
        for nibble in [1, 15, 0] {
            bits.put(nibble, 4);
        }
        bits.align(32).put(0xffff_ffff, 32);
    }
    Layout { metadata: trace("le", &format!("{header}{event}")), stream: bits.bytes }
}

/// Lengths and tags in other scopes. (babeltrace2's grammar has no tags in other scopes; a test of the parser does.)
fn references() -> Layout {
    let rest = "clock { name = mono; freq = 1000000000; };
        typealias integer { size = 64; align = 8; map = clock.mono.value; } := time64;
        enum kind : u8 { number, text, nothing = 2 ... 9 };
        variant value { u8 number; string text; struct { } nothing; };
        stream { packet.context := struct { u8 columns; };
            event.header := struct { enum kind id; time64 timestamp; };
            event.context := struct { u8 length; }; };
        event { id = 0; name = \"zero\"; fields := struct {
            u8 row[stream.packet.context.columns];
            u8 more[stream.event.context.length]; }; };
        event { id = 1; name = \"one\"; context := struct { u8 c; }; fields := struct {
            enum kind tag; variant <tag> { string text; u8 number; u16 nothing; } v;
            struct { u8 x; variant value <tag> w; } inner; u8 rest[event.context.c]; }; };";
    let mut bits = Bits::new(true);
    bits.put(3, 8);
    for round in 0..3_u64 {
        bits.put(0, 8).put(round * 1000, 64).put(round, 8);
        bits.put(1, 8).put(2, 8).put(3, 8);
        for _ in 0..round {
            bits.put(9, 8);
        }
        bits.put(1, 8).put(round * 1000 + 100, 64).put(5, 8).put(2, 8).put(round, 8);
        match round {
            0 => bits.put(11, 8),
            1 => bits.text(b"eleven"),
            _ => bits.align(16).put(1111, 16),
        };
        bits.put(7, 8);
        match round {
            0 => bits.put(12, 8),
            1 => bits.text(b"twelve"),
            _ => &mut bits,
        };
        bits.put(1, 8).put(2, 8);
    }
    Layout { metadata: trace("be", rest), stream: bits.bytes }
}

fn no_clock() -> Layout {
    let rest = "event { name = \"only\"; fields := struct { string s; u8 n; }; };";
    let mut bits = Bits::new(false);
    bits.text(b"one").put(1, 8).text(b"two").put(2, 8);
    Layout { metadata: trace("le", rest), stream: bits.bytes }
}

/// Counts something else than nanoseconds, and short times wrap.
fn other_clock() -> Layout {
    let rest = "clock { name = \"tsc\"; freq = 2599998123; offset_s = 12; offset = 2599998000; };
        stream { packet.context := struct {
                integer { size = 64; align = 8; map = clock.tsc.value; } timestamp_begin;
                integer { size = 64; align = 8; map = clock.tsc.value; } timestamp_end;
                u64 packet_size; u64 content_size; u8 cpu_id; };
            event.header := struct { integer { size = 12; align = 8; map = clock.tsc.value; } timestamp; }; };
        event { name = \"tick\"; fields := struct { u8 n; }; };";
    let mut bits = Bits::new(false);
    let mut time = 1 << 40;
    for packet in 0..3_u64 {
        let start = bits.bytes.len() * 8;
        bits.at = start;
        let size = 16 * 8 + 16 * 8 + 8 + 20 * 24;
        bits.put(time, 64).put(time + 36_500, 64).put(size, 64).put(size, 64).put(packet, 8);
        for n in 0..20 {
            time += 1 + n * 190;
            bits.align(8).put(time & 0xfff, 12).align(8).put(n, 8);
        }
        time += 1000;
    }
    Layout { metadata: trace("le", rest), stream: bits.bytes }
}

/// As `perf data convert --to-ctf` lays it out: types without names, a clock without an origin, a stream per CPU.
fn perf() -> Layout {
    let integer = |bits: u32, signed: bool, base: &str, map: &str| {
        format!(
            "integer {{ size = {bits}; align = 8; signed = {signed}; encoding = none; base = {base}; byte_order = le;{map} }}"
        )
    };
    let plain = |bits| integer(bits, false, "decimal", "");
    let (time, hex) = (
        integer(64, false, "decimal", " map = clock.perf_clock.value;"),
        integer(64, false, "hexadecimal", ""),
    );
    let (signed, text) = (integer(32, true, "decimal", ""), "string { encoding = UTF8; }");
    let metadata = format!(
        "/* CTF 1.8 */
trace {{ major = 1; minor = 8; uuid = \"4ed71d88-48e6-4bd7-9a8b-6b6dd8c5b4a3\"; byte_order = le;
    packet.header := struct {{ {u32_} magic; {u8_} uuid[16]; {u32_} stream_id; }} align(8); }};
env {{ host = \"here\"; sysname = \"Linux\"; release = \"6.18\"; version = \"#1\"; machine = \"x86_64\"; domain = \"kernel\"; tracer_name = \"perf\"; }};
clock {{ name = perf_clock; uuid = \"1ed71d88-48e6-4bd7-9a8b-6b6dd8c5b4a3\"; description = \"perf clock\"; freq = 1000000000; precision = 1; offset_s = 0; offset = 0; absolute = FALSE; }};
stream {{ id = 0;
    event.header := struct {{ {u32_} id; {time} timestamp; }} align(8);
    packet.context := struct {{ {time} timestamp_begin; {time} timestamp_end; {u64_} content_size; {u64_} packet_size; {u64_} events_discarded; {u32_} cpu_id; }} align(8);
}};
event {{ name = \"sched:sched_wakeup\"; id = 0; stream_id = 0; fields := struct {{
    {hex} perf_ip; {signed} perf_tid; {signed} perf_pid; {u64_} perf_period; {u32_} perf_callchain_size; {hex} perf_callchain[perf_callchain_size];
    {u16_} common_type; {u8_} common_flags; {text} comm; {signed} prio; }} align(8); }};
event {{ name = \"cpu-clock\"; id = 1; stream_id = 0; fields := struct {{ {hex} perf_ip; {signed} perf_tid; {u32_} raw_len; {hex32} raw_data[raw_len]; }} align(8); }};
",
        u8_ = plain(8),
        u16_ = plain(16),
        u32_ = plain(32),
        u64_ = plain(64),
        hex32 = integer(32, false, "hexadecimal", ""),
    );
    let mut events = Bits::new(false);
    for n in 0..10_u64 {
        let wakeup = n % 2 == 0;
        events.put(u64::from(!wakeup), 32).put(1000 + n, 64).put(0xffff_ffff_8100_0000 + n, 64).put(n, 32);
        if wakeup {
            events.put(n, 32).put(1, 64).put(n % 3, 32);
            for place in 0..n % 3 {
                events.put(0xffff_ffff_8200_0000 + place, 64);
            }
            events.put(300, 16).put(1, 8).text(b"swapper/0").put(120, 32);
        } else {
            events.put(2, 32).put(0xdead, 32).put(7, 32);
        }
    }
    let mut bits = Bits::new(false);
    bits.put(0xc1fc_1fc1, 32);
    let uuid =
        [0x4e, 0xd7, 0x1d, 0x88, 0x48, 0xe6, 0x4b, 0xd7, 0x9a, 0x8b, 0x6b, 0x6d, 0xd8, 0xc5, 0xb4, 0xa3];
    for byte in uuid {
        bits.put(byte, 8);
    }
    let size = ((4 + 16 + 4 + 5 * 8 + 4) * 8 + events.at) as u64;
    bits.put(0, 32).put(1000, 64).put(1010, 64).put(size, 64).put(size, 64).put(0, 64).put(1, 32);
    bits.bytes.extend(events.bytes);
    Layout { metadata, stream: bits.bytes }
}

/// Packets of several MB that say nothing of their times, so that reading has to find places to begin at by itself.
/// `bits` of time are in each event.
pub fn large(bits: usize, files: u64) -> (String, Vec<Vec<u8>>) {
    let rest = format!(
        "clock {{ name = mono; freq = 1000000000; offset = 1700000000000000000; }};
        stream {{ event.header := struct {{ u8 id; integer {{ size = {bits}; align = 8; map = clock.mono.value; }} timestamp; }}; }};
        event {{ id = 1; name = \"tick\"; fields := struct {{ string word; u8 n; u8 many[n]; }}; }};
        event {{ id = 2; name = \"tock\"; fields := struct {{ u8 a[20]; }}; }};"
    );
    let streams = (0..files).map(|file| {
        let mut bytes = Vec::new();
        let (mut time, mut n) = (1_u64 << 33, file);
        while bytes.len() < 5 << 20 {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            time += n >> 54;
            bytes.push(1 + (n >> 40 & 1) as u8);
            bytes.extend_from_slice(&time.to_le_bytes()[..bits / 8]);
            if n >> 40 & 1 == 0 {
                let many = (n >> 20 & 31) as u8;
                bytes.extend_from_slice(b"some words\0");
                bytes.push(many);
                bytes.extend((0..many).map(|place| place ^ 0x5a));
            } else {
                bytes.extend_from_slice(&[7; 20]);
            }
        }
        bytes
    });
    (trace("le", &rest), streams.collect())
}

/// A timestamp that is mapped to no clock belongs to one that counts nanoseconds.
fn implied_clock() -> Layout {
    let rest = "stream { event.header := struct { integer { size = 32; align = 8; } timestamp; }; };
        event { name = \"tick\"; fields := struct { u8 n; }; };";
    let mut bits = Bits::new(false);
    for n in 0..5 {
        bits.put(0x1000_0000 + n, 32).put(n, 8);
    }
    Layout { metadata: trace("le", rest), stream: bits.bytes }
}
