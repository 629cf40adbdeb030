// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where late tasks lost their time: equal stacks of them added up, for a flame graph.

use rtscope_event::{LateResponse, StackFrame, TaskStack, Tracker};
use serde::Serialize;
use std::collections::BTreeMap;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FlameKind {
    /// A task's name.
    Task,
    /// In its program.
    User,
    /// The same, inlined in the one before.
    Inlined,
    /// In the kernel.
    Kernel,
    /// Frames that are not known: the stack is not complete.
    Unknown,
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FlameFrame {
    /// What it is.
    pub kind: FlameKind,
    /// Its name: of a function, else `file+0xoffset`.
    pub name: String,
}

/// Equal stacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlameStack {
    /// The outermost first: the task, its program, the kernel.
    pub frames: Vec<FlameFrame>,
    /// The time of all.
    pub time_ns: u64,
    /// How many.
    pub count: u64,
}

/// The stacks of one tracker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Flame {
    /// Whose; `None`: nothing has stacks.
    pub tracker: Option<Tracker>,
    /// The time of all that have one.
    pub time_ns: u64,
    /// How many have one.
    pub count: u64,
    /// How many have none, and their time: not in the graph.
    pub without_stack: u64,
    /// Of these.
    pub without_stack_ns: u64,
    /// The most time first.
    pub stacks: Vec<FlameStack>,
}

/// Adds equal stacks up. Times of one tracker only, since a system call has the times off a CPU in it: of `offcpu` where there are any, else of `syscall`, else of
/// `lock`. What several limits have reported is counted once.
#[must_use]
pub fn flame(all: &[LateResponse]) -> Flame {
    let has = |tracker: &Tracker| all.iter().any(|late| late.tracker == *tracker && task_of(late).is_some());
    let tracker = [Tracker::Offcpu, Tracker::Syscall, Tracker::Lock].into_iter().find(has);
    let mut once: Vec<&LateResponse> = all.iter().filter(|late| Some(late.tracker) == tracker).collect();
    once.sort_by_key(|late| (late.tid, late.end_ns));
    once.dedup_by_key(|late| (late.tid, late.end_ns));
    let mut flame =
        Flame { tracker, time_ns: 0, count: 0, without_stack: 0, without_stack_ns: 0, stacks: Vec::new() };
    let mut sums: BTreeMap<Vec<FlameFrame>, (u64, u64)> = BTreeMap::new();
    for late in once {
        let time_ns = late.response_ns();
        let Some(task) = task_of(late) else {
            flame.without_stack += 1;
            flame.without_stack_ns += time_ns;
            continue;
        };
        flame.count += 1;
        flame.time_ns += time_ns;
        let sum = sums.entry(frames(task)).or_default();
        *sum = (sum.0 + time_ns, sum.1 + 1);
    }
    let stack = |(frames, (time_ns, count))| FlameStack { frames, time_ns, count };
    flame.stacks = sums.into_iter().map(stack).collect();
    flame.stacks.sort_by_key(|stack| std::cmp::Reverse(stack.time_ns));
    flame
}

fn task_of(late: &LateResponse) -> Option<&TaskStack> {
    late.stacks.as_ref()?.task.as_ref()
}

/// The outermost first.
fn frames(stack: &TaskStack) -> Vec<FlameFrame> {
    let frame = |kind, name: &str| FlameFrame { kind, name: name.to_owned() };
    let mut frames = vec![frame(FlameKind::Task, &stack.comm.to_string())];
    if stack.incomplete.is_some() {
        frames.push(frame(FlameKind::Unknown, "[incomplete]"));
    }
    frames.extend(stack.user.iter().rev().flat_map(functions));
    let kernel = stack.kernel.iter().rev().map(|place| {
        let name = place.split_once("+0x").map_or(place.as_str(), |(name, _)| name);
        frame(FlameKind::Kernel, name)
    });
    frames.extend(kernel);
    frames
}

