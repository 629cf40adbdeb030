// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of the numbers in system calls: libc's constants by their own names, for those that are the same on x86-64, arm64 and RISC-V; the
//! few that differ by a table for each.

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;
use rtscope_ctf::{OpenTrace, TraceSet};
use std::fmt::Write;

/// The architecture that a trace was made on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// x86-64.
    X86,
    /// arm64.
    Arm,
    /// Not known, or another one: what differs between architectures stays a number.
    Unknown,
}

impl Architecture {
    /// Of a set of traces, as far as they tell. `here` is this machine: its name, kernel and architecture as `uname` shows them.
    #[must_use]
    pub fn of(set: &TraceSet, here: (&str, &str, &str)) -> Architecture {
        let (host, kernel, machine) = here;
        let env =
            |trace: &OpenTrace, key: &str| trace.env().get(key).map(ToString::to_string).unwrap_or_default();
        let of_trace = |trace: &OpenTrace| {
            let release = env(trace, "kernel_release");
            if trace.host() == host && release == kernel {
                return Architecture::of_machine(machine);
            }
            match () {
                () if release.ends_with("amd64") || release.ends_with("x86_64") => Architecture::X86,
                () if release.ends_with("arm64") || release.ends_with("aarch64") => Architecture::Arm,
                () => Architecture::Unknown,
            }
        };
        let mut found = set.traces.iter().map(of_trace);
        let first = found.next().unwrap_or(Architecture::Unknown);
        if found.all(|other| other == first) { first } else { Architecture::Unknown }
    }

    /// By what `uname -m` shows.
    fn of_machine(machine: &str) -> Architecture {
        match machine {
            "x86_64" => Architecture::X86,
            "aarch64" => Architecture::Arm,
            _ => Architecture::Unknown,
        }
    }
}

type Names = &'static [(u64, &'static str)];

macro_rules! names {
    ($($name:ident)*) => { &[$((libc::$name as u64 & 0xffff_ffff, stringify!($name))),*] };
}

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One of these.
    One(Names),
    /// Any of these, joined; without any, this or 0.
    Flags(Names, &'static str),
    /// Flags of `open`, with the access mode in two bits.
    Open,
    /// A socket's type, with flags.
    SocketType,
    /// Operation and flags.
    Futex,
    /// Flags, with the signal for the parent in the lowest byte.
    Clone,
    Signal,
    Clock,
    Descriptor,
    /// The same for paths: the number that stands for the current directory, too.
    Directory,
}

const OPEN: Names =
    names!(O_CREAT O_EXCL O_NOCTTY O_TRUNC O_APPEND O_NONBLOCK O_ASYNC O_CLOEXEC O_PATH O_NOATIME);
const OPEN_X86: Names = &[
    (0o40_000, "O_DIRECT"),
    (0o100_000, "O_LARGEFILE"),
    (0o200_000, "O_DIRECTORY"),
    (0o400_000, "O_NOFOLLOW"),
];
const OPEN_ARM: Names = &[
    (0o40_000, "O_DIRECTORY"),
    (0o100_000, "O_NOFOLLOW"),
    (0o200_000, "O_DIRECT"),
    (0o400_000, "O_LARGEFILE"),
];
const TMPFILE: u64 = 0o20_000_000;
const PROT: Names = names!(PROT_READ PROT_WRITE PROT_EXEC PROT_GROWSDOWN PROT_GROWSUP);
const MAP: Names = names!(MAP_SHARED MAP_PRIVATE MAP_FIXED MAP_ANONYMOUS MAP_GROWSDOWN MAP_DENYWRITE MAP_EXECUTABLE MAP_LOCKED
    MAP_NORESERVE MAP_POPULATE MAP_NONBLOCK MAP_STACK MAP_HUGETLB MAP_SYNC MAP_FIXED_NOREPLACE);
const CLONE: Names = names!(CLONE_VM CLONE_FS CLONE_FILES CLONE_SIGHAND CLONE_PIDFD CLONE_PTRACE CLONE_VFORK CLONE_PARENT CLONE_THREAD
    CLONE_NEWNS CLONE_SYSVSEM CLONE_SETTLS CLONE_PARENT_SETTID CLONE_CHILD_CLEARTID CLONE_UNTRACED CLONE_CHILD_SETTID CLONE_NEWCGROUP
    CLONE_NEWUTS CLONE_NEWIPC CLONE_NEWUSER CLONE_NEWPID CLONE_NEWNET CLONE_IO);
