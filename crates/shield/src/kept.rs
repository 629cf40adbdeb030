// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts that stay: the device that a real-time task works with should interrupt the task's CPU, and no other.

use crate::form::Form;
use crate::plan::Plan;
use crate::step::{Step, Target};
use crate::{Cpus, Error, System};

/// The row of kept interrupts in a plan and in the journal.
pub const KEPT_IRQ: &str = "kept-irq";

/// An interrupt that is to come to the shielded CPUs, or to one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExemptInterrupt {
    /// Its number.
    pub irq: u32,
    /// Where it is to come.
    pub cpus: Cpus,
}

/// The devices of an interrupt: each has a directory there. Others may have the same name.
pub fn devices(system: &System, irq: &str) -> Vec<String> {
    let devices = system.glob(&format!("/proc/irq/{irq}/*/"));
    let is_directory = |path: &&String| system.path(path).is_dir();
    let names = devices.iter().filter(is_directory).filter_map(|path| path.rsplit('/').next());
    names.map(str::to_owned).collect()
}

fn all(system: &System) -> Vec<(u32, Vec<String>)> {
    let files = system.glob("/proc/irq/*/smp_affinity_list");
    let numbers = files.iter().filter_map(|path| path.split('/').nth(3));
    let with_devices = |number: &str| Some((number.parse::<u32>().ok()?, devices(system, number)));
    numbers.filter_map(with_devices).collect()
}

/// Whether a name is meant by a pattern, whose last character may be a `*`.
fn is_meant(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => pattern == name,
    }
}

/// The interrupts that are meant by `36`, `eth0`, `eth0-rx-*`, `eth0@2`.
///
/// # Errors
/// When there is no such interrupt, or the CPU is not one of the shield's.
pub fn find(system: &System, rt: &Cpus, wanted: &[String]) -> Result<Vec<ExemptInterrupt>, Error> {
    let interrupts = all(system);
    let mut found: Vec<ExemptInterrupt> = Vec::new();
    for text in wanted {
        let wrong = |why: String| Error::Cpus(format!("--keep-irq {text}: {why}"));
        // Some drivers have an @ in their names themselves.
        let is_name = interrupts.iter().any(|(_, names)| names.iter().any(|name| is_meant(text, name)));
        let (pattern, cpus) = match text.rsplit_once('@').filter(|_| !is_name) {
            None => (text.as_str(), rt.clone()),
            Some((pattern, cpus)) => (pattern, Cpus::from_list(cpus).map_err(wrong)?),
        };
        if cpus.is_empty() || !cpus.without(rt).is_empty() {
            return Err(wrong(format!("the shield has CPUs {rt}")));
        }
        let is_it = |(irq, names): &&(u32, Vec<String>)| match pattern.parse::<u32>() {
            Ok(number) => *irq == number,
            Err(_) => names.iter().any(|name| is_meant(pattern, name)),
        };
        let before = found.len();
        found.extend(
            interrupts.iter().filter(is_it).map(|(irq, _)| ExemptInterrupt { irq: *irq, cpus: cpus.clone() }),
        );
        if found.len() == before {
            let there = interrupts.iter().filter(|(_, names)| !names.is_empty());
            let there: Vec<String> = there.map(|(irq, names)| format!("{irq} {}", names.join(","))).collect();
            return Err(wrong(format!(
                "there is no such interrupt now (a driver may ask for it only while its device is open); there are: {}",
                there.join("; ")
            )));
        }
    }
    Ok(found)
}

impl Plan {
    /// What has to be done for an interrupt that stays: it comes to its CPUs, and to no other.
    pub(crate) fn keep(&mut self, system: &System, kept: &ExemptInterrupt) {
        let path = format!("/proc/irq/{}/smp_affinity_list", kept.irq);
        let names = devices(system, &kept.irq.to_string());
        let step = Step {
            knob: KEPT_IRQ.to_owned(),
            target: Target::File { path: path.clone(), read: path.clone(), form: Form::List },
            label: format!("{} {}", kept.irq, names.join(",")).trim_end().to_owned(),
            old: system.read(&path).ok(),
            wanted: kept.cpus.to_string(),
            outcome: None,
        };
        self.take(system, step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn interrupts_are_found_by_number_and_by_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let system = System::new(directory.path());
        for (irq, names) in [
            ("9", &["eth0"][..]),
            ("10", &["eth0-rx-0", "usb1"]),
            ("11", &["eth0-rx-1"]),
            ("12", &[]),
            ("13", &["mlx5_comp0@pci:0000:08:00.0"]),
        ] {
            let irq = format!("/proc/irq/{irq}");
            fs::create_dir_all(system.path(&irq)).expect("made");
            fs::write(system.path(&format!("{irq}/smp_affinity_list")), "0-3\n").expect("written");
            names.iter().for_each(|name| system.make_directory(&format!("{irq}/{name}")).expect("made"));
        }
        let rt = Cpus::from_list("2-3").expect("a list");
        let find = |wanted: &[&str]| -> Result<Vec<(u32, String)>, String> {
            let wanted: Vec<String> = wanted.iter().map(|text| (*text).to_owned()).collect();
            let found = find(&system, &rt, &wanted).map_err(|error| error.to_string())?;
            Ok(found.into_iter().map(|kept| (kept.irq, kept.cpus.to_string())).collect())
        };
        let on = |irq: u32, cpus: &str| (irq, cpus.to_owned());
        assert_eq!(find(&["eth0"]), Ok(vec![on(9, "2-3")]));
        assert_eq!(find(&["12"]), Ok(vec![on(12, "2-3")]));
        assert_eq!(find(&["eth0-rx-*@3", "9@2"]), Ok(vec![on(10, "3"), on(11, "3"), on(9, "2")]));
        assert_eq!(find(&["usb1"]), Ok(vec![on(10, "2-3")]));
        assert_eq!(find(&["mlx5_comp0@pci:0000:08:00.0"]), Ok(vec![on(13, "2-3")]));
        assert_eq!(find(&["mlx5_comp0@pci:0000:08:00.0@3"]), Ok(vec![on(13, "3")]));
        assert_eq!(find(&[]), Ok(vec![]));
        for (wrong, why) in [
            ("eth1", "there are: 9 eth0; 10 eth0-rx-0,usb1; 11 eth0-rx-1"),
            ("14", "no such interrupt"),
            ("eth0@1", "the shield has CPUs 2-3"),
            ("eth0@", "the shield has CPUs 2-3"),
            ("eth0@x", "is not a CPU"),
        ] {
            let said = find(&[wrong]).expect_err(wrong);
            assert!(said.contains(why) && said.contains(wrong), "{said}");
        }
    }
}
