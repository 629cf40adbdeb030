// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Address comparators of a trace unit: it traces only what executes certain places in programs, which are events then, and the program pays nothing
//! for them but what the unit writes.
//!
//! The kernel sets them (`PERF_EVENT_IOC_SET_FILTER`), and follows where a file is in the memory of each process. A place is a range of one byte: the
//! unit is switched on by the instruction that begins there, writes its address (TIP.PGE), and is switched off by the next one.

use super::unit::UnitPlan;
use crate::record::PlaceWords;
use crate::record::places::{self, RecordedPlace};
use crate::{Failure, Observer};
use rtscope_event::counted;
use rtscope_hardware::capture::CapturedPlace;
use rtscope_hardware::perfdata::AuxKind;
use rtscope_hardware::pmu::Pmu;
use std::ffi::{CString, OsString};
use std::fmt::Write;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Places for the comparators of a unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Comparators {
    places: Vec<CapturedPlace>,
    /// Open, so that the kernel gets the file that was looked into, whatever characters are in its name.
    files: Vec<Arc<File>>,
}

impl Comparators {
    /// Finds places. `program`: COMMAND's first word; `traces_a_process`: and not everything that runs.
    pub fn find(
        words: &[PlaceWords],
        program: Option<&OsString>,
        traces_a_process: bool,
        plan: &UnitPlan,
        observer: &dyn Observer,
    ) -> Result<Comparators, Failure> {
        if words.is_empty() {
            return Ok(Comparators::default());
        }
        check(traces_a_process, plan)?;
        let there = comparators_of(&plan.pmu);
        let places = places::find(words, program, observer)?;
        if places.len() > there {
            return Err(Failure::Usage(format!(
                "--at: {} asked for, and {} has {there}; rtscope record --at takes any number, by uprobes",
                counted(places.len() as u64, "place is", "places are"),
                plan.pmu.name
            )));
        }
        Comparators::of(places)
    }

    /// For places that were found, of which there are not too many.
    pub fn of(places: Vec<RecordedPlace>) -> Result<Comparators, Failure> {
        let mut found = Comparators::default();
        for place in places {
            // As the kernel names what is mapped.
            let file = fs::canonicalize(&place.path)
                .map_err(|error| Failure::system(format!("--at: {}", place.path.display()), &error))?;
            if file.to_str().is_none() {
                return Err(Failure::Usage(format!(
                    "--at: {}: a capture's description has paths in UTF-8 only; copy the file to another name",
                    file.display()
                )));
            }
            let name = place.event.strip_prefix(places::PREFIX).unwrap_or(&place.event).to_owned();
            found.places.push(CapturedPlace { name, file, file_offset: place.uprobe.file_offset });
            found.files.push(place.uprobe.file);
        }
        Ok(found)
    }

    /// What was found.
    pub fn places(&self) -> &[CapturedPlace] {
        &self.places
    }

    /// In the kernel's words; `None`: everything is traced.
    pub fn filter(&self) -> Option<CString> {
        let mut text = String::new();
        for (place, file) in self.places.iter().zip(&self.files) {
            let _ = writeln!(text, "filter {:#x}/0x1@/proc/self/fd/{}", place.file_offset, file.as_raw_fd());
        }
        CString::new(text.trim_end()).ok().filter(|text| !text.is_empty())
    }

    /// For those who read the recording, in perf's words; empty where these cannot name a file, since perf would refuse the recording.
    pub fn written(&self) -> String {
        let one =
            |place: &CapturedPlace| format!("filter {:#x}/0x1@{}", place.file_offset, place.file.display());
        // Separators of its filters, and what it takes for quotes.
        let cannot_be = |place: &CapturedPlace| {
            place.file.display().to_string().contains([' ', ',', '\t', '\n', '"', '\'', '\\'])
        };
        if self.places.iter().any(cannot_be) {
            return String::new();
        }
        self.places.iter().map(one).collect::<Vec<_>>().join(" ")
    }
}

/// Whether the unit can do that.
fn check(traces_a_process: bool, plan: &UnitPlan) -> Result<(), Failure> {
    let name = &plan.pmu.name;
    if plan.kind != AuxKind::IntelPt {
        return Err(Failure::Usage(format!(
            "--at: rtscope sets the address comparators of {} only, not of {name}",
            places::COMPARED_UNIT
        )));
    }
    if plan.request.exclude_user {
        return Err(Failure::Usage(format!(
            "--at: these are places in programs, and {name}/…/k leaves programs out"
        )));
    }
    if !traces_a_process {
        return Err(Failure::Usage(
            "--at: the kernel follows files in the memory of processes only; give --pid or a COMMAND at the end".to_owned(),
        ));
    }
    if comparators_of(&plan.pmu) == 0 {
        return Err(Failure::Missing(format!(
            "--at: {name} has no address comparators here; rtscope record --at records such places by uprobes"
        )));
    }
    Ok(())
}

/// How many a unit has.
pub(crate) fn comparators_of(pmu: &Pmu) -> usize {
    pmu.attribute("nr_addr_filters").and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn at(files: &[&str]) -> Comparators {
        let file = Arc::new(File::open("/proc/self/exe").expect("it is there"));
        let place = |(number, path): (u64, &&str)| CapturedPlace {
            name: "work".to_owned(),
            file: PathBuf::from(*path),
            file_offset: 0x1000 + number,
        };
        let places: Vec<CapturedPlace> = (0..).zip(files).map(place).collect();
        Comparators { files: vec![file; places.len()], places }
    }

    #[test]
    fn the_kernel_gets_open_files_whatever_their_names_are_and_perf_names_that_it_can_read() {
        let comparators = at(&["/opt/a", "/opt/b"]);
        assert_eq!(comparators.written(), "filter 0x1000/0x1@/opt/a filter 0x1001/0x1@/opt/b");
        for odd in ["/opt/my program", "/opt/a,b", "/opt/\"a"] {
            let comparators = at(&["/opt/a", odd]);
            assert_eq!(comparators.written(), "", "{odd}");
            let filter = comparators.filter().expect("two places").into_string().expect("text");
            let descriptor = comparators.files[0].as_raw_fd();
            let line = |offset: &str| format!("filter {offset}/0x1@/proc/self/fd/{descriptor}");
            assert_eq!(filter, format!("{}\n{}", line("0x1000"), line("0x1001")));
        }
        assert_eq!(at(&[]).filter(), None);
    }
}
