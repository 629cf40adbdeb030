// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whose turn it is, and what is said of what nobody took.

use super::*;
use crate::budget::Refusal;
use crate::look::Found;
use std::os::unix::fs::DirBuilderExt;

/// The directory of this user, with a file of a process that has ended.
fn with_a_file() -> tempfile::TempDir {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join(UserDirectory::name_of(nix::unistd::geteuid().as_raw()));
    std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
    File::create(path.join("x4100000000-1-1")).unwrap();
    base
}

#[test]
fn files_that_were_found_and_not_taken_over_are_told_with_their_user() {
    let nothing = tempfile::tempdir().unwrap();
    assert!(Programs::watching(nothing.path()).unwrap().left_waiting().is_empty());
    // The thread that looks begins by itself.
    let base = with_a_file();
    let own = nix::unistd::geteuid().as_raw();
    let mut programs = Programs::watching(base.path()).unwrap();
    programs.look.look(Until::AllSeen);
    // The directory itself waits, too.
    let mut left = BTreeSet::new();
    let until = Instant::now() + Duration::from_secs(60);
    while left.is_empty() {
        assert!(Instant::now() < until, "it is found");
        programs.look.wait(Duration::from_millis(10));
        left.extend(programs.left_waiting());
    }
    assert_eq!(left, BTreeSet::from([own]));
}

#[test]
fn who_has_taken_more_than_a_turn_rests_for_as_long() {
    let base = tempfile::tempdir().unwrap();
    let mut programs = Programs::watching(base.path()).unwrap();
    let (slow, slower) = ((1, 0), (2, 0));
    programs.owed = BTreeMap::from([(slow, DRAIN / 2), (slower, DRAIN * 5 / 2)]);
    assert_eq!(programs.resting(), BTreeSet::from([slower]));
    assert_eq!(programs.resting(), BTreeSet::from([slower]));
    assert!(programs.resting().is_empty() && programs.owed.is_empty());
}

#[test]
fn a_directory_that_is_given_up_asks_nothing_of_programs_any_more_and_is_told() {
    let is_session = |base: &Path| {
        let user = base.join(UserDirectory::name_of(nix::unistd::geteuid().as_raw()));
        std::fs::read_dir(user).unwrap().flatten().any(|file| file.file_name() == crate::session::SESSION)
    };
    // One of them; and all, as the thread has fallen.
    for is_all in [false, true] {
        let base = tempfile::tempdir().unwrap();
        let mut programs = Programs::recording(base.path(), Settings::default()).unwrap();
        let sink = &mut DiscardingSink;
        programs.adopt_all(Instant::now() + Duration::from_secs(60), sink).unwrap();
        let own = *programs.users.keys().next().unwrap();
        assert!(is_session(base.path()));
        let why = "as was asked".to_string();
        programs.adopt(if is_all { Found::Fallen(why) } else { Found::GivenUp(own, why) }, sink).unwrap();
        let user = &programs.users[&own];
        assert!(user.is_given_up, "no program hears that somebody takes its records");
        user.served.as_ref().unwrap().settle(Instant::now() + Duration::from_secs(60));
        assert!(!is_session(base.path()), "who starts now enables nothing");
        let [Refusal { user, cause: Cause::Fault, count: 1, .. }] = programs.refusals()[..] else { panic!() };
        assert_eq!(user, (!is_all).then(|| nix::unistd::geteuid().as_raw()));
        // It ends as any other.
        programs.stop(sink).unwrap();
    }
}
