// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop, which is C (c/npt.c), and the memory that it is given.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::AtomicBool;

/// As in c/npt.h.
const EXACT: usize = 4096;
const STEPS_LOG2: usize = 10;
const BUCKETS: usize = EXACT + (64 - 12) * (1 << STEPS_LOG2);
/// This many long gaps are kept; the rest is counted.
pub const LONGS_MAX: usize = 4096;

/// Kinds of windows, as indexes.
pub const UNTRACED: usize = 0;
/// The other one; all is of this kind when there are no windows.
pub const TRACED: usize = 1;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct RawWindows {
    count: u64,
    min: u64,
    max: u64,
    sum: u64,
    squares: [u64; 2],
    buckets: *mut u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct RawGap {
    end: u64,
    ticks: u64,
}

#[repr(C)]
#[derive(Debug)]
struct RawNpt {
    iterations: u64,
    ticks: u64,
    warm_up: u64,
    window: [u64; 2],
    interval: u64,
    threshold: u64,
    stop: *const bool,
    frequency: u64,
    longs: *mut RawGap,
    windows: [RawWindows; 2],
    begin: u64,
    end: u64,
    events: u64,
    longs_count: u64,
    lost: u64,
    recorded: u64,
}

const _: () = assert!(size_of::<RawNpt>() == 30 * 8);

unsafe extern "C" {
    fn rtscope_npt_touch(npt: *mut RawNpt);
    safe fn rtscope_npt_start();
    fn rtscope_npt_run(npt: *mut RawNpt);
    fn rtscope_npt_run_without(npt: *mut RawNpt);
    safe fn rtscope_npt_clock() -> u32;
    safe fn rtscope_npt_core(additions: u64) -> u64;
}

type Run = unsafe extern "C" fn(*mut RawNpt);

/// A function that was found in a library.
#[derive(Clone, Copy, Debug)]
pub struct LibraryLoop(Run);

/// Whose event is in the loop.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// rtscope's, which is a USDT probe as well.
    Rtscope,
    /// None.
    Without,
    /// Another tracer's, in a library that was loaded.
    Library(LibraryLoop),
}

impl Event {
    /// By its name: a library that `rtscope impact` has compiled (c/npt_lttng.c), or `without`.
    ///
    /// # Errors
    /// Why the library cannot be loaded.
    pub fn named(which: Option<&OsStr>) -> Result<Event, String> {
        match which {
            None => Ok(Event::Rtscope),
            Some(word) if word == "without" => Ok(Event::Without),
            Some(path) => load(path).map(Event::Library),
        }
    }
}

fn load(path: &OsStr) -> Result<LibraryLoop, String> {
    let name = CString::new(path.as_bytes()).map_err(|_| "a NUL byte is in the name".to_string())?;
    // SAFETY: a library's constructors may do anything: the user names it, as they name the program that they start. It is never
    // unloaded, so what is found in it stays.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return Err(dl_error());
    }
    // SAFETY: the library was loaded above, and the name ends with a NUL.
    let run = unsafe { libc::dlsym(library, c"rtscope_npt_run_library".as_ptr()) };
    if run.is_null() {
        return Err(dl_error());
    }
    // SAFETY: a library that has this name has a function of this type there: it was compiled from c/npt_lttng.c of this rtscope.
    Ok(LibraryLoop(unsafe { std::mem::transmute::<*mut libc::c_void, Run>(run) }))
}

fn dl_error() -> String {
    // SAFETY: no argument; the text is the thread's own and stays until its next call.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "it cannot be loaded".to_string();
    }
    // SAFETY: a text that ends with a NUL, see above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// What the loop shall do. Times in ticks of its counter; 0: no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopSettings {
    pub iterations: u64,
    pub ticks: u64,
    pub warm_up: u64,
    /// Untraced, traced.
    pub window: [u64; 2],
    pub interval: u64,
    pub threshold: u64,
    /// Of the counter, in Hz.
    pub frequency: u64,
}

/// The gaps of one kind of window, in ticks.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// How many there are.
    pub count: u64,
    /// The shortest.
    pub min: u64,
    /// The longest.
    pub max: u64,
    /// All of them.
    pub sum: u64,
    /// The sum of their squares.
    pub squares: u128,
    /// First and last length of a bucket, and how many gaps are in it; ascending, none empty.
    pub buckets: Vec<(u64, u64, u64)>,
}

/// A gap over the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongGap {
    /// Ticks from the loop's begin to the gap's.
    pub begin: u64,
    pub ticks: u64,
}

