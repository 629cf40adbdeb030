// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures become one trace: functions on their threads, values that programs wrote, messages, losses, in order of time.

use rtscope_event::{Item, LossCause, TraceSource, Value};
use rtscope_hardware::decode::{Settings, StreamLane, Unit, open, read_catalogs};
use rtscope_hardware::etm::{Isa32, ptm, v3};
use rtscope_hardware::perfdata::encode::PerfEncoder;
use rtscope_hardware::perfdata::{EventAttribute, SampleId};
use rtscope_hardware::program::{Functions, NamedProgram, Program};
use rtscope_hardware::pt::Packet;
use rtscope_hardware::trace::{
    BranchKind, CallStack, Edge, EventClassKind, HardwareEvent, HardwareSource, Lane, LossReason,
};
use rtscope_hardware::{stp, syst};
use rtscope_testkit::elf;
use rtscope_testkit::hardware::{
    BASE, FUNCTIONS, beginning, code, full, packets, recording, taken, whole_run,
};
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

fn settings(folder: &Path) -> Settings {
    let path = folder.join("program");
    fs::write(&path, elf::program(elf::X86_64, BASE, &code(), &FUNCTIONS)).unwrap();
    Settings { programs: vec![NamedProgram { path, address: None }], ..Settings::default() }
}

/// An event as text, but for its time: name, thread, and fields.
pub(super) type Line = (i64, String);

/// All events with their times, and the causes of losses.
pub(super) fn lines(capture: &Path, settings: &Settings) -> (Vec<Line>, Vec<LossCause>) {
    let capture = open(capture, settings).unwrap();
    let lanes = capture.streams.iter().map(|stream| Box::new(StreamLane::new(stream)) as Box<dyn Lane>);
    let mut source = HardwareSource::new(lanes.collect());
    let (mut lines, mut losses) = (Vec::new(), Vec::new());
    loop {
        match source.next() {
            Item::Event(event) => {
                let class = event.class();
                let mut line = class.name.trim_start_matches("hardware:").to_owned();
                for (place, field) in class.fields.iter().enumerate() {
                    let value = match event.values.get(place) {
                        Value::Unsigned(number) if field.is_hex => format!("{number:#x}"),
                        Value::Unsigned(number) => number.to_string(),
                        Value::Signed(number) => number.to_string(),
                        Value::Bytes(text) => String::from_utf8_lossy(text).into_owned(),
                        _ => continue,
                    };
                    line += &format!(" {}={value}", field.name);
                }
                lines.push((event.time_ns, line));
            }
            Item::Lost(lost) => losses.push(lost.cause),
            Item::NothingBefore(_) => {}
            Item::End => break,
        }
    }
    assert!(source.failure().is_none());
    (lines, losses)
}

/// Entries and exits only: time, + or -, name; ? if inferred.
fn calls(lines: &[Line]) -> Vec<String> {
    let call = |(time, line): &Line| {
        let sign = match line.split_once(' ')?.0 {
            "function_entry" => '+',
            "function_exit" => '-',
            _ => return None,
        };
        let symbol = line.rsplit_once("symbol=")?.1;
        let mark = if line.contains("inferred=1") { "?" } else { "" };
        Some(format!("{time} {sign}{symbol}{mark}"))
    };
    lines.iter().filter_map(call).collect()
}

#[test]
fn functions_of_a_thread_are_entered_and_left_as_it_ran() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    fs::write(&file, recording(&whole_run())).unwrap();
    let (lines, losses) = lines(&file, &settings(folder.path()));
    let expected = [
        "1000 +main?",
        "1100 +work",
        "1100 +leaf",
        "1100 -leaf",
        "1200 -work",
        "1400 +outer",
        "1400 -outer",
        "1400 +leaf",
        "1400 -leaf",
        "1500 -main",
    ];
    assert_eq!(calls(&lines), expected, "{lines:#?}");
    assert!(losses.is_empty());
    let thread = " cpu_id=2 vpid=40 vtid=41";
    assert!(lines.iter().all(|(_, line)| line.contains(thread)), "{lines:#?}");
    let write = lines.iter().find(|(_, line)| line.starts_with("write")).unwrap();
    assert_eq!(*write, (1300, format!("write{thread} value=0x2a address=0x401005 symbol=main")));
}

