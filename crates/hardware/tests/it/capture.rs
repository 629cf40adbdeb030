// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is asked of a unit, and the files of a capture, without a unit: the kernel's side is tested in guests
//! (crates/cli/tests/it/capture.rs).

use rtscope_hardware::capture::{CaptureInfo, CaptureMode, CapturedPlace, ClockOffset, CpuCapture, SCHEMA};
use rtscope_hardware::decode::{Findings, SeenPacket, Settings, StreamLane, open};
use rtscope_hardware::perfdata::encode::PerfEncoder;
use rtscope_hardware::perfdata::{
    ATTRIBUTE_BYTES, AuxPlace, EventAttribute, EventRequest, Feature, PerfWriter, PtInfo, SampleId,
    WrittenEvent,
};
use rtscope_hardware::pmu::{EventSpec, Pmu, PmuError};
use rtscope_hardware::program::NamedProgram;
use rtscope_hardware::pt::{Ip, IpBytes, Packet, PerfClock};
use rtscope_hardware::trace::{EventClassKind, HardwareEvent, Lane};
use rtscope_testkit::elf;
use rtscope_testkit::hardware::{BASE, FUNCTIONS, beginning, code, full, packets, recording, whole_run};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const PMU: &str = "sys/bus/event_source/devices/intel_pt";

/// A PMU of a laptop, as far as it is read here.
fn laptop() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let files = [
        ("type", "8"),
        ("format/tsc", "config:10"),
        ("format/mtc", "config:9"),
        ("format/mtc_period", "config:14-17"),
        ("format/cyc", "config:1"),
        ("format/psb_period", "config:24-27"),
        ("format/pt", "config:0"),
        ("format/branch", "config:13"),
        ("format/apart", "config1:0-3,8-11"),
        ("caps/mtc", "1"),
        ("caps/psb_cyc", "1"),
    ];
    for (name, text) in files {
        let path = root.path().join(PMU).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
    root
}

fn event(pmu: &Pmu, text: &str) -> Result<[u64; 3], PmuError> {
    pmu.event(&text.parse().unwrap())
}

#[test]
fn terms_become_the_bits_that_the_pmu_says() {
    let root = laptop();
    let pmu = Pmu::read(root.path(), "intel_pt").unwrap();
    assert_eq!(pmu.number, 8);
    // As perf 6.1 sets them, and CYC: tsc, mtc, mtc_period=3, psb_period=3, pt, branch. 0x300e601 is that of a capture of perf's.
    assert_eq!(event(&pmu, "intel_pt").unwrap(), [0x300_e601 | 1 << 1, 0, 0]);
    assert_eq!(event(&pmu, "intel_pt/cyc=0/u").unwrap(), [0x300_e601, 0, 0]);
    assert_eq!(event(&pmu, "intel_pt/cyc=0,mtc_period=0xf/").unwrap(), [0x303_e601, 0, 0]);
    assert_eq!(event(&pmu, "intel_pt/cyc=0,apart=0xa5/").unwrap(), [0x300_e601, 0xa05, 0]);
    assert_eq!(pmu.mask("mtc_period"), 0x3c000);
    fs::write(root.path().join(PMU).join("caps/psb_cyc"), "0\n").unwrap();
    assert_eq!(event(&pmu, "intel_pt").unwrap(), [0xe601, 0, 0]);
    let error = event(&pmu, "intel_pt/ptw/").unwrap_err().to_string();
    assert!(error.contains("'ptw'") && error.contains("mtc_period"), "{error}");
    let error = event(&pmu, "intel_pt/mtc_period=16/").unwrap_err().to_string();
    assert!(error.contains("15"), "{error}");
    assert_eq!(Pmu::read(root.path(), "intel_bts"), Err(PmuError::Absent("intel_bts".into())));
}

#[test]
fn what_is_no_event_is_refused_with_what_to_write() {
    for (text, words) in [
        ("", "name of a PMU"),
        ("../intel_pt", "name of a PMU"),
        ("intel_pt/cyc", "second /"),
        ("intel_pt/cyc=x/", "not a number"),
        ("intel_pt//p", "'p'"),
    ] {
        let error = text.parse::<EventSpec>().unwrap_err();
        assert!(error.contains(words), "{text}: {error}");
    }
    let spec: EventSpec = "intel_pt//u".parse().unwrap();
    assert!(spec.user_only && !spec.kernel_only && spec.terms.is_empty());
    assert!(!"intel_pt//uk".parse::<EventSpec>().unwrap().user_only);
}

