// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Event → payload bytes, field by field in the layout's order.

use crate::layout::{Field, Type, UNKNOWN_COMM};
use rtscope_event::{
    Comm, CpuId, End, Event, EventKind, Irq, MonotonicNs, Names, OriginKind, Priority, TaskState, Tid,
};

/// Longest text written, so that an event always fits a packet. (Linux' PATH_MAX.)
const TEXT_BYTES: usize = 4095;

/// Names of tasks and interrupts; rtscope's records have numbers only.
pub trait NameLookup {
    /// The name of a task at a time, if known.
    fn comm(&self, tid: Tid, time: MonotonicNs) -> Option<Comm>;
    /// The name of an interrupt, if known.
    fn irq(&self, irq: Irq) -> Option<&str>;
}

impl NameLookup for Names {
    fn comm(&self, tid: Tid, time: MonotonicNs) -> Option<Comm> {
        Names::comm(self, tid, time)
    }

    fn irq(&self, irq: Irq) -> Option<&str> {
        Names::irq(self, irq)
    }
}

/// Appends an event's fields, and checks in debug builds that they match its layout.
pub(super) struct Payload<'b> {
    bytes: &'b mut Vec<u8>,
    fields: std::slice::Iter<'static, Field>,
}

impl<'b> Payload<'b> {
    pub(super) fn new(bytes: &'b mut Vec<u8>, fields: &'static [Field]) -> Payload<'b> {
        Payload { bytes, fields: fields.iter() }
    }

    fn put(&mut self, kind: Type, bytes: &[u8]) {
        let field = self.fields.next();
        debug_assert_eq!(field.map(|field| field.1), Some(kind), "{field:?}");
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn finish(self) {
        debug_assert!(self.fields.as_slice().is_empty(), "fields left: {:?}", self.fields);
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.put(Type::U8, &[value]);
    }

    pub(super) fn flag(&mut self, value: bool) {
        self.u8(value.into());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.put(Type::U32, &value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.put(Type::U64, &value.to_le_bytes());
    }

    pub(super) fn s32(&mut self, value: i32) {
        self.put(Type::S32, &value.to_le_bytes());
    }

    pub(super) fn s64(&mut self, value: i64) {
        self.put(Type::S64, &value.to_le_bytes());
    }

    pub(super) fn address(&mut self, value: u64) {
        self.put(Type::Address, &value.to_le_bytes());
    }

    /// An id (thread, process, CPU, interrupt). LTTng has these signed, as the kernel's own types are.
    pub(super) fn id(&mut self, value: u32) {
        self.s32(value as i32);
    }

    /// LTTng counts priorities from the first that is not real-time.
    pub(super) fn prio(&mut self, prio: Priority) {
        self.s32(i32::from(prio.0) - 100);
    }

    pub(super) fn comm(&mut self, comm: Comm) {
        self.put(Type::Comm, &comm.array());
    }

    /// Cut at a NUL, which would end it anyway.
    pub(super) fn text(&mut self, text: &str) {
        let text = text.split('\0').next().unwrap_or_default();
        let end = (0..=text.len().min(TEXT_BYTES)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.put(Type::Text, &text.as_bytes()[..end]);
        self.bytes.push(0);
    }

    fn origin(&mut self, kind: OriginKind) {
        self.put(Type::Origin, &[origin_number(kind)]);
    }

    fn end(&mut self, end: End) {
        self.put(Type::End, &[end.number()]);
    }
}

/// Numbers of origin kinds in traces.
pub(crate) fn origin_number(kind: OriginKind) -> u8 {
    match kind {
        OriginKind::Timer => 1,
        OriginKind::Irq => 2,
        OriginKind::Vector => 3,
    }
}

/// The `prev_state` that Trace Compass interprets correctly: 0 runnable, 1 and 2 waiting, 64 gone. lttng-modules
/// writes 256 for a preempted task, which it shows as unknown; the kernel's 64 (parked) it would show as gone.
pub(super) fn shown_state(state: TaskState, preempt: bool) -> i64 {
    const INTERRUPTIBLE: u32 = 1;
    match state {
        _ if preempt => 0,
        TaskState::RUNNABLE => 0,
        state if state.is_dead() => 64,
        TaskState(bits) if bits & INTERRUPTIBLE != 0 => 1,
        _ => 2,
    }
}

/// Appends the payload of an event. Names are those of the event's time; an unknown one is [`UNKNOWN_COMM`].
pub(super) fn event<N: NameLookup>(event: &Event, names: &N, out: &mut Payload<'_>) {
    let comm = |tid: Tid| names.comm(tid, event.time).unwrap_or_else(|| Comm::from(UNKNOWN_COMM));
    match &event.kind {
        EventKind::SchedSwitch { prev_tid, next_tid, .. } => {
            switch(&event.kind, comm(*prev_tid), comm(*next_tid), out);
        }
        EventKind::SchedWaking { tid, prio, target_cpu, kthread }
        | EventKind::SchedWakeupNew { tid, prio, target_cpu, kthread } => {
            task(comm(*tid), *tid, *prio, out);
            out.id(target_cpu.0);
            out.flag(*kthread);
        }
        EventKind::SchedMigrateTask { tid, prio, orig_cpu, dest_cpu } => {
            task(comm(*tid), *tid, *prio, out);
            [orig_cpu, dest_cpu].into_iter().for_each(|cpu| out.id(cpu.0));
        }
        EventKind::SchedPiSetprio { tid, old_prio, new_prio } => {
            task(comm(*tid), *tid, *old_prio, out);
            out.prio(*new_prio);
        }
        EventKind::ProcessFork { parent_tid, parent_pid, child_tid, child_pid, child_comm } => {
            out.comm(comm(*parent_tid));
            [parent_tid.0, parent_pid.0].into_iter().for_each(|id| out.id(id));
            out.comm(*child_comm);
            [child_tid.0, child_pid.0].into_iter().for_each(|id| out.id(id));
        }
        EventKind::ProcessExec { tid, old_tid, filename } => {
            out.text(filename);
            [tid, old_tid].into_iter().for_each(|tid| out.id(tid.0));
        }
        EventKind::ProcessExit { tid, pid, prio, comm } => {
            task(*comm, *tid, *prio, out);
            out.id(pid.0);
        }
        EventKind::TaskRename { tid, pid, old_comm, new_comm } => {
            [tid.0, pid.0].into_iter().for_each(|id| out.id(id));
            [old_comm, new_comm].into_iter().for_each(|comm| out.comm(*comm));
        }
        EventKind::LateResponse { tid, .. } => late_response(&event.kind, comm(*tid), out),
        other => interrupt(other, event, names, out),
    }
}

fn task(comm: Comm, tid: Tid, prio: Priority, out: &mut Payload<'_>) {
    out.comm(comm);
    out.id(tid.0);
    out.prio(prio);
}

fn switch(kind: &EventKind, prev_comm: Comm, next_comm: Comm, out: &mut Payload<'_>) {
    let EventKind::SchedSwitch {
        prev_tid,
        prev_prio,
        prev_state,
        preempt,
        prev_kthread,
        next_tid,
        next_prio,
        next_kthread,
    } = kind
    else {
        return;
    };
    task(prev_comm, *prev_tid, *prev_prio, out);
    out.s64(shown_state(*prev_state, *preempt));
    task(next_comm, *next_tid, *next_prio, out);
    out.u32(prev_state.0);
    [preempt, prev_kthread, next_kthread].into_iter().for_each(|flag| out.flag(*flag));
}

/// Interrupts, timers and the CPU's own events.
fn interrupt<N: NameLookup>(kind: &EventKind, event: &Event, names: &N, out: &mut Payload<'_>) {
    match *kind {
        EventKind::IrqHandlerEntry { irq } => {
            out.id(irq.0);
            out.text(names.irq(irq).unwrap_or_default());
        }
        EventKind::IrqHandlerExit { irq, ret } => {
            out.id(irq.0);
            out.s32(ret);
        }
        EventKind::VectorEntry { vector: number, .. }
        | EventKind::VectorExit { vector: number, .. }
        | EventKind::SoftirqRaise { vec: number }
        | EventKind::SoftirqEntry { vec: number }
        | EventKind::SoftirqExit { vec: number } => out.u32(number),
        EventKind::HrtimerExpireEntry { timer, function, softexpires_ns, expires_ns } => {
            out.address(timer);
            out.s64(event.time.0 as i64);
            out.address(function);
            [softexpires_ns, expires_ns].into_iter().for_each(|time| out.s64(time));
        }
        EventKind::HrtimerExpireExit { timer } => out.address(timer),
        EventKind::CpuIdle { state, cpu: CpuId(cpu) } => {
            // The kernel's PWR_EVENT_EXIT is -1.
            [state.unwrap_or(u32::MAX), cpu].into_iter().for_each(|value| out.u32(value));
        }
        EventKind::NmiHandler { handler, duration_ns, handled } => {
            out.address(handler);
            out.s64(duration_ns);
            out.s32(handled);
        }
        EventKind::IpiSend { target_cpu, call, callsite, callback } => {
            out.u32(target_cpu.0);
            [callsite, callback].into_iter().for_each(|address| out.address(address));
            out.flag(call);
        }
        EventKind::IpiSendMask { targets, call, callsite, callback } => {
            out.text(&targets.to_string());
            [callsite, callback].into_iter().for_each(|address| out.address(address));
            out.flag(call);
        }
        EventKind::WorkQueue { work, function, req_cpu } => {
            [work, function].into_iter().for_each(|address| out.address(address));
            out.u32(req_cpu);
        }
        EventKind::WorkStart { work, function } | EventKind::WorkEnd { work, function } => {
            [work, function].into_iter().for_each(|address| out.address(address));
        }
        // `event` has taken all others; `layout::event_id` is the match that names every variant.
        _ => debug_assert!(false, "no encoding for {kind:?}"),
    }
}

fn late_response(kind: &EventKind, comm: Comm, out: &mut Payload<'_>) {
    let EventKind::LateResponse {
        tid,
        pid,
        origin_kind,
        origin_id,
        origin_ns,
        response_ns,
        threshold_ns,
        sequence,
        end,
    } = kind
    else {
        return;
    };
    out.comm(comm);
    [tid.0, pid.0].into_iter().for_each(|id| out.id(id));
    out.origin(*origin_kind);
    out.u32(*origin_id);
    [origin_ns, response_ns, threshold_ns, sequence].into_iter().for_each(|value| out.u64(*value));
    out.end(*end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preempted_task_is_shown_as_runnable() {
        assert_eq!(shown_state(TaskState(1), true), 0);
        assert_eq!(shown_state(TaskState(0), false), 0);
        assert_eq!(shown_state(TaskState(1), false), 1);
        assert_eq!(shown_state(TaskState(0x402), false), 2);
        assert_eq!(shown_state(TaskState(0x40), false), 2);
        assert_eq!(shown_state(TaskState(0x80), false), 64);
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let mut bytes = Vec::new();
        let mut payload = Payload::new(&mut bytes, &[("text", Type::Text)]);
        payload.text(&"ü".repeat(3000));
        payload.finish();
        assert_eq!(bytes.len(), 4095);
        assert_eq!(std::str::from_utf8(&bytes[..4094]).unwrap(), "ü".repeat(2047));
    }
}
