// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events as lines of text, for test vectors and for dumping captured sequences.
//!
//! One event a line: time in nanoseconds, CPU, name, then `key=value` for every field. Bytes outside printable ASCII,
//! blanks and backslashes in names are written `\xNN`, so a line always splits at its blanks and a hostile task name
//! stays on its line. [`event_line`] and [`parse_event`] are inverse to each other.

use crate::{
    Comm, CpuId, End, Event, EventKind, Irq, MonotonicNs, OriginKind, Pid, Priority, TaskState, Tid,
    VectorKind,
};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::str::FromStr;

/// Why a line is not an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseEventError(String);

impl Display for ParseEventError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseEventError {}

fn error<T>(text: impl Into<String>) -> Result<T, ParseEventError> {
    Err(ParseEventError(text.into()))
}

fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        if byte.is_ascii_graphic() && *byte != b'\\' {
            text.push(char::from(*byte));
        } else {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'\\' {
            let digits = std::str::from_utf8(tail.strip_prefix(b"x")?.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[3..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    Some(bytes)
}

/// Collects ` key=value` pairs behind an event's name.
struct Line(String);

impl Line {
    fn new(name: &str) -> Line {
        Line(name.to_owned())
    }

    fn with(mut self, key: &str, value: impl Display) -> Line {
        let _ = write!(self.0, " {key}={value}");
        self
    }

    fn hex(mut self, key: &str, value: u64) -> Line {
        let _ = write!(self.0, " {key}={value:#x}");
        self
    }

    fn comm(self, key: &str, comm: Comm) -> Line {
        self.with(key, escape(comm.as_bytes()))
    }

    fn flag(self, key: &str, value: bool) -> Line {
        self.with(key, u8::from(value))
    }
}

/// The event as one line.
#[must_use]
pub fn event_line(event: &Event) -> String {
    let fields = scheduling_fields(&event.kind)
        .or_else(|| interrupt_fields(&event.kind))
        .or_else(|| deferral_fields(&event.kind))
        .map_or(String::new(), |l| l.0);
    format!("{} {} {fields}", event.time.0, event.cpu)
}

fn scheduling_fields(kind: &EventKind) -> Option<Line> {
    Some(match kind {
        EventKind::SchedSwitch {
            prev_tid,
            prev_prio,
            prev_state,
            preempt,
            prev_kthread,
            next_tid,
            next_prio,
            next_kthread,
        } => Line::new("sched_switch")
            .with("prev_tid", prev_tid)
            .with("prev_prio", prev_prio.0)
            .with("prev_state", prev_state.0)
            .flag("preempt", *preempt)
            .flag("prev_kthread", *prev_kthread)
            .with("next_tid", next_tid)
            .with("next_prio", next_prio.0)
            .flag("next_kthread", *next_kthread),
        EventKind::SchedWaking { tid, prio, target_cpu, kthread } => {
            waking_fields("sched_waking", *tid, *prio, *target_cpu, *kthread)
        }
        EventKind::SchedWakeupNew { tid, prio, target_cpu, kthread } => {
            waking_fields("sched_wakeup_new", *tid, *prio, *target_cpu, *kthread)
        }
        EventKind::SchedMigrateTask { tid, prio, orig_cpu, dest_cpu } => Line::new("sched_migrate_task")
            .with("tid", tid)
            .with("prio", prio.0)
            .with("orig_cpu", orig_cpu)
            .with("dest_cpu", dest_cpu),
        EventKind::SchedPiSetprio { tid, old_prio, new_prio } => Line::new("sched_pi_setprio")
            .with("tid", tid)
            .with("old_prio", old_prio.0)
            .with("new_prio", new_prio.0),
        EventKind::ProcessFork { parent_tid, parent_pid, child_tid, child_pid, child_comm } => {
            Line::new("sched_process_fork")
                .with("parent_tid", parent_tid)
                .with("parent_pid", parent_pid)
                .with("child_tid", child_tid)
                .with("child_pid", child_pid)
                .comm("child_comm", *child_comm)
        }
        EventKind::ProcessExec { tid, old_tid, filename } => Line::new("sched_process_exec")
            .with("tid", tid)
            .with("old_tid", old_tid)
            .with("filename", escape(filename.as_bytes())),
        EventKind::ProcessExit { tid, pid, prio, comm } => Line::new("sched_process_exit")
            .with("tid", tid)
            .with("pid", pid)
            .with("prio", prio.0)
            .comm("comm", *comm),
        EventKind::TaskRename { tid, pid, old_comm, new_comm } => Line::new("task_rename")
            .with("tid", tid)
            .with("pid", pid)
            .comm("old_comm", *old_comm)
            .comm("new_comm", *new_comm),
        _ => return None,
    })
}

fn waking_fields(name: &str, tid: Tid, prio: Priority, target_cpu: CpuId, kthread: bool) -> Line {
    Line::new(name)
        .with("tid", tid)
        .with("prio", prio.0)
        .with("target_cpu", target_cpu)
        .flag("kthread", kthread)
}

fn interrupt_fields(kind: &EventKind) -> Option<Line> {
    Some(match kind {
        EventKind::IrqHandlerEntry { irq } => Line::new("irq_handler_entry").with("irq", irq),
        EventKind::IrqHandlerExit { irq, ret } => {
            Line::new("irq_handler_exit").with("irq", irq).with("ret", ret)
        }
        EventKind::VectorEntry { kind, vector } => {
            Line::new("vector_entry").with("kind", kind.name()).with("vector", vector)
        }
        EventKind::VectorExit { kind, vector } => {
            Line::new("vector_exit").with("kind", kind.name()).with("vector", vector)
        }
        EventKind::SoftirqRaise { vec } => Line::new("softirq_raise").with("vec", vec),
        EventKind::SoftirqEntry { vec } => Line::new("softirq_entry").with("vec", vec),
        EventKind::SoftirqExit { vec } => Line::new("softirq_exit").with("vec", vec),
        EventKind::HrtimerExpireEntry { timer, function, softexpires_ns, expires_ns } => {
            Line::new("hrtimer_expire_entry")
                .hex("timer", *timer)
                .hex("function", *function)
                .with("softexpires", softexpires_ns)
                .with("expires", expires_ns)
        }
        EventKind::HrtimerExpireExit { timer } => Line::new("hrtimer_expire_exit").hex("timer", *timer),
        EventKind::CpuIdle { state, cpu } => match state {
            Some(state) => Line::new("cpu_idle").with("state", state).with("cpu_id", cpu),
            None => Line::new("cpu_idle").with("state", "exit").with("cpu_id", cpu),
        },
        EventKind::NmiHandler { handler, duration_ns, handled } => Line::new("nmi_handler")
            .hex("handler", *handler)
            .with("duration", duration_ns)
            .with("handled", handled),
        EventKind::IpiSend { target_cpu, call, callsite, callback } => Line::new("ipi_send")
            .with("target_cpu", target_cpu)
            .flag("call", *call)
            .hex("callsite", *callsite)
            .hex("callback", *callback),
        EventKind::LateResponse {
            tid,
            pid,
            origin_kind,
            origin_id,
            origin_ns,
            response_ns,
            threshold_ns,
            sequence,
            end,
        } => Line::new("late_response")
            .with("tid", tid)
            .with("pid", pid)
            .with("origin", origin_name(*origin_kind))
            .with("origin_id", origin_id)
            .with("origin_ns", origin_ns)
            .with("response", response_ns)
            .with("threshold", threshold_ns)
            .with("sequence", sequence)
            .with("end", end.name()),
        _ => return None,
    })
}

/// What hands work on: to other CPUs, to workers.
fn deferral_fields(kind: &EventKind) -> Option<Line> {
    Some(match kind {
        EventKind::IpiSendMask { targets, call, callsite, callback } => Line::new("ipi_send_mask")
            .with("targets", targets)
            .flag("call", *call)
            .hex("callsite", *callsite)
            .hex("callback", *callback),
        EventKind::WorkQueue { work, function, req_cpu } => {
            Line::new("work_queue").hex("work", *work).hex("function", *function).with("req_cpu", req_cpu)
        }
        EventKind::WorkStart { work, function } => {
            Line::new("work_start").hex("work", *work).hex("function", *function)
        }
        EventKind::WorkEnd { work, function } => {
            Line::new("work_end").hex("work", *work).hex("function", *function)
        }
        _ => return None,
    })
}

fn origin_name(kind: OriginKind) -> &'static str {
    match kind {
        OriginKind::Timer => "timer",
        OriginKind::Irq => "irq",
        OriginKind::Vector => "vector",
    }
}

/// The `key=value` pairs of a line. Fields that are left out are taken as 0, so that hand-made vectors stay short;
/// ids that decide what an event is about must be given.
struct Fields<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Fields<'a> {
    fn required(&self, key: &str) -> Result<&'a str, ParseEventError> {
        self.0.get(key).copied().map_or_else(|| error(format!("field {key} is missing")), Ok)
    }

    fn id(&self, key: &str) -> Result<u32, ParseEventError> {
        number(key, self.required(key)?)
    }

    fn or_zero<T: FromStr + Default>(&self, key: &str) -> Result<T, ParseEventError> {
        self.0.get(key).map_or_else(|| Ok(T::default()), |text| number(key, text))
    }

    fn prio(&self, key: &str) -> Result<Priority, ParseEventError> {
        Ok(Priority(self.0.get(key).map_or(Ok(120), |text| number(key, text))?))
    }

    fn flag(&self, key: &str) -> Result<bool, ParseEventError> {
        Ok(self.or_zero::<u8>(key)? != 0)
    }

    fn hex(&self, key: &str) -> Result<u64, ParseEventError> {
        let Some(text) = self.0.get(key) else { return Ok(0) };
        match text.strip_prefix("0x") {
            Some(digits) => {
                u64::from_str_radix(digits, 16).or_else(|_| error(format!("{key}={text}: not a number")))
            }
            None => number(key, text),
        }
    }

    fn bytes(&self, key: &str) -> Result<Vec<u8>, ParseEventError> {
        let text = self.required(key)?;
        unescape(text).map_or_else(|| error(format!("{key}={text}: bad escape")), Ok)
    }

    fn comm(&self, key: &str) -> Result<Comm, ParseEventError> {
        Ok(Comm::from_bytes(&self.bytes(key)?))
    }

    fn vector(&self) -> Result<VectorKind, ParseEventError> {
        let text = self.required("kind")?;
        VectorKind::from_name(text).map_or_else(|| error(format!("kind={text}: no such vector")), Ok)
    }
}

