// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From frame to frame: by the unwind information of what is mapped there, else by the frame pointer.

use crate::module::{Module, UnwindTable};
use gimli::{
    CfaRule, EndianSlice, Evaluation, EvaluationResult, Location, NativeEndian, Register, RegisterRule,
    UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow, Value,
};
use rtscope_event::{CopyEnd, Incomplete, StackCopy};
use std::rc::Rc;
use std::time::{Duration, Instant};

type Bytes<'a> = EndianSlice<'a, NativeEndian>;

/// Registers that are followed, as DWARF numbers them; the program counter is apart.
#[cfg(target_arch = "x86_64")]
const REGISTERS: usize = 16;
#[cfg(not(target_arch = "x86_64"))]
const REGISTERS: usize = 32;
/// The stack pointer among them.
const STACK_POINTER: usize = if REGISTERS == 16 { 7 } else { 31 };
/// The frame pointer, where a function has one.
const FRAME_POINTER: usize = if REGISTERS == 16 { 6 } else { 29 };
/// For the tables of one stack, without reading files: usual ones take some 10 us. A program can have unwind information on which to spend any time, and others' stacks wait.
const TIME_MAX: Duration = Duration::from_millis(100);
/// Operations of an expression: those that compilers write have some ten.
const OPERATIONS_MAX: u32 = 10_000;
/// Bits of an address: those above may be a signature of it (arm64).
const ADDRESS_MASK: u64 = 0x0000_ffff_ffff_ffff;

/// What is at an address.
#[derive(Debug)]
pub enum Place {
    /// A file, which can be read.
    File {
        /// It.
        module: Rc<Module>,
        /// The address as the file counts it.
        offset: u64,
        /// Its name.
        path: String,
    },
    /// A file, which cannot be read, and why.
    Unreadable(String),
    /// Code that is in no file.
    NoFile,
    /// No code.
    Nothing,
}

/// A frame that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where it goes on.
    pub address: u64,
    /// Where it is looked up: the instruction before that is the call.
    pub looked_up: u64,
    /// It was found by the frame pointer of the one before.
    pub by_frame_pointer: bool,
}

/// The frames of a copy, and why the last one is not where its thread began, if so.
pub fn walk(
    copy: &StackCopy,
    most: usize,
    mut place: impl FnMut(u64) -> Place,
) -> (Vec<Frame>, Option<Incomplete>) {
    let mut walker = Walker::new(copy);
    let mut frames = vec![walker.frame(false, false)];
    loop {
        if walker.spent > TIME_MAX {
            let why = format!("it took longer than {} ms", TIME_MAX.as_millis());
            return (frames, Some(Incomplete::UnwindFailed { why }));
        }
        if frames.len() >= most {
            return (frames, Some(Incomplete::TooManyFrames { frames: most as u32 }));
        }
        // The place of the last frame says how it was called.
        let Some(last) = frames.last() else { return (frames, None) };
        let step = walker.step(place(last.looked_up), last.looked_up, &mut place);
        match step {
            Ok(Some(step)) => frames.push(walker.frame(step.is_call, step.by_frame_pointer)),
            Ok(None) => return (frames, None),
            Err(why) => return (frames, Some(why)),
        }
    }
}

/// How the next frame was found.
struct Found {
    /// The address is behind a call; else it is exact, as where a signal interrupted it.
    is_call: bool,
    by_frame_pointer: bool,
}

struct Walker<'a> {
    copy: &'a StackCopy,
    /// Where the copy begins.
    base: u64,
    address: u64,
    /// `None`: not known any more.
    registers: [Option<u64>; REGISTERS],
    context: UnwindContext<usize>,
    /// For tables.
    spent: Duration,
}

/// What could not be had.
enum Trouble {
    /// What is behind the copy.
    Behind,
    Other(String),
}

impl From<gimli::Error> for Trouble {
    fn from(error: gimli::Error) -> Trouble {
        Trouble::Other(error.to_string())
    }
}

