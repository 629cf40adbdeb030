// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a file or a directory holds: streams, each with its unit and settings.

use super::UnitDecoder;
use super::bts::Bts;
use super::clock::Conversion;
use super::etm::{Etm, Etm3, Etm4, Ptm};
use super::follow::Follower;
use super::itm::Itm;
use super::pt::{Pt, PtSettings};
use super::spe::Spe;
use super::stp::Stp;
use super::{captured, perf, snapshot};
use crate::Lost;
use crate::capture::{CaptureInfo, CapturedPlace};
use crate::coresight::{Deformatter, FrameSink, Framing};
use crate::etm::{Image, ptm, v3, v4};
use crate::perfdata::{PerfError, PerfFile, ReadAt};
use crate::program::{Memory, NamedProgram, Program, ProgramError};
use crate::pt::ClockConfig;
use crate::syst::{Collateral, CollateralError};
use crate::trace::HardwareEvent;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are read at once.
pub(super) const PIECE: usize = 64 << 10;

/// Why nothing can be decoded.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The system did not give the bytes.
    #[error("reading {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A perf.data.
    #[error("{}: {source}", path.display())]
    Perf {
        /// The file.
        path: PathBuf,
        /// Why.
        source: PerfError,
    },
    /// A snapshot directory.
    #[error("{0}")]
    Snapshot(String),
    /// A program's file.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A catalogue of SyS-T.
    #[error("{}: {source}", path.display())]
    Catalog {
        /// The file.
        path: PathBuf,
        /// Why.
        source: CollateralError,
    },
    /// Nothing says which unit wrote it.
    #[error("{} is neither a perf.data nor a snapshot directory; say with --unit what wrote it", .0.display())]
    NoUnit(PathBuf),
    /// There is nothing in it.
    #[error("{} has no trace of a unit that is decoded here: {why}", path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
        /// What it has instead.
        why: String,
    },
}

/// A trace unit, or what joins the streams of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unit {
    /// Intel PT.
    Pt,
    /// Intel BTS.
    Bts,
    /// ETMv4.
    Etm4,
    /// ETE.
    Ete,
    /// ETMv3.
    Etm3,
    /// PTM.
    Ptm,
    /// STPv2.
    Stp,
    /// ITM and DWT.
    Itm,
    /// Arm SPE.
    Spe,
    /// CoreSight formatter frames, of which each source is asked for.
    Frames,
    /// Formatter frames with FSYNC between them, as a TPIU sends them.
    FramesFsync,
    /// Formatter frames in a DSTREAM probe's file.
    FramesDstream,
}

impl Unit {
    /// All of them.
    pub const ALL: [Unit; 12] = [
        Unit::Pt,
        Unit::Bts,
        Unit::Etm4,
        Unit::Ete,
        Unit::Etm3,
        Unit::Ptm,
        Unit::Stp,
        Unit::Itm,
        Unit::Spe,
        Unit::Frames,
        Unit::FramesFsync,
        Unit::FramesDstream,
    ];

    /// Its name, as `--unit` has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::Pt => "pt",
            Unit::Bts => "bts",
            Unit::Etm4 => "etm4",
            Unit::Ete => "ete",
            Unit::Etm3 => "etm3",
            Unit::Ptm => "ptm",
            Unit::Stp => "stp",
            Unit::Itm => "itm",
            Unit::Spe => "spe",
            Unit::Frames => "frames",
            Unit::FramesFsync => "frames-fsync",
            Unit::FramesDstream => "frames-dstream",
        }
    }
}

impl std::str::FromStr for Unit {
    type Err = String;

    fn from_str(text: &str) -> Result<Unit, String> {
        let unit = Unit::ALL.into_iter().find(|unit| unit.name() == text);
        unit.ok_or_else(|| {
            format!("there is no unit '{text}'; there are {}", Unit::ALL.map(Unit::name).join(", "))
        })
    }
}

/// The unit of a source in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceUnit {
    /// The number of the source there.
    pub id: u8,
    /// The unit.
    pub unit: Unit,
}

