// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stacks of programs, from copies of their registers and of the newest part of their stacks.
//!
//! A distribution's programs have no frame pointers; where a call returns to is known from the unwind information of the file that is mapped there
//! (`.eh_frame`). `maps` says which file that is, `module` reads it, `unwind` goes from frame to frame, and `names` says what is there: functions
//! that were inlined, files and lines where there is debug information (in the file, or under /usr/lib/debug), else symbols.
//!
//! Nothing here needs a privilege but the reading of `/proc/PID` of other users' processes. Programs are not believed: files are read, not mapped, up to
//! limits, and whatever is wrong with them ends a stack with a reason.
#![forbid(unsafe_code)]

mod budget;
mod maps;
mod module;
mod names;
mod unwind;

pub use budget::Budget;

use maps::{Mapping, Mappings};
use module::{Module, ModuleFile, ModuleId};
use rtscope_event::{CopyEnd, Incomplete, Pid, StackCopy, StackFrame, TaskStack};
use rtscope_procs::{Reader, user_of};
use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use unwind::{Frame, Place};

/// Frames that are kept of a stack.
const FRAMES_MAX: usize = 256;
/// Files whose unwind information is kept.
const MODULES_MAX: usize = 256;
/// Processes whose mappings are kept for when they have ended.
const PROCESSES_MAX: usize = 256;
/// For what a process can keep from being read, which takes some 50 us where it does not: reports wait for it. A busy machine keeps the thread that
/// reads from a CPU for some 10 ms.
const READ_MAX: Duration = Duration::from_millis(100);

/// What of a process may be touched: a program can have its files where its user's server answers, or does not.
#[derive(Clone, Copy, Debug)]
pub struct Caution {
    /// Whether a file that it has mapped may be read, which was opened so that nothing was asked of its file system yet; `Err`: what that could wait for.
    pub file: fn(u32, BorrowedFd<'_>) -> Result<(), String>,
    /// Its root, if paths below that may be walked.
    pub root: fn(u32) -> Option<OwnedFd>,
}

impl Caution {
    /// A path of the root that stays what it is when the process has another.
    fn root_of(&self, pid: Pid) -> Option<Root> {
        (self.root)(pid.0).map(Root)
    }
}

/// A process's root, open.
#[derive(Debug)]
struct Root(OwnedFd);

impl Root {
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// Where what a process shows is read: while that goes on, nothing is reported.
#[derive(Clone, Copy, Debug)]
struct Source {
    mappings: fn(Pid) -> Result<Mappings, Incomplete>,
    file: fn(Pid, &Mapping, Caution) -> Result<ModuleFile, String>,
}

/// Makes stacks from copies. What it has read of files is kept for the next one.
#[derive(Debug)]
pub struct Unwinder {
    caution: Caution,
    budget: Budget,
    source: Source,
    reader: Reader,
    /// By the user of the process that showed them: it can show another file than its list of mappings says, and that is nobody else's then.
    modules: HashMap<(Option<u32>, ModuleId), Result<Rc<Module>, String>>,
    /// Whose stack is made, and until when that is on the user's account.
    user: Option<u32>,
    charged: Instant,
    /// As they were read last: of a process that has ended since there are no others.
    mappings: HashMap<Pid, Rc<Mappings>>,
}

impl Unwinder {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(caution: Caution) -> Unwinder {
        Unwinder {
            caution,
            budget: Budget::default(),
            source: Source { mappings: Mappings::read, file: ModuleFile::open },
            reader: Reader::new("stacks"),
            modules: HashMap::new(),
            user: None,
            charged: Instant::now(),
            mappings: HashMap::new(),
        }
    }

    /// Reads a process's mappings, so that its stacks are known should it end before they are looked at.
    pub fn remember(&mut self, pid: Pid) {
        (self.charged, self.user) = (Instant::now(), user_of(pid.0));
        // One that has ended just now has none, or does not answer: its copies say so.
        let _ = self.mappings_of(pid);
    }

    /// The stack of a task in its program, from a copy. The kernel's part is left empty.
    ///
    /// Reads `/proc/PID/maps` (for which the kernel holds the process's mappings still for some ten microseconds), and each file that it meets for the
    /// first time.
    pub fn unwind(&mut self, copy: &StackCopy) -> TaskStack {
        let (user, incomplete) = match self.frames_in_time(copy) {
            Ok((frames, incomplete)) => (frames, incomplete),
            Err(incomplete) => (Vec::new(), Some(incomplete)),
        };
        TaskStack { tid: copy.tid, pid: copy.pid, comm: copy.comm, kernel: Vec::new(), user, incomplete }
    }

    /// If its user's stacks have not taken too long so far.
    fn frames_in_time(
        &mut self,
        copy: &StackCopy,
    ) -> Result<(Vec<StackFrame>, Option<Incomplete>), Incomplete> {
        (self.charged, self.user) = (Instant::now(), user_of(copy.pid.0));
        self.in_time().map_err(|why| Incomplete::Unreadable { why })?;
        let frames = self.frames(copy);
        self.charge();
        frames
    }

