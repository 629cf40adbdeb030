// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which processes' events are recorded, and which of their events: what is asked for by words, as a filter of the collector. Programs do what
//! they would do otherwise, so what they cost is the same (`rtscope_store::user::UserFilter`).

use super::settings::ProgramsSettings;
use crate::Failure;
use crate::users::may_be_of;
use rtscope_ctf::Condition;
use rtscope_event::{Glob, counted};
use rtscope_programs::RingInfo;
use rtscope_store::user::{ChooseThreads, UserFilter};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between a pattern and its condition.
const IF: &str = " if ";
/// Parents of a process that are looked at: a longer chain is none of a build.
const PARENTS_MAX: usize = 64;
/// Processes whose answer is remembered.
const ANSWERS_MAX: usize = 1 << 16;
/// Who was no child of COMMAND is none for so long: afterwards its number may be another's, or its parent's number.
const STRANGER_FOR: Duration = Duration::from_millis(100);

/// Which processes are recorded. The default is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessChoice {
    /// Processes or threads with these numbers; none: all.
    pub pids: Vec<u32>,
    /// Threads with this name, a glob.
    pub comm: Option<String>,
    /// Processes of these users; none: of all.
    pub uids: Vec<u32>,
    /// Processes in these cgroups and below; none: in all.
    pub cgroups: Vec<String>,
    /// Only COMMAND and its children.
    pub only_command: bool,
}

/// A choice that can be asked. It asks /proc while the programs of all users wait, so each process is asked for once, however many threads it has, and
/// parents that many have in common only now and then.
#[derive(Debug)]
struct Chooser {
    choice: ProcessChoice,
    comm: Option<Glob>,
    /// With `only_command`.
    family: Option<Mutex<Family>>,
    /// By user, number here and birth of the process that a ring says it is of: whether it is of the family, and that user's; `None`: it had
    /// ended.
    answers: Mutex<HashMap<(u32, u32, u64), Option<bool>>>,
    /// Threads of processes that had ended before anybody could ask for their parents or cgroups.
    ended: AtomicU64,
}

/// COMMAND and its children.
#[derive(Debug, Default)]
struct Family {
    /// Those that were seen.
    members: HashSet<u32>,
    /// Processes whose line does not lead to COMMAND, and when that was seen.
    strangers: HashMap<u32, Instant>,
}

/// The patterns alone, and the filter that is left to the collector. `command`: its number.
pub(super) fn of(
    settings: &ProgramsSettings,
    command: Option<u32>,
) -> Result<(Vec<String>, UserFilter), Failure> {
    let mut conditions = Vec::new();
    for text in &settings.patterns {
        let (pattern, condition) = match text.split_once(IF) {
            Some((pattern, condition)) => {
                let wrong = |why| Failure::Usage(format!("-u '{text}': {why}"));
                (pattern.trim(), Some(Condition::parse(condition).map_err(wrong)?))
            }
            None => (text.as_str(), None),
        };
        if condition.is_some() && pattern.starts_with('!') {
            return Err(Failure::Usage(format!(
                "-u '{text}': what is excluded has no condition; leave the ! or the condition out"
            )));
        }
        conditions.push((pattern.to_string(), condition));
    }
    let patterns = conditions.iter().map(|(pattern, _)| pattern.clone()).collect();
    // Without conditions nothing is to be decided for single events.
    let has_any = conditions.iter().any(|(_, condition)| condition.is_some());
    let mut wanted = if has_any { conditions } else { Vec::new() };
    wanted.retain(|(pattern, _)| !pattern.starts_with('!'));
    for (pattern, _) in &mut wanted {
        if !pattern.contains(':') && pattern != "*" {
            pattern.push_str(":*");
        }
    }
    let threads = threads(&settings.processes, command)?;
    Ok((patterns, UserFilter { level_from: settings.levels.from, conditions: wanted, threads }))
}

