// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all runs share: a directory, the CPUs, this program, and the loop as a child process that reports what it measured.

use super::Settings;
use crate::npt::{self, PERCENTILES};
use nix::fcntl::{Flock, FlockArg};
use rtscope_cpus::{Cpus, Thread};
use rtscope_session::{Failure, Stop};
use rtscope_tracers::{ChildProcess, Error, Lttng};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

/// Names of directories, and of the file in each that shows whether it is in use.
const PREFIX: &str = "rtscope-impact-";
const LOCK: &str = "in-use";
/// Busy before a loop, twice: shorter than npt's own, since it comes with every run.
const SPIN: &str = "100ms";

/// As in the published measurements.
pub const BUFFER_BYTES: usize = 32 << 20;
/// For highest rates: what only fits because the buffer is large is no rate.
pub const RATE_BUFFER_BYTES: usize = 4 << 20;

/// What all runs share.
#[derive(Debug)]
pub struct Setup<'a> {
    directory: tempfile::TempDir,
    /// Held while the directory is in use.
    _lock: Flock<File>,
    /// The program with the loop.
    pub rtscope: PathBuf,
    /// Where the loop runs.
    pub cpu: usize,
    pub fifo: Option<u8>,
    /// Of each tracer, for a CPU or a thread.
    pub buffer_bytes: usize,
    /// There is no other CPU: the tracers are on the loop's.
    pub is_alone: bool,
    /// Where the child that measures may start: it moves itself to its CPU.
    all: Cpus,
    stop: &'a Stop,
}

/// How long the loop runs, and how fast.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    pub loops: Option<u64>,
    pub duration_ns: Option<u64>,
    /// Least time between events; 0: one in each iteration.
    pub interval_ns: f64,
}

/// Which event is in the loop, and whose daemon its process has to find.
#[derive(Clone, Debug, Default)]
pub struct LoopEvent {
    /// As for `rtscope npt --event-of`; `None`: rtscope's.
    pub of: Option<OsString>,
    pub lttng: Option<Rc<Lttng>>,
}

/// What one run of the loop measured, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Sample {
    pub iterations: u64,
    pub min: f64,
    pub mean: f64,
    pub max: f64,
    /// `None` with a single iteration.
    pub variance: Option<f64>,
    /// As in PERCENTILES; unknown where there are too few iterations.
    pub percentiles: [Option<f64>; PERCENTILES.len()],
    /// From, to, and how many.
    pub buckets: Vec<(f64, f64, u64)>,
    pub emitted: u64,
    pub duration_ns: f64,
    /// Of the counter, as measured.
    pub ticks_per_second: f64,
    /// Cycles per ns of the core, before and after.
    pub core_ghz: [f64; 2],
    pub notes: Vec<String>,
}

impl Sample {
    /// The standard deviation.
    pub fn deviation(&self) -> Option<f64> {
        self.variance.map(f64::sqrt)
    }
}

impl<'a> Setup<'a> {
    /// Makes the directory, and leaves the CPU of the loop to the loop: what is started from here runs elsewhere.
    pub fn new(settings: &Settings, usual_buffer_bytes: usize, stop: &'a Stop) -> Result<Setup<'a>, Failure> {
        let cpu = npt::cpu(settings.cpu)?;
        let all =
            Thread::Calling.cpus().map_err(|error| Failure::doing("asking which CPUs may be used", error))?;
        let others = all.without(&[cpu as u32].into_iter().collect());
        let is_alone = others.is_empty();
        if !is_alone {
            Thread::Calling
                .set_cpus(&others)
                .map_err(|error| Failure::doing("leaving the loop's CPU", error))?;
        }
        settings.fifo.map_or(Ok(()), rtscope_session::realtime::require_fifo)?;
        sweep(&std::env::temp_dir());
        let (directory, lock) =
            make_directory().map_err(|error| Failure::doing("making a folder for traces", error))?;
        Ok(Setup {
            directory,
            _lock: lock,
            rtscope: settings.rtscope.clone(),
            cpu,
            fifo: settings.fifo,
            buffer_bytes: settings.buffer_bytes.unwrap_or(usual_buffer_bytes),
            is_alone,
            all,
            stop,
        })
    }

    /// A place in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The same, with nothing in it.
    pub fn fresh(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.path(name);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::Failed(format!("{}: {error}", path.display())))
            }
            _ => Ok(path),
        }
    }

    /// Starts a program that runs during the loop; its standard output goes into a file of this name.
    pub fn start(&self, command: &mut Command, remedy: &str, output: &str) -> Result<ChildProcess, Error> {
        let path = self.fresh(output)?;
        let file =
            File::create(&path).map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
        ChildProcess::start(command.stdout(file), remedy, None)
    }

    /// Whether somebody asked us to stop.
    pub fn stopped(&self) -> bool {
        self.stop.asked()
    }

    /// Runs the loop once.
    pub fn run_loop(&self, event: &LoopEvent, limits: Limits) -> Result<Sample, Error> {
        let mut command = Command::new(&self.rtscope);
        command.args(["npt", "--json", "--spin", SPIN, "--cpu", &self.cpu.to_string()]);
        if let Some(fifo) = self.fifo {
            command.args(["--fifo", &fifo.to_string()]);
        }
        if let Some(loops) = limits.loops {
            command.args(["--loops", &loops.to_string()]);
        }
        if let Some(ns) = limits.duration_ns {
            command.args(["--duration", &format!("{ns}ns")]);
        }
        if limits.interval_ns > 0.0 {
            command.args(["--rate", &format!("{}/s", 1e9 / limits.interval_ns)]);
        }
        if let Some(library) = &event.of {
            command.arg("--event-of").arg(library);
        }
        if let Some(lttng) = &event.lttng {
            lttng.dress(&mut command);
        }
        let path = self.fresh("npt.json")?;
        let file =
            File::create(&path).map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
        let mut child = ChildProcess::start(command.stdout(file), "", Some(&self.all))?;
        let status = child.wait(&|| self.stopped())?;
        if !status.success() {
            return Err(Error::Failed(format!("rtscope npt ended with {status}: {}", child.last_words())));
        }
        let npt = json_of(&path, npt::SCHEMA)?;
        sample(&npt).ok_or_else(|| Error::Failed("rtscope npt printed something else".to_string()))
    }
}

