// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What threads, interrupts, origins and causes are called. Task names come from hostile hands: `Comm` escapes what would
//! drive a terminal, and interrupt names are treated alike here.

use rtscope_analyze::explain::{Actor, Cause, CauseKind, Thread};
use rtscope_event::{Irq, Names, Origin, OriginKind, Tid, is_invisible, softirq_name, step_vector_name};

/// `hog/1240`, or `thread 1240` when its name is not known.
pub(crate) fn short_thread(thread: &Thread) -> String {
    match thread.comm {
        Some(comm) => format!("{comm}/{}", thread.tid),
        None => format!("thread {}", thread.tid),
    }
}

/// `hog/1240 (rt 80, FIFO)`: as much as is known.
#[must_use]
pub fn thread_label(thread: &Thread) -> String {
    let policy = thread.policy.filter(|policy| policy.0 != 0).map(|policy| policy.name().to_owned());
    let known: Vec<String> = thread.prio.map(|prio| prio.to_string()).into_iter().chain(policy).collect();
    if known.is_empty() {
        short_thread(thread)
    } else {
        format!("{} ({})", short_thread(thread), known.join(", "))
    }
}

fn irq_label(irq: Irq, name: Option<&str>) -> String {
    match name {
        Some(name) => {
            format!("{} (irq {irq})", clean(name))
        }
        None => format!("irq {irq}"),
    }
}

/// Names from outside, without what would drive a terminal.
#[must_use]
pub fn clean(name: &str) -> String {
    let mut text = String::new();
    for character in name.chars() {
        if (character.is_control() && character != '\n') || is_invisible(character) {
            text.extend(character.escape_unicode());
        } else {
            text.push(character);
        }
    }
    text
}

/// A thread, interrupt or softirq by name: `hog/1240 (rt 80)`, `virtio1-req.0 (irq 36)`, `local_timer`, `NET_RX`.
#[must_use]
pub fn actor_label(actor: &Actor) -> String {
    match actor {
        Actor::Thread(thread) => thread_label(thread),
        Actor::Irq { irq, name } => irq_label(*irq, name.as_deref()),
        Actor::Vector { vector } => vector.name().to_owned(),
        Actor::Softirq { vec } => softirq_name(*vec).to_owned(),
        Actor::Timer => "timer".to_owned(),
        Actor::Idle => "the idle thread".to_owned(),
    }
}

/// What a chain began with: `timer`, `virtio1-req.0 (irq 36)`, `irq_work`.
#[must_use]
pub fn origin_label(origin: &Origin, names: &Names) -> String {
    match origin.kind {
        OriginKind::Timer => "timer".to_owned(),
        OriginKind::Irq => irq_label(Irq(origin.id), names.irq(Irq(origin.id))),
        OriginKind::Vector => step_vector_name(origin.id).to_owned(),
        OriginKind::OffCpu => "off its CPU".to_owned(),
        OriginKind::Softirq => format!("softirq {}", softirq_name(origin.id)),
        OriginKind::Syscall => format!("system call {}", origin.id),
        OriginKind::Lock => "a lock".to_owned(),
        OriginKind::Block => "a block request".to_owned(),
        OriginKind::IrqsOff => "interrupts off".to_owned(),
        OriginKind::Resched if origin.id == 0 => "the idle thread".to_owned(),
        OriginKind::Task | OriginKind::Event | OriginKind::Resched => {
            match names.comm(Tid(origin.id), origin.time_ns) {
                Some(comm) => format!("{comm}/{}", origin.id),
                None => format!("thread {}", origin.id),
            }
        }
    }
}

/// A cause with its actor: `thread hog/1240 (rt 80)`, `IRQ local_timer`, `own work`.
#[must_use]
pub fn cause_label(kind: CauseKind, actor: Option<&Actor>) -> String {
    let who = actor.map_or_else(|| "unknown".to_owned(), actor_label);
    match kind {
        CauseKind::ChainWork => format!("work of {who}"),
        CauseKind::Handler => "handler".to_owned(),
        CauseKind::Softirq => "softirq".to_owned(),
        CauseKind::Holder => format!("held by {who}"),
        CauseKind::Waiting => actor.map_or_else(|| "waiting".to_owned(), |_| format!("{who} waited")),
        CauseKind::BlockingThread => format!("running thread {who}"),
        CauseKind::ThreadInterference => format!("thread {who}"),
        CauseKind::IrqInterference => format!("IRQ {who}"),
        CauseKind::SoftirqInterference => format!("softirq {who}"),
        CauseKind::NmiInterference => "NMI".to_owned(),
        CauseKind::OwnWork
        | CauseKind::TimerSlack
        | CauseKind::EarlierTimers
        | CauseKind::ExitFromIdle
        | CauseKind::IpiFlight
        | CauseKind::Queue
        | CauseKind::Device
        | CauseKind::Unknown => kind.name().to_owned(),
    }
}

pub(crate) fn label_of(cause: &Cause) -> String {
    cause_label(cause.kind, cause.actor.as_ref())
}