const FAMILY: Names = names!(AF_UNSPEC AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET AF_BLUETOOTH AF_CAN AF_TIPC AF_ALG AF_VSOCK AF_XDP);
const SOCKET: Names = names!(SOCK_STREAM SOCK_DGRAM SOCK_RAW SOCK_RDM SOCK_SEQPACKET);
const SOCKET_FLAGS: Names = names!(SOCK_CLOEXEC SOCK_NONBLOCK);
const CLOSE_ON_EXEC: Names = names!(O_CLOEXEC);
const PIPE: Names = names!(O_CLOEXEC O_NONBLOCK);
const EPOLL_OP: Names = names!(EPOLL_CTL_ADD EPOLL_CTL_DEL EPOLL_CTL_MOD);
const EPOLL: Names = names!(EPOLL_CLOEXEC);
const EVENTFD: Names = names!(EFD_CLOEXEC EFD_NONBLOCK EFD_SEMAPHORE);
const TIMERFD: Names = names!(TFD_CLOEXEC TFD_NONBLOCK);
const SIGNALFD: Names = names!(SFD_CLOEXEC SFD_NONBLOCK);
const INOTIFY: Names = names!(IN_CLOEXEC IN_NONBLOCK);
const MEMFD: Names = names!(MFD_CLOEXEC MFD_ALLOW_SEALING MFD_HUGETLB);
const FCNTL: Names = names!(F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_GETLK F_SETLK F_SETLKW F_SETOWN F_GETOWN F_OFD_GETLK F_OFD_SETLK
    F_OFD_SETLKW F_DUPFD_CLOEXEC F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_GET_SEALS);
const WHENCE: Names = names!(SEEK_SET SEEK_CUR SEEK_END SEEK_DATA SEEK_HOLE);
const ACCESS: Names = names!(R_OK W_OK X_OK);
const AT: Names = names!(AT_SYMLINK_NOFOLLOW AT_SYMLINK_FOLLOW AT_NO_AUTOMOUNT AT_EMPTY_PATH AT_STATX_FORCE_SYNC AT_STATX_DONT_SYNC);
const UNLINK: Names = names!(AT_REMOVEDIR);
const MADVISE: Names = names!(MADV_NORMAL MADV_RANDOM MADV_SEQUENTIAL MADV_WILLNEED MADV_DONTNEED MADV_FREE MADV_REMOVE MADV_DONTFORK
    MADV_DOFORK MADV_MERGEABLE MADV_UNMERGEABLE MADV_HUGEPAGE MADV_NOHUGEPAGE MADV_DONTDUMP MADV_DODUMP MADV_WIPEONFORK MADV_KEEPONFORK
    MADV_COLD MADV_PAGEOUT MADV_POPULATE_READ MADV_POPULATE_WRITE);
const RANDOM: Names = names!(GRND_NONBLOCK GRND_RANDOM);
const RESOURCE: Names = names!(RLIMIT_CPU RLIMIT_FSIZE RLIMIT_DATA RLIMIT_STACK RLIMIT_CORE RLIMIT_RSS RLIMIT_NPROC RLIMIT_NOFILE
    RLIMIT_MEMLOCK RLIMIT_AS RLIMIT_LOCKS RLIMIT_SIGPENDING RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_RTTIME);
const SHUTDOWN: Names = names!(SHUT_RD SHUT_WR SHUT_RDWR);
const MESSAGE: Names = names!(MSG_OOB MSG_PEEK MSG_DONTROUTE MSG_CTRUNC MSG_TRUNC MSG_DONTWAIT MSG_EOR MSG_WAITALL MSG_CONFIRM
    MSG_ERRQUEUE MSG_NOSIGNAL MSG_MORE MSG_WAITFORONE MSG_FASTOPEN MSG_CMSG_CLOEXEC);
const POLICY: Names = names!(SCHED_OTHER SCHED_FIFO SCHED_RR SCHED_BATCH SCHED_IDLE SCHED_DEADLINE);
const WAIT: Names = names!(WNOHANG WUNTRACED WCONTINUED __WNOTHREAD __WALL __WCLONE);
const MASK: Names = names!(SIG_BLOCK SIG_UNBLOCK SIG_SETMASK);
const NANOSLEEP: Names = names!(TIMER_ABSTIME);
const IOCTL: Names = names!(TCGETS TCSETS TCSETSW TCSETSF TIOCGWINSZ TIOCSWINSZ TIOCGPGRP TIOCSPGRP TIOCSCTTY TIOCNOTTY FIONREAD FIONBIO
    FIOCLEX FIONCLEX);
