// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Branches of one thread → entries and exits of its functions.
//!
//! A call enters a function, a return leaves one. The rest is what real programs do besides: a jump to another function is a tail
//! call, a return may leave several functions at once (longjmp, exceptions, a gap), and a thread was in some functions before the trace
//! began. What nobody saw is marked as inferred and never left out: each entry has its exit, in the order of a stack.

use super::classes::{EventClassKind, HardwareEvent};
use crate::program::Functions;
use std::sync::Arc;

/// What kind of branch leads somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchKind {
    /// A call.
    Call,
    /// A return.
    Return,
    /// Another branch.
    Jump,
    /// An interrupt, an exception, or a system call: it comes back.
    Exception,
    /// The return from one of these.
    ExceptionReturn,
    /// One of the two, the instruction alone does not say which: it is a return if it leads to where one of the functions
    /// returns to.
    Far,
}

/// A branch that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Where it is.
    pub from: u64,
    /// The instruction behind it: where a call returns to.
    pub next: u64,
    /// Where it leads.
    pub to: u64,
    /// Its kind.
    pub kind: BranchKind,
}

#[derive(Clone, Debug)]
struct Frame {
    /// Where its function begins, or the address where it was met if that has no function.
    address: u64,
    symbol: Arc<str>,
    /// Where it returns to; `None`: it was entered before anybody looked.
    returns_to: Option<u64>,
}

/// The functions that a thread is in.
#[derive(Clone, Debug, Default)]
pub struct CallStack {
    frames: Vec<Frame>,
    /// Frames that were dropped at the bottom, since recursion was too deep.
    pub dropped: u64,
}

/// Deeper stacks are cut at the bottom.
const DEPTH_MAX: usize = 8192;

impl CallStack {
    /// Of a thread of which nothing is known.
    #[must_use]
    pub fn new() -> CallStack {
        CallStack::default()
    }

    /// How many functions it is in, of those that are known.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// The trace begins or goes on at an address.
    pub fn begin(&mut self, at: u64, functions: &Functions, out: &mut impl FnMut(HardwareEvent)) {
        let is_in =
            |frame: &Frame| functions.at(at).is_some_and(|found| found.function.address == frame.address);
        if !self.frames.last().is_some_and(is_in) {
            self.enter(at, None, true, functions, out);
        }
    }

    /// A branch was taken.
    pub fn edge(&mut self, edge: &Edge, functions: &Functions, out: &mut impl FnMut(HardwareEvent)) {
        if self.frames.is_empty() {
            // It was in a function that nobody saw it enter.
            self.enter(edge.from, None, true, functions, out);
        }
        match edge.kind {
            // A call of the next instruction is how code without a base register finds its address.
            BranchKind::Call if edge.to == edge.next => {}
            BranchKind::Call => self.enter(edge.to, Some(edge.next), false, functions, out),
            BranchKind::Exception => self.enter(edge.to, Some(edge.from), false, functions, out),
            BranchKind::Far if self.frames.iter().any(|frame| frame.returns_to == Some(edge.to)) => {
                self.leave(edge.to, functions, out);
            }
            BranchKind::Far => self.enter(edge.to, Some(edge.next), false, functions, out),
            BranchKind::Return | BranchKind::ExceptionReturn => self.leave(edge.to, functions, out),
            BranchKind::Jump => self.jump(edge.to, functions, out),
        }
    }

    /// What comes next does not follow from what was: all functions end here, as far as anybody knows.
    pub fn interrupt(&mut self, out: &mut impl FnMut(HardwareEvent)) {
        while let Some(frame) = self.frames.pop() {
            out(exit(&frame, true));
        }
    }

    fn enter(
        &mut self,
        to: u64,
        returns_to: Option<u64>,
        inferred: bool,
        functions: &Functions,
        out: &mut impl FnMut(HardwareEvent),
    ) {
        let (address, symbol) = match functions.at(to) {
            Some(found) => (found.function.address, found.function.name.clone()),
            None => (to, format!("{to:#x}").into()),
        };
        if self.frames.len() == DEPTH_MAX {
            // The oldest ends here for the reader; it goes on in truth, which is what inferred says.
            let bottom = self.frames.remove(0);
            self.dropped += 1;
            out(exit(&bottom, true));
        }
        let frame = Frame { address, symbol, returns_to };
        let numbers = [frame.address, inferred.into()];
        out(HardwareEvent::new(EventClassKind::FunctionEntry, &numbers, frame.symbol.clone()));
        self.frames.push(frame);
    }

    /// A return was executed; where it leads comes later ([`CallStack::arrive`]).
    pub fn returned(&mut self, out: &mut impl FnMut(HardwareEvent)) {
        if let Some(frame) = self.frames.pop() {
            out(exit(&frame, false));
        }
    }

    /// Where the return before led.
    pub fn arrive(&mut self, to: u64, functions: &Functions, out: &mut impl FnMut(HardwareEvent)) {
        let found = functions.at(to);
        let is_in = |frame: &Frame| found.is_some_and(|found| found.function.address == frame.address);
        if self.frames.last().is_none_or(is_in) {
            return self.begin(to, functions, out);
        }
        if let Some(place) = self.frames.iter().rposition(|frame| frame.returns_to == Some(to)) {
            // It skipped some (longjmp, exceptions of a language).
            self.cut(place, out);
            return self.begin(to, functions, out);
        }
        if found.is_some_and(|found| found.offset == 0) {
            // A return in the place of an indirect jump, as retpolines have it.
            return self.jump(to, functions, out);
        }
        // Another stack: nobody knows what became of this one.
        self.interrupt(out);
        self.begin(to, functions, out);
    }

    /// Ends frames that were skipped.
    fn cut(&mut self, keep: usize, out: &mut impl FnMut(HardwareEvent)) {
        while self.frames.len() > keep {
            let Some(frame) = self.frames.pop() else { break };
            out(exit(&frame, true));
        }
    }

    fn leave(&mut self, to: u64, functions: &Functions, out: &mut impl FnMut(HardwareEvent)) {
        self.returned(out);
        self.arrive(to, functions, out);
    }

    fn jump(&mut self, to: u64, functions: &Functions, out: &mut impl FnMut(HardwareEvent)) {
        let Some(found) = functions.at(to) else { return };
        let Some(top) = self.frames.last() else { return };
        if found.function.address == top.address || found.offset != 0 {
            // Within the function, or into the middle of another one, which is a part of this one put elsewhere (cold paths).
            return;
        }
        // A tail call: the new function returns to where the old one would have.
        let returns_to = top.returns_to;
        if let Some(frame) = self.frames.pop() {
            out(exit(&frame, false));
        }
        self.enter(to, returns_to, false, functions, out);
    }
}

fn exit(frame: &Frame, inferred: bool) -> HardwareEvent {
    let numbers = [frame.address, inferred.into()];
    HardwareEvent::new(EventClassKind::FunctionExit, &numbers, frame.symbol.clone())
}
