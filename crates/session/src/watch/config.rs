// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A watch as a file (docs/watch-config.md): TOML, whose keys are the names of the options that whoever reads it has.
//!
//! Which options there are, and which values they take, is said by a [`Form`]: so a file can say whatever options can, and there is no
//! second list of names that could differ. What the values mean is left to them, too.

use crate::Failure;
use rtscope_event::nearest;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// The version of the form that is written, and the only one that is read.
const VERSION: &str = "1";
/// No file for people is larger.
const FILE_BYTES: u64 = 1 << 20;
/// Keys that are not names of options.
const OWN_KEYS: [&str; 3] = ["version", "tracker", "command"];

/// Which values an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// None: it is given or not.
    None,
    /// One, or none.
    Optional,
    /// One.
    One,
    /// Any number.
    Many,
}

/// An option.
#[derive(Clone, Copy, Debug)]
pub struct OptionForm<'f> {
    /// Its name, the key in a file.
    pub key: &'f str,
    /// Which values it takes.
    pub values: ValueKind,
}

/// Trackers with their options.
pub type Form<'f> = Vec<(&'f str, Vec<OptionForm<'f>>)>;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    line: Option<usize>,
    what: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// The text of a file.
///
/// # Errors
/// When it cannot be read, or is too large for a file that a person wrote.
pub fn read(file: &Path) -> Result<String, Failure> {
    let refuse = |why: &dyn fmt::Display| Failure::Usage(format!("{}: {why}", file.display()));
    let mut text = String::new();
    // Without waiting for somebody who writes to a pipe of that name.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file);
    let read = opened.and_then(|file| match file.metadata()?.is_file() {
        true => file.take(FILE_BYTES + 1).read_to_string(&mut text),
        false => Err(std::io::Error::other("not a regular file; write what it says into one")),
    });
    read.map_err(|error| refuse(&error))?;
    if text.len() as u64 > FILE_BYTES {
        return Err(refuse(&"larger than 1 MiB"));
    }
    Ok(text)
}

/// What a file asks for.
#[derive(Debug)]
pub struct WatchFile {
    /// What is followed.
    pub tracker: String,
    /// Options, with their values; `None`: it takes none, or goes without one.
    pub options: Vec<(String, Option<Vec<String>>)>,
    /// The program to start, and its arguments; empty: none.
    pub command: Vec<String>,
    /// The lines of all keys.
    lines: Vec<(String, usize)>,
}

impl WatchFile {
    /// From its text.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str, form: &Form<'_>) -> Result<WatchFile, Wrong> {
        let entries = entries(text)?;
        let whole = |what: String| Wrong { line: None, what };
        let find = |key: &str| entries.iter().find(|entry| entry.key == key);
        let version = find("version").ok_or_else(|| whole(format!("'version = {VERSION}' is missing")))?;
        if !matches!(&version.value, DeValue::Integer(number) if number.radix() == 10 && number.as_str() == VERSION)
        {
            return Err(version.wrong(format!("this rtscope reads version {VERSION}")));
        }
        let named = find("tracker")
            .ok_or_else(|| whole("'tracker = \"wakeup\"' or another one is missing".to_string()))?;
        let tracker = named.words()?.join(" ");
        let (_, known) = form.iter().find(|(name, _)| *name == tracker).ok_or_else(|| {
            let names = || form.iter().map(|(name, _)| *name);
            let all = names().collect::<Vec<_>>().join(", ");
            named.wrong(format!(
                "there is no tracker '{tracker}'{}; trackers are {all}",
                meant(&tracker, names())
            ))
        })?;
        let mut options = Vec::new();
        for entry in entries.iter().filter(|entry| !OWN_KEYS.contains(&entry.key.as_str())) {
            let option = known.iter().find(|option| option.key == entry.key);
            let option = option.ok_or_else(|| entry.unknown(&tracker, known, form))?;
            options.extend(entry.values(option.values)?.map(|values| (entry.key.clone(), values)));
        }
        let command = match find("command") {
            None => Vec::new(),
            Some(command) if matches!(command.value, DeValue::Array(_)) => command.words()?,
            Some(other) => {
                return Err(other.wrong("an array of words is wanted: [\"./server\", \"-v\"]".to_string()));
            }
        };
        let lines = entries.into_iter().map(|entry| (entry.key, entry.line)).collect();
        Ok(WatchFile { tracker, options, command, lines })
    }

    /// What was found wrong with the first of these keys that it has.
    #[must_use]
    pub fn wrong(&self, keys: &[String], what: String) -> Wrong {
        let at = self.lines.iter().find(|(key, _)| keys.contains(key));
        Wrong { line: at.map(|(_, line)| *line), what }
    }
}

struct Entry<'t> {
    key: String,
    line: usize,
    value: DeValue<'t>,
}

