// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether an event is selected, by its class and its fields. Its time is looked at by those who know the clock.

use super::cursor::{Cursor, Damage};
use super::select::Verdict;
use super::values::Filler;
use rtscope_event::ValueBuffer;

/// Memory for the fields that conditions ask for.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    values: ValueBuffer,
    packet_values: ValueBuffer,
    /// Packet that `packet_values` are of.
    packet_serial: u64,
}

impl Judge {
    /// Of the event whose header the cursor has read, and its time (nanoseconds since the clock's origin).
    #[inline]
    pub(crate) fn wants(
        &mut self,
        verdict: Option<&Verdict>,
        cursor: &mut Cursor<'_>,
        time_ns: i64,
    ) -> Result<bool, Damage> {
        let asking = match verdict {
            Some(Verdict::No) | None => return Ok(false),
            Some(Verdict::Yes) => return Ok(true),
            Some(Verdict::Ask(asking)) => asking,
        };
        self.values.clear();
        self.values.begin(asking.plan.fields.len());
        cursor.peek(&asking.plan, &mut Filler(&mut self.values))?;
        if self.packet_serial != cursor.serial {
            self.packet_serial = cursor.serial;
            self.packet_values.clear();
            self.packet_values.begin(asking.packet.fields.len());
            cursor.show_context(&asking.packet, &mut Filler(&mut self.packet_values));
        }
        Ok(asking.holds(&self.values.current(), &self.packet_values.current(), time_ns))
    }
}
