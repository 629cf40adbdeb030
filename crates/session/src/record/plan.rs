// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the settings to which recorder takes which tracepoint. Everything that can be refused is refused here.

use super::places::RecordedPlace;
use super::priorities;
use super::settings::KernelSettings;
use super::words::OnlyWhile;
use crate::Failure;
use rtscope_abi as abi;
use rtscope_event::{glob_matches, nearest};
use rtscope_ftrace::format::{EventFormat, Field, FieldKind, Meaning, Scalar};
use rtscope_ftrace::pattern::Patterns;
use rtscope_kernel::syscalls::{
    address_syscall, are_not_preempted, path_syscall, replaces_memory, syscall_number,
};
use rtscope_kernel::tracefs::{EventName, Tracefs};
use rtscope_kernel::{PROGRAMS, ProgramSpec, caps, tracker_programs};
use std::collections::BTreeSet;

/// The subsystem of system calls' tracepoints.
const SYSCALLS: &str = "syscalls";

/// An expression that the kernel tests, and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Of which tracepoint.
    pub event: EventName,
    /// As the kernel takes it.
    pub expression: String,
}

/// What an expression is set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// One tracepoint.
    Event(&'a EventName),
    /// A whole subsystem.
    System(&'a str),
}

/// A system call of which texts behind its arguments are requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathCall {
    /// As tracefs calls it: `openat`.
    pub name: String,
    /// Its number.
    pub number: usize,
    /// As `paths` in `struct rts_config`: bit i: argument i; RTS_PATH_ENTRY_ONLY, RTS_PATH_SOCKET.
    pub arguments: u8,
}

/// The entry or the exit of a system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its tracepoint.
    pub event: EventName,
    /// Its number.
    pub number: u16,
    /// As `calls` in `struct rts_config`.
    pub wanted: u8,
}

/// Who records what.
#[derive(Debug, Default)]
pub struct Plan {
    /// By eBPF.
    pub built_in: Vec<&'static ProgramSpec>,
    /// System calls by eBPF.
    pub calls: Vec<Call>,
    /// By ftrace.
    pub ftrace: Vec<EventName>,
    /// Places in programs, by ftrace.
    pub places: Vec<RecordedPlace>,
    /// Expressions for events of ftrace.
    pub filters: Vec<Filter>,
    /// Texts of system calls' arguments, read by eBPF.
    pub paths: Vec<PathCall>,
    /// Why eBPF records nothing although it was allowed to.
    pub without_ebpf: Option<String>,
}

/// Whether each pattern has a tracepoint among those that are there.
pub(crate) fn all_match(patterns: &Patterns, there: &[EventName]) -> Result<(), Failure> {
    let names = there.iter().map(|event| (event.system.as_str(), event.name.as_str()));
    let nothing = patterns.without_match(names);
    let Some(first) = nothing.first() else { return Ok(()) };
    let with_systems = first.contains(':');
    let names: Vec<String> =
        there.iter().map(|event| if with_systems { event.to_string() } else { event.name.clone() }).collect();
    let similar = nearest(first, names.iter().map(String::as_str));
    let similar = similar.map(|name| format!("; the nearest name is {name}")).unwrap_or_default();
    Err(Failure::Usage(format!(
        "-k {first}: there is no such tracepoint here{similar} (rtscope list -k lists them)"
    )))
}

