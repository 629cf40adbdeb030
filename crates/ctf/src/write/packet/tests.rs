// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of packets: their sizes, heads, losses and times.

use super::*;
use crate::write::head::{CONTEXT_BYTES, HEADER_BYTES};
use crate::write::whole::{WholePackets, whole_packets};
use rtscope_event::CpuId;

impl PacketOutput for Vec<u8> {}

impl GrowingFile for Vec<u8> {
    fn rewrite(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self[rtscope_event::exact::index(at)..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn extend(&mut self, pages: &[u8]) -> io::Result<usize> {
        self.write(pages)
    }

    fn cut(&mut self, at: u64) -> io::Result<()> {
        self.truncate(rtscope_event::exact::index(at));
        Ok(())
    }
}

fn stream(header: Header, fill: impl FnOnce(&mut PacketWriter<Vec<u8>>)) -> (Vec<u8>, PacketTotals) {
    let mut writer =
        PacketWriter::new(Vec::new(), header, [7; 16], EventSource::Cpu(CpuId(1)), MonotonicNs(0));
    fill(&mut writer);
    writer.finish(MonotonicNs(0)).unwrap()
}

fn event(writer: &mut PacketWriter<Vec<u8>>, time: u64) {
    writer.begin_event(11, MonotonicNs(time)).unwrap();
    writer.payload().extend_from_slice(&3_u32.to_le_bytes());
}

fn packets(times: &[u64], losses: Losses) -> (Vec<u8>, PacketTotals) {
    stream(Header::Compact, |writer| {
        writer.announce_losses(losses).unwrap();
        times.iter().for_each(|time| event(writer, *time));
    })
}

const EMPTY: usize = HEADER_BYTES + CONTEXT_BYTES;

#[test]
fn a_long_pause_takes_the_extended_header() {
    let (short, _) = packets(&[0, (1 << 27) - 1], Losses::default());
    let (long, _) = packets(&[0, 1 << 27], Losses::default());
    assert_eq!(short.len(), EMPTY + 2 * 8);
    assert_eq!(long.len(), short.len() + 9);
    let large = |time| stream(Header::Large, |writer| event(writer, time)).0.len() - EMPTY;
    assert_eq!((large((1 << 32) - 1), large(1 << 32)), (6 + 4, 14 + 4));
}

#[test]
fn packets_are_cut_between_events() {
    let times: Vec<u64> = (0..100_000).collect();
    let (bytes, done) = packets(&times, Losses::default());
    assert_eq!(done.packets, 2);
    assert_eq!(bytes.len(), 2 * EMPTY + 100_000 * 8);
}

#[test]
fn a_known_loss_has_an_empty_packet_before_it() {
    assert_eq!(packets(&[1], Losses { known: 5, unknown: false }).1.packets, 2);
    assert_eq!(packets(&[1], Losses { known: 5, unknown: true }).1.packets, 1);
}

/// begin, end, discarded of each packet
fn heads(bytes: &[u8]) -> Vec<(u64, u64, u64)> {
    let mut heads = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let word = |index: usize| {
            u64::from_le_bytes(bytes[at + HEADER_BYTES + index * 8..][..8].try_into().unwrap())
        };
        heads.push((word(0), word(1), word(5)));
        at += (word(3) / 8) as usize;
    }
    heads
}

#[test]
fn a_loss_is_where_it_happened() {
    let (bytes, _) = stream(Header::Compact, |writer| {
        (0..100).for_each(|time| event(writer, time));
        writer.lost(5).unwrap();
        event(writer, 200);
        writer.lost(2).unwrap();
        (300..10_000).for_each(|time| event(writer, time));
    });
    let heads = heads(&bytes);
    assert_eq!(heads[0], (0, 99, 0));
    // The second loss is too near to the first to be distinguished; after 16 KiB the packet ends.
    let (begin, end, lost) = heads[1];
    assert_eq!((begin, lost), (99, 7));
    assert!((2200..2400).contains(&end), "{end}");
    assert_eq!(heads[2].2, 7);
    assert_eq!(heads.len(), 3);
}

#[test]
fn a_loss_before_all_events_has_something_to_be_compared_with() {
    let (bytes, _) = stream(Header::Compact, |writer| writer.lost(9).unwrap());
    assert_eq!(heads(&bytes), [(0, 0, 0), (0, 0, 9)]);
}

#[test]
fn time_does_not_go_back_and_an_event_can_be_taken_back() {
    let (bytes, done) = stream(Header::Compact, |writer| {
        event(writer, 500);
        event(writer, 400);
        let mark = writer.mark();
        event(writer, 900);
        writer.take_back(mark);
    });
    assert_eq!((bytes.len(), done.moved), (EMPTY + 16, 1));
    assert_eq!(heads(&bytes), [(0, 500, 0)]);
}

#[test]
fn a_packet_that_is_written_early_is_continued() {
    let (bytes, done) = stream(Header::Compact, |writer| {
        (0..3).for_each(|time| event(writer, time));
        writer.flush().unwrap();
        assert_eq!(heads(&writer.out), [(0, 2, 0)]);
        writer.flush().unwrap();
        event(writer, 5);
        writer.flush().unwrap();
        assert_eq!(heads(&writer.out), [(0, 5, 0)]);
        (6..40_000).for_each(|time| event(writer, time));
        writer.flush().unwrap();
        writer.lost(2).unwrap();
        event(writer, 40_000);
        writer.flush().unwrap();
    });
    assert_eq!(bytes.len(), 3 * EMPTY + 39_999 * 8);
    assert_eq!(heads(&bytes), [(0, 39_999, 0), (39_999, 39_999, 0), (39_999, 40_000, 2)]);
    assert_eq!((done.packets, done.bytes), (3, bytes.len() as u64));
}

#[test]
fn wherever_a_writer_was_killed_whole_packets_are_found() {
    let file = tempfile::tempfile().unwrap();
    let place = EventSource::Threads(3);
    let out = file.try_clone().unwrap();
    let out = crate::write::reserved::ReservedFile::new(out);
    let mut writer = PacketWriter::new(out, Header::Large, [7; 16], place, MonotonicNs(0));
    let mut ends = vec![0];
    for round in 0..4 {
        for time in 0..60_000 {
            writer.begin_event(11, MonotonicNs(round * 60_000 + time)).unwrap();
        }
        writer.flush().unwrap();
        ends.push(writer.done.bytes + writer.begun as u64);
    }
    let size = file.metadata().unwrap().len();
    let whole = |instance| whole_packets(&file, [7; 16], instance, false).unwrap();
    assert_eq!(whole(3), WholePackets { packets: 4, bytes: size, discarded: 0 });
    assert_eq!(whole(4), WholePackets::default());
    for cut in [size - 1, ends[3] + 1, ends[3], ends[3] - 1, 100, 10, 0] {
        file.set_len(cut).unwrap();
        let expected = ends.iter().copied().filter(|end| *end <= cut).max();
        assert_eq!(Some(whole(3).bytes), expected, "{cut}");
    }
}
