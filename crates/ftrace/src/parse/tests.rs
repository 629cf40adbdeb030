// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the parser on written texts. `tests/it/formats.rs` has those on the running kernel's.

use super::*;

const NUMBER: Meaning = Meaning::Number;

fn scalar(size: u8, signed: bool, meaning: Meaning) -> Scalar {
    Scalar { size, signed, meaning }
}

/// The kind of one field, in an event of `system`.
fn kind(system: &str, declaration: &str, size: u32, signed: u8, print_fmt: &str) -> FieldKind {
    let text = format!(
        "name: sys_enter_x\nID: 7\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
         \tfield:{declaration};\toffset:8;\tsize:{size};\tsigned:{signed};\n\nprint fmt: {print_fmt}\n"
    );
    let mut format = EventFormat::parse(system, &text).unwrap();
    assert_eq!((format.common.len(), format.fields.len()), (1, 1), "{declaration}");
    format.fields.remove(0).kind
}

fn sched(declaration: &str, size: u32, signed: u8) -> FieldKind {
    kind("sched", declaration, size, signed, "\"\"")
}

#[test]
fn scalars_have_the_size_and_sign_of_the_file() {
    assert_eq!(sched("int prev_prio", 4, 1), FieldKind::Scalar(scalar(4, true, NUMBER)));
    assert_eq!(sched("bool on", 1, 0), FieldKind::Scalar(scalar(1, false, NUMBER)));
    assert_eq!(sched("enum zone_type zone", 4, 0), FieldKind::Scalar(scalar(4, false, NUMBER)));
    assert_eq!(sched("xfs_ino_t ino", 8, 0), FieldKind::Scalar(scalar(8, false, NUMBER)));
    assert_eq!(sched("char state", 1, 1), FieldKind::Scalar(scalar(1, true, NUMBER)));
    assert_eq!(sched("void * p", 8, 0), FieldKind::Scalar(scalar(8, false, Meaning::Hex)));
    assert_eq!(sched("const void *const p", 8, 0), FieldKind::Scalar(scalar(8, false, Meaning::Hex)));
    assert_eq!(sched("struct page *p", 8, 0), FieldKind::Scalar(scalar(8, false, Meaning::Hex)));
}

#[test]
fn fields_of_unclear_type_are_bytes() {
    assert_eq!(sched("struct timespec64 t", 16, 0), FieldKind::Opaque);
    assert_eq!(sched("struct one t", 8, 0), FieldKind::Opaque);
    assert_eq!(sched("union u u", 4, 0), FieldKind::Opaque);
    assert_eq!(sched("mystery_t m", 12, 0), FieldKind::Opaque);
    assert_eq!(sched("struct in6_addr a[2]", 32, 0), FieldKind::Opaque);
}

#[test]
fn arrays_in_place() {
    let text = scalar(1, false, Meaning::Text);
    assert_eq!(sched("char prev_comm[16]", 16, 0), FieldKind::Array { element: text, len: 16 });
    assert_eq!(sched("char comm[TASK_COMM_LEN]", 16, 0), FieldKind::Array { element: text, len: 16 });
    let bytes = scalar(1, false, NUMBER);
    assert_eq!(sched("__u8 saddr[4]", 4, 0), FieldKind::Array { element: bytes, len: 4 });
    assert_eq!(sched("unsigned char addr[6]", 6, 0), FieldKind::Array { element: bytes, len: 6 });
    let longs = scalar(8, false, NUMBER);
    assert_eq!(sched("unsigned long args[6]", 48, 0), FieldKind::Array { element: longs, len: 6 });
    assert_eq!(sched("unsigned long args[]", 0, 0), FieldKind::Array { element: longs, len: 0 });
    let pointers = scalar(8, false, Meaning::Hex);
    assert_eq!(sched("void *stack[3]", 24, 0), FieldKind::Array { element: pointers, len: 3 });
    let mask = scalar(8, false, Meaning::CpuMask);
    assert_eq!(sched("cpumask_t cpus", 1024, 0), FieldKind::Array { element: mask, len: 128 });
}

