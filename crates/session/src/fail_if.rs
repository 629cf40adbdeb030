// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--fail-if 'max>50us'`: a small language for scripts, the same for all commands that measure.
//!
//! FIGURE, a comparison (`>`, `>=`, `<`, `<=`) and a value with its unit: `50us` for times, `1%` for shares, a number for counts. Each
//! command has figures of its own, and says which when it is asked for another. A figure that is not known fulfils no condition, and that
//! is a failure of its own kind: a script must not take it for a success.

use crate::Failure;
use crate::units::DurationNs;
use std::str::FromStr;

/// A figure's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// Nanoseconds.
    Time(Option<f64>),
    /// A number of things.
    Count(Option<u64>),
    /// A part of 1.
    Share(Option<f64>),
}

/// Figures by name.
pub type Figures = Vec<(String, Figure)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    More,
    AtLeast,
    Less,
    AtMost,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    Time(u64),
    Share(f64),
    Number(f64),
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub struct FailIf {
    text: String,
    figure: String,
    comparison: Comparison,
    limit: Limit,
}

impl FromStr for FailIf {
    type Err = String;

    fn from_str(text: &str) -> Result<FailIf, String> {
        let wrong = || format!("'{text}' is not a condition; write FIGURE>VALUE, for instance max>50us");
        let at = text.find(['<', '>']).ok_or_else(wrong)?;
        let (figure, rest) = text.split_at(at);
        let signs = [
            (">=", Comparison::AtLeast),
            ("<=", Comparison::AtMost),
            (">", Comparison::More),
            ("<", Comparison::Less),
        ];
        let found = signs.into_iter().find_map(|(sign, kind)| Some((kind, rest.strip_prefix(sign)?)));
        let (comparison, value) = found.ok_or_else(wrong)?;
        let (figure, value) = (figure.trim(), value.trim());
        if figure.is_empty() || value.is_empty() {
            return Err(wrong());
        }
        let limit = match (value.strip_suffix('%'), value.parse::<f64>()) {
            (Some(percent), _) => Limit::Share(percent.trim().parse::<f64>().map_err(|_| wrong())? / 100.0),
            (None, Ok(number)) if number.is_finite() => Limit::Number(number),
            _ => Limit::Time(value.parse::<DurationNs>()?.0),
        };
        Ok(FailIf { text: text.to_owned(), figure: figure.to_owned(), comparison, limit })
    }
}

impl FailIf {
    /// Whether it names one of these figures, and has a value of its kind.
    ///
    /// # Errors
    /// The figures that there are, or the unit that it needs.
    fn kind(&self, figures: &Figures) -> Result<Figure, Failure> {
        let wrong = |why: String| Failure::Usage(format!("--fail-if '{}': {why}", self.text));
        let Some((_, figure)) = figures.iter().find(|(name, _)| *name == self.figure) else {
            let names: Vec<&str> = figures.iter().map(|(name, _)| name.as_str()).collect();
            return Err(wrong(format!("there is no figure {}; there are {}", self.figure, names.join(", "))));
        };
        match (figure, self.limit) {
            (Figure::Time(_), Limit::Time(_))
            | (Figure::Count(_), Limit::Number(_))
            | (Figure::Share(_), Limit::Share(_) | Limit::Number(_)) => Ok(*figure),
            (Figure::Time(_), _) => Err(wrong(format!("{} is a time; write 50us or 2ms", self.figure))),
            (Figure::Count(_), _) => Err(wrong(format!("{} is a count; write a number", self.figure))),
            (Figure::Share(_), _) => Err(wrong(format!("{} is a share; write 1%", self.figure))),
        }
    }

    /// Whether it is fulfilled; `None`: the figure is not known.
    fn holds(&self, figure: Figure) -> Option<bool> {
        let value = match figure {
            Figure::Time(value) | Figure::Share(value) => value?,
            Figure::Count(value) => value? as f64,
        };
        let limit = match self.limit {
            Limit::Time(ns) => ns as f64,
            Limit::Share(value) | Limit::Number(value) => value,
        };
        Some(match self.comparison {
            Comparison::More => value > limit,
            Comparison::AtLeast => value >= limit,
            Comparison::Less => value < limit,
            Comparison::AtMost => value <= limit,
        })
    }
}

/// Before anything is measured: whether these conditions can be judged. `figures`: as they will be, values left out.
///
/// # Errors
/// What is wrong with the first that cannot.
pub fn check(conditions: &[FailIf], figures: &Figures) -> Result<(), Failure> {
    conditions.iter().try_for_each(|condition| condition.kind(figures).map(drop))
}

/// Judges what was measured.
///
/// # Errors
/// The conditions that are fulfilled; or, if none is, the first whose figure is not known.
pub fn judge(conditions: &[FailIf], figures: &Figures) -> Result<(), Failure> {
    let mut fulfilled = Vec::new();
    let mut unknown = None;
    for condition in conditions {
        let figure = condition.kind(figures)?;
        match condition.holds(figure) {
            Some(true) => fulfilled.push(format!("{} is {}", condition.figure, shown(figure))),
            Some(false) => {}
            None => unknown = unknown.or(Some(condition)),
        }
    }
    if !fulfilled.is_empty() {
        return Err(Failure::Limit(format!("{} (--fail-if)", fulfilled.join(", "))));
    }
    match unknown {
        None => Ok(()),
        Some(condition) => Err(Failure::Unmeasured(format!(
            "--fail-if '{}' cannot be judged: {} was not measured, or there were too few samples",
            condition.text, condition.figure
        ))),
    }
}

fn shown(figure: Figure) -> String {
    match figure {
        Figure::Time(value) => match value.unwrap_or(0.0) {
            ns if ns >= 1e6 => format!("{:.3} ms", ns / 1e6),
            ns if ns >= 1e3 => format!("{:.3} us", ns / 1e3),
            ns => format!("{ns:.0} ns"),
        },
        Figure::Count(value) => value.unwrap_or(0).to_string(),
        Figure::Share(value) => format!("{:.2} %", value.unwrap_or(0.0) * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        [
            ("max", Figure::Time(Some(51_000.0))),
            ("p99.9", Figure::Time(None)),
            ("late", Figure::Count(Some(3))),
            ("lost", Figure::Share(Some(0.02))),
        ]
        .map(|(name, figure)| (name.to_owned(), figure))
        .to_vec()
    }

    fn judged(text: &str) -> Result<(), Failure> {
        judge(&[text.parse().expect("a condition")], &figures())
    }

    #[test]
    fn a_condition_that_is_fulfilled_is_a_failure() {
        for text in ["max>50us", "max >= 51us", "late>2", "late<=3", "lost>1%", "lost > 0.01", "max<1ms"] {
            assert!(matches!(judged(text), Err(Failure::Limit(_))), "{text}");
        }
        for text in ["max>51us", "max>=1ms", "late>3", "lost>2%", "max<51us"] {
            assert!(judged(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_is_no_success() {
        assert!(matches!(judged("p99.9>1us"), Err(Failure::Unmeasured(_))));
    }

    #[test]
    fn a_wrong_condition_says_what_is_right() {
        for (text, word) in
            [("mxa>1us", "max, p99.9, late, lost"), ("max>50", "50us"), ("late>1us", "number")]
        {
            let Err(Failure::Usage(why)) = judged(text) else { panic!("{text}") };
            assert!(why.contains(word), "{why}");
        }
        for text in ["", "max", "max>", ">1us", "max=1us", "max>1parsec"] {
            assert!(text.parse::<FailIf>().is_err(), "{text}");
        }
    }
}
