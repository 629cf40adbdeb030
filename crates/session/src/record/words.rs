// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What people write to say what is recorded: levels, patterns of programs' events, `syscall>10ms`, what asks for a snapshot.

use super::settings::SnapshotCause;
use crate::Failure;
use crate::units::DurationNs;
use rtscope_event::Tracker;
use std::str::FromStr;

/// `syscall>10ms`: only tasks in which something of this tracker has been under way for longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnlyWhile {
    /// What is under way.
    pub tracker: Tracker,
    /// For longer than this.
    pub time_ns: u64,
}

impl FromStr for OnlyWhile {
    type Err = String;

    fn from_str(text: &str) -> Result<OnlyWhile, String> {
        let trackers = [Tracker::Syscall, Tracker::Offcpu, Tracker::Lock, Tracker::Wakeup];
        let parts = text.split_once('>').map(|(name, time)| (name.trim(), time.trim()));
        let tracker = parts.and_then(|(name, _)| trackers.into_iter().find(|tracker| tracker.name() == name));
        let (Some(tracker), Some((_, time))) = (tracker, parts) else {
            let names = trackers.map(Tracker::name).join(", ");
            return Err(format!("'{text}' is not one of {names}, with '>' and a time; write 'syscall>10ms'"));
        };
        match time.parse::<DurationNs>()?.0 {
            0 => Err("the time has to be longer than 0".to_string()),
            time_ns => Ok(OnlyWhile { tracker, time_ns }),
        }
    }
}

/// Levels of events, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelRange {
    /// The most severe one: the least number.
    pub from: u32,
    /// The least severe one.
    pub to: u32,
}

/// As syslog has them.
const LEVELS: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

impl FromStr for LevelRange {
    type Err = String;

    /// `LEVEL`: up to this one; `LEVEL..LEVEL`, of which one may be missing.
    fn from_str(text: &str) -> Result<LevelRange, String> {
        let number = |word: &str| {
            let named = LEVELS.iter().position(|level| *level == word).and_then(|at| u32::try_from(at).ok());
            named.or_else(|| word.parse().ok()).ok_or_else(|| {
                format!("'{word}' is not a level; write a number, or one of {}", LEVELS.join(", "))
            })
        };
        let (from, to) = match text.split_once("..") {
            None => (0, number(text)?),
            Some((from, to)) => {
                let from = if from.is_empty() { 0 } else { number(from)? };
                (from, if to.is_empty() { 7.max(from) } else { number(to)? })
            }
        };
        if from > to {
            return Err(format!(
                "'{text}' has no level in it; the more severe one comes first: err..warning"
            ));
        }
        Ok(LevelRange { from, to })
    }
}

impl SnapshotCause {
    /// `PROVIDER:EVENT`, `tracing-off` or `signal`, as `--snapshot-on` has it. `has_programs`: events of programs are recorded.
    ///
    /// # Errors
    /// When it is none of these, or nobody records such an event.
    pub fn parse(text: &str, has_programs: bool) -> Result<SnapshotCause, Failure> {
        let refuse = |why: &str| Err(Failure::Usage(format!("--snapshot-on {text}: {why}")));
        match text {
            "signal" => Ok(SnapshotCause::Signal),
            "tracing-off" => Ok(SnapshotCause::TracingOff),
            event if event.contains([' ', ',']) => {
                refuse("it is one event (PROVIDER:EVENT), without a condition; repeat the option for others")
            }
            event if event.contains(':') && has_programs => Ok(SnapshotCause::Event(event.to_string())),
            event if event.contains(':') => refuse("that is an event of a program; add -u"),
            _ => refuse("write an event of a program (PROVIDER:EVENT), tracing-off, or signal"),
        }
    }
}

/// The patterns of a list: between commas, but for those in a condition's quotes.
#[must_use]
pub fn patterns_of(list: &str) -> Vec<String> {
    let mut quote = None;
    let is_between = |character: char| {
        match quote {
            Some(begun) if begun == character => quote = None,
            None if matches!(character, '"' | '\'') => quote = Some(character),
            _ => {}
        }
        character == ',' && quote.is_none()
    };
    list.split(is_between).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_in_a_text_ends_no_pattern() {
        assert_eq!(patterns_of("a:*,b,!c:d"), ["a:*", "b", "!c:d"]);
        assert_eq!(
            patterns_of("a:b if text == \"x,'y\" && n > 1,c if t == 'u,v'"),
            ["a:b if text == \"x,'y\" && n > 1", "c if t == 'u,v'"]
        );
    }

    #[test]
    fn levels() {
        for (text, from, to) in
            [("debug", 0, 7), ("3", 0, 3), ("err..warning", 3, 4), ("..crit", 0, 2), ("notice..", 5, 7)]
        {
            assert_eq!(text.parse(), Ok(LevelRange { from, to }), "{text}");
        }
        for wrong in ["", "loud", "warning..err", "err..loud"] {
            assert!(wrong.parse::<LevelRange>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_under_way() {
        let wanted = OnlyWhile { tracker: Tracker::Offcpu, time_ns: 50_000_000 };
        assert_eq!("offcpu > 50ms".parse(), Ok(wanted));
        for wrong in ["", "offcpu", "irq>1ms", "offcpu>0s", "offcpu>5"] {
            assert!(wrong.parse::<OnlyWhile>().is_err(), "{wrong}");
        }
    }
}