fn make_directory() -> io::Result<(tempfile::TempDir, Flock<File>)> {
    let directory = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
    let file = File::create(directory.path().join(LOCK))?;
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)?;
    Ok((directory, lock))
}

/// Removes directories of runs that were killed: nobody holds their locks. A run that has not come to its lock yet has no file there.
fn sweep(place: &Path) {
    let directories = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX))
    };
    for directory in directories.filter(named) {
        // Anybody may make such directories: a pipe in that place must not hold us up, nor a link lead elsewhere.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().write(true).custom_flags(flags).open(directory.join(LOCK));
        let free = file.ok().and_then(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).ok());
        if free.is_some() {
            // It is somebody else's, or in use in a way that we do not know: then it stays.
            let _ = fs::remove_dir_all(&directory);
        }
    }
}

/// The object of a schema among the lines of a file.
pub fn json_of(path: &Path, schema: &str) -> Result<Value, Error> {
    let text =
        fs::read_to_string(path).map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
    let mut objects = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    objects
        .find(|object| object["schema"] == schema)
        .ok_or_else(|| Error::Failed(format!("no {schema} was printed")))
}

fn sample(npt: &Value) -> Option<Sample> {
    let all = npt["measured"].get(0)?;
    let mut percentiles = [None; PERCENTILES.len()];
    for (place, found) in percentiles.iter_mut().zip(all["percentiles"].as_array()?) {
        *place = found["ns"].as_f64();
    }
    let bucket = |bucket: &Value| Some((bucket[0].as_f64()?, bucket[1].as_f64()?, bucket[2].as_u64()?));
    let notes = npt["notes"].as_array()?.iter().filter_map(|note| note.as_str().map(String::from));
    Some(Sample {
        iterations: all["turns"].as_u64()?,
        min: all["min_ns"].as_f64()?,
        mean: all["mean_ns"].as_f64()?,
        max: all["max_ns"].as_f64()?,
        variance: all["variance_ns2"].as_f64(),
        percentiles,
        buckets: all["histogram"].as_array()?.iter().map(bucket).collect::<Option<_>>()?,
        emitted: npt["events"]["generated"].as_u64()?,
        duration_ns: npt["duration_ns"].as_f64()?,
        ticks_per_second: npt["ticks_per_second"].as_f64()?,
        core_ghz: [npt["core_ghz"]["before"].as_f64()?, npt["core_ghz"]["after"].as_f64()?],
        notes: notes.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_runs_left_goes_and_the_rest_stays() {
        let place = tempfile::tempdir().expect("a directory");
        let make = |name: &str| {
            let directory = place.path().join(name);
            fs::create_dir(&directory).expect("ours");
            directory
        };
        let (left, used, early) =
            (make("rtscope-impact-left"), make("rtscope-impact-used"), make("rtscope-impact-early"));
        let (pipe, link) = (make("rtscope-impact-pipe"), make("rtscope-impact-link"));
        File::create(left.join(LOCK)).expect("ours");
        let file = File::create(used.join(LOCK)).expect("ours");
        let _lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).expect("nobody has it");
        // Opened for writing, it would wait for a reader.
        nix::unistd::mkfifo(&pipe.join(LOCK), nix::sys::stat::Mode::S_IRWXU).expect("ours");
        let other = make("other").join(LOCK);
        File::create(&other).expect("ours");
        std::os::unix::fs::symlink(&other, link.join(LOCK)).expect("ours");
        sweep(place.path());
        assert!(!left.exists());
        assert!([used, early, pipe, link, other].iter().all(|path| path.exists()));
    }
}
