// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records to events. Field positions come from the record contract (`offset_of!`), so this cannot drift from the kernel
//! side; a record of unknown kind or too short for its kind is `None` and counted by the caller.

use crate::{Frame, RawLateResponse};
use rtscope_abi as abi;
use rtscope_event::{
    Chain, Comm, CpuId, CpuMask, End, Event, EventKind, Irq, LateResponse, MonotonicNs, Origin, OriginKind,
    OtherOrigin, Pid, Priority, Step, StepKind, TaskState, Tid, VectorKind,
};
use std::mem::{offset_of, size_of};

/// Bytes of a record or structure, as the words they were copied in.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u64]);

impl Fields<'_> {
    fn u64(self, offset: usize) -> u64 {
        self.0.get(offset / 8).copied().unwrap_or(0)
    }

    fn byte(self, offset: usize) -> u8 {
        self.u64(offset).to_ne_bytes()[offset % 8]
    }

    fn u32(self, offset: usize) -> u32 {
        u32::from_ne_bytes(self.array(offset))
    }

    fn u16(self, offset: usize) -> u16 {
        u16::from_ne_bytes(self.array(offset))
    }

    fn array<const N: usize>(self, offset: usize) -> [u8; N] {
        std::array::from_fn(|index| self.byte(offset + index))
    }

    fn tid(self, offset: usize) -> Tid {
        Tid(self.u32(offset))
    }

    fn pid(self, offset: usize) -> Pid {
        Pid(self.u32(offset))
    }

    fn prio(self, offset: usize) -> Priority {
        Priority(self.u16(offset) as i16)
    }

    fn comm(self, offset: usize) -> Comm {
        Comm::from_bytes(&self.array::<16>(offset))
    }
}

macro_rules! at {
    ($read:ident, $fields:expr, $record:ident . $field:ident) => {
        $fields.$read(offset_of!(abi::$record, $field))
    };
}

/// The event of a record; `None` for unknown kinds.
#[must_use]
pub fn decode(cpu: CpuId, frame: &Frame<'_>) -> Option<Event> {
    if frame.bytes_len() < record_size(frame.kind)? {
        return None;
    }
    let f = Fields(frame.words());
    let kind = sched_event(frame, f)
        .or_else(|| irq_event(frame, f))
        .or_else(|| process_event(frame, f))
        .or_else(|| deferral_event(frame, f))?;
    Some(Event { time: MonotonicNs(frame.time_ns), cpu, kind })
}

fn record_size(kind: u8) -> Option<usize> {
    Some(match u32::from(kind) {
        abi::RTS_SCHED_SWITCH => size_of::<abi::rts_sched_switch>(),
        abi::RTS_SCHED_WAKING | abi::RTS_SCHED_WAKEUP_NEW => size_of::<abi::rts_sched_waking>(),
        abi::RTS_SCHED_MIGRATE_TASK => size_of::<abi::rts_sched_migrate_task>(),
        abi::RTS_SCHED_PI_SETPRIO => size_of::<abi::rts_sched_pi_setprio>(),
        abi::RTS_PROCESS_FORK => size_of::<abi::rts_process_fork>(),
        abi::RTS_PROCESS_EXEC => size_of::<abi::rts_process_exec>(),
        abi::RTS_PROCESS_EXIT => size_of::<abi::rts_process_exit>(),
        abi::RTS_TASK_RENAME => size_of::<abi::rts_task_rename>(),
        abi::RTS_IRQ_ENTRY => size_of::<abi::rts_irq_entry>(),
        abi::RTS_IRQ_EXIT => size_of::<abi::rts_irq_exit>(),
        abi::RTS_VECTOR_ENTRY | abi::RTS_VECTOR_EXIT => size_of::<abi::rts_vector>(),
        abi::RTS_SOFTIRQ_RAISE | abi::RTS_SOFTIRQ_ENTRY | abi::RTS_SOFTIRQ_EXIT => {
            size_of::<abi::rts_softirq>()
        }
        abi::RTS_HRTIMER_ENTRY => size_of::<abi::rts_hrtimer_entry>(),
        abi::RTS_HRTIMER_EXIT => size_of::<abi::rts_hrtimer_exit>(),
        abi::RTS_CPU_IDLE => size_of::<abi::rts_cpu_idle>(),
        abi::RTS_NMI_HANDLER => size_of::<abi::rts_nmi_handler>(),
        abi::RTS_IPI_SEND => size_of::<abi::rts_ipi_send>(),
        abi::RTS_LATE_RESPONSE => size_of::<abi::rts_late_response>(),
        abi::RTS_IPI_SEND_MASK => size_of::<abi::rts_ipi_send_mask>(),
        abi::RTS_WORK_QUEUE => size_of::<abi::rts_work_queue>(),
        abi::RTS_WORK_START | abi::RTS_WORK_END => size_of::<abi::rts_work>(),
        _ => return None,
    })
}

