// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the state to a frame, of any size: what does not fit is left out, and losses are the last to go.

use super::late::is_told_apart;
use super::layout::{Layout, brief};
use super::rows::TopRow;
use super::{Page, TopView};
use crate::hist::sparkline_within;
use crate::label::clean;
use crate::style::{Style, in_ascii};
use crate::units::{duration_text, reach_text};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style as Look};

/// Lines of a screen from which on the keys are named.
const WITH_KEYS: u16 = 8;
/// Lines from which on there is a title.
const WITH_TITLE: u16 = 3;
/// Columns below which a title has no place for whose it is.
const NARROW: u16 = 60;
const KEYS: &str = "Enter: details  t w n: sort  p: pause  r: begin anew  ?: help  q: end";
const PAGE_KEYS: &str = "Escape: back  up, down: scroll  p: pause  q: end";

/// Where a line is written.
struct Lines<'b> {
    buffer: &'b mut Buffer,
    width: u16,
}

impl Lines<'_> {
    /// A whole line.
    fn line(&mut self, y: u16, text: &str, look: Look) {
        self.part(0, y, text, self.width, look);
    }

    /// At most `width` columns from `x` on, of the line that there is.
    fn part(&mut self, x: u16, y: u16, text: &str, width: u16, look: Look) {
        if x < self.width && y < self.buffer.area.height {
            let width = width.min(self.width - x);
            self.buffer.set_stringn(x, y, text, usize::from(width), look);
        }
    }
}

