// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tracker `pair`, judged by an ftrace instance that runs beside it, and by system calls that the test makes itself, so that it knows what
//! can be paired and what cannot.

use super::ftrace::Ftrace;
use nix::sys::signal::Signal;
use rtscope_analyze::explain::CauseKind;
use rtscope_analyze::summary::UnmatchedEvents;
use rtscope_event::{End, EventSpan, FieldValue, LateResponse, LossCause, SpanEvent, Tracker};
use rtscope_testkit::machine::Cpus;
use rtscope_testkit::skip;
use rtscope_testkit::time::now_ns;
use rtscope_testkit::watch::Rtscope;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Between the clock that ftrace reads and the one that eBPF reads after it, unless an interrupt comes in between, which ftrace shows (1 of 2010 on a busy
/// machine: a timer and its softirq, 72 us; of the others none took longer than 42), or the host takes the CPU away: then it was before the CPU's next event.
const NEAR_NS: u64 = 50_000;
/// First events that the kernel's side holds at most.
pub const PLACES: u64 = 1 << 15;

pub(super) fn watch(options: &[&str]) -> Rtscope {
    let mut command = Command::new(rtscope_testkit::process::program("rtscope").expect("it is built"));
    command.args(["watch", "pair", "--json"]).args(options);
    let mut watch = Rtscope::start(command).expect("it starts");
    watch.wait_for_type("start").expect("it watches");
    watch
}

pub(super) fn events(late: &LateResponse) -> &EventSpan {
    late.events.as_deref().expect("both events")
}

pub(super) fn number(event: &SpanEvent, field: &str) -> u64 {
    let Some(FieldValue::Unsigned(number)) = event.fields.get(field) else { panic!("{field}: {event:?}") };
    *number
}

// NEEDS: real time (the times of two tracers are compared)
#[test]
fn root_each_exec_is_paired_with_its_fork_as_ftrace_has_them() {
    const PROCESSES: usize = 200;
    let Some(_cpus) = Cpus::for_watching() else { return };
    let events_of_ftrace = ["sched/sched_process_fork", "sched/sched_wakeup_new", "sched/sched_process_exec"];
    let ftrace = match Ftrace::with_interrupts(&events_of_ftrace) {
        Ok(ftrace) => ftrace,
        Err(why) => skip!("no instance of ftrace: {why}"),
    };
    // A fork is before its child is woken, an exec before its system call returns.
    ftrace.add("raw_syscalls/sys_exit", &format!("id == {}", libc::SYS_execve)).expect("it can be filtered");
    let fork_to_exec = ["--from", "sched:sched_process_fork", "--to", "sched:sched_process_exec"];
    let watch = watch(&[&fork_to_exec[..], &["--key", "child_pid=pid", "--threshold", "1ns"]].concat());
    let run = |_| {
        let before_ns = now_ns();
        let mut child = Command::new("/bin/true").spawn().expect("it starts");
        child.wait().expect("it ends");
        (u64::from(child.id()), before_ns..=now_ns())
    };
    let children: Vec<(u64, RangeInclusive<u64>)> = (0..PROCESSES).map(run).collect();
    let said = watch.stop().expect("it stops");
    let times = |event, field| -> BTreeMap<u64, u64> {
        let lines = ftrace.lines(&[event]);
        lines.iter().filter_map(|line| Some((line.number(field)?, line.time_ns))).collect()
    };
    let (forks, execs) = (times("sched_process_fork", "child_pid"), times("sched_process_exec", "pid"));
    let late = said.late().expect("of its own type");
    let ended: Vec<&LateResponse> = late.iter().filter(|late| late.end == End::Event).collect();
    let mut found: BTreeMap<u64, &LateResponse> = BTreeMap::new();
    for late in &ended {
        let pid = number(&events(late).from, "child_pid");
        assert_eq!((late.tracker, number(&events(late).to, "pid")), (Tracker::Pair, pid), "{late:?}");
        assert_eq!(u64::from(late.tid.0), pid, "who has executed it: {late:?}");
        // Of a process that executes a second program, the first counts.
        found.entry(pid).or_insert(late);
    }
    let (interrupts, all_times) = (ftrace.interrupts(), ftrace.times());
    // An interrupt on this CPU between the two, which ftrace has in whole microseconds.
    let is_interrupted = |event: &SpanEvent, truth: u64| {
        let here = interrupts.get(&event.cpu.expect("it is known").0);
        here.is_some_and(|times| times.iter().any(|time| (truth..=event.time_ns.0).contains(time)))
    };
    let is_in_order = |event: &SpanEvent, truth: u64| {
        let mut here = all_times[&event.cpu.expect("it is known").0].iter();
        let next = here.find(|time| **time > truth);
        event.time_ns.0 + 1000 > truth && next.is_some_and(|next| event.time_ns.0 < next + 1000)
    };
    for (pid, when_ns) in &children {
        let late = found.get(pid).unwrap_or_else(|| panic!("{pid} is missing of {}", found.len()));
        let (from, to) = (&events(late).from, &events(late).to);
        assert_eq!((from.event.as_str(), to.event.as_str()), (fork_to_exec[1], fork_to_exec[3]));
        assert_eq!(number(from, "parent_pid"), u64::from(from.tid.0), "{from:?}");
        assert_eq!(to.fields.get("filename"), Some(&FieldValue::Text("/bin/true".to_owned())), "{to:?}");
        for (event, times) in [(from, &forks), (to, &execs)] {
            let truth = times.get(pid).unwrap_or_else(|| panic!("ftrace does not have {pid}"));
            assert!(when_ns.contains(&event.time_ns.0), "{event:?}, but it was in {when_ns:?}");
            let is_near = event.time_ns.0.abs_diff(*truth) < NEAR_NS;
            let is_right = is_near || is_in_order(event, *truth) || is_interrupted(event, *truth);
            assert!(is_right, "{event:?}, but ftrace says {truth}");
        }
    }
    // Whatever else ran on the machine meanwhile: nothing was invented.
    let known = |pid: &&u64| forks.contains_key(pid) && execs.contains_key(pid);
    assert_eq!(found.keys().filter(known).count(), found.len(), "{:?}", found.keys());
    let report = said.report().expect("one");
    assert_eq!(report.counters.seen, late.len() as u64, "each once: {report:?}");
    // Switches that this host hides are none of these events.
    let mut lost = report.losses.iter().filter(|loss| loss.cause != LossCause::Gap);
    assert!(lost.all(|loss| loss.count == Some(0)), "{:?}", report.losses);
}

/// System calls that hardly anybody makes, with a number that the kernel does not take.
pub fn begin(who: u64) {
    // SAFETY: the arguments are plain numbers; the kernel refuses the first.
    unsafe { libc::syscall(libc::SYS_ioprio_get, 99, who) };
}

pub fn end(who: u64) {
    // SAFETY: as in `begin`.
    unsafe { libc::syscall(libc::SYS_ioprio_set, 99, who, 0) };
}

pub const CALLS: [&str; 6] =
    ["--from", "syscalls:sys_enter_ioprio_get", "--to", "syscalls:sys_enter_ioprio_set", "--key", "who"];

// NEEDS: host
#[test]
fn root_what_is_not_paired_is_counted_by_cause_and_what_hangs_is_told() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let tid = nix::unistd::gettid().to_string();
    let limits = ["--threshold", "20ms", "--timeout", "50ms", "--tid", &tid];
    let mut watch = watch(&[&CALLS[..], &limits].concat());
    end(5);
    begin(7);
    std::thread::sleep(Duration::from_millis(30));
    begin(7);
    end(7);
    begin(9);
    std::thread::sleep(Duration::from_millis(30));
    // In another thread than it has begun, and what ends in a thread that is no target does not count.
    begin(13);
    std::thread::spawn(|| end(13)).join().expect("it ends");
    end(9);
    begin(11);
    let stuck = watch.wait_for_type("stuck").expect("it hangs");
    assert_eq!((&stuck["from"]["fields"]["who"], &stuck["end"]), (&11.into(), &"pending".into()), "{stuck}");
    let note = watch.wait_for_note("pair: not paired so far").expect("while it goes on");
    assert!(note.contains("ends without a beginning: 1"), "{note}");
    let said = watch.stop().expect("it stops");
    let late = said.late().expect("of its own type");
    let of_end = |end| late.iter().filter(move |late| late.end == end);
    let ended: Vec<u64> = of_end(End::Event).map(|late| number(&events(late).from, "who")).collect();
    assert_eq!(ended, [9], "7 began again, and was in time: {late:?}");
    let pending: Vec<u64> = of_end(End::Pending).map(|late| number(&events(late).from, "who")).collect();
    assert_eq!(pending, [11], "{late:?}");
    // In which thread it would have ended is not known: so nothing is blamed.
    let explained = said.explanations().expect("of its own type");
    let open = explained.iter().find(|one| one.end == End::Pending).expect("it is explained");
    let blamed = open.culprit.as_ref().map(|culprit| culprit.kind);
    assert_eq!((open.unknown_ns, blamed), (open.response_ns, Some(CauseKind::Unknown)), "{open:?}");
    let report = said.report().expect("one");
    assert_eq!((report.counters.seen, report.counters.late, report.pending), (3, 2, 1), "{report:?}");
    let between = report.between.expect("of two events");
    assert_eq!(between.by.as_deref(), Some("who"));
    let counted =
        UnmatchedEvents { without_end: 1, without_begin: 1, begun_again: 1, ..UnmatchedEvents::default() };
    assert_eq!(between.unmatched, counted);
}

