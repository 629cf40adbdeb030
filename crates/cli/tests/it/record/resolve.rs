// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope print --resolve` against strace, of the same calls of the same load.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use rtscope_testkit::skip;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Files, links that lead nowhere, pipes, children that inherit and close, sockets, signals.
const LOAD: &str = "cat \"$1\" \"$1/nowhere\" /nowhere; exec 7<\"$1\"; read line <&7; (read more <&7; kill -0 $$); \
    exec 7<&-; ls -d / | wc -c; getent hosts localhost; dd if=\"$1\" of=\"$1.copy\" bs=10 conv=fsync; sleep 0.01";

/// A system call: its name, the text of its arguments, and what comes behind; none if it was interrupted by lines of others.
#[derive(Debug)]
struct Straced {
    name: String,
    arguments: Option<(String, String)>,
}

fn straced(text: &str) -> BTreeMap<u64, Vec<Straced>> {
    let mut calls: BTreeMap<u64, Vec<Straced>> = BTreeMap::new();
    for line in text.lines() {
        let Some((tid, call)) = line.trim_start().split_once(' ') else { continue };
        let call = call.trim_start();
        if call.starts_with(['<', '+', '-']) {
            continue;
        }
        let (name, rest) = call.split_once('(').unwrap();
        let whole = rest.rsplit_once(") ").filter(|_| !rest.ends_with("<unfinished ...>"));
        let whole = whole.or_else(|| rest.split_once(") = "));
        let arguments = whole.map(|_| rest.rsplit_once(" = ").unwrap());
        let arguments = arguments.map(|(arguments, result)| (arguments.to_owned(), result.to_owned()));
        calls.entry(tid.parse().unwrap()).or_default().push(Straced { name: name.to_owned(), arguments });
    }
    calls
}

/// Name and resolved values of each call, from its execve on; and those of its result.
fn ours(trace: &Path) -> BTreeMap<u64, Vec<(String, Value, Option<Value>)>> {
    let arguments = ["--resolve", "--format", "json", "--event", "syscall_*"];
    let printed = crate::command::rtscope().arg("print").arg(trace).args(arguments).output().unwrap();
    assert!(
        printed.status.success() && printed.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&printed.stderr)
    );
    let mut calls: BTreeMap<u64, Vec<(String, Value, Option<Value>)>> = BTreeMap::new();
    for line in String::from_utf8(printed.stdout).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let name = event["event"].as_str().unwrap();
        let of_thread = calls
            .entry(event["event_context"]["tid"].as_u64().or(event["context"]["tid"].as_u64()).unwrap())
            .or_default();
        if let Some(name) = name.strip_prefix("syscall_entry_") {
            of_thread.push((name.to_owned(), event["resolved"].clone(), None));
        } else if let Some((name, _, result)) = of_thread.last_mut() {
            if event["event"] == format!("syscall_exit_{name}") {
                *result = Some(event["resolved"].clone());
            }
        }
    }
    calls
}

/// What is in angle brackets.
fn inside(text: &str) -> Option<&str> {
    Some(text.split_once('<')?.1.rsplit_once('>')?.0)
}

/// strace shows where links lead.
fn same_file(ours: &str, theirs: &str) -> bool {
    let (Some(ours), Some(theirs)) = (inside(ours), inside(theirs)) else { return false };
    let lead = fs::canonicalize(ours).unwrap_or_else(|_| ours.into());
    lead == Path::new(theirs) || (!ours.starts_with('/') && theirs.ends_with(&format!("/{ours}")))
}

/// Flags in any order.
fn words(text: &str) -> BTreeSet<&str> {
    // Names of nothing.
    let is_nothing = |word: &&str| ["0", "AT_STATX_SYNC_AS_STAT"].contains(word);
    text.split('|').filter(|word| !is_nothing(word)).collect()
}

