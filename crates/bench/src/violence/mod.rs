// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `violence`: a campaign of rounds in which programs do everything that they may do to their events, and are killed; others lie;
//! and the recorder is stopped, killed and started again. Each round is judged: recorded + lost = emitted, nobody hangs or dies,
//! nothing is left, and babeltrace2 reads every trace.
//!
//! It measures nothing. It is a benchmark because it takes as long as one wants, runs as root, and is repeated by its seed. A
//! round runs in a world of its own (`round`), in a second process, which is ended with all that it started when it takes too long.

mod counters;
mod foreign;
mod judge;
mod liars;
mod plan;
mod recorder;
mod round;

use crate::host::Host;
use crate::requirements::{self, CC, Requirement, Tool};
use anyhow::{Context, Result, bail, ensure};
use judge::Fault;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use plan::RoundPlan;
use round::{RoundFiles, RoundResult};
use rtscope_testkit::process::program;
use rtscope_testkit::random::Random;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A round that takes longer is ended, and has failed.
const PATIENCE: Duration = Duration::from_secs(180);
/// Directories of faulty rounds that are kept.
const KEPT: usize = 20;
/// Rounds that could not be judged are repeated with another seed, but not for ever.
const DISTURBED_MAX: u32 = 500;
/// Figures of which the largest counts, not the sum.
const LARGEST: [&str; 2] = ["peak_kib", "end_ms"];

const USAGE: &str =
    "violence [--rounds N] [--seed S] [--resume] [--round SEED] [--include DIR] [--dir DIR] [--json]";

/// What the command line asks for.
#[derive(Debug)]
struct Options {
    rounds: u32,
    seed: Option<u64>,
    resume: bool,
    /// One round, repeated by its seed.
    only: Option<u64>,
    /// The header that programs are compiled with; for tests of the judge.
    include: Option<PathBuf>,
    /// Where the state and faulty rounds are kept.
    directory: Option<PathBuf>,
    json: bool,
}

/// A campaign, as it is kept between two calls.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Campaign {
    seed: u64,
    /// Rounds that were judged, and those without a fault.
    rounds: u32,
    clean: u32,
    /// Rounds that another recorder of this machine has spoiled; they do not count.
    disturbed: u32,
    /// Number of the next round.
    next: u64,
    faulty: Vec<FaultyRound>,
    figures: BTreeMap<String, u64>,
    seconds: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct FaultyRound {
    seed: u64,
    plan: String,
    faults: Vec<Fault>,
    kept: Option<PathBuf>,
}

/// `violence`, and the processes that it starts: `violence-round`, `violence-liar`. False: a promise was broken.
pub fn run(words: &[String]) -> Result<bool> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["violence-liar", rest @ ..] => liars::run(rest),
        ["violence-round", seed, programs, directory] => {
            let files = RoundFiles { programs: programs.into(), directory: directory.into() };
            let result = round::run(seed.parse()?, &files)?;
            println!("{}", serde_json::to_string(&result)?);
            Ok(true)
        }
        [_, rest @ ..] => campaign(&Options::parse(rest)?),
        [] => bail!("{USAGE}"),
    }
}

impl Options {
    fn parse(words: &[&str]) -> Result<Options> {
        let mut options = Options {
            rounds: 20,
            seed: None,
            resume: false,
            only: None,
            include: None,
            directory: None,
            json: false,
        };
        let mut words = words.iter().flat_map(|word| match word.split_once('=') {
            Some((name, value)) => vec![name, value],
            None => vec![*word],
        });
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} takes a value"));
            match word {
                "--rounds" => options.rounds = value()?.parse().context("--rounds takes a number")?,
                "--seed" => options.seed = Some(value()?.parse().context("--seed takes a number")?),
                "--round" => options.only = Some(value()?.parse().context("--round takes a seed")?),
                "--include" => options.include = Some(value()?.into()),
                "--dir" => options.directory = Some(value()?.into()),
                "--resume" => options.resume = true,
                "--json" => options.json = true,
                "--quick" => options.rounds = 3,
                other => bail!("there is no option {other}; {USAGE}"),
            }
        }
        Ok(options)
    }

    fn directory(&self) -> Result<PathBuf> {
        if let Some(directory) = &self.directory {
            return Ok(directory.clone());
        }
        let built = program("rtscope")?;
        let target = built.parent().and_then(Path::parent).context("rtscope is in no target directory")?;
        Ok(target.join("violence"))
    }
}

