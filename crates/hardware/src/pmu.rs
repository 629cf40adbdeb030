// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A PMU as the kernel describes it in sysfs, and an event of it as users of perf write it: `intel_pt/cyc=1,mtc_period=3/u`.
//!
//! Which bits a term means is read from `format`, what the unit can do from `caps`: nothing is assumed of a unit that has another name.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Below the root directory.
const PMUS: &str = "sys/bus/event_source/devices";

/// Why an event cannot be asked for.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PmuError {
    /// There is no such PMU.
    #[error("there is no PMU {0} (/sys/bus/event_source/devices)")]
    Absent(String),
    /// Its description is not understood.
    #[error("{}: {why}", path.display())]
    Description {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The PMU has no such term.
    #[error("{pmu} has no term '{term}'; it has {known}")]
    NoTerm {
        /// The PMU.
        pmu: String,
        /// The term.
        term: String,
        /// Those that there are.
        known: String,
    },
    /// The value has more bits than the term.
    #[error("{term}={value}: the largest value is {largest}")]
    TooLarge {
        /// The term.
        term: String,
        /// Its value.
        value: u64,
        /// What fits.
        largest: u64,
    },
}

/// The bits of a term: a word of the configuration and ranges in it, the lowest first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bits {
    word: usize,
    ranges: Vec<(u32, u32)>,
}

impl Bits {
    /// `config:0-7,32`, `config1:3`.
    fn parse(text: &str) -> Option<Bits> {
        let (word, ranges) = text.trim().split_once(':')?;
        let word = match word {
            "config" => 0,
            "config1" => 1,
            "config2" => 2,
            _ => return None,
        };
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let range = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
            (range.0 <= range.1 && range.1 < 64).then_some(range)
        };
        Some(Bits { word, ranges: ranges.split(',').map(range).collect::<Option<_>>()? })
    }

    fn width(&self) -> u32 {
        self.ranges.iter().map(|(first, last)| last - first + 1).sum()
    }

    fn largest(&self) -> u64 {
        u64::MAX.checked_shr(64 - self.width().min(64)).unwrap_or(0)
    }

    fn place(&self, value: u64, config: &mut [u64; 3]) {
        let mut rest = value;
        for (first, last) in &self.ranges {
            let width = last - first + 1;
            let mask = u64::MAX >> (64 - width);
            config[self.word] = config[self.word] & !(mask << first) | (rest & mask) << first;
            rest = rest.checked_shr(width).unwrap_or(0);
        }
    }
}

/// An event of a PMU, as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSpec {
    /// The PMU.
    pub pmu: String,
    /// Its terms, in order; a term without a value has the value 1.
    pub terms: Vec<(String, u64)>,
    /// Only user space (`/u`).
    pub user_only: bool,
    /// Only the kernel (`/k`).
    pub kernel_only: bool,
}

impl FromStr for EventSpec {
    type Err = String;

    /// `NAME`, `NAME/TERM=VALUE,…/`, and behind the second slash `u`, `k` or both.
    fn from_str(text: &str) -> Result<EventSpec, String> {
        let mut parts = text.splitn(3, '/');
        let (pmu, terms) = (parts.next().unwrap_or_default(), parts.next());
        let modifiers = parts.next();
        // The name becomes a part of a path.
        if pmu.is_empty() || !pmu.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(format!("'{pmu}' is not the name of a PMU; write intel_pt or intel_pt/cyc=1/u"));
        }
        if terms.is_some() && modifiers.is_none() {
            return Err(format!("'{text}': a second / is missing behind the terms"));
        }
        let term = |text: &str| {
            let (name, value) = text.split_once('=').unwrap_or((text, "1"));
            let number = match value.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => value.parse(),
            };
            let number = number.map_err(|_| format!("{name}={value}: the value is not a number"))?;
            Ok::<_, String>((name.to_owned(), number))
        };
        let terms = terms.unwrap_or_default().split(',').filter(|text| !text.is_empty());
        let modifiers = modifiers.unwrap_or_default();
        if let Some(other) = modifiers.chars().find(|c| !matches!(c, 'u' | 'k')) {
            return Err(format!("'{other}' behind the terms: u is user space, k is the kernel"));
        }
        let (user, kernel) = (modifiers.contains('u'), modifiers.contains('k'));
        Ok(EventSpec {
            pmu: pmu.to_owned(),
            terms: terms.map(term).collect::<Result<_, _>>()?,
            user_only: user && !kernel,
            kernel_only: kernel && !user,
        })
    }
}

