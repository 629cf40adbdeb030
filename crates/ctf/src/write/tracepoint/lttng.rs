// SPDX-License-Identifier: Apache-2.0 OR MIT
//! LTTng's names for tracepoints and fields, where they differ from the kernel's.
//!
//! Trace Compass, rtscope's explanations and people's scripts use LTTng's names. Only events that they use are
//! renamed; every other tracepoint has its own name, so that the kernel's documentation applies.

use rtscope_ftrace::format::{EventFormat, Field, FieldKind};
use std::borrow::Cow;

/// The name of an event; `true` when it is a name of LTTng's, which no other event may have.
pub(super) fn event_name(format: &EventFormat) -> (String, bool) {
    let name = format.name.as_str();
    if let Some(of_built_in) = rtscope_event::trace_name(&format.system, name) {
        return (of_built_in.to_owned(), true);
    }
    let renamed = match format.system.as_str() {
        "irq" if name.starts_with("softirq_") => Some(format!("irq_{name}")),
        "timer" if name.starts_with("hrtimer_") => Some(format!("timer_{name}")),
        "irq_vectors" => Some(format!("x86_irq_vectors_{name}")),
        "power" if name == "cpu_frequency" => Some(format!("power_{name}")),
        "kmem" if matches!(name, "mm_page_alloc" | "mm_page_free") => Some(format!("kmem_{name}")),
        "syscalls" => (name.strip_prefix("sys_enter_").map(|call| format!("syscall_entry_{call}")))
            .or_else(|| name.strip_prefix("sys_exit_").map(|call| format!("syscall_exit_{call}"))),
        "sched" | "irq" | "nmi" | "ipi" | "task" => Some(name.to_owned()),
        _ => None,
    };
    match renamed {
        Some(renamed) => (renamed, true),
        None => (name.to_owned(), false),
    }
}

/// The name of a field.
pub(super) fn field_name<'f>(format: &EventFormat, field: &'f Field) -> Cow<'f, str> {
    let name = field.name.as_str();
    let about_tasks = format.system == "sched" || (format.system == "task" && format.name == "task_rename");
    let renamed = match name {
        // The kernel's pid is a thread; a process is a tgid there.
        "pid" if about_tasks => "tid".to_owned(),
        _ if about_tasks => match name.strip_suffix("_pid") {
            Some(whose) => format!("{whose}_tid"),
            None => return Cow::from(name),
        },
        _ => return Cow::from(name),
    };
    // An event that has both retains both.
    if format.fields.iter().any(|other| other.name == renamed) { Cow::from(name) } else { Cow::from(renamed) }
}

/// Whether a field is a priority, as the kernel counts it.
pub(super) fn is_priority(format: &EventFormat, field: &Field) -> bool {
    let name = field.name.as_str();
    format.system == "sched"
        && field.size == 4
        && matches!(name, "prio" | "prev_prio" | "next_prio" | "oldprio" | "newprio")
}

/// Whether a field is the state in which a task leaves its CPU.
pub(super) fn is_prev_state(format: &EventFormat, field: &Field) -> bool {
    format.system == "sched"
        && format.name == "sched_switch"
        && field.name == "prev_state"
        && matches!(field.size, 4 | 8)
}

/// Fields of LTTng's that the kernel's event lacks: the caller gives their values, where they are known.
pub(super) fn given(format: &EventFormat) -> &'static [&'static str] {
    match (format.system.as_str(), format.name.as_str()) {
        // The kernel names threads only.
        ("sched", "sched_process_fork") => &["parent_pid", "child_pid"],
        _ => &[],
    }
}

/// Whether a field says what a block request does, as text (`blk_fill_rwbs`). LTTng has a mask in its place.
pub(super) fn is_request(format: &EventFormat, field: &Field) -> bool {
    format.system == "block" && field.name == "rwbs" && matches!(field.kind, FieldKind::Array { .. })
}

/// LTTng's mask for such a text: write 1, discard 2, read 4, read ahead 8, synchronous 32, metadata 64, secure 128, flush 256,
/// FUA 512, flush before 1024.
pub(super) fn request_mask(text: &[u8]) -> u32 {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    // An F is for a flush before the operation if an operation follows; it is one itself if none does.
    let (before, text) = match text {
        [b'F', rest @ ..] if matches!(rest.first(), Some(b'W' | b'D' | b'F' | b'R' | b'Z' | b'N')) => {
            (1024, rest)
        }
        all => (0, all),
    };
    let (operation, flags) = match text {
        [b'W', flags @ ..] => (1, flags),
        [b'D', b'E', flags @ ..] => (2 | 128, flags),
        [b'D', flags @ ..] => (2, flags),
        [b'F', flags @ ..] => (256, flags),
        [b'R', flags @ ..] => (4, flags),
        // Operations on zones have two letters, or three, which are not flags.
        [b'Z', b'R', b'A', flags @ ..] | [b'Z', _, flags @ ..] => (0, flags),
        other => (0, other.get(1..).unwrap_or_default()),
    };
    let flag = |flag: &u8| match flag {
        b'F' => 512,
        b'A' => 8,
        b'S' => 32,
        b'M' => 64,
        _ => 0,
    };
    flags.iter().map(flag).fold(before | operation, |mask, bit| mask | bit)
}

/// For an event of a system call: whether it is the entry.
pub(super) fn is_entry(format: &EventFormat) -> Option<bool> {
    match format.name.as_str() {
        _ if format.system != "syscalls" => None,
        name if name.starts_with("sys_enter_") => Some(true),
        name if name.starts_with("sys_exit_") => Some(false),
        _ => None,
    }
}
