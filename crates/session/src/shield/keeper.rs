// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two processes of mode artis. The keeper holds the scheduler: it is the kernel's as long as the process lives. The guard waits
//! for the keeper's end, whatever ended it, and isolates the CPUs then. The keeper starts another guard when that ends.
//!
//! Nothing is pinned in the kernel: when both are killed at once, the scheduler goes, and `rtscope shield status` says that nobody
//! took its place.

use super::artis::LOG;
use super::verify::stay_on;
use crate::{Failure, Observer, Stop};
use nix::sys::prctl::set_name;
use nix::unistd::setsid;
use rtscope_artis::{Scheduler, Settings};
use rtscope_shield::apply::complaint;
use rtscope_shield::keeper::{Keeper, fall_back};
use rtscope_shield::tasks::Thread;
use rtscope_shield::{Cpus, System, plan};
use std::io::{BufRead, Read, Stdin};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What the keeper waits for before it changes anything.
pub const GO: &str = "go\n";
/// What it answers, before the numbers of its counters and grants.
pub const READY: &str = "ready ";
/// Between two checks that the scheduler is still there.
const POLL: Duration = Duration::from_millis(20);
/// A guard that ends unexpectedly is started again, but not in a circle that fills the log.
const GUARD_PAUSE: Duration = Duration::from_secs(10);
/// What could not be isolated is tried again, at first after this time.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(60);
/// This program, also when its file has been replaced since.
const SELF: &str = "/proc/self/exe";
/// This long after the last RT1 task ran, system calls do not pay for their way back any more.
const RT1_REST: Duration = Duration::from_secs(10);

/// How the two processes speak: with whoever started them, and with people.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// Has what the keeper waits for.
    pub stdin: &'a Stdin,
    /// Takes an answer, whole.
    pub answer: fn(&str),
    /// Remarks: in our log, and in the kernel's, which is read first after an accident. They have names of tasks in them, and those are
    /// anybody's choice.
    pub observer: &'a dyn Observer,
    /// Takes a long text for our log alone.
    pub dump: fn(&str),
}

/// Leaves whatever started us, and the real-time CPUs.
fn detach(system: &System, rt: &str) -> Result<(Cpus, Cpus), Failure> {
    // It fails for the leader of a group, which is detached already.
    let _ = setsid();
    // The last to go when memory is short; not everybody may ask for it.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let (rt, others) = plan::split(system, rt)?;
    stay_on(&others)?;
    Ok((rt, others))
}

/// Holds the scheduler of these CPUs until it is asked to stop, or the scheduler has ended.
///
/// # Errors
/// What kept it from holding the scheduler.
pub fn keep(system: &System, rt_list: &str, stop: &Stop, around: &Surroundings<'_>) -> Result<(), Failure> {
    let (rt, others) = detach(system, rt_list)?;
    let say = |text: &str| around.observer.note(text);
    let own = Keeper::new(system, std::process::id() as i32)?.process;
    let mut scheduler = match begin(system, &rt, &others, around.stdin) {
        Ok(Some(scheduler)) => scheduler,
        Ok(None) => return Ok(()),
        Err(error) => {
            // For the process that waits for our answer.
            (around.answer)(&error.to_string().replace('\n', " "));
            return Err(error);
        }
    };
    let mut guard = Some(start_guard(rt_list, &own)?);
    let mut replaced: Option<Instant> = None;
    (around.answer)(&format!("{READY}{} {}", scheduler.counts_id()?, scheduler.grants_id()?));
    let mut rt1 = Rt1Activity::default();
    while !stop.asked() {
        if let Some(ended) = scheduler.ended() {
            let why = format!("{} {}", ended.reason, ended.message).trim().to_owned();
            // At once: the kernel waits for each CPU before a partition is done, and RT0 that never sleeps lets it wait.
            say(&format!("the kernel ended the scheduler that lent CPUs {rt_list} ({why})"));
            // Who waited, and where: for our log alone.
            (around.dump)(&scheduler.dump());
            // Before its programs are taken out: that waits for each task that was preempted to go on (RCU-tasks), and a task that is stuck
            // behind RT0, for which the kernel may have ended it, does not. When it cannot, the guard goes on trying: not after our end,
            // for which that is waited for, too, but from now on.
            isolate(
                system,
                &own,
                &format!("the kernel ended it: {why}"),
                &mut String::new(),
                around.observer,
            );
            drop(guard.and_then(|guard| guard.stdin));
            return Ok(());
        }
        let is_gone =
            guard.as_mut().is_none_or(|guard| guard.try_wait().is_ok_and(|status| status.is_some()));
        if is_gone && replaced.is_none_or(|last| last.elapsed() >= GUARD_PAUSE) {
            replaced = Some(Instant::now());
            say("the guard of the keeper has ended; another one is started");
            // Without one the scheduler still lends; ending it for that would only take the CPUs from everybody.
            guard = start_guard(rt_list, &own).inspect_err(|error| say(&error.to_string())).ok();
        }
        rt1.poll(&mut scheduler, around.observer);
        sleep(POLL);
    }
    drop(scheduler);
    Ok(())
}

