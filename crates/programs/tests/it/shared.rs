// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rings whose records are taken together: in a turn each is emptied, whichever of them the sink takes first.

use rtscope_abi::program as abi;
use rtscope_programs::collector::{Programs, Records, Sink};
use rtscope_programs::session::Settings;
use rtscope_programs::{ProviderInfo, RingInfo};
use rtscope_testkit::program_files::{self, PID, UserDirectory, put64, record_word, ring_name};
use std::io;
use std::mem::offset_of;
use std::time::{Duration, Instant};

const BIRTH: u64 = u64::MAX / 2;
const RINGS: u32 = 5;
const EVENTS: u32 = 10;

/// A sink that takes, of all rings that it is given, only the first one that has records: as one does whose streams are full.
#[derive(Default)]
struct OneAtATime {
    rings: u32,
    /// Events of each.
    taken: Vec<u64>,
    calls: u32,
}

impl Sink for OneAtATime {
    fn provider(&mut self, _: &ProviderInfo) -> io::Result<()> {
        Ok(())
    }

    fn ring(&mut self, _: &RingInfo) -> io::Result<()> {
        self.rings += 1;
        self.taken.push(0);
        Ok(())
    }

    fn data(&mut self, _: u32, _: &mut Records<'_>) -> io::Result<()> {
        panic!("all share");
    }

    fn shares(&self, _: u32) -> bool {
        true
    }

    fn merge(&mut self, rings: &mut [(u32, Records<'_>)]) -> io::Result<()> {
        self.calls += 1;
        let first = rings.iter_mut().find(|(_, records)| records.bytes() > 0);
        if let Some((ring, records)) = first {
            self.taken[*ring as usize] += records.chunk().events;
        }
        Ok(())
    }
}

/// A ring's file with this many events.
fn ring(number: u32, events: u32) -> Vec<u8> {
    let mut bytes = program_files::ring(PID, PID + number, BIRTH, abi::RTU_CLOCK_MONOTONIC);
    let mut place = abi::RTU_RING_OFFSET as usize;
    let mut put = |words: &[u64]| {
        for word in words {
            put64(&mut bytes, place, *word);
            place += 8;
        }
    };
    put(&[record_word(abi::RTU_ID_SYNC, 4, 1), 1, 0, 0]);
    (0..events).for_each(|event| put(&[record_word(0, 2, 1), u64::from(event)]));
    put64(&mut bytes, offset_of!(abi::rtu_ring, head), 32 + 16 * u64::from(events));
    bytes
}

#[test]
fn a_ring_of_which_nothing_was_taken_has_its_turn_when_the_others_are_empty() {
    let directory = UserDirectory::new();
    let mut programs = Programs::recording(directory.above(), Settings::default()).expect("nobody records");
    let mut sink = OneAtATime::default();
    // The first call empties what it finds.
    programs.poll(&mut sink).expect("there is nothing");
    for number in 0..RINGS {
        directory.write(&ring_name(PID, BIRTH, PID + number, number), &ring(number, EVENTS));
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while sink.rings < RINGS {
        assert!(Instant::now() < deadline, "the rings are not found");
        programs.poll_now(&mut sink, Duration::from_secs(1)).expect("the sink takes all");
    }
    assert_eq!(sink.calls, 0, "nothing is taken before it is asked for");
    programs.drain(&mut sink).expect("the sink takes all");
    assert_eq!(sink.taken, [u64::from(EVENTS); RINGS as usize]);
}
