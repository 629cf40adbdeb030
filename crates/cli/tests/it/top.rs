// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope top` on a terminal of its own: what it shows, what keys do, and that the terminal is as it was when it is gone.

use crate::command::rtscope;
use crate::hist::{Perf, named};
use crate::watch::pairs::{CALLS, begin, end};
use crate::watch::work;
use nix::sys::signal::Signal;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::screen::{Drawn, OnTerminal};
use rtscope_testkit::skip;
use std::process::{Command, Stdio};

/// `rtscope top ARGUMENTS` in a locale with UTF-8.
fn top(arguments: &[&str]) -> Command {
    let mut command = rtscope();
    command.arg("top").args(arguments).env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
    command
}

fn start(command: &Command) -> OnTerminal {
    OnTerminal::start(command, 100, 24).expect("it starts")
}

/// The words of the row with this name.
fn row<'d>(lines: &'d [String], name: &str) -> Option<Vec<&'d str>> {
    let line = lines.iter().find(|line| line.starts_with(name))?;
    Some(line[name.len()..].split_whitespace().collect())
}

#[track_caller]
fn assert_restored(screen: &OnTerminal) {
    assert!(screen.is_restored().expect("a terminal"), "{:?}", screen.drawn());
}

// The program of a guest is busybox, which goes by its name.
// NEEDS: host
#[test]
fn root_the_row_of_a_task_has_its_exact_count_and_stays_until_q() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let Some(perf) = Perf::of(&["syscalls:sys_exit_write"], "top-dd") else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let dd = named(directory.path(), "dd", "top-dd");
    let mut command = top(&["syscall", "--calls", "write", "--task", "top-dd", "--"]);
    // What COMMAND prints is not on the screen.
    command.args([&dd, "if=/dev/zero", "of=/dev/null", "bs=1", "count=200000"]);
    let mut screen = start(&command);
    screen.wait_for_words("COMMAND has ended with status 0; q ends").expect("it says so");
    let expected = perf.counted()[0];
    assert!(expected >= 200_000);
    let lines = screen.drawn().lines();
    let of_task = row(&lines, "top-dd (").expect("a row");
    assert_eq!(of_task[1], expected.to_string(), "{lines:?}");
    assert_eq!(row(&lines, "all ").expect("a row")[0], expected.to_string(), "{lines:?}");
    assert!(lines[23].starts_with("lost: nothing; cells "), "{lines:?}");
    assert!(
        lines[0].contains("syscall of tasks named 'top-dd', by task") && lines[0].contains(" ended "),
        "{lines:?}"
    );
    assert!(!screen.drawn().text().contains("records in"), "{lines:?}");
    assert!(screen.drawn().is_alternate && !screen.drawn().has_cursor);
    assert!(!screen.is_restored().expect("a terminal"), "it reads keys one by one");
    screen.press("q").expect("a terminal");
    assert_eq!(screen.finish().expect("it ends").code(), Some(0));
    assert_restored(&screen);
}

