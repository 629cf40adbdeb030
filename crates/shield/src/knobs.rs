// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of settings: where each is, what a shield wants of it, and which disturbance that removes.
//!
//! A row without files is not an error: kernels and machines differ. What is not in the table, on purpose:
//! `timer_migration=0` (timers would stay where they were armed), machinecheck/ignore_ce (hides memory errors), and
//! tracing_cpumask (rtscope itself would be blind there).

use crate::Cpus;
use crate::form::Form;
use crate::kept::KEPT_IRQ;
use serde::{Deserialize, Serialize};

/// How far a shield goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// What makes real-time CPUs quiet.
    Basic,
    /// Also what costs the rest of the machine something: memory, power.
    Full,
}

/// What is wanted of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedValue {
    /// The CPUs that it has now without the real-time ones; where none would be left: all others.
    WithoutRt,
    /// This.
    Exactly(&'static str),
    /// This number or more.
    AtLeast(i64),
    /// This number or more, or 0, which is off.
    AtLeastOrOff(i64),
    /// This number or less.
    AtMost(i64),
}

impl WantedValue {
    /// The value to write, or `None` where the present one will do.
    pub fn value(self, form: Form, now: &str, rt: &Cpus, others: &Cpus) -> Result<Option<String>, String> {
        let number = || now.trim().parse::<i64>().map_err(|_| format!("'{}' is not understood", now.trim()));
        Ok(match self {
            WantedValue::WithoutRt => {
                let now = form.cpus(now).ok_or_else(|| format!("'{}' is not understood", now.trim()))?;
                let left = now.without(rt);
                let left = if left.is_empty() { others } else { &left };
                (!now.is_apart_from(rt)).then(|| form.write_cpus(left))
            }
            WantedValue::Exactly(wanted) => (!form.same(now, wanted)).then(|| wanted.to_owned()),
            WantedValue::AtLeast(least) => (number()? < least).then(|| least.to_string()),
            WantedValue::AtLeastOrOff(least) => {
                let now = number()?;
                (now < least && now != 0).then(|| least.to_string())
            }
            WantedValue::AtMost(most) => (number()? > most).then(|| most.to_string()),
        })
    }
}

/// A row.
#[derive(Debug)]
pub struct Knob {
    /// Its name.
    pub name: &'static str,
    /// From which level on.
    pub level: Level,
    /// Its files: `*` is any text, `{rt}` each real-time CPU.
    pub files: &'static str,
    /// The file that says what was asked for, where the setting's own says what came of it.
    pub read: Option<&'static str>,
    /// How it looks.
    pub form: Form,
    /// What is wanted.
    pub wanted: WantedValue,
    /// What that removes from real-time CPUs.
    pub removes: &'static str,
}

const fn knob(
    name: &'static str,
    files: &'static str,
    form: Form,
    wanted: WantedValue,
    removes: &'static str,
) -> Knob {
    Knob { name, level: Level::Basic, files, read: None, form, wanted, removes }
}

const fn full(knob: Knob) -> Knob {
    Knob { level: Level::Full, ..knob }
}

/// The row of devices' interrupts.
pub const IRQ: &str = "irq";
/// The kernel threads' row; their CPUs are not in a file.
pub const KERNEL_THREADS: &str = "kernel-threads";
/// Other tasks' row, where there is no cpuset.
pub const TASKS: &str = "tasks";
/// The row of real-time tasks that are not bound to a real-time CPU, where a scheduler lends these: it does not see such tasks.
pub const REAL_TIME_TASKS: &str = "real-time-tasks";
/// Processes that were brought in, in the journal only.
pub const MOVED: &str = "moved";
/// Affinities that are not changed by us, in the journal only: see `plan`.
pub const KEPT: &str = "kept";
/// The row that sets CPUs apart.
pub const PARTITION: &str = "partition";

