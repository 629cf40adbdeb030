// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the clock of the events to the clock on the wall.

use crate::Failure;
use rtscope_ctf::TraceInfo;
use rtscope_event::MonotonicNs;
use rtscope_event::WallClock;
use std::time::{Duration, UNIX_EPOCH};

/// How the two relate now.
pub fn now() -> Result<WallClock, Failure> {
    let info = TraceInfo::of_this_machine(env!("CARGO_PKG_VERSION"))
        .map_err(|error| Failure::doing("reading the clocks", error))?;
    Ok(WallClock {
        unix_offset_ns: i64::try_from(info.realtime_offset_ns).unwrap_or(0),
        utc_offset_s: utc_offset_s(),
    })
}

/// Local time minus UTC, now.
fn utc_offset_s() -> i32 {
    let seconds = std::time::SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    local(seconds as i64).map_or(0, |parts| parts.tm_gmtoff as i32)
}

/// Local time minus UTC at a moment, in seconds.
pub fn offset_s_at(unix_s: i64) -> i64 {
    local(unix_s).map_or(0, |parts| parts.tm_gmtoff)
}

fn local(unix_s: i64) -> Option<libc::tm> {
    let seconds: libc::time_t = unix_s;
    let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are to live objects of the right types for the length of the call.
    let filled = unsafe { libc::localtime_r(&raw const seconds, parts.as_mut_ptr()) };
    // SAFETY: `tm` is plain data, all zero before the call, so it is initialised whether or not the call filled it.
    let parts = unsafe { parts.assume_init() };
    if filled.is_null() { None } else { Some(parts) }
}

/// Local time of day as `HH:MM:SS.`.
pub fn time_of_day(unix_s: i64) -> [u8; 9] {
    let mut text = *b"00:00:00.";
    if let Some(parts) = local(unix_s) {
        for (place, number) in [(0, parts.tm_hour), (3, parts.tm_min), (6, parts.tm_sec)] {
            text[place] = b'0' + (number / 10 % 10) as u8;
            text[place + 1] = b'0' + (number % 10) as u8;
        }
    }
    text
}

fn unix(clock: &WallClock, time: MonotonicNs) -> std::time::SystemTime {
    UNIX_EPOCH + Duration::from_nanos(u64::try_from(clock.unix_ns(time)).unwrap_or(0))
}

/// `2026-11-20T23:41:07.123456Z`.
pub fn rfc3339(clock: &WallClock, time: MonotonicNs) -> String {
    humantime::format_rfc3339_micros(unix(clock, time)).to_string()
}

/// `20261120T234107Z`.
pub fn file_stamp(clock: &WallClock, time: MonotonicNs) -> String {
    humantime::format_rfc3339_seconds(unix(clock, time)).to_string().replace(['-', ':'], "")
}
