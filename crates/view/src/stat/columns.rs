// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables: columns as wide as what is in them.

/// A table whose first row is its head.
pub(super) struct Columns<const N: usize> {
    rows: Vec<[String; N]>,
    /// Columns of words: they begin at the left, and the others end at the right.
    words: &'static [usize],
}

impl<const N: usize> Columns<N> {
    pub(super) fn new(head: [&str; N], words: &'static [usize]) -> Columns<N> {
        Columns { rows: vec![head.map(str::to_owned)], words }
    }

    pub(super) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    pub(super) fn text(&self) -> String {
        let width = |place: usize| self.rows.iter().map(|row| row[place].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..N).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (place, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if place > 0 {
                    line.push_str("  ");
                }
                let padding = " ".repeat(width - cell.chars().count());
                if self.words.contains(&place) {
                    line.push_str(cell);
                    line.push_str(&padding);
                } else {
                    line.push_str(&padding);
                    line.push_str(cell);
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let mut columns = Columns::new(["n", "name", "x"], &[1]);
        columns.row(["12345".to_owned(), "a".to_owned(), "1".to_owned()]);
        columns.row(["1".to_owned(), "größer".to_owned(), String::new()]);
        assert_eq!(columns.text(), "    n  name    x\n12345  a       1\n    1  größer\n");
    }
}
