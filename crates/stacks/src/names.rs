// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of places in a file: by its debug information, with the functions that were inlined; else by its symbols.

use crate::module::{ReadSeek, hex, open_regular};
use addr2line::{Context, demangle_auto};
use gimli::{Dwarf, EndianArcSlice, NativeEndian, SectionId};
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use rtscope_event::Function;
use rtscope_procs::is_trusted;
use std::borrow::Cow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Bytes = EndianArcSlice<NativeEndian>;
/// A file, read in pieces.
type Reader = ReadCache<Box<dyn ReadSeek>>;

/// The debug information of one file that is read at most, decompressed; without it there are symbols.
const DEBUG_BYTES_MAX: u64 = 1 << 30;
/// Symbols of one file.
const SYMBOLS_MAX: usize = 4 << 20;
/// Functions in one place: inlined in each other.
const INLINED_MAX: usize = 64;
/// Bytes of a name; those of C++ templates may be longer.
const NAME_BYTES_MAX: usize = 1024;
/// Bytes of all names of one file.
const NAMES_BYTES_MAX: usize = 64 << 20;

/// What a file calls its places.
pub struct Names {
    debug: Option<Context<Bytes>>,
    symbols: Symbols,
    is_trusted: bool,
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Names").field("debug", &self.debug.is_some()).finish_non_exhaustive()
    }
}

/// Functions by address.
#[derive(Debug, Default)]
struct Symbols {
    /// Address, size, and which part of `names`.
    places: Vec<(u64, u64, u32, u32)>,
    names: String,
}

impl Names {
    /// Of a file; with its debug information, where it has any or there is a file with that build id under `/usr/lib/debug`, here or below `root` (`None`: that is not to be walked).
    /// `is_trusted`: the file is; of others there are symbols only, as they are.
    pub fn read(
        file: Option<Box<dyn ReadSeek>>,
        build_id: Option<&str>,
        root: Option<&Path>,
        is_trusted: bool,
    ) -> Names {
        let mut names = Names { debug: None, symbols: Symbols::default(), is_trusted };
        if let Some(file) = file {
            names.add(&ReadCache::new(file), root);
        }
        if names.debug.is_none() && is_trusted {
            if let Some(cache) = build_id.and_then(|build_id| separate_file(build_id, root)) {
                names.add(&cache, root);
            }
        }
        names
    }

    /// What is there already stays: a file with debug information has all symbols, another one perhaps only those it gives to others.
    fn add(&mut self, cache: &Reader, root: Option<&Path>) {
        let Ok(elf) = object::File::parse(cache) else { return };
        let symbols = Symbols::of(&elf);
        if symbols.places.len() > self.symbols.places.len() {
            self.symbols = symbols;
        }
        self.debug = if self.is_trusted { debug_of(&elf, root) } else { None };
    }

    /// The functions at an address, the innermost first. Empty: no name is known.
    pub fn find(&self, address: u64) -> Vec<Function> {
        let symbol = self.symbols.find(address).map(|name| match self.is_trusted {
            true => demangle_auto(Cow::Borrowed(name), None).into_owned(),
            false => name.to_owned(),
        });
        let mut functions = self.debug.as_ref().map_or(Vec::new(), |debug| by_debug(debug, address));
        // The outermost has a symbol; what debug information calls it is often without its class.
        match (functions.last_mut(), symbol) {
            (Some(last), Some(symbol)) if last.name.is_empty() => last.name = symbol,
            (None, Some(symbol)) => functions.push(Function { name: symbol, file: None, line: None }),
            _ => {}
        }
        functions.retain(|function| !function.name.is_empty());
        functions
    }
}

fn by_debug(debug: &Context<Bytes>, address: u64) -> Vec<Function> {
    let Ok(mut frames) = debug.find_frames(address).skip_all_loads() else { return Vec::new() };
    let mut functions = Vec::new();
    while let Ok(Some(frame)) = frames.next() {
        let name = frame.function.as_ref().and_then(|function| {
            Some(
                demangle_auto(Cow::Owned(function.raw_name().ok()?.into_owned()), function.language)
                    .into_owned(),
            )
        });
        let location = frame.location.as_ref();
        functions.push(Function {
            name: name.unwrap_or_default(),
            file: location.and_then(|location| location.file).map(str::to_owned),
            line: location.and_then(|location| location.line),
        });
        if functions.len() >= INLINED_MAX {
            break;
        }
    }
    functions
}