fn number<T: FromStr>(key: &str, text: &str) -> Result<T, ParseEventError> {
    text.parse().or_else(|_| error(format!("{key}={text}: not a number in range")))
}

/// The event that a line says.
///
/// # Errors
/// When the line has no time, CPU or known name, or a field that is missing or not a number.
pub fn parse_event(line: &str) -> Result<Event, ParseEventError> {
    let mut words = line.split_ascii_whitespace();
    let time = MonotonicNs(number("time", words.next().unwrap_or_default())?);
    let cpu = CpuId(number("cpu", words.next().unwrap_or_default())?);
    let name = words.next().unwrap_or_default();
    let mut fields = Fields(BTreeMap::new());
    for word in words {
        match word.split_once('=') {
            Some((key, value)) => fields.0.insert(key, value),
            None => return error(format!("{word}: not key=value")),
        };
    }
    let kind = match parse_scheduling(name, &fields)? {
        Some(kind) => kind,
        None => match parse_interrupt(name, &fields, cpu)? {
            Some(kind) => kind,
            None => return error(format!("no event is called {name:?}")),
        },
    };
    Ok(Event { time, cpu, kind })
}

fn parse_scheduling(name: &str, fields: &Fields<'_>) -> Result<Option<EventKind>, ParseEventError> {
    Ok(Some(match name {
        "sched_switch" => EventKind::SchedSwitch {
            prev_tid: Tid(fields.id("prev_tid")?),
            prev_prio: fields.prio("prev_prio")?,
            prev_state: TaskState(fields.or_zero("prev_state")?),
            preempt: fields.flag("preempt")?,
            prev_kthread: fields.flag("prev_kthread")?,
            next_tid: Tid(fields.id("next_tid")?),
            next_prio: fields.prio("next_prio")?,
            next_kthread: fields.flag("next_kthread")?,
        },
        "sched_waking" | "sched_wakeup_new" => {
            let (tid, prio) = (Tid(fields.id("tid")?), fields.prio("prio")?);
            let (target_cpu, kthread) = (CpuId(fields.or_zero("target_cpu")?), fields.flag("kthread")?);
            if name == "sched_waking" {
                EventKind::SchedWaking { tid, prio, target_cpu, kthread }
            } else {
                EventKind::SchedWakeupNew { tid, prio, target_cpu, kthread }
            }
        }
        "sched_migrate_task" => EventKind::SchedMigrateTask {
            tid: Tid(fields.id("tid")?),
            prio: fields.prio("prio")?,
            orig_cpu: CpuId(fields.id("orig_cpu")?),
            dest_cpu: CpuId(fields.id("dest_cpu")?),
        },
        "sched_pi_setprio" => EventKind::SchedPiSetprio {
            tid: Tid(fields.id("tid")?),
            old_prio: fields.prio("old_prio")?,
            new_prio: fields.prio("new_prio")?,
        },
        "sched_process_fork" => EventKind::ProcessFork {
            parent_tid: Tid(fields.id("parent_tid")?),
            parent_pid: Pid(fields.or_zero("parent_pid")?),
            child_tid: Tid(fields.id("child_tid")?),
            child_pid: Pid(fields.or_zero("child_pid")?),
            child_comm: fields.comm("child_comm")?,
        },
        "sched_process_exec" => EventKind::ProcessExec {
            tid: Tid(fields.id("tid")?),
            old_tid: Tid(fields.or_zero("old_tid")?),
            filename: String::from_utf8_lossy(&fields.bytes("filename")?).into_owned(),
        },
        "sched_process_exit" => EventKind::ProcessExit {
            tid: Tid(fields.id("tid")?),
            pid: Pid(fields.or_zero("pid")?),
            prio: fields.prio("prio")?,
            comm: fields.comm("comm")?,
        },
        "task_rename" => EventKind::TaskRename {
            tid: Tid(fields.id("tid")?),
            pid: Pid(fields.or_zero("pid")?),
            old_comm: fields.comm("old_comm")?,
            new_comm: fields.comm("new_comm")?,
        },
        _ => return Ok(None),
    }))
}

