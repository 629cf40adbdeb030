// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a benchmark needs of the machine, asked before it starts: one that cannot run here says why, and how to change that.
//!
//! Everything that is missing is named at once. What only shows on the way (a kernel that refuses a program, a peer that does not
//! start) comes as an error of the part that met it; those that mean "not on this machine" end the same way.

use anyhow::{Result, anyhow};
use rtscope_testkit::process::program;
use std::env;
use std::fmt;
use std::path::Path;

/// A program of another project.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    pub name: &'static str,
    pub remedy: &'static str,
}

/// Tools that several benchmarks use.
pub const PERF: Tool = Tool { name: "perf", remedy: "install perf (Debian: linux-perf, Fedora: perf)" };
pub const BPFTRACE: Tool = Tool { name: "bpftrace", remedy: "install bpftrace (Debian, Fedora: bpftrace)" };
pub const TASKSET: Tool = Tool { name: "taskset", remedy: "install util-linux" };
pub const CC: Tool = Tool { name: "cc", remedy: "install a C compiler (Debian, Fedora: gcc)" };

/// Something that a benchmark needs.
#[derive(Clone, Copy, Debug)]
pub enum Requirement {
    Root,
    /// A tool in PATH.
    Installed(Tool),
    /// A program of this workspace.
    Built(&'static str),
    /// A kernel that runs rtscope's eBPF programs.
    Ebpf,
    /// A kernel with the trace file system.
    Tracefs,
    /// At least this many CPUs.
    Cpus(usize),
}

impl Requirement {
    /// Why it is not fulfilled, with a remedy.
    fn missing(self) -> Option<String> {
        match self {
            Requirement::Root => {
                (!nix::unistd::geteuid().is_root()).then(|| "it needs root (sudo ./x bench …)".to_string())
            }
            Requirement::Installed(tool) => (!is_installed(tool.name, env::var_os("PATH")?.as_os_str()))
                .then(|| format!("{} is not installed; {}", tool.name, tool.remedy)),
            Requirement::Built(name) => program(name).err().map(|error| error.to_string()),
            Requirement::Ebpf => rtscope_kernel::caps::stream_missing().map(|missing| missing.sentence()),
            Requirement::Tracefs => {
                let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
                (!known.lines().any(|line| line.split_whitespace().next_back() == Some("tracefs")))
                    .then(|| "this kernel has no tracefs; it needs one with CONFIG_FTRACE".to_string())
            }
            Requirement::Cpus(wanted) => {
                let found = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                (found < wanted).then(|| format!("it takes {wanted} CPUs, and may use {found} here"))
            }
        }
    }
}

fn is_installed(tool: &str, path: &std::ffi::OsStr) -> bool {
    env::split_paths(path).any(|directory| directory.join(tool).is_file())
}

/// An error that says what is missing here.
#[derive(Debug)]
pub struct Unavailable(Vec<String>);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; and "))
    }
}

impl std::error::Error for Unavailable {}

/// Checks them all.
pub fn check(requirements: &[Requirement]) -> Result<()> {
    let missing: Vec<String> = requirements.iter().filter_map(|it| it.missing()).collect();
    if missing.is_empty() { Ok(()) } else { Err(anyhow!(Unavailable(missing))) }
}

/// Whether an error means that the machine lacks something; its text and remedy.
pub fn unavailable(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        if let Some(missing) = cause.downcast_ref::<Unavailable>() {
            return Some(missing.to_string());
        }
        if let Some(missing @ rtscope_kernel::Error::Missing(_)) = cause.downcast_ref() {
            return Some(missing.to_string());
        }
        let missing = cause.downcast_ref::<rtscope_tracers::Error>()?;
        missing.remedy().map(|remedy| format!("{missing}; {remedy}"))
    })
}

/// A directory by a name without spaces, colons or commas, for what splits its settings there (`LD_PRELOAD`): the kernel's link to an open file. It
/// holds as long as the file is open.
#[derive(Debug)]
pub struct PlainPath(std::fs::File);

impl PlainPath {
    /// Of a directory or a file.
    pub fn of(path: &Path) -> std::io::Result<PlainPath> {
        Ok(PlainPath(std::fs::File::open(path)?))
    }

    /// The name, for child processes, too.
    pub fn text(&self) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    const NONE: Tool = Tool { name: "rtscope-no-such-tool", remedy: "install it" };

    #[test]
    fn everything_that_is_missing_is_named_with_its_remedy() {
        let error = check(&[
            Requirement::Cpus(1),
            Requirement::Installed(NONE),
            Requirement::Cpus(100_000),
            Requirement::Built("rtscope-no-such-program"),
        ]);
        let text = unavailable(&error.expect_err("missing")).expect("it means this machine");
        assert!(
            text.starts_with("rtscope-no-such-tool is not installed; install it; and it takes 100000 CPUs"),
            "{text}"
        );
        assert!(text.ends_with("cargo build --workspace)"), "{text}");
        check(&[Requirement::Cpus(1)]).expect("there is one");
    }

    #[test]
    fn a_missing_peer_is_not_a_failure_and_a_failure_is_not_something_missing() {
        let missing =
            rtscope_tracers::Error::Missing { program: "lttng".into(), remedy: "install it".into() };
        let error = Err::<(), _>(missing).context("starting it").expect_err("missing");
        assert_eq!(unavailable(&error).as_deref(), Some("lttng is not installed; install it"));
        let failed = anyhow!(rtscope_tracers::Error::Failed("it fell over".into()));
        assert_eq!(unavailable(&failed), None);
    }

    #[test]
    fn tools_are_looked_for_in_every_directory_of_the_path() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("a tool"), "").expect("ours");
        let path = env::join_paths([Path::new("/nowhere"), directory.path()]).expect("no colons");
        assert!(is_installed("a tool", &path) && !is_installed("another", &path));
    }

    #[test]
    fn a_plain_path_leads_to_the_same_place() {
        let directory =
            tempfile::Builder::new().prefix("with a space, and: more").tempdir().expect("a directory");
        std::fs::write(directory.path().join("f"), "here").expect("ours");
        let plain = PlainPath::of(directory.path()).expect("it can be opened");
        let path = format!("{}/f", plain.text());
        assert!(!path.contains([' ', ':', ',']), "{path}");
        assert_eq!(std::fs::read_to_string(path).expect("the same"), "here");
    }
}
