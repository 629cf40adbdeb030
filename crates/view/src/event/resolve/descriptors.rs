// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the descriptors of processes are, from the system calls of a trace.
//!
//! Only what follows from recorded events is claimed. A descriptor is forgotten when a call begins that may close it, and known when a call
//! has ended that made it. Where a process got descriptors in a way that the trace does not show, they stay numbers.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

const CLOSE_ON_EXEC: i64 = 0o2_000_000;
const CLONE_FILES: i64 = 0x400;
const AT_FDCWD: i64 = -100;

#[derive(Clone, Debug)]
struct Descriptor {
    what: String,
    /// Closed by exec; `None` if that is not known.
    cloexec: Option<bool>,
}

#[derive(Clone, Debug, Default)]
struct Table {
    open: HashMap<i64, Descriptor>,
    /// When a call began that closed it.
    closed: HashMap<i64, u64>,
    /// Something changes descriptors without system calls.
    distrusted: bool,
}

impl Table {
    fn close(&mut self, fd: i64, now: u64) {
        self.open.remove(&fd);
        self.closed.insert(fd, now);
    }
}

/// A system call that has begun.
#[derive(Debug)]
struct Call {
    name: String,
    arguments: [i64; 3],
    path: Option<String>,
    began: u64,
    /// What its first argument is.
    of: Option<Descriptor>,
}

/// All processes.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    processes: HashMap<u32, u32>,
    tables: HashMap<u32, Rc<RefCell<Table>>>,
    calls: HashMap<u32, Call>,
    now: u64,
}

impl Descriptors {
    fn table(&mut self, tid: u32) -> Option<Rc<RefCell<Table>>> {
        let pid = *self.processes.get(&tid)?;
        Some(Rc::clone(self.tables.entry(pid).or_default()))
    }

    /// What a descriptor of a thread is, if that is known.
    pub(super) fn what(&mut self, tid: u32, fd: i64) -> Option<String> {
        let table = self.table(tid)?;
        let table = table.borrow();
        table.open.get(&fd).filter(|_| !table.distrusted).map(|descriptor| descriptor.what.clone())
    }

    /// A thread belongs to a process.
    pub(super) fn thread(&mut self, tid: u32, pid: u32) {
        self.processes.insert(tid, pid);
    }

    /// A thread, maybe of a new process.
    pub(super) fn fork(&mut self, parent: u32, child: u32, child_pid: u32) {
        let parent_pid = self.processes.get(&parent).copied();
        self.processes.insert(child, child_pid);
        if parent_pid == Some(child_pid) {
            return;
        }
        let call = self.calls.get(&parent);
        let shares = call.and_then(|call| match call.name.as_str() {
            "fork" | "vfork" => Some(false),
            "clone" => Some(call.arguments[0] & CLONE_FILES != 0),
            // The flags of clone3 are in the program's memory.
            _ => None,
        });
        let table = match (shares, self.table(parent)) {
            (Some(true), Some(table)) => table,
            (Some(false), Some(table)) => Rc::new(RefCell::new(table.borrow().clone())),
            _ => Rc::default(),
        };
        self.tables.insert(child_pid, table);
    }

    /// A thread has ended.
    pub(super) fn exit(&mut self, tid: u32) {
        self.calls.remove(&tid);
        if self.processes.remove(&tid) == Some(tid) {
            self.tables.remove(&tid);
        }
    }

    /// A call begins.
    pub(super) fn entry(&mut self, tid: u32, name: &str, arguments: [i64; 3], path: Option<String>) {
        self.now += 1;
        let (now, [first, second, third]) = (self.now, arguments);
        let Some(table) = self.table(tid) else { return };
        let mut of = None;
        {
            let mut table = table.borrow_mut();
            match name {
                "close" => table.close(first, now),
                "dup2" | "dup3" if first != second => {
                    of = table.open.get(&first).cloned();
                    table.close(second, now);
                }
                "close_range" if third == 0 => {
                    let (first, last) = (first & 0xffff_ffff, second & 0xffff_ffff);
                    let closed: Vec<i64> =
                        table.open.keys().copied().filter(|fd| (first..=last).contains(fd)).collect();
                    closed.into_iter().for_each(|fd| table.close(fd, now));
                }
                // Closes later, or in another table.
                "close_range" => table.open.clear(),
                "io_uring_setup" | "unshare" => table.distrusted = true,
                "openat" => of = table.open.get(&first).cloned(),
                "dup" | "fcntl" | "accept" | "accept4" => of = table.open.get(&first).cloned(),
                "ioctl" if matches!(second, 0x5450 | 0x5451) => {
                    if let Some(descriptor) = table.open.get_mut(&first) {
                        descriptor.cloexec = None;
                    }
                }
                "exit_group" => table.open.clear(),
                _ => {}
            }
        }
        self.calls.insert(tid, Call { name: name.to_owned(), arguments, path, began: now, of });
    }

