// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was captured of a trace unit, by CPU, and what is missing.

use crate::label::clean;
use crate::units::counted;
use rtscope_hardware::capture::{CaptureInfo, CaptureMode};
use std::fmt::Write;
use std::path::Path;

/// One object: the capture's description.
///
/// # Errors
/// Never, as all of it is numbers and text.
pub fn capture_json(info: &CaptureInfo) -> serde_json::Result<String> {
    serde_json::to_string(info)
}

/// The same as text, and what to do next.
#[must_use]
pub fn capture_text(info: &CaptureInfo, directory: &Path) -> String {
    let directory = clean(&directory.display().to_string());
    let kind = match info.mode {
        CaptureMode::Full => "all",
        CaptureMode::Snapshot => "the newest",
    };
    let cpus = counted(info.cpus.len() as u64, "CPU", "CPUs");
    let bytes = match info.complete {
        true => format!("{} bytes", info.aux_bytes()),
        false => "not to its end,".to_owned(),
    };
    let mut text = format!("{directory}: {kind} of {}, {bytes} on {cpus}\n", clean(&info.unit));
    if !info.places.is_empty() {
        let names: Vec<_> = info.places.iter().map(|place| clean(&place.name)).collect();
        let _ = writeln!(text, "  only at      {}", names.join(", "));
    }
    for cpu in info.cpus.iter().filter(|_| info.complete) {
        let _ = writeln!(text, "  CPU {:<5}  {} bytes", cpu.cpu, cpu.aux_bytes);
        let mut missing = |count: u64, what: &str| {
            if count > 0 {
                let _ = writeln!(text, "    lost     {}: {what}", counted(count, "time", "times"));
            }
        };
        missing(cpu.truncated, "the buffer was full (--buffer)");
        missing(cpu.partial, "the unit was stopped for a part of the time");
        missing(cpu.collisions, "samples met");
        if cpu.lost_records > 0 {
            let records = counted(cpu.lost_records, "record", "records");
            let _ = writeln!(text, "    lost     {records} of what tasks did");
        }
    }
    if info.clock.is_none() {
        text.push_str(
            "  the kernel does not tell how this processor's counter becomes time: times will be ticks\n",
        );
    }
    let _ = writeln!(text, "rtscope hardware decode {directory} shows what is in it");
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rtscope_hardware::capture::{CaptureMode, ClockOffset, CpuCapture, SCHEMA};

    #[test]
    fn a_capture_without_an_end_has_no_numbers_and_says_so() {
        let clock = Some(ClockOffset { offset_ns: 5, drift_ns: None });
        let mut info = CaptureInfo {
            schema: SCHEMA.to_owned(),
            producer: "rtscope".to_owned(),
            unit: "intel_pt".to_owned(),
            config: [0; 3],
            complete: false,
            mode: CaptureMode::Full,
            aux_buffer_bytes: 4096,
            clock,
            frozen: None,
            places: Vec::new(),
            // What was known when it began.
            cpus: vec![CpuCapture { cpu: 2, ..CpuCapture::default() }],
        };
        let end = "rtscope hardware decode /t/capture shows what is in it\n";
        let text = capture_text(&info, Path::new("/t/capture"));
        assert_eq!(text, format!("/t/capture: all of intel_pt, not to its end, on 1 CPU\n{end}"));
        info.complete = true;
        let text = capture_text(&info, Path::new("/t/capture"));
        assert_eq!(
            text,
            format!("/t/capture: all of intel_pt, 0 bytes on 1 CPU\n  CPU 2      0 bytes\n{end}")
        );
    }
}
