// SPDX-License-Identifier: Apache-2.0 OR MIT
//! docs/json.md is true: it describes each schema of the program's list and no other, its examples are as its tables say, and so is
//! what the program prints.
//!
//! The tables are the schema: each path has a type, and is there unless it is optional. What is printed must have no field that the
//! page lacks, lack none that the page has, and have no other types.

use rtscope_testkit::process::{patience, program};
use rtscope_testkit::skip;
use rtscope_view::schema;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Instant;

/// The type of a field.
#[derive(Clone, Debug)]
enum Kind {
    Text,
    Integer,
    Number,
    Boolean,
    Any,
    Object,
    Array(Box<Kind>),
    Map(Box<Kind>),
    /// A shared object.
    Shared(String),
}

/// A row of a table.
#[derive(Clone, Debug)]
struct Field {
    kind: Kind,
    nullable: bool,
    optional: bool,
}

/// Fields by path.
type Table = BTreeMap<String, Field>;

/// What the page says.
#[derive(Debug, Default)]
struct Page {
    /// By the heading: a schema, a schema and a type, or the name of a shared object.
    tables: BTreeMap<String, Table>,
    /// Heading and object.
    examples: Vec<(String, Value)>,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| Page::parse(include_str!("../../../../docs/json.md")));

impl Kind {
    fn parse(text: &str) -> Kind {
        let boxed = |rest: &str| Box::new(Kind::parse(rest));
        match text {
            "string" => Kind::Text,
            "integer" => Kind::Integer,
            "number" => Kind::Number,
            "boolean" => Kind::Boolean,
            "any" => Kind::Any,
            "object" => Kind::Object,
            "array" => Kind::Array(Box::new(Kind::Any)),
            _ => match (text.strip_prefix("array of "), text.strip_prefix("map of ")) {
                (Some(element), _) => Kind::Array(boxed(element)),
                (_, Some(value)) => Kind::Map(boxed(value)),
                _ => Kind::Shared(text.to_string()),
            },
        }
    }
}

impl Field {
    fn parse(text: &str) -> Field {
        let (text, optional) = text.strip_suffix(", optional").map_or((text, false), |text| (text, true));
        let (text, nullable) = text.strip_suffix(" or null").map_or((text, false), |text| (text, true));
        Field { kind: Kind::parse(text), nullable, optional }
    }
}

impl Page {
    fn parse(text: &str) -> Page {
        let mut page = Page::default();
        let mut heading = String::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(title) = line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")) {
                heading = title.replace(['`', ','], "");
            } else if let Some(row) = line.strip_prefix("| `") {
                let (path, rest) = row.split_once('`').expect("a path");
                let kind = rest.split('|').nth(1).expect("a type").trim();
                let table = page.tables.entry(heading.clone()).or_default();
                assert!(
                    table.insert(path.to_string(), Field::parse(kind)).is_none(),
                    "{heading}: {path} twice"
                );
            } else if line == "```json" {
                let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
                let value = serde_json::from_str(&block.join("\n"));
                page.examples
                    .push((heading.clone(), value.unwrap_or_else(|error| panic!("{heading}: {error}"))));
            }
        }
        // `...` stands for all fields of a shared object.
        let shared = page.tables.clone();
        for table in page.tables.values_mut() {
            if let Some(Field { kind: Kind::Shared(name), .. }) = table.remove("...") {
                table.extend(shared[&name].clone());
            }
        }
        page
    }

    /// What of an object is not as its table says.
    fn complaints(&self, value: &Value) -> Vec<String> {
        let Some(name) = value["schema"].as_str() else { return vec![format!("no schema: {value}")] };
        let kind = value["type"].as_str().filter(|_| !self.tables.contains_key(name));
        let heading = kind.map_or(name.to_string(), |kind| format!("{name} {kind}"));
        let mut check = Check { page: self, found: Vec::new() };
        check.object(&heading, "", value);
        check.found.into_iter().map(|found| format!("{heading}: {found}")).collect()
    }
}

struct Check<'a> {
    page: &'a Page,
    found: Vec<String>,
}

