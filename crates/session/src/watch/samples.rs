// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far apart the samples of the tracker `irqoff` are: that is its resolution, and its cost.

use super::settings::WatchSettings;
use crate::Failure;
use rtscope_event::Tracker;
use std::fs;

/// More samples are a load that nobody wants.
const LEAST_NS: u64 = 20_000;
/// Where nobody says how many there are to be.
const USUAL_NS: std::ops::RangeInclusive<u64> = 50_000..=1_000_000;

/// The time between two samples; 0 where none are wanted.
pub(super) fn period_ns(settings: &WatchSettings) -> Result<u64, Failure> {
    let limits = settings.limits();
    let limits = limits.filter(|(tracker, _)| *tracker == Tracker::Irqoff).map(|(_, limit_ns)| limit_ns);
    let Some(limit_ns) = limits.min() else { return Ok(0) };
    choose(limit_ns, settings.sample_ns, least_ns(max_sample_rate()))
}

fn choose(limit_ns: u64, wanted_ns: Option<u64>, least_ns: u64) -> Result<u64, Failure> {
    let usual_ns = (limit_ns / 2).clamp(*USUAL_NS.start(), *USUAL_NS.end()).max(least_ns);
    let period_ns = wanted_ns.unwrap_or(usual_ns);
    if period_ns < least_ns {
        return Err(Failure::Usage(format!(
            "--period: samples can be {} us apart here, not less (kernel.perf_event_max_sample_rate)",
            least_ns.div_ceil(1000)
        )));
    }
    if period_ns > limit_ns {
        return Err(Failure::Usage(format!(
            "irqoff: samples are {} us apart, so shorter sections may be missed: the limit has to be at least that",
            period_ns / 1000
        )));
    }
    Ok(period_ns)
}

/// The kernel stops an event for the rest of a tick that comes more often than it allows: half of that is safe.
fn least_ns(max_rate: u64) -> u64 {
    LEAST_NS.max(2_000_000_000 / max_rate.max(1))
}

/// Samples a second that the kernel allows.
fn max_sample_rate() -> u64 {
    let text = fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").unwrap_or_default();
    text.trim().parse().unwrap_or(100_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_half_a_limit_apart_and_never_more_than_the_limit() {
        assert_eq!(choose(200_000, None, 20_000).ok(), Some(100_000));
        assert_eq!(choose(60_000, None, 20_000).ok(), Some(50_000));
        assert_eq!(choose(1_000_000_000, None, 20_000).ok(), Some(1_000_000));
        assert_eq!(choose(1_000_000, Some(25_000), 20_000).ok(), Some(25_000));
        // A limit that the samples cannot see, wanted ones that are too many, a kernel that allows few.
        assert!(choose(40_000, None, 20_000).is_err());
        assert!(choose(1_000_000, Some(10_000), 20_000).is_err());
        assert!(choose(1_000_000, Some(2_000_000), 20_000).is_err());
        assert_eq!(choose(2_000_000, None, least_ns(1000)).ok(), Some(2_000_000));
        assert!(choose(1_000_000, None, least_ns(1000)).is_err());
    }
}
