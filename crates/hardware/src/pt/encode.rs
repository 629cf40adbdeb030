// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets become bytes: for streams of our own, where there is no processor that would make them.
//!
//! [`packet`] is the inverse of [`super::Decoder`]: each packet that this can express has one encoding here, the shortest.

use alloc::vec::Vec;

use super::packet::{ExecMode, Ip, IpBytes, Packet, Tnt, extended_from_bit_47};

/// Appends a packet. Bits that have no place in it are dropped; BIP is only read as such between BBP and BEP.
///
/// # Panics
/// For TNT packets with more branches than they can have, or none.
pub fn packet(packet: Packet, to: &mut Vec<u8>) {
    match packet {
        Packet::Pad => to.push(0),
        Packet::Tnt8(Tnt { bits, count }) => {
            assert!((1..=6).contains(&count), "TNT.8 has 1 to 6 branches");
            to.push(with_stop_bit(bits, count) as u8 * 2);
        }
        Packet::Tnt64(Tnt { bits, count }) => {
            assert!((1..=47).contains(&count), "TNT.64 has 1 to 47 branches");
            extended(0xa3, with_stop_bit(bits, count), 6, to);
        }
        Packet::Tip(at) => ip(0x0d, at, to),
        Packet::TipPge(at) => ip(0x11, at, to),
        Packet::TipPgd(at) => ip(0x01, at, to),
        Packet::Fup(at) => ip(0x1d, at, to),
        Packet::Pip { cr3, non_root } => extended(0x43, cr3 >> 5 << 1 | u64::from(non_root), 6, to),
        Packet::ModeExec { mode, interrupts_enabled } => {
            let width = match mode {
                ExecMode::Bits16 => 0,
                ExecMode::Bits32 => 2,
                ExecMode::Bits64 => 1,
            };
            to.extend([0x99, width | u8::from(interrupts_enabled) << 2]);
        }
        Packet::ModeTsx { in_transaction, aborted } => {
            to.extend([0x99, 0x20 | u8::from(in_transaction) | u8::from(aborted) << 1]);
        }
        Packet::ModeUnknown { payload } => to.extend([0x99, payload]),
        Packet::TraceStop => to.extend([0x02, 0x83]),
        Packet::Cbr { ratio } => to.extend([0x02, 0x03, ratio, 0]),
        Packet::Tsc { ticks } => {
            to.push(0x19);
            number(ticks, 7, to);
        }
        Packet::Mtc { ctc } => to.extend([0x59, ctc]),
        Packet::Tma { ctc, fast_counter } => {
            extended(0x73, u64::from(ctc) | u64::from(fast_counter & 0x1ff) << 24, 5, to);
        }
        Packet::Cyc { cycles } => self::cycles(cycles, to),
        Packet::Vmcs { address } => extended(0xc8, address >> 12, 5, to),
        Packet::Ovf => to.extend([0x02, 0xf3]),
        Packet::Psb => to.extend([0x02, 0x82].repeat(8)),
        Packet::PsbEnd => to.extend([0x02, 0x23]),
        rare => self::rare(rare, to),
    }
}

fn rare(packet: Packet, to: &mut Vec<u8>) {
    let bit = |set: bool, at: u32| u8::from(set) << at;
    match packet {
        Packet::Mnt { payload } => {
            to.extend([0x02, 0xc3, 0x88]);
            number(payload, 8, to);
        }
        Packet::Ptw { payload, wide, ip } => {
            extended(0x12 | bit(wide, 5) | bit(ip, 7), payload, if wide { 8 } else { 4 }, to);
        }
        Packet::ExStop { ip } => to.extend([0x02, 0x62 | bit(ip, 7)]),
        Packet::Mwait { hints, extensions } => {
            extended(0xc2, u64::from(hints) | u64::from(extensions & 3) << 32, 8, to);
        }
        Packet::Pwre { state, sub_state, hardware } => {
            to.extend([0x02, 0x22, bit(hardware, 3), state << 4 | sub_state & 15]);
        }
        Packet::Pwrx { last, deepest, reason } => {
            to.extend([0x02, 0xa2, last << 4 | deepest & 15, reason & 15, 0, 0, 0]);
        }
        Packet::Bbp { group, narrow } => to.extend([0x02, 0x63, group & 0x1f | bit(narrow, 7)]),
        // Its size is that of the block: 4 bytes where the value fits is not for this function to decide.
        Packet::Bip { id, payload } => {
            to.push(id << 3 | 4);
            number(payload, 8, to);
        }
        Packet::Bep { ip } => to.extend([0x02, 0x33 | bit(ip, 7)]),
        Packet::Cfe { kind, vector, ip } => to.extend([0x02, 0x13, kind & 0x1f | bit(ip, 7), vector]),
        Packet::Evd { kind, payload } => {
            to.extend([0x02, 0x53, kind & 0x3f]);
            number(payload, 8, to);
        }
        Packet::Trig { triggers, instructions, multiple, ip } => {
            let flags = bit(ip, 7) | bit(instructions.is_some(), 6) | bit(multiple, 5);
            to.extend([0xd9, flags, triggers]);
            to.extend(instructions.into_iter().flat_map(u16::to_le_bytes));
        }
        _ => {}
    }
}

/// The item of a block whose items have 4 bytes.
pub fn narrow_block_item(id: u8, payload: u32, to: &mut Vec<u8>) {
    to.push(id << 3 | 4);
    number(payload.into(), 4, to);
}

/// The shortest form of `address` after a packet with the address `last`.
#[must_use]
pub fn shortest_ip(address: u64, last: u64) -> Ip {
    let same_above = |bits: u32| address >> bits == last >> bits;
    let (bytes, bits) = if same_above(16) {
        (IpBytes::Update16, 16)
    } else if same_above(32) {
        (IpBytes::Update32, 32)
    } else if extended_from_bit_47(address) == address {
        (IpBytes::Extended48, 48)
    } else if same_above(48) {
        (IpBytes::Update48, 48)
    } else {
        return Ip { bytes: IpBytes::Full, payload: address };
    };
    Ip { bytes, payload: address & ((1 << bits) - 1) }
}

fn with_stop_bit(bits: u64, count: u8) -> u64 {
    bits & ((1 << count) - 1) | 1 << count
}

fn number(value: u64, bytes: usize, to: &mut Vec<u8>) {
    to.extend(&value.to_le_bytes()[..bytes]);
}

fn extended(code: u8, value: u64, bytes: usize, to: &mut Vec<u8>) {
    to.extend([0x02, code]);
    number(value, bytes, to);
}

fn ip(header: u8, ip: Ip, to: &mut Vec<u8>) {
    to.push(header | ip.bytes.code() << 5);
    number(ip.payload, ip.bytes.bytes(), to);
}

fn cycles(cycles: u64, to: &mut Vec<u8>) {
    let mut rest = cycles >> 5;
    to.push((cycles as u8 & 31) << 3 | u8::from(rest != 0) << 2 | 3);
    while rest != 0 {
        let byte = (rest as u8 & 0x7f) << 1;
        rest >>= 7;
        to.push(byte | u8::from(rest != 0));
    }
}
