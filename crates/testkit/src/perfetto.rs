// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Perfetto's own engine, as an oracle for what we convert: its tables, by SQL.
//!
//! It is WebAssembly, which a Python package brings with Perfetto's user interface; `./x` unpacks it into
//! `target/perfetto`. Node runs it.

use crate::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A row of an answer.
pub type Row = Vec<serde_json::Value>;

/// Where the engine is; `None`, and the test is reported as skipped, where it or Node is missing.
pub fn engine() -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    let directory = target.join("perfetto");
    if !directory.join("trace_processor.wasm").exists() || !directory.join("engine_bundle.js").exists() {
        skip::say(format_args!("Perfetto's engine is not in {} (./x setup fetches it)", directory.display()));
        return None;
    }
    (!skip::without_tool("node")).then_some(directory)
}

/// The answers to some queries of a converted trace.
///
/// # Panics
/// When the engine cannot read the trace, or does not understand a query.
#[track_caller]
pub fn query(engine: &Path, trace: &Path, queries: &[&str]) -> Vec<Vec<Row>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/perfetto.js");
    let mut node = Command::new("node");
    // The engine may take as much memory as it wants to.
    node.arg("--max-old-space-size=8192").arg(script).arg(engine).arg(trace).args(queries);
    let output = node.output().expect("node runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {complaint}", trace.display());
    let text = String::from_utf8_lossy(&output.stdout);
    let rows = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let answers: Vec<Vec<Row>> = text.lines().map(rows).collect();
    assert_eq!(answers.len(), queries.len(), "{complaint}");
    answers
}

/// What Perfetto complains of in a trace: names and counts of its statistics about errors and lost data.
pub const COMPLAINTS: &str =
    "select name, sum(value) from stats where severity in ('error', 'data_loss') and value > 0 group by name";