impl Plan {
    /// Decides. `tracefs`: what the kernel has; `None` when that cannot be read, which leaves eBPF's own set.
    pub fn new(settings: &KernelSettings, tracefs: Option<&Tracefs>) -> Result<Plan, Failure> {
        if settings.patterns.is_empty() && !settings.places.is_empty() {
            let filters = parse_filters(settings, &[])?;
            return Ok(Plan { filters, without_ebpf: why_not_ebpf(settings), ..Plan::default() });
        }
        let asked = if settings.patterns.is_empty() { built_in_events() } else { settings.patterns.clone() };
        let patterns = Patterns::parse_all(&asked).map_err(|error| Failure::Usage(error.to_string()))?;
        let there = available(tracefs)?;
        let names = || there.iter().map(|event| (event.system.as_str(), event.name.as_str()));
        if !settings.patterns.is_empty() {
            let nothing = patterns.without_match(names());
            if let (Some(first), None) = (nothing.first(), tracefs) {
                return Err(Failure::Missing(format!(
                    "-k {first} needs tracefs, which is not mounted or not yours to read: run this as root; \
                     mount -t tracefs nodev /sys/kernel/tracing"
                )));
            }
            all_match(&patterns, &there)?;
        }
        let wanted: Vec<EventName> =
            there.iter().filter(|event| patterns.matches(&event.system, &event.name)).cloned().collect();
        if wanted.is_empty() {
            return Err(Failure::Usage("-k: these patterns exclude everything".to_string()));
        }
        let filters = parse_filters(settings, &wanted)?;
        let mut plan = Plan { filters, without_ebpf: why_not_ebpf(settings), ..Plan::default() };
        let tracefs_for_calls = tracefs.filter(|_| plan.can_take_calls(&wanted));
        for event in wanted {
            if let Some(spec) = plan.built_in_program(&event) {
                plan.built_in.push(spec);
            } else if let Some(call) = tracefs_for_calls.and_then(|tracefs| call_of(tracefs, &event)) {
                plan.calls.push(call);
            } else {
                plan.ftrace.push(event);
            }
        }
        plan.check_tracefs(tracefs)?;
        plan.check_while(settings)?;
        plan.choose_paths(settings, tracefs)?;
        Ok(plan)
    }

    /// The same with places in programs.
    pub fn with_places(self, places: Vec<RecordedPlace>, tracefs: Option<&Tracefs>) -> Result<Plan, Failure> {
        match (places.is_empty(), tracefs) {
            (false, None) => Err(Failure::Missing(
                "--at needs ftrace, and tracefs is not mounted or not yours to read: run this as root; \
                 mount -t tracefs nodev /sys/kernel/tracing"
                    .to_owned(),
            )),
            _ => Ok(Plan { places, ..self }),
        }
    }

    /// Whether ftrace records something.
    pub fn uses_ftrace(&self) -> bool {
        !(self.ftrace.is_empty() && self.places.is_empty())
    }

