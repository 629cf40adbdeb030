// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One round, in a world of its own: a mount namespace with a private `/dev/shm`, and for rounds with containers a PID namespace.
//! So a round neither sees nor disturbs other programs, and all that it leaves behind is its own.

use super::counters::{self, Counters};
use super::judge::{Evidence, Fault, Verdict};
use super::liars::{self, Liar};
use super::plan::{AHEAD_SECONDS, Blow, Place, ProgramPlan, RoundPlan, USER};
use super::recorder::Recorders;
use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rtscope_testkit::random::Random;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A program that runs this much longer than planned hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Memory of a recorder that is not a mapping of a program's file.
const PEAK_BYTES: u64 = 160 << 20;

/// What became of a round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RoundResult {
    pub seed: u64,
    pub plan: String,
    pub faults: Vec<Fault>,
    /// It could not be judged, because another recorder of this machine was in the way.
    pub disturbed: Option<String>,
    pub figures: BTreeMap<String, u64>,
}

/// The files of a campaign: compiled programs, and the directory of the round.
#[derive(Clone, Debug)]
pub struct RoundFiles {
    pub programs: PathBuf,
    pub directory: PathBuf,
}

/// A program of the round.
struct Running {
    plan: ProgramPlan,
    child: Child,
    killed: bool,
}

/// Runs the round of this seed. Called in its world.
pub fn run(seed: u64, files: &RoundFiles) -> Result<RoundResult> {
    let plan = RoundPlan::of(seed);
    nix::sys::prctl::set_child_subreaper(true)?;
    let mut verdict = Verdict::default();
    let counters_path = files.directory.join("counters");
    counters::make(&counters_path)?;
    let used_before = used_shared_memory()?;
    let begun_ns = monotonic_ns()?;
    let mut liars: Vec<Child> = Vec::new();
    let mut random = Random(seed ^ 1);
    for liar in &plan.liars {
        liars.push(start_liar(*liar, random.next(), &files.directory)?);
    }
    let mut recorders = Recorders::new(&plan, &files.directory);
    recorders.start()?;
    recorders.wait_until_ready(&mut verdict)?;
    let mut result = RoundResult { seed, plan: plan.to_string(), ..RoundResult::default() };
    if recorders.disturbed.is_some() {
        result.disturbed = recorders.disturbed.take();
        return Ok(result);
    }
    let mut running = Vec::new();
    for program in &plan.programs {
        running.push(start(program, &plan, files)?);
    }
    act(&plan, &mut recorders, &mut running, &mut verdict)?;
    wait_for(&mut running, &mut recorders, &mut verdict)?;
    let disturbed = recorders.disturbed.take();
    let (traces, peak) = recorders.finish(&mut verdict)?;
    let ended_ns = monotonic_ns()?;
    end_liars(&mut liars, &plan.liars);
    let disturbed = disturbed.or(left_behind(&plan, files, used_before, &mut verdict)?);
    let counters = Counters::read(&counters_path)?;
    judge_children(&counters, &mut verdict);
    let liars_lose = plan.liars.iter().any(|liar| liar.loses_records());
    let liars_count = plan.liars.iter().any(|liar| liar.counts_anything());
    let evidence = Evidence { counters: &counters, begun_ns, ended_ns, liars_lose, liars_count };
    if disturbed.is_some() {
        return Ok(RoundResult { disturbed, ..result });
    }
    verdict.judge(&traces, &evidence)?;
    if peak > PEAK_BYTES {
        verdict.fault("memory", format!("a recorder used {} MiB", peak >> 20));
    }
    verdict.figures.insert("peak_kib".to_string(), peak >> 10);
    verdict.figures.insert("traces".to_string(), traces.len() as u64);
    for (name, number) in &counters.deeds {
        verdict.figures.insert((*name).to_string(), u64::from(*number));
    }
    Ok(RoundResult { faults: verdict.faults, figures: verdict.figures, ..result })
}

fn monotonic_ns() -> Result<u64> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

