// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What one user, or all processes together, can make the thread take of its time.

use super::*;
use crate::budget::{CENSUS_LATE, NAMES_BURST};
use crate::containers::Discovery;
use crate::directory::ProcessId;
use crate::mounts::Shm;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;

const LIAR: u32 = 4_000_000_000;
const OTHER: u32 = LIAR + 1;

/// A thread's state without the thread, and what it finds.
fn looker(base: &Path) -> (Looker, Receiver<Found>) {
    let (found_sender, found) = sync_channel(1 << 20);
    let out = Outbox { found: found_sender, told: Arc::new(EventFd::new().unwrap()), has_told: false };
    let sessions = Arc::new(Mutex::new(Some(BTreeMap::new())));
    let (unseen, wake) = (Unseen::default(), Arc::new(EventFd::new().unwrap()));
    (Looker::new(base, None, (sessions, unseen), wake, out).unwrap(), found)
}

impl Looker {
    /// Adds a directory on this user's account with files of processes that have ended.
    fn add_ended(&mut self, above: &Path, account: u32, processes: u32) {
        let uid = nix::unistd::geteuid().as_raw();
        let path = above.join(UserDirectory::name_of(uid));
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        for number in 0..processes {
            // No process has such a number.
            File::create(path.join(format!("x{}-1-1", 4_100_000_000 + number))).unwrap();
        }
        let directory = Arc::new(UserDirectory::open(above, uid).unwrap());
        self.add_served(directory, 0, None, Some(account)).unwrap();
        let place = self.places.last_mut().unwrap();
        let mut around = Surroundings {
            session: None,
            census: self.census.newest(),
            processes: &mut self.processes,
            shelf: &mut self.shelf,
            out: &mut self.out,
        };
        while place.turn(&mut around) != Turn::Complete {}
    }
}

#[test]
fn a_user_with_many_directories_to_check_has_the_turn_of_one_and_delays_nobody() {
    const PROCESSES: u32 = 6000;
    let directories: Vec<_> = (0..9).map(|_| tempfile::tempdir().unwrap()).collect();
    let base = tempfile::tempdir().unwrap();
    let (mut looker, found) = looker(base.path());
    directories[1..].iter().for_each(|above| looker.add_ended(above.path(), LIAR, PROCESSES));
    looker.add_ended(directories[0].path(), OTHER, 3);
    let other = looker.places.last().unwrap().id;
    found.try_iter().for_each(drop);
    // Processes that were found to have ended, by directory.
    let mut ended: BTreeMap<PlaceId, u32> = BTreeMap::new();
    let mut turns = 0;
    while ended.values().sum::<u32>() < 8 * PROCESSES + 3 {
        looker.check();
        turns += 1;
        let mut now: BTreeMap<PlaceId, u32> = BTreeMap::new();
        for finding in found.try_iter() {
            if let Found::Ended(place, _) = finding {
                *now.entry(place).or_default() += 1;
            }
        }
        let of_liar = now.iter().filter(|(place, _)| **place != other);
        // What earlier turns left of others may be little. At the end of the turn, one is not done.
        let is_left = |(place, count): &(&PlaceId, &u32)| {
            *count + ended.get(place).copied().unwrap_or_default() < PROCESSES
        };
        assert!(of_liar.clone().filter(is_left).count() <= 1, "turn {turns}: {now:?}");
        if turns == 1 {
            assert_eq!(
                now.get(&other),
                Some(&3),
                "whoever else is there is checked in the same turn: {now:?}"
            );
            let first: u32 = of_liar.map(|(_, ended)| ended).sum();
            assert!(first < PROCESSES, "a turn of this machine is long enough for more: {now:?}");
        }
        now.into_iter().for_each(|(place, count)| *ended.entry(place).or_default() += count);
    }
    println!("    {turns} turns: {ended:?}");
    assert!(ended.values().all(|count| *count == PROCESSES || *count == 3), "each of them once: {ended:?}");
}

