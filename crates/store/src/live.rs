// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A conversion behind a recorder that is still recording ([ADR 0021](../../../docs/adr/0021-the-kernels-trace-is-made-behind-its-spool.md)).
//!
//! The recorder says up to which time the files of each CPU are complete. Events are written up to a time that is [`AHEAD_NS`] before the
//! least of these: what comes out of order, or tells a name or a path of an event on another CPU, is there by then. What comes still
//! later is missing from the trace: a name that only the end of the recording knows, the text of a path whose call took longer.

use crate::conversion::{Conversion, Course};
use crate::convert::{ConversionSummary, MARGIN_NS, Options, convert_rest};
use crate::lane::{LaneExtent, LaneFiles};
use crate::stream::HORIZON_NS;
use crate::{Error, Spool, SpoolDescription, SpoolPlace};
use rtscope_event::{CpuId, MonotonicNs};

/// Between the newest event that is written and the time up to which the files are complete.
pub const AHEAD_NS: u64 = 10 * HORIZON_NS;
/// A step takes at most this much of the recording: then readers see all CPUs advance, and little is known too early.
const STEP_NS: u64 = 1_000_000_000;

/// A conversion that goes on while the spool grows.
#[derive(Debug)]
pub struct LiveConversion {
    conversion: Conversion,
    until: MonotonicNs,
}

impl LiveConversion {
    /// Of a spool that has just been begun, whose trace begins with the first step. `files`: for each CPU. `own`: threads of rtscope, besides those
    /// of the description.
    ///
    /// # Errors
    /// When a format cannot be parsed.
    pub fn new(
        place: SpoolPlace,
        description: SpoolDescription,
        files: &[(CpuId, LaneFiles)],
        own: &[u32],
    ) -> Result<LiveConversion, Error> {
        let mut leave_out = description.leave_out.clone();
        if !leave_out.is_empty() {
            leave_out.extend(own);
        }
        let until = description.started;
        let conversion = Conversion::new(place, description, files, &leave_out)?;
        Ok(LiveConversion { conversion, until })
    }

    /// Converts what is complete. `extents`: as far as the files are written, in the order in which they were given. Only the thread that
    /// calls this works. False: it was cancelled, and can go on.
    ///
    /// # Errors
    /// When a file cannot be read, or the trace cannot be written. The conversion is then to be given up.
    pub fn advance(&mut self, extents: &[LaneExtent], options: &Options<'_>) -> Result<bool, Error> {
        let Some(complete) = extents.iter().map(|extent| extent.complete_until).min() else {
            return Ok(true);
        };
        // An event of a CPU that is far ahead of the others is no impossible one.
        let newest = extents.iter().map(|extent| extent.complete_until).max().unwrap_or(complete);
        for (lane, extent) in self.conversion.lanes.iter_mut().zip(extents) {
            lane.grow(extent, newest.plus(MARGIN_NS));
        }
        let most = MonotonicNs(complete.0.saturating_sub(AHEAD_NS));
        let options = Options { threads: 1, ..*options };
        let course = Course::new(&options, u64::MAX);
        while self.until < most {
            let next = most.min(self.until.plus(STEP_NS));
            if !(self.conversion.scan(next.plus(AHEAD_NS), &course)?
                && self.conversion.write(next, &course)?)
            {
                return Ok(false);
            }
            self.until = next;
        }
        Ok(true)
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

    /// Gives up: the trace so far is removed, the spool stays.
    pub fn abandon(self) {
        self.conversion.remove_trace();
    }
}