impl<'a> Walker<'a> {
    fn new(copy: &'a StackCopy) -> Walker<'a> {
        let registers = std::array::from_fn(|register| copy.registers.get(register).copied());
        let address = copy.registers.last().copied().unwrap_or_default();
        let base = copy.registers.get(STACK_POINTER).copied().unwrap_or_default();
        Walker { copy, base, address, registers, context: UnwindContext::new(), spent: Duration::ZERO }
    }

    fn frame(&self, is_call: bool, by_frame_pointer: bool) -> Frame {
        Frame { address: self.address, looked_up: self.address - u64::from(is_call), by_frame_pointer }
    }

    /// To the frame that called this one; `None`: nobody did.
    fn step(
        &mut self,
        place: Place,
        looked_up: u64,
        place_of: &mut impl FnMut(u64) -> Place,
    ) -> Result<Option<Found>, Incomplete> {
        let (module, offset, path) = match place {
            Place::File { module, offset, path } => (module, offset, Some(path)),
            Place::NoFile => return self.step_by_frame_pointer(None, place_of),
            Place::Unreadable(why) => return Err(Incomplete::Unreadable { why }),
            Place::Nothing => {
                let why = format!("{looked_up:#x} is not in the program's code");
                return Err(Incomplete::UnwindFailed { why });
            }
        };
        let Some(table) = module.unwind_table() else { return self.step_by_frame_pointer(path, place_of) };
        let mut context = std::mem::take(&mut self.context);
        let begun = Instant::now();
        let found = self.step_by_table(&table, offset, &mut context);
        self.spent += begun.elapsed();
        self.context = context;
        match found {
            Ok(Some(found)) => Ok(found),
            Ok(None) => self.step_by_frame_pointer(path, place_of),
            Err(trouble) => Err(self.incomplete(trouble)),
        }
    }

    /// `Ok(None)`: the table does not have this place. `Ok(Some(None))`: nobody called it.
    fn step_by_table(
        &mut self,
        table: &UnwindTable<'_>,
        offset: u64,
        context: &mut UnwindContext<usize>,
    ) -> Result<Option<Option<Found>>, Trouble> {
        let search = table.header.as_ref().and_then(|header| header.table());
        let fde = match search {
            Some(search) => {
                search.fde_for_address(&table.eh_frame, table.bases, offset, UnwindSection::cie_from_offset)
            }
            None => table.eh_frame.fde_for_address(table.bases, offset, UnwindSection::cie_from_offset),
        };
        let fde = match fde {
            Ok(fde) => fde,
            Err(gimli::Error::NoUnwindInfoForAddress) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (is_signal, returns_by) = (fde.is_signal_trampoline(), fde.cie().return_address_register());
        let row = match fde.unwind_info_for_address(&table.eh_frame, table.bases, context, offset) {
            Ok(row) => row,
            Err(gimli::Error::NoUnwindInfoForAddress) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let encoding = fde.cie().encoding();
        let evaluate = |walker: &Walker<'_>, expression: &UnwindExpression<usize>, cfa: Option<u64>| {
            walker.evaluate(expression.get(&table.eh_frame)?, encoding, cfa)
        };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.register(*register)?.wrapping_add_signed(*offset)
            }
            CfaRule::Expression(expression) => evaluate(self, expression, None)?,
        };
        let Some(address) = self.restored(row, returns_by, cfa, &evaluate)? else { return Ok(Some(None)) };
        let mut registers = [None; REGISTERS];
        for (number, slot) in registers.iter_mut().enumerate() {
            *slot = self.restored(row, Register(number as u16), cfa, &evaluate)?;
        }
        // That of the caller, unless the table says otherwise.
        if matches!(
            row.register(Register(STACK_POINTER as u16)),
            RegisterRule::Undefined | RegisterRule::SameValue
        ) {
            registers[STACK_POINTER] = Some(cfa);
        }
        let address = address & ADDRESS_MASK;
        if address == 0 {
            return Ok(Some(None));
        }
        let (before, after) = (self.registers[STACK_POINTER], registers[STACK_POINTER]);
        // A function that has not moved the stack pointer has the same; twice the same place would go on for ever.
        let moves = before.zip(after).is_some_and(|(before, after)| after > before);
        if !moves && !is_signal && (address == self.address || before > after) {
            return Err(Trouble::Other("the unwind information leads back to where it was".to_owned()));
        }
        self.registers = registers;
        self.address = address;
        Ok(Some(Some(Found { is_call: !is_signal, by_frame_pointer: false })))
    }

