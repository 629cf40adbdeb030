// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The streams of a recording of programs: as many as readers open without noticing, for any number of threads.
//!
//! A ring has a stream of its own as long as there is one, and shares one with few others afterwards; a thread that ends leaves its place
//! to the next one. Events of a stream are in order of time. A thread can be stopped in the middle of an event, and finish it when the
//! others of its stream are far ahead: such an event goes into one of a few streams for late ones, with its own time, so nobody waits
//! for it. Only what is too late for all of these gets the time of the event before it, and is counted (`moved`).

use rtscope_ctf::{
    Overwritten, RingTrace, TraceInfo, UserClass, UserContext, UserMetadata, UserStreamSummary,
    UserStreamWriter,
};
use rtscope_event::MonotonicNs;
use rtscope_event::exact::count;
use rtscope_programs::is_shortage;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// Streams for rings, and for what is late.
pub(super) const OWN_MAX: usize = 48;
pub(super) const LATE_MAX: usize = 16;
/// All of them.
pub(super) const STREAMS_MAX: usize = OWN_MAX + LATE_MAX;
/// Files that the collector must be able to open besides streams: rings, while they are mapped, and those of /proc.
const FILES_RESERVED: u64 = 48;

/// How many streams there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamLimits {
    pub(super) own: usize,
    pub(super) late: usize,
}

impl StreamLimits {
    pub(super) const RECORDING: StreamLimits = StreamLimits { own: OWN_MAX, late: LATE_MAX };
    /// Everything is there before any of it is written: nothing is late.
    pub(super) const SNAPSHOT: StreamLimits = StreamLimits { own: 1, late: 0 };
}

/// The streams, and the metadata that declares what is in them.
#[derive(Debug)]
pub(super) struct Streams {
    directory: PathBuf,
    info: TraceInfo,
    context: UserContext,
    limits: StreamLimits,
    /// What limits the trace's size.
    limit: Option<RingTrace>,
    /// As of the first ring.
    metadata: Option<UserMetadata>,
    own: Vec<Stream>,
    late: Vec<UserStreamWriter>,
    /// No more files may be open.
    is_full: bool,
}

#[derive(Debug)]
struct Stream {
    /// Until its first event comes.
    file: Option<NewStream>,
    out: Option<UserStreamWriter>,
    /// Rings that write into it now, and whose they are.
    rings: usize,
    uid: u32,
    /// More than one ring has written into it.
    is_shared: bool,
}

/// What there was in them, their metadata, and what was removed if the trace has a limit.
pub(super) type FinishedStreams = (Vec<UserStreamSummary>, Option<UserMetadata>, Option<Overwritten>);

/// A stream without events.
#[derive(Debug)]
enum NewStream {
    File(File),
    /// Its files are made when events come.
    Limited,
}

impl Stream {
    fn latest_ns(&self) -> u64 {
        self.out.as_ref().map_or(0, |out| out.latest().0)
    }
}

impl Streams {
    pub(super) fn new(
        directory: PathBuf,
        info: TraceInfo,
        context: UserContext,
        limits: StreamLimits,
        limit: Option<RingTrace>,
    ) -> Streams {
        let (own, late) = (Vec::new(), Vec::new());
        Streams { directory, info, context, limits, limit, metadata: None, own, late, is_full: false }
    }

    /// The stream of a new ring of this user: an empty one; else the emptiest, of the same user if there is one.
    pub(super) fn assign(&mut self, uid: u32) -> io::Result<usize> {
        let left = (0..self.own.len()).filter(|at| self.own[*at].rings == 0);
        // Where the last event is oldest, the new ring's first one is not late.
        let found = left.min_by_key(|at| self.own[*at].latest_ns());
        let at = match found {
            Some(at) => at,
            None => match self.add()? {
                Some(at) => at,
                None => self.emptiest(uid).ok_or_else(too_many_files)?,
            },
        };
        let stream = &mut self.own[at];
        stream.is_shared |= stream.rings > 0 || stream.out.is_some();
        (stream.rings, stream.uid) = (stream.rings + 1, uid);
        Ok(at)
    }

    fn emptiest(&self, uid: u32) -> Option<usize> {
        (0..self.own.len()).min_by_key(|at| (self.own[*at].uid != uid, self.own[*at].rings))
    }