const CLOSE_RANGE: Names = &[(2, "CLOSE_RANGE_UNSHARE"), (4, "CLOSE_RANGE_CLOEXEC")];
const SYNC: Names = names!(MS_ASYNC MS_INVALIDATE MS_SYNC);
const LOCK: Names = names!(LOCK_SH LOCK_EX LOCK_NB LOCK_UN);
const REMAP: Names = names!(MREMAP_MAYMOVE MREMAP_FIXED);

const CLOCKS: [&str; 12] = [
    "CLOCK_REALTIME",
    "CLOCK_MONOTONIC",
    "CLOCK_PROCESS_CPUTIME_ID",
    "CLOCK_THREAD_CPUTIME_ID",
    "CLOCK_MONOTONIC_RAW",
    "CLOCK_REALTIME_COARSE",
    "CLOCK_MONOTONIC_COARSE",
    "CLOCK_BOOTTIME",
    "CLOCK_REALTIME_ALARM",
    "CLOCK_BOOTTIME_ALARM",
    "CLOCK_SGI_CYCLE",
    "CLOCK_TAI",
];
const FUTEX: [&str; 14] = [
    "FUTEX_WAIT",
    "FUTEX_WAKE",
    "FUTEX_FD",
    "FUTEX_REQUEUE",
    "FUTEX_CMP_REQUEUE",
    "FUTEX_WAKE_OP",
    "FUTEX_LOCK_PI",
    "FUTEX_UNLOCK_PI",
    "FUTEX_TRYLOCK_PI",
    "FUTEX_WAIT_BITSET",
    "FUTEX_WAKE_BITSET",
    "FUTEX_WAIT_REQUEUE_PI",
    "FUTEX_CMP_REQUEUE_PI",
    "FUTEX_LOCK_PI2",
];

/// What an argument of a call is, by the names that the kernel gives both.
pub(super) fn kind_of(call: &str, argument: &str) -> Option<Kind> {
    use Kind::{Clock, Clone, Directory, Flags, Futex, One, Open, Signal, SocketType};
    const NONE: &str = "0";
    Some(match (call, argument) {
        ("open" | "openat", "flags") => Open,
        ("mmap" | "mprotect" | "pkey_mprotect", "prot") => Flags(PROT, "PROT_NONE"),
        ("mmap", "flags") => Flags(MAP, NONE),
        ("mremap", "flags") => Flags(REMAP, NONE),
        ("msync", "flags") => Flags(SYNC, NONE),
        ("clone", "clone_flags") => Clone,
        ("unshare", "unshare_flags") => Flags(CLONE, NONE),
        ("futex", "op") => Futex,
        ("socket" | "socketpair", "family") => One(FAMILY),
        ("socket" | "socketpair", "type") => SocketType,
        ("accept4", "flags") => Flags(SOCKET_FLAGS, NONE),
        ("sendto" | "recvfrom" | "sendmsg" | "recvmsg" | "sendmmsg" | "recvmmsg", "flags") => {
            Flags(MESSAGE, NONE)
        }
        ("shutdown", "how") => One(SHUTDOWN),
        ("epoll_ctl", "op") => One(EPOLL_OP),
        ("epoll_create1", "flags") => Flags(EPOLL, NONE),
        ("eventfd2", "flags") => Flags(EVENTFD, NONE),
        ("timerfd_create", "flags") => Flags(TIMERFD, NONE),
        ("signalfd4", "flags") => Flags(SIGNALFD, NONE),
        ("inotify_init1", "flags") => Flags(INOTIFY, NONE),
        ("memfd_create", "flags") => Flags(MEMFD, NONE),
        ("pipe2", "flags") => Flags(PIPE, NONE),
        ("dup3", "flags") => Flags(CLOSE_ON_EXEC, NONE),
        ("close_range", "flags") => Flags(CLOSE_RANGE, NONE),
        ("fcntl", "cmd") => One(FCNTL),
        ("ioctl", "cmd") => One(IOCTL),
        ("lseek", "whence") => One(WHENCE),
        ("flock", "cmd") => Flags(LOCK, NONE),
        ("access" | "faccessat" | "faccessat2", "mode") => Flags(ACCESS, "F_OK"),
        (
            "newfstatat" | "fchownat" | "linkat" | "statx" | "faccessat2" | "execveat" | "utimensat"
            | "name_to_handle_at",
            "flag" | "flags",
        ) => Flags(AT, NONE),
        ("unlinkat", "flag") => Flags(UNLINK, NONE),
        ("madvise", "behavior") => One(MADVISE),
        ("getrandom", "flags") => Flags(RANDOM, NONE),
        ("prlimit64" | "getrlimit" | "setrlimit", "resource") => One(RESOURCE),
        ("sched_setscheduler", "policy") => One(POLICY),
        ("wait4" | "waitid", "options") => Flags(WAIT, NONE),
        ("rt_sigprocmask", "how") => One(MASK),
        ("clock_nanosleep", "flags") => Flags(NANOSLEEP, NONE),
        (
            "kill" | "tkill" | "tgkill" | "rt_sigaction" | "rt_sigqueueinfo" | "rt_tgsigqueueinfo"
            | "pidfd_send_signal",
            "sig",
        ) => Signal,
        (_, "which_clock" | "clockid") => Clock,
        ("pipe" | "pipe2", _) => return None,
        (_, "dfd" | "olddfd" | "newdfd") => Directory,
        (
            _,
            "fd" | "epfd" | "oldfd" | "newfd" | "fildes" | "in_fd" | "out_fd" | "fd_in" | "fd_out" | "ufd"
            | "fdin" | "fdout" | "pidfd",
        ) => Kind::Descriptor,
        _ => return None,
    })
}