#[test]
fn an_overflow_ends_what_nobody_saw_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let mut stream = beginning(1000);
    stream.extend([
        Packet::TipPge(full(BASE)),
        Packet::Tsc { ticks: 1100 },
        taken(),
        Packet::Tsc { ticks: 1200 },
        Packet::Ovf,
        Packet::Tsc { ticks: 1300 },
        Packet::Fup(full(BASE + 0x60)),
        Packet::TipPgd(full(0x50_0000)),
    ]);
    fs::write(&file, recording(&packets(&stream))).unwrap();
    let (lines, losses) = lines(&file, &settings(folder.path()));
    assert_eq!(losses, [LossCause::Overrun]);
    let open = calls(&lines).iter().fold(0, |open, call| open + if call.contains('+') { 1 } else { -1 });
    assert_eq!(open, 0, "each entry has its exit: {lines:#?}");
    let lost = lines.iter().position(|(_, line)| line.starts_with("lost")).unwrap();
    let (before, after) = lines.split_at(lost);
    assert_eq!(calls(before).last().map(String::as_str), Some("1200 -main?"));
    assert_eq!(calls(after).first().map(String::as_str), Some("1300 +leaf?"));
}

#[test]
fn another_program_is_said_and_nothing_is_invented() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    fs::write(&file, recording(&whole_run())).unwrap();
    let settings = settings(folder.path());
    // The same names, but where work was called there is a conditional branch.
    let mut other = code();
    other[0] = 0x74;
    other[1] = 0xfe;
    let path = &settings.programs[0].path;
    fs::write(path, elf::program(elf::X86_64, BASE, &other, &FUNCTIONS)).unwrap();
    let (lines, losses) = lines(&file, &settings);
    assert!(losses.contains(&LossCause::Unreadable), "{lines:#?}");
    assert!(!calls(&lines).iter().any(|call| call.contains("work")), "{lines:#?}");
}

#[test]
fn without_an_image_what_packets_say_remains() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    fs::write(&file, recording(&whole_run())).unwrap();
    let (lines, _) = lines(&file, &Settings::default());
    let write = " cpu_id=2 vpid=40 vtid=41 value=0x2a address=0x401005 symbol=";
    assert_eq!(lines, [(1300, format!("write{write}"))]);
    let notes = open(&file, &Settings::default()).unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("--image") && note.contains("/opt/program")), "{notes:?}");
}

/// The same run as PTM and ETMv3 write it: main calls work, which returns.
fn run_of(unit: Unit, main: u32, work: u32) -> Vec<u8> {
    let (isa, before, after) = (Isa32::A32, 1_000_000_000, 1_000_000_500);
    let begin = |address| (address, isa, ptm::Reason::Periodic, 0);
    let (address, isa, reason, context) = begin(main);
    if unit == Unit::Ptm {
        let mut encoder = ptm::Encoder::new(&ptm::Config::default());
        encoder.synchronise(address, isa, reason, context);
        encoder.timestamp(before, 0);
        encoder.atom(true, 0);
        encoder.branch(main + 4, isa, None, 0);
        encoder.atom(true, 0);
        encoder.timestamp(after, 0);
        return encoder.finish();
    }
    assert_eq!(work, main + 0x20);
    let mut encoder = v3::Encoder::new(&v3::Config::default());
    encoder.synchronise(address, isa, reason, context);
    encoder.timestamp(before);
    encoder.instruction(true);
    encoder.instruction(true);
    encoder.branch(main + 4, isa, None);
    encoder.instruction(true);
    encoder.timestamp(after);
    encoder.finish()
}

