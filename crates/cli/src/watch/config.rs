// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A watch as a file (docs/watch-config.md): TOML, whose keys are the names of the options.
//!
//! The file becomes a command line, and that is read as any other: so the file can say whatever options can, means the same, and there
//! is no second list of names and units that could differ. The way back prints those options that were given.

use crate::exit::Failure;
use crate::help;
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use rtscope_event::nearest;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// The version of the form that is written, and the only one that is read.
const VERSION: &str = "1";
/// No file for people is larger.
const FILE_BYTES: u64 = 1 << 20;
/// What an option that goes without a value has then: `--json`.
const NO_VALUE: &str = "-";
/// Keys that are not names of options.
const OWN_KEYS: [&str; 3] = ["version", "tracker", "command"];
/// Options that make no sense in a file.
const NOT_IN_FILES: [&str; 3] = ["print-config", "help", "version"];

/// What a file says, as matches of the command line that it stands for.
pub fn read(file: &Path) -> Result<ArgMatches, Failure> {
    let name = file.display().to_string();
    let refuse = |why: &dyn std::fmt::Display| Failure::Usage(format!("{name}: {why}"));
    let mut text = String::new();
    // Without waiting for somebody who writes to a pipe of that name.
    let opened = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(file);
    let read = opened.and_then(|file| match file.metadata()?.is_file() {
        true => file.take(FILE_BYTES + 1).read_to_string(&mut text),
        false => Err(std::io::Error::other("not a regular file; write what it says into one")),
    });
    read.map_err(|error| refuse(&error))?;
    if text.len() as u64 > FILE_BYTES {
        return Err(refuse(&"larger than 1 MiB"));
    }
    matches(&text).map_err(|why| refuse(&why))
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wrong {
    line: Option<usize>,
    what: String,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

fn matches(text: &str) -> Result<ArgMatches, Wrong> {
    let document = Document::parse(text)?;
    let arguments = document.arguments()?;
    help::command().try_get_matches_from(arguments).map_err(|error| document.wrong(&error))
}

struct Entry<'t> {
    key: String,
    line: usize,
    value: DeValue<'t>,
}

struct Document<'t> {
    entries: Vec<Entry<'t>>,
}

impl<'t> Document<'t> {
    fn parse(text: &'t str) -> Result<Document<'t>, Wrong> {
        let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let table = DeTable::parse(text).map_err(|error| Wrong {
            line: error.span().map(|span| line(span.start)),
            what: error.message().to_string(),
        })?;
        let entry =
            |(key, value): (toml::Spanned<std::borrow::Cow<'t, str>>, toml::Spanned<DeValue<'t>>)| Entry {
                line: line(key.span().start),
                key: key.into_inner().into_owned(),
                value: value.into_inner(),
            };
        let mut entries: Vec<Entry<'t>> = table.into_inner().into_iter().map(entry).collect();
        entries.sort_by_key(|entry| entry.line);
        Ok(Document { entries })
    }

    /// The command line that it stands for.
    fn arguments(&self) -> Result<Vec<OsString>, Wrong> {
        let whole = |what: String| Wrong { line: None, what };
        let find = |key: &str| self.entries.iter().find(|entry| entry.key == key);
        let version = find("version").ok_or_else(|| whole(format!("'version = {VERSION}' is missing")))?;
        if !matches!(&version.value, DeValue::Integer(number) if number.radix() == 10 && number.as_str() == VERSION)
        {
            return Err(version.wrong(format!("this rtscope reads version {VERSION}")));
        }
        let watch = help::command();
        let watch = watch.find_subcommand("watch").ok_or_else(|| whole("no such command".to_string()))?;
        let named = find("tracker")
            .ok_or_else(|| whole("'tracker = \"wakeup\"' or another one is missing".to_string()))?;
        let tracker = named.words()?.join(" ");
        let command = watch.find_subcommand(&tracker).ok_or_else(|| {
            let names = || watch.get_subcommands().map(Command::get_name);
            let all = names().collect::<Vec<_>>().join(", ");
            named.wrong(format!(
                "there is no tracker '{tracker}'{}; trackers are {all}",
                meant(&tracker, names())
            ))
        })?;
        let mut arguments: Vec<OsString> = ["rtscope", "watch", &tracker].map(OsString::from).into();
        for entry in self.entries.iter().filter(|entry| !OWN_KEYS.contains(&entry.key.as_str())) {
            let option = options(command).find(|arg| arg.get_long() == Some(&entry.key));
            let option = option.ok_or_else(|| {
                let names = options(command).filter_map(Arg::get_long).chain(OWN_KEYS);
                let of = if options_of_any(watch).any(|name| name == entry.key) {
                    format!(" of the tracker '{tracker}'")
                } else {
                    String::new()
                };
                entry.wrong(format!("there is no key '{}'{of}{}", entry.key, meant(&entry.key, names)))
            })?;
            arguments.extend(entry.options(option)?);
        }
        if let Some(command) = find("command") {
            arguments.push("--".into());
            let DeValue::Array(_) = &command.value else {
                return Err(command.wrong("an array of words is wanted: [\"./server\", \"-v\"]".to_string()));
            };
            arguments.extend(command.words()?.into_iter().map(OsString::from));
        }
        Ok(arguments)
    }

    /// What the command line was refused for, at the key that it came from.
    fn wrong(&self, error: &clap::Error) -> Wrong {
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
        let at = self.entries.iter().find(|entry| keys.contains(&entry.key));
        // The first paragraph, without the word that clap begins with; the rest is about the command line.
        let text = error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        let first = text.split("\n\n").next().unwrap_or_default().trim();
        let what = first.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        Wrong { line: at.map(|entry| entry.line), what }
    }
}

impl Entry<'_> {
    fn wrong(&self, what: String) -> Wrong {
        Wrong { line: Some(self.line), what: format!("{}: {what}", self.key) }
    }