/// Those of a place, the outermost first.
fn functions(frame: &StackFrame) -> Vec<FlameFrame> {
    if frame.functions.is_empty() {
        let file = frame.module.as_deref().map(|path| path.rsplit_once('/').map_or(path, |(_, name)| name));
        let name = match (file, frame.offset) {
            (Some(file), Some(offset)) => format!("{file}+{offset:#x}"),
            (Some(file), None) => file.to_owned(),
            (None, _) => "[code in no file]".to_owned(),
        };
        return vec![FlameFrame { kind: FlameKind::User, name }];
    }
    let last = frame.functions.len() - 1;
    let named = frame.functions.iter().enumerate().rev().map(|(at, function)| FlameFrame {
        kind: if at == last { FlameKind::User } else { FlameKind::Inlined },
        name: function.name.clone(),
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::{Comm, Function, Incomplete, LateStacks, MonotonicNs, Pid, StepKind, Tid};

    fn late(tracker: Tracker, tid: u32, end_ns: u64, time_ns: u64, stack: Option<TaskStack>) -> LateResponse {
        let mut late = crate::summary::tests::late(1, &[(StepKind::Wait, time_ns)]);
        late.tracker = tracker;
        late.tid = Tid(tid);
        late.chain.origin.time_ns = MonotonicNs(end_ns - time_ns);
        late.end_ns = MonotonicNs(end_ns);
        late.stacks = Some(Box::new(LateStacks { task: stack, ..LateStacks::default() }));
        late
    }

    fn stack(user: &[&[&str]], incomplete: Option<Incomplete>) -> TaskStack {
        let function = |name: &&str| Function { name: (*name).to_owned(), file: None, line: None };
        let frame = |names: &&[&str]| StackFrame {
            module: Some("/lib/a.so".to_owned()),
            offset: Some(0x10),
            functions: names.iter().map(function).collect(),
            ..StackFrame::default()
        };
        TaskStack {
            tid: Tid(1),
            pid: Pid(1),
            comm: Comm::from_bytes(b"task"),
            kernel: vec!["futex_wait+0x1".to_owned(), "do_syscall_64+0x2".to_owned()],
            user: user.iter().map(frame).collect(),
            incomplete,
        }
    }

    fn names(stack: &FlameStack) -> Vec<(FlameKind, &str)> {
        stack.frames.iter().map(|frame| (frame.kind, frame.name.as_str())).collect()
    }

    #[test]
    fn equal_stacks_are_added_up_from_the_task_to_the_kernel() {
        let one = || Some(stack(&[&["inlined", "inner"], &["main"]], None));
        let other = Some(stack(&[&[]], Some(Incomplete::ProcessGone)));
        let all = [
            late(Tracker::Offcpu, 1, 100, 10, one()),
            late(Tracker::Offcpu, 1, 200, 20, one()),
            late(Tracker::Offcpu, 2, 300, 50, other),
            // By another limit, the same again.
            late(Tracker::Offcpu, 1, 200, 20, one()),
            late(Tracker::Offcpu, 1, 400, 7, None),
            // It has the time off the CPU in it.
            late(Tracker::Syscall, 1, 5000, 1000, one()),
        ];
        let flame = flame(&all);
        assert_eq!((flame.tracker, flame.time_ns, flame.count), (Some(Tracker::Offcpu), 80, 3));
        assert_eq!((flame.without_stack, flame.without_stack_ns), (1, 7));
        let sums: Vec<(u64, u64)> = flame.stacks.iter().map(|stack| (stack.time_ns, stack.count)).collect();
        assert_eq!(sums, [(50, 1), (30, 2)]);
        assert_eq!(
            names(&flame.stacks[1]),
            [
                (FlameKind::Task, "task"),
                (FlameKind::User, "main"),
                (FlameKind::User, "inner"),
                (FlameKind::Inlined, "inlined"),
                (FlameKind::Kernel, "do_syscall_64"),
                (FlameKind::Kernel, "futex_wait"),
            ]
        );
        assert_eq!(
            names(&flame.stacks[0])[..3],
            [(FlameKind::Task, "task"), (FlameKind::Unknown, "[incomplete]"), (FlameKind::User, "a.so+0x10")]
        );
    }

    #[test]
    fn without_stacks_there_is_no_tracker() {
        let all = [late(Tracker::Offcpu, 1, 100, 10, None)];
        assert_eq!((flame(&all).tracker, flame(&all).stacks.len()), (None, 0));
    }
}
