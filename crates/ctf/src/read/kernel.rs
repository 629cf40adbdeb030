// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decoded values → kernel events, by the table in `layout`.
//!
//! An event class of a trace is bound once: the layout of its name is looked up, and for each field of the layout the
//! index of that field in the trace. Taking values then follows the table's order, and never compares names.
//! A field that the trace lacks is `None`: a missing required field makes the event *malformed*, a field that LTTng
//! does not write has the value that claims least.

use super::plan::{Plan, Scope};
use super::values::{Value, Values};
use crate::layout::{EventLayout, UNKNOWN_COMM, id, vector_of};
use rtscope_event::exact;
use rtscope_event::{
    Comm, CpuId, CpuMask, End, EventKind, Irq, OriginKind, Pid, Policy, Priority, TaskInfo, TaskState, Tid,
};
use std::collections::HashMap;

/// The content of an event.
#[derive(Debug)]
pub(crate) enum EventContent {
    Event(EventKind),
    /// From a state dump.
    Task(TaskInfo),
    Nothing,
}

/// Names that an event has in passing: of its tasks and its interrupt.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) tasks: [Option<(Tid, Comm)>; 2],
    pub(crate) irq: Option<(Irq, String)>,
}

impl Names {
    fn task(tid: Tid, comm: Option<Comm>) -> Names {
        Names { tasks: [named(tid, comm), None], irq: None }
    }
}

/// The idle threads have a fixed name in the event model; an empty name is not a name.
fn named(tid: Tid, comm: Option<Comm>) -> Option<(Tid, Comm)> {
    let known = |comm: &Comm| !comm.as_bytes().is_empty() && comm.as_bytes() != UNKNOWN_COMM.as_bytes();
    comm.filter(|comm| tid != Tid(0) && known(comm)).map(|comm| (tid, comm))
}

/// How to take an event class of a trace.
#[derive(Debug)]
pub(crate) struct Binding {
    id: u32,
    /// For each field of the layout, its index in the trace's event.
    places: Vec<Option<usize>>,
}

impl Binding {
    /// `None` when the layout has no event of that name.
    pub(crate) fn of(
        name: &str,
        plan: &Plan,
        layouts: &[EventLayout],
        by_name: &HashMap<&str, u32>,
    ) -> Option<Binding> {
        let id = *by_name.get(name)?;
        let place = |name: &str| {
            plan.fields.iter().position(|field| field.scope == Scope::Fields && field.path == name)
        };
        let fields = layouts.get(id as usize)?.fields.iter();
        Some(Binding { id, places: fields.map(|(name, _)| place(name)).collect() })
    }

    /// The content of an event; `None` when a required field is missing or invalid.
    pub(crate) fn take(&self, values: &Values) -> Option<(EventContent, Names)> {
        let mut fields = Fields { places: self.places.iter(), values };
        match self.id {
            id::SCHED_SWITCH => switch(&mut fields),
            id::SCHED_WAKING..=id::TASK_RENAME => task_event(self.id, &mut fields),
            id::IRQ_ENTRY => irq_entry(&mut fields),
            id::LATE_RESPONSE => late_response(&mut fields),
            id::DUMP_PROCESS => dump_process(&mut fields),
            id::DUMP_INTERRUPT => dump_interrupt(&mut fields),
            id::DUMP_START | id::DUMP_END => Some((EventContent::Nothing, Names::default())),
            other => Some((EventContent::Event(cpu_event(other, &mut fields)?), Names::default())),
        }
    }
}

/// Takes values in the order of the layout.
struct Fields<'v> {
    places: std::slice::Iter<'v, Option<usize>>,
    values: &'v Values,
}

impl<'v> Fields<'v> {
    fn value(&mut self) -> Option<Value> {
        Some(self.values.get((*self.places.next()?)?))
    }

