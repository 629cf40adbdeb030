// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether code under `#[cfg(…)]` is compiled into the tests that `./x` runs.
//!
//! A condition is judged for all the machines that the project is built for: what differs between them holds sometimes. A
//! name that no job sets never holds, so a test under it is not a test.

use std::collections::BTreeSet;

use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Lit, Meta, Token};

/// How often a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Frequency {
    Never,
    Sometimes,
    Always,
}

impl Frequency {
    fn opposite(self) -> Frequency {
        match self {
            Frequency::Never => Frequency::Always,
            Frequency::Sometimes => Frequency::Sometimes,
            Frequency::Always => Frequency::Never,
        }
    }
}

/// What the jobs of `./x` set in addition to cargo: names after `--cfg` and features.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub names: BTreeSet<String>,
    pub features: BTreeSet<String>,
}

impl Settings {
    /// Finds them in the text of a job.
    pub fn add_from(&mut self, text: &str) {
        self.names.extend(words_after(text, "--cfg"));
        self.features.extend(words_after(text, "--features"));
    }

    /// How often a condition holds; one that is not understood never does.
    fn frequency(&self, condition: &Meta) -> Frequency {
        let known = |holds| if holds { Frequency::Sometimes } else { Frequency::Never };
        match condition {
            Meta::Path(path) => match path.get_ident().map(ToString::to_string).as_deref() {
                Some("test" | "unix") => Frequency::Always,
                Some("debug_assertions") => Frequency::Sometimes,
                Some(name) => known(self.names.contains(name)),
                None => Frequency::Never,
            },
            Meta::NameValue(pair) => {
                let (Some(name), Some(value)) = (pair.path.get_ident(), text_of(&pair.value)) else {
                    return Frequency::Never;
                };
                match (name.to_string().as_str(), value.as_str()) {
                    ("target_os", "linux") | ("target_family", "unix") => Frequency::Always,
                    ("target_endian", "little") | ("target_pointer_width", "64") => Frequency::Always,
                    ("target_arch", "x86_64" | "aarch64") | ("target_env", _) => Frequency::Sometimes,
                    ("feature", feature) => known(self.features.contains(feature)),
                    _ => Frequency::Never,
                }
            }
            Meta::List(list) => {
                let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
                let Ok(parts) = parts else { return Frequency::Never };
                let mut parts = parts.iter().map(|part| self.frequency(part));
                match list.path.get_ident().map(ToString::to_string).as_deref() {
                    Some("all") => parts.min().unwrap_or(Frequency::Always),
                    Some("any") => parts.max().unwrap_or(Frequency::Never),
                    Some("not") => parts.next().map_or(Frequency::Never, Frequency::opposite),
                    _ => Frequency::Never,
                }
            }
        }
    }

    /// How often an item with these attributes is compiled.
    pub fn compiled(&self, attributes: &[Meta]) -> Frequency {
        let conditions = attributes.iter().filter_map(|attribute| match attribute {
            Meta::List(list) if list.path.is_ident("cfg") => Some(list.parse_args::<Meta>()),
            _ => None,
        });
        let each = conditions.map(|condition| condition.map_or(Frequency::Never, |it| self.frequency(&it)));
        each.min().unwrap_or(Frequency::Always)
    }

    /// The attributes that an item has, those inside `cfg_attr` included when their condition can hold.
    pub fn effective(&self, attributes: &[Attribute]) -> Vec<Meta> {
        attributes.iter().flat_map(|attribute| self.unwrapped(attribute.meta.clone())).collect()
    }

    fn unwrapped(&self, attribute: Meta) -> Vec<Meta> {
        let Meta::List(list) = &attribute else { return vec![attribute] };
        if !list.path.is_ident("cfg_attr") {
            return vec![attribute];
        }
        let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
        let mut parts = parts.into_iter().flatten();
        let holds = parts.next().is_some_and(|condition| self.frequency(&condition) > Frequency::Never);
        parts.filter(|_| holds).flat_map(|inner| self.unwrapped(inner)).collect()
    }
}

/// The text of a string literal.
pub fn text_of(value: &Expr) -> Option<String> {
    match value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// The words that follow an option, whatever stands between: a space, `=`, or the quotes of a list of arguments.
fn words_after<'a>(text: &'a str, option: &'a str) -> impl Iterator<Item = String> + 'a {
    let of_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.split(option).skip(1).filter_map(move |rest| {
        let word = rest.trim_start_matches(|c: char| " =\",'".contains(c));
        let word: String = word.chars().take_while(|c| of_word(*c)).collect();
        (!word.is_empty() && word.len() < rest.len()).then_some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(condition: &str) -> Frequency {
        let mut settings = Settings::default();
        settings.add_from("RUSTFLAGS='--cfg loom' cargo test --features slow");
        let item: syn::ItemFn = syn::parse_str(&format!("{condition} fn f() {{}}")).expect("a function");
        settings.compiled(&settings.effective(&item.attrs))
    }

    #[test]
    fn conditions_that_never_hold_are_recognised() {
        for never in [
            "#[cfg(any())]",
            "#[cfg(not(test))]",
            "#[cfg(not(all()))]",
            "#[cfg(all(test, windows))]",
            "#[cfg(target_os = \"macos\")]",
            "#[cfg(nobody_sets_this)]",
            "#[cfg(feature = \"other\")]",
            "#[cfg(1)]",
            "#[cfg(test)] #[cfg(any())]",
            "#[cfg_attr(test, cfg(any()))]",
        ] {
            assert_eq!(compiled(never), Frequency::Never, "{never}");
        }
    }

    #[test]
    fn conditions_that_hold_somewhere_are_recognised() {
        for sometimes in [
            "#[cfg(target_arch = \"aarch64\")]",
            "#[cfg(not(target_arch = \"aarch64\"))]",
            "#[cfg(loom)]",
            "#[cfg(feature = \"slow\")]",
        ] {
            assert_eq!(compiled(sometimes), Frequency::Sometimes, "{sometimes}");
        }
        for always in [
            "",
            "#[cfg(test)]",
            "#[cfg(not(nobody_sets_this))]",
            "#[cfg(any(test, windows))]",
            "#[cfg_attr(not(test), cfg(any()))]",
        ] {
            assert_eq!(compiled(always), Frequency::Always, "{always}");
        }
    }

    #[test]
    fn jobs_set_names_in_several_notations() {
        let mut settings = Settings::default();
        settings.add_from("--cfg=a; [\"--cfg\", \"b\"]; --cfg c\n--features d,e");
        assert_eq!(settings.names.iter().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(settings.features.iter().collect::<Vec<_>>(), ["d"]);
    }
}