#[test]
fn functions_of_a_32_bit_arm_are_entered_and_left_as_it_ran() {
    /// BL to 0x20, B to itself; and there BX LR.
    const CODE: [u32; 9] = [0xeb00_0006, 0xeaff_fffe, 0, 0, 0, 0, 0, 0, 0xe12f_ff1e];
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let code: Vec<u8> = CODE.iter().flat_map(|word| word.to_le_bytes()).collect();
    let functions = [("main", 0, 0x20), ("work", 0x20, 4)];
    fs::write(&program, elf::program(elf::ARM, 0x8000, &code, &functions)).unwrap();
    for unit in [Unit::Etm3, Unit::Ptm] {
        let file = folder.path().join(unit.name());
        fs::write(&file, run_of(unit, 0x8000, 0x8020)).unwrap();
        let settings = Settings {
            unit: Some(unit),
            clock_hz: Some(1_000_000_000),
            programs: vec![NamedProgram { path: program.clone(), address: None }],
            ..Settings::default()
        };
        let (lines, losses) = lines(&file, &settings);
        let expected = ["1000000500 +main?", "1000000500 +work", "1000000500 -work", "1000000500 -main?"];
        assert_eq!(calls(&lines), expected, "{}: {lines:#?}", unit.name());
        assert!(losses.is_empty());
        let stream = open(&file, &settings).unwrap().streams.remove(0);
        assert_eq!(stream.kind.name(), unit.name());
        // A perf.data says itself which unit it was, by its identification register.
        fs::write(&file, arm_recording(unit, &run_of(unit, 0x8000, 0x8020))).unwrap();
        let settings = Settings { unit: None, ..settings };
        let (lines, losses) = self::lines(&file, &settings);
        assert_eq!(calls(&lines), expected, "{}: {lines:#?}", unit.name());
        assert!(losses.is_empty(), "{losses:?}");
        let stream = open(&file, &settings).unwrap().streams.remove(0);
        assert_eq!((stream.kind.name(), stream.cpu), (unit.name(), Some(1)));
    }
}

/// What perf records of the unit of CPU 1 without frames; CPU 0 has one of the other kind.
fn arm_recording(unit: Unit, stream: &[u8]) -> Vec<u8> {
    const CS_ETM: u32 = 3;
    const ETM3: u64 = 0x3030_3030_3030_3030;
    const FORMAT_RAW: u64 = 1 << 8;
    let (ptm, v3) = (ptm::Config::default(), v3::Config::default());
    let of_ptm = [ptm.control.into(), ptm.trace_id.into(), ptm.capabilities.into(), ptm.id.into()];
    let of_v3 = [v3.control.into(), v3.trace_id.into(), v3.capabilities.into(), v3.id.into()];
    let cpus: [[u64; 4]; 2] = if unit == Unit::Ptm { [of_v3, of_ptm] } else { [of_ptm, of_v3] };
    // The version, the PMU and the number of CPUs, no snapshot.
    let mut words = vec![1, 9 << 32 | 2, 0];
    (0..).zip(cpus).for_each(|(cpu, registers)| words.extend([ETM3, cpu, 4].into_iter().chain(registers)));
    let event = EventAttribute {
        pmu: 9,
        // TID, TIME, CPU, IDENTIFIER.
        sample_type: 1 << 1 | 1 << 2 | 1 << 7 | 1 << 16,
        sample_id_all: true,
        ids: vec![1],
        ..EventAttribute::default()
    };
    let id = SampleId { pid: Some(40), tid: Some(41), time: Some(900), cpu: Some(1), id: Some(1) };
    let mut encoder = PerfEncoder::new(vec![event]);
    encoder.auxtrace_info(CS_ETM, &words).aux(0, stream.len() as u64, FORMAT_RAW, &id).auxtrace(
        stream,
        0,
        (0, None, Some(1)),
    );
    encoder.file()
}

#[test]
fn functions_in_t32_begin_at_their_first_instruction() {
    let bytes = elf::program(elf::ARM, 0x8000, &[0; 16], &[("a32", 0, 8), ("t32", 9, 8)]);
    let program = Program::parse(Path::new("p"), &bytes).unwrap();
    let addresses: Vec<_> = program.functions.iter().map(|function| function.address).collect();
    assert_eq!(addresses, [0x8000, 0x8008]);
}

#[test]
fn messages_of_an_stm_have_the_time_that_its_frequency_gives() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stm.bin");
    let mut encoder = stp::Encoder::new();
    encoder.sync().frequency(1_000_000, None).master(5).channel(2);
    encoder.data(stp::Width::D32, u64::from(u32::from_le_bytes(*b"motr")), Some(2_000)).flag(None);
    encoder.data(stp::Width::D16, 0xff00, Some(3_000)).flag(None);
    fs::write(&file, encoder.finish()).unwrap();
    let settings = Settings { unit: Some(Unit::Stp), ..Settings::default() };
    let (lines, _) = lines(&file, &settings);
    let expected = [
        (2_000_000, "message master=5 channel=2 size=4 text=motr"),
        (3_000_000, "message master=5 channel=2 size=2 text=00ff"),
    ];
    assert_eq!(lines, expected.map(|(time, line)| (time, line.to_owned())));
}

