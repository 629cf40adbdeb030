// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `./x bench NAME --against COMMIT`: the benchmark of a commit and that of the tree in one run.
//!
//! Two results of different days differ by the machine's mood more than by most changes. Here short runs (`--quick`) of both
//! builds lie right after each other, the first one alternating at random, and each pair gives one difference: what drifts more
//! slowly than a pair takes falls out. Each benchmark pins its load to its CPU as it always does.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::builds::{self, Build, Commit};
use super::figures::{Figure, Pair, Reading, Verdict, compare};
use super::statistics::{CONFIDENCE, Random};
use super::{CANNOT_RUN, Invocation};

/// Pairs, unless `--rounds` says otherwise.
const ROUNDS: usize = 12;
/// Pairs without which there is no interval of this confidence.
const ROUNDS_MIN: usize = 6;
/// The exact test is calculated for this many.
const ROUNDS_MAX: usize = 200;
/// In the output.
const METHOD: &str =
    "new / old in each pair: Hodges-Lehmann estimate and interval of Wilcoxon's signed-rank test, exact";

/// What to compare, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    pub commit: String,
    pub rounds: usize,
    /// `None`: a new one each time.
    pub seed: Option<u64>,
}

impl Comparison {
    /// Takes its options out of the arguments; `None`: there is no `--against`.
    pub fn take(arguments: &mut Vec<String>) -> Result<Option<Comparison>> {
        let commit = take_value(arguments, "--against")?;
        let rounds = take_value(arguments, "--rounds")?;
        let seed = take_value(arguments, "--seed")?;
        let Some(commit) = commit else {
            ensure!(rounds.is_none() && seed.is_none(), "--rounds and --seed go with --against COMMIT");
            return Ok(None);
        };
        let rounds = match rounds {
            None => ROUNDS,
            Some(text) => {
                text.parse().ok().filter(|rounds| (1..=ROUNDS_MAX).contains(rounds)).with_context(|| {
                    format!("--rounds takes a number from 1 to {ROUNDS_MAX}; intervals need {ROUNDS_MIN}")
                })?
            }
        };
        let seed =
            seed.map(|text| text.parse().with_context(|| format!("--seed takes a number, not '{text}'")));
        Ok(Some(Comparison { commit, rounds, seed: seed.transpose()? }))
    }
}

/// The value of `--name VALUE` or `--name=VALUE`, which is taken out.
fn take_value(arguments: &mut Vec<String>, name: &str) -> Result<Option<String>> {
    let is_it =
        |word: &String| word == name || word.strip_prefix(name).is_some_and(|rest| rest.starts_with('='));
    let Some(at) = arguments.iter().position(is_it) else { return Ok(None) };
    let word = arguments.remove(at);
    if let Some((_, value)) = word.split_once('=') {
        return Ok(Some(value.to_string()));
    }
    ensure!(at < arguments.len(), "{name} takes a value");
    Ok(Some(arguments.remove(at)))
}

/// Which build runs first in each pair: either in half of them, in random order.
fn order(rounds: usize, seed: u64) -> Vec<bool> {
    let mut order: Vec<bool> = (0..rounds).map(|round| round % 2 == 0).collect();
    Random(seed).shuffle(&mut order);
    order
}

/// Why a run gave nothing.
#[derive(Debug)]
enum Failure {
    /// It said what is missing here.
    CannotRun(String),
    Other(anyhow::Error),
}

/// Compares, and prints what was found.
pub fn run(invocation: &Invocation, comparison: &Comparison) -> Result<ExitCode> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seed = comparison.seed.unwrap_or(now.as_secs() ^ u64::from(now.subsec_nanos()));
    let commit = Commit::find(&comparison.commit)?;
    let tree = TreeState { head: Commit::find("HEAD")?, modified: builds::is_modified()? };
    let builds = [builds::of_commit(&commit)?, builds::of_tree()?];
    // Once each: they warm everything up, and whatever does not work is said at once.
    let start = Instant::now();
    let mut hosts = Vec::new();
    for (build, name) in builds.iter().zip([comparison.commit.as_str(), "the tree"]) {
        match reading(build, invocation) {
            Ok(reading) => hosts.push(reading.host),
            Err(Failure::CannotRun(reason)) => {
                eprintln!("{name}: {reason}");
                return Ok(ExitCode::from(CANNOT_RUN));
            }
            Err(Failure::Other(error)) => {
                return Err(error.context(format!("benchmark {} of {name}", invocation.name)));
            }
        }
    }
    announce(comparison.rounds, start.elapsed());
    let (pairs, failures) = measure(&builds, invocation, &order(comparison.rounds, seed));
    if pairs.len() * 2 < comparison.rounds {
        bail!("{} of {} pairs gave nothing: {}", failures.len(), comparison.rounds, failures.join("; "));
    }
    let result = ComparisonResult {
        invocation,
        comparison,
        commit,
        tree,
        seed,
        hosts,
        pairs: pairs.len(),
        failures,
        unit: unit(&pairs),
        figures: compare(&pairs),
    };
    println!("{}", if invocation.json { result.json().to_string() } else { result.text() });
    Ok(ExitCode::SUCCESS)
}

