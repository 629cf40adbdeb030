// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a privileged test needs of a kernel and its machine, and so where it runs.
//!
//! It stands above the test, in a comment: `// NEEDS: sched_ext, cpus 4`. A test runs where that is, once: what does not
//! depend on the kernel gives the same answer on all of them, and an emulated CPU is slow. What does depend on it says
//! `verifier`: each kernel is asked. What seldom does, because it stands on parts that are asked of each kernel, says `one kernel`: it is another one on
//! each day of commits, and none on every second one.
//!
//! Emulated machines would take most of the time of `./x test`: what needs a machine of its own has its turn on every second day of commits, and of the two
//! kernels of one version, with PREEMPT_RT and without, one is asked what `verifier` says. Within six days everything has had its turn. A test that is
//! named has it always (`Asked::Stated`); `./x vm` and `./x test --all` ask every kernel.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::boot::Machine;
use super::kernels::{KERNELS, Kernel};
use crate::tidy;

/// What the line begins with.
const MARK: &str = "// NEEDS: ";
/// Within so many days every test has had its turn: of three kernels, on every second day.
const DAYS: usize = 6;
/// The kernels of `./x test`, cheapest first: in newer ones an emulated CPU is slower.
pub const OF_TEST: [&str; 4] = ["6.12", "6.12-rt", "newest", "newest-rt"];

/// On which kernels tests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// On all that have what it needs.
    All,
    /// Where it says something new.
    Stated,
    /// There, when it has its turn.
    Turn,
}

/// What a test needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Its answer depends on the kernel: each is asked.
    verifier: bool,
    /// It may, and has not so far: one is asked, in turn.
    one_kernel: bool,
    /// A guest because of what else it needs, any kernel's that has it.
    guest: bool,
    preempt_rt: bool,
    sched_ext: bool,
    /// Kernel modules.
    pub modules: Vec<String>,
    /// CPUs, where two are too few.
    cpus: Option<u32>,
    virtual_time: bool,
    /// It lasts as long as it is asked to.
    pub stress: bool,
    /// Why it says nothing where CPUs are emulated.
    pub real_time: Option<String>,
    /// Nothing in it depends on the kernel or needs a separate machine.
    host: bool,
}

impl Needs {
    /// Reads what follows the mark.
    pub fn parse(text: &str) -> Result<Needs> {
        let mut needs = Needs::default();
        for word in split(text) {
            match word.split_once(' ').unwrap_or((word, "")) {
                ("verifier", "") => needs.verifier = true,
                ("one", "kernel") => needs.one_kernel = true,
                ("preempt_rt", "") => needs.preempt_rt = true,
                ("sched_ext", "") => needs.sched_ext = true,
                ("cgroups" | "hotplug" | "serial" | "machine", "") => needs.guest = true,
                ("module", name) if !name.is_empty() => needs.modules.push(name.to_owned()),
                ("cpus", number) => needs.cpus = Some(number.parse().with_context(|| word.to_owned())?),
                ("virtual", "time") => needs.virtual_time = true,
                ("stress", "") => needs.stress = true,
                ("host", "") => needs.host = true,
                ("real", rest) => {
                    let reason = rest.strip_prefix("time (").and_then(|rest| rest.strip_suffix(')'));
                    needs.real_time =
                        Some(reason.context("'real time' has its reason in parentheses")?.to_owned());
                }
                _ => bail!("'{word}' is not a need that xtask/src/vm/needs.rs knows"),
            }
        }
        if needs == Needs::default() {
            bail!("it needs nothing");
        }
        if needs.host && needs != (Needs { host: true, ..Needs::default() }) {
            bail!("'host' stands alone: what needs a kernel or a machine runs in a guest");
        }
        if needs.verifier && needs.one_kernel {
            bail!("'verifier' asks each kernel, 'one kernel' one of them");
        }
        if needs.cpus == Some(0) {
            bail!("a guest has a CPU at least");
        }
        Ok(needs)
    }

    /// Whether a kernel has what it needs.
    pub fn has(&self, kernel: &Kernel) -> bool {
        (kernel.preempt_rt || !self.preempt_rt) && (kernel.sched_ext || !self.sched_ext)
    }

