// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets of CPUs, as the kernel writes them: lists (`0-3,5`) and masks (`ff,ffffffff`: words of 32 bits, the highest first).

use std::collections::BTreeSet;
use std::fmt;

/// More than any kernel has (CONFIG_NR_CPUS is at most 8192): a number above is a mistake, and would cost memory.
pub(crate) const MOST: u32 = 8192;

/// A set of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus(BTreeSet<u32>);

impl Cpus {
    /// Every CPU that a kernel can have.
    #[must_use]
    pub fn every() -> Cpus {
        (0..MOST).collect()
    }

    /// Reads `0-3,5`. An empty text is the empty set.
    pub fn from_list(text: &str) -> Result<Cpus, String> {
        let mut cpus = BTreeSet::new();
        let number = |text: &str| match text.parse::<u32>() {
            Ok(cpu) if cpu < MOST => Ok(cpu),
            _ => Err(format!("'{text}' is not a CPU; write for instance 2-3,5")),
        };
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("'{part}' begins after its end; write {last}-{first}"));
            }
            cpus.extend(first..=last);
        }
        Ok(Cpus(cpus))
    }

    /// Reads `ff,ffffffff`.
    pub fn from_mask(text: &str) -> Result<Cpus, String> {
        let mut cpus = BTreeSet::new();
        for (word, digits) in text.trim().rsplit(',').enumerate() {
            let bits =
                u32::from_str_radix(digits, 16).map_err(|_| format!("'{digits}' is not a mask of CPUs"))?;
            let first = word as u32 * 32;
            cpus.extend((0..32).filter(|bit| bits & (1 << bit) != 0).map(|bit| first + bit));
        }
        Ok(Cpus(cpus))
    }

    /// As a mask that the kernel reads.
    pub fn mask(&self) -> String {
        let words = self.0.last().map_or(0, |last| last / 32);
        let bits = |word: u32| {
            self.0.iter().filter(|cpu| **cpu / 32 == word).fold(0_u32, |bits, cpu| bits | 1 << (cpu % 32))
        };
        let mut text = format!("{:x}", bits(words));
        (0..words).rev().for_each(|word| text.push_str(&format!(",{:08x}", bits(word))));
        text
    }

    /// Those in this set and not in the other.
    pub fn without(&self, other: &Cpus) -> Cpus {
        Cpus(self.0.difference(&other.0).copied().collect())
    }

    /// Those in this set or in the other.
    #[must_use]
    pub fn and(&self, other: &Cpus) -> Cpus {
        Cpus(self.0.union(&other.0).copied().collect())
    }

    /// Those in this set and in the other.
    #[must_use]
    pub fn of(&self, other: &Cpus) -> Cpus {
        Cpus(self.0.intersection(&other.0).copied().collect())
    }

    /// Whether no CPU is in both.
    pub fn is_apart_from(&self, other: &Cpus) -> bool {
        self.0.is_disjoint(&other.0)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether this one is in it.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }
}

impl FromIterator<u32> for Cpus {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Cpus {
        Cpus(cpus.into_iter().collect())
    }
}

/// As a list.
impl fmt::Display for Cpus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => runs.push((cpu, cpu)),
            }
        }
        let runs = runs.iter().map(|(first, last)| match first == last {
            true => format!("{first}"),
            false => format!("{first}-{last}"),
        });
        out.write_str(&runs.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for (text, written) in
            [("0-3,5", "0-3,5"), ("5,0-3\n", "0-3,5"), ("1", "1"), ("", ""), ("0,1,2", "0-2"), ("7 ", "7")]
        {
            assert_eq!(Cpus::from_list(text).expect(text).to_string(), written);
        }
        for wrong in ["a", "3-1", "1-", "-1", ",", "1,,2", "0-99999999", "1 2", "0x1"] {
            assert!(Cpus::from_list(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn masks_are_read_and_written() {
        for (mask, list) in [
            ("3", "0-1"),
            ("00000000,00000003", "0-1"),
            ("ff,ffffffff", "0-39"),
            ("1,00000000,00000001", "0,64"),
            ("0", ""),
        ] {
            let cpus = Cpus::from_mask(mask).expect(mask);
            assert_eq!(cpus.to_string(), list);
            assert_eq!(Cpus::from_mask(&cpus.mask()).expect("our own"), cpus);
        }
        assert_eq!(Cpus::from_list("0,32,64").expect("a list").mask(), "1,00000001,00000001");
        for wrong in ["", "g", "1ffffffff", "-1"] {
            assert!(Cpus::from_mask(wrong).is_err(), "{wrong}");
        }
    }
}