    /// A ring no longer writes into its stream.
    pub(super) fn leave(&mut self, at: usize) {
        if let Some(stream) = self.own.get_mut(at) {
            stream.rings = stream.rings.saturating_sub(1);
        }
    }

    /// Whether several rings write into it now.
    pub(super) fn is_shared_now(&self, at: usize) -> bool {
        self.own.get(at).is_some_and(|stream| stream.rings > 1)
    }

    /// One more stream, unless there are as many as there may be.
    fn add(&mut self) -> io::Result<Option<usize>> {
        if self.own.len() >= self.limits.own {
            return Ok(None);
        }
        let Some(file) = self.file(self.own.len())? else { return Ok(None) };
        self.own.push(Stream { file: Some(file), out: None, rings: 0, uid: 0, is_shared: false });
        Ok(Some(self.own.len() - 1))
    }

    fn file(&mut self, number: usize) -> io::Result<Option<NewStream>> {
        if self.is_full {
            return Ok(None);
        }
        if self.metadata.is_none() {
            fs::create_dir_all(&self.directory)?;
            let metadata =
                UserMetadata::limited(&self.directory, self.context, &self.info, self.limit.clone());
            let mut metadata = metadata.map_err(io::Error::other)?;
            metadata.publish()?;
            self.metadata = Some(metadata);
        }
        if self.limit.is_some() {
            return Ok(Some(NewStream::Limited));
        }
        let path = self.directory.join(stream_name(number));
        let file = match File::create_new(&path) {
            Err(error) if is_shortage(&error) => None,
            made => Some(made?),
        };
        // The kernel assigns the lowest free number. One stream there must be.
        let is_last = |file: &File| {
            u64::from(file.as_raw_fd().unsigned_abs()) + FILES_RESERVED >= file_limit()
                && !self.own.is_empty()
        };
        if file.as_ref().is_some_and(is_last) {
            fs::remove_file(path)?;
            self.is_full = true;
            return Ok(None);
        }
        self.is_full = file.is_none();
        Ok(file.map(NewStream::File))
    }

    /// Begins a stream that is new.
    fn open(
        &self,
        new: NewStream,
        number: usize,
        classes: usize,
        begin: MonotonicNs,
    ) -> io::Result<UserStreamWriter> {
        let uuid = self.info.trace_uuid;
        match (new, &self.limit) {
            (NewStream::File(file), _) => {
                Ok(UserStreamWriter::in_file(file, count(number), uuid, classes, begin))
            }
            (NewStream::Limited, Some(ring)) => {
                let place = (ring, self.directory.as_path(), stream_name(number));
                let place = (place.0, place.1, place.2.as_str());
                let made = UserStreamWriter::in_ring(place, count(number), uuid, classes, begin);
                made.map_err(io::Error::other)
            }
            (NewStream::Limited, None) => Err(io::Error::other("a stream has no files")),
        }
    }

    /// Streams for which other files are due continue there.
    pub(super) fn turn(&mut self) -> io::Result<()> {
        if self.limit.is_none() {
            return Ok(());
        }
        let own = self.own.iter_mut().filter_map(|stream| stream.out.as_mut());
        own.chain(&mut self.late).try_for_each(UserStreamWriter::turn)
    }

    /// Before events are written: declares all classes that they may have.
    pub(super) fn declare(&mut self, at: usize, classes: &[UserClass]) -> io::Result<()> {
        let (Some(stream), Some(metadata)) = (self.own.get_mut(at), &mut self.metadata) else {
            return Ok(());
        };
        for out in stream.out.iter_mut().chain(&mut self.late) {
            out.expect_classes(classes.len());
            metadata.declare(out.class(), classes)?;
        }
        Ok(())
    }

    /// The stream, which begins now if it has not; none of its events is older than `begin_ns`.
    pub(super) fn begin(
        &mut self,
        at: usize,
        classes: &[UserClass],
        begin_ns: u64,
    ) -> io::Result<Option<&mut UserStreamWriter>> {
        if let Some(new) = self.own.get_mut(at).and_then(|stream| stream.file.take()) {
            let out = self.open(new, at, classes.len(), MonotonicNs(begin_ns))?;
            if let Some(metadata) = &mut self.metadata {
                metadata.declare(out.class(), classes)?;
            }
            self.own[at].out = Some(out);
        }
        Ok(self.own.get_mut(at).and_then(|stream| stream.out.as_mut()))
    }

