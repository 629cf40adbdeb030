// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The numbers here of threads that have other ones in their containers.
//!
//! The kernel says which number a thread has in its container, by the number here, and so all threads of a process have to be read to find one:
//! some 15 us each. The threads of all users wait meanwhile. So what was read of a process is kept, and it is read again only when ten times as long
//! as that took is over, and if its user's processes have not taken their share of the time.

use rtscope_programs::RingInfo;
use rtscope_stacks::Budget;
use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

/// Threads that are read of a process; further ones have no number here.
const THREADS_MAX: usize = 4096;
/// Threads of a process are read for this long: of that many, and of fewer where each takes long. The kernel writes all groups of a process beside the number,
/// and one with 65 536 of them needs 17 ms for each thread.
const READING: Duration = Duration::from_millis(80);
/// Processes whose threads are kept.
const PROCESSES_MAX: usize = 256;
/// After its threads were read, a process waits for this many times as long as that took.
const REST: u32 = 9;
/// So much can be used at once after a time of quiet.
const BURST: Duration = Duration::from_millis(100);

/// Where they are read.
pub(super) trait Threads: std::fmt::Debug {
    fn now(&self) -> Instant;
    /// The numbers here of all threads of a process.
    fn all(&mut self, pid: u32) -> Vec<u32>;
    /// In its innermost PID namespace, of a thread with this number here.
    fn number_there(&self, pid: u32, tid: u32) -> Option<u32>;
}

/// `/proc/PID/task`.
#[derive(Debug)]
struct Proc;

impl Threads for Proc {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn all(&mut self, pid: u32) -> Vec<u32> {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
        tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
    }

    fn number_there(&self, pid: u32, tid: u32) -> Option<u32> {
        // Its name need not be text.
        let text = fs::read(format!("/proc/{pid}/task/{tid}/status")).ok()?;
        let text = String::from_utf8_lossy(&text);
        let numbers = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        numbers.split_whitespace().next_back()?.parse().ok()
    }
}

/// A process: its number here, and its beginning, should another have had the number.
type ProcessKey = (u32, u64);

#[derive(Debug)]
struct Process {
    here: HashMap<u32, u32>,
    /// When it may be read again.
    rests_until: Instant,
}

/// What is known of them.
#[derive(Debug)]
pub(super) struct ThreadNumbers {
    source: Box<dyn Threads + Send>,
    budget: Budget,
    processes: HashMap<ProcessKey, Process>,
}

impl Default for ThreadNumbers {
    fn default() -> ThreadNumbers {
        ThreadNumbers::of(Box::new(Proc))
    }
}

impl ThreadNumbers {
    fn of(source: Box<dyn Threads + Send>) -> ThreadNumbers {
        ThreadNumbers { source, budget: Budget::with_burst(BURST), processes: HashMap::new() }
    }

    /// Of the thread that has this ring; `None`: it is not known, since the thread has ended, or its process was read just now, or has too many.
    pub(super) fn here(&mut self, ring: &RingInfo, account: u32) -> Option<u32> {
        let Some(pid) = ring.host_pid else { return Some(ring.tid) };
        let key = (pid, ring.birth_ns);
        if let Some(known) = self.find(key, ring.tid) {
            return Some(known);
        }
        // Other users than root are on its account in containers that it has made.
        let user = if account == 0 { ring.uid } else { account };
        let begun = self.source.now();
        let rests = self.processes.get(&key).is_some_and(|process| begun < process.rests_until);
        if rests || !self.budget.allows(user, begun) {
            return None;
        }
        let here = self.read(pid, begun);
        let now = self.source.now();
        self.budget.charge(user, now, now - begun);
        if self.processes.len() >= PROCESSES_MAX {
            self.processes.clear();
        }
        self.processes.insert(key, Process { here, rests_until: now + (now - begun) * REST });
        self.find(key, ring.tid)
    }

    /// By the numbers in the innermost PID namespace.
    fn read(&mut self, pid: u32, begun: Instant) -> HashMap<u32, u32> {
        let mut all = HashMap::new();
        for here in self.source.all(pid).into_iter().take(THREADS_MAX) {
            all.extend(self.source.number_there(pid, here).map(|there| (there, here)));
            if self.source.now() - begun > READING {
                break;
            }
        }
        all
    }

