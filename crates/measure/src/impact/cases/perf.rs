// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop's USDT probe by a uprobe and `perf record`: the way of SystemTap, by what every distribution has.
//!
//! perf's own way to USDT probes (`perf buildid-cache --add`, `perf probe`) keeps copies in the user's home, so the uprobe is
//! made in tracefs. Its name has our process number in it: what a killed run left behind is removed by the next one.

use super::super::setup::Setup;
use super::usdt::{self, Probe};
use super::{KernelEvents, TraceCounts, Tracer};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use rtscope_tracers::{ChildProcess, Error, finished};
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const REMEDY: &str = "install perf (Debian: linux-perf, Fedora: perf)";
const DATA: &str = "perf.data";
const GROUP: &str = "rtscope_impact_";

#[derive(Debug)]
struct Perf {
    tracefs: PathBuf,
    probe: Probe,
    uprobe: Option<Uprobe>,
    running: Option<ChildProcess>,
}

/// If perf is installed, and uprobes can be made.
pub fn find(setup: &Setup<'_>) -> Result<Box<dyn Tracer>, Error> {
    finished(Command::new("perf").arg("--version"), REMEDY)?;
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::Failed("perf takes root for uprobes".to_string()));
    }
    let places = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].map(PathBuf::from);
    let tracefs = places.into_iter().find(|place| place.join("uprobe_events").exists());
    let tracefs = tracefs.ok_or_else(|| Error::Missing {
        program: "uprobe_events of tracefs".to_string(),
        remedy: "mount -t tracefs tracefs /sys/kernel/tracing; the kernel needs CONFIG_UPROBE_EVENTS"
            .to_string(),
    })?;
    sweep(&tracefs);
    let probe = usdt::find(&setup.rtscope, "npt", "loop")?;
    Ok(Box::new(Perf { tracefs, probe, uprobe: None, running: None }))
}

/// Removes uprobes of processes that are gone.
fn sweep(tracefs: &Path) {
    let text = fs::read_to_string(tracefs.join("uprobe_events")).unwrap_or_default();
    let names = text.lines().filter_map(|line| line.strip_prefix("p:")?.split(' ').next());
    for name in names {
        let number = name.strip_prefix(GROUP).and_then(|rest| rest.strip_suffix("/loop"));
        let Some(pid) = number.and_then(|number| number.parse::<i32>().ok()) else { continue };
        if kill(Pid::from_raw(pid), None) == Err(nix::errno::Errno::ESRCH) {
            drop(Uprobe { events: tracefs.join("uprobe_events"), name: name.to_string() });
        }
    }
}

/// A line in `uprobe_events`. Dropped, it is taken out.
#[derive(Debug)]
struct Uprobe {
    events: PathBuf,
    name: String,
}

impl Uprobe {
    fn make(tracefs: &Path, probe: &Probe, program: &Path) -> Result<Uprobe, Error> {
        let name = format!("{GROUP}{}/loop", std::process::id());
        let events = tracefs.join("uprobe_events");
        let text = probe.definition(&name, program, &["turn", "gap_ticks"]);
        append(&events, &text)
            .map_err(|error| Error::Failed(format!("writing '{text}' into {}: {error}", events.display())))?;
        Ok(Uprobe { events, name })
    }

    fn id(&self, tracefs: &Path) -> Result<u16, Error> {
        let path = tracefs.join("events").join(&self.name).join("id");
        let text = fs::read_to_string(&path)
            .map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
        text.trim().parse().map_err(|_| Error::Failed(format!("{} is no number", path.display())))
    }
}