/// `/usr/lib/debug/.build-id/ab/cdef.debug`, with that build id.
fn separate_file(build_id: &str, root: Option<&Path>) -> Option<Reader> {
    let (first, rest) = build_id.split_at_checked(2)?;
    let path = PathBuf::from(format!("usr/lib/debug/.build-id/{first}/{rest}.debug"));
    [Some(Path::new("/")), root].into_iter().flatten().find_map(|root| {
        let file = open_regular(&root.join(&path)).ok()?;
        if !file.metadata().is_ok_and(|status| is_trusted(status.uid())) {
            return None;
        }
        let cache = ReadCache::new(Box::new(file) as Box<dyn ReadSeek>);
        let found = object::File::parse(&cache).ok()?.build_id().ok().flatten().map(hex);
        (found.as_deref() == Some(build_id)).then_some(cache)
    })
}

fn debug_of<'a>(elf: &object::File<'a, &'a Reader>, root: Option<&Path>) -> Option<Context<Bytes>> {
    elf.section_by_name(".debug_info").filter(|section| section.size() > 0)?;
    let mut dwarf = dwarf_of(elf)?;
    // What several files have in common (dwz).
    if let Some((_, build_id)) = elf.gnu_debugaltlink().ok().flatten() {
        let cache = separate_file(&hex(build_id), root);
        let common = cache.as_ref().and_then(|cache| dwarf_of(&object::File::parse(cache).ok()?));
        common.into_iter().for_each(|common| dwarf.set_sup(common));
    }
    Context::from_dwarf(dwarf).ok()
}

fn dwarf_of<'a>(elf: &object::File<'a, &'a Reader>) -> Option<Dwarf<Bytes>> {
    let mut left = DEBUG_BYTES_MAX;
    let section = |id: SectionId| -> Result<Bytes, ()> {
        let data = match elf.section_by_name(id.name()) {
            Some(section) => decompressed(&section, &mut left)?,
            None => Vec::new(),
        };
        Ok(EndianArcSlice::new(Arc::from(data), NativeEndian))
    };
    Dwarf::load(section).ok()
}

/// A section may say that it becomes very large: it is asked first.
fn decompressed<'a>(section: &impl ObjectSection<'a>, left: &mut u64) -> Result<Vec<u8>, ()> {
    let data = section.compressed_data().map_err(drop)?;
    *left = left.checked_sub(data.uncompressed_size).ok_or(())?;
    data.decompress().map(Cow::into_owned).map_err(drop)
}

impl Symbols {
    fn of<'a>(elf: &impl Object<'a>) -> Symbols {
        let mut symbols = Symbols::default();
        let all = elf.symbols().chain(elf.dynamic_symbols()).take(SYMBOLS_MAX);
        for symbol in all.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.address() != 0) {
            let Ok(name) = symbol.name() else { continue };
            let name = name.get(..NAME_BYTES_MAX).unwrap_or(name);
            if symbols.names.len() + name.len() > NAMES_BYTES_MAX {
                break;
            }
            let (Ok(at), Ok(length)) = (u32::try_from(symbols.names.len()), u32::try_from(name.len())) else {
                break;
            };
            symbols.names.push_str(name);
            symbols.places.push((symbol.address(), symbol.size(), at, length));
        }
        // Of several at one address, the one that was there first: the longer table's.
        symbols.places.sort_by_key(|(address, ..)| *address);
        symbols.places.dedup_by_key(|(address, ..)| *address);
        symbols
    }

    /// The function that has this address. One without a size, as in assembly, goes on until the next.
    fn find(&self, address: u64) -> Option<&str> {
        let behind = self.places.partition_point(|(at, ..)| *at <= address);
        let (start, size, at, length) = *self.places.get(behind.checked_sub(1)?)?;
        if size > 0 && address - start >= size {
            return None;
        }
        let name = self.names.get(at as usize..(at + length) as usize)?;
        // The version of a symbol is not its name: `pthread_create@@GLIBC_2.34`.
        Some(name.split_once('@').map_or(name, |(name, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn of_a_file_of_anothers_there_are_symbols_and_nothing_that_nests() {
        let own = |is_trusted| {
            let file = File::open(std::env::current_exe().unwrap()).unwrap();
            Names::read(Some(Box::new(file)), None, None, is_trusted)
        };
        let (trusted, not) = (own(true), own(false));
        let (address, ..) = *trusted.symbols.places.iter().find(|(_, size, ..)| *size > 0).unwrap();
        assert!(trusted.debug.is_some() && not.debug.is_none());
        assert_eq!(trusted.symbols.find(address), not.symbols.find(address));
        assert!(not.find(address).iter().all(|function| function.file.is_none()));
    }
}