impl Check<'_> {
    fn say(&mut self, text: impl fmt::Display) {
        self.found.push(text.to_string());
    }

    /// The fields of an object at a path of a table.
    fn object(&mut self, heading: &str, path: &str, value: &Value) {
        let Some(table) = self.page.tables.get(heading) else { return self.say("it is not on the page") };
        let Some(object) = value.as_object() else { return self.say(format!("{path}: no object: {value}")) };
        let prefix = if path.is_empty() { String::new() } else { format!("{path}.") };
        for (key, value) in object {
            let place = format!("{prefix}{key}");
            match table.get(&place) {
                Some(field) => self.field(heading, &place, field, value),
                None => self.say(format!("{place} is not on the page")),
            }
        }
        // Names of fields may have dots in them: a field is a child when no other row lies between.
        let below: Vec<&str> = table.keys().filter_map(|place| place.strip_prefix(&prefix)).collect();
        let is_deeper = |name: &str| {
            below
                .iter()
                .any(|other| name.strip_prefix(other).is_some_and(|rest| rest.starts_with(['.', '['])))
        };
        for name in below.iter().filter(|name| !is_deeper(name)) {
            if !table[&format!("{prefix}{name}")].optional && !object.contains_key(*name) {
                self.say(format!("{prefix}{name} is missing"));
            }
        }
    }

    fn field(&mut self, heading: &str, place: &str, field: &Field, value: &Value) {
        if value.is_null() {
            if !field.nullable && !matches!(field.kind, Kind::Any) {
                self.say(format!("{place} is null"));
            }
            return;
        }
        let is_right = match &field.kind {
            Kind::Any => true,
            Kind::Text => value.is_string(),
            Kind::Integer => value.is_u64() || value.is_i64(),
            Kind::Number => value.is_number(),
            Kind::Boolean => value.is_boolean(),
            Kind::Object => return self.object(heading, place, value),
            Kind::Shared(name) => return self.object(name, "", value),
            Kind::Array(kind) => {
                let inner = Field { kind: Kind::clone(kind), ..*field };
                let elements = value.as_array().into_iter().flatten();
                elements.for_each(|element| self.field(heading, &format!("{place}[]"), &inner, element));
                value.is_array()
            }
            Kind::Map(kind) => {
                let inner = Field { kind: Kind::clone(kind), ..*field };
                let values = value.as_object().into_iter().flat_map(|object| object.values());
                values.for_each(|value| self.field(heading, place, &inner, value));
                value.is_object()
            }
        };
        if !is_right {
            self.say(format!("{place} is {value}"));
        }
    }
}

/// Fails when an object that the program printed is not as docs/json.md says.
pub fn assert_documented(value: &Value) {
    let complaints: BTreeSet<String> = PAGE.complaints(value).into_iter().collect();
    assert!(complaints.is_empty(), "not as docs/json.md says:\n{complaints:#?}");
}

/// The objects among what a command printed, which are all documented. Which schemas they have.
fn assert_all_documented(output: &str) -> BTreeSet<String> {
    let values: Vec<Value> = output
        .lines()
        .map(|line| serde_json::from_str(line).expect("standard output has only JSON"))
        .collect();
    values.iter().for_each(assert_documented);
    values.iter().filter_map(|value| Some(value["schema"].as_str()?.to_string())).collect()
}

#[test]
fn the_page_describes_every_object_and_no_other() {
    let listed: BTreeSet<&str> = schema::ALL.into_iter().collect();
    let shown: BTreeSet<&str> =
        PAGE.examples.iter().filter_map(|(_, value)| value["schema"].as_str()).collect();
    assert_eq!(shown, listed, "the schemas of the examples and those of the program");
    let mut with_example = BTreeSet::new();
    for (heading, example) in &PAGE.examples {
        assert_documented(example);
        let schema = example["schema"].as_str().expect("checked");
        assert!(heading.starts_with(schema), "{heading} has an example of {schema}");
        with_example.insert(heading.as_str());
    }
    let described = PAGE.tables.keys().filter(|heading| heading.starts_with("rtscope."));
    assert_eq!(with_example, described.map(String::as_str).collect(), "each table has an example");
}

