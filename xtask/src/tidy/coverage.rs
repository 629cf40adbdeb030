// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No file is silently outside of lint: each is seen by a compiler, a formatter or a checker of scripts, or it is a kind of data that
//! is listed here.

use std::collections::BTreeSet;

use super::{File, Tree};

/// Text that no tool formats or compiles; the rules about words and licences see it like every other file.
const DATA: [&str; 14] = [
    "3",
    "ansi",
    "clang-format",
    "cmake",
    "events",
    "gitignore",
    "idx",
    "in",
    "json",
    "jsonl",
    "lock",
    "log",
    "md",
    "toml",
];
/// The same in the files of tests only.
const DATA_OF_TESTS: [&str; 3] = ["", "js", "txt"];
/// Directories in which files of tests are.
const OF_TESTS: [&str; 4] = ["golden", "testdata", "tests", "vectors"];

/// The files that a tool is given.
#[derive(Debug)]
pub struct CheckedFiles<'a> {
    /// Those that cargo compiles, which rustfmt and clippy see, too.
    pub rust: &'a BTreeSet<String>,
    /// Those that clang-format sees.
    pub c: &'a BTreeSet<String>,
    /// Those that shellcheck sees.
    pub scripts: &'a [&'a str],
}

/// Files that nothing looks at.
pub fn check(tree: &Tree, checked: &CheckedFiles) -> Vec<String> {
    let mut problems: Vec<String> = tree.files.iter().filter_map(|file| objection(file, checked)).collect();
    let binaries = tree.binaries.iter().filter(|path| !is_of_tests(path));
    problems.extend(binaries.map(|path| format!("{path}: is neither text nor a test's file")));
    problems
        .extend(tree.links.iter().map(|path| format!("{path}: is a symbolic link, which no rule follows")));
    problems
}

fn objection(file: &File, checked: &CheckedFiles) -> Option<String> {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let problem = match extension {
        "rs" => (!checked.rust.contains(&file.path))
            .then_some("no crate compiles it, so neither rustfmt nor clippy sees it"),
        // Its test builds with it.
        "txt" if name == "CMakeLists.txt" => None,
        "c" | "h" | "cpp" | "hpp" => {
            (!checked.c.contains(&file.path)).then_some("clang-format does not see it (xtask/src/lint_c.rs)")
        }
        _ if extension == "sh" || file.text.starts_with("#!") => {
            (!checked.scripts.contains(&file.path.as_str()))
                .then_some("shellcheck does not see it (SCRIPTS in xtask/src/lint.rs)")
        }
        _ if DATA.contains(&extension) || name.starts_with("LICENSE-") => None,
        _ if DATA_OF_TESTS.contains(&extension) && is_of_tests(&file.path) => None,
        _ => Some("no rule covers this kind of file (xtask/src/tidy/coverage.rs)"),
    };
    problem.map(|problem| format!("{}: {problem}", file.path))
}

fn is_of_tests(path: &str) -> bool {
    path.split('/').rev().skip(1).any(|directory| OF_TESTS.contains(&directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        let file = File { path: path.into(), text: text.into() };
        let one = |path: &str| BTreeSet::from([path.to_string()]);
        let (rust, c) = (one("a/src/lib.rs"), one("a/c/a.c"));
        let tree = Tree { files: vec![file], ..Tree::default() };
        check(&tree, &CheckedFiles { rust: &rust, c: &c, scripts: &["x"] })
    }

    #[test]
    fn files_that_a_tool_sees_are_fine() {
        for (path, text) in [
            ("a/src/lib.rs", ""),
            ("a/c/a.c", ""),
            ("x", "#!/bin/sh\n"),
            ("README.md", ""),
            ("LICENSE-MIT", ""),
            ("a/tests/list.txt", ""),
            ("a/tests/corpus/metadata", ""),
        ] {
            assert_eq!(problems(path, text), Vec::<String>::new(), "{path}");
        }
    }

    #[test]
    fn files_that_nothing_sees_are_reported() {
        for (path, text, why) in [
            ("a/src/forgotten.rs", "", "no crate compiles it"),
            ("a/other/a.c", "", "clang-format"),
            ("a/other/a.h", "", "clang-format"),
            ("a/c/a.cpp", "", "clang-format"),
            ("a/run", "#!/usr/bin/env bash\n", "shellcheck"),
            ("a/run.sh", "", "shellcheck"),
            ("a/run", "#!/usr/bin/env python3\n", "shellcheck"),
            ("a/model.py", "", "no rule covers"),
            ("a/list.txt", "", "no rule covers"),
            ("a/metadata", "", "no rule covers"),
        ] {
            let problems = problems(path, text);
            assert!(problems.len() == 1 && problems[0].contains(why), "{path}: {problems:?}");
        }
    }

    #[test]
    fn binaries_and_links_are_reported() {
        let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_string()).collect();
        let tree = Tree {
            files: vec![],
            binaries: paths(&["a/tests/corpus/ch_0", "a/src/blob"]),
            links: paths(&["l"]),
        };
        let nothing = BTreeSet::new();
        let found = check(&tree, &CheckedFiles { rust: &nothing, c: &nothing, scripts: &[] });
        assert_eq!(
            found,
            ["a/src/blob: is neither text nor a test's file", "l: is a symbolic link, which no rule follows"]
        );
    }
}
