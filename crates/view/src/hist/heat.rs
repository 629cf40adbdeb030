// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The heat map: time goes to the right, latency upwards, and the darker the more. All shades are logarithmic: one in a million is what matters.

use crate::style::Style;
use crate::units::{count_text, duration_text};
use rtscope_analyze::heat::HeatMap;
use std::fmt::Write;

/// Columns for the latencies at the left.
const LEFT: usize = 10;

/// The powers of two that were used, the longest first, with those between.
fn powers(map: &HeatMap) -> Vec<u32> {
    let used = || map.slices.iter().flat_map(|slice| slice.keys().copied());
    match (used().min(), used().max()) {
        (Some(first), Some(last)) => (first..=last).rev().collect(),
        _ => Vec::new(),
    }
}

/// How dark, from 0 to 1.
fn shade(count: u64, most: u64) -> f64 {
    if count == 0 { 0.0 } else { (1.0 + (count as f64).ln()) / (1.0 + (most as f64).ln()) }
}

fn most(map: &HeatMap) -> u64 {
    map.slices.iter().flat_map(|slice| slice.values().copied()).max().unwrap_or(1)
}

/// Of characters.
pub(super) fn heat_text(map: &HeatMap, style: Style) -> String {
    const SHADES: [&str; 4] = ["░", "▒", "▓", "█"];
    const ASCII: [&str; 4] = [".", "+", "%", "#"];
    let shades = if style.ascii { ASCII } else { SHADES };
    let map = map.within(style.width.saturating_sub(LEFT + 1).max(10));
    let most = most(&map);
    let mut text = format!(
        "over time, {} a column (darker is more, logarithmically; the darkest: {})\n",
        duration_text(map.slice_ns),
        count_text(most)
    );
    for power in powers(&map) {
        let mut line = format!("{:>LEFT$} ", duration_text(1 << power));
        for slice in &map.slices {
            let count = slice.get(&power).copied().unwrap_or(0);
            let at = (shade(count, most) * 4.0).ceil() as usize;
            line.push_str(at.checked_sub(1).map_or(" ", |at| shades[at.min(3)]));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

const WIDTH: f64 = 900.0;
const MARGIN: f64 = 70.0;
const TOP: f64 = 50.0;
const CELL: f64 = 18.0;

/// As a picture.
#[must_use]
pub fn heat_svg(title: &str, map: &HeatMap) -> String {
    let powers = powers(map);
    let height = TOP + CELL * powers.len().max(1) as f64 + 50.0;
    let mut out = crate::plot::begin(title, height);
    let most = most(map);
    let width = (WIDTH - 2.0 * MARGIN) / map.slices.len().max(1) as f64;
    for (row, power) in powers.iter().enumerate() {
        let y = TOP + CELL * row as f64;
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"11\">{}</text>",
            MARGIN - 6.0,
            y + CELL - 5.0,
            duration_text(1 << power)
        );
        for (column, slice) in map.slices.iter().enumerate() {
            let Some(count) = slice.get(power) else { continue };
            let _ = writeln!(
                out,
                "<rect x=\"{:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{}\" fill=\"{}\"><title>{}, {} to {}: {count}</title></rect>",
                MARGIN + width * column as f64,
                width.max(0.5),
                CELL - 1.0,
                colour(shade(*count, most)),
                time(map.slice_ns, column),
                duration_text(1 << power),
                duration_text(1 << (power + 1).min(63)),
            );
        }
    }
    let lower = TOP + CELL * powers.len() as f64;
    for tenth in (0..=10).step_by(2) {
        let x = MARGIN + (WIDTH - 2.0 * MARGIN) * f64::from(tenth) / 10.0;
        let at = map.slices.len() * tenth as usize / 10;
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"11\">{}</text>",
            lower + 18.0,
            time(map.slice_ns, at)
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"middle\">time; the darkest cell: {}</text>\n</svg>",
        WIDTH / 2.0,
        lower + 38.0,
        count_text(most)
    );
    out
}

fn time(slice_ns: u64, slices: usize) -> String {
    let seconds = slice_ns as f64 * slices as f64 / 1e9;
    if slice_ns < 1_000_000_000 { format!("{seconds:.1} s") } else { format!("{seconds:.0} s") }
}

/// From light to dark, in one hue, so that it says the same to everybody and in print.
fn colour(shade: f64) -> String {
    let mix = |light: f64, dark: f64| (light + (dark - light) * shade.clamp(0.0, 1.0)).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(235.0, 8.0), mix(243.0, 48.0), mix(251.0, 107.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn map() -> HeatMap {
        let slices = vec![BTreeMap::from([(10, 1000), (12, 1)]), BTreeMap::new(), BTreeMap::from([(10, 1)])];
        HeatMap { slice_ns: 1_000_000_000, slices }
    }

    #[test]
    fn each_count_has_its_place_and_its_shade() {
        let text = heat_text(&map(), Style::default());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1..], ["  4.096 us ░", "  2.048 us", "  1.024 us █ ░"], "{text}");
    }

    #[test]
    fn the_picture_has_a_cell_for_each_count() {
        let picture = heat_svg("a < b", &map());
        assert_eq!(picture.matches("<rect").count(), 1 + 3, "{picture}");
        assert!(picture.contains("a &lt; b") && picture.ends_with("</svg>\n"));
        assert!(!heat_svg("", &HeatMap::new(1)).contains("<title>"));
    }
}
