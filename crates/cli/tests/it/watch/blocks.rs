// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tracker `block`, judged by reads whose place and time are known, and by a disk that answers when it is told to: a loop device on a
//! file of a file system that is frozen.

use super::truth::Truth;
use crate::command::SmallDisk;
use nix::fcntl::OFlag;
use rtscope_event::{
    BlockOperation, BlockRequest, End, LateResponse, MonotonicNs, OriginKind, StepKind, Tracker,
};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::skip;
use rtscope_testkit::time::now_ns;
use rtscope_testkit::watch::Rtscope;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Two readings of one clock.
const STAMPS_NS: u64 = 5_000;
const BLOCK: usize = 4096;
const LARGE: usize = 1 << 20;

fn watch(options: &[&str]) -> Rtscope {
    let mut command = Command::new(rtscope_testkit::process::program("rtscope").expect("it is built"));
    command.args(["watch", "block", "--json"]).args(options);
    let mut watch = Rtscope::start(command).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    watch
}

/// Memory for direct I/O.
struct Buffer(*mut u8);

impl Buffer {
    const LAYOUT: Layout = match Layout::from_size_align(LARGE, BLOCK) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two"),
    };

    fn new() -> Buffer {
        // SAFETY: the layout's size is not 0.
        let memory = unsafe { alloc_zeroed(Buffer::LAYOUT) };
        assert!(!memory.is_null());
        Buffer(memory)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `new` allocated and zeroed this many bytes, which nobody else has; the borrow of `self` ends before they are freed.
        unsafe { std::slice::from_raw_parts_mut(self.0, LARGE) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was allocated by `new` with this layout.
        unsafe { dealloc(self.0, Buffer::LAYOUT) }
    }
}

fn direct(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlag::O_DIRECT.bits());
    options.open(path).expect("root may open a disk")
}

