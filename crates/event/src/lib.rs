// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The event model: what rtscope knows, in the form every later stage works on.
//!
//! Everything is an [`Event`] on a CPU at a [`MonotonicNs`]. Names (of tasks, of interrupts) are kept beside the events
//! in [`Names`], because the kernel records carry ids only: that keeps a record at 24 to 48 bytes, so that a bank holds
//! more history. Response chains ([`Chain`]) are the second vocabulary: the tracker in the kernel reports them, and the
//! pure state machine in `rtscope-analyze` computes the same type from events.
#![forbid(unsafe_code)]

mod block;
pub mod called;
mod chain;
mod count;
mod descriptors;
mod event_names;
mod event_span;
pub mod exact;
mod glob;
mod kernel;
mod lock;
mod mask;
mod names;
mod pattern;
mod recording;
mod recording_source;
mod schema;
mod section;
mod source;
mod stack;
mod switches;
mod table;
mod tracker;
mod units;
mod wait;
mod wall_clock;

pub use block::{BlockOperation, BlockRequest};
pub use chain::{
    CallArgument, Chain, End, LateResponse, Origin, OriginKind, OtherOrigin, Step, StepKind, Stuck,
    SystemCall,
};
pub use count::{count_text, counted};
pub use descriptors::{
    CHUNK_SLOTS, DescriptorChange, DescriptorLosses, DescriptorRecord, Discovery, FileDescription,
    OpenFileId, SlotChunk, SlotState, TableId, TaskChange, TaskTable,
};
pub use event_names::{EventName, is_event_named, is_known_event, nearest};
pub use event_span::{EventSpan, FieldNumber, FieldValue, SpanEvent};
pub use glob::{Glob, GlobError};
pub use kernel::{Event, TaskState, VectorKind, softirq_name, step_vector_name};
pub use lock::{LockAccess, LockKind, LockWait};
pub use mask::{CpuMask, ParseCpuMaskError};
pub use names::{Comm, Names, Policy, TaskInfo, is_invisible};
pub use pattern::{Pattern, PatternList, glob_matches};
pub use recording::{CpuHistory, Loss, LossCause, Recording};
pub use recording_source::RecordingSource;
pub use schema::{
    ClassId, Domain, EventClass, EventRef, FieldClass, Schema, StreamId, StreamInfo, Value, ValueBuffer,
    Values,
};
pub use section::Section;
pub use source::{Item, Lost, TraceSource};
pub use stack::{
    CopyEnd, Function, Incomplete, LateStacks, StackCopies, StackCopy, StackFrame, StackMissing, TaskStack,
};
pub use switches::SwitchSequence;
pub use table::{
    ClassLayout, EventKind, FoundNames, KernelView, NameLookup, ParseEventError, ProgramSpec, TraceField,
    TraceSink, TraceType, UNKNOWN_COMM, classes, event_line, is_kernels, name_in_traces, parse_event,
    programs, record_name, trace_name,
};
pub use tracker::Tracker;
pub use units::{CpuId, Irq, MonotonicNs, Pid, Priority, Tid};
pub use wait::WaitKind;
pub use wall_clock::WallClock;
