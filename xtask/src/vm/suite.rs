// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which tests run in the guests, and the file system that they need there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::boot::Machine;
use super::initramfs::Initramfs;
use super::locks::TemporaryDirectory;
use super::modules::Modules;
use super::needs::{AllNeeds, Needs};
use crate::build::{self, Build, TestBinary};
use crate::root;

/// What tests call and distributions have; what is not here, the tests that need it skip in the guest, too.
const TOOLS: [&str; 8] =
    ["babeltrace2", "bpftool", "dmsetup", "setpriv", "strace", "tc", "trace-cmd", "unshare"];
/// Where babeltrace2 finds its formats.
const PLUGIN_FOLDERS: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/babeltrace2/plugins", "/usr/lib/babeltrace2/plugins"];
/// The first program of the guest.
const INIT: &str = include_str!("init.sh");
/// A test that takes longer than this hangs, and is killed: the longest takes 100 s, and guests have what tests on this machine leave of the CPUs. What tests wait for at
/// most (`patience` of the testkit) is a third of it.
const TEST_LIMIT_S: u32 = 900;

/// A test for the guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Test {
    /// The test binary, as `./x test` names it.
    pub program: String,
    /// Its function, with its modules.
    pub name: String,
    /// What it needs.
    pub needs: Needs,
    /// The test binary's file name.
    file: String,
}

impl Test {
    /// The machine of its guest.
    pub fn machine(&self) -> Machine {
        self.needs.machine()
    }

    /// A number by which its turn differs from others'.
    pub fn place(&self) -> usize {
        self.name.bytes().map(usize::from).sum()
    }

    /// It may take this long, where tests of stress last for `stress_s`.
    fn limit_s(&self, stress_s: u32) -> u32 {
        // Twice: what is done last takes as long as it takes, with all that load.
        TEST_LIMIT_S + if self.needs.stress { 2 * stress_s } else { 0 }
    }
}

/// Tests for the guests, in the order of their programs.
#[derive(Debug)]
pub struct Suite {
    /// The tests.
    pub tests: Vec<Test>,
    programs: Vec<PathBuf>,
    /// Where archives are made, by this process only.
    directory: TemporaryDirectory,
}

impl Suite {
    /// Takes the privileged tests from what was built; of these, those that are wanted, by their test binary and full name.
    pub fn new(build: &Build, wanted: impl Fn(&TestBinary, &str) -> bool) -> Result<Suite> {
        let all = AllNeeds::read(&root())?;
        let mut tests = Vec::new();
        let mut programs: Vec<PathBuf> = build.programs.clone();
        for binary in &build.tests {
            let names = privileged(&binary.executable)?;
            let file = file_name(&binary.executable)?;
            let before = tests.len();
            for name in names.into_iter().filter(|name| wanted(binary, name)) {
                let needs = all.of(&binary.member, plain(&name)).cloned();
                let needs =
                    needs.with_context(|| format!("{name}: no line NEEDS: above it (CONTRIBUTING.md)"))?;
                tests.push(Test { program: binary.name.clone(), name, needs, file: file.clone() });
            }
            if tests.len() > before {
                programs.push(binary.executable.clone());
            }
        }
        let directory = directory(&programs)?;
        Ok(Suite { tests, programs, directory })
    }

    /// No tests, but all programs.
    pub fn programs(build: &Build) -> Result<Suite> {
        let programs = build.programs.clone();
        let directory = directory(&programs)?;
        Ok(Suite { tests: Vec::new(), programs, directory })
    }

