// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program's branches become a stream, as a processor would send it.
//!
//! For tests and benchmarks: whoever knows what a program did (an emulator, a debugger, a generator of programs) says it here, and
//! the decoder has to find the same. Which packets a branch needs is known from the instruction; [`Tracer::executed`] finds it in the
//! program's memory.

use alloc::vec::Vec;

use super::code::{BlockEnd, CodeError, Memory};
use super::encode;
use super::packet::{ExecMode, Packet, Tnt};

/// How the processor is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TracerConfig {
    /// Branches are sent as TNT.64, not TNT.8.
    pub long_branches: bool,
    /// DisRETC: each return has its target.
    pub returns_with_targets: bool,
    /// Targets wait until a TNT is full.
    pub defer_targets: bool,
}

/// Makes a stream.
#[derive(Clone, Debug)]
pub struct Tracer {
    config: TracerConfig,
    stream: Vec<u8>,
    last_ip: u64,
    bits: u64,
    count: u8,
    deferred: Vec<u64>,
    calls: Vec<u64>,
    branches: u64,
    /// The block that is executed: its address and node.
    block: Option<(u64, u32)>,
}

/// As many calls as a processor keeps.
const CALLS: usize = 64;

impl Tracer {
    /// An empty stream.
    #[must_use]
    pub const fn new(config: TracerConfig) -> Self {
        Self {
            config,
            stream: Vec::new(),
            last_ip: 0,
            bits: 0,
            count: 0,
            deferred: Vec::new(),
            calls: Vec::new(),
            branches: 0,
            block: None,
        }
    }

    /// How many bytes were sent.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.stream.len()
    }

    /// How many branches had a packet, or a part of one.
    #[must_use]
    pub const fn branches(&self) -> u64 {
        self.branches
    }

    /// The stream.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.flush();
        self.stream
    }

    /// A packet that says when; branches need not be sent for it.
    pub fn timing(&mut self, packet: Packet) {
        encode::packet(packet, &mut self.stream);
    }

    /// Another packet without an address, after all branches.
    pub fn other(&mut self, packet: Packet) {
        self.flush();
        encode::packet(packet, &mut self.stream);
    }

    /// PSB+: where the program is (`None`: tracing is off), and, between, what is given.
    pub fn synchronise(&mut self, ip: Option<u64>, state: &[Packet]) {
        self.other(Packet::Psb);
        self.last_ip = 0;
        self.calls.clear();
        for &packet in state {
            encode::packet(packet, &mut self.stream);
        }
        if let Some(ip) = ip {
            encode::packet(
                Packet::ModeExec { mode: ExecMode::Bits64, interrupts_enabled: false },
                &mut self.stream,
            );
            self.with_address(Packet::Fup, ip);
        }
        encode::packet(Packet::PsbEnd, &mut self.stream);
    }

    /// Tracing begins.
    pub fn enable(&mut self, ip: u64) {
        self.flush();
        self.calls.clear();
        self.block = None;
        self.with_address(Packet::TipPge, ip);
    }

    /// Tracing ends at the last branch.
    pub fn disable(&mut self) {
        self.flush();
        self.block = None;
        let ip = super::packet::Ip { bytes: super::packet::IpBytes::Suppressed, payload: 0 };
        encode::packet(Packet::TipPgd(ip), &mut self.stream);
    }

    /// An interrupt before the instruction at `from`.
    pub fn interrupt(&mut self, from: u64, to: u64) {
        self.here(from);
        self.block = None;
        self.with_address(Packet::Tip, to);
    }

    /// The FUP of the packet before it.
    pub fn here(&mut self, ip: u64) {
        self.flush();
        self.with_address(Packet::Fup, ip);
    }

    /// The processor lost what was not sent, and sends again from the instruction at `ip` on.
    pub fn overflow(&mut self, ip: u64) {
        (self.bits, self.count) = (0, 0);
        self.deferred.clear();
        self.calls.clear();
        self.block = None;
        self.other(Packet::Ovf);
        self.here(ip);
    }

    /// A conditional branch.
    pub fn conditional(&mut self, taken: bool) {
        self.branches += 1;
        self.bits = self.bits << 1 | u64::from(taken);
        self.count += 1;
        if self.count == if self.config.long_branches { 47 } else { 6 } {
            self.flush();
        }
    }

    /// A near call; `back` is the instruction after it.
    pub fn call(&mut self, back: u64) {
        if self.calls.len() == CALLS {
            self.calls.remove(0);
        }
        self.calls.push(back);
    }

    /// A near return.
    pub fn returned(&mut self, to: u64) {
        if self.calls.last() == Some(&to) {
            self.calls.pop();
            if !self.config.returns_with_targets {
                return self.conditional(true);
            }
        }
        // Whoever reads bits after it could take them for this return.
        self.flush();
        self.target(to);
    }

    /// A jump or call to a place that the program does not say.
    pub fn target(&mut self, to: u64) {
        if self.config.defer_targets && self.count > 0 {
            self.branches += 1;
            return self.deferred.push(to);
        }
        self.flush();
        self.branches += 1;
        self.with_address(Packet::Tip, to);
    }

    fn with_address(&mut self, packet: fn(super::packet::Ip) -> Packet, ip: u64) {
        encode::packet(packet(encode::shortest_ip(ip, self.last_ip)), &mut self.stream);
        self.last_ip = ip;
    }

    fn flush(&mut self) {
        let tnt = Tnt { bits: self.bits, count: self.count };
        match self.count {
            0 => {}
            1..=6 => encode::packet(Packet::Tnt8(tnt), &mut self.stream),
            _ => encode::packet(Packet::Tnt64(tnt), &mut self.stream),
        }
        (self.bits, self.count) = (0, 0);
        for at in 0..self.deferred.len() {
            self.with_address(Packet::Tip, self.deferred[at]);
        }
        self.deferred.clear();
    }

    /// The program executes the instruction at `next` after that at `at`: what has to be sent for the first one is sent.
    ///
    /// System calls are where tracing of a program without the kernel ends and begins again.
    ///
    /// # Errors
    /// When it is not known what is at `at`.
    pub fn executed(&mut self, at: u64, next: u64, memory: &mut Memory) -> Result<(), CodeError> {
        let node = match self.block {
            Some((block, node)) if at.wrapping_sub(block) < memory.node(node).bytes.into() => node,
            _ => memory.find(at, ExecMode::Bits64)?,
        };
        let (block, after, end, target) = {
            let node = memory.node(node);
            (node.address, node.after(), node.end, node.target)
        };
        self.block = Some((block, node));
        // Within the block: the next instruction is farther, and before its end. A repeated string instruction is executed again.
        let is_last = memory.is_last(node, at);
        if !is_last || end == BlockEnd::Plain {
            return Ok(());
        }
        self.block = None;
        match end {
            BlockEnd::Conditional => self.conditional(next == target && target != after),
            BlockEnd::Call if target != after => self.call(after),
            BlockEnd::Call | BlockEnd::Jump | BlockEnd::Plain | BlockEnd::Undefined => {}
            BlockEnd::Return => self.returned(next),
            BlockEnd::IndirectJump => self.target(next),
            BlockEnd::IndirectCall => {
                self.target(next);
                self.call(after);
            }
            BlockEnd::Far => {
                self.disable();
                self.enable(next);
            }
        }
        Ok(())
    }
}
