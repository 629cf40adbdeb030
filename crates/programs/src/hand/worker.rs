// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processes: system calls only, no allocation, no lock, no panic (`hand`).

use super::{Answer, LENGTH, Request, WITH, Work, not_waiting, receive, send};
use crate::directory::{PLACE_TRIES, pause_before_try, take_place};
use crate::mounts::{enter, is_still, open_below};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::stat::{Mode, fstat};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Gid, Uid, UnlinkatFlags, setfsgid, setfsuid, unlinkat};
use rtscope_abi::program as abi;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The descriptor on which the starter, or a hand, is asked.
const SOCKET: RawFd = 3;
/// A hand's directory.
const DIRECTORY: RawFd = 4;

/// As many CPUs as Linux can have (CONFIG_NR_CPUS).
const CPUS_WORDS: usize = 8192 / usize::BITS as usize;

/// Forks the starter, and returns a descriptor of it (`None`: Linux before 5.2). Nobody hears of its end but who has that: a signal of it is sent to nobody while
/// this process lives.
pub(super) fn fork_starter(socket: RawFd) -> io::Result<Option<OwnedFd>> {
    let mut descriptor: RawFd = -1;
    // As fork(2), but without a signal at its end: whoever waits for children of the recorder hears nothing of this one.
    // SAFETY: the child shares nothing with this process, and makes system calls only until it ends. The kernel writes the number of a descriptor into what is
    // given for it: on all architectures the third argument.
    let made = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::CLONE_PIDFD as usize,
            0_usize,
            &raw mut descriptor,
            0_usize,
            0_usize,
        )
    };
    match made {
        0 => start(socket),
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the kernel has just made it, for this function alone.
        _ => Ok((descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })),
    }
}

fn exit() -> ! {
    // SAFETY: ends this process; nothing of the recorder's is run.
    unsafe { libc::_exit(0) }
}

/// Takes this socket, and nothing else, and starts hands until nobody asks any more.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "system calls that have nothing to do with memory, one after the other"
)]
fn start(socket: RawFd) -> ! {
    // SAFETY: system calls with numbers and constants, in a process of its own. The memory of the signal set lives here.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        // Ctrl-C is for the recorder: what it asks for then is still to be done.
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"rtscope-hand".as_ptr());
        // Hands that have ended are not waited for.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        // Above those that are replaced.
        let socket = libc::fcntl(socket, libc::F_DUPFD, 10);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        if socket < 0 {
            exit();
        }
        for standard in 0..3 {
            if null < 0 || libc::dup2(null, standard) < 0 {
                libc::close(standard);
            }
        }
        libc::dup2(socket, SOCKET);
        if libc::syscall(libc::SYS_close_range, SOCKET + 1, u32::MAX, 0) != 0 {
            (SOCKET + 1..65536).for_each(|number| {
                libc::close(number);
            });
        }
    }
    // Now no lock and no pipe of the recorder's is open here.
    let _ = send(SOCKET, &Answer::default(), &[]);
    loop {
        match receive::<Request>(SOCKET, 0) {
            Ok(Some((request, [Some(socket), Some(dir)]))) => {
                // As above; its end is a SIGCHLD, which is ignored, so that nothing is left of it.
                // SAFETY: as above.
                if unsafe {
                    libc::syscall(libc::SYS_clone, libc::SIGCHLD as usize, 0_usize, 0_usize, 0_usize, 0_usize)
                } == 0
                {
                    serve(&request, socket, dir);
                }
            }
            Ok(Some(_)) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Ok(None) | Err(_) => exit(),
        }
    }
}

