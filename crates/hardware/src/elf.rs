// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ELF files that nobody believes: their headers, and their symbol tables in pieces.
//!
//! Root may be asked to look into a file that anybody has written, and what it says of its sizes costs nothing to write: a table can be a hole of any
//! number of gigabytes. So sizes are compared with the file and with what the largest programs have before anything is read, and tables pass through
//! one buffer from begin to end. No name is retained: those that are asked for are looked for in the table of names first, and a symbol is then
//! recognised by where its name is. Memory does not depend on the file, and time does on no product of two of its numbers.

use object::elf::{PF_X, PT_LOAD, SHN_LORESERVE, SHN_UNDEF, SHN_XINDEX, SHT_DYNSYM, SHT_STRTAB, SHT_SYMTAB};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Program headers and section headers, each: more than 65 536 of them. Linkers make some ten and some fifty; a kernel with debug information has less than a hundred.
const HEADERS_BYTES_MAX: u64 = 8 << 20;
/// Symbols of one table. A kernel with debug information has some 200 000, Chromium less than two million.
const SYMBOLS_MAX: u64 = 16 << 20;
/// Bytes of all names of one table. Chromium has less than 300 MiB, as C++ names are long.
const NAMES_BYTES_MAX: u64 = 512 << 20;
/// Ends of names that end as one that is asked for does: symbols have no more names than that, with and without their versions.
const ENDS_MAX: u64 = 2 * SYMBOLS_MAX;
/// Places at which a name that is asked for is: of local functions each has its own, with some linkers.
const SAME_NAMES_MAX: usize = 1 << 18;
/// What is read at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Names that are collected before they are handed over, and the longest one that is.
const NAMES_AT_A_TIME: usize = 1024;
const NAME_BYTES_MAX: u64 = 1024;
/// Reads of names for a hint. Where names are in the order of their symbols, each reads a piece of them.
const HINT_READS_MAX: usize = 4096;
const HINT_BYTES_MAX: usize = 64 << 20;

/// Where the code at some addresses is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeSegment {
    pub address: u64,
    pub bytes: u64,
    pub file_offset: u64,
}

/// A symbol, without its name.
#[derive(Clone, Copy, Debug)]
pub struct Symbol {
    /// Where its name is in the table of names; 0: it has none.
    pub name: u32,
    /// `STT_…`.
    pub kind: u8,
    /// It is in this file.
    pub is_defined: bool,
    pub address: u64,
    pub size: u64,
}

/// Symbols, and their names: places in the file.
#[derive(Clone, Debug)]
pub struct Table {
    symbols: Range<u64>,
    names: Range<u64>,
}

/// What the headers say.
#[derive(Debug)]
pub struct Headers<'f> {
    file: &'f File,
    layout: Layout,
    pub machine: u16,
    /// It is a program or a library.
    pub is_linked: bool,
    /// By address.
    pub code: Vec<CodeSegment>,
    /// `.symtab` and `.dynsym`, as far as they are there; or why they are not read.
    pub tables: Result<Vec<Table>, String>,
}

/// How numbers are written.
#[derive(Clone, Copy, Debug)]
struct Layout {
    is_64_bit: bool,
    is_big_endian: bool,
}

/// One entry of a table; what is behind its end is 0.
#[derive(Clone, Copy)]
struct Entry<'b>(&'b [u8], Layout);

impl Entry<'_> {
    fn number(self, at: usize, bytes: usize) -> u64 {
        let there = self.0.get(at..at + bytes).unwrap_or_default();
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match self.1.is_big_endian {
            true => there.iter().fold(0, add),
            false => there.iter().rev().fold(0, add),
        }
    }

    fn u16(self, at: usize) -> u16 {
        self.number(at, 2) as u16
    }

    fn u32(self, at: usize) -> u32 {
        self.number(at, 4) as u32
    }

    /// An address, an offset or a size, which is at another place in files of 32 bits.
    fn word(self, of_32: usize, of_64: usize) -> u64 {
        if self.1.is_64_bit { self.number(of_64, 8) } else { self.number(of_32, 4) }
    }
}

