// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of two users in one watch of root: what one does hides nothing of the other (crates/testkit/c/users.c).

use crate::command::root;
use rtscope_event::{FieldValue, LateResponse};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::process::program;
use rtscope_testkit::skip;
use rtscope_testkit::watch::Rtscope;
use std::collections::BTreeSet;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const COUNT: u64 = 12;
const LIAR: u32 = 12345;
const HONEST: u32 = 12346;

fn run_as(user: u32, program: &Path, what: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()]);
    command.arg(program).arg(what).arg(COUNT.to_string());
    command
}

fn number(late: &LateResponse) -> u64 {
    let events = late.events.as_ref().expect("two events");
    let Some(FieldValue::Unsigned(number)) = events.from.fields.get("cookie") else { panic!("{late:?}") };
    *number
}

// NEEDS: host
#[test]
fn root_what_programs_of_one_user_do_hides_no_late_work_of_another() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    if skip::without_root() || skip::without_tool("setpriv") || skip::without_tool("cc") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("it is this test's");
    let users = directory.path().join("users");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-std=c11", "-Wall", "-Werror", "-pthread", "-I"]).arg(root().join("include"));
    cc.arg(root().join("crates/testkit/c/users.c")).arg("-o").arg(&users);
    assert!(cc.status().expect("it was there").success());

    let mut command = Command::new(program("rtscope").expect("it is built"));
    command.args(["watch", "work", "--json", "--threshold", "10ms", "--duration", "120s"]);
    let mut watch = Rtscope::start(command).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    let mut liar = run_as(LIAR, &users, "hides").stdin(Stdio::piped()).spawn().expect("it starts");
    let is_liars = |line: &serde_json::Value| line["type"] == "late" && line["from"]["tid"] != 0;
    watch.wait_for("late work of the first user", is_liars).expect("it has some");
    let honest = run_as(HONEST, &users, "late").output().expect("it starts");
    assert!(honest.status.success(), "{honest:?}");
    let said = watch.stop().expect("it stops");
    drop(liar.stdin.take());
    assert!(liar.wait().expect("it was started").success());

    let late = said.late().expect("of its own type");
    let found: Vec<u64> = late.iter().map(number).filter(|number| *number <= COUNT).collect();
    assert_eq!((found.len() as u64, found.iter().collect::<BTreeSet<_>>().len() as u64), (COUNT, COUNT));
    let between = said.report().expect("it prints one").between.expect("of two events");
    let [liars] = between.users.as_slice() else { panic!("{:?}", between.users) };
    assert!(liars.user == LIAR && liars.missed_looks > 0 && liars.lost > 0, "{liars:?}");
}
