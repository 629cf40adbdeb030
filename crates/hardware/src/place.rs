// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where in a file the code of a function is, for what stops or filters there: `function+0x10`.
//!
//! A breakpoint inside an instruction changes what the program does, so a place is one only where an instruction begins. On x86 that is found
//! out by decoding the function from its first byte on.

use crate::elf::{Headers, Symbol};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use object::elf::{EM_386, EM_AARCH64, EM_ARM, EM_X86_64, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use rtscope_event::nearest;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes of a function that are decoded, from its begin to the place.
const DECODED_BYTES_MAX: u64 = 16 << 20;
/// Addresses of one name that are listed.
const LISTED_MAX: usize = 16;

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
    /// Its names are more than a program has, or not where the file says.
    #[error(
        "says of itself that it has {0}; its functions are not looked for: write an address as objdump -d shows it instead: FILE:0x1234"
    )]
    Unbelievable(String),
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
    #[error("has {name} at several addresses: {}{}; write one of them in its place: FILE:{}",
        addresses.iter().map(|at| format!("{at:#x}")).collect::<Vec<_>>().join(", "),
        if *has_more { " and more" } else { "" },
        addresses.first().map(|at| format!("{at:#x}")).unwrap_or_default())]
    Several {
        /// The name.
        name: String,
        /// In order.
        addresses: Vec<u64>,
        /// There are more of them.
        has_more: bool,
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

/// Finds one place in a file, as [`find_all`] does.
///
/// # Errors
/// See [`PlaceError`].
pub fn find(file: &File, wanted: &Wanted) -> Result<Place, PlaceError> {
    let found = find_all(file, std::slice::from_ref(wanted));
    found.into_iter().next().unwrap_or_else(|| Err(PlaceError::NotElf("nothing is wanted".to_owned())))
}

/// Finds places in a file, in their order, by reading it once. Nothing in it is believed: whatever is wrong gives an error. Only the first name that is
/// not there is given one like it.
#[must_use]
pub fn find_all(file: &File, wanted: &[Wanted]) -> Vec<Result<Place, PlaceError>> {
    let headers = match Headers::read(file).map_err(PlaceError::NotElf).and_then(usable) {
        Ok(headers) => headers,
        Err(error) => return wanted.iter().map(|_| Err(error.clone())).collect(),
    };
    let mut lookup = Lookup::new(&headers, wanted);
    let read = lookup.read();
    let mut hints = 1;
    let mut place = |wanted: &Wanted| {
        let (begin, address) = match wanted {
            Wanted::Address(address) => (lookup.containing(*address), *address),
            Wanted::Function { name, offset } => {
                read.clone().map_err(PlaceError::Unbelievable)?;
                let (begin, size) = lookup.named(name, &mut hints)?;
                if *offset > 0 && size > 0 && *offset >= size {
                    return Err(PlaceError::Beyond { name: name.clone(), size, offset: *offset });
                }
                (Some(begin), begin.checked_add(*offset).ok_or(PlaceError::NoCode(begin))?)
            }
        };
        let segment = headers.segment(address).ok_or(PlaceError::NoCode(address))?;
        let file_offset = segment.file_offset.checked_add(address - segment.address);
        let begins_instruction = match begin {
            Some(begin) => begins_instruction(file, &headers, begin, address)?,
            None => false,
        };
        let file_offset = file_offset.ok_or(PlaceError::NoCode(address))?;
        Ok(Place { address, file_offset, begins_instruction })
    };
    wanted.iter().map(&mut place).collect()
}

/// Whether it is a program or a library for this machine.
fn usable(headers: Headers<'_>) -> Result<Headers<'_>, PlaceError> {
    if !headers.is_linked {
        return Err(PlaceError::NotElf("it has not been linked".to_owned()));
    }
    let runs_here = match std::env::consts::ARCH {
        "x86_64" => matches!(headers.machine, EM_X86_64 | EM_386),
        "aarch64" => matches!(headers.machine, EM_AARCH64 | EM_ARM),
        // The kernel says it then.
        _ => true,
    };
    let name = || match headers.machine {
        EM_X86_64 => "x86-64".to_owned(),
        EM_386 => "32-bit x86".to_owned(),
        EM_AARCH64 => "AArch64".to_owned(),
        EM_ARM => "32-bit Arm".to_owned(),
        other => format!("number {other} of ELF"),
    };
    if runs_here { Ok(headers) } else { Err(PlaceError::OtherProcessor(name())) }
}

/// What the symbols say of what is wanted.
struct Lookup<'h> {
    headers: &'h Headers<'h>,
    names: Vec<&'h str>,
    /// For each of `names`.
    functions: Vec<Named>,
    /// In order, and for each the begin of a function that has it.
    addresses: Vec<(u64, Option<u64>)>,
    has_functions: bool,
}

/// A name, as all of its symbols say.
#[derive(Clone, Debug, Default)]
struct Named {
    /// Some of them.
    addresses: BTreeSet<u64>,
    size: u64,
    is_chosen: bool,
    is_used: bool,
}

impl<'h> Lookup<'h> {
    fn new(headers: &'h Headers<'h>, wanted: &'h [Wanted]) -> Lookup<'h> {
        let name = |wanted: &'h Wanted| match wanted {
            Wanted::Function { name, .. } => Some(name.as_str()),
            Wanted::Address(_) => None,
        };
        let address = |wanted: &Wanted| match wanted {
            Wanted::Address(address) => Some((*address, None)),
            Wanted::Function { .. } => None,
        };
        let names: BTreeSet<&str> = wanted.iter().filter_map(name).collect();
        let mut addresses: Vec<(u64, Option<u64>)> = wanted.iter().filter_map(address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let functions = vec![Named::default(); names.len()];
        Lookup { headers, names: names.into_iter().collect(), functions, addresses, has_functions: false }
    }

    /// Reads all symbols.
    fn read(&mut self) -> Result<(), String> {
        let headers = self.headers;
        for table in headers.tables.as_ref().map_err(Clone::clone)? {
            let places = headers.places_of(table, &self.names)?;
            headers.symbols(table, |symbol| {
                if is_function(headers, &symbol) {
                    self.note(&symbol, places.get(&symbol.name).copied());
                }
                true
            })?;
        }
        Ok(())
    }

    fn note(&mut self, symbol: &Symbol, name: Option<usize>) {
        self.has_functions |= symbol.is_defined;
        if let Some(named) = name.and_then(|name| self.functions.get_mut(name)) {
            named.is_used = true;
            if symbol.is_defined {
                if named.addresses.len() <= LISTED_MAX {
                    named.addresses.insert(symbol.address);
                }
                named.size = named.size.max(symbol.size);
                named.is_chosen |= symbol.kind == STT_GNU_IFUNC;
            }
        }
        if symbol.is_defined && !self.addresses.is_empty() {
            let end = symbol.address.saturating_add(symbol.size.max(1));
            let first = self.addresses.partition_point(|(address, _)| *address < symbol.address);
            for (_, begin) in self.addresses[first..].iter_mut().take_while(|(address, _)| *address < end) {
                *begin = (*begin).max(Some(symbol.address));
            }
        }
    }

    /// The begin of the function that has this address.
    fn containing(&self, address: u64) -> Option<u64> {
        let at = self.addresses.binary_search_by_key(&address, |(address, _)| *address).ok()?;
        self.addresses[at].1
    }

    /// Where it begins, and its bytes; 0 where the file does not say. `hints`: how many names may still be compared with all others.
    fn named(&self, name: &str, hints: &mut u32) -> Result<(u64, u64), PlaceError> {
        let at = self.names.binary_search(&name).ok();
        let named = at.and_then(|at| self.functions.get(at)).cloned().unwrap_or_default();
        if named.addresses.len() > 1 {
            return Err(PlaceError::Several {
                name: name.to_owned(),
                has_more: named.addresses.len() > LISTED_MAX,
                addresses: named.addresses.into_iter().take(LISTED_MAX).collect(),
            });
        }
        match named.addresses.first() {
            Some(_) if named.is_chosen => Err(PlaceError::Chosen(name.to_owned())),
            Some(address) => Ok((*address, named.size)),
            None if named.is_used => Err(PlaceError::Imported(name.to_owned())),
            None if !self.has_functions => Err(PlaceError::Stripped),
            None => {
                let is_first = std::mem::take(hints) > 0;
                let nearest = if is_first { self.nearest(name) } else { None };
                Err(PlaceError::NoFunction { name: name.to_owned(), nearest })
            }
        }
    }

    /// A function whose name is like this one.
    fn nearest(&self, name: &str) -> Option<String> {
        let mut best: Option<String> = None;
        let is_meant = |symbol: &Symbol| symbol.is_defined && is_function(self.headers, symbol);
        for table in self.headers.tables.iter().flatten() {
            // Without it the answer is the same, and says less.
            let _ = self.headers.some_names(table, is_meant, |names| {
                let all = names.iter().map(String::as_str).chain(best.as_deref());
                best = nearest(name, all).map(str::to_owned);
            });
        }
        best
    }
}

fn is_function(headers: &Headers<'_>, symbol: &Symbol) -> bool {
    let is_code = match symbol.kind {
        STT_FUNC | STT_GNU_IFUNC => true,
        STT_NOTYPE => !symbol.is_defined || headers.segment(symbol.address).is_some(),
        _ => false,
    };
    is_code && symbol.name != 0
}

/// Decodes from the function's begin on; `Ok(false)`: it cannot be told.
fn begins_instruction(
    file: &File,
    headers: &Headers<'_>,
    begin: u64,
    address: u64,
) -> Result<bool, PlaceError> {
    let inside =
        |before, after| Err(PlaceError::InsideInstruction { address, function: begin, before, after });
    let bits = match headers.machine {
        EM_X86_64 => 64,
        EM_386 => 32,
        EM_AARCH64 if address % 4 == 0 => return Ok(true),
        EM_AARCH64 => return inside(address & !3, (address & !3).saturating_add(4)),
        // Of Thumb code, two or four bytes.
        _ => return Ok(address == begin),
    };
    if address == begin {
        return Ok(true);
    }
    if address - begin > DECODED_BYTES_MAX {
        return Ok(false);
    }
    let Some(segment) = headers.segment(begin) else { return Ok(false) };
    let from = begin - segment.address;
    // With the instruction that the place is in.
    let bytes = (address - begin + 16).min(segment.bytes - from);
    let mut code = vec![0; bytes as usize];
    let at = segment.file_offset.checked_add(from);
    if at.is_none_or(|at| file.read_exact_at(&mut code, at).is_err()) {
        return Ok(false);
    }
    let mut decoder = Decoder::with_ip(bits, &code, begin, DecoderOptions::NONE);
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
