// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Durations, sizes and rates as people write them: `500us`, `8M`, `1/s`.

use std::str::FromStr;

/// A duration in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationNs(pub u64);

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub usize);

/// The least time between two events of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntervalNs(pub u64);

/// A size on disk, of any number of bytes: `500M`, `1.5T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskBytes(pub u64);

/// A part of a whole: `1%`, `0.01`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

/// A number of things: `1000000`, `10M`, `1e8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u64);

/// Lengths of two kinds of windows in nanoseconds: `10ms,90ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowsNs {
    /// With something.
    pub on: u64,
    /// Without it.
    pub off: u64,
}

/// Splits `12.5ms` into 12.5 and `ms`.
fn split(text: &str) -> Result<(f64, &str), String> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number = number.parse().map_err(|_| format!("'{text}' does not begin with a number"))?;
    Ok((number, unit.trim()))
}

impl FromStr for DurationNs {
    type Err = String;

    fn from_str(text: &str) -> Result<DurationNs, String> {
        let (number, unit) = split(text)?;
        let factor = match unit {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" | "min" => 60e9,
            "h" => 3600e9,
            "" => {
                return Err(format!("'{text}' has no unit; write {text}us, {text}ms or {text}s"));
            }
            other => return Err(format!("'{other}' is not a unit of time; use ns, us, ms, s, min or h")),
        };
        let ns = number * factor;
        if ns > 1e18 {
            return Err(format!("'{text}' is longer than 30 years"));
        }
        Ok(DurationNs(ns.round() as u64))
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let (number, unit) = split(text)?;
        let shift = match unit {
            "" | "B" => 0,
            "K" | "KiB" | "k" => 10,
            "M" | "MiB" => 20,
            "G" | "GiB" => 30,
            other => return Err(format!("'{other}' is not a unit of size; use K, M or G (powers of 1024)")),
        };
        let bytes = number * f64::from(1_u32 << shift);
        if bytes > 256.0 * 1024.0 * 1024.0 {
            return Err(format!("'{text}' is more than 256M"));
        }
        let bytes = bytes as usize;
        if !bytes.is_power_of_two() || bytes < 64 << 10 {
            let near = bytes.clamp(64 << 10, 256 << 20).next_power_of_two();
            return Err(format!(
                "a buffer size is a power of two from 64K to 256M; the next one is {}K",
                near >> 10
            ));
        }
        Ok(Bytes(bytes))
    }
}

impl FromStr for DiskBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<DiskBytes, String> {
        let (number, unit) = split(text)?;
        let shift = match unit {
            "K" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            _ => return Err(format!("'{text}' is not a size; write 500M or 2G")),
        };
        Ok(DiskBytes((number * (1_u64 << shift) as f64) as u64))
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 100.0));
        let share = number.trim().parse::<f64>().map(|number| number / unit);
        share
            .ok()
            .filter(|share| (0.0..=1.0).contains(share))
            .map(Share)
            .ok_or_else(|| format!("'{text}' is not a part; write 1%"))
    }
}

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Count, String> {
        if let Ok(number) = text.parse() {
            return Ok(Count(number));
        }
        let (number, factor) = match text.char_indices().last() {
            Some((at, 'k')) => (&text[..at], 1e3),
            Some((at, 'M')) => (&text[..at], 1e6),
            Some((at, 'G')) => (&text[..at], 1e9),
            _ => (text, 1.0),
        };
        let number: f64 =
            number.parse().map_err(|_| format!("'{text}' is not a number; write 1000000, 10M or 1e8"))?;
        let count = number * factor;
        if !(0.0..=1e18).contains(&count) || count.fract() != 0.0 {
            return Err(format!("'{text}' is not a whole number up to 1e18"));
        }
        Ok(Count(count as u64))
    }
}

impl FromStr for WindowsNs {
    type Err = String;

    fn from_str(text: &str) -> Result<WindowsNs, String> {
        let (on, off) = text
            .split_once(',')
            .ok_or_else(|| format!("'{text}' is not a pair of times; write 10ms,90ms"))?;
        let (on, off) = (on.trim().parse::<DurationNs>()?.0, off.trim().parse::<DurationNs>()?.0);
        Ok(WindowsNs { on, off })
    }
}

impl FromStr for IntervalNs {
    type Err = String;

    fn from_str(text: &str) -> Result<IntervalNs, String> {
        let (number, unit) =
            text.split_once('/').ok_or_else(|| format!("'{text}' is not a rate; write 1/s or 10/min"))?;
        let number: f64 = number.trim().parse().map_err(|_| format!("'{number}' is not a number"))?;
        let unit = match unit.trim() {
            "s" => 1e9,
            "min" | "m" => 60e9,
            "h" => 3600e9,
            other => return Err(format!("'{other}' is not a unit of a rate; use /s, /min or /h")),
        };
        let interval_ns = unit / number;
        if !(1.0..=1e18).contains(&interval_ns) {
            return Err(format!("'{text}': a rate is greater than 0, and at most 1 000 000 000/s"));
        }
        Ok(IntervalNs(interval_ns.round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let parse = |text: &str| text.parse::<DurationNs>().map(|d| d.0);
        assert_eq!(parse("500us"), Ok(500_000));
        assert_eq!(parse("1.5ms"), Ok(1_500_000));
        assert_eq!(parse("2s"), Ok(2_000_000_000));
        assert_eq!(parse("10min"), Ok(600_000_000_000));
        for wrong in ["", "ms", "5", "5parsecs", "-1s", "1e999s", "99999999999999h"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes() {
        let parse = |text: &str| text.parse::<Bytes>().map(|d| d.0);
        assert_eq!(parse("8M"), Ok(8 << 20));
        assert_eq!(parse("64K"), Ok(64 << 10));
        for wrong in ["", "3M", "1K", "1T", "512M", "0"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn counts_and_windows() {
        let parse = |text: &str| text.parse::<Count>().map(|count| count.0);
        for (text, count) in [("0", 0), ("5", 5), ("10M", 10_000_000), ("1.5k", 1500), ("1e8", 100_000_000)] {
            assert_eq!(parse(text), Ok(count), "{text}");
        }
        for wrong in ["", "k", "-1", "1.5", "1e30", "nan", "10ms"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!("10ms,90ms".parse(), Ok(WindowsNs { on: 10_000_000, off: 90_000_000 }));
        for wrong in ["", "10ms", "10,90", "10ms,"] {
            assert!(wrong.parse::<WindowsNs>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates() {
        let parse = |text: &str| text.parse::<IntervalNs>().map(|d| d.0);
        assert_eq!(parse("1/s"), Ok(1_000_000_000));
        assert_eq!(parse("4/s"), Ok(250_000_000));
        assert_eq!(parse("2/min"), Ok(30_000_000_000));
        for wrong in ["", "1", "0/s", "-1/s", "x/s", "1/year", "nan/s", "inf/s", "1e-12/h"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
