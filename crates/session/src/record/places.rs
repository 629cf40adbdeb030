// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places in programs that are events of a recording: `[FILE:]FUNCTION[+OFFSET]`, found in the file, recorded by uprobes.
//!
//! Trace units have address comparators, which cost a program less; where one can be used (`super::by_unit`), it is. Elsewhere places are uprobes, which
//! is said, with the reason.

use crate::{Failure, Observer};
use rtscope_event::counted;
use rtscope_hardware::place::{self, Place, PlaceError, Wanted};
use rtscope_kernel::tracefs::UprobePlace;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Before the name of a place, in the name of its event.
pub(crate) const PREFIX: &str = "probe:";
/// The unit whose address comparators a capture sets.
pub(crate) const COMPARED_UNIT: &str = "intel_pt";
/// Places from which on it is said how long the kernel takes to remove them: 55 ms each on Linux 6.18, as it waits for a grace period after each event
/// that it switches off (`uprobe_unregister_sync()`), in one write and with a lock that lets nobody do two at a time.
const MANY: usize = 20;

/// A place as people write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceWords {
    /// As it was written.
    text: String,
    /// The program or library; `None`: COMMAND's program.
    file: Option<PathBuf>,
    wanted: Wanted,
}

impl FromStr for PlaceWords {
    type Err = String;

    fn from_str(text: &str) -> Result<PlaceWords, String> {
        // A path may have colons; names of symbols have none.
        let (file, function) = match text.rsplit_once(':') {
            Some((file, function)) => (Some(PathBuf::from(file)), function),
            None => (None, text),
        };
        let (name, offset) = match function.rsplit_once('+') {
            Some((name, offset)) => {
                let wrong = || format!("'{offset}' is not a number of bytes; write 16 or 0x10");
                (name, number(offset).ok_or_else(wrong)?)
            }
            None => (function, 0),
        };
        if name.is_empty()
            || name.contains('+')
            || file.as_ref().is_some_and(|file| file.as_os_str().is_empty())
        {
            return Err(
                "write [FILE:]FUNCTION[+OFFSET], as 'work+0x10' or '/usr/lib/libx.so:work'".to_owned()
            );
        }
        let wanted = match number(name).filter(|_| name.starts_with("0x")) {
            Some(address) => Wanted::Address(address.checked_add(offset).ok_or("the address is too large")?),
            None => Wanted::Function { name: name.to_owned(), offset },
        };
        Ok(PlaceWords { text: text.to_owned(), file, wanted })
    }
}

/// In decimal, or in hexadecimal with `0x`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
    // Neither takes a sign that means something here.
    .filter(|_| !text.contains('+'))
}

impl PlaceWords {
    /// As the place is called: `work+0x10`.
    fn name(&self) -> String {
        match &self.wanted {
            Wanted::Function { name, offset: 0 } => name.clone(),
            Wanted::Function { name, offset } => format!("{name}+{offset:#x}"),
            Wanted::Address(address) => format!("{address:#x}"),
        }
    }
}

/// A place that was found.
#[derive(Clone, Debug)]
pub struct RecordedPlace {
    /// The event's name in the trace.
    pub event: String,
    /// For the kernel.
    pub uprobe: UprobePlace,
    /// The file, as it was named.
    pub path: PathBuf,
}

/// A file, and what was found of a place in it.
type Looked = (Arc<File>, Result<Place, PlaceError>);

/// Finds places in their files. `program`: COMMAND's first word. The same place is recorded once, which is said.
pub(crate) fn find(
    words: &[PlaceWords],
    program: Option<&OsString>,
    observer: &dyn Observer,
) -> Result<Vec<RecordedPlace>, Failure> {
    let wrong = |words: &PlaceWords, why: String| Failure::Usage(format!("--at '{}': {why}", words.text));
    // Each file is read once, for all of its places.
    let mut files: HashMap<PathBuf, (Arc<File>, Vec<usize>)> = HashMap::new();
    let mut paths = Vec::with_capacity(words.len());
    for (number, words) in words.iter().enumerate() {
        let path = match (&words.file, program) {
            (Some(file), _) => file.clone(),
            (None, Some(program)) => in_path(program).map_err(|why| wrong(words, why))?,
            (None, None) => {
                let why = "in which program? Write FILE:FUNCTION, or a COMMAND at the end";
                return Err(wrong(words, why.to_owned()));
            }
        };
        if let Some((_, numbers)) = files.get_mut(&path) {
            numbers.push(number);
        } else {
            let file = open(&path).map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    Failure::Missing(format!("--at '{}': reading {}: {error}", words.text, path.display()))
                }
                _ => wrong(words, format!("reading {}: {error}", path.display())),
            })?;
            files.insert(path.clone(), (Arc::new(file), vec![number]));
        }
        paths.push(path);
    }
    let mut places: Vec<Option<Looked>> = vec![None; words.len()];
    for (file, numbers) in files.values() {
        let wanted: Vec<Wanted> = numbers.iter().map(|number| words[*number].wanted.clone()).collect();
        for (number, place) in numbers.iter().zip(place::find_all(file, &wanted)) {
            places[*number] = Some((Arc::clone(file), place));
        }
    }
    let mut seen = HashSet::new();
    let mut found: Vec<RecordedPlace> = Vec::new();
    for ((words, path), (file, place)) in words.iter().zip(paths).zip(places.into_iter().flatten()) {
        let place = place
            .map_err(|error| wrong(words, format!("{} {error}{}", path.display(), script_hint(&file))))?;
        let status = file.metadata().map_err(|error| Failure::system(path.display(), &error))?;
        if !seen.insert((status.dev(), status.ino(), place.file_offset)) {
            observer.note(&format!(
                "--at '{}': this place was asked for already, and is recorded once",
                words.text
            ));
            continue;
        }
        if !place.begins_instruction {
            observer.note(&format!(
                "--at '{}': it cannot be told whether an instruction begins at {:#x}; a uprobe inside one breaks the program",
                words.text, place.address
            ));
        }
        let uprobe = UprobePlace { file, file_offset: place.file_offset, name: words.name() };
        found.push(RecordedPlace { event: format!("{PREFIX}{}", words.name()), uprobe, path });
    }
    Ok(named_apart(found))
}

