// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which thread an event is of, and where it ran, without any option.

use super::fixture::{Fixture, Recorded, lines};
use crate::command::rtscope;
use rtscope_testkit::skip;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[test]
fn threads_of_programs_are_told_apart_without_an_option() {
    let fixture = Fixture::new();
    let Some(who) = fixture.program("who.c", &[], "who") else { return };
    let recorded = fixture.record(&[], &[who.as_os_str(), "200".as_ref()]);
    recorded.assert_complete();
    let said = |options: &[&str]| {
        let output = rtscope().arg("print").args(options).arg(fixture.trace()).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let mut cpus = BTreeSet::new();
    let mut on = [0; 2];
    for line in said(&["--format", "json"]).lines() {
        let event: Value = serde_json::from_str(line).expect(line);
        let fields = &event["fields"];
        assert_eq!((&event["pid"], &event["tid"]), (&fields["pid"], &fields["tid"]), "{line}");
        assert_eq!(event["comm"], fields["name"], "{line}");
        // Without a C library that tells (glibc 2.35), it is on none.
        if let Some(cpu) = event["cpu"].as_u64() {
            assert_eq!(Some(cpu), fields["on"].as_u64(), "{line}");
            cpus.insert(cpu);
            on[usize::from(cpu > 0)] += 1;
        }
    }
    let text = said(&[]);
    assert_eq!(text.lines().count(), 400);
    for line in text.lines() {
        let field = |name: &str| line.split(&format!("{name} = ")).nth(1)?.split([',', ' ']).next();
        let name = line.split("name = \"").nth(1).and_then(|rest| rest.split('"').next()).expect(line);
        let cpu = if cpus.is_empty() { String::new() } else { format!(" [{}]", field("on").expect(line)) };
        // And only once.
        let expected = format!(") {name}/{}{cpu} test:who: {{ pid = ", field("tid").expect(line));
        assert!(line.contains(&expected), "{expected}: {line}");
    }
    // Each CPU has its own.
    if !cpus.is_empty() {
        assert_eq!(said(&["--cpu", "0"]).lines().count(), on[0]);
        assert_eq!(said(&["--cpu", "1-4095"]).lines().count(), on[1]);
    }
    assert!(lines(&fixture.trace()).iter().all(|line| line.contains("vtid = ")));
}

#[test]
fn who_an_event_is_of_is_left_out_on_request() {
    let fixture = Fixture::new();
    let Some(who) = fixture.program("who.c", &[], "who") else { return };
    fixture.record(&["--context", "none"], &[who.as_os_str(), "10".as_ref()]).assert_complete();
    let lines = lines(&fixture.trace());
    assert_eq!(lines.len(), 20);
    assert!(lines.iter().all(|line| line.contains(" test:who: { pid = ")), "{lines:?}");
}

// NEEDS: host
#[test]
fn root_losses_that_another_users_program_claims_are_named_and_count_where_it_is_asked_for() {
    if skip::without_root() || skip::without_tool("setpriv") {
        return;
    }
    let fixture = Fixture::new();
    let (Some(liar), Some(honest)) =
        (fixture.program("claims.c", &[], "claims"), fixture.program("orders.c", &[], "orders"))
    else {
        return;
    };
    let user = |uid: u32| format!("setpriv --reuid {uid} --regid {uid} --clear-groups");
    let script =
        format!("{} {} 1000000 && {} {} 10", user(12345), liar.display(), user(12346), honest.display());
    let run = |json: bool, options: &[&str]| {
        let mut command = rtscope();
        command.args(["record", "-u", "test:*", "-o"]).arg(fixture.trace());
        command.args(json.then_some("--json")).args(options).args(["--", "sh", "-c", &script]);
        let output = command.output().expect("it can be started");
        std::fs::remove_dir_all(fixture.trace()).expect("it was made");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned(), output)
    };
    let claim = |asked: bool| json!([{ "uid": 12345, "name": null, "count": 1_000_000, "uncounted": false, "asked": asked }]);
    // Everybody's count, and it is said whose they are.
    let (code, said, output) = run(true, &["--fail-if-lost"]);
    assert_eq!(code, Some(6), "{said}");
    let why = said.lines().find(|line| line.contains("(--fail-if-lost)")).unwrap_or_default();
    assert!(why.contains("of user 12345. Programs count") && !why.contains("12346"), "{said}");
    assert_eq!(Recorded::of(output).account["lost_by_user"], claim(true));
    // The liar was not asked for: the total has what it claims, the exit code has not.
    let (code, said, output) = run(true, &["--fail-if-lost", "--uid", "12346"]);
    assert_eq!(code, Some(0), "{said}");
    let recorded = Recorded::of(output);
    assert_eq!(recorded.account["lost_by_user"], claim(false));
    assert_eq!((recorded.events(), recorded.lost()), (40, 1_000_000));
    assert_eq!(recorded.account["lost_share"], json!(0.0));
    let (_, said, output) = run(false, &["--uid", "12346"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("of user 12345 (whom --uid leaves out)"), "{text}");
    assert!(!said.contains("MUCH IS LOST"), "{said}");
}