#[test]
fn files_of_the_dead_are_removed_in_turns_of_their_user() {
    const FILES: usize = 6000;
    let (base, above) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut looker, found) = looker(base.path());
    looker.add_ended(above.path(), LIAR, 1);
    let place = looker.places.last_mut().unwrap();
    let path = place.directory.path.clone();
    let process = ProcessId { pid: 4_100_000_000, birth_ns: 1 };
    (2..=FILES).for_each(|number| drop(File::create(path.join(format!("x4100000000-1-{number}"))).unwrap()));
    let left = || std::fs::read_dir(&path).unwrap().count();
    let turn = |looker: &mut Looker| {
        let place = looker.places.last_mut().unwrap();
        let mut around = Surroundings {
            session: None,
            census: looker.census.newest(),
            processes: &mut looker.processes,
            shelf: &mut looker.shelf,
            out: &mut looker.out,
        };
        place.turn(&mut around) == Turn::Complete
    };
    while !turn(&mut looker) {}
    looker.check();
    assert!(found.try_iter().any(|found| matches!(found, Found::Ended(_, ended) if ended == process)));
    // To ask for it takes nobody's time, and one turn is too short for all.
    looker.places.last_mut().unwrap().sweep(process);
    assert_eq!(left(), FILES);
    let is_complete = turn(&mut looker);
    assert!(!is_complete && (1..FILES).contains(&left()), "{is_complete} {}", left());
    // A look is not complete before they are gone.
    while !turn(&mut looker) {}
    assert_eq!(left(), 0);
}

#[test]
fn whose_processes_do_not_answer_is_told_once_and_a_crowd_of_them_as_a_late_census() {
    let (mut looker, found) = looker(Path::new(SHARED_MEMORY));
    looker.census = Counter::with(Arc::clone(&looker.wake), |census, _, _| {
        (census.begun, census.silent, census.is_crowd) = (Some(Instant::now()), vec![(LIAR, 7)], true);
    })
    .unwrap();
    let (mut silent, mut late) = (Vec::new(), 0);
    for _ in 0..2 {
        assert!(!looker.census.is_later(Instant::now(), true));
        while !looker.census.fetch() {
            std::thread::yield_now();
        }
        looker.tell_silent(true);
        looker.tell_silent(false);
    }
    looker.out.flush();
    for found in found.try_iter() {
        match found {
            Found::Refusal(user, Cause::NoAnswer, process) => silent.push((user, process)),
            Found::CensusLate(_) => late += 1,
            _ => {}
        }
    }
    assert_eq!((silent, late), (vec![(LIAR, "process 7".to_string())], 2));
}

// NEEDS: host
#[test]
fn root_a_census_that_takes_long_is_told_while_it_goes_on_and_once() {
    if !nix::unistd::geteuid().is_root() {
        rtscope_testkit::skip!("it needs root");
    }
    let (mut looker, found) = looker(Path::new(SHARED_MEMORY));
    looker.census = Counter::with(Arc::clone(&looker.wake), |census, visitor, _| {
        let begun = Instant::now();
        census.take(visitor);
        // As many more processes.
        std::thread::sleep(CENSUS_LATE * 3);
        census.begun = Some(begun);
    })
    .unwrap();
    let late = |looker: &mut Looker| {
        looker.tell_late_census();
        found
            .try_iter()
            .filter(|found| matches!(found, Found::CensusLate(took) if *took > CENSUS_LATE))
            .count()
    };
    let begun = Instant::now();
    looker.ask_for_census(true);
    assert!(looker.census.is_busy());
    while begun.elapsed() < CENSUS_LATE / 2 {
        assert_eq!(late(&mut looker), 0);
    }
    while late(&mut looker) == 0 {
        assert!(begun.elapsed() < CENSUS_LATE * 30, "it is told");
    }
    assert!(looker.census.is_busy(), "before it has ended");
    while !looker.census.fetch() {
        assert_eq!(late(&mut looker), 0, "it was told already");
    }
    assert_eq!(late(&mut looker), 0, "it was told already");
    // One that nobody asked about while it went on.
    let begun = Instant::now();
    assert!(!looker.census.is_later(begun, false));
    while !looker.census.fetch() {
        std::thread::yield_now();
    }
    assert_eq!((late(&mut looker), late(&mut looker)), (1, 0));
}

