// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope hardware decode`: what it does is in `rtscope_session::hardware`.

use super::options::DecodeOptions;
use crate::exit::Failure;
use crate::output::{note, object, result};
use rtscope_hardware::decode::Unit;
use rtscope_session::hardware::Decoding;
use rtscope_view::hardware::{FindingsWriter, decode_json, decode_text};
use std::io::{self, BufWriter};

/// Opens, decodes, says what is missing.
pub fn run(options: &DecodeOptions) -> Result<(), Failure> {
    check(options)?;
    let mut decoding = Decoding::open(&options.capture, &options.settings()?)?;
    match &options.output {
        Some(target) => decoding.write(target, options.clock_offset, options.programs.as_deref())?,
        None => show(&mut decoding, options)?,
    }
    if options.json {
        result(&object(decode_json(&decoding.report))?);
    } else if !options.packets && !options.flow {
        result(&decode_text(&decoding.report));
    }
    for text in &decoding.report.notes {
        note(&format!("rtscope: {}", rtscope_view::clean(text)));
    }
    decoding.judge(options.fail_if_lost)
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
    } else if (options.sys_t || !options.sys_t_catalog.is_empty()) && options.unit.is_some() && !of(Unit::Stp)
    {
        "--sys-t and --sys-t-catalog are for messages of an STM (--unit stp, or a --source of that unit)"
    } else if options.time && !options.packets && !options.flow {
        "--time is shown with --packets or --flow; a trace (-o) has times in any case"
    } else {
        return Ok(());
    };
    Err(Failure::Usage(wrong.to_owned()))
}

/// Prints what is asked for of each stream.
fn show(decoding: &mut Decoding, options: &DecodeOptions) -> Result<(), Failure> {
    const BUFFER: usize = 1 << 18;
    let out = BufWriter::with_capacity(BUFFER, io::stdout().lock());
    let mut writer = FindingsWriter::new(out, options.packets, options.flow, options.time);
    decoding.decode(&mut writer)?;
    match writer.finish() {
        // The reader needs no more: what was counted so far is no judgement.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => decoding.report.streams.clear(),
        finished => finished.map_err(|error| Failure::system("writing to standard output", &error))?,
    }
    Ok(())
}
