// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables: columns as wide as what is in them, or as narrow as the terminal.
//!
//! Where a table does not fit, names are shortened, down to a few characters; then columns that matter least are left out, and a line says
//! which. A number is never cut: a part of a number is another number.

use crate::style::Style;

/// Words are not made shorter than this.
const SHORTEST: usize = 14;

/// Blanks between two columns.
const GAP: usize = 2;

/// A table whose first row is its head.
pub(crate) struct Columns<const N: usize> {
    rows: Vec<[String; N]>,
    /// Columns of words: they begin at the left, and the others end at the right.
    words: &'static [usize],
    /// Columns that may be left out, the first one first.
    expendable: &'static [usize],
    /// Columns of words that have numbers: they are never shortened.
    whole: &'static [usize],
}

impl<const N: usize> Columns<N> {
    pub(crate) fn new(head: [&str; N], words: &'static [usize]) -> Columns<N> {
        Columns { rows: vec![head.map(str::to_owned)], words, expendable: &[], whole: &[] }
    }

    /// Columns of words that are never shortened, since they have numbers.
    pub(crate) fn whole(self, whole: &'static [usize]) -> Columns<N> {
        Columns { whole, ..self }
    }

    /// Columns that may be left out where there is no room, the first one first.
    pub(crate) fn expendable(self, expendable: &'static [usize]) -> Columns<N> {
        Columns { expendable, ..self }
    }

    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    /// The table, within the columns of the terminal if it is for one.
    pub(crate) fn text(&self, style: Style) -> String {
        let (widths, left_out) = self.fitted(style);
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (place, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let Some(width) = *width else { continue };
                if !line.is_empty() || widths.iter().take(place).any(Option::is_some) {
                    line.push_str(&" ".repeat(GAP));
                }
                let cell = style.shortened(cell, width);
                let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
                if self.words.contains(&place) {
                    line.push_str(&cell);
                    line.push_str(&padding);
                } else {
                    line.push_str(&padding);
                    line.push_str(&cell);
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        if !left_out.is_empty() {
            let names: Vec<&str> = left_out.iter().map(|place| self.rows[0][*place].trim()).collect();
            let note = format!("(no room for: {}; --json has all)", names.join(", "));
            text.push_str(&style.wrap(&note, 0, 0));
        }
        text
    }

    /// The width of each column, `None` for those that are left out; and which these are.
    fn fitted(&self, style: Style) -> ([Option<usize>; N], Vec<usize>) {
        let widest = |place: usize| self.rows.iter().map(|row| row[place].chars().count()).max().unwrap_or(0);
        let mut widths: [Option<usize>; N] = std::array::from_fn(|place| Some(widest(place)));
        let mut left_out = Vec::new();
        let Some(limit) = style.table_width() else { return (widths, left_out) };
        let total = |widths: &[Option<usize>; N], least: bool| {
            let shown = widths.iter().enumerate().filter_map(|(place, width)| {
                let is_short = least && self.words.contains(&place) && !self.whole.contains(&place);
                width.map(|width| if is_short { width.min(SHORTEST) } else { width })
            });
            shown.map(|width| width + GAP).sum::<usize>().saturating_sub(GAP)
        };
        for place in self.expendable {
            if total(&widths, true) <= limit {
                break;
            }
            widths[*place] = None;
            left_out.push(*place);
        }
        // The widest words give first.
        while total(&widths, false) > limit {
            let words = self.words.iter().filter(|place| !self.whole.contains(place));
            let words = words.filter_map(|place| Some((widths[*place]?, *place)));
            let Some((width, place)) = words.max().filter(|(width, _)| *width > SHORTEST) else { break };
            widths[place] = Some(width - 1);
        }
        left_out.sort_unstable();
        (widths, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Columns<4> {
        let mut columns = Columns::new(["n", "name", "x", "least"], &[1]).expendable(&[3, 2]);
        columns.row(["12345".to_owned(), "a".to_owned(), "1".to_owned(), "123456".to_owned()]);
        columns.row([
            "1".to_owned(),
            "größer als alles, was da steht".to_owned(),
            String::new(),
            String::new(),
        ]);
        columns
    }

    fn on_a_terminal(width: usize) -> Style {
        Style { terminal: Some(width), ..Style::default() }
    }

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let mut columns = Columns::new(["n", "name", "x"], &[1]);
        columns.row(["12345".to_owned(), "a".to_owned(), "1".to_owned()]);
        columns.row(["1".to_owned(), "größer".to_owned(), String::new()]);
        let expected = "    n  name    x\n12345  a       1\n    1  größer\n";
        assert_eq!(columns.text(Style::default()), expected);
        assert_eq!(columns.text(on_a_terminal(16)), expected);
    }

    #[test]
    fn where_there_is_no_room_words_are_shortened_and_columns_left_out() {
        let columns = table();
        let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
        let whole = columns.text(Style::default());
        assert!(widest(&whole) > 45 && whole.contains("da steht"), "{whole}");
        for width in 40..60 {
            let text = columns.text(on_a_terminal(width));
            assert!(widest(&text) <= width, "{width}: {text}");
            assert_eq!(text == whole, width >= widest(&whole), "{width}: {text}");
            assert!(text.contains("12345") && text.contains("123456"), "numbers are whole: {text}");
        }
        let narrow = table();
        let narrow = Columns { words: &[], ..narrow };
        let text = narrow.text(on_a_terminal(40));
        assert!(!text.contains("123456") && text.contains("(no room for: least; --json has all)"), "{text}");
        let ascii = columns.text(Style { ascii: true, ..on_a_terminal(40) });
        assert!(ascii.contains("..."), "{ascii}");
    }
}