impl Looker {
    /// Adds a container of this user with this `/dev/shm`.
    fn add_container_of(&mut self, user: Option<u32>, shm: &Path) -> u64 {
        let dir = File::open(shm).unwrap();
        let status = nix::sys::stat::fstat(&dir).unwrap();
        let shm = Shm { dir: dir.into(), status, is_its_users: true };
        let found =
            self.containers.found(&self.base, (1, std::process::id()), shm, (user, user.unwrap_or(0)));
        assert_eq!(found, Discovery::New);
        self.add_container();
        self.containers.all.last().unwrap().number
    }

    /// Reads a base to its end.
    fn read_all(&mut self, number: u64) {
        let rounds = self.bases[&number].rounds;
        while self.bases[&number].rounds == rounds {
            self.read_bases();
        }
    }
}

/// What was refused.
fn refused(found: &Receiver<Found>) -> Vec<(u32, Cause)> {
    let refusal = |found| if let Found::Refusal(user, cause, _) = found { Some((user, cause)) } else { None };
    found.try_iter().filter_map(refusal).collect()
}

// NEEDS: host
#[test]
fn root_users_of_a_container_are_all_served_or_it_is_told() {
    if !nix::unistd::geteuid().is_root() {
        rtscope_testkit::skip!("it needs root");
    }
    // Of each, with the owner of its /dev/shm: directories, served ones, on whose accounts they are (the first and the last), and what is refused.
    let (first, all) = (OTHER + 1, 300);
    for ((user, shm_of), made, served, accounts, refusals) in [
        ((None, 0), all, 300, (first, OTHER + all), vec![]),
        ((Some(0), OTHER), 256, 256, (OTHER, OTHER), vec![]),
        ((Some(0), OTHER), 260, 256, (OTHER, OTHER), vec![(OTHER, Cause::TooManyContainers)]),
        // Who is called root there is root.
        ((Some(0), 0), 256, 256, (first, OTHER + 256), vec![]),
        ((Some(LIAR), LIAR), 32, 32, (LIAR, LIAR), vec![]),
        ((Some(LIAR), LIAR), 40, 32, (LIAR, LIAR), vec![(LIAR, Cause::TooManyContainers)]),
    ] {
        let (base, shm) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::chown(shm.path(), Some(shm_of), None).unwrap();
        for number in 0..made {
            let path = shm.path().join(UserDirectory::name_of(number));
            DirBuilder::new().mode(0o700).create(&path).unwrap();
            std::os::unix::fs::chown(&path, Some(OTHER + 1 + number), None).unwrap();
        }
        let (mut looker, found) = looker(base.path());
        let container = looker.add_container_of(user, shm.path());
        for _ in 0..2 {
            looker.bases.get_mut(&container).unwrap().next = Instant::now();
            looker.read_all(container);
        }
        let places: Vec<u32> = looker
            .places
            .iter()
            .filter(|place| place.container == container)
            .map(|place| place.user)
            .collect();
        let whose = (places.iter().min().copied().unwrap(), places.iter().max().copied().unwrap());
        assert_eq!((places.len(), whose, refused(&found)), (served, accounts, refusals), "{user:?} {shm_of}");
    }
}

