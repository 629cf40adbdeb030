// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a benchmark printed as JSON, and how the figures of two builds compare.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::statistics::{Estimate, median};

/// The form before each benchmark had its own schema: the same rows and limits.
const FIRST_SCHEMA: &str = "rtscope.bench/1";

/// What older commits call the same figures, and what they are called now.
const RENAMED: [(&str, &str); 2] =
    [("hot set", "built-in events"), ("99.99 % of turns", "99.99 % of iterations")];

/// One run of a benchmark.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    pub unit: String,
    pub host: Value,
    /// By their names, in the order of the first run.
    figures: BTreeMap<String, f64>,
    names: Vec<String>,
}

impl Reading {
    /// Reads what a benchmark printed. Each row gives the median of its samples, each limit the value that is held against it.
    pub fn of(output: &str, benchmark: &str) -> Result<Reading> {
        let line = output.lines().rfind(|line| line.starts_with('{')).context("it printed no JSON")?;
        let report: Value = serde_json::from_str(line).context("what it printed as JSON is not")?;
        let expected = format!("rtscope.bench.{benchmark}/1");
        match report["schema"].as_str() {
            Some(schema) if schema == expected || schema == FIRST_SCHEMA => {}
            Some(schema) => {
                bail!("it prints {schema}, and this comparison reads {expected} and {FIRST_SCHEMA} only")
            }
            None => bail!("its JSON has no schema"),
        }
        if let Some(reason) = report["not_measured"]["reason"].as_str() {
            bail!("it could not measure: {reason}");
        }
        let form = || format!("its JSON has another form than {expected}");
        let mut reading = Reading {
            unit: report["unit"].as_str().with_context(form)?.to_string(),
            host: report["host"].clone(),
            figures: BTreeMap::new(),
            names: Vec::new(),
        };
        for row in report["rows"].as_array().with_context(form)? {
            let samples: Vec<f64> =
                row["samples"].as_array().with_context(form)?.iter().filter_map(Value::as_f64).collect();
            reading.add(row["what"].as_str().with_context(form)?.to_string(), median(&samples));
        }
        for limit in report["promises"].as_array().with_context(form)? {
            let name = format!("limit: {}", limit["what"].as_str().with_context(form)?);
            reading.add(name, limit["value"].as_f64());
        }
        Ok(reading)
    }

    fn add(&mut self, name: String, value: Option<f64>) {
        let name = RENAMED.iter().fold(name, |name, (before, now)| name.replace(before, now));
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.figures.insert(name.clone(), value);
            self.names.push(name);
        }
    }
}

/// Two runs right after each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    pub old: Reading,
    pub new: Reading,
}

/// How a figure changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// New by old.
    Ratio(Estimate),
    /// New less old: a ratio says nothing about values that can be zero or below.
    Difference(Estimate),
    /// The old build never has it.
    AbsentInOld,
    /// The new build never has it.
    AbsentInNew,
    /// Both have it, but never in the same pair.
    NeverPaired,
}

/// One figure of both builds.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub name: String,
    /// Pairs in which both builds have it.
    pub pairs: usize,
    pub old: Option<f64>,
    pub new: Option<f64>,
    pub change: Change,
}

/// What an interval says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Higher,
    Lower,
    NoDifference,
    /// There is no interval.
    Unknown,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Higher => "higher",
            Verdict::Lower => "lower",
            Verdict::NoDifference => "no difference",
            Verdict::Unknown => "unknown",
        }
    }
}

