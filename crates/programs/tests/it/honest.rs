// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An honest program that writes while others lie: more than its ring holds, so that all of it is there only if somebody empties the
//! ring all the time.

use rtscope_abi::program as abi;
use rtscope_programs::collector::{Programs, Records, Sink};
use rtscope_programs::records::{Decoder, Record};
use rtscope_programs::{ProviderInfo, RingInfo};
use rtscope_testkit::program_files::{self, KEY, PID, provider_name, put32, ring_name};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The birth of the honest program, in nanoseconds.
pub const HONEST: u64 = u64::MAX / 2;
/// Between events, unless a test has another pace: the ring is full after 0.4 s.
const PACE: Duration = Duration::from_micros(10);
/// The ring has the default size, of which so many events fit.
const FIT: u32 = 40_000;
const RING_BYTES: u64 = abi::RTU_RING_BYTES_DEFAULT as u64;
const SUB_BUFFER_BYTES: u64 = RING_BYTES / abi::RTU_SUB_BUFFERS_DEFAULT as u64;

/// A provider with one event of two integers.
pub fn provider(birth_ns: u64) -> Vec<u8> {
    program_files::provider(PID, birth_ns, 0, &["test:count 6\nu64 n\nu64 thread\n".to_owned()])
}

/// The thread that writes.
pub struct Writer {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    thread: JoinHandle<(u64, u64)>,
}

impl Writer {
    /// Makes the files in the directory, and goes on writing events.
    pub fn start(directory: &Path) -> Writer {
        Writer::start_at(directory, PACE)
    }

    /// The same with a ring that is not full before this time, which a test gives where it has measured how fast the machine is.
    pub fn with_full_after(directory: &Path, time: Duration) -> Writer {
        Writer::start_at(directory, PACE.max(time / FIT))
    }

    fn start_at(directory: &Path, pace: Duration) -> Writer {
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(0o600);
            options.open(directory.join(name)).expect("a file of the test")
        };
        open(&provider_name(PID, HONEST, 0)).write_all_at(&provider(HONEST), 0).expect("a file of the test");
        // Whoever finds it finds it whole: a program gives it its size before anything else.
        let file = open("unfinished");
        let mut ring = program_files::ring(PID, PID, HONEST, abi::RTU_CLOCK_MONOTONIC);
        put32(&mut ring, offset_of!(abi::rtu_ring, ring_bytes), abi::RTU_RING_BYTES_DEFAULT);
        put32(&mut ring, offset_of!(abi::rtu_ring, sub_buffers), abi::RTU_SUB_BUFFERS_DEFAULT);
        ring.resize(abi::RTU_RING_OFFSET as usize + RING_BYTES as usize, 0);
        file.write_all_at(&ring, 0).expect("a file of the test");
        let name = directory.join(ring_name(PID, HONEST, PID, 0));
        std::fs::hard_link(directory.join("unfinished"), name).expect("it is new");
        std::fs::remove_file(directory.join("unfinished")).expect("it is there");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let written = Arc::new(AtomicU64::new(0));
        let so_far = Arc::clone(&written);
        let thread = std::thread::spawn(move || {
            let mut ring = Ring { file, head: 0, written: 0, lost: 0 };
            let mut next = Instant::now();
            // ORDER: relaxed; a flag that stands for itself.
            while !stopped.load(Ordering::Relaxed) {
                ring.event();
                // ORDER: relaxed; a number that stands for itself.
                so_far.store(ring.written, Ordering::Relaxed);
                next += pace;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            (ring.written, ring.lost)
        });
        Writer { stop, written, thread }
    }

    /// How many events it has written so far.
    pub fn written(&self) -> u64 {
        // ORDER: relaxed; as above.
        self.written.load(Ordering::Relaxed)
    }

    /// How many events it has written, and how many did not fit.
    pub fn end(self) -> (u64, u64) {
        // ORDER: relaxed; as above.
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it only writes")
    }
}

/// A ring as its thread writes it, around and around.
struct Ring {
    file: File,
    head: u64,
    written: u64,
    lost: u64,
}

impl Ring {
    fn word(&self, id: u32, eighths: u64) -> u64 {
        let lap = self.head / RING_BYTES;
        u64::from(id) | ((lap + u64::from(KEY)) & 0x7f) << 16 | eighths << 24 | (self.written + 1) << 34
    }

    fn put(&self, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let place = u64::from(abi::RTU_RING_OFFSET) + self.head % RING_BYTES;
        self.file.write_all_at(&bytes, place).expect("a file of the test");
    }

    fn event(&mut self) {
        let mut tail = [0; 8];
        self.file
            .read_exact_at(&mut tail, offset_of!(abi::rtu_ring, tail) as u64)
            .expect("a file of the test");
        let room = RING_BYTES - (self.head - u64::from_le_bytes(tail));
        let sub = SUB_BUFFER_BYTES;
        let rest = sub - self.head % sub;
        let padding = if rest < 24 { rest } else { 0 };
        if room < padding + 32 + 24 {
            self.lost += 1;
            return;
        }
        if padding > 0 {
            self.put(&[self.word(abi::RTU_ID_PADDING, 1)]);
            self.head += padding;
        }
        if self.head % sub == 0 {
            self.put(&[self.word(abi::RTU_ID_SYNC, 4), self.written + 1, self.lost, 0]);
            self.head += 32;
        }
        self.put(&[self.word(0, 3), self.written, 0]);
        self.head += 24;
        self.written += 1;
        let head = offset_of!(abi::rtu_ring, head) as u64;
        self.file.write_all_at(&self.head.to_le_bytes(), head).expect("a file of the test");
    }
}

/// A sink that decodes the honest program's records.
#[derive(Default)]
pub struct HonestEvents {
    rings: Vec<(u64, Decoder)>,
    /// Events in a row.
    pub events: u64,
}

impl Sink for HonestEvents {
    fn provider(&mut self, _: &ProviderInfo) -> io::Result<()> {
        Ok(())
    }

    fn ring(&mut self, info: &RingInfo) -> io::Result<()> {
        self.rings.push((info.birth_ns, Decoder::new(info.layout, info.sync)));
        Ok(())
    }

    fn data(&mut self, ring: u32, records: &mut Records<'_>) -> io::Result<()> {
        let chunk = records.chunk();
        let (birth_ns, decoder) = &mut self.rings[ring as usize];
        if *birth_ns != HONEST {
            return Ok(());
        }
        let (bytes, mut at) = (chunk.copy(), 0);
        while let Some((record, length)) = decoder.next(chunk.position + at as u64, &bytes[at..]) {
            at += length;
            match record {
                Some(Record::Event { payload, .. }) => {
                    assert_eq!(payload[..8], self.events.to_le_bytes(), "in order, and none is missing");
                    self.events += 1;
                }
                Some(Record::Garbage(_)) => panic!("garbage of an honest program"),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Records until `is_over`, as the collector does, and then to the end. Returns how long the end took.
pub fn record(
    programs: &mut Programs,
    events: &mut HonestEvents,
    mut is_over: impl FnMut() -> bool,
) -> Duration {
    while !is_over() {
        programs.poll(events).expect("the sink takes all");
        programs.drain(events).expect("the sink takes all");
        std::thread::sleep(Duration::from_millis(2));
    }
    let stopping = Instant::now();
    programs.stop(events).expect("the sink takes all");
    stopping.elapsed()
}
