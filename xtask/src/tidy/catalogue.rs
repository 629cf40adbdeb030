// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every function of the tree that is a test, and every Rust file that is compiled.
//!
//! The sources are parsed and followed from the roots that cargo names through their `mod` items. So a name in a comment, in
//! a string, under a condition that never holds, or in a file that nothing includes is not taken for a test. A test that a
//! macro writes is not seen: such tests are written out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use syn::{Item, ItemFn, ItemMod, Meta};

use super::File;
use super::conditions::{Frequency, Settings, text_of};
use super::targets::Target;

/// Whether a function is a test that runs; the best comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    Test,
    IgnoredWithoutReason,
    NotTested,
    NeverCompiled,
    NoTest,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Standing::Test => "a test",
            Standing::IgnoredWithoutReason => "ignored without a reason",
            Standing::NotTested => "in a target whose tests are not run",
            Standing::NeverCompiled => "under a condition that never holds",
            Standing::NoTest => "a function without #[test]",
        })
    }
}

/// A function, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    pub standing: Standing,
    pub path: String,
    /// The line of its first attribute, counted from 1.
    pub first_line: usize,
    /// The line with its name.
    pub line: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Catalogue {
    /// By name; functions of different modules can have the same.
    pub functions: BTreeMap<String, Vec<Function>>,
    /// Rust files that some target compiles.
    pub compiled: BTreeSet<String>,
    /// What could not be followed; one for each target that comes there.
    pub problems: Vec<String>,
}

impl Catalogue {
    /// Follows the modules of all targets. `settings`: what the jobs set.
    pub fn of(files: &[File], targets: &[Target], settings: &Settings) -> Catalogue {
        let mut catalogue = Catalogue::default();
        let mut sources = Sources::new(files);
        for target in targets {
            let mut settings = settings.clone();
            settings.features.extend(target.features.iter().cloned());
            let mut walk = Walk { sources: &mut sources, settings, tested: target.tested, stack: Vec::new() };
            walk.file(&target.path, parent(&target.path), Frequency::Always, &mut catalogue);
        }
        catalogue.problems.sort();
        catalogue.problems.dedup();
        catalogue
    }

    /// The functions that are tests.
    pub fn tests(&self) -> impl Iterator<Item = (&str, &Function)> {
        let all = self.functions.iter().flat_map(|(name, all)| all.iter().map(move |it| (name.as_str(), it)));
        all.filter(|(_, function)| function.standing == Standing::Test)
    }

    /// Why a name is not a test; `None`: it is one.
    pub fn objection(&self, name: &str, files: &[File]) -> Option<String> {
        let best = self.functions.get(name).and_then(|all| all.iter().min_by_key(|it| it.standing));
        match best {
            Some(function) if function.standing == Standing::Test => None,
            Some(function) => Some(format!("is {} ({}:{})", function.standing, function.path, function.line)),
            None => Some(self.mention(name, files)),
        }
    }

    fn mention(&self, name: &str, files: &[File]) -> String {
        let definition = format!("fn {name}(");
        let mentions = |file: &&File| file.path.ends_with(".rs") && file.text.contains(&definition);
        match files.iter().find(mentions) {
            Some(file) if self.compiled.contains(&file.path) => {
                format!("is only in a comment, a string or a macro ({})", file.path)
            }
            Some(file) => format!("is in a file that no crate compiles ({})", file.path),
            None => "does not exist".to_string(),
        }
    }
}

/// Parsed files. Some are included by several targets.
struct Sources<'a> {
    texts: BTreeMap<&'a str, &'a str>,
    parsed: BTreeMap<String, Result<Rc<syn::File>, String>>,
}

impl<'a> Sources<'a> {
    fn new(files: &'a [File]) -> Sources<'a> {
        let texts = files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
        Sources { texts, parsed: BTreeMap::new() }
    }

    /// `None`: there is no such file.
    fn parse(&mut self, path: &str) -> Option<Result<Rc<syn::File>, String>> {
        let text = self.texts.get(path)?;
        let parsed = self.parsed.entry(path.to_owned()).or_insert_with(|| {
            let place = |error: syn::Error| format!("{path}:{}: {error}", error.span().start().line);
            syn::parse_file(text).map(Rc::new).map_err(place)
        });
        Some(parsed.clone())
    }
}

/// The way through one target.
struct Walk<'s, 'a> {
    sources: &'s mut Sources<'a>,
    settings: Settings,
    tested: bool,
    /// The files that lead here.
    stack: Vec<String>,
}

/// The file in which the walk is.
struct Place<'p> {
    path: &'p str,
    /// Where the files of its modules are.
    directory: String,
    /// It is inside `mod name { … }`.
    inline: bool,
    frequency: Frequency,
}

