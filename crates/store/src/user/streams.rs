// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The streams of a recording of programs: as many as readers open without noticing, for any number of threads.
//!
//! A ring has a stream of its own as long as there is one, and shares one with few others afterwards; a thread that ends leaves its place
//! to the next one. Events of a stream are in order of time. A thread can be stopped in the middle of an event, and finish it when the
//! others of its stream are far ahead: such an event goes into one of a few streams for late ones, with its own time, so nobody waits
//! for it. Only what is too late for all of these gets the time of the event before it, and is counted (`moved`).
//!
//! Programs write their times themselves, and may lie: a stream whose last event is from now makes all others that are written to it late. So a
//! stream belongs to one user, and some are kept for users who have none yet. Only if there are more users than that, those who come last
//! share what is left, and that is told.

use rtscope_ctf::{
    Overwritten, RingAccount, RingTrace, TraceInfo, UserClass, UserContext, UserMetadata, UserStreamSummary,
    UserStreamWriter,
};
use rtscope_event::MonotonicNs;
use rtscope_event::exact::count;
use rtscope_programs::is_shortage;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// All of them.
pub(super) const STREAMS_MAX: usize = OWN_MAX + LATE_MAX + KEPT;
/// Those for rings, and for what is late, that whoever comes first may have: both, also if he has all rings. A recording that takes over from one that was killed finds full
/// rings one after the other, and each that is found later begins with events that are late.
const OWN_MAX: usize = 48;
const LATE_MAX: usize = 24;
/// Those of users who have none of their kind; the last two are for all who find no other.
const KEPT: usize = 8;
const COMMON: usize = 2;
/// A stream that was left is another user's when its last event is older than what a new ring may begin with.
const SETTLED_NS: u64 = 1_000_000_000;
/// The account of streams that belong to several users.
pub(super) const COMMON_UID: u32 = u32::MAX;
/// Files that the collector must be able to open besides streams: rings, while they are mapped, and those of /proc.
const FILES_RESERVED: u64 = 48;

/// How many streams there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamLimits {
    all: usize,
    own: usize,
    late: usize,
    /// For users who have none.
    kept: usize,
}

impl StreamLimits {
    pub(super) const RECORDING: StreamLimits =
        StreamLimits { all: STREAMS_MAX, own: OWN_MAX, late: LATE_MAX, kept: KEPT };
    /// Everything is there before any of it is written: nothing is late, and all users are merged into one.
    pub(super) const SNAPSHOT: StreamLimits = StreamLimits { all: 1, own: 1, late: 0, kept: 0 };
}

/// Whose a stream is: one user's, or of all who found no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    User(u32),
    Common,
}

impl Owner {
    /// On which its files are, where they have a limit.
    fn account(self) -> RingAccount {
        match self {
            Owner::User(uid) => Some(uid),
            // Nobody has this number.
            Owner::Common => Some(COMMON_UID),
        }
    }
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
    late: Vec<Late>,
    /// Users who found no stream of their own.
    crowded: BTreeSet<u32>,
    /// No more files may be open.
    is_full: bool,
}

/// A stream for what is late.
#[derive(Debug)]
struct Late {
    out: UserStreamWriter,
    owner: Owner,
}

#[derive(Debug)]
struct Stream {
    /// Until its first event comes.
    file: Option<NewStream>,
    out: Option<UserStreamWriter>,
    /// Of its file.
    number: usize,
    /// Rings that write into it now, and whose they are.
    rings: usize,
    owner: Owner,
    /// More than one ring has written into it.
    is_shared: bool,
}

/// What there was in them, their metadata, and what was removed if the trace has a limit.
pub(super) type FinishedStreams =
    (Vec<UserStreamSummary>, Option<UserMetadata>, Option<(Overwritten, BTreeMap<u32, u64>)>);

/// A stream without events.
#[derive(Debug)]
enum NewStream {
    File(File),
    /// Its files are made when events come.
    Limited,
}

