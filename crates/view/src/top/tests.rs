// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames of made-up readings.

use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};
use rtscope_analyze::explain::Explainer;
use rtscope_analyze::histogram::bucket_of;
use rtscope_analyze::keyed::{BucketCount, KeyedHistograms};
use rtscope_event::{
    Chain, Comm, CpuId, End, MonotonicNs, Origin, OriginKind, Pid, Priority, Recording, Step, StepKind, Tid,
    WaitKind,
};
use rtscope_session::counting::CountLosses;

fn view(threshold_ns: Option<u64>, style: Style) -> TopView {
    let subject = TopSubject {
        between: None,
        tracker: Tracker::Wakeup,
        by: HistKey::Task,
        target: "any user-space task".to_owned(),
        threshold_ns,
        names: Names::default(),
        clock: None,
    };
    TopView::new(subject, HistOrder::Total, style)
}

/// So many, each so long, of keys with an id and a name.
fn counted(at_ns: u64, of: &[(u32, &str, u64, u64)]) -> CountedKeys {
    let mut keys = KeyedHistograms::default();
    let mut names = std::collections::BTreeMap::new();
    for (id, name, count, each_ns) in of {
        let key = Key { id: *id, kind: 0 };
        let bucket = u16::try_from(bucket_of(*each_ns)).expect("there are not that many");
        keys.add(key, bucket, BucketCount { count: *count, sum_ns: count * each_ns, max_ns: *each_ns });
        names.insert(key, (*name).to_owned());
    }
    let losses = CountLosses { skipped_programs: Some(0), ..CountLosses::default() };
    let own_ns = Some(at_ns / 100);
    CountedKeys { at_ns, keys, names, losses, unreported: 0, cells_used: 12, cells: 64, own_ns }
}

fn buffer(view: &mut TopView, width: u16, height: u16) -> ratatui::buffer::Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
    terminal.draw(|frame| view.draw(frame)).expect("memory");
    terminal.backend().buffer().clone()
}

fn lines(view: &mut TopView, width: u16, height: u16) -> Vec<String> {
    let buffer = buffer(view, width, height);
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned()).collect()
}

fn names(view: &mut TopView) -> Vec<String> {
    let lines = lines(view, 120, 12);
    let first = |line: &String| line.split("  ").next().unwrap_or_default().to_owned();
    lines[2..10].iter().map(first).filter(|name| !name.is_empty()).collect()
}

/// Most time, longest time, most operations.
const THREE: [(u32, &str, u64, u64); 3] =
    [(1, "most (1)", 40, 1000), (2, "long (2)", 1, 30_000), (3, "many (3)", 90, 10)];

fn late(tid: u32, sequence: u64, duration_ns: u64) -> LateResponse {
    let kind = OriginKind::Irq;
    let origin = Origin { kind, id: 7, cpu: CpuId(1), time_ns: MonotonicNs(1_000) };
    let step = Step { kind: StepKind::Wakeup, id: tid, cpu: CpuId(1), duration_ns, wait: WaitKind::None };
    LateResponse {
        tracker: Tracker::Wakeup,
        instance: 0,
        sequence,
        cpu: CpuId(1),
        end_ns: MonotonicNs(1_000 + duration_ns),
        end: End::Running,
        threshold_ns: 1000,
        tid: Tid(tid),
        pid: Pid(tid),
        prio: Priority(120),
        comm: Comm::from_bytes(b"long"),
        snapshot: None,
        chain: Chain { origin, steps: vec![step], merged: 0, others: Vec::new(), busy: false },
        events: None,
        call: None,
        lock: None,
        block: None,
        section: None,
        stacks: None,
    }
}

