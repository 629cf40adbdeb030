// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ioctl calls that contend for a lock of the kernel: FIONREAD of one fanotify group, by several threads.
//!
//! The kernel answers it by walking the queue of events under the group's spin lock (fs/notify/fanotify/fanotify_user.c), so
//! a call takes as long as the queue is, the thread cannot be preempted on the way, and the others spin for the lock. It is a
//! call that any program may make, it needs no module, and the queue decides its length: it is made so long that one walk takes
//! some milliseconds. On PREEMPT_RT the lock sleeps, and the walk can be preempted: this is what that is for.
//!
//! Events are renames of one file in a tmpfs of our own mount namespace: each has another name, so none are merged. All of it
//! goes with the process.

use super::super::child::StartReport;
use super::super::waiter::Board;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// So long a call shall take alone.
const WANTED: Duration = Duration::from_millis(3);
/// Events added between two measurements.
const STEP: u64 = 4096;
/// Never more: about 60 MB of the kernel's memory.
const MOST: u64 = 400_000;
/// And never more than this part of the memory that is free, at this many bytes each.
const PART_OF_MEMORY: u64 = 8;
const EVENT_BYTES: u64 = 160;
/// How often the counter is brought up to date.
const NOTE_EVERY: Duration = Duration::from_millis(5);

/// For ever.
pub fn run(
    board: &Board,
    counter: usize,
    threads: usize,
    directory: &Path,
    events: Option<u64>,
    report: &mut Option<StartReport>,
) -> Result<(), String> {
    let queue = Queue::new(directory)?;
    let most = events.unwrap_or(MOST.min(free_bytes() / PART_OF_MEMORY / EVENT_BYTES));
    let mut count = 0;
    let mut took = Duration::ZERO;
    while count < most && (events.is_some() || took < WANTED) {
        let step = STEP.min(most - count);
        queue.add(count, step)?;
        count += step;
        if events.is_none() || count == most {
            took = queue.time()?;
        }
    }
    if let Some(report) = report.take() {
        // The number is for the rows after this one.
        report.ready(&format!(
            "{count} {threads} threads ask FIONREAD of a fanotify queue of {count} events: {:.2} ms under its spin lock",
            took.as_secs_f64() * 1e3
        ));
    }
    let calls = AtomicU64::new(0);
    let fd = queue.group.as_raw_fd();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while ask(fd).is_ok() {
                    // ORDER: relaxed; a number that stands for itself.
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        loop {
            thread::sleep(NOTE_EVERY);
            // ORDER: relaxed; as above.
            board.add(counter, calls.swap(0, Ordering::Relaxed));
        }
    })
}

/// MemAvailable of /proc/meminfo; without it, little.
fn free_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(64 << 10) << 10
}

/// A fanotify group that nobody empties.
struct Queue {
    group: OwnedFd,
    directory: File,
}

impl Queue {
    /// `directory`: where something can be mounted, which nobody else sees.
    fn new(directory: &Path) -> Result<Queue, String> {
        let doing = |what: &'static str| move |errno: Errno| format!("{what}: {}", errno.desc());
        unshare(CloneFlags::CLONE_NEWNS).map_err(doing("a mount namespace"))?;
        let nothing = None::<&str>;
        let apart = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(nothing, "/", nothing, apart, nothing).map_err(doing("a mount namespace"))?;
        mount(Some("rtscope"), directory, Some("tmpfs"), MsFlags::empty(), Some("size=1m"))
            .map_err(doing("mounting a tmpfs"))?;
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_UNLIMITED_QUEUE
            | libc::FAN_CLOEXEC
            | libc::FAN_REPORT_DIR_FID
            | libc::FAN_REPORT_NAME;
        // SAFETY: numbers only.
        let group = unsafe { libc::fanotify_init(flags, libc::O_RDONLY as u32) };
        let group = Errno::result(group).map_err(doing("a fanotify group"))?;
        // SAFETY: a new file descriptor, which nobody else knows.
        let group = unsafe { OwnedFd::from_raw_fd(group) };
        let path = CString::new(directory.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: the path is a text that ends with a NUL and lives during the call.
        let marked = unsafe {
            libc::fanotify_mark(
                group.as_raw_fd(),
                libc::FAN_MARK_ADD,
                libc::FAN_MOVED_TO,
                libc::AT_FDCWD,
                path.as_ptr(),
            )
        };
        Errno::result(marked).map_err(doing("a fanotify mark"))?;
        let directory = File::open(directory).map_err(|error| error.to_string())?;
        let queue = Queue { group, directory };
        File::create(queue.name(0)).map_err(|error| error.to_string())?;
        Ok(queue)
    }

    /// By the descriptor, so that long paths are walked once.
    fn name(&self, number: u64) -> String {
        format!("/proc/self/fd/{}/{number}", self.directory.as_raw_fd())
    }

    fn add(&self, from: u64, count: u64) -> Result<(), String> {
        (from..from + count).try_for_each(|number| {
            fs::rename(self.name(number), self.name(number + 1)).map_err(|error| error.to_string())
        })
    }

    /// The least of some tries: nobody else asks yet.
    fn time(&self) -> Result<Duration, String> {
        let mut least = Duration::MAX;
        for _ in 0..3 {
            let begin = Instant::now();
            ask(self.group.as_raw_fd()).map_err(|errno| format!("FIONREAD: {}", errno.desc()))?;
            least = least.min(begin.elapsed());
        }
        Ok(least)
    }
}

/// The call.
fn ask(group: RawFd) -> Result<(), Errno> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int, which lives.
    let result = unsafe { libc::ioctl(group, libc::FIONREAD, &raw mut bytes) };
    Errno::result(result).map(drop)
}
