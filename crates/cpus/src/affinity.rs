// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPUs that a thread may use: `sched_getaffinity` and `sched_setaffinity` with a mask as long as the machine needs.

use crate::Cpus;
use crate::set::MOST;
use nix::errno::Errno;

/// The first mask that is tried: as long as the C library's `cpu_set_t`, which is enough nearly everywhere.
const FIRST_WORDS: usize = 1024 / Affinity::WORD_BITS;
/// No mask is longer than this.
const MOST_WORDS: usize = MOST as usize / Affinity::WORD_BITS;

/// A thread, to ask or to set its affinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    /// The one that calls.
    Calling,
    /// The one with this number.
    Tid(i32),
}

impl Thread {
    /// The number that the system calls take.
    fn number(self) -> libc::pid_t {
        match self {
            Thread::Calling => 0,
            Thread::Tid(tid) => tid,
        }
    }

    /// The CPUs that it may use.
    ///
    /// # Errors
    /// When the kernel refuses, for example because the thread has ended.
    pub fn cpus(self) -> Result<Cpus, Errno> {
        Affinity::read(|words| {
            // SAFETY: `words` is memory of ours to which the kernel writes at most the length that it is given.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_sched_getaffinity,
                    self.number(),
                    size_of_val(words),
                    words.as_mut_ptr(),
                )
            };
            Errno::result(result).map(|bytes| usize::try_from(bytes).unwrap_or(0))
        })
        .map(|affinity| affinity.cpus())
    }

    /// Lets it use these CPUs, and no others.
    ///
    /// # Errors
    /// When the kernel refuses, for example because none of these CPUs is online.
    pub fn set_cpus(self, cpus: &Cpus) -> Result<(), Errno> {
        Affinity::new(cpus).apply(self)
    }
}

/// A set of CPUs as the kernel takes it: a bit for each CPU, as long as the highest one needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    words: Vec<libc::c_ulong>,
}

impl Affinity {
    const WORD_BITS: usize = libc::c_ulong::BITS as usize;

    /// The mask of these CPUs. Made before a `fork`, it can be applied after it, where memory cannot be allocated.
    /// CPUs that no kernel has are left out, as the kernel leaves out those that it does not have.
    #[must_use]
    pub fn new(cpus: &Cpus) -> Affinity {
        let cpus = || cpus.iter().filter(|cpu| *cpu < MOST);
        let place = |cpu: u32| (cpu as usize / Affinity::WORD_BITS, cpu as usize % Affinity::WORD_BITS);
        let mut words = vec![0; cpus().last().map_or(1, |last| place(last).0 + 1)];
        for (word, bit) in cpus().map(place) {
            words[word] |= 1 << bit;
        }
        Affinity { words }
    }