impl Drop for Uprobe {
    fn drop(&mut self) {
        // perf may need a moment to let go of it; the next run sweeps what stays.
        for _ in 0..100 {
            if append(&self.events, &format!("-:{}", self.name)).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().append(true).open(path)?.write_all(format!("{text}\n").as_bytes())
}

impl Perf {
    fn begin(&mut self, setup: &Setup<'_>, kernel: KernelEvents, uprobe: &Uprobe) -> Result<(), Error> {
        let [control, ack] = ["perf.control", "perf.ack"].map(|name| setup.fresh(name));
        let (control, ack) = (control?, ack?);
        let mut command = Command::new("perf");
        command.args(["record", "-e", &uprobe.name.replace('/', ":")]);
        if kernel == KernelEvents::Yes {
            // What perf does to write them would be more of them.
            let events = ["sched:*", "irq:*", "raw_syscalls:*"]
                .map(|event| ["-e", event, "--filter", "comm != \"perf\""]);
            command.arg("-a").args(events.concat());
        } else {
            command.args(["-C", &setup.cpu.to_string()]);
        }
        let pages = setup.buffer_bytes.to_string() + "B";
        command
            .args(["-m", &pages, "--no-buildid", "--no-buildid-cache", "-D", "-1", "-o"])
            .arg(setup.fresh(DATA)?);
        command.arg(format!("--control=fifo:{},{}", control.display(), ack.display()));
        // Opened for both directions, so that opening does not wait for perf.
        let open = |path: &Path| -> io::Result<File> {
            mkfifo(path, Mode::S_IRWXU)?;
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)
        };
        let failed = |error: io::Error| Error::Failed(format!("making pipes for perf: {error}"));
        let (mut control, mut ack) = (open(&control).map_err(failed)?, open(&ack).map_err(failed)?);
        control.write_all(b"enable\n").map_err(failed)?;
        let running = self.running.insert(setup.start(&mut command, REMEDY, "perf.out")?);
        let mut answer = Vec::new();
        running.until("it answers", &|| setup.stopped(), |_| {
            let mut bytes = [0; 16];
            // Nothing is there yet: it will be asked again.
            let read = ack.read(&mut bytes).unwrap_or(0);
            answer.extend(&bytes[..read]);
            answer.starts_with(b"ack")
        })
    }
}

impl Tracer for Perf {
    fn start(&mut self, setup: &Setup<'_>, kernel: KernelEvents) -> Result<(), Error> {
        let program = usdt::plain_name(&setup.rtscope);
        let uprobe = Uprobe::make(&self.tracefs, &self.probe, &program)?;
        let result = self.begin(setup, kernel, &uprobe);
        self.uprobe = Some(uprobe);
        result
    }

    fn stop(&mut self, setup: &Setup<'_>) -> Result<TraceCounts, Error> {
        let (Some(mut running), Some(uprobe)) = (self.running.take(), self.uprobe.take()) else {
            return Ok(TraceCounts::default());
        };
        let id = uprobe.id(&self.tracefs)?;
        // It ends itself by the same signal.
        running.end(Signal::SIGINT)?;
        drop(uprobe);
        let path = setup.path(DATA);
        let bytes = fs::read(&path).map_err(|error| Error::Failed(format!("{}: {error}", path.display())))?;
        let counted = PerfCounts::of(&bytes, id);
        counted.map(PerfCounts::counts).ok_or_else(|| {
            Error::Failed(format!("perf wrote what is not understood: {}", running.last_words()))
        })
    }