    fn number(&mut self) -> Option<i128> {
        match self.value()? {
            Value::Unsigned(value) => Some(value.into()),
            Value::Signed(value) => Some(value.into()),
            _ => None,
        }
    }

    /// 32 bits, signed or unsigned in the trace.
    fn u32(&mut self) -> Option<u32> {
        let bits = |number: i32| u32::from_ne_bytes(number.to_ne_bytes());
        let number = self.number()?;
        u32::try_from(number).or_else(|_| i32::try_from(number).map(bits)).ok()
    }

    fn i32(&mut self) -> Option<i32> {
        let number = self.number()?;
        i32::try_from(number).or_else(|_| u32::try_from(number).map(|number| number as i32)).ok()
    }

    /// 64 bits, signed or unsigned in the trace.
    fn u64(&mut self) -> Option<u64> {
        match self.value()? {
            Value::Unsigned(value) => Some(value),
            Value::Signed(value) => Some(exact::bits(value)),
            _ => None,
        }
    }

    fn i64(&mut self) -> Option<i64> {
        Some(self.u64()? as i64)
    }

    fn flag(&mut self) -> Option<bool> {
        Some(self.number()? != 0)
    }

    fn tid(&mut self) -> Option<Tid> {
        self.u32().map(Tid)
    }

    fn pid(&mut self) -> Option<Pid> {
        self.u32().map(Pid)
    }

    fn cpu(&mut self) -> Option<CpuId> {
        self.u32().map(CpuId)
    }

    fn irq(&mut self) -> Option<Irq> {
        self.u32().map(Irq)
    }

    /// LTTng counts priorities from the first that is not real-time.
    fn prio(&mut self) -> Option<Priority> {
        i16::try_from(self.number()?.checked_add(100)?).ok().map(Priority)
    }