    /// A call has ended.
    pub(super) fn done(&mut self, tid: u32, name: &str, result: i64) {
        let Some(call) = self.calls.remove(&tid).filter(|call| call.name == name) else { return };
        let Some(table) = self.table(tid).filter(|_| result >= 0) else { return };
        if name == "execve" || name == "execveat" {
            let mut own = table.borrow().clone();
            own.open.retain(|_, descriptor| descriptor.cloexec == Some(false));
            if let Some(pid) = self.processes.get(&tid) {
                // It is no longer shared with another process.
                self.tables.insert(*pid, Rc::new(RefCell::new(own)));
            }
            return;
        }
        let mut table = table.borrow_mut();
        if name == "fcntl" && call.arguments[1] == i64::from(nix::libc::F_SETFD) {
            if let Some(descriptor) = table.open.get_mut(&call.arguments[0]) {
                descriptor.cloexec = Some(call.arguments[2] & 1 != 0);
            }
            return;
        }
        let Some((fd, descriptor)) = made(call.name.as_str(), &call, result) else { return };
        // Another thread closed this number since the call began: before it was given, or after.
        if table.closed.get(&fd).is_some_and(|closed| *closed > call.began) {
            return;
        }
        match descriptor {
            Some(descriptor) => table.open.insert(fd, descriptor),
            None => table.open.remove(&fd),
        };
    }
}

/// The descriptor that a call has made, and what it is; what it is may be unknown.
fn made(name: &str, call: &Call, result: i64) -> Option<(i64, Option<Descriptor>)> {
    let [first, second, third] = call.arguments;
    let with =
        |what: String, flags: i64| Some(Descriptor { what, cloexec: Some(flags & CLOSE_ON_EXEC != 0) });
    let copy = |cloexec| call.of.clone().map(|of| Descriptor { cloexec, ..of });
    let path = || call.path.clone();
    let what = match name {
        "open" => path().and_then(|path| with(path, second)),
        "creat" => path().and_then(|path| with(path, 0)),
        "openat" => path().and_then(|path| with(beside(first, call.of.as_ref(), path)?, third)),
        "openat2" => {
            path().filter(|path| path.starts_with('/')).map(|what| Descriptor { what, cloexec: None })
        }
        "socket" => with(socket(first, second), second),
        "accept" => call.of.as_ref().and_then(|of| with(accepted(&of.what), 0)),
        // Its flags are the fourth argument.
        "accept4" => call.of.as_ref().map(|of| Descriptor { what: accepted(&of.what), cloexec: None }),
        "eventfd" => with("eventfd".to_owned(), 0),
        "eventfd2" => with("eventfd".to_owned(), second),
        "epoll_create" => with("epoll".to_owned(), 0),
        "epoll_create1" => with("epoll".to_owned(), first),
        "timerfd_create" => with("timerfd".to_owned(), second),
        "inotify_init" => with("inotify".to_owned(), 0),
        "inotify_init1" => with("inotify".to_owned(), first),
        "pidfd_open" => with(format!("pidfd of {first}"), CLOSE_ON_EXEC),
        "dup" => copy(Some(false)),
        "dup2" if first != second => copy(Some(false)),
        "dup3" => copy(Some(third & CLOSE_ON_EXEC != 0)),
        "fcntl" if second == i64::from(nix::libc::F_DUPFD) => copy(Some(false)),
        "fcntl" if second == i64::from(nix::libc::F_DUPFD_CLOEXEC) => copy(Some(true)),
        "memfd_create" | "signalfd" | "signalfd4" | "userfaultfd" | "perf_event_open" | "bpf" => None,
        _ => return None,
    };
    Some((result, what))
}

/// Calls whose result is a descriptor that may be known.
pub(super) fn makes_descriptor(call: &str) -> bool {
    const CALLS: [&str; 18] = [
        "open",
        "creat",
        "openat",
        "openat2",
        "socket",
        "accept",
        "accept4",
        "eventfd",
        "eventfd2",
        "epoll_create",
        "epoll_create1",
        "timerfd_create",
        "inotify_init",
        "inotify_init1",
        "pidfd_open",
        "dup",
        "dup2",
        "dup3",
    ];
    CALLS.contains(&call)
}