    /// One word, or those of an array.
    fn words(&self) -> Result<Vec<String>, Wrong> {
        match &self.value {
            DeValue::Array(all) => all.iter().map(|value| self.word(value.get_ref())).collect(),
            value => Ok(vec![self.word(value)?]),
        }
    }

    fn word(&self, value: &DeValue<'_>) -> Result<String, Wrong> {
        match value {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_string()),
            _ => Err(self.wrong("a string or a decimal whole number is wanted".to_string())),
        }
    }

    fn options(&self, option: &Arg) -> Result<Vec<OsString>, Wrong> {
        let key = &self.key;
        let takes_none = !option.get_action().takes_values();
        // --json goes with and without a value.
        match &self.value {
            DeValue::Boolean(wanted) if takes_none || may_have_none(option) => {
                Ok(wanted.then(|| format!("--{key}").into()).into_iter().collect())
            }
            _ if takes_none => Err(self.wrong("true or false is wanted".to_string())),
            DeValue::Array(_) if !is_repeated(option) => {
                Err(self.wrong("one value is wanted, not an array".to_string()))
            }
            DeValue::Array(_) if option.get_value_delimiter().is_some() => {
                Ok(vec![format!("--{key}={}", self.words()?.join(",")).into()])
            }
            _ => Ok(self.words()?.iter().map(|word| format!("--{key}={word}").into()).collect()),
        }
    }
}

fn may_have_none(option: &Arg) -> bool {
    option.get_num_args().is_some_and(|range| range.min_values() == 0)
}

fn is_repeated(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Append)
}

fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_meant = |arg: &&Arg| arg.get_long().is_some_and(|long| !NOT_IN_FILES.contains(&long));
    command.get_arguments().filter(is_meant)
}

fn options_of_any(watch: &Command) -> impl Iterator<Item = &str> {
    watch.get_subcommands().flat_map(options).filter_map(Arg::get_long)
}

fn meant<'n>(wanted: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    nearest(wanted, names).map_or(String::new(), |name| format!("; did you mean '{name}'?"))
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
    let commands = help::command();
    let found = of_tracker(matches).and_then(|(name, given)| {
        let tracker = commands.find_subcommand("watch")?.find_subcommand(name)?;
        Some((name, given, tracker))
    });
    let Some((name, given, tracker)) = found else {
        return Err(Failure::Usage("--print-config: name a tracker".to_string()));
    };
    let mut text = format!("version = {VERSION}\ntracker = {}\n", quoted(name));
    for option in options(tracker) {
        let (Some(long), id) = (option.get_long(), option.get_id().as_str()) else { continue };
        if given.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        if !option.get_action().takes_values() {
            text.push_str(&format!("{long} = true\n"));
            continue;
        }
        let words = words(given, id)?;
        let value = match &words[..] {
            // As --json was given: without a value.
            [one] if may_have_none(option) && one == NO_VALUE => "true".to_string(),
            [one] if !is_repeated(option) => quoted(one),
            _ => array(&words),
        };
        text.push_str(&format!("{long} = {value}\n"));
    }
    let command = words(given, "command")?;
    if !command.is_empty() {
        text.push_str(&format!("command = {}\n", array(&command)));
    }
    Ok(text)
}

fn words(given: &ArgMatches, id: &str) -> Result<Vec<String>, Failure> {
    let word = |word: &std::ffi::OsStr| {
        word.to_str().map(str::to_owned).ok_or_else(|| {
            Failure::Usage(format!("--print-config: '{}' is not UTF-8, as TOML is", word.to_string_lossy()))
        })
    };
    given.get_raw(id).into_iter().flatten().map(word).collect()
}

fn array(words: &[String]) -> String {
    format!("[{}]", words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", "))
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
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
                let arguments = Document::parse(&text).unwrap().arguments().unwrap();
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