impl Layout {
    fn of(self, of_32: usize, of_64: usize) -> usize {
        if self.is_64_bit { of_64 } else { of_32 }
    }

    fn symbol(self, bytes: &[u8]) -> Symbol {
        let entry = Entry(bytes, self);
        let section = entry.u16(self.of(14, 6));
        let is_in_section = section != SHN_UNDEF && (section < SHN_LORESERVE || section == SHN_XINDEX);
        Symbol {
            name: entry.u32(0),
            kind: entry.number(self.of(12, 4), 1) as u8 & 0xf,
            is_defined: is_in_section,
            address: entry.word(4, 8),
            size: entry.word(8, 16),
        }
    }

    fn symbol_bytes(self) -> usize {
        self.of(16, 24)
    }
}

/// Bytes of a file, no more than some headers take.
fn headers(file: &File, (begin, count, each): (u64, u64, u64), least: u64) -> Result<Vec<u8>, String> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if each < least {
        return Err(format!("its headers have {each} bytes each"));
    }
    let bytes = count.checked_mul(each).filter(|bytes| *bytes <= HEADERS_BYTES_MAX);
    let bytes = bytes.ok_or_else(|| format!("it is said to have {count} headers"))?;
    let mut read = vec![0; bytes as usize];
    file.read_exact_at(&mut read, begin).map_err(|error| format!("its headers: {error}"))?;
    Ok(read)
}

