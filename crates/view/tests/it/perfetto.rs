// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Perfetto's engine makes of events that are missing, and of those that only other tracers have. (Whole traces, with all tables:
//! in the tests of the command.)

use rtscope_event::{
    ClassId, CpuId, Domain, EventClass, EventRef, FieldClass, Item, LossCause, Lost, Schema, StreamId,
    StreamInfo, TraceSource, Value, ValueBuffer,
};
use rtscope_testkit::perfetto::{COMPLAINTS, Row, engine, query};
use rtscope_view::perfetto::{Settings, Summary, convert};
use std::fs::File;

/// A value of an event.
#[derive(Clone, Debug)]
enum Cell {
    Number(i64),
    Text(&'static str),
}

/// What happens: time, CPU, class, values; or a loss.
#[derive(Clone, Debug)]
enum Happening {
    Event(i64, u32, &'static str, Vec<(&'static str, Cell)>),
    Lost(Lost),
}

/// A source of events that a test has made.
struct FakeSource {
    schema: Schema,
    happenings: std::vec::IntoIter<Happening>,
    values: ValueBuffer,
}

impl FakeSource {
    fn new(happenings: Vec<Happening>) -> FakeSource {
        let stream = StreamInfo { domain: Domain::Kernel, host: "here".to_owned(), ..StreamInfo::default() };
        let mut schema = Schema { classes: Vec::new(), streams: vec![stream] };
        for happening in &happenings {
            let Happening::Event(_, _, name, values) = happening else { continue };
            if schema.classes.iter().any(|class| class.name == *name) {
                continue;
            }
            let field = |(name, _): &(&str, Cell)| FieldClass {
                name: (*name).to_owned(),
                is_payload: true,
                ..FieldClass::default()
            };
            let fields = values.iter().map(field).collect();
            schema.classes.push(EventClass { name: (*name).to_owned(), domain: Domain::Kernel, fields });
        }
        FakeSource { schema, happenings: happenings.into_iter(), values: ValueBuffer::default() }
    }
}

impl TraceSource for FakeSource {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn next(&mut self) -> Item<'_> {
        let (time_ns, cpu, name, values) = match self.happenings.next() {
            None => return Item::End,
            Some(Happening::Lost(lost)) => return Item::Lost(lost),
            Some(Happening::Event(time, cpu, name, values)) => (time, cpu, name, values),
        };
        let class = self.schema.classes.iter().position(|class| class.name == name).unwrap();
        self.values.clear();
        self.values.begin(values.len());
        for (place, (_, cell)) in values.iter().enumerate() {
            let value = match cell {
                Cell::Number(number) => Value::Signed(*number),
                Cell::Text(text) => Value::Bytes(text.as_bytes()),
            };
            self.values.set(place, value);
        }
        Item::Event(EventRef {
            schema: &self.schema,
            time_ns,
            stream: StreamId(0),
            class: ClassId(u32::try_from(class).unwrap()),
            cpu: Some(CpuId(cpu)),
            values: self.values.current(),
        })
    }
}

/// LTTng's, without the fields that only rtscope has.
fn switch(time: i64, cpu: u32, prev: i64, state: i64, next: i64) -> Happening {
    let values = vec![
        ("prev_comm", Cell::Text("prev")),
        ("prev_tid", Cell::Number(prev)),
        ("prev_prio", Cell::Number(20)),
        ("prev_state", Cell::Number(state)),
        ("next_comm", Cell::Text("next")),
        ("next_tid", Cell::Number(next)),
        ("next_prio", Cell::Number(20)),
    ];
    Happening::Event(time, cpu, "sched_switch", values)
}

fn waking(time: i64, cpu: u32, tid: i64) -> Happening {
    let values =
        vec![("comm", Cell::Text("woken")), ("tid", Cell::Number(tid)), ("target_cpu", Cell::Number(0))];
    Happening::Event(time, cpu, "sched_waking", values)
}

fn irq(time: i64, cpu: u32, is_entry: bool) -> Happening {
    let name = if is_entry { "irq_handler_entry" } else { "irq_handler_exit" };
    Happening::Event(time, cpu, name, vec![("irq", Cell::Number(9)), ("name", Cell::Text("eth0"))])
}

fn lost(cpu: u32, since: i64, until: i64) -> Happening {
    Happening::Lost(Lost {
        cause: LossCause::BufferFull,
        count: Some(17),
        packets: false,
        stream: Some(StreamId(0)),
        cpu: Some(CpuId(cpu)),
        since_ns: Some(since),
        until_ns: Some(until),
    })
}

/// Converts and asks.
fn ask(happenings: Vec<Happening>, queries: &[&str]) -> Option<(Summary, Vec<Vec<Row>>)> {
    let engine = engine()?;
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("converted");
    let settings = Settings { kernel_release: "6.18.0".to_owned(), ..Settings::default() };
    let mut source = FakeSource::new(happenings);
    let summary = convert(&mut source, File::create(&path).unwrap(), &settings, &mut |_| true).unwrap();
    let answers = query(&engine, &path, queries);
    Some((summary, answers))
}

fn lines(rows: &[Row]) -> Vec<String> {
    let cell = |cell: &serde_json::Value| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned);
    rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join(" ")).collect()
}

const SCHED: &str = "select s.cpu, case when t.tid > 4194304 then t.name else t.tid end, s.ts, s.dur, s.end_state \
    from sched s join thread t using (utid) where s.dur != 0 order by s.cpu, s.ts";
const IRQS: &str = "select ts, dur, name from slice where name glob 'IRQ*' order by ts";
const LOSSES: &str = "select t.name, s.ts, s.dur, s.name, extract_arg(s.arg_set_id, 'debug.cause'), \
    extract_arg(s.arg_set_id, 'debug.count') from slice s join track t on t.id = s.track_id \
    where s.category = 'loss' order by s.ts";
