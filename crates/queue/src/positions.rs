// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The algorithm, without memory: which side may use which places. Over any atomics, so that loom's can check every order.
//!
//! Positions only grow; a place is the position modulo the capacity. Each side remembers what it last saw of the other and looks again
//! only when that is not enough. What the other side writes is checked: it may be another process, and wrong.

/// A shared word that one side writes.
pub trait Word {
    /// ORDER: acquire; pairs with [`Word::publish`] of the other side: what that one did before is seen.
    fn see(&self) -> u64;
    /// ORDER: release; see [`Word::see`].
    fn publish(&self, value: u64);
}

impl Word for std::sync::atomic::AtomicU64 {
    #[inline]
    fn see(&self) -> u64 {
        // ORDER: as the trait says.
        self.load(std::sync::atomic::Ordering::Acquire)
    }

    #[inline]
    fn publish(&self, value: u64) {
        // ORDER: as the trait says.
        self.store(value, std::sync::atomic::Ordering::Release);
    }
}

/// The other side wrote a position that cannot be: the queue is not used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenQueue;

/// The producer's positions.
#[derive(Debug)]
pub struct ProducerPositions {
    capacity: u64,
    tail: u64,
    head_seen: u64,
    broken: bool,
    /// The most elements at a time, from an eighth of the capacity on.
    pub high_water: u64,
}

impl ProducerPositions {
    /// From where the queue stands. `None`: that cannot be.
    pub fn new(capacity: u64, tail: u64, head: u64, high_water: u64) -> Option<ProducerPositions> {
        let filling = ProducerPositions { capacity, tail, head_seen: head, broken: false, high_water };
        (tail.wrapping_sub(head) <= capacity).then_some(filling)
    }

    /// The position of the next element.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// How many elements fit, up to `wanted`.
    #[inline]
    pub fn room(&mut self, head: &impl Word, wanted: u64) -> Result<u64, BrokenQueue> {
        let mut room = self.capacity - self.tail.wrapping_sub(self.head_seen);
        if room < wanted {
            self.look(head)?;
            room = self.capacity - self.tail.wrapping_sub(self.head_seen);
        }
        Ok(room.min(wanted))
    }

    #[cold]
    fn look(&mut self, head: &impl Word) -> Result<(), BrokenQueue> {
        let seen = head.see();
        if self.broken || self.tail.wrapping_sub(seen) > self.capacity {
            // For good, and as if it were full: so it is found out here, where it is slow anyway.
            self.broken = true;
            self.head_seen = self.tail.wrapping_sub(self.capacity);
            return Err(BrokenQueue);
        }
        self.head_seen = seen;
        Ok(())
    }

    /// Hands over `count` elements, which have been written. True: `high_water` has grown.
    #[inline]
    pub fn publish(&mut self, tail: &impl Word, head: &impl Word, count: u64) -> Result<bool, BrokenQueue> {
        self.tail = self.tail.wrapping_add(count);
        tail.publish(self.tail);
        // As far as is known, which may be old: asked only where it could be a new record.
        let more = |filling: &ProducerPositions| {
            let length = filling.tail.wrapping_sub(filling.head_seen);
            (length > filling.high_water && length > (filling.capacity - 1) >> 3).then_some(length)
        };
        if more(self).is_none() {
            return Ok(false);
        }
        self.look(head)?;
        let Some(length) = more(self) else { return Ok(false) };
        self.high_water = length;
        Ok(true)
    }
}

/// The consumer's positions.
#[derive(Debug)]
pub struct ConsumerPositions {
    capacity: u64,
    head: u64,
    tail_seen: u64,
    broken: bool,
}

impl ConsumerPositions {
    /// From where the queue stands. `None`: that cannot be.
    pub fn new(capacity: u64, tail: u64, head: u64) -> Option<ConsumerPositions> {
        (tail.wrapping_sub(head) <= capacity).then_some(ConsumerPositions {
            capacity,
            head,
            tail_seen: tail,
            broken: false,
        })
    }

    /// The position of the oldest element.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// How many elements there are, up to `wanted`.
    #[inline]
    pub fn there(&mut self, tail: &impl Word, wanted: u64) -> Result<u64, BrokenQueue> {
        let mut there = self.tail_seen.wrapping_sub(self.head);
        if there < wanted {
            let seen = tail.see();
            there = seen.wrapping_sub(self.head);
            if self.broken || there > self.capacity {
                // As in ProducerPositions: for good, and as if it were empty.
                self.broken = true;
                self.tail_seen = self.head;
                return Err(BrokenQueue);
            }
            self.tail_seen = seen;
        }
        Ok(there.min(wanted))
    }