/// Compares all figures that any run has, those of the new build first.
pub fn compare(pairs: &[Pair]) -> Vec<Figure> {
    let mut names: Vec<&str> = Vec::new();
    for reading in pairs.iter().map(|pair| &pair.new).chain(pairs.iter().map(|pair| &pair.old)) {
        for name in &reading.names {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    names.into_iter().map(|name| figure(name, pairs)).collect()
}

fn figure(name: &str, pairs: &[Pair]) -> Figure {
    let of = |reading: &Reading| reading.figures.get(name).copied();
    let all_old: Vec<f64> = pairs.iter().filter_map(|pair| of(&pair.old)).collect();
    let all_new: Vec<f64> = pairs.iter().filter_map(|pair| of(&pair.new)).collect();
    let both: Vec<(f64, f64)> =
        pairs.iter().filter_map(|pair| Some((of(&pair.old)?, of(&pair.new)?))).collect();
    let (old, new) = if both.is_empty() {
        (median(&all_old), median(&all_new))
    } else {
        // Of the runs that are compared, so that the medians fit the change.
        let (old, new): (Vec<f64>, Vec<f64>) = both.iter().copied().unzip();
        (median(&old), median(&new))
    };
    let change = match (all_old.is_empty(), all_new.is_empty()) {
        (true, _) => Change::AbsentInOld,
        (_, true) => Change::AbsentInNew,
        _ => change(&both),
    };
    Figure { name: name.to_string(), pairs: both.len(), old, new, change }
}

fn change(both: &[(f64, f64)]) -> Change {
    let all_positive = both.iter().all(|(old, new)| *old > 0.0 && *new > 0.0);
    let differences = both.iter().map(|(old, new)| if all_positive { (new / old).ln() } else { new - old });
    match Estimate::of(&differences.collect::<Vec<f64>>()) {
        Some(estimate) if all_positive => Change::Ratio(estimate.map(f64::exp)),
        Some(estimate) => Change::Difference(estimate),
        None => Change::NeverPaired,
    }
}

impl Change {
    /// The estimate, and the value that means "as before".
    fn estimate(&self) -> Option<(Estimate, f64)> {
        match self {
            Change::Ratio(estimate) => Some((*estimate, 1.0)),
            Change::Difference(estimate) => Some((*estimate, 0.0)),
            _ => None,
        }
    }

    /// Whether the interval is on one side of "as before".
    pub fn verdict(&self) -> Verdict {
        let Some((Estimate { interval: Some((low, high)), .. }, same)) = self.estimate() else {
            return Verdict::Unknown;
        };
        if low > same {
            Verdict::Higher
        } else if high < same {
            Verdict::Lower
        } else {
            Verdict::NoDifference
        }
    }

    /// In a table: the estimate and its interval, or why there is none.
    pub fn text(&self) -> (String, String) {
        let of = |estimate: &Estimate, sign: bool| {
            let number = |value: f64| if sign { format!("{value:+.3}") } else { format!("{value:.3}") };
            let interval =
                estimate.interval.map(|(low, high)| format!("{} to {}", number(low), number(high)));
            (number(estimate.value), interval.unwrap_or_else(|| "too few pairs".to_string()))
        };
        match self {
            Change::Ratio(estimate) => {
                let (value, interval) = of(estimate, false);
                (format!("× {value}"), interval)
            }
            Change::Difference(estimate) => of(estimate, true),
            Change::AbsentInOld => ("absent".to_string(), "in the old build".to_string()),
            Change::AbsentInNew => ("absent".to_string(), "in the new build".to_string()),
            Change::NeverPaired => ("-".to_string(), "never in one pair".to_string()),
        }
    }
}

impl Figure {
    /// For programs.
    pub fn json(&self) -> Value {
        let kind = match self.change {
            Change::Ratio(_) => "ratio",
            Change::Difference(_) => "difference",
            Change::AbsentInOld => "absent_in_old",
            Change::AbsentInNew => "absent_in_new",
            Change::NeverPaired => "never_paired",
        };
        let estimate = self.change.estimate().map(|(estimate, _)| estimate);
        let interval = estimate.and_then(|estimate| estimate.interval);
        json!({
            "name": self.name,
            "pairs": self.pairs,
            "old_median": self.old,
            "new_median": self.new,
            "change": kind,
            "estimate": estimate.map(|estimate| estimate.value),
            "low": interval.map(|(low, _)| low),
            "high": interval.map(|(_, high)| high),
            "verdict": self.change.verdict().name(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::statistics::Random;
    use super::*;

    fn reading(figures: &[(&str, f64)]) -> Reading {
        let rows: Vec<Value> =
            figures.iter().map(|(what, value)| json!({"what": what, "samples": [value]})).collect();
        let report =
            json!({"schema": "rtscope.bench.flip/1", "unit": "ms", "host": {}, "rows": rows, "promises": []});
        Reading::of(&format!("noise\n{report}\n"), "flip").expect("a report")
    }

    fn pairs(values: impl Iterator<Item = (f64, f64)>) -> Vec<Pair> {
        values.map(|(old, new)| Pair { old: reading(&[("a", old)]), new: reading(&[("a", new)]) }).collect()
    }

    #[test]
    fn rows_give_their_medians_and_limits_their_values() {
        let report = r#"{"schema":"rtscope.bench/1","unit":"ns","host":{"cpus":2},
            "rows":[{"what":"a","samples":[1.0,5.0,2.0]},{"what":"b","samples":[]},{"what":"c","samples":[null]}],
            "promises":[{"what":"a / b","value":0.5},{"what":"b / a","value":null}]}"#
            .replace('\n', " ");
        let reading = Reading::of(&report, "flip").expect("the first form");
        assert_eq!(reading.names, ["a", "limit: a / b"]);
        assert_eq!((reading.figures["a"], reading.figures["limit: a / b"]), (2.0, 0.5));
        assert_eq!((reading.unit.as_str(), &reading.host["cpus"]), ("ns", &json!(2)));
    }

    #[test]
    fn a_figure_of_an_older_commit_has_the_name_of_today() {
        let reading = reading(&[("hackbench, hot set: alone", 1.0)]);
        assert_eq!(reading.names, ["hackbench, built-in events: alone"]);
    }

    #[test]
    fn another_form_is_refused_with_its_name() {
        for (output, why) in [
            ("benchmark failed: no perf", "it printed no JSON"),
            ("{\"rows\"", "is not"),
            (r#"{"rows":[]}"#, "has no schema"),
            (
                r#"{"schema":"rtscope.bench.flip/2"}"#,
                "it prints rtscope.bench.flip/2, and this comparison reads",
            ),
            (r#"{"schema":"rtscope.bench.idle/1"}"#, "it prints rtscope.bench.idle/1"),
            (r#"{"schema":"rtscope.bench.flip/1","unit":"ns"}"#, "another form"),
            (
                r#"{"schema":"rtscope.bench.flip/1","not_measured":{"reason":"no root"}}"#,
                "could not measure: no root",
            ),
        ] {
            let error = Reading::of(output, "flip").expect_err(output).to_string();
            assert!(error.contains(why), "{output}: {error}");
        }
    }

    #[test]
    fn neighbours_are_compared_so_that_drift_falls_out() {
        // The machine becomes three times slower during the measurement; the new build always takes 5 % more.
        let drifting = pairs((0..10).map(|at| 100.0 + 20.0 * f64::from(at)).map(|old| (old, old * 1.05)));
        let figures = compare(&drifting);
        let Change::Ratio(estimate) = figures[0].change else { panic!("{:?}", figures[0]) };
        assert!((estimate.value - 1.05).abs() < 1e-9, "{estimate:?}");
        assert_eq!(figures[0].change.verdict(), Verdict::Higher);
        assert_eq!((figures[0].pairs, figures[0].old), (10, Some(190.0)));
    }

    #[test]
    fn a_change_within_the_noise_is_no_difference() {
        let mut random: Vec<f64> = (0..12).map(f64::from).collect();
        Random(3).shuffle(&mut random);
        let noisy = pairs((0..12).map(|at| (100.0 + random[at], 100.0 + random[11 - at])));
        assert_eq!(compare(&noisy)[0].change.verdict(), Verdict::NoDifference);
        let few = pairs((0..5).map(|_| (100.0, 200.0)));
        assert_eq!(compare(&few)[0].change.verdict(), Verdict::Unknown);
        let faster = pairs((0..8).map(|at| (100.0 + f64::from(at), 80.0)));
        assert_eq!(compare(&faster)[0].change.verdict(), Verdict::Lower);
    }

    #[test]
    fn values_that_are_not_positive_have_a_difference_and_no_ratio() {
        let around_zero = pairs((0..8).map(|at| (-0.5 + 0.1 * f64::from(at), 2.0)));
        let figure = &compare(&around_zero)[0];
        assert!(matches!(figure.change, Change::Difference(_)), "{figure:?}");
        assert_eq!(figure.change.verdict(), Verdict::Higher);
        let none = pairs((0..8).map(|_| (0.0, 0.0)));
        assert_eq!(compare(&none)[0].change.verdict(), Verdict::NoDifference);
    }

    #[test]
    fn a_figure_that_a_build_does_not_have_is_absent() {
        let pair =
            Pair { old: reading(&[("a", 1.0), ("gone", 1.0)]), new: reading(&[("a", 1.0), ("come", 2.0)]) };
        let figures = compare(&[pair]);
        let of = |name: &str| figures.iter().find(|figure| figure.name == name).expect(name);
        assert_eq!((of("gone").change, of("gone").old), (Change::AbsentInNew, Some(1.0)));
        assert_eq!((of("come").change, of("come").new), (Change::AbsentInOld, Some(2.0)));
        assert_eq!(of("come").json()["change"], "absent_in_old");
        let crossed = [
            Pair { old: reading(&[("a", 1.0)]), new: reading(&[]) },
            Pair { old: reading(&[]), new: reading(&[("a", 1.0)]) },
        ];
        assert_eq!(compare(&crossed)[0].change, Change::NeverPaired);
    }
}
