// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope list`: what it shows is what tracefs has, and who may not see it is told how to.

use crate::command::{NOBODY, PublicCopy};
use rtscope_testkit::skip;
use serde_json::Value;
use std::fs;
use std::process::{Command, Output, Stdio};

const TRACEFS: &str = "/sys/kernel/tracing";

fn list(arguments: &[&str]) -> Output {
    let mut command = crate::command::rtscope();
    command.arg("list").args(arguments).stdin(Stdio::null()).output().expect("it can be run")
}

#[track_caller]
fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// The kernel's own list, sorted, or why there is none.
fn available() -> Option<Vec<String>> {
    match fs::read_to_string(format!("{TRACEFS}/available_events")) {
        Ok(text) => {
            let mut names: Vec<String> = text.lines().map(str::to_string).collect();
            names.sort();
            Some(names)
        }
        Err(error) => {
            skip::say(format_args!("{TRACEFS}: {error}"));
            None
        }
    }
}

// NEEDS: host
#[test]
fn root_every_tracepoint_of_the_kernel_is_listed_in_order() {
    let Some(mut expected) = available() else {
        return;
    };
    let text = text(&list(&["-k"]));
    let mut names: Vec<String> =
        text.lines().filter_map(|line| Some(line.split_whitespace().next()?.to_string())).collect();
    let recorders = |wanted: &str| text.lines().filter(|line| line.ends_with(wanted)).count();
    assert_eq!(recorders("  eBPF") + recorders("  ftrace"), expected.len());
    assert!(recorders("  eBPF") > 5, "{text}");
    // Order by subsystem and name is not quite that of the text.
    let by_name = |name: &String| name.split_once(':').map(|(s, n)| (s.to_string(), n.to_string()));
    assert!(names.is_sorted_by_key(by_name));
    names.sort();
    expected.dedup();
    assert_eq!(names, expected);
}

// NEEDS: one kernel
#[test]
fn root_a_few_tracepoints_are_listed_with_their_fields() {
    if available().is_none() {
        return;
    }
    let switch = text(&list(&["-k", "sched:sched_switch"]));
    assert!(switch.starts_with("sched:sched_switch  (eBPF)\n"), "{switch}");
    assert!(switch.lines().any(|line| line.split_whitespace().eq(["char[16]", "prev_comm"])), "{switch}");
    let raise = text(&list(&["-k", "softirq_raise"]));
    assert!(raise.contains("1=TIMER") && raise.contains("(-v)"), "{raise}");
    assert!(text(&list(&["-k", "-v", "softirq_raise"])).contains("9=RCU"));
    let call = text(&list(&["-k", "syscalls:openat"]));
    assert!(call.contains("sys_enter_openat") && call.contains("sys_exit_openat"), "{call}");
    assert!(!call.contains("openat2"), "{call}");
    // By eBPF where `record` takes them so: both or none.
    assert!(matches!(call.matches("(eBPF)").count(), 0 | 2), "{call}");
}

/// Any user can mount in his directory (fusermount), and name it as he likes: then nobody found the kernel's events.
// NEEDS: host
#[test]
fn root_a_mount_whose_name_is_not_text_hides_no_tracepoints() {
    if available().is_none() {
        return;
    }
    let steps = r#"bad=$1/$(printf 'a\377'); mkdir "$bad"; mount -t tmpfs none "$bad"; exec "$0" list -k sched:sched_switch"#;
    let directory = tempfile::tempdir().expect("a directory");
    let program = crate::command::rtscope().get_program().to_owned();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", steps]).arg(program).arg(directory.path()).stdin(Stdio::null());
    let listed = text(&command.output().expect("util-linux has it"));
    assert!(listed.starts_with("sched:sched_switch  ("), "{listed}");
}

// NEEDS: host
#[test]
fn root_the_list_as_json_has_the_fields() {
    let Some(expected) = available() else { return };
    let json: Value = serde_json::from_str(&text(&list(&["--json", "*"]))).unwrap();
    assert_eq!(json["schema"], "rtscope.list/1");
    let events = json["events"].as_array().unwrap();
    assert_eq!(events.len(), expected.len());
    let find = |name: &str| events.iter().find(|event| event["name"] == name).unwrap();
    let switch = find("sched_switch");
    assert_eq!((&switch["system"], &switch["recorder"]), (&Value::from("sched"), &Value::from("ebpf")));
    let comm = &switch["fields"][0];
    assert_eq!((&comm["name"], &comm["array"]["length"]), (&Value::from("prev_comm"), &Value::from(16)));
    assert_eq!(comm["array"]["element"]["meaning"], "text");
    assert_eq!(find("softirq_raise")["fields"][0]["names"][1]["name"], "TIMER");
    let identity = |event: &Value| {
        fs::read_to_string(format!("{TRACEFS}/events/sched/{}/id", event["name"].as_str().unwrap())).unwrap()
    };
    assert_eq!(switch["id"].to_string(), identity(switch).trim());
}