    /// If it still has that number: the one that was read may have ended since.
    fn find(&self, key: ProcessKey, tid: u32) -> Option<u32> {
        let here = *self.processes.get(&key)?.here.get(&tid)?;
        (self.source.number_there(key.0, here) == Some(tid)).then_some(here)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::ring;
    use super::*;
    use std::sync::{Arc, Mutex};

    const SLOW: Duration = Duration::from_millis(40);

    /// Each reading of a process takes 40 ms. A thread has 1000 more here than in its container.
    #[derive(Debug)]
    pub(in super::super) struct Slow {
        start: Instant,
        pub(in super::super) passed: Duration,
        /// In their containers.
        pub(in super::super) threads: Vec<u32>,
        readings: Vec<(u32, Duration)>,
        /// What one thread takes.
        each: Duration,
    }

    #[derive(Clone, Debug)]
    pub(in super::super) struct Fake(Arc<Mutex<Slow>>);

    impl Threads for Fake {
        fn now(&self) -> Instant {
            let slow = self.0.lock().unwrap();
            slow.start + slow.passed
        }

        fn all(&mut self, pid: u32) -> Vec<u32> {
            let mut slow = self.0.lock().unwrap();
            let begun = slow.passed;
            slow.readings.push((pid, begun));
            slow.passed += SLOW;
            slow.threads.iter().map(|tid| tid + 1000).collect()
        }

        fn number_there(&self, _: u32, tid: u32) -> Option<u32> {
            let mut slow = self.0.lock().unwrap();
            let each = slow.each;
            slow.passed += each;
            slow.threads.iter().copied().find(|there| there + 1000 == tid)
        }
    }

    impl Fake {
        pub(in super::super) fn new(threads: &[u32]) -> Fake {
            let (passed, readings) = (Duration::ZERO, Vec::new());
            let (start, threads, each) = (Instant::now(), threads.to_vec(), Duration::ZERO);
            let slow = Slow { start, passed, threads, readings, each };
            Fake(Arc::new(Mutex::new(slow)))
        }

        pub(in super::super) fn numbers(&self) -> ThreadNumbers {
            ThreadNumbers::of(Box::new(self.clone()))
        }

        pub(in super::super) fn with<T>(&self, what: impl FnOnce(&mut Slow) -> T) -> T {
            what(&mut self.0.lock().unwrap())
        }
    }

    pub(in super::super) fn there(pid: u32, tid: u32) -> RingInfo {
        RingInfo { host_pid: Some(pid), ..ring(tid, "there") }
    }

    const LIAR: u32 = 4_000_000_000;

    #[test]
    fn a_process_whose_threads_take_long_is_read_for_a_tenth_of_the_time() {
        let fake = Fake::new(&[1, 2]);
        let mut numbers = fake.numbers();
        // A new thread each 10 ms, which has ended when it is looked for.
        for tid in 100..1100 {
            assert_eq!(numbers.here(&there(7, tid), LIAR), None);
            assert_eq!(numbers.here(&there(7, 1), LIAR), Some(1001), "is known already");
            fake.with(|slow| slow.passed += Duration::from_millis(10));
        }
        let (read, passed) = fake.with(|slow| (SLOW * slow.readings.len() as u32, slow.passed));
        assert!(read <= passed / 10 + SLOW && read >= passed / 20, "{read:?} of {passed:?}");
    }

    #[test]
    fn of_a_process_whose_every_thread_takes_long_some_are_read() {
        let fake = Fake::new(&(1..1000).collect::<Vec<u32>>());
        let mut numbers = fake.numbers();
        fake.with(|slow| slow.each = Duration::from_millis(17));
        assert_eq!(numbers.here(&there(7, 999), LIAR), None);
        let passed = fake.with(|slow| slow.passed);
        assert!(passed < SLOW + READING + Duration::from_millis(17), "{passed:?}");
        assert_eq!(numbers.here(&there(7, 1), LIAR), Some(1001), "one of the first");
    }

    #[test]
    fn who_has_many_processes_has_one_share_and_others_do_not_wait() {
        let fake = Fake::new(&[1]);
        let mut numbers = fake.numbers();
        for pid in 10..1010 {
            numbers.here(&there(pid, 5), LIAR);
        }
        assert!(fake.with(|slow| slow.readings.len()) <= 4);
        assert_eq!(numbers.here(&there(7, 1), LIAR + 1), Some(1001));
        assert_eq!(numbers.here(&there(8, 1), LIAR), None, "is not known, and nothing else");
        fake.with(|slow| slow.passed += Duration::from_secs(3));
        assert_eq!(numbers.here(&there(8, 1), LIAR), Some(1001));
        let most =
            |slow: &mut Slow| (slow.threads, slow.passed) = ((1..9000).collect(), Duration::from_secs(9));
        fake.with(most);
        assert_eq!(numbers.here(&there(9, 4096), LIAR), Some(5096));
        fake.with(|slow| slow.passed += Duration::from_secs(9));
        assert_eq!(numbers.here(&there(9, 4097), LIAR), None, "no more are read");
    }

    #[test]
    fn a_thread_that_is_not_what_it_was_is_unknown_and_one_of_this_machine_has_its_number() {
        let fake = Fake::new(&[1, 2]);
        let mut numbers = fake.numbers();
        assert_eq!(numbers.here(&there(7, 1), LIAR), Some(1001));
        fake.with(|slow| slow.threads = vec![2, 3]);
        assert_eq!(numbers.here(&there(7, 1), LIAR), None);
        assert_eq!(numbers.here(&there(7, 3), LIAR), None, "it rests");
        fake.with(|slow| slow.passed += SLOW * 9);
        assert_eq!(numbers.here(&there(7, 3), LIAR), Some(1003));
        assert_eq!(numbers.here(&ring(5, "here"), LIAR), Some(5));
        // A process that has the number of another one that has ended.
        fake.with(|slow| slow.passed += Duration::from_secs(1));
        let other = RingInfo { birth_ns: 2, ..there(7, 2) };
        let before = fake.with(|slow| slow.readings.len());
        assert_eq!(numbers.here(&other, LIAR), Some(1002));
        assert_eq!(fake.with(|slow| slow.readings.len()), before + 1);
    }

    #[test]
    fn this_thread_is_read_from_proc() {
        let (pid, tid) = (std::process::id(), nix::unistd::gettid().as_raw().unsigned_abs());
        let mut numbers = ThreadNumbers::default();
        assert!(Proc.all(pid).contains(&pid));
        assert_eq!(numbers.here(&there(pid, tid), LIAR), Some(tid));
        assert_eq!(numbers.here(&there(pid, u32::MAX), LIAR), None);
    }
}
