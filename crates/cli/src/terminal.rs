// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How standard output shows a text: colours, the characters of the locale, the columns that there are.

use rtscope_view::Style;
use std::io::{self, IsTerminal};
use terminal_size::{Width, terminal_size_of};

/// Columns where nobody says how many there are: a pipe, a file.
const WIDTH: usize = 80;

/// The style of a text on standard output. `verbose`: with what says nothing to most readers.
pub fn style(verbose: bool) -> Style {
    let variable = |name: &str| std::env::var(name).ok();
    let width = width(variable("COLUMNS"), terminal_size_of(io::stdout()).map(|(Width(width), _)| width));
    let is_terminal = io::stdout().is_terminal();
    Style {
        color: is_terminal && std::env::var_os("NO_COLOR").is_none(),
        ascii: has_only_ascii(),
        width,
        verbose,
        // Whoever reads a pipe or a file wants all of it.
        terminal: is_terminal.then_some(width),
    }
}

/// Whether the locale has no characters but those of ASCII, as far as is known.
pub fn has_only_ascii() -> bool {
    !is_utf8(&|name: &str| std::env::var(name).ok())
}

/// Whether the locale's characters are Unicode in UTF-8, as POSIX orders the variables: the first one that is not empty counts.
fn is_utf8(variable: &dyn Fn(&str) -> Option<String>) -> bool {
    let locale =
        ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable).find(|text| !text.is_empty());
    locale.is_some_and(|locale| locale.to_ascii_lowercase().replace('-', "").contains("utf8"))
}

/// The user's word goes before what the terminal says; a terminal of no columns says nothing.
fn width(asked: Option<String>, terminal: Option<u16>) -> usize {
    let asked = asked.and_then(|columns| columns.trim().parse::<usize>().ok());
    let terminal = terminal.map(usize::from);
    asked.into_iter().chain(terminal).find(|columns| *columns > 0).unwrap_or(WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_not_empty_says_the_locale() {
        for (all, ctype, lang, expected) in [
            ("", "", "", false),
            ("", "", "de_DE.UTF-8", true),
            ("C", "", "de_DE.UTF-8", false),
            ("", "en_US.utf8", "C", true),
            ("C.UTF-8", "C", "C", true),
            ("", "POSIX", "en_US.UTF-8", false),
            ("", "", "de_DE.ISO-8859-15", false),
        ] {
            let value = |name: &str| match name {
                "LC_ALL" => Some(all.to_owned()),
                "LC_CTYPE" => Some(ctype.to_owned()),
                _ => Some(lang.to_owned()).filter(|lang| !lang.is_empty()),
            };
            assert_eq!(is_utf8(&value), expected, "{all} {ctype} {lang}");
        }
    }

    #[test]
    fn the_users_columns_go_before_the_terminals() {
        let asked = |text: &str| Some(text.to_owned());
        assert_eq!(width(None, None), WIDTH);
        assert_eq!(width(None, Some(132)), 132);
        assert_eq!(width(asked("70"), Some(132)), 70);
        assert_eq!(width(asked("wide"), Some(132)), 132);
        assert_eq!(width(asked("0"), Some(0)), WIDTH);
    }
}