    fn bytes(&mut self) -> Option<&'v [u8]> {
        let value = self.value()?;
        self.values.bytes(value)
    }

    fn comm(&mut self) -> Option<Comm> {
        self.bytes().map(Comm::from_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let bytes = self.bytes()?;
        let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

fn switch(fields: &mut Fields<'_>) -> Option<(EventContent, Names)> {
    let prev_comm = fields.comm();
    let prev_tid = fields.tid()?;
    let prev_prio = fields.prio()?;
    let shown_state = fields.i64()?;
    let next_comm = fields.comm();
    let next_tid = fields.tid()?;
    let next_prio = fields.prio()?;
    // Without rtscope's fields: lttng-modules has 0 or 256 (TASK_REPORT_MAX) for a task that stays runnable.
    const REPORT_MAX: i64 = 256;
    let raw = fields.u32();
    let prev_state = raw.unwrap_or(exact::low_half(exact::bits(shown_state & (REPORT_MAX - 1))));
    let preempt = fields.flag().unwrap_or(raw.is_none() && shown_state & REPORT_MAX != 0);
    let prev_kthread = fields.flag().unwrap_or(false);
    let next_kthread = fields.flag().unwrap_or(false);
    let event = EventKind::SchedSwitch {
        prev_tid,
        prev_prio,
        prev_state: TaskState(prev_state),
        preempt,
        prev_kthread,
        next_tid,
        next_prio,
        next_kthread,
    };
    let tasks = [named(prev_tid, prev_comm), named(next_tid, next_comm)];
    Some((EventContent::Event(event), Names { tasks, irq: None }))
}

/// The other events about tasks.
fn task_event(id: u32, fields: &mut Fields<'_>) -> Option<(EventContent, Names)> {
    match id {
        id::PROCESS_FORK => return fork(fields),
        id::PROCESS_EXEC => {
            let filename = fields.text()?;
            let (tid, old_tid) = (fields.tid()?, fields.tid());
            let event = EventKind::ProcessExec { tid, old_tid: old_tid.unwrap_or(tid), filename };
            return Some((EventContent::Event(event), Names::default()));
        }
        id::TASK_RENAME => {
            let (tid, pid) = (fields.tid()?, fields.pid()?);
            let (old_comm, new_comm) = (fields.comm()?, fields.comm()?);
            let event = EventKind::TaskRename { tid, pid, old_comm, new_comm };
            return Some((EventContent::Event(event), Names::default()));
        }
        _ => {}
    }
    let comm = fields.comm();
    let tid = fields.tid()?;
    let prio = fields.prio()?;
    let event = match id {
        id::SCHED_WAKING | id::SCHED_WAKEUP_NEW => {
            let (target_cpu, kthread) = (fields.cpu()?, fields.flag().unwrap_or(false));
            if id == id::SCHED_WAKING {
                EventKind::SchedWaking { tid, prio, target_cpu, kthread }
            } else {
                EventKind::SchedWakeupNew { tid, prio, target_cpu, kthread }
            }
        }
        id::SCHED_MIGRATE_TASK => {
            EventKind::SchedMigrateTask { tid, prio, orig_cpu: fields.cpu()?, dest_cpu: fields.cpu()? }
        }
        id::SCHED_PI_SETPRIO => EventKind::SchedPiSetprio { tid, old_prio: prio, new_prio: fields.prio()? },
        id::PROCESS_EXIT => {
            // LTTng does not record the process. The name is part of the event.
            let pid = fields.pid().unwrap_or(Pid(tid.0));
            let event = EventKind::ProcessExit { tid, pid, prio, comm: comm? };
            return Some((EventContent::Event(event), Names::default()));
        }
        _ => return None,
    };
    Some((EventContent::Event(event), Names::task(tid, comm)))
}

fn fork(fields: &mut Fields<'_>) -> Option<(EventContent, Names)> {
    let parent_comm = fields.comm();
    let parent_tid = fields.tid()?;
    let parent_pid = fields.pid().unwrap_or(Pid(parent_tid.0));
    let child_comm = fields.comm()?;
    let child_tid = fields.tid()?;
    let child_pid = fields.pid().unwrap_or(Pid(child_tid.0));
    let event = EventKind::ProcessFork { parent_tid, parent_pid, child_tid, child_pid, child_comm };
    Some((EventContent::Event(event), Names::task(parent_tid, parent_comm)))
}

fn irq_entry(fields: &mut Fields<'_>) -> Option<(EventContent, Names)> {
    let irq = fields.irq()?;
    let name = fields.text().filter(|name| !name.is_empty());
    let names = Names { irq: name.map(|name| (irq, name)), ..Names::default() };
    Some((EventContent::Event(EventKind::IrqHandlerEntry { irq }), names))
}

/// Interrupts, timers and the CPU's own events.
fn cpu_event(id: u32, fields: &mut Fields<'_>) -> Option<EventKind> {
    if let Some((kind, entry)) = vector_of(id) {
        let vector = fields.u32()?;
        return Some(match entry {
            true => EventKind::VectorEntry { kind, vector },
            false => EventKind::VectorExit { kind, vector },
        });
    }
    Some(match id {
        id::IRQ_EXIT => EventKind::IrqHandlerExit { irq: fields.irq()?, ret: fields.i32()? },
        id::SOFTIRQ_RAISE => EventKind::SoftirqRaise { vec: fields.u32()? },
        id::SOFTIRQ_ENTRY => EventKind::SoftirqEntry { vec: fields.u32()? },
        id::SOFTIRQ_EXIT => EventKind::SoftirqExit { vec: fields.u32()? },
        id::HRTIMER_ENTRY => {
            let timer = fields.u64()?;
            let now = fields.i64();
            let function = fields.u64()?;
            // LTTng does not record the timer's deadline. With the time of its handling it is neither early nor late.
            let softexpires_ns = fields.i64().or(now)?;
            let expires_ns = fields.i64().or(now)?;
            EventKind::HrtimerExpireEntry { timer, function, softexpires_ns, expires_ns }
        }
        id::HRTIMER_EXIT => EventKind::HrtimerExpireExit { timer: fields.u64()? },
        id::CPU_IDLE => {
            let state = fields.u32()?;
            EventKind::CpuIdle { state: (state != u32::MAX).then_some(state), cpu: fields.cpu()? }
        }
        id::NMI_HANDLER => {
            let handler = fields.u64()?;
            EventKind::NmiHandler { handler, duration_ns: fields.i64()?, handled: fields.i32()? }
        }
        id::IPI_SEND => {
            let target_cpu = fields.cpu()?;
            let (callsite, callback) = (fields.u64()?, fields.u64()?);
            // In other traces: a reschedule has no callback.
            let call = fields.flag().unwrap_or(callback != 0);
            EventKind::IpiSend { target_cpu, call, callsite, callback }
        }
        other => return deferral(other, fields),
    })
}

/// Events that hand work on: to other CPUs, to workers.
fn deferral(id: u32, fields: &mut Fields<'_>) -> Option<EventKind> {
    Some(match id {
        id::IPI_SEND_MASK => {
            // Other tracers write the bits themselves, which are not read here: then the CPUs are unknown.
            let unknown = CpuMask::new([0; 4], true);
            let targets = fields.text().and_then(|list| list.parse().ok()).unwrap_or(unknown);
            let (callsite, callback) = (fields.u64()?, fields.u64()?);
            let call = fields.flag().unwrap_or(callback != 0);
            EventKind::IpiSendMask { targets, call, callsite, callback }
        }
        id::WORK_QUEUE => {
            let (work, function) = (fields.u64()?, fields.u64()?);
            EventKind::WorkQueue { work, function, req_cpu: fields.u32()? }
        }
        id::WORK_START => EventKind::WorkStart { work: fields.u64()?, function: fields.u64().unwrap_or(0) },
        // LTTng did not always record the function.
        id::WORK_END => EventKind::WorkEnd { work: fields.u64()?, function: fields.u64().unwrap_or(0) },
        _ => return None,
    })
}

fn late_response(fields: &mut Fields<'_>) -> Option<(EventContent, Names)> {
    let comm = fields.comm();
    let tid = fields.tid()?;
    let event = EventKind::LateResponse {
        tid,
        pid: fields.pid()?,
        origin_kind: match fields.number()? {
            1 => OriginKind::Timer,
            2 => OriginKind::Irq,
            3 => OriginKind::Vector,
            _ => return None,
        },
        origin_id: fields.u32()?,
        origin_ns: fields.u64()?,
        response_ns: fields.u64()?,
        threshold_ns: fields.u64()?,
        sequence: fields.u64()?,
        end: End::from_number(u8::try_from(fields.number()?).ok()?)?,
    };
    Some((EventContent::Event(event), Names::task(tid, comm)))
}

fn dump_process(fields: &mut Fields<'_>) -> Option<(EventContent, Names)> {
    let tid = fields.tid()?;
    let _vtid = fields.number();
    let pid = fields.pid()?;
    let _vpid = fields.number();
    let ppid = fields.pid()?;
    let _vppid = fields.number();
    let comm = fields.comm()?;
    let kthread = fields.number() == Some(1);
    let [_mode, _submode, _status, _cpu] = [(); 4].map(|()| fields.number());
    // LTTng records neither; 120 and 0 are a task's defaults.
    let prio = fields.prio().unwrap_or(Priority(120));
    let policy = Policy(fields.u32().unwrap_or(0));
    Some((EventContent::Task(TaskInfo { tid, pid, ppid, comm, prio, policy, kthread }), Names::default()))
}

fn dump_interrupt(fields: &mut Fields<'_>) -> Option<(EventContent, Names)> {
    let irq = fields.irq()?;
    let chip = fields.text();
    let name = fields.text().filter(|name| !name.is_empty()).or(chip)?;
    Some((EventContent::Nothing, Names { irq: Some((irq, name)), ..Names::default() }))
}
