// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The metadata of a cut: the text of the trace that it was cut from, with another identity, and with what is known of the cut.
//!
//! The text is edited, not written anew: classes are as the tracer described them, whatever of TSDL it used.

use crate::private_env;
use crate::read::class::EnvValue;
use crate::read::lexer::{Fault, Lexer, Token};
use rtscope_event::{CpuId, Loss, MonotonicNs};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use uuid::Uuid;

/// Where the changes are in the text.
#[derive(Debug, Default)]
struct Spots {
    /// The value of the trace's `uuid`.
    uuid: Option<Range<usize>>,
    /// Assignments of the environment, by key.
    entries: Vec<(String, Range<usize>)>,
    /// Before the closing brace of the first environment.
    env_end: Option<usize>,
}

/// Replaces the trace's identity and the entries of the environment that `entries` has; `None` removes one.
pub(super) fn edited(
    text: &str,
    uuid: Option<Uuid>,
    entries: &BTreeMap<String, Option<String>>,
) -> Result<String, Fault> {
    let spots = find(text)?;
    let mut changes: Vec<(Range<usize>, String)> = Vec::new();
    if let Some((range, uuid)) = spots.uuid.zip(uuid) {
        changes.push((range, format!(" \"{uuid}\"")));
    }
    let replaced = spots.entries.into_iter().filter(|(key, _)| entries.contains_key(key));
    changes.extend(replaced.map(|(_, range)| (range, String::new())));
    let mut added = String::new();
    for (key, value) in entries.iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
        // Writing to a String cannot fail.
        let _ = writeln!(added, "\t{key} = {};", crate::write::quoted(value));
    }
    match spots.env_end {
        Some(end) => changes.push((end..end, added)),
        None => changes.push((text.len()..text.len(), format!("\nenv {{\n{added}}};\n"))),
    }
    changes.sort_by_key(|(range, _)| range.start);
    let mut edited = String::with_capacity(text.len() + 4096);
    let mut done = 0;
    for (range, new) in changes {
        edited.push_str(text.get(done..range.start).unwrap_or_default());
        edited.push_str(&new);
        done = range.end;
    }
    edited.push_str(text.get(done..).unwrap_or_default());
    Ok(edited)
}

fn find(text: &str) -> Result<Spots, Fault> {
    let mut spots = Spots::default();
    let mut lexer = Lexer::new(text);
    let mut depth = 0_usize;
    // The block at the outermost level, and whether a type's name came before.
    let (mut block, mut last) = ("", Token::End);
    let mut entry: Option<(String, usize)> = None;
    loop {
        let before = lexer.place();
        let token = lexer.next()?;
        match (&token, depth) {
            (Token::End, _) => return Ok(spots),
            (Token::Sign("{"), _) => {
                depth += 1;
                if depth == 1 {
                    block = match &last {
                        Token::Word(word) => word,
                        _ => "",
                    };
                }
            }
            (Token::Sign("}"), _) => {
                depth = depth.saturating_sub(1);
                if depth == 0 && block == "env" {
                    spots.env_end.get_or_insert(lexer.place() - 1);
                }
            }
            (Token::Word(word), 1) if block == "env" && entry.is_none() => {
                entry = Some(((*word).to_owned(), before));
            }
            (Token::Sign(";"), 1) if block == "env" => {
                spots.entries.extend(entry.take().map(|(key, from)| (key, from..lexer.place())));
            }
            (Token::Sign("="), 1) if block == "trace" && last == Token::Word("uuid") => {
                let from = lexer.place();
                lexer.next()?;
                spots.uuid = Some(from..lexer.place());
            }
            // `struct env { ... }` is a type of that name.
            (Token::Word(_), 0) if matches!(last, Token::Word(_)) => {
                last = Token::End;
                continue;
            }
            _ => {}
        }
        last = token;
    }
}

/// Events that packets report as lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CountedLosses {
    pub(super) in_trace: u64,
    pub(super) in_cut: u64,
    /// Of these, some may be outside the cut.
    pub(super) at_edge: bool,
}

/// What a cut kept of a trace.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Nothing before, on the clock of the kernel.
    pub(super) from: Option<MonotonicNs>,
    /// Time was cut off at either side.
    pub(super) part_of_time: bool,
    /// Events were left out by their names or fields.
    pub(super) some_events: bool,
    /// For each CPU that was kept: events that its packets reported as lost.
    pub(super) losses: BTreeMap<CpuId, CountedLosses>,
    /// CPUs of which a part could not be read.
    pub(super) damaged: Vec<Option<CpuId>>,
}

