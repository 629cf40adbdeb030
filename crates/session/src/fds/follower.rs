// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs in the kernel, and the analysis behind them.

use crate::Failure;
use rtscope_analyze::descriptors::{DescriptorLimits, DescriptorQuery, DescriptorReport, Descriptors};
use rtscope_event::{DescriptorChange, DescriptorLosses, DescriptorRecord, MonotonicNs, Pid};
use rtscope_flight::monotonic_now;
use rtscope_kernel::{DescriptorPrograms, DescriptorSettings};

/// Least time between two scans that are there to mend holes.
const SCAN_INTERVAL_NS: u64 = 1_000_000_000;

/// Follows descriptors.
#[derive(Debug)]
pub struct Follower {
    programs: DescriptorPrograms,
    descriptors: Descriptors,
    read: u64,
    scans: u64,
    last_scan: MonotonicNs,
    /// What made the last scan necessary.
    holes: u64,
    is_detached: bool,
}

impl Follower {
    /// Begins: from here on nothing is missed, and what there was before is told.
    ///
    /// # Errors
    /// What keeps the kernel from it.
    pub fn start(settings: &DescriptorSettings, limits: DescriptorLimits) -> Result<Follower, Failure> {
        let programs = DescriptorPrograms::start(settings)?;
        let mut follower = Follower {
            programs,
            descriptors: Descriptors::new(limits),
            read: 0,
            scans: 0,
            last_scan: MonotonicNs(0),
            holes: 0,
            is_detached: false,
        };
        follower.scan()?;
        Ok(follower)
    }

    /// Follows this process, too, and its children from now on.
    ///
    /// # Errors
    /// When there is no room for its number.
    pub fn follow(&self, pid: Pid) -> Result<(), Failure> {
        Ok(self.programs.follow(pid)?)
    }

    fn scan(&mut self) -> Result<(), Failure> {
        let Follower { programs, descriptors, read, .. } = self;
        let holes = programs.losses().holes() + descriptors.counts().files_not_known;
        descriptors.begin_scan();
        let mut gives_by_read = false;
        programs.scan(&mut |record| {
            gives_by_read |= is_fanotify(&record);
            *read += 1;
            descriptors.record(&record);
        })?;
        descriptors.end_scan();
        if gives_by_read {
            programs.expect_reads();
        }
        self.scans += 1;
        self.last_scan = monotonic_now();
        self.holes = holes;
        Ok(())
    }

    /// Takes what has come. Whether something is missing since the last scan.
    pub fn look(&mut self) -> bool {
        let Follower { programs, descriptors, read, .. } = self;
        *read += programs.read_told(&mut |record| descriptors.record(&record));
        descriptors.advance(monotonic_now());
        self.programs.losses().holes() + self.descriptors.counts().files_not_known > self.holes
    }

    /// The same, and has all told again where something is missing, at most once a second. Whether it did.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn follow_up(&mut self) -> Result<bool, Failure> {
        let is_due = monotonic_now().since(self.last_scan) >= SCAN_INTERVAL_NS;
        let does = self.look() && is_due && !self.is_detached;
        if does {
            self.scan()?;
        }
        Ok(does)
    }

    /// Takes all that was told until now: a program may just be telling it. Mends what is missing.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn catch_up(&mut self) -> Result<(), Failure> {
        let until = self.programs.records();
        let mut has_holes = self.look();
        while self.read < until {
            std::thread::yield_now();
            has_holes |= self.look();
        }
        has_holes |= self.descriptors.has_undescribed();
        if has_holes && !self.is_detached {
            self.scan()?;
        }
        Ok(())
    }

    /// Takes the programs off: what has come is there, and nothing else comes.
    pub fn detach(&mut self) {
        self.programs.detach();
        self.is_detached = true;
        self.look();
    }

    /// What is known now.
    #[must_use]
    pub fn report(&self, query: &DescriptorQuery) -> DescriptorReport {
        self.descriptors.report(query)
    }

    /// What is missing.
    #[must_use]
    pub fn losses(&self) -> DescriptorLosses {
        self.programs.losses()
    }

    /// How often all was told, and how many records there were.
    #[must_use]
    pub fn effort(&self) -> (u64, u64) {
        (self.scans, self.read)
    }

    /// Whether what io_uring does is seen.
    #[must_use]
    pub fn follows_io_uring(&self) -> bool {
        self.programs.follows_io_uring()
    }
}

fn is_fanotify(record: &DescriptorRecord) -> bool {
    let DescriptorChange::Slot(slot) = &record.change else { return false };
    slot.description.as_ref().is_some_and(|description| description.name == "anon_inode:[fanotify]")
}
