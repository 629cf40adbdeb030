// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where work runs that must not be felt by other tasks: on which CPUs those run, which CPUs are kept free, and what is left.
//!
//! On a kernel without preemption a system call of an ordinary task delays a real-time task on its CPU as long as it lasts, and
//! with preemption its locks and interrupts still do. So what observes a task stays off the CPUs of that task.

use crate::{Cpus, Machine};

/// What is known when a place is chosen.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The machine.
    pub machine: Machine,
    /// CPUs that are kept free in other ways than [`Machine::isolated`].
    pub shielded: Cpus,
    /// Where the caller was allowed to run.
    pub allowed: Cpus,
    /// The CPUs of each task that is observed.
    pub targets: Vec<Cpus>,
    /// The CPUs of each other real-time task that is bound to a part of the machine.
    pub neighbours: Vec<Cpus>,
}

/// A set of CPUs to run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The CPUs.
    pub cpus: Cpus,
    /// Whether none of the targets may run on them.
    pub is_apart: bool,
}

impl Surroundings {
    /// Places, the best first. The kernel may refuse one (a cgroup's cpuset): then the next one is for it. The last is where the caller
    /// was.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        let kept = self.machine.isolated.and(&self.shielded);
        let union =
            |all: &mut dyn Iterator<Item = &Cpus>| all.fold(Cpus::default(), |sum, cpus| sum.and(cpus));
        let targets = union(&mut self.targets.iter());
        // A task that may run everywhere leaves no CPU to others: those that are bound to some count.
        let is_bound = |cpus: &&Cpus| !self.machine.online.without(cpus).without(&kept).is_empty();
        let bound = union(&mut self.targets.iter().filter(is_bound));
        let neighbours = union(&mut self.neighbours.iter().filter(is_bound));
        // The caller's wish comes before a neighbour, and a target before the caller's wish.
        let (online, none) = (&self.machine.online, Cpus::default());
        let [all, most] = [targets.and(&neighbours), bound.and(&neighbours)];
        let wishes = [
            (&self.allowed, &all),
            (&self.allowed, &targets),
            (online, &all),
            (online, &targets),
            (&self.allowed, &most),
            (&self.allowed, &bound),
            (online, &most),
            (online, &bound),
            (&self.allowed, &none),
            (online, &none),
        ];
        let mut places: Vec<Place> = Vec::new();
        for (from, avoided) in wishes {
            let cpus = from.of(online).without(&kept).without(avoided);
            if !cpus.is_empty() && places.iter().all(|place| place.cpus != cpus) {
                let is_apart = cpus.is_apart_from(&targets);
                places.push(Place { cpus, is_apart });
            }
        }
        let is_apart = self.allowed.is_apart_from(&targets);
        places.push(Place { cpus: self.allowed.clone(), is_apart });
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(list: &str) -> Cpus {
        Cpus::from_list(list).expect(list)
    }

    /// The first place on eight CPUs, and whether it is apart from the targets.
    fn first(allowed: &str, kept: [&str; 2], targets: &[&str], neighbours: &[&str]) -> (String, bool) {
        let surroundings = Surroundings {
            machine: Machine { online: cpus("0-7"), isolated: cpus(kept[0]) },
            shielded: cpus(kept[1]),
            allowed: cpus(allowed),
            targets: targets.iter().map(|list| cpus(list)).collect(),
            neighbours: neighbours.iter().map(|list| cpus(list)).collect(),
        };
        let place = surroundings.places().remove(0);
        (place.cpus.to_string(), place.is_apart)
    }

    #[test]
    fn the_cpus_of_targets_and_those_kept_free_are_left() {
        assert_eq!(first("0-7", ["", ""], &[], &[]), ("0-7".to_string(), true));
        assert_eq!(first("0-7", ["", ""], &["1"], &[]), ("0,2-7".to_string(), true));
        assert_eq!(first("0-7", ["6", "7"], &["1", "2-3"], &[]), ("0,4-5".to_string(), true));
        assert_eq!(first("0-7", ["", ""], &["1"], &["5"]), ("0,2-4,6-7".to_string(), true));
    }

    #[test]
    fn a_caller_on_the_targets_cpu_leaves_it_and_one_elsewhere_stays() {
        assert_eq!(first("1", ["", ""], &["1"], &[]), ("0,2-7".to_string(), true));
        assert_eq!(first("2-3", ["", ""], &["1"], &[]), ("2-3".to_string(), true));
        assert_eq!(first("7", ["7", ""], &["7"], &[]), ("0-6".to_string(), true));
        assert_eq!(
            first("3", ["", ""], &["1"], &["3"]),
            ("3".to_string(), true),
            "neighbours do not move it"
        );
    }

    #[test]
    fn a_target_that_may_run_everywhere_does_not_hide_those_that_are_bound() {
        assert_eq!(first("0-7", ["", ""], &["0-7"], &[]), ("0-7".to_string(), false));
        assert_eq!(first("0-7", ["", ""], &["0-7", "1"], &[]), ("0,2-7".to_string(), false));
        assert_eq!(first("0-7", ["4-7", ""], &["0-3", "1"], &[]), ("0,2-3".to_string(), false));
        assert_eq!(first("0-7", ["", ""], &["0-3", "4-7"], &[]), ("0-7".to_string(), false));
    }

    #[test]
    fn where_the_caller_was_is_the_last_place() {
        let surroundings = Surroundings { allowed: cpus("9"), ..Surroundings::default() };
        assert_eq!(surroundings.places(), [Place { cpus: cpus("9"), is_apart: true }]);
        let machine = Machine { online: cpus("0"), isolated: cpus("") };
        let alone =
            Surroundings { machine, allowed: cpus("0"), targets: vec![cpus("0")], ..Surroundings::default() };
        assert!(alone.places().iter().all(|place| place.cpus == cpus("0") && !place.is_apart));
    }
}
