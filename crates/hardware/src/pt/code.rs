// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program: what is at which address, and as which blocks it is executed.
//!
//! A trace says only what cannot be known from the program. What can is found once for each address at which execution
//! arrives: the instructions up to the next branch, as a [`Block`]'s worth of facts, and where the branch leads. Blocks
//! know their successors, so that following a program that was followed before decodes nothing.
//!
//! Memory grows with the code that is executed, whatever the trace: a block for an address at most, and four bytes for each byte of
//! the kibibytes of code that hold one.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};

use super::packet::ExecMode;

/// Instructions that are executed one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Of the first instruction.
    pub address: u64,
    /// Of all of them.
    pub bytes: u32,
    /// How many.
    pub instructions: u32,
    /// What the last one is.
    pub end: BlockEnd,
}

/// The last instruction of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockEnd {
    /// Nothing special: the block is long, or what follows it is not known, or an interrupt came.
    Plain,
    /// A jump to a fixed place.
    Jump,
    /// A call of a fixed place.
    Call,
    /// A jump that depends on a condition.
    Conditional,
    /// A return from a call.
    Return,
    /// A jump to where a register or memory says.
    IndirectJump,
    /// A call of that.
    IndirectCall,
    /// A system call or its return, an interrupt or its return, a change of segment, or an entry of a guest.
    Far,
    /// One that has no defined meaning, such as UD2: only an exception leads on.
    Undefined,
}

/// Why there are no instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeError {
    /// Nothing was said of what is at this address.
    Unknown(u64),
    /// What is there is no instruction.
    NoInstruction(u64),
}

pub(super) const NONE: u32 = u32::MAX;

/// Instructions of a block, at most: what an interrupt divides is decoded again from its beginning.
const INSTRUCTIONS_MAX: u32 = 256;

/// A block with where it leads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub address: u64,
    /// Where a branch to a fixed place leads.
    pub target: u64,
    /// The node there, once it was needed.
    pub taken: u32,
    /// The node after the block.
    pub next: u32,
    pub bytes: u32,
    pub instructions: u16,
    /// Bytes of the last instruction.
    pub last: u8,
    pub end: BlockEnd,
}

impl Node {
    pub fn after(&self) -> u64 {
        self.address.wrapping_add(self.bytes.into())
    }

    pub fn block(&self) -> Block {
        Block {
            address: self.address,
            bytes: self.bytes,
            instructions: self.instructions.into(),
            end: self.end,
        }
    }
}

const PAGE: usize = 1024;
type Page = Option<Box<[u32; PAGE]>>;

#[derive(Clone, Debug)]
struct Section {
    address: u64,
    bytes: Arc<[u8]>,
    /// Which of `bytes` are there: others are covered by a section that was added later.
    from: usize,
    len: usize,
    /// Nodes by offset, for each width of code.
    index: [Vec<Page>; 3],
}

impl Section {
    fn first(&self) -> u64 {
        self.address.wrapping_add(self.from as u64)
    }

    /// The last address, so that one at the top of memory has an end.
    fn last(&self) -> u64 {
        self.first() + (self.len as u64 - 1)
    }
}

/// What is in memory: one address space, or a part of it.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// In order of address, apart from each other.
    sections: Vec<Section>,
    nodes: Vec<Node>,
}

impl Memory {
    /// Nothing is known of it.
    #[must_use]
    pub const fn new() -> Self {
        Self { sections: Vec::new(), nodes: Vec::new() }
    }

    /// Says what is at `address`; it covers what was said of it before. Spaces may share the bytes.
    pub fn add(&mut self, address: u64, bytes: Arc<[u8]>) {
        // What goes over the end of the address space is nowhere.
        let room = usize::try_from(u64::MAX - address).unwrap_or(usize::MAX);
        let len = bytes.len().min(room);
        if len == 0 {
            return;
        }
        self.remove(address, len as u64);
        let at = self.sections.partition_point(|section| section.first() < address);
        self.sections.insert(at, Section { address, bytes, from: 0, len, index: Default::default() });
    }

