// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What root's recorder makes, removes and lists in other users' directories is done by small processes, one for each directory: a user can hold
//! the lock of his directory (`i_rwsem`) for as long as he likes, and whoever waits for it cannot be killed (docs/adr/0033).
//!
//! A *starter* is forked when looking begins, and forks a *hand* for each directory that is asked for: from a process that is small, and has no
//! descriptors of the recorder. Requests are done one by one, in their order; what was asked for is done even when the recorder is gone. Only some
//! are answered, and an answer is awaited for a short time: a directory whose hand is behind is left alone until it has answered.
//!
//! Both are forked from a process that may have threads, whose locks nobody in the child would ever release: so they only make system calls, and allocate
//! nothing. They have the CPUs that the forking thread had, and a hand follows the recorder to others
//! (`worker`). Each sleeps unless it is asked for something.

mod known;
#[cfg(test)]
mod tests;
mod waits;
mod worker;

pub(crate) use known::Hands;

use crate::directory::{LOOK, UserDirectory};
use crate::mounts::{open_below, open_cached};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::stat::{FileStat, Mode, fstatat};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use waits::{WAITED_MAX, Waits};

/// An answer is awaited for this time, once; of a hand that has not come to it because it gets no processor, for a longer one.
const ANSWER: Duration = WAITED_MAX;
const ANSWER_LATE: Duration = Duration::from_secs(1);
/// Between two looks at what such a hand is at.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const NAME_BYTES: usize = 120;
/// Where an entry that getdents64(2) writes has its length.
const LENGTH: usize = std::mem::offset_of!(libc::dirent64, d_reclen);
/// Descriptors with a message.
const WITH: usize = 2;
const WITH_BYTES: u32 = 8;
const _: () = assert!(WITH_BYTES as usize == WITH * size_of::<RawFd>());

/// What a hand is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Work {
    /// To answer.
    Answer = 1,
    /// To open a file of this name with flags.
    Open,
    /// To open or make the file with the lock of a collector.
    Collector,
    /// To write a number into the file with that lock.
    Number,
    /// To write a session: its content comes with it.
    Session,
    /// To remove a name. A descriptor that comes with it is held meanwhile, with its locks.
    Remove,
    /// To list the directory into the file that comes with it; if it is opened there for that as well, some more names each time.
    List,
    /// To write a number into the page that programs look at.
    Look,
    /// To write root's session for users without a directory.
    Shared,
    /// To remove a name, if it still is the file that comes with it.
    RemoveSame,
    /// To find a directory of this name, whatever is mounted there.
    Enter,
}

/// What is sent to a hand, and to the starter, for which only the user counts.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Request {
    work: u32,
    /// To be answered, under this number; 0: not.
    answer: u32,
    /// For the starter: the recorder's number.
    value: u32,
    uid: u32,
    gid: u32,
    /// Whether files are made as this user.
    is_as_owner: u32,
    name_bytes: u32,
    name: [u8; NAME_BYTES],
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Answer {
    /// 0: it has begun.
    number: u32,
    /// Of a hand that has begun: its process number.
    errno: i32,
    /// How long the hand has waited for somebody in its work, ever.
    blocked_ns: u64,
}

impl Request {
    fn new(work: Work, name: &str, value: u32) -> Request {
        let mut bytes = [0; NAME_BYTES];
        let length = name.len().min(NAME_BYTES);
        bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
        let name_bytes = u32::try_from(length).unwrap_or(0);
        Request {
            work: work as u32,
            answer: 0,
            value,
            uid: 0,
            gid: 0,
            is_as_owner: 0,
            name_bytes,
            name: bytes,
        }
    }

