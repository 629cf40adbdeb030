// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of `./x vm`.

use anyhow::{Context, Result, bail};

use super::kernels::{KERNELS, Kernel};
use super::needs::{Asked, OF_TEST};

/// What `./x vm --help` prints.
pub const HELP: &str = "\
./x vm [OPTIONS] [KERNEL…]

Boots Debian kernels in emulated machines (QEMU without KVM), runs the privileged tests
in them, and prints a table of kernels and tests. Without KERNEL: all of them.

  --list          the kernels, and which release of each is here
  --test TEXT     only tests with TEXT in their names
  --quick         only the tests that ./x test runs on a kernel
  --all           tests with a short form run their long one (every kill point)
  --timing        also the tests that need real CPUs (they may fail)
  --stress N      tests of stress last N seconds (30)
  --run COMMAND   instead of tests, this shell command, with rtscope in its PATH
  --virtual-time  the guests' clocks count instructions: what the host does is no latency
  --cpus N        CPUs of a guest that runs a command (default: 2)
  --update        look for newer packages; without it, what was fetched once is used
  --jobs N        kernels at a time (default: one for each CPU, 4 at most)
  --json          one line of JSON for each kernel instead of the table
  --verbose       everything that the guests print

Kernels are fetched once with apt, without installing anything, and kept in
$XDG_CACHE_HOME/rtscope/vm (~/.cache/rtscope/vm).

  ./x vm                              everything
  ./x vm --test killed 6.12-rt        one test on one kernel
  ./x vm --update newest newest-rt    what is current in Debian sid
  ./x vm --virtual-time --run 'rtscope shield table --samples 100k --rate 2000/s' newest
                                      how much a shield is good for (a quarter of an hour)
  ./x vm --test _under_stress --stress 600 newest newest-rt
                                      ten minutes of stress for the scheduler that lends CPUs
";

/// A stress test lasts this long unless the user asks for another time.
const STRESS_S: u32 = 30;

/// Emulated CPUs run one at a time: more than this are of no use.
const MOST_CPUS: u32 = 8;

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    Help,
    List,
    Run(Options),
}

/// How to run.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    pub kernels: Vec<Kernel>,
    /// A part of the names of the tests to run.
    pub filter: String,
    /// On which kernels each test runs.
    pub asked: Asked,
    /// Tests with a short form run their long one.
    pub all: bool,
    pub timing: bool,
    /// How long stress tests last.
    pub stress_s: u32,
    /// Instead of tests.
    pub command: Option<String>,
    /// For all; else only for tests that ask for it.
    pub virtual_time: bool,
    /// Of guests that run a command.
    pub cpus: Option<u32>,
    pub update: bool,
    pub jobs: usize,
    pub json: bool,
    pub verbose: bool,
    /// Only what failed is said at once, and the table goes to a file.
    pub brief: bool,
}

impl Options {
    /// Those of `./x test`, and of `./x test --all`.
    pub fn for_test(all: bool) -> Options {
        Options {
            kernels: KERNELS.iter().filter(|kernel| all || OF_TEST.contains(&kernel.name)).copied().collect(),
            asked: if all { Asked::All } else { Asked::Turn },
            all,
            brief: true,
            ..Options::default()
        }
    }
}

impl Default for Options {
    /// All tests, on no kernel yet.
    fn default() -> Options {
        Options {
            kernels: Vec::new(),
            filter: String::new(),
            asked: Asked::All,
            all: false,
            timing: false,
            stress_s: STRESS_S,
            command: None,
            virtual_time: false,
            cpus: None,
            update: false,
            jobs: std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(4)),
            json: false,
            verbose: false,
            brief: false,
        }
    }
}

/// Reads the command line.
pub fn parse(arguments: &[&str]) -> Result<Action> {
    let mut options = Options::default();
    let mut arguments = arguments.iter();
    while let Some(&argument) = arguments.next() {
        match argument {
            "-h" | "--help" => return Ok(Action::Help),
            "--list" => return Ok(Action::List),
            "--test" => {
                options.filter = (*arguments.next().context("--test needs a part of a name")?).to_owned()
            }
            "--jobs" => {
                let number = arguments.next().and_then(|number| number.parse().ok()).filter(|&jobs| jobs > 0);
                options.jobs = number.context("--jobs needs a number from 1")?;
            }
            "--quick" => options.asked = Asked::Turn,
            "--all" => options.all = true,
            "--timing" => options.timing = true,
            "--stress" => {
                let seconds = arguments.next().and_then(|seconds| seconds.parse().ok());
                options.stress_s = seconds.context("--stress needs a number of seconds")?;
            }
            "--run" => {
                options.command = Some((*arguments.next().context("--run needs a command")?).to_owned());
            }
            "--virtual-time" => options.virtual_time = true,
            "--cpus" => {
                let number = arguments.next().and_then(|number| number.parse().ok());
                let number = number.filter(|cpus| (1..=MOST_CPUS).contains(cpus));
                options.cpus = Some(number.context("--cpus needs a number from 1 to 8")?);
            }
            "--update" => options.update = true,
            "--json" => options.json = true,
            "--verbose" => options.verbose = true,
            name => match KERNELS.iter().find(|kernel| kernel.name == name) {
                Some(kernel) if !options.kernels.contains(kernel) => options.kernels.push(*kernel),
                Some(_) => {}
                None => {
                    let names: Vec<&str> = KERNELS.iter().map(|kernel| kernel.name).collect();
                    bail!(
                        "there is no kernel or option '{name}'; kernels are: {} (./x vm --help)",
                        names.join(" ")
                    );
                }
            },
        }
    }
    if options.kernels.is_empty() {
        options.kernels.extend(KERNELS);
    }
    if options.cpus.is_some() && options.command.is_none() {
        bail!("--cpus is for --run: a test says by its name how many CPUs it wants");
    }
    Ok(Action::Run(options))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Options {
        match parse(arguments).expect("a good command line") {
            Action::Run(options) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn command_lines() {
        assert_eq!(options(&[]).kernels, KERNELS);
        let some = options(&["--test", "killed", "6.12-rt", "--jobs", "1", "6.12-rt"]);
        assert_eq!((some.kernels[0].name, some.kernels.len()), ("6.12-rt", 1));
        assert_eq!((some.filter.as_str(), some.jobs, some.stress_s), ("killed", 1, STRESS_S));
        assert_eq!(options(&["--stress", "600"]).stress_s, 600);
        assert_eq!(parse(&["--list"]).expect("good"), Action::List);
        let command = options(&["--run", "uname -a", "--cpus", "4", "--virtual-time", "newest"]);
        assert_eq!(
            (command.command.as_deref(), command.cpus, command.virtual_time),
            (Some("uname -a"), Some(4), true)
        );
        for wrong in [
            &["6.11"][..],
            &["--jobs", "0"],
            &["--test"],
            &["--cpus", "4"],
            &["--run", "x", "--cpus", "9"],
            &["--stress"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_tests_run_on_a_plain_and_on_a_real_time_kernel() {
        let names = |all| Options::for_test(all).kernels.iter().map(|kernel| kernel.name).collect::<Vec<_>>();
        assert_eq!(names(false), OF_TEST);
        assert_eq!(names(true).len(), KERNELS.len());
    }
}
