// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A private ftrace instance: buffers, clock, events and filters that no other tracer sees.

use super::enable::{self, EnableFailure};
use super::error::TracefsError;
use super::mount::{EventName, Tracefs, read_file, write_file};
use super::reader::RawReader;
use super::stats::CpuStats;
use super::sweep;
use super::uprobes::{self, UprobePlace};
use rtscope_ftrace::page::PageLayout;
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How an instance is to record.
#[derive(Clone, Debug)]
pub struct InstanceConfig {
    /// Buffer of each CPU.
    pub buffer_kib_per_cpu: u64,
    /// A full buffer loses its oldest events (a flight recorder), not the newest.
    pub overwrite: bool,
    /// Only events of these threads; empty: of all. An event in an interrupt counts for the interrupted thread.
    pub tids: Vec<u32>,
    /// What these threads start is recorded too, and what excluded ones start is excluded.
    pub follow_forks: bool,
    /// Not the events of these threads. Hides the interrupts that hit them, too: to have those, record all, and
    /// leave out by [`RawEvent::pid`](rtscope_ftrace::page::RawEvent::pid) what is not
    /// [`in an interrupt`](rtscope_ftrace::page::RawEvent::in_interrupt).
    pub exclude_tids: Vec<u32>,
    /// Only these CPUs; `None`: all.
    pub cpus: Option<Vec<u32>>,
    /// Size of a page of the buffer (a power of two, from 4 on); `None`: the kernel's. Linux 6.8.
    pub page_kib: Option<u32>,
    /// A waiting reader is woken when the buffer is filled so far.
    pub buffer_percent: u8,
}

impl Default for InstanceConfig {
    fn default() -> InstanceConfig {
        InstanceConfig {
            buffer_kib_per_cpu: 4096,
            overwrite: false,
            tids: Vec::new(),
            follow_forks: false,
            exclude_tids: Vec::new(),
            cpus: None,
            page_kib: None,
            buffer_percent: 50,
        }
    }
}

/// An instance. It records nothing before [`Instance::start`]. Dropping it removes it.
#[derive(Debug)]
pub struct Instance {
    tracefs: Tracefs,
    path: PathBuf,
    /// `tracing_on`; also carries the lock that shows that we live. `None`: it was removed.
    switch: Option<File>,
    /// `free_buffer`: when it is closed, by whatever ends this process, the kernel stops the instance and frees its buffers. What is left
    /// after SIGKILL is a directory that costs no memory.
    free: Option<File>,
    layout: PageLayout,
    /// Uprobes were defined for it.
    has_uprobes: bool,
}

impl Instance {
    /// Makes one: switched off, without events, on the clock that eBPF's records have (`CLOCK_MONOTONIC`).
    ///
    /// # Errors
    /// See [`TracefsError`]. Nothing is left behind.
    pub fn create(tracefs: &Tracefs, config: &InstanceConfig) -> Result<Instance, TracefsError> {
        sweep::one_more();
        let path = make_directory(tracefs).inspect_err(|_| sweep::one_less())?;
        let on = path.join(sweep::LOCKED);
        let switch = OpenOptions::new().read(true).write(true).open(&on);
        let switch = switch.map_err(|error| {
            let _ = sweep::remove(&path);
            sweep::one_less();
            TracefsError::writing("open a trace instance", &on, error)
        })?;
        // Nobody else can have it: the name is ours. Without lock a sweep in another PID namespace could remove it.
        let _ = sweep::try_lock(&switch);
        let layout = PageLayout::of_64_bit(4096);
        let mut instance = Instance {
            tracefs: tracefs.clone(),
            path,
            switch: Some(switch),
            free: None,
            layout,
            has_uprobes: false,
        };
        instance.stop()?;
        instance.configure(config)?;
        Ok(instance)
    }

    fn configure(&mut self, config: &InstanceConfig) -> Result<(), TracefsError> {
        self.use_monotonic_clock()?;
        self.quiet_options(config)?;
        if let Some(kib) = config.page_kib {
            let path = self.path.join("buffer_subbuf_size_kb");
            if path.exists() {
                self.write("buffer_subbuf_size_kb", &kib.to_string())?;
            }
        }
        let kib = config.buffer_kib_per_cpu;
        self.write("buffer_size_kb", &kib.to_string()).map_err(|error| match error {
            TracefsError::Io { error, .. } if error.kind() == io::ErrorKind::OutOfMemory => {
                TracefsError::Memory { kib_per_cpu: kib }
            }
            other => other,
        })?;
        self.write_if_there("buffer_percent", &config.buffer_percent.min(100).to_string())?;
        if let Some(cpus) = &config.cpus {
            self.write("tracing_cpumask", &cpu_mask(cpus))?;
        }
        // Where it cannot be had, buffers stay after SIGKILL until the next run.
        self.free = OpenOptions::new().write(true).open(self.path.join("free_buffer")).ok();
        self.write_tids("set_event_pid", &config.tids)?;
        self.write_tids("set_event_notrace_pid", &config.exclude_tids)?;
        let layout = self.read("events/header_page")?;
        self.layout = PageLayout::parse(&layout)?;
        Ok(())
    }