const WAKERS: &str = "select s.ts, t.tid, s.state, w.tid, s.irq_context from thread_state s \
    join thread t using (utid) left join thread w on w.utid = s.waker_utid where s.irq_context is not null \
    order by s.ts";

#[test]
fn a_loss_is_a_gap_for_which_nobody_is_blamed() {
    let happenings = vec![
        irq(1_000, 0, true),
        waking(1_100, 0, 20),
        irq(1_200, 0, false),
        switch(2_000, 0, 10, 1, 20),
        irq(2_500, 0, true),
        lost(0, 3_000, 7_000),
        irq(7_100, 0, false),
        waking(7_500, 0, 10),
        switch(8_000, 0, 30, 256, 10),
        switch(9_000, 0, 10, 2, 0),
    ];
    let queries = [COMPLAINTS, SCHED, IRQS, LOSSES, WAKERS];
    let Some((summary, answers)) = ask(happenings, &queries) else { return };
    assert_eq!((summary.losses, summary.gaps), (1, 0));
    // The state of the thread that ran when the loss began is not known either.
    assert_eq!(lines(&answers[0]), ["ftrace_cpu_has_data_loss 1", "task_state_invalid 1"]);
    let sched = [
        "0 10 1000 1000 S",
        "0 20 2000 1000 null",
        "0 <unknown> 3000 4100 R",
        "0 30 7100 900 R+",
        "0 10 8000 1000 D",
    ];
    assert_eq!(lines(&answers[1])[..5], sched);
    assert_eq!(lines(&answers[2]), ["1000 200 IRQ (eth0)", "2500 500 IRQ (eth0)"]);
    assert_eq!(lines(&answers[3]), ["CPU 0 3000 4000 events lost buffer_full 17"]);
    // The first in an interrupt; both by what the next switch says.
    assert_eq!(lines(&answers[4]), ["1100 20 R 10 1", "7500 10 R 30 0"]);
}

#[test]
fn switches_that_do_not_follow_each_other_are_a_gap() {
    let happenings = vec![
        switch(1_000, 3, 0, 0, 20),
        waking(1_500, 3, 30),
        switch(5_000, 3, 40, 1, 0),
        switch(6_000, 3, 0, 0, 30),
    ];
    let Some((summary, answers)) = ask(happenings, &[COMPLAINTS, SCHED]) else { return };
    assert_eq!((summary.losses, summary.gaps), (0, 1));
    assert_eq!(lines(&answers[0]), ["ftrace_cpu_has_data_loss 1", "task_state_invalid 1"]);
    let sched = lines(&answers[1]);
    // Until the waking it was certainly there; just before the switch, the other.
    assert!(sched.contains(&"3 20 1000 501 null".to_owned()), "{sched:?}");
    assert!(sched.contains(&"3 <unknown> 1501 3498 R".to_owned()), "{sched:?}");
    assert!(sched.contains(&"3 40 4999 1 S".to_owned()), "{sched:?}");
}

#[test]
fn a_cpu_without_a_switch_has_wakings_by_nobody_known() {
    let happenings =
        vec![waking(1_000, 0, 20), irq(1_500, 0, true), waking(1_600, 0, 30), irq(1_700, 0, false)];
    let Some((_, answers)) = ask(happenings, &[COMPLAINTS, WAKERS, SCHED]) else { return };
    assert_eq!(lines(&answers[0]), Vec::<String>::new());
    let woken = lines(&answers[1]);
    assert_eq!(woken.len(), 2, "{woken:?}");
    assert!(
        woken[0].starts_with("1000 20 R 4194305 0") && woken[1].starts_with("1600 30 R 4194305 1"),
        "{woken:?}"
    );
    assert!(lines(&answers[2]).iter().all(|slice| slice.contains("<unknown>")), "{:?}", answers[2]);
}

#[test]
fn the_other_events_have_their_places() {
    let number = Cell::Number;
    let work = |time, name| {
        Happening::Event(time, 0, name, vec![("work", number(0xabc)), ("function", number(0x1234))])
    };
    let happenings = vec![
        switch(1_000, 0, 0, 0, 50),
        work(1_100, "workqueue_execute_start"),
        work(1_400, "workqueue_execute_end"),
        Happening::Event(
            1_500,
            0,
            "power_cpu_frequency",
            vec![("state", number(800_000)), ("cpu_id", number(0))],
        ),
        Happening::Event(1_600, 0, "nmi_handler", vec![("handler", number(1)), ("delta_ns", number(250))]),
        Happening::Event(
            1_700,
            0,
            "block_rq_issue",
            vec![("sector", number(77)), ("comm", Cell::Text("dd"))],
        ),
        switch(2_000, 0, 50, 1, 0),
    ];
    let slices = "select name, ts, dur from slice order by ts";
    let counters =
        "select t.name, c.ts, cast(c.value as int) from counter c join track t on t.id = c.track_id";
    let arguments = "select extract_arg(arg_set_id, 'debug.sector'), extract_arg(arg_set_id, 'debug.comm') \
        from slice where name = 'block_rq_issue'";
    let Some((_, answers)) = ask(happenings, &[COMPLAINTS, slices, counters, arguments]) else { return };
    assert_eq!(lines(&answers[0]), Vec::<String>::new());
    let expected = ["0x1234 1100 300", "NMI handler 1350 250", "block_rq_issue 1700 0"];
    assert_eq!(lines(&answers[1]), expected);
    assert_eq!(lines(&answers[2]), ["cpufreq 1500 800000"]);
    assert_eq!(lines(&answers[3]), ["77 dd"]);
}