    /// What a register had in the caller; `None`: it is not known.
    fn restored(
        &self,
        row: &UnwindTableRow<usize>,
        register: Register,
        cfa: u64,
        evaluate: &impl Fn(&Walker<'_>, &UnwindExpression<usize>, Option<u64>) -> Result<u64, Trouble>,
    ) -> Result<Option<u64>, Trouble> {
        let value = match row.register(register) {
            // What the table does not mention is as it was: of the registers that calls may change that is not true, but nobody asks for those. The
            // program counter, which x86-64 counts among them, it mentions, unless nobody called.
            RegisterRule::Undefined | RegisterRule::SameValue => {
                self.registers.get(usize::from(register.0)).copied().flatten()
            }
            RegisterRule::Offset(offset) => Some(self.read(cfa.wrapping_add_signed(offset))?),
            RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(offset)),
            RegisterRule::Register(other) => Some(self.register(other)?),
            RegisterRule::Expression(expression) => {
                Some(self.read(evaluate(self, &expression, Some(cfa))?)?)
            }
            RegisterRule::ValExpression(expression) => Some(evaluate(self, &expression, Some(cfa))?),
            RegisterRule::Constant(value) => Some(value),
            _ => None,
        };
        Ok(value)
    }

    fn register(&self, register: Register) -> Result<u64, Trouble> {
        // Its own address, in an expression for a table of jumps.
        if REGISTERS == 16 && register.0 == 16 {
            return Ok(self.address);
        }
        let value = self.registers.get(usize::from(register.0)).copied().flatten();
        value.ok_or_else(|| Trouble::Other(format!("the value of register {} is not known", register.0)))
    }

    fn read(&self, address: u64) -> Result<u64, Trouble> {
        let Some(inside) = address.checked_sub(self.base) else {
            return Err(Trouble::Other(format!("{address:#x} is not on the stack")));
        };
        let inside = usize::try_from(inside).unwrap_or(usize::MAX);
        // Another stack is farther away than any thread's is long.
        if inside > 1 << 30 {
            return Err(Trouble::Other(format!("{address:#x} is on another stack")));
        }
        let bytes = self.copy.memory.get(inside..inside.saturating_add(8)).ok_or(Trouble::Behind)?;
        bytes.try_into().map(u64::from_ne_bytes).map_err(|_| Trouble::Behind)
    }

