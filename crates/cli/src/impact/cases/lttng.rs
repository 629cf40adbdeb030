// SPDX-License-Identifier: Apache-2.0 OR MIT
//! LTTng-UST. Its event is in a library with the same loop (c/npt_lttng.c), compiled where its headers are. The count is that of
//! rtscope's own reader of CTF.

use super::super::room::{LoopEvent, Room};
use super::{Account, Kernel, Tracer};
use rtscope_ctf::{Selection, TraceSet, count};
use rtscope_peers::{Channel, Error, Lttng, Session, Wakeup, compile};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Between two polls of the consumer. The published measurements had 20 to 200.
const READ_TIMER_US: u32 = 200;
/// As in the published measurements.
const SUB_BUFFERS: usize = 32;

/// What the library is made of.
const SOURCES: [(&str, &str); 6] = [
    ("npt_lttng.c", include_str!("../../../c/npt_lttng.c")),
    ("npt_lttng.h", include_str!("../../../c/npt_lttng.h")),
    ("npt.h", include_str!("../../../c/npt.h")),
    ("rtscope/abi.h", include_str!("../../../../../include/rtscope/abi.h")),
    ("rtscope/clock.h", include_str!("../../../../../include/rtscope/clock.h")),
    ("rtscope/system.h", include_str!("../../../../../include/rtscope/system.h")),
];

/// The daemon and the library, for both ways to use them.
#[derive(Debug)]
pub struct Shared {
    lttng: Rc<Lttng>,
    shared_object: PathBuf,
}

/// Made when it is asked for the first time.
#[derive(Debug, Default)]
pub struct Common(Option<Rc<Shared>>);

impl Common {
    /// Compiles, and starts the daemon.
    pub fn get(&mut self, room: &Room, kernel: bool) -> Result<Rc<Shared>, Error> {
        if let Some(shared) = &self.0 {
            return Ok(Rc::clone(shared));
        }
        let home = room.path("lttng-home");
        make_folder(&home)?;
        let lttng = Rc::new(Lttng::start(&home, kernel, &|| room.stopped())?);
        let shared = Rc::new(Shared { lttng, shared_object: library(room)? });
        self.0 = Some(Rc::clone(&shared));
        Ok(shared)
    }
}

fn make_folder(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(|error| Error::Failed(format!("{}: {error}", path.display())))
}

fn library(room: &Room) -> Result<PathBuf, Error> {
    let folder = room.path("npt-lttng");
    make_folder(&folder.join("rtscope"))?;
    for (name, text) in SOURCES {
        let path = folder.join(name);
        fs::write(&path, text.replace("NPT_PROVIDER", &provider()))
            .map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
    }
    let to = folder.join("npt_lttng.so");
    let (source, include) = (folder.join("npt_lttng.c"), folder.as_path());
    compile(["-shared".as_ref(), "-fPIC".as_ref(), "-I".as_ref(), include, &source, "-o".as_ref(), &to])?;
    Ok(to)
}

/// A name of this run alone, should the daemon be the machine's: another run's events are not ours.
fn provider() -> String {
    format!("npt_{}", std::process::id())
}

#[derive(Debug)]
struct ByLttng {
    shared: Rc<Shared>,
    wakeup: Wakeup,
    session: Option<Session>,
}

/// The writer tells the consumer when a sub-buffer is full.
pub fn by_default(shared: Rc<Shared>) -> Box<dyn Tracer> {
    Box::new(ByLttng { shared, wakeup: Wakeup::Writer, session: None })
}

/// The consumer looks now and then.
pub fn with_timer(shared: Rc<Shared>) -> Box<dyn Tracer> {
    Box::new(ByLttng { shared, wakeup: Wakeup::Timer(READ_TIMER_US), session: None })
}

impl Tracer for ByLttng {
    fn event(&self) -> LoopEvent {
        LoopEvent {
            of: Some(self.shared.shared_object.clone().into_os_string()),
            lttng: Some(Rc::clone(&self.shared.lttng)),
        }
    }

    fn start(&mut self, room: &Room, kernel: Kernel) -> Result<(), Error> {
        if kernel == Kernel::Yes {
            if let Some(why) = self.shared.lttng.no_kernel() {
                return Err(Error::Failed(why));
            }
        }
        let channel = Channel {
            sub_buffer_bytes: (room.buffer_bytes / SUB_BUFFERS).max(4096),
            sub_buffers: SUB_BUFFERS,
            wakeup: self.wakeup,
        };
        let name = format!("rtscope-impact-{}", std::process::id());
        let events = format!("{}:loop", provider());
        let session = self.shared.lttng.session(&name, &room.fresh("lttng")?, Some(channel), &events)?;
        let session = self.session.insert(session);
        if kernel == Kernel::Yes {
            session.enable_kernel("sched_*,irq_*", true)?;
        }
        session.start()
    }

    fn stop(&mut self, room: &Room) -> Result<Account, Error> {
        let Some(session) = self.session.take() else { return Ok(Account::default()) };
        session.destroy()?;
        let folder = room.path("lttng");
        let (recorded, lost) = counted(&folder.join("ust"))?;
        let mut account = Account { recorded, lost_said: lost, ..Account::default() };
        if folder.join("kernel").is_dir() {
            let (recorded, lost) = counted(&folder.join("kernel"))?;
            account.kernel = Some(recorded);
            account.lost_said = account.lost_said.zip(lost).map(|(user, kernel)| user + kernel);
        }
        Ok(account)
    }

    fn abandon(&mut self) {
        self.session = None;
    }
}

/// Events of a trace, and those that are missing as it says; `None`: it does not say how many.
fn counted(folder: &Path) -> Result<(u64, Option<u64>), Error> {
    let set = TraceSet::open(folder).map_err(|error| Error::Failed(error.to_string()))?;
    let counts = count(&set, &Selection::default(), &|_| {});
    if let Some(damaged) = set.damaged.iter().chain(&counts.damaged).next() {
        return Err(Error::Failed(damaged.to_string()));
    }
    let known = set.streams.iter().all(|stream| !stream.losses.uncounted && stream.losses.packets == 0);
    let lost = set.streams.iter().map(|stream| stream.losses.events).sum();
    Ok((counts.streams.iter().map(|stream| stream.total()).sum(), known.then_some(lost)))
}
