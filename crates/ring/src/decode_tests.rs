// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each kind of record with another number in each field, and what has to come out.

use super::*;
use crate::report::late_response;
use crate::{Controls, LateResponseRings, SharedMemory, Slot, first_record};
use rtscope_abi as abi;
use rtscope_event::{
    Comm, CpuMask, End, Irq, LateResponse, Origin, OriginKind, Pid, Priority, StepKind, TaskState, Tid,
    Tracker, VectorKind, WaitKind,
};
use std::mem::{offset_of, size_of};

/// Bytes of a structure, filled field by field.
struct Bytes(Vec<u8>);

impl Bytes {
    fn new(size: usize) -> Bytes {
        Bytes(vec![0; size])
    }

    fn with(mut self, offset: usize, value: &[u8]) -> Bytes {
        self.0[offset..offset + value.len()].copy_from_slice(value);
        self
    }

    fn words(&self) -> Vec<u64> {
        self.0.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight"))).collect()
    }
}

/// A structure with these fields.
macro_rules! bytes {
    ($record:ident { $($field:ident: $value:expr),* $(,)? }) => {
        Bytes::new(size_of::<abi::$record>())$(.with(offset_of!(abi::$record, $field), &$value.to_ne_bytes()))*
    };
}

fn comm(text: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

/// What a record of these words decodes to, on CPU 3.
fn decoded(kind: u32, flags: u32, words: &[u64]) -> Option<EventKind> {
    let mut words = words.to_vec();
    words[0] = words.len() as u64
        | u64::from(kind) << 8
        | u64::from(abi::RTS_COMMITTED) << 16
        | u64::from(flags) << 24;
    words[1] = 99;
    let Slot::Record(frame) = first_record(&words) else { panic!("no record") };
    let event = decode(CpuId(3), &frame)?;
    assert_eq!((event.time, event.cpu), (MonotonicNs(99), CpuId(3)));
    Some(event.kind)
}

#[track_caller]
fn check(kind: u32, flags: u32, bytes: &Bytes, expected: &EventKind) {
    let words = bytes.words();
    assert_eq!(decoded(kind, flags, &words).as_ref(), Some(expected));
    // A word too few is not this record; one more is for later versions.
    assert_eq!(decoded(kind, flags, &words[..words.len() - 1]), None);
    assert_eq!(decoded(kind, flags, &[&words[..], &[7]].concat()).as_ref(), Some(expected));
}

#[test]
fn records_of_the_scheduler_have_all_of_their_fields() {
    let switch = bytes!(rts_sched_switch {
        prev_tid: 0x0102_0304_u32,
        next_tid: 0x0506_0708_u32,
        prev_prio: -3_i16,
        next_prio: 0x0a0b_i16,
        prev_state: 0x0c0d_0e0f_u32,
        prev_wait_on: 0x1011_1213_u32,
    });
    let futex = abi::RTS_WAIT_FUTEX << abi::RTS_WAIT_SHIFT;
    let flags = [abi::RTS_SWITCH_PREEMPT, abi::RTS_SWITCH_PREV_KTHREAD, abi::RTS_SWITCH_NEXT_KTHREAD];
    for flags in [0, futex].into_iter().chain(flags) {
        check(
            abi::RTS_SCHED_SWITCH,
            flags,
            &switch,
            &EventKind::SchedSwitch {
                prev_tid: Tid(0x0102_0304),
                prev_prio: Priority(-3),
                prev_state: TaskState(0x0c0d_0e0f),
                preempt: flags == abi::RTS_SWITCH_PREEMPT,
                prev_kthread: flags == abi::RTS_SWITCH_PREV_KTHREAD,
                next_tid: Tid(0x0506_0708),
                next_prio: Priority(0x0a0b),
                next_kthread: flags == abi::RTS_SWITCH_NEXT_KTHREAD,
                prev_wait: if flags == futex { WaitKind::Futex } else { WaitKind::None },
                prev_wait_on: 0x1011_1213,
            },
        );
    }
    let waking = bytes!(rts_sched_waking { tid: 11_u32, prio: 12_i16, target_cpu: 0x1314_u16 });
    let (tid, prio, target_cpu) = (Tid(11), Priority(12), CpuId(0x1314));
    for flags in [0, abi::RTS_WAKING_KTHREAD, futex] {
        let kthread = flags == abi::RTS_WAKING_KTHREAD;
        let wait = if flags == futex { WaitKind::Futex } else { WaitKind::None };
        let woken = EventKind::SchedWaking { tid, prio, target_cpu, kthread, wait };
        check(abi::RTS_SCHED_WAKING, flags, &waking, &woken);
        let new = EventKind::SchedWakeupNew { tid, prio, target_cpu, kthread, wait };
        check(abi::RTS_SCHED_WAKEUP_NEW, flags, &waking, &new);
    }
    check(
        abi::RTS_SCHED_MIGRATE_TASK,
        0,
        &bytes!(rts_sched_migrate_task { tid: 21_u32, prio: 22_i16, orig_cpu: 23_u32, dest_cpu: 24_u32 }),
        &EventKind::SchedMigrateTask {
            tid: Tid(21),
            prio: Priority(22),
            orig_cpu: CpuId(23),
            dest_cpu: CpuId(24),
        },
    );
    check(
        abi::RTS_SCHED_PI_SETPRIO,
        0,
        &bytes!(rts_sched_pi_setprio { tid: 31_u32, old_prio: 32_i16, new_prio: 33_i16 }),
        &EventKind::SchedPiSetprio { tid: Tid(31), old_prio: Priority(32), new_prio: Priority(33) },
    );
}

#[test]
fn records_of_processes_have_all_of_their_fields() {
    let fork =
        bytes!(rts_process_fork { parent_tid: 1_u32, parent_pid: 2_u32, child_tid: 3_u32, child_pid: 4_u32 });
    check(
        abi::RTS_PROCESS_FORK,
        0,
        &fork.with(offset_of!(abi::rts_process_fork, child_comm), &comm("child")),
        &EventKind::ProcessFork {
            parent_tid: Tid(1),
            parent_pid: Pid(2),
            child_tid: Tid(3),
            child_pid: Pid(4),
            child_comm: Comm::from("child"),
        },
    );
    let exec = |name: &[u8]| {
        let bytes = bytes!(rts_process_exec { tid: 5_u32, old_tid: 6_u32 });
        bytes.with(offset_of!(abi::rts_process_exec, filename), name)
    };
    // Up to its NUL, or all of it.
    let long = vec![b'x'; abi::RTS_FILENAME_LEN as usize];
    for (name, shown) in [(&b"/bin/true\0junk"[..], "/bin/true"), (&long, "x".repeat(64).as_str())] {
        let filename = shown.to_string();
        let expected = EventKind::ProcessExec { tid: Tid(5), old_tid: Tid(6), filename };
        check(abi::RTS_PROCESS_EXEC, 0, &exec(name), &expected);
    }
    let exit = bytes!(rts_process_exit { tid: 7_u32, pid: 8_u32, prio: 9_i16 });
    check(
        abi::RTS_PROCESS_EXIT,
        0,
        &exit.with(offset_of!(abi::rts_process_exit, comm), &comm("ended")),
        &EventKind::ProcessExit { tid: Tid(7), pid: Pid(8), prio: Priority(9), comm: Comm::from("ended") },
    );
    let rename = bytes!(rts_task_rename { tid: 10_u32, pid: 11_u32 });
    let rename = rename.with(offset_of!(abi::rts_task_rename, old_comm), &comm("old"));
    check(
        abi::RTS_TASK_RENAME,
        0,
        &rename.with(offset_of!(abi::rts_task_rename, new_comm), &comm("new")),
        &EventKind::TaskRename {
            tid: Tid(10),
            pid: Pid(11),
            old_comm: Comm::from("old"),
            new_comm: Comm::from("new"),
        },
    );
}

#[test]
fn records_of_interrupts_have_all_of_their_fields() {
    check(
        abi::RTS_IRQ_ENTRY,
        0,
        &bytes!(rts_irq_entry { irq: 41_u32 }),
        &EventKind::IrqHandlerEntry { irq: Irq(41) },
    );
    check(
        abi::RTS_IRQ_EXIT,
        0,
        &bytes!(rts_irq_exit { irq: 42_u32, ret: -2_i32 }),
        &EventKind::IrqHandlerExit { irq: Irq(42), ret: -2 },
    );
    for number in 1..abi::RTS_VECTOR_KINDS {
        let kind = VectorKind::from_number(number).expect("it is one");
        let bytes = bytes!(rts_vector { kind: number, vector: 0xec_u32 });
        check(abi::RTS_VECTOR_ENTRY, 0, &bytes, &EventKind::VectorEntry { kind, vector: 0xec });
        check(abi::RTS_VECTOR_EXIT, 0, &bytes, &EventKind::VectorExit { kind, vector: 0xec });
    }
    let unknown = bytes!(rts_vector { kind: abi::RTS_VECTOR_KINDS, vector: 0xec_u32 }).words();
    assert_eq!(decoded(abi::RTS_VECTOR_ENTRY, 0, &unknown), None);
    let softirq = bytes!(rts_softirq { vec: 51_u32 });
    check(abi::RTS_SOFTIRQ_RAISE, 0, &softirq, &EventKind::SoftirqRaise { vec: 51 });
    check(abi::RTS_SOFTIRQ_ENTRY, 0, &softirq, &EventKind::SoftirqEntry { vec: 51 });
    check(abi::RTS_SOFTIRQ_EXIT, 0, &softirq, &EventKind::SoftirqExit { vec: 51 });
    check(
        abi::RTS_HRTIMER_ENTRY,
        0,
        &bytes!(rts_hrtimer_entry {
            timer: 61_u64,
            function: 62_u64,
            softexpires_ns: -63_i64,
            expires_ns: 64_i64
        }),
        &EventKind::HrtimerExpireEntry { timer: 61, function: 62, softexpires_ns: -63, expires_ns: 64 },
    );
    let exit = bytes!(rts_hrtimer_exit { timer: 65_u64 });
    check(abi::RTS_HRTIMER_EXIT, 0, &exit, &EventKind::HrtimerExpireExit { timer: 65 });
    check(
        abi::RTS_NMI_HANDLER,
        0,
        &bytes!(rts_nmi_handler { handler: 71_u64, duration_ns: -72_i64, handled: -1_i32 }),
        &EventKind::NmiHandler { handler: 71, duration_ns: -72, handled: -1 },
    );
}

#[test]
fn records_of_idle_and_handed_on_work_have_all_of_their_fields() {
    for (state, shown) in [(abi::RTS_IDLE_EXIT, None), (0, Some(0)), (2, Some(2))] {
        let bytes = bytes!(rts_cpu_idle { state: state, cpu: 81_u32 });
        check(abi::RTS_CPU_IDLE, 0, &bytes, &EventKind::CpuIdle { state: shown, cpu: CpuId(81) });
    }
    for call in [0_u32, 1] {
        let bytes =
            bytes!(rts_ipi_send { target_cpu: 91_u32, call: call, callsite: 92_u64, callback: 93_u64 });
        let (target_cpu, call_number) = (CpuId(91), call);
        let call = call != 0;
        let expected = EventKind::IpiSend { target_cpu, call, callsite: 92, callback: 93 };
        check(abi::RTS_IPI_SEND, 0, &bytes, &expected);
        for flags in [0, abi::RTS_MASK_CUT] {
            let mask = offset_of!(abi::rts_ipi_send_mask, targets);
            let mut bytes =
                bytes!(rts_ipi_send_mask { callsite: 94_u64, callback: 95_u64, call: call_number });
            for word in 0..4 {
                bytes = bytes.with(mask + word * 8, &(1_u64 << (word * 7 + 1)).to_ne_bytes());
            }
            let targets = CpuMask::new([1 << 1, 1 << 8, 1 << 15, 1 << 22], flags != 0);
            let expected = EventKind::IpiSendMask { targets, call, callsite: 94, callback: 95 };
            check(abi::RTS_IPI_SEND_MASK, flags, &bytes, &expected);
        }
    }
    check(
        abi::RTS_WORK_QUEUE,
        0,
        &bytes!(rts_work_queue { work: 101_u64, function: 102_u64, req_cpu: 103_u32 }),
        &EventKind::WorkQueue { work: 101, function: 102, req_cpu: 103 },
    );
    let work = bytes!(rts_work { work: 104_u64, function: 105_u64 });
    check(abi::RTS_WORK_START, 0, &work, &EventKind::WorkStart { work: 104, function: 105 });
    check(abi::RTS_WORK_END, 0, &work, &EventKind::WorkEnd { work: 104, function: 105 });
    assert_eq!(decoded(abi::RTS_SYSCALL_ENTRY, 0, &[0; 20]), None);
    assert_eq!(decoded(200, 0, &[0; 20]), None);
}

/// The kinds of origins and of ends, as the kernel numbers them.
const ORIGINS: [(u32, OriginKind); 4] = [
    (abi::RTS_ORIGIN_TIMER, OriginKind::Timer),
    (abi::RTS_ORIGIN_IRQ, OriginKind::Irq),
    (abi::RTS_ORIGIN_VECTOR, OriginKind::Vector),
    (abi::RTS_ORIGIN_TASK, OriginKind::Task),
];
const ENDS: [(u32, End); 4] = [
    (abi::RTS_END_RUNNING, End::Running),
    (abi::RTS_END_BLOCKED, End::Blocked),
    (abi::RTS_END_REWOKEN, End::Rewoken),
    (abi::RTS_END_CYCLE, End::Cycle),
];

fn byte(number: u32) -> u8 {
    u8::try_from(number).expect("small")
}

#[test]
fn a_late_response_in_the_trace_has_all_of_its_fields() {
    for ((origin, origin_kind), (end, end_kind)) in ORIGINS.into_iter().zip(ENDS) {
        let bytes = bytes!(rts_late_response {
            origin_ns: 1_u64,
            response_ns: 2_u64,
            threshold_ns: 3_u64,
            sequence: 4_u64,
            tid: 5_u32,
            pid: 6_u32,
            origin_id: 7_u32,
            origin_kind: byte(origin),
            end: byte(end),
            tracker: byte(abi::RTS_TRACKER_OFFCPU),
            instance: 3_u8,
        });
        let expected = EventKind::LateResponse {
            tid: Tid(5),
            pid: Pid(6),
            origin_kind,
            origin_id: 7,
            origin_ns: 1,
            response_ns: 2,
            threshold_ns: 3,
            sequence: 4,
            end: end_kind,
            tracker: Tracker::Offcpu,
            instance: 3,
        };
        check(abi::RTS_LATE_RESPONSE, 0, &bytes, &expected);
    }
    let nowhere = bytes!(rts_late_response { origin_kind: byte(abi::RTS_ORIGIN_NONE), end: 1_u8 });
    assert_eq!(decoded(abi::RTS_LATE_RESPONSE, 0, &nowhere.words()), None);
}

/// The bytes of a report with a chain of this many steps and other origins, as the numbers claim.
fn report(steps_len: u8, others_len: u8, flags: u32) -> Bytes {
    let mut chain = bytes!(rts_chain {
        origin_ns: 1000_u64,
        origin_id: 77_u32,
        origin_cpu: 5_u16,
        origin_kind: byte(abi::RTS_ORIGIN_IRQ),
        steps_len: steps_len,
        merged: 9_u32,
        others_len: others_len,
        flags: byte(flags),
    });
    for index in 0..abi::RTS_CHAIN_STEPS {
        let step = bytes!(rts_step {
            duration_ns: 100 + u64::from(index),
            id: 200 + index,
            cpu: u16::try_from(300 + index).expect("small"),
            kind: byte(index % 8 + 1),
        });
        let at = offset_of!(abi::rts_chain, steps) + index as usize * size_of::<abi::rts_step>();
        chain = chain.with(at, &step.0);
    }
    for index in 0..abi::RTS_CHAIN_OTHERS {
        let other = bytes!(rts_other_origin {
            origin_ns: 400 + u64::from(index),
            id: 500 + index,
            kind: byte(abi::RTS_ORIGIN_TIMER + index),
        });
        let at = offset_of!(abi::rts_chain, others) + index as usize * size_of::<abi::rts_other_origin>();
        chain = chain.with(at, &other.0);
    }
    let late = bytes!(rts_late {
        sequence: 11_u64,
        end_ns: 12_u64,
        threshold_ns: 13_u64,
        trigger_generation: 14_u64,
        tid: 15_u32,
        pid: 16_u32,
        prio: 17_i16,
        cpu: 18_u16,
        end: byte(abi::RTS_END_BLOCKED),
        tracker: byte(abi::RTS_TRACKER_OFFCPU),
        instance: 3_u8,
    });
    late.with(offset_of!(abi::rts_late, comm), &comm("late")).with(offset_of!(abi::rts_late, chain), &chain.0)
}

/// Puts a report into the ring of the second of two CPUs, and reads it as a listener does.
fn listened(bytes: &Bytes) -> Option<LateResponse> {
    let memory = SharedMemory::anonymous(LateResponseRings::bytes(2)).expect("memory");
    let controls = SharedMemory::anonymous(Controls::bytes(2)).expect("memory");
    for (index, word) in bytes.words().into_iter().enumerate() {
        memory.store_release(LateResponseRings::bytes(1) + index * 8, word);
    }
    let head = size_of::<abi::rts_cpu_control>() + offset_of!(abi::rts_cpu_control, late_head);
    controls.store_release(head, 1);
    let raw = LateResponseRings::new(memory, 2).drain(&Controls::new(controls, 2));
    assert_eq!(raw.len(), 1);
    late_response(&raw[0])
}

#[test]
fn a_report_of_a_late_response_has_all_of_its_fields() {
    let late = listened(&report(12, 2, abi::RTS_CHAIN_BUSY)).expect("its kinds are known");
    assert_eq!(
        (late.sequence, late.cpu, late.end_ns, late.end),
        (11, CpuId(18), MonotonicNs(12), End::Blocked)
    );
    assert_eq!((late.tracker, late.instance), (Tracker::Offcpu, 3));
    assert_eq!((late.threshold_ns, late.tid, late.pid, late.prio), (13, Tid(15), Pid(16), Priority(17)));
    assert_eq!((late.comm, late.snapshot), (Comm::from("late"), Some(14)));
    let chain = &late.chain;
    let origin = Origin { kind: OriginKind::Irq, id: 77, cpu: CpuId(5), time_ns: MonotonicNs(1000) };
    assert_eq!((&chain.origin, chain.merged, chain.busy), (&origin, 9, true));
    assert_eq!(chain.steps.len(), 12);
    for (index, step) in (0..).zip(&chain.steps) {
        assert_eq!(step.kind, StepKind::from_number(byte(index % 8 + 1)).expect("known"));
        assert_eq!((step.id, step.cpu), (200 + index, CpuId(300 + index)));
        assert_eq!(step.duration_ns, 100 + u64::from(index));
    }
    let others: Vec<_> = chain.others.iter().map(|other| (other.kind, other.id, other.time_ns.0)).collect();
    assert_eq!(others, [(OriginKind::Timer, 500, 400), (OriginKind::Irq, 501, 401)]);
}

#[test]
fn a_report_is_as_long_as_it_says_but_no_longer_than_it_can_be() {
    let late = listened(&report(3, 1, 0)).expect("its kinds are known");
    assert_eq!((late.chain.steps.len(), late.chain.others.len(), late.chain.busy), (3, 1, false));
    let late = listened(&report(200, 200, 0)).expect("its kinds are known");
    assert_eq!((late.chain.steps.len(), late.chain.others.len()), (12, 2));
    // One that caused no snapshot, and those with unknown kinds.
    let generation = offset_of!(abi::rts_late, trigger_generation);
    assert_eq!(listened(&report(1, 0, 0).with(generation, &[0; 8])).expect("known").snapshot, None);
    assert_eq!(listened(&report(1, 0, 0).with(offset_of!(abi::rts_late, end), &[99])), None);
    assert_eq!(listened(&report(1, 0, 0).with(offset_of!(abi::rts_late, tracker), &[99])), None);
    let chain = offset_of!(abi::rts_late, chain);
    assert_eq!(listened(&report(1, 0, 0).with(chain + offset_of!(abi::rts_chain, origin_kind), &[0])), None);
    let kind = chain + offset_of!(abi::rts_chain, steps) + offset_of!(abi::rts_step, kind);
    assert_eq!(listened(&report(1, 0, 0).with(kind, &[99])), None);
}
