// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ftrace instances on the real kernel: the events recorded are those that happened, and other users of ftrace notice nothing.

mod life;
mod recording;

use rtscope_ftrace::page::{Page, PageLayout};
use rtscope_kernel::tracefs::{EventName, Instance, InstanceConfig, RawReader, Tracefs};
use rtscope_testkit::skip;
use std::fs::File;
use std::io::{Read, Seek};

/// tracefs; `None`, and the test is reported as skipped, where it cannot be used.
fn tracefs() -> Option<Tracefs> {
    let found = Tracefs::find().and_then(|tracefs| {
        Instance::create(&tracefs, &InstanceConfig::default())?.remove()?;
        Ok(tracefs)
    });
    match found {
        Ok(tracefs) => Some(tracefs),
        Err(error) if error.is_missing() => {
            skip::say(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn names(list: &[&str]) -> Vec<EventName> {
    list.iter().map(|name| EventName::parse(name).expect("a name")).collect()
}

/// Makes a system call with an argument that no other program uses, so that its event can be recognized.
fn call(number: i32) {
    // SAFETY: closing a descriptor that is not open changes nothing.
    unsafe { libc::close(number) };
}

/// Everything that a reader has, as pages.
fn drain(readers: Vec<RawReader>) -> Vec<(u32, Vec<u8>)> {
    let read = |mut reader: RawReader| {
        let mut file = tempfile();
        let moved = reader.drain_to(&file).expect("the buffer can be read");
        file.rewind().expect("a file");
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("a file");
        assert_eq!(bytes.len() as u64, moved);
        assert_eq!(bytes.len() % reader.page_bytes(), 0);
        (reader.cpu(), bytes)
    };
    readers.into_iter().map(read).collect()
}

fn tempfile() -> File {
    tempfile::tempfile().expect("a temporary file")
}

/// Events of one CPU in order of time, and how many were missed (at least one where the count did not fit into the page).
struct Decoded {
    events: Vec<(u64, Vec<u8>)>,
    missed: u64,
}

fn decode(layout: &PageLayout, bytes: &[u8]) -> Decoded {
    let mut decoded = Decoded { events: Vec::new(), missed: 0 };
    for page in bytes.chunks(layout.page_bytes()) {
        let page = Page::new(layout, page).expect("a page of the kernel");
        decoded.missed += page.missed().map_or(0, |missed| missed.count.unwrap_or(1));
        let mut events = page.events();
        decoded.events.extend(events.by_ref().map(|event| (event.time_ns, event.payload.to_vec())));
        assert_eq!(events.broken_at(), None);
    }
    assert!(decoded.events.is_sorted_by_key(|(time, _)| *time), "a CPU's events are in order");
    decoded
}
