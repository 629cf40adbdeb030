// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where in a file the code of a function is, for what stops or filters there: `function+0x10`.
//!
//! A breakpoint inside an instruction changes what the program does, so a place is one only where an instruction begins. On x86 that is found
//! out by decoding the function from its first byte on.

use iced_x86::{Decoder, DecoderOptions, Instruction};
use object::elf::{PF_X, SHN_UNDEF, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use object::read::{ReadCache, ReadRef};
use object::{
    Architecture, File as Elf, Object, ObjectKind, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolFlags,
};
use rtscope_event::nearest;
use std::collections::BTreeSet;
use std::fs::File;

/// Symbols of one file.
const SYMBOLS_MAX: usize = 4 << 20;
/// Bytes of a function that are decoded, from its begin to the place.
const DECODED_BYTES_MAX: u64 = 16 << 20;

/// What is looked for in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A function, by the name of its symbol, and bytes from its begin.
    Function {
        /// Its name.
        name: String,
        /// Bytes.
        offset: u64,
    },
    /// An address, as the file counts it (nm(1), objdump(1)).
    Address(u64),
}

/// A place in a file's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// As the file counts it.
    pub address: u64,
    /// In the file.
    pub file_offset: u64,
    /// An instruction begins there; `false`: that could not be found out.
    pub begins_instruction: bool,
}

/// Why there is no such place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// It is no program and no library.
    #[error("is not an ELF program or library ({0})")]
    NotElf(String),
    /// It is for another processor.
    #[error("is for another processor ({0})")]
    OtherProcessor(String),
    /// A function is asked for, and it has none with a name.
    #[error(
        "has no names of functions (it is stripped); write an address as objdump -d shows it instead: FILE:0x1234"
    )]
    Stripped,
    /// No such function.
    #[error("has no function {name}{}", nearest.as_ref().map(|near| format!("; the nearest name is {near}")).unwrap_or_default())]
    NoFunction {
        /// What was asked for.
        name: String,
        /// One like it.
        nearest: Option<String>,
    },
    /// It is in another file.
    #[error(
        "uses {0} and does not have it: it is in a library; write that before it (ldd lists them): LIBRARY:{0}"
    )]
    Imported(String),
    /// What it is called is decided when the program starts.
    #[error(
        "has {0} in several variants, of which one is chosen when a program starts (an ifunc); name that variant (nm lists them), or its address: FILE:0x1234"
    )]
    Chosen(String),
    /// The name is that of several.
    #[error("has {name} at several addresses: {}; write one of them in its place: FILE:{}",
        addresses.iter().map(|at| format!("{at:#x}")).collect::<Vec<_>>().join(", "),
        addresses.first().map(|at| format!("{at:#x}")).unwrap_or_default())]
    Several {
        /// The name.
        name: String,
        /// In order.
        addresses: Vec<u64>,
    },
    /// It is behind the function's end.
    #[error("{name} has {size} bytes, and {offset:#x} is not in it")]
    Beyond {
        /// The function.
        name: String,
        /// Of it.
        size: u64,
        /// From its begin.
        offset: u64,
    },
    /// There is no code.
    #[error("has no code at {0:#x}")]
    NoCode(u64),
    /// An instruction is there, and does not begin there.
    #[error("has no instruction that begins at {address:#x}: one begins at {before:#x} and the next at {after:#x}; from the function's begin these are +{:#x} and +{:#x}", before - function, after - function)]
    InsideInstruction {
        /// The place.
        address: u64,
        /// The function's.
        function: u64,
        /// Of the instruction that it is in.
        before: u64,
        /// Of the next one.
        after: u64,
    },
}

/// A symbol of code.
struct Function<'n> {
    name: &'n str,
    address: u64,
    size: u64,
    kind: u8,
    is_defined: bool,
}