impl std::str::FromStr for SourceUnit {
    type Err = String;

    /// `ID=UNIT`.
    fn from_str(text: &str) -> Result<SourceUnit, String> {
        let (id, unit) = text.split_once('=').ok_or("write ID=UNIT, such as 0x10=etm4")?;
        let number = match id.strip_prefix("0x") {
            Some(digits) => u8::from_str_radix(digits, 16),
            None => id.parse(),
        };
        let number = number.ok().filter(|id| (1..0x70).contains(id));
        Ok(SourceUnit {
            id: number.ok_or_else(|| format!("'{id}' is not the number of a source (0x1 to 0x6f)"))?,
            unit: unit.parse()?,
        })
    }
}

/// What a user says of a capture.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The unit that wrote a raw file.
    pub unit: Option<Unit>,
    /// The units of sources in frames, by their numbers there.
    pub sources: Vec<SourceUnit>,
    /// The frequency of the unit's clock, where the stream does not say it.
    pub clock_hz: Option<u64>,
    /// What MTC and CBR of a raw stream of Intel PT mean.
    pub pt: ClockConfig,
    /// Programs that ran.
    pub programs: Vec<NamedProgram>,
    /// Messages of an STM are of MIPI SyS-T, with these catalogues.
    pub sys_t: Option<Arc<Collateral>>,
    /// Address comparators were set to these places, as a capture of rtscope's says itself.
    pub places: Vec<CapturedPlace>,
}

/// Catalogues of MIPI SyS-T.
///
/// # Errors
/// When one cannot be read, or is none.
pub fn read_catalogs(paths: &[PathBuf]) -> Result<Collateral, DecodeError> {
    let mut all = Collateral::default();
    for path in paths {
        let bytes = std::fs::read(path).map_err(|source| DecodeError::Io { path: path.clone(), source })?;
        let xml = String::from_utf8(bytes).map_err(|_| CollateralError::Xml("it is not UTF-8".to_owned()));
        xml.and_then(|xml| all.add(&xml))
            .map_err(|source| DecodeError::Catalog { path: path.clone(), source })?;
    }
    Ok(all)
}

impl Settings {
    /// The named programs, where the user or their files say they are.
    pub(super) fn memory(&self) -> Result<Memory, DecodeError> {
        let mut memory = Memory::default();
        for named in &self.programs {
            let program = Program::read(&named.path)?;
            memory.add(&program, named.bias(&program));
        }
        Ok(memory)
    }
}

/// The unit of a stream with its settings.
#[derive(Clone, Debug)]
pub enum StreamKind {
    /// Intel PT.
    Pt(PtSettings),
    /// Intel BTS.
    Bts,
    /// ETMv4 or ETE.
    Etm4(v4::Config),
    /// ETMv3.
    Etm3(v3::Config),
    /// PTM.
    Ptm(ptm::Config),
    /// STPv2; with catalogues, its messages are of MIPI SyS-T.
    Stp(Option<Arc<Collateral>>),
    /// ITM and DWT.
    Itm,
    /// Arm SPE.
    Spe,
}

impl StreamKind {
    /// With the settings that a raw file does not say.
    pub(super) fn raw(unit: Unit, settings: &Settings) -> Option<StreamKind> {
        /// An ETE 1.0.
        const ETE: u32 = 0x4770_5a13;
        Some(match unit {
            Unit::Pt => StreamKind::Pt(PtSettings { time: settings.pt, ..PtSettings::default() }),
            Unit::Bts => StreamKind::Bts,
            Unit::Etm4 => StreamKind::Etm4(v4::Config::default()),
            Unit::Ete => StreamKind::Etm4(v4::Config { devarch: Some(ETE), ..v4::Config::default() }),
            Unit::Etm3 => StreamKind::Etm3(v3::Config::default()),
            Unit::Ptm => StreamKind::Ptm(ptm::Config::default()),
            Unit::Stp => StreamKind::Stp(settings.sys_t.clone()),
            Unit::Itm => StreamKind::Itm,
            Unit::Spe => StreamKind::Spe,
            Unit::Frames | Unit::FramesFsync | Unit::FramesDstream => return None,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            StreamKind::Pt(_) => "pt",
            StreamKind::Bts => "bts",
            StreamKind::Etm4(config) if config.is_ete() => "ete",
            StreamKind::Etm4(_) => "etm4",
            StreamKind::Etm3(_) => "etm3",
            StreamKind::Ptm(_) => "ptm",
            StreamKind::Stp(_) => "stp",
            StreamKind::Itm => "itm",
            StreamKind::Spe => "spe",
        }
    }
}

/// Bytes of a stream in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where they begin.
    pub at: u64,
    /// How many.
    pub bytes: u64,
    /// They do not continue those before.
    pub is_apart: bool,
}

