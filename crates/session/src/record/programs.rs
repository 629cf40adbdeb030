// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The recording of instrumented programs: one thread that finds them, and makes a trace of what is in their rings.
//!
//! It polls. A program never notifies it, since that would be a system call in the middle of its work; what the
//! poll costs is this thread's alone (`pace`). Only new files and the end of the recording wake it.

use super::ProgramsProgress;
use super::channels::{ChannelNotes, NotingRecorder};
use super::pace::Pace;
use super::ring::DiskLimit;
use super::settings::{Context, ProgramsSettings};
use crate::{Failure, Observer};
use nix::sys::eventfd::{EfdFlags, EventFd};
use rtscope_flight::monotonic_now;
use rtscope_hardware::inventory::Machine;
use rtscope_programs::channels::{ChannelDevice, Channels, Destination};
use rtscope_programs::clock_watch::ClockWatch;
use rtscope_programs::collector::{Programs, RecordedElsewhere};
use rtscope_programs::directory::SHARED_MEMORY;
use rtscope_programs::patterns::RequestedEvents;
use rtscope_programs::session::Settings;
use rtscope_store::user::{UserEnd, UserFilter, UserRecorder, UserRecording, UserSession};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Between pairs of the programs' counter and the clock: the rate does not change in less.
const CLOCK_EVERY: Duration = Duration::from_millis(50);
/// Whatever makes files all the time wakes the thread no more often.
const WAKE_EVERY: Duration = Duration::from_millis(10);
/// Reasons why programs are not recorded: a user could have any number of containers.
const UNRECORDED_MAX: usize = 100;
/// A larger buffer for one thread is a mistake.
const BUFFER_MAX: usize = rtscope_abi::program::RTU_RING_BYTES_MAX as usize;

/// A recording under way. When it is dropped without [`ProgramsRecording::stop`], programs are switched off, and nothing is kept.
#[derive(Debug)]
pub struct ProgramsRecording {
    thread: Option<JoinHandle<RecordingEnd>>,
    shared: Arc<SharedState>,
}

#[derive(Debug)]
struct SharedState {
    stop: AtomicBool,
    /// Ends the thread's sleep.
    wake: EventFd,
    failed: AtomicBool,
    bytes: AtomicU64,
    events: AtomicU64,
    lost: AtomicU64,
    rings: AtomicU32,
    programs: AtomicU32,
}

/// What the thread leaves.
#[derive(Debug)]
struct RecordingEnd {
    recorder: NotingRecorder,
    /// `None`: it could not go on.
    end: Option<UserEnd>,
    failure: Option<io::Error>,
}

impl ProgramsRecording {
    /// Takes the right to record, and starts.
    pub fn start(
        (wanted, command): (&ProgramsSettings, Option<u32>),
        fifo: Option<u8>,
        (target, limit): (&Path, Option<&DiskLimit>),
        observer: &dyn Observer,
    ) -> Result<ProgramsRecording, Failure> {
        let (mut settings, filter) = settings(wanted, command)?;
        settings.trace_bytes_max = limit.map(DiskLimit::bytes);
        let context = wanted.context.iter().map(|context| Context::name(*context).to_string()).collect();
        let session = UserSession::of_this_machine(env!("CARGO_PKG_VERSION"), context)?;
        // COMMAND, which has been forked before, keeps its own.
        crate::limits::raise_file_limit();
        let channels = settings.channels.clone();
        let mut programs = Programs::recording(Path::new(SHARED_MEMORY), settings)?;
        let recorder =
            UserRecorder::limited(target, &session, (limit.map(|limit| limit.files.trace()), filter))?;
        // Beside the directory of the programs' trace.
        let place = target.parent().unwrap_or(target);
        let notes = channels.as_ref().map(|channels| ChannelNotes::new(place, &session, &channels.device));
        let mut recorder = NotingRecorder { recorder, notes };
        // Those that run are enabled before COMMAND starts, and before this returns. The clock first: what is older than its first pair
        // waits until the second.
        let mut clock = ClockWatch::of_this_machine();
        let begun = recorder.clock(clock.pair()).and_then(|()| programs.poll(&mut recorder));
        if let Err(error) = begun {
            recorder.recorder.discard();
            return Err(Failure::system("writing the recording", &error));
        }
        unrecorded(&programs).iter().for_each(|why| observer.note(why));
        channels.iter().for_each(|channels| observer.note(&channel_note(channels, place)));
        let shared =
            SharedState::new().map_err(|error| Failure::doing("making an event descriptor", error))?;
        let shared = Arc::new(shared);
        let theirs = Arc::clone(&shared);
        let blocking = wanted.blocking;
        let thread = Builder::new()
            .name("user".to_string())
            .spawn(move || work(programs, (recorder, clock), &theirs, fifo, blocking))
            .map_err(|error| Failure::doing("starting a thread", error))?;
        Ok(ProgramsRecording { thread: Some(thread), shared })
    }