impl Walk<'_, '_> {
    fn file(&mut self, path: &str, directory: &str, frequency: Frequency, found: &mut Catalogue) {
        if self.stack.iter().any(|above| above == path) {
            return found.problems.push(format!("{path}: is a module of itself"));
        }
        let parsed = match self.sources.parse(path) {
            None => return found.problems.push(format!("{path}: there is no such file")),
            Some(Err(problem)) => return found.problems.push(problem),
            Some(Ok(parsed)) => parsed,
        };
        if frequency > Frequency::Never {
            found.compiled.insert(path.to_owned());
        }
        let own = self.settings.compiled(&self.settings.effective(&parsed.attrs));
        self.stack.push(path.to_owned());
        let place =
            Place { path, directory: directory.to_owned(), inline: false, frequency: frequency.min(own) };
        self.items(&parsed.items, &place, found);
        self.stack.pop();
    }

    fn items(&mut self, items: &[Item], place: &Place, found: &mut Catalogue) {
        for item in items {
            match item {
                Item::Fn(function) => self.function(function, place, found),
                Item::Mod(module) => self.module(module, place, found),
                _ => {}
            }
        }
    }

    fn function(&self, function: &ItemFn, place: &Place, found: &mut Catalogue) {
        let attributes = self.settings.effective(&function.attrs);
        let has = |name: &str| attributes.iter().any(|attribute| attribute.path().is_ident(name));
        let without_reason = |attribute: &Meta| match attribute {
            Meta::NameValue(pair) => text_of(&pair.value).is_none_or(|reason| reason.trim().is_empty()),
            _ => true,
        };
        let ignored = attributes.iter().find(|attribute| attribute.path().is_ident("ignore"));
        let standing = if !has("test") {
            Standing::NoTest
        } else if self.settings.compiled(&attributes).min(place.frequency) == Frequency::Never {
            Standing::NeverCompiled
        } else if !self.tested {
            Standing::NotTested
        } else if ignored.is_some_and(without_reason) {
            Standing::IgnoredWithoutReason
        } else {
            Standing::Test
        };
        let line = function.sig.ident.span().start().line;
        let first_line =
            function.attrs.first().map_or(line, |attribute| attribute.pound_token.span.start().line);
        let name = function.sig.ident.to_string();
        let described = Function { standing, path: place.path.to_owned(), first_line, line };
        found.functions.entry(name).or_default().push(described);
    }

