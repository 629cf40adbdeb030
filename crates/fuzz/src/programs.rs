// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What instrumented programs leave for the collector, and the session that it leaves for them.

use crate::PROCESS;
use nix::fcntl::{FcntlArg, fcntl};
use rtscope_abi::program as abi;
use rtscope_ctf::{Evidence, TraceSet, UserClass, UserContext, UserMetadata, UserStreamWriter};
use rtscope_event::MonotonicNs;
use rtscope_programs::bytes;
use rtscope_programs::description::{EventDescription, FieldType, payload_bytes};
use rtscope_programs::patterns::RequestedEvents;
use rtscope_programs::records::Decoder;
use rtscope_testkit::recordings::info as trace_info;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;

/// Whatever is accepted becomes a trace that our reader reads.
pub fn provider(data: &[u8]) -> Option<()> {
    let info = bytes::provider(data, PROCESS, &RequestedEvents::default()).ok()?;
    // What is read from a program is believed when it is read again from a file of ours.
    assert_eq!(info.check(), Ok(()));
    let class = |event: &EventDescription| {
        let mut labels = BTreeMap::new();
        for field in &event.fields {
            if let FieldType::Enumeration(name) = &field.kind {
                labels.insert(name.clone(), info.descriptions.enumeration(name).unwrap().labels.clone());
            }
        }
        let _ = payload_bytes(&event.fields, &data[..data.len().min(64)]);
        UserClass { event: event.clone(), labels, origin: info.origin().into() }
    };
    let classes: Vec<UserClass> = info.descriptions.events.iter().map(class).collect();
    let dir = tempfile::tempdir().unwrap();
    let (target, about) = (dir.path(), trace_info());
    let mut metadata = UserMetadata::create(target, UserContext::default(), &about).unwrap();
    let file = fs::File::create_new(target.join("user_0")).unwrap();
    let stream = UserStreamWriter::in_file(file, 0, about.trace_uuid, classes.len(), MonotonicNs(1));
    metadata.declare(stream.class(), &classes).unwrap();
    stream.finish(MonotonicNs(2)).unwrap();
    let evidence = Evidence { losses: &[], history: &[], by_event: &[] };
    metadata.finish(&evidence, &[("rtscope_remark_0".to_string(), info.comm.clone())]).unwrap();
    let size = fs::metadata(target.join("metadata")).unwrap().len() as usize;
    let origins = info.descriptions.events.len() * 2 * info.origin().len();
    assert!(size < info.descriptions.bytes() + origins + 8192, "{size} bytes of metadata");
    TraceSet::open(target).unwrap();
    Some(())
}

/// Bytes of a ring's file before its records.
pub(crate) const RING_HEADER: usize = size_of::<abi::rtu_ring>();

/// The input is the header, then a byte that says where the rest is divided: the first part is in the ring at first, the second is
/// written over it after records were taken.
pub fn ring(data: &[u8]) -> Option<()> {
    let (header, rest) = data.split_at_checked(RING_HEADER)?;
    let (part, records) = rest.split_first()?;
    let (first, second) = records.split_at(records.len() * usize::from(*part % 32) / 32);
    let taken = bytes::ring(header, PROCESS, &[first, second]).ok()??;
    let layout = taken.info.layout;
    let mut decoder = Decoder::new(layout, taken.info.sync);
    for (position, chunk) in &taken.chunks {
        let mut at = 0;
        while let Some((_, length)) = decoder.next(position + at as u64, &chunk[at..]) {
            at += length;
        }
        assert_eq!(at, chunk.len());
    }
    let held: usize = taken.snapshot.iter().map(|(_, piece)| piece.len()).sum();
    assert!(held as u64 <= layout.ring_bytes, "a snapshot of {held} bytes");
    Some(())
}

unsafe extern "C" {
    fn rtscope_fuzz_session(path: *const c_char, owner: u32, events: *const *const c_char) -> c_int;
}

/// In C. What both sides understand, they understand in the same way.
pub fn session(data: &[u8]) -> Option<()> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("session");
    let mut file =
        fs::OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path).unwrap();
    file.write_all(data).unwrap();
    // A session counts as long as its collector holds a lock.
    let lock = nix::libc::flock { l_type: 1, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
    fcntl(&file, FcntlArg::F_OFD_SETLK(&lock)).unwrap();
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    let events = EVENTS.map(|text| text.as_ptr()).into_iter().chain([std::ptr::null()]).collect::<Vec<_>>();
    // SAFETY: a path and a list of texts that live here, ended as C ends them; nobody else calls it at the same time.
    let wanted =
        unsafe { rtscope_fuzz_session(name.as_ptr(), nix::unistd::geteuid().as_raw(), events.as_ptr()) };
    if wanted < 0 {
        return None;
    }
    assert_eq!(wanted, expected(data), "wanted events");
    Some(())
}

/// What the session wants by the collector's own rules.
fn expected(data: &[u8]) -> c_int {
    let level = u32::from_le_bytes(data[36..40].try_into().unwrap());
    // Others than these are about channels.
    let enables = |line: &&[u8]| matches!(line.first(), Some(b'+' | b'-'));
    let patterns: Vec<&[u8]> = data[40..data.len() - 1].split(|byte| *byte == 0).filter(enables).collect();
    let is_wanted = |text: &&&CStr| {
        let (name, number) = text.to_str().unwrap().split_once(' ').unwrap();
        let matches = |pattern: &&&[u8]| rtscope_event::glob_matches(&pattern[1..], name.as_bytes());
        let mut found = patterns.iter().filter(matches).peekable();
        number.parse::<u32>().unwrap() <= level
            && found.peek().is_some()
            && found.all(|pattern| pattern[0] != b'-')
    };
    EVENTS.iter().filter(is_wanted).count() as c_int
}

const EVENTS: [&CStr; 4] = [
    c"motor:begin 3",
    c"motor:end 14",
    c"m:x 0",
    c"a_rather_long_provider:and_an_event_that_repeats_repeats_repeats 6",
];
