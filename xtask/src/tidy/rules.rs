// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules about single files, and the rule about which crate may know which.

use super::File;

/// A file longer than this draws a warning.
const LONG_LINES: usize = 600;
/// A file longer than this is an error.
const TOO_LONG_LINES: usize = 1000;
/// An `ORDER:` comment belongs at most this many lines above the line that it explains.
const ORDER_LINES_ABOVE: usize = 6;
/// What an atomic access or a barrier looks like in C, C++ and eBPF. A volatile access is one: it is what `READ_ONCE` of the kernel
/// is. So is an instruction that reads and writes memory (`"+m"`), since a handler or another CPU may come between.
const C_ORDERS: [&str; 37] = [
    "__atomic_",
    "__sync_",
    "__ATOMIC_",
    "atomic_load",
    "atomic_store",
    "atomic_fetch_",
    "atomic_exchange",
    "atomic_compare_exchange",
    "atomic_flag_",
    "atomic_thread_fence",
    "atomic_signal_fence",
    "atomic_init",
    "_Atomic",
    "std::atomic",
    "memory_order_",
    "READ_ONCE(",
    "WRITE_ONCE(",
    "barrier()",
    "LOAD_ACQUIRE(",
    "STORE_RELEASE(",
    "RTSCOPE__FENCE_",
    "RTSCOPE__READ_BEFORE(",
    "smp_mb",
    "smp_rmb",
    "smp_wmb",
    "smp_load_acquire",
    "smp_store_",
    "*(volatile ",
    "cmpxchg",
    "\"+m\"",
    "\"lock;",
    "\"lock ",
    "mfence",
    "lfence",
    "sfence",
    "\"dmb ",
    "\"dsb ",
];
/// The flow. A crate may depend on those before it.
const FLOW: [&str; 21] = [
    "cpus", "procs", "abi", "event", "stacks", "ftrace", "ring", "kernel", "programs", "flight", "ctf",
    "store", "hardware", "analyze", "tracers", "shield", "artis", "session", "measure", "view", "cli",
];
/// Crates beside the flow: they may depend on everything, and every crate's tests may use them.
const BESIDE_THE_FLOW: [&str; 5] = ["probe", "queue", "testkit", "bench", "fuzz"];
/// The command: arguments, a plan, a call, an exit code. Engines and texts are in libraries, where other programs find them, too.
const COMMAND: &str = "crates/cli/src/";
/// It has at most so many lines of code.
pub const COMMAND_LINES: usize = 4500;
/// Words that do not belong in the tree; taken apart here so that this file does not contain them.
const UNWANTED: [&str; 5] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), "/wo\u{72}k/", "/ro\u{6f}t/"];

/// A rule returns its complaints about a file.
type Rule = fn(&File) -> Vec<String>;

/// Rules that look at one file at a time.
pub const FILE_RULES: [(&str, Rule); 5] = [
    ("source files begin with their licence", licence),
    ("files have at most 1000 lines", too_long),
    ("atomic orders are explained", orders),
    ("no unwanted words", unwanted_words),
    ("modules begin with their documentation", module_docs),
];

fn is_source(file: &File) -> bool {
    [".rs", ".c", ".h", ".cpp", ".hpp", ".sh"].iter().any(|end| file.path.ends_with(end))
        || file.text.starts_with("#!")
}

fn licence(file: &File) -> Vec<String> {
    let mut lines = file.text.lines().skip_while(|line| line.starts_with("#!/"));
    let has = lines.next().is_some_and(|line| line.contains("SPDX-License-Identifier: "));
    if is_source(file) && !has { vec![format!("{}: no SPDX line", file.path)] } else { vec![] }
}

fn lines_of_code(file: &File) -> usize {
    if is_source(file) { file.text.lines().count() } else { 0 }
}

/// What to say about a file that is long, but not too long.
pub fn long_file_warning(file: &File) -> Option<String> {
    let lines = lines_of_code(file);
    (lines > LONG_LINES && lines <= TOO_LONG_LINES).then(|| format!("{}: {lines} lines", file.path))
}

fn too_long(file: &File) -> Vec<String> {
    let lines = lines_of_code(file);
    if lines > TOO_LONG_LINES { vec![format!("{}: {lines} lines", file.path)] } else { vec![] }
}

fn is_test_file(path: &str) -> bool {
    path.starts_with("crates/testkit/c/")
        || path.starts_with("crates/testkit/headers/")
        || path.contains("/tests/")
        || path.ends_with("_tests.rs")
        || path.ends_with("/tests.rs")
}

