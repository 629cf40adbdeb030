// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope hardware`: the inventory of this machine, and captures decoded and put into one trace, up to Perfetto's own tables.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use rtscope_hardware::perfdata::encode::PerfEncoder;
use rtscope_hardware::perfdata::{Branch, EventAttribute, SampleId};
use rtscope_hardware::{stp, syst};
use rtscope_testkit::hardware::{BASE, FUNCTIONS, code, recording, whole_run};
use rtscope_testkit::perfetto::{COMPLAINTS, engine, query};
use rtscope_testkit::{babeltrace2, elf};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The record before AUX data, whose size is a multiple of 8 as all are.
const AUXTRACE_BYTES: usize = 48;

fn rtscope(arguments: &[&str]) -> Output {
    // Sentences are looked for, which are broken where the line ends.
    Command::new(env!("CARGO_BIN_EXE_rtscope")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap()
}

/// A recording and its program in a directory.
fn written(folder: &Path) -> (PathBuf, PathBuf) {
    let (file, program) = (folder.join("perf.data"), folder.join("program"));
    fs::write(&file, recording(&whole_run())).unwrap();
    fs::write(&program, elf::program(elf::X86_64, BASE, &code(), &FUNCTIONS)).unwrap();
    (file, program)
}

fn decode(file: &Path, arguments: &[&str]) -> Output {
    let mut all = vec!["hardware", "decode", file.to_str().unwrap()];
    all.extend(arguments);
    rtscope(&all)
}

#[test]
fn the_inventory_is_the_same_as_text_as_json_and_in_caps() {
    let report = json(&rtscope(&["hardware", "--json"]));
    assert_eq!(report["schema"], "rtscope.hardware/1");
    let units = report["units"].as_array().unwrap();
    let text = stdout(&rtscope(&["hardware"]));
    let caps: Value = serde_json::from_slice(&rtscope(&["caps", "--json"]).stdout).unwrap();
    assert_eq!(&caps["hardware"]["units"], &report["units"]);
    for unit in units {
        let (name, why) = (unit["name"].as_str().unwrap(), unit["why"].as_str().unwrap());
        assert!(text.contains(name) && text.contains(why), "{name}: {text}");
    }
    for id in
        ["intel_pt", "intel_bts", "intel_lbr", "amd_lbr", "etm", "ete", "trbe", "spe", "stm", "counters"]
    {
        assert!(units.iter().any(|unit| unit["id"] == id), "{id}");
    }
}

#[test]
fn a_unit_that_is_not_there_is_refused_with_the_reason() {
    if Path::new("/sys/bus/event_source/devices/intel_pt").exists() {
        rtscope_testkit::skip!("this machine has Intel PT");
    }
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("capture");
    let capture = rtscope(&["hardware", "capture", "intel_pt", "-o", target.to_str().unwrap()]);
    let late = folder.path().join("late");
    let (late, threshold) = (late.to_str().unwrap(), ["--threshold", "1ms"]);
    let watch = ["watch", "response", "--hardware", "intel_pt", "--snapshot-dir", late];
    let watch = rtscope(&[&watch[..], &threshold].concat());
    let inventory = json(&rtscope(&["hardware", "--json"]));
    let units = inventory["units"].as_array().unwrap();
    let unit = units.iter().find(|unit| unit["id"] == "intel_pt").unwrap();
    for output in [&capture, &watch] {
        assert_eq!(output.status.code(), Some(3), "{}", stderr(output));
        let why = unit["why"].as_str().unwrap();
        assert!(stderr(output).contains(why), "{why}: {}", stderr(output));
    }
    assert!(!target.exists());
    let other = rtscope(&["hardware", "capture", "no_such_unit", "-o", target.to_str().unwrap()]);
    assert_eq!(other.status.code(), Some(3));
    assert!(stderr(&other).contains("no PMU no_such_unit"), "{}", stderr(&other));
}

#[test]
fn a_recording_is_told_in_numbers_and_packet_by_packet() {
    let folder = tempfile::tempdir().unwrap();
    let (file, program) = written(folder.path());
    let report = json(&decode(&file, &["--json", "--image", program.to_str().unwrap()]));
    assert_eq!(report["schema"], "rtscope.hardware.decode/1");
    let stream = &report["streams"][0];
    assert_eq!((&stream["name"], &stream["unit"]), (&"CPU 2".into(), &"pt".into()));
    let count = |list: &str, name: &str| {
        let kinds = stream[list].as_array().unwrap();
        kinds.iter().find(|kind| kind["name"] == name).map_or(0, |kind| kind["count"].as_u64().unwrap())
    };
    assert_eq!((count("packets", "tnt.8"), count("packets", "tsc"), count("packets", "ptw")), (3, 6, 1));
    assert_eq!((count("events", "hardware:function_entry"), count("events", "hardware:write")), (5, 1));
    let packets = stdout(&decode(&file, &["--packets", "--time"]));
    assert!(packets.lines().any(|line| line.contains("1300") && line.contains("ptw 2a")), "{packets}");
    let flow = stdout(&decode(&file, &["--flow", "--image", program.to_str().unwrap()]));
    assert!(flow.contains("<leaf>") && flow.contains("<work+0x5>"), "{flow}");
}

#[test]
fn functions_become_slices_on_their_thread_in_perfetto() {
    let folder = tempfile::tempdir().unwrap();
    let (file, program) = written(folder.path());
    let trace = folder.path().join("trace");
    let trace = trace.to_str().unwrap();
    let text = stdout(&decode(&file, &["--image", program.to_str().unwrap(), "-o", trace]));
    assert!(text.contains("11 events in 1 stream"), "{text}");
    let printed =
        stdout(&rtscope(&["print", trace, "--event", "hardware:function_entry", "--format", "json"]));
    assert_eq!(printed.lines().count(), 5);
    let stat = json(&rtscope(&["stat", trace, "--json"]));
    assert_eq!(stat["events"], 11, "{stat}");
    let Some(engine) = engine() else { return };
    let out = folder.path().join("trace.pftrace");
    let output = rtscope(&["convert", trace, out.to_str().unwrap(), "--to", "perfetto"]);
    assert_eq!(stderr(&output), "");
    let slices = "select th.tid, s.name, s.dur from slice s join thread_track t on t.id = s.track_id \
        join thread th using (utid) where s.dur > 0 or s.name in ('outer', 'leaf') order by s.ts, s.id";
    let answers = query(&engine, &out, &[COMPLAINTS, slices]);
    assert!(answers[0].is_empty(), "{:?}", answers[0]);
    let row = |row: &Vec<Value>| format!("{} {} {}", row[0], row[1].as_str().unwrap(), row[2]);
    let found: Vec<String> = answers[1].iter().map(row).collect();
    assert_eq!(found, ["41 main 500", "41 work 100", "41 leaf 0", "41 outer 0", "41 leaf 0"]);
}

#[test]
fn branch_stacks_from_a_pipe_become_a_trace() {
    let event = EventAttribute {
        // IP, TID, TIME, CPU, BRANCH_STACK.
        sample_type: 1 | 1 << 1 | 1 << 2 | 1 << 7 | 1 << 11,
        ..EventAttribute::default()
    };
    let mut encoder = PerfEncoder::new(vec![event]);
    let id = |time| SampleId { pid: Some(7), tid: Some(8), time: Some(time), cpu: Some(1), id: None };
    let branch = |from, to| Branch { from, to, flags: 1 | 9 << 4 };
    // Two CPUs' records, not in order within a round.
    encoder.sample(&id(2_000), 0x10, &[branch(0x30, 0x40), branch(0x10, 0x20)]);
    encoder.sample(&id(1_000), 0x50, &[branch(0x50, 0x60)]).finished_round();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let mut child = Command::new(env!("CARGO_BIN_EXE_rtscope"))
        .args(["hardware", "decode", "-", "-o", trace.to_str().unwrap(), "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &encoder.pipe()).unwrap();
    let report = json(&child.wait_with_output().unwrap());
    assert_eq!((&report["trace"]["events"], &report["trace"]["moved"]), (&3.into(), &0.into()));
    let printed = stdout(&rtscope(&["print", trace.to_str().unwrap(), "--format", "json"]));
    let from = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        event["fields"]["from"].as_u64().or_else(|| event["payload"]["from"].as_u64())
    };
    let order: Vec<Option<u64>> = printed.lines().map(from).collect();
    assert_eq!(order, [Some(0x50), Some(0x10), Some(0x30)], "{printed}");
}

#[test]
fn branch_stacks_of_a_damaged_file_are_there_up_to_the_damage() {
    // TID, TIME, CPU, BRANCH_STACK.
    let sample_type = 1 << 1 | 1 << 2 | 1 << 7 | 1 << 11;
    let mut encoder = PerfEncoder::new(vec![EventAttribute { sample_type, ..EventAttribute::default() }]);
    for time in [1_000, 2_000, 3_000] {
        let id = SampleId { pid: Some(7), tid: Some(8), time: Some(time), cpu: Some(1), id: None };
        encoder.sample(&id, 0, &[Branch { from: time, to: 0x20, flags: 2 }]);
    }
    let whole = encoder.file();
    let folder = tempfile::tempdir().unwrap();
    let (file, trace) = (folder.path().join("perf.data"), folder.path().join("trace"));
    fs::write(&file, &whole[..whole.len() - 16]).unwrap();
    let packets = decode(&file, &["--packets"]);
    let shown = String::from_utf8_lossy(&packets.stdout);
    assert_eq!(packets.status.code(), Some(5), "{}", stderr(&packets));
    assert!(
        shown.contains("0x3e8/0x20/P") && shown.contains("0x7d0/") && !shown.contains("0xbb8"),
        "{shown}"
    );
    let written = decode(&file, &["-o", trace.to_str().unwrap()]);
    assert_eq!(written.status.code(), Some(5), "{}", stderr(&written));
    let told = &json(&rtscope(&["stat", "--json", trace.to_str().unwrap()]))["traces"][0];
    assert!(told["losses"].as_array().is_some_and(|losses| !losses.is_empty()), "{told}");
    let printed = stdout(&rtscope(&["print", trace.to_str().unwrap()]));
    assert_eq!(printed.lines().filter(|line| line.contains("hardware:branch")).count(), 2, "{printed}");
}

#[test]
fn messages_of_sys_t_are_texts_for_any_reader_of_traces() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let origin = syst::Origin::Module(4);
    let (location, ticks) = (None, None);
    let sender = syst::Encoder { origin, unit: 6, location, ticks, has_length: true, has_checksum: true };
    let mut encoder = stp::Encoder::new();
    encoder.sync().frequency(1_000_000, None).master(5).channel(2);
    for (ticks, speed) in [(2_000, 250_u32), (3_000, 7)] {
        let payload = [16, speed].map(u32::to_le_bytes).concat();
        let message = sender.message(3, 1, syst::Severity::Warning, &payload);
        for (place, byte) in message.into_iter().enumerate() {
            encoder.data(stp::Width::D8, byte.into(), (place == 0).then_some(ticks));
        }
        encoder.flag(None);
    }
    fs::write(path("stm.bin"), encoder.finish()).unwrap();
    let catalog = r#"<Client Name="motor"><Modules><Module ID="4">driver</Module></Modules>
        <Catalog32><Format ID="16">speed %d&#10;</Format></Catalog32></Client>"#;
    fs::write(path("motor.xml"), catalog).unwrap();
    let decode = |options: &[&str], trace: &Path| {
        let output = ["--unit", "stp", "-o", trace.to_str().unwrap()];
        stdout(&decode(&path("stm.bin"), &[&output[..], options].concat()));
    };
    let catalog = path("motor.xml");
    decode(&["--sys-t-catalog", catalog.to_str().unwrap()], &path("named"));
    decode(&["--sys-t"], &path("numbers"));
    decode(&[], &path("bytes"));
    let texts = |name: &str| {
        let printed = stdout(&rtscope(&["print", path(name).to_str().unwrap(), "--format", "json"]));
        let text = |line: &str| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["fields"]["text"].as_str().map(str::to_owned)
        };
        printed.lines().map(text).collect::<Vec<_>>()
    };
    let expected = |texts: [&str; 2]| texts.map(|text| Some(text.to_owned())).to_vec();
    assert_eq!(texts("named"), expected(["speed 250", "speed 7"]));
    assert_eq!(texts("numbers"), expected(["0x10 fa000000", "0x10 07000000"]));
    assert!(texts("bytes").iter().all(|text| text.as_ref().is_some_and(|text| text.starts_with("3"))));
    let Some(read) = babeltrace2::text(&path("named"), &[]) else { return };
    assert!(read.contains("speed 250") && read.contains("\"driver\"") && read.contains("WARNING"), "{read}");
}