    fn use_monotonic_clock(&self) -> Result<(), TracefsError> {
        let clocks = self.read("trace_clock")?;
        let known = clocks.split_whitespace().any(|clock| clock.trim_matches(['[', ']']) == "mono");
        if !known {
            return Err(TracefsError::NoMonotonicClock);
        }
        self.write("trace_clock", "mono")
    }

    /// An instance begins with the options of the top level, which somebody may have changed.
    fn quiet_options(&self, config: &InstanceConfig) -> Result<(), TracefsError> {
        if !self.option("overwrite", config.overwrite)? && !config.overwrite {
            let path = self.path.join("trace_options");
            return Err(TracefsError::writing("keep old events", &path, io::ErrorKind::Unsupported.into()));
        }
        self.option("event-fork", config.follow_forks)?;
        for name in ["stacktrace", "userstacktrace", "block", "pause-on-trace"] {
            self.option(name, false)?;
        }
        self.option("disable_on_free", true)?;
        // These note the name and process of each task that has an event, which costs time in each. But the kernel changes
        // them for every instance's events that are on (`trace_event_enable_cmd_record`), so only when nobody has any.
        if !self.others_record() {
            self.option("record-cmd", false)?;
            self.option("record-tgid", false)?;
        }
        Ok(())
    }

    /// Sets one option; `false`: this kernel has none of this name. Not all have a file of their own in an instance.
    fn option(&self, name: &str, on: bool) -> Result<bool, TracefsError> {
        match self.write("trace_options", &format!("{}{name}", if on { "" } else { "no" })) {
            Err(TracefsError::Io { error, .. }) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Whether another tracer has tracepoints switched on through tracefs.
    fn others_record(&self) -> bool {
        let records = |root: &Path| enable::enabled(root).map_or(true, |events| !events.is_empty());
        let foreign = fs::read_dir(self.tracefs.instances())
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| !entry.file_name().to_string_lossy().starts_with("rtscope-"));
        records(self.tracefs.root()) || foreign.map(|entry| entry.path()).any(|path| records(&path))
    }

    /// Its directory, `…/instances/rtscope-PID-STARTED-N`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the kernel says about the layout of its pages, for later readers.
    ///
    /// # Errors
    /// [`TracefsError::Permission`], [`TracefsError::Io`].
    pub fn header_page(&self) -> Result<String, TracefsError> {
        self.read("events/header_page")
    }

    /// How its pages are laid out.
    #[must_use]
    pub fn page_layout(&self) -> PageLayout {
        self.layout
    }

    /// Switches on these tracepoints (more can follow), and says which could not be. Events only get into the buffer
    /// between [`Instance::start`] and [`Instance::stop`].
    ///
    /// # Errors
    /// [`TracefsError::Permission`], [`TracefsError::Io`].
    pub fn enable(&self, events: &[EventName]) -> Result<Vec<EnableFailure>, TracefsError> {
        enable::enable(&self.path, &self.tracefs.events()?, events)
    }

    /// Makes events of places in the code of programs, which go with the instance; gives their names, in order. The kernel finds out when they
    /// are [enabled](Instance::enable) whether it can have a breakpoint there.
    ///
    /// # Errors
    /// [`TracefsError::NoUprobes`], [`TracefsError::NotYours`], [`TracefsError::Uprobe`] with the kernel's message.
    pub fn define_uprobes(&mut self, places: &[UprobePlace]) -> Result<Vec<EventName>, TracefsError> {
        self.has_uprobes = true;
        uprobes::define(&self.tracefs, &self.group(), places)
    }

    /// Of its uprobes.
    fn group(&self) -> String {
        uprobes::group_of(&self.path.file_name().unwrap_or_default().to_string_lossy())
    }

    /// The tracepoints that are on.
    ///
    /// # Errors
    /// [`TracefsError::Permission`], [`TracefsError::Io`].
    pub fn enabled(&self) -> Result<HashSet<EventName>, TracefsError> {
        enable::enabled(&self.path)
    }

    /// Switches all tracepoints off.
    ///
    /// # Errors
    /// [`TracefsError::Io`].
    pub fn disable_all(&self) -> Result<(), TracefsError> {
        self.write("events/enable", "0")
    }

    /// Records an event only when this is true of it: the kernel's own language, `prev_prio < 100 && next_comm ~ "cyc*"`,
    /// with `CPU` and `COMM` for any event.
    ///
    /// # Errors
    /// [`TracefsError::Filter`] with the kernel's message, [`TracefsError::NoEvent`], [`TracefsError::Io`].
    pub fn set_filter(&self, event: &EventName, expression: &str) -> Result<(), TracefsError> {
        self.filter(&format!("events/{}/{}/filter", event.system, event.name), &event.to_string(), expression)
    }

    /// The same for each event of a subsystem that has the fields of `expression`.
    ///
    /// # Errors
    /// As [`Instance::set_filter`].
    pub fn set_system_filter(&self, system: &str, expression: &str) -> Result<(), TracefsError> {
        self.filter(&format!("events/{system}/filter"), &format!("{system}:*"), expression)
    }

    fn filter(&self, file: &str, event: &str, expression: &str) -> Result<(), TracefsError> {
        let refused =
            |message: &str| TracefsError::Filter { event: event.to_string(), message: message.to_string() };
        // To the kernel "0" is not an expression: it removes a filter.
        let expression = expression.trim();
        if expression.is_empty() || expression == "0" {
            return Err(refused("it is empty"));
        }
        // What was said before is not about this one.
        let _ = write_file(&self.path.join("error_log"), "");
        match self.write(file, expression) {
            Err(TracefsError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                Err(TracefsError::NoEvent(event.to_string()))
            }
            Err(TracefsError::Io { error, .. }) if error.kind() == io::ErrorKind::InvalidInput => {
                let log = self.read("error_log").unwrap_or_default();
                Err(refused(&last_message(&log).unwrap_or_else(|| error.to_string())))
            }
            other => other,
        }
    }

    /// Excludes one more thread.
    ///
    /// # Errors
    /// [`TracefsError::Io`].
    pub fn exclude_tid(&self, tid: u32) -> Result<(), TracefsError> {
        self.append("set_event_notrace_pid", tid)
    }

    /// Adds one more thread to those that are recorded.
    ///
    /// # Errors
    /// [`TracefsError::Io`].
    pub fn include_tid(&self, tid: u32) -> Result<(), TracefsError> {
        self.append("set_event_pid", tid)
    }

    /// Records from now on.
    ///
    /// # Errors
    /// [`TracefsError::Io`].
    pub fn start(&self) -> Result<(), TracefsError> {
        self.switch("1")
    }

    /// Records no more. What is in the buffers stays.
    ///
    /// # Errors
    /// [`TracefsError::Io`].
    pub fn stop(&self) -> Result<(), TracefsError> {
        self.switch("0")
    }

    fn switch(&self, state: &str) -> Result<(), TracefsError> {
        let Some(file) = &self.switch else { return Ok(()) };
        let path = self.path.join(sweep::LOCKED);
        file.write_all_at(state.as_bytes(), 0)
            .map_err(|error| TracefsError::writing("switch recording on or off", &path, error))
    }

    /// A reader for each CPU that can ever be there: one that is switched on later has its buffer then. They have to be
    /// dropped before the instance, which cannot be removed while they are open.
    ///
    /// # Errors
    /// [`TracefsError::Permission`], [`TracefsError::Io`].
    pub fn readers(&self) -> Result<Vec<RawReader>, TracefsError> {
        let open = |cpu: u32| {
            let path = self.path.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
            RawReader::open(cpu, &path, self.layout.page_bytes())
                .map_err(|error| TracefsError::reading("open a CPU's trace buffer", &path, error))
        };
        self.cpus()?.into_iter().map(open).collect()
    }

    /// What each CPU's buffer says of itself.
    ///
    /// # Errors
    /// [`TracefsError::Permission`], [`TracefsError::Io`].
    pub fn stats(&self) -> Result<Vec<CpuStats>, TracefsError> {
        let read = |cpu: u32| Ok(CpuStats::parse(cpu, &self.read(&format!("per_cpu/cpu{cpu}/stats"))?));
        self.cpus()?.into_iter().map(read).collect()
    }

    /// Every CPU that can ever be there, in order.
    fn cpus(&self) -> Result<Vec<u32>, TracefsError> {
        let path = self.path.join("per_cpu");
        let entries =
            fs::read_dir(&path).map_err(|error| TracefsError::reading("list the CPUs", &path, error))?;
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok();
        let mut cpus: Vec<u32> = entries.flatten().filter_map(number).collect();
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// Switches everything off and removes the instance. The same as dropping it, but says when it could not be done.
    ///
    /// # Errors
    /// [`TracefsError::Busy`] when a file of it is open somewhere.
    pub fn remove(mut self) -> Result<(), TracefsError> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), TracefsError> {
        if self.switch.is_none() {
            return Ok(());
        }
        // Also when it cannot be removed, it shall cost nobody anything.
        let off = self.stop().and(self.disable_all());
        self.free = None;
        self.switch = None;
        let removed = self.remove_directory();
        // After what uses them.
        let group = self.group();
        let probes = match self.has_uprobes {
            true => uprobes::remove(&self.tracefs, |other| other == group).map(drop),
            false => Ok(()),
        };
        sweep::one_less();
        removed.and(probes).and(off)
    }

    fn remove_directory(&self) -> Result<(), TracefsError> {
        // A sweep of another rtscope may look at it for a moment.
        for _ in 0..20 {
            match sweep::remove(&self.path) {
                Err(TracefsError::Busy(_)) => std::thread::sleep(Duration::from_millis(5)),
                done => return done,
            }
        }
        sweep::remove(&self.path)
    }

    fn read(&self, file: &str) -> Result<String, TracefsError> {
        let path = self.path.join(file);
        read_file(&path).map_err(|error| TracefsError::reading("read from a trace instance", &path, error))
    }

    fn write(&self, file: &str, text: &str) -> Result<(), TracefsError> {
        let path = self.path.join(file);
        write_file(&path, text)
            .map_err(|error| TracefsError::writing("set up a trace instance", &path, error))
    }

    fn write_if_there(&self, file: &str, text: &str) -> Result<(), TracefsError> {
        match self.write(file, text) {
            Err(TracefsError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn write_tids(&self, file: &str, tids: &[u32]) -> Result<(), TracefsError> {
        if tids.is_empty() {
            return Ok(());
        }
        let list: Vec<String> = tids.iter().map(ToString::to_string).collect();
        self.write(file, &list.join(" "))
    }

    fn append(&self, file: &str, tid: u32) -> Result<(), TracefsError> {
        let path = self.path.join(file);
        let write = || OpenOptions::new().append(true).open(&path)?.write_all(tid.to_string().as_bytes());
        write().map_err(|error| TracefsError::writing("set up a trace instance", &path, error))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // There is nobody to tell; what stays is removed by the next run.
        let _ = self.take_down();
    }
}

fn make_directory(tracefs: &Tracefs) -> Result<PathBuf, TracefsError> {
    let mut n = 0;
    loop {
        let path = tracefs.instances().join(sweep::own_name(n));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && n < 1000 => n += 1,
            Err(error) => return Err(TracefsError::writing("make a trace instance", &path, error)),
        }
    }
}

/// `[0, 33]` → `2,00000001`: groups of 32 bits, the highest first.
fn cpu_mask(cpus: &[u32]) -> String {
    let groups = cpus.iter().max().map_or(1, |highest| highest / 32 + 1);
    let word = |group: u32| {
        cpus.iter().filter(|cpu| **cpu / 32 == group).fold(0_u32, |mask, cpu| mask | 1 << (cpu % 32))
    };
    let words: Vec<String> = (0..groups).rev().map(|group| format!("{:08x}", word(group))).collect();
    words.join(",")
}

/// The last message of `error_log`, as one sentence: what is wrong, and where in the expression.
pub(super) fn last_message(log: &str) -> Option<String> {
    let last = &log[log.rfind("error: ")? + "error: ".len()..];
    let mut lines = last.lines();
    let what = lines.next()?.trim();
    let command = lines.next()?;
    let caret = lines.next().and_then(|line| line.find('^'));
    // The mark is at what is wrong or just behind it.
    let place = caret.and_then(|at| command.get(at..)).map(str::trim).filter(|rest| !rest.is_empty());
    let expression = command.trim().strip_prefix("Command:").unwrap_or(command).trim();
    Some(match place {
        Some(place) => format!("{what}, near '{place}' in '{expression}'"),
        None => format!("{what}, in '{expression}'"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_written_as_the_kernel_reads_them() {
        assert_eq!(cpu_mask(&[0]), "00000001");
        assert_eq!(cpu_mask(&[1, 33]), "00000002,00000002");
    }

    #[test]
    fn messages_of_the_kernel_become_sentences() {
        let log = "[  1.0] event filter parse error: error: Old\n  Command: x\n           ^\n\
                   [  178.1] event filter parse error: error: Field not found\n  Command: a == 1 && foo == 1\n                     ^\n";
        assert_eq!(
            last_message(log).as_deref(),
            Some("Field not found, near 'foo == 1' in 'a == 1 && foo == 1'")
        );
        assert_eq!(last_message(""), None);
    }
}
