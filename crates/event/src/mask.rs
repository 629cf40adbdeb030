// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A set of CPUs, written as the kernel writes one: `0-3,7`.

use crate::CpuId;
use std::fmt;
use std::str::FromStr;

/// CPUs that a mask can hold.
const CPUS: u32 = 256;

/// A set of CPUs. Those from 256 on have no place in it; [`CpuMask::cut`] says when there may have been some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuMask {
    words: [u64; CPUS as usize / 64],
    cut: bool,
}

impl CpuMask {
    /// A set from its bits, CPU 0 in the lowest of the first word. `cut`: there may have been CPUs beyond.
    #[must_use]
    pub fn new(words: [u64; 4], cut: bool) -> CpuMask {
        CpuMask { words, cut }
    }

    /// True when the set may have had CPUs that are not in it.
    #[must_use]
    pub fn cut(&self) -> bool {
        self.cut
    }

    /// Whether a CPU is in it.
    #[must_use]
    pub fn has(&self, cpu: CpuId) -> bool {
        self.words.get((cpu.0 / 64) as usize).is_some_and(|word| word >> (cpu.0 % 64) & 1 == 1)
    }

    /// Its CPUs, lowest first.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> {
        let mask = *self;
        (0..CPUS).map(CpuId).filter(move |cpu| mask.has(*cpu))
    }
}

impl fmt::Display for CpuMask {
    /// Ranges as in `/sys/devices/system/cpu/online`; `...` at the end of a set that was cut.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut first = 0;
        while let Some(from) = (first..CPUS).find(|cpu| self.has(CpuId(*cpu))) {
            let to = (from..CPUS).find(|cpu| !self.has(CpuId(*cpu))).unwrap_or(CPUS);
            write!(f, "{separator}{from}")?;
            if to > from + 1 {
                write!(f, "-{}", to - 1)?;
            }
            (separator, first) = (",", to);
        }
        if self.cut { write!(f, "{separator}...") } else { Ok(()) }
    }
}

/// The text is not a set of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseCpuMaskError;

impl fmt::Display for ParseCpuMaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a list of CPUs such as 0-3,7")
    }
}

impl std::error::Error for ParseCpuMaskError {}

impl FromStr for CpuMask {
    type Err = ParseCpuMaskError;

    fn from_str(text: &str) -> Result<CpuMask, ParseCpuMaskError> {
        let mut mask = CpuMask::default();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            if part == "..." {
                mask.cut = true;
                continue;
            }
            let number = |text: &str| text.parse::<u32>().map_err(|_| ParseCpuMaskError);
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to) = (number(from)?, number(to)?);
            mask.cut |= to >= CPUS;
            for cpu in from..=to.min(CPUS - 1) {
                mask.words[(cpu / 64) as usize] |= 1 << (cpu % 64);
            }
        }
        Ok(mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for (words, cut, text) in [
            ([0; 4], false, ""),
            ([0b1011, 0, 0, 0], false, "0-1,3"),
            ([1 << 63, 1, 0, 1 << 63], false, "63-64,255"),
            ([u64::MAX; 4], true, "0-255,..."),
            ([0; 4], true, "..."),
        ] {
            let mask = CpuMask::new(words, cut);
            assert_eq!(mask.to_string(), text);
            assert_eq!(text.parse(), Ok(mask));
        }
        assert_eq!("x".parse::<CpuMask>(), Err(ParseCpuMaskError));
        assert_eq!("0-4294967295".parse(), Ok(CpuMask::new([u64::MAX; 4], true)));
        assert_eq!("300".parse(), Ok(CpuMask::new([0; 4], true)));
    }

    #[test]
    fn members() {
        let mask: CpuMask = "1,200".parse().unwrap();
        assert_eq!(mask.cpus().collect::<Vec<_>>(), [CpuId(1), CpuId(200)]);
        assert!(!mask.has(CpuId(0)) && !mask.has(CpuId(9999)));
    }
}
