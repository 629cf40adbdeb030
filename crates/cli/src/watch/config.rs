// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope watch --config` and `--print-config`: a file (`rtscope_session::watch::config`) becomes a command line, and that is read as
//! any other. The way back prints those options that were given.

use crate::exit::Failure;
use crate::help;
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use rtscope_session::watch::config::{self, Form, OptionForm, ValueKind, WatchFile, Wrong};
use std::ffi::OsString;
use std::path::Path;

/// What an option that goes without a value has then: `--json`.
const NO_VALUE: &str = "-";
/// Options that make no sense in a file.
const NOT_IN_FILES: [&str; 3] = ["print-config", "help", "version"];

/// What a file says, as matches of the command line that it stands for.
pub fn read(file: &Path) -> Result<ArgMatches, Failure> {
    let text = config::read(file)?;
    matches(&text).map_err(|why| Failure::Usage(format!("{}: {why}", file.display())))
}

fn matches(text: &str) -> Result<ArgMatches, Wrong> {
    let command = help::command();
    let file = WatchFile::parse(text, &form(&command))?;
    let arguments = arguments(&file, &command);
    command.try_get_matches_from(arguments).map_err(|error| wrong(&file, &error))
}

/// The options of each tracker that a file can have.
fn form(command: &Command) -> Form<'_> {
    let trackers = command.find_subcommand("watch").into_iter().flat_map(Command::get_subcommands);
    let forms = |tracker| options(tracker).filter_map(option_form).collect();
    trackers.map(|tracker| (tracker.get_name(), forms(tracker))).collect()
}

fn options(tracker: &Command) -> impl Iterator<Item = &Arg> {
    let is_meant = |arg: &&Arg| arg.get_long().is_some_and(|long| !NOT_IN_FILES.contains(&long));
    tracker.get_arguments().filter(is_meant)
}

fn option_form(arg: &Arg) -> Option<OptionForm<'_>> {
    let values = match arg.get_action() {
        ArgAction::Append => ValueKind::Many,
        action if !action.takes_values() => ValueKind::None,
        _ if arg.get_num_args().is_some_and(|range| range.min_values() == 0) => ValueKind::Optional,
        _ => ValueKind::One,
    };
    Some(OptionForm { key: arg.get_long()?, values })
}

/// The command line that a file stands for.
fn arguments(file: &WatchFile, command: &Command) -> Vec<OsString> {
    let tracker = command.find_subcommand("watch").and_then(|watch| watch.find_subcommand(&file.tracker));
    let is_list = |key: &str| {
        let option = tracker.and_then(|tracker| options(tracker).find(|arg| arg.get_long() == Some(key)));
        option.is_some_and(|option| option.get_value_delimiter().is_some())
    };
    let mut arguments = vec!["rtscope".to_string(), "watch".to_string(), file.tracker.clone()];
    for (key, words) in &file.options {
        match words {
            None => arguments.push(format!("--{key}")),
            Some(words) if is_list(key) => arguments.push(format!("--{key}={}", words.join(","))),
            Some(words) => arguments.extend(words.iter().map(|word| format!("--{key}={word}"))),
        }
    }
    if !file.command.is_empty() {
        arguments.push("--".to_string());
        arguments.extend(file.command.iter().cloned());
    }
    arguments.into_iter().map(OsString::from).collect()
}

/// What the command line was refused for, at the key that it came from.
fn wrong(file: &WatchFile, error: &clap::Error) -> Wrong {
    let texts = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    };
    let long = |text: &String| {
        let name = text.split_once("--")?.1;
        Some(name.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next()?.to_string())
    };
    let keys: Vec<String> = texts(ContextKind::InvalidArg).iter().filter_map(long).collect();
    // The first paragraph, without the word that clap begins with; the rest is about the command line.
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let first = text.split("\n\n").next().unwrap_or_default().trim();
    file.wrong(&keys, first.lines().map(str::trim).collect::<Vec<_>>().join(" "))
}

/// The matches of the tracker.
fn of_tracker(matches: &ArgMatches) -> Option<(&str, &ArgMatches)> {
    let (_, watch) = matches.subcommand().filter(|(name, _)| *name == "watch")?;
    watch.subcommand()
}

/// Whether a file is wanted that says the same.
pub fn is_to_be_printed(matches: &ArgMatches) -> bool {
    of_tracker(matches).is_some_and(|(_, tracker)| tracker.get_flag("print_config"))
}

/// A file that says what these options do.
pub fn printed(matches: &ArgMatches) -> Result<String, Failure> {
    let command = help::command();
    let found = of_tracker(matches).and_then(|(name, given)| {
        let tracker = command.find_subcommand("watch")?.find_subcommand(name)?;
        Some((name, given, tracker))
    });
    let Some((name, given, tracker)) = found else {
        return Err(Failure::Usage("--print-config: name a tracker".to_string()));
    };
    let mut said = Vec::new();
    for arg in options(tracker) {
        let (Some(form), id) = (option_form(arg), arg.get_id().as_str()) else { continue };
        if given.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let words = match form.values {
            ValueKind::None => None,
            // As --json was given: without a value.
            ValueKind::Optional => Some(words(given, id)?).filter(|words| words != &[NO_VALUE]),
            _ => Some(words(given, id)?),
        };
        said.push((form, words));
    }
    Ok(config::printed(name, &said, &words(given, "command")?))
}