// NEEDS: host
#[test]
fn root_keys_choose_open_sort_pause_and_begin_anew() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let sleep = named(directory.path(), "sleep", "top-sleep");
    let script = format!("while :; do {sleep} 0.02; done");
    let command = top(&[
        "syscall",
        "--calls",
        "clock_nanosleep,wait4",
        "--by",
        "syscall",
        "--threshold",
        "10ms",
        "--interval",
        "100ms",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    let mut screen = start(&command);
    screen.wait_for_words("wait4 ").expect("a row");
    // The first row is that of all; the one below it is the only other one, since sleep is no task of sh.
    screen.press("\x1b[B\r").expect("a terminal");
    screen.wait_for_words("syscall of wait4").expect("its page");
    screen
        .wait_for("an explanation", |drawn| drawn.text().contains("waited for a child process"))
        .expect("one");
    assert!(screen.drawn().text().contains("longer than 10 ms"), "{}", screen.drawn().text());
    screen.press("\x1b").expect("a terminal");
    screen.wait_for_words("rtscope top: syscall").expect("the table again");
    screen.press("?").expect("a terminal");
    screen.wait_for_words("begin anew: the rows").expect("help");
    screen.press("?p").expect("a terminal");
    screen.wait_for_words("PAUSED").expect("a pause");
    screen.press("p").expect("a terminal");
    screen.wait_for("no pause", |drawn| !drawn.text().contains("PAUSED")).expect("it goes on");
    let number = |drawn: &Drawn| {
        let lines = drawn.lines();
        row(&lines, "all ").and_then(|row| row.first()?.parse::<u64>().ok())
    };
    screen.wait_for("20 calls", |drawn| number(drawn).is_some_and(|number| number >= 20)).expect("it counts");
    screen.press("r").expect("a terminal");
    screen.wait_for("fewer", |drawn| number(drawn).is_none_or(|number| number < 20)).expect("it begins anew");
    screen.resize(20, 5).expect("a terminal");
    screen
        .wait_for("a small screen", |drawn| drawn.lines()[4] == "lost: nothing; cells")
        .expect("it is drawn anew");
    screen.resize(80, 24).expect("a terminal");
    screen
        .wait_for("a large one", |drawn| drawn.lines()[23].starts_with("lost: nothing; cells "))
        .expect("the same");
    // Ctrl-C, which is a key here. COMMAND is ended with it.
    screen.press("\x03").expect("a terminal");
    assert_eq!(screen.finish().expect("it ends").code(), Some(0));
    assert_restored(&screen);
}

// NEEDS: host
#[test]
fn root_signals_and_a_closed_window_end_it_in_order() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut screen = start(&top(&["wakeup", "--interval", "100ms"]));
        screen.wait_for_words("lost: ").expect("a screen");
        screen.signal(signal).expect("it is there");
        assert_eq!(screen.finish().expect("it ends").code(), Some(0), "{signal}");
        assert_restored(&screen);
    }
    // Also while nothing is counted any more.
    let mut screen = start(&top(&["wakeup", "--", "true"]));
    screen.wait_for_words("COMMAND has ended").expect("it says so");
    screen.signal(Signal::SIGTERM).expect("it is there");
    assert_eq!(screen.finish().expect("it ends").code(), Some(0));
    assert_restored(&screen);
    let mut screen = start(&top(&["wakeup"]));
    screen.wait_for_words("lost: ").expect("a screen");
    screen.hang_up();
    assert_eq!(screen.finish().expect("it ends").code(), Some(0));
}

// NEEDS: host
#[test]
fn root_a_locale_of_ascii_and_no_colours_are_respected() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let mut command = top(&["wakeup", "--interval", "100ms"]);
    command.env("LC_ALL", "C").env("NO_COLOR", "1");
    let mut screen = start(&command);
    let is_bar = |character: char| ".:-=+*%#".contains(character);
    screen
        .wait_for("bars", |drawn| {
            drawn.lines().iter().any(|line| line.starts_with("all ") && line.ends_with(is_bar))
        })
        .expect("it counts");
    assert!(screen.drawn().text().is_ascii(), "{}", screen.drawn().text());
    screen.press("q").expect("a terminal");
    assert_eq!(screen.finish().expect("it ends").code(), Some(0));
    assert_restored(&screen);
}

// NEEDS: host
#[test]
fn root_how_command_ends_is_how_top_ends() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let mut screen = start(&top(&["wakeup", "--", "sh", "-c", "exit 9"]));
    screen.wait_for_words("COMMAND has ended with status 9").expect("it says so");
    screen.press("q").expect("a terminal");
    assert_eq!(screen.finish().expect("it ends").code(), Some(9));
    assert_restored(&screen);
    // After a time it ends by itself.
    let mut screen = start(&top(&["wakeup", "--duration", "300ms"]));
    assert_eq!(screen.finish().expect("it ends").code(), Some(0));
    assert_restored(&screen);
}

/// A tracker that counts and judges is a program of its own to the verifier, for which an emulated machine takes some 10 s.
fn counts_and_explains(trackers: &[&str]) {
    let Some(_cpus) = Cpus::for_watching() else { return };
    for tracker in trackers {
        let mut screen = start(&top(&[*tracker, "--threshold", "1s", "--interval", "100ms"]));
        screen.wait_for("a screen", |drawn| drawn.lines()[23].starts_with("lost: ")).expect(tracker);
        assert!(screen.drawn().lines()[0].contains(", limit 1 s"), "{}", screen.drawn().text());
        screen.press("q").expect("a terminal");
        assert_eq!(screen.finish().expect("it ends").code(), Some(0), "{tracker}");
        assert_restored(&screen);
    }
}

