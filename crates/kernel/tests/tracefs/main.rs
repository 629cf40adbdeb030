// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instances on the real kernel: what is recorded is what happened, and nobody else notices.

mod life;
mod recording;

use rtscope_ftrace::page::{Page, PageLayout};
use rtscope_kernel::tracefs::{EventName, Instance, InstanceConfig, RawReader, Tracefs};
use std::fs::File;
use std::io::{Read, Seek};

/// tracefs, or why the test cannot run.
fn tracefs(test: &str) -> Option<Tracefs> {
    let found = Tracefs::find().and_then(|tracefs| {
        Instance::create(&tracefs, &InstanceConfig::default())?.remove()?;
        Ok(tracefs)
    });
    match found {
        Ok(tracefs) => Some(tracefs),
        Err(error) if error.is_missing() => {
            println!("SKIP: {test}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn names(list: &[&str]) -> Vec<EventName> {
    list.iter().map(|name| EventName::parse(name).expect("a name")).collect()
}

/// Makes a system call with a number that is nobody else's argument, so that its event can be told from others'.
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

/// Events of one CPU in order of time, and how many were missed (at least one where the page had no room for the count).
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
