// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals that end a watch or a recording. The first one ends it in order (a snapshot under way is finished); a Ctrl-C after that ends
//! it at once. The others may come more than once for one reason: SIGHUP from the terminal and from the shell, and SIGTERM as the
//! signal that tells of a parent's death, which comes once for each of its threads.

use crate::exit::Failure;
pub use rtscope_session::Stop;
use rtscope_session::StopHandle;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::flag;
use signal_hook::low_level::pipe;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

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
    // Before the next: a second Ctrl-C finds the flag set and ends the process.
    flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, handle.flag())?;
    register_in_order(handle)
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
