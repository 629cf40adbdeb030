// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tracker `pair`: which tracepoints its eBPF programs are attached to, and where in their records they find the key.

use super::maps::PAIRS as MAX_PAIRS;
use super::{EbpfPrograms, Error, Follows, TrackerConfig, bpf};
use crate::programs::PAIRS;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, ProgramMut, TracepointCategory};
use rtscope_abi as abi;

/// Two tracepoints that belong together when they have the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracepointPair {
    /// The one that begins a pair.
    pub from: PairSide,
    /// The one that ends it.
    pub to: PairSide,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairSide {
    /// Its subsystem: `sched`.
    pub system: String,
    /// Its name in the subsystem.
    pub name: String,
    /// The key, at most [`abi::RTS_PAIR_PARTS`] parts.
    pub key: Vec<KeyPart>,
    /// Bytes of its record that a report has, at most [`abi::RTS_PAIR_BYTES`].
    pub bytes: u32,
}

/// A part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// An integer in the record.
    Field {
        /// Where.
        offset: u16,
        /// 1, 2, 4 or 8 bytes.
        size: u8,
        /// Whether it has a sign.
        signed: bool,
    },
    /// The thread in which it happens.
    Tid,
    /// Its process.
    Pid,
    /// The CPU on which it happens.
    Cpu,
}

/// The pair that is followed.
pub(super) fn of(trackers: &[TrackerConfig]) -> Result<Option<&TracepointPair>, Error> {
    let mut pairs = trackers.iter().filter_map(|tracker| match &tracker.follows {
        Follows::Pair(pair) => Some(&**pair),
        _ => None,
    });
    let pair = pairs.next();
    match pairs.next() {
        Some(_) => Err(Error::Config("one pair of tracepoints can be followed at once".to_string())),
        None => Ok(pair),
    }
}

/// As the eBPF programs see it.
pub(super) fn sides(trackers: &[TrackerConfig]) -> Result<[abi::rts_pair_side; 2], Error> {
    match of(trackers)? {
        Some(pair) => Ok([side(&pair.from)?, side(&pair.to)?]),
        None => Ok(Default::default()),
    }
}

fn side(of: &PairSide) -> Result<abi::rts_pair_side, Error> {
    let mut side = abi::rts_pair_side { bytes: of.bytes.min(abi::RTS_PAIR_BYTES), ..Default::default() };
    if of.key.len() > side.key.len() {
        return Err(Error::Config(format!("a key of {} parts: at most {}", of.key.len(), side.key.len())));
    }
    for (slot, part) in side.key.iter_mut().zip(&of.key) {
        let (offset, size, kind) = match *part {
            KeyPart::Field { offset, size, signed: true } => (offset, size, abi::RTS_PAIR_SIGNED),
            KeyPart::Field { offset, size, signed: false } => (offset, size, abi::RTS_PAIR_UNSIGNED),
            KeyPart::Tid => (0, 0, abi::RTS_PAIR_TID),
            KeyPart::Pid => (0, 0, abi::RTS_PAIR_PID),
            KeyPart::Cpu => (0, 0, abi::RTS_PAIR_CPU),
        };
        *slot = abi::rts_pair_part { offset, size, kind: kind as u8 };
    }
    Ok(side)
}

/// Attaches a program, whatever it is: those of a pair have no tracepoint of their own.
pub(super) fn attach(
    program: &ProgramMut<'_>,
    name: &str,
    pair: Option<&TracepointPair>,
) -> libbpf_rs::Result<Link> {
    let Some(pair) = pair.filter(|_| PAIRS.contains(&name)) else { return program.attach() };
    let side = if name == PAIRS[0] { &pair.to } else { &pair.from };
    program.attach_tracepoint(TracepointCategory::Custom(side.system.clone()), &*side.name)
}

/// The table of first events that wait for their second.
#[derive(Debug)]
pub struct PairTable(MapHandle);

impl PairTable {
    /// Gives up the older half of what waits, so that what begins now has a place, and says how many those were. One that ends, and begins anew,
    /// just between the look and the removal is given up in place of the old one: its end is then one without a beginning.
    ///
    /// Costs two system calls for each entry that is given up: some 10 ms where the table is full.
    #[must_use]
    pub fn give_up_older_half(&self) -> u64 {
        let begin_ns = |value: &[u8]| Some(u64::from_ne_bytes(value.get(..8)?.try_into().ok()?));
        let all = self.0.lookup_batch(MAX_PAIRS, MapFlags::ANY, MapFlags::ANY).into_iter().flatten();
        let mut waiting: Vec<(u64, Vec<u8>)> =
            all.filter_map(|(key, value)| Some((begin_ns(&value)?, key))).collect();
        // Those with 0 are being taken out just now.
        waiting.retain(|(time_ns, _)| *time_ns > 0);
        waiting.sort_unstable();
        waiting.truncate(waiting.len() / 2);
        let is_same = |time_ns: u64, key: &[u8]| {
            let now = self.0.lookup(key, MapFlags::ANY).ok().flatten();
            now.is_some_and(|value| begin_ns(&value) == Some(time_ns))
        };
        let given_up =
            waiting.iter().filter(|(time_ns, key)| is_same(*time_ns, key) && self.0.delete(key).is_ok());
        given_up.count() as u64
    }
}

impl EbpfPrograms {
    /// The table of the tracker of pairs; `None`: there is no such tracker.
    ///
    /// # Errors
    /// When the map cannot be had.
    pub fn pair_table(&self) -> Result<Option<PairTable>, Error> {
        Ok(self.open_pairs()?.map(PairTable))
    }

    /// First events that wait for their second; `None`: there is no tracker of pairs.
    pub(super) fn open_pairs(&self) -> Result<Option<MapHandle>, Error> {
        let map = self.object.maps().find(|map| self.pair.is_some() && map.name() == "pairs");
        let map = map.map(|map| MapHandle::try_from(&map)).transpose();
        map.map_err(|error| bpf("opening the eBPF map pairs", error, ""))
    }
}
