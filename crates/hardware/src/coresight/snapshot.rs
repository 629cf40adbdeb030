// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Snapshot directories in the form of OpenCSD and DS-5: `snapshot.ini` names a file for each device, `trace.ini` the buffers,
//! what is in them and which processor a source belongs to.
//!
//! Files are small and may be anybody's: everything in them is bounded by their size, and what is missing or wrong is named.

use super::frames::Framing;
use crate::etm::{Image, Spaces, ptm, v3, v4};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use rtscope_ctf::{Links, open_regular};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Why a snapshot cannot be read.
#[derive(Debug)]
pub enum SnapshotError {
    /// A file of it.
    Io(PathBuf, std::io::Error),
    /// A line that is not of the form.
    Line(PathBuf, usize),
    /// Something that has to be there.
    Missing(PathBuf, &'static str),
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::Io(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            SnapshotError::Line(path, line) => {
                write!(f, "{}: line {line} is neither [section] nor key=value", path.display())
            }
            SnapshotError::Missing(path, what) => write!(f, "{} has no {what}", path.display()),
        }
    }
}

impl std::error::Error for SnapshotError {}

/// How a buffer's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Formatter frames in memory.
    Frames,
    /// Formatter frames as a DSTREAM probe stores them.
    Dstream,
    /// Bytes of one source.
    Source,
}

impl Format {
    /// The framing; `None` of one source's bytes.
    #[must_use]
    pub fn framing(self) -> Option<Framing> {
        match self {
            Format::Frames => Some(Framing::Memory),
            Format::Dstream => Some(Framing::Dstream),
            Format::Source => None,
        }
    }
}

/// Bytes that were captured.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Its name.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// How they are.
    pub format: Format,
    /// Names of the sources in it.
    pub sources: Vec<String>,
}

/// A trace source.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// `ETM4.1`, `PTM1.1`, `STM` and so on.
    pub kind: String,
    /// Registers by name.
    pub registers: BTreeMap<String, u64>,
    /// The name of the processor that it traces.
    pub core: Option<String>,
}

/// Memory in a file.
#[derive(Clone, Debug)]
pub struct Dump {
    /// The file.
    pub path: PathBuf,
    /// Address of the first byte.
    pub address: u64,
    /// First byte in the file.
    pub offset: u64,
    /// How many bytes, if not all.
    pub length: Option<u64>,
    /// In which address spaces.
    pub spaces: Spaces,
}

/// A processor.
#[derive(Clone, Debug)]
pub struct Core {
    /// Its name.
    pub name: String,
    /// `Cortex-A57` and so on.
    pub kind: String,
    /// Its memory.
    pub dumps: Vec<Dump>,
}

/// What a snapshot directory has.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Captured bytes.
    pub buffers: Vec<Buffer>,
    /// Who made them.
    pub sources: Vec<Source>,
    /// What was traced.
    pub cores: Vec<Core>,
}

impl Source {
    /// A register, by its name in the architecture.
    #[must_use]
    pub fn register(&self, name: &str) -> Option<u64> {
        self.registers.get(name).copied()
    }

    /// Whether it is an ETMv4 or an ETE.
    #[must_use]
    pub fn is_etm4(&self) -> bool {
        let kind = self.kind.to_ascii_uppercase();
        kind.starts_with("ETM4") || kind.starts_with("ETE") || kind.starts_with("ETMV4")
    }

    /// What the registers of an ETMv4 or ETE say; registers that are not given are as those of a common unit.
    #[must_use]
    pub fn etm4_config(&self, core: Option<&Core>) -> v4::Config {
        let mut config = v4::Config { configr: 0xC1, ..v4::Config::default() };
        let get = |name: &str, or: u32| self.register(name).map_or(or, |value| value as u32);
        config.configr = get("TRCCONFIGR", config.configr);
        config.trace_id = (get("TRCTRACEIDR", 0) & 0x7F) as u8;
        config.idr0 = get("TRCIDR0", config.idr0);
        config.idr1 = get("TRCIDR1", config.idr1);
        config.idr2 = get("TRCIDR2", config.idr2);
        config.idr8 = get("TRCIDR8", 0);
        if self.kind.to_ascii_uppercase().starts_with("ETE") {
            config.devarch = Some(get("TRCDEVARCH", 0x4770_5A13));
        }
        if core.is_some_and(Core::is_m_profile) {
            config.profile = v4::Profile::M;
        }
        config
    }

    /// Whether it is a PTM.
    #[must_use]
    pub fn is_ptm(&self) -> bool {
        let kind = self.kind.to_ascii_uppercase();
        kind.starts_with("PTM") || kind.starts_with("PFT")
    }

    /// Whether it is an ETMv3.
    #[must_use]
    pub fn is_etm3(&self) -> bool {
        let kind = self.kind.to_ascii_uppercase();
        kind.starts_with("ETM3") || kind.starts_with("ETMV3")
    }