/// Finds a place in a file. Nothing in it is believed: whatever is wrong gives an error.
///
/// # Errors
/// See [`PlaceError`].
pub fn find(file: &File, wanted: &Wanted) -> Result<Place, PlaceError> {
    let cache = ReadCache::new(file);
    let elf = Elf::parse(&cache).map_err(|error| PlaceError::NotElf(error.to_string()))?;
    if !matches!(elf.kind(), ObjectKind::Executable | ObjectKind::Dynamic) {
        return Err(PlaceError::NotElf("it has not been linked".to_owned()));
    }
    if !runs_here(elf.architecture()) {
        return Err(PlaceError::OtherProcessor(format!("{:?}", elf.architecture())));
    }
    let functions = functions(&elf);
    let (begin, address) = match wanted {
        Wanted::Address(address) => (containing(&functions, *address), *address),
        Wanted::Function { name, offset } => {
            let (begin, size) = named(&functions, name)?;
            if *offset > 0 && size > 0 && *offset >= size {
                return Err(PlaceError::Beyond { name: name.clone(), size, offset: *offset });
            }
            let address = begin.checked_add(*offset).ok_or(PlaceError::NoCode(begin))?;
            (Some(begin), address)
        }
    };
    let file_offset = file_offset(&elf, address).ok_or(PlaceError::NoCode(address))?;
    let begins_instruction = match begin {
        Some(begin) => begins_instruction(&elf, begin, address)?,
        None => false,
    };
    Ok(Place { address, file_offset, begins_instruction })
}

/// Whether this machine can run code for that processor.
fn runs_here(of: Architecture) -> bool {
    match std::env::consts::ARCH {
        "x86_64" => matches!(of, Architecture::X86_64 | Architecture::X86_64_X32 | Architecture::I386),
        "aarch64" => matches!(of, Architecture::Aarch64 | Architecture::Arm),
        // The kernel says it then.
        _ => true,
    }
}