    /// The stream if it has begun.
    pub(super) fn begun(&mut self, at: usize) -> Option<&mut UserStreamWriter> {
        self.own.get_mut(at)?.out.as_mut()
    }

    /// Where an event of this time is written: its stream, unless it is too late for that.
    pub(super) fn writer(
        &mut self,
        at: usize,
        classes: &[UserClass],
        time_ns: u64,
    ) -> io::Result<Option<&mut UserStreamWriter>> {
        let Some(stream) = self.own.get(at) else { return Ok(None) };
        // A thread that is alone writes in order, but for a few ns; or it lies, and has only itself to blame.
        if !stream.is_shared || time_ns >= stream.latest_ns() || self.limits.late == 0 {
            return Ok(self.own.get_mut(at).and_then(|stream| stream.out.as_mut()));
        }
        // The best fit: so a few streams are enough for what is late in different ways.
        let fits = |at: &usize| self.late[*at].latest().0 <= time_ns;
        let best = (0..self.late.len()).filter(fits).max_by_key(|at| self.late[*at].latest());
        let best = match best {
            Some(best) => Some(best),
            None => self.add_late(classes, time_ns)?,
        };
        // The stream of a thread that is idle may be older; its own events may be late from now on.
        let own = |stream: &Stream| stream.out.is_some() && stream.latest_ns() <= time_ns;
        let fits = self.own.iter().enumerate().filter(|(_, stream)| best.is_none() && own(stream));
        if let Some((idle, _)) = fits.max_by_key(|(_, stream)| stream.latest_ns()) {
            self.declare(idle, classes)?;
            let stream = self.own.get_mut(idle);
            return Ok(stream.and_then(|stream| {
                stream.is_shared = true;
                stream.out.as_mut()
            }));
        }
        let best = best.or_else(|| self.oldest_late());
        Ok(match best {
            Some(best) => self.late.get_mut(best),
            None => self.own.get_mut(at).and_then(|stream| stream.out.as_mut()),
        })
    }

    fn add_late(&mut self, classes: &[UserClass], begin_ns: u64) -> io::Result<Option<usize>> {
        if self.late.len() >= self.limits.late {
            return Ok(None);
        }
        let number = self.limits.own + self.late.len();
        let Some(new) = self.file(number)? else { return Ok(None) };
        // Later ones may be older than this one, down to the beginning: only if none fits better.
        let out = self.open(new, number, classes.len(), MonotonicNs(begin_ns))?;
        if let Some(metadata) = &mut self.metadata {
            metadata.declare(out.class(), classes)?;
        }
        self.late.push(out);
        Ok(Some(self.late.len() - 1))
    }

    fn oldest_late(&self) -> Option<usize> {
        (0..self.late.len()).min_by_key(|at| self.late[*at].latest())
    }

    /// Writes all that is buffered. Returns the number of bytes.
    pub(super) fn flush(&mut self) -> io::Result<u64> {
        let own = self.own.iter_mut().filter_map(|stream| stream.out.as_mut());
        let mut bytes = 0;
        for out in own.chain(&mut self.late).filter(|out| out.has_unwritten()) {
            bytes += out.in_hand() as u64;
            out.flush()?;
        }
        Ok(bytes)
    }

    /// Ends all streams; those without anything are removed.
    pub(super) fn finish(self, end_ns: u64) -> io::Result<FinishedStreams> {
        let mut done = Vec::new();
        for (number, stream) in self.own.into_iter().enumerate() {
            match stream.out {
                Some(out) => done.push(out.finish(MonotonicNs(end_ns))?),
                None if self.limit.is_some() => {}
                None => fs::remove_file(self.directory.join(stream_name(number)))?,
            }
        }
        for out in self.late {
            done.push(out.finish(MonotonicNs(end_ns))?);
        }
        let overwritten = self.limit.as_ref().map(RingTrace::overwritten);
        Ok((done, self.metadata, overwritten))
    }
}

fn too_many_files() -> io::Error {
    io::Error::from_raw_os_error(nix::errno::Errno::EMFILE as i32)
}

pub(super) fn stream_name(number: usize) -> String {
    format!("user_{number}")
}

/// The limit of open files of this process.
fn file_limit() -> u64 {
    use nix::sys::resource::{Resource, getrlimit};
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(limit, _)| limit)
}