fn words(given: &ArgMatches, id: &str) -> Result<Vec<String>, Failure> {
    let word = |word: &std::ffi::OsStr| {
        word.to_str().map(str::to_owned).ok_or_else(|| {
            Failure::Usage(format!("--print-config: '{}' is not UTF-8, as TOML is", word.to_string_lossy()))
        })
    };
    given.get_raw(id).into_iter().flatten().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(line: &[&str]) -> ArgMatches {
        let line = ["rtscope", "watch"].iter().chain(line).copied().chain(["--print-config"]);
        // Before the words of COMMAND.
        let mut words: Vec<&str> = line.collect();
        if let Some(at) = words.iter().position(|word| *word == "--") {
            words.pop();
            words.insert(at, "--print-config");
        }
        help::command().try_get_matches_from(words).unwrap()
    }

    /// What options come to: as clap has them, without where they came from.
    fn values(matches: &ArgMatches) -> Vec<(String, Vec<OsString>)> {
        let (name, tracker) = of_tracker(matches).unwrap();
        let raw = |id: &str| tracker.get_raw(id).into_iter().flatten().map(OsString::from).collect();
        let ids = tracker.ids().map(|id| id.as_str().to_owned()).filter(|id| id != "print_config");
        let mut all: Vec<(String, Vec<OsString>)> = ids
            .filter(|id| tracker.try_get_raw(id).is_ok() && tracker.try_contains_id(id).unwrap_or(false))
            .map(|id| (id.clone(), raw(&id)))
            .collect();
        all.push(("tracker".to_string(), vec![name.into()]));
        all.sort();
        all
    }

    fn wrong(text: &str) -> String {
        matches(text).unwrap_err().to_string()
    }

    #[test]
    fn a_command_line_and_its_file_are_the_same() {
        let lines: [&[&str]; 6] = [
            &["wakeup", "--threshold", "1ms"],
            &[
                "offcpu",
                "--threshold",
                "1ms",
                "--and",
                "wakeup:2ms",
                "--and",
                "lock:3ms",
                "--verbose",
                "--json",
            ],
            &[
                "syscall",
                "--threshold",
                "1ms",
                "--calls",
                "read,!write",
                "--exec",
                r#"["a", "b\"c\\d"]"#,
                "--exec-rate",
                "10/s",
            ],
            &[
                "response",
                "--threshold",
                "1ms",
                "--begin",
                "irq,timer",
                "--irq",
                "9",
                "--irq",
                "eth0",
                "--end",
                "cycle",
            ],
            &["irqoff", "--threshold", "1ms", "--period", "100us", "--json=out.json", "--metrics", "9464"],
            &[
                "block",
                "--threshold",
                "1ms",
                "--snapshot-dir",
                "late",
                "-k",
                "block:*,syscalls",
                "--",
                "./x",
                "--threshold",
                "a\nb",
            ],
        ];
        for line in lines {
            let given = given(line);
            let text = printed(&given).unwrap();
            let read = matches(&text).unwrap_or_else(|wrong| panic!("{wrong}:\n{text}"));
            assert_eq!(values(&given), values(&read), "{text}");
        }
    }

    #[test]
    fn the_file_can_say_whatever_options_can() {
        let commands = help::command();
        let watch = commands.find_subcommand("watch").unwrap();
        for tracker in watch.get_subcommands().filter(|tracker| tracker.get_name() != "help") {
            for option in options(tracker) {
                let value = match option.get_action().takes_values() {
                    true => "\"x\"",
                    false => "true",
                };
                let long = option.get_long().unwrap();
                let text = format!("version = 1\ntracker = {:?}\n{long} = {value}\n", tracker.get_name());
                let arguments = arguments(&WatchFile::parse(&text, &form(&commands)).unwrap(), &commands);
                let last = arguments.last().unwrap().to_str().unwrap();
                assert!(last == format!("--{long}") || last == format!("--{long}=x"), "{last}");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_key() {
        let head = "version = 1\ntracker = \"wakeup\"\nthreshold = \"1ms\"\n";
        assert!(matches(head).is_ok());
        for (text, parts) in [
            ("", &["'version = 1' is missing"][..]),
            ("version = 2", &["line 1: version: this rtscope reads version 1"]),
            ("version = 1", &["tracker", "is missing"]),
            (
                "version = 1\ntracker = \"wakup\"",
                &["line 2: tracker: there is no tracker 'wakup'; did you mean 'wakeup'?"],
            ),
            (
                &format!("{head}thresold = 1"),
                &["line 4: thresold: there is no key 'thresold'; did you mean 'threshold'?"],
            ),
            (
                &format!("{head}calls = \"read\""),
                &["line 4: calls: there is no key 'calls' of the tracker 'wakeup'"],
            ),
            (&format!("{head}[filter]\nx = 1"), &["line 4: ", "filter"]),
            (&format!("{head}verbose = 1"), &["line 4: verbose: true or false is wanted"]),
            (&format!("{head}task = [\"a\"]"), &["line 4: task: one value is wanted"]),
            (&format!("{head}task = 1.5"), &["line 4: task: a string or a decimal whole number is wanted"]),
            (&format!("{head}pid = 0x10"), &["line 4: pid: a string or a decimal whole number is wanted"]),
            (&format!("{head}command = \"x\""), &["line 4: command: an array of words"]),
            (&format!("{head}duration = \"5parsecs\""), &["line 4: ", "5parsecs", "--duration"]),
            (&format!("{head}kernel = [\"a\"]"), &["--snapshot-dir"]),
            (&format!("{head}threshold = \"2ms\""), &["line 4: duplicate key"]),
            (&format!("{head}= 1"), &["line 4: "]),
            ("version = 1\ntracker = \"wakeup\"", &["--threshold"]),
        ] {
            let found = wrong(text);
            assert!(parts.iter().all(|part| found.contains(part)), "{text}: {found}");
        }
    }
}