    fn abandon(&mut self) {
        self.running = None;
        self.uprobe = None;
    }
}

/// What is in a file of perf (tools/perf/Documentation/perf.data-file-format.txt).
#[derive(Debug, Default, PartialEq, Eq)]
struct PerfCounts {
    wanted: u64,
    others: u64,
    repeated: u64,
    /// As records between the samples count it, and as the counters did at the end.
    lost: [u64; 2],
}

const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const RECORD_LOST_SAMPLES: u32 = 13;
/// Bits of sample_type for fields of 8 bytes that stand before the raw data: IP, TID, TIME, ADDR, ID, CPU, PERIOD, STREAM_ID,
/// IDENTIFIER.
const FIXED: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 16;
/// READ, CALLCHAIN: their lengths differ.
const UNFIXED: u64 = 1 << 4 | 1 << 5;
const RAW: u64 = 1 << 10;

impl PerfCounts {
    /// Samples of the tracepoint with this number. perf 6.1 writes blocks of its buffer twice when it cannot keep up; a sample
    /// with the same bytes, time and iteration included, is the same one.
    fn of(bytes: &[u8], id: u16) -> Option<PerfCounts> {
        let u64_at =
            |at: usize| Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?));
        let u32_at =
            |at: usize| Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?));
        let u16_at =
            |at: usize| Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?));
        if bytes.get(..8)? != b"PERFILE2" {
            return None;
        }
        // The first event's description says what is in a sample; all are tracepoints and have the same.
        let kinds = u64_at(usize::try_from(u64_at(24)?).ok()? + 24)?;
        if kinds & UNFIXED != 0 || kinds & RAW == 0 {
            return None;
        }
        let raw = 8 + 8 * (kinds & FIXED).count_ones() as usize + 4;
        let mut at = usize::try_from(u64_at(40)?).ok()?;
        let end = (at + usize::try_from(u64_at(48)?).ok()?).min(bytes.len());
        let (mut counted, mut seen) = (PerfCounts::default(), HashSet::new());
        while at < end {
            let (kind, length) = (u32_at(at)?, usize::from(u16_at(at + 6)?));
            let record = bytes.get(at..at + length.max(8))?;
            match kind {
                RECORD_SAMPLE => {
                    let mut hasher = DefaultHasher::new();
                    record.hash(&mut hasher);
                    if !seen.insert(hasher.finish()) {
                        counted.repeated += 1;
                    } else if u16_at(at + raw)? == id {
                        counted.wanted += 1;
                    } else {
                        counted.others += 1;
                    }
                }
                RECORD_LOST => counted.lost[0] += u64_at(at + 16)?,
                RECORD_LOST_SAMPLES => counted.lost[1] += u64_at(at + 8)?,
                _ => {}
            }
            at += length.max(8);
        }
        Some(counted)
    }

    fn counts(self) -> TraceCounts {
        TraceCounts {
            recorded: self.wanted,
            // The second one is there since Linux 6.1. Both also count other records for which there was no space.
            lost_reported: Some(if self.lost[1] > 0 { self.lost[1] } else { self.lost[0] }),
            kernel: (self.others > 0).then_some(self.others),
            repeated: self.repeated,
            ..TraceCounts::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with samples of IP, TID, TIME, CPU, PERIOD and RAW.
    fn file(records: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let data: Vec<u8> = records
            .iter()
            .flat_map(|(kind, body)| {
                let length = u16::try_from(body.len() + 8).expect("short");
                [&kind.to_le_bytes()[..], &[0, 0], &length.to_le_bytes(), body].concat()
            })
            .collect();
        let mut bytes = vec![0; 104 + 136];
        bytes[..8].copy_from_slice(b"PERFILE2");
        bytes[24..32].copy_from_slice(&104_u64.to_le_bytes());
        bytes[40..48].copy_from_slice(&240_u64.to_le_bytes());
        bytes[48..56].copy_from_slice(&(data.len() as u64).to_le_bytes());
        bytes[128..136].copy_from_slice(&(1_u64 | 2 | 4 | 1 << 7 | 1 << 8 | RAW).to_le_bytes());
        bytes.extend(data);
        bytes
    }

    fn sample(id: u16, turn: u64) -> (u32, Vec<u8>) {
        let mut body = vec![0; 40];
        body.extend(16_u32.to_le_bytes());
        body.extend(id.to_le_bytes());
        body.extend([0; 6]);
        body.extend(turn.to_le_bytes());
        body.extend([0; 4]);
        (RECORD_SAMPLE, body)
    }

    #[test]
    fn samples_are_counted_once_and_losses_by_the_later_count() {
        let lost = |kind, numbers: [u64; 2]| (kind, numbers.iter().flat_map(|it| it.to_le_bytes()).collect());
        let records = [
            sample(7, 1),
            sample(7, 2),
            sample(7, 2),
            sample(8, 1),
            (RECORD_LOST, [1_u64, 5].iter().flat_map(|it| it.to_le_bytes()).collect()),
            lost(RECORD_LOST_SAMPLES, [6, 0]),
        ];
        let counted = PerfCounts::of(&file(&records), 7).expect("understood");
        assert_eq!(counted, PerfCounts { wanted: 2, others: 1, repeated: 1, lost: [5, 6] });
        let counts = counted.counts();
        assert_eq!((counts.recorded, counts.lost_reported, counts.kernel), (2, Some(6), Some(1)));
    }

    #[test]
    fn a_cut_or_strange_file_is_not_understood_and_never_panics() {
        let whole = file(&[sample(7, 1), sample(7, 2)]);
        for length in 0..whole.len() {
            let _ = PerfCounts::of(&whole[..length], 7);
        }
        assert_eq!(PerfCounts::of(b"PERFILE1", 7), None);
        assert_eq!(PerfCounts::of(&[], 7), None);
    }
}
