// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A fault for tests to find: a thread of theirs that keeps its CPU to itself inside the kernel, for as long as they say.

use crate::{EbpfConfig, EbpfPrograms, Error};
use rtscope_ring::SharedMemory;

/// What the thread keeps away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinKind {
    /// Other tasks; it spins when it gives itself a name.
    Unpreempted,
    /// Interrupts; it spins when it wakes another thread.
    Uninterrupted,
}

/// The eBPF program that spins, attached. Dropping it takes it out.
#[derive(Debug)]
pub struct Spin {
    _programs: EbpfPrograms,
    words: SharedMemory,
}

/// `spin` in bpf/tools/test.bpf.h: four words.
const BYTES: usize = 32;

impl Spin {
    /// Loads and attaches it. Nobody spins yet.
    ///
    /// # Errors
    /// As [`EbpfPrograms::start`].
    pub fn start(kind: SpinKind) -> Result<Spin, Error> {
        let only = match kind {
            SpinKind::Unpreempted => vec!["test_spin_unpreempted"],
            SpinKind::Uninterrupted => vec!["test_spin_uninterrupted"],
        };
        let programs = EbpfPrograms::start(&EbpfConfig { only, ..EbpfConfig::default() })?;
        let words = programs.shared_section(".data.spin", BYTES)?;
        Ok(Spin { _programs: programs, words })
    }

    /// This thread spins for so long, once: the next time that it does such a thing, or an interrupt that interrupts it.
    pub fn set(&self, tid: u32, for_ns: u64) {
        // ORDER: release; the time is there before the thread is. The program reads it without order, on another CPU perhaps, in a call that
        // the thread makes later.
        self.words.store_release(8, for_ns);
        self.words.store_release(0, u64::from(tid));
    }

    /// From when to when it spun last, `CLOCK_MONOTONIC`. To be asked by that thread, after its call.
    #[must_use]
    pub fn last(&self) -> (u64, u64) {
        (self.words.load(16), self.words.load(24))
    }
}
