// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the timer interrupt of a thread came: `struct rts_expiry`, which the thread itself reads after each sleep.

use crate::SharedMemory;
use rtscope_abi as abi;
use rtscope_event::MonotonicNs;
use std::mem::{offset_of, size_of};

/// The words that the thread and the eBPF programs share.
#[derive(Debug)]
pub struct Expiry {
    memory: SharedMemory,
}

/// The interrupt of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerInterrupt {
    /// When its handler was entered.
    pub entered: MonotonicNs,
    /// On which CPU.
    pub cpu: u32,
}

impl Expiry {
    /// Over a writable mapping of the map `.data.expiry`.
    #[must_use]
    pub fn new(memory: SharedMemory) -> Expiry {
        Expiry { memory }
    }

    /// Bytes to map.
    #[must_use]
    pub fn bytes() -> usize {
        size_of::<abi::rts_expiry>()
    }

    /// The thread whose timers are watched.
    pub fn watch(&self, tid: u32) {
        self.memory.store_release_u32(offset_of!(abi::rts_expiry, tid), tid);
    }

    /// The thread is about to sleep until then.
    pub fn wait_for(&self, wanted: MonotonicNs) {
        self.memory.store_release(offset_of!(abi::rts_expiry, wanted_ns), wanted.0);
    }

    /// The interrupt for which it slept; `None` when it was not seen.
    #[must_use]
    pub fn fired(&self, wanted: MonotonicNs) -> Option<TimerInterrupt> {
        if self.memory.load_acquire(offset_of!(abi::rts_expiry, fired_ns)) != wanted.0 {
            return None;
        }
        let mut halves = [0; 1];
        self.memory.copy(offset_of!(abi::rts_expiry, tid), &mut halves);
        let bytes = halves[0].to_ne_bytes();
        let cpu = u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        Some(TimerInterrupt {
            entered: MonotonicNs(self.memory.load(offset_of!(abi::rts_expiry, entered_ns))),
            cpu,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_interrupt_that_was_waited_for_counts() {
        let memory = SharedMemory::anonymous(Expiry::bytes()).expect("memory");
        let expiry = Expiry::new(memory.share());
        expiry.watch(7);
        let tid = offset_of!(abi::rts_expiry, tid);
        assert_eq!(memory.load(tid & !7) >> (tid % 8 * 8) & 0xffff_ffff, 7);
        expiry.wait_for(MonotonicNs(100));
        assert_eq!(expiry.fired(MonotonicNs(100)), None);
        memory.store_release(offset_of!(abi::rts_expiry, entered_ns), 120);
        memory.store_release_u32(offset_of!(abi::rts_expiry, cpu), 3);
        memory.store_release(offset_of!(abi::rts_expiry, fired_ns), 100);
        assert_eq!(
            expiry.fired(MonotonicNs(100)),
            Some(TimerInterrupt { entered: MonotonicNs(120), cpu: 3 })
        );
        assert_eq!(expiry.fired(MonotonicNs(200)), None);
    }
}