#[test]
fn dynamic_arrays() {
    let dynamic = |element, relative| FieldKind::Dynamic { element, relative };
    let text = scalar(1, false, Meaning::Text);
    assert_eq!(sched("__data_loc char[] name", 4, 0), dynamic(text, false));
    assert_eq!(sched("__rel_loc char[] name", 4, 0), dynamic(text, true));
    assert_eq!(sched("__data_loc u64[] addrs", 4, 0), dynamic(scalar(8, false, NUMBER), false));
    assert_eq!(sched("__data_loc s16[] x", 4, 1), dynamic(scalar(2, true, NUMBER), false));
    let mask = scalar(8, false, Meaning::CpuMask);
    assert_eq!(sched("__data_loc cpumask_t cpumask", 4, 0), dynamic(mask, false));
    assert_eq!(sched("__data_loc struct foo[] x", 4, 0), dynamic(scalar(1, false, Meaning::Hex), false));
    let declaration = "__data_loc unsigned long[] target_cpus";
    let printed = "\"%s\", __get_bitmask(target_cpus)";
    assert_eq!(kind("ipi", declaration, 4, 0, printed), dynamic(mask, false));
    assert_eq!(kind("ipi", declaration, 4, 0, "\"\""), dynamic(scalar(8, false, NUMBER), false));
}

#[test]
fn arguments_of_system_calls_have_their_c_type() {
    let argument = |declaration| kind("syscalls", declaration, 8, 0, "\"\"");
    let text = FieldKind::Scalar(scalar(8, false, Meaning::UserText));
    assert_eq!(argument("const char * filename"), text);
    assert_eq!(argument("const char *filename"), text);
    // Kernels built with clang.
    assert_eq!(argument("const char __attribute__((btf_type_tag(\"user\"))) * filename"), text);
    // A buffer that the call fills.
    assert_eq!(argument("char * buf"), FieldKind::Scalar(scalar(8, false, Meaning::Hex)));
    assert_eq!(argument("const char *const * argv"), FieldKind::Scalar(scalar(8, false, Meaning::Hex)));
    assert_eq!(argument("size_t count"), FieldKind::Scalar(scalar(8, false, NUMBER)));
    if cfg!(target_endian = "little") {
        assert_eq!(argument("int dfd"), FieldKind::Scalar(scalar(4, true, NUMBER)));
        assert_eq!(argument("const unsigned int fd"), FieldKind::Scalar(scalar(4, false, NUMBER)));
        assert_eq!(argument("umode_t mode"), FieldKind::Scalar(scalar(2, false, NUMBER)));
    }
}

#[test]
fn declarations_and_places_are_kept() {
    let text = "name: sched_switch\nID: 372\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
                \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:__data_loc char[] name;\toffset:24;\tsize:4;\tsigned:0;\n\n\
                print fmt: \"a\", REC->a\n";
    let format = EventFormat::parse("sched", text).unwrap();
    assert_eq!((format.id, format.name.as_str(), format.system.as_str()), (372, "sched_switch", "sched"));
    let places: Vec<_> =
        format.fields.iter().map(|f| (f.name.as_str(), f.declaration.as_str(), f.offset, f.size)).collect();
    assert_eq!(places, [("prev_comm", "char[16]", 8, 16), ("name", "__data_loc char[]", 24, 4)]);
    assert_eq!(format.print_fmt, "\"a\", REC->a");
}

#[test]
fn texts_that_are_not_a_description_are_refused() {
    let head = "name: x\nID: 1\nformat:\n";
    let broken = [
        String::new(),
        "name: x\n".to_string(),
        "name: x\nID: 70000\n".to_string(),
        "name: x\nID: -1\n".to_string(),
        format!("{head}\tfield:;\toffset:0;\tsize:2;\tsigned:0;\n"),
        format!("{head}\tfield:int x\n"),
        format!("{head}\tfield:int x;\toffset:0;\n"),
        format!("{head}\tfield:int x;\toffset:99999999999;\tsize:2;\tsigned:0;\n"),
        format!("{head}\tfield:int x;\toffset:65536;\tsize:65536;\tsigned:0;\n"),
        format!("{head}{}", "\tfield:int x;\toffset:0;\tsize:4;\tsigned:0;\n".repeat(1025)),
    ];
    for text in broken {
        assert!(EventFormat::parse("s", &text).is_err(), "{text}");
    }
}

#[test]
fn text_changed_anywhere_never_panics() {
    let text = include_str!("../../tests/formats/ipi_send_cpumask.txt");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut parsed = 0;
    for _ in 0..20_000 {
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..=random() % 4 {
            let at = usize::try_from(random() % bytes.len() as u64).unwrap();
            match random() % 3 {
                0 => bytes[at] = random().to_le_bytes()[0],
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, b"[]();:*_ \n"[usize::try_from(random() % 10).unwrap()]),
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(format) = EventFormat::parse("ipi", &text) {
            parsed += 1;
            for field in &format.fields {
                let _ = format.symbols(&field.name);
            }
        }
    }
    assert!(parsed > 1000, "{parsed}");
}
