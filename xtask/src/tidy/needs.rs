// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each privileged test states above its attributes where it is worth running: `// NEEDS: sched_ext, cpus 4`. Without that it would run in no
//! guest, and nobody would notice.

use super::File;
use super::catalogue::Catalogue;
use crate::vm::needs::{Needs, stated_needs};

/// Privileged tests that state nothing, or what `./x vm` does not understand.
pub fn check(files: &[File], tests: &Catalogue) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, test) in tests.tests().filter(|(name, _)| name.starts_with("root_")) {
        let text = files.iter().find(|file| file.path == test.path).map_or("", |file| file.text.as_str());
        let place = format!("{}:{}: {name}", test.path, test.line);
        match stated_needs(text).into_iter().find(|(stated, _)| *stated == name) {
            Some((_, Some(words))) => {
                problems.extend(Needs::parse(words).err().map(|error| format!("{place}: {error:#}")));
            }
            Some((_, None)) => problems.push(format!("{place}: no line '// NEEDS: …' above its attributes")),
            None => problems.push(format!(
                "{place}: ./x vm does not see its needs; write `#[test]` and `fn {name}(` on separate lines"
            )),
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::conditions::Settings;
    use super::super::targets::Target;
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let files = [File { path: "a/src/lib.rs".into(), text: text.into() }];
        let target = Target { path: "a/src/lib.rs".into(), tested: true, features: vec![] };
        check(&files, &Catalogue::of(&files, &[target], &Settings::default()))
    }

    #[test]
    fn a_privileged_test_states_what_it_needs() {
        for fine in [
            "// NEEDS: verifier\n#[test]\nfn root_a() {}",
            "/// Words.\n// NEEDS: cpus 4, real time (slow, by far)\n#[test]\n#[should_panic]\nfn root_a() {}",
            "#[test]\nfn other() {}",
            "// #[test]\n// fn root_a() {}",
            "fn root_a() {}",
        ] {
            assert_eq!(problems(fine), Vec::<String>::new(), "{fine}");
        }
        for (wrong, why) in [
            ("#[test]\nfn root_a() {}", "a/src/lib.rs:2: root_a: no line '// NEEDS: …'"),
            ("// NEEDS: verifier\n\n#[test]\nfn root_a() {}", "no line '// NEEDS: …'"),
            ("// NEEDS: more speed\n#[test]\nfn root_a() {}", "'more speed'"),
            ("// NEEDS: verifier\n#[test] fn root_a() {}", "./x vm does not see its needs"),
        ] {
            let problems = problems(wrong);
            assert!(problems.len() == 1 && problems[0].contains(why), "{wrong}: {problems:?}");
        }
    }
}