    fn name(&self) -> &str {
        let bytes = self.name.get(..self.name_bytes as usize).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

/// Plain data without padding, as bytes.
///
/// # Safety
/// Every byte of it is initialised, and may have any value.
unsafe trait Message: Copy {}
// SAFETY: integers of four bytes, and bytes, a multiple of four.
unsafe impl Message for Request {}
// SAFETY: two integers of four bytes, and one of eight behind them.
unsafe impl Message for Answer {}

/// Space for the descriptors, as aligned as their header has to be.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Sends a message; never waits, never raises SIGPIPE. Makes system calls only.
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "the parts of one header")]
fn send<T: Message>(socket: RawFd, message: &T, with: &[RawFd]) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: (&raw const *message).cast_mut().cast(), iov_len: size_of::<T>() };
    let mut control = Control([0; 64]);
    // SAFETY: zeros are a valid header without anything.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    let with = &with[..with.len().min(WITH)];
    if !with.is_empty() {
        let bytes = u32::try_from(size_of_val(with)).unwrap_or(0);
        header.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the space is for two descriptors; the first header is in it, since it is as long as CMSG_SPACE says.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(bytes) as _;
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(bytes) as _;
            std::ptr::copy_nonoverlapping(with.as_ptr().cast(), libc::CMSG_DATA(first), size_of_val(with));
        }
    }
    // SAFETY: the header's parts live in this function.
    let sent = unsafe { libc::sendmsg(socket, &raw const header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives a message and the descriptors with it. `None`: nobody sends any more. Makes system calls only.
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "the parts of one header")]
fn receive<T: Message>(
    socket: RawFd,
    flags: libc::c_int,
) -> io::Result<Option<(T, [Option<OwnedFd>; WITH])>> {
    // SAFETY: zeros are a value of it (Message), and of the header.
    let (mut message, mut header): (T, libc::msghdr) = unsafe { std::mem::zeroed() };
    let mut part = libc::iovec { iov_base: (&raw mut message).cast(), iov_len: size_of::<T>() };
    let mut control = Control([0; 64]);
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: says how much space it takes; as in send().
    header.msg_controllen = unsafe { libc::CMSG_SPACE(WITH_BYTES) } as _;
    // SAFETY: the header's parts live in this function.
    let got = unsafe { libc::recvmsg(socket, &raw mut header, flags | libc::MSG_CMSG_CLOEXEC) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut with = [const { None }; WITH];
    // SAFETY: the kernel has written the headers that the space has; the descriptors in them are new ones of this process, each for us alone.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        if !first.is_null() && (*first).cmsg_type == libc::SCM_RIGHTS {
            let bytes = (*first).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
            for (number, place) in with.iter_mut().enumerate().take(bytes / size_of::<RawFd>()) {
                let at = libc::CMSG_DATA(first).cast::<RawFd>().add(number);
                *place = Some(OwnedFd::from_raw_fd(at.read_unaligned()));
            }
        }
    }
    Ok((got.unsigned_abs() == size_of::<T>()).then_some((message, with)))
}

/// A user does not let go of his directory. No call of a hand fails with this.
pub(crate) fn held() -> io::Error {
    io::Error::from_raw_os_error(libc::ETIMEDOUT)
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?)
}

/// Whose hands: while one of them is behind, he gets no more.
pub(crate) type Owner = (u32, u64);

/// A directory that is to have one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    pub(crate) dir: BorrowedFd<'a>,
    /// Whose files are made in it.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Whether they are made as this user.
    pub(crate) is_as_owner: bool,
}

impl<'a> At<'a> {
    pub(crate) fn of(directory: &'a UserDirectory) -> At<'a> {
        let is_as_owner = directory.is_containers();
        At { dir: directory.dir().as_fd(), uid: directory.uid, gid: directory.gid, is_as_owner }
    }

    /// One in which root makes files of his own; or of this user's, where he is who is called root there.
    pub(crate) fn of_root(dir: BorrowedFd<'a>, (uid, gid): (u32, u32)) -> At<'a> {
        At { dir, uid, gid, is_as_owner: false }
    }
}

/// Opens what is there; where there is a hand, never waits for a user who holds the directory.
pub(crate) fn open_there(dir: &impl AsFd, hand: Option<&Hand>, name: &str, flags: OFlag) -> io::Result<File> {
    let flags = not_waiting(flags);
    let Some(hand) = hand else {
        return Ok(open_below(dir, name, flags, Mode::empty())?.into());
    };
    match open_cached(dir, name, flags) {
        // It is not there any more, something was renamed at this moment, or the kernel is older than 5.12.
        Err(Errno::EAGAIN | Errno::EINVAL) => hand.open(name, flags),
        opened => Ok(opened?.into()),
    }
}

/// What is there, also a link; as above. Whatever is mounted over it is not asked: `EXDEV`.
pub(crate) fn status_there(dir: &impl AsFd, hand: Option<&Hand>, name: &str) -> io::Result<FileStat> {
    let entry = open_there(dir, hand, name, OFlag::O_PATH | OFlag::O_NOFOLLOW)?;
    Ok(fstatat(&entry, "", nix::fcntl::AtFlags::AT_EMPTY_PATH)?)
}

/// A FIFO is not waited for; and with `O_PATH` the kernel allows nothing else.
fn not_waiting(flags: OFlag) -> OFlag {
    if flags.contains(OFlag::O_PATH) { flags } else { flags | OFlag::O_NONBLOCK }
}

/// What a hand is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seems {
    Free,
    /// An answer is overdue, or awaited.
    Behind,
    Over,
}

/// One directory's.
#[derive(Debug)]
pub(crate) struct Hand {
    socket: OwnedFd,
    uid: u32,
    /// Of its user.
    waits: Arc<Waits>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the last request that is answered.
    asked: u32,
    /// It was not answered in time.
    is_behind: bool,
    /// It has ended.
    is_over: bool,
    /// Its process, once it has begun.
    process: Option<i32>,
    /// What has been charged for an answer that has not come.
    charged: Duration,
    /// What it had waited in its work when it last answered.
    blocked_ns: u64,
}

impl Hand {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it is at, without waiting for another thread. An overdue answer that has come meanwhile is dropped, with its descriptor.
    fn seems(&self) -> Seems {
        let Ok(mut state) = self.state.try_lock() else { return Seems::Behind };
        match (self.catch_up(&mut state), state.is_over) {
            (_, true) => Seems::Over,
            (true, false) => Seems::Behind,
            (false, false) => Seems::Free,
        }
    }