/// Whether an item of Rust ends in this line, which begins or goes on with it.
fn ends_item(line: &str, indent: &str) -> bool {
    let is_closed = line.strip_prefix(indent).is_some_and(|rest| rest.starts_with('}'));
    is_closed || line.ends_with(';') || line.ends_with(',') || line.ends_with('}')
}

/// Production code only: a Rust file without the items that are compiled for tests only. Lines keep their numbers.
fn production_lines(file: &File) -> Vec<&str> {
    if !file.path.ends_with(".rs") || is_test_file(&file.path) {
        return vec![];
    }
    let mut kept = Vec::new();
    let mut lines = file.text.lines();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push(line);
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        kept.push("");
        let mut is_block = false;
        for part in lines.by_ref() {
            kept.push("");
            let is_attribute = part.trim_start().starts_with("#[");
            let closes = part.strip_prefix(indent).is_some_and(|rest| rest.starts_with('}'));
            is_block |= !is_attribute && part.ends_with('{');
            if (is_block && closes) || (!is_block && !is_attribute && ends_item(part, indent)) {
                break;
            }
        }
    }
    kept
}

/// A line of C without its comment.
fn c_code(line: &str) -> &str {
    let text = line.trim_start();
    if text.starts_with("* ") || text.starts_with("*/") || text == "*" {
        return "";
    }
    let comment = line.find("/*").or_else(|| line.find("//"));
    &line[..comment.unwrap_or(line.len())]
}

/// Each atomic order has a comment that says what it orders and what it pairs with.
fn orders(file: &File) -> Vec<String> {
    let names = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"].map(|name| format!("Ordering::{name}"));
    let is_c = [".c", ".h", ".cpp", ".hpp", ".cc"].iter().any(|end| file.path.ends_with(end))
        && !is_test_file(&file.path);
    let lines = if is_c { file.text.lines().collect() } else { production_lines(file) };
    let uses_order = |line: &str| match is_c {
        true => C_ORDERS.iter().any(|name| c_code(line).contains(name)),
        false => names.iter().any(|name| line.contains(name.as_str())),
    };
    let explained =
        |at: usize| lines[at.saturating_sub(ORDER_LINES_ABOVE)..=at].iter().any(|l| l.contains("ORDER:"));
    let unexplained = lines.iter().enumerate().filter(|(at, line)| uses_order(line) && !explained(*at));
    unexplained.map(|(at, _)| format!("{}:{}: no ORDER: comment", file.path, at + 1)).collect()
}

/// A directory of somebody's machine is one at the root only: the kernel has a directory of that name in `sched_ext`.
fn has_word(line: &str, word: &str) -> bool {
    let is_whole = |(at, _): (usize, &str)| {
        !word.starts_with('/')
            || !line[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_')
    };
    line.match_indices(word).any(is_whole)
}

fn unwanted_words(file: &File) -> Vec<String> {
    let complain = |(at, line): (usize, &str)| {
        let word = UNWANTED.iter().find(|word| has_word(line, word))?;
        Some(format!("{}:{}: '{word}'", file.path, at + 1))
    };
    file.text.lines().enumerate().filter_map(complain).collect()
}

fn module_docs(file: &File) -> Vec<String> {
    let in_src = file.path.ends_with(".rs") && file.path.contains("/src/") && !is_test_file(&file.path);
    let documented = file.text.lines().take(3).any(|line| line.starts_with("//!"));
    if in_src && !documented {
        vec![format!("{}: no //! documentation at its top", file.path)]
    } else {
        vec![]
    }
}

/// The crates that a manifest depends on, except for its tests.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut section = "";
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.ends_with("dependencies]") && section != "[dev-dependencies]" {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            names.extend(name.strip_prefix("rtscope-"));
        }
    }
    names
}

/// Each crate may only know crates to its left in the flow.
pub fn layers(files: &[File]) -> Vec<String> {
    let place = |name: &str| FLOW.iter().position(|f| *f == name);
    let mut problems = Vec::new();
    for file in files {
        let Some(name) = file.path.strip_prefix("crates/").and_then(|p| p.strip_suffix("/Cargo.toml")) else {
            continue;
        };
        if BESIDE_THE_FLOW.contains(&name) {
            continue;
        }
        let Some(own) = place(name) else {
            problems.push(format!("crates/{name} has no place in the flow (xtask/src/tidy/rules.rs)"));
            continue;
        };
        let wrong =
            dependencies(&file.text).into_iter().filter(|d| place(d).is_none_or(|place| place >= own));
        problems.extend(wrong.map(|d| format!("crates/{name} must not depend on {d}")));
    }
    problems
}

