// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What has begun and waits for its end, by key; of too many the oldest are forgotten.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// At most this many wait at once.
const MOST: usize = 1 << 16;
/// Entries of those that have ended are removed from the order once there are more than this, and than those that wait.
const ENDED_MAX: usize = 1 << 10;

/// Beginnings.
#[derive(Clone, Debug)]
pub(crate) struct Pending<K, V> {
    begun: HashMap<K, (u64, V)>,
    /// In order of time; those that have ended may still be there.
    order: VecDeque<(u64, K)>,
    next: u64,
    most: usize,
    /// Those that had to make room.
    pub(crate) forgotten: u64,
}

impl<K, V> Default for Pending<K, V> {
    fn default() -> Pending<K, V> {
        Pending { begun: HashMap::new(), order: VecDeque::new(), next: 0, most: MOST, forgotten: 0 }
    }
}

impl<K: Clone + Eq + Hash, V> Pending<K, V> {
    /// Begins; returns the one of this key that has not ended.
    pub(crate) fn begin(&mut self, key: K, value: V) -> Option<V> {
        let number = self.next;
        self.next += 1;
        if self.order.len() >= 2 * self.begun.len().max(ENDED_MAX.min(self.most)) {
            self.order.retain(|(number, key)| self.begun.get(key).is_some_and(|(known, _)| known == number));
        }
        self.order.push_back((number, key.clone()));
        let before = self.begun.insert(key, (number, value));
        if self.begun.len() > self.most {
            self.forget_oldest();
        }
        before.map(|(_, value)| value)
    }

    /// Removes the oldest, to make room.
    pub(crate) fn forget_oldest(&mut self) {
        while let Some((number, key)) = self.order.pop_front() {
            if self.begun.get(&key).is_some_and(|(known, _)| *known == number) {
                self.begun.remove(&key);
                self.forgotten += 1;
                return;
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.begun.len()
    }

    pub(crate) fn end(&mut self, key: &K) -> Option<V> {
        self.begun.remove(key).map(|(_, value)| value)
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.begun.get(key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.begun.get_mut(key).map(|(_, value)| value)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.begun.values().map(|(_, value)| value)
    }

    /// Removes those for which this is true, and gives them.
    pub(crate) fn take_if(&mut self, mut is_meant: impl FnMut(&V) -> bool) -> Vec<V> {
        let begun = std::mem::take(&mut self.begun);
        let (taken, left): (HashMap<K, (u64, V)>, _) =
            begun.into_iter().partition(|(_, (_, value))| is_meant(value));
        self.begun = left;
        taken.into_values().map(|(_, value)| value).collect()
    }

    /// Removes all, and gives them.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = V> {
        self.order.clear();
        std::mem::take(&mut self.begun).into_values().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_the_oldest_are_forgotten() {
        let mut pending = Pending { most: 3, ..Pending::default() };
        for key in 0..100 {
            assert_eq!(pending.begin(key, key), None);
            if key % 2 == 0 {
                assert_eq!(pending.end(&key), Some(key));
            }
        }
        let mut left: Vec<i32> = pending.values().copied().collect();
        left.sort_unstable();
        assert_eq!((left, pending.forgotten), (vec![95, 97, 99], 47));
        assert!(pending.order.len() <= 6);
        assert_eq!(pending.begin(97, 1), Some(97));
        assert_eq!(pending.take_if(|value| *value == 95), [95]);
        assert_eq!((pending.get(&95), pending.get(&99)), (None, Some(&99)));
        assert_eq!(pending.take_all().count(), 2);
        assert_eq!(pending.get(&97), None);
    }
}