/// A capture of CPU 2 as the recorder writes it: thread 41 of process 40 runs, and ticks are nanoseconds.
fn write_capture(directory: &Path, stream: &[u8]) -> CaptureInfo {
    write_filtered(directory, stream, "")
}

/// The same, with address comparators in perf's words.
fn write_filtered(directory: &Path, stream: &[u8], filter: &str) -> CaptureInfo {
    let unit = EventRequest { pmu: 8, config: [0x300_e601, 0, 0], ..EventRequest::default() };
    let written = |request: &EventRequest, id| WrittenEvent { attribute: request.bytes(), ids: vec![id] };
    let events = [written(&unit, 1), written(&EventRequest::of_tasks(&unit), 2)];
    let file = File::create_new(directory.join("perf.data")).unwrap();
    let mut writer = PerfWriter::create(file, &events).unwrap();
    let clock = PerfClock { shift: 0, mult: 1, zero: 0 };
    let mut words = vec![8, 0, 1, 0, 1, 0x400, 0x800, 3, 0, 1, 0x200, 0x3c000, 0, 0, 2, 24];
    words.extend(PtInfo::filter_words(filter));
    writer.encoder().auxtrace_info(1, &words).time_conversion(&clock);
    let id = |time| SampleId { pid: Some(40), tid: Some(41), time: Some(time), cpu: Some(2), id: Some(2) };
    writer.encoder().comm(40, 41, "program", &id(10)).switch(false, (0, 0), &id(900));
    // In two pieces, the second of which is no multiple of 8.
    for (from, until) in [(0, 32), (32, stream.len())] {
        let place = AuxPlace { bytes: (until - from) as u64, offset: from as u64, index: 0, cpu: 2 };
        let write = |mut file: &File, header: &[u8]| {
            file.write_all(header).and_then(|()| file.write_all(&stream[from..until]))
        };
        writer.aux(place, write).unwrap();
    }
    writer.encoder().finished_round();
    writer.finish(&[(Feature::Release, "6.12.0".into()), (Feature::Hostname, "laptop".into())]).unwrap();
    let info = CaptureInfo {
        schema: SCHEMA.into(),
        producer: "test".into(),
        unit: "intel_pt".into(),
        config: unit.config,
        complete: true,
        mode: CaptureMode::Full,
        aux_buffer_bytes: 4096,
        clock: Some(ClockOffset { offset_ns: 5000, drift_ns: Some(20_000) }),
        frozen: None,
        places: Vec::new(),
        cpus: vec![CpuCapture { cpu: 2, truncated: 1, ..CpuCapture::default() }],
    };
    info.write(directory).unwrap();
    info
}

#[test]
fn a_capture_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let info = write_capture(folder.path(), &whole_run());
    assert_eq!(CaptureInfo::read(folder.path()).unwrap(), Some(info));
    let capture = open(folder.path(), &Settings::default()).unwrap();
    assert_eq!(capture.clock_offset_ns, Some(5000));
    assert_eq!(capture.machine, (Some("laptop".to_owned()), Some("6.12.0".to_owned())));
    let [stream] = &capture.streams[..] else { panic!("{capture:?}") };
    assert_eq!((stream.cpu, &*stream.threads), (Some(2), &[(900, (40, 41))][..]));
    assert_eq!(stream.bytes(), whole_run().len().next_multiple_of(8) as u64);
    assert!(stream.pieces.iter().all(|piece| !piece.is_apart), "{:?}", stream.pieces);
    for words in ["drifted apart by 20000 ns", "--buffer"] {
        assert!(capture.notes.iter().any(|note| note.contains(words)), "{words}: {:?}", capture.notes);
    }
    assert!(capture.damage.is_none() && capture.missing_bytes == 0);
}