fn start_liar(liar: Liar, seed: u64, directory: &Path) -> Result<Child> {
    let notes = fs::File::create(directory.join(format!("{liar:?}.notes")))?;
    // Another user may not be able to reach the directory of this program.
    let mut command = Command::new("/proc/self/exe");
    command.args(["violence-liar", &format!("{liar:?}"), &seed.to_string()]);
    command.uid(liar.user()).gid(liar.user()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(notes);
    command.spawn().context("a liar")
}

/// Starts a program where its plan puts it.
fn start(plan: &ProgramPlan, round: &RoundPlan, files: &RoundFiles) -> Result<Running> {
    let offset_ns = if plan.place == Place::OtherTime { AHEAD_SECONDS * 1_000_000_000 } else { 0 };
    let ahead = format!("--monotonic={AHEAD_SECONDS}");
    let boot = format!("--boottime={AHEAD_SECONDS}");
    let container = "mount -t tmpfs -o mode=1777,size=256m none /dev/shm && exec \"$0\" \"$@\"";
    let inside = ["-m", "-p", "-f", "--mount-proc", "--kill-child"];
    let mut words: Vec<&str> = Vec::new();
    let user = USER.to_string();
    let (reuid, regid) = (format!("--reuid={user}"), format!("--regid={user}"));
    if plan.of_user {
        words.extend(["setpriv", &reuid, &regid, "--clear-groups"]);
    }
    match plan.place {
        Place::Here => {}
        Place::OtherTime => words.extend(["unshare", "-T", "-f", "--kill-child", &ahead, &boot]),
        Place::Container => {
            words.push("unshare");
            words.extend(inside);
            words.extend(["sh", "-c", container]);
        }
        Place::UserContainer => {
            words.extend(["unshare", "-U", "-r"]);
            words.extend(inside);
            words.extend(["sh", "-c", container]);
        }
    }
    let name = if plan.plain { "violence-plain" } else { "violence" };
    let mut command = match words.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(files.programs.join(name));
            command
        }
        None => Command::new(files.programs.join(name)),
    };
    command.arg(files.directory.join("counters"));
    command.args([plan.seed.to_string(), round.lasts_ms.to_string(), plan.threads.to_string()]);
    command.args(["2".to_string(), offset_ns.to_string()]);
    command.args((0..3).map(|number| files.programs.join(format!("library{number}.so"))));
    let child = command.stdin(Stdio::null()).spawn().context("the torture program")?;
    Ok(Running { plan: plan.clone(), child, killed: false })
}