/// Places of different files with the same name have the file in theirs.
fn named_apart(mut found: Vec<RecordedPlace>) -> Vec<RecordedPlace> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    found.iter().for_each(|place| *counts.entry(place.event.clone()).or_default() += 1);
    for place in &mut found {
        if counts.get(&place.event).is_some_and(|count| *count > 1) {
            place.event = format!("{}@{}", place.event, place.path.display());
        }
        // It becomes a line of a description.
        place.event = place.event.replace(char::is_control, "?");
    }
    found
}

/// As execvp(3) finds it.
fn in_path(program: &OsStr) -> Result<PathBuf, String> {
    if program.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let is_program =
        |file: &PathBuf| nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).is_ok() && file.is_file();
    let found = std::env::split_paths(&path).map(|directory| directory.join(program)).find(is_program);
    found.ok_or_else(|| format!("there is no program {} (PATH)", program.to_string_lossy()))
}

/// A file whose opening has no effect.
fn open(path: &Path) -> io::Result<File> {
    let is_regular = |status: fs::Metadata| match status.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is not a regular file")),
    };
    is_regular(fs::metadata(path)?)?;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    is_regular(file.metadata()?)?;
    Ok(file)
}

/// What to do about a COMMAND that is a script.
fn script_hint(file: &File) -> &'static str {
    use std::os::unix::fs::FileExt;
    let mut begin = [0; 2];
    match file.read_exact_at(&mut begin, 0) {
        Ok(()) if &begin == b"#!" => {
            "; it is a script: name the program that has the function, FILE:FUNCTION"
        }
        _ => "",
    }
}

/// What is said once: that these are uprobes, why, and what they cost.
pub(super) fn note(places: usize, why: &str) -> String {
    let end = match places {
        0..MANY => String::new(),
        _ => format!("; at the end the kernel takes them away one by one, some {} s", (places + 9) / 18),
    };
    format!(
        "{why}; {} by uprobes, of all processes that run the file: each pass costs the thread 1 to 20 µs (docs/how-to/recording.md){end}",
        counted(places as u64, "place is recorded", "places are recorded")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_files_functions_and_offsets() {
        let words = |text: &str| text.parse::<PlaceWords>();
        let parts = |text: &str| words(text).map(|words| (words.file.clone(), words.name()));
        let file = |path: &str| Some(PathBuf::from(path));
        assert_eq!(parts("work"), Ok((None, "work".to_owned())));
        assert_eq!(parts("work+16"), Ok((None, "work+0x10".to_owned())));
        assert_eq!(parts("/a b:c/d:work+0x10"), Ok((file("/a b:c/d"), "work+0x10".to_owned())));
        assert_eq!(parts("./x:0x1200+0x34"), Ok((file("./x"), "0x1234".to_owned())));
        for wrong in ["", ":f", "f:", "f+", "f+x", "f+-1", "f+0x+1", "+3", "a:+3", "0xffffffffffffffff+1"] {
            assert!(words(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn places_of_the_same_name_have_their_files_in_it() {
        let file = Arc::new(File::open("/proc/self/exe").expect("it is there"));
        let place = |path: &str, name: &str| {
            let uprobe = UprobePlace { file: Arc::clone(&file), file_offset: 0, name: name.to_owned() };
            RecordedPlace { event: format!("{PREFIX}{name}"), uprobe, path: PathBuf::from(path) }
        };
        let named = named_apart(vec![place("/a\nb", "f"), place("/c", "f"), place("/c", "g")]);
        let names: Vec<String> = named.into_iter().map(|place| place.event).collect();
        assert_eq!(names, ["probe:f@/a?b", "probe:f@/c", "probe:g"]);
    }
}
