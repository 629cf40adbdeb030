// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs as files: what is in memory while they run, and the names of their functions.
//!
//! A flow is followed through bytes at addresses; functions are found by address. Both come from ELF files. Where a file is in memory
//! is not in the file: a position-independent one is at 0 in its own words, and the recording (or `--image FILE@ADDRESS`) says
//! where it was.

use object::elf::PF_X;
use object::{Architecture, Object, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a program's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The system did not give the bytes.
    #[error("reading {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no ELF file, or a damaged one.
    #[error("{} is not a readable ELF file: {what}", path.display())]
    NotElf {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// Bytes that are in memory while a program runs.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Where, in the file's own words.
    pub address: u64,
    /// Where in the file.
    pub offset: u64,
    /// The bytes.
    pub bytes: Arc<[u8]>,
    /// They may be executed.
    pub is_code: bool,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Where it begins.
    pub address: u64,
    /// Bytes; 0 where the file does not say.
    pub size: u64,
    /// Its name.
    pub name: Arc<str>,
}

/// An ELF file.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// In memory.
    pub segments: Vec<Segment>,
    /// By address.
    pub functions: Vec<Function>,
}

impl Program {
    /// Reads a file.
    ///
    /// # Errors
    /// When it is no ELF file.
    pub fn read(path: &Path) -> Result<Program, ProgramError> {
        let bytes = fs::read(path).map_err(|source| ProgramError::Io { path: path.to_owned(), source })?;
        Program::parse(path, &bytes)
    }

    /// The same of bytes.
    ///
    /// # Errors
    /// When they are no ELF file.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Program, ProgramError> {
        let wrong =
            |what: object::Error| ProgramError::NotElf { path: path.to_owned(), what: what.to_string() };
        let file = object::File::parse(bytes).map_err(wrong)?;
        let mut segments = Vec::new();
        for segment in file.segments() {
            let data = segment.data().map_err(wrong)?;
            let (offset, _) = segment.file_range();
            let is_code = matches!(segment.flags(), SegmentFlags::Elf { p_flags } if p_flags & PF_X != 0);
            segments.push(Segment { address: segment.address(), offset, bytes: data.into(), is_code });
        }
        // Bit 0 of the address of a function says that its instructions are T32 (ELF for the Arm Architecture, 5.5.3).
        let mask = if file.architecture() == Architecture::Arm { !1 } else { !0 };
        let named = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| matches!(symbol.kind(), SymbolKind::Text) && symbol.is_definition());
        let mut functions: Vec<Function> = named
            .filter_map(|symbol| {
                let name = symbol.name().ok().filter(|name| !name.is_empty())?;
                Some(Function { address: symbol.address() & mask, size: symbol.size(), name: name.into() })
            })
            .collect();
        // Of several names of one address the longest-known one stays: that of the full table, which comes first.
        functions.sort_by_key(|function| function.address);
        functions.dedup_by_key(|function| function.address);
        Ok(Program { path: path.to_owned(), segments, functions })
    }

    /// What is added to its own addresses when `offset` of the file is mapped as code at `address`. `None`: no segment has that place.
    #[must_use]
    pub fn bias(&self, address: u64, offset: u64) -> Option<u64> {
        let holds = |segment: &&Segment| {
            // Mappings are of whole pages.
            let first = segment.offset & !0xfff;
            offset >= first && offset - segment.offset.min(offset) < segment.bytes.len() as u64
        };
        // One page of the file can be of two segments, as lld lays them out: of a mapping of code, that with the code counts.
        let of_code = self.segments.iter().filter(|segment| segment.is_code).find(holds);
        let segment = of_code.or_else(|| self.segments.iter().find(holds))?;
        Some(address.wrapping_sub(segment.address.wrapping_sub(segment.offset).wrapping_add(offset)))
    }
}

/// Functions of all that is mapped, by address.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    list: Vec<Function>,
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'f> {
    /// The function.
    pub function: &'f Function,
    /// Bytes behind its beginning.
    pub offset: u64,
}

impl Functions {
    /// Adds those of a program at a place.
    pub fn add(&mut self, program: &Program, bias: u64) {
        let moved = program
            .functions
            .iter()
            .map(|function| Function { address: function.address.wrapping_add(bias), ..function.clone() });
        self.list.extend(moved);
        self.list.sort_by_key(|function| function.address);
        self.list.dedup();
    }

    /// The function that an address is in. One without a size goes up to the next.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<Found<'_>> {
        let next = self.list.partition_point(|function| function.address <= address);
        let function = self.list.get(next.checked_sub(1)?)?;
        let offset = address - function.address;
        (function.size == 0 || offset < function.size).then_some(Found { function, offset })
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// All that is in memory: bytes by address, and functions.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Bytes from an address on.
    pub pieces: Vec<(u64, Arc<[u8]>)>,
    /// Functions.
    pub functions: Functions,
}

impl Memory {
    /// Adds a program at a place.
    pub fn add(&mut self, program: &Program, bias: u64) {
        let moved = program.segments.iter().filter(|segment| !segment.bytes.is_empty());
        self.pieces.extend(moved.map(|segment| (segment.address.wrapping_add(bias), segment.bytes.clone())));
        self.functions.add(program, bias);
    }

    /// Whether nothing is known of it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// An address with its function, for people.
    #[must_use]
    pub fn place(&self, address: u64) -> String {
        match self.functions.at(address) {
            Some(Found { function, offset: 0 }) => format!("{address:#x} <{}>", function.name),
            Some(Found { function, offset }) => format!("{address:#x} <{}+{offset:#x}>", function.name),
            None => format!("{address:#x}"),
        }
    }
}

/// A program that the user names, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedProgram {
    /// The file.
    pub path: PathBuf,
    /// Where its first byte in memory is; `None`: where the recording or the file itself says.
    pub address: Option<u64>,
}

impl std::str::FromStr for NamedProgram {
    type Err = String;

    /// `FILE` or `FILE@ADDRESS`.
    fn from_str(text: &str) -> Result<NamedProgram, String> {
        let parts = text.rsplit_once('@').filter(|(_, address)| address.starts_with("0x"));
        let Some((path, address)) = parts else {
            return Ok(NamedProgram { path: text.into(), address: None });
        };
        let number = u64::from_str_radix(address.trim_start_matches("0x"), 16);
        let number = number.map_err(|_| format!("'{address}' is not an address (0x…)"))?;
        Ok(NamedProgram { path: path.into(), address: Some(number) })
    }
}

impl NamedProgram {
    /// What is added to its own addresses, where the user says so.
    #[must_use]
    pub fn bias(&self, program: &Program) -> u64 {
        let lowest = program.segments.iter().map(|segment| segment.address & !0xfff).min().unwrap_or(0);
        self.address.map_or(0, |address| address.wrapping_sub(lowest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_page_that_is_of_two_segments_the_one_with_code_counts() {
        let segment = |address, offset, bytes: usize, is_code| Segment {
            address,
            offset,
            bytes: vec![0; bytes].into(),
            is_code,
        };
        // As lld does it: in the file one segment follows the other, in memory each has pages of its own.
        let segments = vec![segment(0x20_0000, 0, 0x680, false), segment(0x20_1680, 0x680, 0x400, true)];
        let program = Program { path: PathBuf::new(), segments, functions: Vec::new() };
        assert_eq!(program.bias(0x5555_0000_1000, 0), Some(0x5555_0000_1000 - 0x20_1000));
    }
}
