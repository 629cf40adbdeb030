// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program made of blocks, in machine code of each instruction set, and a run through it: what ran is known without decoding
//! a single instruction.

use rtscope_hardware::etm::isa::Isa;
use rtscope_testkit::random::Random;

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// To that block, or on to the next one.
    Conditional(usize),
    Jump(usize),
    Call(usize),
    Return,
    /// A branch by register, to any block.
    Register,
}

#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub start: u64,
    pub end: u64,
    /// Address of the last instruction.
    pub last: u64,
    pub instructions: u32,
    pub how: End,
}

pub struct Program {
    pub isa: Isa,
    pub base: u64,
    pub code: Vec<u8>,
    pub blocks: Vec<Block>,
}

/// What ran: a block to its end, and whether its branch was taken; or only as many instructions, and then an exception.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Block { index: usize, taken: bool, next: usize },
    Exception { index: usize, instructions: u32, handler: usize },
}

const BLOCKS: usize = 64;

impl Program {
    pub fn new(isa: Isa, base: u64, random: &mut Random) -> Self {
        let mut blocks: Vec<Block> = Vec::new();
        let mut address = base;
        let size = if isa == Isa::T32 { 2 } else { 4 };
        for index in 0..BLOCKS {
            let plain = random.below(9);
            let other = random.below(BLOCKS as u64) as usize;
            let how = match random.below(6) {
                0 | 1 if index + 1 < BLOCKS => End::Conditional(other),
                2 => End::Call(other),
                3 => End::Return,
                4 => End::Register,
                _ => End::Jump(other),
            };
            let last = address + plain * size;
            // Branches of T32 have four bytes but those by register.
            let end = last + if matches!(how, End::Return | End::Register) { size } else { 4 };
            blocks.push(Block { start: address, end, last, instructions: plain as u32 + 1, how });
            address = end;
        }
        let code = blocks.iter().flat_map(|block| machine_code(isa, block, &blocks)).collect();
        Self { isa, base, code, blocks }
    }

    /// A random run; exceptions only where wanted.
    pub fn run(&self, steps: usize, exceptions: bool, random: &mut Random) -> Vec<Step> {
        let mut stack: Vec<usize> = Vec::new();
        let mut index = 0;
        let mut out = Vec::new();
        for _ in 0..steps {
            let block = &self.blocks[index];
            if exceptions && block.instructions > 1 && random.below(20) == 0 {
                let instructions = 1 + random.below(u64::from(block.instructions) - 1) as u32;
                let handler = random.below(BLOCKS as u64) as usize;
                out.push(Step::Exception { index, instructions, handler });
                index = handler;
                continue;
            }
            let any = random.below(BLOCKS as u64) as usize;
            let (taken, next) = match block.how {
                End::Conditional(to) if random.below(2) == 0 => (true, to),
                End::Conditional(_) => (false, index + 1),
                End::Jump(to) => (true, to),
                End::Call(to) => {
                    stack.push(index + 1);
                    stack = stack.split_off(stack.len().saturating_sub(8));
                    (true, to)
                }
                End::Return => (true, stack.pop().filter(|to| *to < BLOCKS).unwrap_or(any)),
                End::Register => (true, any),
            };
            out.push(Step::Block { index, taken, next });
            index = next;
        }
        out
    }
}

fn machine_code(isa: Isa, block: &Block, blocks: &[Block]) -> Vec<u8> {
    let mut code = Vec::new();
    for _ in 1..block.instructions {
        match isa {
            Isa::A64 => code.extend(0xD503_201Fu32.to_le_bytes()),
            Isa::A32 => code.extend(0xE320_F000u32.to_le_bytes()),
            Isa::T32 => code.extend(0xBF00u16.to_le_bytes()),
        }
    }
    let to = |index: usize| blocks[index].start.wrapping_sub(block.last);
    let last: u32 = match (isa, block.how) {
        (Isa::A64, End::Conditional(index)) => 0x5400_0000 | (to(index) as u32 >> 2 & 0x7_FFFF) << 5,
        (Isa::A64, End::Jump(index)) => 0x1400_0000 | to(index) as u32 >> 2 & 0x3FF_FFFF,
        (Isa::A64, End::Call(index)) => 0x9400_0000 | to(index) as u32 >> 2 & 0x3FF_FFFF,
        (Isa::A64, End::Return) => 0xD65F_03C0,
        (Isa::A64, End::Register) => 0xD61F_0000,
        (Isa::A32, End::Conditional(index)) => {
            0x0A00_0000 | to(index).wrapping_sub(8) as u32 >> 2 & 0xFF_FFFF
        }
        (Isa::A32, End::Jump(index)) => 0xEA00_0000 | to(index).wrapping_sub(8) as u32 >> 2 & 0xFF_FFFF,
        (Isa::A32, End::Call(index)) => 0xEB00_0000 | to(index).wrapping_sub(8) as u32 >> 2 & 0xFF_FFFF,
        (Isa::A32, End::Return) => 0xE12F_FF1E,
        (Isa::A32, End::Register) => 0xE12F_FF10,
        (Isa::T32, End::Return) => return [code, 0x4770u16.to_le_bytes().to_vec()].concat(),
        (Isa::T32, End::Register) => return [code, 0x4700u16.to_le_bytes().to_vec()].concat(),
        (Isa::T32, End::Conditional(index)) => {
            let offset = to(index).wrapping_sub(4) as u32;
            let (sign, j2, j1) = (offset >> 20 & 1, offset >> 19 & 1, offset >> 18 & 1);
            let first = 0xF000 | sign << 10 | offset >> 12 & 0x3F;
            (0x8000 | j1 << 13 | j2 << 11 | offset >> 1 & 0x7FF) << 16 | first
        }
        (Isa::T32, End::Jump(index) | End::Call(index)) => {
            let offset = to(index).wrapping_sub(4) as u32;
            let (sign, i1, i2) = (offset >> 24 & 1, offset >> 23 & 1, offset >> 22 & 1);
            let (j1, j2) = (1 ^ i1 ^ sign, 1 ^ i2 ^ sign);
            let first = 0xF000 | sign << 10 | offset >> 12 & 0x3FF;
            let link = u32::from(matches!(block.how, End::Call(_))) << 14;
            (0x9000 | link | j1 << 13 | j2 << 11 | offset >> 1 & 0x7FF) << 16 | first
        }
    };
    code.extend(last.to_le_bytes());
    code
}