    /// Whether it had to give up.
    pub fn has_failed(&self) -> bool {
        // ORDER: relaxed; a flag that stands for itself.
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// For the progress line.
    pub fn progress(&self) -> ProgramsProgress {
        // ORDER: relaxed; numbers for people.
        ProgramsProgress {
            bytes: self.shared.bytes.load(Ordering::Relaxed),
            events: self.shared.events.load(Ordering::Relaxed),
            lost: self.shared.lost.load(Ordering::Relaxed),
            rings: self.shared.rings.load(Ordering::Relaxed),
            programs: self.shared.programs.load(Ordering::Relaxed),
        }
    }

    /// Switches off and takes what is left. Also gives what ended it early, if something did.
    pub fn stop(mut self) -> Result<(UserRecording, Option<Failure>), Failure> {
        let gone = || Failure::Failed("the thread that records programs has ended unexpectedly".to_string());
        let ended = self.join().ok_or_else(gone)?;
        let recording = match &ended.end {
            Some(end) => ended.recorder.recorder.finish(end)?,
            None => ended.recorder.recorder.abandon(),
        };
        Ok((recording, ended.failure.map(|error| Failure::system("writing the events of programs", &error))))
    }
}

impl ProgramsRecording {
    fn join(&mut self) -> Option<RecordingEnd> {
        // ORDER: relaxed; the thread acts on nothing else that this one has written.
        self.shared.stop.store(true, Ordering::Relaxed);
        // It only fails when it is set already.
        let _ = self.shared.wake.write(1);
        self.thread.take()?.join().ok()
    }
}

impl Drop for ProgramsRecording {
    fn drop(&mut self) {
        if let Some(ended) = self.join() {
            ended.recorder.recorder.discard();
        }
    }
}

/// What is asked of programs, and what the collector leaves out. `command`: the number of COMMAND.
pub(super) fn settings(
    wanted: &ProgramsSettings,
    command: Option<u32>,
) -> Result<(Settings, UserFilter), Failure> {
    let (patterns, filter) = super::choice::of(wanted, command)?;
    let events = RequestedEvents::parse(&patterns, wanted.levels.to)?;
    let buffer = wanted.buffer_bytes.unwrap_or(0);
    if buffer > BUFFER_MAX {
        return Err(Failure::Usage("--user-buffer: at most 1G for each thread".to_string()));
    }
    let ring_bytes = u32::try_from(buffer).unwrap_or(0);
    let channels = super::backend::channels(wanted, Path::new("/"))?;
    let (blocking, uids) = (wanted.blocking, wanted.processes.uids.clone());
    Ok((Settings { events, ring_bytes, blocking, uids, channels, ..Settings::default() }, filter))
}

/// Where events go, and how to read them.
fn channel_note(channels: &Channels, place: &Path) -> String {
    let ChannelDevice { name, policy, .. } = match &channels.device {
        Destination::Stm(device) => device,
        Destination::Ptwrite => return ptwrite_note(channels, place),
    };
    format!(
        "events go to channels of /dev/{name} ({policy}), and not into the trace: rtscope hardware decode STREAM --unit stp --programs {} -o DIR makes one of what comes out of the device",
        place.display()
    )
}

/// What has to be recorded beside this, and whether anything comes. Each program asks its processor itself.
fn ptwrite_note(channels: &Channels, place: &Path) -> String {
    let without = match (Machine::here().cpuid.has_ptwrite(), channels.or_ring) {
        (Some(true), _) => "",
        (_, false) => {
            "; this processor has no PTWRITE, as CPUID says: programs lose these events, and count them"
        }
        (_, true) => "; this processor has no PTWRITE, as CPUID says: programs use their buffers instead",
    };
    format!(
        "events go to PTWRITE, and not into the trace: capture Intel PT meanwhile (rtscope hardware capture intel_pt/ptw=1,branch=0/u -o CAPTURE), then rtscope hardware decode CAPTURE --programs {} -o DIR makes a trace of them{without}",
        place.display()
    )
}

/// Whose programs are not recorded, and why.
fn unrecorded(programs: &Programs) -> Vec<String> {
    let busy = programs.busy.iter().map(|RecordedElsewhere { user, pid, container }| match container {
        None => format!("programs of user {user} are recorded by process {pid}, not by this one"),
        Some(shown) => {
            format!("programs in a container of user {user} ({shown}) are recorded by its process {pid}, not by this one")
        }
    });
    programs.refused.iter().cloned().chain(busy).take(UNRECORDED_MAX).collect()
}

/// Lets the recording end when its thread does: it would go on, and record nothing.
struct ToldOfPanic<'a>(&'a SharedState);

