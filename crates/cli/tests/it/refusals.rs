// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What cannot be done is refused before anything is started, with a sentence that helps and with the documented exit code;
//! and what a command line tool owes its users: help, completions, man pages.

use crate::command::PublicCopy;
use rtscope_testkit::skip;
use rtscope_testkit::watch::Rtscope;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// How a command ended.
#[derive(Debug)]
struct Outcome {
    code: Option<i32>,
    output: String,
    error: String,
}

fn outcome(command: &mut Command) -> Outcome {
    let output = command.stdin(Stdio::null()).output().expect("it can be run");
    Outcome {
        code: output.status.code(),
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
        error: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn rtscope<S: AsRef<OsStr>>(arguments: &[S]) -> Outcome {
    outcome(crate::command::rtscope().args(arguments))
}

/// With arguments that are fine but for these.
fn watch(arguments: &[&str]) -> Outcome {
    rtscope(&[&["watch", "response", "--threshold", "1ms", "--duration", "1ms"], arguments].concat())
}

#[track_caller]
fn assert_refused(refused: &Outcome, words: &str) {
    assert!(refused.code == Some(2) && refused.error.contains(words), "'{words}' is not in {refused:?}");
    assert_eq!(refused.output, "", "nothing was done, so there is no result");
}

#[test]
fn a_threshold_is_required() {
    assert_refused(&rtscope(&["watch", "response", "--task", "x"]), "--threshold");
}

#[test]
fn values_without_sense_are_refused_with_a_sentence() {
    for (option, value, words) in [
        ("--post", "5", "has no unit"),
        ("--pre", "soon", "does not begin with a number"),
        ("--pre", "5parsecs", "is not a unit of time"),
        ("--buffer", "3M", "power of two"),
        ("--buffer", "1T", "not a unit of size"),
        ("--rate", "5", "is not a rate"),
        ("--rate", "0/s", "greater than 0"),
        ("--end", "tomorrow", "running, blocked"),
        ("--pid", "first", "invalid digit"),
    ] {
        assert_refused(&watch(&[option, value]), words);
    }
}

#[test]
fn an_unknown_option_is_refused() {
    assert_refused(&watch(&["--treshold", "1ms"]), "--treshold");
}

#[test]
fn a_name_longer_than_the_kernel_keeps_is_refused() {
    assert_refused(&watch(&["--task", "sixteen-bytes-ab"]), "at most 15 bytes");
}

#[test]
fn a_process_that_does_not_exist_is_refused() {
    // The kernel's limit for process numbers is 2^22.
    assert_refused(&watch(&["--pid", "4194305"]), "there is no process 4194305");
}

#[test]
fn an_unknown_interrupt_is_refused_with_a_list_of_those_there_are() {
    let refused = watch(&["--irq", "no-such-device"]);
    assert_refused(&refused, "no interrupt 'no-such-device' on this machine; there are: ");
    let known = rtscope_kernel::interrupts();
    let (irq, name) = known.first().expect("every machine has interrupts");
    assert!(refused.error.contains(&format!("{irq} {name}")), "{refused:?}");
}

#[test]
fn a_snapshot_folder_that_is_a_file_is_refused() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = file.path().to_str().expect("plain");
    assert_refused(&watch(&["--snapshot-dir", path]), "not a directory");
}

#[test]
fn a_snapshot_folder_without_permission_is_refused() {
    let copy = PublicCopy::new();
    let closed = copy.dir.path().join("closed");
    fs::create_dir(&closed).expect("it can be written");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).expect("it is ours");
    let path = closed.to_str().expect("plain");
    let all = ["watch", "response", "--threshold", "1ms", "--snapshot-dir", path];
    assert_refused(&outcome(&mut copy.as_nobody(&all)), "Permission denied");
}

