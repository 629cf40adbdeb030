// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much memory what is open takes, of each user.
//!
//! A beginning waits for its end with its fields and those of its steps, which a program chooses: 65 536 of them with 32 steps of 8 KB each would be
//! 17 GB. Where an open piece of work goes to (its end, the next of its key, those that are given up or forgotten) does not matter: what it holds is
//! given back when it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are held of one user, and of all. One thread counts; it may be another one at another time.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldBytes {
    mine: Arc<AtomicUsize>,
    all: Arc<AtomicUsize>,
}

impl HeldBytes {
    /// For another user, counted together with this one.
    pub(super) fn of_another(&self) -> HeldBytes {
        HeldBytes { mine: Arc::default(), all: Arc::clone(&self.all) }
    }

    /// Of this user.
    pub(super) fn mine(&self) -> usize {
        // ORDER: relaxed; numbers of one thread.
        self.mine.load(Ordering::Relaxed)
    }

    /// Of all users.
    pub(super) fn all(&self) -> usize {
        // ORDER: relaxed; as above.
        self.all.load(Ordering::Relaxed)
    }

    /// Something that holds so many of this user.
    pub(super) fn hold(&self, bytes: usize) -> Held {
        let mut held = Held { of: self.clone(), bytes: 0 };
        held.grow(bytes);
        held
    }
}

/// Gives its bytes back when it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    of: HeldBytes,
    bytes: usize,
}

impl Held {
    /// It holds more.
    pub(super) fn grow(&mut self, bytes: usize) {
        self.bytes += bytes;
        for count in [&self.of.mine, &self.of.all] {
            // ORDER: relaxed; numbers of one thread.
            count.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

/// A copy holds as much again.
impl Clone for Held {
    fn clone(&self) -> Held {
        self.of.hold(self.bytes)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for count in [&self.of.mine, &self.of.all] {
            // ORDER: relaxed; numbers of one thread.
            count.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_given_back_to_its_user() {
        let one = HeldBytes::default();
        let other = one.of_another();
        let mut held = one.hold(10);
        held.grow(5);
        let others = other.hold(7);
        assert_eq!((one.mine(), other.mine(), one.all()), (15, 7, 22));
        drop(held);
        assert_eq!((one.mine(), other.mine(), other.all()), (0, 7, 7));
        drop(others);
        assert_eq!(one.all(), 0);
    }
}
