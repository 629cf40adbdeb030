// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Along the program, as far as the trace says.
//!
//! Nothing is walked ahead: after the last branch that is known, the walk stands at its target, since the next packet may be
//! an interrupt at any instruction from there on.

use super::super::code::{BlockEnd, Memory, NONE};
use super::super::packet::{ExecMode, Tnt};
use super::event::{FlowError, Stamp};
use super::{FlowSink, SpaceId};

/// Returns that may be compressed: as many as the processor keeps.
const CALLS: usize = 64;

/// A call: the node that it ends.
#[derive(Clone, Copy, Debug)]
struct Call {
    node: u32,
    back: u64,
}

/// The calls that were not returned from; the oldest are forgotten.
#[derive(Clone, Debug)]
struct Calls {
    ring: [Call; CALLS],
    top: usize,
    len: usize,
}

impl Calls {
    fn push(&mut self, call: Call) {
        self.top = (self.top + 1) % CALLS;
        self.ring[self.top] = call;
        self.len = (self.len + 1).min(CALLS);
    }

    /// A return that has a target. One that goes elsewhere than to its call leaves the call there: so do other decoders, which follow
    /// kernels with retpolines, where such returns are many.
    fn returned(&mut self, target: u64) {
        if self.len > 0 && self.ring[self.top].back == target {
            self.pop();
        }
    }

    fn pop(&mut self) -> Option<Call> {
        self.len = self.len.checked_sub(1)?;
        let call = self.ring[self.top];
        self.top = (self.top + CALLS - 1) % CALLS;
        Some(call)
    }
}

/// Sees when a walk without decisions comes to a node again (Brent's algorithm).
struct Circle {
    steps: u32,
    seen: u32,
}

impl Circle {
    const fn new() -> Self {
        Self { steps: 0, seen: NONE }
    }

    #[inline]
    fn step(&mut self, node: u32) -> Result<(), FlowError> {
        if node == self.seen {
            return Err(FlowError::Endless);
        }
        self.steps += 1;
        if self.steps.is_power_of_two() {
            self.seen = node;
        }
        Ok(())
    }
}

/// Where the program is.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    pub memories: alloc::vec::Vec<Memory>,
    pub space: usize,
    pub mode: ExecMode,
    /// The next instruction.
    pub ip: u64,
    /// The node there, if it is known.
    node: u32,
    calls: Calls,
    /// Branches: the oldest is the highest bit.
    bits: u64,
    count: u32,
}

impl Walk {
    pub fn new() -> Self {
        Self {
            memories: alloc::vec![Memory::new()],
            space: 0,
            mode: ExecMode::Bits64,
            ip: 0,
            node: NONE,
            calls: Calls { ring: [Call { node: NONE, back: 0 }; CALLS], top: 0, len: 0 },
            bits: 0,
            count: 0,
        }
    }

    /// The next instruction is this one.
    pub fn set(&mut self, ip: u64) {
        self.ip = ip;
        self.node = NONE;
    }

    /// What the trace said of branches does not go on.
    pub fn clear(&mut self) {
        self.calls.len = 0;
        self.count = 0;
    }

    /// Branches that are not followed yet.
    pub fn is_waiting(&self) -> bool {
        self.count > 0
    }

    /// The program's memory is another one, or changed: nodes are those of the one before.
    pub fn changed(&mut self, space: SpaceId) {
        self.node = NONE;
        self.space = space.0;
        for call in &mut self.calls.ring {
            call.node = NONE;
        }
    }

    fn resolve(&mut self) -> Result<u32, FlowError> {
        if self.node == NONE {
            self.node = self.memories[self.space].find(self.ip, self.mode).map_err(FlowError::Code)?;
        }
        Ok(self.node)
    }

    /// Branches, in their order.
    pub fn branches(&mut self, tnt: Tnt, sink: &mut impl FlowSink, stamp: &Stamp) -> Result<(), FlowError> {
        // Targets that are deferred come directly after the branches that they were deferred for.
        if self.count > 0 {
            return Err(FlowError::TargetMissing);
        }
        self.count = tnt.count.into();
        // At most 47.
        self.bits = if self.count == 0 { 0 } else { tnt.bits << (64 - self.count) };
        self.run(sink, stamp)
    }

