// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Rust program with events, the twin of c/emitter.c: emits them as its arguments ask, and prints how many.
//!
//! `rtscope-emitter MODE COUNT [THREADS]`: count (each thread COUNT events), signals (a handler emits while COUNT events are),
//! fork, clone (a child emits, too), short (threads that end after an event, and emit once more while their thread-local values
//! are dropped), wait (prints "ready" and waits for a line first), mixed (events in C and in Rust), panic (an argument panics),
//! load PATH (a C library emits, too), large (COUNT events, and as many that are larger than a record can be).

use anyhow::{Context, Result, bail, ensure};
use rtscope_probe::event;
use std::cell::Cell;
use std::ffi::CString;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

unsafe extern "C" {
    // Events `test:linked_c` of a C library that is linked into this program (c/linked.c). It takes a number and records events.
    safe fn rtscope_testkit_linked_c(count: u64);
}

fn emit(count: u64, thread: u64) {
    for n in 0..count {
        event!(test, count, n: u64 = n, thread: u64 = thread);
    }
}

/// Events of the handler.
static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handler(_: i32) {
    // ORDER: relaxed; one thread. Not in the event: an argument is evaluated only when the event is recorded.
    let n = HANDLED.fetch_add(1, Ordering::Relaxed);
    event!(test, handler, n: u32 = n);
}

fn with_signals(count: u64) -> Result<u64> {
    let action = nix::sys::signal::SigAction::new(
        nix::sys::signal::SigHandler::Handler(handler),
        nix::sys::signal::SaFlags::SA_RESTART,
        nix::sys::signal::SigSet::empty(),
    );
    // SAFETY: the handler only records an event and counts, which handlers may.
    unsafe { nix::sys::signal::sigaction(nix::sys::signal::Signal::SIGALRM, &action) }?;
    let timer = |us| {
        let each = libc::timeval { tv_sec: 0, tv_usec: us };
        let timer = libc::itimerval { it_interval: each, it_value: each };
        // SAFETY: the structure lives for the call; nothing is returned.
        let result = unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
        ensure!(result == 0, "setitimer: {}", std::io::Error::last_os_error());
        Ok(())
    };
    timer(50)?;
    emit(count, 0);
    timer(0)?;
    // ORDER: relaxed; the handlers ran in this thread.
    Ok(count + u64::from(HANDLED.load(Ordering::Relaxed)))
}

/// A child by fork(), or by a bare clone() of which no library is informed. Three times `count` in all.
fn with_child(count: u64, bare: bool) -> Result<u64> {
    emit(count, 0);
    let child = if bare {
        // SAFETY: as a fork; the child only records and ends.
        unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 }
    } else {
        // SAFETY: there is one thread.
        unsafe { libc::fork() }
    };
    if child == 0 {
        emit(count, 1);
        // SAFETY: it ends this process.
        unsafe { libc::_exit(0) };
    }
    ensure!(child > 0, "no child: {}", std::io::Error::last_os_error());
    nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(child), None)?;
    emit(count, 2);
    Ok(3 * count)
}

struct Last(Cell<u64>);

impl Drop for Last {
    fn drop(&mut self) {
        event!(test, last, n: u64 = self.0.get());
    }
}

thread_local! {
    static LAST: Last = const { Last(Cell::new(0)) };
}

fn short_threads(count: u64) -> Result<u64> {
    for n in 0..count {
        let thread = thread::spawn(move || {
            LAST.with(|last| last.0.set(n));
            emit(1, n);
        });
        ensure!(thread.join().is_ok(), "a thread panicked");
    }
    Ok(2 * count)
}

fn in_threads(count: u64, threads: u64) -> u64 {
    thread::scope(|scope| {
        (0..threads).for_each(|thread| drop(scope.spawn(move || emit(count, thread))));
    });
    count * threads
}

/// The argument of one event panics, which leaves no record; the others are there.
fn with_panic(count: u64) -> Result<u64> {
    std::panic::set_hook(Box::new(|_| ()));
    for n in 0..count {
        let result = std::panic::catch_unwind(|| {
            event!(test, never, n: u64 = n.checked_sub(count).expect("smaller"));
        });
        event!(test, after, panicked: bool = result.is_err());
    }
    Ok(count)
}

fn with_library(path: &str) -> Result<u64> {
    let path = CString::new(path)?;
    // SAFETY: a text that ends; the library's start-up code is the header's.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    ensure!(!library.is_null(), "it cannot be loaded");
    // SAFETY: a library that was just loaded, and a text that ends.
    let function = unsafe { libc::dlsym(library, c"library_emit".as_ptr()) };
    ensure!(!function.is_null(), "it has no library_emit()");
    // SAFETY: that is its type (c/library.c).
    let function =
        unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn(libc::c_ulong)>(function) };
    emit(100, 0);
    function(100);
    emit(100, 1);
    // The library emits two events in an iteration.
    Ok(400)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mode = arguments.first().map_or("count", String::as_str);
    let number = |at: usize, otherwise: u64| arguments.get(at).map_or(Ok(otherwise), |text| text.parse());
    let count = if mode == "load" { 0 } else { number(1, 1000).context("COUNT")? };
    let emitted = match mode {
        "count" => in_threads_or_here(count, number(2, 1).context("THREADS")?),
        "signals" => with_signals(count)?,
        "fork" => with_child(count, false)?,
        "clone" => with_child(count, true)?,
        "short" => short_threads(count)?,
        "wait" => {
            println!("ready");
            std::io::stdin().read_line(&mut String::new())?;
            emit(count, 0);
            count
        }
        "mixed" => {
            emit(count, 0);
            rtscope_testkit_linked_c(count);
            thread::scope(|scope| drop(scope.spawn(|| rtscope_testkit_linked_c(count))));
            3 * count
        }
        "large" => {
            let text = "x".repeat(4000);
            for n in 0..count {
                emit(1, n);
                event!(test, large, a: str(4000) = &text, b: str(4000) = &text, c: str(4000) = &text);
            }
            2 * count
        }
        "panic" => with_panic(count)?,
        "load" => with_library(arguments.get(1).context("a path")?)?,
        _ => bail!("what is '{mode}'?"),
    };
    println!("emitted {emitted}");
    Ok(())
}

fn in_threads_or_here(count: u64, threads: u64) -> u64 {
    if threads > 1 {
        return in_threads(count, threads);
    }
    emit(count, 0);
    count
}