#[test]
fn a_trace_that_may_not_be_read_is_not_called_missing() {
    let copy = PublicCopy::new();
    let closed = copy.dir.path().join("closed");
    fs::create_dir_all(closed.join("trace")).expect("it can be written");
    fs::write(closed.join("trace/metadata"), "/* CTF 1.8 */").expect("it can be written");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("it is ours");
    if !nix::unistd::geteuid().is_root() {
        skip!("the directory is ours");
    }
    let path = closed.join("trace");
    for command in ["print", "stat"] {
        let said = outcome(&mut copy.as_nobody(&[command, path.to_str().expect("plain")]));
        assert!(said.code == Some(1) && said.error.contains("Permission denied"), "{said:?}");
    }
}

#[test]
fn tracing_that_may_not_be_looked_at_is_not_called_off() {
    let copy = PublicCopy::new();
    let all = ["record", "-u", "t:*", "--flight-recorder", "--snapshot-on", "tracing-off"];
    let target = copy.dir.path().join("trace");
    let target = ["--duration", "1ms", "-o", target.to_str().expect("plain")];
    let refused = outcome(&mut copy.as_nobody(&[&all[..], &target].concat()));
    assert!(refused.code == Some(3) && !refused.error.contains("it is off"), "{refused:?}");
}

// NEEDS: host
#[test]
fn root_a_cpu_that_is_not_there_cannot_be_recorded() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let target = directory.path().join("t");
    let target = target.to_str().expect("plain");
    let all = ["record", "-k", "sched:sched_switch", "--duration", "1ms", "-o", target, "--cpu"];
    for list in ["4095", "0,4000-4001"] {
        assert_refused(&rtscope(&[&all[..], &[list]].concat()), "is on this machine; it has ");
    }
}

// NEEDS: host
#[test]
fn root_a_read_only_snapshot_folder_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let script = "mount -t tmpfs -o ro none \"$1\" && exec \"$0\" watch response --threshold 1ms --snapshot-dir \"$1\"";
    let Some(refused) = in_private_mounts(script, &[directory.path().as_os_str()]) else { return };
    assert_refused(&refused, "Read-only file system");
}

/// Runs a shell script, in which `$0` is rtscope, where mounts are its own. `None`, and the reason reported, where that cannot be done.
fn in_private_mounts(script: &str, arguments: &[&OsStr]) -> Option<Outcome> {
    if !Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success()) {
        skip::say("unshare -m needs root");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(crate::command::path()).args(arguments);
    Some(outcome(&mut command))
}

#[test]
fn without_privilege_a_watch_says_what_caps_says() {
    let copy = PublicCopy::new();
    let watch =
        outcome(&mut copy.as_nobody(&["watch", "response", "--threshold", "1ms", "--duration", "1ms"]));
    let caps = outcome(&mut copy.as_nobody(&["caps"]));
    assert_eq!((watch.code, caps.code), (Some(3), Some(3)), "{watch:?} {caps:?}");
    assert!(watch.error.contains("CAP_BPF and CAP_PERFMON"), "{watch:?}");
    assert_eq!(watch.error, caps.error);
    assert_eq!(watch.output, "");
    assert!(caps.output.starts_with("MISSING  the privilege"), "{caps:?}");
}