/// A message of SyS-T in channel 2 of master 5, as Linux's p_sys-t sends them.
fn send(encoder: &mut stp::Encoder, ticks: u64, bytes: &[u8]) {
    for (place, byte) in bytes.iter().enumerate() {
        encoder.data(stp::Width::D8, u64::from(*byte), (place == 0).then_some(ticks));
    }
    encoder.flag(None);
}

#[test]
fn messages_of_sys_t_are_events_with_their_text_and_who_sent_them() {
    let folder = tempfile::tempdir().unwrap();
    let (file, catalog) = (folder.path().join("stm.bin"), folder.path().join("motor.xml"));
    let mut encoder = stp::Encoder::new();
    encoder.sync().frequency(1_000_000, None).master(5).channel(2);
    let location = Some(syst::Location::Line { file: 3, line: 9 });
    let origin = syst::Origin::Module(4);
    let sender =
        syst::Encoder { origin, unit: 6, location, ticks: Some(77), has_length: true, has_checksum: true };
    let warning = syst::Severity::Warning;
    let payload = [&16_u32.to_le_bytes()[..], &(-250_i32).to_le_bytes()].concat();
    let told = sender.message(3, 1, warning, &payload);
    send(&mut encoder, 2_000, &told);
    // Changed on the way.
    let mut changed = told.clone();
    changed[23] ^= 4;
    send(&mut encoder, 3_000, &changed);
    // A format that nobody has, and no message of SyS-T.
    let short = syst::Encoder { location: None, ticks: None, has_checksum: false, ..sender };
    send(&mut encoder, 4_000, &short.message(3, 1, warning, &[17, 0, 0, 0, 0xab]));
    send(&mut encoder, 5_000, b"\x0fmotr");
    // Text of others begins as short ones do, and one that says too little of its length.
    send(&mut encoder, 6_000, b"a quick brown fox");
    send(&mut encoder, 7_000, b"good morning");
    send(&mut encoder, 8_000, &0x1231_u32.to_le_bytes());
    let cut = syst::Encoder { has_checksum: true, ..short }.message(2, 1, warning, b"stop");
    send(&mut encoder, 9_000, &[&cut[..], b"more"].concat());
    // A few bytes that make a long text.
    let long = [&b"%4000d%4000d\0"[..], &[1, 0, 0, 0, 2, 0, 0, 0]].concat();
    send(&mut encoder, 10_000, &short.message(2, 11, warning, &long));
    fs::write(&file, encoder.finish()).unwrap();
    fs::write(
        &catalog,
        r#"<Collateral><Client Name="motor"><Modules><Module ID="4">driver</Module></Modules>
        <SourceFiles><File ID="3">motor.c</File></SourceFiles>
        <Catalog32><Format ID="16">speed %d</Format></Catalog32></Client></Collateral>"#,
    )
    .unwrap();
    let sys_t = Some(Arc::new(read_catalogs(&[catalog]).unwrap()));
    let settings = Settings { unit: Some(Unit::Stp), sys_t, ..Settings::default() };
    let (lines, _) = lines(&file, &settings);
    let of = |kind: &str| format!("severity=WARNING kind={kind} origin=driver unit=6");
    let place = "location=motor.c:9 ticks=77 fault=";
    let (id, plain) = (of("CATALOG:ID32P32"), of("STRING:GENERIC"));
    let expected = [
        format!("sys_t master=5 channel=2 text=speed -250 {id} {place}"),
        format!("sys_t master=5 channel=2 text=speed -254 {id} {place}its checksum is wrong"),
        format!(
            "sys_t master=5 channel=2 text=0x11 ab {id} location= ticks= fault=its number is not in the collateral"
        ),
        "message master=5 channel=2 size=5 text=0f6d6f7472".to_owned(),
        "message master=5 channel=2 size=17 text=a quick brown fox".to_owned(),
        "message master=5 channel=2 size=12 text=good morning".to_owned(),
        "sys_t master=5 channel=2 text=0x123 severity= kind=SHORT32 origin= unit= location= ticks= \
         fault=its number is not in the collateral"
            .to_owned(),
        format!(
            "sys_t master=5 channel=2 text=stop {plain} location= ticks= fault=4 more bytes than its length says"
        ),
    ];
    let expected: Vec<Line> = (2..).zip(expected).map(|(time, line)| (time * 1_000_000, line)).collect();
    assert_eq!(lines[..8], expected);
    let (time, long) = &lines[8];
    assert_eq!((*time, long.len() < 4_500), (10_000_000, true), "{}", long.len());
    assert!(long.ends_with("fault=longer than 4096 bytes"), "{long}");
}

