// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of `rtscope hardware`.

use crate::args::JsonOutput;
use crate::exit::help;
use clap::{Subcommand, ValueHint};
use rtscope_hardware::decode::{DecodeError, Settings, SourceUnit, Unit, read_catalogs};
use rtscope_hardware::program::NamedProgram;
use rtscope_hardware::pt::{ClockConfig, TscRatio};
use rtscope_session::hardware::capture::EventSpec;
use rtscope_session::record::PlaceWords;
use rtscope_session::units::{Bytes, DurationNs};
use rtscope_shield::Cpus;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

pub const EXAMPLES: &str = help!(
    "Examples:
  rtscope hardware
      Which trace units this machine has, why others are missing, and what to do.
  rtscope hardware --verbose
      The same with each property, its meaning and where it was read.
  rtscope hardware capture intel_pt -o capture/ -- ./server
      What the processor executes while a program runs, by Intel PT.
  rtscope hardware decode capture/
      What trace units recorded, in numbers.

Guide: docs/hardware.md."
);

const CAPTURE_EXAMPLES: &str = help!(
    "Examples:
  rtscope hardware capture intel_pt -o capture/ -- ./server
      Of a program and what it starts, in user space and the kernel. /u is user space only, which needs no
      privilege.
  rtscope hardware capture intel_pt/mtc_period=9,cyc=0/u -o capture/ --pid 1234 --duration 1s
      Of a process, with other settings of the unit.
  rtscope hardware capture intel_pt//u --at on_tick --at on_tick+0x2c -o capture/ -- ./controller
      Each time that these places are executed, by address comparators.
  rtscope hardware capture intel_pt -o capture/ --cpu 2,3 --snapshot
      Two CPUs. Only the newest 4M of each are kept: what ran before Ctrl-C.
  rtscope hardware capture --recover capture/
      What a capture had written that was killed.
  rtscope hardware decode capture/ --image ./server -o trace/
      The functions that ran, as a trace on the clock of rtscope's other traces.

To keep what ran before something was late: rtscope watch response --hardware intel_pt.
rtscope hardware says whether this machine has the unit. What is missing is reported by CPU and cause."
);

const DECODE_EXAMPLES: &str = help!(
    "Examples:
  rtscope hardware decode perf.data
      Of perf record -e intel_pt//, intel_bts//, cs_etm//, arm_spe// or -b: packets, events and losses in
      numbers.
  rtscope hardware decode perf.data --packets --time | less
      Each packet with its place and time.
  rtscope hardware decode perf.data --image ./server \\
      --image /lib/x86_64-linux-gnu/libc.so.6 -o trace/
      The functions that ran, as events of their threads.
  perf record -b -o - ./server | rtscope hardware decode - -o trace/
      A CTF trace, which rtscope print, stat and convert read.
  rtscope hardware decode snapshot/ --packets
      A snapshot directory in OpenCSD's form.
  rtscope hardware decode swo.bin --unit itm --clock-hz 72000000 -o trace/
      A raw file of a known unit.
  rtscope hardware decode etb.bin --unit frames --source 0x10=etm4 --source 0x20=stp
      CoreSight frames, with the units of their sources.
  rtscope hardware decode stm.bin --unit stp --sys-t-catalog firmware.xml -o trace/
      Messages of MIPI SyS-T as text, with the catalogue of whoever sent them.
  rtscope hardware decode stm.bin --unit stp --programs trace/ -o events/
      Events of programs that rtscope record --backend stm -o trace/ has sent to an STM.
  rtscope hardware decode capture/ --programs trace/ -o events/
      Events that rtscope record --backend ptwrite -o trace/ has sent into a capture of Intel PT.

What is missing is reported: bytes that are in no packet, overflows, what the recorder lost."
);

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct HardwareOptions {
    /// Print one JSON object (docs/json.md)
    #[arg(long)]
    pub json: bool,
    /// Also show each property with its meaning and source, and what units that are absent would be good for
    #[arg(long, short)]
    pub verbose: bool,
    #[command(subcommand)]
    pub command: Option<HardwareCommand>,
}

#[derive(Debug, Subcommand)]
pub enum HardwareCommand {
    /// Capture what a trace unit of this machine writes: everything, or the newest part
    #[command(after_help = CAPTURE_EXAMPLES)]
    Capture(Box<CaptureOptions>),
    /// Decode what trace units recorded: a capture, a perf.data, a snapshot directory of OpenCSD, or a raw file
    #[command(after_help = DECODE_EXAMPLES)]
    Decode(Box<DecodeOptions>),
}

