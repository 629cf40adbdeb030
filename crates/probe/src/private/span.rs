// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A span that has begun: its end is recorded when it is dropped.

#[cfg(not(rtscope_disabled))]
use super::Event;

/// What `span!` gives.
#[must_use = "the span ends where this is dropped: let _span = span!(...)"]
pub struct Span {
    #[cfg(not(rtscope_disabled))]
    end: &'static Event,
}

impl Span {
    /// With the event of its end.
    #[cfg(not(rtscope_disabled))]
    #[inline(always)]
    pub fn new(end: &'static Event) -> Span {
        Span { end }
    }

    /// Where events are disabled.
    #[cfg(rtscope_disabled)]
    #[inline(always)]
    pub fn nothing() -> Span {
        Span {}
    }
}

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(not(rtscope_disabled))]
        let enabled = self.end.enabled();
        #[cfg(not(rtscope_disabled))]
        if enabled != 0 {
            self.end.record(&(), enabled);
        }
    }
}
