// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts, softirqs, timers, work and the CPU's own events: Perfetto has its own tracks for them.

use super::fields::Place;
use super::packets::{Category, NameId, Packets, Track, TrackKind, Type};
use super::sched::Cpus;
use rtscope_event::{EventClass, Values};
use std::collections::BTreeMap;
use std::io::Write;

/// `FtraceEvent`.
mod ftrace {
    pub(super) const CPU_FREQUENCY: u32 = 11;
    pub(super) const CPU_IDLE: u32 = 13;
    pub(super) const SOFTIRQ_ENTRY: u32 = 24;
    pub(super) use super::super::sched::SOFTIRQ_EXIT;
    pub(super) const SOFTIRQ_RAISE: u32 = 26;
    pub(super) const IRQ_HANDLER_ENTRY: u32 = 36;
    pub(super) const IRQ_HANDLER_EXIT: u32 = 37;
    pub(super) const WORKQUEUE_EXECUTE_END: u32 = 57;
    pub(super) const WORKQUEUE_EXECUTE_START: u32 = 58;
    pub(super) const HRTIMER_EXPIRE_ENTRY: u32 = 553;
    pub(super) const HRTIMER_EXPIRE_EXIT: u32 = 554;
    pub(super) const LOCAL_TIMER_ENTRY: u32 = 559;
    pub(super) const LOCAL_TIMER_EXIT: u32 = 560;
}

/// An event of this kind, with its fields.
#[derive(Clone, Debug)]
pub(super) enum Interrupt {
    Irq {
        irq: Place,
        name: Place,
    },
    IrqEnd {
        irq: Place,
        ret: Place,
    },
    Softirq {
        vec: Place,
        is_entry: bool,
    },
    SoftirqRaise {
        vec: Place,
    },
    LocalTimer {
        vector: Place,
        is_entry: bool,
    },
    /// Any other vector: for Perfetto an interrupt of this name, since it draws no others.
    Vector {
        name: String,
        vector: Place,
        is_entry: bool,
    },
    /// `ipi_entry` of arm64, which has its reason as text.
    NamedIpi {
        reason: Place,
        is_entry: bool,
    },
    Timer {
        timer: Place,
        now: Place,
        function: Place,
    },
    TimerEnd {
        timer: Place,
    },
    Work {
        work: Place,
        function: Place,
        is_entry: bool,
    },
    Idle {
        state: Place,
        cpu: Place,
    },
    Frequency {
        state: Place,
        cpu: Place,
    },
    Nmi {
        handler: Place,
        duration: Place,
        name: Option<NameId>,
    },
}

impl Interrupt {
    /// An event class of this kind.
    pub(super) fn new(class: &EventClass) -> Option<Interrupt> {
        let place = |name: &str| Place::of(class, &[name]);
        if let Some(vector) = class.name.strip_prefix("x86_irq_vectors_") {
            let (kind, is_entry) = match vector.strip_suffix("_entry") {
                Some(kind) => (kind, true),
                None => (vector.strip_suffix("_exit")?, false),
            };
            return Some(match kind {
                "local_timer" => Interrupt::LocalTimer { vector: place("vector"), is_entry },
                kind => Interrupt::Vector { name: kind.to_owned(), vector: place("vector"), is_entry },
            });
        }
        let (work, function) = (place("work"), place("function"));
        Some(match class.name.as_str() {
            "irq_handler_entry" => Interrupt::Irq { irq: place("irq"), name: place("name") },
            "irq_handler_exit" => Interrupt::IrqEnd { irq: place("irq"), ret: place("ret") },
            "irq_softirq_entry" => Interrupt::Softirq { vec: place("vec"), is_entry: true },
            "irq_softirq_exit" => Interrupt::Softirq { vec: place("vec"), is_entry: false },
            "irq_softirq_raise" => Interrupt::SoftirqRaise { vec: place("vec") },
            "ipi_entry" => Interrupt::NamedIpi { reason: place("reason"), is_entry: true },
            "ipi_exit" => Interrupt::NamedIpi { reason: place("reason"), is_entry: false },
            "timer_hrtimer_expire_entry" => {
                Interrupt::Timer { timer: place("hrtimer"), now: place("now"), function }
            }
            "timer_hrtimer_expire_exit" => Interrupt::TimerEnd { timer: place("hrtimer") },
            "workqueue_execute_start" => Interrupt::Work { work, function, is_entry: true },
            "workqueue_execute_end" => Interrupt::Work { work, function, is_entry: false },
            "power_cpu_idle" => Interrupt::Idle { state: place("state"), cpu: place("cpu_id") },
            "power_cpu_frequency" => Interrupt::Frequency { state: place("state"), cpu: place("cpu_id") },
            "nmi_handler" => {
                Interrupt::Nmi { handler: place("handler"), duration: place("delta_ns"), name: None }
            }
            _ => return None,
        })
    }
}

/// Tracks for NMI handlers, of which Perfetto knows nothing.
#[derive(Debug, Default)]
pub(super) struct Nmis {
    root: Option<Track>,
    tracks: BTreeMap<u32, Track>,
}

