// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Short histories whose latencies are known, in a trace of any class.

use super::{DeviceNames, Latencies, LatencyFilter, LatencyReport, Question};
use crate::analysis::analyze;
use rtscope_event::{
    ClassId, CpuId, Domain, EventClass, EventRef, FieldClass, Item, LossCause, Lost, PatternList, Schema,
    StreamId, StreamInfo, TraceSource, Value, ValueBuffer,
};

/// A source of what a test writes down.
#[derive(Default)]
struct Fake {
    schema: Schema,
    events: Vec<Entry>,
    values: ValueBuffer,
    next: usize,
}

enum Entry {
    Event { time_ns: i64, cpu: Option<CpuId>, class: ClassId, places: std::ops::Range<usize> },
    Lost(Lost),
}

/// A field and its value; names with a dot before belong to the context.
type Field<'f> = (&'f str, Value<'f>);

fn n(number: i64) -> Value<'static> {
    Value::Signed(number)
}

fn t(text: &str) -> Value<'_> {
    Value::Bytes(text.as_bytes())
}

impl Fake {
    fn new() -> Fake {
        let stream = StreamInfo { domain: Domain::Kernel, ..StreamInfo::default() };
        Fake { schema: Schema { streams: vec![stream], ..Schema::default() }, ..Fake::default() }
    }

    /// An event on a CPU.
    fn at(mut self, time_ns: i64, cpu: u32, name: &str, fields: &[Field<'_>]) -> Fake {
        let known = self.schema.classes.iter().position(|class| class.name == name);
        let place = known.unwrap_or_else(|| {
            let field = |(name, _): &Field<'_>| FieldClass {
                name: name.trim_start_matches('.').to_owned(),
                is_payload: !name.starts_with('.'),
                ..FieldClass::default()
            };
            self.schema.classes.push(EventClass {
                name: name.to_owned(),
                domain: Domain::Kernel,
                fields: fields.iter().map(field).collect(),
            });
            self.schema.classes.len() - 1
        });
        self.values.begin(fields.len());
        fields.iter().enumerate().for_each(|(place, (_, value))| self.values.set(place, *value));
        let class = ClassId(u32::try_from(place).unwrap());
        self.events.push(Entry::Event { time_ns, cpu: Some(CpuId(cpu)), class, places: self.values.last() });
        self
    }

    fn switch(self, time_ns: i64, cpu: u32, (prev, state): (i64, i64), next: i64) -> Fake {
        let (one, other) = (format!("task-{prev}"), format!("task-{next}"));
        let fields = [
            ("prev_comm", t(&one)),
            ("prev_tid", n(prev)),
            ("prev_prio", n(20)),
            ("prev_state", n(state)),
            ("next_comm", t(&other)),
            ("next_tid", n(next)),
            ("next_prio", n(20)),
        ];
        self.at(time_ns, cpu, "sched_switch", &fields)
    }

    fn waking(self, time_ns: i64, cpu: u32, tid: i64) -> Fake {
        let fields = [("comm", t("")), ("tid", n(tid)), ("prio", n(20)), ("target_cpu", n(0))];
        self.at(time_ns, cpu, "sched_waking", &fields)
    }

    fn call(self, time_ns: i64, tid: i64, name: &str, ret: Option<i64>) -> Fake {
        let context = (".tid", n(tid));
        match ret {
            None => self.at(time_ns, 0, &format!("syscall_entry_{name}"), &[context]),
            Some(ret) => self.at(time_ns, 0, &format!("syscall_exit_{name}"), &[context, ("ret", n(ret))]),
        }
    }

    fn request(self, time_ns: i64, what: &str, sector: i64, sectors: i64) -> Fake {
        let fields = [
            ("dev", n(8 << 20 | 1)),
            ("sector", n(sector)),
            ("nr_sector", n(sectors)),
            ("rwbs", n(1)),
            (".tid", n(7)),
        ];
        self.at(time_ns, 0, what, &fields)
    }

    fn lost(mut self, time_ns: i64) -> Fake {
        self.events.push(Entry::Lost(Lost {
            cause: LossCause::Discarded,
            count: Some(5),
            packets: false,
            stream: Some(StreamId(0)),
            cpu: Some(CpuId(0)),
            since_ns: Some(time_ns),
            until_ns: Some(time_ns),
        }));
        self
    }

    fn reports(mut self, question: &str, filter: LatencyFilter) -> Vec<LatencyReport> {
        let questions = Question::parse(question).unwrap();
        let latencies = Latencies::new(&questions, &filter, &DeviceNames::new());
        analyze(&mut self, latencies, &mut |_| ())
    }

    fn report(self, question: &str) -> LatencyReport {
        let [report] = self.reports(question, LatencyFilter::default()).try_into().unwrap();
        report
    }
}

impl TraceSource for Fake {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn next(&mut self) -> Item<'_> {
        let Some(entry) = self.events.get(self.next) else { return Item::End };
        self.next += 1;
        match entry {
            Entry::Lost(lost) => Item::Lost(lost.clone()),
            Entry::Event { time_ns, cpu, class, places } => Item::Event(EventRef {
                schema: &self.schema,
                time_ns: *time_ns,
                stream: StreamId(0),
                class: *class,
                cpu: *cpu,
                values: self.values.values(places.clone()),
            }),
        }
    }
}

