// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other recorders of this machine: one of root finds the programs of a round, as those of a container, and takes their events or keeps
//! the round's recorder out. What is missing or left then says nothing, so a round in which only that is wrong does not count while
//! there is one. A round without a fault does, and so does one in which a process hangs or dies, or a trace says something wrong.

use super::round::RoundResult;
use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::time::{Duration, Instant};

/// Between two looks at all processes.
const INTERVAL: Duration = Duration::from_millis(200);

/// What another recorder can do to a round.
const EXCUSED: [&str; 4] = ["account", "left behind", "recorder", "snapshot"];

/// Two campaigns would take each other's events, of which nobody could say whose they are. Waits for the end of another one, but
/// not for ever.
pub fn alone() -> Result<Flock<File>> {
    const PATIENCE: Duration = Duration::from_secs(600);
    let path = std::env::temp_dir().join("rtscope-violence.lock");
    let open = || File::options().create(true).append(true).open(&path);
    let mut file = open().with_context(|| path.display().to_string())?;
    let began = Instant::now();
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err(_) if began.elapsed() > PATIENCE => bail!("another campaign holds {}", path.display()),
            Err((same, _)) => file = same,
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Looks for other recorders during a round.
#[derive(Debug, Default)]
pub struct Watch {
    looked: Option<Instant>,
    found: Option<String>,
}

impl Watch {
    /// Looks now and then.
    pub fn look(&mut self) {
        if self.looked.is_none_or(|looked| looked.elapsed() > INTERVAL) {
            self.look_now();
        }
    }

    /// Looks.
    pub fn look_now(&mut self) {
        self.looked = Some(Instant::now());
        if self.found.is_some() {
            return;
        }
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        self.found = pids.filter_map(recorder).find(|(pid, _)| !is_descendant(*pid)).map(|(_, words)| words);
    }

    /// The result, which does not count if it is faulty and there was another recorder.
    pub fn excuse(self, mut result: RoundResult) -> RoundResult {
        let is_excused = result.faults.iter().all(|fault| EXCUSED.contains(&fault.check.as_str()));
        if !result.faults.is_empty() && is_excused && result.disturbed.is_none() {
            result.disturbed = self.found;
        }
        result
    }
}

/// A process that records programs, and its command line.
fn recorder(pid: u32) -> Option<(u32, String)> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<String> =
        bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    records_programs(&words).then(|| (pid, format!("process {pid}: {}", words.join(" "))))
}

fn records_programs(words: &[String]) -> bool {
    let name = words.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    name.starts_with("rtscope")
        && words.iter().any(|word| word == "record" || word == "watch")
        && words.iter().any(|word| word.starts_with("-u") || word.starts_with("--user"))
}

/// Whether this process has started it, or something that has.
fn is_descendant(mut pid: u32) -> bool {
    while pid > 1 {
        if pid == std::process::id() {
            return true;
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the name, which may contain anything: the state, then the parent.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        // One that is gone records nothing any more.
        let Some(parent) = rest.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok()) else {
            return true;
        };
        pid = parent;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::judge::Fault;
    use super::*;

    #[test]
    fn recorders_of_programs_are_known_by_their_words() {
        let words = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
        assert!(records_programs(&words("/usr/bin/rtscope record -u test:* -o t")));
        assert!(records_programs(&words("./rtscope.bin watch --task t --user test:*")));
        assert!(!records_programs(&words("rtscope record -k sched:sched_switch -o t")));
        assert!(!records_programs(&words("vim record -u")));
        assert!(is_descendant(std::process::id()) && !is_descendant(1));
    }

    #[test]
    fn only_a_fault_beside_another_recorder_is_excused() {
        let fault = Fault { check: "account".to_string(), what: String::new() };
        let faulty = RoundResult { faults: vec![fault], ..RoundResult::default() };
        let watch = |found: Option<&str>| Watch { looked: None, found: found.map(String::from) };
        assert!(watch(Some("process 7")).excuse(faulty.clone()).disturbed.is_some());
        assert!(watch(None).excuse(faulty.clone()).disturbed.is_none());
        let mut worse = faulty;
        worse.faults.push(Fault { check: "end".to_string(), what: String::new() });
        assert!(watch(Some("process 7")).excuse(worse).disturbed.is_none());
        assert!(watch(Some("process 7")).excuse(RoundResult::default()).disturbed.is_none());
    }
}