/// Serves one directory until nobody asks any more.
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "the same")]
fn serve(of: &Request, socket: OwnedFd, dir: OwnedFd) -> ! {
    // SAFETY: as in start(): the starter's socket becomes this one's. Neither of the two is closed at the end of this function, which there is not.
    unsafe {
        let (socket, dir) = (
            libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD, 10),
            libc::fcntl(dir.as_raw_fd(), libc::F_DUPFD, 10),
        );
        if libc::dup2(socket, SOCKET) < 0 || libc::dup2(dir, DIRECTORY) < 0 {
            exit();
        }
        (DIRECTORY + 1..=socket.max(dir)).for_each(|number| {
            libc::close(number);
        });
    }
    std::mem::forget((socket, dir));
    if of.is_as_owner != 0 {
        // Where root of this machine has no rights, as in a container of an ordinary user, only the owner can make files.
        act_as(of.uid, of.gid);
    }
    // By its number the recorder sees whether it waits for somebody or for a processor.
    let _ = send(SOCKET, &Answer { number: 0, errno: nix::unistd::getpid().as_raw(), blocked_ns: 0 }, &[]);
    // SAFETY: it is open until this process ends.
    let dir = unsafe { BorrowedFd::borrow_raw(DIRECTORY) };
    let (mut cpus, mut blocked_ns) = ([0; CPUS_WORDS], 0_u64);
    loop {
        match receive::<Request>(SOCKET, 0) {
            Ok(Some((request, with))) => {
                follow(of.value, &mut cpus);
                let before = Moment::now();
                let done = work(dir, of, &request, &with);
                // What came with it is closed, and unlocked, before it is said that it was done.
                drop(with);
                blocked_ns = blocked_ns.saturating_add(before.blocked_ns_since());
                if request.answer != 0 {
                    let errno = done.as_ref().err().map_or(0, |errno| *errno as i32);
                    let made = done.ok().flatten();
                    let made: Option<RawFd> = made.as_ref().map(AsRawFd::as_raw_fd);
                    // Nobody may wait for it any more.
                    let _ =
                        send(SOCKET, &Answer { number: request.answer, errno, blocked_ns }, made.as_slice());
                }
            }
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Ok(None) | Err(_) => exit(),
        }
    }
}

/// For files, from now on.
fn act_as(uid: u32, gid: u32) {
    setfsgid(Gid::from_raw(gid));
    setfsuid(Uid::from_raw(uid));
}

/// When this process was at something.
struct Moment {
    ns: u64,
    /// How long it has run.
    ran_ns: u64,
    /// How often it has waited.
    waits: i64,
}

impl Moment {
    fn now() -> Moment {
        let ns = |clock| {
            clock_gettime(clock).map_or(0, |time| {
                time.tv_sec().unsigned_abs() * 1_000_000_000 + time.tv_nsec().unsigned_abs()
            })
        };
        Moment {
            ns: ns(ClockId::CLOCK_MONOTONIC),
            ran_ns: ns(ClockId::CLOCK_PROCESS_CPUTIME_ID),
            waits: getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.voluntary_context_switches()),
        }
    }

    /// How long it has not run since because it waited for something. Who only got no processor has waited for nobody.
    fn blocked_ns_since(&self) -> u64 {
        let now = Moment::now();
        let idle = (now.ns - self.ns).saturating_sub(now.ran_ns - self.ran_ns);
        if now.waits == self.waits { 0 } else { idle }
    }
}

/// Goes to the CPUs that the recorder has gone to since: it leaves those of its targets. What wakes this process is still on the old ones.
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "two calls with one array")]
fn follow(recorder: u32, known: &mut [usize; CPUS_WORDS]) {
    let mut cpus = [0_usize; CPUS_WORDS];
    // SAFETY: the kernel writes into the array, and reads it, as many bytes as it has at most.
    unsafe {
        let got = libc::syscall(libc::SYS_sched_getaffinity, recorder, size_of_val(&cpus), cpus.as_mut_ptr());
        // Of one that has ended there is nothing to learn.
        if got > 0 && cpus != *known {
            *known = cpus;
            libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&cpus), cpus.as_ptr());
        }
    }
}