/// Number, sum, shortest and longest, and when the longest ended.
fn figures(report: &LatencyReport) -> (u64, u64, Option<u64>, u64, Option<i64>) {
    let all = &report.all;
    (all.all.count, all.all.total_ns, all.least_ns, all.all.longest_ns, all.all.longest_at_ns)
}

/// Without end, without begin, begun again, lost.
fn unpaired(report: &LatencyReport) -> [u64; 4] {
    let all = report.unpaired;
    [all.without_end, all.without_begin, all.begun_again, all.lost]
}

#[test]
fn system_calls_last_from_entry_to_exit_of_their_thread() {
    let report = Fake::new()
        .call(900, 7, "read", Some(0))
        .switch(950, 0, (0, 0), 7)
        .call(1000, 7, "read", None)
        .call(1010, 8, "openat", None)
        .call(1040, 7, "read", Some(5))
        .call(1100, 8, "openat", Some(-2))
        .call(1200, 7, "read", None)
        .call(1210, 7, "read", Some(0))
        // The end of this one is missing, and this end is another's.
        .call(1300, 7, "write", None)
        .call(1310, 7, "read", Some(0))
        .call(1400, 8, "pause", None)
        .report("syscalls");
    assert_eq!(figures(&report), (3, 40 + 90 + 10, Some(10), 90, Some(1100)));
    assert_eq!(unpaired(&report), [2, 2, 0, 0]);
    let rows: Vec<_> = report.rows.iter().map(|row| (row.name.as_str(), row.figures.all.count)).collect();
    assert_eq!(rows, [("openat", 1), ("read", 2)]);
    let tasks: Vec<_> = report.tasks.iter().map(|task| (task.tid, task.comm.as_str())).collect();
    assert_eq!(tasks, [(8, ""), (7, "task-7")]);
    let longest = &report.longest[0];
    assert_eq!(
        (longest.length_ns, longest.since_ns, longest.until_ns, longest.tid),
        (90, 1010, 1100, Some(8))
    );
    assert_eq!(longest.name.as_deref(), Some("openat"));
    // The thread's name became known after its first call.
    assert_eq!(report.longest[1].comm.as_deref(), Some("task-7"));
    assert_eq!(report.all.histogram.iter().map(|row| row.count).sum::<u64>(), 3);
}

#[test]
fn wakeups_last_from_the_first_waking_to_the_switch() {
    let report = Fake::new()
        .switch(900, 0, (0, 0), 7)
        .switch(1000, 0, (7, 1), 8)
        .waking(1100, 1, 7)
        .waking(1150, 1, 7)
        .switch(1200, 0, (8, 256), 7)
        // Preempted, not woken; a waking of a task that waits for a CPU means nothing.
        .waking(1250, 1, 8)
        // Older than the switch by which it leaves: it waits from there.
        .waking(1299, 1, 7)
        .switch(1300, 0, (7, 1), 8)
        .switch(1310, 0, (8, 1), 7)
        // This one came to nothing.
        .waking(1320, 1, 7)
        .switch(1330, 0, (7, 1), 0)
        .waking(1400, 1, 7)
        .switch(1401, 1, (0, 0), 7)
        .waking(1500, 1, 9)
        .report("wakeup");
    assert_eq!(figures(&report), (3, 100 + 10 + 1, Some(1), 100, Some(1200)));
    assert_eq!(unpaired(&report), [1, 0, 0, 0]);
    let cpus: Vec<_> = report.rows.iter().map(|row| (row.id, row.figures.all.count)).collect();
    assert_eq!(cpus, [(0, 2), (1, 1)]);
    assert_eq!(report.tasks.len(), 1);
}

#[test]
fn requests_last_to_their_last_part_and_devices_have_names() {
    let dump = [("dev", n(8 << 20 | 1)), ("diskname", t("sda1"))];
    let fake = || {
        Fake::new()
            .request(1000, "block_rq_issue", 64, 8)
            .request(1005, "block_rq_issue", 128, 8)
            .request(1010, "block_rq_complete", 64, 3)
            .request(1050, "block_rq_complete", 67, 5)
            .request(1060, "block_rq_complete", 500, 5)
            .request(1061, "block_rq_complete", -1, 0)
            .request(1070, "block_rq_requeue", 128, 8)
            .request(1080, "block_rq_issue", 128, 8)
            .request(1090, "block_rq_complete", 128, 8)
    };
    let report = fake().report("block");
    assert_eq!(figures(&report), (2, 50 + 10, Some(10), 50, Some(1050)));
    assert_eq!(unpaired(&report), [0, 1, 1, 0]);
    assert_eq!((report.rows[0].name.as_str(), report.rows[0].id), ("8:1 write", 8 << 20 | 1));
    assert_eq!(report.tasks[0].tid, 7);
    let report = fake().at(2000, 0, "lttng_statedump_block_device", &dump).report("block");
    assert_eq!(report.rows[0].name, "sda1 write");
}

