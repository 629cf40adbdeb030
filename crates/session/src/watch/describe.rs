// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names for what the kernel's side reports by numbers: system calls and their arguments, locks and who wanted them.

use super::calls::CallNames;
use super::pair::Tracepoints;
use crate::devices;
use rtscope_event::{End, LateResponse, LockWait, Section, TaskStack, Tracker};
use rtscope_kernel::KernelSymbols;

/// Of this machine. What is not needed is not read.
#[derive(Debug)]
pub struct Describer {
    calls: CallNames,
    symbols: Option<KernelSymbols>,
    pair: Option<Tracepoints>,
}

impl Describer {
    /// Knows the two tracepoints of the tracker `pair`, where that runs, and nothing else yet.
    #[must_use]
    pub fn new(pair: Option<Tracepoints>) -> Describer {
        Describer { calls: CallNames::new(), symbols: None, pair }
    }

    /// Gives names to what has a number.
    pub fn describe(&mut self, late: &mut LateResponse) {
        if let Some(call) = &mut late.call {
            self.calls.describe(call);
        }
        if let Some(block) = &mut late.block {
            block.device = devices::name(block.major, block.minor);
        }
        if let (Tracker::Pair, Some(span), Some(pair)) = (late.tracker, &mut late.events, &self.pair) {
            pair.describe(span, late.end == End::Pending);
        }
        if let Some(lock) = &mut late.lock {
            lock.call = self.calls.name(late.chain.origin.id);
            name_lock(lock, self.symbols.get_or_insert_with(KernelSymbols::read));
        }
        if let Some(stacks) = &mut late.stacks {
            let symbols = self.symbols.get_or_insert_with(KernelSymbols::read);
            [&mut stacks.task, &mut stacks.waker]
                .into_iter()
                .flatten()
                .for_each(|stack| name_kernel(stack, symbols));
        }
        if let Some(section) = &mut late.section {
            name_section(late.tracker, section, self.symbols.get_or_insert_with(KernelSymbols::read));
        }
    }
}

/// The addresses are those of the callers, as text in hex, until here.
fn name_lock(lock: &mut LockWait, symbols: &KernelSymbols) {
    lock.name = symbols.find(lock.address).map(|(name, offset)| match offset {
        0 => name.to_owned(),
        _ => format!("{name}+{offset:#x}"),
    });
    let named = lock.callers.iter().map(|text| place(text, symbols));
    lock.callers = named.skip_while(|place| is_the_locks_own(place)).collect();
}

/// The same of the stack at its end: of a switch, from who called the scheduler on.
fn name_section(tracker: Tracker, section: &mut Section, symbols: &KernelSymbols) {
    let named: Vec<String> = section.stack.iter().map(|text| place(text, symbols)).collect();
    if tracker == Tracker::Irqoff {
        section.stack = named;
        return;
    }
    // Without it, the stack was cut off before it: then all of this is the tracker's own.
    let scheduler = named.iter().position(|place| place.starts_with("__schedule"));
    let callers = named.into_iter().skip(scheduler.map_or(usize::MAX, |at| at + 1));
    section.stack = callers.skip_while(|place| is_the_schedulers_own(place)).collect();
}

/// The kernel's part of a task's stack, without what switches, wakes and traces.
fn name_kernel(stack: &mut TaskStack, symbols: &KernelSymbols) {
    let named: Vec<String> = stack.kernel.iter().map(|text| place(text, symbols)).collect();
    let behind = |beginning: &str| named.iter().position(|place| place.starts_with(beginning));
    let own = behind("__schedule+").or_else(|| behind("try_to_wake_up+")).map_or(0, |at| at + 1);
    let is_own =
        |place: &String| is_the_schedulers_own(place) || is_the_locks_own(place) || is_the_calls_own(place);
    stack.kernel = named[own..].iter().skip_while(|place| is_own(place)).cloned().collect();
}

/// A function between the return of a system call and its tracepoint.
fn is_the_calls_own(place: &str) -> bool {
    const BEGINNINGS: [&str; 5] =
        ["syscall_exit_", "syscall_trace_", "do_syscall_64+", "entry_SYSCALL_", "__rethook_"];
    BEGINNINGS.iter().any(|beginning| place.starts_with(beginning))
}

/// A function between the scheduler and the place at which it may take another task.
fn is_the_schedulers_own(place: &str) -> bool {
    const BEGINNINGS: [&str; 7] = [
        "schedule+",
        "preempt_schedule",
        "__cond_resched",
        "_cond_resched",
        "dynamic_cond_resched",
        "cond_resched",
        "thunk_preempt_",
    ];
    BEGINNINGS.iter().any(|beginning| place.starts_with(beginning))
}

fn place(text: &str, symbols: &KernelSymbols) -> String {
    let address = text.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    address.map_or_else(|| text.to_owned(), |at| symbols.label(at))
}

/// A function of the tracepoint or of the lock itself, between its user and the place at which it is said to be waited for.
fn is_the_locks_own(place: &str) -> bool {
    const BEGINNINGS: [&str; 27] = [
        "bpf_",
        "__bpf_",
        "__traceiter_",
        "trace_",
        "__mutex_",
        "mutex_",
        "__ww_mutex_",
        "ww_mutex_",
        "rwsem_",
        "down_",
        "__down",
        "percpu_",
        "__percpu_",
        "rt_mutex_",
        "__rt_mutex_",
        "rtlock_",
        "rt_spin_",
        "rt_read_",
        "rt_write_",
        "rwbase_",
        "queued_",
        "native_queued_",
        "__pv_queued_",
        "_raw_",
        "__raw_",
        "do_raw_",
        "osq_",
    ];
    BEGINNINGS.iter().any(|beginning| place.starts_with(beginning)) || place.starts_with("down+")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locks_own_functions_are_not_who_wanted_it() {
        for (place, own) in [
            ("__mutex_lock.constprop.0+0x12", true),
            ("down_write+0x5", true),
            ("down+0x5", true),
            ("anon_pipe_write+0x5", false),
            ("download+0x5", false),
            ("bpf_trace_run2+0x5", true),
        ] {
            assert_eq!(is_the_locks_own(place), own, "{place}");
        }
    }
}
