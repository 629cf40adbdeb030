// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Late responses that can be looked at: of each key the worst and the newest ones, with what explains them.

use rtscope_analyze::explain::Explanation;
use rtscope_analyze::keyed::Key;
use rtscope_event::LateResponse;
use rtscope_session::hist::HistKey;
use std::collections::{BTreeMap, VecDeque};

/// Keys of which late responses are kept: some MiB at most.
const KEYS: usize = 512;
/// The newest of a key.
const NEWEST: usize = 4;

/// A late response.
#[derive(Clone, Debug)]
pub(super) struct LateEntry {
    pub late: LateResponse,
    /// Once there is one.
    pub explanation: Option<Explanation>,
}

/// Those of one key.
#[derive(Clone, Debug, Default)]
pub(super) struct LateOfKey {
    /// All that came, also those that are not kept.
    pub count: u64,
    pub worst: Option<LateEntry>,
    newest: VecDeque<LateEntry>,
}

impl LateOfKey {
    fn add(&mut self, late: &LateResponse) {
        self.count += 1;
        let entry = LateEntry { late: late.clone(), explanation: None };
        let worst_ns = self.worst.as_ref().map_or(0, |worst| worst.late.response_ns());
        if late.response_ns() > worst_ns {
            self.worst = Some(entry.clone());
        }
        self.newest.push_back(entry);
        if self.newest.len() > NEWEST {
            self.newest.pop_front();
        }
    }

    /// The newest that has an explanation, or else the newest; unless that is the worst.
    pub fn newest(&self) -> Option<&LateEntry> {
        let explained = self.newest.iter().rev().find(|entry| entry.explanation.is_some());
        let worst = self.worst.as_ref().map(|worst| id_of(&worst.late));
        explained.or(self.newest.back()).filter(|entry| Some(id_of(&entry.late)) != worst)
    }

    fn explain(&mut self, explanation: &Explanation) {
        let id = (explanation.instance, explanation.cpu.0, explanation.sequence);
        for entry in self.newest.iter_mut().chain(&mut self.worst) {
            if id_of(&entry.late) == id {
                entry.explanation = Some(explanation.clone());
            }
        }
    }
}

/// What a report is called on its machine.
fn id_of(late: &LateResponse) -> (u8, u32, u64) {
    (late.instance, late.cpu.0, late.sequence)
}

/// Of all keys.
#[derive(Clone, Debug, Default)]
pub(super) struct LateStore {
    pub all: LateOfKey,
    by_key: BTreeMap<Key, LateOfKey>,
}

impl LateStore {
    pub fn add(&mut self, by: HistKey, late: &LateResponse) {
        self.all.add(late);
        let Some(key) = by.of_late(late) else { return };
        if self.by_key.len() >= KEYS && !self.by_key.contains_key(&key) {
            // That of which nothing came for the longest time.
            let end_ns = |of: &LateOfKey| of.newest.back().map(|entry| entry.late.end_ns);
            let oldest = self.by_key.iter().min_by_key(|(_, of)| end_ns(of)).map(|(key, _)| *key);
            oldest.iter().for_each(|oldest| drop(self.by_key.remove(oldest)));
        }
        self.by_key.entry(key).or_default().add(late);
    }

    pub fn explain(&mut self, explanation: &Explanation) {
        self.all.explain(explanation);
        self.by_key.values_mut().for_each(|of| of.explain(explanation));
    }

    /// Those of a row.
    pub fn of(&self, by: HistKey, key: Option<Key>) -> Option<&LateOfKey> {
        match key {
            None => Some(&self.all),
            Some(key) => self.by_key.get(&by.same(key)),
        }
    }
}

/// Whether reports say to which row they belong.
pub(super) fn is_told_apart(by: HistKey, tracker: rtscope_event::Tracker) -> bool {
    let is_of_file = by == HistKey::Device && tracker != rtscope_event::Tracker::Block;
    !is_of_file && by != HistKey::Cgroup && by != HistKey::Field
}
