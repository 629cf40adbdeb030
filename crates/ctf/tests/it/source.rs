// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traces as a source of events of any class: the same events as babeltrace2 shows, in its order, with losses between them.

use rtscope_ctf::{Selection, TraceSet, read, write_trace};
use rtscope_event::{Domain, EventClass, EventRef, Item, Loss, LossCause, Lost, TraceSource, Value};
use rtscope_testkit::babeltrace2;
use rtscope_testkit::random::Random;
use rtscope_testkit::recordings::{every_variant, info};
use std::path::Path;

fn all(_: &EventClass) -> bool {
    true
}

/// What `take` makes of each event, and the losses.
fn items<T>(
    dir: &Path,
    selection: &Selection,
    wanted: &dyn Fn(&EventClass) -> bool,
    mut take: impl FnMut(&EventRef<'_>) -> T,
) -> (Vec<T>, Vec<Lost>) {
    let set = TraceSet::open(dir).unwrap();
    let (mut events, mut losses) = (Vec::new(), Vec::new());
    let mut latest_ns = i64::MIN;
    read(&set, selection, wanted, |source| {
        loop {
            match source.next() {
                Item::Event(event) => {
                    assert!(event.time_ns >= latest_ns);
                    latest_ns = event.time_ns;
                    events.push(take(&event));
                }
                Item::Lost(lost) => {
                    assert!(lost.until_ns.is_none_or(|until| until >= latest_ns), "{lost:?} comes late");
                    losses.push(lost);
                }
                Item::NothingBefore(_) => {}
                Item::End => break,
            }
        }
        assert!(matches!(source.next(), Item::End));
    });
    (events, losses)
}

/// As babeltrace2 writes a field.
fn shown(event: &EventRef<'_>, place: usize) -> Option<String> {
    let field = &event.class().fields[place];
    let value = match event.values.get(place) {
        Value::Unsigned(value) if field.is_hex => format!("0x{value:X}"),
        // Enumerations are shown with their labels.
        _ if !field.labels.is_empty() => return None,
        // Shown as the text that the previous event of the class had.
        Value::Bytes([]) => return None,
        Value::Unsigned(value) => value.to_string(),
        Value::Signed(value) => value.to_string(),
        Value::Bytes(text) => {
            let plain = |byte: &u8| byte.is_ascii_alphanumeric();
            text.iter().all(plain).then(|| format!("\"{}\"", String::from_utf8_lossy(text)))?
        }
        Value::Float(_) | Value::None => return None,
    };
    Some(format!("{} = {value}", field.name))
}

fn compare_with_babeltrace2(dir: &Path) {
    let Some(text) = babeltrace2::text(dir, &["--no-delta", "--clock-cycles"]) else { return };
    // Names with ends of lines in them break lines; an event begins with its time.
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        match (line.starts_with('['), lines.last_mut()) {
            (true, _) | (_, None) => lines.push(line.to_owned()),
            (false, Some(last)) => last.push_str(line),
        }
    }
    let mut lines = lines.into_iter();
    let mut values = 0;
    let (events, _) = items(dir, &Selection::default(), &all, |event| {
        let line = lines.next().unwrap();
        let clock = event.time_ns - event.schema.stream(event.stream).clock_offset_ns;
        assert_eq!(line[1..21].parse::<i64>().unwrap(), clock, "{line}");
        assert!(line.contains(&format!(" {}: ", event.name())), "{}: {line}", event.name());
        let cpu = event.cpu.unwrap();
        assert!(line.contains(&format!("cpu_id = {cpu} ")), "{cpu}: {line}");
        for place in 0..event.values.len() {
            if let Some(field) = shown(event, place) {
                values += 1;
                assert!(line.contains(&field), "{field}: {line}");
            }
        }
    });
    assert_eq!(lines.next(), None);
    assert!(values >= events.len(), "{values}");
}

#[test]
fn events_are_those_that_babeltrace2_shows() {
    let dir = tempfile::tempdir().unwrap();
    write_trace(&dir.path().join("one"), &every_variant(), &info()).unwrap();
    compare_with_babeltrace2(&dir.path().join("one"));
    let mut recording = Random(7).recording(60_000);
    recording.losses.clear();
    write_trace(&dir.path().join("many"), &recording, &info()).unwrap();
    compare_with_babeltrace2(&dir.path().join("many"));
}

#[test]
fn only_wanted_and_selected_events_are_decoded() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    write_trace(&trace, &Random(8).recording(20_000), &info()).unwrap();
    let everything =
        items(&trace, &Selection::default(), &all, |event| (event.name().to_owned(), event.time_ns)).0;
    let switches: Vec<_> = everything.iter().filter(|(name, _)| name == "sched_switch").cloned().collect();
    assert!(!switches.is_empty() && switches.len() < everything.len());
    let wanted = |class: &EventClass| class.name == "sched_switch";
    let taken = |selection: &Selection| {
        items(&trace, selection, &wanted, |event| {
            assert_eq!(event.class().domain, Domain::Kernel);
            (event.name().to_owned(), event.time_ns)
        })
        .0
    };
    assert_eq!(taken(&Selection::default()), switches);
    let from = switches[switches.len() / 2].1;
    let late: Vec<_> = switches.into_iter().filter(|(_, time)| *time >= from).collect();
    assert_eq!(taken(&Selection { from_ns: Some(from), ..Selection::default() }), late);
}

#[test]
fn losses_come_where_they_happened() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let mut recording = Random(9).recording(20_000);
    let cpu = recording.events[0].cpu;
    recording.losses = vec![Loss { cpu: Some(cpu), cause: LossCause::RecursionMiss, count: Some(5) }];
    write_trace(&trace, &recording, &info()).unwrap();
    let (_, losses) = items(&trace, &Selection::default(), &all, |_| ());
    eprintln!(
        "{:?}",
        TraceSet::open(&trace).unwrap().streams.iter().map(|s| s.losses.clone()).collect::<Vec<_>>()
    );
    assert_eq!(losses.iter().map(|lost| lost.count.unwrap()).sum::<u64>(), 5);
    assert!(losses.iter().all(|lost| lost.cpu == Some(cpu) && !lost.packets), "{losses:?}");
}

#[test]
fn a_damaged_file_is_a_loss_of_unknown_size() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let mut recording = Random(10).recording(20_000);
    recording.losses.clear();
    write_trace(&trace, &recording, &info()).unwrap();
    let whole = items(&trace, &Selection::default(), &all, |_| ()).0.len();
    let file = trace.join("kernel_1");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let (events, losses) = items(&trace, &Selection::default(), &all, |_| ());
    assert!(events.len() < whole && !events.is_empty());
    assert!(
        losses.iter().any(|lost| lost.cause == LossCause::Unreadable && lost.count.is_none()),
        "{losses:?}"
    );
}