fn threads(choice: &ProcessChoice, command: Option<u32>) -> Result<Option<Arc<dyn ChooseThreads>>, Failure> {
    if *choice == ProcessChoice::default() {
        return Ok(None);
    }
    let comm = choice.comm.as_deref().map(Glob::new).transpose();
    let comm = comm.map_err(|error| Failure::Usage(format!("--comm: {error}")))?;
    for group in &choice.cgroups {
        let path = format!("/sys/fs/cgroup{}", cgroup(group));
        if !std::path::Path::new(&path).is_dir() {
            return Err(Failure::Usage(format!(
                "--cgroup {group}: there is no {path}; systemd-cgls, or the last column of /proc/PID/cgroup, has the names"
            )));
        }
    }
    Ok(Some(Arc::new(Chooser { comm, ..Chooser::new(choice.clone(), command) })))
}

impl ChooseThreads for Chooser {
    fn wants(&self, ring: &RingInfo) -> bool {
        let pid = ring.host_pid.unwrap_or(ring.pid);
        let ProcessChoice { pids, uids, cgroups, .. } = &self.choice;
        (pids.is_empty() || pids.contains(&pid) || pids.contains(&ring.tid))
            && (uids.is_empty() || uids.contains(&ring.uid))
            && self.comm.as_ref().is_none_or(|comm| comm.matches(ring.comm.as_bytes()))
            && (cgroups.is_empty() || self.is_in_a_cgroup(pid))
            && self.is_meant((ring.uid, pid, ring.birth_ns))
    }

    fn wants_user(&self, uid: u32) -> bool {
        self.choice.uids.is_empty() || self.choice.uids.contains(&uid)
    }

    fn remark(&self) -> Option<String> {
        // ORDER: relaxed; a number for people.
        let ended = self.ended.load(Ordering::Relaxed);
        (ended > 0).then(|| {
            format!(
                "{} left out, of processes that had ended before they were found: whether they were asked for is not known",
                counted(ended, "thread was", "threads were")
            )
        })
    }
}

impl Chooser {
    fn new(choice: ProcessChoice, command: Option<u32>) -> Chooser {
        let members = command.into_iter().collect();
        let family = choice.only_command.then(|| Mutex::new(Family { members, strangers: HashMap::new() }));
        Chooser { choice, comm: None, family, answers: Mutex::default(), ended: AtomicU64::new(0) }
    }

    /// Whether a ring may be of the process that its file names, where processes are asked for.
    fn is_whose_it_says(&self, pid: u32, uid: u32) -> bool {
        let is_asked =
            self.choice.only_command || !(self.choice.pids.is_empty() && self.choice.cgroups.is_empty());
        !is_asked || may_be_of(pid, uid)
    }

    fn is_in_a_cgroup(&self, pid: u32) -> bool {
        let Some(own) = cgroup_of(pid) else {
            // ORDER: relaxed; as in remark().
            self.ended.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        self.choice.cgroups.iter().any(|group| is_below(&own, cgroup(group)))
    }

    /// Whether the process of a ring is of the family, and is that user's, where processes are asked for. What a ring says of its birth may be a lie, but each is
    /// asked for once.
    fn is_meant(&self, process: (u32, u32, u64)) -> bool {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let (uid, pid, _) = process;
        if answers.len() >= ANSWERS_MAX {
            answers.clear();
        }
        let ask = || Some(self.is_family(pid)? && self.is_whose_it_says(pid, uid));
        let answer = *answers.entry(process).or_insert_with(ask);
        if answer.is_none() {
            // Of each of its threads that is not known. ORDER: relaxed; as in remark().
            self.ended.fetch_add(1, Ordering::Relaxed);
        }
        answer.unwrap_or(false)
    }

    /// Whether a process is COMMAND, or one whose parents, as far as they are there, lead to it. `None`: one of them had ended.
    fn is_family(&self, pid: u32) -> Option<bool> {
        let Some(family) = &self.family else { return Some(true) };
        let Family { members, strangers } = &mut *family.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut line, now) = (Vec::new(), Instant::now());
        let mut last = pid;
        while line.len() < PARENTS_MAX {
            if members.contains(&last) {
                members.extend(line);
                return Some(true);
            }
            // Not the process itself: its number may have been another's a moment ago.
            let is_stranger = |since: &Instant| now.saturating_duration_since(*since) < STRANGER_FOR;
            let is_known = last != pid && strangers.get(&last).is_some_and(is_stranger);
            let parent = if is_known { Some(0) } else { parent_of(last) };
            line.push(last);
            match parent {
                Some(parent) if parent > 1 => last = parent,
                Some(_) => {
                    if strangers.len() >= ANSWERS_MAX {
                        strangers.clear();
                    }
                    strangers.extend(line.into_iter().map(|stranger| (stranger, now)));
                    return Some(false);
                }
                None => return None,
            }
        }
        Some(false)
    }
}

