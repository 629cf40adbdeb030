// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The columns of the table, and which of them there is room for.

use super::rows::TopRow;
use crate::stat::figures::percentile_text;
use crate::units::duration_text;
use rtscope_analyze::histogram::Percentile;
use rtscope_session::hist::HistOrder;

/// Names are not made shorter than this for another column.
const NAME_LEAST: usize = 12;
/// Nor for a picture with more places.
const NAME_USUAL: usize = 18;
/// Wider they are not.
const NAME_MOST: usize = 40;
/// Characters that say something of a distribution.
const SPARKLINE_LEAST: usize = 6;
/// Columns of a terminal from which on there are two blanks between two columns.
const WIDE: usize = 100;

/// A column of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Number,
    Rate,
    Median,
    Percentile99,
    Worst,
    Total,
    Late,
}

impl Column {
    const ALL: [Column; 7] = [
        Column::Number,
        Column::Rate,
        Column::Median,
        Column::Percentile99,
        Column::Worst,
        Column::Total,
        Column::Late,
    ];
    /// Left out where there is no room: the first one first.
    const EXPENDABLE: [Column; 7] = [
        Column::Median,
        Column::Rate,
        Column::Percentile99,
        Column::Late,
        Column::Number,
        Column::Total,
        Column::Worst,
    ];

    pub fn head(self) -> &'static str {
        match self {
            Column::Number => "number",
            Column::Rate => "each s",
            Column::Median => "50 %",
            Column::Percentile99 => "99 %",
            Column::Worst => "worst",
            Column::Total => "in all",
            Column::Late => "late",
        }
    }

    pub fn width(self) -> usize {
        match self {
            Column::Rate | Column::Late => 6,
            _ => 8,
        }
    }

    /// Whether rows are sorted by it.
    pub fn is_of(self, order: HistOrder) -> bool {
        match order {
            HistOrder::Total => self == Column::Total,
            HistOrder::Longest => self == Column::Worst,
            HistOrder::Number => self == Column::Number,
        }
    }

    /// What is in it.
    pub fn text(self, row: &TopRow, percentiles: &[Percentile]) -> String {
        match self {
            Column::Number => number_text(row.count),
            Column::Rate => row.per_second.map_or("-".to_owned(), rate_text),
            Column::Median => percentile_text(percentiles, 50_000),
            Column::Percentile99 => percentile_text(percentiles, 99_000),
            Column::Worst => duration_text(row.max_ns),
            Column::Total => duration_text(row.sum_ns),
            Column::Late => number_text(row.late),
        }
    }
}

/// Which columns there are, and how wide those of words are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub name: usize,
    pub columns: Vec<Column>,
    /// 0: there is no sparkline.
    pub sparkline: usize,
    /// Blanks between two columns.
    pub gap: usize,
}

impl Layout {
    /// For a line of `width`, names of at most `longest` and histograms of so many powers of two.
    pub fn new(width: usize, longest: usize, powers: usize, order: HistOrder, has_late: bool) -> Layout {
        let gap = if width < WIDE { 1 } else { 2 };
        let mut columns: Vec<Column> =
            Column::ALL.into_iter().filter(|column| has_late || *column != Column::Late).collect();
        let taken = |columns: &[Column]| columns.iter().map(|column| column.width() + gap).sum::<usize>();
        let least = NAME_LEAST.min(longest.max(4));
        let wanted = |columns: &[Column], sparkline: usize| {
            least + taken(columns) + if sparkline > 0 { sparkline + gap } else { 0 }
        };
        let mut sparkline = SPARKLINE_LEAST;
        for expendable in Column::EXPENDABLE.into_iter().filter(|column| !column.is_of(order)) {
            // The picture stays longer than most figures.
            if wanted(&columns, sparkline) > width && columns.len() <= 3 {
                sparkline = 0;
            }
            if wanted(&columns, sparkline) <= width {
                break;
            }
            columns.retain(|column| *column != expendable);
        }
        if wanted(&columns, sparkline) > width {
            sparkline = 0;
        }
        let rest = width.saturating_sub(taken(&columns));
        let mut name = longest.clamp(4, NAME_MOST).min(rest);
        if sparkline > 0 {
            // Where there is no room for a place for each power of two, long names give some; what is not needed they get back.
            let room = rest.saturating_sub(name.min(NAME_USUAL.max(least)) + gap).max(sparkline);
            let powers = powers.max(SPARKLINE_LEAST);
            sparkline = powers.div_ceil(powers.div_ceil(room));
            name = name.min(rest.saturating_sub(gap + sparkline));
        }
        Layout { name, columns, sparkline, gap }
    }
}