impl Stream {
    fn give(&mut self, owner: Owner) -> io::Result<()> {
        self.owner = owner;
        self.out.as_mut().map_or(Ok(()), |out| out.set_account(owner.account()))
    }

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
        let (own, late, crowded) = (Vec::new(), Vec::new(), BTreeSet::new());
        Streams {
            directory,
            info,
            context,
            limits,
            limit,
            metadata: None,
            own,
            late,
            crowded,
            is_full: false,
        }
    }

    /// The stream of a new ring of this user: an empty one; else the emptiest of the user's. Whoever has none gets one that is kept for
    /// that, or shares with others who found none. `now_ns`: about now, or before.
    pub(super) fn assign(&mut self, uid: u32, now_ns: u64) -> io::Result<usize> {
        let at = match self.empty(uid, now_ns)? {
            Some(at) => at,
            None => match self.emptiest(Owner::User(uid)) {
                Some(at) => at,
                None => self.common(uid)?,
            },
        };
        let stream = &mut self.own[at];
        stream.is_shared |= stream.rings > 0 || stream.out.is_some();
        stream.rings += 1;
        Ok(at)
    }

    /// A stream that no ring writes into, and that is this user's from now on.
    fn empty(&mut self, uid: u32, now_ns: u64) -> io::Result<Option<usize>> {
        let owner = Owner::User(uid);
        let is_left = |at: &usize| self.own[*at].rings == 0;
        // Where the last event is oldest, the new ring's first one is not late.
        let left = (0..self.own.len()).filter(is_left);
        let of_user = |at: &usize| self.own[*at].owner == owner;
        if let Some(at) = left.clone().filter(of_user).min_by_key(|at| self.own[*at].latest_ns()) {
            return Ok(Some(at));
        }
        // What others left counts as nobody's, once it is old.
        let is_settled = |at: &usize| self.own[*at].latest_ns().saturating_add(SETTLED_NS) <= now_ns;
        let free = left.filter(is_settled);
        let has_one = (0..self.own.len()).any(|at| of_user(&at));
        if has_one && self.own.len() - free.clone().count() >= self.limits.own {
            return Ok(None);
        }
        if let Some(at) = free.min_by_key(|at| self.own[*at].latest_ns()) {
            self.own[at].give(owner)?;
            return Ok(Some(at));
        }
        self.add(owner, has_one)
    }

    fn emptiest(&self, owner: Owner) -> Option<usize> {
        let of_owner = (0..self.own.len()).filter(|at| self.own[*at].owner == owner);
        of_owner.min_by_key(|at| self.own[*at].rings)
    }

    /// The stream of users who found none.
    fn common(&mut self, uid: u32) -> io::Result<usize> {
        if self.limits.kept > 0 {
            self.crowded.insert(uid);
        }
        if let Some(at) = self.emptiest(Owner::Common) {
            return Ok(at);
        }
        if let Some(at) = self.add(Owner::Common, false)? {
            return Ok(at);
        }
        // One for all, or no more files may be open: somebody has to share, and does so with all who come.
        let fewest = (0..self.own.len()).min_by_key(|at| self.own[*at].rings).ok_or_else(too_many_files)?;
        self.own[fewest].give(Owner::Common)?;
        Ok(fewest)
    }

    /// Users whose events have a stream together with those of others, so that their times may depend on these.
    pub(super) fn crowded(&self) -> &BTreeSet<u32> {
        &self.crowded
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

    /// One more stream, unless there are as many as there may be. `has_one`: its owner has some of this kind.
    fn add(&mut self, owner: Owner, has_one: bool) -> io::Result<Option<usize>> {
        let number = self.own.len() + self.late.len();
        if number >= self.streams_max(owner, has_one) {
            return Ok(None);
        }
        let Some(file) = self.file(number)? else { return Ok(None) };
        self.own.push(Stream { file: Some(file), out: None, number, rings: 0, owner, is_shared: false });
        Ok(Some(self.own.len() - 1))
    }

    /// As many as there may be when one is added of this owner.
    fn streams_max(&self, owner: Owner, has_one: bool) -> usize {
        let StreamLimits { all, kept, .. } = self.limits;
        all - match owner {
            Owner::User(_) if has_one => kept,
            Owner::User(_) => COMMON.min(kept),
            Owner::Common => 0,
        }
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
        (new, owner): (NewStream, Owner),
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
                let mut made = made.map_err(io::Error::other)?;
                made.set_account(owner.account())?;
                Ok(made)
            }
            (NewStream::Limited, None) => Err(io::Error::other("a stream has no files")),
        }
    }

    /// Streams for which other files are due continue there.
    pub(super) fn turn(&mut self) -> io::Result<()> {
        if self.limit.is_none() {
            return Ok(());
        }
        self.all().try_for_each(UserStreamWriter::turn)
    }

    fn all(&mut self) -> impl Iterator<Item = &mut UserStreamWriter> {
        let own = self.own.iter_mut().filter_map(|stream| stream.out.as_mut());
        own.chain(self.late.iter_mut().map(|late| &mut late.out))
    }

    /// Before events are written: declares all classes that they may have.
    pub(super) fn declare(&mut self, at: usize, classes: &[UserClass]) -> io::Result<()> {
        let (Some(stream), Some(metadata)) = (self.own.get_mut(at), &mut self.metadata) else {
            return Ok(());
        };
        let owner = stream.owner;
        let late = self.late.iter_mut().filter(|late| late.owner == owner);
        for out in stream.out.iter_mut().chain(late.map(|late| &mut late.out)) {
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
        let begins = |stream: &mut Stream| Some(((stream.file.take()?, stream.owner), stream.number));
        let new = self.own.get_mut(at).and_then(begins);
        if let Some((new, number)) = new {
            let out = self.open(new, number, classes.len(), MonotonicNs(begin_ns))?;
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
        let owner = stream.owner;
        // The best fit: so a few streams are enough for what is late in different ways.
        let of_owner = (0..self.late.len()).filter(|at| self.late[*at].owner == owner);
        let fits = |at: &usize| self.late[*at].out.latest().0 <= time_ns;
        let best = of_owner.clone().filter(fits).max_by_key(|at| self.late[*at].out.latest());
        let has_late = of_owner.clone().next().is_some();
        let best = match best {
            Some(best) => Some(best),
            None => self.add_late((owner, has_late), classes, time_ns)?,
        };
        // The stream of a thread that is idle may be older; its own events may be late from now on.
        let own =
            |stream: &Stream| stream.owner == owner && stream.out.is_some() && stream.latest_ns() <= time_ns;
        let fits = self.own.iter().enumerate().filter(|(_, stream)| best.is_none() && own(stream));
        if let Some((idle, _)) = fits.max_by_key(|(_, stream)| stream.latest_ns()) {
            self.declare(idle, classes)?;
            let stream = self.own.get_mut(idle);
            return Ok(stream.and_then(|stream| {
                stream.is_shared = true;
                stream.out.as_mut()
            }));
        }
        let best = best.or_else(|| self.oldest_late(owner));
        Ok(match best {
            Some(best) => self.late.get_mut(best).map(|late| &mut late.out),
            None => self.own.get_mut(at).and_then(|stream| stream.out.as_mut()),
        })
    }

    /// One more stream for what is late; `has_late`: its owner has one.
    fn add_late(
        &mut self,
        (owner, has_late): (Owner, bool),
        classes: &[UserClass],
        begin_ns: u64,
    ) -> io::Result<Option<usize>> {
        if has_late && self.late.len() >= self.limits.late {
            return Ok(None);
        }
        let number = self.own.len() + self.late.len();
        if number >= self.streams_max(owner, has_late) {
            return self.left_late(owner, classes, begin_ns);
        }
        let Some(new) = self.file(number)? else { return Ok(None) };
        // Later ones may be older than this one, down to the beginning: only if none fits better.
        let out = self.open((new, owner), number, classes.len(), MonotonicNs(begin_ns))?;
        if let Some(metadata) = &mut self.metadata {
            metadata.declare(out.class(), classes)?;
        }
        self.late.push(Late { out, owner });
        Ok(Some(self.late.len() - 1))
    }

    /// One of a user who has no rings any more.
    fn left_late(&mut self, owner: Owner, classes: &[UserClass], time_ns: u64) -> io::Result<Option<usize>> {
        let is_there = |of: Owner| self.own.iter().any(|stream| stream.owner == of && stream.rings > 0);
        let fits = |late: &Late| late.out.latest().0 <= time_ns && !is_there(late.owner);
        let Some(at) = self.late.iter().position(fits) else { return Ok(None) };
        let (late, metadata) = (&mut self.late[at], &mut self.metadata);
        late.owner = owner;
        late.out.set_account(owner.account())?;
        late.out.expect_classes(classes.len());
        if let Some(metadata) = metadata {
            metadata.declare(late.out.class(), classes)?;
        }
        Ok(Some(at))
    }

    fn oldest_late(&self, owner: Owner) -> Option<usize> {
        let of_owner = (0..self.late.len()).filter(|at| self.late[*at].owner == owner);
        of_owner.min_by_key(|at| self.late[*at].out.latest())
    }

    /// Writes all that is buffered. Returns the number of bytes.
    pub(super) fn flush(&mut self) -> io::Result<u64> {
        let mut bytes = 0;
        for out in self.all().filter(|out| out.has_unwritten()) {
            bytes += out.in_hand() as u64;
            out.flush()?;
        }
        Ok(bytes)
    }

    /// Ends all streams; those without anything are removed.
    pub(super) fn finish(self, end_ns: u64) -> io::Result<FinishedStreams> {
        let mut done = Vec::new();
        for stream in self.own {
            match stream.out {
                Some(out) => done.push(out.finish(MonotonicNs(end_ns))?),
                None if self.limit.is_some() => {}
                None => fs::remove_file(self.directory.join(stream_name(stream.number)))?,
            }
        }
        for Late { out, .. } in self.late {
            done.push(out.finish(MonotonicNs(end_ns))?);
        }
        let of_users = |limit: &RingTrace| {
            let all = limit.ring().overwritten_by_account().into_iter();
            (limit.overwritten(), all.filter_map(|(account, events)| Some((account?, events))).collect())
        };
        let overwritten = self.limit.as_ref().map(of_users);
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

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
