// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the rings of flight recorders held → a trace, by the same way as a recording.

use super::end::UserEnd;
use super::filter::UserFilter;
use super::finish::UserSummary;
use super::recorder::UserRecorder;
use super::session_file::UserSession;
use super::streams::StreamLimits;
use crate::Error;
use rtscope_event::MonotonicNs;
use rtscope_event::exact::count;
use rtscope_programs::clock::Pair;
use rtscope_programs::collector::{Records, Sink, Snapshot};
use std::io;
use std::path::Path;

/// Pairs that are used: the rate changes by millionths, and a flight recorder may reach back for hours.
const PAIRS_MAX: usize = 4096;

/// Writes the trace `target` of what happened in `window`. Only the ends of `end` are used.
///
/// # Errors
/// When `target` exists or the system refuses (a full disk): then nothing is left.
pub fn write_snapshot(
    session: &UserSession,
    snapshot: &Snapshot,
    pairs: &[Pair],
    window: (MonotonicNs, MonotonicNs),
    end: &UserEnd,
    (target, filter): (&Path, &UserFilter),
) -> Result<UserSummary, Error> {
    let limits = StreamLimits::SNAPSHOT;
    let mut recorder = UserRecorder::of(target, session, limits, Some(window), (None, filter.clone()))?;
    if let Err(error) = write(&mut recorder, snapshot, pairs) {
        // What could not be written is of no use, and the space may be.
        recorder.discard();
        return Err(Error::io("write", target)(error));
    }
    let unfinished =
        snapshot.rings.iter().enumerate().map(|(number, (_, image))| (count(number), 0, image.unfinished()));
    let end = UserEnd { rings: unfinished.collect(), ..end.clone() };
    recorder.finish(&end)?.complete(target)
}

fn write(recorder: &mut UserRecorder, snapshot: &Snapshot, pairs: &[Pair]) -> io::Result<()> {
    let step = pairs.len().div_ceil(PAIRS_MAX).max(1);
    // The last one is of now.
    let (last, others) = pairs.split_last().map_or((None, pairs), |(last, others)| (Some(last), others));
    let used: Vec<Pair> = others.iter().step_by(step).chain(last).copied().collect();
    recorder.clock(&used)?;
    snapshot.providers.iter().try_for_each(|provider| recorder.provider(provider))?;
    snapshot.rings.iter().try_for_each(|(info, _)| recorder.ring(info))?;
    let images = snapshot.rings.iter().map(|(_, image)| image).enumerate();
    let mut rings: Vec<(u32, Records<'_>)> =
        images.map(|(number, image)| (count(number), image.records())).collect();
    loop {
        let before: Vec<u64> = rings.iter().map(|(_, records)| records.position()).collect();
        recorder.merge(&mut rings)?;
        if rings.iter().zip(&before).all(|((_, records), before)| records.position() == *before) {
            return Ok(());
        }
    }
}
