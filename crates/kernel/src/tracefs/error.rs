// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong with tracefs, with what to do about it.

use std::io;
use std::path::{Path, PathBuf};

/// Why tracefs could not be used as asked.
#[derive(Debug, thiserror::Error)]
pub enum TracefsError {
    /// The kernel has it, but it is mounted nowhere.
    #[error(
        "the kernel's trace file system is not mounted; mount it: mount -t tracefs nodev /sys/kernel/tracing"
    )]
    NotMounted,
    /// The kernel has none.
    #[error(
        "this kernel has no trace file system; use a kernel with CONFIG_TRACING and CONFIG_EVENT_TRACING (every distribution's has)"
    )]
    NotInKernel,
    /// It is there, and we may not.
    #[error("no permission to {doing} ({}); {}", path.display(), remedy(path, *write))]
    Permission {
        /// What was being done: "read the list of tracepoints".
        doing: String,
        /// The file or directory.
        path: PathBuf,
        /// Writing was refused, not reading.
        write: bool,
    },
    /// The clock that eBPF's records have.
    #[error("this kernel's ftrace has no 'mono' clock; its events cannot be put in one order with others")]
    NoMonotonicClock,
    /// No such tracepoint here.
    #[error("this kernel has no tracepoint '{0}'; rtscope list -k shows those it has")]
    NoEvent(String),
    /// The kernel does not take a filter.
    #[error("the filter of {event} cannot be used: {message}")]
    Filter {
        /// The tracepoint.
        event: String,
        /// What the kernel said, with the place in the expression.
        message: String,
    },
    /// A description that cannot be read.
    #[error("{0}")]
    Format(#[from] rtscope_ftrace::ParseError),
    /// A description of pages that cannot be read.
    #[error("{0}")]
    Page(#[from] rtscope_ftrace::page::PageError),
    /// Not enough memory for the buffers.
    #[error(
        "the kernel has no memory for trace buffers of {kib_per_cpu} KiB for each CPU; ask for a smaller --buffer"
    )]
    Memory {
        /// What was asked for.
        kib_per_cpu: u64,
    },
    /// The kernel can set no breakpoints in programs.
    #[error(
        "this kernel has no uprobe_events in its trace file system; a place in a program needs a kernel with CONFIG_UPROBE_EVENTS"
    )]
    NoUprobes,
    /// Places in programs are root's.
    #[error("no permission to define places in programs ({}); run as root", path.display())]
    NotYours {
        /// The list of them.
        path: PathBuf,
    },
    /// The kernel does not take a place in a program.
    #[error("the kernel takes no uprobe at {place}: {why}")]
    Uprobe {
        /// What people call it.
        place: String,
        /// What the kernel said.
        why: String,
    },
    /// Another program records them.
    #[error(
        "the uprobes of the group {0} are in use by another program and stay; the next recording removes them"
    )]
    UprobesInUse(String),
    /// Somebody has a file of the instance open, so that it cannot be removed.
    #[error("the trace instance {} is in use by another program and stays, switched off; remove it later: rmdir {}", .0.display(), .0.display())]
    Busy(PathBuf),
    /// Any other failure.
    #[error("{doing} ({}): {error}", path.display())]
    Io {
        /// What was being done.
        doing: String,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// Tested on Linux 6.1 and 6.18: a group may read, but not write, whatever the mode; a user who owns the directory of instances
/// owns the files of those that are made in it.
fn remedy(path: &Path, write: bool) -> String {
    let root = ["/sys/kernel/debug/tracing", "/sys/kernel/tracing"]
        .into_iter()
        .find(|root| path.starts_with(root))
        .unwrap_or("/sys/kernel/tracing");
    let read = format!("mount -o remount,gid=GROUP,mode=750 {root}");
    if write {
        format!("run as root, or let a user make instances: {read} && chown USER {root}/instances")
    } else {
        format!("run as root, or let a group read: {read}")
    }
}

impl TracefsError {
    /// Something that the kernel or our privileges lack, not something that failed.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(
            self,
            TracefsError::NotMounted
                | TracefsError::NotInKernel
                | TracefsError::NoUprobes
                | TracefsError::NotYours { .. }
                | TracefsError::Permission { .. }
                | TracefsError::NoMonotonicClock
        )
    }

    /// The user asked for something that does not exist or cannot be used.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            TracefsError::NoEvent(_)
                | TracefsError::Filter { .. }
                | TracefsError::Memory { .. }
                | TracefsError::Uprobe { .. }
        )
    }

    pub(super) fn reading(doing: &str, path: &Path, error: io::Error) -> TracefsError {
        TracefsError::io(doing, path, error, false)
    }

    pub(super) fn writing(doing: &str, path: &Path, error: io::Error) -> TracefsError {
        TracefsError::io(doing, path, error, true)
    }

    fn io(doing: &str, path: &Path, error: io::Error, write: bool) -> TracefsError {
        let (doing, path) = (doing.to_string(), path.to_path_buf());
        match error.kind() {
            io::ErrorKind::PermissionDenied => TracefsError::Permission { doing, path, write },
            _ => TracefsError::Io { doing, path, error },
        }
    }
}
