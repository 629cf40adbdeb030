// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command `rtscope`, as root and as a user without any right, and what is read from its output and from that of others.

use rtscope_testkit::process::program;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The user and group "nobody".
pub const NOBODY: u32 = 65534;

/// The path of `rtscope`.
pub fn path() -> PathBuf {
    program("rtscope").expect("built")
}

pub fn rtscope() -> Command {
    Command::new(path())
}

/// A copy of `rtscope` in a directory that anybody may enter, so that another user can run it.
pub struct PublicCopy {
    pub dir: TempDir,
    path: PathBuf,
}

impl PublicCopy {
    pub fn new() -> PublicCopy {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let path = dir.path().join("rtscope");
        fs::copy(self::path(), &path).expect("it can be written");
        PublicCopy { dir, path }
    }

    /// Run by a user without any right: nobody, or who runs the tests when that is not root.
    pub fn as_nobody(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments).current_dir("/").stdin(Stdio::null());
        if nix::unistd::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }
}

/// A program of the test kit that is written in C.
pub struct CProgram {
    directory: tempfile::TempDir,
    name: &'static str,
}

impl CProgram {
    /// Built. `None`, and the test is reported as skipped, where there is no compiler.
    pub fn build(name: &'static str) -> Option<CProgram> {
        if rtscope_testkit::skip::without_tool("cc") {
            return None;
        }
        let program = CProgram { directory: tempfile::tempdir().expect("a temporary directory"), name };
        let source = root().join(format!("crates/testkit/c/{name}.c"));
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-pthread", "-o"]).arg(program.path()).arg(source);
        assert!(compiler.status().expect("it is there").success());
        Some(program)
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join(self.name)
    }
}

/// The directory of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A number in JSON.
#[track_caller]
pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// A whole number of an object.
#[track_caller]
pub fn count(object: &Value, key: &str) -> u64 {
    object.get(key).and_then(Value::as_u64).unwrap_or_else(|| panic!("no number '{key}' in {object}"))
}

/// The lines of JSON that a command prints, which must succeed.
#[track_caller]
pub fn json_lines(command: &mut Command) -> Vec<Value> {
    let output = command.output().expect("it can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// What the summary of a recording reports as lost, but for switches that a host hides: these say nothing of the recorder.
pub fn losses(summary: &Value) -> Vec<&Value> {
    let losses = summary["losses"].as_array().expect("losses");
    losses.iter().filter(|loss| loss["cause"] != "gap").collect()
}

/// How many events that is; an unknown number counts as nothing.
pub fn lost(summary: &Value) -> u64 {
    losses(summary).iter().filter_map(|loss| loss["count"].as_u64()).sum()
}

/// The text of a field in a line of babeltrace2 or of `rtscope print`.
pub fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let at = line.find(&format!(" {name} = "))? + name.len() + 4;
    line[at..].split([',', ' ']).next()
}

/// A small disk, mounted until this is dropped.
pub struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    /// With mount's option for its size. `None` where nothing can be mounted.
    pub fn new(size: &str) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", size, "none"]).arg(dir.path());
        mount.status().is_ok_and(|status| status.success()).then_some(SmallDisk { dir })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Gives it another size.
    #[track_caller]
    pub fn resize(&self, size: &str) {
        let mut mount = Command::new("mount");
        let status = mount.args(["-o", &format!("remount,{size}")]).arg(self.dir.path()).status();
        assert!(status.expect("it was mounted").success(), "it keeps its size");
    }

    /// Unmounts it, which fails while anything keeps it busy: an open file, a process that works there, a mapping.
    #[track_caller]
    pub fn unmount(&self) {
        let status = Command::new("umount").arg(self.dir.path()).status().expect("it was mounted");
        assert!(status.success(), "something keeps the disk busy");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // It was unmounted already, or the test has failed. If it cannot be, its directory cannot be removed either.
        let _ = Command::new("umount").arg("--quiet").arg(self.dir.path()).status();
    }
}
