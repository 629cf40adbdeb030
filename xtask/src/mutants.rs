// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `./x mutants CRATE`: changes the crate in many small ways, one at a time, and runs its tests. A change that no test notices
//! says that a promise is not tested.
//!
//! cargo-mutants makes the changes. Which ones is decided here, by a seed, so that a sample can be repeated and continued: the
//! order is that of a hash of each mutant's name. They are made in a copy of the tree, with a target directory of its own
//! that is kept, so the second run starts at once.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::root;
use crate::workspace::Workspace;

/// What `./x mutants --help` prints.
const HELP: &str = "\
./x mutants CRATE [--sample N] [--seed S] [--resume] [--file FILE]… [--json]

Changes the crate in N small ways (all of them without --sample), one after the other, and runs
the crate's tests on each. The committed tree is tested. --resume goes on with an interrupted
run of the same crate and seed. --file: only mutants of this file of the crate.

  ./x mutants ring                       every mutant
  ./x mutants user --sample 300 --seed 7

Exit code 1: a mutant survived.
";

/// The version whose output is read here.
const TOOL: &str = "cargo-mutants";
const TOOL_VERSION: &str = "27.1.0";
/// Without a test that takes longer, in seconds.
const TEST_SECONDS: u32 = 120;
const BUILD_SECONDS: u32 = 900;
/// Mutants for each call of the tool: an interrupted call costs no more.
const CHUNK: usize = 25;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    name: String,
    sample: Option<usize>,
    seed: u64,
    resume: bool,
    files: Vec<String>,
    json: bool,
}

/// What became of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Killed,
    Survived,
    TimedOut,
    /// It does not compile.
    Unviable,
}

/// `./x mutants …`
pub fn run(arguments: &[&str]) -> Result<ExitCode> {
    if let [] | ["-h" | "--help"] = arguments {
        print!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options::parse(arguments)?;
    let workspace = Workspace::read()?;
    let packages = workspace.packages(&BTreeSet::from([options.name.as_str()]));
    let package = packages.first().with_context(|| format!("there is no crate '{}'", options.name))?;
    let place = root().join("target/mutants");
    let tool = Tool::find(&place)?;
    let run = Run::prepare(&options, package, &place, tool)?;
    let names = chosen(&run.list(&options.files)?, options.seed, options.sample);
    let mut results = if options.resume { run.results()? } else { Vec::new() };
    run.baseline()?;
    loop {
        let known: BTreeSet<&str> =
            results.iter().map(|(name, _): &(String, Outcome)| name.as_str()).collect();
        let next: Vec<&String> =
            names.iter().filter(|name| !known.contains(name.as_str())).take(CHUNK).collect();
        if next.is_empty() {
            break;
        }
        let found = run.test(&next)?;
        ensure!(!found.is_empty(), "{TOOL} reported nothing");
        results.extend(found);
        run.keep(&results)?;
        eprintln!("{} of {} mutants", results.len(), names.len());
    }
    results.retain(|(name, _)| names.contains(name));
    Ok(report(&options, &results))
}

impl Options {
    fn parse(words: &[&str]) -> Result<Options> {
        let mut options = Options {
            name: String::new(),
            sample: None,
            seed: 1,
            resume: false,
            files: Vec::new(),
            json: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} takes a value"));
            match *word {
                "--sample" => options.sample = Some(value()?.parse().context("--sample takes a number")?),
                "--seed" => options.seed = value()?.parse().context("--seed takes a number")?,
                "--file" => options.files.push((*value()?).to_string()),
                "--resume" => options.resume = true,
                "--json" => options.json = true,
                other if other.starts_with('-') => bail!("there is no option {other} (./x mutants --help)"),
                name if options.name.is_empty() => options.name = name.to_string(),
                other => bail!("one crate at a time, not '{other}', too"),
            }
        }
        ensure!(!options.name.is_empty(), "which crate? (./x mutants --help)");
        Ok(options)
    }
}

/// cargo-mutants.
#[derive(Debug)]
struct Tool(PathBuf);

impl Tool {
    /// From the path, or from the project's own tools, where it is installed if it is missing.
    fn find(place: &Path) -> Result<Tool> {
        let own = place.join("tools/bin").join(TOOL);
        for path in [PathBuf::from(TOOL), own.clone()] {
            let output = Command::new(&path).args(["mutants", "--version"]).output();
            let version = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            if version.is_ok_and(|version| version.contains(TOOL_VERSION)) {
                return Ok(Tool(path));
            }
        }
        eprintln!("installing {TOOL} {TOOL_VERSION} into {}", place.join("tools").display());
        let status = crate::cargo()
            .args(["install", TOOL, "--version", TOOL_VERSION, "--locked", "--quiet", "--root"])
            .arg(place.join("tools"))
            .env_remove("CARGO_TARGET_DIR")
            .status()?;
        ensure!(
            status.success(),
            "{TOOL} {TOOL_VERSION} is missing and cannot be installed, see above. Without a network: install it \
             elsewhere with 'cargo install {TOOL} --version {TOOL_VERSION} --locked', and put it on the path"
        );
        Ok(Tool(own))
    }
}