    /// The kernels of `./x test` that it runs on in a turn.
    fn stated(&self, turn: usize) -> Vec<&'static str> {
        if self.host || self.real_time.is_some() {
            return Vec::new();
        }
        let able = |name: &&str| KERNELS.iter().any(|kernel| kernel.name == *name && self.has(kernel));
        let mut kernels: Vec<&str> = OF_TEST.into_iter().filter(able).collect();
        // The last is the slowest, and has both of what the two before it have: it runs what needs both, and the rest with --all.
        if !self.sched_ext {
            kernels.truncate(OF_TEST.len() - 1);
        }
        if self.one_kernel {
            return kernels.get(turn % (2 * kernels.len()).max(1)).copied().into_iter().collect();
        }
        let in_guest = self.guest
            || self.preempt_rt
            || self.sched_ext
            || self.stress
            || self.virtual_time
            || self.cpus.is_some()
            || !self.modules.is_empty();
        if !self.verifier {
            kernels.truncate(usize::from(in_guest && turn % 2 == 0));
        } else if kernels.len() > 2 {
            kernels.remove(turn % 2);
        }
        kernels
    }

    /// Where it would say something new, in this turn or the next that it has.
    fn stated_soon(&self, turn: usize) -> Vec<&'static str> {
        let turns = (0..DAYS).map(|later| self.stated(turn.wrapping_add(later)));
        turns.into_iter().find(|kernels| !kernels.is_empty()).unwrap_or_default()
    }

    /// Whether it runs on a kernel. `turn`: any number, another for each day of commits and test.
    pub fn runs_on(&self, kernel: &Kernel, asked: Asked, turn: usize) -> bool {
        match asked {
            Asked::All => self.has(kernel) && !self.host,
            Asked::Stated => self.stated_soon(turn).contains(&kernel.name),
            Asked::Turn => self.stated(turn).contains(&kernel.name),
        }
    }

    /// Whether it runs somewhere, in another turn than this.
    pub fn waits(&self, turn: usize) -> bool {
        self.stated(turn).is_empty() && !self.stated_soon(turn).is_empty()
    }

    /// The machine of its guest: two CPUs and the host's clocks, unless it needs something else. Emulated CPUs run one at a
    /// time, so more are slower.
    pub fn machine(&self) -> Machine {
        Machine { cpus: self.cpus.unwrap_or(2), virtual_time: self.virtual_time }
    }
}

/// At commas, but for those in parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let words = text.split(|c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    words.map(str::trim).filter(|word| !word.is_empty()).collect()
}

/// What each privileged test of the tree needs, by crate and function.
#[derive(Debug, Default)]
pub struct AllNeeds(BTreeMap<(String, String), Needs>);

impl AllNeeds {
    /// Reads the sources.
    pub fn read(root: &Path) -> Result<AllNeeds> {
        let mut all = AllNeeds::default();
        for directory in ["crates", "examples"] {
            for path in tidy::files_below(&root.join(directory))? {
                let relative = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                let member = relative.split('/').nth(1).unwrap_or_default();
                if relative.ends_with(".rs") {
                    all.add(member, &fs::read_to_string(&path).with_context(|| relative.clone())?)
                        .context(relative)?;
                }
            }
        }
        Ok(all)
    }

    fn add(&mut self, member: &str, source: &str) -> Result<()> {
        for (name, line) in stated_needs(source) {
            let Some(text) = line else { continue };
            let needs = Needs::parse(text).with_context(|| name.to_owned())?;
            if self.0.insert((member.to_owned(), name.to_owned()), needs).is_some() {
                bail!("{name}: crate {member} has two tests of that name");
            }
        }
        Ok(())
    }

    /// Of a test, by its crate and its function.
    pub fn of(&self, member: &str, function: &str) -> Option<&Needs> {
        self.0.get(&(member.to_owned(), function.to_owned()))
    }
}