#[test]
fn a_description_that_cannot_be_written_leaves_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let info = write_capture(folder.path(), &whole_run());
    // In its way, as a full disk would be.
    std::fs::create_dir(folder.path().join(".capture.json")).unwrap();
    assert!(CaptureInfo { complete: false, ..info.clone() }.write(folder.path()).is_err());
    assert_eq!(CaptureInfo::read(folder.path()).unwrap(), Some(info));
}

#[test]
fn a_packet_that_was_cut_off_does_not_swallow_what_follows() {
    let folder = tempfile::tempdir().unwrap();
    let whole = whole_run();
    // It ends within a PTW, and the next synchronisation follows at once.
    let cut = [whole.as_slice(), &[0x02, 0x12, 1, 2]].concat();
    let stream = [cut.as_slice(), &whole].concat();
    let event = EventAttribute {
        pmu: 8,
        sample_type: 1 << 1 | 1 << 2 | 1 << 7 | 1 << 16,
        sample_id_all: true,
        ids: vec![1],
        ..EventAttribute::default()
    };
    let id = SampleId { pid: Some(40), tid: Some(41), time: Some(900), cpu: Some(2), id: Some(1) };
    let packets = |flags| {
        let mut encoder = PerfEncoder::new(vec![event.clone()]);
        encoder
            .auxtrace_info(1, &[8, 0, 1, 0, 1, 0x400, 0x800, 3, 0, 1, 0x200, 0x3c000, 0, 0, 2, 24, 0])
            .auxtrace(&stream, 0, (0, None, Some(2)))
            .aux(0, cut.len() as u64, flags, &id)
            .aux(cut.len() as u64, whole.len() as u64, 0, &id);
        let file = folder.path().join(format!("perf.data.{flags}"));
        fs::write(&file, encoder.file()).unwrap();
        let capture = open(&file, &Settings::default()).unwrap();
        assert_eq!(capture.streams[0].bytes(), stream.len().next_multiple_of(8) as u64);
        let mut lane = StreamLane::new(&capture.streams[0]);
        while lane.step(&mut Nothing).unwrap() {}
        let summary = lane.summary();
        let count =
            |name: &str| summary.packets.iter().find(|kind| kind.name == name).map_or(0, |kind| kind.count);
        (count("psb"), count("tip.pge"), count("ptw"))
    };
    // TRUNCATED says where the buffer was full.
    assert_eq!(packets(1), (2, 2, 2));
    assert_eq!(packets(0), (1, 1, 2));
}

#[test]
fn a_place_that_a_comparator_was_set_to_is_an_event_where_its_file_was_mapped() {
    let folder = tempfile::tempdir().unwrap();
    let mut info = write_capture(folder.path(), &whole_run());
    let place = |name: &str, file: &str, inside: u64| CapturedPlace {
        name: name.into(),
        file: file.into(),
        file_offset: elf::CODE_OFFSET + inside,
    };
    let work = BASE + 0x20;
    info.places = vec![
        place("work", "/opt/program", 0x20),
        place("other", "/opt/other", 0x40),
        place("outside", "/opt/program", 0x1000),
    ];
    info.write(folder.path()).unwrap();
    let off = Packet::TipPgd(Ip { bytes: IpBytes::Suppressed, payload: 0 });
    let mut stream = beginning(1000);
    stream.extend([Packet::TipPge(full(work)), off, Packet::Tsc { ticks: 1100 }]);
    // An address that has its last bytes only; and addresses that are no places.
    stream.extend([Packet::TipPge(Ip { bytes: IpBytes::Update16, payload: work & 0xffff }), off]);
    stream.extend([BASE + 0x40, BASE + 0x1000, work + 1].map(|address| Packet::TipPge(full(address))));
    fs::write(folder.path().join("perf.data"), recording(&packets(&stream))).unwrap();
    // With an image the flow is followed, too.
    let path = folder.path().join("program");
    fs::write(&path, elf::program(elf::X86_64, BASE, &code(), &FUNCTIONS)).unwrap();
    let program = NamedProgram { path, address: None };
    for settings in [Settings::default(), Settings { programs: vec![program], ..Settings::default() }] {
        let capture = open(folder.path(), &settings).unwrap();
        for name in ["other", "outside"] {
            assert!(capture.notes.iter().any(|note| note.starts_with(name)), "{name}: {:?}", capture.notes);
        }
        let (mut lane, mut events) = (StreamLane::new(&capture.streams[0]), VecDeque::new());
        while lane.advance(&mut events).unwrap() {}
        let places = events.iter().filter(|event| event.class == EventClassKind::Place);
        let found: Vec<_> =
            places.map(|event| (event.time_ns, event.numbers[0], event.thread, &*event.text)).collect();
        let thread = Some((40, 41));
        assert_eq!(found, [(Some(1000), work, thread, "work"), (Some(1100), work, thread, "work")]);
    }
}