#[test]
fn names_in_a_container_of_roots_hide_nobody_and_in_a_users_are_his() {
    for (user, served, refusals) in
        [(None, 1, vec![]), (Some(0), 1, vec![]), (Some(LIAR), 0, vec![(LIAR, Cause::TooManyNames)])]
    {
        let (base, shm) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in(SHARED_MEMORY).unwrap());
        let uid = nix::unistd::geteuid().as_raw();
        let (mut looker, found) = looker(base.path());
        let container = looker.add_container_of(user, shm.path());
        // A tmpfs lists names in the order in which they were made, or the other way around.
        for number in 0..66_000 {
            File::create(shm.path().join(format!("n{number}"))).unwrap();
            if number == 33_000 {
                DirBuilder::new().mode(0o700).create(shm.path().join(UserDirectory::name_of(uid))).unwrap();
            }
        }
        looker.read_all(container);
        let places = looker.places.iter().filter(|place| place.container == container).count();
        assert_eq!((places, refused(&found)), (served, refusals), "{user:?}");
    }
}

#[test]
fn new_names_have_a_part_of_the_time_and_are_found_at_the_next_reading() {
    let uid = nix::unistd::geteuid().as_raw();
    for (is_used_up, heard) in [(false, 1), (true, 0)] {
        let base = tempfile::tempdir().unwrap();
        let (mut looker, _found) = looker(base.path());
        looker.read_all(0);
        let mut watch = DirectoryWatch::new().unwrap();
        watch.watch(base.path(), Watched::Base(0)).unwrap();
        looker.watch = Some(watch);
        if is_used_up {
            let now = Instant::now();
            for has_name in [false, true] {
                let whose = Heard { user: 0, is_container: false, has_name };
                looker.heard.entry(whose).or_insert(Share::new(now)).charge(now, Duration::from_secs(3600));
            }
        }
        DirBuilder::new().mode(0o700).create(base.path().join(UserDirectory::name_of(uid))).unwrap();
        looker.hear();
        assert_eq!(looker.places.len(), heard);
        looker.bases.get_mut(&0).unwrap().next = Instant::now();
        looker.read_all(0);
        assert_eq!(looker.places.len(), 1);
    }
}

#[test]
fn new_names_in_all_containers_of_a_user_have_one_share() {
    let all: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
    let (mut looker, _found) = looker(all[0].path());
    let his = [1, 2].map(|number: usize| looker.add_container_of(Some(LIAR), all[number].path()));
    let of_root = looker.add_container_of(None, all[3].path());
    let made_up = || (LIAR..LIAR + 100_000).collect::<BTreeSet<u32>>();
    let owed =
        |looker: &Looker| looker.heard.values().map(|share| share.owed(Instant::now())).sum::<Duration>();
    let mut turns = 0;
    while owed(&looker) < NAMES_BURST {
        looker.find_named(his[turns % 2], made_up());
        turns += 1;
        assert!(turns < 1000, "{:?}", looker.heard);
    }
    assert!(turns > 1, "{:?} in one turn", looker.heard);
    println!("    {turns} turns");
    let number_of = |looker: &Looker| looker.heard.len();
    assert_eq!(number_of(&looker), 1);
    // As time goes by, some of it is free again, and this machine may be busy.
    looker.heard.values_mut().for_each(|share| share.charge(Instant::now(), Duration::from_secs(3600)));
    // Neither of them has time now; root's, and this machine's, have.
    for (base, is_heard) in [(his[0], false), (his[1], false), (of_root, true), (0, true)] {
        let before = (number_of(&looker), owed(&looker));
        looker.find_named(base, made_up());
        assert_eq!(owed(&looker) > before.1, is_heard, "{base}");
        assert_eq!(number_of(&looker), before.0 + usize::from(is_heard), "{base}");
    }
}

