// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was there before, on disk before the first change.
//!
//! The journal is whole at any time: it is written beside itself, synchronised, and renamed. It is in /run, which a reboot
//! empties, as a reboot sets every setting back; where /run outlives one, the kernel's boot id tells.

use crate::effective::{self, EffectiveAffinity};
use crate::keeper::Keeper;
use crate::knobs::{KEPT, Level};
use crate::partition::Isolation;
use crate::step::Step;
use crate::{Error, System};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Where it is.
pub const PATH: &str = "/run/rtscope/shield.json";
const LOCK: &str = "/run/rtscope/shield.lock";
/// How often a process that waits for the lock tries again.
const LOOK: Duration = Duration::from_millis(20);
/// A process that may open a file may lock it, and so hold up all others: only root may open this one.
const LOCK_MODE: u32 = 0o600;
/// Others may write.
const STRANGERS: u32 = 0o022;
const SCHEMA: &str = "rtscope.shield/1";

/// How far making or undoing came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Being made. A process that finds this and gets the lock knows that the maker is dead.
    Creating,
    /// Made.
    Active,
    /// Being undone, or not all of it could be.
    Undoing,
    /// Undone, but for what somebody else has changed since.
    Left,
}

/// The journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    schema: String,
    boot_id: String,
    /// How far it came.
    pub state: State,
    /// The real-time CPUs, as a list.
    pub rt: String,
    /// The others, as a list.
    pub others: String,
    /// How far the shield goes.
    pub level: Level,
    /// How CPUs are isolated.
    pub apart: Isolation,
    /// The numbers of the interrupts that stay.
    #[serde(default)]
    pub kept_irqs: Vec<u32>,
    /// Where the interrupts came to that it moves.
    #[serde(default)]
    pub effective: Vec<EffectiveAffinity>,
    /// The kernel's ticks since boot when it was made: threads that began later inherited from it.
    pub began: Option<u64>,
    /// The process that holds the scheduler, where one lends the CPUs.
    #[serde(default)]
    pub keeper: Option<Keeper>,
    /// All changes, in the order in which they were made.
    pub steps: Vec<Step>,
}

/// The right to make, change or undo the shield. It goes with the process.
#[derive(Debug)]
pub struct Lock {
    _file: Flock<File>,
}

impl Lock {
    /// Takes it, or says that somebody has it.
    pub fn take(system: &System) -> Result<Lock, Error> {
        Lock::with(system, FlockArg::LockExclusiveNonblock)
    }

    /// Takes it as soon as nobody else has it, or says after a time that somebody still has.
    pub fn take_within(system: &System, patience: Duration) -> Result<Lock, Error> {
        let end = Instant::now() + patience;
        loop {
            match Lock::take(system) {
                Err(Error::Busy) if Instant::now() < end => sleep(LOOK),
                taken => return taken,
            }
        }
    }

    /// Waits for it: for what takes no time, and may be done by many at once.
    pub fn wait(system: &System) -> Result<Lock, Error> {
        Lock::with(system, FlockArg::LockExclusive)
    }

    fn with(system: &System, how: FlockArg) -> Result<Lock, Error> {
        let path = system.path(LOCK);
        if let Some(directory) = path.parent() {
            System::make_own_directory(directory)?;
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(LOCK_MODE).open(&path);
        let file = file.map_err(Error::io("open", &path))?;
        // One that an older rtscope made.
        file.set_permissions(Permissions::from_mode(LOCK_MODE)).map_err(Error::io("protect", &path))?;
        match Flock::lock(file, how) {
            Ok(file) => Ok(Lock { _file: file }),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Err(Error::Busy),
            Err((_, errno)) => Err(Error::io("lock", &path)(errno.into())),
        }
    }
}

fn boot_id(system: &System) -> String {
    system.read("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl Journal {
    /// One for a shield that is about to be made.
    pub fn new(system: &System, plan: &crate::plan::Plan) -> Journal {
        Journal {
            schema: SCHEMA.to_owned(),
            boot_id: boot_id(system),
            state: State::Creating,
            rt: plan.rt.to_string(),
            others: plan.others.to_string(),
            level: plan.level,
            apart: plan.apart.clone(),
            kept_irqs: plan.kept.iter().map(|kept| kept.irq).collect(),
            effective: effective::before(system, &plan.steps),
            began: crate::tasks::start_of(system, std::process::id() as i32),
            keeper: None,
            steps: plan.steps.clone(),
        }
    }

    /// The one on disk, if there is one of this boot.
    pub fn load(system: &System) -> Result<Option<Journal>, Error> {
        let path = system.path(PATH);
        // Not through System::read, which has a limit that some thousand threads pass.
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", &path)(error)),
        };
        let wrong = |reason: String| Error::Journal { path: path.display().to_string(), reason };
        // Undoing writes whatever it says wherever it says.
        let found = fs::metadata(&path).map_err(Error::io("read", &path))?;
        if system.is_real() && (found.uid() != 0 || found.mode() & STRANGERS != 0) {
            return Err(wrong("others than root may write it".to_owned()));
        }
        let journal: Journal = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if journal.schema != SCHEMA {
            return Err(wrong(format!("it is of version '{}', not {SCHEMA}", journal.schema)));
        }
        Ok(Some(journal).filter(|journal| journal.boot_id == boot_id(system)))
    }

    /// The steps that change something; the others only remember.
    pub fn changes(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.knob != KEPT)
    }

    /// Puts it on disk.
    pub fn save(&self, system: &System) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Error::io("write", &system.path(PATH))(error.into()))?;
        system.replace(PATH, &text)
    }

    /// Takes it from disk.
    pub fn remove(system: &System) -> Result<(), Error> {
        let path = system.path(PATH);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", &path)(error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn who_waits_for_the_lock_gets_it_when_it_is_free_and_gives_up_when_it_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let system = System::new(directory.path());
        let first = Lock::take(&system).expect("free");
        let short = Lock::take_within(&system, LOOK);
        assert!(matches!(short, Err(Error::Busy)), "{short:?}");
        thread::scope(|scope| {
            let waits = scope.spawn(|| Lock::take_within(&system, Duration::from_secs(60)));
            drop(first);
            waits.join().expect("no panic").expect("free again");
        });
    }
}