/// Takes nothing.
struct Nothing;

impl Findings for Nothing {
    fn packet(&mut self, _: &SeenPacket<'_>) {}
    fn flow(&mut self, _: Option<u64>, _: &dyn std::fmt::Display) {}
    fn event(&mut self, _: HardwareEvent) {}
    fn lost(&mut self, _: rtscope_hardware::Lost) {}
}

#[test]
fn a_description_that_is_not_ours_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(CaptureInfo::read(folder.path()).unwrap(), None);
    let mut info = write_capture(folder.path(), &whole_run());
    for text in ["{", "[]"] {
        fs::write(folder.path().join("capture.json"), text).unwrap();
        assert!(open(folder.path(), &Settings::default()).is_err(), "{text}");
    }
    info.schema = "rtscope.hardware.capture/9".into();
    info.write(folder.path()).unwrap();
    let error = open(folder.path(), &Settings::default()).unwrap_err().to_string();
    assert!(error.contains("rtscope.hardware.capture/1"), "{error}");
}

#[test]
fn the_installed_perf_reads_a_capture() {
    // What comparators were set to is in it; perf takes its length and its end seriously.
    for filter in
        ["", "filter 0x1020/0x1@/opt/program", "filter 0x1020/0x1@/opt/program filter 0x1/0x1@/opt/a/b"]
    {
        if !perf_reads(filter) {
            rtscope_testkit::skip!("perf is not installed");
        }
    }
}

/// Whether there is a perf, which then has to read it.
fn perf_reads(filter: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    write_filtered(folder.path(), &whole_run(), filter);
    let script = |arguments: &[&str]| {
        let mut perf = Command::new("perf");
        perf.arg("script").arg("-i").arg(folder.path().join("perf.data")).args(arguments).output()
    };
    let Ok(output) = script(&["-D"]) else { return false };
    let dump = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!dump.is_empty(), "{filter}: {output:?}");
    assert!(output.status.success(), "{filter}: {output:?}");
    // Packets as perf's own decoder prints them, piece by piece, and the records of the thread.
    for (packet, count) in [
        (" PSB", 1),
        (" PTWRITE 0x2a IP:1", 1),
        (" FUP 0x401005", 1),
        (" TNT T (1)", 3),
        (" TIP.PGD 0x500000", 1),
    ] {
        let lines = dump.lines().filter(|line| line.ends_with(packet));
        assert_eq!(lines.count(), count, "{packet}: {dump}");
    }
    assert!(dump.contains("PERF_RECORD_COMM: program:40/41"), "{dump}");
    assert!(dump.contains("PERF_RECORD_SWITCH_CPU_WIDE IN"), "{dump}");
    let header = script(&["--header-only"]).unwrap();
    let header = String::from_utf8_lossy(&header.stdout).into_owned();
    assert!(header.contains("hostname : laptop") && header.contains("os release : 6.12.0"), "{header}");
    true
}

#[test]
fn an_attribute_has_the_size_that_it_says() {
    let bytes = EventRequest::default().bytes();
    assert_eq!(bytes.len(), ATTRIBUTE_BYTES);
    assert_eq!(u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize, ATTRIBUTE_BYTES);
}

#[test]
fn mappings_are_asked_for_with_both_of_the_kernels_flags() {
    const MMAP: u64 = 1 << 8;
    const MMAP2: u64 = 1 << 23;
    let flags = |request: &EventRequest| u64::from_le_bytes(request.bytes()[40..48].try_into().unwrap());
    let unit = EventRequest::default();
    // The kernel makes no record for one that has the second only.
    assert_eq!(flags(&EventRequest::of_tasks(&unit)) & (MMAP | MMAP2), MMAP | MMAP2);
    assert_eq!(flags(&unit) & (MMAP | MMAP2), 0);
}