    /// Whether this user's stacks may take more time.
    fn in_time(&mut self) -> Result<(), String> {
        self.charge();
        match self.user.filter(|user| !self.budget.allows(*user, self.charged)) {
            None => Ok(()),
            Some(user) => Err(format!("stacks of user {user} have taken a tenth of the time already")),
        }
    }

    /// For what has been done so far, since the stack itself may take long.
    fn charge(&mut self) {
        let before = std::mem::replace(&mut self.charged, Instant::now());
        if let Some(user) = self.user {
            self.budget.charge(user, self.charged, self.charged - before);
        }
    }

    /// What a process shows, unless it keeps that back for longer than others can wait.
    fn read<T: Send + 'static>(
        &mut self,
        what: &str,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        self.in_time()?;
        self.reader.read(self.user, READ_MAX, read).map_err(|why| format!("{what}: {why}"))
    }

    fn frames(&mut self, copy: &StackCopy) -> Result<(Vec<StackFrame>, Option<Incomplete>), Incomplete> {
        match copy.end {
            CopyEnd::NotTaken => return Err(Incomplete::NoUserMemory),
            CopyEnd::Compat => return Err(Incomplete::ProgramOf32Bits),
            CopyEnd::Limit | CopyEnd::Absent => {}
        }
        let mappings = match self.mappings_of(copy.pid) {
            Ok(mappings) => mappings,
            Err(incomplete) => {
                let address = copy.registers.last().copied().unwrap_or_default();
                return Ok((vec![StackFrame { address, ..StackFrame::default() }], Some(incomplete)));
            }
        };
        let (walked, incomplete) =
            unwind::walk(copy, FRAMES_MAX, |address| self.place(&mappings, copy.pid, address));
        let frames = walked.iter().map(|frame| self.named(&mappings, copy.pid, frame)).collect();
        Ok((frames, incomplete))
    }

    fn mappings_of(&mut self, pid: Pid) -> Result<Rc<Mappings>, Incomplete> {
        let read = self.source.mappings;
        let answer = self.read(&format!("/proc/{pid}/maps"), move || read(pid));
        // Those of before may be others by now: only of a process that has ended they are what there is.
        match answer.map_err(|why| Incomplete::Unreadable { why })? {
            Ok(mappings) => {
                let mappings = Rc::new(mappings);
                if self.mappings.len() >= PROCESSES_MAX {
                    self.mappings.clear();
                }
                self.mappings.insert(pid, Rc::clone(&mappings));
                Ok(mappings)
            }
            Err(why) => self.mappings.get(&pid).cloned().ok_or(why),
        }
    }

    /// What is mapped at an address; with its file, where that can be read.
    fn place(&mut self, mappings: &Mappings, pid: Pid, address: u64) -> Place {
        let Some(mapping) = mappings.find(address) else { return Place::Nothing };
        let Some(id) = mapping.module_id() else { return Place::NoFile };
        let id = (self.user, id);
        if !self.modules.contains_key(&id) {
            let (open, shown, caution) = (self.source.file, mapping.clone(), self.caution);
            // Another time it may answer.
            let file = match self.read(mapping.path(), move || open(pid, &shown, caution)) {
                Ok(file) => file,
                Err(why) => return Place::Unreadable(why),
            };
            let named = |why| format!("{}: {why}", mapping.path());
            let module = file.and_then(|file| Module::read(file).map_err(named)).map(Rc::new);
            if self.modules.len() >= MODULES_MAX {
                self.modules.clear();
            }
            self.modules.insert(id.clone(), module);
        }
        let module = &self.modules[&id];
        match module {
            Ok(module) => match module.address_of(mapping.file_offset(address)) {
                Some(offset) => {
                    Place::File { module: Rc::clone(module), offset, path: mapping.path().to_owned() }
                }
                None => Place::Unreadable(format!(
                    "{}: no segment is at the place of the mapping",
                    mapping.path()
                )),
            },
            Err(why) => Place::Unreadable(why.clone()),
        }
    }

