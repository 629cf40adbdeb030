// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a shield would change on this machine. Nothing is written here: a plan may be asked for at any time.

use crate::boot::{self, Parameter};
use crate::form::Form;
use crate::kept::{self, ExemptInterrupt};
use crate::knobs::{IRQ, KEPT, KERNEL_THREADS, KNOBS, Knob, Level, REAL_TIME_TASKS, TASKS, removes};
use crate::partition::Isolation;
use crate::step::{Step, Target};
use crate::tasks::{self, Task};
use crate::{Cpus, Error, System};
use nix::errno::Errno;
use serde::Serialize;
use std::io;

/// What is to be done with a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It changes.
    Change,
    /// It is as wanted.
    AsWanted,
    /// It cannot be changed.
    Refused,
    /// There is no such thing here.
    Absent,
}

/// A setting.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// The row of the table.
    pub knob: String,
    /// Its file, or the thread.
    pub place: String,
    /// What it is about.
    pub label: String,
    /// Whether it is a control group, which is made.
    pub is_group: bool,
    /// The value now.
    pub now: Option<String>,
    /// The value of the shield.
    pub wanted: Option<String>,
    /// What is to be done.
    pub state: State,
    /// Why it cannot be changed, or is not there.
    pub why: Option<String>,
    /// What changing it removes.
    pub removes: &'static str,
    /// How it is undone.
    pub undo: &'static str,
}

/// How a step is undone, in words.
fn undo(target: &Target) -> &'static str {
    match target {
        Target::File { .. } | Target::Affinity { .. } | Target::Policy { .. } => {
            "the value that was read before is written back"
        }
        Target::Group { .. } => "its tasks go to the group above, and it is removed",
        Target::Threads { .. } | Target::Member { .. } => "they go back",
    }
}

/// A plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The real-time CPUs.
    pub rt: Cpus,
    /// The others that are online.
    pub others: Cpus,
    /// How far it goes.
    pub level: Level,
    /// Interrupts that stay.
    pub kept: Vec<ExemptInterrupt>,
    /// How CPUs are isolated.
    pub apart: Isolation,
    /// Everything that was looked at.
    pub settings: Vec<Setting>,
    /// What is to be done, in this order.
    pub steps: Vec<Step>,
    /// What only the kernel's command line can set.
    pub boot: Vec<Parameter>,
    /// What else the user should know.
    pub notes: Vec<String>,
}

/// Looks at the machine.
///
/// # Errors
/// When the CPUs cannot be divided like this.
pub fn plan(system: &System, rt: &str, level: Level) -> Result<Plan, Error> {
    plan_with(system, rt, level, Isolation::find(system), &[])
}

/// The same with interrupts that stay, see [`kept::find`].
///
/// # Errors
/// As [`plan`], or when there is no such interrupt.
pub fn plan_keeping(system: &System, rt: &str, level: Level, keep: &[String]) -> Result<Plan, Error> {
    plan_with(system, rt, level, Isolation::find(system), keep)
}

/// The plan for CPUs that a scheduler lends to others: nothing is isolated.
///
/// # Errors
/// As [`plan_keeping`].
pub fn plan_lent(system: &System, rt: &str, level: Level, keep: &[String]) -> Result<Plan, Error> {
    plan_with(system, rt, level, Isolation::Lent, keep)
}

fn plan_with(
    system: &System,
    rt: &str,
    level: Level,
    apart: Isolation,
    keep: &[String],
) -> Result<Plan, Error> {
    let (rt, others) = split(system, rt)?;
    let mut plan = Plan {
        kept: kept::find(system, &rt, keep)?,
        apart,
        settings: Vec::new(),
        steps: Vec::new(),
        boot: boot::parameters(system, &rt, &others),
        notes: Vec::new(),
        rt,
        others,
        level,
    };
    for knob in KNOBS.iter().filter(|knob| knob.level <= level) {
        plan.look_at(system, knob);
    }
    for kept in plan.kept.clone() {
        plan.keep(system, &kept);
    }
    plan.look_at_tasks(system);
    for step in plan.apart.steps(system, &plan.rt, &plan.others) {
        match step.old.as_deref() == Some(step.wanted.as_str())
            && !matches!(step.target, Target::Group { .. })
        {
            true => plan.settings.push(setting(&step, State::AsWanted, None)),
            false => plan.add(step),
        }
    }
    plan.notes = notes(system, &plan);
    Ok(plan)
}

/// The real-time CPUs and the others that are online, if they can be divided like this.
///
/// # Errors
/// When one side has none, or a CPU is not online.
pub fn split(system: &System, rt: &str) -> Result<(Cpus, Cpus), Error> {
    const ONLINE: &str = "/sys/devices/system/cpu/online";
    let rt = Cpus::from_list(rt).map_err(|error| Error::Cpus(format!("--rt: {error}")))?;
    let online = system.read(ONLINE).map_err(Error::io("read", &system.path(ONLINE)))?;
    let online = Cpus::from_list(&online).map_err(|error| Error::Cpus(format!("{ONLINE}: {error}")))?;
    let problem = if online.len() < 2 {
        format!(
            "this machine has one CPU online ({online}); a shield needs one for real time and one for everything else"
        )
    } else if rt.is_empty() {
        "--rt: no CPU is named; write for instance --rt 2-3".to_owned()
    } else if !rt.without(&online).is_empty() {
        format!("--rt {rt}: CPU {} is not online; there are {online}", rt.without(&online))
    } else if online.without(&rt).is_empty() {
        format!("--rt {rt}: these are all the CPUs that are online; leave at least one for everything else")
    } else {
        let others = online.without(&rt);
        return Ok((rt, others));
    };
    Err(Error::Cpus(problem))
}

