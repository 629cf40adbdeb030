// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each packet of the manual, written by our encoder and read again; and losses.

use rtscope_hardware::pt::{ExecMode, Ip, IpBytes, LastIp, Packet, Tnt, encode};
use rtscope_hardware::{Lost, LostCause};

use super::decoded;

fn addresses() -> Vec<Ip> {
    use IpBytes::{Extended48, Full, Suppressed, Update16, Update32, Update48};
    [Suppressed, Update16, Update32, Update48, Extended48, Full]
        .map(|bytes| Ip {
            bytes,
            payload: 0x1122_3344_5566_7788 & (1u128 << (8 * bytes.bytes())).wrapping_sub(1) as u64,
        })
        .to_vec()
}

/// Each kind, with each of its flags.
pub fn all() -> Vec<Packet> {
    let mut all = vec![Packet::Pad, Packet::TraceStop, Packet::Ovf, Packet::PsbEnd];
    for count in 1..=47 {
        let bits = 0x5a5a_1234_8765_a5a5 & ((1 << count) - 1);
        all.extend((count <= 6).then_some(Packet::Tnt8(Tnt { bits, count })));
        all.push(Packet::Tnt64(Tnt { bits, count }));
    }
    for ip in addresses() {
        all.extend([Packet::Tip(ip), Packet::TipPge(ip), Packet::TipPgd(ip), Packet::Fup(ip)]);
    }
    for flag in [false, true] {
        all.extend([
            Packet::Pip { cr3: 0x000f_edcb_a987_6540, non_root: flag },
            Packet::ExStop { ip: flag },
            Packet::Bep { ip: flag },
            Packet::Ptw { payload: 0x1234_5678, wide: false, ip: flag },
            Packet::Ptw { payload: u64::MAX, wide: true, ip: flag },
            Packet::Pwre { state: 6, sub_state: 2, hardware: flag },
            Packet::Cfe { kind: 12, vector: 0xec, ip: flag },
            Packet::Trig { triggers: 0x81, instructions: None, multiple: flag, ip: false },
            Packet::Trig { triggers: 2, instructions: Some(0xfedc), multiple: false, ip: flag },
        ]);
        for other in [false, true] {
            all.push(Packet::ModeTsx { in_transaction: flag, aborted: other });
        }
        for mode in [ExecMode::Bits16, ExecMode::Bits32, ExecMode::Bits64] {
            all.push(Packet::ModeExec { mode, interrupts_enabled: flag });
        }
    }
    for cycles in (0..61).map(|bit| 1 << bit).chain([0, (1 << 61) - 1]) {
        all.push(Packet::Cyc { cycles });
    }
    all.extend([
        Packet::ModeUnknown { payload: 0x45 },
        Packet::Cbr { ratio: 0x2a },
        Packet::Tsc { ticks: 0x00fe_dcba_9876_5432 },
        Packet::Mtc { ctc: 0x99 },
        Packet::Tma { ctc: 0xabcd, fast_counter: 0x1ff },
        Packet::Vmcs { address: 0x000f_edcb_a987_6000 },
        Packet::Mnt { payload: 0x8877_6655_4433_2211 },
        Packet::Mwait { hints: 0xdead_beef, extensions: 3 },
        Packet::Pwrx { last: 7, deepest: 9, reason: 0xd },
        Packet::Evd { kind: 0x3f, payload: 0x0123_4567_89ab_cdef },
        Packet::Bbp { group: 0x10, narrow: false },
        Packet::Bip { id: 0x1f, payload: 0x0123_4567_89ab_cdef },
        Packet::Bip { id: 0, payload: 0 },
        Packet::Bep { ip: true },
        Packet::Psb,
    ]);
    all
}

pub fn encoded(packets: &[Packet]) -> Vec<u8> {
    let mut stream = Vec::new();
    for &packet in packets {
        encode::packet(packet, &mut stream);
    }
    stream
}

