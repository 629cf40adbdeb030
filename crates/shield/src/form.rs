// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel's files look like, and what has to be written to get what was read.
//!
//! Most files read as they are written, but for spaces and leading zeros. Some do not: a choice reads `always [madvise] never`
//! and takes one word, and the list of a control group's controllers takes `+cpuset` and `-cpuset`.

use crate::Cpus;
use serde::{Deserialize, Serialize};

/// The look of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// A list of CPUs.
    List,
    /// A mask of CPUs.
    Mask,
    /// A number or a word.
    Word,
    /// Words, of which the one in brackets holds.
    Choice,
    /// The controllers of a cgroup (v2), of which we mean cpuset.
    Controller,
}

impl Form {
    /// What has to be written to get what was read.
    pub fn value(self, read: &str) -> String {
        match self {
            Form::Choice => {
                let chosen = read.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
                chosen.map_or(read, |(word, _)| word).to_owned()
            }
            Form::Controller => {
                let enabled = read.split_whitespace().any(|word| word.trim_start_matches('+') == "cpuset");
                if enabled { "+cpuset" } else { "-cpuset" }.to_owned()
            }
            _ => read.to_owned(),
        }
    }

    /// Whether two values mean the same.
    pub fn same(self, one: &str, other: &str) -> bool {
        match self.cpus(one).zip(self.cpus(other)) {
            Some((one, other)) => one == other,
            None => one.trim() == other.trim(),
        }
    }

    /// The CPUs of a list or a mask.
    pub fn cpus(self, value: &str) -> Option<Cpus> {
        match self {
            Form::List => Cpus::from_list(value).ok(),
            Form::Mask => Cpus::from_mask(value).ok(),
            _ => None,
        }
    }

    /// CPUs in this form.
    pub fn write_cpus(self, cpus: &Cpus) -> String {
        if self == Form::Mask { cpus.mask() } else { cpus.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_becomes_what_is_to_be_written() {
        assert_eq!(Form::Choice.value("always [madvise] never\n"), "madvise");
        assert_eq!(Form::Choice.value("madvise\n"), "madvise\n");
        assert_eq!(Form::Controller.value("cpu memory\n"), "-cpuset");
        assert_eq!(Form::Controller.value("cpu cpuset memory\n"), "+cpuset");
        assert_eq!(Form::Word.value("950000\n"), "950000\n");
    }

    #[test]
    fn the_same_value_may_look_different() {
        assert!(Form::Mask.same("00000000,00000003\n", "3"));
        assert!(Form::List.same("0,1\n", "0-1"));
        assert!(Form::Word.same("-1\n", "-1"));
        assert!(!Form::Mask.same("3", "1"));
        assert!(!Form::Word.same("isolated invalid (no CPU)", "isolated"));
    }
}
