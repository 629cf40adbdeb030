// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The four loads of the ARTiS paper, all at once: a compute loop for each CPU; disk reads and writes; a network echo flood; ioctl
//! calls that contend for a lock of the kernel.
//!
//! None says on which CPU it runs: where they may run is what is compared. Each is bounded in memory and disk, and leaves nothing.

mod disk;
mod ioctl;
mod network;

use super::child::Child;
use super::waiter::Board;
use rtscope_session::{Failure, Observer};
use serde::Serialize;
use std::hint::black_box;
use std::path::Path;

/// The loads that count what they do, in the order of their counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    Disk,
    Network,
    Ioctl,
}

/// Counters: these, and then one of each compute loop.
pub const KINDS: [Load; 3] = [Load::Disk, Load::Network, Load::Ioctl];
/// Additions of a compute loop: about a tenth of a millisecond.
const STEPS: u64 = 100_000;

/// What the loads are, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LoadDescriptions {
    /// How many.
    pub compute_loops: usize,
    /// What is written and read.
    pub disk: String,
    /// What is sent.
    pub network: String,
    /// What is called.
    pub ioctl: String,
    /// Events in the queue that the ioctl walks.
    #[serde(rename = "ioctl_events")]
    pub events: u64,
}

/// All of them, running. Dropping it ends them.
#[derive(Debug)]
pub struct Loads {
    children: Vec<Child>,
    pub descriptions: LoadDescriptions,
}

impl Loads {
    /// Starts them, one after the other. `events`: as many as before; `None`: as many as it takes.
    pub fn start(
        board: &Board,
        cpus: usize,
        directory: &Path,
        events: Option<u64>,
        is_stopped: &dyn Fn() -> bool,
        observer: &dyn Observer,
    ) -> Result<Loads, Failure> {
        let mut loads = Loads { children: Vec::new(), descriptions: LoadDescriptions::default() };
        loads.descriptions.compute_loops = cpus;
        // The ioctl's comes first: it measures how long its calls take, which the others would falsify.
        let counter = |kind: Load| KINDS.iter().position(|one| *one == kind).unwrap_or_default();
        // Two for each CPU, so that there is always one more that wants the lock.
        let threads = cpus * 2;
        let said = loads.add(observer, "rtscope-ioctl", |report| {
            ioctl::run(board, counter(Load::Ioctl), threads, directory, events, report)
        });
        let known =
            said.split_once(' ').and_then(|(count, text)| Some((count.parse().ok()?, text.to_owned())));
        (loads.descriptions.events, loads.descriptions.ioctl) = known.unwrap_or((0, said));
        loads.descriptions.disk = loads
            .add(observer, "rtscope-disk", |report| disk::run(board, counter(Load::Disk), directory, report));
        loads.descriptions.network =
            loads.add(observer, "rtscope-echo", |report| network::run(board, counter(Load::Network), report));
        for cpu in 0..cpus {
            if is_stopped() {
                break;
            }
            loads.add(observer, "rtscope-compute", |report| {
                report.take().into_iter().for_each(|report| report.ready(""));
                compute(board, KINDS.len() + cpu)
            });
        }
        Ok(loads)
    }

    /// One that cannot run is reported, and the others go on without it.
    fn add(
        &mut self,
        observer: &dyn Observer,
        name: &str,
        work: impl FnOnce(&mut Option<super::child::StartReport>) -> Result<(), String>,
    ) -> String {
        let started = Child::start(name, work).and_then(|mut child| Ok((child.ready()?, child)));
        match started {
            Ok((said, child)) => {
                self.children.push(child);
                said
            }
            Err(why) => {
                observer.note(&format!("the load {name} does not run: {why}"));
                format!("does not run: {why}")
            }
        }
    }

    /// Whether one has ended, which it should not.
    pub fn has_ended(&mut self) -> bool {
        self.children.iter_mut().any(Child::has_ended)
    }
}

/// For ever.
fn compute(board: &Board, counter: usize) -> Result<(), String> {
    let mut value: u64 = 88_172_645_463_325_252;
    loop {
        for _ in 0..STEPS {
            value ^= value << 13;
            value ^= value >> 7;
            value ^= value << 17;
        }
        black_box(value);
        board.add(counter, 1);
    }
}