    fn catch_up(&self, state: &mut State) -> bool {
        if state.is_behind {
            let _ = self.answer(state, Duration::ZERO);
        }
        state.is_behind || state.is_over
    }

    /// Waits for the answer to the last request.
    fn answer(&self, state: &mut State, time: Duration) -> io::Result<Option<OwnedFd>> {
        let begun = Instant::now();
        let mut until = begun + time;
        let latest = if time == ANSWER { begun + ANSWER_LATE } else { until };
        loop {
            match receive::<Answer>(self.socket.as_raw_fd(), libc::MSG_DONTWAIT) {
                Ok(Some((answer, [with, _]))) if answer.number == state.asked => {
                    state.is_behind = false;
                    self.settle_account(state, begun, answer.blocked_ns);
                    return if answer.errno == 0 {
                        Ok(with)
                    } else {
                        Err(io::Error::from_raw_os_error(answer.errno))
                    };
                }
                Ok(Some((answer, _))) if answer.number == 0 => state.process = Some(answer.errno),
                Ok(Some(_)) => {}
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                    let now = Instant::now();
                    if now >= until && now < latest && waits_for_a_processor(state.process) {
                        until = (now + LOOK_AGAIN).min(latest);
                    }
                    let left = until.saturating_duration_since(now);
                    if left.is_zero() {
                        state.is_behind = true;
                        state.charged += now - begun;
                        self.waits.charge(now, now - begun);
                        return Err(held());
                    }
                    let time =
                        PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::ZERO);
                    let _ = poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], time);
                }
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Ok(None) | Err(_) => {
                    state.is_over = true;
                    return Err(held());
                }
            }
        }
    }

    /// Charges what was waited for an answer that has come, but no more than the hand has waited in its work: that it got no processor is not its user's doing.
    fn settle_account(&self, state: &mut State, begun: Instant, blocked_ns: u64) {
        let now = Instant::now();
        let blocked = Duration::from_nanos(blocked_ns.saturating_sub(state.blocked_ns));
        let charged = std::mem::take(&mut state.charged);
        let due = blocked.min(charged + (now - begun));
        state.blocked_ns = blocked_ns;
        self.waits.charge(now, due.saturating_sub(charged));
        self.waits.give_back(now, charged.saturating_sub(due));
    }

    fn call(&self, request: Request, with: &[RawFd], time: Duration) -> io::Result<Option<OwnedFd>> {
        self.call_by(&mut self.state(), request, with, time)
    }

    fn call_by(
        &self,
        state: &mut State,
        mut request: Request,
        with: &[RawFd],
        time: Duration,
    ) -> io::Result<Option<OwnedFd>> {
        if self.catch_up(state) || self.waits.are_used_up(Instant::now()) {
            return Err(held());
        }
        // Not 0, by which nothing is answered.
        state.asked = state.asked % 1_000_000_000 + 1;
        (request.answer, request.uid) = (state.asked, self.uid);
        send(self.socket.as_raw_fd(), &request, with).map_err(|_| held())?;
        self.answer(state, time)
    }

    /// Asks, and waits for nothing. False: too much waits already.
    fn ask(&self, mut request: Request, with: &[RawFd]) -> bool {
        request.uid = self.uid;
        send(self.socket.as_raw_fd(), &request, with).is_ok()
    }

    fn file(&self, request: Request, with: &[RawFd]) -> io::Result<File> {
        self.call(request, with, ANSWER)?.map(File::from).ok_or_else(held)
    }

    /// Waits until all has been done that it was asked for, but not beyond this time.
    pub(crate) fn settle(&self, until: Instant) {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.state.try_lock() {
                // What is not done now is done later.
                _ if left.is_zero() => return,
                Ok(mut state) => {
                    let _ = self.call_by(&mut state, Request::new(Work::Answer, "", 0), &[], left);
                    return;
                }
                // The thread that looks waits for an answer. This one's time may be over before.
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    pub(crate) fn open(&self, name: &str, flags: OFlag) -> io::Result<File> {
        self.file(Request::new(Work::Open, name, u32::from_ne_bytes(flags.bits().to_ne_bytes())), &[])
    }

    /// A directory, of which nothing is asked, whatever is mounted there. Links are not followed.
    pub(crate) fn enter(&self, name: &str) -> io::Result<OwnedFd> {
        self.call(Request::new(Work::Enter, name, 0), &[], ANSWER)?.ok_or_else(held)
    }

    pub(crate) fn collector(&self, name: &str) -> io::Result<File> {
        self.file(Request::new(Work::Collector, name, 0), &[])
    }

    pub(crate) fn write_number(&self, file: &File, number: u32) {
        self.ask(Request::new(Work::Number, "", number), &[file.as_raw_fd()]);
    }

    /// Makes a session under a name that begins with `partial`'s, locks it, and gives it its name.
    pub(crate) fn session(&self, partial: &str, content: &[u8]) -> io::Result<File> {
        let memory = memory()?;
        memory.write_all_at(content, 0)?;
        self.file(Request::new(Work::Session, partial, 0), &[memory.as_raw_fd()])
    }

    /// Removes a name; `held` stays open, and locked, until that is done.
    pub(crate) fn remove(&self, name: &str, held: Option<BorrowedFd<'_>>) -> bool {
        let held: Option<RawFd> = held.map(|held| held.as_raw_fd());
        self.ask(Request::new(Work::Remove, name, 0), held.as_slice())
    }

    /// The same as root's, for users without a directory.
    pub(crate) fn shared_session(&self, partial: &str, content: &[u8]) -> io::Result<File> {
        let memory = memory()?;
        memory.write_all_at(content, 0)?;
        self.file(Request::new(Work::Shared, partial, 0), &[memory.as_raw_fd()])
    }

    /// Removes a name that still is this file.
    pub(crate) fn remove_same(&self, name: &str, file: &File) {
        self.ask(Request::new(Work::RemoveSame, name, 0), &[file.as_raw_fd()]);
    }

    pub(crate) fn set_look(&self, number: u32) {
        self.ask(Request::new(Work::Look, LOOK, number), &[]);
    }

    /// The names in it, some more than `max` at most.
    pub(crate) fn names(&self, max: usize) -> io::Result<Vec<String>> {
        self.list(max, None)
    }

    /// The next names of it, opened there to be listed; none if there are no more.
    pub(crate) fn next_names(&self, opened: BorrowedFd<'_>, max: usize) -> io::Result<Vec<String>> {
        self.list(max, Some(opened))
    }

    fn list(&self, max: usize, opened: Option<BorrowedFd<'_>>) -> io::Result<Vec<String>> {
        let memory = memory()?;
        let most = u32::try_from(max).unwrap_or(u32::MAX);
        let with: Vec<RawFd> =
            [memory.as_raw_fd()].into_iter().chain(opened.map(|opened| opened.as_raw_fd())).collect();
        self.call(Request::new(Work::List, "", most), &with, ANSWER)?;
        let mut bytes = vec![0; usize::try_from(memory.metadata()?.len()).unwrap_or(0)];
        memory.read_exact_at(&mut bytes, 0)?;
        Ok(names_in(&bytes))
    }
}

/// Whether a process could run. `None`: it is being started, which no user can hold up.
fn waits_for_a_processor(process: Option<i32>) -> bool {
    let Some(pid) = process else { return true };
    // "1234 (name) R 1 …" (proc_pid_stat(5)).
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('R'))
}

fn memory() -> Result<File, Errno> {
    memfd_create(c"rtscope-hand", MFdFlags::MFD_CLOEXEC).map(File::from)
}

/// The names in what getdents64(2) writes.
fn names_in(mut bytes: &[u8]) -> Vec<String> {
    const NAME: usize = std::mem::offset_of!(libc::dirent64, d_name);
    let mut names = Vec::new();
    while let Some(length) =
        bytes.get(LENGTH..).and_then(|rest| rest.first_chunk()).copied().map(u16::from_le_bytes)
    {
        let Some((entry, rest)) = bytes.split_at_checked(usize::from(length)).filter(|_| length > 0) else {
            break;
        };
        let name = entry.get(NAME..).unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
        // Other names are nobody's that anything here looks for; they count.
        names.push(String::from_utf8_lossy(name).into_owned());
        bytes = rest;
    }
    names
}