#[test]
fn without_privilege_a_command_is_not_started() {
    let copy = PublicCopy::new();
    fs::set_permissions(copy.dir.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let proof = copy.dir.path().join("proof");
    let proof_text = proof.to_str().expect("plain");
    let refused =
        outcome(&mut copy.as_nobody(&["watch", "response", "--threshold", "1ms", "--", "touch", proof_text]));
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(!proof.exists());
}

// NEEDS: host
#[test]
fn root_without_type_information_a_watch_says_what_caps_says() {
    let hidden = "mount -t tmpfs none /sys/kernel/btf && exec \"$0\" ";
    let Some(caps) = in_private_mounts(&format!("{hidden} caps"), &[]) else { return };
    let watch = in_private_mounts(&format!("{hidden} watch response --threshold 1ms --duration 1ms"), &[]);
    let watch = watch.expect("it worked before");
    assert_eq!((watch.code, caps.code), (Some(3), Some(3)), "{watch:?} {caps:?}");
    assert!(watch.error.contains("BTF") && watch.error.contains("CONFIG_DEBUG_INFO_BTF"), "{watch:?}");
    assert_eq!(watch.error, caps.error);
}

// NEEDS: one kernel
#[test]
fn root_the_two_capabilities_that_caps_asks_for_are_enough() {
    if skip::without_watching() {
        return;
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all,+bpf,+perfmon", "--inh-caps=-all"]).arg(crate::command::path());
    command.args(["watch", "response", "--threshold", "1s", "--json", "--duration", "100ms"]);
    let said = Rtscope::start(command).and_then(Rtscope::finish).expect("ends by itself");
    assert_eq!(said.code(), Some(0), "{:?}", said.notes);
}

// NEEDS: host
#[test]
fn root_one_of_the_two_capabilities_is_not_enough_and_that_is_said() {
    if skip::without_root() {
        return;
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all,+bpf", "--inh-caps=-all"]).arg(crate::command::path());
    let refused = outcome(command.args(["watch", "response", "--threshold", "1s", "--duration", "1ms"]));
    assert!(refused.code == Some(3) && refused.error.contains("CAP_BPF and CAP_PERFMON"), "{refused:?}");
}

#[test]
fn caps_as_json_has_its_schema() {
    let caps = rtscope(&["caps", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&caps.output).expect("one object");
    assert_eq!(report["schema"], "rtscope.caps/1");
    assert!(report["capabilities"].as_array().is_some_and(|all| all.len() > 10), "{caps:?}");
}

#[test]
fn results_that_cannot_be_written_are_a_failure() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it");
    let mut command = crate::command::rtscope();
    let output = command.args(["completions", "bash"]).stdout(full).output().expect("it can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && error.contains("No space left"), "{error}");
    let directory = TempDir::new().expect("a temporary directory");
    let trace = directory.path().join("trace");
    let trace = trace.to_str().expect("plain");
    let refused = rtscope(&["record", "-u", "no:such", "-o", trace, "--duration", "1ms", "--json=/dev/full"]);
    assert!(refused.error.contains("writing /dev/full: ") && refused.code == Some(1), "{refused:?}");
}

#[test]
fn explaining_what_is_no_snapshot_fails_with_a_hint() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().to_str().expect("plain");
    let failed = rtscope(&["explain", path]);
    assert!(
        failed.code == Some(1) && failed.error.contains("late responses that rtscope watch saved"),
        "{failed:?}"
    );
}

#[test]
fn what_is_not_there_is_called_that() {
    for arguments in [
        &["print", "/no/such/trace"][..],
        &["stat", "/no/such/trace", "--tasks"],
        &["convert", "/no/such/trace", "out", "--to", "perfetto"],
        &["explain", "/no/such/trace"],
    ] {
        let failed = rtscope(arguments);
        assert_eq!(failed.code, Some(1), "{arguments:?}");
        assert_eq!(failed.error.trim(), "rtscope: there is no /no/such/trace", "{arguments:?}");
    }
}

#[test]
fn explaining_a_snapshot_of_another_format_fails() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::write(directory.path().join("trigger.json"), "{\"schema\": \"rtscope.snapshot/99\"")
        .expect("it can be written");
    let failed = rtscope(&["explain", directory.path().to_str().expect("plain")]);
    assert!(failed.code == Some(1) && failed.error.contains("trigger.json"), "{failed:?}");
}

const COMMANDS: [&[&str]; 8] =
    [&[], &["watch"], &["watch", "response"], &["list"], &["npt"], &["explain"], &["caps"], &["completions"]];

#[test]
fn the_help_of_every_command_has_an_example_and_the_exit_codes() {
    for command in COMMANDS {
        let help = rtscope(&[command, &["--help"]].concat());
        assert_eq!(help.code, Some(0));
        let starts = |word: &str| help.output.lines().any(|line| line.trim_start().starts_with(word));
        assert!(starts("Example") && starts("rtscope ") && starts("Exit codes:"), "{command:?}: {help:?}");
        for code in ["0", "1", "2", "3", "4", "127"] {
            assert!(starts(&format!("{code} ")), "{command:?}: {code} is not in {help:?}");
        }
    }
}

#[test]
fn completions_are_made_for_three_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let made = rtscope(&["completions", shell]);
        assert!(made.code == Some(0) && made.output.contains("snapshot-dir"), "{shell}");
        // A shell that is not installed cannot check them.
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("completions");
        fs::write(&file, &made.output).expect("it can be written");
        if let Ok(checked) = Command::new(shell).arg("-n").arg(&file).output() {
            assert!(checked.status.success() && checked.stderr.is_empty(), "{shell}: {checked:?}");
        }
    }
}

