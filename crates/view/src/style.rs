// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Colour, bars and line breaks: all that a terminal needs beyond the words.

/// Columns a report keeps to, names that are longer than usual apart.
pub(crate) const WIDTH: usize = 100;

/// How a text is drawn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// With ANSI colours.
    pub color: bool,
}

impl Style {
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
}

/// A bar of at most `width` cells, in eighths of a cell; never empty when there is anything to show.
pub(crate) fn bar(part: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if part <= 0.0 {
        return String::new();
    }
    let eighths = ((part.min(1.0) * width as f64 * 8.0).round() as usize).max(1);
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// Breaks a line at blanks; further lines are indented by `indent` more columns than the first.
pub(crate) fn wrap(text: &str, first: usize, indent: usize) -> String {
    let mut result = " ".repeat(first);
    let mut column = first;
    let mut empty = true;
    for word in text.split(' ') {
        let length = word.chars().count();
        if !empty && column + 1 + length > WIDTH {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_anything_there_is() {
        assert_eq!(bar(0.0, 8), "");
        assert_eq!(bar(0.0001, 8), "▏");
        assert_eq!(bar(0.5, 8), "████");
        assert_eq!(bar(1.0, 2), "██");
    }

    #[test]
    fn long_lines_are_broken_at_blanks() {
        let text = wrap(&"word ".repeat(30), 2, 4);
        assert!(text.lines().all(|line| line.len() <= WIDTH));
        assert!(text.lines().nth(1).unwrap().starts_with("      word"));
    }
}