impl<'f> Headers<'f> {
    /// Reads them, or says why they are none.
    pub fn read(file: &'f File) -> Result<Headers<'f>, String> {
        let mut bytes = [0; 64];
        let got = file.read_at(&mut bytes, 0).map_err(|error| error.to_string())?;
        let layout = match bytes[..6] {
            [0x7f, b'E', b'L', b'F', class @ (1 | 2), order @ (1 | 2)] => {
                Layout { is_64_bit: class == 2, is_big_endian: order == 2 }
            }
            _ => return Err("it does not begin as one".to_owned()),
        };
        if got < layout.of(52, 64) {
            return Err("it ends in its first header".to_owned());
        }
        let head = Entry(&bytes, layout);
        let (programs_at, sections_at) = (head.word(28, 32), head.word(32, 40));
        let small = |of_32, of_64| u64::from(head.u16(layout.of(of_32, of_64)));
        let (mut programs, mut sections) = (small(44, 56), small(48, 60));
        let (program_bytes, section_bytes) = (small(42, 54), small(46, 58));
        // Where there are too many for these fields, the first section has the numbers.
        if sections_at != 0 && (sections == 0 || programs == 0xffff) {
            let least = layout.of(40, 64) as u64;
            let first = headers(file, (sections_at, 1, section_bytes), least)?;
            let first = Entry(&first, layout);
            sections = if sections == 0 { first.word(20, 32) } else { sections };
            programs = if programs == 0xffff { u64::from(first.u32(layout.of(28, 44))) } else { programs };
        }
        let programs = headers(file, (programs_at, programs, program_bytes), layout.of(32, 56) as u64)?;
        let code = code_segments(&programs, program_bytes as usize, layout);
        let sections = match sections_at {
            0 => Ok(Vec::new()),
            at => headers(file, (at, sections, section_bytes), layout.of(40, 64) as u64),
        };
        let file_bytes = file.metadata().map_err(|error| error.to_string())?.len();
        let tables = sections.and_then(|read| tables(&read, section_bytes as usize, layout, file_bytes));
        let kind = head.u16(16);
        Ok(Headers {
            file,
            layout,
            machine: head.u16(18),
            // ET_EXEC and ET_DYN.
            is_linked: matches!(kind, 2 | 3),
            code,
            tables,
        })
    }

    /// Where code at this address is.
    pub fn segment(&self, address: u64) -> Option<&CodeSegment> {
        let behind = self.code.partition_point(|segment| segment.address <= address);
        let segment = self.code.get(behind.checked_sub(1)?)?;
        (address - segment.address < segment.bytes).then_some(segment)
    }

    /// All symbols, in order. It ends early where `take` returns false.
    pub fn symbols(&self, table: &Table, mut take: impl FnMut(Symbol) -> bool) -> Result<(), String> {
        let each = self.layout.symbol_bytes();
        let mut pieces = Pieces::new(self.file, table.symbols.clone(), PIECE_BYTES / each * each);
        while let Some(piece) = pieces.next(0).map_err(|error| format!("its symbols: {error}"))? {
            let mut symbols = piece.bytes.chunks_exact(each);
            if !symbols.all(|symbol| take(self.layout.symbol(symbol))) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Where names are in the table of names: there, and the end of a longer one where a linker has merged them. Each with its place in `wanted`.
    pub fn places_of(&self, table: &Table, wanted: &[&str]) -> Result<HashMap<u32, usize>, String> {
        let by_name: HashMap<&[u8], usize> =
            wanted.iter().enumerate().map(|(place, name)| (name.as_bytes(), place)).collect();
        let lengths: BTreeSet<usize> = wanted.iter().map(|name| name.len()).filter(|at| *at > 0).collect();
        let longest = lengths.last().copied().unwrap_or(0);
        let mut is_last = [false; 256];
        wanted
            .iter()
            .filter_map(|name| name.bytes().last())
            .for_each(|byte| is_last[usize::from(byte)] = true);
        let (mut places, mut ends) = (HashMap::new(), 0_u64);
        if longest == 0 {
            return Ok(places);
        }
        let mut pieces = Pieces::new(self.file, table.names.clone(), PIECE_BYTES.max(4 * longest));
        while let Some(piece) = pieces.next(longest).map_err(|error| format!("its names: {error}"))? {
            for end in piece.carried.max(1)..piece.bytes.len() {
                let (last, is_end) = (piece.bytes[end - 1], matches!(piece.bytes[end], 0 | b'@'));
                if !is_end || !is_last[usize::from(last)] {
                    continue;
                }
                ends += 1;
                if ends > ENDS_MAX {
                    return Err("more names than symbols".to_owned());
                }
                for length in lengths.iter().take_while(|length| **length <= end) {
                    let Some(which) = by_name.get(&piece.bytes[end - length..end]) else { continue };
                    // Its symbols have no greater numbers.
                    let Ok(place) = u32::try_from(piece.begin + (end - length) as u64) else { continue };
                    if places.len() >= SAME_NAMES_MAX {
                        return Err(format!("'{}' in its names too often", wanted[*which]));
                    }
                    places.insert(place, *which);
                }
            }
        }
        Ok(places)
    }

    /// The names of symbols of which this is true, some at a time: as many as are found with reads enough for programs whose names are in their order.
    /// For hints.
    pub fn some_names(
        &self,
        table: &Table,
        is_meant: impl Fn(&Symbol) -> bool,
        mut take: impl FnMut(&[String]),
    ) -> Result<(), String> {
        let (mut piece, mut piece_at) = (Vec::new(), 0_u64);
        let mut names: Vec<String> = Vec::new();
        let (mut reads, mut bytes) = (0, 0);
        self.symbols(table, |symbol| {
            let at = table.names.start + u64::from(symbol.name);
            if symbol.name == 0 || !is_meant(&symbol) || at >= table.names.end {
                return true;
            }
            let end = (at + NAME_BYTES_MAX).min(table.names.end);
            if at < piece_at || end > piece_at + piece.len() as u64 {
                reads += 1;
                piece.resize((table.names.end - at).min(PIECE_BYTES as u64) as usize, 0);
                piece_at = at;
                if reads > HINT_READS_MAX || self.file.read_exact_at(&mut piece, at).is_err() {
                    return false;
                }
            }
            let there = &piece[(at - piece_at) as usize..(end - piece_at) as usize];
            let end = there.iter().position(|byte| matches!(byte, 0 | b'@'));
            let name = end.and_then(|end| std::str::from_utf8(&there[..end]).ok());
            bytes += name.map_or(0, str::len);
            names.extend(name.map(str::to_owned));
            if names.len() >= NAMES_AT_A_TIME {
                take(&names);
                names.clear();
            }
            bytes < HINT_BYTES_MAX
        })?;
        take(&names);
        Ok(())
    }
}

fn code_segments(headers: &[u8], each: usize, layout: Layout) -> Vec<CodeSegment> {
    let all = headers.chunks_exact(each.max(1)).map(|bytes| Entry(bytes, layout));
    let is_code = |header: &Entry<'_>| header.u32(0) == PT_LOAD && header.u32(layout.of(24, 4)) & PF_X != 0;
    let segment = |header: Entry<'_>| CodeSegment {
        address: header.word(8, 16),
        bytes: header.word(16, 32),
        file_offset: header.word(4, 8),
    };
    let mut code: Vec<CodeSegment> = all.filter(is_code).map(segment).collect();
    code.sort_by_key(|segment| segment.address);
    code
}

/// The first table of each kind.
fn tables(headers: &[u8], each: usize, layout: Layout, file_bytes: u64) -> Result<Vec<Table>, String> {
    let sections: Vec<Entry<'_>> =
        headers.chunks_exact(each.max(1)).map(|bytes| Entry(bytes, layout)).collect();
    let kind = |section: &Entry<'_>| section.u32(4);
    let place = |section: &Entry<'_>, what: &str| {
        let (begin, bytes) = (section.word(16, 24), section.word(20, 32));
        let end = begin.checked_add(bytes).filter(|end| *end <= file_bytes);
        end.map(|end| begin..end).ok_or_else(|| format!("{what} that are said to go beyond its end"))
    };
    let mut tables = Vec::new();
    for wanted in [SHT_SYMTAB, SHT_DYNSYM] {
        let Some(section) = sections.iter().find(|section| kind(section) == wanted) else { continue };
        let symbols = place(section, "symbols")?;
        let count = (symbols.end - symbols.start) / layout.symbol_bytes() as u64;
        if count == 0 {
            continue;
        }
        if count > SYMBOLS_MAX {
            return Err(format!("{count} symbols, of which at most {SYMBOLS_MAX} are read"));
        }
        let names = sections.get(section.u32(layout.of(24, 40)) as usize);
        let names = names.filter(|names| kind(names) == SHT_STRTAB).ok_or("symbols without names")?;
        let names = place(names, "names")?;
        let bytes = names.end - names.start;
        if bytes > NAMES_BYTES_MAX {
            return Err(format!("{bytes} bytes of names, of which at most {NAMES_BYTES_MAX} are read"));
        }
        tables.push(Table { symbols, names });
    }
    Ok(tables)
}

/// A part of a file that is read from its begin to its end, through one buffer.
struct Pieces<'f> {
    file: &'f File,
    range: Range<u64>,
    buffer: Vec<u8>,
    filled: usize,
    /// Of the first byte behind what is in the buffer.
    next: u64,
}

