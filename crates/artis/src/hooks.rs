// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs at the entry and the exit of system calls without the scheduler, to measure what they cost on CPUs that are not for
//! real-time work. That needs no kernel with schedulers in eBPF.

use crate::Error;
use crate::probe::ENTRIES;
use crate::scheduler::{LEAVE, bpf, open};
use libbpf_rs::{Link, Object};

/// Programs that do nothing, at the same two places: what the kernel itself takes.
pub(crate) const EMPTY: [&str; 2] = ["empty_enter", "empty_leave"];

/// Loaded programs. Dropping it takes them out.
#[derive(Debug)]
pub struct Hooks {
    links: Vec<Link>,
    object: Object,
}

impl Hooks {
    /// Programs that do nothing; `both`: also at the exit.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn empty(both: bool) -> Result<Hooks, Error> {
        Hooks::load(&EMPTY[..1 + usize::from(both)])
    }

    /// The scheduler's programs; `both`: also at the exit, as while there are RT1 tasks.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn real(both: bool) -> Result<Hooks, Error> {
        let all = [ENTRIES[0].2, LEAVE];
        Hooks::load(&all[..1 + usize::from(both)])
    }

    fn load(names: &[&str]) -> Result<Hooks, Error> {
        let mut open = open()?;
        for mut program in open.progs_mut() {
            let wanted = names.iter().any(|name| program.name() == *name);
            program.set_autoload(wanted);
        }
        for mut map in open.maps_mut().filter(|map| map.name() == "artis_ops") {
            map.set_autocreate(false).map_err(|error| bpf("leaving the scheduler out", error))?;
        }
        let object = open.load().map_err(|error| bpf("loading the programs", error))?;
        Ok(Hooks { links: Vec::new(), object })
    }

    /// Attaches them.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach(&mut self) -> Result<(), Error> {
        for program in self.object.progs_mut().filter(|program| program.autoload()) {
            self.links.push(program.attach().map_err(|error| bpf("attaching", error))?);
        }
        Ok(())
    }

    /// Takes them off.
    pub fn detach(&mut self) {
        self.links.clear();
    }
}