/// All rows, in the order in which they are applied.
pub const KNOBS: &[Knob] = &[
    knob(
        "default-irq",
        "/proc/irq/default_smp_affinity",
        Form::Mask,
        WantedValue::WithoutRt,
        "interrupts of devices that appear later",
    ),
    knob(IRQ, "/proc/irq/*/smp_affinity_list", Form::List, WantedValue::WithoutRt, "interrupts of devices"),
    Knob {
        read: Some("cpumask_requested"),
        ..knob(
            "workqueue",
            "/sys/devices/virtual/workqueue/cpumask",
            Form::Mask,
            WantedValue::WithoutRt,
            "the kernel's unbound work (kworker/u*)",
        )
    },
    knob(
        "workqueues",
        "/sys/devices/virtual/workqueue/*/cpumask",
        Form::Mask,
        WantedValue::WithoutRt,
        "work of queues that have their own CPU mask, such as writeback",
    ),
    knob(
        "fair-server",
        "/sys/kernel/debug/sched/fair_server/cpu{rt}/runtime",
        Form::Word,
        WantedValue::Exactly("0"),
        "50 ms a second that ordinary tasks get from a busy real-time task",
    ),
    knob(
        "ext-server",
        "/sys/kernel/debug/sched/ext_server/cpu{rt}/runtime",
        Form::Word,
        WantedValue::Exactly("0"),
        "the same for tasks of a BPF scheduler",
    ),
    knob(
        "rt-runtime",
        "/proc/sys/kernel/sched_rt_runtime_us",
        Form::Word,
        WantedValue::Exactly("-1"),
        "throttling of real-time tasks",
    ),
    knob(
        "watchdog",
        "/proc/sys/kernel/watchdog_cpumask",
        Form::List,
        WantedValue::WithoutRt,
        "timers of the lockup detectors",
    ),
    knob(
        "nmi-watchdog",
        "/proc/sys/kernel/nmi_watchdog",
        Form::Word,
        WantedValue::Exactly("0"),
        "non-maskable interrupts of the hard-lockup detector",
    ),
    knob(
        "timer-migration",
        "/proc/sys/kernel/timer_migration",
        Form::Word,
        WantedValue::Exactly("1"),
        "timers that could run elsewhere",
    ),
    knob(
        "rcu-expedited",
        "/sys/kernel/rcu_expedited",
        Form::Word,
        WantedValue::Exactly("0"),
        "interrupts that hurry RCU's grace periods",
    ),
    knob(
        "rcu-normal",
        "/sys/kernel/rcu_normal",
        Form::Word,
        WantedValue::Exactly("1"),
        "interrupts of expedited RCU grace periods, where a caller asks for one",
    ),
    knob(
        "rps-default",
        "/proc/sys/net/core/rps_default_mask",
        Form::Mask,
        WantedValue::WithoutRt,
        "network softirqs of devices that appear later",
    ),
    knob(
        "rps",
        "/sys/class/net/*/queues/rx-*/rps_cpus",
        Form::Mask,
        WantedValue::WithoutRt,
        "network softirqs steered here",
    ),
    knob(
        "xps",
        "/sys/class/net/*/queues/tx-*/xps_cpus",
        Form::Mask,
        WantedValue::WithoutRt,
        "sending queues of other CPUs",
    ),
    knob(
        "block-completion",
        "/sys/block/*/queue/rq_affinity",
        Form::Word,
        WantedValue::AtMost(1),
        "completions forced onto the CPU that asked",
    ),
    knob(
        "vmstat",
        "/proc/sys/vm/stat_interval",
        Form::Word,
        WantedValue::AtLeast(10),
        "a worker each second that folds memory counters",
    ),
    knob(
        "hung-task",
        "/proc/sys/kernel/hung_task_timeout_secs",
        Form::Word,
        WantedValue::AtLeastOrOff(600),
        "false alarms about tasks that wait behind real-time ones",
    ),
    knob(
        "numa-balancing",
        "/proc/sys/kernel/numa_balancing",
        Form::Word,
        WantedValue::Exactly("0"),
        "page faults made to learn which task uses which memory",
    ),
    knob(
        "cstates",
        "/sys/devices/system/cpu/cpu{rt}/power/pm_qos_resume_latency_us",
        Form::Word,
        WantedValue::Exactly("n/a"),
        "waking up from deep idle states",
    ),
    knob(
        "governor",
        "/sys/devices/system/cpu/cpu{rt}/cpufreq/scaling_governor",
        Form::Word,
        WantedValue::Exactly("performance"),
        "changes of the CPU's frequency",
    ),
    full(knob(
        "energy-bias",
        "/sys/devices/system/cpu/cpu{rt}/power/energy_perf_bias",
        Form::Word,
        WantedValue::Exactly("0"),
        "the CPU's own saving of energy",
    )),
    full(knob(
        "compaction",
        "/proc/sys/vm/compaction_proactiveness",
        Form::Word,
        WantedValue::Exactly("0"),
        "kcompactd, and the interrupts that it sends to all CPUs",
    )),
    full(knob(
        "huge-pages",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        Form::Choice,
        WantedValue::Exactly("never"),
        "khugepaged and its TLB shootdowns",
    )),
    full(knob(
        "huge-page-defrag",
        "/sys/kernel/mm/transparent_hugepage/khugepaged/defrag",
        Form::Word,
        WantedValue::Exactly("0"),
        "khugepaged's compaction",
    )),
    full(knob(
        "ksm",
        "/sys/kernel/mm/ksm/run",
        Form::Word,
        WantedValue::Exactly("0"),
        "ksmd, and page faults on merged pages",
    )),
];

