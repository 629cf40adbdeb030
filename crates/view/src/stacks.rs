// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stacks below what was late: of the task that waited and of the one that woke it, the innermost frame first.

use crate::label::clean;
use crate::lock::function;
use crate::style::Style;
use rtscope_event::{Function, LateStacks, StackFrame, TaskStack};

/// Frames of a program that are shown, unless all are asked for.
const FRAMES: usize = 30;

/// Lines, each ended; empty where there is nothing to show.
pub(crate) fn stacks_text(stacks: &LateStacks, style: Style) -> String {
    let mut text = match (&stacks.task, stacks.missing) {
        (Some(task), _) => stack_text("stack of", task, style),
        (None, Some(missing)) => format!("  stack: {}\n", missing.words()),
        (None, None) => String::new(),
    };
    if let Some(waker) = &stacks.waker {
        text.push_str(&stack_text("woken by", waker, style));
    }
    text
}

fn stack_text(what: &str, stack: &TaskStack, style: Style) -> String {
    let mut text = format!("  {what} {}/{}:\n", clean(&stack.comm.to_string()), stack.tid);
    if !stack.kernel.is_empty() {
        let names: Vec<&str> = stack.kernel.iter().map(|place| function(place)).collect();
        text.push_str(&style.wrap(&format!("in the kernel: {}", clean(&names.join(" < "))), 4, 4));
    }
    let lines: Vec<String> = stack.user.iter().flat_map(frame_lines).collect();
    let shown = style.rows(FRAMES);
    for line in lines.iter().take(shown) {
        text.push_str(&format!("    {line}\n"));
    }
    if lines.len() > shown {
        text.push_str(&format!("    ... {} more (--verbose)\n", lines.len() - shown));
    }
    if let Some(incomplete) = &stack.incomplete {
        text.push_str(&style.wrap(&format!("incomplete: {}", clean(&incomplete.words())), 4, 4));
    }
    text
}

/// A line for each function that is there: those that were inlined before the one that is called.
fn frame_lines(frame: &StackFrame) -> Vec<String> {
    let module = frame.module.as_deref().map_or("code in no file", file_name);
    let guessed = if frame.by_frame_pointer { ", by the frame pointer" } else { "" };
    if frame.functions.is_empty() {
        let place = match frame.offset {
            Some(offset) => format!("{module}+{offset:#x}"),
            None => format!("{:#x} ({module})", frame.address),
        };
        return vec![clean(&format!("{place}{guessed}"))];
    }
    let last = frame.functions.len() - 1;
    let line = |(at, function): (usize, &Function)| {
        let inlined = if at < last { " [inlined]" } else { "" };
        clean(&format!("{}{inlined}{} ({module}{guessed})", function.name, place(function)))
    };
    frame.functions.iter().enumerate().map(line).collect()
}

/// ` at main.cpp:12`.
fn place(function: &Function) -> String {
    let file = function.file.as_deref().map(file_name);
    match (file, function.line) {
        (Some(file), Some(line)) => format!(" at {file}:{line}"),
        (Some(file), None) => format!(" at {file}"),
        _ => String::new(),
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}
