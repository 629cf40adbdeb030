// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of block devices, which traces have by number.
//!
//! A trace of this boot of this machine is about the devices that are there now; of any other nothing is known but what it says itself.

use rtscope_ctf::TraceSet;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Names by the kernel's numbers (`dev_t`: 20 bits for the minor).
pub type DeviceNames = BTreeMap<u64, String>;

/// Of the traces of a set, if one of them was made since this machine was started.
#[must_use]
pub fn names_of(set: &TraceSet) -> DeviceNames {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let of_this_boot = |trace: &rtscope_ctf::OpenTrace| {
        let mut clocks = trace.clocks().iter().filter_map(|clock| clock.uuid);
        clocks.any(|uuid| uuid.to_string() == boot.trim())
    };
    if set.traces.iter().any(of_this_boot) { names() } else { DeviceNames::new() }
}

/// Of this machine, now.
#[must_use]
pub fn names() -> DeviceNames {
    read(Path::new("/sys/dev/block"))
}

/// Of one, now; it may be gone.
#[must_use]
pub fn name(major: u32, minor: u32) -> Option<String> {
    target_name(&Path::new("/sys/dev/block").join(format!("{major}:{minor}")))
}

/// The disk that this device is a part of, or itself, by the kernel's number (`dev_t`). What is no block device stays what it is.
#[must_use]
pub fn disk_of(dev: u32) -> u32 {
    let link = Path::new("/sys/dev/block").join(format!("{}:{}", dev >> 20, dev & 0xf_ffff));
    if !link.join("partition").exists() {
        return dev;
    }
    let above = fs::read_to_string(link.join("../dev")).unwrap_or_default();
    let number = above.trim().split_once(':');
    let number =
        number.and_then(|(major, minor)| Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?));
    number.unwrap_or(dev)
}

/// The name of the device's directory. A slash in the name is an exclamation mark there.
fn target_name(link: &Path) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_str()?.replace('!', "/"))
}

/// Each entry is `major:minor`, and leads to the device's directory.
fn read(directory: &Path) -> DeviceNames {
    let Ok(entries) = fs::read_dir(directory) else { return DeviceNames::new() };
    let name = |entry: fs::DirEntry| {
        let number = entry.file_name().into_string().ok()?;
        let (major, minor) = number.split_once(':')?;
        let number = major.parse::<u64>().ok()? << 20 | minor.parse::<u64>().ok()?;
        Some((number, target_name(&entry.path())?))
    };
    entries.filter_map(|entry| name(entry.ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn devices_have_the_names_of_their_directories() {
        let root = tempfile::tempdir().unwrap();
        for (number, target) in [
            ("8:1", "../../devices/pci0/block/sda/sda1"),
            ("72:0", "../../devices/cciss!c0d0"),
            ("odd", "../x"),
        ] {
            symlink(target, root.path().join(number)).unwrap();
        }
        let names = read(root.path());
        let expected = [(8 << 20 | 1, "sda1".to_owned()), (72 << 20, "cciss/c0d0".to_owned())];
        assert_eq!(names, expected.into());
        assert!(read(Path::new("/nonexistent")).is_empty());
    }
}