/// What a row removes, by its name.
pub fn removes(name: &str) -> &'static str {
    match name {
        KERNEL_THREADS => "kernel threads that may run elsewhere",
        TASKS => "all other tasks",
        REAL_TIME_TASKS => "real-time tasks that the kernel would carry here when a CPU is free",
        KEPT_IRQ => "nothing: it comes here and nowhere else, as --keep-irq asks",
        PARTITION => "all other tasks, and the balancing of load",
        _ => KNOBS.iter().find(|knob| knob.name == name).map_or("", |knob| knob.removes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(wanted: WantedValue, form: Form, now: &str) -> Result<Option<String>, String> {
        let cpus = |list| Cpus::from_list(list).expect("a list");
        wanted.value(form, now, &cpus("2-3"), &cpus("0-1"))
    }

    #[test]
    fn each_row_wants_what_it_says() {
        let change = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(value(WantedValue::WithoutRt, Form::List, "0-3\n"), change("0-1"));
        assert_eq!(
            value(WantedValue::WithoutRt, Form::List, "1,3\n"),
            change("1"),
            "what is narrow stays so"
        );
        assert_eq!(value(WantedValue::WithoutRt, Form::List, "2\n"), change("0-1"));
        assert_eq!(value(WantedValue::WithoutRt, Form::Mask, "f\n"), change("3"));
        for as_it_is in ["0\n", "0-1\n", "\n"] {
            assert_eq!(value(WantedValue::WithoutRt, Form::List, as_it_is), Ok(None));
        }
        assert_eq!(value(WantedValue::Exactly("-1"), Form::Word, "950000\n"), change("-1"));
        assert_eq!(value(WantedValue::Exactly("-1"), Form::Word, "-1\n"), Ok(None));
        assert_eq!(value(WantedValue::AtLeast(10), Form::Word, "1\n"), change("10"));
        assert_eq!(value(WantedValue::AtLeast(10), Form::Word, "60\n"), Ok(None));
        assert_eq!(value(WantedValue::AtLeastOrOff(600), Form::Word, "0\n"), Ok(None));
        assert_eq!(value(WantedValue::AtMost(1), Form::Word, "2\n"), change("1"));
        assert!(value(WantedValue::AtMost(1), Form::Word, "many").is_err());
        assert!(value(WantedValue::WithoutRt, Form::List, "x").is_err());
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = KNOBS.iter().map(|knob| knob.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KNOBS.len());
    }
}