fn sched_event(frame: &Frame<'_>, f: Fields<'_>) -> Option<EventKind> {
    let flag = |bit: u32| u32::from(frame.flags) & bit != 0;
    let waking = |f: Fields<'_>| {
        let tid = at!(tid, f, rts_sched_waking.tid);
        let prio = at!(prio, f, rts_sched_waking.prio);
        let target_cpu = CpuId(u32::from(at!(u16, f, rts_sched_waking.target_cpu)));
        (tid, prio, target_cpu, flag(abi::RTS_WAKING_KTHREAD))
    };
    Some(match u32::from(frame.kind) {
        abi::RTS_SCHED_SWITCH => EventKind::SchedSwitch {
            prev_tid: at!(tid, f, rts_sched_switch.prev_tid),
            prev_prio: at!(prio, f, rts_sched_switch.prev_prio),
            prev_state: TaskState(at!(u32, f, rts_sched_switch.prev_state)),
            preempt: flag(abi::RTS_SWITCH_PREEMPT),
            prev_kthread: flag(abi::RTS_SWITCH_PREV_KTHREAD),
            next_tid: at!(tid, f, rts_sched_switch.next_tid),
            next_prio: at!(prio, f, rts_sched_switch.next_prio),
            next_kthread: flag(abi::RTS_SWITCH_NEXT_KTHREAD),
        },
        abi::RTS_SCHED_WAKING => {
            let (tid, prio, target_cpu, kthread) = waking(f);
            EventKind::SchedWaking { tid, prio, target_cpu, kthread }
        }
        abi::RTS_SCHED_WAKEUP_NEW => {
            let (tid, prio, target_cpu, kthread) = waking(f);
            EventKind::SchedWakeupNew { tid, prio, target_cpu, kthread }
        }
        abi::RTS_SCHED_MIGRATE_TASK => EventKind::SchedMigrateTask {
            tid: at!(tid, f, rts_sched_migrate_task.tid),
            prio: at!(prio, f, rts_sched_migrate_task.prio),
            orig_cpu: CpuId(at!(u32, f, rts_sched_migrate_task.orig_cpu)),
            dest_cpu: CpuId(at!(u32, f, rts_sched_migrate_task.dest_cpu)),
        },
        abi::RTS_SCHED_PI_SETPRIO => EventKind::SchedPiSetprio {
            tid: at!(tid, f, rts_sched_pi_setprio.tid),
            old_prio: at!(prio, f, rts_sched_pi_setprio.old_prio),
            new_prio: at!(prio, f, rts_sched_pi_setprio.new_prio),
        },
        _ => return None,
    })
}

