// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links of the documentation lead somewhere: to a file or directory of the tree, and there to a heading. What sources, helps and scripts say of
//! `docs/…` exists, too.

use super::File;
use std::collections::{BTreeMap, BTreeSet};

/// Where the pages are.
const DOCS: &str = "docs/";

/// What is wrong with the links of these files. `others`: files that are not text.
pub fn check(files: &[File], others: &[String]) -> Vec<String> {
    let headings: BTreeMap<&str, BTreeSet<String>> =
        files.iter().filter(is_page).map(|file| (file.path.as_str(), anchors(&file.text))).collect();
    let mut places: BTreeSet<&str> = others.iter().map(String::as_str).collect();
    for file in files {
        places.extend(std::iter::successors(Some(file.path.as_str()), |path| {
            path.rfind('/').map(|at| &path[..at])
        }));
    }
    let mut problems = Vec::new();
    for file in files {
        let links = if is_page(&file) { links(&file.text) } else { Vec::new() };
        for link in links {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { file.path.clone() } else { resolve(&file.path, path) };
            let has_heading = headings.get(target.as_str()).is_some_and(|anchors| anchors.contains(anchor));
            if !places.contains(target.as_str()) || !(anchor.is_empty() || has_heading) {
                problems.push(format!("{}: the link '{link}' leads nowhere", file.path));
            }
        }
        for page in mentions(&file.text).filter(|page| !places.contains(page)) {
            problems.push(format!("{}: there is no {page}", file.path));
        }
    }
    problems
}

fn is_page(file: &&File) -> bool {
    file.path.ends_with(".md")
}

/// Targets of links within the tree; not those in code.
fn links(text: &str) -> Vec<&str> {
    let mut links = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if is_code || line.starts_with("    ") {
            continue;
        }
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        links.extend(targets.filter(|target| !target.contains("://") && !target.contains(' ')));
    }
    links
}

/// Pages that a text names by their path from the root.
fn mentions(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "/-_.".contains(c)));
    words
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.starts_with(DOCS) && word.ends_with(".md"))
}

/// The path of a link from a file's directory, without `..`.
fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// The anchors of a page's headings, as sites for Git make them: the second of equal ones gets `-1`, and so on.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if is_code || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect();
        let mut others = (1..).map(|number| format!("{anchor}-{number}"));
        if !anchors.insert(anchor.clone()) {
            anchors.extend(others.find(|other| !anchors.contains(other)));
        }
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not in one piece: this file would name pages that are not there.
    fn page(name: &str, text: &str) -> File {
        File { path: format!("{DOCS}{name}"), text: text.into() }
    }

    #[test]
    fn a_link_leads_to_a_file_a_directory_or_a_heading_that_is_there() {
        let problems = |link: &str| {
            let text =
                format!("# One\n\n## Where is it, `then`?\n\nSee [it]({link}).\n\n    [code](nowhere)\n");
            let two = page("two.md", "# Two words\n```\n# no\n```\n## C\n## C++\n");
            let files = [page("a/one.md", &text), two];
            check(&files, &["picture.png".to_owned()]).len()
        };
        let good = [
            "../two.md",
            "../two.md#two-words",
            "../two.md#c-1",
            "#where-is-it-then",
            "..",
            "../../picture.png",
            "https://example.org/x",
        ];
        assert_eq!(good.map(problems), [0; 7]);
        let bad = ["two.md", "../two.md#no", "#nowhere", "../a/three.md", "picture.png", "../two.md#Two"];
        assert_eq!(bad.map(problems), [1; 6]);
    }

    #[test]
    fn a_page_that_a_source_names_is_there() {
        let problems =
            |text: String| check(&[page("two.md", ""), File { path: "a.rs".into(), text }], &[]).len();
        assert_eq!(problems(format!("// as {DOCS}two.md says, and {DOCS}two.md.")), 0);
        assert_eq!(problems(format!("// as {DOCS}three.md says, {DOCS}four.md")), 2);
    }
}
