// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The summary of losses: those found during the conversion, and those that the end of the recording reports.
//!
//! The end's numbers are those of the whole recording, so losses reported by chunks and sub-buffers are part of them; the
//! rest happened after the last of these, at the stream's end. Without an end, that rest is unknown. Events that ftrace
//! dropped because its buffer was full are only in the end's numbers: they were lost somewhere in the recording, and the
//! stream reports that at its beginning. Switches that a host hides are counted by nobody: where the recorded ones contradict each other,
//! that is a gap.

use crate::description::{End, EndLoss, Source, SpoolDescription};
use crate::stream::Tally;
use rtscope_ctf::EventLoss;
use rtscope_event::{CpuId, Loss, LossCause};
use std::collections::BTreeMap;

/// Losses that the end reports of one CPU and one source, beyond those with a known place.
pub(crate) fn rest(end: Option<&End>, cpu: CpuId, bank: &Tally, pages: &Tally) -> u64 {
    let reported = |source, cause| total(end, cpu, source, cause).unwrap_or(0);
    let ebpf = reported(Source::Ebpf, LossCause::BufferFull).saturating_sub(bank.lost);
    let overrun = reported(Source::Ftrace, LossCause::Overrun).saturating_sub(pages.lost);
    let rest = ebpf.saturating_add(overrun);
    // At least one is missing where the kernel could not say how many.
    if pages.lost_unknown { rest.max(1) } else { rest }
}

/// Losses of one CPU whose place in the recording is unknown.
pub(crate) fn anywhere(end: Option<&End>, cpu: CpuId) -> Vec<Loss> {
    let losses = end.map_or(&[][..], |end| &end.losses).iter();
    let dropped = losses.filter(|loss| {
        (loss.source, loss.cause, loss.cpu) == (Source::Ftrace, LossCause::BufferFull, Some(cpu))
    });
    dropped.map(|loss| Loss { cpu: loss.cpu, cause: loss.cause, count: loss.count }).collect()
}

/// No counts are 0; an unknown one makes the sum unknown.
fn sum(mut counts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    counts.try_fold(0_u64, |sum, count| Some(sum.saturating_add(count?)))
}

/// `None`: the end does not report it, or could not read it.
fn total(end: Option<&End>, cpu: CpuId, source: Source, cause: LossCause) -> Option<u64> {
    let told =
        end?.losses.iter().filter(|loss| (loss.cpu, loss.source, loss.cause) == (Some(cpu), source, cause));
    sum(told.map(|loss| loss.count))
}

/// Sums by CPU and cause; `None` once a part of the sum is unknown.
#[derive(Debug, Default)]
pub(crate) struct LossSummary {
    sums: BTreeMap<(Option<CpuId>, LossCause), Option<u64>>,
}

impl LossSummary {
    fn add(&mut self, cpu: Option<CpuId>, cause: LossCause, count: Option<u64>) {
        if count == Some(0) {
            return;
        }
        let sum = self.sums.entry((cpu, cause)).or_insert(Some(0));
        *sum = sum.zip(count).map(|(sum, count)| sum.saturating_add(count));
    }

    /// Adds the losses found on one CPU.
    pub(crate) fn cpu(&mut self, end: Option<&End>, cpu: CpuId, bank: &Tally, pages: &Tally) {
        let place = Some(cpu);
        for met in [bank, pages] {
            self.add(place, LossCause::Unfinished, Some(met.unfinished));
            self.add(place, LossCause::Unreadable, Some(met.unreadable.saturating_add(met.beyond)));
        }
        let overrun = total(end, cpu, Source::Ftrace, LossCause::Overrun);
        let is_told = end.is_some_and(|end| {
            end.losses.iter().any(|loss| {
                (loss.cpu, loss.source, loss.cause) == (place, Source::Ftrace, LossCause::Overrun)
            })
        });
        // Sub-buffers that miss an unknown number: the end's total is the answer, if there is one.
        match (is_told, pages.lost_unknown) {
            (true, _) => self.add(place, LossCause::Overrun, overrun.map(|sum| sum.max(pages.lost))),
            (false, true) => self.add(place, LossCause::Overrun, None),
            (false, false) => self.add(place, LossCause::Overrun, Some(pages.lost)),
        }
        let told = end.map_or(Some(0), |end| {
            let told = end.losses.iter().filter(|loss| {
                (loss.cpu, loss.source, loss.cause) == (place, Source::Ebpf, LossCause::BufferFull)
            });
            sum(told.map(|loss| loss.count))
        });
        self.add(place, LossCause::BufferFull, told.map(|sum| sum.max(bank.lost)));
    }

    /// Adds places where a CPU's switches do not follow each other.
    pub(crate) fn gaps(&mut self, cpu: CpuId, count: u64) {
        self.add(Some(cpu), LossCause::Gap, Some(count));
    }

