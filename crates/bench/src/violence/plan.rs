// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happens in a round, all of it from the seed: which programs, where, which recorder, and when who is killed.
//!
//! Instants are planned, not what the machine makes of them: repeating a seed repeats the attack, not the interleaving.

use rtscope_testkit::random::Random;
use std::fmt;

use super::liars::Liar;

/// An ordinary user that programs of a round may have.
pub const USER: u32 = 4711;
/// How far the clocks of a time namespace are ahead.
pub const AHEAD_SECONDS: i64 = 600;

/// Which recorder collects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorder {
    /// `record -u`.
    Programs,
    /// `record -k -u`.
    WithKernel,
    /// `record -u --flight-recorder`, with snapshots.
    Flight,
}

/// Where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Beside the recorder.
    Here,
    /// In a time namespace, with the recorder's `/dev/shm`.
    OtherTime,
    /// In mount and PID namespaces, with a private `/dev/shm`.
    Container,
    /// The same, made by an ordinary user in a user namespace.
    UserContainer,
}

/// One program of a round.
#[derive(Clone, Debug)]
pub struct ProgramPlan {
    pub place: Place,
    /// By [`USER`] instead of root.
    pub of_user: bool,
    /// Its libraries have all of its events.
    pub plain: bool,
    pub threads: u32,
    pub seed: u64,
    /// When it is killed, in ms after its start.
    pub killed_at_ms: Option<u64>,
}

/// Something that is done to the recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// SIGKILL; another one is started after this many ms.
    Kill { pause_ms: u64 },
    /// SIGSTOP, and SIGCONT after this many ms.
    Stop { pause_ms: u64 },
    /// `rtscope snapshot`.
    Snapshot,
}

/// A round.
#[derive(Clone, Debug)]
pub struct RoundPlan {
    pub recorder: Recorder,
    /// It has a PID namespace, in which containers are found.
    pub has_containers: bool,
    pub programs: Vec<ProgramPlan>,
    pub lasts_ms: u64,
    pub buffer: &'static str,
    /// In order of time, ms after the programs started.
    pub blows: Vec<(u64, Blow)>,
    pub liars: Vec<Liar>,
}

impl RoundPlan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> RoundPlan {
        let mut random = Random(seed);
        let recorder = match random.below(10) {
            0 => Recorder::WithKernel,
            1 | 2 => Recorder::Flight,
            _ => Recorder::Programs,
        };
        let has_containers = recorder != Recorder::WithKernel && random.below(4) == 0;
        let lasts_ms = 400 + random.below(600);
        let programs = programs(&mut random, has_containers, lasts_ms);
        let buffer = ["64K", "256K", "256K", "1M"][random.index(4)];
        let blows = blows(&mut random, recorder, lasts_ms);
        let liars = if random.below(5) < 3 { liars(&mut random) } else { Vec::new() };
        RoundPlan { recorder, has_containers, programs, lasts_ms, buffer, blows, liars }
    }
}

fn programs(random: &mut Random, has_containers: bool, lasts_ms: u64) -> Vec<ProgramPlan> {
    let count = if random.below(3) == 0 { 2 } else { 1 };
    let mut programs = Vec::new();
    for index in 0..count {
        let place = match random.below(8) {
            0 if !has_containers => Place::OtherTime,
            0..=4 if has_containers => Place::Container,
            5 | 6 if has_containers => Place::UserContainer,
            _ => Place::Here,
        };
        let killed_at_ms = (random.below(3) == 0).then(|| 20 + random.below(lasts_ms));
        programs.push(ProgramPlan {
            place,
            of_user: place == Place::UserContainer || place == Place::Here && random.below(3) == 0,
            plain: random.below(4) == 0,
            threads: if index == 0 { 64 } else { 8 + random.below(16) as u32 },
            seed: random.next() >> 1,
            killed_at_ms,
        });
    }
    programs
}

fn blows(random: &mut Random, recorder: Recorder, lasts_ms: u64) -> Vec<(u64, Blow)> {
    let mut blows = Vec::new();
    let kills = [0, 0, 1, 1, 2, 3][random.index(6)];
    for _ in 0..kills {
        blows.push((random.below(lasts_ms + 100), Blow::Kill { pause_ms: random.below(200) }));
    }
    if random.below(3) == 0 {
        blows.push((random.below(lasts_ms), Blow::Stop { pause_ms: 20 + random.below(400) }));
    }
    if recorder == Recorder::Flight {
        for _ in 0..1 + random.below(3) {
            blows.push((random.below(lasts_ms), Blow::Snapshot));
        }
    }
    blows.sort_by_key(|(at, _)| *at);
    blows
}

fn liars(random: &mut Random) -> Vec<Liar> {
    let mut all: Vec<Liar> = Liar::ALL.to_vec();
    let count = 2 + random.index(4);
    (0..count).map(|_| all.swap_remove(random.index(all.len()))).collect()
}

impl fmt::Display for RoundPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, buffer {}, {} ms", self.recorder, self.buffer, self.lasts_ms)?;
        for program in &self.programs {
            let user = if program.of_user { ", of a user" } else { "" };
            let plain = if program.plain { ", events in libraries only" } else { "" };
            write!(f, "; {} threads {:?}{user}{plain}", program.threads, program.place)?;
            if let Some(at) = program.killed_at_ms {
                write!(f, ", killed at {at} ms")?;
            }
        }
        for (at, blow) in &self.blows {
            write!(f, "; {blow:?} at {at} ms")?;
        }
        if !self.liars.is_empty() {
            write!(f, "; liars {:?}", self.liars)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_plan_and_seeds_reach_everything() {
        assert_eq!(RoundPlan::of(7).to_string(), RoundPlan::of(7).to_string());
        let plans: Vec<RoundPlan> = (0..400).map(RoundPlan::of).collect();
        let has = |what: &dyn Fn(&RoundPlan) -> bool| plans.iter().any(what);
        for recorder in [Recorder::Programs, Recorder::WithKernel, Recorder::Flight] {
            assert!(
                has(&|plan| plan.recorder == recorder
                    && plan.blows.iter().any(|(_, blow)| matches!(blow, Blow::Kill { .. }))),
                "{recorder:?}"
            );
        }
        for place in [Place::Here, Place::OtherTime, Place::Container, Place::UserContainer] {
            assert!(has(&|plan| plan.programs.iter().any(|program| program.place == place)), "{place:?}");
        }
        for liar in Liar::ALL {
            assert!(has(&|plan| plan.liars.contains(&liar)), "{liar:?}");
        }
        assert!(has(&|plan| plan.programs.iter().any(|program| program.killed_at_ms.is_some())));
    }
}
