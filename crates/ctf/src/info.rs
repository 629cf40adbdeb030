// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where and when a trace was made.

use crate::Error;
use nix::time::{ClockId, clock_gettime};
use rtscope_event::MonotonicNs;
use std::fs;
use std::io;
use std::path::Path;
use uuid::Uuid;

/// Where and when a trace was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceInfo {
    /// The machine's name.
    pub hostname: String,
    /// As `uname -r` shows it.
    pub kernel_release: String,
    /// Identifies the clock: the boot id, so that tools know which traces share a monotonic clock.
    pub clock_uuid: Uuid,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`. Never negative: the kernel refuses to set the time of day to before
    /// the boot (`do_settimeofday64`).
    pub realtime_offset_ns: u64,
    /// Identifies the trace.
    pub trace_uuid: Uuid,
    /// Version of the program that wrote the trace.
    pub producer_version: String,
    /// Where the recorded window begins, if it begins before its first event.
    pub window_begin: Option<MonotonicNs>,
}

impl TraceInfo {
    /// Describes this machine now, with a fresh trace id and no window.
    ///
    /// # Errors
    /// When `/proc/sys/kernel` or a clock cannot be read.
    pub fn of_this_machine(producer_version: &str) -> Result<TraceInfo, Error> {
        let boot_id = kernel_text("random/boot_id")?;
        Ok(TraceInfo {
            hostname: kernel_text("hostname")?,
            kernel_release: kernel_text("osrelease")?,
            clock_uuid: Uuid::parse_str(&boot_id).unwrap_or(Uuid::nil()),
            realtime_offset_ns: realtime_offset_ns()?,
            trace_uuid: Uuid::new_v4(),
            producer_version: producer_version.to_owned(),
            window_begin: None,
        })
    }
}

fn kernel_text(name: &str) -> Result<String, Error> {
    let path = Path::new("/proc/sys/kernel").join(name);
    Ok(fs::read_to_string(&path).map_err(Error::io("read", &path))?.trim_end().to_owned())
}

/// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` in nanoseconds: of several readings of the realtime clock between two of
/// the monotonic one, the one with the narrowest bracket, because an interrupt between the readings would look like an
/// offset.
///
/// # Errors
/// When a clock cannot be read.
fn realtime_offset_ns() -> Result<u64, Error> {
    const TRIES: u32 = 16;
    let mut best = None;
    for _ in 0..TRIES {
        let before = clock_ns(ClockId::CLOCK_MONOTONIC)?;
        let realtime = clock_ns(ClockId::CLOCK_REALTIME)?;
        let after = clock_ns(ClockId::CLOCK_MONOTONIC)?;
        let width = after.saturating_sub(before);
        if best.is_none_or(|(narrowest, _)| width < narrowest) {
            best = Some((width, realtime.saturating_sub(before.saturating_add(width / 2))));
        }
    }
    Ok(best.map_or(0, |(_, offset)| offset))
}

fn clock_ns(clock: ClockId) -> Result<u64, Error> {
    let time = clock_gettime(clock)
        .map_err(|errno| Error::io("read the clock for", Path::new("a trace"))(io::Error::from(errno)))?;
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    Ok(seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec()).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn the_offset_leads_from_the_monotonic_clock_to_the_time_of_day() {
        let info = TraceInfo::of_this_machine("1").unwrap();
        let now = clock_ns(ClockId::CLOCK_MONOTONIC).unwrap() + info.realtime_offset_ns;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let wall = u64::try_from(wall).unwrap();
        assert!(now.abs_diff(wall) < 1_000_000_000, "{now} {wall}");
        assert!(!info.kernel_release.is_empty());
    }
}