#[test]
fn messages_of_an_stm_that_became_no_event_are_losses() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stm.bin");
    let mut encoder = stp::Encoder::new();
    encoder.sync().frequency(1_000_000, None).master(5).channel(2);
    send(&mut encoder, 1_000, b"first");
    send(&mut encoder, 2_000, &[b'x'; 70_000]);
    send(&mut encoder, 3_000, b"second");
    encoder.data(stp::Width::D8, 1, Some(4_000));
    fs::write(&file, encoder.finish()).unwrap();
    let (lines, losses) = lines(&file, &Settings { unit: Some(Unit::Stp), ..Settings::default() });
    let lost = "lost bytes=0 cause=an incomplete message, one that is too long, or too many at once";
    let expected = [
        (1_000_000, "message master=5 channel=2 size=5 text=first"),
        (1_000_000, lost),
        (3_000_000, "message master=5 channel=2 size=6 text=second"),
        (3_000_000, lost),
    ];
    assert_eq!(lines, expected.map(|(time, line)| (time, line.to_owned())));
    assert_eq!(losses, [LossCause::Unreadable; 2]);
}

#[test]
fn what_is_decoded_at_once_is_a_few_kib_of_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("spe.bin");
    // Each byte is a record.
    fs::write(&file, [1; 100_000]).unwrap();
    let capture = open(&file, &Settings { unit: Some(Unit::Spe), ..Settings::default() }).unwrap();
    let mut lane = StreamLane::new(&capture.streams[0]);
    let (mut all, mut most) = (0, 0);
    let mut events = VecDeque::new();
    while lane.advance(&mut events).unwrap() {
        (all, most) = (all + events.len(), most.max(events.len()));
        events.clear();
    }
    assert_eq!((all, most), (100_000, 4096));
}

/// A stream that is a list.
struct List(VecDeque<HardwareEvent>);

impl Lane for List {
    fn advance(&mut self, out: &mut VecDeque<HardwareEvent>) -> io::Result<bool> {
        // One at a time: a source has to ask again.
        out.extend(self.0.pop_front());
        Ok(!self.0.is_empty())
    }
}

#[test]
fn streams_are_merged_and_what_has_no_time_is_counted() {
    let event = |time_ns| HardwareEvent {
        time_ns,
        ..HardwareEvent::new(EventClassKind::Write, &[time_ns.unwrap_or(0)], "".into())
    };
    let lane =
        |times: &[Option<u64>]| Box::new(List(times.iter().copied().map(event).collect())) as Box<dyn Lane>;
    let first = lane(&[None, Some(10), Some(30), Some(20), Some(40)]);
    let second = lane(&[Some(5), Some(35), None]);
    let mut source = HardwareSource::new(vec![first, second]);
    let mut times = Vec::new();
    while let Item::Event(event) = source.next() {
        times.push(event.time_ns);
    }
    assert_eq!(times, [5, 10, 30, 30, 35, 40]);
    let totals = source.totals;
    assert_eq!((totals.events, totals.untimed, totals.moved, totals.moved_ns), (6, 2, 1, 10));
}

#[test]
fn a_loss_without_a_time_has_that_of_the_event_before_it() {
    let write =
        |time_ns| HardwareEvent { time_ns, ..HardwareEvent::new(EventClassKind::Write, &[1], "".into()) };
    let lost = || HardwareEvent::lost(LossReason::Unreadable, 7);
    let events = vec![lost(), write(Some(10)), lost(), write(Some(20))];
    let mut source = HardwareSource::new(vec![Box::new(List(events.into()))]);
    let mut found = Vec::new();
    loop {
        match source.next() {
            Item::Event(event) => found.push(event.time_ns),
            Item::End => break,
            _ => {}
        }
    }
    // Before the first time it is told there.
    assert_eq!(found, [10, 10, 10, 20]);
    assert_eq!(source.totals.untimed, 0);
}

