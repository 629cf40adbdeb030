// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bounded queue in shared memory between one producer and one consumer: from real-time work to the rest of the system, or the
//! other way. The twin of `include/rtscope/queue.h`: each can be either side of the other's queue.
//!
//! The real-time side makes no system call, takes no lock and never waits: an element that finds the queue full is counted, and
//! the producer goes on. A consumer that is not real-time may sleep ([`Consumer::wait`]); a producer that is not may wake it
//! ([`Producer::wake`]).
//!
//! ```
//! # fn main() -> Result<(), rtscope_queue::Error> {
//! let (mut producer, descriptor) = rtscope_queue::Producer::<[u64; 2]>::create(1024)?;
//! // The other side, here of the same process: it has got the descriptor by fork, over a socket or through /proc/PID/fd.
//! let mut consumer = rtscope_queue::Consumer::<[u64; 2]>::open(descriptor.into())?;
//! assert!(producer.push(&[1, 2]));
//! assert_eq!(consumer.pop(), Some([1, 2]));
//! assert_eq!(consumer.pop(), None);
//! # Ok(())
//! # }
//! ```
//!
//! `positions` is the algorithm (checked by loom), `memory` the layout.

mod memory;
mod positions;

use bytemuck::{AnyBitPattern, NoUninit};
use memory::{Memory, Sealing};
use positions::{BrokenQueue, ConsumerPositions, ProducerPositions};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

/// What can go wrong when a queue is made or opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There can be no such queue.
    #[error(
        "there is no queue of {capacity} elements of {element_bytes} bytes: the capacity is a power of two, at most 2^32"
    )]
    Impossible {
        /// As asked for.
        capacity: u64,
        /// As asked for.
        element_bytes: u32,
    },
    /// The memory holds none.
    #[error("not a queue: {0}")]
    NoQueue(&'static str),
    /// Its elements are others.
    #[error("the queue's elements have {found} bytes, not {wanted}")]
    Elements {
        /// In the queue.
        found: u32,
        /// Of the type.
        wanted: u32,
    },
    /// Both sides have it, and one of them has closed it to others.
    #[error("the queue is sealed: nobody else can open it")]
    Sealed,
    /// Its maker, such as one of an earlier version, lets nobody seal it.
    #[error("the queue cannot be sealed: its maker does not let it be, or its descriptor cannot be written")]
    Unsealable,
    /// The system refused.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
}

/// What a queue can hold: plain bytes, since the other side may write any. At most 8-byte alignment.
pub trait Element: AnyBitPattern + NoUninit {}
impl<T: AnyBitPattern + NoUninit> Element for T {}

fn element_bytes<T>() -> u32 {
    const { assert!(align_of::<T>() <= 8, "places are aligned to 8 bytes") };
    u32::try_from(size_of::<T>()).unwrap_or(u32::MAX)
}

/// How often a consumer that sleeps on an eventfd polls: a wakeup is lost when another process reads the eventfd first.
const LOOK: Duration = Duration::from_millis(100);
/// A consumer that looked more often than that would not sleep.
const PERIOD_MIN: Duration = Duration::from_micros(1);

/// The side that pushes. Belongs to one thread at a time.
#[derive(Debug)]
pub struct Producer<T> {
    memory: Memory,
    filling: ProducerPositions,
    lost: u64,
    broken: bool,
    elements: PhantomData<T>,
}

/// The side that pops. Belongs to one thread at a time.
#[derive(Debug)]
pub struct Consumer<T> {
    memory: Memory,
    emptying: ConsumerPositions,
    broken: bool,
    elements: PhantomData<T>,
}

/// Positions in the memory, tail and head.
fn positions(memory: &Memory) -> (u64, u64) {
    // ORDER: acquire; what the sides did before is seen.
    (memory.header().tail.load(Ordering::Acquire), memory.header().head.load(Ordering::Acquire))
}

impl<T: Element> Producer<T> {
    /// Makes a queue in new memory, touched, and gives the descriptor for the other side.
    ///
    /// # Errors
    /// When there can be no such queue, or the system refuses.
    pub fn create(capacity: u64) -> Result<(Producer<T>, OwnedFd), Error> {
        let (memory, descriptor) = Memory::create(capacity, element_bytes::<T>())?;
        Ok((Producer::on(memory)?, descriptor))
    }

    /// Becomes the producer of a queue that is there; goes on where an earlier one was. For sides that trust each other: one that takes
    /// memory out later makes the other pay for it, up to the size of the queue.
    ///
    /// # Errors
    /// When it is not a queue of such elements, or the system refuses.
    pub fn open(file: File) -> Result<Producer<T>, Error> {
        Producer::on(Memory::open(&file, element_bytes::<T>(), Sealing::Open)?)
    }

    /// The same, of somebody who is not trusted: it is sealed, as by [`Producer::seal`], before any of its memory is touched. When the
    /// other side has it already: nobody else can open it later, such as this process when it is started again.
    ///
    /// # Errors
    /// As those of both.
    pub fn open_sealed(file: File) -> Result<Producer<T>, Error> {
        Producer::on(Memory::open(&file, element_bytes::<T>(), Sealing::Sealed)?)
    }

