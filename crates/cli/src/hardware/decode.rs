// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope hardware decode`.

use super::options::DecodeOptions;
use crate::exit::Failure;
use crate::output::{self, note};
use rtscope_hardware::decode::{Capture, DecodeError, SampleLane, Settings, Stream, StreamLane, Unit, open};
use rtscope_hardware::pt::ClockConfig;
use rtscope_hardware::trace::{
    HardwareEvent, HardwareSource, Lane, LossReason, TraceError, trace_info, write_ctf,
};
use rtscope_view::hardware::{
    DecodeReport, DecodedStream, FindingsWriter, WrittenTrace, decode_json, decode_text,
};
use std::collections::VecDeque;
use std::io::{self, BufWriter};
use std::path::Path;

/// Opens, decodes, says what is missing.
pub fn run(options: &DecodeOptions) -> Result<(), Failure> {
    let settings = Settings {
        unit: options.unit,
        sources: options.source.clone(),
        clock_hz: options.clock_hz,
        pt: ClockConfig {
            mtc_frequency: options.mtc_freq,
            tsc_per_crystal: options.tsc_ratio.map(|ratio| (ratio.tsc, ratio.crystal)),
            nominal_ratio: options.nominal_ratio,
        },
        programs: options.image.clone(),
    };
    check(options)?;
    let mut capture = open(&options.capture, &settings).map_err(failure)?;
    let bytes: u64 = capture.streams.iter().map(Stream::bytes).sum();
    let mut report = DecodeReport {
        capture: options.capture.display().to_string(),
        recorder_losses: capture.losses.len() as u64,
        missing_bytes: capture.missing_bytes,
        damage: capture.damage.clone(),
        notes: capture.notes.clone(),
        ..DecodeReport::default()
    };
    match &options.output {
        Some(target) => report.trace = Some(write(&mut capture, target, options.clock_offset)?),
        None => report.streams = streams(&capture, options)?,
    }
    if options.output.is_some() && options.clock_offset == 0 && capture.clock != "CLOCK_MONOTONIC" {
        report.notes.push(format!(
            "times are those of {}; --clock-offset puts them on CLOCK_MONOTONIC, beside other traces",
            capture.clock
        ));
    }
    if options.json {
        output::result(&output::object(decode_json(&report))?);
    } else if !options.packets && !options.flow {
        output::result(&decode_text(&report));
    }
    report.notes.iter().for_each(|text| note(&format!("rtscope: {}", rtscope_view::clean(text))));
    judge(&report, bytes, options)
}

/// Options that would do nothing are mistakes.
fn check(options: &DecodeOptions) -> Result<(), Failure> {
    let is_frames = matches!(options.unit, Some(Unit::Frames | Unit::FramesFsync | Unit::FramesDstream));
    let of =
        |unit: Unit| options.unit == Some(unit) || options.source.iter().any(|source| source.unit == unit);
    let has_no_addresses = |unit| matches!(unit, Unit::Stp | Unit::Itm);
    let runs_nothing = match options.unit {
        Some(_) if is_frames => {
            !options.source.is_empty() && options.source.iter().all(|source| has_no_addresses(source.unit))
        }
        unit => unit.is_some_and(has_no_addresses),
    };
    let has_pt = options.tsc_ratio.is_some() || options.nominal_ratio.is_some();
    let wrong = if !options.source.is_empty() && !is_frames {
        "--source is for the frames of several units (--unit frames, frames-fsync or frames-dstream)"
    } else if has_pt && !of(Unit::Pt) {
        "--tsc-ratio and --nominal-ratio are for a raw stream of Intel PT (--unit pt): a perf.data has them"
    } else if options.unit.is_some() && options.capture.is_dir() {
        "--unit is for a raw file: a snapshot directory says what wrote each of its files"
    } else if !options.image.is_empty() && runs_nothing {
        "--image is for units that record what was executed; STP and ITM carry messages"
    } else if options.time && !options.packets && !options.flow {
        "--time is shown with --packets or --flow; a trace (-o) has times in any case"
    } else {
        return Ok(());
    };
    Err(Failure::Usage(wrong.to_owned()))
}

fn failure(error: DecodeError) -> Failure {
    match error {
        DecodeError::Io { path, source } => Failure::system(format!("reading {}", path.display()), &source),
        error @ (DecodeError::Perf { .. } | DecodeError::Snapshot(_)) => Failure::Damaged(error.to_string()),
        error @ (DecodeError::NoUnit(_) | DecodeError::Nothing { .. } | DecodeError::Program(_)) => {
            Failure::Usage(error.to_string())
        }
    }
}

