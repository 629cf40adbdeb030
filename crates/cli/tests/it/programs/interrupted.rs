// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events that a handler interrupts in the middle, with more events of its own than the buffer has room for: they are finished in memory that other
//! records would have by then.

use super::fixture::{Fixture, Recorded, lines};
use crate::command::field;
use rtscope_testkit::skip;
use std::path::Path;
use std::time::{Duration, Instant};

/// The numbers of a trace's `test:part`, each of which stands there in three ways.
fn parts(trace: &Path) -> Vec<u64> {
    let number = |line: &str, name: &str| -> u64 {
        let text = field(line, name).expect("a field");
        text.parse().unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    let lines = lines(trace);
    let of_parts = lines.iter().filter(|line| line.contains("test:part"));
    let numbers = of_parts.map(|line| {
        let n = number(line, "n");
        let is_whole = number(line, "inverse") == !n && number(line, "triple") == n.wrapping_mul(3);
        assert!(is_whole, "another record's bytes: {line}");
        n
    });
    numbers.collect()
}

/// Records `interrupted` with these arguments, into the smallest buffer.
fn record(options: &[&str], arguments: &[&str]) -> Option<(Fixture, Recorded, Duration)> {
    let fixture = Fixture::new();
    let program = fixture.program("interrupted.c", &["-pthread"], "interrupted")?;
    let mut command = fixture.recorder(&[&["--user-buffer", "64K"], options].concat());
    command.arg("--").arg(program).args(arguments).env("RTSCOPE_ALLOW_BLOCKING", "1");
    let begin = Instant::now();
    let output = command.output().expect("it can be started");
    let took = begin.elapsed();
    assert!(output.status.success(), "{output:?}");
    Some((fixture, Recorded::of(output), took))
}

#[test]
fn an_event_that_a_flight_recorder_has_gone_around_is_not_finished_into_others() {
    for arguments in [
        &["same", "3000", "0", "1"][..],
        &["same", "3000", "0", "3"],
        &["own", "3000", "0", "1"],
        &["own", "3000", "0", "3"],
        &["same", "3000", "0", "1", "deeper"],
        &["own", "3000", "0", "1", "deeper"],
    ] {
        let Some((fixture, recorded, _)) = record(&["--flight-recorder"], arguments) else {
            skip!("there is no C compiler")
        };
        let numbers = parts(&fixture.trace().join("1/ust"));
        println!("{arguments:?}: {} events, {} to {:?}", numbers.len(), numbers[0], numbers.last());
        // Three of four parts of the buffer, and less of the oldest; of two events that stand interrupted, two of four.
        let least = if arguments.len() > 4 { 500 } else { 700 };
        assert!(numbers.len() > least, "{arguments:?}: {} events", numbers.len());
        let gap = numbers.windows(2).find(|two| two[1] != two[0] + 1);
        assert_eq!(gap, None, "{arguments:?}: {}", recorded.account);
    }
}

#[test]
fn an_event_that_the_recorder_has_given_up_is_not_finished_into_others() {
    // A higher stack: for 50 ms. The same: for a second.
    for arguments in [
        &["own", "2000", "100", "2"][..],
        &["own", "2000", "100", "2", "deeper"],
        &["same", "2000", "1600", "2"],
        &["same", "2000", "1600", "1", "deeper"],
    ] {
        let Some((fixture, recorded, _)) = record(&[], arguments) else { skip!("there is no C compiler") };
        recorded.assert_complete();
        assert!(recorded.of_event("test:part") > 1500, "{arguments:?}: {}", recorded.account);
        assert!(recorded.of_event("test:whole") < 2, "{arguments:?} are given up: {}", recorded.account);
        let numbers = parts(&fixture.trace());
        assert!(numbers.is_sorted(), "{arguments:?}");
    }
}

#[test]
fn a_handler_inside_of_an_event_does_not_wait_for_room_that_cannot_come() {
    // What fits is waited for.
    for (arguments, is_lost) in [
        (&["same", "1500", "0", "2"][..], false),
        (&["same", "5000", "0", "2"], true),
        (&["same", "5000", "0", "2", "deeper"], true),
        // Whether this one is inside cannot be known, so it waits for 50 ms.
        (&["own", "5000", "0", "2"], false),
    ] {
        let Some((fixture, recorded, took)) = record(&["--blocking"], arguments) else {
            skip!("there is no C compiler")
        };
        recorded.assert_complete();
        println!("{arguments:?}: {} lost in {took:?}", recorded.lost());
        let unfinished = 2;
        assert_eq!(recorded.lost() > unfinished, is_lost, "{arguments:?}: {}", recorded.account);
        // Each wait for a record that is given up takes a second.
        let patience = Duration::from_secs(2);
        assert!(took < patience, "{arguments:?}: {took:?}");
        assert!(parts(&fixture.trace()).is_sorted(), "{arguments:?}");
    }
}