fn setting(step: &Step, state: State, why: Option<String>) -> Setting {
    Setting {
        knob: step.knob.clone(),
        place: step.place(),
        label: step.label.clone(),
        is_group: matches!(step.target, Target::Group { .. }),
        now: step.old.as_deref().map(|old| old.trim().to_owned()),
        wanted: Some(step.wanted.clone()),
        state,
        why,
        removes: removes(&step.knob),
        undo: undo(&step.target),
    }
}

impl Plan {
    fn add(&mut self, step: Step) {
        self.settings.push(setting(&step, State::Change, None));
        self.steps.push(step);
    }

    fn look_at(&mut self, system: &System, knob: &Knob) {
        let patterns: Vec<String> = match knob.files.contains("{rt}") {
            true => self.rt.iter().map(|cpu| knob.files.replace("{rt}", &cpu.to_string())).collect(),
            false => vec![knob.files.to_owned()],
        };
        let paths: Vec<String> = patterns.iter().flat_map(|pattern| system.glob(pattern)).collect();
        let before = self.settings.len();
        for path in paths {
            self.look_at_file(system, knob, path);
        }
        if self.settings.len() == before {
            self.settings.push(Setting {
                knob: knob.name.to_owned(),
                place: knob.files.to_owned(),
                label: String::new(),
                is_group: false,
                now: None,
                wanted: None,
                state: State::Absent,
                why: Some("this kernel or machine has no such setting".to_owned()),
                removes: knob.removes,
                undo: "",
            });
        }
    }

    fn look_at_file(&mut self, system: &System, knob: &Knob, path: String) {
        let beside = knob.read.map(|name| match path.rsplit_once('/') {
            Some((directory, _)) => format!("{directory}/{name}"),
            None => name.to_owned(),
        });
        let read = beside.filter(|beside| system.exists(beside)).unwrap_or_else(|| path.clone());
        if knob.name == IRQ
            && self.kept.iter().any(|kept| path == format!("/proc/irq/{}/smp_affinity_list", kept.irq))
        {
            return;
        }
        let label = label(system, knob, &path);
        let target = Target::File { read: read.clone(), path: path.clone(), form: knob.form };
        let mut step = Step {
            knob: knob.name.to_owned(),
            target,
            label,
            old: None,
            wanted: String::new(),
            outcome: None,
        };
        let now = match system.read(&read) {
            Ok(text) => text,
            Err(error) if has_no_meaning(&error) => return,
            Err(error) => {
                let why = Some(format!("it cannot be read: {error}"));
                self.settings.push(Setting { wanted: None, ..setting(&step, State::Refused, why) });
                return;
            }
        };
        step.old = Some(knob.form.value(&now));
        let old = step.old.as_deref().unwrap_or_default();
        match knob.wanted.value(knob.form, old, &self.rt, &self.others) {
            Ok(None) => self
                .settings
                .push(Setting { wanted: step.old.clone(), ..setting(&step, State::AsWanted, None) }),
            Ok(Some(wanted)) => {
                step.wanted = wanted;
                self.take(system, step);
            }
            Err(why) => {
                self.settings.push(Setting { wanted: None, ..setting(&step, State::Refused, Some(why)) })
            }
        }
    }

    /// A step on a file, where that is not as wanted and may be written.
    pub(crate) fn take(&mut self, system: &System, step: Step) {
        let Target::File { path, form, .. } = &step.target else { return };
        if step.old.as_deref().is_some_and(|old| form.same(old, &step.wanted)) {
            self.settings.push(setting(&step, State::AsWanted, None));
            return;
        }
        match system.refusal(path) {
            None => self.add(step),
            Some(why) => self.settings.push(setting(&step, State::Refused, Some(why))),
        }
    }

    fn look_at_tasks(&mut self, system: &System) {
        let (steps, mut bound) = self.tasks(system);
        for step in steps {
            if step.knob == KEPT { self.steps.push(step) } else { self.add(step) }
        }
        bound.sort_unstable();
        bound.dedup();
        if !bound.is_empty() {
            self.notes.push(format!("kernel threads that belong to a CPU stay there: {}", bound.join(", ")));
        }
    }

