// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stacks of what is late, judged by a debugger, and by programs whose functions are known.

use crate::command::root;
use rtscope_event::{Incomplete, LateResponse, TaskStack, Tracker};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::{program, wait_until};
use rtscope_testkit::skip;
use rtscope_testkit::watch::{Rtscope, WatchOutput};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than what the program waits for where nobody is asked.
const LIMIT: &str = "20ms";
const HELD: Duration = Duration::from_millis(60);

/// A program of `testkit/c`, built in one of several ways.
struct Built {
    directory: tempfile::TempDir,
    name: &'static str,
}

impl Built {
    fn new(source: &str, name: &'static str, options: &[&str]) -> Option<Built> {
        let compiler = if source.ends_with(".cpp") { "c++" } else { "cc" };
        if skip::without_tool(compiler) {
            return None;
        }
        let built = Built { directory: tempfile::tempdir().expect("a temporary directory"), name };
        let source = root().join("crates/testkit/c").join(source);
        let mut command = Command::new(compiler);
        command.args(options).args(["-pthread", "-o"]).arg(built.path()).arg(source);
        assert!(command.status().expect("it is there").success());
        Some(built)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join(self.name)
    }

    fn run(&self, arguments: &[&str]) -> Running {
        Running::start(&self.path(), arguments)
    }
}

struct Running {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// What it said first.
    ready: String,
}

impl Running {
    fn start(program: &Path, arguments: &[&str]) -> Running {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it is built");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut running = Running { child, input, output, ready: String::new() };
        running.ready = running.line();
        assert!(running.ready.starts_with("ready"), "{}", running.ready);
        running.wait_until_it_waits();
        running
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// The main thread: it waits for the other one, or for its input.
    fn wait_until_it_waits(&self) {
        let path = format!("/proc/{0}/task/{0}/stat", self.child.id());
        let is_asleep = || {
            let stat = std::fs::read_to_string(&path).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('S'))
        };
        wait_until("the program waits", is_asleep);
    }

