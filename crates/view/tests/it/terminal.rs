// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a trace says drives no terminal: in lines for people, wherever the text stands.

use rtscope_ctf::{Selection, TaskNames, TraceSet, print};
use rtscope_view::{PrettyFormat, Who};
use std::fs;

/// Begins a control sequence, as one character beyond ASCII.
const WILD: &str = "\u{9b}31m";
const TAMED: &str = "\\u{9b}31m";

/// A packet with a text in its context, then events with the thread's name, a text and an enumeration: the line of the first event, with the wild text at
/// one of these places.
fn line(place: usize) -> String {
    let text = |at: usize| if at == place { WILD } else { "calm" };
    let metadata = format!(
        "/* CTF 1.8 */
typealias integer {{ size = 8; align = 8; signed = false; }} := u8;
typealias integer {{ size = 32; align = 8; signed = false; }} := u32;
typealias integer {{ size = 64; align = 8; signed = false; }} := u64;
trace {{ major = 1; minor = 8; byte_order = le; }};
clock {{ name = mono; freq = 1000000000; }};
typealias integer {{ size = 64; align = 8; map = clock.mono.value; }} := time64;
stream {{
    packet.context := struct {{ string about; }};
    event.header := struct {{ u8 id; time64 timestamp; }};
    event.context := struct {{ u32 tid; string procname; }};
}};
event {{ id = 0; name = \"{}\"; fields := struct {{ string text; enum : u8 {{ \"{}\" = 1 }} kind; }}; }};
",
        text(0),
        text(1)
    );
    let mut stream = Vec::new();
    let string = |stream: &mut Vec<u8>, text: &str| stream.extend([text.as_bytes(), &[0]].concat());
    string(&mut stream, text(2));
    stream.push(0);
    stream.extend(7_u64.to_le_bytes());
    stream.extend(9_u32.to_le_bytes());
    string(&mut stream, text(3));
    string(&mut stream, text(4));
    stream.push(1);
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("metadata"), metadata).unwrap();
    fs::write(directory.path().join("stream"), stream).unwrap();
    let set = TraceSet::open(directory.path()).unwrap();
    let who = Who::new(&set, TaskNames::of(&set));
    let format = PrettyFormat::for_people(&set, |_| *b"00:00:00.", false, who);
    let mut text = Vec::new();
    print(&set, &Selection::default(), u64::MAX, &format, &mut |piece| {
        text.extend_from_slice(&piece.text);
        true
    });
    String::from_utf8(text).unwrap()
}

#[test]
fn what_a_trace_says_drives_no_terminal() {
    for place in 0..5 {
        let line = line(place);
        assert_eq!(line.matches(TAMED).count(), 1, "{place}: {line}");
        assert!(!line.contains(WILD), "{place}: {line}");
        assert_eq!(line.matches("calm").count(), 4, "{place}: {line}");
    }
}
