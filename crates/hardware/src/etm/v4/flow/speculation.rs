// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the unit says afterwards of elements that were not sure: that they did not count, that an atom was the other one, that it has discarded all of them
//! (IHI 0064, 4.4). What did count is committed, in order (`flow`).

use super::{Flow, Waiting, waiting_atoms};
use crate::etm::element::{ElementSink, Gap, Transaction};
use alloc::collections::VecDeque;

impl<S: ElementSink> Flow<S> {
    /// Takes the newest P0 elements away, with all between them but times and events.
    pub(super) fn cancel(&mut self, here: u64, elements: u32) {
        let mut left = elements;
        let mut kept = VecDeque::new();
        while left > 0 {
            let Some((offset, waiting)) = self.queue.pop_back() else {
                self.lose(here, Gap::BadPacket);
                return;
            };
            match waiting {
                Waiting::Atoms(mut atoms) => {
                    let removed = left.min(u32::from(atoms.count));
                    left -= removed;
                    atoms.count -= removed as u8;
                    atoms.bits &= (1 << atoms.count) - 1;
                    if atoms.count > 0 {
                        self.queue.push_back((offset, waiting_atoms(atoms)));
                    }
                }
                Waiting::Plain(_) => kept.push_front((offset, waiting)),
                _ => left -= u32::from(self.is_p0(&waiting)),
            }
        }
        self.queue.append(&mut kept);
        self.depth = self.depth.saturating_sub(elements);
    }

    fn is_p0(&self, waiting: &Waiting) -> bool {
        match waiting {
            Waiting::Unseen | Waiting::Atoms(_) | Waiting::Exception(..) | Waiting::Reset => true,
            Waiting::SourceAddress(_)
            | Waiting::Q(..)
            | Waiting::FunctionReturn
            | Waiting::ExceptionReturn(true) => true,
            Waiting::Transaction(Transaction::Start) => self.config.transaction_start_is_p0(),
            _ => false,
        }
    }

    /// Turns the newest atom; addresses after it were those of the path that was not taken.
    pub(super) fn mispredict(&mut self, here: u64) {
        let mut place = self.queue.len();
        while place > 0 {
            place -= 1;
            match &mut self.queue[place].1 {
                Waiting::Atoms(atoms) if atoms.count > 0 => {
                    atoms.bits ^= 1 << (atoms.count - 1);
                    return;
                }
                Waiting::Unseen => return,
                Waiting::Address(_) => {
                    self.queue.remove(place);
                }
                _ => {}
            }
        }
        self.lose(here, Gap::BadPacket);
    }

    /// The unit discarded what is not sure.
    pub(super) fn discard(&mut self, offset: u64, overflow: bool) {
        while let Some((offset, waiting)) = self.queue.pop_front() {
            if let Waiting::Plain(element) = waiting {
                self.plain(offset, element);
            }
        }
        let seen_marker = self.seen_marker;
        self.lose(offset, if overflow { Gap::Overflow } else { Gap::Discard });
        self.seen_marker = seen_marker;
        self.after_overflow = overflow;
    }
}