/// A copy of the tree, and where results are kept.
#[derive(Debug)]
struct Run {
    tool: Tool,
    package: String,
    tree: PathBuf,
    target: PathBuf,
    output: PathBuf,
    state: PathBuf,
}

impl Run {
    fn prepare(options: &Options, package: &str, place: &Path, tool: Tool) -> Result<Run> {
        let tree = place.join("tree");
        if tree.exists() {
            fs::remove_dir_all(&tree)?;
        }
        fs::create_dir_all(&tree)?;
        let mut archive = Command::new("git");
        archive.arg("-c").arg(format!("safe.directory={}", root().display())).current_dir(root());
        let mut archive = archive.args(["archive", "HEAD"]).stdout(std::process::Stdio::piped()).spawn()?;
        let stdout = archive.stdout.take().context("git's output was asked for as a pipe")?;
        let unpacked = Command::new("tar").arg("-x").arg("-C").arg(&tree).stdin(stdout).status()?;
        ensure!(archive.wait()?.success() && unpacked.success(), "the tree could not be copied");
        Ok(Run {
            tool,
            package: package.to_string(),
            tree,
            target: place.join("target"),
            output: place.join(&options.name),
            state: place.join(format!("{}-{}.json", options.name, options.seed)),
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.tool.0);
        command.arg("mutants").current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        command.args(["--package", &self.package]);
        command
    }

    /// The names of all mutants.
    fn list(&self, files: &[String]) -> Result<Vec<String>> {
        let mut command = self.command();
        command.args(["--list", "--json"]);
        for file in files {
            command.arg("--file").arg(format!("**/{file}"));
        }
        let output = command.output()?;
        ensure!(output.status.success(), "{TOOL}: {}", String::from_utf8_lossy(&output.stderr));
        let list: Value = serde_json::from_slice(&output.stdout).context("the list of mutants")?;
        let names = list.as_array().context("a list")?.iter();
        Ok(names.filter_map(|mutant| mutant["name"].as_str().map(str::to_string)).collect())
    }

    /// The tests pass without a change.
    fn baseline(&self) -> Result<()> {
        let mut command = crate::cargo();
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        let status = command.args(["test", "--quiet", "--package", &self.package]).status()?;
        ensure!(status.success(), "the tests of {} fail already without a mutant", self.package);
        Ok(())
    }

    /// Tests some mutants. What the tool was interrupted in is not among the results.
    fn test(&self, names: &[&String]) -> Result<Vec<(String, Outcome)>> {
        if self.output.exists() {
            fs::remove_dir_all(&self.output)?;
        }
        fs::create_dir_all(&self.output)?;
        let mut command = self.command();
        command.args(["--in-place", "--baseline", "skip", "--no-shuffle", "--output"]).arg(&self.output);
        command.args(["--timeout", &TEST_SECONDS.to_string(), "--build-timeout", &BUILD_SECONDS.to_string()]);
        command.args(names.iter().flat_map(|name| ["--re".to_string(), format!("^{}$", escaped(name))]));
        // Its exit code says that mutants survived, which the outcomes say, too.
        command.status()?;
        let text = fs::read_to_string(self.output.join("mutants.out/outcomes.json"))?;
        outcomes(&serde_json::from_str(&text).context("the outcomes")?)
    }

    fn keep(&self, results: &[(String, Outcome)]) -> Result<()> {
        let list: Vec<Value> = results.iter().map(|(name, outcome)| json!([name, outcome.word()])).collect();
        Ok(fs::write(&self.state, serde_json::to_string_pretty(&list)?)?)
    }

    fn results(&self) -> Result<Vec<(String, Outcome)>> {
        let text = fs::read_to_string(&self.state)
            .with_context(|| format!("{}: there is nothing to resume", self.state.display()))?;
        let list: Vec<(String, String)> = serde_json::from_str(&text)?;
        Ok(list.into_iter().filter_map(|(name, word)| Some((name, Outcome::of(&word)?))).collect())
    }
}

impl Outcome {
    const ALL: [Outcome; 4] = [Outcome::Killed, Outcome::Survived, Outcome::TimedOut, Outcome::Unviable];

    fn word(self) -> &'static str {
        match self {
            Outcome::Killed => "killed",
            Outcome::Survived => "survived",
            Outcome::TimedOut => "timed out",
            Outcome::Unviable => "unviable",
        }
    }