fn irq_event(frame: &Frame<'_>, f: Fields<'_>) -> Option<EventKind> {
    Some(match u32::from(frame.kind) {
        abi::RTS_IRQ_ENTRY => EventKind::IrqHandlerEntry { irq: Irq(at!(u32, f, rts_irq_entry.irq)) },
        abi::RTS_IRQ_EXIT => EventKind::IrqHandlerExit {
            irq: Irq(at!(u32, f, rts_irq_exit.irq)),
            ret: at!(u32, f, rts_irq_exit.ret) as i32,
        },
        abi::RTS_VECTOR_ENTRY => EventKind::VectorEntry {
            kind: VectorKind::from_number(at!(u32, f, rts_vector.kind))?,
            vector: at!(u32, f, rts_vector.vector),
        },
        abi::RTS_VECTOR_EXIT => EventKind::VectorExit {
            kind: VectorKind::from_number(at!(u32, f, rts_vector.kind))?,
            vector: at!(u32, f, rts_vector.vector),
        },
        abi::RTS_SOFTIRQ_RAISE => EventKind::SoftirqRaise { vec: at!(u32, f, rts_softirq.vec) },
        abi::RTS_SOFTIRQ_ENTRY => EventKind::SoftirqEntry { vec: at!(u32, f, rts_softirq.vec) },
        abi::RTS_SOFTIRQ_EXIT => EventKind::SoftirqExit { vec: at!(u32, f, rts_softirq.vec) },
        abi::RTS_HRTIMER_ENTRY => EventKind::HrtimerExpireEntry {
            timer: at!(u64, f, rts_hrtimer_entry.timer),
            function: at!(u64, f, rts_hrtimer_entry.function),
            softexpires_ns: at!(u64, f, rts_hrtimer_entry.softexpires_ns) as i64,
            expires_ns: at!(u64, f, rts_hrtimer_entry.expires_ns) as i64,
        },
        abi::RTS_HRTIMER_EXIT => EventKind::HrtimerExpireExit { timer: at!(u64, f, rts_hrtimer_exit.timer) },
        abi::RTS_CPU_IDLE => {
            let state = at!(u32, f, rts_cpu_idle.state);
            EventKind::CpuIdle {
                state: (state != abi::RTS_IDLE_EXIT).then_some(state),
                cpu: CpuId(at!(u32, f, rts_cpu_idle.cpu)),
            }
        }
        abi::RTS_NMI_HANDLER => EventKind::NmiHandler {
            handler: at!(u64, f, rts_nmi_handler.handler),
            duration_ns: at!(u64, f, rts_nmi_handler.duration_ns) as i64,
            handled: at!(u32, f, rts_nmi_handler.handled) as i32,
        },
        abi::RTS_IPI_SEND => EventKind::IpiSend {
            target_cpu: CpuId(at!(u32, f, rts_ipi_send.target_cpu)),
            call: at!(u32, f, rts_ipi_send.call) != 0,
            callsite: at!(u64, f, rts_ipi_send.callsite),
            callback: at!(u64, f, rts_ipi_send.callback),
        },
        _ => return None,
    })
}

/// Events that hand work on: to other CPUs, to workers.
fn deferral_event(frame: &Frame<'_>, f: Fields<'_>) -> Option<EventKind> {
    Some(match u32::from(frame.kind) {
        abi::RTS_IPI_SEND_MASK => {
            let at = |word: usize| f.u64(offset_of!(abi::rts_ipi_send_mask, mask) + word * 8);
            let cut = u32::from(frame.flags) & abi::RTS_MASK_CUT != 0;
            EventKind::IpiSendMask {
                targets: CpuMask::new(std::array::from_fn(at), cut),
                call: at!(u32, f, rts_ipi_send_mask.call) != 0,
                callsite: at!(u64, f, rts_ipi_send_mask.callsite),
                callback: at!(u64, f, rts_ipi_send_mask.callback),
            }
        }
        abi::RTS_WORK_QUEUE => EventKind::WorkQueue {
            work: at!(u64, f, rts_work_queue.work),
            function: at!(u64, f, rts_work_queue.function),
            req_cpu: at!(u32, f, rts_work_queue.req_cpu),
        },
        abi::RTS_WORK_START => EventKind::WorkStart {
            work: at!(u64, f, rts_work.work),
            function: at!(u64, f, rts_work.function),
        },
        abi::RTS_WORK_END => {
            EventKind::WorkEnd { work: at!(u64, f, rts_work.work), function: at!(u64, f, rts_work.function) }
        }
        _ => return None,
    })
}

fn process_event(frame: &Frame<'_>, f: Fields<'_>) -> Option<EventKind> {
    Some(match u32::from(frame.kind) {
        abi::RTS_PROCESS_FORK => EventKind::ProcessFork {
            parent_tid: at!(tid, f, rts_process_fork.parent_tid),
            parent_pid: at!(pid, f, rts_process_fork.parent_pid),
            child_tid: at!(tid, f, rts_process_fork.child_tid),
            child_pid: at!(pid, f, rts_process_fork.child_pid),
            child_comm: at!(comm, f, rts_process_fork.child_comm),
        },
        abi::RTS_PROCESS_EXEC => {
            let name: [u8; abi::RTS_FILENAME_LEN as usize] =
                f.array(offset_of!(abi::rts_process_exec, filename));
            let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            EventKind::ProcessExec {
                tid: at!(tid, f, rts_process_exec.tid),
                old_tid: at!(tid, f, rts_process_exec.old_tid),
                filename: String::from_utf8_lossy(&name[..length]).into_owned(),
            }
        }
        abi::RTS_PROCESS_EXIT => EventKind::ProcessExit {
            tid: at!(tid, f, rts_process_exit.tid),
            pid: at!(pid, f, rts_process_exit.pid),
            prio: at!(prio, f, rts_process_exit.prio),
            comm: at!(comm, f, rts_process_exit.comm),
        },
        abi::RTS_TASK_RENAME => EventKind::TaskRename {
            tid: at!(tid, f, rts_task_rename.tid),
            pid: at!(pid, f, rts_task_rename.pid),
            old_comm: at!(comm, f, rts_task_rename.old_comm),
            new_comm: at!(comm, f, rts_task_rename.new_comm),
        },
        abi::RTS_LATE_RESPONSE => EventKind::LateResponse {
            tid: at!(tid, f, rts_late_response.tid),
            pid: at!(pid, f, rts_late_response.pid),
            origin_kind: origin_kind(at!(byte, f, rts_late_response.origin_kind))?,
            origin_id: at!(u32, f, rts_late_response.origin_id),
            origin_ns: at!(u64, f, rts_late_response.origin_ns),
            response_ns: at!(u64, f, rts_late_response.response_ns),
            threshold_ns: at!(u64, f, rts_late_response.threshold_ns),
            sequence: at!(u64, f, rts_late_response.sequence),
            end: End::from_number(at!(byte, f, rts_late_response.end))?,
        },
        _ => return None,
    })
}

