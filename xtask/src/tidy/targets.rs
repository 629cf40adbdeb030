// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What cargo compiles: the root file of each library, program, test binary, example and build script.
//!
//! Cargo is asked instead of guessing from file names, so that a target that a manifest moves or switches off is seen as it is.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::File;
use crate::cargo;

/// One target of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its root file, relative to the root of the tree.
    pub path: String,
    /// `./x test` runs the tests in it.
    pub tested: bool,
    /// The features that its package has without being asked for more.
    pub features: Vec<String>,
}

/// All targets of the workspace.
pub fn read(root: &Path) -> Result<Vec<Target>> {
    let output = cargo().args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    targets(&metadata, root).context("cargo metadata has an unknown form")
}

fn targets(metadata: &Value, root: &Path) -> Option<Vec<Target>> {
    let mut found = Vec::new();
    for package in metadata["packages"].as_array()? {
        let features = default_features(&package["features"]);
        for target in package["targets"].as_array()? {
            let path = Path::new(target["src_path"].as_str()?);
            found.push(Target {
                path: path.strip_prefix(root).unwrap_or(path).display().to_string(),
                tested: target["test"].as_bool()?,
                features: features.clone(),
            });
        }
    }
    Some(found)
}

/// `default`, and what it switches on.
fn default_features(features: &Value) -> Vec<String> {
    let mut on = vec!["default".to_string()];
    let mut at = 0;
    while let Some(feature) = on.get(at) {
        let more = features[feature].as_array().into_iter().flatten().filter_map(Value::as_str);
        let more: Vec<String> =
            more.filter(|name| !on.iter().any(|known| known == name)).map(String::from).collect();
        on.extend(more);
        at += 1;
    }
    on
}

/// Test binaries without libtest: a `#[test]` in them is never run, and nothing says so.
pub fn without_libtest(files: &[File]) -> Vec<String> {
    let manifests = files.iter().filter(|file| file.path.ends_with("Cargo.toml"));
    let is_off = |line: &str| line.split_whitespace().collect::<String>().starts_with("harness=false");
    manifests
        .filter(|file| file.text.lines().any(is_off))
        .map(|file| format!("{}: `harness = false`: the tests in it would not be run", file.path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_from_what_cargo_says() {
        let target = |path: &str, test: bool| serde_json::json!({"src_path": path, "test": test});
        let package = serde_json::json!({
            "features": {"default": ["fast"], "fast": ["vector"], "vector": [], "slow": []},
            "targets": [target("/p/crates/a/src/lib.rs", true), target("/p/crates/a/build.rs", false)],
        });
        let found =
            targets(&serde_json::json!({"packages": [package]}), Path::new("/p")).expect("known form");
        let paths: Vec<(&str, bool)> = found.iter().map(|it| (it.path.as_str(), it.tested)).collect();
        assert_eq!(paths, [("crates/a/src/lib.rs", true), ("crates/a/build.rs", false)]);
        assert_eq!(found[0].features, ["default", "fast", "vector"]);
        assert_eq!(targets(&serde_json::json!({"packages": [{}]}), Path::new("/p")), None);
    }

    #[test]
    fn a_test_binary_without_libtest_is_refused() {
        let manifest = |text: &str| [File { path: "crates/a/Cargo.toml".into(), text: text.into() }];
        assert_eq!(without_libtest(&manifest("[[test]]\nname = \"t\"\nharness = false\n")).len(), 1);
        assert_eq!(without_libtest(&manifest("[[test]]\nname = \"t\"\n")), Vec::<String>::new());
    }
}
