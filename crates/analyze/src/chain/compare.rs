// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Are the chains that the kernel reported those that the rules find in the recorded events?

use super::tracker::Response;
use rtscope_event::{LateResponse, MonotonicNs, Recording};
use serde::Serialize;

/// A reported response and what the replay found in its place.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// What the kernel reported.
    pub reported: LateResponse,
    /// What the replay found for the same thread and end.
    pub replayed: Response,
}

/// The outcome, response by response.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Comparison {
    /// Reported and found alike, step by step.
    pub equal: u64,
    /// Found, but with another chain.
    pub different: Vec<Difference>,
    /// Reported and not found, though the recording covers them.
    pub missing: Vec<LateResponse>,
    /// Late in the replay and not reported, though the recording covers them.
    pub unreported: Vec<Response>,
    /// Reported, but some CPU's history begins after their origin (or the recording ends before their end).
    pub not_covered: u64,
}

impl Comparison {
    /// No reported chain is contradicted. (What the replay alone found may have been lost in a full ring of reports.)
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.different.is_empty() && self.missing.is_empty()
    }
}

/// Compares reported late responses with the replay of the same time.
#[must_use]
pub fn compare(recording: &Recording, reported: &[LateResponse], replayed: &[Response]) -> Comparison {
    // A chain can cross every CPU, so it is covered from the time on from which all are.
    let since = recording.history.iter().filter_map(|history| history.complete_since).max();
    let until = recording.events.last().map(|event| event.time);
    let covered = |from: MonotonicNs, to: MonotonicNs| {
        since.is_none_or(|since| since <= from) && until.is_some_and(|until| to <= until)
    };
    let mut result = Comparison::default();
    let mut left: Vec<&Response> = replayed.iter().filter(|response| response.late).collect();
    for late in reported {
        // Nearest end first: an exact one when both saw the same events.
        let same = |response: &&Response| response.tid == late.tid && response.end == late.end;
        let distance = |response: &Response| response.end_ns.0.abs_diff(late.end_ns.0);
        let nearest = left
            .iter()
            .enumerate()
            .filter(|(_, response)| same(response) && distance(response) <= NEAR_NS)
            .min_by_key(|(_, response)| distance(response))
            .map(|(index, _)| index);
        let found = nearest.map(|index| left.remove(index));
        match found {
            Some(response) if response.chain == late.chain && response.end_ns == late.end_ns => {
                result.equal += 1
            }
            _ if !covered(late.chain.origin.time_ns, late.end_ns) => result.not_covered += 1,
            Some(response) => {
                result.different.push(Difference { reported: late.clone(), replayed: response.clone() });
            }
            None => result.missing.push(late.clone()),
        }
    }
    let unreported =
        left.into_iter().filter(|response| covered(response.chain.origin.time_ns, response.end_ns));
    result.unreported = unreported.cloned().collect();
    result
}

/// Ends further apart than this are not those of the same response. Both sides see the same time stamps, so this is
/// only for showing what became of a response when they disagree.
const NEAR_NS: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::{
        Chain, Comm, CpuHistory, CpuId, End, Event, EventKind, Origin, OriginKind, Pid, Priority, Step,
        StepKind, Tid, WaitKind,
    };

    fn response(origin: u64, end: u64) -> Response {
        let origin = Origin { kind: OriginKind::Irq, id: 1, cpu: CpuId(0), time_ns: MonotonicNs(origin) };
        let duration_ns = end - origin.time_ns.0;
        let steps =
            vec![Step { kind: StepKind::Run, id: 7, cpu: CpuId(0), duration_ns, wait: WaitKind::None }];
        let chain = Chain { origin, steps, merged: 0, others: vec![], busy: false };
        Response {
            tid: Tid(7),
            end: End::Blocked,
            end_ns: MonotonicNs(end),
            cpu: CpuId(0),
            late: true,
            chain,
        }
    }

    fn late(response: &Response) -> LateResponse {
        LateResponse {
            tracker: rtscope_event::Tracker::Response,
            instance: 0,
            sequence: 1,
            cpu: response.cpu,
            end_ns: response.end_ns,
            end: response.end,
            threshold_ns: 1,
            tid: response.tid,
            pid: Pid(7),
            prio: Priority(10),
            comm: Comm::from("x"),
            snapshot: None,
            chain: response.chain.clone(),
            events: None,
            call: None,
            lock: None,
            block: None,
            section: None,
            stacks: None,
        }
    }

    fn recording(since: u64, until: u64) -> Recording {
        let kind = EventKind::SoftirqExit { vec: 0 };
        let since = Some(MonotonicNs(since));
        Recording {
            events: vec![Event { time: MonotonicNs(until), cpu: CpuId(0), kind }],
            history: vec![CpuHistory { cpu: CpuId(0), complete_since: since, events: 1 }],
            ..Recording::default()
        }
    }

    #[test]
    fn every_outcome_has_its_place() {
        let (a, b, c, d) =
            (response(100, 200), response(300, 400), response(50_000_000, 50_000_100), response(10, 20));
        let mut changed = b.clone();
        changed.chain.steps[0].id = 8;
        let lost = response(90_000_000, 90_000_100);
        let reported = [late(&a), late(&b), late(&lost), late(&d)];
        let result = compare(&recording(50, 100_000_000), &reported, &[a, changed, c]);
        assert_eq!((result.equal, result.different.len(), result.missing.len()), (1, 1, 1));
        assert_eq!((result.unreported.len(), result.not_covered), (1, 1));
        assert!(!result.agrees());
    }
}
