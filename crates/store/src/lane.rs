// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One CPU's part of a conversion: its files, which may be growing, and its stream.

use crate::Error;
use crate::bank::BankReader;
use crate::description::{End, SpoolDescription};
use crate::losses::{anywhere, rest};
use crate::names::{Lookup, TaskNames};
use crate::pages::{PageSource, PagesReader};
use crate::scan::Scan;
use crate::stream::{Limits, MergeError, PageEvents, ReadAhead, Tally, TracepointTable, merge};
use nix::fcntl::{FallocateFlags, fallocate};
use rtscope_ctf::{StreamSummary, StreamWriter, TaskStatus, TraceWriter};
use rtscope_event::{CpuId, MonotonicNs, Names, Tid};
use rtscope_ftrace::page::PageLayout;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The files of a CPU's recording, as far as there are any.
#[derive(Clone, Debug, Default)]
pub struct LaneFiles {
    /// Records of eBPF.
    pub bank: Option<Arc<File>>,
    /// Sub-buffers of ftrace.
    pub pages: Option<Arc<File>>,
}

/// How far the files of a CPU are written.
#[derive(Clone, Copy, Debug, Default)]
pub struct LaneExtent {
    /// Bytes of records: whole chunks.
    pub bank_bytes: u64,
    /// Bytes of sub-buffers: whole ones.
    pub pages_bytes: u64,
    /// All events of the CPU up to this time are in them, but for those whose eBPF program read the clock and was then interrupted.
    pub complete_until: MonotonicNs,
}

/// The result of one CPU.
#[derive(Debug)]
pub(crate) struct CpuSummary {
    pub(crate) cpu: CpuId,
    pub(crate) stream: StreamSummary,
    pub(crate) bank: Tally,
    pub(crate) pages: Tally,
    /// Places where a switch does not follow the one before.
    pub(crate) gaps: u64,
    /// Bytes that were read.
    pub(crate) bytes: u64,
}

/// One CPU's part.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) cpu: CpuId,
    /// Goes ahead of the one that the events are written from; `None`: everything has been scanned.
    scanner: Option<BankReader>,
    own: ReadAhead,
    pages: PageEvents<'static>,
    stream: Option<StreamWriter>,
    from: MonotonicNs,
    bytes: LaneExtent,
    /// Bytes whose reading has been reported.
    reported: u64,
    files: LaneFiles,
    /// Of both files: bytes from the beginning that are not there any more.
    freed: (u64, u64),
}

impl Lane {
    /// `leave_out`: threads of rtscope.
    pub(crate) fn new(
        cpu: CpuId,
        files: &LaneFiles,
        layout: Option<PageLayout>,
        from: MonotonicNs,
        leave_out: &[u32],
    ) -> Lane {
        let bank = || files.bank.as_ref().map(|file| BankReader::new(Arc::clone(file)));
        let pages = files.pages.as_ref().zip(layout).map(|(file, layout)| {
            let source = PageSource::File(Arc::clone(file), 0);
            PagesReader::new(source, layout)
        });
        let limits = Limits { from, until: from };
        let mut pages = PageEvents::new(pages, limits);
        pages.leave_out(leave_out);
        let own = ReadAhead::new(cpu, bank(), limits);
        let bytes = LaneExtent::default();
        let (scanner, files, freed) = (bank(), files.clone(), (0, 0));
        Lane { cpu, scanner, own, pages, stream: None, from, bytes, reported: 0, files, freed }
    }

    /// There is as much by now, and no event in it is newer than `until`.
    pub(crate) fn grow(&mut self, extent: &LaneExtent, until: MonotonicNs) {
        self.scanner.iter_mut().for_each(|reader| reader.grow(extent.bank_bytes));
        self.own.grow(extent.bank_bytes, until);
        self.pages.grow(extent.pages_bytes, until);
        self.bytes = *extent;
    }

    /// Leaves out other threads from now on.
    pub(crate) fn leave_out(&mut self, own: &[u32]) {
        self.pages.leave_out(own);
    }

    /// Bytes that will be read: the bank twice.
    pub(crate) fn bytes_left(&self) -> u64 {
        let scan = self
            .scanner
            .as_ref()
            .map_or(0, |scanner| self.bytes.bank_bytes.saturating_sub(scanner.position()));
        let written = self.own.position().saturating_add(self.pages.position());
        scan.saturating_add(self.bytes.bank_bytes.saturating_add(self.bytes.pages_bytes))
            .saturating_sub(written)
    }

    /// Finds what is to be known before events up to `until` are written; with `follows_tasks` also what tasks do. `go_on` is called now and then with the bytes read.
    pub(crate) fn scan(
        &mut self,
        until: MonotonicNs,
        follows_tasks: bool,
        go_on: impl FnMut(u64) -> bool,
    ) -> io::Result<Scan> {
        let mut scan = Scan::default();
        scan.tasks = follows_tasks.then(Vec::new);
        if let Some(scanner) = &mut self.scanner {
            scan.bank(self.cpu, scanner, until, go_on)?;
        }
        Ok(scan)
    }

    /// Begins the stream. `end`: what the recording's end reports, if it is known by now.
    pub(crate) fn begin(&mut self, writer: &TraceWriter, end: Option<&End>) -> Result<(), Error> {
        let mut stream = writer.stream(self.cpu, self.from)?;
        let announced = stream.lost_somewhere(&anywhere(end, self.cpu));
        announced.map_err(Error::io("write", stream.path()))?;
        self.stream = Some(stream);
        Ok(())
    }