/// A stream.
#[derive(Clone, Debug)]
pub struct Stream {
    /// For people: which buffer, which source.
    pub name: String,
    /// Its unit.
    pub kind: StreamKind,
    /// The frames that it is in, and its number there.
    pub frames: Option<(Framing, u8)>,
    /// The file.
    pub file: Arc<File>,
    /// Where in it.
    pub pieces: Vec<Piece>,
    /// The CPU, where it is of one.
    pub cpu: Option<u32>,
    /// From these times on, of which process and thread; in order.
    pub threads: Arc<[(u64, (u32, u32))]>,
    /// How long its ticks are, where something else than the stream says it.
    pub clock: Conversion,
    /// What is known of the memory of what was traced.
    pub memory: Arc<Memory>,
    /// The same by address spaces, of a snapshot.
    pub image: Option<Image>,
}

impl Stream {
    pub(super) fn decoder(&self) -> Box<dyn UnitDecoder> {
        let follower = || Follower::new(&self.memory, &self.threads);
        let image = || self.image.clone().unwrap_or_default();
        let (clock, hz) = (self.clock, self.clock.hz);
        match &self.kind {
            StreamKind::Pt(settings) => Box::new(Pt::new(settings, follower(), clock)),
            StreamKind::Bts => Box::new(Bts::default()),
            StreamKind::Etm4(config) => Box::new(Etm::<Etm4>::new(config, image(), follower(), clock)),
            StreamKind::Etm3(config) => Box::new(Etm::<Etm3>::new(config, image(), follower(), clock)),
            StreamKind::Ptm(config) => Box::new(Etm::<Ptm>::new(config, image(), follower(), clock)),
            StreamKind::Stp(sys_t) => Box::new(Stp::new(hz, sys_t.clone())),
            StreamKind::Itm => Box::new(Itm::new(hz)),
            StreamKind::Spe => Box::new(Spe::new(clock)),
        }
    }

    /// All bytes that it is in.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }
}

/// What was found.
#[derive(Debug, Default)]
pub struct Capture {
    /// Streams of trace units.
    pub streams: Vec<Stream>,
    /// A perf.data whose samples have branch stacks.
    pub samples: Option<Arc<File>>,
    /// The machine's name and its kernel, where the capture says so.
    pub machine: (Option<String>, Option<String>),
    /// The clock of all times.
    pub clock: String,
    /// What has to be added to times for CLOCK_MONOTONIC, where the recorder measured it.
    pub clock_offset_ns: Option<i64>,
    /// What people should know.
    pub notes: Vec<String>,
    /// What the recorder says was lost, with its time.
    pub losses: Vec<HardwareEvent>,
    /// Bytes of traces that were written and are not in the file.
    pub missing_bytes: u64,
    /// Where the file cannot be read on, and why.
    pub damage: Option<String>,
}

/// Finds out what a path holds.
///
/// # Errors
/// When there is nothing in it that is decoded here.
pub fn open(path: &Path, settings: &Settings) -> Result<Capture, DecodeError> {
    let mut capture = find_streams(path, settings)?;
    let is_stp = |stream: &Stream| matches!(stream.kind, StreamKind::Stp(_));
    if settings.sys_t.is_some() && !capture.streams.iter().any(is_stp) {
        capture.notes.push("there is no stream of an STM, so there are no messages of SyS-T".to_owned());
    }
    Ok(capture)
}

