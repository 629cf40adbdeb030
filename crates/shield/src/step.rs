// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One change, with what was there before: what the journal holds.

use crate::form::Form;
use crate::tasks::Thread;
use serde::{Deserialize, Serialize};

/// What is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Target {
    /// A file that takes a value.
    File {
        /// What is written.
        path: String,
        /// What is read: some files show something else than what was asked for, which another file has.
        read: String,
        /// How it looks.
        form: Form,
    },
    /// A control group of ours. Tasks that are in it when it is removed go to the one above.
    Group {
        /// Its directory.
        path: String,
    },
    /// The CPUs that a thread may use, as a list.
    Affinity {
        /// Which.
        thread: Thread,
    },
    /// All threads of one control group (v1) go into another, those that may. They come back when that is removed.
    Threads {
        /// The one that they are in.
        from: String,
        /// The one that they go to.
        to: String,
    },
    /// How a thread is scheduled, as [`crate::policy::Scheduling`] writes it.
    Policy {
        /// Which.
        thread: Thread,
    },
    /// The control group that a process is in: `old` and `wanted` are directories.
    Member {
        /// The process, by its first thread.
        process: Thread,
    },
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Which row of the table it is from.
    pub knob: String,
    /// What is changed.
    pub target: Target,
    /// What it is about, for people: an interrupt's device, a thread's name.
    pub label: String,
    /// The value before. `None`: there was nothing before, and it goes away with the control group that it belongs to.
    pub old: Option<String>,
    /// The value of the shield.
    pub wanted: String,
    /// What became of it; `None` while that is not known.
    pub outcome: Option<Outcome>,
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It is as wanted; reading it says so.
    Applied,
    /// The kernel made something else of it.
    Differs {
        /// What it reads now.
        now: String,
    },
    /// Not possible.
    Refused {
        /// In the kernel's words.
        why: String,
    },
    /// The thread has ended by now.
    Gone,
}

impl Step {
    /// Where it is, for people.
    pub fn place(&self) -> String {
        match &self.target {
            Target::File { path, .. } | Target::Group { path } => path.clone(),
            Target::Affinity { thread } => format!("CPUs of thread {} ({})", thread.tid, thread.name),
            Target::Policy { thread } => format!("policy of thread {} ({})", thread.tid, thread.name),
            Target::Threads { from, to } => format!("threads of {from} to {to}"),
            Target::Member { process } => format!("cgroup of process {} ({})", process.tid, process.name),
        }
    }

    /// How its values are compared.
    pub fn form(&self) -> Form {
        match &self.target {
            Target::File { form, .. } => *form,
            Target::Affinity { .. } => Form::List,
            _ => Form::Word,
        }
    }
}
