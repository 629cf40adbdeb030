// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What ran up to an element that says an address of its own: an exception, a Q element, a source address. Atoms say directions only (`flow`).

use super::{Flow, TAIL_CHAIN, Waiting};
use crate::etm::element::{Element, ElementSink, Gap};
use crate::etm::isa::{Isa, Kind};
use crate::etm::v4::config::Profile;
use crate::etm::v4::packet::{Address, Context};
use crate::etm::walk::Block;

impl<S: ElementSink> Flow<S> {
    /// The address packet that an exception or a Q element waits for; a context may come before it.
    pub(super) fn following_address(&mut self, here: u64) -> Option<(Option<(Context, bool)>, Address)> {
        let mut context = None;
        if let Some(&(_, Waiting::Context(found, is1))) = self.queue.front() {
            context = Some((found, is1));
            self.queue.pop_front();
        }
        if let Some(&(_, Waiting::Address(address))) = self.queue.front() {
            self.queue.pop_front();
            return Some((context, address));
        }
        self.lose(here, Gap::BadPacket);
        None
    }

    /// What ran up to the exception's return address, then the exception.
    pub(super) fn exception(&mut self, offset: u64, number: u16, branch: bool) {
        let Some((context, address)) = self.following_address(offset) else { return };
        if branch {
            let is_64_bit = context.map_or(self.isa == Isa::A64, |(context, _)| context.is_64_bit);
            let isa = match (address.is1, is_64_bit) {
                (true, _) => Isa::T32,
                (false, true) => Isa::A64,
                (false, false) => Isa::A32,
            };
            self.go(address.value, isa);
        }
        if let Some((context, is1)) = context {
            self.context(offset, &context, is1);
        }
        let tail = self.config.profile == Profile::M && address.value == TAIL_CHAIN;
        let known = !self.needs_address || self.no_memory;
        if known && !self.needs_context && self.address < address.value && !tail {
            let start = self.address;
            let block = self.walker.to(self.spaces, self.isa, start, address.value);
            if block.complete {
                self.range(offset, start, self.isa, true, &block);
                self.address = block.end;
                self.isa = block.last.next;
            } else {
                self.without_memory(offset, start, &block);
            }
        }
        let return_address = (!tail).then_some(address.value);
        self.sink.element(offset, &Element::Exception { number, return_address });
    }

    /// Instructions without atoms: a path only where there is no branch, or the last is one.
    pub(super) fn q(&mut self, offset: u64, count: Option<u32>, address: Option<Address>) {
        let (context, address) = match address {
            Some(address) => (None, address),
            None => match self.following_address(offset) {
                Some(found) => found,
                None => return,
            },
        };
        let start = self.address;
        if !self.needs_address && !self.needs_context {
            let (mut block, mut walked) = (Block { end: start, ..Block::default() }, 0);
            let wanted = count.unwrap_or(0).min(1 << 16);
            let mut is_branch = false;
            while walked < wanted && !is_branch {
                let Some(last) = self.walker.instruction(self.spaces, self.isa, block.end) else { break };
                walked += 1;
                block.end = block.end.wrapping_add(u64::from(last.size));
                (block.instructions, block.last) = (walked, last);
                is_branch = matches!(last.kind, Kind::Direct | Kind::Indirect);
            }
            if count == Some(walked) && walked > 0 && (is_branch || block.end == address.value) {
                self.range(offset, start, self.isa, true, &block);
            } else {
                let start = Some(start);
                let unknown = Element::UnknownPath { start, end: address.value, instructions: count };
                self.sink.element(offset, &unknown);
            }
        } else {
            let start = (!self.needs_address).then_some(start);
            let unknown = Element::UnknownPath { start, end: address.value, instructions: count };
            self.sink.element(offset, &unknown);
        }
        self.go(address.value, self.isa_of(address.is1));
        self.returns.address();
        if let Some((context, is1)) = context {
            self.context(offset, &context, is1);
        }
    }

    /// A waypoint at this address was executed, with everything from where we are to it.
    pub(super) fn source_address(&mut self, offset: u64, address: &Address) {
        let isa = self.isa;
        let Some(last) = self.walker.instruction(self.spaces, isa, address.value) else {
            self.sink.element(offset, &Element::NoMemory { address: address.value });
            return;
        };
        let end = address.value.wrapping_add(u64::from(last.size));
        let mut start = self.address;
        if self.needs_address || start > address.value {
            self.needs_address = false;
            start = address.value;
        }
        let mut block = Block { end, instructions: 1, last, complete: true };
        if end.wrapping_sub(start) > u64::from(last.size) {
            if isa == Isa::T32 {
                let walked = self.walker.to(self.spaces, isa, start, end);
                if walked.complete {
                    block.instructions = walked.instructions;
                } else {
                    self.sink.element(offset, &Element::NoMemory { address: walked.end });
                    start = address.value;
                }
            } else {
                block.instructions = u32::try_from((end - start) / 4).unwrap_or(u32::MAX);
            }
        }
        self.address = end;
        self.take(&last, isa);
        self.range(offset, start, isa, true, &block);
    }
}
