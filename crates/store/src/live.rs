// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A conversion behind a recorder that is still recording ([ADR 0021](../../../docs/adr/0021-the-kernels-trace-is-made-behind-its-spool.md)).
//!
//! The recorder says up to which time the files of each CPU are complete. Events are written up to a time that is [`AHEAD_NS`] before the
//! least of these: what comes out of order, or tells a name or a path of an event on another CPU, is there by then. What comes still
//! later is missing from the trace: a name that only the end of the recording knows, the text of a path whose call took longer.

use crate::conversion::{Conversion, Course};
use crate::convert::{ConversionSummary, MARGIN_NS, Options, convert_rest};
use crate::lane::{Lane, LaneExtent, LaneFiles};
use crate::stream::{END_OF_TIME, HORIZON_NS};
use crate::{Error, Spool, SpoolDescription, SpoolPlace};
use rtscope_ctf::RingTrace;
use rtscope_event::{CpuId, MonotonicNs};

/// How much of a spool is there, of what may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpoolShare {
    /// Little, or there is no limit.
    Little,
    /// A file has more than half of what it may: more has to be converted before it is full.
    Much,
    /// A file is full: nothing is added before more has been converted.
    Full,
}

/// Between the newest event that is written and the time up to which the files are complete.
pub const AHEAD_NS: u64 = 10 * HORIZON_NS;
/// A step takes at most this much of the recording: then readers see all CPUs advance, and little is known too early.
const STEP_NS: u64 = 1_000_000_000;

/// A conversion that goes on while the spool grows.
#[derive(Debug)]
pub struct LiveConversion {
    conversion: Conversion,
    until: MonotonicNs,
    is_ring: bool,
}

impl LiveConversion {
    /// `ring`: what limits the trace's size; what has been converted is then freed in the spool. Of a spool that has just been begun, whose trace begins with the first step. `files`: for each CPU. `own`: threads of rtscope, besides those
    /// of the description.
    ///
    /// # Errors
    /// When a format cannot be parsed.
    pub fn new(
        place: SpoolPlace,
        description: SpoolDescription,
        files: &[(CpuId, LaneFiles)],
        own: &[u32],
        ring: Option<RingTrace>,
    ) -> Result<LiveConversion, Error> {
        let mut leave_out = description.leave_out.clone();
        if !leave_out.is_empty() {
            leave_out.extend(own);
        }
        let until = description.started;
        let is_ring = ring.is_some();
        let conversion = Conversion::new(place, description, files, &leave_out, ring)?;
        Ok(LiveConversion { conversion, until, is_ring })
    }

    /// Converts what is complete. `extents`: as far as the files are written, in the order in which they were given; `share`: how much of the
    /// spool is used. Only the thread that calls this works. False: it was cancelled, and can go on.
    ///
    /// # Errors
    /// When a file cannot be read, or the trace cannot be written. The conversion is then to be given up.
    pub fn advance(
        &mut self,
        extents: &[LaneExtent],
        share: SpoolShare,
        options: &Options<'_>,
    ) -> Result<bool, Error> {
        let Some(complete) = extents.iter().map(|extent| extent.complete_until).min() else {
            return Ok(true);
        };
        // An event of a CPU that is far ahead of the others is no impossible one.
        let newest = extents.iter().map(|extent| extent.complete_until).max().unwrap_or(complete);
        for (lane, extent) in self.conversion.lanes.iter_mut().zip(extents) {
            lane.grow(extent, newest.plus(MARGIN_NS));
        }
        // A name or a path may be missing then, and an event be out of order: better than losing events.
        let ahead = match share {
            SpoolShare::Little => AHEAD_NS,
            SpoolShare::Much => HORIZON_NS,
            SpoolShare::Full => 0,
        };
        let most = MonotonicNs(complete.0.saturating_sub(ahead));
        let options = Options { threads: 1, ..*options };
        let course = Course::new(&options, u64::MAX);
        while self.until < most {
            let next = most.min(self.until.plus(STEP_NS));
            // Of a spool that is limited, nothing is left: what was read is what can be freed, and is little.
            let scanned = if self.is_ring { END_OF_TIME } else { next.plus(ahead) };
            if !(self.conversion.scan(scanned, &course)? && self.conversion.write(next, &course)?) {
                return Ok(false);
            }
            self.until = next;
        }
        Ok(true)
    }

    /// Gives back what of the spool will not be read again. For each CPU: bytes of both files that are not there any more.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn free(&mut self) -> Result<Vec<(u64, u64)>, Error> {
        if !self.is_ring {
            return Ok(Vec::new());
        }
        let (place, _) = self.conversion.places();
        let freed = self.conversion.lanes.iter_mut().map(Lane::free).collect::<std::io::Result<_>>();
        freed.map_err(Error::io("free what was converted in", &place.directory.shown))
    }

    /// All events up to this time are in the trace.
    #[must_use]
    pub fn until(&self) -> MonotonicNs {
        self.until
    }

    /// Converts the rest of the recording, which is over, and then removes the spool.
    ///
    /// # Errors
    /// As [`crate::convert()`].
    pub fn finish(self, spool: Spool, options: &Options<'_>) -> Result<ConversionSummary, Error> {
        convert_rest(self.conversion, spool, options)
    }

    /// Gives up: the trace so far is removed, unless it is a ring; the spool stays.
    pub fn abandon(self) {
        self.conversion.remove_trace();
    }
}