    /// Makes the archive that all guests share.
    pub fn pack(&self, busybox: &Path) -> Result<PathBuf> {
        let path = self.directory.path().join("base.cpio");
        let mut archive = Initramfs::create(&path)?;
        archive.file("init", INIT.as_bytes())?;
        archive.program("bin/busybox", busybox)?;
        for program in &self.programs {
            let guest = guest_path(program)?;
            archive.program(&guest, &self.stripped(program)?)?;
        }
        for tool in TOOLS {
            archive.tool(tool)?;
        }
        PLUGIN_FOLDERS.iter().try_for_each(|folder| archive.plugins(Path::new(folder)))?;
        archive.file("etc/passwd", b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")?;
        archive.file("etc/group", b"root:x:0:\nnogroup:x:65534:\n")?;
        // The guest mounts its /proc, so that programs that read this file find the real one.
        archive.link("etc/mtab", "/proc/mounts")?;
        archive.finish()?;
        Ok(path)
    }

    /// Makes the archive for one boot: what all share, and the list of the tests to run. `stress_s`: how long stress tests last.
    pub fn archive(
        &self,
        base: &Path,
        kernel: &str,
        modules: &Modules,
        numbers: &[usize],
        stress_s: u32,
    ) -> Result<PathBuf> {
        let mut list = String::new();
        for number in numbers {
            let test = &self.tests[*number];
            let limit_s = test.limit_s(stress_s);
            list += &format!("{number} {limit_s} /build/deps/{} {}\n", test.file, test.name);
        }
        let needed = numbers.iter().flat_map(|number| &self.tests[*number].needs.modules);
        let needed: Vec<&str> = needed.map(String::as_str).collect();
        self.with_file(base, kernel, "tests", &list, |archive| modules.add_to(archive, &needed))
    }

    /// Makes the archive for a boot that runs a command.
    pub fn with_command(
        &self,
        base: &Path,
        kernel: &str,
        modules: &Modules,
        command: &str,
    ) -> Result<PathBuf> {
        let all = Modules::all()?;
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let add = |archive: &mut Initramfs| modules.add_to(archive, &all);
        self.with_file(base, kernel, "command", &format!("{command}\n"), add)
    }

    fn with_file(
        &self,
        base: &Path,
        kernel: &str,
        name: &str,
        content: &str,
        add: impl FnOnce(&mut Initramfs) -> Result<()>,
    ) -> Result<PathBuf> {
        // Archives may follow each other in one file.
        let (path, extra) = (
            self.directory.path().join(format!("{kernel}.cpio")),
            self.directory.path().join(format!("{kernel}.list")),
        );
        let mut archive = Initramfs::create(&extra)?;
        archive.file(name, content.as_bytes())?;
        add(&mut archive)?;
        archive.finish()?;
        let mut bytes = fs::read(base)?;
        bytes.extend(fs::read(&extra)?);
        fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        fs::remove_file(extra)?;
        Ok(path)
    }

    /// A copy without what only debuggers need, which is most of it.
    fn stripped(&self, program: &Path) -> Result<PathBuf> {
        let copy = self.directory.path().join(file_name(program)?);
        let done = Command::new("strip").arg("-o").arg(&copy).arg(program).status();
        if !done.is_ok_and(|status| status.success()) {
            return Ok(program.to_owned());
        }
        Ok(copy)
    }
}

/// Where archives are made.
fn directory(programs: &[PathBuf]) -> Result<TemporaryDirectory> {
    let any = programs.first().context("nothing was built")?;
    let parent = build::build_directory(any).context("a program is in no directory")?.join("vm");
    TemporaryDirectory::create(&parent, "run")
}

/// A test's name without its modules.
fn plain(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// Programs lie in the guest as they do in a build: tests look for others beside themselves.
fn guest_path(program: &Path) -> Result<String> {
    let in_deps = program.parent().is_some_and(|folder| folder.ends_with("deps"));
    Ok(format!("build/{}{}", if in_deps { "deps/" } else { "" }, file_name(program)?))
}

fn file_name(path: &Path) -> Result<String> {
    Ok(path.file_name().context("a program without a name")?.to_string_lossy().into_owned())
}

/// The names of a test program's tests that need root.
fn privileged(program: &Path) -> Result<Vec<String>> {
    let output = Command::new(program).args(["--list", "--format", "terse"]).output();
    let output = output.with_context(|| program.display().to_string())?;
    Ok(privileged_names(&String::from_utf8_lossy(&output.stdout)))
}

fn privileged_names(list: &str) -> Vec<String> {
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let needs_root = |name: &&str| plain(name).starts_with("root_");
    names.filter(needs_root).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_need_root_are_told_by_their_names() {
        let list = "a_root_of_two: test\nroot_it_loads: test\ntests::root_it_runs: test\nroot_x: benchmark\n";
        assert_eq!(privileged_names(list), ["root_it_loads", "tests::root_it_runs"]);
    }

    #[test]
    fn only_tests_of_stress_may_take_longer() {
        let of = |needs: &str| Test {
            program: String::new(),
            name: String::new(),
            needs: Needs::parse(needs).expect("known words"),
            file: String::new(),
        };
        assert_eq!(of("sched_ext, stress").limit_s(600), TEST_LIMIT_S + 1200);
        assert_eq!(of("sched_ext").limit_s(600), TEST_LIMIT_S);
    }

    #[test]
    fn programs_lie_as_in_a_build() {
        assert_eq!(
            guest_path(Path::new("/t/debug/deps/ends-01")).ok().as_deref(),
            Some("build/deps/ends-01")
        );
        assert_eq!(guest_path(Path::new("/t/debug/rtscope")).ok().as_deref(), Some("build/rtscope"));
    }
}