    /// Closes the queue to others, when both sides have it: nobody else can open it from then on, and nobody, also of the two, can take
    /// memory out of it, for which the other one would pay when it touches it again. `descriptor` is that of this queue. It may be done twice.
    ///
    /// # Errors
    /// When its maker does not let it be sealed, or memory has been taken out already.
    pub fn seal(&self, descriptor: impl AsFd) -> Result<(), Error> {
        self.memory.seal(descriptor)
    }

    fn on(memory: Memory) -> Result<Producer<T>, Error> {
        let (tail, head) = positions(&memory);
        // ORDER: relaxed; only an earlier producer wrote them.
        let (lost, high_water) = (
            memory.header().lost.load(Ordering::Relaxed),
            memory.header().high_water.load(Ordering::Relaxed),
        );
        let filling = ProducerPositions::new(memory.capacity, tail, head, high_water);
        let filling = filling.ok_or(Error::NoQueue("its positions cannot be"))?;
        Ok(Producer { memory, filling, lost, broken: false, elements: PhantomData })
    }

    #[inline]
    fn room(&mut self, wanted: u64) -> u64 {
        self.filling.room(&self.memory.header().head, wanted).unwrap_or_else(|BrokenQueue| {
            self.broken = true;
            0
        })
    }

    #[inline]
    fn publish(&mut self, count: u64) {
        let header = self.memory.header();
        match self.filling.publish(&header.tail, &header.head, count) {
            // ORDER: relaxed; a number for people.
            Ok(true) => header.high_water.store(self.filling.high_water, Ordering::Relaxed),
            Ok(false) => {}
            Err(BrokenQueue) => self.broken = true,
        }
    }

    #[inline]
    fn write(&mut self, position: u64, element: &T) {
        // SAFETY: the place holds an element, is aligned to 8 bytes, and is the producer's until it is published; a consumer that
        // reads it nevertheless breaks the rules of the queue, and gets bytes, which are any T.
        unsafe { self.memory.place(position).cast::<T>().write(*element) };
    }

    /// Pushes an element. False: it is full, and the element is counted as lost.
    #[inline]
    pub fn push(&mut self, element: &T) -> bool {
        if self.room(1) == 0 {
            // Where it began is what stands in the memory: any number.
            self.lost = self.lost.wrapping_add(1);
            // ORDER: relaxed; a number for people.
            self.memory.header().lost.store(self.lost, Ordering::Relaxed);
            return false;
        }
        self.write(self.filling.tail(), element);
        self.publish(1);
        true
    }

    /// Pushes as many as fit, and returns how many. The rest is not counted.
    #[inline]
    pub fn push_some(&mut self, elements: &[T]) -> usize {
        let count = self.room(elements.len() as u64);
        let tail = self.filling.tail();
        for (position, element) in (0..count).zip(elements) {
            self.write(tail.wrapping_add(position), element);
        }
        if count > 0 {
            self.publish(count);
        }
        count as usize
    }

    /// Wakes a consumer that sleeps on this eventfd. For producers that are not real-time: it may make a system call.
    pub fn wake(&self, event: impl AsFd) {
        // ORDER: seq_cst fence; pairs with the one in Consumer::wait(): this sees that it waits, or it sees the element.
        fence(Ordering::SeqCst);
        // ORDER: relaxed; the fence orders it.
        if self.memory.header().waiting.load(Ordering::Relaxed) != 0 {
            // When nobody has read it yet it is full, and wakes already.
            let _ = nix::unistd::write(event, &1_u64.to_ne_bytes());
        }
    }

    /// What the queue says of itself.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters::of(&self.memory, self.broken)
    }
}

impl<T: Element> Consumer<T> {
    /// As [`Producer::create`].
    ///
    /// # Errors
    /// As there.
    pub fn create(capacity: u64) -> Result<(Consumer<T>, OwnedFd), Error> {
        let (memory, descriptor) = Memory::create(capacity, element_bytes::<T>())?;
        Ok((Consumer::on(memory)?, descriptor))
    }

