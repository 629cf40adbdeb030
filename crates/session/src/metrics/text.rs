// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The text format of `OpenMetrics` 1.0.
//!
//! What the format wants and a reader refuses otherwise: a family's lines stand together, after its type; counters end in `_total`, the
//! buckets of a histogram are cumulative and end with `+Inf`, and the last line is `# EOF`. What is not known has no line: a reader
//! takes 0 for a fact.

use std::fmt::Write;

/// What an HTTP answer with this text says it is.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What a family's numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// A value of now.
    Gauge,
    /// Counts by size.
    Histogram,
    /// Words, not numbers.
    Info,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }
}

/// All families, as text.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
}

/// A label and its value.
pub type Label<'a> = (&'a str, &'a str);

impl Exposition {
    /// Without any family.
    #[must_use]
    pub fn new() -> Exposition {
        Exposition::default()
    }

    /// Begins a family; its unit is the end of its name.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        self.line(format_args!("# TYPE {name} {}", kind.name()));
        if let Some(unit) = ["seconds", "bytes"].iter().find(|unit| name.ends_with(&format!("_{unit}"))) {
            self.line(format_args!("# UNIT {name} {unit}"));
        }
        self.line(format_args!("# HELP {name} {}", escaped(help)));
        Family { exposition: self, name, kind }
    }

    /// The text, to its last line.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.text.push_str("# EOF\n");
        self.text
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // A string takes whatever it is given.
        let _ = self.text.write_fmt(line);
        self.text.push('\n');
    }
}

/// A family under way: its samples, one for each set of labels.
#[derive(Debug)]
pub struct Family<'e> {
    exposition: &'e mut Exposition,
    name: &'static str,
    kind: Kind,
}

impl Family<'_> {
    /// A counter's value; what is not known is left out.
    pub fn count(&mut self, labels: &[Label<'_>], value: impl Into<Option<u64>>) {
        debug_assert_eq!(self.kind, Kind::Counter, "{}", self.name);
        if let Some(value) = value.into() {
            self.sample("_total", labels, None, value);
        }
    }

    /// A gauge's value.
    pub fn gauge(&mut self, labels: &[Label<'_>], value: f64) {
        debug_assert_eq!(self.kind, Kind::Gauge, "{}", self.name);
        self.sample("", labels, None, value);
    }

    /// Words about what is measured.
    pub fn info(&mut self, labels: &[Label<'_>]) {
        debug_assert_eq!(self.kind, Kind::Info, "{}", self.name);
        self.sample("_info", labels, None, 1);
    }

    /// A histogram: how many there are up to each limit, in its order, and up to any; and their sum.
    pub fn histogram(&mut self, labels: &[Label<'_>], up_to: &[(f64, u64)], count: u64, sum: f64) {
        debug_assert_eq!(self.kind, Kind::Histogram, "{}", self.name);
        for (limit, below) in up_to {
            self.sample("_bucket", labels, Some(&limit.to_string()), below);
        }
        self.sample("_bucket", labels, Some("+Inf"), count);
        self.sample("_count", labels, None, count);
        self.sample("_sum", labels, None, sum);
    }

    fn sample(
        &mut self,
        suffix: &str,
        labels: &[Label<'_>],
        limit: Option<&str>,
        value: impl std::fmt::Display,
    ) {
        let all = labels.iter().copied().chain(limit.map(|limit| ("le", limit)));
        let all: Vec<String> = all.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let set = if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) };
        let name = self.name;
        self.exposition.line(format_args!("{name}{suffix}{set} {value}"));
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_the_lines_of_the_format() {
        let mut all = Exposition::new();
        let mut late = all.family("rtscope_late", Kind::Counter, "What was late.");
        late.count(&[("tracker", "wakeup"), ("name", "a\"b\\c\nd")], 3);
        late.count(&[("tracker", "lock")], None);
        let mut times = all.family("rtscope_time_seconds", Kind::Histogram, "Times.");
        times.histogram(&[("tracker", "wakeup")], &[(0.001, 2), (0.002, 2)], 5, 0.25);
        all.family("rtscope_up", Kind::Gauge, "x").gauge(&[], 1.5);
        let expected = r#"# TYPE rtscope_late counter
# HELP rtscope_late What was late.
rtscope_late_total{tracker="wakeup",name="a\"b\\c\nd"} 3
# TYPE rtscope_time_seconds histogram
# UNIT rtscope_time_seconds seconds
# HELP rtscope_time_seconds Times.
rtscope_time_seconds_bucket{tracker="wakeup",le="0.001"} 2
rtscope_time_seconds_bucket{tracker="wakeup",le="0.002"} 2
rtscope_time_seconds_bucket{tracker="wakeup",le="+Inf"} 5
rtscope_time_seconds_count{tracker="wakeup"} 5
rtscope_time_seconds_sum{tracker="wakeup"} 0.25
# TYPE rtscope_up gauge
# HELP rtscope_up x
rtscope_up 1.5
# EOF
"#;
        assert_eq!(all.finish(), expected);
    }
}
