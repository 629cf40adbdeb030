// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instrumented programs as a flight recorder: for `watch -u` and `record -u --flight-recorder`.
//!
//! Programs overwrite their rings; nobody empties them. For a snapshot the rings are copied while they are written, and what
//! was overwritten is left out. A thread finds programs as they start.

use crate::Failure;
use crate::counting::CountLosses;
use crate::watch::spans::{CountedIntervals, SpanCounts, SpanTracker};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use rtscope_event::{LateResponse, Loss, LossCause, MonotonicNs};
use rtscope_flight::monotonic_now;
use rtscope_programs::clock::{Pair, RATE_NS};
use rtscope_programs::clock_watch::{ClockReport, ClockWatch};
use rtscope_programs::collector::{Askers, DiscardingSink, ProcessReport, Programs, Snapshot, SnapshotSpace};
use rtscope_programs::directory::SHARED_MEMORY;
use rtscope_programs::patterns::RequestedEvents;
use rtscope_programs::session::Settings;
use rtscope_store::user::{UserEnd, UserFilter, UserSession, UserSummary, write_snapshot};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Between polls for programs.
const PAUSE: Duration = Duration::from_millis(20);
/// A snapshot waits this long for programs that have just started to be found.
const LOOK: Duration = Duration::from_millis(50);
/// The last one, after which nothing comes. What runs meanwhile may overwrite older events, as at any time.
const LAST_LOOK: Duration = Duration::from_secs(1);
/// Ended threads are kept for this much longer than snapshots reach back.
const MARGIN: Duration = Duration::from_secs(10);

/// Programs that record.
#[derive(Debug)]
pub struct ProgramFlight {
    shared: Arc<SharedState>,
    thread: Option<JoinHandle<()>>,
    session: UserSession,
    filter: UserFilter,
    /// When the first pair of clock readings was taken.
    begun: Instant,
}

#[derive(Debug)]
struct SharedState {
    stop: AtomicBool,
    /// Events that ask for a snapshot: patterns of theirs, and who has recorded one since that was last asked.
    triggers: Vec<String>,
    /// Whose events count for them.
    filter: UserFilter,
    askers: Mutex<Askers>,
    state: Mutex<RecordingState>,
}

#[derive(Debug)]
struct RecordingState {
    programs: Programs,
    clock: ClockWatch,
    pairs: VecDeque<Pair>,
    /// Pairs events as they come.
    spans: Option<SpanTracker>,
}

/// What rings held, and of which time it is requested.
#[derive(Debug)]
pub struct UserPart {
    session: UserSession,
    filter: UserFilter,
    snapshot: Snapshot,
    pairs: Vec<Pair>,
    clock: ClockReport,
    from: MonotonicNs,
    until: MonotonicNs,
}

