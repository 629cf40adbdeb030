// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The campaign of violence in its short form; and its judge, which has to find what is planted.

use rtscope_testkit::full;
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::skip;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

fn cannot_run() -> bool {
    skip::without_root() || ["cc", "unshare", "setpriv", "babeltrace2"].into_iter().any(skip::without_tool)
}

/// What a campaign came to.
fn campaign(arguments: &[&str]) -> Value {
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rtscope-bench"));
    command.args(["violence", "--json", "--dir"]).arg(place.path()).args(arguments);
    let output = command.output().expect("it is built");
    print!("{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

// NEEDS: host
#[test]
fn root_a_short_campaign_of_violence_breaks_no_promise() {
    if cannot_run() {
        return;
    }
    let _cpus = Cpus::take().expect("the build directory can be written");
    let rounds = if full() { "60" } else { "8" };
    let result = campaign(&["--rounds", rounds, "--seed", "20261122"]);
    assert_eq!(result["rounds"].to_string(), rounds, "{result}");
    assert_eq!(result["clean"], result["rounds"], "{}", result["faulty"]);
    // It did something: a campaign of nothing is clean, too.
    let figure = |name: &str| result["figures"][name].as_u64().unwrap_or(0);
    for (name, least) in
        [("recorded", 20_000), ("forks", 20), ("executions", 2), ("loads", 50), ("handled", 500)]
    {
        assert!(figure(name) >= least, "{name}: {}", result["figures"]);
    }
}

/// A fault in the header: where, what is replaced, by what, and the check that has to find it.
const FAULTS: [(&str, &str, &str, &str); 4] = [
    // One event in a hundred is lost, and not counted.
    (
        "ring.h",
        "\t\tuint64_t position, now;\n\n\t\t/* The length",
        "\t\tuint64_t position, now;\n\t\tstatic unsigned int events;\n\n\t\tif (ring && ++events % 100 == 0)\n\t\t\t\
         return (struct rtscope__record){ 0, 0 };\n\t\t/* The length",
        "account",
    ),
    // One is there twice.
    (
        "event.h",
        "rtscope__commit(rtscope__record);",
        "rtscope__commit(rtscope__record); static unsigned int rtscope__events; struct rtscope__record rtscope__second = { 0, 0 }; \
         if (++rtscope__events % 100 == 0) rtscope__second = rtscope__reserve(rtscope__tls, rtscope__event->id, rtscope__bytes); \
         if (rtscope__second.place) { \
         __builtin_memcpy(rtscope__second.place, rtscope__record.place, rtscope__bytes - 8); rtscope__commit(rtscope__second); }",
        "repeats",
    ),
    // Times are some milliseconds late.
    ("ring.h", "now << RTU_TIME_SHIFT, NULL };", "(now + 5000000) << RTU_TIME_SHIFT, NULL };", "time"),
    // Each process leaves a file.
    (
        "life.h",
        "!rtscope__find_session(shared))\n\t\trtscope__sweep(shared);\n",
        "!rtscope__find_session(shared))\n\t\trtscope__sweep(shared);\n\trtscope__put_name(shared, shared->room->path, \"litter\");\n\
         \trtscope__close(rtscope__open(shared->room->path, RTSCOPE__O_RDWR | RTSCOPE__O_CREAT, 0600));\n",
        "left behind",
    ),
];

/// The seed of a round with one program of 64 threads, no liars, and a recorder that nobody hurts.
const ROUND: &str = "126";

// NEEDS: host
#[test]
fn root_the_judge_of_the_campaign_finds_planted_faults() {
    if cannot_run() {
        return;
    }
    let _cpus = Cpus::take().expect("the build directory can be written");
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/rtscope");
    for (name, from, to, check) in FAULTS {
        let copy = tempfile::tempdir().expect("a temporary directory");
        let directory = copy.path().join("rtscope");
        fs::create_dir(&directory).expect("ours");
        for file in fs::read_dir(&headers).expect("it is there").flatten() {
            fs::copy(file.path(), directory.join(file.file_name())).expect("ours");
        }
        let text = fs::read_to_string(directory.join(name)).expect("it was just copied");
        let changed = text.replace(from, to);
        assert_ne!(text, changed, "the planted fault has no place in {name} any more: {from}");
        fs::write(directory.join(name), changed).expect("ours");
        let include = copy.path().to_string_lossy().into_owned();
        let result = campaign(&["--round", ROUND, "--include", &include]);
        if result["rounds"] == 0 {
            skip!("another recorder of root runs on this machine, which takes events of the rounds");
        }
        let faults = &result["faulty"][0]["faults"];
        let found =
            faults.as_array().is_some_and(|faults| faults.iter().any(|fault| fault["check"] == check));
        assert!(found, "{check}: {result}");
    }
}
