// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the variables of the environment say of an output: the characters of the locale, the columns that there are.

/// Whether the locale's characters are Unicode in UTF-8, as POSIX orders the variables: the first one that is not empty counts.
#[must_use]
pub fn is_utf8(variable: &dyn Fn(&str) -> Option<String>) -> bool {
    let locale =
        ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable).find(|text| !text.is_empty());
    locale.is_some_and(|locale| locale.to_ascii_lowercase().replace('-', "").contains("utf8"))
}

/// How many columns there are. The user's word goes before what the terminal says; a terminal of no columns says nothing. `None`: nobody
/// says it, as of a pipe.
#[must_use]
pub fn width_of(asked: Option<String>, terminal: Option<u16>) -> Option<usize> {
    let asked = asked.and_then(|columns| columns.trim().parse::<usize>().ok());
    let terminal = terminal.map(usize::from);
    asked.into_iter().chain(terminal).find(|columns| *columns > 0)
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
        assert_eq!(width_of(None, None), None);
        assert_eq!(width_of(None, Some(132)), Some(132));
        assert_eq!(width_of(asked("70"), Some(132)), Some(70));
        assert_eq!(width_of(asked("70"), None), Some(70));
        assert_eq!(width_of(asked("wide"), Some(132)), Some(132));
        assert_eq!(width_of(asked("0"), Some(0)), None);
    }
}