fn entries(text: &str) -> Result<Vec<Entry<'_>>, Wrong> {
    let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let table = DeTable::parse(text).map_err(|error| Wrong {
        line: error.span().map(|span| line(span.start)),
        what: error.message().to_string(),
    })?;
    let mut entries = Vec::new();
    for (key, value) in table.into_inner() {
        let line = line(key.span().start);
        entries.push(Entry { line, key: key.into_inner().into_owned(), value: value.into_inner() });
    }
    entries.sort_by_key(|entry| entry.line);
    Ok(entries)
}

impl Entry<'_> {
    fn wrong(&self, what: String) -> Wrong {
        Wrong { line: Some(self.line), what: format!("{}: {what}", self.key) }
    }

    fn unknown(&self, tracker: &str, known: &[OptionForm<'_>], form: &Form<'_>) -> Wrong {
        let names = known.iter().map(|option| option.key).chain(OWN_KEYS);
        let is_known = form.iter().flat_map(|(_, options)| options).any(|option| option.key == self.key);
        let of = if is_known { format!(" of the tracker '{tracker}'") } else { String::new() };
        self.wrong(format!("there is no key '{}'{of}{}", self.key, meant(&self.key, names)))
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

    /// As in [`WatchFile::options`]; nothing: the option is not given.
    fn values(&self, kind: ValueKind) -> Result<Option<Option<Vec<String>>>, Wrong> {
        match (&self.value, kind) {
            (DeValue::Boolean(wanted), ValueKind::None | ValueKind::Optional) => Ok(wanted.then_some(None)),
            (_, ValueKind::None) => Err(self.wrong("true or false is wanted".to_string())),
            (DeValue::Array(_), ValueKind::One | ValueKind::Optional) => {
                Err(self.wrong("one value is wanted, not an array".to_string()))
            }
            _ => Ok(Some(Some(self.words()?))),
        }
    }
}

fn meant<'n>(wanted: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    nearest(wanted, names).map_or(String::new(), |name| format!("; did you mean '{name}'?"))
}

/// An option, with its values as in [`WatchFile::options`].
pub type GivenOption<'f> = (OptionForm<'f>, Option<Vec<String>>);

/// A file that asks for this.
#[must_use]
pub fn printed(tracker: &str, options: &[GivenOption<'_>], command: &[String]) -> String {
    let mut text = format!("version = {VERSION}\ntracker = {}\n", quoted(tracker));
    for (option, words) in options {
        let value = match (words.as_deref(), option.values) {
            (None, _) => "true".to_string(),
            (Some([one]), ValueKind::One | ValueKind::Optional) => quoted(one),
            (Some(words), _) => array(words),
        };
        text.push_str(&format!("{} = {value}\n", option.key));
    }
    if !command.is_empty() {
        text.push_str(&format!("command = {}\n", array(command)));
    }
    text
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

    fn form() -> Form<'static> {
        let option = |key, values| OptionForm { key, values };
        vec![(
            "wakeup",
            vec![
                option("threshold", ValueKind::One),
                option("json", ValueKind::Optional),
                option("verbose", ValueKind::None),
                option("and", ValueKind::Many),
            ],
        )]
    }

    #[test]
    fn what_is_printed_is_read_as_it_was() {
        let options = ["threshold", "json", "verbose", "and"].map(|key| {
            let known = &form()[0].1;
            let option = *known.iter().find(|option| option.key == key).unwrap();
            let words: Option<&[&str]> = match key {
                "threshold" => Some(&["1ms"]),
                "and" => Some(&["lock:1ms", "a\"b\\c"]),
                _ => None,
            };
            (option, words.map(|words| words.iter().map(ToString::to_string).collect()))
        });
        let command = ["./x".to_string(), "a\nb".to_string()];
        let file = WatchFile::parse(&printed("wakeup", &options, &command), &form()).unwrap();
        let given = options.map(|(option, words)| (option.key.to_string(), words));
        assert_eq!((file.tracker.as_str(), &file.command[..]), ("wakeup", &command[..]));
        assert_eq!(file.options, given);
    }

    #[test]
    fn false_is_as_if_it_were_not_given() {
        let text = "version = 1\ntracker = 'wakeup'\nverbose = false\njson = false";
        assert!(WatchFile::parse(text, &form()).unwrap().options.is_empty());
    }

    #[test]
    fn what_is_wrong_has_a_line() {
        let wrong = |text: &str| WatchFile::parse(text, &form()).unwrap_err().to_string();
        assert_eq!(wrong("version = 2"), "line 1: version: this rtscope reads version 1");
        assert_eq!(
            wrong("version = 1\ntracker = 'wakeup'\nverbos = true"),
            "line 3: verbos: there is no key 'verbos'; did you mean 'verbose'?"
        );
        let file = WatchFile::parse("version = 1\ntracker = 'wakeup'\nthreshold = 1", &form()).unwrap();
        let refused = file.wrong(&["threshold".to_string()], "no unit".to_string());
        assert_eq!(refused.to_string(), "line 3: no unit");
    }
}