    /// The program that records this event, if eBPF does.
    fn built_in_program(&self, event: &EventName) -> Option<&'static ProgramSpec> {
        let filtered = self.filters.iter().any(|filter| filter.event == *event);
        let spec =
            PROGRAMS.iter().find(|spec| spec.system == event.system && spec.tracepoint == event.name)?;
        (self.without_ebpf.is_none() && !filtered && spec.interrupts_off).then_some(spec)
    }

    /// Whether eBPF records the system calls themselves: where its programs lose none (they run with preemption off). With a
    /// filter for one of them ftrace has to look at all, so it records them all, too.
    fn can_take_calls(&self, wanted: &[EventName]) -> bool {
        let filtered = self.filters.iter().any(|filter| filter.event.system == SYSCALLS);
        !filtered && self.without_ebpf.is_none() && takes_calls(wanted)
    }

    /// Whether each switch on the recorded CPUs is recorded.
    pub fn has_all_switches(&self, settings: &KernelSettings) -> bool {
        let is_switch = |event: &EventName| event.system == "sched" && event.name == "sched_switch";
        let is_filtered = self.filters.iter().any(|filter| is_switch(&filter.event));
        let of_all_tasks = settings.tids.is_empty() && !settings.only_command && settings.comm.is_none();
        let by_ftrace = of_all_tasks && !is_filtered && self.ftrace.iter().any(is_switch);
        settings.only_while.is_none()
            && (by_ftrace || self.built_in.iter().any(|spec| spec.name == "sched_switch"))
    }

    /// Which arguments are texts: pointers to characters that are not data of a given length; and which are sockets' addresses.
    fn choose_paths(&mut self, settings: &KernelSettings, tracefs: Option<&Tracefs>) -> Result<(), Failure> {
        let Some(tracefs) = tracefs.filter(|_| !settings.by_ftrace && caps::stream_missing().is_none())
        else {
            return Ok(());
        };
        let by_ebpf = self.calls.iter().map(|call| &call.event);
        for event in self.ftrace.iter().filter(|event| event.system == SYSCALLS).chain(by_ebpf) {
            let Some(name) = event.name.strip_prefix("sys_enter_") else { continue };
            if let Some((number, argument)) = address_syscall(name) {
                let arguments = 1 << argument | abi::RTS_PATH_SOCKET as u8;
                self.paths.push(PathCall { name: name.to_string(), number, arguments });
            }
            let Some(number) = path_syscall(name) else { continue };
            let format = tracefs.format(event)?;
            // The first field is the number of the call; each argument takes eight bytes.
            let arguments = format.fields.iter().skip(1).zip(0_u32..5).filter(|(field, _)| is_text(field));
            let bits = arguments.fold(0_u8, |bits, (_, argument)| bits | 1 << argument);
            if bits != 0 {
                let once = if replaces_memory(name) { abi::RTS_PATH_ENTRY_ONLY as u8 } else { 0 };
                self.paths.push(PathCall { name: name.to_string(), number, arguments: bits | once });
            }
        }
        Ok(())
    }

    /// What the kernel is to test: --filter, and --comm for all. By subsystem where all its events have the same
    /// expression, since each setting takes the kernel milliseconds.
    pub fn expressions(&self, settings: &KernelSettings) -> Vec<(Scope<'_>, String)> {
        let comm = named_tasks(settings);
        let own = |event: &EventName| self.filters.iter().find(|filter| filter.event == *event);
        let expression = |event: &EventName| match (own(event), &comm) {
            (Some(own), Some(comm)) => Some(format!("({}) && {comm}", own.expression)),
            (Some(own), None) => Some(own.expression.clone()),
            (None, comm) => comm.clone(),
        };
        let mut all = Vec::new();
        for events in self.ftrace.chunk_by(|one, next| one.system == next.system) {
            let first = expression(&events[0]);
            if events.len() > 1 && events.iter().all(|event| expression(event) == first) {
                all.extend(first.map(|first| (Scope::System(&events[0].system), first)));
            } else {
                all.extend(events.iter().filter_map(|event| Some((Scope::Event(event), expression(event)?))));
            }
        }
        all
    }

    /// Which tasks are recorded is decided by eBPF, for its own events.
    fn check_while(&mut self, settings: &KernelSettings) -> Result<(), Failure> {
        let Some(OnlyWhile { tracker, .. }) = settings.only_while else { return Ok(()) };
        let refuse = |why: String| Err(Failure::Usage(format!("--while: {why}")));
        if let Some(why) = &self.without_ebpf {
            return refuse(format!("eBPF decides what is recorded, and records nothing here: {why}"));
        }
        if let Some(event) = self.ftrace.first() {
            return refuse(format!(
                "eBPF decides what is recorded, and {}:{} is recorded by ftrace here (rtscope list -k says which recorder takes each); leave it out",
                event.system, event.name
            ));
        }
        let needed = tracker_programs(tracker);
        let is_missing = |spec: &&ProgramSpec| {
            needed.contains(&spec.name) && !self.built_in.iter().any(|there| there.name == spec.name)
        };
        let missing: Vec<&'static ProgramSpec> = PROGRAMS.iter().filter(is_missing).collect();
        // What the tracker needs is recorded, too: of the tasks concerned it says what they waited for.
        self.built_in.extend(missing.into_iter().filter(|spec| spec.interrupts_off));
        Ok(())
    }

    fn check_tracefs(&self, tracefs: Option<&Tracefs>) -> Result<(), Failure> {
        match (self.ftrace.first(), tracefs) {
            (Some(first), None) => Err(Failure::Missing(format!(
                "{}:{} needs ftrace, and tracefs is not mounted; mount -t tracefs nodev /sys/kernel/tracing",
                first.system, first.name
            ))),
            _ => Ok(()),
        }
    }
}