#[test]
fn man_pages_are_made_for_every_command() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let dir = directory.path().join("new").join("man1");
    assert_eq!(rtscope(&[OsStr::new("man"), dir.as_os_str()]).code, Some(0));
    for page in [
        "rtscope",
        "rtscope-watch",
        "rtscope-watch-response",
        "rtscope-list",
        "rtscope-explain",
        "rtscope-caps",
    ] {
        let text = fs::read_to_string(dir.join(format!("{page}.1"))).expect("it was made");
        assert!(text.contains(".SH SYNOPSIS") && text.contains("Exit codes"), "{page}: {text}");
    }
}

#[test]
fn what_would_be_ignored_is_refused() {
    let directory = TempDir::new().expect("a temporary directory");
    let target = directory.path().join("trace");
    let target = target.to_str().expect("plain");
    for options in [
        &["--cpu", "0"][..],
        &["--filter", "sched:sched_switch: prev_pid == 1"],
        &["--with-self"],
        &["--by", "ftrace"],
        &["--buffer", "1M"],
    ] {
        let refused = rtscope(&[&["record", "-u", "a:*", "-o", target], options].concat());
        assert_refused(&refused, options[0]);
        assert_refused(&refused, "tracepoints (-k)");
    }
    assert!(fs::read_dir(directory.path()).expect("it is there").next().is_none());
}

#[test]
fn waits_that_begin_no_cycle_are_refused() {
    assert_refused(
        &watch(&["--wait", "futex"]),
        "--wait says which waits begin cycles: it needs --end cycle",
    );
    assert_refused(&watch(&["--end", "cycle", "--wait", "stop"]), "no cycle begins with that");
}

#[test]
fn what_asks_for_a_snapshot_has_no_condition() {
    let directory = TempDir::new().expect("a temporary directory");
    let trace = directory.path().join("trace");
    let record = ["record", "-u", "a", "--duration", "1ms", "-o", trace.to_str().expect("plain")];
    for event in ["a:b if n > 1", "a:b,a:c"] {
        let options = ["--flight-recorder", "--snapshot-on", event];
        assert_refused(&rtscope(&[&record[..], &options].concat()), "it is one event");
    }
}

#[test]
fn without_privilege_everything_is_exit_code_3() {
    let copy = PublicCopy::new();
    for arguments in [
        &["watch", "response", "--threshold", "1ms", "--duration", "1ms"][..],
        &["record", "-k", "sched:sched_switch", "-o", "/tmp/no-such-trace", "--duration", "1ms"],
        &["record", "-k", "block:*", "-o", "/tmp/no-such-trace", "--duration", "1ms"],
        &["record", "-u", "x:*", "--fifo", "5", "-o", "/tmp/no-such-trace", "--duration", "1ms"],
        &["npt", "--fifo", "5", "--loops", "1000", "--spin", "1ms"],
        &["impact", "--fifo", "5", "--rounds", "1"],
        &["npt", "--blame", "--loops", "1000", "--spin", "1ms"],
        &["list", "-k"],
        &["caps"],
        &["shield", "create", "--rt", "1"],
        &["shield", "verify", "--rt", "1", "--duration", "1ms"],
        &["shield", "table", "--rt", "1"],
        &["shield", "top", "--once"],
        &["shield", "undo"],
    ] {
        let refused = outcome(&mut copy.as_nobody(arguments));
        assert_eq!(refused.code, Some(3), "{arguments:?}: {refused:?}");
        assert!(!Path::new("/tmp/no-such-trace").exists(), "{arguments:?}");
    }
}
