// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A flight recorder of ftrace: two instances as banks, of which one records in a circle.
//!
//! When something happened the other bank is switched on first and this one off a little later, so no event falls between;
//! an event in that time is in both. The frozen bank is read in peace and is then empty. Both have the same events on all
//! the time: switching them at the trigger would take a tenth of a second.
//!
//! Why later: an event calls the banks one after the other. One that asked the other bank just before it was switched on
//! must still find this one on.

use super::enable::EnableFailure;
use super::error::TracefsError;
use super::instance::{Instance, InstanceConfig};
use super::mount::{EventName, Tracefs};
use super::reader::RawReader;
use super::stats::CpuStats;
use rtscope_ftrace::page::PageLayout;
use std::time::Duration;

/// How long both banks are on. The two calls of one event are about 100 ns apart, and nothing but the hypervisor comes
/// between. (System calls since Linux 6.13 are an exception: a task can be preempted between its two. One that then waits
/// longer than this for its CPU loses that event.)
const BOTH_ON: Duration = Duration::from_millis(5);

/// Both banks.
#[derive(Debug)]
pub struct FlightInstances {
    // Before the instances, which cannot be removed while readers are open.
    readers: [Vec<RawReader>; 2],
    banks: [Instance; 2],
    /// What each bank's CPUs had lost when it was read the last time.
    seen: [Vec<CpuStats>; 2],
    active: usize,
}

/// What one CPU recorded until the swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenPages {
    /// The CPU.
    pub cpu: u32,
    /// Its pages, one behind the other, in order of time. The first one says that events are missed before it when the
    /// circle was closed: that is history, not a loss.
    pub pages: Vec<u8>,
    /// Events that could not be recorded since this bank was read the last time; `None`: the kernel does not say.
    pub lost: Option<u64>,
}

impl FlightInstances {
    /// Makes both banks and records in the first one. `prepare` is called for each, before it records: for filters.
    ///
    /// # Errors
    /// See [`TracefsError`]. Nothing is left behind.
    pub fn start(
        tracefs: &Tracefs,
        config: &InstanceConfig,
        events: &[EventName],
        prepare: impl Fn(&Instance) -> Result<(), TracefsError>,
    ) -> Result<(FlightInstances, Vec<EnableFailure>), TracefsError> {
        let config = InstanceConfig { overwrite: true, ..config.clone() };
        let bank = || {
            let instance = Instance::create(tracefs, &config)?;
            let refused = instance.enable(events)?;
            prepare(&instance)?;
            Ok::<_, TracefsError>((instance, refused))
        };
        let ((first, refused), (second, _)) = (bank()?, bank()?);
        let readers = [first.readers()?, second.readers()?];
        first.start()?;
        let flight =
            FlightInstances { readers, banks: [first, second], seen: [Vec::new(), Vec::new()], active: 0 };
        Ok((flight, refused))
    }

    /// How the pages are laid out.
    #[must_use]
    pub fn page_layout(&self) -> PageLayout {
        self.banks[0].page_layout()
    }

    /// Both banks, for what is to be changed in each ([`Instance::exclude_tid`]).
    #[must_use]
    pub fn banks(&self) -> &[Instance; 2] {
        &self.banks
    }

    /// Goes on in the other bank, and reads this one. Recording never stops. Takes 5 ms, and the time to copy the pages.
    ///
    /// # Errors
    /// [`TracefsError::Io`].
    pub fn swap(&mut self) -> Result<Vec<FrozenPages>, TracefsError> {
        let frozen = self.active;
        let other = 1 - frozen;
        self.banks[other].start()?;
        std::thread::sleep(BOTH_ON);
        self.banks[frozen].stop()?;
        self.active = other;
        self.read(frozen)
    }

    /// Records no more, and reads what there is.
    ///
    /// # Errors
    /// [`TracefsError::Io`].
    pub fn stop(mut self) -> Result<Vec<FrozenPages>, TracefsError> {
        self.banks[self.active].stop()?;
        self.read(self.active)
    }

    fn read(&mut self, bank: usize) -> Result<Vec<FrozenPages>, TracefsError> {
        let path = self.banks[bank].path().to_path_buf();
        let mut frozen = Vec::with_capacity(self.readers[bank].len());
        for reader in &mut self.readers[bank] {
            let pages = all_pages(reader)
                .map_err(|error| TracefsError::reading("read a frozen trace buffer", &path, error))?;
            frozen.push(FrozenPages { cpu: reader.cpu(), pages, lost: None });
        }
        let stats = self.banks[bank].stats()?;
        for pages in &mut frozen {
            let now = stats.iter().find(|stats| stats.cpu == pages.cpu);
            let before = self.seen[bank].iter().find(|stats| stats.cpu == pages.cpu);
            pages.lost = now
                .and_then(not_recorded)
                .map(|now| now.saturating_sub(before.and_then(not_recorded).unwrap_or(0)));
        }
        self.seen[bank] = stats;
        Ok(frozen)
    }
}

/// Losses of a buffer that is written in a circle: what was overwritten is none.
fn not_recorded(stats: &CpuStats) -> Option<u64> {
    Some(stats.commit_overrun? + stats.dropped?)
}

fn all_pages(reader: &mut RawReader) -> std::io::Result<Vec<u8>> {
    let page_bytes = reader.page_bytes();
    let mut pages = Vec::new();
    loop {
        let used = pages.len();
        pages.resize(used + page_bytes, 0);
        if !reader.read_page(&mut pages[used..])? {
            pages.truncate(used);
            return Ok(pages);
        }
    }
}