/// Decodes each stream; prints what is asked for.
fn streams(capture: &Capture, options: &DecodeOptions) -> Result<Vec<DecodedStream>, Failure> {
    const BUFFER: usize = 1 << 18;
    let out = BufWriter::with_capacity(BUFFER, io::stdout().lock());
    let mut writer = FindingsWriter::new(out, options.packets, options.flow, options.time);
    let mut done = Vec::new();
    let failed = |error: io::Error| Failure::system(format!("reading {}", options.capture.display()), &error);
    for stream in &capture.streams {
        let (unit, bytes) = (stream.kind.name(), stream.bytes());
        if options.packets || options.flow {
            writer.stream(&stream.name, unit, bytes);
        }
        let mut lane = StreamLane::new(stream);
        while writer.failure.is_none() && lane.step(&mut writer).map_err(failed)? {}
        done.push(decoded(&stream.name, unit, bytes, lane.summary()));
    }
    if let Some(file) = &capture.samples {
        let bytes = file.metadata().map_err(failed)?.len();
        if options.packets || options.flow {
            writer.stream("samples", "branch stacks", bytes);
        }
        let mut lane = SampleLane::new(file).map_err(|error| Failure::Damaged(error.to_string()))?;
        while writer.failure.is_none() && lane.step(&mut writer).map_err(failed)? {}
        done.push(decoded("samples", "branch stacks", bytes, lane.summary()));
    }
    match writer.finish() {
        // The reader needs no more: what was counted so far is no judgement.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Vec::new()),
        finished => {
            finished.map_err(|error| Failure::system("writing to standard output", &error))?;
            Ok(done)
        }
    }
}

fn decoded(
    name: &str,
    unit: &str,
    bytes: u64,
    summary: rtscope_hardware::decode::StreamSummary,
) -> DecodedStream {
    DecodedStream { name: name.to_owned(), unit: unit.to_owned(), bytes, summary }
}

/// What the recorder lost, as a stream of its own.
struct RecorderLosses(VecDeque<HardwareEvent>);

impl Lane for RecorderLosses {
    fn advance(&mut self, out: &mut VecDeque<HardwareEvent>) -> io::Result<bool> {
        out.append(&mut self.0);
        Ok(false)
    }
}

fn write(capture: &mut Capture, target: &Path, offset_ns: i64) -> Result<WrittenTrace, Failure> {
    let mut losses = std::mem::take(&mut capture.losses);
    if capture.missing_bytes > 0 || capture.damage.is_some() {
        losses.push(HardwareEvent::lost(LossReason::Unreadable, capture.missing_bytes));
    }
    losses.sort_by_key(|event| event.time_ns);
    let mut lanes: Vec<Box<dyn Lane + '_>> = vec![Box::new(RecorderLosses(losses.into()))];
    lanes.extend(
        capture.streams.iter().map(|stream: &Stream| Box::new(StreamLane::new(stream)) as Box<dyn Lane>),
    );
    if let Some(file) = &capture.samples {
        let lane = SampleLane::new(file).map_err(|error| Failure::Damaged(error.to_string()))?;
        lanes.push(Box::new(lane));
    }
    let mut source = HardwareSource::new(lanes);
    source.offset_ns = offset_ns;
    let (host, release) = &capture.machine;
    let info = trace_info(host.as_deref(), release.as_deref(), env!("CARGO_PKG_VERSION"));
    let extra = [
        ("hardware_clock".to_owned(), capture.clock.clone()),
        ("hardware_clock_offset_ns".to_owned(), offset_ns.to_string()),
    ];
    let trace = write_ctf(&mut source, target, &info, &extra).map_err(|error| match error {
        TraceError::Untimed => Failure::Usage(format!(
            "{error}; a trace needs times: --clock-hz says how long the unit's ticks are, and BTS has none"
        )),
        error => Failure::Failed(error.to_string()),
    })?;
    let totals = source.totals;
    Ok(WrittenTrace {
        path: target.display().to_string(),
        events: trace.events,
        streams: trace.streams,
        losses: trace.losses,
        untimed: totals.untimed,
        moved: totals.moved,
        moved_ns: totals.moved_ns,
        first_ns: trace.span_ns.map(|(first, _)| first),
        last_ns: trace.span_ns.map(|(_, last)| last),
    })
}

/// What the exit code says.
fn judge(report: &DecodeReport, bytes: u64, options: &DecodeOptions) -> Result<(), Failure> {
    if let Some(damage) = &report.damage {
        return Err(Failure::Damaged(format!(
            "{}: {damage}; what is before that was decoded",
            report.capture
        )));
    }
    for stream in &report.streams {
        if stream.bytes > 0 && stream.summary.packet_count() == 0 {
            let unit = &stream.unit;
            return Err(Failure::Damaged(format!(
                "{}: no packet of {unit} was found; is that the unit?",
                stream.name
            )));
        }
    }
    if report.missing_bytes > bytes {
        let text = "more of the trace is missing than is there".to_owned();
        return Err(Failure::Lost(text));
    }
    if options.fail_if_lost && report.has_losses() {
        return Err(Failure::Lost("something is missing (--fail-if-lost)".to_owned()));
    }
    Ok(())
}