impl SharedState {
    fn state(&self) -> MutexGuard<'_, RecordingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn askers(&self) -> MutexGuard<'_, Askers> {
        self.askers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProgramFlight {
    /// Starts recording. `reach_ns`: how far snapshots go back. `context`: what events have of the thread that recorded them.
    pub fn start(
        wanted: (Settings, UserFilter, Vec<String>),
        context: &[&str],
        reach_ns: u64,
    ) -> Result<ProgramFlight, Failure> {
        ProgramFlight::start_with(wanted, context, reach_ns, None)
    }

    fn start_with(
        (settings, filter, triggers): (Settings, UserFilter, Vec<String>),
        context: &[&str],
        reach_ns: u64,
        mut spans: Option<SpanTracker>,
    ) -> Result<ProgramFlight, Failure> {
        let settings = Settings { flight: true, ..settings };
        let context = context.iter().map(ToString::to_string).collect();
        let session = UserSession::of_this_machine(env!("CARGO_PKG_VERSION"), context)?;
        let mut clock = ClockWatch::of_this_machine();
        let (first, begun) = (clock.pair(), Instant::now());
        // COMMAND, which has been forked before, keeps its own.
        crate::limits::raise_file_limit();
        let mut programs = Programs::recording(Path::new(SHARED_MEMORY), settings)?;
        programs.poll(&mut DiscardingSink).map_err(|error| Failure::doing("looking for programs", error))?;
        if !triggers.is_empty() {
            // What is there already asks for nothing. Before anybody is told that it records: the first event of a program that is started then counts.
            programs.askers(&triggers, &|ring| filter.wants(ring));
        }
        if let Some(spans) = &mut spans {
            spans.clock(first);
            programs.new_events(spans);
        }
        let state = RecordingState { programs, clock, pairs: VecDeque::from([first]), spans };
        let shared = Arc::new(SharedState {
            stop: AtomicBool::new(false),
            triggers,
            filter: filter.clone(),
            askers: Mutex::default(),
            state: Mutex::new(state),
        });
        let theirs = Arc::clone(&shared);
        let reach = Duration::from_nanos(reach_ns) + MARGIN;
        let thread = Builder::new()
            .name("programs".to_string())
            .spawn(move || poll_programs(&theirs, reach))
            .map_err(|error| Failure::doing("starting a thread", error))?;
        Ok(ProgramFlight { shared, thread: Some(thread), session, filter, begun })
    }

    /// Users whose programs have recorded an event that asks for a snapshot since the last call.
    pub fn asking(&self) -> BTreeSet<u32> {
        std::mem::take(&mut self.shared.askers().asking)
    }

    /// Users of whose programs such an event may have been overwritten before it was seen.
    pub fn missed(&self) -> BTreeSet<u32> {
        self.shared.askers().missed.clone()
    }

    /// How many programs there are.
    pub fn number(&self) -> u32 {
        self.shared.state().programs.count()
    }

    /// Of the patterns, those of which no program has had an event, and what there is in their place.
    #[must_use]
    pub fn without_event(&self) -> Vec<String> {
        self.shared.state().programs.without_event()
    }

    /// For a watch; `None` when no patterns were given. `spans`: pairs the events as they come, which are among those of the patterns.
    pub fn for_watch(
        patterns: &[String],
        reach_ns: u64,
        spans: Option<SpanTracker>,
    ) -> Result<Option<ProgramFlight>, Failure> {
        if patterns.is_empty() {
            return Ok(None);
        }
        let wanted = RequestedEvents::parse(patterns, u32::MAX)?;
        let settings = Settings { events: wanted, ..Settings::default() };
        let wanted = (settings, UserFilter::default(), Vec::new());
        ProgramFlight::start_with(wanted, &["tid", "cpu"], reach_ns, spans).map(Some)
    }

    /// For who counts intervals, and keeps nothing.
    pub fn of_intervals(patterns: &[String], spans: SpanTracker) -> Result<ProgramFlight, Failure> {
        let settings =
            Settings { events: RequestedEvents::parse(patterns, u32::MAX)?, ..Settings::default() };
        let wanted = (settings, UserFilter::default(), Vec::new());
        ProgramFlight::start_with(wanted, &["tid", "cpu"], 0, Some(spans))
    }

    /// What has been counted of intervals by key, and what is missing there.
    pub fn counted_intervals(&self) -> (CountedIntervals, CountLosses) {
        let state = self.shared.state();
        let Some(spans) = &state.spans else { return Default::default() };
        let counted = spans.counted();
        let left_out = state.left_out();
        let beside = (state.programs.lost(), left_out);
        let losses = CountLosses::of_programs(&spans.counts(), &counted, beside);
        (counted, losses)
    }

    /// Late intervals that were counted, and that nobody fetched in time.
    pub fn late_lost(&self) -> u64 {
        let state = self.shared.state();
        state.spans.as_ref().map_or(0, |spans| spans.counts().sum(|user| user.late_lost))
    }

    /// The late intervals since the last call, and what there is to be said.
    pub fn late_intervals(&self) -> (Vec<LateResponse>, Vec<String>) {
        let mut state = self.shared.state();
        state.spans.as_mut().map_or_else(Default::default, |spans| (spans.take_late(), spans.take_notes()))
    }

    /// Looks for the last time: nothing that comes later counts.
    pub fn last_look(&self) {
        let mut state = self.shared.state();
        // Programs that have come since the last poll. Nothing refuses here: the sink keeps nothing.
        let _ = state.programs.poll_now(&mut DiscardingSink, LAST_LOOK);
        state.look_for_intervals(true);
    }

    /// What was counted of intervals, and what of programs' events is missing in them.
    pub fn interval_counts(&self) -> (SpanCounts, Vec<Loss>) {
        let state = self.shared.state();
        let counts = state.spans.as_ref().map(SpanTracker::counts).unwrap_or_default();
        let loss = |cause, count| Loss { cpu: None, cause, count };
        // How many were overwritten nobody counts.
        let overwritten = if counts.sum(|user| user.missed_looks) > 0 { None } else { Some(0) };
        let is_refused = state.left_out() > 0;
        let losses = vec![
            loss(LossCause::Overwritten, overwritten),
            loss(LossCause::Unreadable, Some(counts.sum(|user| user.damaged))),
            loss(LossCause::TableFull, Some(counts.sum(|user| user.too_many_descriptions + user.forgotten))),
            loss(LossCause::NoBuffer, Some(state.programs.lost())),
            loss(LossCause::Refused, if is_refused { None } else { Some(0) }),
        ];
        (counts, losses)
    }

    /// What the rings hold, as far as there is space for it. `is_last`: what has started just now is waited for longer, as nothing comes after it.
    pub fn freeze(
        &self,
        (from, until): (MonotonicNs, MonotonicNs),
        space: SnapshotSpace,
        is_last: bool,
    ) -> UserPart {
        // Rings may hold what is older than this recorder: the rate for that needs pairs that are not too close.
        sleep(Duration::from_nanos(RATE_NS).saturating_sub(self.begun.elapsed()));
        let mut state = self.shared.state();
        // Programs that have come since the last poll. Nothing refuses here: the sink keeps nothing.
        let look = if is_last { LAST_LOOK } else { LOOK };
        let is_seen = state.programs.poll_now(&mut DiscardingSink, look).unwrap_or(false);
        let pair = state.clock.pair();
        state.pairs.push_back(pair);
        let (pairs, clock) = (state.pairs.iter().copied().collect(), state.clock.report());
        let snapshot = match is_seen {
            true => state.programs.snapshot(space),
            false => state.programs.snapshot_of_seen(space),
        };
        let session = self.session.clone();
        UserPart { session, filter: self.filter.clone(), snapshot, pairs, clock, from, until }
    }
}

/// What there is of users' programs in a snapshot, by the user on whose account they are.
#[derive(Clone, Debug, Default)]
pub struct ProgramBytes {
    /// The memory that copies of rings take.
    pub(crate) held: BTreeMap<u32, u64>,
    /// What describes their events takes in a trace, at most.
    pub(crate) described: BTreeMap<u32, u64>,
}

impl ProgramBytes {
    /// Both.
    pub(crate) fn all(&self) -> BTreeMap<u32, u64> {
        let mut all = self.held.clone();
        for (user, bytes) in &self.described {
            let mine = all.entry(*user).or_default();
            *mine = mine.saturating_add(*bytes);
        }
        all
    }
}

impl Drop for ProgramFlight {
    fn drop(&mut self) {
        // ORDER: relaxed; a flag that stands for itself.
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It panicked: its message is on standard error already.
            let _ = thread.join();
        }
        // Programs stop recording; there is nobody to give what they have to.
        let _ = self.shared.state().programs.stop(&mut DiscardingSink);
    }
}

/// Signals are the main thread's; but one that this thread raises itself would end the process if it were blocked.
pub(crate) fn leave_signals_to_others() {
    let mut others = SigSet::all();
    [Signal::SIGBUS, Signal::SIGSEGV, Signal::SIGILL, Signal::SIGFPE]
        .into_iter()
        .for_each(|signal| others.remove(signal));
    let _ = pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&others), None);
}

