// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that is in execve(2) for as long as somebody likes: it closes a file there that a FUSE server of this process has opened for it, and that
//! server never answers. Meanwhile the kernel keeps whoever reads its `/proc/PID/stat` and others of these files waiting (Linux 6.18).
//!
//! The file system is mounted in a mount namespace of that process alone; when this process ends, however it does, its server is gone and the wait is over.

use nix::fcntl::OFlag;
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Pid, Uid, gettid, setgroups, setresgid, setresuid};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// A process that begins its execve(2) when it is told to.
#[derive(Debug)]
pub struct ReadyExec {
    go: File,
    held: Receiver<()>,
    exec: HeldExec,
}

impl ReadyExec {
    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.exec.pid
    }

    /// It is in execve(2) when this returns.
    ///
    /// # Errors
    /// When it is not.
    pub fn hold(mut self) -> io::Result<HeldExec> {
        self.go.write_all(&[0])?;
        self.held.recv().map_err(|_| io::Error::other("the file system was not asked to close the file"))?;
        Ok(self.exec)
    }
}

/// It is released when this is dropped.
#[derive(Debug)]
pub struct HeldExec {
    pid: u32,
    is_over: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
    program: Option<JoinHandle<io::Result<Child>>>,
}

impl HeldExec {
    /// A process of this user, which is in execve(2) when this returns. Needs root.
    ///
    /// # Errors
    /// When there is no FUSE here, or no process.
    pub fn start(user: u32) -> io::Result<HeldExec> {
        HeldExec::prepare(user, CloneFlags::empty())?.hold()
    }

    /// A process of this user in namespaces of its own: its mount namespace, and these of its parent's. Needs root.
    ///
    /// # Errors
    /// When there is no FUSE here, or no process.
    pub fn prepare(user: u32, namespaces: CloneFlags) -> io::Result<ReadyExec> {
        let device =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open("/dev/fuse")?;
        let place = tempfile::tempdir()?;
        let (mut ready, is_ready) = pipe()?;
        let (may_go, go) = pipe()?;
        let mut command = Command::new("sleep");
        command.arg("1000");
        let path = place.path().as_os_str().as_encoded_bytes();
        prepare(&mut command, user, (path, &device), (is_ready, may_go))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (hold, held) = channel();
        let server = {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || serve(device, &is_over, &hold))
        };
        let (tell, told) = channel();
        // This waits until the program runs.
        let program = std::thread::spawn(move || {
            // Of this thread's children alone.
            unshare(namespaces)?;
            let _ = tell.send(gettid());
            let child = command.spawn();
            // With it goes the last end for writing of what says that it is ready.
            drop(command);
            drop(place);
            child
        });
        let mut exec = HeldExec { pid: 0, is_over, server: Some(server), program: Some(program) };
        let parent = told.recv().map_err(io::Error::other)?;
        ready.read_exact(&mut [0])?;
        let children = std::fs::read_to_string(format!("/proc/self/task/{parent}/children"))?;
        exec.pid = children.trim().parse().map_err(io::Error::other)?;
        Ok(ReadyExec { go, held, exec })
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether this kernel keeps readers of its state waiting.
    #[must_use]
    pub fn keeps_readers_waiting(&self) -> bool {
        let path = format!("/proc/{}/stat", self.pid);
        let (send, receive) = channel();
        std::thread::spawn(move || send.send(std::fs::read(path).is_ok()));
        receive.recv_timeout(std::time::Duration::from_millis(200)).is_err()
    }
}