fn parse_interrupt(
    name: &str,
    fields: &Fields<'_>,
    cpu: CpuId,
) -> Result<Option<EventKind>, ParseEventError> {
    Ok(Some(match name {
        "irq_handler_entry" => EventKind::IrqHandlerEntry { irq: Irq(fields.id("irq")?) },
        "irq_handler_exit" => {
            EventKind::IrqHandlerExit { irq: Irq(fields.id("irq")?), ret: fields.or_zero("ret")? }
        }
        "vector_entry" => {
            EventKind::VectorEntry { kind: fields.vector()?, vector: fields.or_zero("vector")? }
        }
        "vector_exit" => EventKind::VectorExit { kind: fields.vector()?, vector: fields.or_zero("vector")? },
        "softirq_raise" => EventKind::SoftirqRaise { vec: fields.id("vec")? },
        "softirq_entry" => EventKind::SoftirqEntry { vec: fields.id("vec")? },
        "softirq_exit" => EventKind::SoftirqExit { vec: fields.id("vec")? },
        "hrtimer_expire_entry" => EventKind::HrtimerExpireEntry {
            timer: fields.hex("timer")?,
            function: fields.hex("function")?,
            softexpires_ns: number("softexpires", fields.required("softexpires")?)?,
            expires_ns: number("expires", fields.required("expires")?)?,
        },
        "hrtimer_expire_exit" => EventKind::HrtimerExpireExit { timer: fields.hex("timer")? },
        "cpu_idle" => EventKind::CpuIdle {
            state: match fields.required("state")? {
                "exit" => None,
                text => Some(number("state", text)?),
            },
            cpu: CpuId(fields.0.get("cpu_id").map_or(Ok(cpu.0), |text| number("cpu_id", text))?),
        },
        "nmi_handler" => EventKind::NmiHandler {
            handler: fields.hex("handler")?,
            duration_ns: number("duration", fields.required("duration")?)?,
            handled: fields.or_zero("handled")?,
        },
        "ipi_send" => EventKind::IpiSend {
            target_cpu: CpuId(fields.id("target_cpu")?),
            call: fields.flag("call")?,
            callsite: fields.hex("callsite")?,
            callback: fields.hex("callback")?,
        },
        "ipi_send_mask" => EventKind::IpiSendMask {
            targets: number("targets", fields.required("targets")?)?,
            call: fields.flag("call")?,
            callsite: fields.hex("callsite")?,
            callback: fields.hex("callback")?,
        },
        "work_queue" => {
            let req_cpu = fields.or_zero("req_cpu")?;
            EventKind::WorkQueue { work: fields.hex("work")?, function: fields.hex("function")?, req_cpu }
        }
        "work_start" => EventKind::WorkStart { work: fields.hex("work")?, function: fields.hex("function")? },
        "work_end" => EventKind::WorkEnd { work: fields.hex("work")?, function: fields.hex("function")? },
        "late_response" => parse_late(fields)?,
        _ => return Ok(None),
    }))
}