/// What is in the buffer.
struct Piece<'b> {
    bytes: &'b [u8],
    /// Bytes at its begin that were in the one before.
    carried: usize,
    /// Where it begins, from the part's begin.
    begin: u64,
}

impl<'f> Pieces<'f> {
    fn new(file: &'f File, range: Range<u64>, bytes: usize) -> Pieces<'f> {
        let bytes = (range.end - range.start).min(bytes as u64) as usize;
        Pieces { file, next: range.start, range, buffer: vec![0; bytes], filled: 0 }
    }

    /// The next one, which begins with the last bytes of the one before, `carry` of them.
    fn next(&mut self, carry: usize) -> io::Result<Option<Piece<'_>>> {
        let left = self.range.end - self.next;
        if left == 0 {
            return Ok(None);
        }
        let carried = carry.min(self.filled);
        self.buffer.copy_within(self.filled - carried..self.filled, 0);
        let new = left.min((self.buffer.len() - carried) as u64) as usize;
        let begin = self.next - self.range.start - carried as u64;
        self.file.read_exact_at(&mut self.buffer[carried..carried + new], self.next)?;
        self.next += new as u64;
        self.filled = carried + new;
        Ok(Some(Piece { bytes: &self.buffer[..self.filled], carried, begin }))
    }
}