    /// The tasks that have to be moved away, and the kinds of those that cannot be.
    pub(crate) fn tasks(&self, system: &System) -> (Vec<Step>, Vec<String>) {
        let whole = Cpus::from_iter(self.rt.iter().chain(self.others.iter()));
        let (mut steps, mut bound) = (Vec::new(), Vec::new());
        for task in tasks::all(system) {
            let Ok(cpus) = task.thread.cpus(system) else { continue };
            if task.bound && !cpus.is_apart_from(&self.rt) {
                bound.push(task.thread.name.split('/').next().unwrap_or_default().to_owned());
            }
            let Some(knob) = self.row(&task, &cpus, &whole) else { continue };
            let left = cpus.without(&self.rt);
            let left = if left.is_empty() { &self.others } else { &left };
            steps.push(Step {
                knob: knob.to_owned(),
                label: task.thread.name.clone(),
                target: Target::Affinity { thread: task.thread },
                old: Some(cpus.to_string()),
                wanted: left.to_string(),
                outcome: None,
            });
        }
        (steps, bound)
    }

    /// Under which row a task's affinity is changed or kept, if at all.
    ///
    /// Tasks that get into a cpuset and out again, and on some kernels all that stay in the group above a partition, lose what they could
    /// use before: kernel threads always, others before Linux 6.2. So the journal has theirs, too.
    fn row(&self, task: &Task, cpus: &Cpus, whole: &Cpus) -> Option<&'static str> {
        // An interrupt's thread goes where its interrupt goes.
        if task.bound || task.kernel && task.thread.name.starts_with("irq/") {
            return None;
        }
        let (here, narrow) = (!cpus.is_apart_from(&self.rt), cpus != whole);
        match (&self.apart, task.kernel) {
            (_, true) if here => Some(KERNEL_THREADS),
            (Isolation::Affinities { .. }, false) if here => Some(TASKS),
            (Isolation::Lent, false) if here && task.is_real_time() && cpus.len() > 1 => {
                Some(REAL_TIME_TASKS)
            }
            (Isolation::Partition { .. } | Isolation::Cpusets { .. }, _) if narrow => Some(KEPT),
            _ => None,
        }
    }
}

/// Some files of settings that a device does not have answer with an error.
fn has_no_meaning(error: &io::Error) -> bool {
    let none = [Errno::EIO, Errno::ENOENT, Errno::EINVAL, Errno::EOPNOTSUPP, Errno::ENODEV];
    error.raw_os_error().is_some_and(|number| none.contains(&Errno::from_raw(number)))
}

/// For people: an interrupt's device.
fn label(system: &System, knob: &Knob, path: &str) -> String {
    if knob.name != IRQ {
        return String::new();
    }
    let directory = path.rsplit_once('/').map_or(path, |(directory, _)| directory);
    let number = directory.rsplit('/').next().unwrap_or_default();
    format!("{number} {}", kept::devices(system, number).join(",")).trim_end().to_owned()
}

fn notes(system: &System, plan: &Plan) -> Vec<String> {
    let mut notes = plan.notes.clone();
    if let Isolation::Affinities { why } = &plan.apart {
        notes.push(format!(
            "{why}: tasks are held away by their affinity only; a program may set its own back, and load is still balanced"
        ));
    }
    if let Isolation::Cpusets { mount, prefix } = &plan.apart {
        for file in system.glob(&format!("{mount}/*/{prefix}cpus")) {
            let cpus = system.read(&file).ok().and_then(|text| Form::List.cpus(&text)).unwrap_or_default();
            if !cpus.is_apart_from(&plan.rt) {
                notes.push(format!(
                    "{file} has {}: the CPUs cannot be exclusive before it leaves them (echo {} > {file})",
                    cpus,
                    cpus.without(&plan.rt)
                ));
            }
        }
    }
    for cpu in plan.rt.iter() {
        let siblings = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let siblings =
            system.read(&siblings).ok().and_then(|text| Form::List.cpus(&text)).unwrap_or_default();
        let strange = siblings.without(&plan.rt);
        if !strange.is_empty() {
            notes.push(format!(
                "CPU {cpu} shares its core with CPU {strange}, which is not in --rt: add it, or switch it off (echo 0 > \
                 /sys/devices/system/cpu/cpu{strange}/online)"
            ));
        }
    }
    if plan.rt.contains(0) {
        notes.push("CPU 0 starts the machine; some kernels keep time and unmovable work there: another one is quieter".into());
    }
    let pm_qos = format!(
        "/sys/devices/system/cpu/cpu{}/power/pm_qos_resume_latency_us",
        plan.rt.iter().next().unwrap_or(0)
    );
    if !system.exists(&pm_qos) {
        notes.push(
            "no per-CPU limit of idle states here; /dev/cpu_dma_latency has one for all CPUs, which holds while a process keeps it \
             open: not set"
                .into(),
        );
    }
    if boot::has_domain_isolation(system) {
        notes.push(
            "the kernel was started with isolcpus= for the scheduler's domains; that holds until a reboot"
                .into(),
        );
    }
    let names = system.glob("/proc/*/comm");
    if names.iter().any(|path| system.read(path).is_ok_and(|name| name.trim() == "irqbalance")) {
        notes.push(format!(
            "irqbalance runs and will move interrupts back: stop it, or set IRQBALANCE_BANNED_CPULIST={}",
            plan.rt
        ));
    }
    notes
}