// NEEDS: one kernel
#[test]
fn root_every_tracker_of_tasks_counts_and_explains_at_once() {
    counts_and_explains(&["response", "wakeup", "offcpu", "syscall", "lock"]);
}

// NEEDS: one kernel
#[test]
fn root_every_other_tracker_counts_and_explains_at_once() {
    counts_and_explains(&["irq", "softirq", "block", "preemptoff", "irqoff"]);
}

// NEEDS: host
#[test]
fn root_pairs_have_a_row_for_each_value_of_their_field_also_with_a_limit() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let tid = nix::unistd::gettid().to_string();
    let words = [&["pair"][..], &CALLS, &["--by", "field", "--tid", &tid, "--interval", "100ms"]].concat();
    for limit in [&[][..], &["--threshold", "1s"]] {
        let mut screen = start(&top(&[&words[..], limit].concat()));
        screen.wait_for("a screen", |drawn| drawn.lines()[23].starts_with("lost: ")).expect("it counts");
        for who in [7, 7, 7, 9] {
            begin(who);
            end(who);
        }
        // Without a beginning.
        end(11);
        let number = |drawn: &Drawn, name: &str| {
            row(&drawn.lines(), name).and_then(|words| words.first().map(ToString::to_string))
        };
        let is_counted = |drawn: &Drawn| {
            number(drawn, "7 ").as_deref() == Some("3") && number(drawn, "9 ").as_deref() == Some("1")
        };
        screen.wait_for("both rows", is_counted).expect("they are counted");
        let lines = screen.drawn().lines();
        assert!(lines[23].contains("1 ends without a beginning"), "{lines:?}");
        assert!(lines[0].contains(", by field") && lines[0].contains(", syscalls:sys_enter_io"), "{lines:?}");
        assert!(row(&lines, "11 ").is_none(), "{lines:?}");
        screen.press("q").expect("a terminal");
        assert_eq!(screen.finish().expect("it ends").code(), Some(0));
        assert_restored(&screen);
    }
}

// NEEDS: host
#[test]
fn root_top_shows_work_of_programs_and_what_is_late() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = work::compiled(directory.path()) else { return };
    let words = [program.to_str().expect("text"), "100"];
    for limit in [&[][..], &["--threshold", "4ms"]] {
        let mut screen = start(&top(&[&["work", "--interval", "100ms"], limit, &["--"], &words].concat()));
        screen.wait_for_words("COMMAND has ended with status 0; q ends").expect("it says so");
        let lines = screen.drawn().lines();
        assert!(lines[0].contains(", by task") && lines[0].contains(", work:"), "{lines:?}");
        assert_eq!(row(&lines, "work (").expect("a row")[1], "100", "{lines:?}");
        assert!(lines[23].starts_with("lost: nothing; cells "), "{lines:?}");
        // Each tenth piece sleeps for 8 ms.
        screen.press("\x1b[B\r").expect("a terminal");
        let words = if limit.is_empty() { "--threshold TIME" } else { "longer than 4 ms" };
        screen.wait_for_words(words).expect("its page");
        screen.press("\x1bq").expect("a terminal");
        assert_eq!(screen.finish().expect("it ends").code(), Some(0));
        assert_restored(&screen);
    }
}

#[test]
fn without_a_terminal_it_says_what_does_the_same() {
    let mut command = top(&["wakeup"]);
    command.stdin(Stdio::null());
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("standard output is no terminal; rtscope hist"), "{said}");
    assert!(output.stdout.is_empty());
    if skip::without_tool("setsid") {
        return;
    }
    let mut command = top(&["wakeup"]);
    command.env("TERM", "dumb");
    let mut screen = start(&command);
    assert_eq!(screen.finish().expect("it ends").code(), Some(2));
    assert!(screen.drawn().text().contains("TERM=dumb") && !screen.drawn().is_alternate);
    let mut screen = start(&top(&["wakeup", "--interval", "10ms"]));
    assert_eq!(screen.finish().expect("it ends").code(), Some(2));
    // What is refused later is said on a terminal that nobody has touched.
    let mut screen = start(&top(&["block", "--by", "softirq"]));
    assert_eq!(screen.finish().expect("it ends").code(), Some(2));
    assert!(screen.drawn().text().contains("block has none"), "{}", screen.drawn().text());
    assert_restored(&screen);
}
