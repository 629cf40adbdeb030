// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A histogram as SVG: how many iterations had a gap of which length. Both axes are logarithmic: what matters are the few long ones.

use rtscope_measure::npt::Bucket;
use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 50.0;
/// Points of a decade of the horizontal axis: finer than a pixel would show nothing.
const STEPS: f64 = 40.0;
/// Colours that colour-blind people can tell apart (Okabe and Ito, 2008).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// A name and its buckets, ascending.
pub type Series<'a> = (&'a str, &'a [Bucket]);

/// The picture. Series are drawn over each other, with a legend. Labels: of the horizontal axis and of the vertical one.
pub fn svg(title: &str, labels: [&str; 2], series: &[Series<'_>]) -> String {
    let steps: Vec<Vec<(i32, u64)>> = series.iter().map(|(_, buckets)| steps(buckets)).collect();
    let (low, high, top) = ranges(&steps);
    let axes = Axes { low, high, top, upper: TOP, lower: HEIGHT - BOTTOM };
    let mut out = begin(title, HEIGHT);
    axes.draw(&mut out, labels);
    for (at, ((name, _), steps)) in series.iter().zip(&steps).enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let _ = writeln!(
            out,
            "<path d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
            axes.path(steps)
        );
        let (x, y) = (WIDTH - RIGHT - 190.0, TOP + 16.0 + 18.0 * at as f64);
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{}\" width=\"18\" height=\"4\" fill=\"{colour}\"/><text x=\"{}\" y=\"{y}\">{}</text>",
            y - 6.0,
            x + 24.0,
            escaped(name)
        );
    }
    out.push_str("</svg>\n");
    out
}

/// A histogram in a picture of several.
#[derive(Debug)]
pub struct Panel<'a> {
    /// Before the remark.
    pub name: &'a str,
    /// A remark on it.
    pub label: &'a str,
    /// Ascending.
    pub buckets: &'a [Bucket],
    /// Another one, in grey, to compare with.
    pub behind: &'a [Bucket],
}

/// Heights of a panel, and of the space between two.
const PANEL: f64 = 92.0;
const BETWEEN: f64 = 26.0;

/// Histograms below each other on the same axes, so that they can be compared by eye.
pub fn panels(title: &str, panels: &[Panel<'_>]) -> String {
    let all: Vec<Vec<(i32, u64)>> = panels.iter().map(|panel| steps(panel.buckets)).collect();
    let (low, high, top) = ranges(&all);
    let height = TOP + (PANEL + BETWEEN) * panels.len() as f64 + BOTTOM - BETWEEN + 20.0;
    let mut out = begin(title, height);
    for (at, (panel, steps_of)) in panels.iter().zip(&all).enumerate() {
        let upper = TOP + 20.0 + (PANEL + BETWEEN) * at as f64;
        let axes = Axes { low, high, top, upper, lower: upper + PANEL };
        axes.grid(&mut out, at + 1 == panels.len(), 2);
        let behind = steps(panel.behind);
        if !behind.is_empty() {
            let _ = writeln!(out, "<path d=\"{}\" fill=\"#ccc\" stroke=\"none\"/>", axes.path(&behind));
        }
        let colour = COLOURS[at % COLOURS.len()];
        let _ = writeln!(
            out,
            "<path d=\"{}\" fill=\"{colour}\" fill-opacity=\"0.25\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\n\
             <text x=\"{LEFT}\" y=\"{}\"><tspan font-weight=\"bold\" fill=\"{colour}\">{}</tspan>  {}</text>",
            axes.path(steps_of),
            upper - 6.0,
            escaped(panel.name),
            escaped(panel.label)
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">gap between two iterations (grey: untraced; upwards: number of iterations)</text>",
        LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
        height - 8.0
    );
    out.push_str("</svg>\n");
    out
}

pub(crate) fn begin(title: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{}</text>\n",
        escaped(title)
    )
}

/// The decades that hold all: of lengths, from and to, and the highest of counts.
fn ranges(steps: &[Vec<(i32, u64)>]) -> (f64, f64, f64) {
    let all = || steps.iter().flatten();
    let low = all().map(|step| step.0).min().map_or(0.0, |step| f64::from(step) / STEPS).floor();
    let high =
        all().map(|step| step.0 + 1).max().map_or(1.0, |step| f64::from(step) / STEPS).ceil().max(low + 1.0);
    let top = all().map(|step| step.1).max().map_or(1.0, |count| (count as f64).log10().ceil()).max(1.0);
    (low, high, top)
}

/// Buckets joined to steps of the same width on the axis; ascending.
fn steps(buckets: &[Bucket]) -> Vec<(i32, u64)> {
    let mut steps: Vec<(i32, u64)> = Vec::new();
    for (from, to, count) in buckets {
        let middle = ((from + to) / 2.0).max(0.1);
        let step = (middle.log10() * STEPS).floor() as i32;
        match steps.last_mut() {
            Some(last) if last.0 == step => last.1 += count,
            _ => steps.push((step, *count)),
        }
    }
    steps
}

/// Decades of both axes; the vertical one begins below 1.
struct Axes {
    low: f64,
    high: f64,
    top: f64,
    /// Where they are in the picture.
    upper: f64,
    lower: f64,
}

impl Axes {
    fn x(&self, log10_ns: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (log10_ns - self.low) / (self.high - self.low)
    }

    /// A count of 1 stands half a decade above the bottom, which is 0.
    fn y(&self, count: u64) -> f64 {
        let height = if count == 0 { 0.0 } else { (0.5 + (count as f64).log10()) / (self.top + 0.5) };
        self.lower - (self.lower - self.upper) * height
    }

    /// A line for each decade; on the vertical axis only some have their number.
    fn grid(&self, out: &mut String, has_lengths: bool, numbers_every: usize) {
        let (upper, lower) = (self.upper, self.lower);
        let mut decade = self.low;
        while decade <= self.high {
            let x = self.x(decade);
            let _ = writeln!(
                out,
                "<line x1=\"{x:.1}\" y1=\"{upper}\" x2=\"{x:.1}\" y2=\"{lower}\" stroke=\"#ddd\"/>"
            );
            if has_lengths {
                let _ = writeln!(
                    out,
                    "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    lower + 18.0,
                    length(decade)
                );
            }
            decade += 1.0;
        }
        for power in (0..=self.top as u32).step_by(numbers_every) {
            let y = self.y(10_u64.saturating_pow(power));
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">1e{power}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0
            );
        }
    }

    fn draw(&self, out: &mut String, [lengths, counts]: [&str; 2]) {
        self.grid(out, true, 1);
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{lengths}</text>\n\
             <text x=\"16\" y=\"{}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {1})\">{counts}</text>",
            LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
            HEIGHT - 12.0,
            TOP + (HEIGHT - TOP - BOTTOM) / 2.0,
        );
    }

    /// A staircase that goes down to 0 where nothing is.
    fn path(&self, steps: &[(i32, u64)]) -> String {
        let mut path = String::new();
        let mut end = None;
        for (step, count) in steps {
            let (from, to) = (self.x(f64::from(*step) / STEPS), self.x(f64::from(step + 1) / STEPS));
            if end != Some(*step) {
                if let Some(end) = end {
                    let _ = write!(path, "V{:.1} ", self.y(0));
                    let _ = write!(path, "H{:.1} ", self.x(f64::from(end) / STEPS));
                }
                let _ = write!(path, "M{from:.1} {:.1} ", self.y(0));
            }
            let _ = write!(path, "V{:.1} H{to:.1} ", self.y(*count));
            end = Some(step + 1);
        }
        if end.is_some() {
            let _ = write!(path, "V{:.1}", self.y(0));
        }
        path
    }
}

