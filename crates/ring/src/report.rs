// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What trackers report: late responses, and what is pending. Positions come from the record contract (`offset_of!`), so this cannot
//! drift from the kernel side.

use crate::RawLateResponse;
use rtscope_abi as abi;
use rtscope_event::{
    BlockOperation, BlockRequest, CallArgument, Chain, Comm, CpuId, End, EventSpan, FieldValue, LateResponse,
    LateStacks, LockKind, LockWait, MonotonicNs, Origin, OriginKind, OtherOrigin, Pid, Priority, Section,
    SpanEvent, StackCopies, Step, StepKind, SystemCall, Tid, Tracker, WaitKind,
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

/// The tracker's report of a late response; `None` when it has unknown kinds in it.
#[must_use]
pub fn late_response(raw: &RawLateResponse) -> Option<LateResponse> {
    let f = Fields(raw.words());
    let chain_at = offset_of!(abi::rts_late, chain) / 8;
    let snapshot = at!(u64, f, rts_late.trigger_generation);
    let tracker = Tracker::from_number(at!(byte, f, rts_late.tracker))?;
    let chain = chain(Fields(&raw.words()[chain_at..]))?;
    let values = values(f, offset_of!(abi::rts_late, values));
    let end_ns = MonotonicNs(at!(u64, f, rts_late.end_ns));
    let (tid, cpu) = (at!(tid, f, rts_late.tid), CpuId(u32::from(at!(u16, f, rts_late.cpu))));
    let events = (tracker == Tracker::Pair).then(|| {
        let records = offset_of!(abi::rts_late, records);
        let from = pair_event(Tid(chain.origin.id), chain.origin.cpu, chain.origin.time_ns, f, records);
        let to = pair_event(tid, cpu, end_ns, f, records + PAIR_BYTES);
        Box::new(EventSpan { from, to, noticed_after_ns: 0, through: Vec::new(), account: None })
    });
    let result = Some(at!(u64, f, rts_late.result) as i64);
    Some(LateResponse {
        tracker,
        instance: at!(byte, f, rts_late.instance),
        sequence: at!(u64, f, rts_late.sequence),
        cpu,
        end_ns,
        end: End::from_number(at!(byte, f, rts_late.end))?,
        threshold_ns: at!(u64, f, rts_late.threshold_ns),
        tid,
        pid: at!(pid, f, rts_late.pid),
        prio: at!(prio, f, rts_late.prio),
        comm: at!(comm, f, rts_late.comm),
        snapshot: (snapshot != 0).then_some(snapshot),
        call: (tracker == Tracker::Syscall).then(|| Box::new(system_call(&values, result, chain.origin.id))),
        lock: (tracker == Tracker::Lock).then(|| Box::new(lock_wait(&values, result))),
        block: (tracker == Tracker::Block).then(|| Box::new(block_request(&values, result))),
        section: tracker.is_of_sections().then(|| Box::new(section(&values, result))),
        stacks: late_stacks(tracker, f),
        chain,
        events,
    })
}

const VALUES: usize = abi::RTS_LATE_VALUES as usize;
const PAIR_BYTES: usize = abi::RTS_PAIR_BYTES as usize;

/// Those of `struct rts_late` and `struct rts_interval`, which the tracker gives a meaning.
fn values(f: Fields<'_>, at: usize) -> [u64; VALUES] {
    std::array::from_fn(|place| f.u64(at + 8 * place))
}

/// The registers; what they mean, whoever knows the call can say.
fn system_call(values: &[u64; VALUES], result: Option<i64>, number: u32) -> SystemCall {
    let registers = values.iter().take(abi::RTS_SYSCALL_ARGS_MAX as usize);
    let args = registers.map(|value| CallArgument { name: None, value: *value }).collect();
    SystemCall { number, name: None, args, result }
}

/// The disk's number; its name, whoever looks at the machine can say.
fn block_request(values: &[u64; VALUES], status: Option<i64>) -> BlockRequest {
    let (major, minor) = BlockRequest::numbers(values[0]);
    BlockRequest {
        major,
        minor,
        device: None,
        operation: BlockOperation::of(values[3], values[2]),
        sector: Some(values[1]).filter(|sector| *sector != u64::MAX && values[2] > 0),
        bytes: values[2],
        status: status.map(|status| u32::try_from(status).unwrap_or(u32::MAX)),
    }
}

/// The callers are addresses; their names, whoever knows the kernel's symbols can say.
fn lock_wait(values: &[u64; VALUES], result: Option<i64>) -> LockWait {
    let (kind, access) = LockKind::from_flags(values[1]);
    let callers = values[2..].iter().take_while(|address| **address != 0);
    LockWait {
        kind,
        access,
        address: values[0],
        name: None,
        callers: callers.map(|address| format!("{address:#x}")).collect(),
        call: None,
        result,
    }
}

/// The places are addresses, as those of [`lock_wait`].
fn section(values: &[u64; VALUES], resolution: Option<i64>) -> Section {
    let stack = values.iter().take_while(|address| **address != 0);
    Section {
        stack: stack.map(|address| format!("{address:#x}")).collect(),
        resolution_ns: resolution.and_then(|ns| u64::try_from(ns).ok()).filter(|ns| *ns > 0),
    }
}

/// Which copies it has; what is in them, whoever knows the programs can say.
fn late_stacks(tracker: Tracker, f: Fields<'_>) -> Option<Box<LateStacks>> {
    let copies = StackCopies { task: at!(u32, f, rts_late.stack), waker: at!(u32, f, rts_late.waker_stack) };
    tracker.has_stacks().then(|| Box::new(LateStacks { copies, ..LateStacks::default() }))
}

/// An event of a pair. Its name and its fields, whoever knows the tracepoint can say: until then it has its record, in hex, as a field without a
/// name.
fn pair_event(tid: Tid, cpu: CpuId, time_ns: MonotonicNs, f: Fields<'_>, at: usize) -> SpanEvent {
    let hex: String = (0..PAIR_BYTES).map(|place| format!("{:02x}", f.byte(at + place))).collect();
    let fields = [(String::new(), FieldValue::Text(hex))].into();
    SpanEvent { event: String::new(), time_ns, tid, cpu: Some(cpu), fields }
}

/// A first event of a pair whose second had not come by `now`, where its task was a target. `words` are those of a `struct rts_pair`.
#[must_use]
pub fn pending_pair(words: &[u64], now: MonotonicNs) -> Option<LateResponse> {
    let f = Fields(words);
    let begin_ns = MonotonicNs(at!(u64, f, rts_pair.begin_ns));
    if at!(u32, f, rts_pair.targets) == 0 || at!(u64, f, rts_pair.check_ns) != begin_ns.0 {
        return None;
    }
    let (tid, cpu) = (at!(tid, f, rts_pair.tid), CpuId(at!(u32, f, rts_pair.cpu)));
    let from = pair_event(tid, cpu, begin_ns, f, offset_of!(abi::rts_pair, record));
    let to = SpanEvent { event: String::new(), time_ns: now, tid, cpu: None, fields: Default::default() };
    let origin = Origin { kind: OriginKind::Event, id: tid.0, cpu, time_ns: begin_ns };
    let duration_ns = now.since(begin_ns);
    let steps = vec![Step { kind: StepKind::Interval, id: tid.0, cpu, duration_ns, wait: WaitKind::None }];
    Some(LateResponse {
        tracker: Tracker::Pair,
        instance: 0,
        sequence: 0,
        cpu,
        end_ns: now,
        end: End::Pending,
        threshold_ns: 0,
        tid,
        pid: at!(pid, f, rts_pair.pid),
        prio: Priority(120),
        comm: at!(comm, f, rts_pair.comm),
        snapshot: None,
        chain: Chain { origin, steps, merged: 0, others: Vec::new(), busy: false },
        events: Some(Box::new(EventSpan {
            from,
            to,
            noticed_after_ns: 0,
            through: Vec::new(),
            account: None,
        })),
        call: None,
        lock: None,
        block: None,
        section: None,
        stacks: None,
    })
}

/// What a tracker of intervals follows in a task, and has not ended by `now`: a report of it, as far as the tracker knows. The chain has the time
/// until then. `words` are those of a `struct rts_interval`; `None` where nothing is under way.
#[must_use]
pub fn pending(tracker: Tracker, words: &[u64], now: MonotonicNs) -> Option<LateResponse> {
    let f = Fields(words);
    let mut chain = chain(Fields(&words[offset_of!(abi::rts_interval, chain) / 8..]))?;
    let (kind, wait) = match u32::from(at!(byte, f, rts_interval.link)) {
        abi::RTS_INTERVAL_WAITING | abi::RTS_INTERVAL_EARLY if tracker != Tracker::Wakeup => {
            (StepKind::Wait, WaitKind::from_number(at!(byte, f, rts_interval.wait))?)
        }
        abi::RTS_INTERVAL_WAKING | abi::RTS_INTERVAL_EARLY => (StepKind::Wakeup, WaitKind::None),
        abi::RTS_INTERVAL_PREEMPTED => (StepKind::Preempted, WaitKind::None),
        abi::RTS_INTERVAL_RUNNING => (StepKind::Run, WaitKind::None),
        _ => return None,
    };
    let (tid, cpu) =
        (at!(tid, f, rts_interval.tid), chain.steps.last().map_or(chain.origin.cpu, |step| step.cpu));
    let duration_ns = now.since(chain.origin.time_ns).saturating_sub(chain.duration_ns());
    let id = if kind == StepKind::Wait { 0 } else { tid.0 };
    match chain.steps.last_mut().filter(|last| last.kind == StepKind::More) {
        Some(more) => {
            more.id += 1;
            more.duration_ns += duration_ns;
        }
        None => chain.steps.push(Step { kind, id, cpu, duration_ns, wait }),
    }
    let values = values(f, offset_of!(abi::rts_interval, values));
    let call = (tracker == Tracker::Syscall).then(|| Box::new(system_call(&values, None, chain.origin.id)));
    let lock = (tracker == Tracker::Lock).then(|| Box::new(lock_wait(&values, None)));
    Some(LateResponse {
        tracker,
        instance: 0,
        sequence: 0,
        cpu,
        end_ns: now,
        end: End::Pending,
        threshold_ns: 0,
        tid,
        pid: Pid(tid.0),
        prio: Priority(120),
        comm: Comm::default(),
        snapshot: None,
        chain,
        events: None,
        call,
        lock,
        block: None,
        section: None,
        stacks: None,
    })
}

/// A block request that has not been completed by `now`. `words` are those of a `struct rts_request`.
#[must_use]
pub fn pending_request(words: &[u64], now: MonotonicNs) -> Option<LateResponse> {
    let f = Fields(words);
    let mut chain = chain(Fields(&words[offset_of!(abi::rts_request, chain) / 8..]))?;
    let kind = match u32::from(at!(byte, f, rts_request.link)) {
        abi::RTS_REQUEST_QUEUED => StepKind::Queue,
        abi::RTS_REQUEST_ISSUED => StepKind::Device,
        _ => return None,
    };
    let cpu = chain.steps.last().map_or(chain.origin.cpu, |step| step.cpu);
    let duration_ns = now.since(chain.origin.time_ns).saturating_sub(chain.duration_ns());
    let id = chain.origin.id;
    chain.steps.push(Step { kind, id, cpu, duration_ns, wait: WaitKind::None });
    Some(LateResponse {
        tracker: Tracker::Block,
        instance: 0,
        sequence: 0,
        cpu,
        end_ns: now,
        end: End::Pending,
        threshold_ns: 0,
        tid: at!(tid, f, rts_request.tid),
        pid: at!(pid, f, rts_request.pid),
        prio: at!(prio, f, rts_request.prio),
        comm: at!(comm, f, rts_request.comm),
        snapshot: None,
        chain,
        events: None,
        call: None,
        lock: None,
        block: Some(Box::new(block_request(&values(f, offset_of!(abi::rts_request, values)), None))),
        section: None,
        stacks: None,
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
            wait: WaitKind::from_number(f.byte(base + offset_of!(abi::rts_step, detail)))?,
        })
    };
    let other = |index: usize| {
        let base = offset_of!(abi::rts_chain, others) + index * size_of::<abi::rts_other_origin>();
        Some(OtherOrigin {
            kind: OriginKind::from_number(f.byte(base + offset_of!(abi::rts_other_origin, kind)))?,
            id: f.u32(base + offset_of!(abi::rts_other_origin, id)),
            time_ns: MonotonicNs(f.u64(base + offset_of!(abi::rts_other_origin, origin_ns))),
        })
    };
    Some(Chain {
        origin: Origin {
            kind: OriginKind::from_number(at!(byte, f, rts_chain.origin_kind))?,
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