#[test]
fn a_field_that_is_missing_or_new_or_of_another_type_is_found() {
    let (_, example) =
        PAGE.examples.iter().find(|(heading, _)| heading == "rtscope.npt/1").expect("it is there");
    let complaints = |change: fn(&mut Value)| {
        let mut changed = example.clone();
        change(&mut changed);
        PAGE.complaints(&changed)
    };
    assert_eq!(complaints(|_| ()), [""; 0]);
    let one = |change: fn(&mut Value), word: &str| {
        let found = complaints(change);
        assert!(found.len() == 1 && found[0].contains(word), "{word}: {found:?}");
    };
    one(
        |npt| drop(npt["events"].as_object_mut().expect("an object").remove("lost")),
        "events.lost is missing",
    );
    one(|npt| npt["core_ghz"]["during"] = 3.into(), "during is not on the page");
    one(|npt| npt["cpu"] = "one".into(), "cpu is \"one\"");
    one(|npt| npt["cpu"] = Value::Null, "cpu is null");
    one(|npt| npt["measured"][0]["turns"] = 0.5.into(), "measured[].turns is 0.5");
    one(|npt| npt["schema"] = "rtscope.npt/9".into(), "it is not on the page");
    one(|npt| drop(npt.as_object_mut().expect("an object").remove("schema")), "no schema");
}

fn rtscope(arguments: &[&str]) -> Command {
    let mut command = Command::new(program("rtscope").expect("built"));
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit());
    command
}

/// What a command prints; its status may be that of a failed check.
fn output(arguments: &[&str]) -> String {
    let output = rtscope(arguments).output().expect("it can be run");
    assert!(!output.stdout.is_empty(), "{arguments:?}: {}", output.status);
    String::from_utf8(output.stdout).expect("JSON is UTF-8")
}

fn assert_prints(arguments: &[&str], schemas: &[&str]) {
    let printed = assert_all_documented(&output(arguments));
    assert_eq!(printed, schemas.iter().map(ToString::to_string).collect(), "{arguments:?}");
}

/// A command in the background, ended when it is dropped.
struct Background(Child);

impl Background {
    fn start(arguments: &[&str]) -> Background {
        Background(rtscope(arguments).stdout(Stdio::null()).spawn().expect("it can be run"))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_needs_no_privilege_is_printed_as_the_page_says() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ctf/tests/corpus/lttng-ust");
    let trace = trace.to_str().expect("plain");
    assert_prints(&["caps", "--json"], &[schema::CAPS]);
    assert_prints(&["hardware", "--json"], &[schema::HARDWARE]);
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (file, made) = (folder.path().join("perf.data"), folder.path().join("made"));
    std::fs::write(&file, rtscope_testkit::hardware::recording(&rtscope_testkit::hardware::whole_run()))
        .expect("it can be written");
    let decode = ["hardware", "decode", file.to_str().expect("plain"), "--json"];
    assert_prints(&decode, &[schema::HARDWARE_DECODE]);
    let made = [&decode[..], &["-o", made.to_str().expect("plain")]].concat();
    assert_prints(&made, &[schema::HARDWARE_DECODE]);
    assert_prints(&["print", trace, "--format", "json"], &[rtscope_view::EVENT_SCHEMA]);
    assert_prints(&["stat", trace, "--json"], &[rtscope_view::STAT_SCHEMA]);
    assert_prints(&["stat", trace, "--tasks", "--json"], &[rtscope_view::STAT_TASKS_SCHEMA]);
    let pair = ["stat", trace, "--latency", "probe:small -> probe:text", "--json"];
    assert_prints(&pair, &[rtscope_view::STAT_LATENCY_SCHEMA]);
    let npt = ["npt", "--json", "--spin", "1ms", "--loops", "10000"];
    assert_prints(&npt, &[schema::NPT]);
    assert_prints(&[&npt[..], &["--windows", "10us"]].concat(), &[schema::NPT]);
    let impact = ["impact", "--json", "--tracers", "rtscope,flight"];
    assert_prints(&[&impact[..], &["--rounds", "2", "--loops", "1000"]].concat(), &[schema::IMPACT]);
    assert_prints(&[&impact[..], &["--max-rate", "--duration", "5ms"]].concat(), &[schema::IMPACT_RATE]);
}

#[test]
fn what_is_said_of_programs_is_printed_as_the_page_says() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| folder.path().join(name).to_str().expect("plain").to_string();
    let (trace, rtscope_path) = (path("trace"), program("rtscope").expect("built"));
    let record =
        ["record", "--json", "-u", "npt:*", "-o", &trace, "--", rtscope_path.to_str().expect("plain")];
    let npt = ["npt", "--json", "--spin", "1ms", "--loops", "1000"];
    assert_prints(&[&record[..], &npt].concat(), &[schema::RECORD_USER]);
    let late = path("late");
    let _program = Background::start(&["npt", "--duration", "1h", "--rate", "1/s"]);
    let _recorder = Background::start(&["record", "-u", "npt:*", "--flight-recorder", "-o", &late]);
    let begun = Instant::now();
    let has_program = |text: &str| text.contains("\"npt:loop\"");
    while !has_program(&output(&["list", "--json"])) {
        assert!(begun.elapsed() < patience(), "npt is not listed");
    }
    assert_prints(&["list", "--json"], &[schema::LIST_PROGRAMS]);
    while !Path::new(&late).exists() {
        assert!(begun.elapsed() < patience(), "the flight recorder does not start");
        std::thread::yield_now();
    }
    let mut snapshot = rtscope(&["snapshot", "--json"]).output().expect("it can be run");
    while !snapshot.status.success() {
        // The directory is there a moment before the recorder.
        assert!(begun.elapsed() < patience(), "{snapshot:?}");
        snapshot = rtscope(&["snapshot", "--json"]).output().expect("it can be run");
    }
    let printed = assert_all_documented(&String::from_utf8_lossy(&snapshot.stdout));
    assert_eq!(printed, [schema::SNAPSHOT_REQUEST.to_string()].into());
}