// NEEDS: host
#[test]
fn root_exclusions_leave_out_and_misspelled_patterns_are_refused() {
    let Some(all) = available() else {
        return;
    };
    let count = |arguments: &[&str]| text(&list(arguments)).lines().count();
    let stat = all.iter().filter(|name| name.starts_with("sched:sched_stat_")).count();
    let sched = all.iter().filter(|name| name.starts_with("sched:")).count();
    assert!(stat > 0 && sched - stat > 10);
    assert_eq!(count(&["sched:*,!sched:sched_stat_*"]), sched - stat);
    assert_eq!(count(&["sched:*", "!sched:sched_stat_*"]), sched - stat);
    for arguments in [&["sched:*,shed:*"][..], &["shed:*"], &["sched::x"], &[""], &["sched:*", "!sched:*"]] {
        let refused = list(arguments);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(refused.stdout.is_empty());
    }
    assert!(String::from_utf8_lossy(&list(&["sched:*,shed:*"]).stderr).contains("'shed:*'"));
}

/// rtscope as a user without any right.
fn as_nobody(arguments: &[&str]) -> Output {
    PublicCopy::new().as_nobody(arguments).output().expect("it can be run")
}

const LIST: [&str; 3] = ["list", "-k", "sched:sched_switch"];

/// Who may use tracefs. What was before comes back when dropped (the kernel's own settings).
struct Remounted;

impl Remounted {
    fn with(options: &str) -> Remounted {
        let status = Command::new("mount").args(["-o", &format!("remount,{options}"), TRACEFS]).status();
        assert!(status.expect("mount can be run").success(), "{options}");
        Remounted
    }
}

impl Drop for Remounted {
    fn drop(&mut self) {
        let status = Command::new("mount").args(["-o", "remount,gid=0,mode=700", TRACEFS]).status();
        assert!(status.expect("mount can be run").success());
    }
}

/// Whether tracefs is closed to others, as it is by default.
fn is_closed() -> bool {
    if available().is_none() {
        return false;
    }
    let closed = !as_nobody(&LIST).status.success();
    if !closed {
        skip::say("everybody may read tracefs here");
    }
    closed
}

// NEEDS: host
#[test]
fn root_without_the_right_to_read_the_list_says_how_to_get_it_and_that_helps() {
    if !is_closed() {
        return;
    }
    let refused = as_nobody(&LIST);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{error}");
    let advice = error.split_once("mount -o remount,gid=GROUP,mode=750 ").expect("it says what to do").1;
    assert_eq!(advice.trim(), TRACEFS);
    let _group = Remounted::with(&format!("gid={NOBODY},mode=750"));
    assert!(text(&as_nobody(&LIST)).contains("prev_comm"));
    assert_eq!(rights(), [Some(true), Some(false)], "a group may not write");
}

/// What `caps` says to that user: the right to list, and the right to record with ftrace.
fn rights() -> [Option<bool>; 2] {
    let json: Value = serde_json::from_slice(&as_nobody(&["caps", "--json"]).stdout).expect("JSON");
    let all = json["capabilities"].as_array().expect("a list");
    ["tracepoint_list", "trace_instance"]
        .map(|id| all.iter().find(|capability| capability["id"] == id)?["found"].as_bool())
}

// NEEDS: host
#[test]
fn root_a_user_who_owns_the_folder_of_instances_may_record_and_caps_says_so() {
    if !is_closed() {
        return;
    }
    assert_eq!(rights(), [Some(false), Some(false)]);
    let _group = Remounted::with(&format!("gid={NOBODY},mode=750"));
    let instances = format!("{TRACEFS}/instances");
    std::os::unix::fs::chown(&instances, Some(NOBODY), None).unwrap();
    let rights = rights();
    std::os::unix::fs::chown(&instances, Some(0), None).unwrap();
    assert_eq!(rights, [Some(true), Some(true)]);
}
