// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The real-time tasks of a shield, for `rtscope shield status`.

use rtscope_shield::Cpus;
use rtscope_shield::rt0::Rt0;
use std::fmt::Write;

/// The real-time tasks of a shield for people, by CPU.
pub(super) fn tasks(tasks: &[Rt0], rt: &Cpus) -> String {
    let mut text = String::from("Real-time tasks:\n");
    let percent = |part: Option<f64>| part.map_or("-".to_owned(), |part| format!("{:.1} %", part * 100.0));
    let _ = writeln!(
        text,
        "  {:<5} {:>8} {:>7}  {:<36}  {:>7} name",
        "CPU", "reserved", "used", "policy", "thread"
    );
    for one in tasks {
        let policy = one.policy.to_string();
        let (reserved, used) = (percent(one.reserved), percent(one.used));
        let _ = writeln!(
            text,
            "  {:<5} {reserved:>8} {used:>7}  {policy:<36}  {:>7} {}",
            one.cpus, one.tid, one.name
        );
    }
    for cpu in rt.iter() {
        let here = tasks.iter().filter(|one| Cpus::from_list(&one.cpus).is_ok_and(|cpus| cpus.contains(cpu)));
        let parts: Vec<f64> = here.clone().filter_map(|one| one.reserved).collect();
        match (here.count(), parts.len()) {
            (0, _) => {
                let _ = writeln!(text, "  {cpu:<5} {:>8} {:>7}  none", "-", "-");
            }
            (_, 0) => {}
            (_, count) => {
                let sum = percent(Some(parts.iter().sum()));
                let _ = writeln!(text, "  {cpu:<5} {sum:>8} {:>7}  total of {count} with deadlines", "");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_shield::policy::{Policy, Reservation};

    #[test]
    fn tasks_are_listed_by_cpu() {
        let reservation =
            Reservation { runtime_ns: 2_000_000, deadline_ns: 5_000_000, period_ns: 10_000_000 };
        let task = |cpus: &str, policy, reserved| Rt0 {
            cpus: cpus.into(),
            tid: 12,
            name: "control".into(),
            policy,
            reserved,
            used: Some(0.0123),
        };
        let tasks = [
            task("2", Policy::Deadline(reservation), Some(0.2)),
            task("2-3", Policy::Fifo { priority: 80 }, None),
        ];
        let text = super::tasks(&tasks, &Cpus::from_list("2-4").expect("a list"));
        let words: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            words[2..],
            [
                "2 20.0 % 1.2 % deadline 2ms in 5ms every 10ms 12 control",
                "2-3 - 1.2 % fifo 80 12 control",
                "2 20.0 % total of 1 with deadlines",
                "4 - - none"
            ]
        );
    }
}
