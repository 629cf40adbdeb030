// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pages of text: one row with its late responses and its histogram, and the help.

use super::TopView;
use super::late::{LateEntry, is_told_apart};
use crate::explanation::explanation_text;
use crate::hist::losses_text;
use crate::label::clean;
use crate::late::late_line;
use crate::stat::figures::percentile_text;
use crate::stat::latency::histogram_text;
use crate::style::Style;
use crate::units::{count_text, counted, duration_text};
use rtscope_analyze::histogram::Statistics;
use rtscope_analyze::keyed::Key;

const HELP: &str = "\
up, down, page up, page down, home, end, k, j
            choose a row, or scroll
Enter       what is known of the row; with --threshold its late responses,
            explained; Enter or Escape goes back
t w n       sort by total time, worst (longest) time, number
p           pause: the screen stays, counting goes on; p again goes on
r           begin anew: the rows are of what comes from now on, and the worst
            is then known to 3.2 %
?           this help
q, Ctrl-C   end; Escape, too, where there is nothing to go back to

Columns
number      how many, exactly        each s   of the last interval
50 %, 99 %  no more than half, or one in a hundred, took longer; given where
            at least ten values lie beyond it
worst       the longest              in all   the sum of all times
late        beyond --threshold
by powers of two
            a place for one power of two, or for several; logarithmic
";

impl TopView {
    /// What is known of a row. Of a style that has its width.
    pub(super) fn details(&self, key: Option<Key>, style: Style) -> String {
        let mut text = String::new();
        let row = self.rows.iter().find(|row| row.key == key);
        match row.and_then(|row| Some((row.figures()?, row.sum_ns))) {
            Some((figures, sum_ns)) => text.push_str(&figures_text(&figures, sum_ns, style)),
            None => text.push_str("nothing was counted since\n"),
        }
        text.push('\n');
        text.push_str(&self.late_text(key, style));
        if let Some(row) = row {
            text.push_str(&histogram_text(&row.histogram.histogram().buckets(), style));
        }
        let losses = losses_text(&self.readings.newest.losses, style);
        if !losses.is_empty() {
            text.push('\n');
            text.push_str(&losses);
        }
        text
    }

    fn late_text(&self, key: Option<Key>, style: Style) -> String {
        let Some(threshold_ns) = self.subject.threshold_ns else {
            return style.wrap("(--threshold TIME: what takes longer is explained here)", 0, 0) + "\n";
        };
        let limit = duration_text(threshold_ns);
        let mut text = String::new();
        let is_told_apart = key.is_none() || is_told_apart(self.subject.by, self.subject.tracker);
        if !is_told_apart {
            let by = self.subject.by.name();
            let words = format!("A report does not say its {by}: these are of all rows.");
            text.push_str(&style.wrap(&words, 0, 0));
        }
        let of = self.late.of(self.subject.by, key.filter(|_| is_told_apart));
        let Some(of) = of.filter(|of| of.count > 0) else {
            return text + &format!("None was reported that took longer than {limit}.\n\n");
        };
        text.push_str(&format!("{} longer than {limit}\n", counted(of.count, "was", "were")));
        for (title, entry) in [("Worst", of.worst.as_ref()), ("Newest", of.newest())] {
            if let Some(entry) = entry {
                text.push('\n');
                text.push_str(&self.entry_text(title, entry, style));
            }
        }
        text.push('\n');
        text
    }

    fn entry_text(&self, title: &str, entry: &LateEntry, style: Style) -> String {
        let line = late_line(&entry.late, &self.subject.names, self.subject.clock.as_ref(), style);
        let mut text = format!("{}\n{line}\n", style.strong(title));
        match &entry.explanation {
            Some(explanation) => text.push_str(&explanation_text(explanation, style)),
            None => text.push_str(&style.wrap("not explained yet", 2, 2)),
        }
        text
    }

    /// What keys do, and what columns say.
    pub(super) fn help(&self) -> &'static str {
        HELP
    }

    /// What is not in the figures, and what rtscope takes itself: short, the worst first. True: something is missing.
    pub(super) fn losses_line(&self) -> (String, bool) {
        let newest = &self.readings.newest;
        let losses = &newest.losses;
        let programs = losses.programs.unwrap_or_default();
        let mut parts = Vec::new();
        for (count, words) in [
            (losses.without_key, "without a cell (--cells)"),
            (losses.untracked, "not followed"),
            (losses.unended, "whose end was not reported"),
            (losses.hidden, "switches hidden"),
            (losses.without_begin, "ends without a beginning"),
            (losses.begun_again, "begun again"),
            (losses.given_up, "without a place"),
            (losses.skipped_programs.unwrap_or(0), "runs skipped"),
            (newest.unreported, "late ones not reported"),
            (programs.missed_looks, "looks too late, events unknown"),
            (programs.given_up, "begun before what was missed"),
            (programs.unreadable, "unreadable"),
            (programs.too_many, "too many at a time"),
            (programs.without_buffer, "without a buffer"),
            (programs.without_field, "without the key's field"),
            (programs.without_number, "whose key is no number"),
            (programs.left_out, "programs not recorded"),
        ] {
            if count > 0 {
                parts.push(format!("{} {words}", count_text(count)));
            }
        }
        if losses.skipped_programs.is_none() {
            parts.push("skipped runs unknown".to_owned());
        }
        let is_alarm = !parts.is_empty();
        let lost = if is_alarm { parts.join(", ") } else { "nothing".to_owned() };
        let own = match self.readings.own_share() {
            Some(share) => format!("{:.1} % of a CPU", share * 100.0),
            None => "unknown".to_owned(),
        };
        let text =
            format!("lost: {lost}; cells {} of {}; rtscope itself: {own}", newest.cells_used, newest.cells);
        (text, is_alarm)
    }

    /// What the page is about.
    pub(super) fn page_title(&self, key: Option<Key>) -> String {
        let name = match key {
            None => "all".to_owned(),
            Some(key) => clean(self.readings.newest.names.get(&key).map_or("", String::as_str)),
        };
        format!("{} of {name}", self.subject.tracker.name())
    }
}

fn figures_text(figures: &Statistics, sum_ns: u64, style: Style) -> String {
    let percentile = |milli| percentile_text(&figures.percentiles, milli);
    let all = format!(
        "number {}   in all {}   mean {}   worst {}",
        count_text(figures.count),
        duration_text(sum_ns),
        duration_text(figures.mean_ns),
        duration_text(figures.max_ns)
    );
    let percentiles = format!(
        "50 % {}   90 % {}   99 % {}   99.9 % {}",
        percentile(50_000),
        percentile(90_000),
        percentile(99_000),
        percentile(99_900)
    );
    style.wrap(&all, 0, 0) + &style.wrap(&percentiles, 0, 0)
}
