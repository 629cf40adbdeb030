// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tests of `rtscope shield` in virtual machines share: the command, all that it may touch, and processes that wait.

use rtscope_testkit::process::wait_until;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};

pub const GROUPS: &str = "/sys/fs/cgroup";

pub fn shield(words: &[&str]) -> Command {
    let mut command = crate::command::rtscope();
    command.arg("shield").args(words);
    command
}

pub fn good(words: &[&str]) -> String {
    let output = shield(words).output().expect("it runs");
    let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words:?}: {why}{said}");
    said.into_owned()
}

pub fn json(words: &[&str]) -> Value {
    serde_json::from_str(&good(words)).expect("JSON")
}

/// Everything that a shield may touch, by name: settings, control groups, the CPUs of each thread.
pub fn facts() -> BTreeMap<String, String> {
    facts_of("1")
}

/// The same for a shield of other CPUs.
pub fn facts_of(rt: &str) -> BTreeMap<String, String> {
    let plan = json(&["plan", "--rt", rt, "--level", "full", "--json"]);
    let settings = plan["settings"].as_array().expect("settings").iter();
    let places =
        settings.filter_map(|setting| setting["place"].as_str()).filter(|place| place.starts_with('/'));
    let mut facts: BTreeMap<String, String> = places
        .chain(["/sys/fs/cgroup/cgroup.subtree_control"])
        .filter_map(|place| Some((place.to_owned(), fs::read_to_string(place).ok()?)))
        .collect();
    for entry in fs::read_dir(GROUPS).expect("mounted, or an empty directory").flatten() {
        if entry.path().is_dir() {
            facts.insert(entry.path().display().to_string(), "a group".into());
        }
    }
    for process in fs::read_dir("/proc").expect("there").flatten() {
        let Ok(threads) = fs::read_dir(process.path().join("task")) else { continue };
        for thread in threads.flatten() {
            let tid: i32 = thread.file_name().to_string_lossy().parse().expect("a number");
            // Workers belong to pools, and threads of interrupts follow these: both are moved by the kernel at any time.
            if let (Some(name), Some(cpus)) = (status(tid, "Name"), status(tid, "Cpus_allowed_list")) {
                if !name.starts_with("kworker/") && !name.starts_with("irq/") {
                    facts.insert(format!("thread {tid} {name}"), cpus);
                }
            }
        }
    }
    facts
}

/// Says what differs. Threads that ended or began in between are not compared.
pub fn assert_same(before: &BTreeMap<String, String>, what: &str) {
    assert_same_as(before, facts(), what);
}

/// The same with facts of another shield.
pub fn assert_same_as(before: &BTreeMap<String, String>, after: BTreeMap<String, String>, what: &str) {
    let is_thread = |name: &str| name.starts_with("thread ");
    for (name, value) in before {
        match after.get(name) {
            None => assert!(is_thread(name), "{what}: {name} is gone, it was {value:?}"),
            Some(now) => assert_eq!(now, value, "{what}: {name}"),
        }
    }
    for name in after.keys().filter(|name| !is_thread(name)) {
        assert!(before.contains_key(name), "{what}: {name} is new");
    }
}

pub fn status(tid: i32, key: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

/// Undoes the shield also when the test fails.
pub struct Shield;

impl Shield {
    pub fn of(words: &[&str]) -> Shield {
        good(&[&["create"], words].concat());
        Shield
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        // There is none when the test has undone it.
        let _ = shield(&["undo"]).output();
    }
}

/// A process that waits, and dies with the test.
pub struct Sleeper(pub Child);

impl Sleeper {
    pub fn start(mut command: Command) -> Sleeper {
        Sleeper::of(command.stdin(Stdio::null()).spawn().expect("starts"))
    }

    pub fn of(child: Child) -> Sleeper {
        let sleeper = Sleeper(child);
        wait_until("it sleeps", || status(sleeper.pid(), "Name").as_deref() == Some("sleep"));
        sleeper
    }

    pub fn plain() -> Sleeper {
        let mut command = Command::new("sleep");
        command.arg("1000");
        Sleeper::start(command)
    }

    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    pub fn cpus(&self) -> String {
        status(self.pid(), "Cpus_allowed_list").expect("it lives")
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // It may have been killed by what the test does.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
