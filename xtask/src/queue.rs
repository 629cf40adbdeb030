// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jobs for all CPUs: a free CPU takes the one that is expected to last longest.
//!
//! Guests with emulated CPUs, clippy and unit tests each keep one CPU busy and measure no time, so that nothing is gained by
//! an order between them. Beginning with the longest keeps the end short. Jobs that wait for something most of their time, or measure it, would leave a
//! CPU idle: they run beside the others, which have the priority of idle (`SCHED_IDLE`): whoever else wakes up has their CPU within microseconds, where a
//! process that is only nice would keep it for a slice now and then.

use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Result;

use crate::outcome::{Outcome, Tally};

/// Something that can run beside others.
pub struct Job<'a> {
    /// What failed when it could not be run.
    pub name: String,
    /// How long it is expected to take, in seconds.
    pub seconds: f64,
    /// Does it.
    pub work: Box<dyn FnOnce() -> Result<Tally> + Send + 'a>,
}

/// Runs all jobs, `workers` at a time, and those `beside` them from the beginning; adds what they found. A job that could not be run has
/// failed.
pub fn run(mut jobs: Vec<Job<'_>>, beside: Vec<Job<'_>>, workers: usize, tally: &mut Tally) {
    // The longest is at the end, where it is taken from.
    jobs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let (jobs, results) = (Mutex::new(jobs), Mutex::new(Vec::new()));
    let do_it = |job: Job<'_>| {
        let result = (job.work)();
        results.lock().unwrap_or_else(PoisonError::into_inner).push((job.name, result));
    };
    thread::scope(|scope| {
        for job in beside {
            scope.spawn(|| do_it(job));
        }
        for _ in 0..workers.max(1) {
            scope.spawn(|| {
                be_idle();
                loop {
                    let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).pop();
                    let Some(job) = next else { break };
                    do_it(job);
                }
            });
        }
    });
    for (name, result) in results.into_inner().unwrap_or_else(PoisonError::into_inner) {
        match result {
            Ok(found) => tally.append(found),
            Err(error) => tally.add(&name, Outcome::Fail(format!("{error:#}"))),
        }
    }
}

/// Gives this thread, and what it starts, the priority of idle. Where that fails they have that of others, which disturbs only tests that measure.
fn be_idle() {
    let own = nix::unistd::gettid().to_string();
    let mut command = Command::new("chrt");
    command.args(["--idle", "--pid", "0", &own]).stdin(Stdio::null());
    if !command.status().is_ok_and(|status| status.success()) {
        eprintln!("chrt --idle: what runs beside tests that measure time disturbs them");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[test]
    fn the_longest_begins_and_what_cannot_run_has_failed() {
        let order = Mutex::new(Vec::new());
        let job = |name: &'static str, seconds: f64| {
            let order = &order;
            let work = move || {
                order.lock().expect("nobody panicked").push(name);
                if name == "broken" {
                    bail!("no such thing");
                }
                Ok(Tally { passed: 1, ..Tally::default() })
            };
            Job { name: name.to_owned(), seconds, work: Box::new(work) }
        };
        let mut tally = Tally::default();
        run(vec![job("short", 1.0), job("long", 9.0), job("broken", 5.0)], Vec::new(), 1, &mut tally);
        assert_eq!(*order.lock().expect("nobody panicked"), ["long", "broken", "short"]);
        assert_eq!((tally.passed, tally.failures), (2, vec!["broken: no such thing".to_owned()]));
    }

    #[test]
    fn who_works_through_the_queue_has_the_priority_of_idle() {
        let policy = || {
            let own = std::fs::read_to_string("/proc/thread-self/stat").expect("/proc is there");
            let behind = own.rsplit_once(") ").expect("a name in parentheses").1.to_owned();
            behind.split(' ').nth(38).expect("a policy, which is field 41").parse().expect("a number")
        };
        let job = || {
            let work = move || Ok(Tally { passed: policy(), ..Tally::default() });
            Job { name: String::new(), seconds: 1.0, work: Box::new(work) }
        };
        let [mut worker, mut beside] = [Tally::default(), Tally::default()];
        run(vec![job()], Vec::new(), 1, &mut worker);
        run(Vec::new(), vec![job()], 1, &mut beside);
        assert_eq!((worker.passed, beside.passed), (5, policy()));
    }

    #[test]
    fn what_runs_beside_the_others_keeps_none_of_them_waiting() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let job =
            |work: Box<dyn FnOnce() -> Result<Tally> + Send>| Job { name: String::new(), seconds: 1.0, work };
        let waits = job(Box::new(move || Ok(Tally { passed: receiver.recv()?, ..Tally::default() })));
        let ends_that = job(Box::new(move || {
            sender.send(7)?;
            Ok(Tally::default())
        }));
        let mut tally = Tally::default();
        run(vec![ends_that], vec![waits], 1, &mut tally);
        assert_eq!((tally.passed, tally.failures.len()), (7, 0));
    }
}