fn parse_late(fields: &Fields<'_>) -> Result<EventKind, ParseEventError> {
    let kinds = [OriginKind::Timer, OriginKind::Irq, OriginKind::Vector];
    let ends = [End::Running, End::Blocked, End::Rewoken];
    let (origin, end) = (fields.required("origin")?, fields.required("end")?);
    Ok(EventKind::LateResponse {
        tid: Tid(fields.id("tid")?),
        pid: Pid(fields.or_zero("pid")?),
        origin_kind: match kinds.into_iter().find(|kind| origin_name(*kind) == origin) {
            Some(kind) => kind,
            None => return error(format!("origin={origin}: no such origin")),
        },
        origin_id: fields.or_zero("origin_id")?,
        origin_ns: fields.or_zero("origin_ns")?,
        response_ns: fields.or_zero("response")?,
        threshold_ns: fields.or_zero("threshold")?,
        sequence: fields.or_zero("sequence")?,
        end: match ends.into_iter().find(|kind| kind.name() == end) {
            Some(kind) => kind,
            None => return error(format!("end={end}: no such end")),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_survives_the_way_through_text() {
        let lines = [
            "1 0 sched_switch prev_tid=1 prev_prio=120 prev_state=1 preempt=0 prev_kthread=0 next_tid=2 next_prio=-1 next_kthread=1",
            "2 1 sched_waking tid=7 prio=49 target_cpu=3 kthread=0",
            "2 1 sched_wakeup_new tid=7 prio=120 target_cpu=3 kthread=0",
            "3 1 sched_migrate_task tid=7 prio=120 orig_cpu=0 dest_cpu=1",
            "3 1 sched_pi_setprio tid=7 old_prio=120 new_prio=19",
            "4 0 sched_process_fork parent_tid=1 parent_pid=1 child_tid=2 child_pid=2 child_comm=a\\x20b\\x5c",
            "5 0 sched_process_exec tid=2 old_tid=2 filename=/bin/tr\\xc3\\xa4ge",
            "6 0 sched_process_exit tid=2 pid=2 prio=120 comm=x\\x1b[2J",
            "7 0 task_rename tid=2 pid=2 old_comm= new_comm=y",
            "8 0 irq_handler_entry irq=36",
            "9 0 irq_handler_exit irq=36 ret=2",
            "9 0 vector_entry kind=local_timer vector=236",
            "9 0 vector_exit kind=call_function_single vector=251",
            "9 0 softirq_raise vec=3",
            "9 0 softirq_entry vec=3",
            "9 0 softirq_exit vec=3",
            "9 0 hrtimer_expire_entry timer=0xffff8880 function=0x12 softexpires=-5 expires=7",
            "9 0 hrtimer_expire_exit timer=0xffff8880",
            "9 0 cpu_idle state=1 cpu_id=0",
            "9 0 cpu_idle state=exit cpu_id=0",
            "9 0 nmi_handler handler=0x99 duration=1000 handled=1",
            "9 0 ipi_send target_cpu=1 call=1 callsite=0x1 callback=0x2",
            "9 0 ipi_send_mask targets=1-3,5 call=1 callsite=0x1 callback=0x2",
            "9 0 work_queue work=0x5 function=0x6 req_cpu=8192",
            "9 0 work_start work=0x5 function=0x6",
            "9 0 work_end work=0x5 function=0x6",
            "9 0 late_response tid=2 pid=2 origin=irq origin_id=36 origin_ns=5 response=9 threshold=3 sequence=1 end=blocked",
        ];
        for line in lines {
            assert_eq!(event_line(&parse_event(line).unwrap()), line);
        }
    }

    #[test]
    fn a_bad_line_says_what_is_wrong() {
        let message = |line| parse_event(line).unwrap_err().to_string();
        assert_eq!(message("x 0 softirq_raise vec=1"), "time=x: not a number in range");
        assert_eq!(message("1 0 softirq_raise"), "field vec is missing");
        assert_eq!(message("1 0 softirq vec=1"), "no event is called \"softirq\"");
        assert_eq!(message("1 0 task_rename tid=1 old_comm=\\x2 new_comm=b"), "old_comm=\\x2: bad escape");
    }
}