/// Deals the blows of the plan, at their times.
fn act(
    plan: &RoundPlan,
    recorders: &mut Recorders<'_>,
    running: &mut [Running],
    verdict: &mut Verdict,
) -> Result<()> {
    let began = Instant::now();
    let mut blows = plan.blows.iter().peekable();
    let (mut restart, mut resume): (Option<Instant>, Option<Instant>) = (None, None);
    let end = Duration::from_millis(plan.lasts_ms);
    loop {
        let now = Instant::now();
        if restart.is_some_and(|at| now >= at) {
            restart = None;
            recorders.start()?;
        }
        if resume.is_some_and(|at| now >= at) {
            resume = None;
            recorders.send(Signal::SIGCONT, verdict)?;
        }
        kill_programs(running, began.elapsed())?;
        let is_due = |(at, _): &&&(u64, Blow)| began.elapsed() >= Duration::from_millis(*at);
        if let Some((_, blow)) = blows.peek().filter(is_due) {
            blows.next();
            match blow {
                Blow::Kill { pause_ms } if recorders.is_running() => {
                    resume = None;
                    recorders.send(Signal::SIGKILL, verdict)?;
                    restart = Some(now + Duration::from_millis(*pause_ms));
                }
                Blow::Stop { pause_ms } if recorders.is_running() && resume.is_none() => {
                    recorders.send(Signal::SIGSTOP, verdict)?;
                    resume = Some(now + Duration::from_millis(*pause_ms));
                }
                Blow::Snapshot if recorders.is_running() && resume.is_none() => {
                    recorders.snapshot(verdict)?
                }
                _ => {}
            }
        }
        recorders.measure();
        if began.elapsed() > end && blows.peek().is_none() && restart.is_none() && resume.is_none() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn kill_programs(running: &mut [Running], elapsed: Duration) -> Result<()> {
    for program in running {
        let is_due = program.plan.killed_at_ms.is_some_and(|at| elapsed >= Duration::from_millis(at));
        if is_due && !program.killed && program.child.try_wait()?.is_none() {
            program.killed = true;
            program.child.kill()?;
        }
    }
    Ok(())
}

/// Waits for the end of all programs, which a recorder records to their end.
fn wait_for(running: &mut [Running], recorders: &mut Recorders<'_>, verdict: &mut Verdict) -> Result<()> {
    if !recorders.is_running() {
        recorders.start()?;
    }
    recorders.wait_until_ready(verdict)?;
    let began = Instant::now();
    let known: Vec<i32> = running.iter().map(|program| program.child.id() as i32).collect();
    loop {
        let mut is_over = true;
        for program in running.iter_mut() {
            is_over &= program.child.try_wait()?.is_some();
        }
        recorders.measure();
        is_over &= !orphans(verdict, &known);
        if is_over {
            break;
        }
        if began.elapsed() > PATIENCE {
            for pid in descendants() {
                if is_ours(pid) {
                    verdict.fault("hang", whereabouts(pid));
                    kill(Pid::from_raw(pid as i32), Signal::SIGKILL)?;
                }
            }
            break;
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    for program in running {
        let status = program.child.wait()?;
        let is_asked = program.killed && (status.signal() == Some(9) || status.code() == Some(137));
        if !status.success() && !is_asked && status.code() != Some(3) {
            verdict.fault("end", format!("{:?} ended with {status}", program.plan));
        }
    }
    Ok(())
}

/// Takes the ends of processes that lost their parents; whether some still run.
fn orphans(verdict: &mut Verdict, known: &[i32]) -> bool {
    let mut some_run = false;
    for pid in children_of(std::process::id()) {
        let pid_number = Pid::from_raw(pid as i32);
        if known.contains(&(pid as i32)) || !is_ours(pid) && !is_zombie(pid) {
            continue;
        }
        if is_recorder_or_liar(pid) {
            continue;
        }
        match waitpid(pid_number, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => some_run = true,
            Ok(WaitStatus::Exited(_, 0 | 3)) | Err(_) => {}
            // Programs kill their children, and what starts programs in namespaces kills them when it is killed.
            Ok(WaitStatus::Signaled(_, Signal::SIGKILL, _)) => {}
            Ok(status) => verdict.fault("end", format!("an orphan ended: {status:?}")),
        }
    }
    some_run
}

fn comm(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_string()
}

/// Zombies have names, too.
fn is_ours(pid: u32) -> bool {
    comm(pid).starts_with("violence")
}

fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}

fn is_recorder_or_liar(pid: u32) -> bool {
    let name = comm(pid);
    name.starts_with("rtscope") || matches!(name.as_str(), "unshare" | "setpriv" | "sh")
}

fn children_of(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .flat_map(|task| {
            let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            text.split_whitespace().filter_map(|number| number.parse().ok()).collect::<Vec<u32>>()
        })
        .collect()
}

fn descendants() -> Vec<u32> {
    let mut found = children_of(std::process::id());
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children_of(*pid));
        next += 1;
    }
    found
}

/// Where a process hangs: what it waits for in the kernel, and its stack if there is a debugger.
pub fn whereabouts(pid: u32) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let debugger = Command::new("timeout")
        .args(["20", "gdb", "-p", &pid.to_string(), "-batch", "-nx", "-ex", "thread apply all bt 12"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let stack =
        debugger.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let stack: Vec<&str> = stack.lines().filter(|line| line.starts_with('#')).take(14).collect();
    format!(
        "{pid} {} wchan {} syscall {} {}",
        comm(pid),
        read("wchan"),
        read("syscall").trim(),
        stack.join(" ")
    )
}

fn end_liars(children: &mut [Child], kinds: &[Liar]) {
    for child in children {
        // Both fail only when it has ended already.
        let _ = child.kill();
        let _ = child.wait();
    }
    liars::sweep(kinds);
}

fn used_shared_memory() -> Result<u64> {
    let status = nix::sys::statvfs::statvfs("/dev/shm")?;
    Ok((status.blocks() - status.blocks_free()) * status.fragment_size())
}

/// `/dev/shm` is as before, once the next recorder and the next program of each user have passed. Returns why that cannot be
/// judged, if another recorder of this machine is in the way.
fn left_behind(
    plan: &RoundPlan,
    files: &RoundFiles,
    used_before: u64,
    verdict: &mut Verdict,
) -> Result<Option<String>> {
    let first = leftovers();
    verdict.figures.insert("left_first".to_string(), first.len() as u64);
    if !first.is_empty() {
        let next = Command::new(rtscope_testkit::process::program("rtscope")?)
            .args(["record", "-u", "nothing:*", "--duration", "10ms", "-o"])
            .arg(files.directory.join("next"))
            .output()?;
        let words = String::from_utf8_lossy(&next.stderr).into_owned();
        if words.contains("already records") {
            return Ok(Some(words));
        }
        pass_by(files)?;
        // What was being made when its program was killed is left alone for a minute (include/rtscope/abi.h). It is over.
        let unfinished: Vec<String> = leftovers().into_iter().filter(|name| is_unfinished(name)).collect();
        if !unfinished.is_empty() {
            unfinished.iter().for_each(|name| age(name));
            pass_by(files)?;
        }
        let left = leftovers();
        if !left.is_empty() {
            let some: Vec<String> = left.iter().take(3).map(|name| described(name)).collect();
            verdict.fault("left behind", format!("{} files, first {some:?}", left.len()));
        }
    }
    let used = used_shared_memory()?;
    // A page for each user is the programs' to keep.
    if used > used_before + (64 << 10) && first.is_empty() {
        verdict.fault("left behind", format!("{} KiB of /dev/shm ({plan})", (used - used_before) >> 10));
    }
    Ok(None)
}

/// Files of programs, rings and sessions of honest users.
fn leftovers() -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let inside = fs::read_dir(entry.path()).into_iter().flatten().flatten();
        let files = inside.map(|file| file.file_name().to_string_lossy().into_owned());
        // The lock of a collector, and the page by which it asks programs to look: one of each for a user (abi.h).
        found.extend(
            files.filter(|file| file != "collector" && file != "look").map(|file| format!("{name}/{file}")),
        );
        if !name.starts_with("rtscope-") || name == "rtscope-session" {
            found.push(name);
        }
    }
    found
}

