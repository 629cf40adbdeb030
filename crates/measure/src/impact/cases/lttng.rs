// SPDX-License-Identifier: Apache-2.0 OR MIT
//! LTTng-UST. Its event is in a library with the same loop (c/npt_lttng.c), compiled where its headers are. The count is that of
//! rtscope's own reader of CTF.

use super::super::setup::{LoopEvent, Setup};
use super::{KernelEvents, TraceCounts, Tracer};
use rtscope_ctf::{Selection, TraceSet, count};
use rtscope_tracers::{Channel, Error, Lttng, Session, Wakeup, compile};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Between two polls of the consumer. The published measurements had 20 to 200.
const READ_TIMER_US: u32 = 200;
/// As in the published measurements.
const SUB_BUFFERS: usize = 32;

/// What the library is made of.
const SOURCES: [(&str, &str); 8] = [
    ("npt_lttng.c", include_str!("../../../c/npt_lttng.c")),
    ("npt_lttng.h", include_str!("../../../c/npt_lttng.h")),
    ("npt.h", include_str!("../../../c/npt.h")),
    ("rtscope/abi.h", include_str!("../../../../../include/rtscope/abi.h")),
    ("rtscope/clock.h", include_str!("../../../../../include/rtscope/clock.h")),
    ("rtscope/names.h", include_str!("../../../../../include/rtscope/names.h")),
    ("rtscope/sanitize.h", include_str!("../../../../../include/rtscope/sanitize.h")),
    ("rtscope/system.h", include_str!("../../../../../include/rtscope/system.h")),
];

/// The daemon and the library, for both ways to use them.
#[derive(Debug)]
pub struct LttngSupport {
    lttng: Rc<Lttng>,
    shared_object: PathBuf,
}

/// Made when it is needed for the first time.
#[derive(Debug, Default)]
pub struct LazyLttngSupport(Option<Rc<LttngSupport>>);

impl LazyLttngSupport {
    /// Compiles, and starts the daemon.
    pub fn get(&mut self, setup: &Setup<'_>, kernel: bool) -> Result<Rc<LttngSupport>, Error> {
        if let Some(support) = &self.0 {
            return Ok(Rc::clone(support));
        }
        let home = setup.path("lttng-home");
        make_directory(&home)?;
        let lttng = Rc::new(Lttng::start(&home, kernel, &|| setup.stopped())?);
        let support = Rc::new(LttngSupport { lttng, shared_object: library(setup)? });
        self.0 = Some(Rc::clone(&support));
        Ok(support)
    }
}

fn make_directory(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(|error| Error::Failed(format!("{}: {error}", path.display())))
}

fn library(setup: &Setup<'_>) -> Result<PathBuf, Error> {
    let directory = setup.path("npt-lttng");
    make_directory(&directory.join("rtscope"))?;
    for (name, text) in SOURCES {
        let path = directory.join(name);
        fs::write(&path, text.replace("NPT_PROVIDER", &provider()))
            .map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
    }
    let to = directory.join("npt_lttng.so");
    let (source, include) = (directory.join("npt_lttng.c"), directory.as_path());
    compile(["-shared".as_ref(), "-fPIC".as_ref(), "-I".as_ref(), include, &source, "-o".as_ref(), &to])?;
    Ok(to)
}

/// A name of this run alone, should the daemon be the machine's: another run's events are not ours.
fn provider() -> String {
    format!("npt_{}", std::process::id())
}

#[derive(Debug)]
struct LttngTracer {
    support: Rc<LttngSupport>,
    wakeup: Wakeup,
    session: Option<Session>,
}

/// The writer tells the consumer when a sub-buffer is full.
pub fn by_default(support: Rc<LttngSupport>) -> Box<dyn Tracer> {
    Box::new(LttngTracer { support, wakeup: Wakeup::Writer, session: None })
}

/// The consumer polls.
pub fn with_timer(support: Rc<LttngSupport>) -> Box<dyn Tracer> {
    Box::new(LttngTracer { support, wakeup: Wakeup::Timer(READ_TIMER_US), session: None })
}

impl Tracer for LttngTracer {
    fn event(&self) -> LoopEvent {
        LoopEvent {
            of: Some(self.support.shared_object.clone().into_os_string()),
            lttng: Some(Rc::clone(&self.support.lttng)),
        }
    }

    fn start(&mut self, setup: &Setup<'_>, kernel: KernelEvents) -> Result<(), Error> {
        if kernel == KernelEvents::Yes {
            if let Some(why) = self.support.lttng.no_kernel() {
                return Err(Error::Failed(why));
            }
        }
        let channel = Channel {
            sub_buffer_bytes: (setup.buffer_bytes / SUB_BUFFERS).max(4096),
            sub_buffers: SUB_BUFFERS,
            wakeup: self.wakeup,
        };
        let name = format!("rtscope-impact-{}", std::process::id());
        let events = format!("{}:loop", provider());
        let session = self.support.lttng.session(&name, &setup.fresh("lttng")?, Some(channel), &events)?;
        let session = self.session.insert(session);
        if kernel == KernelEvents::Yes {
            session.enable_kernel("sched_*,irq_*", true)?;
        }
        session.start()
    }

    fn stop(&mut self, setup: &Setup<'_>) -> Result<TraceCounts, Error> {
        let Some(session) = self.session.take() else { return Ok(TraceCounts::default()) };
        session.destroy()?;
        let directory = setup.path("lttng");
        let (recorded, lost) = count_events(&directory.join("ust"))?;
        let mut counts = TraceCounts { recorded, lost_reported: lost, ..TraceCounts::default() };
        if directory.join("kernel").is_dir() {
            let (recorded, lost) = count_events(&directory.join("kernel"))?;
            counts.kernel = Some(recorded);
            counts.lost_reported = counts.lost_reported.zip(lost).map(|(user, kernel)| user + kernel);
        }
        Ok(counts)
    }

    fn abandon(&mut self) {
        self.session = None;
    }
}

/// Events of a trace, and those that are missing as it says; `None`: it does not say how many.
fn count_events(directory: &Path) -> Result<(u64, Option<u64>), Error> {
    let set = TraceSet::open(directory).map_err(|error| Error::Failed(error.to_string()))?;
    let counts = count(&set, &Selection::default(), &|_| {});
    if let Some(damaged) = set.damaged.iter().chain(&counts.damaged).next() {
        return Err(Error::Failed(damaged.to_string()));
    }
    let known = set.streams.iter().all(|stream| !stream.losses.uncounted && stream.losses.packets == 0);
    let lost = set.streams.iter().map(|stream| stream.losses.events).sum();
    Ok((counts.streams.iter().map(|stream| stream.total()).sum(), known.then_some(lost)))
}