    fn module(&mut self, module: &ItemMod, place: &Place, found: &mut Catalogue) {
        let attributes = self.settings.effective(&module.attrs);
        let frequency = self.settings.compiled(&attributes).min(place.frequency);
        let name = module.ident.to_string();
        let moved = attributes.iter().find_map(|attribute| match attribute {
            Meta::NameValue(pair) if pair.path.is_ident("path") => text_of(&pair.value),
            _ => None,
        });
        if let Some((_, items)) = &module.content {
            let directory = join(&place.directory, &moved.unwrap_or(name));
            self.items(items, &Place { directory, inline: true, frequency, ..*place }, found);
        } else if let Some(moved) = moved {
            let from = if place.inline { place.directory.as_str() } else { parent(place.path) };
            let path = join(from, &moved);
            self.file(&path, parent(&path), frequency, found);
        } else {
            // The modules of the newer form are in a directory of its name; `mod.rs` is itself in that directory.
            let directory = join(&place.directory, &name);
            let forms = [format!("{directory}.rs"), format!("{directory}/mod.rs")];
            match forms.iter().find(|path| self.sources.texts.contains_key(path.as_str())) {
                Some(path) => self.file(path, &directory, frequency, found),
                // One that is never compiled may be missing.
                None if frequency == Frequency::Never => {}
                None => found.problems.push(format!("{}: there is no {}", place.path, forms[0])),
            }
        }
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// A path from a directory, with `..` resolved.
fn join(directory: &str, path: &str) -> String {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue(files: &[(&str, &str)]) -> (Catalogue, Vec<File>) {
        let file = |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
        let files: Vec<File> = files.iter().map(file).collect();
        let target = |path: &str, tested| Target { path: path.into(), tested, features: vec![] };
        let targets = [target("a/src/lib.rs", true), target("a/examples/e.rs", false)];
        let present = |target: &Target| files.iter().any(|file| file.path == target.path);
        let targets: Vec<Target> = targets.into_iter().filter(present).collect();
        (Catalogue::of(&files, &targets, &Settings::default()), files)
    }

    fn objection(library: &str) -> String {
        let (catalogue, files) = catalogue(&[("a/src/lib.rs", library)]);
        assert!(catalogue.problems.is_empty(), "{:?}", catalogue.problems);
        catalogue.objection("it_holds", &files).unwrap_or_default()
    }

    #[test]
    fn only_functions_that_run_as_tests_count() {
        for test in [
            "#[test] fn it_holds() {}",
            "#[cfg(test)] mod tests { #[test] fn it_holds() {} }",
            "#[test] #[should_panic] fn it_holds() {}",
            "#[test] #[ignore = \"takes an hour\"] fn it_holds() {}",
            "#[cfg_attr(test, test)] fn it_holds() {}",
            "fn it_holds() {} mod tests { #[test] fn it_holds() {} }",
        ] {
            assert_eq!(objection(test), "", "{test}");
        }
        for (nothing, why) in [
            ("fn it_holds() {}", "a function without #[test]"),
            ("// #[test]\n// fn it_holds() {}", "in a comment"),
            ("/* #[test] fn it_holds() {} */", "in a comment"),
            ("const TEXT: &str = \"#[test] fn it_holds() {}\";", "in a comment, a string"),
            ("#[cfg(any())] #[test] fn it_holds() {}", "never holds"),
            ("#[cfg(any())] mod tests { #[test] fn it_holds() {} }", "never holds"),
            ("#![cfg(nobody_sets_this)] #[test] fn it_holds() {}", "never holds"),
            ("#[test] #[ignore] fn it_holds() {}", "ignored without a reason"),
            ("#[test] #[ignore = \"\"] fn it_holds() {}", "ignored without a reason"),
            ("#[cfg_attr(any(), test)] fn it_holds() {}", "a function without #[test]"),
            ("fn f() { #[test] fn it_holds() {} }", "in a comment, a string or a macro"),
            ("#[test] fn another() {}", "does not exist"),
        ] {
            assert!(objection(nothing).contains(why), "{nothing}: {}", objection(nothing));
        }
    }

    #[test]
    fn only_files_that_a_crate_compiles_count() {
        let test = "#[test] fn it_holds() {}";
        let check = |files: &[(&str, &str)]| {
            let (catalogue, files) = catalogue(files);
            let why = catalogue.objection("it_holds", &files).unwrap_or_default();
            (why, catalogue.problems)
        };
        for (root, path) in [
            ("mod b;", "a/src/b.rs"),
            ("mod b;", "a/src/b/mod.rs"),
            ("mod b { mod c; }", "a/src/b/c.rs"),
            ("#[path = \"../tests/c.rs\"] mod b;", "a/tests/c.rs"),
            ("mod b { #[path = \"d.rs\"] mod c; }", "a/src/b/d.rs"),
        ] {
            assert_eq!(check(&[("a/src/lib.rs", root), (path, test)]), (String::new(), vec![]), "{root}");
        }
        let below = [("a/src/lib.rs", "mod b;"), ("a/src/b.rs", "mod c;"), ("a/src/b/c.rs", test)];
        assert_eq!(check(&below), (String::new(), vec![]));
        let (why, _) = check(&[("a/src/lib.rs", "// mod b;"), ("a/src/b.rs", test)]);
        assert!(why.contains("in a file that no crate compiles"), "{why}");
        let (why, _) = check(&[("a/examples/e.rs", test)]);
        assert!(why.contains("tests are not run"), "{why}");
        let (_, problems) = check(&[("a/src/lib.rs", "mod b;")]);
        assert_eq!(problems, ["a/src/lib.rs: there is no a/src/b.rs"]);
        let (_, problems) = check(&[("a/src/lib.rs", "fn {")]);
        assert!(problems[0].starts_with("a/src/lib.rs:1: "), "{problems:?}");
        let (_, problems) = check(&[("a/src/lib.rs", "#[path = \"lib.rs\"] mod b;")]);
        assert_eq!(problems, ["a/src/lib.rs: is a module of itself"]);
    }

    #[test]
    fn a_function_has_its_lines() {
        let text = "\n/// What it is.\n#[test]\nfn it_holds() {}\n";
        let (catalogue, _) = catalogue(&[("a/src/lib.rs", text)]);
        let (_, function) = catalogue.tests().next().expect("a test");
        assert_eq!((function.first_line, function.line), (2, 4));
    }
}
