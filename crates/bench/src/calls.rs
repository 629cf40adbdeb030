// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads of one thread on one CPU: nothing but the shortest of system calls, or datagrams to itself, each of which is received in a softirq.

use crate::blocks::Load;
use crate::pipe::Sample;
use anyhow::{Context, Result, bail};
use rtscope_testkit::sched;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The running thread.
#[derive(Debug)]
pub struct Calls {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    calls: AtomicU64,
    is_over: AtomicBool,
}

impl Calls {
    /// The thread's name.
    pub const NAME: &str = "bench-calls";

    /// Starts it on a CPU.
    pub fn start(cpu: usize) -> Result<Calls> {
        Calls::of(cpu, || {
            std::hint::black_box(nix::unistd::getppid());
        })
    }

    /// The same with datagrams over loopback.
    pub fn datagrams(cpu: usize) -> Result<Calls> {
        let socket = UdpSocket::bind("127.0.0.1:0").context("making a socket")?;
        socket.connect(socket.local_addr()?)?;
        Calls::of(cpu, move || {
            let mut byte = [0];
            // What is lost is lost: the next one comes.
            let _ = socket.send(&byte).and_then(|_| socket.recv(&mut byte));
        })
    }

    fn of(cpu: usize, work: impl FnMut() + Send + 'static) -> Result<Calls> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(Calls::NAME.to_owned())
            .spawn(move || call(cpu, &own, work))
            .context("starting a thread")?;
        Ok(Calls { shared, thread: Some(thread) })
    }
}

fn call(cpu: usize, shared: &Shared, mut work: impl FnMut()) {
    // What cannot be pinned is a load on any CPU; the samples are then those of a wrong machine, so it makes no calls.
    if sched::pin_to_cpu(cpu).is_err() {
        return;
    }
    // ORDER: relaxed, here and below; a flag and a number that stand for themselves.
    while !shared.is_over.load(Ordering::Relaxed) {
        for _ in 0..100 {
            work();
        }
        shared.calls.fetch_add(100, Ordering::Relaxed);
    }
}

impl Load for Calls {
    fn sample(&self, length: Duration) -> Result<Sample> {
        // ORDER: as in call().
        let count = || self.shared.calls.load(Ordering::Relaxed);
        let (before, start) = (count(), Instant::now());
        std::thread::sleep(length);
        let (after, elapsed) = (count(), start.elapsed());
        if after == before {
            bail!("the load stands still");
        }
        Ok(Sample {
            switches: after - before,
            ns_per_switch: elapsed.as_nanos() as f64 / (after - before) as f64,
        })
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        // ORDER: as in call().
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic.
            let _ = thread.join();
        }
    }
}