    fn named(&mut self, mappings: &Mappings, pid: Pid, frame: &Frame) -> StackFrame {
        let mut named = StackFrame {
            address: frame.address,
            by_frame_pointer: frame.by_frame_pointer,
            ..StackFrame::default()
        };
        match self.place(mappings, pid, frame.looked_up) {
            Place::File { module, offset, path } => {
                let root = self.caution.root_of(pid);
                named.functions = module.names(root.as_ref().map(Root::path).as_deref(), offset);
                named.build_id = module.build_id().map(str::to_owned);
                named.offset = Some(offset + (frame.address - frame.looked_up));
                named.module = Some(path);
            }
            Place::Unreadable(_) | Place::NoFile | Place::Nothing => {
                named.module = mappings.find(frame.looked_up).map(|mapping| mapping.path().to_owned());
                named.module = named.module.filter(|path| !path.is_empty());
            }
        }
        named
    }
}

/// Unwinds a copy as if all code of its program were in one file, mapped as it lies there from address 0 on, by a writer whom nobody trusts. For fuzzers:
/// files are what others write.
///
/// # Errors
/// It is no file with code.
pub fn unwind_in(file: &[u8], copy: &StackCopy) -> Result<TaskStack, String> {
    let module = Rc::new(Module::read(ModuleFile::Bytes { bytes: file.to_vec(), is_trusted: false })?);
    let place = |address: u64| match module.address_of(address) {
        Some(offset) => Place::File { module: Rc::clone(&module), offset, path: String::new() },
        None => Place::Nothing,
    };
    let (frames, incomplete) = unwind::walk(copy, FRAMES_MAX, place);
    let user = frames.iter().map(|frame| StackFrame {
        address: frame.address,
        functions: module.address_of(frame.looked_up).map_or(Vec::new(), |offset| module.names(None, offset)),
        by_frame_pointer: frame.by_frame_pointer,
        ..StackFrame::default()
    });
    let user = user.collect();
    Ok(TaskStack { tid: copy.tid, pid: copy.pid, comm: copy.comm, kernel: Vec::new(), user, incomplete })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::{Comm, MonotonicNs, Tid};
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};

    fn copy_of(pid: u32) -> StackCopy {
        StackCopy {
            id: 1,
            time: MonotonicNs(1),
            tid: Tid(pid),
            pid: Pid(pid),
            comm: Comm::from("a"),
            kernel: Vec::new(),
            registers: vec![0; 17],
            memory: Vec::new(),
            end: CopyEnd::Limit,
        }
    }

    /// Until it is let go, process 1 does not answer.
    static IS_HELD: AtomicBool = AtomicBool::new(true);

    fn held(pid: Pid) -> Result<Mappings, Incomplete> {
        // ORDER: relaxed; nothing else is handed over.
        while pid == Pid(1) && IS_HELD.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Mappings::read(Pid(std::process::id()))
    }

    #[test]
    fn the_stack_of_a_process_that_does_not_answer_says_so_and_others_are_made() {
        let mut unwinder = Unwinder::new(Caution { file: |_, _| Ok(()), root: |_| None });
        unwinder.source.mappings = held;
        // What it had before may be something else by now.
        let before = Mappings::read(Pid(std::process::id())).expect("it is this process");
        unwinder.mappings.insert(Pid(1), Rc::new(before));
        let mut words =
            |pid| unwinder.unwind(&copy_of(pid)).incomplete.expect("address 0 is nowhere").words();
        assert_eq!(words(1), "/proc/1/maps: the process did not answer within 100 ms");
        assert_eq!(words(1), "/proc/1/maps: a process of this user does not answer");
        let other = words(u32::MAX);
        // ORDER: as above.
        IS_HELD.store(false, Ordering::Relaxed);
        assert_eq!(other, "it could not be unwound further: 0x0 is not in the program's code");
    }

    #[test]
    fn a_stack_that_is_under_way_has_taken_time_already() {
        let mut unwinder = Unwinder::new(Caution { file: |_, _| Ok(()), root: |_| None });
        unwinder.user = Some(4_000_000_000);
        assert_eq!(unwinder.read("", || 5), Ok(5));
        unwinder.charged -= Duration::from_secs(2);
        let given_up = unwinder.read("", || -> u32 { panic!("it is not tried") });
        assert!(given_up.expect_err("the second is over").contains("a tenth of the time"));
    }

    // NEEDS: host
    #[test]
    fn root_stacks_of_a_user_who_took_too_long_are_given_up_and_nobody_elses() {
        if !nix::unistd::geteuid().is_root() {
            println!(
                "SKIP: tests::root_stacks_of_a_user_who_took_too_long_are_given_up_and_nobody_elses: needs root"
            );
            return;
        }
        let mut sleep = Command::new("setpriv");
        sleep.args(["--reuid", "65534", "--clear-groups", "sleep", "60"]).stdin(Stdio::null());
        let mut child = sleep.spawn().expect("util-linux is there");
        while user_of(child.id()) != Some(65534) {}
        let mut unwinder = Unwinder::new(Caution { file: |_, _| Ok(()), root: |_| None });
        let given_up = |stack: &TaskStack| {
            stack.incomplete.as_ref().is_some_and(|why| why.words().contains("user 65534"))
        };
        let before = unwinder.unwind(&copy_of(child.id()));
        unwinder.budget.charge(65534, Instant::now(), Duration::from_secs(1));
        let (after, own) =
            (unwinder.unwind(&copy_of(child.id())), unwinder.unwind(&copy_of(std::process::id())));
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        assert_eq!([&before, &after, &own].map(given_up), [false, true, false], "{after:?}");
    }
}