#[test]
fn losses_of_a_stream_without_times_are_at_the_end_of_the_trace() {
    let write =
        |time_ns| HardwareEvent { time_ns, ..HardwareEvent::new(EventClassKind::Write, &[1], "".into()) };
    let lost = || HardwareEvent::lost(LossReason::Unreadable, 7);
    let given = |lanes: Vec<Vec<HardwareEvent>>| {
        let lane = |events: Vec<HardwareEvent>| Box::new(List(events.into())) as Box<dyn Lane>;
        let mut source = HardwareSource::new(lanes.into_iter().map(lane).collect());
        source.offset_ns = 1_000;
        let (mut times, mut losses) = (Vec::new(), 0);
        loop {
            match source.next() {
                Item::Event(event) => times.push(event.time_ns),
                Item::Lost(_) => losses += 1,
                Item::NothingBefore(_) => {}
                Item::End => break,
            }
        }
        (times, losses, source.totals.untimed)
    };
    let timed = vec![write(Some(10)), write(Some(20))];
    let untimed = vec![lost(), write(None), lost()];
    assert_eq!(given(vec![untimed.clone(), timed]), (vec![1_010, 1_020, 1_020, 1_020], 2, 1));
    // Where nothing has a time they have none.
    assert_eq!(given(vec![untimed]), (Vec::new(), 0, 3));
    // Any number of them takes bounded memory.
    let many = (0..10_000).map(|_| lost()).chain([write(Some(10))]).collect();
    assert_eq!(given(vec![many]), (vec![1_010; 4097], 4096, 10_000 - 4096));
}

/// A thread's functions by branches: what comes out.
fn follow(edges: &[(BranchKind, u64, u64)]) -> (Vec<String>, CallStack) {
    let program =
        Program::parse(Path::new("p"), &elf::program(elf::X86_64, BASE, &code(), &FUNCTIONS)).unwrap();
    let mut functions = Functions::default();
    functions.add(&program, 0);
    let (mut stack, mut out) = (CallStack::new(), Vec::new());
    let mut take = |event: HardwareEvent| {
        let sign = if event.class == EventClassKind::FunctionEntry { '+' } else { '-' };
        let mark = if event.numbers[1] == 1 { "?" } else { "" };
        out.push(format!("{sign}{}{mark}", event.text));
    };
    for (kind, from, to) in edges {
        let edge = Edge { from: BASE + from, next: BASE + from + 5, to: BASE + to, kind: *kind };
        stack.edge(&edge, &functions, &mut take);
    }
    (out, stack)
}

#[test]
fn a_return_over_several_functions_leaves_all_of_them() {
    // main calls work, work calls leaf, and leaf returns to main (longjmp).
    let (events, stack) =
        follow(&[(BranchKind::Call, 0, 0x20), (BranchKind::Call, 0x20, 0x60), (BranchKind::Return, 0x60, 5)]);
    assert_eq!(events, ["+main?", "+work", "+leaf", "-leaf", "-work?"]);
    assert_eq!(stack.depth(), 1);
}

#[test]
fn a_call_of_the_next_instruction_enters_nothing() {
    let (events, _) = follow(&[(BranchKind::Call, 0, 5)]);
    assert_eq!(events, ["+main?"]);
}

#[test]
fn an_interrupt_comes_back_to_where_it_was() {
    let interrupt = (BranchKind::Exception, 0x22, 0x60);
    let (events, stack) = follow(&[(BranchKind::Call, 0, 0x20), interrupt, (BranchKind::Far, 0x60, 0x22)]);
    assert_eq!(events, ["+main?", "+work", "+leaf", "-leaf"]);
    assert_eq!(stack.depth(), 2);
}

#[test]
fn endless_recursion_takes_bounded_memory_and_is_counted() {
    let edges = vec![(BranchKind::Call, 0x20, 0x20); 10_000];
    let (events, stack) = follow(&edges);
    assert_eq!((stack.depth(), stack.dropped), (8192, 10_001 - 8192));
    // What was dropped has ended for the reader.
    let ended = events.iter().filter(|event| *event == "-work?").count() as u64;
    assert_eq!(ended, stack.dropped);
}