#[derive(Debug, clap::Args)]
pub struct CaptureOptions {
    /// The unit, and settings of it as perf has them: intel_pt, intel_pt/cyc=1,mtc_period=3/u, intel_bts
    #[arg(value_name = "EVENT", default_value = "intel_pt")]
    pub event: EventSpec,
    /// Where the capture goes: a directory that does not exist yet
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, required_unless_present = "recover")]
    pub output: Option<PathBuf>,
    /// Finish the capture DIR, which was killed: what it had written until then gets its name. One with --snapshot had written nothing
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["output", "cpu", "pid", "at", "snapshot", "duration", "command"])]
    pub recover: Option<PathBuf>,
    /// On these CPUs only (2,4-7)
    #[arg(long, value_name = "LIST", value_parser = Cpus::from_list)]
    pub cpu: Option<Cpus>,
    /// This process, and what it starts from now on. Without --pid and COMMAND: everything that runs
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Trace only when a thread executes this place in a program or library (default: COMMAND's program): a function's symbol and bytes from its
    /// begin, or an address as objdump shows it; may be repeated, as often as the unit has address comparators. hardware decode -o makes an event of each
    /// time (hardware:place). Costs the program what the unit writes, and no interrupt, as the uprobes of record --at do
    #[arg(long, value_name = "[FILE:]FUNCTION[+OFFSET]")]
    pub at: Vec<PlaceWords>,
    /// Keep only the newest of it, and write that at the end
    #[arg(long)]
    pub snapshot: bool,
    /// Size of the unit's buffer of each CPU
    #[arg(long, value_name = "SIZE", default_value = "4M")]
    pub buffer: Bytes,
    /// Stop after this time
    #[arg(long, value_name = "TIME")]
    pub duration: Option<DurationNs>,
    #[command(flatten)]
    pub json: JsonOutput,
    /// Exit with code 6 when anything is missing
    #[arg(long)]
    pub fail_if_lost: bool,
    /// Start this program, capture it and what it starts, and stop when it ends
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments, conflicts_with = "pid")]
    pub command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub struct DecodeOptions {
    /// The file or directory; - is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub capture: PathBuf,
    /// The unit that wrote a raw file: pt, bts, etm4, ete, etm3, ptm, stp, itm, spe, or frames, frames-fsync (TPIU), frames-dstream
    #[arg(long, value_name = "UNIT")]
    pub unit: Option<Unit>,
    /// With --unit frames: the unit of a source, by its number; may be repeated
    #[arg(long, value_name = "ID=UNIT", requires = "unit")]
    pub source: Vec<SourceUnit>,
    /// A program that ran: an ELF file, and where its first byte was in memory if neither recording nor file says that; may be
    /// repeated
    #[arg(long, value_name = "FILE[@0xADDRESS]", value_hint = ValueHint::FilePath)]
    pub image: Vec<NamedProgram>,
    /// The frequency of the unit's clock, where neither file nor stream says it
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..))]
    pub clock_hz: Option<u64>,
    /// Of a raw stream of Intel PT: ticks of the TSC for ticks of the crystal clock, EBX/EAX of CPUID leaf 15h
    #[arg(long, value_name = "TICKS/TICKS", help_heading = "Intel PT")]
    pub tsc_ratio: Option<TscRatio>,
    /// Of a raw stream of Intel PT: an MTC packet each 2^N ticks of the crystal clock
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(..16), help_heading = "Intel PT")]
    pub mtc_freq: u8,
    /// Of a raw stream of Intel PT: the nominal frequency, in the unit of CBR packets
    #[arg(long, value_name = "RATIO", help_heading = "Intel PT")]
    pub nominal_ratio: Option<u8>,
    /// Print each packet
    #[arg(long)]
    pub packets: bool,
    /// Print what was executed: ranges or branches, with the functions of --image
    #[arg(long)]
    pub flow: bool,
    /// With --packets and --flow: also times, in nanoseconds, or in ticks where nothing says how long they are
    #[arg(long)]
    pub time: bool,
    /// Make a CTF trace of the events in this directory
    #[arg(short, long, value_name = "TRACE", value_hint = ValueHint::DirPath, conflicts_with_all = ["packets", "flow"])]
    pub output: Option<PathBuf>,
    /// With --output: the directory of a recording with --backend stm or ptwrite, whose programs' events are made of what the unit
    /// has recorded
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "output", conflicts_with = "clock_offset")]
    pub programs: Option<PathBuf>,
    /// With --output: messages of an STM are of MIPI SyS-T
    #[arg(long, requires = "output", conflicts_with = "programs")]
    pub sys_t: bool,
    /// A catalogue of SyS-T (XML) with the formats and names that messages refer to; may be repeated, implies --sys-t
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "output", conflicts_with = "programs")]
    pub sys_t_catalog: Vec<PathBuf>,
    /// With --output: nanoseconds that are added to all times, CLOCK_MONOTONIC less the clock of the capture
    #[arg(long, value_name = "NS", default_value_t = 0, allow_negative_numbers = true, requires = "output")]
    pub clock_offset: i64,
    /// Print one JSON object (docs/json.md)
    #[arg(long, conflicts_with_all = ["packets", "flow"])]
    pub json: bool,
    /// Exit with code 6 when anything is missing
    #[arg(long)]
    pub fail_if_lost: bool,
}

impl DecodeOptions {
    /// What they say of the capture.
    pub fn settings(&self) -> Result<Settings, DecodeError> {
        let sys_t = self.sys_t || !self.sys_t_catalog.is_empty();
        Ok(Settings {
            unit: self.unit,
            sources: self.source.clone(),
            clock_hz: self.clock_hz,
            pt: ClockConfig {
                mtc_frequency: self.mtc_freq,
                tsc_per_crystal: self.tsc_ratio.map(|ratio| (ratio.tsc, ratio.crystal)),
                nominal_ratio: self.nominal_ratio,
            },
            programs: self.image.clone(),
            sys_t: sys_t.then(|| read_catalogs(&self.sys_t_catalog)).transpose()?.map(Arc::new),
            places: Vec::new(),
        })
    }
}