/// Loads the scheduler, waits for the word, and makes it the kernel's. `None`: nobody wants it any more.
fn begin(system: &System, rt: &Cpus, others: &Cpus, stdin: &Stdin) -> Result<Option<Scheduler>, Failure> {
    let present = system.read("/sys/devices/system/cpu/present").unwrap_or_default();
    let present = Cpus::from_list(&present).unwrap_or_default();
    let offline = present.without(rt).without(others);
    let all_others = others.iter().chain(offline.iter()).collect();
    let settings = Settings::new(rt.iter().collect(), all_others, offline.iter().collect());
    let mut scheduler = Scheduler::load(&settings)?;
    let mut word = String::new();
    let read = stdin.lock().read_line(&mut word);
    if read.is_err() || word != GO {
        return Ok(None);
    }
    scheduler.attach()?;
    Ok(Some(scheduler))
}

/// The guard reads from us and gets nothing; what it waits for is the end of that.
fn start_guard(rt: &str, own: &Thread) -> Result<Child, Failure> {
    let failed = |error: std::io::Error| Failure::doing("starting the guard", error);
    let (pid, start) = (own.tid.to_string(), own.start.to_string());
    let mut command = Command::new(SELF);
    command.arg0("rtscope").args(["shield", "guard", "--rt", rt, "--pid", &pid, "--start", &start]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().map_err(failed)
}

/// Waits until the keeper has ended, and isolates the CPUs unless the shield is being undone.
///
/// # Errors
/// What kept it from waiting.
pub fn guard(
    system: &System,
    (rt, keeper): (&str, &Thread),
    stop: &Stop,
    around: &Surroundings<'_>,
) -> Result<(), Failure> {
    detach(system, rt)?;
    // A name for listings of processes: it would be that of the link by which we were started.
    set_name(c"rtscope").map_err(|errno| Failure::doing("naming the guard", errno.desc()))?;
    // Only the keeper's end, or undoing, ends us; and being asked to, where the CPUs cannot be isolated.
    let mut nothing = Vec::new();
    // Whatever came of reading: there is nobody any more who could write.
    let _ = around.stdin.lock().read_to_end(&mut nothing);
    let (mut pause, mut reported) = (RETRY, String::new());
    while !isolate(system, keeper, "the process that held it was killed", &mut reported, around.observer) {
        // Undoing ends it, too: there is nothing to be isolated then.
        let again = Instant::now() + pause;
        while Instant::now() < again {
            if stop.asked() {
                return Ok(());
            }
            sleep(POLL);
        }
        pause = (pause * 2).min(RETRY_MOST);
    }
    Ok(())
}

/// Returns whether there is nothing left to be done. `reported`: what the last try reported, which is not repeated.
fn isolate(
    system: &System,
    keeper: &Thread,
    why: &str,
    reported: &mut String,
    observer: &dyn Observer,
) -> bool {
    match fall_back(system, keeper, why) {
        // It was taken out on purpose, or somebody else was faster.
        Ok(None) => true,
        Ok(Some(journal)) => {
            let wrong: Vec<String> = journal
                .steps
                .iter()
                .filter(|step| step.knob == rtscope_shield::knobs::PARTITION)
                .filter_map(|step| complaint(step).map(|why| format!("{}: {why}", step.place())))
                .collect();
            let state = match wrong.first() {
                None => "they are isolated now, and not lent".to_owned(),
                Some(wrong) => format!("they could NOT be isolated: {wrong}"),
            };
            // The first reason that was found: what came of it is no news.
            let first = journal.keeper.as_ref().and_then(|keeper| keeper.fallen.as_deref());
            let why = first.unwrap_or(why);
            observer.note(&format!("the scheduler that lent CPUs {} has ended ({why}); {state}", journal.rt));
            true
        }
        Err(error) => {
            let text = format!(
                "the scheduler has ended ({why}), and the CPUs could NOT be isolated yet: {error}; see {LOG}"
            );
            if *reported != text {
                observer.note(&text);
                *reported = text;
            }
            false
        }
    }
}

/// Whether there are RT1 tasks: only then system calls pay for the way back.
#[derive(Debug, Default)]
struct Rt1Activity {
    ran_ns: u64,
    last: Option<Instant>,
    polls: u32,
}

impl Rt1Activity {
    /// Reads the counters every tenth time.
    fn poll(&mut self, scheduler: &mut Scheduler, observer: &dyn Observer) {
        self.polls += 1;
        if self.polls % 10 != 0 {
            return;
        }
        let Ok(counts) = scheduler.counts() else { return };
        let ran_ns = counts.iter().map(|cpu| cpu.classes[1].ran_ns).sum();
        if ran_ns != self.ran_ns {
            self.ran_ns = ran_ns;
            self.last = Some(Instant::now());
        }
        let wanted = self.last.is_some_and(|last| last.elapsed() < RT1_REST);
        if let Err(error) = scheduler.watch_exits(wanted) {
            observer.note(&format!("RT1 tasks come back late: {error}"));
            self.last = None;
        }
    }
}
