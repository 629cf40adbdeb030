// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One line at the moment of detection, when nothing but the chain is known.

use crate::WallClock;
use crate::label::origin_label;
use crate::style::Style;
use crate::units::{duration_text, share_text};
use rtscope_analyze::share;
use rtscope_event::{LateResponse, Names};

/// `23:41:07.123456 LATE control-loop/1234 on cpu 1: 3.412 ms > 500 us, timer -> blocked, mostly wakeup 3.105 ms
/// (91.0 %)`. Without a clock the line begins with `LATE`.
#[must_use]
pub fn late_line(late: &LateResponse, names: &Names, clock: Option<&WallClock>, style: Style) -> String {
    let time = clock.map_or(String::new(), |clock| format!("{} ", clock.time_of_day(late.end_ns)));
    let durations: Vec<u64> = late.chain.steps.iter().map(|step| step.duration_ns).collect();
    let shares = share::divide(share::WHOLE, &durations);
    let longest = late.chain.steps.iter().zip(shares).rev().max_by_key(|(step, _)| step.duration_ns);
    let mostly = longest.map_or(String::new(), |(step, permille)| {
        let (name, time) = (step.kind.name(), duration_text(step.duration_ns));
        format!(", mostly {name} {time} ({})", share_text(permille))
    });
    format!(
        "{time}{} {}/{} on cpu {}: {} > {}, {} -> {}{mostly}",
        style.alarm("LATE"),
        late.comm,
        late.tid,
        late.cpu,
        duration_text(late.response_ns()),
        duration_text(late.threshold_ns),
        origin_label(&late.chain.origin, names),
        late.end.name(),
    )
}
