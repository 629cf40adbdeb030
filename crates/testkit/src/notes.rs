// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The notes of a workload: written into memory while it runs, and printed at its end.

use std::io::{self, Write};

use serde_json::{Value, json};

/// Prints one JSON object as a line. A reader that has gone away is not an error: the workload ends anyway.
pub fn print_line(value: &Value) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{value}");
    let _ = out.flush();
}

/// A list that allocates all of its memory at the start: adding never allocates, and what does not fit is counted.
#[derive(Debug)]
pub struct Notes<T> {
    items: Vec<T>,
    dropped: u64,
}

impl<T> Notes<T> {
    /// For `capacity` notes.
    pub fn new(capacity: usize) -> Self {
        Notes { items: Vec::with_capacity(capacity), dropped: 0 }
    }

    /// Adds a note, or counts it when it does not fit.
    pub fn push(&mut self, item: T) {
        if self.items.len() < self.items.capacity() {
            self.items.push(item);
        } else {
            self.dropped += 1;
        }
    }

    /// The notes.
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// How many notes did not fit.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// A time during which a disturber kept its CPU busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// First clock reading of the burst.
    pub start_ns: u64,
    /// Last clock reading of the burst.
    pub end_ns: u64,
    /// CPU time that the scheduler accounted to the thread in that time.
    pub cpu_ns: u64,
}

impl Burst {
    /// As the line that a disturber prints.
    pub fn to_json(self) -> Value {
        json!({"burst": {"start_ns": self.start_ns, "end_ns": self.end_ns, "cpu_ns": self.cpu_ns}})
    }

    /// Reads such a line; `None` for any other.
    pub fn from_json(line: &Value) -> Option<Self> {
        let burst = line.get("burst")?;
        let field = |name| burst.get(name).and_then(Value::as_u64);
        Some(Burst { start_ns: field("start_ns")?, end_ns: field("end_ns")?, cpu_ns: field("cpu_ns")? })
    }

    /// Nanoseconds of the burst that lie between two times.
    pub fn overlap_ns(self, from_ns: u64, to_ns: u64) -> u64 {
        self.end_ns.min(to_ns).saturating_sub(self.start_ns.max(from_ns))
    }
}

/// Prints all bursts of a disturber and their sum.
pub fn print_bursts(name: &str, tid: i32, bursts: &Notes<Burst>) {
    for burst in bursts.items() {
        print_line(&burst.to_json());
    }
    let busy_ns: u64 = bursts.items().iter().map(|b| b.end_ns - b.start_ns).sum();
    let summary = json!({"name": name, "tid": tid, "bursts": bursts.items().len(), "busy_ns": busy_ns,
        "dropped": bursts.dropped()});
    print_line(&json!({ "summary": summary }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_list_counts_what_it_drops() {
        let mut notes = Notes::new(2);
        for i in 0..5 {
            notes.push(i);
        }
        assert_eq!((notes.items(), notes.dropped()), (&[0, 1][..], 3));
    }

    #[test]
    fn bursts_survive_printing_and_overlap() {
        let burst = Burst { start_ns: 100, end_ns: 200, cpu_ns: 90 };
        assert_eq!(Burst::from_json(&burst.to_json()), Some(burst));
        assert_eq!(Burst::from_json(&json!({"summary": {}})), None);
        let overlaps =
            [(0, 50), (0, 150), (120, 130), (150, 300), (250, 300)].map(|(a, b)| burst.overlap_ns(a, b));
        assert_eq!(overlaps, [0, 50, 10, 50, 0]);
    }
}