fn unit(pairs: &[Pair]) -> String {
    pairs.first().map_or(String::new(), |pair| pair.new.unit.clone())
}

fn announce(rounds: usize, each: Duration) {
    let minutes = each.as_secs_f64() * rounds as f64 / 60.0;
    eprintln!("{rounds} pairs of {:.0} s: about {minutes:.1} min", each.as_secs_f64());
    if rounds < ROUNDS_MIN {
        eprintln!("fewer than {ROUNDS_MIN} pairs have no interval of {:.0} %", CONFIDENCE * 100.0);
    }
}

/// All pairs, and why some are missing.
fn measure(builds: &[Build; 2], invocation: &Invocation, order: &[bool]) -> (Vec<Pair>, Vec<String>) {
    let (mut pairs, mut failures) = (Vec::new(), Vec::new());
    for (round, old_first) in order.iter().enumerate() {
        eprintln!("pair {} of {}: {} first", round + 1, order.len(), if *old_first { "old" } else { "new" });
        match pair(builds, invocation, *old_first) {
            Ok(pair) => pairs.push(pair),
            Err(Failure::CannotRun(reason)) => failures.push(reason),
            Err(Failure::Other(error)) => failures.push(format!("{error:#}")),
        }
    }
    (pairs, failures)
}

fn pair(builds: &[Build; 2], invocation: &Invocation, old_first: bool) -> Result<Pair, Failure> {
    let [old, new] = builds;
    if old_first {
        let old = reading(old, invocation)?;
        return Ok(Pair { old, new: reading(new, invocation)? });
    }
    let new = reading(new, invocation)?;
    Ok(Pair { old: reading(old, invocation)?, new })
}

fn reading(build: &Build, invocation: &Invocation) -> Result<Reading, Failure> {
    let mut command = Command::new(&build.program);
    command.arg(&invocation.name).args(&invocation.rest).args(["--quick", "--json"]);
    command.current_dir(&build.sources).stdin(Stdio::null());
    let output =
        command.output().with_context(|| build.program.display().to_string()).map_err(Failure::Other)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let words = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(i32::from(CANNOT_RUN)) {
        return Err(Failure::CannotRun(words.trim().to_string()));
    }
    let said = || format!("it ended with {}: {} {}", output.status, text.trim(), words.trim());
    // 1: a limit is exceeded, which the comparison does not ask about.
    if !matches!(output.status.code(), Some(0 | 1)) {
        return Err(Failure::Other(anyhow::anyhow!(said())));
    }
    Reading::of(&text, &invocation.name).map_err(Failure::Other)
}

/// What the tree has.
#[derive(Debug)]
struct TreeState {
    head: Commit,
    modified: bool,
}

#[derive(Debug)]
struct ComparisonResult<'a> {
    invocation: &'a Invocation,
    comparison: &'a Comparison,
    commit: Commit,
    tree: TreeState,
    seed: u64,
    /// As each build describes it.
    hosts: Vec<serde_json::Value>,
    pairs: usize,
    failures: Vec<String>,
    unit: String,
    figures: Vec<Figure>,
}

