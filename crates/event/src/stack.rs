// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where tasks were: their stacks in the kernel and in their programs.

use crate::{Comm, MonotonicNs, Pid, Tid};
use serde::{Deserialize, Serialize};

/// The stacks of a detection: of the task that waited, and of the one that woke it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateStacks {
    /// Of the task, from which nothing has changed since it waited; `None`: it was not taken, for which there is a reason.
    pub task: Option<TaskStack>,
    /// Why there is none of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<StackMissing>,
    /// Of the task that woke it, at that moment. `None`: an interrupt woke it, nobody did, or it was not late by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waker: Option<TaskStack>,
    /// The numbers of the copies from which both are made (`StackCopy::id`); 0: none was taken.
    #[serde(skip)]
    pub copies: StackCopies,
}

/// Numbers of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackCopies {
    /// Of the task's.
    pub task: u32,
    /// Of its waker's.
    pub waker: u32,
}

/// Why a task has no stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StackMissing {
    /// There was no place for a copy: too many were late at once.
    NoPlace,
    /// It was to be copied, and that was not done: the kernel skipped the eBPF program that does it, or there is none on this kernel.
    NotCopied,
}

impl StackMissing {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            StackMissing::NoPlace => "not copied, since too many were late at once",
            StackMissing::NotCopied => "not copied: the eBPF program that does it did not run",
        }
    }
}

/// Where a task was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStack {
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// Its name.
    pub comm: Comm,
    /// In the kernel, `function+0xoffset`, the innermost first. Empty: the kernel did not say.
    pub kernel: Vec<String>,
    /// In its program, the innermost first.
    pub user: Vec<StackFrame>,
    /// Why the last frame of `user` is not where its thread began; `None`: it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<Incomplete>,
}

/// A place in a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackFrame {
    /// In the memory of its process: of the innermost frame where it goes on, of all others where the call returns to.
    pub address: u64,
    /// The file that is mapped there, as the process calls it; `None`: none is, as of code that was made while it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The file's build id, in hex: with `offset`, the name can be found later, and elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// The address as the file counts it (its symbols, `addr2line`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// What is there: functions that were inlined, the innermost first, and at last the one that is called. Empty: no name is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Function>,
    /// It was found by the frame pointer of the frame before, which has no unwind information: that may be another register.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_frame_pointer: bool,
}

/// A function of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Its name, as its language writes it.
    pub name: String,
    /// The source file; `None`: there is no debug information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// Why a stack ends before its thread's first function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Incomplete {
    /// The stack is deeper than what was copied of it.
    DeeperThanCopy {
        /// Bytes that were copied.
        bytes: u32,
    },
    /// A page of it was not in memory when it was copied.
    NotPresent {
        /// Bytes before that page.
        bytes: u32,
    },
    /// The file has no unwind information for that place, and its frame pointer leads nowhere.
    NoUnwindInformation {
        /// The file; `None`: no file is mapped there.
        module: Option<String>,
    },
    /// The unwind information says something that is not understood, or that contradicts the copy.
    UnwindFailed {
        /// What.
        why: String,
    },
    /// The process had ended before its mappings could be read: `address` is all that is known of a place.
    ProcessGone,
    /// Its mappings or the file could not be read.
    Unreadable {
        /// Why.
        why: String,
    },
    /// It is a 32-bit program.
    #[serde(rename = "program_of_32_bits")]
    ProgramOf32Bits,
    /// It has no memory of a program: a thread of the kernel, or a process that is about to end.
    NoUserMemory,
    /// It has more frames than are kept.
    TooManyFrames {
        /// So many are.
        frames: u32,
    },
}

impl Incomplete {
    /// In words, behind "incomplete: ".
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Incomplete::DeeperThanCopy { bytes } => {
                format!("the stack is deeper than the {bytes} bytes that were copied (--stacks=SIZE)")
            }
            Incomplete::NotPresent { bytes } => {
                format!("after {bytes} bytes, a page of the stack was not in memory")
            }
            Incomplete::NoUnwindInformation { module: Some(module) } => {
                format!("{module} has no unwind information for this place")
            }
            Incomplete::NoUnwindInformation { module: None } => {
                "no file is mapped there, so there is no unwind information".to_owned()
            }
            Incomplete::UnwindFailed { why } => format!("it could not be unwound further: {why}"),
            Incomplete::ProcessGone => "the process had ended before its mappings could be read".to_owned(),
            Incomplete::Unreadable { why } => why.clone(),
            Incomplete::ProgramOf32Bits => "a 32-bit program, whose stack is not unwound".to_owned(),
            Incomplete::NoUserMemory => "it has no memory of a program".to_owned(),
            Incomplete::TooManyFrames { frames } => format!("only {frames} frames are kept"),
        }
    }
}

/// Why a copy of a program's stack ends where it does, as `enum rts_stack_end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyEnd {
    /// Nothing was copied: there is no such stack.
    NotTaken,
    /// As much as was asked for.
    Limit,
    /// The next page is not in memory, or there is none.
    Absent,
    /// A 32-bit program.
    Compat,
}

/// A copy of what a task's stacks are made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackCopy {
    /// Its number.
    pub id: u32,
    /// When it was made.
    pub time: MonotonicNs,
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// Its name.
    pub comm: Comm,
    /// Return addresses in the kernel, the innermost first; those of the eBPF program, too.
    pub kernel: Vec<u64>,
    /// Registers in user mode, as DWARF numbers them, and the program counter.
    pub registers: Vec<u64>,
    /// The program's stack from its stack pointer on.
    pub memory: Vec<u8>,
    /// Why it ends there.
    pub end: CopyEnd,
}
