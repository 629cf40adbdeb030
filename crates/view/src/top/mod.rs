// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope top`: what a tracker counts, as a screen that is drawn again and again.
//!
//! Pure: readings, late responses and keys change a [`TopView`], and [`TopView::draw`] makes a frame of it. Who reads the keyboard and owns the
//! terminal is somebody else.

mod draw;
mod keys;
mod late;
mod layout;
mod pages;
mod rows;
#[cfg(test)]
mod tests;

pub use keys::take_keys;

use crate::style::Style;
use late::LateStore;
use rows::{Readings, TopRow};
use rtscope_analyze::explain::Explanation;
use rtscope_analyze::keyed::Key;
use rtscope_event::{LateResponse, Names, Tracker, WallClock};
use rtscope_session::hist::{CountedKeys, HistKey, HistOrder};

/// Late responses that are kept back while the screen is paused.
const PAUSED_MOST: usize = 256;

/// What is shown.
#[derive(Clone, Debug)]
pub struct TopSubject {
    /// What is followed.
    pub tracker: Tracker,
    /// Of `pair`: the two tracepoints and their key, as `A -> B by KEY`.
    pub between: Option<String>,
    /// By what it is counted apart.
    pub by: HistKey,
    /// Whose, in words.
    pub target: String,
    /// What takes longer is late; `None`: nothing is.
    pub threshold_ns: Option<u64>,
    /// Names of interrupts.
    pub names: Names,
    /// When something was, for people.
    pub clock: Option<WallClock>,
}

/// A key of the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopKey {
    /// A line up.
    Up,
    /// A line down.
    Down,
    /// A screen up.
    PageUp,
    /// A screen down.
    PageDown,
    /// To the first line.
    Home,
    /// To the last line.
    End,
    /// Opens a row.
    Enter,
    /// Back, or the end.
    Escape,
    /// Ctrl-C.
    Interrupt,
    /// A character.
    Character(char),
}

/// What a key asks of who runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopAsked {
    /// To draw.
    Draw,
    /// To end.
    End,
}

/// What is on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Table,
    /// Of one row, from this line on.
    Details(Option<Key>, usize),
    Help(usize),
}

/// What happened while the screen was paused.
#[derive(Debug)]
enum KeptBack {
    Late(Box<LateResponse>),
    Explained(Box<Explanation>),
}

/// All that a frame is made of.
#[derive(Debug)]
pub struct TopView {
    subject: TopSubject,
    style: Style,
    order: HistOrder,
    readings: Readings,
    /// Of the readings, in their order; not renewed while it is paused.
    rows: Vec<TopRow>,
    shown_ns: u64,
    late: LateStore,
    is_paused: bool,
    kept_back: Vec<KeptBack>,
    /// The row that is chosen; `None`: that of all keys.
    chosen: Option<Key>,
    /// The first row on the screen.
    first: usize,
    /// Lines that the last frame had for rows or text: what a page is.
    page_lines: usize,
    page: Page,
    /// The newest remark, until the next key.
    note: Option<String>,
    /// Why nothing is counted any more.
    ended: Option<String>,
}

impl TopView {
    /// Before the first reading. Of `style` only the colours and the characters count.
    #[must_use]
    pub fn new(subject: TopSubject, order: HistOrder, style: Style) -> TopView {
        TopView {
            subject,
            style,
            order,
            readings: Readings::default(),
            rows: Vec::new(),
            shown_ns: 0,
            late: LateStore::default(),
            is_paused: false,
            kept_back: Vec::new(),
            chosen: None,
            first: 0,
            page_lines: 1,
            page: Page::Table,
            note: None,
            ended: None,
        }
    }

    /// A reading.
    pub fn counted(&mut self, counted: CountedKeys) {
        self.readings.add(counted);
        if !self.is_paused {
            self.renew();
        }
    }

    /// A late response.
    pub fn late(&mut self, late: &LateResponse) {
        if self.is_paused {
            self.keep_back(KeptBack::Late(Box::new(late.clone())));
        } else {
            self.late.add(self.subject.by, late);
        }
    }