fn functions<'f, R: ReadRef<'f>>(elf: &Elf<'f, R>) -> Vec<Function<'f>> {
    let all = elf.symbols().chain(elf.dynamic_symbols()).take(SYMBOLS_MAX);
    let function = |symbol: object::Symbol<'f, '_, R>| {
        let SymbolFlags::Elf { st_info, .. } = symbol.flags() else { return None };
        let kind = st_info & 0xf;
        let is_defined = symbol.section_index().is_some_and(|section| section.0 != usize::from(SHN_UNDEF));
        let is_code = matches!(kind, STT_FUNC | STT_GNU_IFUNC)
            || kind == STT_NOTYPE && (!is_defined || file_offset(elf, symbol.address()).is_some());
        let name = symbol.name().ok().filter(|name| is_code && !name.is_empty())?;
        // Its version is not its name: `pthread_create@@GLIBC_2.34`.
        let name = name.split_once('@').map_or(name, |(name, _)| name);
        Some(Function { name, address: symbol.address(), size: symbol.size(), kind, is_defined })
    };
    all.filter_map(function).collect()
}

/// Where it begins, and its bytes; 0 where the file does not say.
fn named(functions: &[Function<'_>], name: &str) -> Result<(u64, u64), PlaceError> {
    let those: Vec<&Function<'_>> = functions.iter().filter(|function| function.name == name).collect();
    let defined = || those.iter().filter(|function| function.is_defined);
    let addresses: BTreeSet<u64> = defined().map(|function| function.address).collect();
    if addresses.len() > 1 {
        return Err(PlaceError::Several {
            name: name.to_owned(),
            addresses: addresses.into_iter().collect(),
        });
    }
    if defined().any(|function| function.kind == STT_GNU_IFUNC) {
        return Err(PlaceError::Chosen(name.to_owned()));
    }
    let size = defined().map(|function| function.size).max().unwrap_or(0);
    match addresses.first() {
        Some(address) => Ok((*address, size)),
        None if !those.is_empty() => Err(PlaceError::Imported(name.to_owned())),
        None if !functions.iter().any(|function| function.is_defined) => Err(PlaceError::Stripped),
        None => {
            let known = functions.iter().filter(|function| function.is_defined).map(|function| function.name);
            Err(PlaceError::NoFunction {
                name: name.to_owned(),
                nearest: nearest(name, known).map(str::to_owned),
            })
        }
    }
}

/// The begin of the function that has this address.
fn containing(functions: &[Function<'_>], address: u64) -> Option<u64> {
    let has = |function: &&Function<'_>| {
        let inside = address.checked_sub(function.address);
        function.is_defined && inside.is_some_and(|inside| inside < function.size.max(1))
    };
    functions.iter().filter(has).map(|function| function.address).max()
}

/// Where the code of an address is in the file.
fn file_offset<'f, R: ReadRef<'f>>(elf: &Elf<'f, R>, address: u64) -> Option<u64> {
    elf.segments().find_map(|segment| {
        let SegmentFlags::Elf { p_flags } = segment.flags() else { return None };
        let (offset, bytes) = segment.file_range();
        let inside = address.checked_sub(segment.address())?;
        (p_flags & PF_X != 0 && inside < bytes).then(|| offset.checked_add(inside))?
    })
}

/// Decodes from the function's begin on; `Ok(false)`: it cannot be told.
fn begins_instruction<'f, R: ReadRef<'f>>(
    elf: &Elf<'f, R>,
    begin: u64,
    address: u64,
) -> Result<bool, PlaceError> {
    let inside =
        |before, after| Err(PlaceError::InsideInstruction { address, function: begin, before, after });
    let bits = match elf.architecture() {
        Architecture::X86_64 | Architecture::X86_64_X32 => 64,
        Architecture::I386 => 32,
        Architecture::Aarch64 if address % 4 == 0 => return Ok(true),
        Architecture::Aarch64 => return inside(address & !3, (address & !3).saturating_add(4)),
        // Of Thumb code, two or four bytes.
        _ => return Ok(address == begin),
    };
    if address == begin {
        return Ok(true);
    }
    if address - begin > DECODED_BYTES_MAX {
        return Ok(false);
    }
    // With the instruction that the place is in.
    let wanted = address - begin + 16;
    let code = elf.segments().find_map(|segment| {
        let left = segment.file_range().1.checked_sub(begin.checked_sub(segment.address())?)?;
        segment.data_range(begin, wanted.min(left)).ok().flatten()
    });
    let Some(code) = code else { return Ok(false) };
    let mut decoder = Decoder::with_ip(bits, code, begin, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() && decoder.ip() < address {
        decoder.decode_out(&mut instruction);
        // Data between instructions: what follows is a guess.
        if instruction.is_invalid() {
            return Ok(false);
        }
    }
    match decoder.ip() {
        at if at == address => Ok(true),
        after if after > address => inside(instruction.ip(), after),
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_testkit::skip;
    use std::path::Path;
    use std::process::Command;

    const CODE: &str = "
#include <string.h>
__attribute__((noinline)) static int twin(int a) { __asm__ volatile(\"\"); return a + 1; }
__attribute__((noinline)) int hit(int a) { __asm__ volatile(\"\"); return a * 3 + twin(a); }
static int one(void) { return 1; }
static int (*choose(void))(void) { return one; }
int chosen(void) __attribute__((ifunc(\"choose\")));
int other(int);
int main(int c, char **v) { return hit(c) + (int)strlen(v[0]) + chosen() + other(c); }
";
    const OTHER: &str = "
__attribute__((noinline)) static int twin(int a) { __asm__ volatile(\"\"); return a + 2; }
int other(int a) { return twin(a); }
";

    fn build(directory: &Path) -> Option<std::path::PathBuf> {
        if skip::without_tool("cc") {
            return None;
        }
        let path = |name: &str| directory.join(name);
        std::fs::write(path("a.c"), CODE).expect("a temporary directory");
        std::fs::write(path("b.c"), OTHER).expect("a temporary directory");
        let built =
            Command::new("cc").args(["-O1", "-o"]).args([path("a"), path("a.c"), path("b.c")]).status();
        assert!(built.expect("it starts").success());
        Some(path("a"))
    }

    fn look(path: &Path, name: &str, offset: u64) -> Result<Place, PlaceError> {
        find(&File::open(path).expect("it is there"), &Wanted::Function { name: name.to_owned(), offset })
    }

    /// What objdump has of a function: the addresses of its instructions.
    fn instructions(path: &Path, function: &str) -> Vec<u64> {
        let output =
            Command::new("objdump").args(["-d", &format!("--disassemble={function}")]).arg(path).output();
        let text = String::from_utf8(output.expect("binutils are there").stdout).expect("text");
        let address = |line: &str| u64::from_str_radix(line.trim().split_once(":\t")?.0, 16).ok();
        text.lines().filter_map(address).collect()
    }

    #[test]
    fn places_are_where_objdump_has_instructions_and_nowhere_else() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let Some(path) = build(directory.path()) else { return };
        if skip::without_tool("objdump") {
            return;
        }
        let there = instructions(&path, "hit");
        let (first, last) = (there[0], *there.last().expect("it has instructions"));
        assert!(there.len() > 3, "{there:x?}");
        for offset in 0..=last - first {
            match look(&path, "hit", offset) {
                Ok(place) => {
                    assert!(place.begins_instruction && there.contains(&(first + offset)), "{offset}");
                    assert_eq!(place.address, first + offset);
                }
                Err(PlaceError::InsideInstruction { before, after, .. }) => {
                    assert!(there.contains(&before) && (there.contains(&after) || after > last));
                    assert!(!there.contains(&(first + offset)), "{offset}");
                }
                Err(other) => panic!("{other}"),
            }
        }
        let by_address = find(&File::open(&path).expect("it is there"), &Wanted::Address(there[1]));
        assert_eq!(by_address, look(&path, "hit", there[1] - first));
    }

    #[test]
    fn what_is_no_place_is_refused_with_the_reason() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let Some(path) = build(directory.path()) else { return };
        let refused = |name: &str, offset| look(&path, name, offset).expect_err(name).to_string();
        assert!(refused("hti", 0).contains("the nearest name is hit"), "{}", refused("hti", 0));
        assert!(refused("twin", 0).contains("at several addresses: 0x"), "{}", refused("twin", 0));
        assert!(refused("chosen", 0).contains("ifunc"), "{}", refused("chosen", 0));
        assert!(refused("strlen", 0).contains("LIBRARY:strlen"), "{}", refused("strlen", 0));
        assert!(refused("hit", 4000).contains("0xfa0 is not in it"), "{}", refused("hit", 4000));
        let text = directory.path().join("a.c");
        assert!(matches!(look(&text, "hit", 0), Err(PlaceError::NotElf(_))));
        let at = look(&path, "hit", 0).expect("it is there");
        assert!(Command::new("strip").arg(&path).status().expect("binutils are there").success());
        assert_eq!(look(&path, "hit", 0), Err(PlaceError::Stripped));
        let stripped = find(&File::open(&path).expect("it is there"), &Wanted::Address(at.address));
        assert_eq!(stripped, Ok(Place { begins_instruction: false, ..at }));
        let nowhere = find(&File::open(&path).expect("it is there"), &Wanted::Address(0x7fff_0000));
        assert_eq!(nowhere, Err(PlaceError::NoCode(0x7fff_0000)));
    }

    /// Whatever a file has in place of numbers.
    #[test]
    fn changed_files_never_panic() {
        let bytes = std::fs::read("/proc/self/exe").expect("it is there");
        let head = &bytes[..bytes.len().min(1 << 16)];
        let wanted = [Wanted::Address(0x1000), Wanted::Function { name: "main".to_owned(), offset: 3 }];
        for at in 0..512 {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = head.to_vec();
                changed[at] = value;
                let mut file = tempfile::tempfile().expect("a temporary directory");
                std::io::Write::write_all(&mut file, &changed).expect("it is written");
                for wanted in &wanted {
                    let _ = find(&file, wanted);
                }
            }
        }
    }
}
