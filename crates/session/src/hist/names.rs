// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the numbers in keys are called, on this machine and now. Texts of others are as they were found.

use super::HistKey;
use crate::devices;
use crate::watch::CallNames;
use rtscope_abi as abi;
use rtscope_analyze::keyed::Key;
use rtscope_event::{
    BlockOperation, BlockRequest, Comm, OriginKind, Tracker, softirq_name, step_vector_name,
};
use rtscope_kernel::interrupts;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Directories that are looked at for a cgroup's name.
const CGROUPS_MOST: usize = 20_000;

/// Names, each looked up once where that costs something.
#[derive(Debug, Default)]
pub(crate) struct KeyNames {
    calls: CallNames,
    irqs: HashMap<u32, String>,
    cgroups: HashMap<u32, String>,
    file_systems: HashMap<u32, Option<String>>,
}

impl KeyNames {
    pub(crate) fn new() -> KeyNames {
        KeyNames { calls: CallNames::new(), ..KeyNames::default() }
    }

    /// The name of a key. `tasks`: those that the kernel side has noted.
    pub(crate) fn name(
        &mut self,
        (tracker, by): (Tracker, HistKey),
        key: Key,
        tasks: &BTreeMap<u32, Comm>,
    ) -> String {
        match by {
            HistKey::Task | HistKey::Process => match tasks.get(&key.id) {
                _ if key.id == 0 => "idle".to_owned(),
                Some(comm) => format!("{comm} ({})", key.id),
                None => format!("({})", key.id),
            },
            HistKey::Cpu => format!("CPU {}", key.id),
            HistKey::Field => key.id.to_string(),
            HistKey::Interrupt => self.interrupt(key),
            HistKey::Softirq => softirq_name(key.id).to_owned(),
            // Of a lock that a thread of the kernel or an interrupt waits for, or a page fault.
            HistKey::Syscall if key.id >= abi::RTS_SYSCALLS => "no system call".to_owned(),
            HistKey::Syscall => self.call(key.id),
            HistKey::Device => self.device(key.id),
            HistKey::Cgroup => self.cgroup(key.id),
            HistKey::Operation if tracker == Tracker::Block => {
                BlockOperation::of(u64::from(key.kind), u64::MAX).words().to_owned()
            }
            HistKey::Operation => self.call(key.kind.into()),
        }
    }

    pub(crate) fn call(&mut self, number: u32) -> String {
        self.calls.name(number).unwrap_or_else(|| format!("call {number}"))
    }

    fn interrupt(&mut self, key: Key) -> String {
        let kind = OriginKind::from_number(key.kind as u8);
        match kind {
            Some(OriginKind::Vector) => step_vector_name(key.id).to_owned(),
            Some(OriginKind::Timer) => "timer".to_owned(),
            Some(OriginKind::Task) => format!("task {}", key.id),
            Some(OriginKind::Softirq) => format!("softirq {}", softirq_name(key.id)),
            _ => {
                if self.irqs.is_empty() {
                    self.irqs = interrupts().into_iter().map(|(irq, name)| (irq.0, name)).collect();
                }
                match self.irqs.get(&key.id) {
                    Some(name) => format!("{name} (irq {})", key.id),
                    None => format!("irq {}", key.id),
                }
            }
        }
    }

    fn device(&mut self, dev: u32) -> String {
        if dev == 0 {
            return "no file".to_owned();
        }
        let (major, minor) = BlockRequest::numbers(dev.into());
        // Pipes, sockets, /proc and the like are on devices without a disk, which the kernel calls by the major number 0.
        let found = devices::name(major, minor).or_else(|| self.file_system(dev));
        found.unwrap_or_else(|| format!("{major}:{minor}"))
    }

    fn file_system(&mut self, dev: u32) -> Option<String> {
        if !self.file_systems.contains_key(&dev) {
            let now = mounted(&mount_list());
            self.file_systems.extend(now.into_iter().map(|(dev, place)| (dev, Some(place))));
        }
        // One that is not mounted here is not looked for again.
        self.file_systems.entry(dev).or_default().clone()
    }

    fn cgroup(&mut self, id: u32) -> String {
        if id == 0 {
            return "unknown".to_owned();
        }
        if !self.cgroups.contains_key(&id) {
            self.cgroups.extend(cgroups());
        }
        // One that is gone is not looked for again: a look is at thousands of directories.
        self.cgroups.entry(id).or_insert_with(|| format!("cgroup {id}")).clone()
    }
}

/// What is mounted here. A user's FUSE file system may be among it, in a place whose name is not text.
fn mount_list() -> String {
    String::from_utf8_lossy(&fs::read("/proc/self/mountinfo").unwrap_or_default()).into_owned()
}

/// File systems by device, with the first place where each is mounted.
fn mounted(text: &str) -> HashMap<u32, String> {
    let mut found = HashMap::new();
    for line in text.lines() {
        let (head, tail) = line.split_once(" - ").unwrap_or((line, ""));
        let words: Vec<&str> = head.split(' ').collect();
        let numbers = words.get(2).and_then(|dev| dev.split_once(':'));
        let Some((major, minor)) =
            numbers.and_then(|(a, b)| Some((a.parse::<u32>().ok()?, b.parse::<u32>().ok()?)))
        else {
            continue;
        };
        let kind = tail.split(' ').next().unwrap_or_default();
        let place = words.get(4).copied().unwrap_or_default();
        found.entry(major << 20 | minor).or_insert_with(|| format!("{kind} {place}"));
    }
    found
}

/// The cgroups of the default hierarchy, by the number of their directory, which is their id.
fn cgroups() -> HashMap<u32, String> {
    let text = mount_list();
    let line = text.lines().find(|line| line.contains(" - cgroup2 "));
    let Some(root) = line.and_then(|line| line.split(' ').nth(4)).map(Path::new) else {
        return HashMap::new();
    };
    let mut found = HashMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        let Ok(inode) = directory.metadata().map(|data| data.ino()) else { continue };
        let name = directory.strip_prefix(root).map(|path| format!("/{}", path.display()));
        if let (Ok(id), Ok(name)) = (u32::try_from(inode), name) {
            found.insert(id, name);
        }
        let below = fs::read_dir(&directory).into_iter().flatten().flatten();
        let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let room = CGROUPS_MOST.saturating_sub(found.len() + open.len());
        open.extend(below.map(|entry| entry.path()).take(room));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_have_their_kind_and_their_first_place() {
        let text = "22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 0:26 / /dev/shm rw,nosuid shared:3 - tmpfs tmpfs rw\n31 22 0:26 / /mnt rw - tmpfs tmpfs rw\nodd\n";
        let found = mounted(text);
        assert_eq!(found[&26], "tmpfs /dev/shm");
        assert_eq!((found[&(254 << 20)].as_str(), found.len()), ("ext4 /", 2));
    }

    #[test]
    fn tasks_have_the_names_that_the_kernel_noted() {
        let tasks = BTreeMap::from([(7, Comm::from_bytes(b"fio"))]);
        let name =
            |id| KeyNames::default().name((Tracker::Wakeup, HistKey::Task), Key { id, kind: 0 }, &tasks);
        assert_eq!([name(7), name(8), name(0)], ["fio (7)", "(8)", "idle"]);
    }
}