fn run(words: &[&str]) -> Result<String, String> {
    let output = Command::new(words[0]).args(&words[1..]).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status.success() {
        true => Ok(said),
        false => Err(format!("{words:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// A loop device on a file.
struct Loop(PathBuf);

impl Loop {
    fn on(file: &Path, bytes: usize) -> Result<Loop, String> {
        std::fs::write(file, vec![0; bytes]).map_err(|error| error.to_string())?;
        run(&["losetup", "-f", "--show", &file.to_string_lossy()]).map(|path| Loop(path.into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run(&["losetup", "-d", &self.0.to_string_lossy()]);
    }
}

/// A disk that answers nothing while it is held. Fields are dropped in this order.
struct HeldDisk {
    disk: Loop,
    mounted: PathBuf,
    _below: Loop,
    _directory: TempDir,
}

impl HeldDisk {
    fn new() -> Result<HeldDisk, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let below = Loop::on(&directory.path().join("below"), 32 << 20)?;
        let mounted = directory.path().join("mounted");
        std::fs::create_dir(&mounted).map_err(|error| error.to_string())?;
        run(&["mkfs.ext4", "-q", &below.0.to_string_lossy()])?;
        run(&["mount", &below.0.to_string_lossy(), &mounted.to_string_lossy()])?;
        let disk = Loop::on(&mounted.join("disk"), 4 << 20);
        let disk = disk.inspect_err(|_| drop(run(&["umount", &mounted.to_string_lossy()])))?;
        run(&["sync", "-f", &mounted.to_string_lossy()])?;
        Ok(HeldDisk { disk, mounted, _below: below, _directory: directory })
    }

    fn hold(&self) {
        run(&["fsfreeze", "-f", &self.mounted.to_string_lossy()]).expect("it can be frozen");
    }

    fn release(&self) {
        run(&["fsfreeze", "-u", &self.mounted.to_string_lossy()]).expect("it can be thawed");
    }
}

impl Drop for HeldDisk {
    fn drop(&mut self) {
        let _ = run(&["fsfreeze", "-u", &self.mounted.to_string_lossy()]);
        let _ = run(&["losetup", "-d", &self.disk.0.to_string_lossy()]);
        let _ = run(&["umount", &self.mounted.to_string_lossy()]);
    }
}

/// A read as its program knows it.
#[derive(Debug)]
struct Read {
    at: u64,
    bytes: u64,
    before_ns: u64,
    after_ns: u64,
}

/// Reads from a disk in a thread with this name: small ones here and there, and large ones, of which the kernel makes several requests.
fn reads(disk: &Path, name: &str) -> Vec<Read> {
    let file = direct(disk);
    let read = move || {
        let mut buffer = Buffer::new();
        let sizes = (0..60).map(|number| if number % 10 == 9 { LARGE } else { BLOCK });
        let one = |(number, bytes): (u64, usize)| {
            let at = (number * 37 * BLOCK as u64) % (2 << 20);
            let before_ns = now_ns();
            file.read_exact_at(&mut buffer.bytes()[..bytes], at).expect("the disk reads");
            Read { at, bytes: bytes as u64, before_ns, after_ns: now_ns() }
        };
        (0..).zip(sizes).map(one).collect()
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(read).expect("a thread").join().expect("it reads")
}

fn request(late: &LateResponse) -> &BlockRequest {
    late.block.as_deref().expect("of this tracker")
}

impl Read {
    /// Whether a request began and ended while it was made. Its middle was, too: a quick one of the next read is within the error of the stamps.
    fn has(&self, late: &LateResponse) -> bool {
        let (begin_ns, end_ns) = (late.chain.origin.time_ns.0, late.end_ns.0);
        begin_ns + STAMPS_NS >= self.before_ns
            && end_ns <= self.after_ns + STAMPS_NS
            && (self.before_ns..=self.after_ns).contains(&begin_ns.midpoint(end_ns))
    }
}

/// Its requests are, one behind the other, what was read.
fn check(read: &Read, late: &[LateResponse], name: &str) {
    let mut parts: Vec<&LateResponse> = late.iter().filter(|late| read.has(late)).collect();
    parts.sort_by_key(|late| request(late).sector);
    let mut at = read.at;
    for late in &parts {
        let BlockRequest { sector, bytes, operation, status, .. } = *request(late);
        let sector = sector.expect("of a read");
        assert_eq!(
            (sector * 512, operation, status),
            (at, BlockOperation::Read, Some(0)),
            "{read:?}: {parts:?}"
        );
        at += bytes;
        assert_eq!((late.comm.to_string().as_str(), late.end), (name, End::Completed), "{late:?}");
        assert_eq!(late.chain.origin.kind, OriginKind::Block);
        let steps: Vec<StepKind> = late.chain.steps.iter().map(|step| step.kind).collect();
        assert_eq!(steps, [StepKind::Queue, StepKind::Device], "{late:?}");
    }
    assert_eq!(at, read.at + read.bytes, "{read:?}: {parts:?}");
    assert!(read.bytes > BLOCK as u64 || parts.len() == 1, "{parts:?}");
}

// NEEDS: host
#[test]
fn root_block_requests_are_those_that_a_program_makes() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let Some(memory) = SmallDisk::new("size=64m") else { skip!("a small disk cannot be mounted here") };
    let disk = match Loop::on(&memory.path().join("disk"), 4 << 20) {
        Ok(disk) => disk,
        Err(why) => return skip::say(format!("no loop device: {why}")),
    };
    let watch = watch(&["--task", "e2e-block", "--threshold", "1ns"]);
    let reads = reads(&disk.0, "e2e-block");
    let said = watch.stop().expect("it stops");
    let late = said.late().expect("of its own types");
    let is_in = |late: &LateResponse| reads.iter().any(|read| read.has(late));
    let is_found = |read: &&Read| {
        let of_it = late.iter().filter(|late| read.has(late));
        of_it.map(|late| request(late).bytes).sum::<u64>() == read.bytes
    };
    let truth = Truth {
        injected: reads.len(),
        found: reads.iter().filter(is_found).count(),
        invented: late.iter().filter(|late| !is_in(late)).count(),
        hidden: said.hidden_switches(),
    };
    truth.tell(Tracker::Block, "reads of a loop device");
    reads.iter().for_each(|read| check(read, &late, "e2e-block"));
    // Nothing else is told: each request is of one of them.
    let bytes: u64 = late.iter().map(|late| request(late).bytes).sum();
    assert_eq!(bytes, reads.iter().map(|read| read.bytes).sum::<u64>());
    let name = disk.0.file_name().expect("a device").to_string_lossy().into_owned();
    assert!(late.iter().all(|late| request(late).device.as_deref() == Some(&name)), "{name}");
}

/// A write in a thread with this name; when it began and ended.
fn write(disk: &Path, name: &str) -> std::thread::JoinHandle<(u64, u64)> {
    let file = direct(disk);
    let write = move || {
        let mut buffer = Buffer::new();
        let before_ns = now_ns();
        file.write_all_at(&buffer.bytes()[..BLOCK], 8 * BLOCK as u64).expect("the disk writes");
        (before_ns, now_ns())
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(write).expect("a thread")
}

fn check_held(late: &LateResponse, end: End) {
    let BlockRequest { sector, bytes, operation, .. } = *request(late);
    assert_eq!((sector, bytes, operation), (Some(64), BLOCK as u64, BlockOperation::Write), "{late:?}");
    assert_eq!((late.end, late.comm.to_string().as_str()), (end, "e2e-held"), "{late:?}");
    let last = late.chain.steps.last().expect("it has steps");
    assert!(last.kind == StepKind::Device && 10 * last.duration_ns > 9 * late.response_ns(), "{late:?}");
}

// NEEDS: host
#[test]
fn root_a_disk_that_does_not_answer_is_told_while_it_hangs() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let disk = match HeldDisk::new() {
        Ok(disk) => disk,
        Err(why) => return skip::say(format!("no disk that can be held: {why}")),
    };
    let mut watch = watch(&["--task", "e2e-held", "--threshold", "100ms", "--timeout", "500ms"]);
    disk.hold();
    let writer = write(&disk.disk.0, "e2e-held");
    let stuck = watch.wait_for_type("stuck").expect("it is told");
    let released_ns = now_ns();
    disk.release();
    let (before_ns, after_ns) = writer.join().expect("it writes");
    watch.wait_for_type("late").expect("it is reported");
    let said = watch.stop().expect("it stops");
    let stuck: LateResponse = serde_json::from_value(stuck).expect("of its own type");
    check_held(&stuck, End::Pending);
    assert!(stuck.response_ns() >= 500_000_000);
    let late = said.late().expect("of its own types");
    let [late] = late.as_slice() else { panic!("{late:?}") };
    check_held(late, End::Completed);
    assert_eq!(late.chain.origin, stuck.chain.origin);
    let MonotonicNs(begun_ns) = late.chain.origin.time_ns;
    assert!(begun_ns + STAMPS_NS >= before_ns && late.end_ns.0 <= after_ns + STAMPS_NS, "{late:?}");
    assert!(late.end_ns.0 > released_ns, "{late:?} ended before the disk was released");
}

// NEEDS: host
#[test]
fn root_a_request_that_is_not_completed_is_late_when_the_watch_ends() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let disk = match HeldDisk::new() {
        Ok(disk) => disk,
        Err(why) => return skip::say(format!("no disk that can be held: {why}")),
    };
    let watch = watch(&["--task", "e2e-held", "--threshold", "100ms"]);
    disk.hold();
    let writer = write(&disk.disk.0, "e2e-held");
    // Longer than the limit; what matters is only that it is.
    std::thread::sleep(Duration::from_millis(300));
    let said = watch.stop().expect("it stops");
    disk.release();
    writer.join().expect("it writes");
    let late = said.late().expect("of its own types");
    let [late] = late.as_slice() else { panic!("{late:?}") };
    check_held(late, End::Pending);
}

// NEEDS: host
#[test]
fn root_a_flush_is_a_flush_and_what_comes_back_is_what_it_was() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let disk = match HeldDisk::new() {
        Ok(disk) => disk,
        Err(why) => return skip::say(format!("no disk that can be flushed: {why}")),
    };
    let watch = watch(&["--task", "e2e-flush", "--threshold", "1ns"]);
    let file = direct(&disk.disk.0);
    let write = move || {
        let mut buffer = Buffer::new();
        file.write_all_at(&buffer.bytes()[..BLOCK], 0).expect("the disk writes");
        file.sync_all().expect("the disk flushes");
    };
    let writer = std::thread::Builder::new().name("e2e-flush".to_owned()).spawn(write).expect("a thread");
    writer.join().expect("it writes");
    // The file below ends before the disk does: of a read over its end a part is done, and the rest comes back and fails.
    let below = disk.mounted.join("disk");
    OpenOptions::new().write(true).open(&below).and_then(|file| file.set_len(2 << 20)).expect("it is ours");
    let file = direct(&disk.disk.0);
    let read = move || {
        let mut buffer = Buffer::new();
        let end = (2 << 20) - 2 * BLOCK as u64;
        // Whether that is an error, or zeros, is the kernel's.
        let _ = file.read_at(&mut buffer.bytes()[..4 * BLOCK], end);
    };
    let reader = std::thread::Builder::new().name("e2e-flush".to_owned()).spawn(read).expect("a thread");
    reader.join().expect("it reads");
    let said = watch.stop().expect("it stops");
    let late = said.late().expect("of its own types");
    let of = |operation| late.iter().filter(move |late| request(late).operation == operation);
    let flush = of(BlockOperation::Flush).next().unwrap_or_else(|| panic!("{late:?}"));
    assert_eq!((request(flush).sector, request(flush).bytes), (None, 0), "{flush:?}");
    assert!(flush.chain.steps.iter().all(|step| step.kind == StepKind::Device), "{flush:?}");
    let reads: Vec<_> = of(BlockOperation::Read).collect();
    let [read] = reads[..] else { panic!("{reads:?}") };
    let sector = ((2 << 20) - 2 * BLOCK as u64) / 512;
    assert_eq!((request(read).sector, request(read).bytes), (Some(sector), 4 * BLOCK as u64), "{read:?}");
    assert_eq!(said.of_type("summary")[0]["unended"], 0);
}