    /// Nothing is at these addresses any more.
    pub fn remove(&mut self, address: u64, len: u64) {
        let Some(last) = len.checked_sub(1).map(|more| address.saturating_add(more)) else { return };
        self.nodes.clear();
        let mut kept = Vec::with_capacity(self.sections.len() + 2);
        for mut section in self.sections.drain(..) {
            section.index = Default::default();
            let (first_there, last_there) = (section.first(), section.last());
            if last_there < address || first_there > last {
                kept.push(section);
                continue;
            }
            if first_there < address {
                kept.push(Section { len: (address - first_there) as usize, ..section.clone() });
            }
            if last_there > last {
                let cut = (last - first_there + 1) as usize;
                kept.push(Section { from: section.from + cut, len: section.len - cut, ..section });
            }
        }
        self.sections = kept;
    }

    fn section(&self, address: u64) -> Option<usize> {
        let after = self.sections.partition_point(|section| section.first() <= address);
        let at = after.checked_sub(1)?;
        (address <= self.sections[at].last()).then_some(at)
    }

    /// Bytes from `address` on, up to the end of its section; `None`: unknown.
    #[must_use]
    pub fn bytes(&self, address: u64) -> Option<&[u8]> {
        let section = &self.sections[self.section(address)?];
        let offset = (address - section.address) as usize;
        Some(&section.bytes[offset..section.from + section.len])
    }

    pub(super) fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    /// Whether the instruction at `address` is the last of a node.
    pub(super) fn is_last(&self, node: u32, address: u64) -> bool {
        let node = self.node(node);
        node.after().wrapping_sub(node.last.into()) == address
    }

    /// The node at an address.
    pub(super) fn find(&mut self, address: u64, mode: ExecMode) -> Result<u32, CodeError> {
        let at = self.section(address).ok_or(CodeError::Unknown(address))?;
        let section = &mut self.sections[at];
        let offset = (address - section.address) as usize;
        let (page, slot) = (offset / PAGE, offset % PAGE);
        let pages = &mut section.index[mode as usize];
        if let Some(Some(page)) = pages.get(page)
            && page[slot] != NONE
        {
            return Ok(page[slot]);
        }
        let node = self.decode(address, mode)?;
        // More do not fit into memory before they fit into 32 bits.
        let number = u32::try_from(self.nodes.len()).unwrap_or(NONE);
        self.nodes.push(node);
        let pages = &mut self.sections[at].index[mode as usize];
        if pages.len() <= page {
            pages.resize(page + 1, None);
        }
        pages[page].get_or_insert_with(|| Box::new([NONE; PAGE]))[slot] = number;
        Ok(number)
    }

    /// The node after the one at `at`, or at its branch's target; `None`: what is there is unknown.
    #[inline]
    pub(super) fn follow(&mut self, at: u32, taken: bool, mode: ExecMode) -> (u64, u32) {
        let node = self.nodes[at as usize];
        let (address, known) = if taken { (node.target, node.taken) } else { (node.after(), node.next) };
        if known != NONE {
            return (address, known);
        }
        self.link(at, taken, address, mode)
    }

    #[cold]
    fn link(&mut self, at: u32, taken: bool, address: u64, mode: ExecMode) -> (u64, u32) {
        let found = self.find(address, mode).unwrap_or(NONE);
        let node = &mut self.nodes[at as usize];
        *(if taken { &mut node.taken } else { &mut node.next }) = found;
        (address, found)
    }

