// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What one user can make the collector hold or do: every limit, in one place.
//!
//! The collector of root serves all users, and each of them can write anything. So whatever a user can cause (files opened, memory
//! mapped, descriptions kept, time spent looking) is charged to that user's account and limited there; at a limit only that user's
//! programs are refused, and the refusal is counted with the user and the cause. A container's programs are charged to the user who
//! made the container's user namespace, since a container can have any number of users.

use crate::memory::MAPPINGS_MAX;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Names in a user's directory. Each is read at every look, some 200 ns.
pub(crate) const NAMES_MAX: usize = 32_768;
/// A directory with too many names is looked at again only after this time.
pub(crate) const CROWDED_FOR: Duration = Duration::from_secs(10);
/// Mapped files: rings and providers. Some are left for other users, see [`Account::charge`].
pub(crate) const FILES_MAX: usize = MAPPINGS_MAX / 3;
/// Address space for them. The memory behind it is the user's: files with holes are refused.
const MAPPED_BYTES_MAX: u64 = 1 << 40;
/// Texts of descriptions. Parsed, they take some ten times as much.
const TEXT_BYTES_MAX: u64 = 64 << 20;
/// Rings of one process at a time. A program has at most 4096 of threads that run (RTSCOPE__RINGS_MAX), and leaves some as many of threads
/// that have ended (RTU_BEAT_RINGS): more are an attack, not threads.
pub(crate) const RINGS_OF_PROCESS_MAX: usize = 16_384;
/// Processes that have not ended.
pub(crate) const PROCESSES_MAX: usize = 8192;
/// Ended or refused processes whose reports are retained one by one; further ones are only counted.
pub(crate) const REPORTS_MAX: usize = 256;

/// Opening new files, in one turn of looking. The turn then passes to the next user.
pub(crate) const TURN: Duration = Duration::from_millis(5);
/// After a turn a user waits for this many times as long as it took: looking for one user's files takes a tenth of a CPU at most.
pub(crate) const REST: u32 = 9;
/// The same between two turns for the recorder's own programs on its own machine, of which more files are known: from nobody else is that
/// time taken, and a program whose threads come and go makes thousands a second.
pub(crate) const REST_OWN: u32 = 1;
/// New rings of a process in one listing, beyond which it makes more than can be opened: it is told nothing of the collector until there are
/// less, and so makes RTU_BEAT_RINGS at most.
pub(crate) const BEHIND_RINGS: usize = 512;

/// When to go on after something that took this long.
pub(crate) fn rest_after(begun: Instant) -> Instant {
    let now = Instant::now();
    now + now.duration_since(begun) * REST
}

/// The looks that a recording waits for, at its beginning and at its end.
pub(crate) const FIRST_LOOK: Duration = Duration::from_secs(2);
pub(crate) const LAST_LOOK: Duration = Duration::from_secs(1);
/// A walk to a container's `/dev/shm` that takes longer hangs: something on its way waits for a server.
pub(crate) const WALK: Duration = Duration::from_millis(500);
/// Walks of one user that wait.
pub(crate) const WALKS_OF_USER: usize = 64;
/// One part in so many of the time is for what one user, or nobody knows who, can cause any number of: the walks of each user, which take 20 to 50 µs where
/// nobody makes them slow, and new names in a directory of directories.
pub(crate) const SHARE: u32 = 10;
/// So much more at once.
pub(crate) const WALKS_BURST: Duration = Duration::from_millis(100);
pub(crate) const NAMES_BURST: Duration = Duration::from_millis(20);
/// Users whose walks are told apart: the others share what one has. A user of a user namespace is on the account of whoever made it.
pub(crate) const WALKS_USERS_MAX: usize = 64;
/// A walk that waits for longer is reported.
pub(crate) const WALKS_LATE: Duration = Duration::from_secs(3);
/// Directories of one user, in all containers: each holds a few file descriptors.
pub(crate) const PLACES_OF_USER: usize = 32;
/// Directories in a container for which root has made a user namespace.
pub(crate) const PLACES_OF_CONTAINER: usize = 256;
/// Users whose places one user has taken: so many are told one by one, besides those who have a name on this machine or are asked for; and so
/// many are counted.
pub(crate) const TAKEN_TOLD: usize = 16;
pub(crate) const TAKEN_COUNTED: usize = 1024;
/// Users whose taken places, and other directories that cannot be used, are told apart: the others share what one has.
pub(crate) const TAKERS_MAX: usize = 256;
/// A census of all processes that takes longer is reported: the next one begins after twice that time, so containers are looked for less often
/// than once a second.
pub(crate) const CENSUS_LATE: Duration = Duration::from_millis(500);
/// Walks that hang, of one user, of containers that root has made, and in all: each holds a thread.
pub(crate) const HANGING_OF_USER: usize = 1;
pub(crate) const HANGING_OF_ROOT: usize = 8;
pub(crate) const HANGING_MAX: usize = 16;