/// Whether there are system calls among these, and eBPF's programs for them lose none here. A kernel that refuses the program
/// that finds this out would refuse those, too.
pub fn takes_calls<'a>(wanted: impl IntoIterator<Item = &'a EventName>) -> bool {
    wanted.into_iter().any(|event| event.system == SYSCALLS) && are_not_preempted().unwrap_or(false)
}

/// What eBPF has to do to record this event; `None`: it cannot. It takes what is in the registers, so the event must
/// be just that, in the layout that all kernels have had so far; newer ones add texts to some calls.
pub fn call_of(tracefs: &Tracefs, event: &EventName) -> Option<Call> {
    let (name, is_exit) = match event.name.strip_prefix("sys_enter_") {
        Some(name) => (name, false),
        None => (event.name.strip_prefix("sys_exit_")?, true),
    };
    let number = u16::try_from(syscall_number(name).filter(|_| event.system == SYSCALLS)?).ok()?;
    let values = plain_call(&tracefs.format(event).ok()?)?;
    let wanted = match (is_exit, values) {
        (true, 1) => abi::RTS_CALL_EXIT,
        (false, ..=abi::RTS_SYSCALL_ARGS_MAX) => abi::RTS_CALL_ENTRY | values,
        _ => return None,
    };
    Some(Call { event: event.clone(), number, wanted: u8::try_from(wanted).ok()? })
}

/// How many words follow the number of the call; `None` when there is something else in the event.
fn plain_call(format: &EventFormat) -> Option<u32> {
    let (number, values) = format.fields.split_first()?;
    let common = format.common.iter().find(|field| field.name == "common_pid")?;
    let begins_well = (common.offset, common.size) == (4, 4) && (number.offset, number.size) == (8, 4);
    let plain = |(field, place): (&Field, u32)| {
        (field.offset, field.size) == (16 + 8 * place, 8) && matches!(field.kind, FieldKind::Scalar(_))
    };
    (begins_well && values.iter().zip(0..).all(plain)).then(|| u32::try_from(values.len()).ok())?
}

fn is_text(field: &Field) -> bool {
    matches!(field.kind, FieldKind::Scalar(Scalar { meaning: Meaning::UserText, .. }))
}

/// What eBPF records, as patterns.
fn built_in_events() -> Vec<String> {
    let built_in = PROGRAMS.iter().filter(|spec| spec.interrupts_off);
    built_in.map(|spec| format!("{}:{}", spec.system, spec.tracepoint)).collect()
}

/// All tracepoints, sorted.
fn available(tracefs: Option<&Tracefs>) -> Result<Vec<EventName>, Failure> {
    let name = |system: &str, name: &str| EventName { system: system.to_string(), name: name.to_string() };
    let there: BTreeSet<EventName> = match tracefs {
        Some(tracefs) => tracefs
            .events()
            .map_err(Failure::from)?
            .iter()
            // Of a recording, with which they go.
            .filter(|event| !event.is_own_uprobe())
            .map(|event| name(&event.system, &event.name))
            .collect(),
        None => {
            let tracepoints = caps::Tracepoints::read();
            let built_in =
                PROGRAMS.iter().filter(|spec| spec.interrupts_off && tracepoints.has(spec.tracepoint));
            built_in.map(|spec| name(spec.system, spec.tracepoint)).collect()
        }
    };
    Ok(there.into_iter().collect())
}

/// eBPF sees every task and CPU; what is limited to some is left to ftrace, which filters in the kernel.
fn why_not_ebpf(settings: &KernelSettings) -> Option<String> {
    let limited = !settings.tids.is_empty()
        || settings.only_command
        || settings.comm.is_some()
        || settings.cpus.is_some();
    if settings.by_ftrace {
        Some("--by ftrace".to_string())
    } else if limited {
        Some(
            "only some tasks or CPUs were asked for, and ftrace leaves the others out in the kernel"
                .to_string(),
        )
    } else {
        caps::stream_missing().map(|missing| missing.sentence())
    }
}

/// The kernel's expression for --comm.
pub fn named_tasks(settings: &KernelSettings) -> Option<String> {
    settings.comm.as_ref().map(|comm| format!("COMM ~ \"{comm}\""))
}