    /// Held for long enough to be late, then let in.
    fn let_in(&mut self) {
        self.wait_until_it_waits();
        let end = Instant::now() + HELD;
        wait_until("it has waited", || Instant::now() >= end);
        self.input.write_all(b"\n").expect("it reads");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An option that changes nothing: without stacks.
const NONE: &str = "--rate=1/s";

fn watch(tracker: &str, arguments: &[&str]) -> Rtscope {
    let mut command = Command::new(program("rtscope").expect("it is built"));
    command.args(["watch", tracker, "--json", "--threshold", LIMIT, "--duration", "120s"]).args(arguments);
    if !arguments.iter().any(|argument| argument.starts_with("--stacks") || *argument == NONE) {
        command.arg("--stacks");
    }
    let mut watch = Rtscope::start(command).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    watch
}

fn late_of(said: &WatchOutput) -> Vec<LateResponse> {
    said.late().expect("of its own types")
}

/// The functions of a program in a stack, without their parameters: those of its file.
fn functions(stack: &TaskStack, file: &Path) -> Vec<String> {
    let own = stack.user.iter().filter(|frame| frame.module.as_deref().map(Path::new) == Some(file));
    let names = own.flat_map(|frame| &frame.functions).map(|function| bare(&function.name));
    // What the C runtime puts into each program, which a debugger does not show.
    names.filter(|name| name != "_start").collect()
}

/// `int shop::guest::pays<long>(long)` -> `shop::guest::pays<long>`.
fn bare(name: &str) -> String {
    let name = name.split_once('(').map_or(name, |(name, _)| name).trim_end();
    name.rsplit_once(' ').map_or(name, |(_, name)| name).to_owned()
}

/// The functions of the main thread, as gdb finds them: from `#3  0x… in shop::queue (who=…, before=2) at …/stacks.cpp:64`.
fn functions_by_gdb(pid: u32) -> Vec<String> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-p", &pid.to_string(), "-ex", "thread find", "-ex", "thread 1", "-ex", "bt"]);
    let output = gdb.output().expect("it is there");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let frame = |line: &str| {
        let rest = line.strip_prefix('#')?.split_once(char::is_whitespace)?.1.trim_start();
        let name = match rest.starts_with("0x") {
            true => rest.split_once(" in ")?.1,
            false => rest,
        };
        line.contains("stacks.cpp:").then(|| bare(name))
    };
    let found: Vec<String> = text.lines().filter_map(frame).collect();
    assert!(found.len() > 4, "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    found
}

/// The late one of the main thread that the other thread of the program ended.
fn woken_by_keeper(all: &[LateResponse], pid: u32) -> Option<&LateResponse> {
    all.iter().rev().find(|late| {
        let waker = late.stacks.as_ref().and_then(|stacks| stacks.waker.as_ref());
        late.tid.0 == pid && waker.is_some_and(|waker| waker.pid.0 == pid && waker.tid.0 != pid)
    })
}

const INLINED: [&str; 8] = [
    "shop::gate::wait_for_it",
    "shop::guest::pays<long>",
    "shop::queue",
    "shop::queue",
    "shop::queue",
    "shop::queue",
    "main",
    "",
];

// NEEDS: host
#[test]
fn root_a_stack_has_the_functions_that_a_debugger_finds() {
    if skip::without_tool("gdb") {
        return;
    }
    for options in [["-O2", "-g", "-fomit-frame-pointer"], ["-O0", "-g", "-fno-omit-frame-pointer"]] {
        let Some(built) = Built::new("stacks.cpp", "stacks-gdb", &options) else { return };
        let Some(_cpus) = Cpus::for_watching() else { return };
        let watch = watch("offcpu", &["--task", "stacks-gdb"]);
        let mut running = built.run(&["2"]);
        let pid = running.child.id();
        let expected = functions_by_gdb(pid);
        running.let_in();
        assert_eq!(running.line(), "round 0");
        let all = late_of(&watch.stop().expect("it stops"));
        let late = woken_by_keeper(&all, pid).unwrap_or_else(|| panic!("{all:#?}"));
        let stacks = late.stacks.as_ref().expect("above");
        let task = stacks.task.as_ref().expect("it was copied");
        assert_eq!(functions(task, &built.path()), expected, "{options:?} {task:#?}");
        assert_eq!(task.incomplete, None, "{task:#?}");
        assert!(task.kernel[0].contains("futex"), "{task:#?}");
        let waker = functions(stacks.waker.as_ref().expect("above"), &built.path());
        assert_eq!(waker, ["shop::gate::let_in", "keeper"]);
        let lines: Vec<u32> = task
            .user
            .iter()
            .flat_map(|frame| &frame.functions)
            .filter_map(|function| function.line)
            .collect();
        assert!(lines.len() >= expected.len(), "{task:#?}");
    }
}

/// Functions of the program that it has told the addresses of, so that it needs no symbols.
fn told_functions(stack: &TaskStack, running: &Running) -> Vec<String> {
    const LONGEST: u64 = 2048;
    let told = running.ready.split(' ').filter_map(|word| word.split_once('='));
    let told: Vec<(&str, u64)> =
        told.map(|(name, address)| (name, address.parse().expect("an address"))).collect();
    // The call before the address is in it.
    let is_in = |address: u64, begin: u64| (1..LONGEST).contains(&address.saturating_sub(begin));
    let at = |address: u64| {
        let inside = told.iter().filter(|(_, begin)| is_in(address, *begin));
        inside.max_by_key(|(_, begin)| *begin).map(|(name, _)| (*name).to_owned())
    };
    let mut names: Vec<String> = stack.user.iter().filter_map(|frame| at(frame.address)).collect();
    // What called these is not the program's own.
    if let Some(first) = names.iter().position(|name| name == "main" || name == "keeps_the_gate") {
        names.truncate(first + 1);
    }
    names
}

// NEEDS: verifier
#[test]
fn root_a_stack_is_whole_wherever_its_programs_are_loaded() {
    let file = program("rtscope-stacks").expect("it is built");
    // What called the first of these is not told by the program: by distance alone it could be taken for a neighbour.
    let queue = ["stands_in_the_queue"; 3];
    for (tracker, argument, innermost) in
        [("offcpu", "--wait", "waits_at_the_gate"), ("syscall", "--read", "reads_its_input")]
    {
        let calls: &[&str] = if tracker == "syscall" { &["--calls", "read"] } else { &[] };
        let watch = watch(tracker, &[&["--task", "rtscope-stacks"], calls].concat());
        let mut running = Running::start(&file, &[argument]);
        let pid = running.child.id();
        running.let_in();
        assert_eq!(running.line(), "round 0");
        let all = late_of(&watch.stop().expect("it stops"));
        let is_it = |late: &&LateResponse| {
            let task = late.stacks.as_ref().and_then(|stacks| stacks.task.as_ref());
            task.is_some_and(|task| {
                told_functions(task, &running).first().is_some_and(|first| first == innermost)
            })
        };
        let late = all.iter().rev().find(is_it).unwrap_or_else(|| panic!("{all:#?}"));
        let stacks = late.stacks.as_ref().expect("above");
        let task = stacks.task.as_ref().expect("above");
        assert_eq!(task.incomplete, None, "{task:#?}");
        assert_eq!(
            (task.tid.0, told_functions(task, &running)[1..4].to_vec()),
            (pid, queue.map(str::to_owned).to_vec()),
            "{task:#?}"
        );
        let waker = stacks.waker.as_ref().unwrap_or_else(|| panic!("{late:#?}"));
        if tracker == "offcpu" {
            assert!(task.kernel.iter().any(|place| place.contains("futex")), "{task:#?}");
            assert_eq!(told_functions(waker, &running)[..2], ["lets_in", "keeps_the_gate"], "{waker:#?}");
        } else {
            assert_eq!(waker.pid.0, std::process::id(), "this test wrote its input");
        }
        assert!(!waker.kernel.is_empty(), "{waker:#?}");
    }
}

// NEEDS: host
#[test]
fn root_a_stack_without_debug_information_has_the_names_of_its_symbols() {
    for options in [["-O2", "-fomit-frame-pointer"], ["-O2", "-fno-omit-frame-pointer"]] {
        let Some(built) = Built::new("stacks.cpp", "stacks-symbols", &options) else { return };
        let watch = watch("offcpu", &["--task", "stacks-symbols"]);
        let mut running = built.run(&["2"]);
        let pid = running.child.id();
        running.let_in();
        assert_eq!(running.line(), "round 0");
        let all = late_of(&watch.stop().expect("it stops"));
        let late = woken_by_keeper(&all, pid).unwrap_or_else(|| panic!("{all:#?}"));
        let stacks = late.stacks.as_ref().expect("above");
        let task = stacks.task.as_ref().expect("it was copied");
        // What was inlined has no symbol.
        assert_eq!(functions(task, &built.path()), INLINED[1..7], "{options:?} {task:#?}");
        assert_eq!(task.incomplete, None, "{task:#?}");
        assert!(
            task.user.iter().all(|frame| frame.build_id.is_some() && frame.offset.is_some()),
            "{task:#?}"
        );
        let waker = functions(stacks.waker.as_ref().expect("above"), &built.path());
        assert_eq!(waker, ["shop::gate::let_in", "keeper"]);
    }
}

// NEEDS: host
#[test]
fn root_a_stack_that_ends_early_says_why() {
    let Some(built) = Built::new("stacks.cpp", "stacks-deep", &["-O2", "-fno-omit-frame-pointer"]) else {
        return;
    };
    // 400 frames of at least 100 bytes, of which 256 are kept at most.
    let watch_deep = watch("offcpu", &["--task", "stacks-deep", "--stacks=4K"]);
    let mut running = built.run(&["2", "400"]);
    running.let_in();
    assert_eq!(running.line(), "round 0");
    let all = late_of(&watch_deep.stop().expect("it stops"));
    let late = woken_by_keeper(&all, running.child.id()).unwrap_or_else(|| panic!("{all:#?}"));
    let task = late.stacks.as_ref().and_then(|stacks| stacks.task.as_ref()).expect("it was copied");
    let Some(Incomplete::DeeperThanCopy { bytes }) = task.incomplete else { panic!("{task:#?}") };
    assert!((4096..8192).contains(&bytes), "{bytes}");
    let found = functions(task, &built.path());
    assert!(found.len() > 10 && found[2..].iter().all(|name| name == "shop::queue"), "{found:?}");
    drop(running);

    // It ends before anybody can read what it has mapped.
    let watch_short = watch("offcpu", &["--task", "stacks-deep"]);
    let is_gone = |late: &LateResponse| {
        let task = late.stacks.as_ref().and_then(|stacks| stacks.task.as_ref());
        task.is_some_and(|task| task.incomplete == Some(Incomplete::ProcessGone) && task.user.len() == 1)
    };
    for _ in 0..20 {
        let mut running = built.run(&["1", "3", "end"]);
        running.let_in();
        running.child.wait().expect("it ends");
    }
    let all = late_of(&watch_short.stop().expect("it stops"));
    assert!(all.iter().any(is_gone), "{all:#?}");
}

// NEEDS: host
#[test]
fn root_without_unwind_information_the_frame_pointer_leads_on_or_the_stack_says_that_it_ends() {
    let without = ["-O2", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    for (name, pointer) in [("plain-fp", "-DFRAME"), ("plain-none", "-fomit-frame-pointer")] {
        let also = if pointer == "-DFRAME" { "-fno-omit-frame-pointer" } else { pointer };
        let options = [without[0], without[1], without[2], pointer, also];
        let Some(built) = Built::new("plain.c", name, &options) else { return };
        let watch = watch("syscall", &["--task", name, "--calls", "read"]);
        let mut running = built.run(&[]);
        running.let_in();
        assert_eq!(running.line(), "over");
        let all = late_of(&watch.stop().expect("it stops"));
        let late =
            all.iter().find(|late| late.tracker == Tracker::Syscall).unwrap_or_else(|| panic!("{all:#?}"));
        let stacks = late.stacks.as_ref().expect("of this tracker");
        let task = stacks.task.as_ref().expect("it was copied");
        let found = functions(task, &built.path());
        if pointer == "-fomit-frame-pointer" {
            assert_eq!(found, ["inner"], "{task:#?}");
            let module = Some(built.path().to_string_lossy().into_owned());
            assert_eq!(task.incomplete, Some(Incomplete::NoUnwindInformation { module }), "{task:#?}");
        } else {
            assert_eq!(found, ["inner", "middle", "main"], "{task:#?}");
            assert!(task.user[1].by_frame_pointer && !task.user[0].by_frame_pointer, "{task:#?}");
        }
        // The test itself wrote the byte.
        let waker = stacks.waker.as_ref().expect("a thread woke it");
        assert_eq!(waker.pid.0, std::process::id());
        assert!(waker.kernel.iter().any(|place| place.contains("pipe_write")), "{waker:#?}");
    }
}

// NEEDS: host
#[test]
fn root_a_watch_without_stacks_has_none_and_a_size_that_is_none_is_refused() {
    let Some(built) = Built::new("stacks.cpp", "stacks-none", &["-O2"]) else { return };
    let watch = watch("offcpu", &["--task", "stacks-none", NONE]);
    let mut running = built.run(&["2"]);
    running.let_in();
    assert_eq!(running.line(), "round 0");
    let all = late_of(&watch.stop().expect("it stops"));
    assert!(!all.is_empty() && all.iter().all(|late| late.stacks.is_none()), "{all:#?}");
    for size in ["0K", "65K"] {
        let mut command = Command::new(program("rtscope").expect("it is built"));
        command.args(["watch", "offcpu", "--threshold", "1ms", &format!("--stacks={size}"), "--", "true"]);
        let output = command.output().expect("it is refused");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains("--stacks"), "{size}: {said}");
    }
}

fn explain(arguments: &[&std::ffi::OsStr]) -> String {
    let mut command = Command::new(program("rtscope").expect("it is built"));
    let output = command.arg("explain").args(arguments).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

// NEEDS: host
#[test]
fn root_a_flame_graph_has_the_time_of_all_stacks_that_a_watch_has_saved() {
    let Some(built) = Built::new("stacks.cpp", "stacks-flame", &["-O2", "-g"]) else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [lines, saved, picture] = ["lines.json", "late", "flame.svg"].map(|name| directory.path().join(name));
    let mut command = Command::new(program("rtscope").expect("it is built"));
    command.args([
        "watch",
        "offcpu",
        "--stacks",
        "--task",
        "stacks-flame",
        "--threshold",
        LIMIT,
        "--rate",
        "100/s",
        "--post",
        "1ms",
    ]);
    command.arg(format!("--json={}", lines.display())).arg("--snapshot-dir").arg(&saved);
    command.args(["--duration", "120s"]);
    let mut watch = Rtscope::start(command).expect("it starts");
    watch.wait_for_note("watching").expect("it watches");
    let mut running = built.run(&["4"]);
    for round in 0..3 {
        running.let_in();
        assert_eq!(running.line(), format!("round {round}"));
    }
    watch.stop().expect("it stops");

    let of_lines = explain(&[lines.as_ref(), "--flame".as_ref(), picture.as_ref(), "--json".as_ref()]);
    let flame: serde_json::Value = serde_json::from_str(&of_lines).expect("an object");
    let text = std::fs::read_to_string(&lines).expect("it was written");
    let objects =
        text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an object"));
    let late: Vec<_> = objects.filter(|object| object["type"] == "late").collect();
    let with_stack = late.iter().filter(|late| !late["stacks"]["task"].is_null());
    let time_ns: u64 = with_stack.clone().filter_map(|late| late["response_ns"].as_u64()).sum();
    assert!(with_stack.clone().count() >= 6, "three waits of each thread: {text}");
    assert_eq!(flame["time_ns"], time_ns);
    assert_eq!(flame["count"], with_stack.count());
    let svg = std::fs::read_to_string(&picture).expect("it was written");
    for name in ["stacks-flame", "main", "shop::queue", "[shop::gate::wait_for_it", "keeper", "do_syscall_64"]
    {
        assert!(svg.contains(&format!("<title>{name}")), "{name}: {svg}");
    }

    // What the snapshots have is a part of that.
    let of_snapshots = explain(&[saved.as_ref(), "--flame".as_ref(), picture.as_ref(), "--json".as_ref()]);
    let part: serde_json::Value = serde_json::from_str(&of_snapshots).expect("an object");
    let (part, all) = (part["count"].as_u64().expect("a number"), flame["count"].as_u64().expect("a number"));
    assert!((1..=all).contains(&part), "{part} of {all}");
    let first = std::fs::read_dir(&saved).expect("it is there").flatten().next().expect("a snapshot").path();
    let explained = explain(&[first.as_ref()]);
    assert!(
        explained.contains("stack of stacks-flame/") && explained.contains("(stacks-flame)"),
        "{explained}"
    );
    let said = explain(&[saved.as_ref(), "--flame".as_ref(), picture.as_ref()]);
    assert!(said.starts_with("times off a CPU: ") && said.contains("shop::"), "{said}");
}