/// Every privileged test of a source file, and what follows the mark above its attributes.
pub fn stated_needs(source: &str) -> Vec<(&str, Option<&str>)> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let belongs = |line: &&&str| line.starts_with("#[") || line.starts_with("//");
    let mut tests = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some((name, _)) = line.strip_prefix("fn ").and_then(|rest| rest.split_once('(')) else {
            continue;
        };
        let above: Vec<&&str> = lines[..at].iter().rev().take_while(belongs).collect();
        if name.starts_with("root_") && above.iter().any(|line| **line == "#[test]") {
            tests.push((name, above.iter().find_map(|line| line.strip_prefix(MARK))));
        }
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernels(text: &str, asked: Asked) -> Vec<&'static str> {
        let needs = Needs::parse(text).expect("known words");
        KERNELS.iter().filter(|kernel| needs.runs_on(kernel, asked, 0)).map(|kernel| kernel.name).collect()
    }

    #[test]
    fn within_six_days_everything_has_had_its_turn() {
        let asked = |text: &str, turn| Needs::parse(text).expect("known words").stated(turn);
        let of_a_week = |text| (7..7 + DAYS).map(|turn| asked(text, turn)).collect::<Vec<_>>();
        assert_eq!(
            of_a_week("one kernel"),
            [vec!["6.12-rt"], vec!["newest"], vec![], vec![], vec![], vec!["6.12"]]
        );
        assert_eq!(of_a_week("machine, sched_ext").concat(), ["newest"; 3]);
        assert_eq!(of_a_week("one kernel, preempt_rt").concat(), ["6.12-rt", "newest-rt", "6.12-rt"]);
        for (turn, other) in [(0, "6.12-rt"), (1, "6.12")] {
            assert_eq!(asked("verifier", turn), [other, "newest"]);
        }
        assert!(of_a_week("host").concat().is_empty());
        for text in ["one kernel", "machine, sched_ext", "cgroups", "one kernel, preempt_rt"] {
            let needs = Needs::parse(text).expect("known words");
            assert!((0..DAYS).any(|turn| needs.waits(turn)), "{text}");
            assert!((0..DAYS).all(|turn| !needs.stated_soon(turn).is_empty()), "{text}");
        }
    }

    #[test]
    fn a_test_runs_where_it_has_what_it_needs_and_only_once() {
        use Asked::{All, Stated};
        assert_eq!(kernels("cgroups", Stated), ["6.12"]);
        assert_eq!(kernels("preempt_rt, hotplug", Stated), ["6.12-rt"]);
        assert_eq!(kernels("sched_ext, cpus 4", Stated), ["newest"]);
        assert_eq!(kernels("sched_ext, preempt_rt", Stated), ["newest-rt"]);
        assert_eq!(kernels("module loop", Stated), ["6.12"]);
        assert!(kernels("host", Stated).is_empty() && kernels("host", All).is_empty());
    }

    #[test]
    fn what_depends_on_the_kernel_is_asked_of_each() {
        assert_eq!(kernels("verifier, sched_ext", Asked::Turn), ["newest", "newest-rt"]);
        for text in ["verifier", "cgroups", "one kernel"] {
            assert_eq!(kernels(text, Asked::All).len(), KERNELS.len());
        }
    }

    #[test]
    fn reasons_may_have_commas_and_words_must_be_known() {
        let needs = Needs::parse("verifier, real time (slow, by far), module null_blk").expect("known words");
        assert_eq!(needs.real_time.as_deref(), Some("slow, by far"));
        assert_eq!(needs.modules, ["null_blk"]);
        for wrong in [
            "",
            "fast",
            "cpus many",
            "cpus 0",
            "real time",
            "module",
            "host, verifier",
            "one kernel, verifier",
        ] {
            assert!(Needs::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            Needs::parse("cpus 4, virtual time").expect("known words").machine(),
            Machine { cpus: 4, virtual_time: true }
        );
    }

    #[test]
    fn the_line_above_a_test_is_found() {
        let source = "/// Words.\n// NEEDS: verifier\n#[test]\nfn root_a() {}\n\n#[test]\nfn root_b() {}\nfn root_c() {}\n";
        assert_eq!(stated_needs(source), [("root_a", Some("verifier")), ("root_b", None)]);
    }
}