/// Does what was asked for. What is made is returned where there is something.
fn work(
    dir: BorrowedFd<'_>,
    of: &Request,
    request: &Request,
    [with, second]: &[Option<OwnedFd>; WITH],
) -> nix::Result<Option<OwnedFd>> {
    let name = request.name();
    let is = |work: Work| request.work == work as u32;
    if is(Work::Open) {
        let flags = OFlag::from_bits_retain(i32::from_ne_bytes(request.value.to_ne_bytes()))
            & !(OFlag::O_CREAT | OFlag::O_TRUNC);
        return open_below(&dir, name, not_waiting(flags), Mode::empty()).map(Some);
    }
    if is(Work::Enter) {
        return enter(&dir, name).map(Some);
    }
    if is(Work::Collector) {
        return collector(dir, name, request.uid).map(Some);
    }
    if is(Work::Remove) {
        // Whoever removed it before did what was asked for.
        let _ = unlinkat(dir, name, UnlinkatFlags::NoRemoveDir);
    } else if is(Work::Look) {
        look(dir, name, request);
    } else if let Some(with) = with {
        if is(Work::Session) {
            return session(dir, name, request.uid, with).map(Some);
        } else if is(Work::Shared) {
            let mut made = shared_session(dir, name, with);
            if made.as_ref().is_err_and(|error| *error == Errno::EOVERFLOW) && of.uid != 0 {
                // Root of this machine has no number there: who is called root there makes it.
                act_as(of.uid, of.gid);
                made = shared_session(dir, name, with);
                act_as(0, 0);
            }
            return made.map(Some);
        } else if is(Work::RemoveSame) {
            if is_still(&dir, name, with) {
                // As above.
                let _ = unlinkat(dir, name, UnlinkatFlags::NoRemoveDir);
            }
        } else if is(Work::List) {
            list(dir, with, second.as_ref(), request.value)?;
        } else if is(Work::Number) {
            number(with, request.value);
        }
    }
    Ok(None)
}

/// As `session::collector_file`: only a file that has just been made is given to the directory's user.
fn collector(dir: BorrowedFd<'_>, name: &str, uid: u32) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    match open_below(&dir, name, flags | OFlag::O_CREAT | OFlag::O_EXCL, mode) {
        Ok(made) => give_to(&made, uid).map(|()| made),
        Err(Errno::EEXIST) => open_below(&dir, name, flags, Mode::empty()),
        refused => refused,
    }
}

fn give_to(file: &OwnedFd, uid: u32) -> nix::Result<()> {
    if fstat(file)?.st_uid == uid {
        Ok(())
    } else {
        nix::unistd::fchown(file, Some(Uid::from_raw(uid)), None)
    }
}

/// Writes a session under the name `partial`, `session.` and a number; it then gets the name before the dot. It is its user's last, who can lock it then.
fn session(dir: BorrowedFd<'_>, partial: &str, uid: u32, content: &OwnedFd) -> nix::Result<OwnedFd> {
    let Some((name, _)) = partial.split_once('.') else { return Err(Errno::EINVAL) };
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
    let file = open_below(&dir, partial, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let done = copy(content, &file)
        .and_then(|()| {
            nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_OFD_SETLK(&crate::session::whole_file()))
                .map(drop)
        })
        .and_then(|()| give_to(&file, uid))
        .and_then(|()| renameat(dir, partial, dir, name));
    if done.is_err() {
        let _ = unlinkat(dir, partial, UnlinkatFlags::NoRemoveDir);
    }
    done.map(|()| file)
}

/// As `session::write_session` of root's.
fn shared_session(dir: BorrowedFd<'_>, partial: &str, content: &OwnedFd) -> nix::Result<OwnedFd> {
    let Some((name, _)) = partial.split_once('.') else { return Err(Errno::EINVAL) };
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
    let file = open_below(&dir, partial, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let put_in_place = || {
        let mut put = renameat(dir, partial, dir, name);
        for turn in 0..PLACE_TRIES {
            if put != Err(Errno::EISDIR) {
                break;
            }
            if take_place(&dir, partial, name) {
                return Ok(());
            }
            pause_before_try(turn);
            put = renameat(dir, partial, dir, name);
        }
        put
    };
    let readable = Mode::S_IRUSR | Mode::S_IWUSR | Mode::S_IRGRP | Mode::S_IROTH;
    let done = copy(content, &file)
        .and_then(|()| {
            nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_OFD_SETLK(&crate::session::whole_file()))
                .map(drop)
        })
        .and_then(|()| nix::sys::stat::fchmod(&file, readable))
        .and_then(|()| put_in_place());
    if done.is_err() {
        let _ = unlinkat(dir, partial, UnlinkatFlags::NoRemoveDir);
    }
    done.map(|()| file)
}