/// What the loop measured.
#[derive(Debug)]
pub struct LoopResult {
    /// Untraced, traced.
    pub windows: [Gaps; 2],
    /// The counter at the loop's begin.
    pub begin: u64,
    /// Ticks from begin to end.
    pub ticks: u64,
    /// In the loop; whatever records also gets npt:start and npt:stop.
    pub events: u64,
    /// In the order in which they came; at most LONGS_MAX.
    pub longs: Vec<LongGap>,
    pub longs_count: u64,
    /// Of the events, those that found no space in the ring.
    pub lost: u64,
    pub recorded: bool,
}

/// The memory of a measurement, touched. Belongs to the thread that measures.
#[derive(Debug)]
pub struct GapLoop {
    event: Event,
    raw: RawNpt,
    buckets: [Vec<u64>; 2],
    longs: Vec<RawGap>,
}

/// Which counter the loop reads (enum rtu_clock).
pub fn clock() -> u32 {
    rtscope_npt_clock()
}

/// Ticks that the core needs for this many additions of one cycle each; the least of some tries.
pub fn core_ticks(additions: u64) -> u64 {
    (0..9).map(|_| rtscope_npt_core(additions)).min().unwrap_or(0)
}

impl GapLoop {
    /// Allocates and touches all that the loop needs, and lets programs that record find this one.
    pub fn prepare(event: Event) -> GapLoop {
        let mut buckets = [vec![0; BUCKETS], vec![0; BUCKETS]];
        let mut longs = vec![RawGap::default(); LONGS_MAX];
        let [untraced, traced] = &mut buckets;
        let windows = |buckets: &mut Vec<u64>| RawWindows {
            count: 0,
            min: u64::MAX,
            max: 0,
            sum: 0,
            squares: [0; 2],
            buckets: buckets.as_mut_ptr(),
        };
        let mut raw = RawNpt {
            iterations: 0,
            ticks: 0,
            warm_up: 0,
            window: [0; 2],
            interval: 0,
            threshold: 0,
            stop: std::ptr::null(),
            frequency: 0,
            longs: longs.as_mut_ptr(),
            windows: [windows(untraced), windows(traced)],
            begin: 0,
            end: 0,
            events: 0,
            longs_count: 0,
            lost: 0,
            recorded: 0,
        };
        // SAFETY: the structure is C's, and its pointers are to vectors of the lengths that C assumes, which live on with it.
        unsafe { rtscope_npt_touch(&raw mut raw) };
        if matches!(event, Event::Rtscope) {
            rtscope_npt_start();
        }
        GapLoop { event, raw, buckets, longs }
    }

    /// Runs the loop to its end or until `stop`.
    pub fn run(mut self, settings: &LoopSettings, stop: &AtomicBool) -> LoopResult {
        let raw = &mut self.raw;
        (raw.iterations, raw.ticks, raw.warm_up) = (settings.iterations, settings.ticks, settings.warm_up);
        (raw.window, raw.interval, raw.threshold) = (settings.window, settings.interval, settings.threshold);
        raw.frequency = settings.frequency;
        raw.stop = stop.as_ptr();
        let run = match self.event {
            Event::Rtscope => rtscope_npt_run,
            Event::Without => rtscope_npt_run_without,
            Event::Library(LibraryLoop(run)) => run,
        };
        // SAFETY: as in prepare(): the vectors were moved with their owner, but not their content. C reads the flag atomically.
        unsafe { run(&raw mut self.raw) };
        self.result()
    }

    fn result(&self) -> LoopResult {
        let raw = &self.raw;
        let kept = usize::try_from(raw.longs_count).unwrap_or(LONGS_MAX).min(LONGS_MAX);
        let long = |gap: &RawGap| LongGap {
            begin: gap.end.saturating_sub(gap.ticks).saturating_sub(raw.begin),
            ticks: gap.ticks,
        };
        LoopResult {
            windows: [UNTRACED, TRACED].map(|kind| gaps(&raw.windows[kind], &self.buckets[kind])),
            begin: raw.begin,
            ticks: raw.end.saturating_sub(raw.begin),
            events: raw.events,
            longs: self.longs[..kept].iter().map(long).collect(),
            longs_count: raw.longs_count,
            lost: raw.lost,
            recorded: raw.recorded != 0,
        }
    }
}

fn gaps(raw: &RawWindows, buckets: &[u64]) -> Gaps {
    let filled = buckets.iter().enumerate().filter(|(_, count)| **count != 0);
    let bucket = |(at, count): (usize, &u64)| {
        let (first, last) = bounds(at);
        (first, last, *count)
    };
    Gaps {
        count: raw.count,
        min: if raw.count == 0 { 0 } else { raw.min },
        max: raw.max,
        sum: raw.sum,
        squares: u128::from(raw.squares[1]) << 64 | u128::from(raw.squares[0]),
        buckets: filled.map(bucket).collect(),
    }
}