#[test]
fn a_fault_at_one_users_files_is_told_once_and_others_are_looked_at() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let base = tempfile::tempdir().unwrap();
    let (mut looker, found) = looker(base.path());
    looker.add_ended(directories[0].path(), LIAR, 3);
    looker.add_ended(directories[1].path(), OTHER, 3);
    found.try_iter().for_each(drop);
    let [liars, others] = [0, 1].map(|at: usize| looker.places[at].id);
    looker.places[0].is_to_fail = true;
    let mut others_turns = 0;
    for _ in 0..9 {
        looker.places.iter_mut().for_each(|place| place.next = Instant::now());
        looker.rests.clear();
        let listed = |looker: &mut Looker| looker.place(others).map(|place| place.listed);
        let before = listed(&mut looker);
        assert!(looker.turns());
        others_turns += usize::from(listed(&mut looker) > before);
        looker.check();
    }
    let is_told = |found: &Found| matches!(found, Found::GivenUp(..) | Found::Refusal(..));
    let told: Vec<Found> = found.try_iter().filter(is_told).collect();
    let [Found::GivenUp(id, why)] = &told[..] else { panic!("{told:?}") };
    assert!(*id == liars && why.ends_with(": as was asked"), "{told:?}");
    assert!(others_turns >= 8, "{others_turns}");
    // Nothing of it is left here, so that its container can be dropped; and it does not come back under its name.
    assert!(looker.places.iter().all(|place| place.id != liars));
    let uid = nix::unistd::geteuid().as_raw();
    assert!(looker.given_up.contains_key(&(0, uid)), "{:?}", looker.given_up);
    DirBuilder::new().mode(0o700).create(base.path().join(UserDirectory::name_of(uid))).unwrap();
    let places = looker.places.len();
    looker.find_user(0, uid);
    assert_eq!(looker.places.len(), places);
    assert_eq!(found.try_iter().count(), 0);
}

#[test]
fn a_directory_of_directories_that_was_not_read_since_a_look_is_told() {
    let base = tempfile::tempdir().unwrap();
    let (mut looker, _found) = looker(base.path());
    let (requests, requested) = std::sync::mpsc::channel();
    requests.send(Request::Look(1, Until::AllSeen)).unwrap();
    // As who asks does.
    looker.wake.write(1).unwrap();
    assert!(looker.serve(&requested));
    looker.answer();
    let unseen = |looker: &Looker| looker.unseen.lock().unwrap().clone();
    let NotSeen { number, users, is_unread } = unseen(&looker);
    assert_eq!((number, users, is_unread), (1, vec![], true), "there may be users of whom nobody knows");
    while unseen(&looker).is_unread {
        looker.read_bases();
        looker.answer();
    }
    assert!(unseen(&looker).users.is_empty());
}

#[test]
fn who_asks_for_a_look_waits_for_no_rest_of_a_directory_that_is_being_read() {
    let base = tempfile::tempdir().unwrap();
    let name = |number: u32| base.path().join(format!("rtscope-x{number}"));
    (0..20_000).for_each(|number| drop(std::fs::File::create(name(number)).unwrap()));
    let (mut looker, found) = looker(base.path());
    let part = |looker: &mut Looker| drop(looker.bases.get_mut(&0).unwrap().read(None));
    // It is read because it is time for it; then somebody asks, and another one while it is read for him.
    part(&mut looker);
    let (requests, requested) = std::sync::mpsc::channel();
    for number in 1..=2 {
        requests.send(Request::Look(number, Until::AllSeen)).unwrap();
        looker.wake.write(1).unwrap();
        assert!(looker.serve(&requested));
        part(&mut looker);
    }
    let rounds: Vec<u64> = looker.looks.iter().map(|look| look.rounds[&0]).collect();
    assert_eq!(rounds, [1, 2], "what was read for nobody counts for nobody");
    // Reading once takes far less than the rest after it.
    let begun = Instant::now();
    while looker.bases[&0].rounds < 1 {
        looker.read_bases();
    }
    let once = begun.elapsed();
    while looker.bases[&0].rounds < 2 {
        assert!(looker.bases[&0].next <= Instant::now(), "it rests after {once:?}");
        looker.read_bases();
    }
    assert!(looker.bases[&0].next > Instant::now() + once, "it rests when nobody waits");
    drop(found);
}