/// Lines of the command without comments, blank lines and tests.
pub fn command_lines(files: &[File]) -> usize {
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let sources = files.iter().filter(|file| file.path.starts_with(COMMAND));
    sources.map(|file| production_lines(file).iter().filter(|line| is_code(line)).count()).sum()
}

/// Where the command grows, something in it belongs in a library.
pub fn large_command(lines: usize) -> Vec<String> {
    let is_large = lines > COMMAND_LINES;
    is_large
        .then(|| format!("{COMMAND} has {lines}: move engines to session, texts to view"))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    /// A rule that refuses nothing is no rule: each has something here that it refuses.
    #[test]
    fn each_rule_refuses_something() {
        let example = |rule: &str| match rule {
            "source files begin with their licence" => file("crates/a/src/lib.rs", "fn f() {}"),
            "files have at most 1000 lines" => file("crates/a/src/lib.rs", &"\n".repeat(1001)),
            "atomic orders are explained" => file("crates/a/src/lib.rs", "a.load(Ordering::Acquire);"),
            "no unwanted words" => file("README.md", UNWANTED[0]),
            "modules begin with their documentation" => file("crates/a/src/lib.rs", "fn f() {}"),
            _ => panic!("give an example of what the rule '{rule}' refuses"),
        };
        for (name, rule) in FILE_RULES {
            assert_eq!(rule(&example(name)).len(), 1, "{name}");
        }
    }

    #[test]
    fn licences() {
        let line = "// SPDX-License-Identifier: Apache-2.0 OR MIT\n";
        assert!(licence(&file("crates/a/src/lib.rs", line)).is_empty());
        assert!(licence(&file("x", "#!/usr/bin/env bash\n# SPDX-License-Identifier: MIT\n")).is_empty());
        assert!(licence(&file("README.md", "hello")).is_empty());
        assert_eq!(licence(&file("crates/a/src/lib.rs", "//! hello\n")).len(), 1);
    }

    #[test]
    fn long_files() {
        let (long, too_long_text) = ("\n".repeat(700), "\n".repeat(1001));
        assert!(long_file_warning(&file("a.rs", &long)).is_some());
        assert!(too_long(&file("a.rs", &long)).is_empty());
        assert_eq!(too_long(&file("a.rs", &too_long_text)).len(), 1);
        assert!(too_long(&file("a.md", &too_long_text)).is_empty());
    }

    #[test]
    fn orders_need_an_explanation_outside_tests() {
        let text = "a.load(Ordering::Acquire);\n";
        assert_eq!(orders(&file("crates/ring/src/a.rs", text)).len(), 1);
        assert!(orders(&file("crates/ring/src/a.rs", &format!("// ORDER: pairs with b\n{text}"))).is_empty());
        assert!(orders(&file("crates/ring/src/a.rs", &format!("#[cfg(test)]\n{text}"))).is_empty());
        assert!(orders(&file("crates/ring/tests/a.rs", text)).is_empty());
        assert!(orders(&file("crates/ring/src/a.rs", "Ordering::Less")).is_empty());
        // What comes behind an item for tests is production code again.
        for item in [
            "mod a;",
            "mod tests {\n    b.load(Ordering::Acquire);\n}",
            "use b::c;",
            "fn f() {\n    if d {\n    }\n}",
        ] {
            let after = format!("#[cfg(test)]\n#[allow(unused)]\n{item}\n{}{text}", "\n".repeat(9));
            assert_eq!(orders(&file("crates/ring/src/a.rs", &after)).len(), 1, "{item}");
        }
    }

    #[test]
    fn orders_in_c_need_an_explanation_too() {
        for text in [
            "	__atomic_store_n(&ring->ready, 1, __ATOMIC_RELEASE);",
            "	if (__sync_val_compare_and_swap(&way->lock, 0, 1) == 0)",
            "	atomic_store_explicit(&a, 1, memory_order_release);",
            "	barrier();",
            "	now = *(volatile __u64 *)&stop;",
            "	__asm__ __volatile__(\"lock; incl %0\" : \"+m\"(*place));",
            "	__asm__ __volatile__(\"cmpxchgq %3, %1\");",
            "	x = READ_ONCE(y); /* here */",
            "	__sync_fetch_and_add(&way->count, 1);",
            "	atomic_fetch_add(&a, 1);",
            "	old = atomic_exchange(&a, 1);",
            "	static _Atomic uint32_t count;",
            "	std::atomic<int> count;",
            "	atomic_thread_fence(memory_order_seq_cst);",
            "	smp_store_release(&a, 1);",
            "	a = smp_load_acquire(&b);",
            "	smp_mb__before_atomic();",
            "	WRITE_ONCE(a, 1);",
            "	__asm__ __volatile__(\"addq %1, %0\" : \"+m\"(*place) : \"r\"(1));",
            "	__asm__ __volatile__(\"mfence\" : : : \"memory\");",
            "	__asm__ __volatile__(\"dmb ishst\" : : : \"memory\");",
            "	RTSCOPE__STORE_RELEASE(ring->tail, 1);",
        ] {
            assert_eq!(orders(&file("crates/testkit/a.cpp", text)).len(), 1, "{text}");
            assert_eq!(orders(&file("include/rtscope/a.hpp", text)).len(), 1, "{text}");
            assert_eq!(orders(&file("include/rtscope/a.h", text)).len(), 1, "{text}");
            assert_eq!(orders(&file("crates/kernel/bpf/a.bpf.c", text)).len(), 1, "{text}");
            let explained = format!("	/* ORDER: release; pairs with b() */\n{text}");
            assert!(orders(&file("include/rtscope/a.h", &explained)).is_empty(), "{text}");
            let too_far = format!("/* ORDER: release */{}{text}", "\n".repeat(ORDER_LINES_ABOVE + 1));
            assert_eq!(orders(&file("include/rtscope/a.h", &too_far)).len(), 1, "{text}");
            assert!(orders(&file("crates/queue/tests/peer.c", text)).is_empty());
        }
        for text in [
            " * __atomic_load_n() of the other side",
            "/* barrier() */",
            "	cpu = bpf_get_smp_processor_id();",
        ] {
            assert!(orders(&file("crates/kernel/bpf/a.bpf.h", text)).is_empty(), "{text}");
        }
    }

    #[test]
    fn words_and_documentation() {
        assert_eq!(unwanted_words(&file("a.md", &format!("{} later", UNWANTED[0]))).len(), 1);
        assert!(unwanted_words(&file("a.md", "done")).is_empty());
        let home = UNWANTED[4];
        assert_eq!(unwanted_words(&file("a.md", &format!("(`{home}src`)"))).len(), 1);
        assert!(unwanted_words(&file("a.md", &format!("/sys/kernel/sched_ext{home}events"))).is_empty());
        assert_eq!(module_docs(&file("crates/a/src/b.rs", "fn f() {}")).len(), 1);
        assert!(module_docs(&file("crates/a/src/b.rs", "// SPDX\n//! What it is.")).is_empty());
    }

    #[test]
    fn lines_of_the_command_are_its_code() {
        let text = "// SPDX\n//! It.\n\nfn f() {\n    // Why.\n    g(); // Here.\n}\n#[cfg(test)]\nmod t {\n    fn h() {}\n}\n";
        let files = [
            file("crates/cli/src/a.rs", text),
            file("crates/cli/src/a_tests.rs", "fn h() {}"),
            file("crates/cli/tests/it/a.rs", "fn h() {}"),
            file("crates/view/src/a.rs", "fn h() {}"),
        ];
        assert_eq!(command_lines(&files), 3);
        assert!(large_command(COMMAND_LINES).is_empty());
        assert_eq!(large_command(COMMAND_LINES + 1).len(), 1);
    }

    #[test]
    fn the_flow_has_a_direction() {
        let manifest = |name: &str, text: &str| file(&format!("crates/{name}/Cargo.toml"), text);
        let ring =
            "[dependencies]\nrtscope-abi.workspace = true\n[dev-dependencies]\nrtscope-cli.workspace = true";
        assert!(layers(&[manifest("ring", ring)]).is_empty());
        assert_eq!(layers(&[manifest("event", "[dependencies]\nrtscope-view.workspace = true")]).len(), 1);
        assert_eq!(layers(&[manifest("new", "")]).len(), 1);
        assert!(layers(&[manifest("testkit", "[dependencies]\nrtscope-view.workspace = true")]).is_empty());
    }
}