/// A path of `openat`: a relative one is behind its directory's, which must be known unless it is the current one.
fn beside(dfd: i64, directory: Option<&Descriptor>, path: String) -> Option<String> {
    if path.starts_with('/') || dfd == AT_FDCWD {
        return Some(path);
    }
    directory.map(|directory| format!("{}/{path}", directory.what.trim_end_matches('/')))
}

fn socket(family: i64, kind: i64) -> String {
    use super::names::{Architecture, kind_of, named};
    let text = |argument, value: i64| {
        let kind = kind_of("socket", argument)?;
        named(kind, value as u64, Architecture::Unknown)
    };
    let family = text("family", family).unwrap_or_else(|| family.to_string());
    let kind = text("type", kind & 15).unwrap_or_else(|| (kind & 15).to_string());
    format!("socket {family} {kind}")
}

fn accepted(listening: &str) -> String {
    format!("accepted from {listening}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(all: &mut Descriptors, tid: u32, path: &str, flags: i64, fd: i64) {
        all.entry(tid, "openat", [AT_FDCWD, 0, flags], Some(path.to_owned()));
        all.done(tid, "openat", fd);
    }

    fn call(all: &mut Descriptors, tid: u32, name: &str, arguments: [i64; 3], result: i64) {
        all.entry(tid, name, arguments, None);
        all.done(tid, name, result);
    }

    fn started() -> Descriptors {
        let mut all = Descriptors::default();
        all.thread(1, 1);
        all
    }

    #[test]
    fn descriptors_are_known_from_their_making_to_their_end() {
        let mut all = started();
        open(&mut all, 1, "/etc/passwd", 0, 3);
        call(&mut all, 1, "dup2", [3, 7, 0], 7);
        call(&mut all, 1, "fcntl", [3, 0, 0], 4);
        call(&mut all, 1, "close", [3, 0, 0], 0);
        let what: Vec<_> = [3, 4, 7].iter().map(|fd| all.what(1, *fd)).collect();
        assert_eq!(what, [None, Some("/etc/passwd".to_owned()), Some("/etc/passwd".to_owned())]);
        all.entry(1, "openat", [7, 0, 0], Some("below".to_owned()));
        all.done(1, "openat", 5);
        assert_eq!(all.what(1, 5).as_deref(), Some("/etc/passwd/below"));
        call(&mut all, 1, "close_range", [4, 6, 0], 0);
        assert_eq!((all.what(1, 4), all.what(1, 5), all.what(1, 7).is_some()), (None, None, true));
        // A thread of which no process is known.
        open(&mut all, 9, "/etc/group", 0, 3);
        assert_eq!(all.what(9, 3), None);
    }

    #[test]
    fn children_inherit_and_exec_closes() {
        let mut all = started();
        open(&mut all, 1, "/kept", 0, 3);
        open(&mut all, 1, "/closed", CLOSE_ON_EXEC, 4);
        all.entry(1, "vfork", [0; 3], None);
        all.fork(1, 2, 2);
        call(&mut all, 2, "close", [3, 0, 0], 0);
        assert_eq!((all.what(2, 3), all.what(1, 3).is_some()), (None, true));
        call(&mut all, 2, "execve", [0; 3], 0);
        assert_eq!((all.what(2, 4), all.what(1, 4).is_some()), (None, true));
        // A thread shares all; so does a process with CLONE_FILES, until it execs.
        all.entry(1, "clone", [CLONE_FILES, 0, 0], None);
        all.fork(1, 5, 5);
        open(&mut all, 5, "/shared", 0, 6);
        assert!(all.what(1, 6).is_some());
        call(&mut all, 5, "execve", [0; 3], 0);
        call(&mut all, 5, "close", [6, 0, 0], 0);
        assert!(all.what(1, 6).is_some());
        all.entry(1, "clone3", [0; 3], None);
        all.fork(1, 8, 8);
        assert_eq!(all.what(8, 3), None, "the flags of clone3 are not known");
    }

    #[test]
    fn a_number_that_was_closed_while_it_was_given_is_not_claimed() {
        let mut all = started();
        all.thread(2, 1);
        all.entry(1, "openat", [AT_FDCWD, 0, 0], Some("/a".to_owned()));
        call(&mut all, 2, "close", [3, 0, 0], 0);
        all.done(1, "openat", 3);
        assert_eq!(all.what(1, 3), None);
        open(&mut all, 1, "/b", 0, 3);
        assert!(all.what(2, 3).is_some());
        call(&mut all, 2, "io_uring_setup", [0; 3], 4);
        assert_eq!(all.what(2, 3), None);
    }
}
