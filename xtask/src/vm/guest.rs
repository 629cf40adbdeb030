// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the guest says: the lines of its first program (init.sh), the output of tests between them, and a kernel's last
//! words.

use std::time::{Duration, Instant};

use crate::kernel_log;
use crate::libtest::Counts;

/// How one test went in a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All is well.
    Pass,
    /// Something is wrong; the text says what.
    Fail(String),
    /// It could not be checked here; the text says why.
    Skip(String),
}

impl Verdict {
    /// One word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail(_) => "fail",
            Verdict::Skip(_) => "skip",
        }
    }
}

/// One finished test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Its place in the list that the guest got.
    pub number: usize,
    /// How it went.
    pub verdict: Verdict,
    /// What it printed.
    pub output: Vec<String>,
    /// Its time, as the host saw it.
    pub time: Duration,
}

/// Follows the console of one boot.
#[derive(Debug, Default)]
pub struct Console {
    running: Option<(usize, Instant, Vec<String>)>,
    finished: Vec<Finished>,
    log: Option<Vec<String>>,
    /// Kernel release, once it has booted.
    release: Option<String>,
    /// What the kernel says as it dies: why, and where it was.
    last_words: Vec<String>,
    off: bool,
}

/// Of a kernel's last words: a report of a fault with all its registers and a deep stack.
const LAST_WORDS: usize = 150;

impl Console {
    /// Takes the next line. Returns a test that has just ended.
    pub fn read(&mut self, line: &str) -> Option<&Finished> {
        let Some((_, message)) = line.split_once("RTSCOPE-VM ") else {
            self.read_output(line);
            return None;
        };
        let words: Vec<&str> = message.split_whitespace().collect();
        match words[..] {
            ["boot", release] => self.release = Some(release.to_owned()),
            ["begin", number] => self.running = Some((number.parse().ok()?, Instant::now(), Vec::new())),
            ["end", _, status] => return self.end(status),
            ["log"] => self.log = Some(Vec::new()),
            ["off"] => self.off = true,
            _ => {}
        }
        None
    }

    fn read_output(&mut self, line: &str) {
        let is_fatal = ["Kernel panic", "Oops", "BUG: ", "int3: "].iter().any(|words| line.contains(words));
        let is_dying = !self.last_words.is_empty() || is_fatal && self.log.is_none() && line.starts_with('[');
        if is_dying && self.last_words.len() < LAST_WORDS {
            self.last_words.push(line.to_owned());
        }
        if let Some(log) = &mut self.log {
            log.push(line.to_owned());
        } else if let Some((_, _, output)) = &mut self.running {
            output.push(line.to_owned());
        }
    }

    fn end(&mut self, status: &str) -> Option<&Finished> {
        let (number, start, output) = self.running.take()?;
        let time = start.elapsed();
        self.finished.push(Finished { number, verdict: verdict(status, &output), output, time });
        self.finished.last()
    }

    /// Whether the guest came to its regular end.
    pub fn is_off(&self) -> bool {
        self.off
    }

    /// The test that was running when the guest ended, and what it had printed.
    pub fn running(&self) -> Option<usize> {
        self.running.as_ref().map(|(number, ..)| *number)
    }

    /// `uname -r`, when it came to that.
    pub fn release(&self) -> Option<&str> {
        self.release.as_deref()
    }

    /// The kernel's report of its death; empty: it did not die.
    pub fn last_words(&self) -> &[String] {
        &self.last_words
    }

    /// Everything that ended, in order.
    pub fn into_finished(self) -> Vec<Finished> {
        self.finished
    }

