// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `./x fuzz`: coverage-guided fuzzing of the parsers in `crates/fuzz`; `./x miri`: tests in an interpreter that finds undefined
//! behaviour.
//!
//! The fuzzer is libFuzzer of clang 19, which Debian has; the counters that it follows are put in by the stable Rust compiler,
//! as it calls the same pass of LLVM. So nothing is needed that the tests do not need, too.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::{cargo, root};

const HELP: &str = "\
./x fuzz NAME|all [--time 60s] [--json]   fuzzes a target, or each of them for this time
./x fuzz NAME|all --minimise              makes crates/fuzz/tests/corpus/NAME from what was found since
./x fuzz --list                           the targets

Inputs that fail are kept in crates/fuzz/tests/findings/NAME: commit them with the correction, and
ordinary tests read them from then on. Inputs that reach new code are in target/fuzz/corpus.
Exit code 1: there is a finding.
";

/// MiB in all (each target has a limit of its own, in proportion to the input), and seconds for one input.
const LIMITS: [&str; 2] = ["-rss_limit_mb=2048", "-timeout=30"];
const HOST: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };
/// Counters at every edge, and comparisons.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";
/// In the profile, where a crate can have another.
const PROFILE: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only"),
    ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true"),
    ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true"),
];
/// Of a target's inputs in the tree: the smallest ones.
const CORPUS_BYTES: u64 = 48 << 10;
/// What Miri runs: crates that make no system call, or the tests of a crate that make none. Not what loom runs (it has stacks of its own).
const MIRI: [(&str, &[&str]); 4] = [
    ("rtscope-event", &[]),
    ("rtscope-ring", &["decode", "record", "late", "expiry"]),
    ("rtscope-ftrace", &["parse::", "page::", "pattern::", "symbols::"]),
    ("rtscope-programs", &["description::", "patterns::", "records::"]),
];

/// Tests with thousands of inputs, which the fuzzer has, too, and models, which try thousands of schedules: Miri takes hours for them.
const TOO_LONG: [&str; 7] =
    ["many_laps", "every_truncation", "never_panic", "any_bytes", "at_random", "changed_anywhere", "model::"];

/// A line of the list that `crates/fuzz` prints.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    name: String,
    bytes_max: String,
    content: String,
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    targets: Vec<Target>,
    seconds: u64,
    minimise: bool,
    json: bool,
}

/// What a run says of itself at its end.
#[derive(Debug, Default, PartialEq, Eq)]
struct Figures {
    executions: u64,
    edges: u64,
    inputs: u64,
    peak_mib: u64,
}

