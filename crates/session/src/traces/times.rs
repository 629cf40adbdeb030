// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times and CPUs as people write them: `13:05:59.25`, `+1.5s` after the first event, `-2s` before the last; `0,2-3`.

use crate::units::DurationNs;
use crate::wall_clock;
use std::collections::BTreeSet;
use std::time::UNIX_EPOCH;

/// Times of the first and of the last event.
pub(super) type TimeSpan = (Option<i64>, Option<i64>);

const SECOND: i64 = 1_000_000_000;

/// A time as people write it, in nanoseconds since 1970.
pub(super) fn moment(text: &str, (begin, end): TimeSpan) -> Result<i64, String> {
    let distance = |text: &str| {
        let duration = text.parse::<DurationNs>()?;
        i64::try_from(duration.0).map_err(|_| "too far away".to_owned())
    };
    if let Some(text) = text.strip_prefix('+') {
        return Ok(begin.ok_or(NO_TIMES)?.saturating_add(distance(text)?));
    }
    if let Some(text) = text.strip_prefix('-') {
        return Ok(end.ok_or(NO_TIMES)?.saturating_sub(distance(text)?));
    }
    if let Ok(ns) = text.parse::<i64>() {
        return Ok(ns);
    }
    if text.contains('T') || text.contains('-') {
        let time = humantime::parse_rfc3339_weak(text).map_err(|error| error.to_string())?;
        let since = time.duration_since(UNIX_EPOCH).map_err(|_| "before 1970".to_owned())?;
        return i64::try_from(since.as_nanos()).map_err(|_| "too far away".to_owned());
    }
    let of_day = time_of_day(text)?;
    let begin = begin.ok_or(NO_TIMES)?;
    let offset = wall_clock::offset_s_at(begin.div_euclid(SECOND)) * SECOND;
    let day = 24 * 3600 * SECOND;
    let midnight = (begin + offset).div_euclid(day) * day - offset;
    let moment = midnight + of_day;
    // A trace may go on past midnight.
    let next_day = moment < begin && end.is_some_and(|end| moment + day <= end);
    Ok(if next_day { moment + day } else { moment })
}

const NO_TIMES: &str = "the trace does not say when it begins and ends";

/// `HH:MM[:SS[.fraction]]` in nanoseconds since midnight.
fn time_of_day(text: &str) -> Result<i64, String> {
    let wrong =
        || format!("'{text}' is not a time; write 13:05:59.25, +1.5s, -2s, or nanoseconds since 1970");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(wrong());
    }
    let fraction: i64 = format!("{fraction:0<9}").parse().map_err(|_| wrong())?;
    let parts: Vec<i64> =
        whole.split(':').map(|part| part.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
    match parts.as_slice() {
        [hours @ 0..24, minutes @ 0..60, rest @ ..]
            if rest.len() < 2 && rest.iter().all(|s| (0..61).contains(s)) =>
        {
            Ok((hours * 3600 + minutes * 60 + rest.first().unwrap_or(&0)) * SECOND + fraction)
        }
        _ => Err(wrong()),
    }
}

/// `0,2-3`
pub(super) fn cpu_list(text: &str) -> Result<BTreeSet<u64>, String> {
    const MOST: u64 = 1 << 16;
    let mut cpus = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u64>().ok().filter(|cpu| *cpu < MOST);
        let range = number(first).zip(number(last)).filter(|(first, last)| first <= last);
        let (first, last) = range.ok_or_else(|| format!("'{part}' is not a CPU; write 0,2-3"))?;
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day() {
        assert_eq!(time_of_day("00:00"), Ok(0));
        assert_eq!(time_of_day("13:05:59.25"), Ok((13 * 3600 + 5 * 60 + 59) * SECOND + 250_000_000));
        for wrong in ["", "1", "24:00", "1:60", "1:2:3:4", "1:2:3.x", "1:2:3.1234567890"] {
            assert!(time_of_day(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpu_list("0,2-3").unwrap(), BTreeSet::from([0, 2, 3]));
        for wrong in ["", "a", "3-1", "0-99999999"] {
            assert!(cpu_list(wrong).is_err(), "{wrong}");
        }
    }
}
