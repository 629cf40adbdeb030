// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals that end a watch or a recording. The first one ends it in order (a snapshot under way is finished); a Ctrl-C after that ends
//! it at once, and leaves nothing in the kernel either. The others may come more than once for one reason: SIGHUP from the terminal and from the shell, and SIGTERM as the
//! signal that tells of a parent's death, which comes once for each of its threads.

use crate::exit::Failure;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use nix::unistd::execv;
use rtscope_kernel::tracefs::{Tracefs, TracefsError};
pub use rtscope_session::Stop;
use rtscope_session::StopHandle;
use rtscope_session::record::is_unfinished;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::flag;
use signal_hook::low_level::{self, pipe};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The exit code after a second Ctrl-C.
const ENDED_AT_ONCE: i32 = 128 + SIGINT;
/// What comes within this time after the first Ctrl-C is the same one: timeout(1) sends its signal to the process, and then to its group.
const SAME: Duration = Duration::from_millis(20);
/// How often it is tried to remove instances, every 5 ms.
const SWEEPS: u32 = 100;

static RECORDED: OnceLock<PathBuf> = OnceLock::new();

/// From now on signals ask.
pub fn on_signals() -> Result<Stop, Failure> {
    registered().map_err(|error| Failure::doing("installing signal handlers", error))
}

/// The same from the moment on at which COMMAND has been forked. `asked`: set by SIGUSR1 from then on.
pub fn on_signals_later(asked: Option<Arc<AtomicBool>>) -> Result<Stop, Failure> {
    let begin = |handle: &StopHandle| {
        asked.map_or(Ok(()), |asked| flag::register(SIGUSR1, asked).map(drop))?;
        register(handle)
    };
    Stop::beginning_later(begin).map_err(|error| Failure::doing("installing signal handlers", error))
}

/// The same for a command that has the whole terminal, which it gives back whatever comes: a second Ctrl-C ends nothing by force. `heard`: has who
/// asks, from the moment on at which COMMAND has been forked.
pub fn on_signals_of_screen(heard: Arc<OnceLock<StopHandle>>) -> Result<Stop, Failure> {
    let begin = move |handle: &StopHandle| {
        // Only once, and there is nobody else.
        let _ = heard.set(handle.try_clone()?);
        register_in_order(handle)
    };
    Stop::beginning_later(begin).map_err(|error| Failure::doing("installing signal handlers", error))
}

fn registered() -> io::Result<Stop> {
    let (stop, handle) = Stop::new()?;
    register(&handle).map(|()| stop)
}

fn register(handle: &StopHandle) -> io::Result<()> {
    // First, so that no signal is heard by the thread alone.
    register_in_order(handle)?;
    let (interrupts, tell) = UnixStream::pair()?;
    let (others, tell_others) = UnixStream::pair()?;
    pipe::register(SIGINT, tell)?;
    for signal in [SIGTERM, SIGHUP] {
        pipe::register(signal, tell_others.try_clone()?)?;
    }
    let wait = move || wait_for_force(&interrupts, &others);
    Builder::new().name("rtscope-signals".to_owned()).spawn(wait).map(drop)
}

/// Ends the process at a Ctrl-C that follows another signal. A thread, and no handler: what is left to do then is no matter of a handler.
fn wait_for_force(interrupts: &UnixStream, others: &UnixStream) {
    let (mut is_asked, mut first) = (false, None);
    loop {
        let mut watched = [interrupts, others].map(|stream| PollFd::new(stream.as_fd(), PollFlags::POLLIN));
        if !matches!(poll(&mut watched, PollTimeout::NONE), Ok(_) | Err(Errno::EINTR)) {
            return;
        }
        let has_come = watched.map(|watched| watched.any().unwrap_or(false));
        // Each signal is a byte.
        let count = |mut stream: &UnixStream, has_come: bool| match has_come {
            true => stream.read(&mut [0; 64]).unwrap_or(0),
            false => 0,
        };
        let (interrupts, others) = (count(interrupts, has_come[0]), count(others, has_come[1]));
        // After another signal one is enough.
        let is_another = is_asked || first.is_some_and(|first: Instant| first.elapsed() >= SAME);
        if interrupts > 0 && is_another {
            end_now();
        }
        is_asked |= others > 0;
        first = first.or_else(|| (interrupts > 0).then(Instant::now));
    }
}

/// At once, whatever the other threads are doing, and with nothing left in the kernel. eBPF goes with the process; ftrace's instances do
/// not, and cannot be removed while another thread has a file of theirs open: the process lets go of all of them by becoming another
/// program, which removes them.
fn end_now() {
    if let Some(target) = RECORDED.get().filter(|target| is_unfinished(target)) {
        crate::output::note(&format!(
            "rtscope: ended at once: {0} is not complete; rtscope record --recover {0} makes its trace, or remove it",
            target.display()
        ));
    }
    if rtscope_kernel::tracefs::has_instances() {
        // Of a third Ctrl-C and what comes with it.
        let _ = SigSet::all().thread_block();
        // It only returns where it cannot be; the next run removes them then.
        let _ = execv(c"/proc/self/exe", &[c"rtscope", c"sweep"]);
    }
    low_level::exit(ENDED_AT_ONCE);
}

/// What removes the instances of processes that are gone, among them what this one was.
pub fn sweep() -> ! {
    // Readers may need a moment to go.
    for _ in 0..SWEEPS {
        match Tracefs::find().and_then(|tracefs| tracefs.sweep()) {
            Err(TracefsError::Busy(_)) => std::thread::sleep(Duration::from_millis(5)),
            Ok(_) => break,
            Err(error) => {
                crate::output::note(&format!("rtscope: {error}"));
                break;
            }
        }
    }
    low_level::exit(ENDED_AT_ONCE)
}

/// Where a recording goes, which can be completed when it was ended at once.
pub fn records_to(target: &Path) {
    // There is one.
    let _ = RECORDED.set(target.to_owned());
}

fn register_in_order(handle: &StopHandle) -> io::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, handle.flag())?;
    }
    // After the flag: a thread that is woken finds it set.
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        pipe::register(signal, handle.descriptor()?)?;
    }
    // A file that may grow no more (ulimit -f) would end the process there and then, with all that it has switched on: the write shall
    // fail, as on a full disk. A handler and not SIG_IGN, which programs that are started would inherit. Nobody asks for the flag.
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}