/// `./x fuzz …`
pub fn run(arguments: &[&str]) -> Result<ExitCode> {
    if let [] | ["-h" | "--help"] = arguments {
        print!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    let all = targets()?;
    if arguments == ["--list"] {
        all.iter().for_each(|target| println!("{:10} {}", target.name, target.content));
        return Ok(ExitCode::SUCCESS);
    }
    let options = parse(arguments, &all)?;
    let program = build()?;
    let mut found = false;
    for target in &options.targets {
        let place = Place::new(target)?;
        if options.minimise {
            place.minimise(&program)?;
            continue;
        }
        found |= place.fuzz(&program, &options)?;
    }
    Ok(if found { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn parse(words: &[&str], all: &[Target]) -> Result<Options> {
    let mut options = Options { targets: Vec::new(), seconds: 60, minimise: false, json: false };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--time" => options.seconds = seconds(words.next().context("--time takes a time, such as 10m")?)?,
            "--minimise" => options.minimise = true,
            "--json" => options.json = true,
            other if other.starts_with('-') => bail!("there is no option {other} (./x fuzz --help)"),
            name => {
                let before = options.targets.len();
                options
                    .targets
                    .extend(all.iter().filter(|target| name == "all" || target.name == name).cloned());
                ensure!(options.targets.len() > before, "there is no target '{name}' (./x fuzz --list)");
            }
        }
    }
    ensure!(!options.targets.is_empty(), "which target? (./x fuzz --list)");
    Ok(options)
}

/// `90`, `90s`, `5m` or `1h`.
fn seconds(text: &str) -> Result<u64> {
    let number = text.trim_end_matches(['s', 'm', 'h']);
    let unit = match &text[number.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => bail!("'{text}' is not a time; 90s, 5m and 1h are"),
    };
    let number: u64 = number.parse().with_context(|| format!("'{text}' is not a time"))?;
    Ok(number.saturating_mul(unit))
}

/// Asks the crate.
fn targets() -> Result<Vec<Target>> {
    let output = seeder().output()?;
    ensure!(output.status.success(), "crates/fuzz: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let target = |line: &str| {
        let mut parts = line.splitn(3, '\t').map(str::to_string);
        Some(Target { name: parts.next()?, bytes_max: parts.next()?, content: parts.next()? })
    };
    text.lines()
        .map(target)
        .collect::<Option<_>>()
        .context("crates/fuzz lists its targets in an unknown form")
}

/// Without arguments it lists the targets, with a name and a directory it writes seeds.
fn seeder() -> Command {
    let mut command = cargo();
    command.args(["run", "--quiet", "-p", "rtscope-fuzz", "--example", "fuzzer", "--"]);
    command
}

fn directory() -> PathBuf {
    root().join("target/fuzz")
}

/// clang links it: it knows where its fuzzer is.
fn build() -> Result<PathBuf> {
    let mut command = cargo();
    command.args([
        "rustc",
        "--release",
        "-p",
        "rtscope-fuzz",
        "--example",
        "fuzzer",
        "--features",
        "libfuzzer",
    ]);
    command.args(["--target", HOST, "--target-dir"]).arg(directory());
    command.args(["--", "-Clinker=clang-19", "-Clink-arg=-fsanitize=fuzzer,address"]);
    command.env("RUSTFLAGS", FLAGS).env_remove("CARGO_ENCODED_RUSTFLAGS");
    let status = command.envs(PROFILE).status()?;
    ensure!(status.success(), "the fuzzer cannot be built");
    Ok(directory().join(HOST).join("release/examples/fuzzer"))
}

/// The directories of a target.
#[derive(Debug)]
struct Place<'a> {
    target: &'a Target,
    /// In the tree.
    kept: PathBuf,
    findings: PathBuf,
    /// Not in the tree.
    grown: PathBuf,
}

impl<'a> Place<'a> {
    fn new(target: &'a Target) -> Result<Place<'a>> {
        let of_crate = |name: &str| root().join("crates/fuzz/tests").join(name).join(&target.name);
        let grown = directory().join("corpus").join(&target.name);
        let place = Place { target, kept: of_crate("corpus"), findings: of_crate("findings"), grown };
        for path in [&place.kept, &place.findings, &place.grown] {
            fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        ensure!(seeder().arg(&target.name).arg(&place.grown).status()?.success(), "no seeds were written");
        Ok(place)
    }

    /// In a temporary directory of its own, in memory: most targets write small files.
    fn command(&self, program: &Path, temporary: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("RTSCOPE_FUZZ_TARGET", &self.target.name)
            .env("TMPDIR", temporary)
            .env("RUST_BACKTRACE", "0");
        // Leaks are found by the limit; looking for them after each input takes most of the time.
        command.args(LIMITS).args(["-detect_leaks=0", "-print_final_stats=1"]);
        command.arg(format!("-max_len={}", self.target.bytes_max)).current_dir(temporary);
        command
    }

    /// True: it found something.
    fn fuzz(&self, program: &Path, options: &Options) -> Result<bool> {
        let temporary = temporary()?;
        let log = directory().join(format!("{}.log", self.target.name));
        let before = files(&self.findings)?;
        let mut command = self.command(program, &temporary.0);
        command.arg(format!("-artifact_prefix={}/", self.findings.display()));
        command.arg(format!("-max_total_time={}", options.seconds));
        let dictionary = root().join("crates/fuzz/tests/dictionaries").join(&self.target.name);
        if dictionary.exists() {
            command.arg(format!("-dict={}", dictionary.display()));
        }
        command.args([&self.grown, &self.kept, &self.findings]);
        let status = command.stderr(File::create(&log)?).stdout(Stdio::null()).status()?;
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let figures = figures(&text);
        let new: Vec<String> =
            files(&self.findings)?.into_iter().filter(|file| !before.contains(file)).collect();
        let found = !status.success();
        self.report(options, &figures, found.then_some((&new, &log)));
        Ok(found)
    }

    fn report(&self, options: &Options, figures: &Figures, finding: Option<(&Vec<String>, &PathBuf)>) {
        let Figures { executions, edges, inputs, peak_mib } = figures;
        let name = &self.target.name;
        if options.json {
            let object = json!({
                "schema": "rtscope.fuzz/1", "target": name, "seconds": options.seconds, "executions": executions,
                "edges": edges, "inputs": inputs, "peak_mib": peak_mib, "failed": finding.is_some(),
                "findings": finding.map_or(&Vec::new(), |(new, _)| new),
            });
            println!("{object}");
            return;
        }
        println!("{name}: {executions} executions, {edges} edges, {inputs} inputs, {peak_mib} MiB at most");
        if let Some((new, log)) = finding {
            println!(
                "{name}: FAILED: {} in {}; the output is {}",
                new.join(", "),
                self.findings.display(),
                log.display()
            );
        }
    }

    /// The corpus of the tree becomes a small set of inputs that reach all edges that are reached now.
    fn minimise(&self, program: &Path) -> Result<()> {
        let (temporary, fresh) = (temporary()?, directory().join("minimised").join(&self.target.name));
        if fresh.exists() {
            fs::remove_dir_all(&fresh)?;
        }
        fs::create_dir_all(&fresh)?;
        let mut command = self.command(program, &temporary.0);
        let log = directory().join(format!("{}.minimise.log", self.target.name));
        // Edges only: how often each was passed would make it ten times as large.
        command
            .args(["-set_cover_merge=1", "-use_counters=0"])
            .arg(&fresh)
            .args([&self.kept, &self.grown])
            .stderr(File::create(&log)?);
        ensure!(command.status()?.success(), "{}: see {}", self.target.name, log.display());
        fs::remove_dir_all(&self.kept)?;
        fs::create_dir_all(&self.kept)?;
        let sizes = files(&fresh)?.into_iter().map(|name| Ok((fs::metadata(fresh.join(&name))?.len(), name)));
        let mut sizes = sizes.collect::<Result<Vec<_>>>()?;
        sizes.sort_unstable();
        let (mut bytes, mut count) = (0, 0);
        for (size, name) in sizes.iter().take_while(|(size, _)| {
            bytes += size;
            bytes <= CORPUS_BYTES
        }) {
            count +=
                fs::copy(fresh.join(name), self.kept.join(name)).map(|copied| u64::from(copied == *size))?;
        }
        println!("{}: {count} inputs of {}", self.target.name, sizes.len());
        Ok(())
    }
}

/// A directory that is removed when this is dropped.
struct Temporary(PathBuf);

fn temporary() -> Result<Temporary> {
    let path = PathBuf::from(format!("/dev/shm/fuzz-{}", std::process::id()));
    fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok(Temporary(path))
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            let _ = writeln!(std::io::stderr(), "{}: {error}", self.0.display());
        }
    }
}

fn files(directory: &Path) -> Result<Vec<String>> {
    let names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

/// Of libFuzzer's output: `#N … cov: EDGES ft: … corp: INPUTS/…` now and then, and `stat::…` at the end.
fn figures(text: &str) -> Figures {
    let after = |line: &str, word: &str| {
        let rest = line.split_once(word)?.1.trim_start();
        rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    let mut figures = Figures::default();
    for line in text.lines() {
        let values = [
            (after(line, "stat::number_of_executed_units:"), &mut figures.executions),
            (line.starts_with('#').then(|| after(line, " cov: ")).flatten(), &mut figures.edges),
            (line.starts_with('#').then(|| after(line, " corp: ")).flatten(), &mut figures.inputs),
            (after(line, "stat::peak_rss_mb:"), &mut figures.peak_mib),
        ];
        for (value, figure) in values {
            *figure = value.unwrap_or(*figure);
        }
    }
    figures
}

/// `./x miri`
pub fn miri() -> Result<ExitCode> {
    let there = Command::new("rustup").args(["run", "nightly", "cargo", "miri", "--version"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        bail!(
            "Miri is a part of nightly Rust only: install rustup (https://rustup.rs), then \
             'rustup toolchain install nightly --component miri,rust-src'"
        );
    }
    let mut failed = false;
    for (package, names) in MIRI {
        println!("{package} {}", names.join(" "));
        let mut command = Command::new("rustup");
        command.args(["run", "nightly", "cargo", "miri", "test", "-p", package, "--lib", "--target-dir"]);
        command.arg(directory().join("miri")).arg("--").args(names).current_dir(root());
        command.args(TOO_LONG.iter().flat_map(|name| ["--skip", name]));
        // The toolchain that runs this program is another one.
        for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
            command.env_remove(name);
        }
        failed |= !command.status()?.success();
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_output() {
        let text = "INFO: seed corpus\n#12\tINITED cov: 700 ft: 900 corp: 7/12Kb exec/s: 0 rss: 50Mb\n\
            #4096\tpulse  cov: 810 ft: 1200 corp: 31/40Kb lim: 4096 exec/s: 500 rss: 61Mb\n\
            stat::number_of_executed_units: 5000\nstat::peak_rss_mb:              77\n";
        let expected = Figures { executions: 5000, edges: 810, inputs: 31, peak_mib: 77 };
        assert_eq!(figures(text), expected);
        assert_eq!(figures("panicked\n"), Figures::default());
    }

    #[test]
    fn targets_and_times_are_read() {
        let target = |name: &str| Target {
            name: name.to_string(),
            bytes_max: "1".to_string(),
            content: String::new(),
        };
        let all = [target("a"), target("b")];
        let options = parse(&["b", "--time", "5m", "--json"], &all).expect("right");
        assert_eq!((options.targets.as_slice(), options.seconds, options.json), (&all[1..], 300, true));
        assert_eq!(parse(&["all"], &all).expect("right").targets, all);
        for wrong in
            [&["c"][..], &["--time", "1h"], &["a", "--time", "1d"], &["a", "--time", "m"], &["--what"]]
        {
            assert!(parse(wrong, &all).is_err(), "{wrong:?}");
        }
    }
}
