// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What came before a waking by a thread, judged by processes that wait for each other in an order that is known.

use crate::command::CProgram;
use rtscope_analyze::explain::{Actor, Earlier, Explanation};
use rtscope_event::{OriginKind, Tid, WaitKind};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::watch::Rtscope;
use std::process::Command;

fn waker(earlier: &Earlier) -> Option<Tid> {
    match earlier.woken_by.as_ref()? {
        Actor::Thread(thread) => Some(thread.tid),
        _ => None,
    }
}

/// Whether all of the way back is there: the second had waited in read until the first wrote.
fn is_whole(explanation: &Explanation, [first, second]: [Tid; 2]) -> bool {
    let [one, rest @ ..] = &explanation.earlier[..] else { return false };
    let Some(two) = rest.first() else { return false };
    one.woke_ns == explanation.origin.time_ns
        && one.woken_ns == Some(two.woke_ns)
        && (one.wait, waker(one)) == (WaitKind::Read, Some(first))
        && one.waited_ns.is_some()
        && [one.thread.tid, two.thread.tid] == [second, first]
}

// NEEDS: host
#[test]
fn root_a_response_to_a_thread_is_followed_back_through_the_processes_before_it() {
    let Some(program) = CProgram::build("relay") else { return };
    let Some(_cpus) = Cpus::for_watching() else { return };
    let options = ["response", "--begin", "any", "--task", "third", "--threshold", "1ms", "--rate", "20/s"];
    let directory = tempfile::tempdir().expect("a directory");
    let mut watch = Command::new(rtscope_testkit::process::program("rtscope").expect("it is built"));
    watch.arg("watch").args(options).args(["--pre", "30ms", "--post", "1ms", "--json", "--snapshot-dir"]);
    watch.arg(directory.path());
    let mut watch = Rtscope::start(watch).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    let output = Command::new(program.path()).arg("60").output().expect("it is built");
    assert!(output.status.success(), "{output:?}");
    let said = watch.stop().expect("it stops");

    let numbers = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<Tid> = numbers.split_whitespace().map(|number| Tid(number.parse().unwrap())).collect();
    let [first, second, third] = numbers[..] else { panic!("{output:?}") };
    let of_third = said.explanations().expect("of its own types").into_iter();
    let of_third: Vec<Explanation> = of_third.filter(|one| one.thread.tid == third).collect();
    let of_tasks: Vec<&Explanation> =
        of_third.iter().filter(|one| one.origin.kind == OriginKind::Task).collect();
    // Those that were late besides may be at the beginning of what the snapshot covers: what was before that is not there.
    let pulled = of_tasks.iter().filter(|one| one.snapshot.is_some());
    let (whole, ended): (Vec<&Explanation>, Vec<&Explanation>) =
        pulled.copied().partition(|one| is_whole(one, [first, second]));
    println!("{} with a snapshot of their own followed back, {} not", whole.len(), ended.len());
    assert!(whole.len() >= 3 && whole.len() > 3 * ended.len(), "{ended:#?}");
    // Where the host hid a switch the way may end early, but it leads to nobody else.
    for earlier in of_tasks.iter().flat_map(|one| one.earlier.iter().take(2)) {
        assert!([first, second].contains(&earlier.thread.tid), "{earlier:?}");
    }
}