#[test]
fn what_is_wrong_is_said_with_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = written(folder.path());
    let path = |name: &str| folder.path().join(name);
    let refused = |output: Output, code: i32, text: &str| {
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains(text), "{}", stderr(&output));
    };
    fs::write(path("raw"), [0; 64]).unwrap();
    refused(decode(&path("raw"), &[]), 2, "--unit");
    refused(decode(&path("raw"), &["--unit", "pt"]), 5, "is that the unit?");
    refused(decode(&path("none"), &[]), 1, "No such file");
    refused(decode(folder.path(), &[]), 5, "snapshot.ini");
    // BTS has no times, so it cannot be a trace.
    fs::write(path("bts"), [1; 48]).unwrap();
    refused(decode(&path("bts"), &["--unit", "bts", "-o", path("t").to_str().unwrap()]), 2, "BTS has none");
    assert!(!path("t").exists(), "nothing is left");
    // Cut within a record, and within the AUX data.
    let whole = fs::read(&file).unwrap();
    fs::write(path("cut"), &whole[..whole.len() - 8]).unwrap();
    refused(decode(&path("cut"), &["--fail-if-lost"]), 6, "missing");
    let trace = path("trace");
    refused(decode(&path("cut"), &["--fail-if-lost", "-o", trace.to_str().unwrap()]), 6, "missing");
    let losses = &json(&rtscope(&["stat", "--json", trace.to_str().unwrap()]))["traces"][0]["losses"];
    assert!(losses.as_array().is_some_and(|losses| !losses.is_empty()), "{losses}");
    fs::write(path("cut"), &whole[..whole.len() - 8 - whole_run().len() - 20]).unwrap();
    refused(decode(&path("cut"), &[]), 5, "within a record");
    // Between two records: what the header promises is not there.
    let records = whole.len() - whole_run().len() - AUXTRACE_BYTES;
    fs::write(path("cut"), &whole[..records]).unwrap();
    refused(decode(&path("cut"), &[]), 5, "should have");
    for (options, text) in [
        (&["--source", "1=etm4", "--unit", "pt"][..], "--unit frames"),
        (&["--time"], "--packets or --flow"),
        (&["--tsc-ratio", "2/1"], "--unit pt"),
        (&["--clock-hz", "0"], "--clock-hz"),
        (&["--mtc-freq", "16"], "--mtc-freq"),
        (&["--sys-t"], "--output"),
        (&["--sys-t", "-o", "t", "--unit", "pt"], "messages of an STM"),
        (&["--sys-t-catalog", "/proc/self/exe", "-o", "t", "--programs", "p"], "--programs"),
    ] {
        refused(decode(&file, options), 2, text);
    }
    refused(decode(folder.path(), &["--unit", "pt"]), 2, "snapshot directory");
    let none = decode(&file, &["--sys-t", "-o", path("no-stm").to_str().unwrap()]);
    assert!(stderr(&none).contains("no stream of an STM"), "{}", stderr(&none));
    let catalog = path("catalog.xml");
    for (content, text) in
        [("no XML", "not XML"), ("<Client><Modules><Module ID='x'/></Modules></Client>", "'x'")]
    {
        fs::write(&catalog, content).unwrap();
        refused(
            decode(&path("raw"), &["--unit", "stp", "-o", "t", "--sys-t-catalog", catalog.to_str().unwrap()]),
            2,
            text,
        );
    }
    let image = ["--image", "/proc/self/exe"];
    refused(decode(&path("raw"), &[&image[..], &["--unit", "stp"]].concat()), 2, "--image");
    let frames = ["--unit", "frames", "--source", "1=stp", "--source", "2=itm"];
    refused(decode(&path("raw"), &[&image[..], &frames].concat()), 2, "--image");
    let whole = decode(&file, &["--fail-if-lost"]);
    assert!(whole.status.success(), "{}", stderr(&whole));
}