/// What a process answers takes some 30 µs, unless its user holds it: then it is left alone until it does, and all of his others are.
pub(crate) const ANSWER: Duration = Duration::from_millis(20);
/// The same in a census, for which nobody waits; and after some that did not answer in it.
pub(crate) const VISIT: Duration = Duration::from_millis(50);
pub(crate) const VISIT_CROWD: Duration = Duration::from_millis(5);
/// Processes that do not answer in a census, of one user and in all: each holds a thread. A container that root has made has any number of users, so all are many.
pub(crate) const SILENT_OF_USER: usize = 8;
pub(crate) const SILENT_MAX: usize = 256;

/// Emptying one user's rings, before the next user's turn; and at the end of a recording.
pub(crate) const DRAIN: Duration = Duration::from_millis(5);
pub(crate) const LAST_DRAIN: Duration = Duration::from_secs(5);
/// CPU time for one user's new events in a look of a flight recorder, what the sink does with each included.
pub(crate) const ARRIVALS: Duration = Duration::from_millis(10);
/// Bytes taken from one ring before the next ring's turn.
pub(crate) const TAKE_BYTES: u64 = 8 << 20;
/// Bytes of one user's rings in a snapshot of a flight recorder.
pub(crate) const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;

/// Why something of a user is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The directory has too many names: new programs are not looked for in it.
    TooManyNames,
    /// Too many files.
    TooManyFiles,
    /// Too many processes.
    TooManyProcesses,
    /// The descriptions of all of the user's programs are too large.
    TooMuchText,
    /// The rings are too large together.
    TooManyBytes,
    /// A second name of a file that is known.
    SecondName,
    /// A file with holes, which no program makes.
    Holes,
    /// A program's files are not valid, or changed in a way that no program changes them.
    Invalid,
    /// Somebody else has made the directory in which this user's programs leave their files, or it is open to others: they run untraced.
    PlaceTaken,
    /// This user has made names for the directories of more users than are told one by one.
    PlacesOfOthers,
    /// The `/dev/shm` of a container cannot be reached without waiting for a server in user space or on the network.
    Unreachable,
    /// The `/dev/shm` of a container is a directory of somebody else's, which this user has mounted there.
    ShmOfOthers,
    /// A container was looked at late, or not at all: walks take long.
    ContainersLate,
    /// Looking through all processes of the machine took long: programs of containers were found late, or not at all. Nobody knows whose.
    CensusLate,
    /// The user has too many containers, or subordinate users with programs.
    TooManyContainers,
    /// There were no file descriptors, or no memory, left for this user's directory.
    Shortage,
    /// `/dev/shm`, of this machine or a container, has no room: programs that have no files yet can make none. Nobody knows whose.
    NoRoom,
    /// Only root may make directories in `/dev/shm`: programs of others have no files. Nobody knows whose.
    Closed,
    /// The user's directory does not answer: he holds its lock. New programs of his are not looked for meanwhile.
    Held,
    /// A process of this user keeps from others what the kernel says of it: whether it runs, and in which container, is not known meanwhile.
    NoAnswer,
    /// Looking at the user's files failed, which is a fault of this recorder: his directory is given up. Without a user: all are.
    Fault,
    /// The recording ended, or a snapshot was taken, before all of the user's files had been looked at. Without a user: before all users had been found.
    NotLookedAt,
    /// The recording ended before all of the user's rings had been emptied, or a snapshot had no space for them.
    NotTaken,
}

impl Cause {
    /// For people.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Cause::TooManyNames => {
                "directory has too many names; new programs of this user are not looked for in it"
            }
            Cause::TooManyFiles => "this user has too many programs or threads",
            Cause::TooManyProcesses => "this user has too many programs",
            Cause::TooMuchText => "the descriptions of this user's events are too large together",
            Cause::TooManyBytes => "the buffers of this user are too large together",
            Cause::SecondName => "it is a second name of a file that is known",
            Cause::Holes => "its file has holes, which no program makes",
            Cause::Invalid => "its files are not valid",
            Cause::PlaceTaken => {
                "the place of this user's files is somebody else's, or open to others; its programs run untraced"
            }
            Cause::PlacesOfOthers => {
                "this user has taken the places of more users' files than are told one by one; programs of those users run untraced"
            }
            Cause::Unreachable => "/dev/shm of a container cannot be reached without waiting for somebody",
            Cause::ShmOfOthers => {
                "/dev/shm of a container is a directory that is not this user's; programs in it are not recorded"
            }
            Cause::ContainersLate => {
                "containers of this user waited for long, or in vain, to be looked at; their programs are recorded late, or not"
            }
            Cause::CensusLate => {
                "looking through all processes of the machine took long; programs of containers may be recorded late, or not: of whom, and how many events that are, is unknown"
            }
            Cause::TooManyContainers => {
                "this user has too many containers, or subordinate users with programs"
            }
            Cause::Shortage => {
                "the recorder had no file descriptors or memory left; programs of this user are not recorded"
            }
            Cause::NoRoom => {
                "/dev/shm had no room for files of programs; those that started then are not recorded, and how many events that are is unknown"
            }
            Cause::Closed => {
                "only root may make directories in /dev/shm (its mode is not 1777); programs of other users are not recorded, and how many events that are is unknown"
            }
            Cause::Held => {
                "this user's directory does not answer, since its user holds it; his programs are recorded late, or not"
            }
            Cause::NoAnswer => {
                "a process of this user does not answer; until it does, it is not known which of his programs run, and new containers that it is in may not be found"
            }
            Cause::Fault => {
                "looking for programs failed, which is a fault of rtscope: please report it; programs and threads that start from now on are not recorded"
            }
            Cause::NotLookedAt => {
                "the recording ended, or a snapshot was taken, before all files of this user had been looked at"
            }
            Cause::NotTaken => "there was no time or space for all that the buffers of this user hold",
        }
    }
}