/// The name of a value; `None` where there is none.
pub(super) fn named(kind: Kind, value: u64, architecture: Architecture) -> Option<String> {
    // The kernel looks at 32 bits of all of these.
    let value = value & 0xffff_ffff;
    match kind {
        Kind::One(names) => name(names, value).map(str::to_owned),
        Kind::Flags(names, none) => flags(value, &[names], none),
        Kind::Open => {
            let mode = ["O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE"][(value & 3) as usize];
            let own = match architecture {
                Architecture::X86 => OPEN_X86,
                Architecture::Arm => OPEN_ARM,
                Architecture::Unknown => &[],
            };
            Some(open_flags(mode, value & !3, own))
        }
        Kind::SocketType => {
            let own = name(SOCKET, value & 15)?;
            let more = flags(value & !15, &[SOCKET_FLAGS], "")?;
            Some(joined(own, &more))
        }
        Kind::Futex => {
            let own = FUTEX.get((value & 127 & !256) as usize)?;
            let private = if value & 128 == 0 { "" } else { "_PRIVATE" };
            let clock = if value & 256 == 0 { "" } else { "|FUTEX_CLOCK_REALTIME" };
            (value < 512).then(|| format!("{own}{private}{clock}"))
        }
        Kind::Clone => {
            let text = flags(value & !0xff, &[CLONE], "")?;
            match value & 0xff {
                0 if text.is_empty() => Some("0".to_owned()),
                0 => Some(text),
                signal => {
                    let signal = signal_name(signal).unwrap_or_else(|| signal.to_string());
                    Some(if text.is_empty() { signal } else { format!("{text}|{signal}") })
                }
            }
        }
        Kind::Signal => signal_name(value),
        Kind::Clock => CLOCKS.get(usize::try_from(value).ok()?).map(|name| (*name).to_owned()),
        Kind::Descriptor => None,
        Kind::Directory => (value as u32 as i32 == libc::AT_FDCWD).then(|| "AT_FDCWD".to_owned()),
    }
}

fn joined(first: &str, more: &str) -> String {
    if more.is_empty() { first.to_owned() } else { format!("{first}|{more}") }
}

fn name(names: Names, value: u64) -> Option<&'static str> {
    names.iter().find(|(known, _)| *known == value).map(|(_, name)| *name)
}

/// All bits by name, and in hexadecimal those that have none.
fn flags(value: u64, tables: &[Names], none: &str) -> Option<String> {
    let (mut rest, mut text) = (value, String::new());
    for (bits, name) in tables.iter().flat_map(|names| names.iter()) {
        // A flag can be part of another; the bits of each count once.
        if *bits != 0 && rest & bits == *bits {
            rest &= !bits;
            text = joined_after(text, name);
        }
    }
    if rest != 0 {
        text = joined_after(text, &format!("{rest:#x}"));
    }
    Some(if text.is_empty() { none.to_owned() } else { text })
}

fn joined_after(mut text: String, name: &str) -> String {
    if !text.is_empty() {
        text.push('|');
    }
    // Writing to a String cannot fail.
    let _ = write!(text, "{name}");
    text
}

fn open_flags(mode: &str, value: u64, own: Names) -> String {
    let (mut rest, mut text) = (value, mode.to_owned());
    // O_SYNC has the bit of O_DSYNC, and O_TMPFILE that of O_DIRECTORY.
    let sync = libc::O_SYNC as u64;
    let dsync = libc::O_DSYNC as u64;
    if rest & sync == sync {
        rest &= !sync;
        text = joined_after(text, "O_SYNC");
    } else if rest & dsync == dsync {
        rest &= !dsync;
        text = joined_after(text, "O_DSYNC");
    }
    let directory = own.iter().find(|(_, name)| *name == "O_DIRECTORY").map(|(bits, _)| *bits);
    if let Some(directory) = directory.filter(|directory| rest & TMPFILE != 0 && rest & directory != 0) {
        rest &= !(TMPFILE | directory);
        text = joined_after(text, "O_TMPFILE");
    }
    match flags(rest, &[OPEN, own], "") {
        Some(more) if !more.is_empty() => joined(&text, &more),
        _ => text,
    }
}

