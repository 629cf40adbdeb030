// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The help of `rtscope`: its commands in groups, by what they are for.
//!
//! clap lists subcommands in one block. So the page of the whole program has a template, which is made from the groups here and
//! the descriptions in `args`. The text of each page is in golden/help: a change of it is seen in the diff.

use crate::args::Args;
use clap::builder::Styles;
use clap::{Command, CommandFactory};
use std::fmt::Write;

/// What commands are for, and their names. Each command is in one group.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Find late responses", &["watch", "hist", "top", "io-profile", "state", "fds", "explain"]),
    ("Record and read", &["record", "snapshot", "print", "stat", "convert", "list", "hardware"]),
    ("Measure", &["npt", "impact"]),
    ("Protect", &["shield"]),
    ("Other", &["caps", "completions", "man", "help"]),
];
/// clap makes this command itself.
const HELP: (&str, &str) = ("help", "Print this help, or that of a command");
/// Columns for the names of commands.
const NAME: usize = 11;

/// The definitions of all commands, with the groups.
pub fn command() -> Command {
    let command = Args::command();
    let groups = groups(&command);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\n{}\n{{options}}{{after-help}}",
        heading("Options")
    ))
}

fn heading(text: &str) -> String {
    let styles = Styles::styled();
    let style = styles.get_header();
    format!("{style}{text}:{style:#}")
}

fn groups(command: &Command) -> String {
    let styles = Styles::styled();
    let style = styles.get_literal();
    let mut text = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(text, "\n{}", heading(title));
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let about = about.unwrap_or_else(|| HELP.1.to_string());
            let _ = writeln!(text, "  {style}{name:<NAME$}{style:#}  {about}");
        }
    }
    text
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::Path;

    /// Columns of the golden pages.
    const WIDTH: usize = 100;

    #[test]
    fn every_command_is_in_one_group() {
        let command = command();
        let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
        let there: BTreeSet<&str> = commands.map(Command::get_name).chain([HELP.0]).collect();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), there);
        assert_eq!(grouped.len(), there.len(), "a command is in two groups");
        assert!(grouped.iter().all(|name| name.len() <= NAME));
    }

    /// The pages of a command and of those below it, by name.
    fn pages(command: &mut Command, path: &str, pages: &mut BTreeMap<String, String>) {
        let page = command.render_long_help().to_string();
        let trimmed: Vec<&str> = page.lines().map(str::trim_end).collect();
        pages.insert(path.to_string(), trimmed.join("\n") + "\n");
        for below in command.get_subcommands_mut().filter(|below| below.get_name() != HELP.0) {
            let path = format!("{path}-{}", below.get_name());
            self::pages(below, &path, pages);
        }
    }

    /// All of them, in so many columns.
    pub fn all_pages() -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let mut command = command().term_width(WIDTH);
        command.build();
        pages(&mut command, "rtscope", &mut all);
        all
    }

    #[test]
    fn the_help_of_every_command_is_as_in_golden() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/help");
        let pages = all_pages();
        if std::env::var_os("RTSCOPE_BLESS").is_some() {
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(&dir).expect("the source directory can be written");
            for (name, page) in &pages {
                fs::write(dir.join(format!("{name}.txt")), page)
                    .expect("the source directory can be written");
            }
        }
        let files = fs::read_dir(&dir).expect("RTSCOPE_BLESS=1 makes it").flatten();
        let names: BTreeSet<String> = files
            .filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".txt")?.to_string()))
            .collect();
        assert_eq!(names, pages.keys().cloned().collect(), "RTSCOPE_BLESS=1 rewrites them");
        for (name, page) in &pages {
            let golden = fs::read_to_string(dir.join(format!("{name}.txt"))).expect("it is there");
            assert!(*page == golden, "the help of {name} has changed (RTSCOPE_BLESS=1 rewrites it):\n{page}");
        }
    }

    #[test]
    fn every_page_fits_its_width_and_has_an_example() {
        for (name, page) in all_pages() {
            // These are started by rtscope itself, and hidden.
            let is_internal =
                ["rtscope-shield-keep", "rtscope-shield-guard", "rtscope-sweep"].contains(&name.as_str());
            let has_example = page.lines().any(|line| line == "Examples:" || line == "Example:");
            assert!(is_internal || has_example, "{name}:\n{page}");
            for line in page.lines() {
                // A word longer than a line, like a list of values, cannot be broken.
                let fits = line.chars().count() <= WIDTH || !line.trim_start().contains(' ');
                assert!(fits, "{name}: {line}");
            }
        }
    }
}
