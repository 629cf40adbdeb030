// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stacks of what is late: copies are unwound as soon as they are seen, since their processes may end, and then given to the reports that they belong to.

use crate::Failure;
use rtscope_event::{LateResponse, Pid, StackMissing, TaskStack};
use rtscope_kernel::{EbpfConfig, EbpfPrograms};
use rtscope_programs::mounts;
use rtscope_ring::StackCopies;
use rtscope_stacks::{Caution, Unwinder};
use std::collections::BTreeMap;
use std::time::Duration;

/// Stacks that wait for their reports: of wakers, whose tasks have not come back to a CPU.
const WAITING_MAX: usize = 512;
/// A copy is made some microseconds after its report, unless a hypervisor has the CPU.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(1);

/// What is needed for them.
#[derive(Debug)]
pub struct Stacks {
    copies: StackCopies,
    unwinder: Unwinder,
    /// By the number of the copy; and whether a report has it.
    ready: BTreeMap<u32, (TaskStack, bool)>,
    /// Those that were given up since too many waited.
    given_up: u64,
    /// The process whose mappings are known.
    remembered: Option<Pid>,
}

impl Stacks {
    /// Over eBPF programs that run; `None`: no stacks are wanted.
    pub fn new(ebpf: &EbpfPrograms, config: &EbpfConfig) -> Result<Option<Stacks>, Failure> {
        let copies = ebpf.stack_copies(config)?;
        Ok(copies.map(|copies| Stacks {
            copies,
            unwinder: Unwinder::new(Caution { file: mounts::judge_file, root: mounts::trusted_root }),
            ready: BTreeMap::new(),
            given_up: 0,
            remembered: None,
        }))
    }

    /// Reads what a process has mapped, so that its stacks can be unwound when it has ended; not again and again, since that disturbs it.
    pub fn remember_once(&mut self, pid: Pid) {
        if self.remembered != Some(pid) {
            self.remembered = Some(pid);
            self.unwinder.remember(pid);
        }
    }

    /// Gives each report its stacks. Costs a load where nothing is late.
    pub fn add_to(&mut self, all: &mut [LateResponse]) {
        self.take();
        for _ in 0..TRIES {
            if all.iter().all(|late| self.has_all(late)) {
                break;
            }
            std::thread::sleep(PAUSE);
            self.take();
        }
        all.iter_mut().for_each(|late| self.give(late));
    }

    fn take(&mut self) {
        for copy in self.copies.drain() {
            let mut stack = self.unwinder.unwind(&copy);
            stack.kernel = copy.kernel.iter().map(|address| format!("{address:#x}")).collect();
            self.ready.insert(copy.id, (stack, false));
            if self.ready.len() > WAITING_MAX {
                let oldest = self.ready.pop_first();
                self.given_up += u64::from(oldest.is_some_and(|(_, (_, is_given))| !is_given));
            }
        }
    }

    fn has_all(&self, late: &LateResponse) -> bool {
        let copies = late.stacks.as_ref().map(|stacks| stacks.copies).unwrap_or_default();
        let is_there = |id: u32| id == 0 || self.ready.contains_key(&id);
        is_there(copies.task) && is_there(copies.waker)
    }

    /// Several reports can have the same: of two limits for the same time off a CPU.
    fn give(&mut self, late: &mut LateResponse) {
        let Some(stacks) = &mut late.stacks else { return };
        let mut given = |id: u32| {
            self.ready.get_mut(&id).map(|(stack, is_given)| {
                *is_given = true;
                stack.clone()
            })
        };
        stacks.task = given(stacks.copies.task);
        stacks.waker = given(stacks.copies.waker);
        stacks.missing = match stacks.copies.task {
            _ if stacks.task.is_some() => None,
            0 => Some(StackMissing::NoPlace),
            _ => Some(StackMissing::NotCopied),
        };
    }

    /// Copies for which there was no place, in the kernel's buffer or here.
    pub fn lost(&self) -> u64 {
        self.copies.lost().saturating_add(self.given_up)
    }
}