fn campaign(options: &Options) -> Result<bool> {
    const UNSHARE: Tool = Tool { name: "unshare", remedy: "install util-linux" };
    const SETPRIV: Tool = Tool { name: "setpriv", remedy: "install util-linux" };
    const BABELTRACE: Tool =
        Tool { name: "babeltrace2", remedy: "install babeltrace2 (Debian: babeltrace2)" };
    requirements::check(&[
        Requirement::Root,
        Requirement::Installed(CC),
        Requirement::Installed(UNSHARE),
        Requirement::Installed(SETPRIV),
        Requirement::Installed(BABELTRACE),
        Requirement::Built("rtscope"),
    ])?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let _alone = foreign::alone()?;
    let directory = options.directory()?;
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let work = tempfile::Builder::new().prefix("rtscope-violence-").tempdir()?;
    fs::set_permissions(work.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    compile(options, work.path())?;
    let state = directory.join("state.json");
    let mut campaign = Campaign::begin(options, &state)?;
    let wanted = if options.only.is_some() { 1 } else { options.rounds };
    let disturbed_max = if options.only.is_some() { 10 } else { DISTURBED_MAX };
    while campaign.rounds < wanted && campaign.disturbed < disturbed_max {
        let seed = options.only.unwrap_or_else(|| Random(campaign.seed ^ campaign.next << 32).next() >> 1);
        let began = Instant::now();
        let place = work.path().join(format!("round-{seed}"));
        let Some(result) = one(seed, work.path(), &place, &stop)? else { break };
        campaign.next += 1;
        campaign.seconds += began.elapsed().as_secs();
        campaign.note(result, &place, &directory, began.elapsed())?;
        if options.only.is_none() {
            fs::write(&state, serde_json::to_string_pretty(&campaign)?)?;
        }
    }
    campaign.report(options)?;
    Ok(campaign.faulty.is_empty() && campaign.rounds >= wanted)
}

/// Runs a round in its world; `None`: it was interrupted.
fn one(seed: u64, work: &Path, place: &Path, stop: &AtomicBool) -> Result<Option<RoundResult>> {
    fs::create_dir(place).with_context(|| place.display().to_string())?;
    fs::set_permissions(place, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let plan = RoundPlan::of(seed);
    let world: &[&str] =
        if plan.has_containers { &["-m", "-p", "-f", "--mount-proc", "--kill-child"] } else { &["-m"] };
    let inside = "mount -t tmpfs -o size=1g,mode=1777 none /dev/shm && exec \"$0\" \"$@\"";
    let notes = fs::File::create(place.join("notes"))?;
    let mut child = Command::new("unshare")
        .args(world)
        .args(["sh", "-c", inside])
        .arg(std::env::current_exe()?)
        .args(["violence-round", &seed.to_string()])
        .args([work, place])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(notes)
        .process_group(0)
        .spawn()
        .context("unshare")?;
    let group = Pid::from_raw(child.id() as i32);
    let began = Instant::now();
    let mut result = RoundResult { seed, plan: plan.to_string(), ..RoundResult::default() };
    let mut watch = foreign::Watch::default();
    loop {
        watch.look();
        // ORDER: relaxed; a flag that stands for itself, set by a signal handler.
        let is_stopped = stop.load(Ordering::Relaxed);
        let ended = child.try_wait()?;
        let is_late = began.elapsed() > PATIENCE;
        if ended.is_none() && !is_stopped && !is_late {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        // Whatever still runs in it; it fails when nothing does.
        let _ = killpg(group, Signal::SIGKILL);
        let status = child.wait()?;
        if is_stopped {
            fs::remove_dir_all(place)?;
            return Ok(None);
        }
        let mut text = String::new();
        child.stdout.take().context("its output is a pipe")?.read_to_string(&mut text)?;
        if let Ok(found) = serde_json::from_str::<RoundResult>(&text) {
            watch.look_now();
            return Ok(Some(watch.excuse(found)));
        }
        let words = fs::read_to_string(place.join("notes")).unwrap_or_default();
        let (check, what) =
            if is_late { ("hang", "the round does not end") } else { ("round", words.as_str()) };
        result.faults.push(Fault { check: check.to_string(), what: format!("{what} ({status})") });
        return Ok(Some(result));
    }
}

/// Compiles the torture program, with and without events of its own, and its libraries.
fn compile(options: &Options, to: &Path) -> Result<()> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let include = options.include.clone().unwrap_or_else(|| crates.join("../include"));
    let sources = crates.join("testkit/c");
    let make = |source: &str, flags: &[&str], name: &str| -> Result<()> {
        let status = Command::new("cc")
            .args(["-O2", "-std=c11", "-g", "-Wall", "-Wextra", "-pthread", "-I"])
            .arg(&include)
            .args(flags)
            .arg(sources.join(source))
            .arg("-o")
            .arg(to.join(name))
            .status()?;
        ensure!(status.success(), "{source} does not compile; see above");
        Ok(())
    };
    make("violence.c", &[], "violence")?;
    make("violence.c", &["-DVIOLENCE_PLAIN"], "violence-plain")?;
    // Three files: each is loaded and unloaded by itself.
    for number in 0..3 {
        make("violence_library.c", &["-shared", "-fPIC"], &format!("library{number}.so"))?;
    }
    Ok(())
}

impl Campaign {
    fn begin(options: &Options, state: &Path) -> Result<Campaign> {
        if options.resume && options.only.is_none() {
            let text = fs::read_to_string(state)
                .with_context(|| format!("{}: there is nothing to resume", state.display()))?;
            let campaign: Campaign = serde_json::from_str(&text).context("the state of the campaign")?;
            ensure!(
                options.seed.is_none_or(|seed| seed == campaign.seed),
                "the campaign to resume has the seed {}",
                campaign.seed
            );
            eprintln!("seed {}: going on after {} rounds", campaign.seed, campaign.rounds);
            return Ok(campaign);
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let seed = options.only.or(options.seed).unwrap_or(now.as_nanos() as u64 >> 1 & 0xffff_ffff);
        eprintln!("seed {seed}");
        Ok(Campaign { seed, ..Campaign::default() })
    }

    /// Counts a round; keeps its files if it has a fault.
    fn note(&mut self, result: RoundResult, place: &Path, directory: &Path, took: Duration) -> Result<()> {
        let RoundResult { seed, plan, faults, disturbed, figures } = result;
        let is_faulty = !faults.is_empty();
        if let Some(why) = disturbed {
            self.disturbed += 1;
            eprintln!("round {seed} does not count, another recorder was in the way: {}", why.trim());
            for fault in &faults {
                eprintln!("  {}: {}", fault.check, fault.what);
            }
            fs::remove_dir_all(place)?;
            return Ok(());
        }
        self.rounds += 1;
        for (name, number) in figures {
            let figure = self.figures.entry(name.clone()).or_default();
            *figure = if LARGEST.contains(&name.as_str()) { (*figure).max(number) } else { *figure + number };
        }
        if !is_faulty {
            self.clean += 1;
            if self.rounds % 10 == 0 {
                eprintln!(
                    "{} rounds, {} clean, the last in {:.1} s",
                    self.rounds,
                    self.clean,
                    took.as_secs_f64()
                );
            }
            fs::remove_dir_all(place)?;
            return Ok(());
        }
        let kept = (self.faulty.len() < KEPT).then(|| directory.join(format!("round-{seed}")));
        eprintln!("round {seed} after {:.1} s: {plan}", took.as_secs_f64());
        for fault in &faults {
            eprintln!("  {}: {}", fault.check, fault.what);
        }
        eprintln!("  repeat it: ./x bench violence --round {seed}");
        if let Some(kept) = &kept {
            fs::write(place.join("faults.json"), serde_json::to_string_pretty(&faults)?)?;
            if kept.exists() {
                fs::remove_dir_all(kept)?;
            }
            let copied = Command::new("cp").arg("-a").args([place, kept]).status()?;
            ensure!(copied.success(), "{} is not kept", place.display());
            eprintln!("  its files: {}", kept.display());
        }
        fs::remove_dir_all(place)?;
        self.faulty.push(FaultyRound { seed, plan, faults, kept });
        Ok(())
    }

    fn report(&self, options: &Options) -> Result<()> {
        if options.json {
            let mut object = serde_json::to_value(self)?;
            object["schema"] = "rtscope.bench.violence/1".into();
            object["name"] = "violence".into();
            object["host"] = serde_json::to_value(Host::this(0))?;
            println!("{object}");
            return Ok(());
        }
        let Campaign { rounds, clean, disturbed, seed, seconds, .. } = self;
        println!("violence\n{}\n", Host::this(0));
        println!("{rounds} rounds from seed {seed}, {clean} clean, in {seconds} s; {disturbed} not counted");
        for (name, number) in &self.figures {
            println!("  {name:<14} {number}");
        }
        let mut checks = BTreeMap::<&str, u32>::new();
        for fault in self.faulty.iter().flat_map(|round| &round.faults) {
            *checks.entry(&fault.check).or_default() += 1;
        }
        for (check, count) in checks {
            println!("  BROKEN {check}: {count}");
        }
        for round in &self.faulty {
            println!("  ./x bench violence --round {}", round.seed);
        }
        Ok(())
    }
}
