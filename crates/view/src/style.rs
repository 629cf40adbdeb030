// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Colour, bars and line breaks: all that a terminal needs beyond the words.

use std::borrow::Cow;

/// Columns of pictures and paragraphs in a file.
const WIDTH: usize = 100;

/// Columns below which reports are not made narrower: words and figures would not fit.
const NARROWEST: usize = 40;

/// How much farther to the right a line goes on that has no columns.
const CONTINUED: usize = 4;

/// How a text is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// With ANSI colours.
    pub color: bool,
    /// Pictures are made of ASCII characters: the locale has no others.
    pub ascii: bool,
    /// Columns that pictures and paragraphs keep to, names that are longer than usual apart.
    pub width: usize,
    /// Columns at which sentences of a report are broken. `None`: whoever reads a pipe or a file wants whole lines.
    pub sentences: Option<usize>,
    /// With what says nothing to most readers: every row instead of the first ones, and what counters were added up.
    pub verbose: bool,
    /// Columns of the terminal that it is for, which tables keep to. `None`: it is for a file or a pipe, which have room for everything.
    pub terminal: Option<usize>,
}

impl Default for Style {
    /// For files.
    fn default() -> Style {
        Style { color: false, ascii: false, width: WIDTH, sentences: None, verbose: false, terminal: None }
    }
}