    fn of(word: &str) -> Option<Outcome> {
        Outcome::ALL.into_iter().find(|outcome| outcome.word() == word)
    }
}

/// What the tool's file of outcomes says of each mutant.
fn outcomes(file: &Value) -> Result<Vec<(String, Outcome)>> {
    let mut found = Vec::new();
    for outcome in file["outcomes"].as_array().context("a list of outcomes")? {
        let Some(name) = outcome["scenario"]["Mutant"]["name"].as_str() else { continue };
        let outcome = match outcome["summary"].as_str() {
            Some("CaughtMutant") => Outcome::Killed,
            Some("MissedMutant") => Outcome::Survived,
            Some("Timeout") => Outcome::TimedOut,
            Some("Unviable") => Outcome::Unviable,
            other => bail!("{name}: an unknown outcome, {other:?}"),
        };
        found.push((name.to_string(), outcome));
    }
    Ok(found)
}

/// A name as a regular expression.
fn escaped(name: &str) -> String {
    name.chars()
        .flat_map(|letter| {
            let is_plain = letter.is_alphanumeric() || "_ /<>&,:'\"-=!%@#~`;".contains(letter);
            (!is_plain).then_some('\\').into_iter().chain([letter])
        })
        .collect()
}

/// A sample of the names: the first ones in the order of their hashes.
fn chosen(names: &[String], seed: u64, sample: Option<usize>) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort_by_key(|name| mixed(seed ^ hash(name)));
    names.truncate(sample.unwrap_or(usize::MAX));
    names
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A step of SplitMix64.
fn mixed(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn report(options: &Options, results: &[(String, Outcome)]) -> ExitCode {
    let count = |wanted: Outcome| results.iter().filter(|(_, outcome)| *outcome == wanted).count();
    let [killed, survived, timed_out, unviable] = Outcome::ALL.map(count);
    let share = 100.0 * killed as f64 / (killed + survived).max(1) as f64;
    let mut survivors: Vec<&str> = Vec::new();
    survivors
        .extend(results.iter().filter(|(_, it)| *it == Outcome::Survived).map(|(name, _)| name.as_str()));
    survivors.sort_unstable();
    if options.json {
        println!(
            "{}",
            json!({
                "schema": "rtscope.mutants/1", "crate": options.name, "seed": options.seed, "mutants": results.len(),
                "killed": killed, "survived": survived, "timed_out": timed_out, "unviable": unviable,
                "killed_percent": share, "survivors": survivors,
            })
        );
    } else {
        survivors.iter().for_each(|name| println!("survived: {name}"));
        println!(
            "{}, seed {}: of {} mutants {killed} killed, {survived} survived, {timed_out} timed out, {unviable} did not \
             compile; killed of killed and survived: {share:.1} %",
            options.name,
            options.seed,
            results.len()
        );
    }
    if survived == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_follows_from_the_seed_and_is_the_begin_of_a_larger_one() {
        let names: Vec<String> =
            (0..100).map(|number| format!("a.rs:{number}:1: replace + with -")).collect();
        let sample = chosen(&names, 7, Some(10));
        assert_eq!(sample, chosen(&names, 7, Some(50))[..10]);
        assert_ne!(sample, chosen(&names, 8, Some(10)));
        let mut all = chosen(&names, 7, None);
        all.sort_unstable();
        let mut expected = names.clone();
        expected.sort_unstable();
        assert_eq!(all, expected);
    }

    #[test]
    fn outcomes_are_told_apart_and_the_baseline_is_none() {
        let one =
            |name: &str, summary: &str| json!({"scenario": {"Mutant": {"name": name}}, "summary": summary});
        let file = json!({"outcomes": [
            {"scenario": "Baseline", "summary": "Success"},
            one("a", "CaughtMutant"), one("b", "MissedMutant"), one("c", "Timeout"), one("d", "Unviable"),
        ]});
        let found = outcomes(&file).expect("all are known");
        let all: Vec<_> = ["a", "b", "c", "d"].into_iter().map(str::to_string).zip(Outcome::ALL).collect();
        assert_eq!(found, all);
        assert!(outcomes(&json!({"outcomes": [one("a", "Strange")]})).is_err());
    }

    #[test]
    fn a_name_is_found_by_its_expression_only() {
        assert_eq!(
            escaped("a.rs:1:2: replace f -> (u64) with ()"),
            "a\\.rs:1:2: replace f -> \\(u64\\) with \\(\\)"
        );
        let options =
            Options::parse(&["programs", "--sample", "3", "--seed", "9", "--resume"]).expect("right");
        assert_eq!(
            (options.name.as_str(), options.sample, options.seed, options.resume),
            ("programs", Some(3), 9, true)
        );
        assert!(Options::parse(&["--sample", "3"]).is_err() && Options::parse(&["a", "b"]).is_err());
    }
}