fn origin_kind(number: u8) -> Option<OriginKind> {
    match u32::from(number) {
        abi::RTS_ORIGIN_TIMER => Some(OriginKind::Timer),
        abi::RTS_ORIGIN_IRQ => Some(OriginKind::Irq),
        abi::RTS_ORIGIN_VECTOR => Some(OriginKind::Vector),
        _ => None,
    }
}

/// The tracker's report of a late response; `None` when it has unknown kinds in it.
#[must_use]
pub fn late_response(raw: &RawLateResponse) -> Option<LateResponse> {
    let f = Fields(raw.words());
    let chain_at = offset_of!(abi::rts_late, chain) / 8;
    let snapshot = at!(u64, f, rts_late.trigger_generation);
    Some(LateResponse {
        sequence: at!(u64, f, rts_late.sequence),
        cpu: CpuId(u32::from(at!(u16, f, rts_late.cpu))),
        end_ns: MonotonicNs(at!(u64, f, rts_late.end_ns)),
        end: End::from_number(at!(byte, f, rts_late.end))?,
        threshold_ns: at!(u64, f, rts_late.threshold_ns),
        tid: at!(tid, f, rts_late.tid),
        pid: at!(pid, f, rts_late.pid),
        prio: at!(prio, f, rts_late.prio),
        comm: at!(comm, f, rts_late.comm),
        snapshot: (snapshot != 0).then_some(snapshot),
        chain: chain(Fields(&raw.words()[chain_at..]))?,
    })
}

fn chain(f: Fields<'_>) -> Option<Chain> {
    let steps_len = usize::from(at!(byte, f, rts_chain.steps_len)).min(abi::RTS_CHAIN_STEPS as usize);
    let others_len = usize::from(at!(byte, f, rts_chain.others_len)).min(abi::RTS_CHAIN_OTHERS as usize);
    let step = |index: usize| {
        let base = offset_of!(abi::rts_chain, steps) + index * size_of::<abi::rts_step>();
        Some(Step {
            kind: StepKind::from_number(f.byte(base + offset_of!(abi::rts_step, kind)))?,
            id: f.u32(base + offset_of!(abi::rts_step, id)),
            cpu: CpuId(u32::from(f.u16(base + offset_of!(abi::rts_step, cpu)))),
            duration_ns: f.u64(base + offset_of!(abi::rts_step, duration_ns)),
        })
    };
    let other = |index: usize| {
        let base = offset_of!(abi::rts_chain, others) + index * size_of::<abi::rts_other_origin>();
        Some(OtherOrigin {
            kind: origin_kind(f.byte(base + offset_of!(abi::rts_other_origin, kind)))?,
            id: f.u32(base + offset_of!(abi::rts_other_origin, id)),
            time_ns: MonotonicNs(f.u64(base + offset_of!(abi::rts_other_origin, origin_ns))),
        })
    };
    Some(Chain {
        origin: Origin {
            kind: origin_kind(at!(byte, f, rts_chain.origin_kind))?,
            id: at!(u32, f, rts_chain.origin_id),
            cpu: CpuId(u32::from(at!(u16, f, rts_chain.origin_cpu))),
            time_ns: MonotonicNs(at!(u64, f, rts_chain.origin_ns)),
        },
        steps: (0..steps_len).map(step).collect::<Option<_>>()?,
        merged: at!(u32, f, rts_chain.merged),
        others: (0..others_len).map(other).collect::<Option<_>>()?,
        busy: u32::from(at!(byte, f, rts_chain.flags)) & abi::RTS_CHAIN_BUSY != 0,
    })
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
