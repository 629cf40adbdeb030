// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real captures: the packets are those of libipt's `ptdump`, each at its place with its content.

use rtscope_hardware::pt::{ExecMode, Ip, Packet};

use super::decoded;
use crate::captures::{Row, capture, expected};

/// `ptdump` prints one packet a line: offset, bytes (with `--raw`), name, content, and what it tracks.
fn as_ptdump(packet: &Packet) -> String {
    let ip = |ip: &Ip| {
        let digits = 2 * ip.bytes.bytes();
        let address = if digits == 0 { String::new() } else { format!("{:0digits$x}", ip.payload) };
        // Bytes that are continued from bit 47 are printed as such.
        let address = match address.len() {
            12 if ip.payload >> 47 == 1 => format!("ffff{address}"),
            12 => format!("0000{address}"),
            _ => address,
        };
        format!("{}: {address:?>16}", ip.bytes.code())
    };
    match packet {
        Packet::Tip(at) | Packet::TipPge(at) | Packet::TipPgd(at) | Packet::Fup(at) => ip(at),
        Packet::ModeExec { mode: ExecMode::Bits64, .. } => "cs.l".into(),
        other => other.to_string().strip_prefix(other.name()).unwrap().trim().into(),
    }
}

/// Returns the bytes that were lost before the first PSB.
fn agrees(name: &str, capture: &[u8], expected: &str) -> u64 {
    let kept = decoded(capture, &[4096]);
    let mut theirs = expected.lines().filter(|line| !line.starts_with('['));
    for (place, packet) in &kept.packets {
        let line = theirs.next().unwrap_or_else(|| panic!("ptdump has no more, here is {place:?} {packet}"));
        let (offset, rest) = line.split_once(' ').unwrap();
        assert_eq!(u64::from_str_radix(offset, 16).unwrap(), place.offset, "{line}; here {packet}");
        let (bytes, rest) = rest.trim().split_once(' ').unwrap();
        let at = place.offset as usize;
        let ours: String =
            capture[at..at + place.bytes as usize].iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(bytes, ours, "{line}");
        let rest = rest.trim();
        let (name, content) = rest.split_once(' ').unwrap_or((rest, ""));
        assert_eq!(name, packet.name(), "{line}");
        let content = content.trim();
        let ours = as_ptdump(packet);
        assert!(
            content == ours || content.strip_prefix(&ours).is_some_and(|after| after.starts_with("  ")),
            "{line}\nhere: {ours}"
        );
    }
    assert_eq!(theirs.next(), None, "ptdump has more");
    let begin = kept.packets[0].0.offset;
    assert!(kept.lost.iter().all(|lost| lost.offset < begin), "{:?}", kept.lost);
    let count = kept.packets.len();
    Row {
        capture: name,
        unit: "Intel PT",
        oracle: "libipt 2.3, ptdump",
        compared: &[("packets", count, count)],
        bytes: Some((capture.len() as u64, begin)),
        notes: "",
    }
    .print();
    begin
}

#[test]
fn packets_of_a_skylake_x_are_those_of_ptdump() {
    let capture = std::fs::read(capture!("pt/dynamorio-hello/pt.bin")).unwrap();
    assert_eq!(
        agrees("dynamorio-hello", &capture, &expected("ptdump-2.3/dynamorio-hello.raw-lastip.txt.xz")),
        0
    );
}

#[test]
fn packets_of_a_broadwell_are_those_of_ptdump() {
    let capture = std::fs::read(capture!("pt/lldb-single/3842849.trace")).unwrap();
    // A ring that wrapped.
    assert_eq!(agrees("lldb-single", &capture, &expected("ptdump-2.3/lldb-single.txt.xz")), 0xf38);
}

#[test]
fn packets_of_a_skylake_m_are_those_of_ptdump() {
    for name in ["q414-aux0-idx0-cpu0", "q414-aux1-idx3-cpu3"] {
        let capture = std::fs::read(capture!("pt/quipper/aux").join(name).with_extension("bin")).unwrap();
        assert_eq!(agrees(name, &capture, &expected(&format!("ptdump-2.3/quipper.{name}.txt.xz"))), 0);
    }
}