fn find_streams(path: &Path, settings: &Settings) -> Result<Capture, DecodeError> {
    let failed = |source| DecodeError::Io { path: path.to_owned(), source };
    if path.is_dir() {
        let captured = CaptureInfo::read(path).map_err(failed)?;
        return captured.map_or_else(
            || snapshot::open(path, settings),
            |info| captured::open_captured(path, &info, settings),
        );
    }
    let file = if path.as_os_str() == "-" {
        crate::perfdata::Spooled::new(io::stdin().lock()).map_err(failed)?.into_file()
    } else {
        File::open(path).map_err(failed)?
    };
    let file = if file.metadata().map_err(failed)?.is_file() {
        file
    } else {
        // A pipe with a name.
        crate::perfdata::Spooled::new(file).map_err(failed)?.into_file()
    };
    let file = Arc::new(file);
    let mut begin = [0; 8];
    let read = file.read_at(0, &mut begin).map_err(failed)?;
    if PerfFile::<&File>::is_one(&begin[..read]) && settings.unit.is_none() {
        return perf::open(path, &file, settings);
    }
    let unit = settings.unit.ok_or_else(|| DecodeError::NoUnit(path.to_owned()))?;
    let bytes = file.size().map_err(failed)?;
    let piece = Piece { at: 0, bytes, is_apart: false };
    let mut capture = Capture { clock: "the unit's counter".to_owned(), ..Capture::default() };
    let memory = Arc::new(settings.memory()?);
    let raw = |name: String, kind, frames| Stream {
        name,
        kind,
        frames,
        file: file.clone(),
        pieces: vec![piece],
        cpu: None,
        threads: Arc::default(),
        clock: Conversion::at(settings.clock_hz),
        memory: memory.clone(),
        image: None,
    };
    let Some(kind) = StreamKind::raw(unit, settings) else {
        let framing = match unit {
            Unit::FramesFsync => Framing::Fsync,
            Unit::FramesDstream => Framing::Dstream,
            _ => Framing::Memory,
        };
        for (id, bytes) in sources(&file, &[piece], framing).map_err(failed)? {
            let kind = settings.sources.iter().find(|source| source.id == id);
            match kind.and_then(|source| StreamKind::raw(source.unit, settings)) {
                Some(kind) => capture.streams.push(raw(format!("source {id:#x}"), kind, Some((framing, id)))),
                None => capture.notes.push(format!(
                    "source {id:#x} has {bytes} bytes, which are passed over: say what it is with --source {id:#x}=UNIT"
                )),
            }
        }
        if capture.streams.is_empty() {
            let why = capture.notes.join("; ");
            return Err(DecodeError::Nothing { path: path.to_owned(), why });
        }
        return Ok(capture);
    };
    capture.streams.push(raw(unit.name().to_owned(), kind, None));
    Ok(capture)
}

/// The sources in frames, with their bytes; padding and triggers are none.
pub(super) fn sources(file: &File, pieces: &[Piece], framing: Framing) -> io::Result<Vec<(u8, u64)>> {
    struct Ignore;
    impl FrameSink for Ignore {
        fn data(&mut self, _: u8, _: u64, _: &[u8]) {}
        fn lost(&mut self, _: Lost) {}
    }
    let mut deformatter = Deformatter::new(framing);
    let mut buffer = vec![0; PIECE];
    for piece in pieces {
        let mut done = 0;
        while done < piece.bytes {
            let wanted = usize::try_from(piece.bytes - done).unwrap_or(PIECE).min(PIECE);
            let read = file.read_at(piece.at + done, &mut buffer[..wanted])?;
            if read == 0 {
                break;
            }
            deformatter.push(&buffer[..read], &mut Ignore);
            done += read as u64;
        }
    }
    deformatter.finish(&mut Ignore);
    let counts = deformatter.counts();
    let is_source = |id: &u8| (1..0x70).contains(id);
    Ok(counts.ids().filter(is_source).map(|id| (id, counts.data_bytes(id))).collect())
}