/// Exactly, as long as there is room.
pub(super) fn number_text(number: u64) -> String {
    match number {
        0..100_000_000 => number.to_string(),
        100_000_000..100_000_000_000 => format!("{}M", number / 1_000_000),
        100_000_000_000..100_000_000_000_000 => format!("{}G", number / 1_000_000_000),
        _ => format!("{}T", number / 1_000_000_000_000),
    }
}

/// A time in as few characters as tell its size.
pub(super) fn brief(ns: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1, "ns"), (1_000, "us"), (1_000_000, "ms"), (1_000_000_000, "s")];
    let (size, unit) = UNITS.into_iter().rev().find(|(size, _)| ns >= *size).unwrap_or(UNITS[0]);
    let tenths = ns / (size / 10).max(1);
    if size > 1 && ns / size < 10 && tenths % 10 > 0 {
        return format!("{}.{}{unit}", tenths / 10, tenths % 10);
    }
    format!("{}{unit}", ns / size)
}

fn rate_text(per_second: f64) -> String {
    match per_second {
        rate if rate <= 0.0 => "0".to_owned(),
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate if rate < 99_999.5 => format!("{rate:.0}"),
        rate if rate < 99_999_500.0 => format!("{:.0}k", rate / 1e3),
        rate => format!("{:.0}M", rate / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_no_room_for_is_left_out_and_the_sorted_column_stays() {
        let wide = Layout::new(140, 30, 12, HistOrder::Total, true);
        assert_eq!((wide.columns.len(), wide.name, wide.sparkline), (7, 30, 12));
        let usual = Layout::new(80, 18, 20, HistOrder::Total, false);
        assert_eq!(usual.columns.len(), 6);
        assert!(usual.sparkline >= SPARKLINE_LEAST && usual.name >= NAME_LEAST, "{usual:?}");
        for order in HistOrder::ALL {
            for width in 0..200 {
                let layout = Layout::new(width, 18, 20, order, true);
                let columns: usize = layout.columns.iter().map(|column| column.width() + layout.gap).sum();
                let sparkline = if layout.sparkline > 0 { layout.sparkline + layout.gap } else { 0 };
                assert!(layout.columns.iter().any(|column| column.is_of(order)), "{width}: {layout:?}");
                assert!(width < 20 || layout.name + columns + sparkline <= width, "{width}: {layout:?}");
            }
        }
    }

    #[test]
    fn numbers_fit_their_columns() {
        for number in [0, 99_999_999, 100_000_000, 99_999_999_999, 100_000_000_000, 1 << 60] {
            assert!(number_text(number).len() <= 8, "{number}");
        }
        assert_eq!(number_text(600_000), "600000");
        for (rate, text) in
            [(0.0, "0"), (0.25, "0.2"), (9.96, "10"), (99_999.0, "99999"), (123_456.0, "123k")]
        {
            assert_eq!(rate_text(rate), text);
        }
        assert!(rate_text(5e9).len() <= 6);
        for (ns, text) in [(0, "0ns"), (512, "512ns"), (1024, "1us"), (8_388_608, "8.3ms"), (1 << 36, "68s")]
        {
            assert_eq!(brief(ns), text);
        }
    }
}
