// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the interrupt came for which a thread sleeps.
//!
//! Two separate eBPF programs instead of the recorder: the waiting thread asks once for each sleep, so there is nothing to store, nothing to empty
//! and nothing to lose, and no reader that would disturb what is measured.

use crate::programs::{EXPIRY, EXPIRY_ENTRY, TIMER_ENTRY};
use crate::{EbpfConfig, EbpfPrograms, Error, caps};
use rtscope_ring::Expiry;

/// The programs, attached. Dropping it takes them out.
#[derive(Debug)]
pub struct TimerWatch {
    session: EbpfPrograms,
    sees_entry: bool,
}

impl TimerWatch {
    /// Loads and attaches them.
    ///
    /// # Errors
    /// As [`EbpfPrograms::start`].
    pub fn start() -> Result<TimerWatch, Error> {
        let sees_entry = caps::Tracepoints::read().has(TIMER_ENTRY);
        let mut only = vec![EXPIRY];
        only.extend(sees_entry.then_some(EXPIRY_ENTRY));
        let session = EbpfPrograms::start(&EbpfConfig { only, ..EbpfConfig::default() })?;
        Ok(TimerWatch { session, sees_entry })
    }

    /// Whether the entry of the interrupt is seen; else it is the entry of the timer's own handler, inside of it.
    #[must_use]
    pub fn sees_entry(&self) -> bool {
        self.sees_entry
    }

    /// How often the kernel skipped a program because it ran already; `None`: not known.
    #[must_use]
    pub fn misses(&self) -> Option<u64> {
        self.session.recursion_misses().into_iter().map(|(_, count)| count).sum()
    }

    /// The words that the waiting thread shares with the programs. Only one thread may wait at a time.
    ///
    /// # Errors
    /// When they cannot be mapped.
    pub fn expiry(&self) -> Result<Expiry, Error> {
        Ok(Expiry::new(self.session.shared_section(".data.expiry", Expiry::bytes())?))
    }
}