fn copy(from: &OwnedFd, to: &OwnedFd) -> nix::Result<()> {
    let (mut bytes, mut at) = ([0; 4096], 0);
    loop {
        let got = nix::sys::uio::pread(from, &mut bytes, at)?;
        let Some(part) = bytes.get(..got).filter(|part| !part.is_empty()) else { return Ok(()) };
        // A file of /dev/shm takes all, or there is no space.
        if nix::unistd::write(to, part)? != got {
            return Err(Errno::ENOSPC);
        }
        at += i64::try_from(got).unwrap_or(0);
    }
}

/// Writes what the kernel says of the directory's names into a file: more than `most` of them, if there are, but not many more.
fn list(dir: BorrowedFd<'_>, to: &OwnedFd, opened: Option<&OwnedFd>, most: u32) -> nix::Result<()> {
    /// As aligned as the kernel's entries.
    #[repr(C, align(8))]
    struct Entries([u8; 8192]);
    let again;
    let opened = match opened {
        Some(opened) => opened,
        None => {
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            again = openat(dir, ".", flags, Mode::empty())?;
            &again
        }
    };
    let mut entries = Entries([0; 8192]);
    let mut names = 0;
    while names <= most {
        // SAFETY: the kernel writes into the array, as many bytes as it has at most.
        let got = unsafe {
            libc::syscall(libc::SYS_getdents64, opened.as_raw_fd(), entries.0.as_mut_ptr(), entries.0.len())
        };
        // What cannot be read ends the list.
        let got = usize::try_from(Errno::result(got)?).unwrap_or(0);
        let Some(part) = entries.0.get(..got).filter(|part| !part.is_empty()) else { break };
        if nix::unistd::write(to, part)? != got {
            return Err(Errno::ENOSPC);
        }
        let mut rest = part;
        while let Some(length) = rest.get(LENGTH..).and_then(|rest| rest.first_chunk()) {
            names += 1;
            let length = usize::from(u16::from_le_bytes(*length)).max(1);
            rest = rest.get(length..).unwrap_or_default();
        }
    }
    Ok(())
}

/// Writes a decimal number and a line's end, and nothing else, into a file.
fn number(file: &OwnedFd, number: u32) {
    let mut text = [b'\n'; 11];
    let (mut left, mut first) = (number, text.len() - 1);
    while first > 0 {
        first -= 1;
        text[first] = b'0' + u8::try_from(left % 10).unwrap_or(0);
        left /= 10;
        if left == 0 {
            break;
        }
    }
    let written = nix::unistd::ftruncate(file, 0);
    let _ = written.and_then(|()| nix::sys::uio::pwrite(file, &text[first..], 0));
}

/// As `UserDirectory::set_look`.
fn look(dir: BorrowedFd<'_>, name: &str, request: &Request) {
    let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK;
    let Ok(file) = open_below(&dir, name, flags, Mode::empty()) else { return };
    let is_theirs = fstat(&file)
        .is_ok_and(|found| found.st_uid == request.uid && found.st_mode & libc::S_IFMT == libc::S_IFREG);
    let mut page = [0; size_of::<abi::rtu_look>()];
    let is_a_page = is_theirs
        && nix::sys::uio::pread(&file, &mut page, 0) == Ok(page.len())
        && page.starts_with(&abi::RTU_LOOK_MAGIC.to_le_bytes());
    let (place, number) = (std::mem::offset_of!(abi::rtu_look, look), request.value.to_le_bytes());
    if is_a_page && !page.get(place..).is_some_and(|rest| rest.starts_with(&number)) {
        let _ = nix::sys::uio::pwrite(&file, &number, i64::try_from(place).unwrap_or(0));
    }
}
