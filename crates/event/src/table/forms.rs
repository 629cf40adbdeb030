// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How values stand in records, in traces and in text. Most are numbers ([`Number`]); all others do it by themselves ([`Form`]).

use super::record::RecordField;
use super::sink::{TraceSink, TraceType};
use super::text::{escape, unescape};
use super::view::TakenFields;
use crate::{
    Comm, CpuId, CpuMask, End, Irq, OriginKind, Pid, Priority, TaskState, Tid, Tracker, VectorKind, WaitKind,
    exact,
};
use rtscope_abi as abi;
use std::fmt::Write;

/// The random numbers of [`EventKind::random`](crate::EventKind::random): one below the given number, or any for 0.
pub(super) type RandomNumbers<'r> = dyn FnMut(u64) -> u64 + 'r;

/// A way to write down a value.
pub(super) trait Form {
    /// What it is in an event.
    type Value;
    /// What it is in a trace.
    const TRACE: TraceType;

    /// From a record; `None` when it is nothing that this can be.
    fn from_record(field: RecordField<'_>) -> Option<Self::Value>;
    fn put(value: &Self::Value, out: &mut impl TraceSink);
    /// From a trace; `None` when it is missing, or nothing that this can be.
    fn take(fields: &mut TakenFields<'_>) -> Option<Self::Value>;
    fn show(value: &Self::Value, text: &mut String);
    /// From text. The error says what it is not.
    fn parse(text: &str) -> Result<Self::Value, &'static str>;
    /// The usual value, where text may leave it out. `here` is the CPU of the event.
    fn usual(_here: CpuId) -> Option<Self::Value> {
        None
    }
    /// A value as a kernel has them.
    fn random(random: &mut RandomNumbers<'_>) -> Self::Value;
}

/// A form of a number.
pub(super) trait Number {
    type Value;
    const TRACE: TraceType;
    /// In traces, this is added to the number.
    const OFFSET: i128 = 0;

    /// The value, from its number or from its bits without their sign.
    fn of(number: i128) -> Option<Self::Value>;
    fn number(value: &Self::Value) -> i128;
    fn usual(_here: CpuId) -> Option<Self::Value> {
        None
    }
    fn random(random: &mut RandomNumbers<'_>) -> Self::Value;
}

impl<N: Number> Form for N {
    type Value = N::Value;
    const TRACE: TraceType = N::TRACE;

    #[inline(always)]
    fn from_record(field: RecordField<'_>) -> Option<N::Value> {
        N::of(field.number())
    }

    #[inline(always)]
    fn put(value: &N::Value, out: &mut impl TraceSink) {
        out.number(N::TRACE, (N::number(value) + N::OFFSET) as u64);
    }

    #[inline]
    fn take(fields: &mut TakenFields<'_>) -> Option<N::Value> {
        let offset = fields.offset(N::OFFSET);
        N::of(fields.number()?.checked_sub(offset)?)
    }

    fn show(value: &N::Value, text: &mut String) {
        let number = N::number(value);
        // Writing to a String cannot fail, here and below.
        let _ = match N::TRACE {
            TraceType::Address => write!(text, "{number:#x}"),
            _ => write!(text, "{number}"),
        };
    }

    fn parse(text: &str) -> Result<N::Value, &'static str> {
        let number = match text.strip_prefix("0x") {
            Some(digits) => i128::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.ok().and_then(N::of).ok_or("not a number in range")
    }

    fn usual(here: CpuId) -> Option<N::Value> {
        N::usual(here)
    }

    fn random(random: &mut RandomNumbers<'_>) -> N::Value {
        N::random(random)
    }
}

/// 32 bits, with or without a sign.
#[inline(always)]
fn u32_of(number: i128) -> Option<u32> {
    u32::try_from(number).or_else(|_| i32::try_from(number).map(|number| number as u32)).ok()
}

#[inline(always)]
fn i32_of(number: i128) -> Option<i32> {
    i32::try_from(number).or_else(|_| u32::try_from(number).map(|bits| bits as i32)).ok()
}

#[inline(always)]
fn i16_of(number: i128) -> Option<i16> {
    i16::try_from(number).or_else(|_| u16::try_from(number).map(|bits| bits as i16)).ok()
}

/// 64 bits, with or without a sign.
#[inline(always)]
fn u64_of(number: i128) -> Option<u64> {
    u64::try_from(number).or_else(|_| i64::try_from(number).map(exact::bits)).ok()
}

#[inline(always)]
fn i64_of(number: i128) -> Option<i64> {
    u64_of(number).map(exact::signed)
}

/// Mostly from so few that tasks meet again, sometimes any.
fn few(random: &mut RandomNumbers<'_>) -> u32 {
    if random(50) == 0 { random(0) as u32 } else { random(40) as u32 }
}

/// Forms of numbers: `form: value, type in traces [, offset]; usual value; number of a value; value of a number; random value`.
macro_rules! numbers {
    ($(
        $(#[$doc:meta])*
        $form:ident: $value:ty, $trace:ident $(+ $offset:literal)?; $usual:expr; $number:expr; $of:expr; $random:expr;
    )*) => { $(
        $(#[$doc])*
        impl Number for $form {
            type Value = $value;
            const TRACE: TraceType = TraceType::$trace;
            $(const OFFSET: i128 = $offset;)?

            #[inline(always)]
            fn of(number: i128) -> Option<$value> {
                let of: fn(i128) -> Option<$value> = $of;
                of(number)
            }

            #[inline(always)]
            fn number(value: &$value) -> i128 {
                let number: fn($value) -> i128 = $number;
                number(*value)
            }

            fn usual(here: CpuId) -> Option<$value> {
                let usual: fn(CpuId) -> Option<$value> = $usual;
                usual(here)
            }

            fn random(random: &mut RandomNumbers<'_>) -> $value {
                let value: fn(&mut RandomNumbers<'_>) -> $value = $random;
                value(random)
            }
        }
    )* };
}

/// An address: only its equality means something.
pub(super) struct Address;
/// A softirq's vector, which every event about one names.
pub(super) struct Softirq;
/// A CPU, as LTTng's inter-processor interrupts have it: unsigned.
pub(super) struct CpuNumber;
/// The same, and usually the one that the event happened on.
pub(super) struct ThisCpu;

numbers! {
    Tid: Tid, S32; |_| None; |tid| tid.0.into(); |n| u32_of(n).map(Tid); |r| Tid(few(r));
    // Where a trace says -1, it is unknown.
    Pid: Pid, S32; |_| Some(Pid(0)); |pid| pid.0.into(); |n| u32::try_from(n).ok().map(Pid); |r| Pid(few(r) >> 1);
    Irq: Irq, S32; |_| None; |irq| irq.0.into(); |n| u32_of(n).map(Irq); |r| Irq(few(r));
    CpuId: CpuId, S32; |_| Some(CpuId(0)); |cpu| cpu.0.into(); |n| u32_of(n).map(CpuId); |r| CpuId(r(4) as u32);
    CpuNumber: CpuId, U32; |_| None; |cpu| cpu.0.into(); |n| u32_of(n).map(CpuId); |r| CpuId(r(4) as u32);
    ThisCpu: CpuId, U32; Some; |cpu| cpu.0.into(); |n| u32_of(n).map(CpuId); |r| CpuId(r(4) as u32);
    // LTTng counts priorities from the first that is not real-time.
    Priority: Priority, S32 + -100; |_| Some(Priority(120)); |prio| prio.0.into(); |n| i16_of(n).map(Priority);
        |r| Priority(r(141) as i16 - 1);
    TaskState: TaskState, U32; |_| Some(TaskState(0)); |state| state.0.into(); |n| u32_of(n).map(TaskState);
        |r| TaskState(if r(2) == 0 { 0 } else { r(0x10000) as u32 });
    bool: bool, U8; |_| Some(false); i128::from; |n| Some(n != 0); |r| r(2) == 1;
    u32: u32, U32; |_| Some(0); i128::from; u32_of; |r| r(0) as u32;
    i32: i32, S32; |_| Some(0); i128::from; i32_of; |r| r(0) as i32;
    u64: u64, U64; |_| Some(0); i128::from; u64_of; |r| r(0);
    i64: i64, S64; |_| None; i128::from; i64_of; |r| r(0) as i64;
    Address: u64, Address; |_| Some(0); i128::from; u64_of; |r| r(0);
    Softirq: u32, U32; |_| None; i128::from; u32_of; few;
}

/// The state of an idle CPU; `None` when it leaves idle.
pub(super) struct IdleState;

impl IdleState {
    /// The kernel's PWR_EVENT_EXIT is -1.
    fn of(state: u32) -> Option<u32> {
        (state != abi::RTS_IDLE_EXIT).then_some(state)
    }
}

impl Form for IdleState {
    type Value = Option<u32>;
    const TRACE: TraceType = TraceType::U32;

    #[inline(always)]
    fn from_record(field: RecordField<'_>) -> Option<Option<u32>> {
        <u32 as Form>::from_record(field).map(IdleState::of)
    }

    #[inline(always)]
    fn put(value: &Option<u32>, out: &mut impl TraceSink) {
        out.number(Self::TRACE, value.unwrap_or(abi::RTS_IDLE_EXIT).into());
    }

    fn take(fields: &mut TakenFields<'_>) -> Option<Option<u32>> {
        <u32 as Form>::take(fields).map(IdleState::of)
    }

    fn show(value: &Option<u32>, text: &mut String) {
        match value {
            Some(state) => <u32 as Form>::show(state, text),
            None => text.push_str("exit"),
        }
    }

    fn parse(text: &str) -> Result<Option<u32>, &'static str> {
        if text == "exit" { Ok(None) } else { <u32 as Form>::parse(text).map(Some) }
    }

    fn random(random: &mut RandomNumbers<'_>) -> Option<u32> {
        if random(2) == 0 { None } else { Some(random(9) as u32) }
    }
}

/// Enumerations: numbers from 1 in records and traces, names in text.
macro_rules! labels {
    ($($form:ident: $trace:expr, $wrong:literal;)*) => { $(
        impl Form for $form {
            type Value = $form;
            const TRACE: TraceType = $trace;

            #[inline(always)]
            fn from_record(field: RecordField<'_>) -> Option<$form> {
                $form::from_number(field.number().try_into().ok()?)
            }

            #[inline(always)]
            fn put(value: &$form, out: &mut impl TraceSink) {
                if Self::TRACE != TraceType::PartOfName {
                    out.number(Self::TRACE, value.number().into());
                }
            }

            #[inline]
            fn take(fields: &mut TakenFields<'_>) -> Option<$form> {
                let number = match Self::TRACE {
                    TraceType::PartOfName => fields.part_of_name(),
                    _ => fields.number(),
                };
                $form::from_number(number?.try_into().ok()?)
            }

            fn show(value: &$form, text: &mut String) {
                text.push_str(value.name());
            }

            fn parse(text: &str) -> Result<$form, &'static str> {
                $form::ALL.into_iter().find(|value| value.name() == text).ok_or($wrong)
            }

            fn random(random: &mut RandomNumbers<'_>) -> $form {
                $form::ALL[random($form::ALL.len() as u64) as usize]
            }
        }
    )* };
}

labels! {
    VectorKind: TraceType::PartOfName, "no such vector";
    OriginKind: TraceType::Labels(&[
        "timer", "irq", "vector", "task", "off_cpu", "softirq", "syscall", "lock", "block", "resched", "irqs_off",
        "event",
    ]), "no such origin";
    End: TraceType::Labels(&[
        "running", "blocked", "rewoken", "cycle", "returned", "acquired", "handled", "completed", "switched", "irqs_on",
        "event",
    ]), "no such end";
    Tracker: TraceType::Labels(&[
        "response", "wakeup", "offcpu", "syscall", "lock", "irq", "softirq", "block", "preemptoff", "irqoff",
        "pair",
    ]), "no such tracker";
}

/// A value in the flags of a record's word.
pub(super) trait Flags: Form {
    /// From the flags under `mask`; `None` when they are nothing that this can be.
    fn from_flags(flags: u32, mask: u32) -> Option<Self::Value>;
}

impl Flags for bool {
    #[inline(always)]
    fn from_flags(flags: u32, mask: u32) -> Option<bool> {
        Some(flags & mask != 0)
    }
}

/// The lowest bit of the mask is the number's. In traces labels are numbered from 1.
impl Flags for WaitKind {
    #[inline(always)]
    fn from_flags(flags: u32, mask: u32) -> Option<WaitKind> {
        WaitKind::from_number(((flags & mask) >> mask.trailing_zeros()) as u8)
    }
}

impl Form for WaitKind {
    type Value = WaitKind;
    const TRACE: TraceType = TraceType::Labels(&WaitKind::NAMES);

    #[inline(always)]
    fn from_record(field: RecordField<'_>) -> Option<WaitKind> {
        WaitKind::from_number(field.number().try_into().ok()?)
    }

    #[inline(always)]
    fn put(value: &WaitKind, out: &mut impl TraceSink) {
        out.number(Self::TRACE, u64::from(value.number()) + 1);
    }

    #[inline]
    fn take(fields: &mut TakenFields<'_>) -> Option<WaitKind> {
        WaitKind::from_number(fields.number()?.checked_sub(1)?.try_into().ok()?)
    }

    fn show(value: &WaitKind, text: &mut String) {
        text.push_str(value.name());
    }

    fn parse(text: &str) -> Result<WaitKind, &'static str> {
        WaitKind::ALL.into_iter().find(|value| value.name() == text).ok_or("no such wait")
    }

    fn usual(_here: CpuId) -> Option<WaitKind> {
        Some(WaitKind::None)
    }

    fn random(random: &mut RandomNumbers<'_>) -> WaitKind {
        WaitKind::ALL[random(WaitKind::ALL.len() as u64) as usize]
    }
}

impl Form for Comm {
    type Value = Comm;
    const TRACE: TraceType = TraceType::Comm;

    #[inline(always)]
    fn from_record(field: RecordField<'_>) -> Option<Comm> {
        Some(Comm::from_bytes(&field.bytes::<{ abi::RTS_COMM_LEN as usize }>()))
    }

    #[inline(always)]
    fn put(value: &Comm, out: &mut impl TraceSink) {
        out.comm(*value);
    }

    #[inline]
    fn take(fields: &mut TakenFields<'_>) -> Option<Comm> {
        fields.comm()
    }

    fn show(value: &Comm, text: &mut String) {
        escape(value.as_bytes(), text);
    }

    fn parse(text: &str) -> Result<Comm, &'static str> {
        Ok(Comm::from_bytes(&unescape(text)?))
    }

    fn random(random: &mut RandomNumbers<'_>) -> Comm {
        let length = 1 + random(15);
        let bytes: Vec<u8> = (0..length).map(|_| 1 + random(255) as u8).collect();
        Comm::from_bytes(&bytes)
    }
}

/// A path, as long as its record has space for it.
pub(super) struct FileName;

impl Form for FileName {
    type Value = String;
    const TRACE: TraceType = TraceType::Text;

    #[inline]
    fn from_record(field: RecordField<'_>) -> Option<String> {
        let name = field.bytes::<{ abi::RTS_FILENAME_LEN as usize }>();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(String::from_utf8_lossy(name).into_owned())
    }

    #[inline]
    fn put(value: &String, out: &mut impl TraceSink) {
        out.text(value);
    }

    fn take(fields: &mut TakenFields<'_>) -> Option<String> {
        fields.text()
    }

    fn show(value: &String, text: &mut String) {
        escape(value.as_bytes(), text);
    }

    fn parse(text: &str) -> Result<String, &'static str> {
        Ok(String::from_utf8_lossy(&unescape(text)?).into_owned())
    }

    fn random(random: &mut RandomNumbers<'_>) -> String {
        format!("/usr/bin/\u{e4}{}", random(0))
    }
}

/// In traces, a list as the kernel prints one, `0-3,7`: of any length, and readable in every viewer. Other tracers write the bits
/// themselves, which are not read.
impl Form for CpuMask {
    type Value = CpuMask;
    const TRACE: TraceType = TraceType::Text;

    #[inline]
    fn from_record(field: RecordField<'_>) -> Option<CpuMask> {
        let cut = u32::from(field.flags) & abi::RTS_MASK_CUT != 0;
        Some(CpuMask::new(std::array::from_fn(|word| field.word(word)), cut))
    }

    fn put(value: &CpuMask, out: &mut impl TraceSink) {
        out.text(&value.to_string());
    }

    fn take(fields: &mut TakenFields<'_>) -> Option<CpuMask> {
        fields.text()?.parse().ok()
    }

    fn show(value: &CpuMask, text: &mut String) {
        let _ = write!(text, "{value}");
    }

    fn parse(text: &str) -> Result<CpuMask, &'static str> {
        text.parse().map_err(|_| "not a list of CPUs")
    }

    fn random(random: &mut RandomNumbers<'_>) -> CpuMask {
        CpuMask::new([random(0), random(0), 0, random(0)], random(2) == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace numbers labels from 1, as the enumerations are.
    fn assert_named<T: Copy>(form: TraceType, all: &[T], name: fn(T) -> &'static str) {
        let TraceType::Labels(labels) = form else { panic!("{form:?}") };
        assert_eq!(labels, all.iter().map(|value| name(*value)).collect::<Vec<_>>());
    }

    #[test]
    fn a_trace_has_a_name_for_every_origin_end_and_tracker() {
        assert_named(OriginKind::TRACE, &OriginKind::ALL, OriginKind::name);
        assert_named(End::TRACE, &End::ALL, End::name);
        assert_named(Tracker::TRACE, &Tracker::ALL, Tracker::name);
    }
}