impl TopView {
    /// Draws everything.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let mut lines = Lines { buffer: frame.buffer_mut(), width: area.width };
        let (losses, is_alarm) = self.losses_line();
        let Some(last) = area.height.checked_sub(1) else { return };
        let alarm = if is_alarm { self.alarm() } else { Look::new() };
        lines.line(last, &losses, alarm);
        let mut from = 0;
        if area.height >= WITH_TITLE {
            self.draw_title(&mut lines);
            from = 1;
        }
        let mut until = last;
        if area.height >= WITH_KEYS {
            until = last - 1;
            self.draw_keys(&mut lines, until);
        }
        match self.page {
            Page::Table => self.draw_table(&mut lines, from, until),
            Page::Details(key, at) => {
                let text = self.details(key, self.text_style(area.width));
                let at = self.draw_text(&mut lines, &text, at, (from, until));
                self.page = Page::Details(key, at);
            }
            Page::Help(at) => {
                let at = self.draw_text(&mut lines, self.help(), at, (from, until));
                self.page = Page::Help(at);
            }
        }
        if self.style.ascii {
            make_ascii(lines.buffer);
        }
    }

    fn alarm(&self) -> Look {
        let look = Look::new().add_modifier(Modifier::BOLD);
        if self.style.color { look.fg(Color::Red) } else { look }
    }

    fn text_style(&self, width: u16) -> Style {
        let width = usize::from(width).max(1);
        // Bold and faint are no colours, and taken apart below.
        Style { color: true, width, sentences: Some(width), terminal: Some(width), ..self.style }
    }

    fn draw_title(&self, lines: &mut Lines<'_>) {
        let subject = &self.subject;
        let text = match self.page {
            Page::Table => {
                let limit = subject.threshold_ns.map(|ns| format!(", limit {}", duration_text(ns)));
                let (what, by, target) = (subject.tracker.name(), subject.by.name(), clean(&subject.target));
                let own = if lines.width < NARROW { "" } else { "rtscope top: " };
                // At the end, since it may be too long.
                let between = subject.between.as_deref().map(|between| format!(", {}", clean(between)));
                let (limit, between) = (limit.unwrap_or_default(), between.unwrap_or_default());
                format!("{own}{what} of {target}, by {by}{limit}{between}")
            }
            Page::Details(key, _) => self.page_title(key),
            Page::Help(_) => "rtscope top: keys and columns".to_owned(),
        };
        let state = match (self.is_paused, &self.ended) {
            (true, _) => " PAUSED",
            (false, Some(_)) => " ended",
            (false, None) => "",
        };
        let right = format!("{state} {}", reach_text(self.shown_ns));
        let look = Look::new().add_modifier(Modifier::BOLD);
        let width = right.chars().count() as u16;
        let room = lines.width.saturating_sub(width);
        lines.part(0, 0, &self.style.shortened(&text, usize::from(room)), room, look);
        lines.part(room, 0, &right, width, look);
    }

    /// The keys, or what has to be said.
    fn draw_keys(&self, lines: &mut Lines<'_>, y: u16) {
        let look = Look::new().add_modifier(Modifier::BOLD);
        let width = usize::from(lines.width);
        if let Some(said) = self.ended.as_ref().or(self.note.as_ref()) {
            lines.line(y, &self.style.shortened(&clean(said), width), look);
            return;
        }
        let keys = if self.page == Page::Table { KEYS } else { PAGE_KEYS };
        lines.line(y, keys, Look::new().add_modifier(Modifier::DIM));
    }

    /// Text with the marks of [`Style`], from a line on; that line, where it is not beyond the end.
    fn draw_text(
        &mut self,
        lines: &mut Lines<'_>,
        text: &str,
        at: usize,
        (from, until): (u16, u16),
    ) -> usize {
        let room = usize::from(until.saturating_sub(from));
        self.page_lines = room.max(1);
        let all: Vec<&str> = text.trim_end().lines().collect();
        let at = at.min(all.len().saturating_sub(room));
        for (y, line) in (from..until).zip(all.iter().skip(at)) {
            let mut x = 0;
            for (part, look) in self.parts(line) {
                lines.part(x, y, part, u16::MAX, look);
                x = x.saturating_add(part.chars().count() as u16);
            }
        }
        at
    }

    /// A line of a report for a terminal, without its escape sequences.
    fn parts<'t>(&self, line: &'t str) -> Vec<(&'t str, Look)> {
        let mut parts = Vec::new();
        for (place, piece) in line.split("\x1b[").enumerate() {
            let (code, text) =
                if place == 0 { ("0", piece) } else { piece.split_once('m').unwrap_or(("0", piece)) };
            let look = match code {
                "1;31" => self.alarm(),
                "1" => Look::new().add_modifier(Modifier::BOLD),
                "2" => Look::new().add_modifier(Modifier::DIM),
                _ => Look::new(),
            };
            parts.push((text, look));
        }
        parts
    }

    fn draw_table(&mut self, lines: &mut Lines<'_>, mut from: u16, until: u16) {
        let width = usize::from(lines.width);
        let all = self.rows.first().and_then(TopRow::figures);
        let all = all.as_ref().map(|all| all.rows.as_slice()).unwrap_or_default();
        let range = (all.first().map_or(0, |row| row.from_ns), all.last().map_or(0, |row| row.from_ns));
        let longest = self.rows.iter().map(|row| clean(&row.name).chars().count()).max().unwrap_or(0);
        let has_late = self.subject.threshold_ns.is_some();
        let longest = longest.max(self.subject.by.name().len());
        let layout = Layout::new(width, longest, all.len(), self.order, has_late);
        if until.saturating_sub(from) >= 2 {
            let end_ns = all.last().map_or(0, |row| row.to_ns);
            self.draw_head(lines, from, &layout, (range.0, end_ns));
            from += 1;
        }
        let room = usize::from(until.saturating_sub(from));
        self.page_lines = room.max(1);
        if self.rows.is_empty() {
            lines.line(from, "nothing was counted yet", Look::new());
            return;
        }
        let chosen = self.chosen_place();
        self.first = self.first.min(chosen).max((chosen + 1).saturating_sub(room.max(1)));
        // No empty lines while there are rows before.
        self.first = self.first.min(self.rows.len().saturating_sub(room));
        let shown = self.rows.iter().enumerate().skip(self.first);
        for (y, (place, row)) in (from..until).zip(shown) {
            self.draw_row(lines, y, row, &layout, range, place == chosen);
        }
    }

    fn draw_head(&self, lines: &mut Lines<'_>, y: u16, layout: &Layout, (from_ns, to_ns): (u64, u64)) {
        let look = Look::new().add_modifier(Modifier::UNDERLINED);
        let blank = " ".repeat(usize::from(lines.width));
        lines.line(y, &blank, look);
        let name = self.subject.by.name();
        lines.part(0, y, name, layout.name as u16, look);
        let mut x = layout.name;
        for column in &layout.columns {
            x += layout.gap;
            let sorted = column.is_of(self.order);
            let look = if sorted { look.add_modifier(Modifier::BOLD | Modifier::REVERSED) } else { look };
            let text = format!("{:>width$}", column.head(), width = column.width());
            lines.part(x as u16, y, &text, column.width() as u16, look);
            x += column.width();
        }
        if layout.sparkline > 0 {
            let (from, to) = (brief(from_ns), brief(to_ns));
            let room = layout.sparkline;
            let text = match room {
                _ if self.rows.is_empty() || to_ns == u64::MAX => String::new(),
                room if from.len() + to.len() < room => {
                    format!("{from}{to:>width$}", width = room - from.len())
                }
                room if from.len() < room => from,
                _ => String::new(),
            };
            lines.part((x + layout.gap) as u16, y, &text, room as u16, look);
        }
    }

    fn draw_row(
        &self,
        lines: &mut Lines<'_>,
        y: u16,
        row: &TopRow,
        layout: &Layout,
        range: (u64, u64),
        is_chosen: bool,
    ) {
        let look = if is_chosen { Look::new().add_modifier(Modifier::REVERSED) } else { Look::new() };
        if is_chosen {
            let blank = " ".repeat(usize::from(lines.width));
            lines.line(y, &blank, look);
        }
        let Some(figures) = row.figures() else { return };
        let name = clean(&row.name);
        lines.part(0, y, &self.style.shortened(&name, layout.name), layout.name as u16, look);
        let has_late = row.key.is_none() || is_told_apart(self.subject.by, self.subject.tracker);
        let mut x = layout.name;
        for column in &layout.columns {
            x += layout.gap;
            let is_late = *column == super::layout::Column::Late;
            let text =
                if is_late && !has_late { "-".to_owned() } else { column.text(row, &figures.percentiles) };
            let text = format!("{text:>width$}", width = column.width());
            let look = if is_late && row.late > 0 && !is_chosen { self.alarm() } else { look };
            lines.part(x as u16, y, &text, column.width() as u16, look);
            x += column.width();
        }
        if layout.sparkline > 0 {
            let text = sparkline_within(&figures.rows, range, layout.sparkline, self.style);
            lines.part((x + layout.gap) as u16, y, &text, layout.sparkline as u16, look);
        }
    }
}

/// Of a character that the locale does not have there is a place left: a question mark, where no other is known.
fn make_ascii(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() {
            let drawn = in_ascii(cell.symbol()).chars().next().filter(char::is_ascii);
            cell.set_char(drawn.unwrap_or('?'));
        }
    }
}