#[test]
fn what_is_said_of_a_shield_is_printed_as_the_page_says() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let write = |file: &str, text: &str| {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().expect("below the directory")).expect("there is space");
        fs::write(path, text).expect("there is space");
    };
    write("sys/devices/system/cpu/online", "0-3\n");
    write("proc/irq/default_smp_affinity", "f\n");
    write("proc/irq/36/smp_affinity_list", "0-3\n");
    write("proc/sys/kernel/watchdog", "1\n");
    let shield = |words: &[&'static str], name: &str| {
        let root = folder.path().to_str().expect("plain");
        assert_prints(&[&["shield", "--root", root], words].concat(), &[name]);
    };
    shield(&["status", "--json"], schema::SHIELD_STATUS);
    shield(&["plan", "--rt", "2-3", "--json"], schema::SHIELD_PLAN);
    shield(&["create", "--rt", "2-3", "--json"], schema::SHIELD_CREATE);
    write("proc/irq/36/smp_affinity_list", "0-2\n");
    shield(&["status", "--json"], schema::SHIELD_STATUS);
    shield(&["undo", "--json"], schema::SHIELD_UNDO);
}

// NEEDS: host
#[test]
fn root_what_needs_privilege_is_printed_as_the_page_says() {
    if skip::without_watching() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| folder.path().join(name).to_str().expect("plain").to_string();
    assert_prints(&["list", "-k", "sched:*", "irq:*", "--json"], &[schema::LIST]);
    assert_prints(&["fds", "--json", "--", "sh", "-c", "exec 7</etc/passwd"], &[schema::FDS]);
    let record = ["record", "--json", "-k", "sched:*", "--duration", "100ms", "-o", &path("trace")];
    assert_prints(&record, &[schema::RECORD]);
    assert_prints(&["stat", &path("trace"), "--json"], &[rtscope_view::STAT_SCHEMA]);
    let events = "syscalls,sched:*,irq:*,irq_vectors:*";
    let record = [
        "record",
        "--json",
        "-k",
        events,
        "-o",
        &path("calls"),
        "--",
        "sh",
        "-c",
        "ls /nowhere / > /dev/null; true",
    ];
    assert_prints(&record, &[schema::RECORD]);
    for (which, name) in [
        ("--tasks", rtscope_view::STAT_TASKS_SCHEMA),
        ("--irqs", rtscope_view::STAT_IRQS_SCHEMA),
        ("--syscalls", rtscope_view::STAT_SYSCALLS_SCHEMA),
    ] {
        assert_prints(&["stat", &path("calls"), which, "--json"], &[name]);
    }
    for latency in
        ["syscalls", "wakeup", "irq", "softirq", "block", "sched_waking -> sched_switch by tid=next_tid"]
    {
        let arguments = ["stat", &path("calls"), "--latency", latency, "--json"];
        assert_prints(&arguments, &[rtscope_view::STAT_LATENCY_SCHEMA]);
    }
    let blame = ["npt", "--json", "--blame", "--threshold", "1us", "--duration", "200ms", "--spin", "10ms"];
    assert_prints(&blame, &[schema::NPT]);
    let verify = ["shield", "verify", "--rt", "1", "--duration", "500ms", "--json"];
    assert_prints(&verify, &[schema::SHIELD_VERIFY]);
    let table = ["shield", "table", "--rows", "unloaded", "--samples", "10", "--json"];
    assert_prints(&table[..], &[schema::SHIELD_TABLE]);
    // Every wakeup is late.
    let watch =
        ["watch", "response", "--threshold", "1ns", "--duration", "1500ms", "--post", "1ms", "--json"];
    let printed = output(&[&watch[..], &["--snapshot-dir", &path("late")]].concat());
    assert_eq!(assert_all_documented(&printed), [rtscope_view::SCHEMA.to_string()].into());
    let types: BTreeSet<String> = printed
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok()?["type"].as_str().map(str::to_string))
        .collect();
    let all = ["start", "history", "late", "explanation", "snapshot", "summary"].map(str::to_string);
    assert_eq!(types, all.into());
    let saved = fs::read_dir(path("late")).expect("snapshots").flatten().next().expect("a snapshot").path();
    let trigger = fs::read_to_string(saved.join("trigger.json")).expect("it is in every snapshot");
    assert_documented(&serde_json::from_str(&trigger).expect("JSON"));
    assert_prints(&["explain", saved.to_str().expect("plain"), "--json"], &[rtscope_view::SCHEMA]);
    // Every interval is late.
    let events = ["--from", "spans:begin", "--to", "spans:end", "--threshold", "1us", "--post", "1ms"];
    let between = [&["watch", "response", "--json"], &events[..]].concat();
    let spans = program("rtscope-spans").expect("built");
    let command = ["--snapshot-dir", &path("between"), "--", spans.to_str().expect("plain")];
    let printed = output(&[&between[..], &command].concat());
    assert_eq!(assert_all_documented(&printed), [rtscope_view::SCHEMA.to_string()].into());
    assert!(printed.contains(r#""type":"late""#) && printed.contains(r#""event":"spans:end""#), "{printed}");
    let saved =
        fs::read_dir(path("between")).expect("snapshots").flatten().next().expect("a snapshot").path();
    let trigger = fs::read_to_string(saved.join("trigger.json")).expect("it is in every snapshot");
    assert_documented(&serde_json::from_str(&trigger).expect("JSON"));
    assert_prints(&["explain", saved.to_str().expect("plain"), "--json"], &[rtscope_view::SCHEMA]);
}

// NEEDS: host
#[test]
fn root_what_trackers_say_is_printed_as_the_page_says() {
    if skip::without_watching() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let late = folder.path().join("late").to_str().expect("plain").to_string();
    let also = ["softirq", "block", "syscall", "wakeup", "offcpu", "lock"];
    let also: Vec<String> = also.iter().map(|tracker| format!("{tracker}:1ns")).collect();
    let also: Vec<&str> = also.iter().flat_map(|also| ["--and", also.as_str()]).collect();
    let watch = ["watch", "irq", "--threshold", "1ns", "--duration", "1500ms", "--post", "1ms", "--json"];
    // Block requests of its own.
    let file = folder.path().join("file");
    let writer = std::thread::spawn(move || {
        for _ in 0..10 {
            let _ = fs::write(&file, "x").and_then(|()| fs::File::open(&file)?.sync_all());
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    });
    let printed = output(&[&watch[..], &also, &["--snapshot-dir", &late]].concat());
    writer.join().expect("it writes");
    assert_eq!(assert_all_documented(&printed), [rtscope_view::SCHEMA.to_string()].into());
    for tracker in ["irq", "softirq", "wakeup", "offcpu", "syscall"] {
        assert!(printed.contains(&format!(r#""tracker":"{tracker}""#)), "{tracker}");
    }
    let _watch = Background::start(&["watch", "offcpu", "--threshold", "1h"]);
    let begun = Instant::now();
    let mut state = String::new();
    while !state.contains(r#""tracker":"offcpu""#) {
        assert!(begun.elapsed() < patience(), "the watch does not answer: {state}");
        let answer = rtscope(&["state", "--json"]).output().expect("it can be run");
        state = String::from_utf8(answer.stdout).expect("JSON is UTF-8");
    }
    assert_eq!(assert_all_documented(&state), [schema::STATE.to_string()].into());
}