fn length(log10_ns: f64) -> String {
    let (unit, below) = match log10_ns {
        log if log < 3.0 => ("ns", 0.0),
        log if log < 6.0 => ("us", 3.0),
        log if log < 9.0 => ("ms", 6.0),
        _ => ("s", 9.0),
    };
    format!("{} {unit}", 10_f64.powf(log10_ns - below))
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_of_one_step_are_joined() {
        assert_eq!(steps(&[(10.0, 10.1, 3), (10.1, 10.2, 4), (100.0, 101.0, 1)]), [(40, 7), (80, 1)]);
        assert_eq!(steps(&[(0.0, 0.0, 1)]), [(-40, 1)]);
    }

    #[test]
    fn the_highest_count_is_inside_and_more_is_higher() {
        let axes = Axes { low: 0.0, high: 6.0, top: 7.0, upper: TOP, lower: HEIGHT - BOTTOM };
        assert_eq!(axes.y(0), HEIGHT - BOTTOM);
        assert!(axes.y(1) < axes.y(0) && axes.y(10) < axes.y(1));
        assert!((axes.y(10_000_000) - TOP).abs() < 1e-9);
        assert_eq!((axes.x(0.0), axes.x(6.0)), (LEFT, WIDTH - RIGHT));
    }

    #[test]
    fn each_panel_has_its_histogram_and_the_one_behind_it() {
        let (buckets, behind) = ([(10.0, 11.0, 5)], [(1.0, 2.0, 5)]);
        let panel = |name, behind| Panel { name, label: "x < y", buckets: &buckets, behind };
        let picture = panels("two", &[panel("untraced", &[]), panel("traced", &behind)]);
        assert_eq!(picture.matches("<path").count(), 3, "{picture}");
        assert!(
            picture.contains(">untraced<") && picture.contains("x &lt; y") && picture.ends_with("</svg>\n")
        );
    }

    #[test]
    fn names_cannot_break_the_picture() {
        let picture = svg("a < b & c", ["length", "count"], &[("<traced>", &[(10.0, 11.0, 5)])]);
        assert!(picture.contains("a &lt; b &amp; c") && picture.contains("&lt;traced&gt;"));
        assert_eq!(picture.matches("<path").count(), 1);
        // Without a series there are only axes.
        assert!(!svg("empty", ["length", "count"], &[]).contains("<path"));
    }
}