    /// Gives back the places of `count` elements, which have been read.
    #[inline]
    pub fn give_back(&mut self, head: &impl Word, count: u64) {
        self.head = self.head.wrapping_add(count);
        head.publish(self.head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    use loom::thread;

    impl Word for AtomicU64 {
        fn see(&self) -> u64 {
            // ORDER: as the trait says.
            self.load(Ordering::Acquire)
        }

        fn publish(&self, value: u64) {
            // ORDER: as the trait says.
            self.store(value, Ordering::Release);
        }
    }

    struct Queue {
        tail: AtomicU64,
        head: AtomicU64,
        places: [UnsafeCell<u64>; 2],
        waiting: AtomicBool,
        woken: AtomicBool,
    }

    fn queue() -> Arc<Queue> {
        Arc::new(Queue {
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            places: [UnsafeCell::new(0), UnsafeCell::new(0)],
            waiting: AtomicBool::new(false),
            woken: AtomicBool::new(false),
        })
    }

    impl Queue {
        fn put(&self, filling: &mut ProducerPositions, values: &[u64]) -> usize {
            let count = filling.room(&self.head, values.len() as u64).expect("nobody lies");
            for (at, value) in values.iter().take(count as usize).enumerate() {
                let place = &self.places[(filling.tail() + at as u64) as usize & 1];
                // SAFETY: what the test is about; loom finds the order in which it is not.
                place.with_mut(|place| unsafe { *place = *value });
            }
            if count > 0 {
                filling.publish(&self.tail, &self.head, count).expect("nobody lies");
            }
            count as usize
        }

        fn take(&self, emptying: &mut ConsumerPositions, wanted: u64) -> Vec<u64> {
            let count = emptying.there(&self.tail, wanted).expect("nobody lies");
            let value = |at: u64| {
                let place = &self.places[(emptying.head() + at) as usize & 1];
                // SAFETY: as in put().
                place.with(|place| unsafe { *place })
            };
            let values: Vec<u64> = (0..count).map(value).collect();
            if count > 0 {
                emptying.give_back(&self.head, count);
            }
            values
        }
    }

    /// In every order that the memory model allows: what comes out is what went in, and no place is used by both at a time.
    #[test]
    fn elements_come_out_once_and_in_order_in_every_execution() {
        for batch in [1, 2] {
            loom::model(move || {
                let queue = queue();
                let theirs = Arc::clone(&queue);
                let producer = thread::spawn(move || {
                    let mut filling = ProducerPositions::new(2, 0, 0, 0).expect("it can be");
                    let mut pushed = Vec::new();
                    for first in [1, 3] {
                        let values = [first, first + 1];
                        for part in values.chunks(batch) {
                            let count = theirs.put(&mut filling, part);
                            pushed.extend(&part[..count]);
                        }
                    }
                    pushed
                });
                let mut emptying = ConsumerPositions::new(2, 0, 0).expect("it can be");
                let mut popped = queue.take(&mut emptying, batch as u64);
                popped.extend(queue.take(&mut emptying, batch as u64));
                let pushed = producer.join().expect("no panic");
                while popped.len() < pushed.len() {
                    let more = queue.take(&mut emptying, 2);
                    assert!(!more.is_empty(), "what was pushed is there");
                    popped.extend(more);
                }
                assert_eq!(popped, pushed);
            });
        }
    }

    /// Either the producer sees that the consumer waits, or the consumer sees the element: it never sleeps beside one.
    #[test]
    fn no_wakeup_is_missed_in_any_execution() {
        loom::model(|| {
            let queue = queue();
            let theirs = Arc::clone(&queue);
            let producer = thread::spawn(move || {
                let mut filling = ProducerPositions::new(2, 0, 0, 0).expect("it can be");
                theirs.put(&mut filling, &[7]);
                fence(Ordering::SeqCst);
                // ORDER: relaxed; the fences order it.
                if theirs.waiting.load(Ordering::Relaxed) {
                    theirs.woken.store(true, Ordering::Relaxed);
                }
            });
            let mut emptying = ConsumerPositions::new(2, 0, 0).expect("it can be");
            // ORDER: relaxed; as above.
            queue.waiting.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let sleeps = emptying.there(&queue.tail, 1).expect("nobody lies") == 0;
            producer.join().expect("no panic");
            // ORDER: relaxed; after the join.
            assert!(!sleeps || queue.woken.load(Ordering::Relaxed), "it sleeps, and nobody wakes it");
        });
    }

    #[test]
    fn positions_that_cannot_be_are_refused() {
        use std::sync::atomic::AtomicU64;
        assert!(ProducerPositions::new(8, 9, 0, 0).is_none() && ConsumerPositions::new(8, 0, 1).is_none());
        let mut filling = ProducerPositions::new(8, 8, 0, 0).expect("it can be");
        assert_eq!(filling.room(&AtomicU64::new(9), 1), Err(BrokenQueue));
        assert_eq!(filling.room(&AtomicU64::new(8), 1), Err(BrokenQueue), "for good");
        assert_eq!(
            ConsumerPositions::new(8, 3, 3).expect("it can be").there(&AtomicU64::new(11), 100),
            Ok(8)
        );
        for wrong in [12, 2] {
            let mut emptying = ConsumerPositions::new(8, 3, 3).expect("it can be");
            assert_eq!(emptying.there(&AtomicU64::new(wrong), 1), Err(BrokenQueue));
            assert_eq!(emptying.there(&AtomicU64::new(11), 1), Err(BrokenQueue), "for good");
        }
    }

    #[test]
    fn positions_may_wrap() {
        use std::sync::atomic::AtomicU64;
        let (tail, head) = (AtomicU64::new(u64::MAX - 1), AtomicU64::new(u64::MAX - 1));
        let mut filling = ProducerPositions::new(4, u64::MAX - 1, u64::MAX - 1, 0).expect("it can be");
        let mut emptying = ConsumerPositions::new(4, u64::MAX - 1, u64::MAX - 1).expect("it can be");
        for _ in 0..5 {
            assert_eq!(filling.room(&head, 9), Ok(4));
            assert_eq!(filling.publish(&tail, &head, 4).map(|_| filling.high_water), Ok(4));
            assert_eq!(filling.room(&head, 1), Ok(0));
            assert_eq!(emptying.there(&tail, 9), Ok(4));
            emptying.give_back(&head, 4);
        }
    }
}