/// A further program of each user starts, which removes what is nobody's.
fn pass_by(files: &RoundFiles) -> Result<()> {
    for user in [0, USER] {
        let mut command = Command::new(files.programs.join("violence"));
        command.arg(files.directory.join("counters")).args(["1", "1", "0", "0", "0"]);
        command.uid(user).gid(user).stdin(Stdio::null()).status()?;
    }
    Ok(())
}

/// Whether a file has no magic number, and nobody maps it: the maker of it was killed.
fn is_unfinished(name: &str) -> bool {
    let Ok(file) = fs::File::open(Path::new("/dev/shm").join(name)) else { return false };
    let mut magic = [0; 8];
    let has_magic = file.read_exact_at(&mut magic, 0).is_ok() && magic != [0; 8];
    !has_magic && nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockSharedNonblock).is_ok()
}

/// Two minutes go by for a file.
fn age(name: &str) {
    let before = std::time::SystemTime::now() - Duration::from_secs(120);
    let file = fs::OpenOptions::new().write(true).open(Path::new("/dev/shm").join(name));
    // One that is gone needs none.
    let _ = file.and_then(|file| file.set_modified(before));
}

/// A file that was left, with what it says about itself: whether somebody holds it, and for a ring how much of it was taken.
fn described(name: &str) -> String {
    let path = Path::new("/dev/shm").join(name);
    let Ok(file) = fs::File::open(&path) else { return name.to_string() };
    let mut bytes = vec![0; 640];
    let read = file.read_at(&mut bytes, 0).unwrap_or(0);
    let word =
        |at: usize| bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes);
    let version = word(8) as u32;
    let is_held = nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockSharedNonblock).is_err();
    let held = if is_held { ", held" } else { "" };
    let ring = if name.contains("/r") {
        format!(", head {}, tail {}, ended {}", word(64), word(128), word(88))
    } else {
        String::new()
    };
    format!("{name} (version {version}, {read} bytes read{held}{ring})")
}

fn judge_children(counters: &Counters, verdict: &mut Verdict) {
    for (pid, status) in &counters.failed {
        let how = if *status == -1 {
            "has threads that do not end".to_string()
        } else {
            std::process::ExitStatus::from_raw(*status).to_string()
        };
        verdict.fault("end", format!("process {pid}: {how}"));
    }
    for pid in &counters.hung {
        verdict.fault("hang", format!("process {pid} does not end"));
    }
}