    /// Adds all other losses that the end reports, or would have reported.
    pub(crate) fn end(&mut self, end: Option<&End>, description: &SpoolDescription) {
        let Some(end) = end else {
            if description.ebpf {
                self.add(None, LossCause::RecursionMiss, None);
                self.add(None, LossCause::BufferFull, None);
            }
            if description.ftrace.is_some() {
                self.add(None, LossCause::Overrun, None);
            }
            return;
        };
        for EndLoss { source, cpu, cause, count, .. } in &end.losses {
            let counted = cpu.is_some()
                && matches!(
                    (source, cause),
                    (Source::Ebpf, LossCause::BufferFull) | (Source::Ftrace, LossCause::Overrun)
                );
            if !counted {
                self.add(*cpu, *cause, *count);
            }
        }
    }

    pub(crate) fn losses(self) -> Vec<Loss> {
        self.sums.into_iter().map(|((cpu, cause), count)| Loss { cpu, cause, count }).collect()
    }
}

/// Losses by event, as far as the end reports them.
pub(crate) fn by_event(end: Option<&End>) -> Vec<EventLoss> {
    let losses = end.map_or(&[][..], |end| &end.losses);
    let named = losses.iter().filter(|loss| loss.count != Some(0)).filter_map(|loss| {
        let event = loss.event.clone()?;
        Some(EventLoss { event, loss: Loss { cpu: loss.cpu, cause: loss.cause, count: loss.count } })
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::MonotonicNs;

    fn reported(source: Source, cause: LossCause, count: Option<u64>) -> EndLoss {
        EndLoss { source, cpu: Some(CpuId(1)), cause, event: None, count }
    }

    fn account(end: Option<&End>, bank: Tally, pages: Tally) -> (Vec<Loss>, u64) {
        let mut account = LossSummary::default();
        account.cpu(end, CpuId(1), &bank, &pages);
        let rest = rest(end, CpuId(1), &bank, &pages);
        (account.losses(), rest)
    }

    #[test]
    fn a_loss_with_a_known_place_is_not_counted_twice() {
        let losses = vec![
            reported(Source::Ebpf, LossCause::BufferFull, Some(7)),
            reported(Source::Ebpf, LossCause::BufferFull, Some(3)),
            reported(Source::Ftrace, LossCause::Overrun, Some(100)),
        ];
        let end = End { ended: MonotonicNs(1), losses, ..End::default() };
        let bank = Tally { lost: 8, ..Tally::default() };
        let pages = Tally { lost: 60, lost_unknown: true, ..Tally::default() };
        let (losses, rest) = account(Some(&end), bank, pages);
        let loss = |cause, count| Loss { cpu: Some(CpuId(1)), cause, count: Some(count) };
        assert_eq!(losses, [loss(LossCause::BufferFull, 10), loss(LossCause::Overrun, 100)]);
        assert_eq!(rest, 2 + 40);
    }

    #[test]
    fn sums_stop_at_the_largest_number() {
        let told = [
            reported(Source::Ebpf, LossCause::BufferFull, Some(u64::MAX)),
            reported(Source::Ftrace, LossCause::Overrun, Some(u64::MAX)),
        ];
        let end = End { losses: [told.clone(), told].concat(), ..End::default() };
        let met = Tally { unreadable: u64::MAX, beyond: 1, unfinished: u64::MAX, ..Tally::default() };
        let (losses, rest) = account(Some(&end), met, met);
        assert_eq!(losses.len(), 4);
        assert!(losses.iter().all(|loss| loss.count == Some(u64::MAX)) && rest == u64::MAX, "{losses:?}");
    }

    #[test]
    fn after_a_kill_losses_found_in_the_spool_are_known_and_the_rest_is_not() {
        let bank = Tally { lost: 8, unreadable: 1, ..Tally::default() };
        let (losses, rest) = account(None, bank, Tally { lost_unknown: true, ..Tally::default() });
        let loss = |cause, count| Loss { cpu: Some(CpuId(1)), cause, count };
        let expected = [
            loss(LossCause::Unreadable, Some(1)),
            loss(LossCause::BufferFull, Some(8)),
            loss(LossCause::Overrun, None),
        ];
        assert_eq!((losses, rest), (expected.to_vec(), 1));
        let mut whole = LossSummary::default();
        let mut description = SpoolDescription::of_this_machine("1").unwrap();
        description.ebpf = true;
        whole.end(None, &description);
        assert!(whole.losses().iter().all(|loss| loss.count.is_none() && loss.cpu.is_none()));
    }

    #[test]
    fn a_count_that_could_not_be_read_is_unknown() {
        let losses = vec![
            reported(Source::Ebpf, LossCause::BufferFull, Some(7)),
            reported(Source::Ebpf, LossCause::BufferFull, None),
        ];
        let end = End { losses, ..End::default() };
        let (losses, _) = account(Some(&end), Tally::default(), Tally::default());
        assert_eq!(losses, [Loss { cpu: Some(CpuId(1)), cause: LossCause::BufferFull, count: None }]);
    }
}
