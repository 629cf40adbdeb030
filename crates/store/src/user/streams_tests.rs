// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams among users of whom one lies about his times.

use super::super::session_file::UserSession;
use super::*;
use rtscope_programs::description::EventDescription;
use std::path::Path;

const LIAR: u32 = 4_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

fn streams(directory: &Path, limits: StreamLimits) -> Streams {
    let session = UserSession::of_this_machine("test", vec!["tid".to_owned()]).unwrap();
    Streams::new(directory.join("trace"), session.info(), session.context(), limits, None)
}

fn class() -> UserClass {
    let event = EventDescription { index: 0, name: "test:event".to_owned(), level: 6, fields: Vec::new() };
    UserClass { event, labels: std::collections::BTreeMap::new(), origin: "test".into() }
}

/// Writes an event, and returns whether it has its own time.
fn write(streams: &mut Streams, at: usize, time_ns: u64) -> bool {
    let classes = [class()];
    streams.declare(at, &classes).unwrap();
    streams.begin(at, &classes, time_ns).unwrap();
    let out = streams.writer(at, &classes, time_ns).unwrap().unwrap();
    let is_own = out.latest().0 <= time_ns;
    out.event(0, MonotonicNs(time_ns), &0_u32.to_le_bytes(), &[]).unwrap();
    is_own
}

/// All that one user can do to have every stream end now: many rings, whose events come in a falling order, again and again.
fn lie(streams: &mut Streams, rings: &[usize], now_ns: u64) {
    for step in 0..30 {
        rings.iter().for_each(|at| {
            write(streams, *at, now_ns - step);
        });
    }
}

#[test]
fn a_user_who_lies_about_times_spoils_those_of_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let mut streams = streams(directory.path(), StreamLimits::RECORDING);
    let now_ns = 1000 * SECOND_NS;
    let liars: Vec<usize> = (0..100).map(|_| streams.assign(LIAR, now_ns).unwrap()).collect();
    lie(&mut streams, &liars, now_ns);
    // Others have more rings than they have streams, and events that are late among themselves.
    for user in 0..3 {
        let rings: Vec<usize> = (0..5).map(|_| streams.assign(user, now_ns).unwrap()).collect();
        let begin_ns = now_ns - 200_000_000 - u64::from(user);
        for step in 0..50 {
            lie(&mut streams, &liars, now_ns + step);
            for at in &rings {
                assert!(write(&mut streams, *at, begin_ns + step * 1_000_000), "user {user}, {step}");
            }
            // One was stopped in the middle of an event.
            let late_ns = begin_ns + (step * 1_000_000).saturating_sub(500_000);
            assert!(write(&mut streams, rings[0], late_ns), "user {user}, {step}");
        }
    }
    assert!(streams.crowded().is_empty());
    assert!(streams.own.len() + streams.late.len() <= STREAMS_MAX - COMMON);
    streams.finish(now_ns + SECOND_NS).unwrap();
}

#[test]
fn users_who_come_when_there_are_no_more_streams_share_some_and_spoil_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let mut streams = streams(directory.path(), StreamLimits::RECORDING);
    let now_ns = 1000 * SECOND_NS;
    let ours: Vec<usize> = (0..2).map(|_| streams.assign(0, now_ns).unwrap()).collect();
    assert!(write(&mut streams, ours[0], now_ns - SECOND_NS));
    let others: Vec<usize> = (1..1000).map(|user| streams.assign(user, now_ns).unwrap()).collect();
    lie(&mut streams, &others, now_ns);
    assert!(streams.own.len() + streams.late.len() <= STREAMS_MAX);
    let crowded = streams.crowded().clone();
    assert!(!crowded.contains(&0) && crowded.contains(&999) && crowded.len() > 900, "{crowded:?}");
    assert!((0..50).all(|step| write(&mut streams, ours[1], now_ns - SECOND_NS + step)));
    // When they are gone, whoever comes has streams again, once these are old.
    others.iter().for_each(|at| streams.leave(*at));
    for (user, later_ns) in [(2000, SETTLED_NS / 2), (2001, SETTLED_NS * 2)] {
        let at = streams.assign(user, now_ns + later_ns).unwrap();
        assert_eq!(streams.own[at].owner == Owner::Common, user == 2000);
    }
    streams.finish(now_ns + SECOND_NS).unwrap();
}

/// As a recorder finds that takes over from one that was killed: each part of the rings begins before the kill, and is read up to now.
#[test]
fn full_rings_that_are_found_in_parts_keep_their_times() {
    let directory = tempfile::tempdir().unwrap();
    let mut streams = streams(directory.path(), StreamLimits::RECORDING);
    let (killed_ns, parts) = (1000 * SECOND_NS, LATE_MAX as u64 + 1);
    for part in 0..parts {
        let now_ns = killed_ns + SECOND_NS + part;
        // More than there are streams for rings: they share these.
        let rings: Vec<usize> = (0..OWN_MAX).map(|_| streams.assign(0, now_ns).unwrap()).collect();
        for step in 0..20 {
            for (number, ring) in (0..).zip(&rings) {
                let time_ns = killed_ns + step * 50_000_000 + part * 50 + number;
                assert!(write(&mut streams, *ring, time_ns), "part {part}, step {step}, ring {number}");
            }
        }
    }
    assert!(streams.own.len() == OWN_MAX && streams.late.len() <= LATE_MAX, "{}", streams.late.len());
    streams.finish(killed_ns + 2 * SECOND_NS).unwrap();
}