fn poll_programs(shared: &SharedState, reach: Duration) {
    leave_signals_to_others();
    let pairs_max = usize::try_from(reach.as_millis() / PAUSE.as_millis()).unwrap_or(usize::MAX).min(1 << 20);
    // ORDER: relaxed; as above.
    while !shared.stop.load(Ordering::Relaxed) {
        {
            let mut state = shared.state();
            // Nothing refuses here: the sink keeps nothing.
            let _ = state.programs.poll(&mut DiscardingSink);
            state.programs.forget_ended(reach);
            if !shared.triggers.is_empty() {
                let found = state.programs.askers(&shared.triggers, &|ring| shared.filter.wants(ring));
                let mut askers = shared.askers();
                askers.asking.extend(found.asking);
                askers.missed.extend(found.missed);
            }
            state.look_for_intervals(false);
            let pair = state.clock.pair();
            state.pairs.push_back(pair);
            let too_many = state.pairs.len().saturating_sub(pairs_max);
            state.pairs.drain(..too_many);
        }
        sleep(PAUSE);
    }
}

impl RecordingState {
    /// Programs and users whose events are not recorded.
    fn left_out(&self) -> u64 {
        let is_left_out = |report: &&ProcessReport| report.dropped.is_some() || report.untraced.is_some();
        let programs = self.programs.reports().iter().filter(is_left_out).count();
        (programs + self.programs.refusals().len()) as u64
    }

    /// Gives what has come since the last time to the tracker of intervals.
    fn look_for_intervals(&mut self, is_last: bool) {
        let Some(spans) = self.spans.as_mut().filter(|spans| !spans.is_over()) else { return };
        let began = monotonic_now();
        self.programs.new_events(spans);
        // Taken after the look: everything that came is between two pairs. Snapshots convert by the same ones.
        let pair = self.clock.pair();
        self.pairs.push_back(pair);
        spans.clock(pair);
        spans.judge(began, MonotonicNs(pair.monotonic_ns), is_last);
    }
}

impl UserPart {
    /// What it has of each user's programs.
    pub(crate) fn program_bytes(&self) -> ProgramBytes {
        ProgramBytes { held: self.snapshot.held.clone(), described: self.snapshot.described.clone() }
    }

    /// Writes the trace of the window.
    pub fn write(&self, target: &Path) -> Result<UserSummary, rtscope_store::Error> {
        let lost_no_buffer = self.snapshot.lost_outside;
        let end = UserEnd {
            ended_ns: self.until.0,
            lost_no_buffer,
            untraced: self.snapshot.untraced,
            dropped: self.snapshot.dropped,
            clock: self.clock.clone(),
            refused: self.snapshot.refusals.clone(),
            by_user: self.snapshot.by_user.clone(),
            ..UserEnd::default()
        };
        let window = (self.from, self.until);
        write_snapshot(&self.session, &self.snapshot, &self.pairs, window, &end, (target, &self.filter))
    }
}