/// As /proc has it: without where cgroups are mounted, and without a slash at its end.
fn cgroup(name: &str) -> &str {
    let name = name.strip_prefix("/sys/fs/cgroup").unwrap_or(name);
    name.strip_suffix('/').unwrap_or(name)
}

fn is_below(own: &str, group: &str) -> bool {
    let group =
        if group.starts_with('/') || group.is_empty() { group.to_string() } else { format!("/{group}") };
    own.strip_prefix(group.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// That of version 2.
fn cgroup_of(pid: u32) -> Option<String> {
    let text = fs::read(format!("/proc/{pid}/cgroup")).ok()?;
    // Whoever makes a cgroup gives it any name.
    String::from_utf8_lossy(&text).lines().find_map(|line| line.strip_prefix("0::")).map(str::to_string)
}

/// From proc_pid_status(5), which the kernel gives also of a process in execve(2): of its `stat` it may keep readers waiting.
fn parent_of(pid: u32) -> Option<u32> {
    let text = fs::read(format!("/proc/{pid}/status")).ok()?;
    // The name may have anything in it, but for the ends of lines, and need not be text.
    let text = String::from_utf8_lossy(&text);
    text.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(patterns: &[&str]) -> ProgramsSettings {
        let patterns = patterns.iter().map(ToString::to_string).collect();
        ProgramsSettings { patterns, ..ProgramsSettings::default() }
    }

    #[test]
    fn conditions_are_taken_out_of_patterns() {
        let (patterns, filter) =
            of(&settings(&["oms:order_* if price > 100", "pump", "!pump:debug"]), None).unwrap();
        assert_eq!(patterns, ["oms:order_*", "pump", "!pump:debug"]);
        let names: Vec<(&str, bool)> =
            filter.conditions.iter().map(|(name, condition)| (name.as_str(), condition.is_some())).collect();
        assert_eq!(names, [("oms:order_*", true), ("pump:*", false)]);
        assert!(of(&settings(&["oms", "pump"]), None).unwrap().1.conditions.is_empty());
        let wrong = |text| of(&settings(&[text]), None).unwrap_err().to_string();
        assert!(
            wrong("oms:* if price >").contains("-u 'oms:* if price >': "),
            "{}",
            wrong("oms:* if price >")
        );
        assert!(wrong("!oms:* if price > 1").contains("what is excluded has no condition"));
    }

    #[test]
    fn a_cgroup_has_those_below_it_and_no_others() {
        assert!(is_below("/user.slice/user-1.slice", cgroup("/sys/fs/cgroup/user.slice/")));
        assert!(is_below("/user.slice", "user.slice") && is_below("/a", cgroup("/")));
        assert!(!is_below("/user.slices", "/user.slice") && !is_below("/system.slice", "/user.slice"));
    }

    #[test]
    fn a_process_that_has_ended_is_in_no_cgroup_and_that_is_said() {
        let choice = ProcessChoice { cgroups: vec!["/".to_string()], ..ProcessChoice::default() };
        let chooser = Chooser::new(choice, None);
        let mut child = std::process::Command::new("true").spawn().expect("coreutils are there");
        let pid = child.id();
        child.wait().expect("it ends");
        assert!(!chooser.is_in_a_cgroup(pid));
        assert!(chooser.remark().is_some_and(|remark| remark.starts_with("1 thread was left out")));
    }

    #[test]
    fn a_thread_that_had_ended_is_asked_for_and_counted_once_however_often_it_is_looked_at() {
        let mut child = std::process::Command::new("true").spawn().expect("coreutils are there");
        let pid = child.id();
        child.wait().expect("it ends");
        let processes = ProcessChoice { only_command: true, ..ProcessChoice::default() };
        let wanted = ProgramsSettings { processes, ..settings(&["motor"]) };
        let (_, filter) = of(&wanted, Some(std::process::id())).expect("it is allowed");
        let ring = || RingInfo { pid, ..crate::watch::spans::tests::ring(1, "ended") };
        let ended = ring();
        // Looks for events that ask for a snapshot, and copies in snapshots.
        for _ in 0..100 {
            assert!(!filter.wants(&ended) && !filter.wants(&ended.clone()));
        }
        let remark = || filter.threads.as_ref().and_then(|threads| threads.remark()).unwrap_or_default();
        assert!(remark().starts_with("1 thread was left out"), "{}", remark());
        assert!(!filter.wants(&ring()));
        assert!(remark().starts_with("2 threads were left out"), "{}", remark());
    }

    #[test]
    fn a_file_of_another_user_is_of_no_process_of_this_one() {
        let (own, user) = (std::process::id(), nix::unistd::getuid().as_raw());
        assert!(may_be_of(own, user) && !may_be_of(own, user + 4711));
        // A program that gave up its privileges has its file with root.
        assert!(may_be_of(own, 0));
        let chooser = |only_command, pids| {
            let choice = ProcessChoice { pids, only_command, ..ProcessChoice::default() };
            Chooser::new(choice, Some(own))
        };
        for chooser in [chooser(true, Vec::new()), chooser(false, vec![own])] {
            assert!(chooser.is_whose_it_says(own, user) && !chooser.is_whose_it_says(own, user + 4711));
        }
        assert!(chooser(false, Vec::new()).is_whose_it_says(own, user + 4711), "nobody asked for a process");
    }

    #[test]
    fn a_process_is_asked_for_once_whatever_threads_it_has() {
        let (own, user) = (std::process::id(), nix::unistd::getuid().as_raw());
        let choice = ProcessChoice { only_command: true, ..ProcessChoice::default() };
        let chooser = Chooser::new(choice, Some(own));
        assert!(chooser.is_meant((user, own, 1)));
        // Whoever asked again would find another answer.
        chooser.family.as_ref().expect("it was asked for").lock().unwrap().members.clear();
        assert!((0..5).all(|_| chooser.is_meant((user, own, 1))));
        // Another life of that number.
        assert!(!chooser.is_meant((user, own, 2)));
        assert_eq!(chooser.remark(), None);
    }

    #[test]
    fn parents_that_many_have_in_common_are_asked_for_now_and_then() {
        let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
        let choice = ProcessChoice { only_command: true, ..ProcessChoice::default() };
        let chooser = |since: Instant| {
            let chooser = Chooser::new(choice.clone(), parent_of(parent).filter(|above| *above > 1));
            let family = chooser.family.as_ref().expect("it was asked for");
            family.lock().unwrap().strangers.insert(parent, since);
            chooser
        };
        if parent_of(parent).is_none_or(|above| above <= 1) {
            return;
        }
        assert_eq!(chooser(Instant::now()).is_family(own), Some(false), "its parent was none a moment ago");
        let long_ago = Instant::now().checked_sub(STRANGER_FOR * 2).expect("the machine runs longer");
        assert_eq!(chooser(long_ago).is_family(own), Some(true));
        // What a line has led to is remembered of all of it, but for the process itself.
        let stranger = Chooser::new(choice, Some(u32::MAX));
        assert_eq!((stranger.is_family(own), stranger.is_family(own)), (Some(false), Some(false)));
        let family = stranger.family.as_ref().expect("it was asked for").lock().unwrap();
        assert!(family.strangers.contains_key(&own) && family.strangers.contains_key(&parent));
    }

    #[test]
    fn parents_lead_to_the_command() {
        let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
        assert_eq!(parent_of(own), Some(parent));
        let choice = ProcessChoice { only_command: true, ..ProcessChoice::default() };
        let chooser = |command| Chooser::new(choice.clone(), Some(command));
        assert_eq!((chooser(parent).is_family(own), chooser(own).is_family(own)), (Some(true), Some(true)));
        assert_eq!(chooser(own).is_family(parent), Some(false));
    }

    /// The kernel cuts names to 15 bytes, in the middle of a letter where that is.
    #[test]
    fn the_parent_of_a_process_whose_name_is_no_text_is_known() {
        let mut child = crate::test_processes::nameless();
        assert_eq!(parent_of(child.id()), Some(std::process::id()));
        child.kill().expect("it runs");
        child.wait().expect("it is ours");
    }
}