    /// What the kernel complained about while the tests ran; `None` when its log was not seen.
    pub fn complaints(&self) -> Option<Vec<String>> {
        let log = self.log.as_ref()?;
        // Where the CPU is emulated a real-time load is slow, so that the kernel takes it for one that never ends. And Linux 6.12
        // warns (kernel/cgroup/cpuset.c) when the last CPU outside of a partition is switched off, which a test does; it goes on.
        // A test's program that calls every system call ends in one that leaves it without a stack, which Linux 6.1 logs.
        let is_ours = |line: &&str| {
            !["RT throttling activated", "update_parent_effective_cpumask", "traps: rtscope-every-c"]
                .iter()
                .any(|known| line.contains(known))
        };
        Some(kernel_log::complaints(&[], log).filter(is_ours).map(str::to_owned).collect())
    }
}

fn verdict(status: &str, output: &[String]) -> Verdict {
    let mut counts = Counts::default();
    for line in output {
        counts.read(line);
    }
    match status {
        "0" => match counts.skips.first() {
            // "name: reason": the name is known here.
            Some(skip) => {
                Verdict::Skip(skip.split_once(": ").map_or(skip.as_str(), |(_, reason)| reason).to_owned())
            }
            None if counts.passed == 1 => Verdict::Pass,
            None => Verdict::Fail("the test program ran no test".to_owned()),
        },
        "137" => Verdict::Fail("did not end in time".to_owned()),
        _ => Verdict::Fail(failure(output).unwrap_or_else(|| format!("ended with status {status}"))),
    }
}

/// The words of the first panic.
fn failure(output: &[String]) -> Option<String> {
    let at = output.iter().position(|line| line.contains("panicked at "))?;
    let words = output[at + 1..].iter().take_while(|line| !line.starts_with("note: ") && !line.is_empty());
    Some(words.cloned().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console(text: &str) -> Console {
        let mut console = Console::default();
        for line in text.lines() {
            console.read(line);
        }
        console
    }

    #[test]
    fn verdicts_are_read_from_the_console() {
        let text = "SeaBIOS\nRTSCOPE-VM boot 6.12-rt\nRTSCOPE-VM begin 0\ntest a ... ok\n\
            test result: ok. 1 passed; 0 failed;\nRTSCOPE-VM end 0 0\nRTSCOPE-VM begin 1\nSKIP: b: no disk: none\n\
            test result: ok. 1 passed; 0 failed;\nRTSCOPE-VM end 1 0\nRTSCOPE-VM begin 2\n\
            thread 'c' panicked at x.rs:1:\nnot equal\n  left: 1\nnote: run with\ntest result: FAILED. 0 passed; 1 failed;\n\
            RTSCOPE-VM end 2 101\nRTSCOPE-VM begin 3\nRTSCOPE-VM end 3 137\nRTSCOPE-VM begin 4\n\
            test result: ok. 0 passed; 0 failed;\nRTSCOPE-VM end 4 0\nRTSCOPE-VM log\n[ 1.0] WARNING: x\nRTSCOPE-VM off\n";
        let console = console(text);
        assert_eq!((console.release(), console.running(), console.is_off()), (Some("6.12-rt"), None, true));
        assert_eq!(console.complaints(), Some(vec!["[ 1.0] WARNING: x".to_owned()]));
        let verdicts: Vec<Verdict> =
            console.into_finished().into_iter().map(|finished| finished.verdict).collect();
        assert_eq!(
            verdicts,
            [
                Verdict::Pass,
                Verdict::Skip("no disk: none".into()),
                Verdict::Fail("not equal   left: 1".into()),
                Verdict::Fail("did not end in time".into()),
                Verdict::Fail("the test program ran no test".into()),
            ]
        );
    }

    #[test]
    fn a_kernel_that_dies_is_no_verdict() {
        let console = console(
            "RTSCOPE-VM boot x\nRTSCOPE-VM begin 7\ntest a\n[ 3.1] Oops: int3: 0000 [#1]\n[ 3.2] Kernel panic",
        );
        assert_eq!(console.running(), Some(7));
        assert_eq!(console.last_words(), ["[ 3.1] Oops: int3: 0000 [#1]", "[ 3.2] Kernel panic"]);
        assert!(!console.is_off() && console.complaints().is_none());
        assert!(console.into_finished().is_empty());
    }
}