    fn evaluate(
        &self,
        expression: gimli::Expression<Bytes<'_>>,
        encoding: gimli::Encoding,
        cfa: Option<u64>,
    ) -> Result<u64, Trouble> {
        let encoding = gimli::Encoding { address_size: 8, ..encoding };
        let mut evaluation: Evaluation<Bytes<'_>> = expression.evaluation(encoding);
        evaluation.set_max_iterations(OPERATIONS_MAX);
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        let mut result = evaluation.evaluate()?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                    evaluation.resume_with_memory(Value::Generic(self.read(address)?))?
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(Value::Generic(self.register(register)?))?
                }
                other => {
                    return Err(Trouble::Other(format!("an expression that is not understood: {other:?}")));
                }
            };
        }
        match evaluation.as_result().last().map(|piece| piece.location) {
            Some(Location::Address { address }) => Ok(address),
            Some(Location::Value { value }) => Ok(value.to_u64(u64::MAX)?),
            other => Err(Trouble::Other(format!("an expression without an address: {other:?}"))),
        }
    }

    /// Where there is no unwind information: the frame pointer, if that leads to what could be a frame.
    fn step_by_frame_pointer(
        &mut self,
        module: Option<String>,
        place_of: &mut impl FnMut(u64) -> Place,
    ) -> Result<Option<Found>, Incomplete> {
        let none = || Incomplete::NoUnwindInformation { module };
        let (Some(frame), Some(stack)) = (self.registers[FRAME_POINTER], self.registers[STACK_POINTER])
        else {
            return Err(none());
        };
        if frame < stack || frame % 8 != 0 {
            return Err(none());
        }
        let (above, returns_to) = match (self.read(frame), self.read(frame.wrapping_add(8))) {
            (Ok(above), Ok(returns_to)) => (above, returns_to & ADDRESS_MASK),
            _ => return Err(none()),
        };
        if returns_to == 0 || matches!(place_of(returns_to - 1), Place::Nothing) {
            return Err(none());
        }
        self.registers = [None; REGISTERS];
        self.registers[FRAME_POINTER] = Some(above);
        self.registers[STACK_POINTER] = Some(frame.wrapping_add(16));
        self.address = returns_to;
        Ok(Some(Found { is_call: true, by_frame_pointer: true }))
    }

    fn incomplete(&self, trouble: Trouble) -> Incomplete {
        let bytes = self.copy.memory.len() as u32;
        match (trouble, self.copy.end) {
            (Trouble::Behind, CopyEnd::Absent) => Incomplete::NotPresent { bytes },
            (Trouble::Behind, _) => Incomplete::DeeperThanCopy { bytes },
            (Trouble::Other(why), _) => Incomplete::UnwindFailed { why },
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::module::tests::module;
    use rtscope_event::{Comm, MonotonicNs, Pid, Tid};

    /// A function at 0x1000 whose frame is its return address, said in so many bytes more than that takes.
    fn eh_frame(idle: usize) -> Vec<u8> {
        let entry = |id: u32, rest: &[u8]| {
            let bytes = [&id.to_le_bytes(), rest].concat();
            [&(bytes.len() as u32).to_le_bytes(), &bytes[..]].concat()
        };
        // Version 1, no augmentation, factors 1 and -8, the return address is register 16; the frame begins at register 7 plus 8, the return address is
        // there.
        let cie = entry(0, &[1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x80 | 16, 1, 0, 0]);
        let place = cie.len() as u32 + 4;
        let fde = [&0x1000u64.to_le_bytes()[..], &0x1000u64.to_le_bytes(), &vec![0; idle]].concat();
        [cie, entry(place, &fde), vec![0; 4]].concat()
    }

    fn copy(frames: usize) -> StackCopy {
        let mut registers = vec![0; 17];
        (registers[STACK_POINTER], registers[16]) = (0x7000_0000, 0x1004);
        StackCopy {
            id: 1,
            time: MonotonicNs(1),
            tid: Tid(1),
            pid: Pid(1),
            comm: Comm::from("a"),
            kernel: Vec::new(),
            registers,
            memory: 0x1004u64.to_le_bytes().repeat(frames),
            end: CopyEnd::Limit,
        }
    }

    fn walked(idle: usize) -> (usize, Option<Incomplete>) {
        let module = Rc::new(module(eh_frame(idle)));
        let place = |address| {
            let (module, path) = (Rc::clone(&module), "a".to_owned());
            Place::File { module, offset: address, path }
        };
        let (frames, why) = walk(&copy(2000), 1000, place);
        (frames.len(), why)
    }

    #[test]
    fn a_program_cannot_make_its_stack_take_any_time() {
        assert_eq!(walked(0), (1000, Some(Incomplete::TooManyFrames { frames: 1000 })));
        let (frames, why) = walked(1_000_000);
        let Some(Incomplete::UnwindFailed { why }) = why else { panic!("{frames} {why:?}") };
        assert!(frames < 1000 && why == "it took longer than 100 ms", "{frames}: {why}");
    }
}