    /// Follows the branches that are there, up to one that needs its target.
    fn run(&mut self, sink: &mut impl FlowSink, stamp: &Stamp) -> Result<(), FlowError> {
        let mode = self.mode;
        let mut circle = Circle::new();
        while self.count > 0 {
            let at = self.resolve()?;
            let memory = &mut self.memories[self.space];
            let node = *memory.node(at);
            match node.end {
                BlockEnd::Conditional => {
                    let taken = self.bits >> 63 == 1;
                    self.bits <<= 1;
                    self.count -= 1;
                    (self.ip, self.node) = memory.follow(at, taken, mode);
                    circle = Circle::new();
                }
                BlockEnd::Return => {
                    let Some(call) = self.calls.pop() else {
                        // Then its target comes: the processor does not know the call either.
                        return Ok(());
                    };
                    if self.bits >> 63 == 0 {
                        return Err(FlowError::ReturnNotTaken);
                    }
                    self.bits <<= 1;
                    self.count -= 1;
                    (self.ip, self.node) = match call.node {
                        NONE => (call.back, NONE),
                        node => memory.follow(node, false, mode),
                    };
                    circle = Circle::new();
                }
                BlockEnd::Jump | BlockEnd::Call | BlockEnd::Plain => {
                    circle.step(at)?;
                    self.direct(at);
                }
                BlockEnd::Undefined => return Err(FlowError::Undefined),
                BlockEnd::IndirectJump | BlockEnd::IndirectCall | BlockEnd::Far => return Ok(()),
            }
            sink.block(&node.block(), stamp);
        }
        Ok(())
    }

    /// Over the end of a block that leads to a fixed place.
    #[inline]
    fn direct(&mut self, at: u32) {
        let memory = &mut self.memories[self.space];
        let node = *memory.node(at);
        // A call of the next instruction asks for its own address: the processor does not expect its return.
        if node.end == BlockEnd::Call && node.target != node.after() {
            self.calls.push(Call { node: at, back: node.after() });
        }
        (self.ip, self.node) = memory.follow(at, node.end != BlockEnd::Plain, self.mode);
    }

    /// The target of an indirect branch: up to it, over it, and on by the branches that waited for it.
    /// `mode` is the width of the code there, if it is another one.
    pub fn target(
        &mut self,
        target: u64,
        mode: Option<ExecMode>,
        sink: &mut impl FlowSink,
        stamp: &Stamp,
    ) -> Result<(), FlowError> {
        let mut circle = Circle::new();
        loop {
            let at = self.resolve()?;
            let node = *self.memories[self.space].node(at);
            match node.end {
                BlockEnd::Jump | BlockEnd::Call | BlockEnd::Plain => {
                    circle.step(at)?;
                    self.direct(at);
                    sink.block(&node.block(), stamp);
                }
                BlockEnd::Conditional => return Err(FlowError::TargetForCondition),
                BlockEnd::Undefined => return Err(FlowError::Undefined),
                BlockEnd::Return | BlockEnd::IndirectJump | BlockEnd::IndirectCall | BlockEnd::Far => {
                    match node.end {
                        BlockEnd::IndirectCall => self.calls.push(Call { node: at, back: node.after() }),
                        BlockEnd::Return => self.calls.returned(target),
                        _ => {}
                    }
                    sink.block(&node.block(), stamp);
                    self.set(target);
                    self.mode = mode.unwrap_or(self.mode);
                    return self.run(sink, stamp);
                }
            }
        }
    }

    /// Up to an instruction, without branches.
    pub fn up_to(&mut self, stop: u64, sink: &mut impl FlowSink, stamp: &Stamp) -> Result<(), FlowError> {
        let unreachable = Err(FlowError::Unreachable { address: stop });
        if self.count > 0 {
            return unreachable;
        }
        let mut circle = Circle::new();
        while self.ip != stop {
            let at = self.resolve()?;
            let memory = &self.memories[self.space];
            let node = *memory.node(at);
            if stop.wrapping_sub(node.address) < node.bytes.into() {
                let Some(part) = memory.before(&node.block(), stop, self.mode) else { return unreachable };
                sink.block(&part, stamp);
                self.set(stop);
                return Ok(());
            }
            if !matches!(node.end, BlockEnd::Jump | BlockEnd::Call | BlockEnd::Plain) {
                return unreachable;
            }
            circle.step(at).or(unreachable)?;
            self.direct(at);
            sink.block(&node.block(), stamp);
        }
        Ok(())
    }

    /// Up to the branch that ended tracing: one that would have a packet, or one that leads to `target`. Returns where execution goes
    /// on if it comes back.
    pub fn up_to_end(
        &mut self,
        target: Option<u64>,
        sink: &mut impl FlowSink,
        stamp: &Stamp,
    ) -> Result<u64, FlowError> {
        let mut circle = Circle::new();
        loop {
            let at = self.resolve()?;
            let node = *self.memories[self.space].node(at);
            let after = node.after();
            match node.end {
                BlockEnd::Jump | BlockEnd::Call | BlockEnd::Plain => {
                    circle.step(at)?;
                    self.direct(at);
                    sink.block(&node.block(), stamp);
                    if node.end != BlockEnd::Plain && target == Some(node.target) {
                        return Ok(after);
                    }
                }
                BlockEnd::Undefined => return Err(FlowError::Undefined),
                _ => {
                    sink.block(&node.block(), stamp);
                    return Ok(after);
                }
            }
        }
    }
}