// NEEDS: host
#[test]
fn root_system_calls_are_resolved_as_strace_resolves_them() {
    if skip::without_root() || skip::without_tool("strace") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let (trace, table, file) =
        (root.path().join("trace"), root.path().join("table"), root.path().join("file"));
    fs::write(&file, "a line\nand more\n").unwrap();
    let mut record = crate::command::rtscope();
    record.args(["record", "-k", "syscalls,sched:sched_process_*", "-o"]).arg(&trace);
    record.args(["--", "strace", "-f", "-y", "-o"]).arg(&table).args(["sh", "-c", LOAD, "sh"]).arg(&file);
    let output = record.output().unwrap();
    assert!(trace.is_dir(), "{}", String::from_utf8_lossy(&output.stderr));
    let straced = straced(&fs::read_to_string(&table).unwrap());
    let ours = ours(&trace);
    let (mut symbols, mut errors, mut descriptors) = (0, 0, 0);
    let mut different: Vec<String> = Vec::new();
    for (tid, theirs) in &straced {
        let ours = &ours[tid];
        let begin = match theirs[0].name == "execve" {
            // What strace's own child did before.
            true => ours.iter().position(|(name, ..)| name == "execve").unwrap(),
            false => 0,
        };
        for (ours, theirs) in ours[begin..].iter().zip(theirs) {
            // The kernel's names of some are those of their newer forms.
            let plain = |name: &str| name.trim_start_matches("new").trim_end_matches("64").to_owned();
            assert_eq!(plain(&ours.0), plain(&theirs.name), "{tid}: {ours:?} {theirs:?}");
            let Some((arguments, result)) = &theirs.arguments else { continue };
            let arguments: Vec<&str> =
                arguments.trim_end().trim_end_matches(')').split([',', '=']).map(str::trim).collect();
            for (name, value) in ours.1.as_object().into_iter().flatten() {
                let value = value.as_str().unwrap();
                if value.contains('<') {
                    let known = arguments.iter().any(|theirs| {
                        theirs.split('<').next() == value.split('<').next() && same_file(value, theirs)
                    });
                    let known = known || value.contains("<socket");
                    different.extend((!known).then(|| format!("{name} {value}: {theirs:?}")));
                    descriptors += 1;
                } else {
                    let known = arguments
                        .iter()
                        .any(|theirs| words(theirs.split('<').next().unwrap()) == words(value));
                    different.extend((!known).then(|| format!("{name} {value}: {theirs:?}")));
                    symbols += 1;
                }
            }
            let resolved = ours.2.as_ref().and_then(|result| result["ret"].as_str());
            if let Some(error) = result.strip_prefix("-1 ") {
                let known = resolved == Some(format!("-{error}").as_str());
                different.extend((!known).then(|| format!("{resolved:?}: {theirs:?}")));
                errors += 1;
            } else if let Some(made) = resolved.filter(|made| made.contains('<') && !made.contains("<socket"))
            {
                different.extend((!same_file(made, result)).then(|| format!("{made}: {theirs:?}")));
            }
        }
    }
    assert!(different.is_empty(), "{different:#?}");
    assert!(symbols > 200 && errors > 8 && descriptors > 30, "{symbols} {errors} {descriptors}");
    // The descriptor that a child inherited, before a name for it was ever printed in that child.
    let of = |call: &str, text: &str| {
        ours.values()
            .flatten()
            .filter(|(name, resolved, _)| name == call && resolved.to_string().contains(text))
            .count()
    };
    assert!(of("read", &format!("0<{}>", file.display())) > 0, "a shell's redirection is a dup2");
    assert!(
        of("read", &format!("3<{}>", file.display())) + of("read", &format!("7<{}>", file.display())) > 0
    );
    lines_stay_and_nothing_is_claimed_that_does_not_follow(&trace);
}

fn lines_stay_and_nothing_is_claimed_that_does_not_follow(trace: &Path) {
    let print = |arguments: &[&str]| {
        let mut print = crate::command::rtscope();
        let output = print.arg("print").arg(trace).args(arguments).output().unwrap();
        let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (texts, output.status.code())
    };
    let ([resolved, _], _) = print(&["--resolve"]);
    let ([plain, _], _) = print(&[]);
    let stripped: Vec<&str> =
        resolved.lines().map(|line| line.rsplit_once(" # ").map_or(line, |(line, _)| line)).collect();
    assert_eq!(stripped, plain.lines().collect::<Vec<_>>());
    // What was before --from is known, and not shown.
    let ([late, _], _) = print(&["--resolve", "--from", "-20ms", "--event", "syscall_*"]);
    let expected: Vec<&str> = resolved.lines().filter(|line| line.contains(" syscall_")).collect();
    let differences = |line: &str| line.split_once(") ").map(|(_, rest)| rest.to_owned());
    let tail = &expected[expected.len() - late.lines().count()..];
    assert!(
        late.lines().map(differences).eq(tail.iter().map(|line| differences(line)))
            && late.lines().count() > 5
    );
    let ([some, complaint], _) = print(&["--resolve", "--where", "fd >= 0"]);
    assert!(
        complaint.contains("descriptors are shown as numbers") && !some.contains("fd = 3<"),
        "{complaint}"
    );
    for (arguments, word) in
        [(["--format", "csv"], "text and json"), (["--follow", "--delay=1s"], "leave --follow out")]
    {
        let ([_, complaint], code) = print(&[&["--resolve"][..], &arguments].concat());
        assert!(code == Some(2) && complaint.contains(word), "{complaint}");
    }
}