/// The entries of rtscope's own traces that mean something else in a cut; `None` for those that are removed.
pub(super) fn own_entries(env: &BTreeMap<String, EnvValue>, kept: &Kept) -> BTreeMap<String, Option<String>> {
    let Some(private) = private_env::parse(env) else { return BTreeMap::new() };
    let old = env.keys().filter(|key| private_env::is_of_a_whole_trace(key));
    let mut entries: BTreeMap<String, Option<String>> = old.map(|key| (key.clone(), None)).collect();
    let history = private.history.into_iter().filter(|(cpu, _)| kept.losses.contains_key(cpu));
    let history = history.map(|(cpu, since)| {
        // What was left out by choice cannot be told from what did not happen.
        let since = since.filter(|_| !kept.some_events);
        (cpu, since.map(|since| since.max(kept.from.unwrap_or(since))))
    });
    let mut losses: Vec<Loss> =
        private.losses.iter().filter_map(|loss| loss_in_cut(loss, &private.losses, kept)).collect();
    let damaged = kept.damaged.iter().map(|cpu| Loss {
        cpu: *cpu,
        cause: rtscope_event::LossCause::Unreadable,
        count: None,
    });
    losses.extend(damaged);
    let new = private_env::entries_of(history, &losses);
    entries.extend(new.into_iter().map(|(key, value)| (key, Some(value))));
    let window = env.get("rtscope_window_begin").and_then(|window| window.to_string().parse::<u64>().ok());
    if let Some((window, from)) = window.zip(kept.from) {
        entries.insert("rtscope_window_begin".to_owned(), Some(window.max(from.0).to_string()));
    }
    entries
}

/// What is known of a loss by cause when only a part of the time was kept: causes have no times, but packets have.
fn loss_in_cut(loss: &Loss, all: &[Loss], kept: &Kept) -> Option<Loss> {
    let unknown = Some(Loss { count: None, ..loss.clone() });
    let Some(cpu) = loss.cpu else {
        return if kept.part_of_time { unknown } else { Some(loss.clone()) };
    };
    let counted = kept.losses.get(&cpu)?;
    if !kept.part_of_time {
        return Some(loss.clone());
    }
    let mut of_cpu = all.iter().filter(|other| other.cpu == Some(cpu));
    let is_only = of_cpu.clone().count() == 1;
    let sum: Option<u64> = of_cpu.try_fold(0_u64, |sum, loss| Some(sum.saturating_add(loss.count?)));
    if sum != Some(counted.in_trace) || counted.at_edge {
        return unknown;
    }
    // All of them are in packets.
    match counted.in_cut {
        0 => None,
        all if all == counted.in_trace => Some(loss.clone()),
        part if is_only => Some(Loss { count: Some(part), ..loss.clone() }),
        _ => unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_event::LossCause;

    fn entries(pairs: &[(&str, Option<&str>)]) -> BTreeMap<String, Option<String>> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned))).collect()
    }

    #[test]
    fn identity_and_environment_are_replaced_and_nothing_else() {
        let text = "/* CTF 1.8 */ struct env { int a; };\n typedef int trace_t;
            trace { major = 1; uuid = \"aaaa\"; packet.header := struct { uint8_t uuid[16]; }; };
            env { a = \"}; uuid\"; b = 2; c = 3; };\nclock { uuid = \"bbbb\"; };";
        let new =
            edited(text, Some(Uuid::nil()), &entries(&[("b", None), ("c", Some("x\"y")), ("d", Some("4"))]));
        let expected = text
            .replace("\"aaaa\"", "\"00000000-0000-0000-0000-000000000000\"")
            .replace(" b = 2; c = 3; ", " \tc = \"x\\\"y\";\n\td = \"4\";\n");
        assert_eq!(new.unwrap(), expected);
    }

    #[test]
    fn an_environment_is_added_where_there_is_none() {
        let new = edited("trace { };", None, &entries(&[("k", Some("v"))])).unwrap();
        assert_eq!(new, "trace { };\nenv {\n\tk = \"v\";\n};\n");
    }

    #[test]
    fn losses_by_cause_are_claimed_as_far_as_packets_tell() {
        let loss = |cpu: Option<u32>, cause, count| Loss { cpu: cpu.map(CpuId), cause, count };
        let (full, gap) = (LossCause::BufferFull, LossCause::Unfinished);
        let all = [
            loss(Some(0), full, Some(5)),
            loss(Some(1), full, Some(2)),
            loss(Some(1), gap, Some(2)),
            loss(Some(2), full, Some(9)),
            loss(Some(3), full, Some(9)),
            loss(Some(4), full, None),
            loss(Some(5), full, Some(1)),
            loss(Some(6), full, Some(3)),
            loss(None, full, Some(7)),
        ];
        let losses = [
            (0, 5, 0, false),
            (1, 4, 3, false),
            (2, 9, 4, false),
            (3, 9, 9, false),
            (4, 1, 0, false),
            (6, 3, 3, true),
        ];
        let counted =
            |(cpu, in_trace, in_cut, at_edge)| (CpuId(cpu), CountedLosses { in_trace, in_cut, at_edge });
        let losses = losses.into_iter().map(counted).collect();
        let mut kept = Kept { part_of_time: true, losses, ..Kept::default() };
        let found: Vec<Loss> = all.iter().filter_map(|one| loss_in_cut(one, &all, &kept)).collect();
        let expected = [
            loss(Some(1), full, None),
            loss(Some(1), gap, None),
            loss(Some(2), full, Some(4)),
            loss(Some(3), full, Some(9)),
            loss(Some(4), full, None),
            loss(Some(6), full, None),
            loss(None, full, None),
        ];
        assert_eq!(found, expected);
        kept.part_of_time = false;
        let found = all.iter().filter_map(|one| loss_in_cut(one, &all, &kept));
        // CPU 5 was not kept.
        assert_eq!(found.collect::<Vec<_>>(), [&all[..6], &all[7..]].concat());
    }
}