/// `EVENT: EXPR`, for each event that EVENT matches.
fn parse_filters(settings: &KernelSettings, wanted: &[EventName]) -> Result<Vec<Filter>, Failure> {
    let mut filters: Vec<Filter> = Vec::new();
    for text in &settings.filters {
        let wrong = |why: &str| Failure::Usage(format!("--filter '{text}': {why}"));
        let (pattern, expression) =
            split_filter(text).ok_or_else(|| wrong("write it as 'EVENT: EXPRESSION'"))?;
        let matching = wanted.iter().filter(|event| {
            let is = |name: &str| glob_matches(pattern.as_bytes(), name.as_bytes());
            is(&event.name) || is(&event.to_string())
        });
        if let Some(why) = priorities::fault(expression) {
            return Err(wrong(&why));
        }
        let before = filters.len();
        for event in matching {
            if filters.iter().any(|filter| filter.event == *event) {
                return Err(wrong(&format!(
                    "{}:{} has a filter already; join them with &&",
                    event.system, event.name
                )));
            }
            filters.push(Filter { event: event.clone(), expression: expression.to_string() });
        }
        if filters.len() == before {
            return Err(wrong("no tracepoint selected by -k matches"));
        }
    }
    Ok(filters)
}

/// `sched:sched_switch: next_prio < 100` and `sched_switch: next_prio < 100`: the name ends at a colon before a blank.
fn split_filter(text: &str) -> Option<(&str, &str)> {
    let (event, expression) = text.split_once(": ").or_else(|| {
        let at = text.rfind(':')?;
        Some((&text[..at], &text[at + 1..]))
    })?;
    let (event, expression) = (event.trim(), expression.trim());
    (!event.is_empty() && !expression.is_empty()).then_some((event, expression))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_tracepoint_is_refused_with_the_nearest_name() {
        let there = ["sched_switch", "sched_waking", "sched_wakeup"]
            .map(|name| EventName { system: "sched".to_owned(), name: name.to_owned() });
        for (asked, nearest) in [
            ("sched:sched_swich", "nearest name is sched:sched_switch"),
            ("sched_walking", "nearest name is sched_waking"),
        ] {
            let patterns = Patterns::parse_all(&[asked.to_owned()]).unwrap();
            let refused = all_match(&patterns, &there).unwrap_err().to_string();
            assert!(refused.contains(nearest), "{refused}");
        }
        let patterns = Patterns::parse_all(&["sched:*".to_owned(), "!none".to_owned()]).unwrap();
        assert!(all_match(&patterns, &there).is_ok());
    }

    #[test]
    fn all_switches_are_recorded_unless_a_task_or_a_filter_is_chosen() {
        let switch = EventName { system: "sched".to_owned(), name: "sched_switch".to_owned() };
        let filter = Filter { event: switch.clone(), expression: "next_prio < 100".to_owned() };
        let plan = Plan { ftrace: vec![switch], ..Plan::default() };
        let all = KernelSettings::default();
        assert!(plan.has_all_switches(&all));
        assert!(!Plan::default().has_all_switches(&all));
        assert!(!plan.has_all_switches(&KernelSettings { tids: vec![1], ..KernelSettings::default() }));
        assert!(!plan.has_all_switches(&KernelSettings { only_command: true, ..KernelSettings::default() }));
        let named = KernelSettings { comm: Some("x".to_owned()), ..KernelSettings::default() };
        assert!(!plan.has_all_switches(&named));
        assert!(!Plan { filters: vec![filter], ..plan }.has_all_switches(&all));
    }

    #[test]
    fn a_filter_is_an_event_and_an_expression() {
        assert_eq!(
            split_filter("sched:sched_switch: next_prio < 100"),
            Some(("sched:sched_switch", "next_prio < 100"))
        );
        assert_eq!(split_filter("sched_switch: a == \"x:y\""), Some(("sched_switch", "a == \"x:y\"")));
        assert_eq!(split_filter("sched_switch:next_prio<100"), Some(("sched_switch", "next_prio<100")));
        assert_eq!(split_filter("sched_switch"), None);
        assert_eq!(split_filter("sched_switch: "), None);
    }
}