// NEEDS: host
#[test]
fn root_beginnings_that_do_not_end_are_given_up_for_new_ones_and_counted_as_lost() {
    const BEGINNINGS: u64 = PLACES + 5000;
    // Of those that wait when room is made: one has ended.
    const GIVEN_UP: u64 = (PLACES - 1) / 2;
    let Some(_cpus) = Cpus::for_watching() else { return };
    let options = ["--threshold", "1us", "--fail-if-lost", "--metrics", "0"];
    let mut watch = watch(&[&CALLS[..], &options].concat());
    let address = watch.wait_for_note("metrics: http://").expect("it serves");
    let address = address.split("http://").nth(1).and_then(|text| text.strip_suffix("/metrics")).expect("it");
    // It makes room when it is told to go on, and not in between.
    watch.signal(Signal::SIGSTOP).expect("it is there");
    (0..BEGINNINGS).for_each(begin);
    // The first ones have their place, the last ones do not.
    end(0);
    end(BEGINNINGS - 1);
    watch.signal(Signal::SIGCONT).expect("it is there");
    let note = watch.wait_for_note("the table had no place").expect("while it goes on");
    assert!(note.contains("beginnings for which the table had no place: 5000"), "{note}");
    assert!(note.contains(&format!("older beginnings given up to make room: {GIVEN_UP}")), "{note}");
    begin(BEGINNINGS);
    end(BEGINNINGS);
    // Of the older half, and of the other one.
    end(1);
    end(PLACES - 1);
    let lost = super::actions::get(address);
    let said = watch.stop().expect("it stops");
    assert_eq!(said.status.and_then(|status| status.code()), Some(6), "{:?}", said.notes);
    let report = said.report().expect("one");
    let unmatched = report.between.as_ref().expect("of two events").unmatched;
    let forgotten = BEGINNINGS - PLACES + GIVEN_UP;
    let counted = UnmatchedEvents {
        without_end: PLACES - 1 - GIVEN_UP - 1,
        without_begin: 2,
        forgotten,
        ..UnmatchedEvents::default()
    };
    // What waits is no more than a count where there is no timeout.
    assert_eq!((unmatched, report.counters.seen, report.pending), (counted, 3, 0));
    let table_full =
        report.losses.iter().find(|loss| loss.cause == LossCause::TableFull).expect("it is a loss");
    assert_eq!(table_full.count, Some(forgotten));
    let line = format!("rtscope_lost_total{{cause=\"table_full\"}} {forgotten}\n");
    assert!(lost.contains(&line), "{line}: {lost}");
}

struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

// NEEDS: host
#[test]
fn root_an_end_and_a_new_beginning_at_once_do_not_share_an_entry() {
    const BATCHES: u64 = 200;
    const ROUNDS: u64 = 64;
    const MARK: u64 = 1 << 30;
    let Some(_cpus) = Cpus::for_watching() else { return };
    let mut watch = watch(&[&CALLS[..], &["--threshold", "1ns"]].concat());
    let main = nix::unistd::gettid();
    // How many rounds have begun, and in how many the other thread has had its turn.
    let (begun, had) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    // Each waits for the other without sleeping, so that both calls are as near to each other as can be.
    let begin_again = || {
        let mut number = 1;
        while !is_over.load(Ordering::SeqCst) {
            if begun.load(Ordering::SeqCst) == number {
                begin(number);
                had.store(number, Ordering::SeqCst);
                number += 1;
            }
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(begin_again);
        // Also where an assertion fails.
        let _over = Over(&is_over);
        for batch in 0..BATCHES {
            for number in batch * ROUNDS + 1..=(batch + 1) * ROUNDS {
                begin(number);
                begun.store(number, Ordering::SeqCst);
                // It takes the other thread some time to see that: at each moment of its call there are ends.
                (0..number % 24).for_each(|_| std::hint::spin_loop());
                end(number);
                while had.load(Ordering::SeqCst) < number {
                    std::hint::spin_loop();
                }
                end(number);
            }
            // The ring of reports holds a batch, and not many.
            begin(MARK + batch);
            end(MARK + batch);
            let is_mark = |line: &serde_json::Value| line["from"]["fields"]["who"] == MARK + batch;
            watch.wait_for("the mark of a batch", is_mark).expect("it is reported");
        }
    });
    let said = watch.stop().expect("it stops");
    let mut of_round: BTreeMap<u64, Vec<bool>> = BTreeMap::new();
    for late in said.late().expect("of its own type").iter().filter(|late| late.end == End::Event) {
        let is_first = i64::from(events(late).from.tid.0) == i64::from(main.as_raw());
        of_round.entry(number(&events(late).from, "who")).or_default().push(is_first);
    }
    let report = said.report().expect("one");
    let unmatched = report.between.expect("of two events").unmatched;
    println!(
        "{} of {} rounds began again before the end: {unmatched:?}",
        unmatched.begun_again,
        BATCHES * ROUNDS
    );
    assert!(unmatched.begun_again > 0, "they were not at once");
    // One pair of two beginnings: it is the second one's, but for those that were counted as lost, since a CPU was interrupted with an entry in hand.
    let shared = of_round.iter().filter(|(number, firsts)| **number < MARK && firsts[..] == [true]).count();
    assert!(
        shared as u64 <= unmatched.lost && 100 * unmatched.lost < ROUNDS * BATCHES,
        "{shared}: {unmatched:?}"
    );
    // One that seems to have ended as soon as it began is not late.
    let known = report.counters.seen + unmatched.begun_again;
    let all = 2 * BATCHES * ROUNDS + BATCHES;
    assert!((known..=known + unmatched.lost).contains(&all), "{known} of {all}: {unmatched:?}");
}

// NEEDS: host
#[test]
fn root_pairs_that_cannot_be_are_refused_with_what_to_do() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let fork = "sched:sched_process_fork";
    for (words, said) in [
        (["--from", fork, "--to", "engine:done", "--key", "pid"], "rtscope stat --latency"),
        (["--from", "sched:sched_proces_fork", "--to", fork, "--key", "pid"], "sched_process_fork"),
        (["--from", fork, "--to", fork, "--key", "child_comm=tid"], "integers of 1 to 8 bytes"),
        (["--from", fork, "--to", fork, "--key", "nobody"], "it has parent_comm"),
        (["--from", fork, "--to", fork, "--key", "tid,pid,cpu,child_pid"], "at most 3 fields"),
    ] {
        let mut command = crate::command::rtscope();
        let output =
            command.args(["watch", "pair", "--threshold", "1ms"]).args(words).output().expect("starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
        assert!(text.contains(said), "{words:?}: {text}");
    }
}