impl Drop for ToldOfPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // ORDER: relaxed; see has_failed().
            self.0.failed.store(true, Ordering::Relaxed);
        }
    }
}

fn work(
    mut programs: Programs,
    (mut recorder, mut clock): (NotingRecorder, ClockWatch),
    shared: &SharedState,
    fifo: Option<u8>,
    blocking: bool,
) -> RecordingEnd {
    let _told = ToldOfPanic(shared);
    let told: BTreeSet<String> = unrecorded(&programs).into_iter().collect();
    let result = fifo
        .map_or(Ok(()), crate::realtime::become_fifo)
        .and_then(|()| collect(&mut programs, (&mut recorder, &mut clock), shared, blocking));
    match result {
        Ok(()) => {
            let end = UserEnd::of(monotonic_now().0, &programs.reports(), programs.refusals());
            let mut end = UserEnd { clock: clock.report(), ..end }.and(&programs.past_by_user());
            match &mut recorder.notes {
                Some(notes) => {
                    // The trace is whole without them.
                    let written = notes.write(end.ended_ns, clock.pair());
                    end.remarks
                        .extend(written.err().map(|error| format!("{}: {error}", super::channels::FILE)));
                }
                None => end.channels = 0,
            }
            end.remarks.extend(programs.without_event());
            // Of those that came to be there since the start.
            end.remarks.extend(unrecorded(&programs).into_iter().filter(|why| !told.contains(why)));
            RecordingEnd { recorder, end: Some(end), failure: None }
        }
        Err(error) => {
            // ORDER: relaxed; see has_failed().
            shared.failed.store(true, Ordering::Relaxed);
            RecordingEnd { recorder, end: None, failure: Some(error) }
        }
    }
}

fn collect(
    programs: &mut Programs,
    (recorder, watch): (&mut NotingRecorder, &mut ClockWatch),
    shared: &SharedState,
    blocking: bool,
) -> io::Result<()> {
    let mut pace = Pace::new(blocking);
    let mut clock: Option<Instant> = None;
    let (mut emptied, mut woken) = (Instant::now(), Instant::now());
    loop {
        // ORDER: relaxed; see stop().
        let stopping = shared.stop.load(Ordering::Relaxed);
        if stopping || clock.is_none_or(|clock| clock.elapsed() >= CLOCK_EVERY) {
            recorder.clock(watch.pair())?;
            clock = Some(Instant::now());
            publish(programs, &recorder.recorder, shared);
        }
        if stopping {
            programs.stop(recorder)?;
            return recorder.clock(watch.pair());
        }
        let rings = programs.rings();
        programs.poll(recorder)?;
        if programs.rings() != rings {
            pace.restart();
        }
        let drained = programs.drain(recorder)?;
        let now = Instant::now();
        let pause = pace.next(drained.fullest, now.duration_since(emptied), drained.smallest_ring);
        emptied = now;
        if woken.elapsed() < WAKE_EVERY {
            std::thread::sleep(pause.min(WAKE_EVERY));
        } else if programs.wait(pause, shared.wake.as_fd())? {
            woken = Instant::now();
        }
    }
}

impl SharedState {
    fn new() -> io::Result<SharedState> {
        Ok(SharedState {
            stop: AtomicBool::default(),
            wake: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            failed: AtomicBool::default(),
            bytes: AtomicU64::default(),
            events: AtomicU64::default(),
            lost: AtomicU64::default(),
            rings: AtomicU32::default(),
            programs: AtomicU32::default(),
        })
    }
}

fn publish(programs: &Programs, recorder: &UserRecorder, shared: &SharedState) {
    // ORDER: relaxed; numbers for people.
    shared.bytes.store(recorder.bytes(), Ordering::Relaxed);
    shared.events.store(recorder.events(), Ordering::Relaxed);
    shared.lost.store(programs.lost(), Ordering::Relaxed);
    shared.rings.store(programs.rings(), Ordering::Relaxed);
    shared.programs.store(programs.count(), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_while_rings_are_emptied_ends_the_recording() {
        for (panics, expected) in [(false, false), (true, true)] {
            let shared = SharedState::new().unwrap();
            let work = || {
                let _told = ToldOfPanic(&shared);
                assert!(!panics, "as was asked");
            };
            let ended = std::thread::scope(|scope| scope.spawn(work).join());
            // ORDER: relaxed; the thread has been joined.
            assert_eq!((ended.is_err(), shared.failed.load(Ordering::Relaxed)), (panics, expected));
        }
    }
}