    /// What the registers of a PTM say.
    #[must_use]
    pub fn ptm_config(&self) -> ptm::Config {
        let get = |name: &str, or: u32| self.register(name).map_or(or, |value| value as u32);
        let usual = ptm::Config::default();
        ptm::Config {
            control: get("ETMCR", usual.control),
            id: get("ETMIDR", usual.id),
            capabilities: get("ETMCCER", usual.capabilities),
            trace_id: (get("ETMTRACEIDR", 0) & 0x7F) as u8,
        }
    }

    /// What the registers of an ETMv3 say.
    #[must_use]
    pub fn etm3_config(&self, core: Option<&Core>) -> v3::Config {
        let get = |name: &str, or: u32| self.register(name).map_or(or, |value| value as u32);
        let usual = v3::Config::default();
        v3::Config {
            control: get("ETMCR", usual.control),
            id: get("ETMIDR", usual.id),
            capabilities: get("ETMCCER", usual.capabilities),
            trace_id: (get("ETMTRACEIDR", 0) & 0x7F) as u8,
            is_m_profile: core.is_some_and(Core::is_m_profile),
        }
    }

    /// The identifier in formatter frames.
    #[must_use]
    pub fn trace_id(&self) -> Option<u8> {
        let names = ["TRCTRACEIDR", "ETMTRACEIDR"];
        if let Some(id) = names.iter().find_map(|name| self.register(name)) {
            return Some((id & 0x7F) as u8);
        }
        // TRACEID of an ITM's and an STM's control register is in bits 22:16.
        ["ITM_CTRL", "ITMCR", "STMTCSR"]
            .iter()
            .find_map(|name| self.register(name))
            .map(|value| (value >> 16 & 0x7F) as u8)
    }
}

impl Core {
    /// A microcontroller.
    #[must_use]
    pub fn is_m_profile(&self) -> bool {
        self.kind.to_ascii_uppercase().starts_with("CORTEX-M")
    }
}

/// Larger files of dumps are refused: a sparse one has any size.
const DUMP_BYTES_MAX: u64 = 1 << 30;

/// Files of dumps that were read, each once, whatever it is called.
#[derive(Debug, Default)]
pub struct DumpFiles(BTreeMap<(u64, u64), Arc<[u8]>>);

impl DumpFiles {
    fn read(&mut self, path: &Path) -> io::Result<Arc<[u8]>> {
        let mut file = open_regular(path, Links::Follow)?;
        let metadata = file.metadata()?;
        let number = (metadata.dev(), metadata.ino());
        if let Some(bytes) = self.0.get(&number) {
            return Ok(bytes.clone());
        }
        if metadata.len() > DUMP_BYTES_MAX {
            let why =
                format!("it has {} bytes, and memory of at most {DUMP_BYTES_MAX} is read", metadata.len());
            return Err(io::Error::new(ErrorKind::FileTooLarge, why));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let bytes: Arc<[u8]> = bytes.into();
        self.0.insert(number, bytes.clone());
        Ok(bytes)
    }
}

impl Snapshot {
    /// Reads the `.ini` files of a directory; captured bytes and memory are read when asked for.
    pub fn read(directory: &Path) -> Result<Self, SnapshotError> {
        let mut snapshot = Self::default();
        let path = directory.join("snapshot.ini");
        let ini = Ini::read(&path)?;
        let devices =
            ini.section("device_list").ok_or(SnapshotError::Missing(path.clone(), "[device_list]"))?;
        for (_, file) in &devices.keys {
            snapshot.device(directory, file)?;
        }
        if let Some(metadata) = ini.section("trace").and_then(|trace| trace.get("metadata")) {
            snapshot.trace(directory, metadata)?;
        }
        Ok(snapshot)
    }

    /// The source with this name.
    #[must_use]
    pub fn source(&self, name: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.name == name)
    }

    /// The processor of a source.
    #[must_use]
    pub fn core_of(&self, source: &Source) -> Option<&Core> {
        let name = source.core.as_ref()?;
        self.cores.iter().find(|core| core.name == *name)
    }

    /// The memory of a processor. Dumps that cannot be read are returned: without them there is less flow, but packets.
    ///
    /// `files`: what was read before. Any number of dumps of any number of processors may name one file, which is in memory once.
    pub fn image(&self, core: &Core, files: &mut DumpFiles) -> (Image, Vec<SnapshotError>) {
        let mut image = Image::new();
        let mut errors = Vec::new();
        for dump in &core.dumps {
            let file = match files.read(&dump.path) {
                Ok(file) => file,
                Err(error) => {
                    errors.push(SnapshotError::Io(dump.path.clone(), error));
                    continue;
                }
            };
            let start = usize::try_from(dump.offset).unwrap_or(usize::MAX).min(file.len());
            let wanted = dump.length.and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
            let end = start.saturating_add(wanted).min(file.len());
            image.add_part(dump.spaces, dump.address, file, start..end);
        }
        (image, errors)
    }