/// Writes an event.
pub(super) fn write<W: Write>(
    at: (u64, u32),
    kind: &mut Interrupt,
    values: &Values<'_>,
    (cpus, nmis): (&mut Cpus, &mut Nmis),
    packets: &mut Packets<W>,
) {
    let number = |place: Place| place.u32(values).unwrap_or(0).into();
    let address = |place: Place| place.u64(values).unwrap_or(0);
    match *kind {
        Interrupt::Irq { irq, name } => {
            cpus.interrupt(at, ftrace::IRQ_HANDLER_EXIT, true);
            cpus.event(at, ftrace::IRQ_HANDLER_ENTRY, packets, |event| {
                event.number(1, number(irq));
                event.text(2, name.bytes(values));
            });
        }
        Interrupt::IrqEnd { irq, ret } => {
            if cpus.interrupt(at, ftrace::IRQ_HANDLER_EXIT, false) {
                cpus.event(at, ftrace::IRQ_HANDLER_EXIT, packets, |event| {
                    event.number(1, number(irq));
                    event.signed(2, ret.i64(values).unwrap_or(0));
                });
            }
        }
        Interrupt::Softirq { vec, is_entry } => {
            let field = if is_entry { ftrace::SOFTIRQ_ENTRY } else { ftrace::SOFTIRQ_EXIT };
            if cpus.interrupt(at, ftrace::SOFTIRQ_EXIT, is_entry) {
                cpus.event(at, field, packets, |event| event.number(1, number(vec)));
            }
        }
        Interrupt::LocalTimer { vector, is_entry } => {
            let field = if is_entry { ftrace::LOCAL_TIMER_ENTRY } else { ftrace::LOCAL_TIMER_EXIT };
            if cpus.interrupt(at, ftrace::LOCAL_TIMER_EXIT, is_entry) {
                cpus.event(at, field, packets, |event| event.number(1, number(vector)));
            }
        }
        Interrupt::Vector { ref name, vector, is_entry } => {
            vector_event(at, (number(vector), name.as_bytes()), is_entry, cpus, packets);
        }
        Interrupt::NamedIpi { reason, is_entry } => {
            vector_event(at, (0, reason.bytes(values)), is_entry, cpus, packets);
        }
        Interrupt::Timer { timer, now, function } => {
            cpus.interrupt(at, ftrace::HRTIMER_EXPIRE_EXIT, true);
            cpus.event(at, ftrace::HRTIMER_EXPIRE_ENTRY, packets, |event| {
                event.number(1, address(timer));
                event.number(2, address(now));
                event.number(3, address(function));
            });
        }
        Interrupt::TimerEnd { timer } => {
            if cpus.interrupt(at, ftrace::HRTIMER_EXPIRE_EXIT, false) {
                cpus.event(at, ftrace::HRTIMER_EXPIRE_EXIT, packets, |event| event.number(1, address(timer)));
            }
        }
        _ => write_other(at, kind, values, (cpus, nmis), packets),
    }
}

/// What is no handler, or reports one at its end.
fn write_other<W: Write>(
    at: (u64, u32),
    kind: &mut Interrupt,
    values: &Values<'_>,
    (cpus, nmis): (&mut Cpus, &mut Nmis),
    packets: &mut Packets<W>,
) {
    let number = |place: Place| place.u32(values).unwrap_or(0).into();
    let address = |place: Place| place.u64(values).unwrap_or(0);
    match *kind {
        Interrupt::SoftirqRaise { vec } => {
            cpus.event(at, ftrace::SOFTIRQ_RAISE, packets, |event| event.number(1, number(vec)));
        }
        Interrupt::Work { work, function, is_entry } => {
            let field =
                if is_entry { ftrace::WORKQUEUE_EXECUTE_START } else { ftrace::WORKQUEUE_EXECUTE_END };
            cpus.event(at, field, packets, |event| {
                event.number(1, address(work));
                event.number(2, address(function));
            });
        }
        Interrupt::Idle { state, cpu } | Interrupt::Frequency { state, cpu } => {
            let is_idle = matches!(kind, Interrupt::Idle { .. });
            let field = if is_idle { ftrace::CPU_IDLE } else { ftrace::CPU_FREQUENCY };
            cpus.event(at, field, packets, |event| {
                event.number(1, number(state));
                event.number(2, number(cpu));
            });
        }
        Interrupt::Nmi { handler, duration, ref mut name } => {
            let name = *name.get_or_insert_with(|| packets.event_name("NMI handler"));
            let took = duration.u64(values).unwrap_or(0);
            nmis.write(at, took, (name, address(handler)), packets);
        }
        _ => {}
    }
}

fn vector_event<W: Write>(
    at: (u64, u32),
    (vector, name): (u64, &[u8]),
    is_entry: bool,
    cpus: &mut Cpus,
    packets: &mut Packets<W>,
) {
    if !cpus.interrupt(at, ftrace::IRQ_HANDLER_EXIT, is_entry) {
        return;
    }
    let field = if is_entry { ftrace::IRQ_HANDLER_ENTRY } else { ftrace::IRQ_HANDLER_EXIT };
    cpus.event(at, field, packets, |event| {
        event.number(1, vector);
        if is_entry {
            event.text(2, name);
        } else {
            // Handled.
            event.number(2, 1);
        }
    });
}

impl Nmis {
    /// The event comes at the handler's end.
    fn write<W: Write>(
        &mut self,
        (time, cpu): (u64, u32),
        took: u64,
        (name, handler): (NameId, u64),
        packets: &mut Packets<W>,
    ) {
        let root = *self.root.get_or_insert_with(|| packets.track("NMIs", None, TrackKind::Group));
        let track = *self
            .tracks
            .entry(cpu)
            .or_insert_with(|| packets.track(&format!("CPU {cpu}"), Some(root), TrackKind::Plain));
        let argument = packets.annotation_name("handler");
        let begin = time.saturating_sub(took);
        packets.event(begin, Type::Begin, track, (Some(name), Category::Kernel), |event| {
            super::arguments::pointer(event, argument, handler);
        });
        packets.event(time, Type::End, track, (None, Category::Kernel), |_| {});
    }
}
