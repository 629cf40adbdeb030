// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which CPUs the machine has, and which of them somebody keeps free of ordinary work.

use crate::Cpus;
use std::fs;
use std::path::Path;

/// The CPUs of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Those that run.
    pub online: Cpus,
    /// Those that are isolated: at boot (`isolcpus`, `nohz_full`), or by a cpuset partition.
    pub isolated: Cpus,
}

impl Machine {
    /// This one, now.
    #[must_use]
    pub fn read() -> Machine {
        Machine::read_below(Path::new("/"))
    }

    /// As its files below this directory say. A kernel that lacks one isolates nothing in that way.
    fn read_below(root: &Path) -> Machine {
        let list = |path: &str| {
            let text = fs::read_to_string(root.join(path)).unwrap_or_default();
            // "(null)" is what some kernels write for no CPU at all.
            Cpus::from_list(&text).unwrap_or_default()
        };
        let cpu = "sys/devices/system/cpu";
        // Partitions of cgroups, since Linux 6.8; the mount of a hybrid hierarchy is the second.
        let partitions = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];
        let isolated = [format!("{cpu}/isolated"), format!("{cpu}/nohz_full")]
            .into_iter()
            .chain(partitions.map(|mount| format!("{mount}/cpuset.cpus.isolated")))
            .map(|path| list(&path))
            .fold(Cpus::default(), |all, some| all.and(&some));
        Machine { online: list(&format!("{cpu}/online")), isolated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn isolated_cpus_are_those_of_the_boot_and_of_partitions() {
        let root = std::env::temp_dir().join(format!("rtscope-cpus-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("ours");
            fs::write(path, text).expect("ours");
        };
        write("sys/devices/system/cpu/online", "0-7\n");
        write("sys/devices/system/cpu/isolated", "\n");
        write("sys/devices/system/cpu/nohz_full", "  (null)\n");
        let of = |list: &str| Cpus::from_list(list).expect(list);
        assert_eq!(Machine::read_below(&root), Machine { online: of("0-7"), isolated: of("") });
        write("sys/devices/system/cpu/isolated", "6\n");
        write("sys/devices/system/cpu/nohz_full", "6-7\n");
        write("sys/fs/cgroup/cpuset.cpus.isolated", "2-3\n");
        assert_eq!(Machine::read_below(&root).isolated, of("2-3,6-7"));
        fs::remove_dir_all(&root).expect("ours");
    }

    #[test]
    fn this_machine_has_a_cpu() {
        assert!(!Machine::read().online.is_empty());
    }
}
