// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of stacks of what is late: which trackers have them, where they are taken, and the memory that they are in.

use super::{EbpfConfig, EbpfPrograms, Error, StackConfig, map_memory};
use libbpf_rs::{Link, ProgramMut};
use rtscope_abi as abi;
use rtscope_ring::StackCopies;
use std::fs;

/// Fills in what the eBPF programs need of it.
pub(super) fn store(values: &mut abi::rts_config, config: &EbpfConfig) {
    let Some(stacks) = config.stacks else { return };
    let page = abi::RTS_STACK_PAGE;
    values.stack_bytes = stacks.bytes.next_multiple_of(page).clamp(page, StackConfig::MOST_BYTES);
    for tracker in &config.trackers {
        let kind = tracker.follows.tracker();
        if !kind.has_stacks() {
            continue;
        }
        // 0 means never.
        let limit_ns = tracker.threshold_ns.max(1);
        let slot = &mut values.stacks_ns[usize::from(kind.number())];
        *slot = if *slot == 0 { limit_ns } else { limit_ns.min(*slot) };
    }
}

/// The function of the scheduler that runs first in a task that was switched to; compilers put `.isra.0` and the like behind its name.
const FUNCTION: &str = "finish_task_switch";

/// Attaches the program to that function, or says why times off a CPU have no stacks.
pub(super) fn attach(program: &ProgramMut<'_>) -> Result<Link, String> {
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let name = function_in(&symbols).ok_or_else(|| {
        format!("this kernel has neither the tracepoint sched_exit_tp (Linux 6.16) nor a function {FUNCTION}")
    })?;
    program
        .attach_kprobe(false, name)
        .map_err(|error| format!("a probe at the kernel's function {name}: {error}"))
}

fn function_in(symbols: &str) -> Option<&str> {
    let is_it = |name: &&str| {
        name.strip_prefix(FUNCTION).is_some_and(|rest| {
            rest.is_empty() || rest.starts_with(".isra.") || rest.starts_with(".constprop.")
        })
    };
    symbols.lines().filter_map(|line| line.split_ascii_whitespace().nth(2)).find(is_it)
}

impl EbpfPrograms {
    /// Where copies of stacks are; `None`: none are made.
    ///
    /// # Errors
    /// When the memory cannot be mapped.
    pub fn stack_copies(&self, config: &EbpfConfig) -> Result<Option<StackCopies>, Error> {
        if config.stacks.is_none() {
            return Ok(None);
        }
        let memory = map_memory(&self.object, "stacks", StackCopies::bytes(), true)?;
        let counts = map_memory(&self.object, ".data.stacks", StackCopies::count_bytes(), false)?;
        Ok(Some(StackCopies::new(memory, counts)))
    }

    /// Why times off a CPU have no stacks of their tasks, where they were asked for; `None`: they have.
    #[must_use]
    pub fn stacks_missing(&self) -> Option<&str> {
        self.stacks_missing.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedulers_function_is_found_whatever_the_compiler_calls_it() {
        let line = |name: &str| format!("ffffffff813a2370 t __pfx_{name}\nffffffff813a2380 t {name}\n");
        for name in ["finish_task_switch", "finish_task_switch.isra.0", "finish_task_switch.constprop.0"] {
            assert_eq!(function_in(&line(name)), Some(name));
        }
        assert_eq!(function_in(&line("finish_task_switch.cold")), None);
        assert_eq!(function_in("ffffffff813a2380 t finish_task\n"), None);
    }
}
