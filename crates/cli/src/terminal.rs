// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How standard output shows a text: colours, the characters of the locale, the columns that there are.

use rtscope_view::{Style, is_utf8, width_of};
use std::io::{self, IsTerminal};
use terminal_size::{Width, terminal_size_of};

/// Columns of pictures and paragraphs where nobody says how many there are.
const PIPE_COLUMNS: usize = 80;

/// The style of a text on standard output. `verbose`: with what says nothing to most readers.
pub fn style(verbose: bool) -> Style {
    let variable = |name: &str| std::env::var(name).ok();
    let columns =
        width_of(variable("COLUMNS"), terminal_size_of(io::stdout()).map(|(Width(width), _)| width));
    let is_terminal = io::stdout().is_terminal();
    let width = columns.unwrap_or(PIPE_COLUMNS);
    Style {
        color: is_terminal && std::env::var_os("NO_COLOR").is_none(),
        ascii: has_only_ascii(),
        width,
        sentences: columns,
        verbose,
        // Whoever reads a pipe or a file wants all of it.
        terminal: is_terminal.then_some(width),
    }
}

/// Whether the locale has no characters but those of ASCII, as far as is known.
pub fn has_only_ascii() -> bool {
    !is_utf8(&|name: &str| std::env::var(name).ok())
}
