// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs among users who mean them harm, or who may not see what they do: links in `/dev/shm`, spoiled buffers, privileges.

use super::fixture::{Fixture, Recorded};
use crate::command::rtscope;
use rtscope_testkit::skip;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output};

/// A user without a program of his own, and one of this test's groups.
const USER: u32 = 4712;

fn copy(from: &Path, fixture: &Fixture, name: &str, mode: u32) -> String {
    let to = fixture.path(name);
    fs::copy(from, &to).expect("there is space");
    chown(&to, Some(0), Some(USER + 1)).expect("root may");
    fs::set_permissions(&to, Permissions::from_mode(mode)).expect("root may");
    to.display().to_string()
}

/// Runs a script in a mount namespace with an empty /dev/shm, in which `$USER` runs a command as that user.
fn in_own_namespace(fixture: &Fixture, script: &str) -> Output {
    let script = format!(
        "mount -t tmpfs -o mode=1777,size=64m none /dev/shm && cd {} && mkdir -m 777 -p t && {script}",
        fixture.dir.path().display()
    );
    let user = format!("setpriv --reuid {USER} --regid {USER} --clear-groups");
    let mut command = Command::new("unshare");
    let output = command.args(["-m", "sh", "-c", &script]).env("USER", user).output().expect("it is there");
    assert!(output.status.success(), "{output:?}");
    output
}

#[test]
fn whatever_another_program_writes_into_a_buffer_nothing_else_is_written() {
    let fixture = Fixture::new();
    let Some(inside) = fixture.program("inside.c", &[], "inside") else { return };
    let output = Command::new(inside).args(["spoiled", "300"]).output().expect("it can be run");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("others 0\n"), "behind the buffer is something else: {text}");
}

// NEEDS: host
#[test]
fn root_a_link_that_a_user_has_planted_leads_no_program_of_root_elsewhere() {
    if skip::without_root() || skip::without_tool("setpriv") || skip::without_tool("unshare") {
        return;
    }
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    // Names as programs' files have them. Without the sticky bit links are followed, whatever fs.protected_symlinks says.
    let script = format!(
        "chmod 777 /dev/shm && mkdir -m 755 etc && touch etc/x11-common etc/session && \
         $USER ln -s $PWD/etc /dev/shm/rtscope-0 && {} count 10 && {} forks 10 && ls etc",
        emitter.display(),
        emitter.display()
    );
    let output = in_own_namespace(&fixture, &script);
    let text = String::from_utf8_lossy(&output.stdout);
    let names: Vec<&str> = text.lines().filter(|line| !line.starts_with("emitted ")).collect();
    assert_eq!(names, ["session", "x11-common"]);
}

// NEEDS: host
#[test]
fn root_a_program_that_may_write_anywhere_is_not_led_elsewhere_by_its_user() {
    if skip::without_root() || skip::without_tool("setpriv") || skip::without_tool("unshare") {
        return;
    }
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    // Its user puts a link in the place of the directory: to one of root's, where files have the names of the program's.
    let script = format!(
        "own=/dev/shm/rtscope-{USER} && mkfifo fifo && mkdir -m 755 etc && \
         {{ $USER --inh-caps +dac_override --ambient-caps +dac_override {} wait 10 <fifo & }} && exec 3>fifo && \
         until ls $own/p* >/dev/null 2>&1; do sleep 0.01; done && (cd $own && ls | grep ^p) >names && \
         (cd etc && xargs touch session <../names) && $USER mv $own /dev/shm/moved && $USER ln -s $PWD/etc $own && \
         ls etc >before && echo >&3 && wait && ls etc >after && cat before && echo and && cat after && \
         echo moved && $USER ls /dev/shm/moved",
        emitter.display(),
    );
    let output = in_own_namespace(&fixture, &script);
    let text = String::from_utf8_lossy(&output.stdout);
    let (before, after) = text.split_once("and\n").expect("both");
    let names: Vec<&str> = before.lines().filter(|line| line.starts_with('p')).collect();
    assert!(!names.is_empty(), "{text}");
    let left = after.split_once("moved\n").expect("both").0;
    let left: Vec<&str> = left.lines().filter(|line| !line.starts_with("emitted ")).collect();
    assert_eq!(left.len(), names.len() + 1, "{text}");
}

// NEEDS: host
#[test]
fn root_a_program_with_more_rights_than_its_user_is_not_recorded_by_that_user() {
    if skip::without_root() || skip::without_tool("setpriv") || skip::without_tool("unshare") {
        return;
    }
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let Some(allows) = fixture.program("emitter.c", &["-DRTSCOPE_ALLOW_PRIVILEGED"], "allows") else {
        return;
    };
    let recorder = copy(Path::new(rtscope().get_program()), &fixture, "rtscope", 0o755);
    let run = |program: &str| {
        let script = format!(
            "$USER {recorder} record --json -u 'test:*' -o t/trace -- {program} count 10 && rm -r t/trace"
        );
        Recorded::of(in_own_namespace(&fixture, &script))
    };
    let plain = copy(&emitter, &fixture, "plain", 0o755);
    assert_eq!(run(&plain).events(), 10);
    // It runs as this user, with another group; or as another user, to whom its events belong.
    for (name, mode) in [("setgid", 0o2755), ("setuid", 0o4755)] {
        let program = copy(&emitter, &fixture, name, mode);
        let recorded = run(&program);
        assert_eq!((recorded.events(), recorded.printed("emitted ")), (0, 10), "{name}");
    }
    let allows = copy(&allows, &fixture, "setgid", 0o2755);
    assert_eq!(run(&allows).events(), 10);
}