    fn device(&mut self, directory: &Path, file: &str) -> Result<(), SnapshotError> {
        let path = inside(directory, file)?;
        let ini = Ini::read(&path)?;
        let device = ini.section("device").ok_or(SnapshotError::Missing(path.clone(), "[device]"))?;
        let name = device.get("name").ok_or(SnapshotError::Missing(path.clone(), "name"))?.to_string();
        let kind = device.get("type").unwrap_or("").to_string();
        match device.get("class").unwrap_or("") {
            "core" => {
                let dumps = ini.sections.iter().filter(|section| section.name.starts_with("dump"));
                let dumps = dumps.map(|section| dump(directory, &path, section)).collect::<Result<_, _>>()?;
                self.cores.push(Core { name, kind, dumps });
            }
            "trace_source" => {
                let mut registers = BTreeMap::new();
                for (key, value) in ini.section("regs").map_or(&[][..], |regs| &regs.keys) {
                    let register = key.split('(').next().unwrap_or(key).trim();
                    if let Some(value) = number(value) {
                        registers.insert(register.to_string(), value);
                    }
                }
                self.sources.push(Source { name, kind, registers, core: None });
            }
            _ => {}
        }
        Ok(())
    }

    fn trace(&mut self, directory: &Path, file: &str) -> Result<(), SnapshotError> {
        let path = inside(directory, file)?;
        let ini = Ini::read(&path)?;
        let list = ini.section("trace_buffers").and_then(|section| section.get("buffers"));
        let list = list.ok_or(SnapshotError::Missing(path.clone(), "list of buffers"))?;
        for name in names(list) {
            let buffer =
                ini.section(name).ok_or(SnapshotError::Missing(path.clone(), "section of a buffer"))?;
            let files = buffer.get("file").ok_or(SnapshotError::Missing(path.clone(), "file of a buffer"))?;
            let format = match buffer.get("format").unwrap_or("coresight") {
                "source_data" => Format::Source,
                "dstream_coresight" => Format::Dstream,
                _ => Format::Frames,
            };
            let name = buffer.get("name").unwrap_or(name).to_string();
            let in_it = ini.section("source_buffers").map_or(&[][..], |section| &section.keys);
            let sources = in_it.iter().filter(|(_, buffers)| names(buffers).any(|one| one == name));
            let sources: Vec<_> = sources.map(|(source, _)| source.clone()).collect();
            for file in names(files) {
                let path = inside(directory, file)?;
                self.buffers.push(Buffer { name: name.clone(), path, format, sources: sources.clone() });
            }
        }
        for (core, source) in ini.section("core_trace_sources").map_or(&[][..], |section| &section.keys) {
            if let Some(source) = self.sources.iter_mut().find(|one| one.name == *source) {
                source.core = Some(core.clone());
            }
        }
        Ok(())
    }
}

/// What a list names. There are captures with a comma behind the last name.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// The path of a description or a buffer. A snapshot may come from anybody, and what it names may be printed: they are below its directory.
fn inside(directory: &Path, file: &str) -> Result<PathBuf, SnapshotError> {
    let path = directory.join(file);
    if Path::new(file).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return regular(path);
    }
    Err(refused(path, "it is not below the snapshot's directory"))
}

/// The path of a file, where it is no device and no pipe. Programs may be anywhere: several snapshots share them.
fn regular(path: PathBuf) -> Result<PathBuf, SnapshotError> {
    // One that is not there is an error where it is read.
    if std::fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Err(refused(path, "it is not a regular file"));
    }
    Ok(path)
}

fn refused(path: PathBuf, why: &str) -> SnapshotError {
    SnapshotError::Io(path, io::Error::new(ErrorKind::InvalidInput, why))
}

fn dump(directory: &Path, path: &Path, section: &Section) -> Result<Dump, SnapshotError> {
    let missing = |what| SnapshotError::Missing(path.to_path_buf(), what);
    let file = section.get("file").ok_or_else(|| missing("file of a dump"))?;
    let address = section.get("address").and_then(number).ok_or_else(|| missing("address of a dump"))?;
    Ok(Dump {
        path: regular(directory.join(file))?,
        address,
        offset: section.get("offset").and_then(number).unwrap_or(0),
        length: section.get("length").and_then(number),
        spaces: section.get("space").and_then(Spaces::from_name).unwrap_or(Spaces::ANY),
    })
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

struct Section {
    name: String,
    keys: Vec<(String, String)>,
}

impl Section {
    fn get(&self, key: &str) -> Option<&str> {
        self.keys.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

/// All of a regular file: a directory may come from anybody.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path, Links::Follow)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

struct Ini {
    sections: Vec<Section>,
}

impl Ini {
    fn read(path: &Path) -> Result<Self, SnapshotError> {
        let bytes = read(path).map_err(|error| SnapshotError::Io(path.to_path_buf(), error))?;
        let mut sections: Vec<Section> = Vec::new();
        for (number, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with([';', '#']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                sections.push(Section { name: name.trim().to_string(), keys: Vec::new() });
                continue;
            }
            let (Some(section), Some((key, value))) = (sections.last_mut(), line.split_once('=')) else {
                return Err(SnapshotError::Line(path.to_path_buf(), number + 1));
            };
            section.keys.push((key.trim().to_string(), value.trim().to_string()));
        }
        Ok(Self { sections })
    }

    fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }
}