#[test]
fn each_packet_is_read_as_it_was_written_in_pieces_of_any_size() {
    let packets = [vec![Packet::Psb], all()].concat();
    let stream = encoded(&packets);
    for size in 1..=40 {
        let kept = decoded(&stream, &[size]);
        assert_eq!(kept.packets.iter().map(|(_, packet)| *packet).collect::<Vec<_>>(), packets);
        assert_eq!(kept.lost, []);
    }
}

#[test]
fn every_packet_is_in_the_round_trip() {
    let mut names: Vec<_> = all().iter().map(Packet::name).collect();
    names.sort_unstable();
    names.dedup();
    // Of `Packet`: a new kind has to be added above.
    assert_eq!(names.len(), 33);
}

#[test]
fn block_items_have_the_size_that_their_block_says_and_none_outside() {
    let mut stream = encoded(&[Packet::Psb, Packet::Bbp { group: 4, narrow: true }]);
    encode::narrow_block_item(3, 0x1234_5678, &mut stream);
    // Timing may stand in a block.
    encode::packet(Packet::Cyc { cycles: 7 }, &mut stream);
    encode::narrow_block_item(4, 1, &mut stream);
    encode::packet(Packet::Bep { ip: false }, &mut stream);
    // 1c is BIP 3 in a block.
    stream.push(0x1c);
    let packets: Vec<_> = decoded(&stream, &[3]).packets.into_iter().map(|(_, packet)| packet).collect();
    let expected = [
        Packet::Psb,
        Packet::Bbp { group: 4, narrow: true },
        Packet::Bip { id: 3, payload: 0x1234_5678 },
        Packet::Cyc { cycles: 7 },
        Packet::Bip { id: 4, payload: 1 },
        Packet::Bep { ip: false },
        Packet::Tnt8(Tnt { bits: 0b110, count: 3 }),
    ];
    assert_eq!(packets, expected);
}

#[test]
fn what_is_no_packet_is_lost_up_to_the_next_psb() {
    let mut stream = vec![0xff; 5];
    let good = encoded(&[Packet::Psb, Packet::Mtc { ctc: 1 }]);
    stream.extend(&good);
    // c9 is free; what follows it are packets that nobody can trust.
    stream.extend([0xc9, 0x06, 0x02, 0x82, 0x02]);
    stream.extend(&good);
    stream.extend([0x19, 1, 2]);
    for size in 1..=stream.len() {
        let kept = decoded(&stream, &[size]);
        let lost = [
            Lost { offset: 0, bytes: 5, cause: LostCause::NotSynchronised },
            Lost { offset: 23, bytes: 1, cause: LostCause::Malformed },
            Lost { offset: 24, bytes: 4, cause: LostCause::NotSynchronised },
            Lost { offset: 46, bytes: 3, cause: LostCause::Truncated },
        ];
        assert_eq!(kept.lost, lost, "in pieces of {size}");
        assert_eq!(kept.packets.len(), 4);
    }
}

#[test]
fn addresses_are_shortened_and_restored() {
    let mut last = 0;
    let mut restored = LastIp::new();
    let sequence = [
        (0x40_1000, IpBytes::Update32),
        (0x40_2000, IpBytes::Update16),
        (0x7fff_1234_5678, IpBytes::Extended48),
        (0xffff_ffff_8100_0000, IpBytes::Extended48),
        (0xffff_ffff_8200_0000, IpBytes::Update32),
        (0xffff_1234_5678_9abc, IpBytes::Update48),
        (0x0123_4567_89ab_cdef, IpBytes::Full),
    ];
    for (address, bytes) in sequence {
        let ip = encode::shortest_ip(address, last);
        assert_eq!(ip.bytes, bytes, "{address:x}");
        assert_eq!(restored.update(ip), Some(address));
        last = address;
    }
    assert_eq!(restored.update(Ip { bytes: IpBytes::Suppressed, payload: 0 }), None);
    assert_eq!(restored.address(), last);
}