impl ComparisonResult<'_> {
    fn json(&self) -> serde_json::Value {
        json!({
            "schema": "rtscope.bench.comparison/1",
            "benchmark": self.invocation.name,
            "arguments": self.invocation.rest,
            "unit": self.unit,
            "old": {"name": self.comparison.commit, "commit": self.commit.0},
            "new": {"commit": self.tree.head.0, "modified": self.tree.modified},
            "host": self.hosts.last(),
            "old_host": self.hosts.first(),
            "pairs": self.pairs,
            "failed_pairs": self.failures,
            "seed": self.seed,
            "method": METHOD,
            "confidence": CONFIDENCE,
            "figures": self.figures.iter().map(Figure::json).collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let modified = if self.tree.modified { ", modified" } else { "" };
        let mut lines = vec![
            format!("{} ({})", self.invocation.name, self.unit),
            format!("old: {} ({})", self.comparison.commit, self.commit.short()),
            format!("new: the tree ({}{modified})", self.tree.head.short()),
            self.host(),
            format!("{} pairs of short runs, seed {}; {METHOD}", self.pairs, self.seed),
            String::new(),
        ];
        let width = self.figures.iter().map(|figure| figure.name.chars().count()).max().unwrap_or(0);
        let interval = format!("{:.0} % interval", CONFIDENCE * 100.0);
        lines.push(format!(
            "{:<width$} {:>11} {:>11} {:>9}  {interval:<22} {:>5}",
            "", "old median", "new median", "change", "pairs"
        ));
        let number = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.3}"));
        for figure in &self.figures {
            let (change, interval) = figure.change.text();
            let mark = match figure.change.verdict() {
                Verdict::Higher | Verdict::Lower => format!("  {}", figure.change.verdict().name()),
                Verdict::NoDifference | Verdict::Unknown => String::new(),
            };
            lines.push(format!(
                "{:<width$} {:>11} {:>11} {change:>9}  {interval:<22} {:>5}{mark}",
                figure.name,
                number(figure.old),
                number(figure.new),
                figure.pairs
            ));
        }
        lines.push(String::new());
        lines.push("Without any change, about one figure in 20 is called higher or lower.".to_string());
        lines.extend(self.failures.iter().map(|failure| format!("a pair gave nothing: {failure}")));
        lines.join("\n")
    }

    fn host(&self) -> String {
        let of = |host: &serde_json::Value| {
            let text = |name: &str| host[name].as_str().unwrap_or("unknown").to_string();
            let kind = if host["virtual_machine"] == true { "virtual" } else { "bare metal" };
            format!(
                "{} x {} ({kind}), Linux {}, clock {}; pinned to CPU {}",
                host["cpus"],
                text("processor"),
                text("kernel"),
                text("clocksource"),
                host["bench_cpu"]
            )
        };
        match self.hosts.as_slice() {
            [old, new] if old != new => format!("{}\nthe old build says otherwise: {}", of(new), of(old)),
            [.., new] => of(new),
            [] => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(words: &[&str]) -> (Result<Option<Comparison>>, Vec<String>) {
        let mut arguments = words.iter().map(|word| (*word).to_string()).collect();
        (Comparison::take(&mut arguments), arguments)
    }

    #[test]
    fn options_are_taken_out_of_the_arguments() {
        let (found, rest) =
            take(&["hot set", "--against", "HEAD~3", "--rounds=8", "--place=disk", "--seed", "7"]);
        let expected = Comparison { commit: "HEAD~3".to_string(), rounds: 8, seed: Some(7) };
        assert_eq!(
            (found.expect("valid"), rest),
            (Some(expected), vec!["hot set".into(), "--place=disk".into()])
        );
        assert_eq!(take(&["--quick"]).0.expect("valid"), None);
        let (found, _) = take(&["--against=main"]);
        assert_eq!(found.expect("valid").map(|it| (it.rounds, it.seed)), Some((ROUNDS, None)));
        for wrong in [&["--rounds", "3"][..], &["--seed=1"], &["--against"], &["--against=a", "--rounds=0"]] {
            assert!(take(wrong).0.is_err(), "{wrong:?}");
        }
        assert!(take(&["--against=a", "--seed=x"]).0.is_err());
    }

    #[test]
    fn each_build_is_first_in_half_of_the_pairs_in_an_order_of_the_seed() {
        let first = order(20, 1);
        assert_eq!(first.iter().filter(|old_first| **old_first).count(), 10);
        assert_eq!(first, order(20, 1));
        assert_ne!(first, order(20, 2));
        assert!(first.windows(2).any(|pair| pair[0] == pair[1]), "it does not simply alternate");
    }

    #[test]
    fn a_result_says_what_was_compared_and_how() {
        let invocation = Invocation { name: "flip".to_string(), rest: vec![], json: false };
        let comparison = Comparison { commit: "HEAD~1".to_string(), rounds: 6, seed: None };
        let report = |value: f64| {
            let rows = json!([{"what": "banks", "samples": [value]}]);
            let report =
                json!({"schema": "rtscope.bench/1", "unit": "ms", "host": {}, "rows": rows, "promises": []});
            Reading::of(&report.to_string(), "flip").expect("the first form")
        };
        let pairs: Vec<Pair> = (0..6).map(|_| Pair { old: report(10.0), new: report(11.0) }).collect();
        let result = ComparisonResult {
            invocation: &invocation,
            comparison: &comparison,
            commit: Commit("0123456789abcdef".to_string()),
            tree: TreeState { head: Commit("fedcba9876543210".to_string()), modified: true },
            seed: 42,
            hosts: vec![json!({"cpus": 2, "kernel": "6.1"}), json!({"cpus": 2, "kernel": "6.1"})],
            pairs: 6,
            failures: vec!["perf went away".to_string()],
            unit: unit(&pairs),
            figures: compare(&pairs),
        };
        let text = result.text();
        for part in [
            "HEAD~1 (0123456789ab)",
            "fedcba987654, modified",
            "seed 42",
            "× 1.100",
            "1.100 to 1.100",
            "higher",
            "perf went away",
            "Linux 6.1",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = result.json();
        assert_eq!(json["figures"][0]["verdict"], "higher");
        assert_eq!((json["seed"].as_u64(), json["new"]["modified"].as_bool()), (Some(42), Some(true)));
    }
}