/// First and last length of a bucket; npt__bucket() of c/npt.h the other way round.
fn bounds(at: usize) -> (u64, u64) {
    let Some(above) = at.checked_sub(EXACT) else { return (at as u64, at as u64) };
    let shift = 12 + above / (1 << STEPS_LOG2) - STEPS_LOG2;
    let first = ((1 << STEPS_LOG2) + above as u64 % (1 << STEPS_LOG2)) << shift;
    (first, first + ((1 << shift) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_hole() {
        let mut next = 0_u64;
        for at in 0..BUCKETS {
            let (first, last) = bounds(at);
            assert_eq!(first, next, "bucket {at}");
            assert!(last - first <= first / 1000 + 1, "bucket {at} is too wide: {first} to {last}");
            next = last.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last bucket ends with the largest number");
    }

    #[test]
    fn the_loop_counts_its_iterations_and_its_gaps_add_up() {
        let settings = LoopSettings {
            iterations: 100_000,
            warm_up: 5,
            threshold: 0,
            frequency: 1,
            ..LoopSettings::default()
        };
        let result = GapLoop::prepare(Event::Rtscope).run(&settings, &AtomicBool::new(false));
        let gaps = &result.windows[TRACED];
        assert_eq!((gaps.count, result.windows[UNTRACED].count), (100_000, 0));
        assert_eq!(result.events, 100_005);
        // Every gap is longer than nothing: all are counted as long, and the first are kept.
        assert_eq!((result.longs.len(), result.longs_count), (LONGS_MAX, 100_000));
        assert_eq!(gaps.buckets.iter().map(|bucket| bucket.2).sum::<u64>(), gaps.count);
        assert!(gaps.buckets[0].0 <= gaps.min && gaps.min <= gaps.buckets[0].1);
        assert!(gaps.buckets.last().is_some_and(|bucket| bucket.0 <= gaps.max && gaps.max <= bucket.1));
        // But for the iterations of the warm-up, the gaps are all the time there was.
        assert!(gaps.sum <= result.ticks);
        let low: u64 = gaps.buckets.iter().map(|(first, _, count)| first * count).sum();
        let high: u64 = gaps.buckets.iter().map(|(_, last, count)| last * count).sum();
        assert!(low <= gaps.sum && gaps.sum <= high);
        assert!(gaps.squares >= u128::from(gaps.max) * u128::from(gaps.max));
    }

    #[test]
    fn without_an_event_there_is_none() {
        let settings = LoopSettings { iterations: 1000, warm_up: 5, frequency: 1, ..LoopSettings::default() };
        let result = GapLoop::prepare(Event::Without).run(&settings, &AtomicBool::new(false));
        assert_eq!((result.windows[TRACED].count, result.events, result.recorded), (1000, 0, false));
    }

    #[test]
    fn a_library_that_is_none_is_said() {
        for (name, word) in
            [("/none.so", "/none.so"), ("/proc/self/exe", ""), ("libc.so.6", "rtscope_npt_run_library")]
        {
            let said = Event::named(Some(OsStr::new(name))).expect_err("no such thing");
            assert!(said.contains(word) && !said.is_empty(), "{name}: {said}");
        }
    }

    #[test]
    fn a_flag_ends_it() {
        let settings = LoopSettings { threshold: u64::MAX, ..LoopSettings::default() };
        let result = GapLoop::prepare(Event::Rtscope).run(&settings, &AtomicBool::new(true));
        assert_eq!(result.windows[TRACED].count, 1);
    }

    #[test]
    fn windows_alternate_and_only_one_kind_has_events() {
        let settings = LoopSettings {
            iterations: 1_000_000,
            window: [50_000, 100_000],
            threshold: u64::MAX,
            ..LoopSettings::default()
        };
        let result = GapLoop::prepare(Event::Rtscope).run(&settings, &AtomicBool::new(false));
        let [untraced, traced] = &result.windows;
        assert_eq!(untraced.count + traced.count, 1_000_000);
        assert!(untraced.count > 0);
        // The iteration that ends an untraced window has an event already, the one that ends a traced one no more.
        assert!(result.events.abs_diff(traced.count) <= 1, "{} {}", result.events, traced.count);
        // How long they were in all says nothing here: whatever takes the CPU lengthens a window of one kind.
        assert!(traced.sum > 0 && untraced.sum > 0);
    }
}
