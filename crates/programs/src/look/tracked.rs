// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that has files in a user's directory: which one it is here, whether it lives, and which of its events are enabled.

use super::Session;
use super::life::{KnownProcess, Life, MappedFiles, Offsets, Processes, seccomp};
use crate::census::{Census, LocalProcess};
use crate::directory::ProcessId;
use crate::provider::Provider;
use crate::session::Settings;
use rtscope_abi::program as abi;
use std::time::Instant;

/// What a process says of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leader {
    /// When its file was found: it may be of a process that started just before.
    pub(super) seen: Instant,
    pub(super) pid_namespace: u64,
    pub(super) seccomp: u32,
    pub(super) version: u32,
    /// Its file, by device and inode number.
    pub(super) file: (u64, u64),
    pub(super) time_namespace: (u64, Offsets),
}

/// A process that has files here.
#[derive(Debug, Default)]
pub(super) struct Tracked {
    /// Of its provider with the number 0.
    pub(super) leader: Option<Leader>,
    pub(super) known: Option<KnownProcess>,
    /// In which list its leader was found, and the session that it had then.
    found: Option<(Instant, u64)>,
    /// What its CLOCK_MONOTONIC shows more than this process's.
    pub(super) monotonic_offset_ns: i64,
    /// Rings whose files are there.
    pub(super) rings: usize,
    pub(super) is_confined: bool,
    pub(super) has_ended: bool,
    /// A killed recorder had events enabled: what is found of it is held until its rings are.
    pub(super) is_held: bool,
    /// One of those events is requested now, too.
    pub(super) has_same: bool,
    /// It was a flight recorder: nobody was to take what its rings hold. As long as the process is held.
    pub(super) was_flight: bool,
    /// Nobody owes a recording what is older than this one: also not what a thread was at when a recorder ended in order, or when a flight recorder
    /// was killed.
    pub(super) drops_earlier: bool,
    /// Nothing more is taken from it.
    pub(super) is_refused: bool,
}

impl Tracked {
    /// Finds its number in this PID namespace, on this user's account. False: nothing can be said, for lack of file descriptors or memory, or since it does not
    /// answer.
    pub(super) fn locate(
        &mut self,
        id: ProcessId,
        census: &Census,
        (processes, user): (&mut Processes, u32),
    ) -> bool {
        let (None, Some(leader)) = (self.known, self.leader) else { return true };
        let claimed = processes.claimed(leader.time_namespace);
        if leader.version >= 2 {
            self.monotonic_offset_ns = claimed.monotonic_ns;
        }
        if let LocalProcess::Process(here) = census.find(leader.pid_namespace, id.pid) {
            let claimed = (leader.version >= 2).then_some(claimed);
            match processes.recognise(user, (here, id.birth_ns), claimed) {
                Ok(Some((known, offsets))) => {
                    self.known = Some(known);
                    self.monotonic_offset_ns = offsets.unwrap_or_default().monotonic_ns;
                }
                // Another process has the number now.
                Ok(None) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Whether it runs, as far as can be known. `is_deserted`: of a container's process, whether no process of it ran at the last scan.
    pub(super) fn lives(
        &mut self,
        id: ProcessId,
        census: &Census,
        (processes, user): (&mut Processes, u32),
        is_deserted: Option<bool>,
    ) -> bool {
        if !self.locate(id, census, (processes, user)) {
            return true;
        }
        match (self.known, self.leader, is_deserted) {
            (Some(known), ..) => processes.life(user, known) != Life::Ended,
            // In this PID namespace, or nowhere.
            (None, Some(leader), _) if census.is_own(leader.pid_namespace) => false,
            (None, Some(leader), _) => {
                let is_older = census.begun.is_none_or(|begun| begun <= leader.seen);
                is_older || census.find(leader.pid_namespace, id.pid) == LocalProcess::Unknown
            }
            // Without a provider's file its PID namespace is unknown: it is this one, if the file is not in a container's directory.
            (None, None, Some(is_deserted)) => !is_deserted,
            (None, None, None) => !matches!(processes.recognise(user, (id.pid, id.birth_ns), None), Ok(None)),
        }
    }

    /// Another leader of its number is newer (`by`: its version): whether that is because it has become another program (execve(2)), or its number is used again.
    /// Then nobody there has its file mapped. Of version 1, which has no lock that tells; a library of its own process can be the other one. Where mappings may not be
    /// read, it is one of version 1: of that most processes have one leader. Who has no such file is replaced. One that does not answer is not, nor one of another PID namespace that was
    /// not found yet.
    pub(super) fn is_replaced(
        &self,
        by: u32,
        mapped: &mut MappedFiles,
        whose: (&mut Processes, u32),
    ) -> bool {
        let Some(leader) = self.leader else { return true };
        let Some(known) = self.known else { return false };
        mapped.has(leader.file, known, whose).is_ok_and(|has| has.map_or(by < 2, |has| !has))
    }

    /// Whether it has come under seccomp since it started, and that was not known: then a system call might end it. A container's
    /// filter, which was installed before, lets the same calls pass as before.
    pub(super) fn is_confined_now(&mut self) -> bool {
        let (Some(known), Some(leader), false) = (self.known, self.leader, self.is_confined) else {
            return false;
        };
        self.is_confined = seccomp(known.pid).is_some_and(|mode| mode != leader.seccomp);
        self.is_confined
    }

    /// Finds out whether a recorder that was killed has left events enabled, and disables them. `listed`: when the directory was listed in which it is found.
    pub(super) fn find_others(&mut self, provider: &Provider, session: &Session, listed: Instant) {
        if provider.info.number == 0 {
            self.found = Some((listed, provider.session()));
        }
        // Of libraries that are found later: by then it has this one.
        let leaders = self.found.filter(|(found, _)| *found == listed).map_or(session.id, |(_, had)| had);
        let left = provider.left_by_others(session.id, leaders, &session.settings.events);
        if provider.info.number == 0 {
            // A recorder that ends in order clears the flags. A program that has just started may have set those of this session.
            self.was_flight = !session.settings.flight && provider.flags() & abi::RTU_FLIGHT != 0;
            // Recorders of an earlier version set no flag for what they owe.
            let is_owed = provider.flags() & abi::RTU_STREAMED != 0 || left.is_some() && !self.was_flight;
            self.drops_earlier = !is_owed;
        }
        self.has_same |= left == Some(true);
        self.is_held |= left.is_some() || self.was_flight;
        if left.is_some() {
            provider.enable(None);
        }
    }

    /// Whether what the killed recorder has left, and lost, is nothing that this one is to have.
    pub(super) fn owes_nothing(&self) -> bool {
        self.was_flight || !self.has_same
    }

    /// Enables the requested events.
    pub(super) fn enable(&mut self, provider: &Provider, session: &Session) {
        // The flags first: already the first event may have to avoid system calls.
        if provider.info.number == 0 {
            let confined = if self.is_confined_now() { abi::RTU_NO_LAZY } else { 0 };
            let settings = &session.settings;
            provider.beat();
            provider.set_session(session.id, settings.flags() | confined, settings.ring_bytes);
        }
        let Settings { events, channels, .. } = &session.settings;
        provider.enable(Some((session.id, events, channels.as_ref())));
    }
}
