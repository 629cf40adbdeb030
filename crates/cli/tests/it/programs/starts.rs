// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads and objects of one process that start rtscope at the same moment (crates/testkit/c/starts.c): one object leads, the others wait for it, and each has all
//! of its events.

use super::fixture::Fixture;
use std::path::{Path, PathBuf};

const PROGRAMS: u64 = 100;
/// That each thread of the program emits.
const EVENTS: u64 = 20;

struct Objects {
    fixture: Fixture,
}

impl Objects {
    fn compile(&self, flags: &[&str], to: &str) -> Option<PathBuf> {
        let flags = [&["-std=gnu11", "-pthread", "-ldl"], flags].concat();
        self.fixture.program("starts.c", &flags, to)
    }

    /// A library that starts when it is loaded, or by hand.
    fn library(&self, is_by_hand: bool, to: &str) -> Option<String> {
        let flags: &[&str] = if is_by_hand { &["-DRTSCOPE_START_BY_HAND"] } else { &[] };
        let library = self.compile(&[&["-DLIBRARY", "-shared", "-fPIC"], flags].concat(), to)?;
        Some(format!("{}:{}", if is_by_hand { "by-hand" } else { "by-loading" }, library.display()))
    }

    fn by_hand(&self) -> Option<PathBuf> {
        self.compile(&["-DRTSCOPE_START_BY_HAND"], "by_hand")
    }

    /// Without events: a library leads.
    fn host(&self) -> Option<PathBuf> {
        self.compile(&["-DRTSCOPE_DISABLE", "-rdynamic"], "host")
    }

    /// All events are there, of many processes: each moment is met by few.
    fn assert_all_are_recorded(&self, program: &Path, threads: &[&str]) {
        self.assert_threads_are_recorded(program, threads, threads.len());
    }

    fn assert_threads_are_recorded(&self, program: &Path, threads: &[&str], emitting: usize) {
        let each = format!(
            "n=0; while [ $n -lt {PROGRAMS} ]; do timeout 20 {} {} || exit 1; n=$((n+1)); done",
            program.display(),
            threads.join(" "),
        );
        let recorded = self.fixture.record(&[], &["sh", "-c", &each]);
        let emitted = PROGRAMS * EVENTS * emitting as u64;
        assert_eq!((recorded.events(), recorded.lost()), (emitted, 0), "{threads:?}: {}", recorded.account);
        std::fs::remove_dir_all(self.fixture.trace()).expect("it was made");
    }
}

fn objects() -> Objects {
    Objects { fixture: Fixture::new() }
}

#[test]
fn threads_that_start_the_program_at_once_all_have_their_events() {
    let objects = objects();
    let Some(program) = objects.by_hand() else { return };
    objects.assert_all_are_recorded(&program, &["self", "self", "self", "self"]);
}

#[test]
fn a_program_and_its_libraries_that_start_at_once_all_have_their_events() {
    let objects = objects();
    let (Some(program), Some(by_hand), Some(by_loading)) =
        (objects.by_hand(), objects.library(true, "by_hand.so"), objects.library(false, "by_loading.so"))
    else {
        return;
    };
    objects.assert_all_are_recorded(&program, &["self", &by_hand]);
    objects.assert_all_are_recorded(&program, &["self", &by_loading]);
    objects.assert_all_are_recorded(&program, &["self", &by_hand, &by_loading]);
}

#[test]
fn a_program_and_a_thread_of_its_librarys_constructor_that_start_at_once_have_their_events() {
    let objects = objects();
    let flags = ["-DLIBRARY", "-DIN_A_THREAD", "-DRTSCOPE_START_BY_HAND", "-shared", "-fPIC"];
    let Some(library) = objects.compile(&flags, "libthread.so") else { return };
    let library = library.display().to_string();
    let run_path = format!("-Wl,-rpath,{}", objects.fixture.path("").display());
    // The program starts by its constructor, which follows that of the library.
    let Some(program) = objects.compile(&["-Wl,--no-as-needed", &library, &run_path], "linked") else {
        return;
    };
    objects.assert_threads_are_recorded(&program, &["self"], 2);
}

#[test]
fn a_library_that_another_ones_constructor_starts_again_meanwhile_has_all_its_events() {
    let objects = objects();
    let flags = ["-DLIBRARY", "-DCALLS_ANOTHER", "-DRTSCOPE_DISABLE", "-shared", "-fPIC"];
    let (Some(host), Some(by_hand), Some(again)) =
        (objects.host(), objects.library(true, "by_hand.so"), objects.compile(&flags, "again.so"))
    else {
        return;
    };
    // The constructor has the loader's lock, which the other thread wants for the library to stay loaded.
    let again = format!("again-from:{}", again.display());
    objects.assert_all_are_recorded(&host, &[&by_hand, &again]);
}

#[test]
fn libraries_of_a_program_without_events_that_start_at_once_all_have_their_events() {
    let objects = objects();
    let libraries = [true, true, false, false].into_iter().enumerate();
    let libraries: Option<Vec<_>> =
        libraries.map(|(number, is_by_hand)| objects.library(is_by_hand, &format!("{number}.so"))).collect();
    let (Some(host), Some(libraries)) = (objects.host(), libraries) else { return };
    let of = |numbers: &[usize]| numbers.iter().map(|number| libraries[*number].as_str()).collect::<Vec<_>>();
    objects.assert_all_are_recorded(&host, &of(&[0, 1]));
    // One takes the loader's lock to stay loaded, which the other one has while its constructor runs.
    objects.assert_all_are_recorded(&host, &of(&[0, 2]));
    objects.assert_all_are_recorded(&host, &of(&[0, 1, 2, 3]));
}