#[test]
fn a_row_has_the_figures_of_its_key_and_the_first_one_those_of_all() {
    let mut view = view(None, Style::default());
    view.counted(counted(1_000_000_000, &[(1, "fio (1)", 1000, 1000)]));
    view.counted(counted(3_000_000_000, &[(1, "fio (1)", 6000, 1000), (2, "dd (2)", 1, 5_000_000)]));
    // The one at the end comes at once, and has no rates of its own.
    view.counted(counted(3_000_100_000, &[(1, "fio (1)", 6000, 1000), (2, "dd (2)", 1, 5_000_000)]));
    let lines = lines(&mut view, 120, 10);
    assert!(lines[0].starts_with("rtscope top: wakeup of any user-space task, by task"), "{lines:?}");
    assert!(lines[0].ends_with(" 3 s"), "{lines:?}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    assert_eq!(words(&lines[1]), "task number each s 50 % 99 % worst in all 512ns 8.3ms");
    assert!(words(&lines[2]).starts_with("all 6001 2500 1.007 us 1.007 us 5 ms 11 ms █"), "{}", lines[2]);
    assert!(words(&lines[3]).starts_with("fio (1) 6000 2500 1 us 1 us 1 us 6 ms █"), "{}", lines[3]);
    assert!(words(&lines[4]).starts_with("dd (2) 1 0.5 - - 5 ms 5 ms"), "{}", lines[4]);
    assert_eq!(lines[9], "lost: nothing; cells 12 of 64; rtscope itself: 1.0 % of a CPU");
}

#[test]
fn keys_sort_the_rows_and_the_choice_stays_with_its_row() {
    let mut view = view(None, Style::default());
    view.counted(counted(1_000_000_000, &THREE));
    assert_eq!(names(&mut view), ["all", "most (1)", "long (2)", "many (3)"]);
    view.key(TopKey::Down);
    assert_eq!(view.chosen.map(|key| key.id), Some(1));
    view.key(TopKey::Character('w'));
    assert_eq!(names(&mut view), ["all", "long (2)", "most (1)", "many (3)"]);
    assert_eq!((view.chosen.map(|key| key.id), view.chosen_place()), (Some(1), 2));
    view.key(TopKey::Character('n'));
    assert_eq!(names(&mut view), ["all", "many (3)", "most (1)", "long (2)"]);
    view.key(TopKey::Character('t'));
    assert_eq!(names(&mut view), ["all", "most (1)", "long (2)", "many (3)"]);
    // The row that is chosen is turned around, and the head of the column that sorts.
    let buffer = buffer(&mut view, 120, 12);
    let is_reversed = |x, y| buffer[(x, y)].modifier.contains(Modifier::REVERSED);
    assert!(is_reversed(0, 3) && !is_reversed(0, 2) && !is_reversed(0, 4));
    let total = lines(&mut view, 120, 12)[1].find("in all").expect("a column") as u16;
    assert!(is_reversed(total, 1) && !is_reversed(0, 1));
}

#[test]
fn what_is_lost_is_in_the_last_line_of_every_page() {
    let style = Style { color: true, ..Style::default() };
    let mut view = view(None, style);
    let mut reading = counted(1_000_000_000, &THREE);
    reading.losses =
        CountLosses { without_key: 1234, untracked: 5, skipped_programs: None, ..CountLosses::default() };
    reading.unreported = 6;
    view.counted(reading);
    let expected = "lost: 1 234 without a cell (--cells), 5 not followed, 6 late ones not reported, skipped runs unknown";
    for key in [TopKey::Down, TopKey::Enter, TopKey::Character('?'), TopKey::Character('p'), TopKey::Escape] {
        view.key(key);
        let buffer = buffer(&mut view, 140, 24);
        let last: String = (0..140).map(|x| buffer[(x, 23)].symbol()).collect();
        assert!(last.starts_with(expected), "{key:?}: {last}");
        assert_eq!(buffer[(0, 23)].fg, Color::Red);
    }
    // Also where there is room for one line only.
    assert!(lines(&mut view, 40, 1)[0].starts_with("lost: 1 234 without a cell"));
    // What is no colour stays without them.
    view.style.color = false;
    assert_eq!(buffer(&mut view, 140, 24)[(0, 23)].fg, Color::Reset);
}

#[test]
fn a_row_shows_its_late_responses_with_what_explains_them() {
    let mut view = view(Some(1000), Style::default());
    view.counted(counted(1_000_000_000, &THREE));
    let [first, worst, other] = [late(2, 1, 4_000), late(2, 2, 30_000), late(1, 3, 2_000)];
    [&first, &worst, &other].into_iter().for_each(|late| view.late(late));
    // What came after a reading is in the figures with the next one.
    let before = lines(&mut view, 120, 12);
    view.counted(counted(2_000_000_000, &THREE));
    let table = lines(&mut view, 120, 12);
    let late_of =
        |row: &str| row.split_whitespace().rev().find(|word| word.parse::<u64>().is_ok()).map(str::to_owned);
    assert_eq!(
        [2, 3, 4, 5].map(|y| late_of(&table[y]).expect("a number")),
        ["3", "1", "2", "0"],
        "{table:?}"
    );
    assert_eq!(late_of(&before[2]).as_deref(), Some("0"), "{before:?}");
    view.key(TopKey::Down);
    view.key(TopKey::Down);
    view.key(TopKey::Enter);
    let text = lines(&mut view, 100, 40).join("\n");
    assert!(text.contains("wakeup of long (2)") && text.contains("2 were longer than 1 us"), "{text}");
    assert!(text.contains("Worst\nLATE wakeup long/2 on cpu 1: 30 us > 1 us"), "{text}");
    assert!(text.contains("not explained yet"), "{text}");
    let recording = Recording::default();
    let explanation = Explainer::new(&recording).explain(&worst);
    view.explained(&explanation);
    let text = lines(&mut view, 100, 40).join("\n");
    let marked =
        crate::explanation_text(&explanation, Style { width: 100, terminal: Some(100), ..Style::default() });
    for line in marked.lines() {
        assert!(text.contains(line.trim_end()), "{line}\nis not in\n{text}");
    }
    assert!(text.contains("from                  number"), "its histogram: {text}");
    view.key(TopKey::Enter);
    view.key(TopKey::End);
    view.key(TopKey::Enter);
    assert!(lines(&mut view, 100, 40).join("\n").contains("None was reported that took longer than 1 us"));
}

#[test]
fn a_pause_keeps_everything_as_it_is_and_loses_nothing() {
    let mut view = view(Some(1000), Style::default());
    view.counted(counted(1_000_000_000, &THREE));
    view.key(TopKey::Character('p'));
    let before = lines(&mut view, 120, 12);
    assert!(before[0].contains("PAUSED"), "{before:?}");
    view.counted(counted(2_000_000_000, &[(9, "new (9)", 1_000_000, 1000)]));
    view.late(&late(9, 1, 4_000));
    // But for the line about losses, which is of now.
    assert_eq!(lines(&mut view, 120, 12)[..11], before[..11]);
    view.key(TopKey::Character('p'));
    let after = lines(&mut view, 120, 12);
    assert!(after[3].starts_with("new (9)") && !after[0].contains("PAUSED"), "{after:?}");
    assert_eq!(view.late.all.count, 1);
}

#[test]
fn what_came_before_is_gone_when_one_begins_anew() {
    let mut view = view(Some(1000), Style::default());
    view.counted(counted(5_000_000_000, &[(1, "old (1)", 50, 1000), (2, "both (2)", 10, 1000)]));
    view.late(&late(1, 1, 4_000));
    view.key(TopKey::Character('r'));
    let empty = lines(&mut view, 120, 12);
    assert!(empty[0].ends_with(" 0 s") && empty[2] == "nothing was counted yet", "{empty:?}");
    view.counted(counted(7_000_000_000, &[(1, "old (1)", 50, 1000), (2, "both (2)", 13, 1000)]));
    assert_eq!(names(&mut view), ["all", "both (2)"]);
    assert_eq!((view.rows[1].count, view.late.all.count), (3, 0));
    assert!(lines(&mut view, 120, 12)[0].ends_with(" 2 s"));
}

#[test]
fn a_terminal_may_be_of_any_size_and_change_it() {
    let of: Vec<(u32, String, u64, u64)> =
        (1..200).map(|id| (id, format!("größer als das ({id})"), u64::from(id), 1 << (id % 40))).collect();
    let of: Vec<(u32, &str, u64, u64)> =
        of.iter().map(|(id, name, count, each)| (*id, name.as_str(), *count, *each)).collect();
    for (threshold_ns, ascii) in [(None, false), (Some(1000), true)] {
        let mut view = view(threshold_ns, Style { ascii, ..Style::default() });
        for page in 0..4 {
            for height in 0..26 {
                for width in (0..30).chain([40, 79, 80, 81, 132, 300]) {
                    drop(lines(&mut view, width, height));
                }
            }
            match page {
                0 => view.counted(counted(1_000_000_000, &of)),
                1 => drop(view.key(TopKey::Enter)),
                _ => drop(view.key(TopKey::Character('?'))),
            }
            view.late(&late(5, page, 4_000));
            view.key(TopKey::End);
        }
    }
}

#[test]
fn small_terminals_have_the_rows_their_figure_and_the_losses() {
    let mut view = view(None, Style::default());
    view.counted(counted(1_000_000_000, &THREE));
    assert_eq!(
        lines(&mut view, 20, 5),
        [
            "wakeup of any u… 1 s",
            "task       in all",
            "all       70.9 us",
            "most (1)    40 us",
            "lost: nothing; cells"
        ]
    );
    // The row that is chosen is on the screen.
    view.key(TopKey::End);
    let small = lines(&mut view, 20, 5);
    assert!(small[3].starts_with("many (3)"), "{small:?}");
    view.key(TopKey::Home);
    assert!(lines(&mut view, 20, 5)[2].starts_with("all "));
}

#[test]
fn a_locale_without_other_characters_gets_none() {
    let mut view = view(Some(1000), Style { ascii: true, ..Style::default() });
    view.counted(counted(1_000_000_000, &[(1, "größer (1)", 40, 1000), (2, "x\u{1b}[2J (2)", 1, 30_000)]));
    for key in [TopKey::Down, TopKey::Enter, TopKey::Character('?')] {
        let all = lines(&mut view, 60, 24).join("\n");
        assert!(all.is_ascii(), "{all}");
        view.key(key);
    }
    view.key(TopKey::Escape);
    let all = lines(&mut view, 100, 24).join("\n");
    assert!(all.contains("gr??er (1)") && all.contains('#') && !all.contains('\u{1b}'), "{all}");
}

#[test]
fn keys_go_back_before_they_end() {
    let mut view = view(None, Style::default());
    view.counted(counted(1_000_000_000, &THREE));
    view.key(TopKey::Enter);
    assert_eq!(view.key(TopKey::Escape), TopAsked::Draw);
    view.key(TopKey::Character('?'));
    assert_eq!(view.key(TopKey::Escape), TopAsked::Draw);
    assert_eq!(view.key(TopKey::Escape), TopAsked::End);
    for page in [TopKey::Up, TopKey::Enter, TopKey::Character('?')] {
        view.key(page);
        assert_eq!(view.key(TopKey::Interrupt), TopAsked::End);
        assert_eq!(view.key(TopKey::Character('q')), TopAsked::End);
    }
}

#[test]
fn remarks_stay_until_a_key_and_the_end_stays() {
    let mut view = view(None, Style::default());
    view.counted(counted(1_000_000_000, &THREE));
    view.note("this kernel lacks \u{7}something");
    assert!(lines(&mut view, 80, 24)[22].starts_with("this kernel lacks"));
    view.key(TopKey::Down);
    assert!(lines(&mut view, 80, 24)[22].starts_with("Enter: details"));
    view.ended("COMMAND has ended with status 0; q ends");
    view.key(TopKey::Down);
    let after = lines(&mut view, 80, 24);
    assert!(
        after[22].starts_with("COMMAND has ended with status 0") && after[0].contains(" ended "),
        "{after:?}"
    );
}

#[test]
fn late_responses_of_many_keys_are_kept_in_bounds() {
    let mut store = LateStore::default();
    for number in 0..10_000 {
        store.add(HistKey::Task, &late(number % 2000, u64::from(number), 1000 + u64::from(number)));
    }
    assert_eq!(store.all.count, 10_000);
    let kept = (0..2000).filter(|id| store.of(HistKey::Task, Some(Key { id: *id, kind: 0 })).is_some());
    assert_eq!(kept.count(), 512);
    let worst = store.all.worst.as_ref().map(|worst| worst.late.response_ns());
    assert_eq!(worst, Some(10_999));
    // What its report does not say is under no key.
    let mut cgroups = LateStore::default();
    cgroups.add(HistKey::Cgroup, &late(1, 1, 5000));
    assert_eq!(cgroups.all.count, 1);
    assert!(cgroups.of(HistKey::Cgroup, Some(Key { id: 1, kind: 0 })).is_none());
}
