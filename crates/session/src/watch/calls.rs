// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls by name: which ones a watch follows, and what the registers of a report are called.
//!
//! A call in which a thread waits for others or for time is as long as these make it, and says nothing when it is long; so those are left
//! out unless somebody asks for them.

use crate::Failure;
use rtscope_abi as abi;
use rtscope_event::{Pattern, SystemCall, WaitKind, nearest};
use rtscope_kernel::syscalls::known_syscalls;
use rtscope_kernel::tracefs::{EventName, Tracefs};
use rtscope_kernel::wait_in;
use std::collections::HashMap;

/// For these a thread waits because that is its work.
pub const LEFT_OUT: [WaitKind; 10] = [
    WaitKind::Futex,
    WaitKind::Sleep,
    WaitKind::Poll,
    WaitKind::Epoll,
    WaitKind::Receive,
    WaitKind::Accept,
    WaitKind::Child,
    WaitKind::Signal,
    WaitKind::IoUring,
    WaitKind::Semaphore,
];

/// Names in C of calls that tracefs calls otherwise.
const IN_C: [(&str, &str); 6] = [
    ("stat", "newstat"),
    ("fstat", "newfstat"),
    ("lstat", "newlstat"),
    ("uname", "newuname"),
    ("sendfile", "sendfile64"),
    ("umount2", "umount"),
];

/// The numbers of the calls that are followed. `patterns`: names with `*` and `?`, and `!` before those that are not meant; where none is
/// without that: all but those that wait on purpose.
///
/// # Errors
/// A pattern that is no call's.
pub fn chosen(patterns: &[String]) -> Result<Vec<usize>, Failure> {
    let rules = patterns.iter().map(|text| rule(text)).collect::<Result<Vec<_>, _>>()?;
    let by_default = rules.iter().all(|(_, is_meant)| !is_meant);
    let names: HashMap<usize, &str> = known_syscalls().collect();
    let is_chosen = |number: &usize| {
        // What is newer than this program has no name here.
        let name = names.get(number).copied().unwrap_or_default();
        let waits = LEFT_OUT.contains(&wait_in(name)) || name == "restart_syscall";
        let says = |pattern: &Pattern| is_of(pattern, name);
        let of_rule = rules.iter().rev().find(|(pattern, _)| says(pattern)).map(|(_, is_meant)| *is_meant);
        of_rule.unwrap_or(by_default && !waits)
    };
    let numbers: Vec<usize> = (0..abi::RTS_SYSCALLS as usize).filter(is_chosen).collect();
    if numbers.is_empty() {
        return Err(Failure::Usage(format!("--calls {}: no call is left", patterns.join(","))));
    }
    Ok(numbers)
}

/// Whether a pattern means this call, by its name in tracefs or in C.
fn is_of(pattern: &Pattern, name: &str) -> bool {
    let in_c = IN_C.iter().find(|(_, other)| *other == name).map(|(in_c, _)| in_c);
    pattern.matches(name.as_bytes()) || in_c.is_some_and(|in_c| pattern.matches(in_c.as_bytes()))
}

/// A pattern, and whether it says which calls are meant, or which are not.
fn rule(text: &str) -> Result<(Pattern, bool), Failure> {
    let (name, is_meant) = text.strip_prefix('!').map_or((text, true), |rest| (rest, false));
    if name.is_empty() {
        return Err(Failure::Usage("--calls: there is an empty name in the list".to_owned()));
    }
    let pattern = Pattern::new(name);
    if known_syscalls().any(|(_, known)| is_of(&pattern, known)) {
        return Ok((pattern, is_meant));
    }
    let near = nearest(name, known_syscalls().map(|(_, known)| known));
    let near = near.map_or(String::new(), |near| format!("; {near} is one"));
    Err(Failure::Usage(format!("--calls {text}: there is no system call of that name{near}")))
}

/// Names of calls and of their arguments, as tracefs has them; each is read once.
#[derive(Debug, Default)]
pub struct CallNames {
    tracefs: Option<Tracefs>,
    known: HashMap<u32, (Option<String>, Option<Vec<String>>)>,
}

impl CallNames {
    /// Of this machine.
    #[must_use]
    pub fn new() -> CallNames {
        CallNames { tracefs: Tracefs::find().ok(), known: HashMap::new() }
    }

    /// The name of the call with this number.
    pub fn name(&mut self, number: u32) -> Option<String> {
        self.known(number).0.clone()
    }

    fn known(&mut self, number: u32) -> &(Option<String>, Option<Vec<String>>) {
        let tracefs = self.tracefs.as_ref();
        self.known.entry(number).or_insert_with(|| {
            let name = known_syscalls().find(|(known, _)| *known == number as usize);
            let name = name.map(|(_, name)| name.to_owned());
            let arguments = name.as_ref().and_then(|name| arguments(tracefs?, name));
            (name, arguments)
        })
    }

    /// Gives a call its name, and the arguments that it has theirs.
    pub fn describe(&mut self, call: &mut SystemCall) {
        let (name, arguments) = self.known(call.number);
        call.name.clone_from(name);
        if let Some(arguments) = arguments {
            call.args.truncate(arguments.len());
            for (argument, name) in call.args.iter_mut().zip(arguments) {
                argument.name = Some(name.clone());
            }
        }
    }
}

fn arguments(tracefs: &Tracefs, call: &str) -> Option<Vec<String>> {
    let event = EventName { system: "syscalls".to_owned(), name: format!("sys_enter_{call}") };
    let format = tracefs.format(&event).ok()?;
    let fields = format.fields.into_iter().map(|field| field.name);
    // The number of the call, and from Linux 7 on what is at its pointers: `__syscall_nr`, `__filename_val`.
    Some(fields.filter(|name| !name.starts_with("__")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(patterns: &[&str]) -> Vec<&'static str> {
        let patterns: Vec<String> = patterns.iter().map(|text| (*text).to_owned()).collect();
        let numbers = chosen(&patterns).expect("calls");
        known_syscalls().filter(|(number, _)| numbers.contains(number)).map(|(_, name)| name).collect()
    }

    #[test]
    fn calls_that_wait_on_purpose_are_left_out_unless_they_are_asked_for() {
        let usual = names(&[]);
        for (name, is_in) in [("fsync", true), ("read", true), ("epoll_pwait", false), ("futex", false)] {
            assert_eq!(usual.contains(&name), is_in, "{name}");
        }
        assert_eq!(names(&["f*sync", "stat"]).len(), 3);
        assert_eq!(names(&["epoll_*wait*", "!epoll_pwait2"]), names(&["epoll_wait", "epoll_pwait"]));
        assert_eq!(names(&["!read"]).len() + 1, usual.len());
        assert!(names(&["*"]).contains(&"futex"));
        assert!(names(&["fsta?"]).contains(&"newfstat") && names(&["stat*"]).contains(&"newstat"));
        for nothing in [&["!*"][..], &["*", "!*"], &["read", ""]] {
            let patterns: Vec<String> = nothing.iter().map(|text| (*text).to_owned()).collect();
            assert!(chosen(&patterns).is_err(), "{nothing:?}");
        }
        let wrong = chosen(&["fsynk".to_owned()]).expect_err("no such call").to_string();
        assert!(wrong.contains("fsynk") && wrong.contains("fsync"), "{wrong}");
    }
}
