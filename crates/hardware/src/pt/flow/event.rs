// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a flow tells besides the instructions.

use core::fmt;

use super::super::code::CodeError;
use super::super::packet::ExecMode;
use super::super::time::Time;
use crate::Lost;

/// Where and when the trace says something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Of the packet in the stream that says it.
    pub offset: u64,
    /// When that packet was made: what it says happened between the packet before it and now. `None`: the trace has no time so far.
    pub time: Option<Time>,
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// After a loss, or in the beginning: from here on the trace is understood (PSB+). `None`: tracing is off here.
    Synchronised {
        /// The next instruction.
        ip: Option<u64>,
    },
    /// Tracing begins, as by a filter or a return to the traced privilege level.
    Enabled {
        /// The first instruction.
        ip: u64,
        /// It is where tracing ended before.
        resumed: bool,
    },
    /// Tracing ended.
    Disabled {
        /// By something that is no branch: the instruction that is not executed. `None`: by the last instruction of the block before.
        at: Option<u64>,
        /// Where execution went; `None`: not traced.
        target: Option<u64>,
    },
    /// An interrupt, an exception or an aborted transaction.
    Asynchronous {
        /// The instruction before which it came.
        from: u64,
        /// The handler.
        to: u64,
    },
    /// The processor lost packets: nothing is known from here on.
    Overflow,
    /// The first that is known after an overflow.
    Recovered {
        /// The next instruction.
        ip: u64,
    },
    /// TraceStop.
    Stopped,
    /// CR3 was written.
    Paging {
        /// Its new value.
        cr3: u64,
        /// By a guest.
        non_root: bool,
    },
    /// Another guest.
    Guest {
        /// Its VMCS.
        vmcs: u64,
    },
    /// The width of the code from the next instruction on.
    Mode {
        /// The width.
        mode: ExecMode,
        /// RFLAGS.IF.
        interrupts_enabled: bool,
    },
    /// A transaction began, ended or was aborted; all blocks since its beginning did not happen then.
    Transaction {
        /// Which.
        state: TransactionState,
        /// The instruction at which.
        at: Option<u64>,
    },
    /// PTWRITE.
    Write {
        /// The operand.
        payload: u64,
        /// It has 8 bytes.
        wide: bool,
        /// The instruction.
        at: Option<u64>,
    },
    /// The core stopped executing, to change its frequency or to sleep.
    ExecutionStopped {
        /// The next instruction.
        at: Option<u64>,
    },
    /// MWAIT.
    Wait {
        /// EAX.
        hints: u32,
        /// ECX.
        extensions: u32,
    },
    /// The core falls asleep.
    Asleep {
        /// C-state.
        state: u8,
        /// Sub C-state.
        sub_state: u8,
        /// By the hardware's own decision.
        hardware: bool,
    },
    /// The core is awake again.
    Awake {
        /// The last C-state.
        last: u8,
        /// The deepest C-state.
        deepest: u8,
        /// As in the packet PWRX.
        reason: u8,
    },
    /// Interrupts, returns from them and others (Event Trace): `kind` as in the packet CFE.
    ControlFlow {
        /// Which.
        kind: u8,
        /// The vector.
        vector: u8,
        /// The instruction before which it came.
        at: Option<u64>,
    },
    /// What belongs to the next [`Event::ControlFlow`]: `kind` as in the packet EVD.
    ControlFlowData {
        /// Which.
        kind: u8,
        /// The value.
        payload: u64,
    },
    /// A group of values begins (PEBS).
    GroupBegin {
        /// Which.
        group: u8,
    },
    /// One of its values.
    GroupItem {
        /// Which.
        id: u8,
        /// The value.
        payload: u64,
    },
    /// Its end.
    GroupEnd {
        /// The instruction that it belongs to.
        at: Option<u64>,
    },
    /// A trigger.
    Trigger {
        /// Which, a bit each.
        triggers: u8,
        /// Instructions since the packet before.
        instructions: Option<u16>,
        /// More than one.
        multiple: bool,
        /// The instruction.
        at: Option<u64>,
    },
    /// The ratio of the core's frequency to the bus clock.
    Frequency {
        /// The ratio.
        ratio: u8,
    },
    /// Bytes of the stream were no packets.
    Lost(Lost),
    /// Trace and program do not fit together: instructions are unknown up to the next place that the trace names.
    Failed {
        /// How.
        error: FlowError,
        /// The instruction or block at which.
        ip: u64,
    },
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionState {
    /// It began.
    Begun,
    /// It ended well.
    Committed,
    /// It never happened.
    Aborted,
}

/// How a trace and a program do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowError {
    /// The program's bytes are missing or wrong there.
    Code(CodeError),
    /// A target came where the program has a conditional branch.
    TargetForCondition,
    /// Branches came where the program's branch needs a target, and then no target.
    TargetMissing,
    /// A return is traced as going back to its call, which was not seen.
    ReturnWithoutCall,
    /// A return is traced as not taken.
    ReturnNotTaken,
    /// The program cannot come to the address that the trace names without branches that the trace does not have.
    Unreachable {
        /// That address.
        address: u64,
    },
    /// The program goes in a circle that the trace does not have.
    Endless,
    /// An instruction without meaning was passed.
    Undefined,
    /// A branch while tracing is off.
    NotEnabled,
    /// A packet that may not be between PSB and PSBEND.
    InPsb,
}

impl fmt::Display for FlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlowError::Code(CodeError::Unknown(address)) => {
                write!(f, "it is not known what is at {address:#x} (give the image that is there)")
            }
            FlowError::Code(CodeError::NoInstruction(address)) => {
                write!(f, "no instruction at {address:#x}: another image was there")
            }
            FlowError::TargetForCondition => f.write_str("a target for a conditional branch: wrong image?"),
            FlowError::TargetMissing => f.write_str("an indirect branch without its target: wrong image?"),
            FlowError::ReturnWithoutCall => f.write_str("a return to a call that was not seen"),
            FlowError::ReturnNotTaken => f.write_str("a return that is traced as not taken: wrong image?"),
            FlowError::Unreachable { address } => {
                write!(f, "{address:#x} cannot be reached from here: wrong image?")
            }
            FlowError::Endless => f.write_str("the program does not leave this circle: wrong image?"),
            FlowError::Undefined => f.write_str("an undefined instruction was passed: wrong image?"),
            FlowError::NotEnabled => f.write_str("a branch while tracing is off"),
            FlowError::InPsb => f.write_str("the state after a PSB was not ended"),
        }
    }
}