    /// What explains one.
    pub fn explained(&mut self, explanation: &Explanation) {
        if self.is_paused {
            self.keep_back(KeptBack::Explained(Box::new(explanation.clone())));
        } else {
            self.late.explain(explanation);
        }
    }

    /// A remark of the engine's.
    pub fn note(&mut self, text: &str) {
        self.note = Some(text.to_owned());
    }

    /// Nothing is counted any more, for this reason. What there is stays.
    pub fn ended(&mut self, why: &str) {
        self.ended = Some(why.to_owned());
    }

    /// Somebody pressed a key.
    pub fn key(&mut self, key: TopKey) -> TopAsked {
        self.note = None;
        match (key, self.page) {
            (TopKey::Interrupt | TopKey::Character('q'), _) | (TopKey::Escape, Page::Table) => {
                return TopAsked::End;
            }
            (TopKey::Escape, _) | (TopKey::Character('?'), Page::Help(_)) => self.page = Page::Table,
            (TopKey::Character('?'), _) => self.page = Page::Help(0),
            (TopKey::Enter, Page::Table) => self.page = Page::Details(self.chosen, 0),
            (TopKey::Enter, _) => self.page = Page::Table,
            (TopKey::Character('p'), _) => self.pause(),
            (TopKey::Character('r'), _) => self.begin_anew(),
            (TopKey::Character('t'), _) => self.sort(HistOrder::Total),
            (TopKey::Character('w'), _) => self.sort(HistOrder::Longest),
            (TopKey::Character('n'), _) => self.sort(HistOrder::Number),
            (TopKey::Up | TopKey::Character('k'), _) => self.go(-1),
            (TopKey::Down | TopKey::Character('j'), _) => self.go(1),
            (TopKey::PageUp, _) => self.go(-(self.page_lines as isize)),
            (TopKey::PageDown, _) => self.go(self.page_lines as isize),
            (TopKey::Home, _) => self.go(isize::MIN),
            (TopKey::End, _) => self.go(isize::MAX),
            (TopKey::Character(_), _) => {}
        }
        TopAsked::Draw
    }

    fn keep_back(&mut self, what: KeptBack) {
        if self.kept_back.len() < PAUSED_MOST {
            self.kept_back.push(what);
        }
    }

    fn renew(&mut self) {
        self.rows = self.readings.rows(self.order);
        for row in &mut self.rows {
            row.late = self.late.of(self.subject.by, row.key).map_or(0, |of| of.count);
        }
        self.shown_ns = self.readings.shown_ns();
    }

    fn pause(&mut self) {
        self.is_paused = !self.is_paused;
        if self.is_paused {
            return;
        }
        for kept in std::mem::take(&mut self.kept_back) {
            match kept {
                KeptBack::Late(late) => self.late.add(self.subject.by, &late),
                KeptBack::Explained(explanation) => self.late.explain(&explanation),
            }
        }
        self.renew();
    }

    fn begin_anew(&mut self) {
        self.readings.begin_anew();
        self.late = LateStore::default();
        self.kept_back.clear();
        self.renew();
    }

    fn sort(&mut self, order: HistOrder) {
        self.order = order;
        rows::sort(&mut self.rows, order);
    }

    /// So many lines down.
    fn go(&mut self, lines: isize) {
        match &mut self.page {
            // Beyond the end is found out where the text is drawn.
            Page::Details(_, at) | Page::Help(at) => *at = at.saturating_add_signed(lines).min(1 << 20),
            Page::Table => {
                let last = self.rows.len().saturating_sub(1);
                let place = self.chosen_place().saturating_add_signed(lines).min(last);
                self.chosen = self.rows.get(place).and_then(|row| row.key);
            }
        }
    }

    /// Where the chosen row is now; the first one where it is gone.
    fn chosen_place(&self) -> usize {
        self.rows.iter().position(|row| row.key == self.chosen).unwrap_or(0)
    }
}