    /// As [`Producer::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(file: File) -> Result<Consumer<T>, Error> {
        Consumer::on(Memory::open(&file, element_bytes::<T>(), Sealing::Open)?)
    }

    /// As [`Producer::open_sealed`].
    ///
    /// # Errors
    /// As there.
    pub fn open_sealed(file: File) -> Result<Consumer<T>, Error> {
        Consumer::on(Memory::open(&file, element_bytes::<T>(), Sealing::Sealed)?)
    }

    /// As [`Producer::seal`].
    ///
    /// # Errors
    /// As there.
    pub fn seal(&self, descriptor: impl AsFd) -> Result<(), Error> {
        self.memory.seal(descriptor)
    }

    fn on(memory: Memory) -> Result<Consumer<T>, Error> {
        let (tail, head) = positions(&memory);
        let emptying = ConsumerPositions::new(memory.capacity, tail, head);
        let emptying = emptying.ok_or(Error::NoQueue("its positions cannot be"))?;
        Ok(Consumer { memory, emptying, broken: false, elements: PhantomData })
    }

    #[inline]
    fn there(&mut self, wanted: u64) -> u64 {
        self.emptying.there(&self.memory.header().tail, wanted).unwrap_or_else(|BrokenQueue| {
            self.broken = true;
            0
        })
    }

    #[inline]
    fn read(&self, position: u64) -> T {
        // SAFETY: the place holds an element and is aligned to 8 bytes, and any bytes are a T. A producer that writes it before it was
        // given back breaks the rules of the queue; then it is a T of some of these bytes and some of those.
        unsafe { self.memory.place(position).cast::<T>().read_volatile() }
    }

    /// Pops the oldest element.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.there(1) == 0 {
            return None;
        }
        let element = self.read(self.emptying.head());
        self.emptying.give_back(&self.memory.header().head, 1);
        Some(element)
    }

    /// Appends up to `most` of the oldest elements, and says how many there were.
    pub fn pop_some(&mut self, into: &mut Vec<T>, most: usize) -> usize {
        let count = self.there(most as u64);
        let head = self.emptying.head();
        into.extend((0..count).map(|at| self.read(head.wrapping_add(at))));
        if count > 0 {
            self.emptying.give_back(&self.memory.header().head, count);
        }
        count as usize
    }

    /// Sleeps until there is an element, for at most `timeout` (`None`: for ever). For consumers that are not real-time. With an
    /// eventfd that the producer wakes (it also polls ten times a second, since others may have read it); without, or where
    /// it cannot be read, it looks every `period`, a microsecond at least. True: there is an element.
    pub fn wait(
        &mut self,
        mut event: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
        period: Duration,
    ) -> bool {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        while self.there(1) == 0 {
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if self.broken || left.is_zero() {
                return false;
            }
            let Some(descriptor) = event else {
                std::thread::sleep(left.min(period.max(PERIOD_MIN)));
                continue;
            };
            // ORDER: relaxed; the fence behind it orders it.
            self.waiting().store(1, Ordering::Relaxed);
            // ORDER: seq_cst fence; see Producer::wake().
            fence(Ordering::SeqCst);
            // Without the descriptor it polls, instead of asking in vain again and again.
            if self.there(1) == 0 && !self.broken && !sleep_on(descriptor, left) {
                event = None;
            }
            // ORDER: relaxed; a wake too many does no harm.
            self.waiting().store(0, Ordering::Relaxed);
        }
        true
    }

    fn waiting(&self) -> &AtomicU32 {
        &self.memory.header().waiting
    }

    /// What the queue says of itself.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters::of(&self.memory, self.broken)
    }
}

/// Until it can be read, or for this time, but for a tenth of a second at most; what was written is taken. False: it cannot be
/// waited for.
fn sleep_on(event: BorrowedFd<'_>, time: Duration) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut descriptors = [PollFd::new(event, PollFlags::POLLIN)];
    let time = time.min(LOOK).as_millis().saturating_add(1);
    let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
    // Interrupted or not: the caller looks again.
    if !poll(&mut descriptors, timeout).is_ok_and(|ready| ready > 0) {
        return true;
    }
    let mut count = 0_u64;
    let into = libc::iovec { iov_base: (&raw mut count).cast(), iov_len: size_of::<u64>() };
    // Not a plain read(): another process with the descriptor may have read it since, and then that would wait for ever.
    // SAFETY: the kernel writes into the eight bytes of `count`, which lives throughout, and keeps no pointer; -1: no position.
    let read = unsafe { libc::preadv2(event.as_raw_fd(), &raw const into, 1, -1, libc::RWF_NOWAIT) };
    read > 0 || read < 0 && nix::errno::Errno::last() == nix::errno::Errno::EAGAIN
}

/// What a queue says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Elements in it now.
    pub length: u64,
    /// Elements that were pushed.
    pub pushed: u64,
    /// Elements that found it full.
    pub lost: u64,
    /// Most elements at a time, from an eighth of the capacity on; 0: it was never so full.
    pub high_water: u64,
    /// The other side wrote what cannot be; nothing is pushed or popped any more.
    pub is_broken: bool,
}

impl Counters {
    fn of(memory: &Memory, is_broken: bool) -> Counters {
        let header = memory.header();
        // The head first: a tail that is read later is never behind it. ORDER: acquire; keeps them in order.
        let head = header.head.load(Ordering::Acquire);
        let pushed = header.tail.load(Ordering::Acquire);
        Counters {
            length: pushed.wrapping_sub(head).min(memory.capacity),
            pushed,
            // ORDER: relaxed; numbers for people.
            lost: header.lost.load(Ordering::Relaxed),
            high_water: header.high_water.load(Ordering::Relaxed),
            is_broken,
        }
    }
}
