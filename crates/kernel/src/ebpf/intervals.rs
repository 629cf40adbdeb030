// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What trackers of intervals follow at an instant: read from the eBPF map that they keep it in, without a system call.

use super::instances::interval_kinds;
use super::maps::{PAIRS, REQUESTS, TASK_WAYS, task_sets};
use super::{EbpfConfig, EbpfPrograms, Error, Follows, bpf, map_memory};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use rtscope_abi as abi;
use rtscope_event::{LateResponse, MonotonicNs, Tracker};
use rtscope_ring::SharedMemory;
use std::mem::{offset_of, size_of};

const BYTES: usize = size_of::<abi::rts_interval>();

/// The map, mapped.
#[derive(Debug)]
pub struct OpenIntervals {
    /// `None`: no tracker of intervals runs.
    memory: Option<SharedMemory>,
    kinds: Vec<Tracker>,
    /// Block requests; `None`: nobody follows them.
    requests: Option<MapHandle>,
    /// Pairs of tracepoints; `None`: nobody follows them.
    pairs: Option<MapHandle>,
}

impl EbpfPrograms {
    /// What is under way in the tasks that trackers of intervals follow, and in block devices.
    ///
    /// # Errors
    /// When a map cannot be had.
    pub fn open_intervals(&self, config: &EbpfConfig) -> Result<OpenIntervals, Error> {
        let kinds = interval_kinds(&config.trackers);
        let bytes = task_sets() * TASK_WAYS * kinds.len() * BYTES;
        let memory = match bytes {
            0 => None,
            _ => Some(map_memory(&self.object, "intervals", bytes, false)?),
        };
        let follows_blocks = config.trackers.iter().any(|tracker| tracker.follows == Follows::Blocks);
        let requests = self.object.maps().find(|map| follows_blocks && map.name() == "requests");
        let requests = requests.map(|map| MapHandle::try_from(&map)).transpose();
        let requests = requests.map_err(|error| bpf("opening the eBPF map requests", error, ""))?;
        Ok(OpenIntervals { memory, kinds, requests, pairs: self.open_pairs()? })
    }
}

impl OpenIntervals {
    /// What began more than `least_ns` before `now` and has not ended, as reports of tasks of which the tracker knows the number only.
    ///
    /// While trackers run, an entry may change under the reader: one that is not twice the same is left out, so it may be missing from
    /// a look; what hangs does not change. Costs a load for each task that there could be, so it is not for every poll.
    #[must_use]
    pub fn pending(&self, now: MonotonicNs, least_ns: u64) -> Vec<LateResponse> {
        let mut all = pending_in(self.requests.as_ref(), REQUESTS, |words| {
            rtscope_ring::pending_request(words, now).filter(|late| late.response_ns() > least_ns)
        });
        all.extend(pending_in(self.pairs.as_ref(), PAIRS, |words| {
            rtscope_ring::pending_pair(words, now).filter(|late| late.response_ns() > least_ns)
        }));
        all.extend(self.pending_intervals(now, least_ns));
        all
    }

    /// First events of pairs that wait for their second, in all.
    #[must_use]
    pub fn open_pairs(&self) -> u64 {
        pending_in(self.pairs.as_ref(), PAIRS, |_| Some(())).len() as u64
    }

    fn pending_intervals(&self, now: MonotonicNs, least_ns: u64) -> Vec<LateResponse> {
        let Some(memory) = &self.memory else { return Vec::new() };
        let entries = memory.bytes() / BYTES;
        let link = offset_of!(abi::rts_interval, link);
        let origin = offset_of!(abi::rts_interval, chain) + offset_of!(abi::rts_chain, origin_ns);
        let is_open = |entry: &usize| {
            let at = entry * BYTES;
            memory.load(at + link) as u8 != abi::RTS_INTERVAL_NONE as u8
                && now.0.saturating_sub(memory.load(at + origin)) > least_ns
        };
        let read = |entry: usize| {
            let (mut words, mut again) = ([0; BYTES / 8], [0; BYTES / 8]);
            memory.copy(entry * BYTES, &mut words);
            memory.end_of_copy();
            memory.copy(entry * BYTES, &mut again);
            let tracker = self.kinds[entry % self.kinds.len()];
            (words == again).then(|| rtscope_ring::pending(tracker, &words, now)).flatten()
        };
        (0..entries).filter(is_open).filter_map(read).collect()
    }
}

/// What there is in a hash. In one call, which gives each place once: from key to key, one that goes away under the reader would begin the walk
/// anew, without end where they come and go all the time.
fn pending_in<T>(map: Option<&MapHandle>, entries: u32, read: impl Fn(&[u64]) -> Option<T>) -> Vec<T> {
    let Some(map) = map else { return Vec::new() };
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    let all = map.lookup_batch(entries, MapFlags::ANY, MapFlags::ANY).into_iter().flatten();
    all.filter_map(|(_, value)| read(&value.chunks_exact(8).map(word).collect::<Vec<u64>>())).collect()
}