fn signal_name(value: u64) -> Option<String> {
    const FIRST_REALTIME: u64 = 32;
    match value {
        0 => Some("0".to_owned()),
        FIRST_REALTIME => Some("SIGRTMIN".to_owned()),
        33..=64 => Some(format!("SIGRT_{}", value - FIRST_REALTIME)),
        _ => Signal::try_from(i32::try_from(value).ok()?).ok().map(|signal| signal.as_str().to_owned()),
    }
}

/// The name and the meaning of a result that is an error.
pub(crate) fn error(result: i64) -> Option<String> {
    // Results that programs never see: the kernel repeats the call, or a signal interrupts it.
    let inside = match result {
        -512 => "ERESTARTSYS (restarted, or EINTR, after a signal)",
        -513 => "ERESTARTNOINTR (restarted after a signal)",
        -514 => "ERESTARTNOHAND (EINTR after a signal with a handler)",
        -516 => "ERESTART_RESTARTBLOCK (restarted with the rest of the time)",
        -4095..=-1 => {
            let errno = Errno::from_raw(i32::try_from(-result).ok()?);
            // The C library's text, which other tools show.
            let meaning = std::io::Error::from_raw_os_error(errno as i32).to_string();
            let meaning = meaning.split(" (os error").next().unwrap_or_default();
            return (errno != Errno::UnknownErrno).then(|| format!("-{errno:?} ({meaning})"));
        }
        _ => return None,
    };
    Some(format!("-{inside}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(call: &str, argument: &str, value: u64) -> Option<String> {
        named(kind_of(call, argument)?, value, Architecture::X86)
    }

    #[test]
    fn values_have_the_names_that_strace_gives_them() {
        for (call, argument, value, expected) in [
            ("openat", "flags", 0o2_000_000, "O_RDONLY|O_CLOEXEC"),
            ("openat", "flags", 0o1101, "O_WRONLY|O_CREAT|O_TRUNC"),
            ("openat", "flags", 0o4_010_000 | 2, "O_RDWR|O_SYNC"),
            ("openat", "flags", 0o20_200_002, "O_RDWR|O_TMPFILE"),
            ("openat", "dfd", 0xffff_ff9c, "AT_FDCWD"),
            ("mmap", "prot", 0, "PROT_NONE"),
            ("mmap", "flags", 0x22, "MAP_PRIVATE|MAP_ANONYMOUS"),
            ("clone", "clone_flags", 18_874_385, "CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD"),
            ("futex", "op", 137, "FUTEX_WAIT_BITSET_PRIVATE"),
            ("futex", "op", 393, "FUTEX_WAIT_BITSET_PRIVATE|FUTEX_CLOCK_REALTIME"),
            ("socket", "type", 0o2_000_001, "SOCK_STREAM|SOCK_CLOEXEC"),
            ("access", "mode", 0, "F_OK"),
            ("kill", "sig", 9, "SIGKILL"),
            ("clock_gettime", "which_clock", 1, "CLOCK_MONOTONIC"),
            ("ioctl", "cmd", 21505, "TCGETS"),
        ] {
            assert_eq!(of(call, argument, value).as_deref(), Some(expected), "{call} {argument} {value}");
        }
        assert_eq!(of("ioctl", "cmd", 0xabcd), None);
    }

    #[test]
    fn what_differs_between_architectures_is_named_only_where_it_is_known() {
        let directory = |architecture| named(Kind::Open, 0o200_000, architecture).unwrap();
        assert_eq!(directory(Architecture::X86), "O_RDONLY|O_DIRECTORY");
        assert_eq!(directory(Architecture::Arm), "O_RDONLY|O_DIRECT");
        assert_eq!(directory(Architecture::Unknown), "O_RDONLY|0x10000");
    }

    #[test]
    fn errors_have_names() {
        assert_eq!(error(-2).as_deref(), Some("-ENOENT (No such file or directory)"));
        assert!(error(-512).unwrap().starts_with("-ERESTARTSYS"));
        assert_eq!((error(0), error(5), error(-4000), error(-10_000)), (None, None, None, None));
    }
}