    /// Lets a thread use these CPUs, and no others. Only a system call: allowed between `fork` and `exec`.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn apply(&self, thread: Thread) -> Result<(), Errno> {
        let bytes = size_of_val(&*self.words);
        // SAFETY: the kernel reads `bytes` bytes of `words`, which is that long; what its own mask has beyond is taken as 0.
        let result = unsafe {
            libc::syscall(libc::SYS_sched_setaffinity, thread.number(), bytes, self.words.as_ptr())
        };
        Errno::result(result).map(drop)
    }

    /// Asks `kernel` with longer and longer masks: it fills one and returns how many bytes it wrote, or says EINVAL for one
    /// that is shorter than its own.
    fn read(kernel: impl Fn(&mut [libc::c_ulong]) -> Result<usize, Errno>) -> Result<Affinity, Errno> {
        let mut words = vec![0; FIRST_WORDS];
        loop {
            match kernel(&mut words) {
                Err(Errno::EINVAL) if words.len() < MOST_WORDS => words = vec![0; words.len() * 2],
                Err(errno) => return Err(errno),
                Ok(bytes) => {
                    words.truncate(bytes.div_ceil(size_of::<libc::c_ulong>()));
                    return Ok(Affinity { words });
                }
            }
        }
    }

    fn cpus(&self) -> Cpus {
        let bits = |(at, word): (usize, &libc::c_ulong)| {
            let word = *word;
            (0..Affinity::WORD_BITS)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| (at * Affinity::WORD_BITS + bit) as u32)
        };
        self.words.iter().enumerate().flat_map(bits).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mask of a kernel for this many CPUs, of which these may be used.
    fn made_up_kernel(most: usize, cpus: &Cpus) -> impl Fn(&mut [libc::c_ulong]) -> Result<usize, Errno> {
        let mut own = Affinity::new(cpus).words;
        own.resize(most / Affinity::WORD_BITS, 0);
        move |words| {
            // As kernel/sched/syscalls.c does: a mask that is too short is refused, and of a longer one the rest is left alone.
            words.get_mut(..own.len()).ok_or(Errno::EINVAL)?.copy_from_slice(&own);
            Ok(size_of_val(&*own))
        }
    }

    #[test]
    fn a_machine_of_4096_cpus_is_read_whole() {
        let cpus = Cpus::from_list("0,63-64,1023-1024,2048,4095").expect("a list");
        let read = Affinity::read(made_up_kernel(4096, &cpus)).expect("a longer mask is tried");
        assert_eq!(read.cpus(), cpus);
        let all: Cpus = (0..4096).collect();
        assert_eq!(Affinity::read(made_up_kernel(4096, &all)).expect("read").cpus().to_string(), "0-4095");
    }

    #[test]
    fn a_mask_is_as_long_as_its_last_cpu_needs() {
        let words = |list: &str| Affinity::new(&Cpus::from_list(list).expect(list)).words;
        assert_eq!(words("0,2"), [0b101]);
        assert_eq!(words(""), [0]);
        let long = words("1,4095");
        assert_eq!((long.len() * Affinity::WORD_BITS, long[0]), (4096, 0b10));
        assert_eq!(long.last(), Some(&(1 << (Affinity::WORD_BITS - 1))));
        let beyond: Cpus = [1, 8192, u32::MAX].into_iter().collect();
        assert_eq!(Affinity::new(&beyond).words, [0b10], "no memory is spent on CPUs that no kernel has");
        assert_eq!(Affinity::new(&Cpus::every()).words.len(), MOST_WORDS);
    }

    #[test]
    fn what_the_kernel_refuses_for_another_reason_is_not_asked_again() {
        let asked = std::cell::Cell::new(0);
        let refuse = |errno| {
            asked.set(0);
            Affinity::read(|_| {
                asked.set(asked.get() + 1);
                Err(errno)
            })
        };
        assert_eq!(refuse(Errno::ESRCH), Err(Errno::ESRCH));
        assert_eq!(asked.get(), 1);
        // Not for ever, either.
        assert_eq!(refuse(Errno::EINVAL), Err(Errno::EINVAL));
        assert_eq!(asked.get(), 4, "1024, 2048, 4096 and 8192 CPUs");
    }

    #[test]
    fn this_thread_may_be_moved_and_moved_back() {
        let cpus = Thread::Calling.cpus().expect("a thread may ask for its own");
        let own = Thread::Tid(nix::unistd::gettid().as_raw());
        let last: Cpus = cpus.iter().last().into_iter().collect();
        own.set_cpus(&last).expect("a part of what it has");
        assert_eq!(Thread::Calling.cpus(), Ok(last));
        Thread::Calling.set_cpus(&cpus).expect("what it had");
        assert_eq!(own.cpus(), Ok(cpus));
        assert_eq!(Thread::Calling.set_cpus(&Cpus::default()), Err(Errno::EINVAL), "no CPU at all");
        assert_eq!(Thread::Tid(i32::MAX).cpus(), Err(Errno::ESRCH));
    }
}
