// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a call site has, and how it writes a record.

use super::Fields;
use super::header::{self, Header};
use core::ffi::c_char;
use core::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence,
};

/// `struct rtscope__event`, and what keeps the call site's entry in the list of all events.
#[repr(C)]
pub struct Event {
    /// The word that enables it; the header's start-up code sets where, a collector writes it.
    enabled: AtomicPtr<u32>,
    text: *const c_char,
    id: AtomicU32,
    /// How many debuggers and tracers want its USDT probe: they write it.
    semaphore: AtomicU16,
    zero: u16,
    /// Never read: a linker that keeps the event has to keep its place, too.
    _place: &'static Place,
}

const _: () = assert!(core::mem::offset_of!(Event, semaphore) == 20, "as the probe's note says");

// SAFETY: `text` is a constant; all that changes is atomic.
unsafe impl Sync for Event {}

/// An event in the section rtscope_events_2, where the header looks for all.
#[repr(transparent)]
pub struct Place(#[allow(dead_code, reason = "the header reads it")] &'static Event);

impl Place {
    /// Of an event.
    #[must_use]
    pub const fn new(event: &'static Event) -> Place {
        Place(event)
    }
}

impl Event {
    /// Of a description that ends in NUL.
    #[must_use]
    pub const fn new(text: &'static str, place: &'static Place) -> Event {
        Event {
            enabled: AtomicPtr::new(header::off()),
            text: text.as_ptr().cast(),
            id: AtomicU32::new(0),
            semaphore: AtomicU16::new(0),
            zero: 0,
            _place: place,
        }
    }

    /// Whether a collector wants it: 0, or a word that says where it goes. Above 0: to the thread's ring (`rtscope__goes_to_ring`).
    #[inline(always)]
    #[must_use]
    pub fn enabled(&self) -> i32 {
        // ORDER: relaxed, as in the header: start-up code made all that is read on the strength of it.
        let word = self.enabled.load(Ordering::Relaxed);
        // SAFETY: it points to the header's constant or into its mapping, which stays as long as it is pointed to.
        let word = unsafe { AtomicI32::from_ptr(word.cast()) };
        // ORDER: as above.
        word.load(Ordering::Relaxed)
    }

    /// Whether a tool has put a probe here.
    #[inline(always)]
    #[must_use]
    pub fn is_probed(&self) -> bool {
        // ORDER: relaxed; another process writes it, and nothing hangs on when it is seen.
        self.semaphore.load(Ordering::Relaxed) != 0
    }

    /// Writes a record that a collector has asked for, if it has, and if it fits. A loss is counted. `enabled`: as [`Event::enabled`] has said.
    #[inline(always)]
    pub fn record<F: Fields>(&self, fields: &F, enabled: i32) {
        let bytes = fields.bytes();
        let padded = bytes.next_multiple_of(8);
        // ORDER: relaxed; set before the event was enabled.
        let id = self.id.load(Ordering::Relaxed);
        // One comparison, whether it is wanted or not.
        let Header { place, open } = if enabled > 0 {
            header::reserve(id, padded as u64 + 8)
        } else if enabled < 0 {
            header::reserve_elsewhere(id, padded as u64 + 8)
        } else {
            return;
        };
        if place.is_null() {
            return;
        }
        if padded != bytes {
            // SAFETY: the last word of the payload, which is reserved for this thread, and aligned.
            let last = unsafe { place.add(padded - 8) };
            // SAFETY: as above.
            unsafe { last.cast::<u64>().write(0) };
        }
        // SAFETY: `padded` bytes are reserved there, at least those that the fields have.
        unsafe { fields.write(place) };
        // SAFETY: a record's word is before its payload.
        let at = unsafe { place.sub(8) };
        // SAFETY: it is aligned and stays mapped until the thread ends; all other accesses to it are atomic.
        let at = unsafe { AtomicU64::from_ptr(at.cast()) };
        // ORDER: relaxed; this thread has written it.
        let word = at.load(Ordering::Relaxed) & !header::OPEN;
        // ORDER: release; pairs with the collector's acquire load of the word, which then sees the payload.
        at.store(word, Ordering::Release);
        if open.is_null() {
            // SAFETY: the record is the one that was reserved above, and complete.
            unsafe { header::commit(place) };
        } else {
            // SAFETY: it is in the thread's page, which stays as long as the thread; all accesses to it are atomic.
            let open = unsafe { AtomicUsize::from_ptr(open) };
            // ORDER: signal fence; pairs with a handler's look at it in rtscope__reserve(): the record is complete.
            compiler_fence(Ordering::Release);
            // ORDER: relaxed; as above.
            open.store(0, Ordering::Relaxed);
        }
    }
}