/// A PMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pmu {
    /// Its name.
    pub name: String,
    /// Its number, which an event's attribute has.
    pub number: u32,
    formats: BTreeMap<String, Bits>,
    directory: PathBuf,
}

impl Pmu {
    /// Reads a PMU's description below a root directory (`/`, or a tree of files from another machine).
    ///
    /// # Errors
    /// When there is none of that name, or its description is not understood.
    pub fn read(root: &Path, name: &str) -> Result<Pmu, PmuError> {
        let directory = root.join(PMUS).join(name);
        let Some(number) = text(&directory.join("type")) else {
            return Err(PmuError::Absent(name.to_owned()));
        };
        let wrong = |path: PathBuf, why: String| PmuError::Description { path, why };
        let number = number
            .parse()
            .map_err(|_| wrong(directory.join("type"), format!("'{number}' is not a number")))?;
        let mut formats = BTreeMap::new();
        for entry in fs::read_dir(directory.join("format")).into_iter().flatten().flatten() {
            let path = entry.path();
            let content = text(&path).unwrap_or_default();
            let bits =
                Bits::parse(&content).ok_or_else(|| wrong(path, format!("'{content}' names no bits")))?;
            formats.insert(entry.file_name().to_string_lossy().into_owned(), bits);
        }
        Ok(Pmu { name: name.to_owned(), number, formats, directory })
    }

    /// The configuration of terms; later ones go before earlier ones.
    ///
    /// # Errors
    /// A term that the PMU does not have, or a value that does not fit.
    pub fn config(&self, terms: &[(String, u64)]) -> Result<[u64; 3], PmuError> {
        let mut config = [0; 3];
        for (term, value) in terms {
            let bits = self.formats.get(term).ok_or_else(|| PmuError::NoTerm {
                pmu: self.name.clone(),
                term: term.clone(),
                known: self.formats.keys().cloned().collect::<Vec<_>>().join(", "),
            })?;
            if *value > bits.largest() {
                let (term, largest) = (term.clone(), bits.largest());
                return Err(PmuError::TooLarge { term, value: *value, largest });
            }
            bits.place(*value, &mut config);
        }
        Ok(config)
    }

    /// The bits of a term in the first word of the configuration; 0 where the PMU does not have it.
    #[must_use]
    pub fn mask(&self, term: &str) -> u64 {
        let mut config = [0; 3];
        if let Some(bits) = self.formats.get(term) {
            bits.place(bits.largest(), &mut config);
        }
        config[0]
    }

    /// Whether it has a term.
    #[must_use]
    pub fn has_term(&self, term: &str) -> bool {
        self.formats.contains_key(term)
    }

    /// Whether the unit can do something, by the file of that name in `caps`.
    #[must_use]
    pub fn can(&self, name: &str) -> bool {
        text(&self.directory.join("caps").join(name)).is_some_and(|value| value != "0")
    }

    /// What a file of the PMU says.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<String> {
        text(&self.directory.join(name))
    }

    /// An event as it was asked for, with the terms that are on where the user does not say otherwise.
    ///
    /// # Errors
    /// As [`Pmu::config`].
    pub fn event(&self, spec: &EventSpec) -> Result<[u64; 3], PmuError> {
        let mut terms = self.usual_terms();
        terms.extend(spec.terms.iter().cloned());
        self.config(&terms)
    }

    /// What perf sets for Intel PT, and CYC, without which times are no better than the crystal clock's.
    fn usual_terms(&self) -> Vec<(String, u64)> {
        let mut terms = Vec::new();
        let mut on = |term: &str, value: u64, is_possible: bool| {
            if is_possible && self.has_term(term) {
                terms.push((term.to_owned(), value));
            }
        };
        on("tsc", 1, true);
        on("mtc", 1, self.can("mtc"));
        on("mtc_period", 3, self.can("mtc"));
        on("cyc", 1, self.can("psb_cyc"));
        on("psb_period", 3, self.can("psb_cyc"));
        // Where these bits are not there, both are always on.
        on("pt", 1, true);
        on("branch", 1, true);
        terms
    }
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}