impl Drop for HeldExec {
    fn drop(&mut self) {
        // ORDER: relaxed; a flag that stands for itself.
        self.is_over.store(true, Ordering::Relaxed);
        // The device is closed with it, which ends the wait.
        let _ = self.server.take().map(JoinHandle::join);
        // One that was never told to begin waits for that: it has the other end, too. (It was not waited for, so the number is its own.)
        if let Some(pid) = i32::try_from(self.pid).ok().filter(|pid| *pid > 0) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        if let Some(Ok(Ok(mut child))) = self.program.take().map(JoinHandle::join) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What is read, and what is written.
fn pipe() -> io::Result<(File, File)> {
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    Ok((File::from(read), File::from(write)))
}

/// Has the process mount the file system, open its file, and become the user.
fn prepare(
    command: &mut Command,
    user: u32,
    (place, device): (&[u8], &File),
    (mut is_ready, mut may_go): (File, File),
) -> io::Result<()> {
    let place = CString::new(place)?;
    let file = CString::new([place.as_bytes(), b"/file"].concat())?;
    let options =
        format!("fd={},rootmode=40000,user_id={user},group_id={user},allow_other", device.as_raw_fd());
    let options = CString::new(options)?;
    let step = move || {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, c"/", None::<&str>, private, None::<&str>)?;
        mount(Some(c"held"), place.as_c_str(), Some(c"fuse"), MsFlags::empty(), Some(options.as_c_str()))?;
        // SAFETY: the path ends with a zero, and lives as long as the closure. The descriptor is left open until execve closes it.
        if unsafe { libc::open(file.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
        setgroups(&[])?;
        setresgid(group, group, group)?;
        setresuid(user, user, user)?;
        is_ready.write_all(&[0])?;
        may_go.read_exact(&mut [0])
    };
    // SAFETY: after the fork it makes system calls only, and allocates nothing: all texts are made.
    unsafe { command.pre_exec(step) };
    Ok(())
}

/// Opcodes of linux/fuse.h.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// Answers everything but FLUSH, of which `held` hears.
fn serve(mut device: File, is_over: &AtomicBool, held: &Sender<()>) {
    let mut request = vec![0; 1 << 20];
    // ORDER: relaxed; as above.
    while !is_over.load(Ordering::Relaxed) {
        let mut ready = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ready, PollTimeout::from(20_u8)).unwrap_or(0) == 0 {
            continue;
        }
        // It is gone with its mount, or somebody has taken the request back.
        let Ok(length) = device.read(&mut request) else { continue };
        let Some(head) = request[..length].first_chunk::<40>() else { continue };
        let opcode = u32::from_ne_bytes(*head[4..].first_chunk().expect("it is as long"));
        let unique: [u8; 8] = *head[8..].first_chunk().expect("it is as long");
        let answer = match opcode {
            FLUSH => {
                // Whoever waits for it has it once.
                let _ = held.send(());
                continue;
            }
            FORGET | BATCH_FORGET | INTERRUPT => continue,
            INIT => Ok(init()),
            LOOKUP => Ok(entry()),
            GETATTR => Ok([&1_u64.to_ne_bytes()[..], &[0; 8], &attributes(1, libc::S_IFDIR)].concat()),
            OPEN => Ok(vec![0; 16]),
            RELEASE => Ok(Vec::new()),
            _ => Err(-libc::ENOSYS),
        };
        let (error, body) = answer.map_or_else(|error| (error, Vec::new()), |body| (0, body));
        let length = u32::try_from(16 + body.len()).expect("answers are short");
        let bytes = [&length.to_ne_bytes()[..], &error.to_ne_bytes(), &unique, &body].concat();
        // Nobody may wait for it any more.
        let _ = device.write(&bytes);
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// `struct fuse_init_out`, of version 7.31: nothing special, and 4096 bytes at a time.
fn init() -> Vec<u8> {
    let mut bytes = words(&[7, 31, 4096, 0, 4 << 16 | 4, 4096, 1, 1]);
    bytes.resize(64, 0);
    bytes
}

/// `struct fuse_entry_out`: a file, whatever its name.
fn entry() -> Vec<u8> {
    let head: Vec<u8> = [2_u64, 0, 100, 100, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    [head, attributes(2, libc::S_IFREG)].concat()
}

/// `struct fuse_attr`.
fn attributes(number: u64, kind: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> = [number, 4096, 8, 0, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend(words(&[0, 0, 0, kind | 0o755, 1, 0, 0, 0, 4096, 0]));
    bytes
}
