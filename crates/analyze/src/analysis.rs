// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every analysis of a trace of any size is: it takes one event after the other, keeps what its question needs, and has a
//! report at the end. Where the events come from ([`TraceSource`]) it does not know.

use rtscope_event::{EventClass, EventRef, Item, Lost, TraceSource};

/// An analysis.
pub trait Analysis {
    /// What it says at the end.
    type Report;

    /// Whether it needs the events of a class; others need not be decoded.
    fn wants(&self, class: &EventClass) -> bool;

    /// Takes an event. Times never go back.
    fn event(&mut self, event: &EventRef<'_>);

    /// Takes note that something is missing here.
    fn lost(&mut self, lost: &Lost);

    /// There is nothing more.
    fn finish(self) -> Self::Report;
}

/// Runs an analysis over a source, to its end. `progress` is told the source's progress now and then.
pub fn analyze<A: Analysis>(
    source: &mut dyn TraceSource,
    mut analysis: A,
    progress: &mut dyn FnMut(Option<f64>),
) -> A::Report {
    const NOW_AND_THEN: u64 = 1 << 16;
    let mut items = 0_u64;
    loop {
        match source.next() {
            Item::Event(event) => analysis.event(&event),
            Item::Lost(lost) => analysis.lost(&lost),
            Item::NothingBefore(_) => {}
            Item::End => return analysis.finish(),
        }
        items += 1;
        if items % NOW_AND_THEN == 0 {
            progress(source.progress());
        }
    }
}

/// Two analyses in one pass.
impl<A: Analysis, B: Analysis> Analysis for (A, B) {
    type Report = (A::Report, B::Report);

    fn wants(&self, class: &EventClass) -> bool {
        self.0.wants(class) || self.1.wants(class)
    }

    fn event(&mut self, event: &EventRef<'_>) {
        self.0.event(event);
        self.1.event(event);
    }

    fn lost(&mut self, lost: &Lost) {
        self.0.lost(lost);
        self.1.lost(lost);
    }

    fn finish(self) -> Self::Report {
        (self.0.finish(), self.1.finish())
    }
}

/// One that may be absent.
impl<A: Analysis> Analysis for Option<A> {
    type Report = Option<A::Report>;

    fn wants(&self, class: &EventClass) -> bool {
        self.as_ref().is_some_and(|analysis| analysis.wants(class))
    }

    fn event(&mut self, event: &EventRef<'_>) {
        if let Some(analysis) = self {
            analysis.event(event);
        }
    }

    fn lost(&mut self, lost: &Lost) {
        if let Some(analysis) = self {
            analysis.lost(lost);
        }
    }

    fn finish(self) -> Self::Report {
        self.map(A::finish)
    }
}