    /// Tasks and interrupts as they were when the recording began.
    pub(crate) fn dump(&mut self, description: &SpoolDescription) -> Result<(), Error> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let mut names = Names::default();
        description.tasks.iter().for_each(|task| names.add_task(task.info()));
        description.irqs.iter().for_each(|(irq, name)| names.add_irq(*irq, name.clone()));
        let status = |state: u32| if state == 0 { TaskStatus::Runnable } else { TaskStatus::Waiting };
        let states: HashMap<Tid, (TaskStatus, CpuId)> = description
            .tasks
            .iter()
            .filter_map(|task| Some((task.tid, (status(task.state?), task.cpu.unwrap_or(CpuId(0))))))
            .collect();
        let path = stream.path().to_owned();
        stream.dump(&names, |tid| states.get(&tid).copied(), None).map_err(Error::io("write", &path))
    }

    /// Tasks and interrupts as they are now, behind the events up to `until`.
    pub(crate) fn dump_again(&mut self, names: &Names, until: MonotonicNs) -> Result<(), Error> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let path = stream.path().to_owned();
        stream.dump(names, |_| None, Some(until.plus(1))).map_err(Error::io("write", &path))
    }

    /// Events after `until` go into the next file of a ring, if one is due.
    pub(crate) fn turn(&mut self, until: MonotonicNs) -> Result<(), Error> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        stream.turn(until).map_err(|error| Error::io("write", stream.path())(error))
    }

    /// Gives back to the file system what of the files will not be read again. Returns how much that is in all: of records, and of
    /// sub-buffers.
    pub(crate) fn free(&mut self) -> io::Result<(u64, u64)> {
        let scanned = self.scanner.as_ref().map_or(u64::MAX, BankReader::position);
        free(self.files.bank.as_deref(), scanned.min(self.own.position()), &mut self.freed.0)?;
        free(self.files.pages.as_deref(), self.pages.position(), &mut self.freed.1)?;
        Ok(self.freed)
    }

    /// Writes the events up to `until`. `go_on` is called now and then with the bytes read; false ends it early, and so does this.
    pub(crate) fn write(
        &mut self,
        table: &TracepointTable<'_>,
        names: &TaskNames,
        until: MonotonicNs,
        spool: &Path,
        go_on: impl Fn(u64) -> bool,
    ) -> Result<bool, Error> {
        let Some(stream) = &mut self.stream else { return Ok(true) };
        let (names, reported) = (Lookup::new(names), &mut self.reported);
        let both = (&mut self.own, &mut self.pages);
        let whole = merge(both, stream, (table, &names), until, |read| {
            let more = read.saturating_sub(*reported);
            *reported = read.max(*reported);
            go_on(more)
        });
        match whole {
            Ok(whole) => Ok(whole),
            Err(MergeError::Reading(error)) => Err(Error::io("read", spool)(error)),
            Err(MergeError::Writing(error)) => Err(Error::io("write", stream.path())(error)),
        }
    }

    /// What was written can be read from now on.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        stream.flush().map_err(|error| Error::io("write", stream.path())(error))
    }

    /// Ends the stream. `told`: the end's losses without a known place are in the stream already.
    pub(crate) fn finish(&mut self, end: Option<&End>, told: bool) -> Result<Option<CpuSummary>, Error> {
        let Some(mut stream) = self.stream.take() else { return Ok(None) };
        let path = stream.path().to_owned();
        let (bank, pages, gaps) = (self.own.met, self.pages.met, self.own.switches.gaps());
        let mut lost = rest(end, self.cpu, &bank, &pages);
        for loss in anywhere(end, self.cpu).iter().filter(|_| !told) {
            lost = lost.saturating_add(loss.count.unwrap_or(1));
        }
        let until = end.map_or(self.from, |end| end.ended);
        let stream =
            stream.lost(lost).and_then(|()| stream.finish(until)).map_err(Error::io("write", &path))?;
        let bytes = self.bytes.bank_bytes.saturating_add(self.bytes.pages_bytes);
        // What they hold is not needed any more, and other CPUs follow.
        self.own = ReadAhead::new(self.cpu, None, Limits { from: self.from, until: self.from });
        self.pages = PageEvents::new(None, Limits { from: self.from, until: self.from });
        self.scanner = None;
        Ok(Some(CpuSummary { cpu: self.cpu, stream, bank, pages, gaps, bytes }))
    }
}

/// Less is not worth a call.
const FREE_BYTES: u64 = 64 << 10;

/// Frees the blocks before `until`, if there are many.
fn free(file: Option<&File>, until: u64, freed: &mut u64) -> io::Result<()> {
    let until = until / BLOCK_BYTES * BLOCK_BYTES;
    let Some(file) = file.filter(|_| until >= *freed + FREE_BYTES) else { return Ok(()) };
    punch(file, *freed, until - *freed)?;
    *freed = until;
    Ok(())
}

/// Of most file systems; where they are larger, less is freed at a time.
const BLOCK_BYTES: u64 = 4096;

/// Gives back blocks in a file, whose size stays.
pub(crate) fn punch(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let place = |bytes: u64| i64::try_from(bytes).map_err(io::Error::other);
    Ok(fallocate(file, flags, place(from)?, place(bytes)?)?)
}
