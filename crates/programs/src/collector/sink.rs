// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where records go: what a recorder has to be for the collector.

use crate::provider::ProviderInfo;
use crate::ring::RingInfo;
use crate::walk::Records;
use std::io;

/// The receiver of providers, rings and records. Indexes count from 0 in the order of the calls.
pub trait Sink {
    /// A provider was found.
    ///
    /// # Errors
    /// When it cannot be stored; that ends the recording.
    fn provider(&mut self, info: &ProviderInfo) -> io::Result<()>;

    /// A ring was found.
    ///
    /// # Errors
    /// As above.
    fn ring(&mut self, info: &RingInfo) -> io::Result<()>;

    /// A ring is over: how many events did not fit since the recording began, and how many records were never finished.
    ///
    /// # Errors
    /// As above.
    fn ring_over(&mut self, _ring: u32, _lost: u64, _unfinished: u64) -> io::Result<()> {
        Ok(())
    }

    /// A process has ended, and all of its files have been found: no more rings come of it, and no descriptions.
    fn process_over(&mut self, _uid: u32, _pid: u32, _birth_ns: u64) {}

    /// Records of some rings are about to come.
    fn begin(&mut self, _: Looks) {}

    /// Whether records cannot be taken for lack of a description, and there is no time to wait: then a look for new files is asked for.
    fn needs_look(&self) -> bool {
        false
    }

    /// Records of a ring. The sink takes as many as it wants, and is called again while it takes some.
    ///
    /// # Errors
    /// As above.
    fn data(&mut self, ring: u32, records: &mut Records<'_>) -> io::Result<()>;

    /// Whether this ring's records are to be taken together with those of others, in the order of their times, by [`Sink::merge`].
    fn shares(&self, _ring: u32) -> bool {
        false
    }

    /// Records of all such rings of a user. As for one ring, the sink takes as many of each as it wants.
    ///
    /// # Errors
    /// As above.
    fn merge(&mut self, rings: &mut [(u32, Records<'_>)]) -> io::Result<()> {
        rings.iter_mut().try_for_each(|(ring, records)| self.data(*ring, records))
    }
}

/// Looks for new files so far: the newest one that was asked for, and the newest one that is complete. What the look after `asked` has not
/// found was not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// Their number.
    pub asked: u64,
    /// Their number.
    pub answered: u64,
}

/// A sink for watching only, or for flight recorders, which store nothing until a snapshot is made.
#[derive(Clone, Copy, Debug)]
pub struct DiscardingSink;

impl Sink for DiscardingSink {
    fn provider(&mut self, _: &ProviderInfo) -> io::Result<()> {
        Ok(())
    }

    fn ring(&mut self, _: &RingInfo) -> io::Result<()> {
        Ok(())
    }

    fn data(&mut self, _: u32, records: &mut Records<'_>) -> io::Result<()> {
        records.chunk();
        Ok(())
    }
}
