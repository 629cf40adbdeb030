// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands in the documentation are ones that rtscope takes: they are parsed as a shell and rtscope would, and not run.

use std::fs;
use std::path::{Path, PathBuf};

/// The pages whose commands people type.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let how_to = fs::read_dir(root.join("docs/how-to")).expect("it is there");
    let mut pages: Vec<PathBuf> = how_to.map(|entry| entry.expect("it can be read").path()).collect();
    let others = [
        "README.md",
        "docs/fds.md",
        "docs/hardware.md",
        "docs/programs.md",
        "docs/shielding.md",
        "docs/impact.md",
        "docs/perfetto.md",
        "docs/watch-config.md",
    ];
    pages.extend(others.map(|name| root.join(name)));
    pages
}

/// The words of a command up to what only a shell sees (`|`, `&`, `#`); `None` where something stands in the place of words.
fn words(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars().chain([' ']) {
        match (c, quote) {
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(open)) if c == open => quote = None,
            ('…' | '$' | '(', None) => return None,
            ('|' | '&' | '>' | '#', None) if word.is_none() => break,
            (' ', None) => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    Some(words)
}

/// The commands of a page: lines that are indented as code, from the word `rtscope` on. A backslash at the end joins lines.
fn commands(text: &str) -> Vec<Vec<String>> {
    let text = text.replace("\\\n", " ");
    let code = text.lines().filter_map(|line| line.strip_prefix("    "));
    let commands = code.filter_map(|line| line.find("rtscope ").map(|at| &line[at..]).and_then(words));
    commands.filter(|words| words.len() > 1 && words[0] == "rtscope").collect()
}

#[test]
fn each_command_of_the_documentation_is_one_that_rtscope_takes() {
    let mut parsed = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("it is there");
        for words in commands(&text) {
            parsed += 1;
            if let Err(error) = crate::help::command().try_get_matches_from(&words) {
                let is_refused = !matches!(
                    error.kind(),
                    clap::error::ErrorKind::DisplayHelp | clap::error::ErrorKind::DisplayVersion
                );
                assert!(!is_refused, "{}: {words:?}\n{error}", page.display());
            }
        }
    }
    assert!(parsed > 60, "only {parsed} commands were found");
}

/// The examples of a help page: they are indented by two blanks, and what they do by more.
fn examples(page: &str) -> Vec<Vec<String>> {
    let page = page.replace("\\\n", " ");
    let is_example = |line: &&str| line.starts_with("  rtscope ") && !line.starts_with("  rtscope  ");
    page.lines().filter(is_example).filter_map(|line| words(line.trim_start())).collect()
}

#[test]
fn each_example_of_a_help_page_is_a_command_of_one_line_that_rtscope_takes() {
    let mut parsed = 0;
    for (name, page) in crate::help::tests::all_pages() {
        for words in examples(&page) {
            parsed += 1;
            if let Err(error) = crate::help::command().try_get_matches_from(&words) {
                panic!("{name}: {words:?}\n{error}");
            }
        }
    }
    assert!(parsed > 100, "only {parsed} examples were found");
}

#[test]
fn a_command_ends_where_the_shell_goes_on() {
    let words = |text: &str| words(text).map(|words| words.join("|"));
    assert_eq!(
        words("rtscope print a/ --where 'x =~ \"b *\"' | jq ."),
        Some("rtscope|print|a/|--where|x =~ \"b *\"".into())
    );
    assert_eq!(words("rtscope list     # all"), Some("rtscope|list".into()));
    assert_eq!(words("rtscope record … -- x"), None);
    assert_eq!(words("rtscope shield move $(pidof x)"), None);
}
