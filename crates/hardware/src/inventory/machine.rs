// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where facts about a machine are read: files below a root directory, and a table of what CPUID says.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// PMUs of the kernel.
pub(super) const PMUS: &str = "sys/bus/event_source/devices";
/// The directory of a PMU's event sources may be large, but no file that is read here is.
const FILE_MAX: usize = 1 << 20;

/// `CAP_SYS_ADMIN` and `CAP_PERFMON` of `linux/capability.h`.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;

/// Answers of CPUID: EAX, EBX, ECX, EDX by leaf and subleaf. Empty where there is no such instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpuid(pub BTreeMap<(u32, u32), [u32; 4]>);

impl Cpuid {
    /// Of the CPU that this runs on.
    #[must_use]
    pub fn here() -> Cpuid {
        #[cfg(target_arch = "x86_64")]
        {
            /// Those whose answers are used: leaf and subleaf.
            const LEAVES: [(u32, u32); 14] = [
                (1, 0),
                (7, 0),
                (0xa, 0),
                (0x14, 0),
                (0x14, 1),
                (0x15, 0),
                (0x16, 0),
                (0x1c, 0),
                (0x4000_0000, 0),
                (0x8000_0001, 0),
                (0x8000_0007, 0),
                (0x8000_0008, 0),
                (0x8000_0022, 0),
                (0, 0),
            ];
            let mut table = BTreeMap::new();
            let basic = ask(0, 0)[0];
            let extended = ask(0x8000_0000, 0)[0];
            let is_virtual = ask(1, 0)[2] & 1 << 31 != 0;
            for (leaf, subleaf) in LEAVES {
                // Beyond the last leaf an Intel processor answers for its last one.
                let is_there = match leaf {
                    0x8000_0000.. => leaf <= extended,
                    0x4000_0000 => is_virtual,
                    _ => leaf <= basic,
                };
                if is_there {
                    table.insert((leaf, subleaf), ask(leaf, subleaf));
                }
            }
            Cpuid(table)
        }
        #[cfg(not(target_arch = "x86_64"))]
        Cpuid::default()
    }

    /// A register of an answer: 0 is EAX. `None`: the CPU has no such leaf.
    #[must_use]
    pub fn register(&self, leaf: u32, subleaf: u32, register: usize) -> Option<u32> {
        self.0.get(&(leaf, subleaf)).and_then(|answer| answer.get(register)).copied()
    }

    /// A bit of an answer. A leaf that the processor does not have says no; without CPUID nobody knows.
    pub(super) fn bit(&self, leaf: u32, subleaf: u32, register: usize, bit: u32) -> Option<bool> {
        if self.0.is_empty() {
            return None;
        }
        Some(self.register(leaf, subleaf, register).is_some_and(|value| value >> bit & 1 != 0))
    }

    /// Whether the processor has PTWRITE; `None`: not known.
    #[must_use]
    pub fn has_ptwrite(&self) -> Option<bool> {
        self.bit(0x14, 0, 1, 4)
    }

    /// `GenuineIntel`, `AuthenticAMD`, …
    #[must_use]
    pub fn vendor(&self) -> Option<String> {
        let [_, b, c, d] = *self.0.get(&(0, 0))?;
        Some(text_of([b, d, c]))
    }

    /// What the hypervisor calls itself.
    #[must_use]
    pub fn hypervisor(&self) -> Option<String> {
        let [_, b, c, d] = *self.0.get(&(0x4000_0000, 0))?;
        Some(text_of([b, c, d]))
    }
}

#[cfg(target_arch = "x86_64")]
fn ask(leaf: u32, subleaf: u32) -> [u32; 4] {
    // SAFETY: the instruction reads registers only, and every x86-64 processor has it: it is how the others are asked for.
    // (From Rust 1.93 on the function is safe.)
    #[allow(unused_unsafe, reason = "older compilers, back to the oldest that is supported, need it")]
    let answer = unsafe { core::arch::x86_64::__cpuid_count(leaf, subleaf) };
    [answer.eax, answer.ebx, answer.ecx, answer.edx]
}

fn text_of(words: [u32; 3]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let text = String::from_utf8_lossy(&bytes);
    text.chars().filter(|c| c.is_ascii_graphic()).collect()
}

/// A machine: this one, or the files of another.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
    /// What its processor says of itself.
    pub cpuid: Cpuid,
    /// `x86_64`, `aarch64`, …
    pub architecture: String,
}

impl Machine {
    /// This one.
    #[must_use]
    pub fn here() -> Machine {
        Machine {
            root: PathBuf::from("/"),
            cpuid: Cpuid::here(),
            architecture: std::env::consts::ARCH.to_owned(),
        }
    }

    /// One whose `sys` and `proc` are below a directory.
    #[must_use]
    pub fn below(root: &Path, architecture: &str, cpuid: Cpuid) -> Machine {
        Machine { root: root.to_owned(), cpuid, architecture: architecture.to_owned() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Whether something is there. `None`: the directory that would have it cannot be looked at, or is not there.
    pub(super) fn exists(&self, path: &str) -> Option<bool> {
        match fs::symlink_metadata(self.path(path)) {
            Ok(_) => Some(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let parent = Path::new(path).parent()?;
                fs::read_dir(self.root.join(parent)).is_ok().then_some(false)
            }
            Err(_) => None,
        }
    }

    /// The text of a small file, without white space around it.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        use std::io::Read;
        let mut text = Vec::new();
        let file = fs::File::open(self.path(path)).ok()?;
        file.take(FILE_MAX as u64).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).trim().to_owned())
    }

    /// A number in a file, in base 10 or, after `0x`, 16.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        let text = self.text(path)?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// The names in a directory, in order; `None` when it cannot be read or is not there.
    pub(super) fn names(&self, path: &str) -> Option<Vec<String>> {
        let entries = fs::read_dir(self.path(path)).ok()?;
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by_key(|name| natural(name));
        Some(names)
    }

    /// The last name of what a link leads to.
    pub(super) fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// `perf_event_paranoid`.
    pub(super) fn paranoid(&self) -> Option<i64> {
        self.text("proc/sys/kernel/perf_event_paranoid")?.parse().ok()
    }

    /// Whether this process may use performance events as root does.
    pub(super) fn is_privileged(&self) -> Option<bool> {
        let status = self.text("proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        let capabilities = u64::from_str_radix(line.trim(), 16).ok()?;
        Some(capabilities & (1 << CAP_SYS_ADMIN | 1 << CAP_PERFMON) != 0)
    }

    /// Whether this process may use a unit that needs `perf_event_paranoid` to be at most this.
    pub(super) fn may(&self, paranoid: i64) -> Option<bool> {
        match (self.is_privileged(), self.paranoid()) {
            (Some(true), _) => Some(true),
            (_, Some(level)) if level <= paranoid => Some(true),
            (Some(false), Some(_)) => Some(false),
            _ => None,
        }
    }
}

/// Text and numbers in turn, so that `etm10` is behind `etm9`.
fn natural(name: &str) -> (String, u64, String) {
    let digits = name.chars().rev().take_while(char::is_ascii_digit).count();
    let (text, number) = name.split_at(name.len() - digits);
    (text.to_owned(), number.parse().unwrap_or(0), name.to_owned())
}