/// What was left out of one user for one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The user; `None`: nobody knows whose it was.
    pub user: Option<u32>,
    /// Why.
    pub cause: Cause,
    /// How often.
    pub count: u64,
    /// The first one: a file, a process or a directory.
    pub example: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (text, count, example) = (self.cause.text(), self.count, &self.example);
        match self.user {
            Some(user) => write!(f, "user {user}: {text} (refused: {count}; first: {example})"),
            None => write!(f, "{text} (times: {count}; first: {example})"),
        }
    }
}

/// All refusals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals {
    all: BTreeMap<(Option<u32>, Cause), (u64, String)>,
}

impl Refusals {
    pub(crate) fn add(&mut self, user: u32, cause: Cause, example: &str) {
        self.add_of(Some(user), cause, example);
    }

    /// What may be anybody's.
    pub(crate) fn add_of(&mut self, user: Option<u32>, cause: Cause, example: &str) {
        let (count, _) = self.all.entry((user, cause)).or_insert_with(|| (0, example.to_string()));
        *count += 1;
    }

    pub(crate) fn list(&self) -> Vec<Refusal> {
        let all = self.all.iter();
        let refusal = |((user, cause), (count, example)): (&(Option<u32>, Cause), &(u64, String))| Refusal {
            user: *user,
            cause: *cause,
            count: *count,
            example: example.clone(),
        };
        all.map(refusal).collect()
    }
}

/// What a user has mapped.
#[derive(Debug, Default)]
pub(crate) struct Account {
    files: AtomicUsize,
    bytes: AtomicU64,
    text_bytes: AtomicU64,
}

/// Mapped files of all users.
static FILES: AtomicUsize = AtomicUsize::new(0);

/// A part of an account, returned when this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: u64,
    text_bytes: u64,
}

impl Account {
    /// Charges a file of `bytes`, of which `text_bytes` are descriptions. A user gets at most half of what the others leave.
    pub(crate) fn charge(self: &Arc<Account>, bytes: u64, text_bytes: u64) -> Result<Charge, Cause> {
        // ORDER: relaxed, all of them; counts that stand for themselves. One thread adds, so the limits hold.
        let (mine, all) = (self.files.load(Ordering::Relaxed), FILES.load(Ordering::Relaxed));
        let left = MAPPINGS_MAX.saturating_sub(all.saturating_sub(mine));
        if mine >= FILES_MAX.min(left / 2) {
            return Err(Cause::TooManyFiles);
        }
        // ORDER: as above.
        if self.bytes.load(Ordering::Relaxed).saturating_add(bytes) > MAPPED_BYTES_MAX {
            return Err(Cause::TooManyBytes);
        }
        // ORDER: as above.
        if self.text_bytes.load(Ordering::Relaxed).saturating_add(text_bytes) > TEXT_BYTES_MAX {
            return Err(Cause::TooMuchText);
        }
        // ORDER: as above.
        self.files.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.text_bytes.fetch_add(text_bytes, Ordering::Relaxed);
        FILES.fetch_add(1, Ordering::Relaxed);
        Ok(Charge { account: Arc::clone(self), bytes, text_bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // ORDER: relaxed; as in Account::charge().
        self.account.files.fetch_sub(1, Ordering::Relaxed);
        self.account.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.account.text_bytes.fetch_sub(self.text_bytes, Ordering::Relaxed);
        FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_has_mapped_is_limited_and_returned() {
        let account = Arc::new(Account::default());
        let first = account.charge(1, TEXT_BYTES_MAX).unwrap();
        assert_eq!(account.charge(1, 1).unwrap_err(), Cause::TooMuchText);
        assert_eq!(account.charge(MAPPED_BYTES_MAX, 0).unwrap_err(), Cause::TooManyBytes);
        drop(first);
        let all: Vec<Charge> = std::iter::from_fn(|| account.charge(1, 0).ok()).collect();
        // Other tests map files, too.
        assert!(all.len() <= FILES_MAX && all.len() > FILES_MAX / 2, "{}", all.len());
        let another = Arc::new(Account::default());
        assert!(another.charge(1, 1).is_ok(), "some are left for others");
        drop(all);
        assert!(account.charge(MAPPED_BYTES_MAX, TEXT_BYTES_MAX).is_ok());
    }
}
