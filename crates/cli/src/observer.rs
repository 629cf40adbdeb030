// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What engines say, on standard error. What is being done is a line that is written over on a terminal; elsewhere there is a line for
//! each step.

use crate::output::note;
use rtscope_session::Observer;
use rtscope_session::command::CommandEnd;
use std::io::{IsTerminal, Write, stderr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Standard error. Dropped, it leaves the line free for other output.
#[derive(Debug)]
pub struct Terminal {
    is_terminal: bool,
    /// Whether there is a line that can be written over.
    has_line: AtomicBool,
    command: OnceLock<CommandEnd>,
}

impl Terminal {
    /// As it is now.
    pub fn new() -> Terminal {
        Terminal {
            is_terminal: stderr().is_terminal(),
            has_line: AtomicBool::new(false),
            command: OnceLock::new(),
        }
    }

    /// How COMMAND ended, if it ended by itself.
    pub fn command(&self) -> Option<CommandEnd> {
        self.command.get().copied()
    }

    /// Makes the line free for other output.
    fn clear(&self) {
        // ORDER: relaxed; a flag that stands for itself, the writes are ordered by the lock.
        if self.has_line.swap(false, Ordering::Relaxed) {
            // There is nowhere to report a failure of this.
            let _ = write!(stderr().lock(), "\r\x1b[K");
        }
    }
}

impl Observer for Terminal {
    fn note(&self, text: &str) {
        self.clear();
        note(&format!("rtscope: {}", rtscope_view::clean(text)));
    }

    fn command_ended(&self, end: CommandEnd) {
        // Only the first one counts.
        let _ = self.command.set(end);
    }

    fn step(&self, text: &str) {
        if self.is_terminal {
            self.progress(text);
        } else {
            note(&format!("rtscope: {text}"));
        }
    }

    fn progress(&self, text: &str) {
        if self.is_terminal {
            // ORDER: relaxed; as above.
            self.has_line.store(true, Ordering::Relaxed);
            // There is nowhere to report a failure of this.
            let _ = write!(stderr().lock(), "\r\x1b[Krtscope: {text}");
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.clear();
    }
}