#[test]
fn softirqs_wait_from_their_first_raise_and_interrupts_have_names() {
    let vec = [("vec", n(3))];
    let fake = || {
        Fake::new()
            .switch(900, 0, (0, 0), 7)
            .at(950, 0, "irq_softirq_raise", &vec)
            .at(960, 0, "irq_softirq_raise", &vec)
            .at(1000, 0, "irq_softirq_entry", &vec)
            .at(1010, 0, "irq_handler_entry", &[("irq", n(9)), ("name", t("disk"))])
            .at(1040, 0, "irq_handler_exit", &[("irq", n(9)), ("ret", n(1))])
            .at(1100, 0, "irq_softirq_exit", &vec)
    };
    let reports = fake().reports("softirq,irq", LatencyFilter::default());
    let all: Vec<_> = reports.iter().map(|report| (report.from.as_str(), figures(report))).collect();
    assert_eq!(
        all,
        [
            ("irq_softirq_raise", (1, 50, Some(50), 50, Some(1000))),
            ("irq_softirq_entry", (1, 100, Some(100), 100, Some(1100))),
            ("irq_handler_entry", (1, 30, Some(30), 30, Some(1040))),
        ]
    );
    assert_eq!(
        (reports[0].rows[0].name.as_str(), reports[2].rows[0].name.as_str()),
        ("NET_RX", "irq 9 disk")
    );
    assert_eq!(reports[2].tasks[0].comm, "task-7");
}

#[test]
fn two_events_are_paired_by_any_fields_or_by_thread() {
    let order = |id| [("id", n(id))];
    let fake = || {
        Fake::new()
            .switch(900, 0, (0, 0), 7)
            .switch(900, 1, (0, 0), 8)
            .at(1000, 0, "oms:in", &order(1))
            .at(1010, 0, "oms:in", &order(2))
            .at(1020, 1, "oms:out", &[("order", n(2))])
            .at(1050, 1, "oms:out", &[("order", n(1))])
            .at(1060, 1, "oms:out", &[("order", n(3))])
            .at(1070, 0, "oms:in", &order(4))
            .at(1080, 0, "oms:in", &order(4))
    };
    let by_id = fake().report("oms:in -> oms:out by id=order");
    assert_eq!(figures(&by_id), (2, 10 + 50, Some(10), 50, Some(1050)));
    assert_eq!(unpaired(&by_id), [1, 1, 1, 0]);
    assert_eq!((by_id.latency.as_str(), by_id.tasks[0].tid), ("oms:in -> oms:out by id=order", 8));
    let by_thread = fake().report("oms:in -> oms:out");
    assert_eq!((by_thread.all.all.count, unpaired(&by_thread)), (0, [1, 3, 3, 0]));
    // From each to the next.
    let row = fake().report("oms:in -> oms:in by cpu");
    assert_eq!(figures(&row), (3, 10 + 60 + 10, Some(10), 60, Some(1070)));
    assert_eq!(unpaired(&row), [0; 4]);
}

#[test]
fn after_a_loss_nothing_is_paired_with_what_was_before() {
    let report = Fake::new()
        .call(1000, 7, "read", None)
        .lost(1010)
        .call(1020, 7, "read", Some(0))
        .call(1030, 7, "read", None)
        .call(1040, 7, "read", Some(0))
        .report("syscalls");
    assert_eq!((figures(&report).1, unpaired(&report)), (10, [0, 1, 0, 1]));
    assert_eq!(report.missing.events, 5);
}

#[test]
fn filters_choose_latencies_and_time_before_says_what_had_begun() {
    let fake = || {
        Fake::new()
            .switch(900, 0, (0, 0), 7)
            .call(1000, 7, "read", None)
            .call(1040, 7, "read", Some(5))
            .call(1050, 7, "write", None)
            .call(1060, 7, "write", Some(5))
            .call(1070, 8, "read", None)
            .call(1075, 8, "read", Some(5))
    };
    let total = |filter| {
        let [report] = fake().reports("syscalls", filter).try_into().unwrap();
        report.all.all.total_ns
    };
    assert_eq!(total(LatencyFilter::default()), 40 + 10 + 5);
    assert_eq!(total(LatencyFilter { since_ns: Some(1020), ..LatencyFilter::default() }), 40 + 10 + 5);
    assert_eq!(total(LatencyFilter { since_ns: Some(1055), ..LatencyFilter::default() }), 10 + 5);
    assert_eq!(total(LatencyFilter { task: Some("8".to_owned()), ..LatencyFilter::default() }), 5);
    assert_eq!(total(LatencyFilter { task: Some("task-*".to_owned()), ..LatencyFilter::default() }), 50);
    let events = PatternList::new(["syscall_exit_read"]);
    assert_eq!(total(LatencyFilter { events, ..LatencyFilter::default() }), 40 + 5);
    let events = PatternList::new(["!syscall_exit_read"]);
    assert_eq!(total(LatencyFilter { events, ..LatencyFilter::default() }), 10);
    let cpus = Some([1].into());
    assert_eq!(total(LatencyFilter { cpus, ..LatencyFilter::default() }), 0);
}