impl Style {
    /// How many rows of a list are shown, where that many say enough.
    pub(crate) fn rows(self, enough: usize) -> usize {
        if self.verbose { usize::MAX } else { enough }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(crate) fn alarm(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    pub(crate) fn strong(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn faint(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// A bar of at most `width` cells, in eighths of a cell; never empty when there is anything to show. In ASCII in whole cells.
    pub(crate) fn bar(self, part: f64, width: usize) -> String {
        const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        if part <= 0.0 {
            return String::new();
        }
        let cells = part.min(1.0) * width as f64;
        if self.ascii {
            return "#".repeat((cells.round() as usize).max(1));
        }
        let eighths = ((cells * 8.0).round() as usize).max(1);
        format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
    }

    /// Columns that a table may have.
    pub(crate) fn table_width(self) -> Option<usize> {
        self.terminal.map(|width| width.max(NARROWEST))
    }

    /// A text that takes at most this many columns, with an ellipsis where its end was. A number in parentheses at the end stays: of
    /// `name (tid)` it is the tid that tells threads apart.
    pub(crate) fn shortened(self, text: &str, width: usize) -> Cow<'_, str> {
        let ellipsis = if self.ascii { "..." } else { "\u{2026}" };
        let length = text.chars().count();
        if length <= width {
            return Cow::Borrowed(text);
        }
        let number = text.rfind(" (").and_then(|at| text.get(at..)).filter(|end| end.ends_with(')'));
        let number = number.filter(|number| number.chars().count() + ellipsis.chars().count() < width);
        if let Some(number) = number {
            let kept = width - number.chars().count() - ellipsis.chars().count();
            return Cow::Owned(
                text.chars().take(kept).chain(ellipsis.chars()).chain(number.chars()).collect(),
            );
        }
        let kept = width.saturating_sub(ellipsis.chars().count());
        Cow::Owned(text.chars().take(kept).chain(ellipsis.chars()).take(width).collect())
    }

    /// A line of a table whose last column is words: cut where the terminal ends.
    pub(crate) fn line(self, line: &str) -> Cow<'_, str> {
        match self.table_width() {
            Some(width) => self.shortened(line.trim_end(), width),
            None => Cow::Borrowed(line.trim_end()),
        }
    }

    /// A report whose lines are sentences, or end in some: those that are too long are broken at blanks. What was broken off goes on below the
    /// line's last column (what stands behind two blanks or more), so that a table stays a table.
    #[must_use]
    pub fn fitted(self, text: &str) -> String {
        let Some(columns) = self.sentences else { return text.to_owned() };
        let width = columns.max(NARROWEST);
        let lines = text.lines().map(|line| match line.chars().count() > width {
            true => Cow::Owned(self.wrap_below(line, width)),
            false => Cow::Borrowed(line),
        });
        let fitted: Vec<Cow<'_, str>> = lines.collect();
        fitted.join("\n") + if text.ends_with('\n') { "\n" } else { "" }
    }

    /// One line that stands for itself, which a file or a pipe has whole.
    pub(crate) fn fitted_for_terminal(self, line: &str) -> String {
        if self.terminal.is_some() { self.fitted(line) } else { line.to_owned() }
    }

    fn wrap_below(self, line: &str, width: usize) -> String {
        let leading = line.chars().take_while(|c| *c == ' ').count();
        let characters: Vec<char> = line.chars().collect();
        let is_column = |at: &usize| {
            *at > leading + 1
                && characters[at - 1] == ' '
                && characters[at - 2] == ' '
                && characters[*at] != ' '
        };
        // Each word has to find room below it: names of files are long.
        let has_room = |at: &usize| {
            let longest = characters[*at..].split(|c| *c == ' ').map(<[char]>::len).max();
            longest.unwrap_or(0) <= width - at
        };
        let columns = (2..characters.len().min(width * 2 / 3)).rev();
        let found = columns.filter(is_column).find(has_room);
        let column = found.unwrap_or((leading + CONTINUED).min(width / 2));
        // No line is broken before its last column.
        let mut result = String::with_capacity(line.len() + column);
        let mut used = 0;
        let mut rest = characters.as_slice();
        while !rest.is_empty() {
            let room = width - used;
            if rest.len() <= room {
                result.extend(rest);
                break;
            }
            let first = if used == 0 { found.unwrap_or(leading) } else { 0 };
            let end = (first + 1..=room).rev().find(|at| is_between_words(rest, *at));
            // A word that is too long stays whole.
            let end = end
                .or_else(|| (room..rest.len()).find(|at| is_between_words(rest, *at)))
                .unwrap_or(rest.len());
            result.extend(&rest[..end]);
            result.truncate(result.trim_end().len());
            rest = &rest[end..];
            rest = &rest[rest.iter().take_while(|c| **c == ' ').count()..];
            if !rest.is_empty() {
                result.push('\n');
                result.push_str(&" ".repeat(column));
                used = column;
            }
        }
        result
    }

    /// Breaks a line at blanks; further lines are indented by `indent` more columns than the first.
    pub(crate) fn wrap(self, text: &str, first: usize, indent: usize) -> String {
        let width = self.width.max(NARROWEST);
        let mut result = " ".repeat(first);
        let mut column = first;
        let mut empty = true;
        for word in words(text) {
            let length = word.chars().count();
            if !empty && column + 1 + length > width {
                result.push('\n');
                result.push_str(&" ".repeat(first + indent));
                column = first + indent;
            } else if !empty {
                result.push(' ');
                column += 1;
            }
            result.push_str(word);
            column += length;
            empty = false;
        }
        result.push('\n');
        result
    }
}

/// What may not be broken.
fn words(text: &str) -> Vec<&str> {
    let characters: Vec<char> = text.chars().collect();
    let (mut words, mut from) = (Vec::new(), 0);
    for (place, (at, _)) in text.char_indices().enumerate() {
        if is_between_words(&characters, place) {
            words.push(&text[from..at]);
            from = at + 1;
        }
    }
    words.push(&text[from..]);
    words
}

/// Whether a line may end here: at a space that does not stand within a number (`12 345`).
fn is_between_words(text: &[char], at: usize) -> bool {
    let is_digit = |place: Option<usize>| place.and_then(|at| text.get(at)).is_some_and(char::is_ascii_digit);
    let groups = (1..=3).all(|place| is_digit(Some(at + place))) && !is_digit(Some(at + 4));
    text.get(at) == Some(&' ') && !(groups && is_digit(at.checked_sub(1)))
}

/// A text without the characters that pictures, units and lists are drawn with, for locales that have only ASCII's. Others, in names for
/// instance, stay as they are: they are what the kernel or the trace has.
#[must_use]
pub fn in_ascii(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut ascii = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\u{2026}' => ascii.push_str("..."),
            '\u{b2}' => ascii.push_str("^2"),
            '\u{b3}' => ascii.push_str("^3"),
            '\u{b5}' | '\u{3bc}' => ascii.push('u'),
            '\u{d7}' => ascii.push('x'),
            '\u{2013}' | '\u{2014}' | '\u{2500}' => ascii.push('-'),
            '\u{2502}' => ascii.push('|'),
            '\u{250c}' | '\u{2510}' | '\u{2514}' | '\u{2518}' | '\u{251c}' | '\u{2524}' | '\u{253c}' => {
                ascii.push('+')
            }
            '\u{2192}' => ascii.push_str("->"),
            '\u{2264}' => ascii.push_str("<="),
            '\u{2265}' => ascii.push_str(">="),
            '\u{2581}'..='\u{2593}' => ascii.push('#'),
            other => ascii.push(other),
        }
    }
    Cow::Owned(ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_anything_there_is() {
        let style = Style::default();
        assert_eq!(style.bar(0.0, 8), "");
        assert_eq!(style.bar(0.0001, 8), "▏");
        assert_eq!(style.bar(0.5, 8), "████");
        assert_eq!(style.bar(1.0, 2), "██");
        let style = Style { ascii: true, ..style };
        assert_eq!([0.0, 0.0001, 0.5, 1.0].map(|part| style.bar(part, 8).len()), [0, 1, 4, 8]);
        assert!(style.bar(0.7, 8).is_ascii());
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        let style = Style { terminal: Some(60), ..Style::default() };
        assert_eq!(style.shortened("gr\u{f6}\u{df}er", 6), "gr\u{f6}\u{df}er");
        assert_eq!(style.shortened("gr\u{f6}\u{df}er", 5), "gr\u{f6}\u{df}\u{2026}");
        assert_eq!(Style { ascii: true, ..style }.shortened("greater", 5), "gr...");
        assert_eq!(style.shortened("memfd:sealed (7335)", 14), "memfd:\u{2026} (7335)");
        assert_eq!(style.shortened("memfd:sealed (7335)", 7), "memfd:\u{2026}");
        let long = "word ".repeat(30);
        assert_eq!(style.line(&long).chars().count(), 60);
        assert_eq!(Style::default().line(&long), long.trim_end());
    }

    #[test]
    fn no_line_ends_within_a_number() {
        let style = Style { width: 40, ..Style::default() };
        let text = "left out by the filter for origins: 1 336 of all";
        assert_eq!(style.wrap(text, 0, 2), "left out by the filter for origins:\n  1 336 of all\n");
        let line = "  left out by the filter for origins: 12 336 567, 4";
        assert!(style.wrap_below(line, 40).contains("12 336 567,"), "{}", style.wrap_below(line, 40));
        // Four digits are another number.
        assert_eq!(words("cpu 1 2000 3 45"), ["cpu", "1", "2000", "3", "45"]);
    }

    #[test]
    fn pictures_units_and_lists_have_ascii_forms() {
        for (text, ascii) in [
            ("10\u{b3} ns\u{b2}, \u{b5}s", "10^3 ns^2, us"),
            ("a, b, \u{2026}", "a, b, ..."),
            ("\u{2588}\u{258f}", "##"),
            ("gr\u{f6}\u{df}er", "gr\u{f6}\u{df}er"),
        ] {
            assert_eq!(in_ascii(text), ascii);
        }
    }

    #[test]
    fn what_is_broken_off_goes_on_below_its_column() {
        let style = Style { sentences: Some(40), ..Style::default() };
        for (text, fitted) in [
            ("short\n\n  as it is\n", "short\n\n  as it is\n"),
            (
                "  name      1 -> 2  the places where it is, of many",
                "  name      1 -> 2  the places where it\n                    is, of many",
            ),
            (
                "           to get it: a sentence of many words",
                "           to get it: a sentence of many\n               words",
            ),
            (
                "/a/word/that/is/longer/than/the/line/and/stays then",
                "/a/word/that/is/longer/than/the/line/and/stays\n    then",
            ),
            (
                "one two three four five six seven eight nine",
                "one two three four five six seven eight\n    nine",
            ),
        ] {
            assert_eq!(style.fitted(text), fitted);
            assert_eq!(Style::default().fitted(text), text);
        }
        let line = "one two three four five six seven eight nine";
        assert_eq!(style.fitted_for_terminal(line), line);
        let style = Style { terminal: Some(40), ..style };
        assert_eq!(style.fitted_for_terminal(line).lines().count(), 2);
    }

    #[test]
    fn long_lines_are_broken_at_blanks() {
        for width in [1, 40, 80, 100] {
            let style = Style { width, ..Style::default() };
            let text = style.wrap(&"word ".repeat(30), 2, 4);
            let longest = text.lines().map(str::len).max().unwrap();
            assert!(longest <= width.max(NARROWEST) && longest + 5 > width, "{text}");
            assert!(text.lines().nth(1).unwrap().starts_with("      word"));
        }
    }
}