    /// One instruction, and its bytes.
    fn instruction(&self, address: u64, mode: ExecMode) -> Result<Instruction, CodeError> {
        const LONGEST: usize = 15;
        let bytes = self.bytes(address).ok_or(CodeError::Unknown(address))?;
        let mut instruction = Instruction::default();
        if bytes.len() >= LONGEST {
            decoder(bytes, address, mode).decode_out(&mut instruction);
        } else {
            // It may go on in the next section.
            let mut both = [0; LONGEST];
            let mut len = 0;
            while let Some(bytes) = self.bytes(address.wrapping_add(len as u64)).filter(|_| len < LONGEST) {
                let taken = bytes.len().min(LONGEST - len);
                both[len..len + taken].copy_from_slice(&bytes[..taken]);
                len += taken;
            }
            decoder(&both[..len], address, mode).decode_out(&mut instruction);
        }
        if instruction.is_invalid() { Err(CodeError::NoInstruction(address)) } else { Ok(instruction) }
    }

    fn decode(&self, address: u64, mode: ExecMode) -> Result<Node, CodeError> {
        let mut node = Node {
            address,
            target: 0,
            taken: NONE,
            next: NONE,
            bytes: 0,
            instructions: 0,
            last: 0,
            end: BlockEnd::Plain,
        };
        while u32::from(node.instructions) < INSTRUCTIONS_MAX {
            let instruction = match self.instruction(node.after(), mode) {
                Ok(instruction) => instruction,
                // The instructions before it are executed all the same.
                Err(_) if node.instructions > 0 => break,
                Err(error) => return Err(error),
            };
            node.bytes += instruction.len() as u32;
            node.instructions += 1;
            node.last = instruction.len() as u8;
            node.end = end(&instruction);
            if node.end != BlockEnd::Plain {
                node.target = instruction.near_branch_target();
                break;
            }
        }
        Ok(node)
    }

    /// The instructions of a block: address and length of each.
    pub fn instructions(
        &self,
        block: &Block,
        mode: ExecMode,
    ) -> impl Iterator<Item = Result<(u64, usize), CodeError>> + '_ {
        let mut address = block.address;
        (0..block.instructions).map(move |_| {
            let instruction = self.instruction(address, mode)?;
            let here = (address, instruction.len());
            address = address.wrapping_add(here.1 as u64);
            Ok(here)
        })
    }

    /// The part of a block before the instruction at `stop`; `None`: no instruction begins there.
    pub(super) fn before(&self, block: &Block, stop: u64, mode: ExecMode) -> Option<Block> {
        let mut part = Block { bytes: 0, instructions: 0, end: BlockEnd::Plain, ..*block };
        for instruction in self.instructions(block, mode) {
            let (address, len) = instruction.ok()?;
            if address == stop {
                return Some(part);
            }
            part.bytes += len as u32;
            part.instructions += 1;
        }
        None
    }
}

fn decoder(bytes: &[u8], address: u64, mode: ExecMode) -> Decoder<'_> {
    let bits = match mode {
        ExecMode::Bits16 => 16,
        ExecMode::Bits32 => 32,
        ExecMode::Bits64 => 64,
    };
    Decoder::with_ip(bits, bytes, address, DecoderOptions::NONE)
}

fn end(instruction: &Instruction) -> BlockEnd {
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::XbeginXabortXend => BlockEnd::Plain,
        FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => BlockEnd::Jump,
        FlowControl::UnconditionalBranch => BlockEnd::Far,
        FlowControl::IndirectBranch if instruction.is_jmp_near_indirect() => BlockEnd::IndirectJump,
        FlowControl::ConditionalBranch => BlockEnd::Conditional,
        FlowControl::Return => match instruction.code() {
            Code::Retnw
            | Code::Retnw_imm16
            | Code::Retnd
            | Code::Retnd_imm16
            | Code::Retnq
            | Code::Retnq_imm16 => BlockEnd::Return,
            _ => BlockEnd::Far,
        },
        FlowControl::Call if instruction.is_call_near() => BlockEnd::Call,
        FlowControl::IndirectCall if instruction.is_call_near_indirect() => BlockEnd::IndirectCall,
        FlowControl::Exception => BlockEnd::Undefined,
        FlowControl::IndirectBranch
        | FlowControl::IndirectCall
        | FlowControl::Call
        | FlowControl::Interrupt => BlockEnd::Far,
    }
}
