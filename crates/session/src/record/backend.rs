// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where events of programs go: to the rings of their threads, or to channels of a system trace module
//! ([ADR 0031](../../../../docs/adr/0031-events-go-to-channels-of-an-stm.md)). Words become a choice; the device and its policy are looked for
//! in sysfs and configfs.

use super::choice::ProcessChoice;
use super::settings::ProgramsSettings;
use crate::Failure;
use rtscope_programs::channels::{ChannelDevice, Channels, Ports};
use std::fs;
use std::path::Path;
use std::str::FromStr;

/// Devices that the kernel's class has.
const CLASS: &str = "sys/class/stm";
/// Their policies: directories DEVICE:PROTOCOL.POLICY, with a directory for each name.
const POLICIES: &str = "sys/kernel/config/stp-policy";
/// Which driver's channels look like what.
const PORTS: [(&str, &str, Ports); 2] =
    [("coresight", "coresight-stm", Ports::CORESIGHT), ("intel-th", "sth", Ports::INTEL_TH)];
/// Room in a session, and in what a program keeps of it.
const POLICY_BYTES_MAX: usize = 100;
const NAME_BYTES_MAX: usize = 50;

/// One choice: `[PATTERN=]software`, or `[PATTERN=]stm[:POLICY][,device=NAME][,ports=KIND][,or-software]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backend {
    /// A glob of `PROVIDER:EVENT`; `None`: all events that are recorded.
    pattern: Option<String>,
    /// `None`: the rings of threads.
    stm: Option<StmChoice>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct StmChoice {
    policy: Option<String>,
    device: Option<String>,
    ports: Option<Ports>,
    or_ring: bool,
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Backend, String> {
        let is_kind = |text: &str| {
            text == "software" || text == "stm" || text.starts_with("stm:") || text.starts_with("stm,")
        };
        let (pattern, kind) = match text.split_once('=') {
            Some((pattern, kind)) if !is_kind(text) || is_kind(kind) => (Some(pattern), kind),
            _ => (None, text),
        };
        if let Some(pattern) = pattern {
            let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '*' | '?' | ':');
            if pattern.is_empty() || !pattern.chars().all(legal) {
                return Err(format!("'{pattern}' is no PROVIDER:EVENT; * and ? stand for any"));
            }
        }
        let pattern = pattern.map(|pattern| match pattern.contains(':') || pattern == "*" {
            true => pattern.to_string(),
            false => format!("{pattern}:*"),
        });
        if kind == "software" {
            return Ok(Backend { pattern, stm: None });
        }
        let Some(rest) = kind.strip_prefix("stm").filter(|_| is_kind(kind)) else {
            return Err(format!("'{kind}' is neither software nor stm[:POLICY]"));
        };
        let mut parts = rest.split(',');
        let policy = parts.next().and_then(|first| first.strip_prefix(':'));
        let mut stm = StmChoice { policy: policy.map(str::to_string), ..StmChoice::default() };
        for part in parts {
            match part.split_once('=') {
                Some(("device", name)) => stm.device = Some(name.to_string()),
                Some(("ports", name)) => {
                    let known = PORTS.iter().find(|(kind, ..)| *kind == name);
                    let names = "ports= is coresight or intel-th";
                    stm.ports = Some(known.ok_or(names)?.2);
                }
                None if part == "or-software" => stm.or_ring = true,
                _ => return Err(format!("'{part}' is none of device=NAME, ports=KIND, or-software")),
            }
        }
        let names = [(&stm.policy, POLICY_BYTES_MAX), (&stm.device, NAME_BYTES_MAX)];
        for (name, most) in names.iter().filter_map(|(name, most)| Some((name.as_deref()?, *most))) {
            let legal = |c: char| c.is_ascii_graphic() && c != '/' && c != ',';
            if name.is_empty() || name.len() > most || !name.chars().all(legal) {
                return Err(format!("'{name}' is no name of a device or of a directory in a policy"));
            }
        }
        Ok(Backend { pattern, stm: Some(stm) })
    }
}

/// What programs are told. `None`: all events go to rings. `root`: where the file systems are.
pub(super) fn channels(wanted: &ProgramsSettings, root: &Path) -> Result<Option<Channels>, Failure> {
    let stm: Vec<&StmChoice> = wanted.backends.iter().filter_map(|backend| backend.stm.as_ref()).collect();
    let Some(first) = stm.first() else { return Ok(None) };
    if stm.iter().any(|other| other != first) {
        return Err(Failure::Usage(
            "--backend: all events that go to an STM go to the same device, by the same policy".to_string(),
        ));
    }
    let untold = [
        ("conditions (PATTERN if CONDITION)", wanted.patterns.iter().any(|pattern| pattern.contains(" if "))),
        ("--level with a lower end", wanted.levels.from > 0),
        ("a choice of processes", wanted.processes != ProcessChoice::default()),
        ("--blocking", wanted.blocking),
    ];
    if let Some((what, _)) = untold.iter().find(|(_, is_asked)| *is_asked) {
        return Err(Failure::Usage(format!(
            "--backend stm: {what} is for the recorder, and it does not see events that go to an STM; leave it out"
        )));
    }
    let patterns = wanted.backends.iter().map(|backend| {
        let pattern = backend.pattern.clone().unwrap_or_else(|| "*".to_string());
        (pattern, backend.stm.is_some())
    });
    let device = find(first, root).map_err(|why| Failure::Usage(format!("--backend stm: {why}")))?;
    Ok(Some(Channels { device, patterns: patterns.collect(), or_ring: first.or_ring }))
}

/// Names of a directory; none where it cannot be read.
fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The device, and who the programs say they are. `Err`: what is missing, and what to do.
fn find(choice: &StmChoice, root: &Path) -> Result<ChannelDevice, String> {
    let devices = names(&root.join(CLASS));
    let listed = || if devices.is_empty() { "none".to_string() } else { devices.join(", ") };
    let policies = names(&root.join(POLICIES));
    let policy_of = |device: &str| {
        policies.iter().find(|name| {
            name.split([':', '.']).next() == Some(device) || name.starts_with(&format!("{device}:"))
        })
    };
    let candidates: Vec<&String> = match &choice.device {
        Some(name) => devices.iter().filter(|device| *device == name).collect(),
        None => devices.iter().filter(|device| devices.len() == 1 || policy_of(device).is_some()).collect(),
    };
    let device = match candidates.as_slice() {
        [one] => (*one).clone(),
        [] if devices.is_empty() => {
            return Err(format!(
                "there is no system trace module (/{CLASS}): rtscope hardware says what this machine has"
            ));
        }
        [] => {
            return Err(match &choice.device {
                Some(name) => format!("there is no device {name}, but: {}", listed()),
                None => format!(
                    "none of the devices ({}) has a policy; device=NAME names one, or make one: mkdir /{POLICIES}/DEVICE:p_basic.NAME",
                    listed()
                ),
            });
        }
        _ => return Err(format!("which device? device=NAME names one of: {}", listed())),
    };
    if device.len() > NAME_BYTES_MAX || device.contains(' ') {
        return Err(format!("programs cannot be told of a device with the name '{device}'"));
    }
    let ports = match choice.ports {
        Some(ports) => ports,
        None => {
            let link = fs::read_link(root.join(CLASS).join(&device).join("device/driver")).ok();
            let driver = link.as_ref().and_then(|link| link.file_name()?.to_str());
            let known = PORTS.iter().find(|(_, name, _)| Some(*name) == driver);
            known.map(|(.., ports)| *ports).ok_or_else(|| {
                format!(
                    "what channels of {device} look like is not known (its driver is {}); ports=coresight or ports=intel-th says it",
                    driver.unwrap_or("unknown")
                )
            })?
        }
    };
    let policy = policy(choice, &device, policy_of(&device), root)?;
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4096);
    let map_bytes = u32::try_from(page).unwrap_or(4096);
    Ok(ChannelDevice { name: device, policy, ports, map_bytes })
}

/// The name in the policy. Where the policy cannot be read, programs find out.
fn policy(choice: &StmChoice, device: &str, policy: Option<&String>, root: &Path) -> Result<String, String> {
    let Some(directory) = policy else {
        return match (&choice.policy, root.join(POLICIES).is_dir()) {
            (_, true) => Err(format!(
                "{device} has no policy, so nobody gets channels: mkdir -p /{POLICIES}/{device}:p_basic.NAME/user; masters and channels are files in it"
            )),
            (Some(name), false) => Ok(name.clone()),
            (None, false) => Ok("default".to_string()),
        };
    };
    let nodes: Vec<String> = names(&root.join(POLICIES).join(directory))
        .into_iter()
        .filter(|name| root.join(POLICIES).join(directory).join(name).is_dir())
        .collect();
    match (&choice.policy, nodes.as_slice()) {
        (Some(name), nodes) if nodes.contains(name) => Ok(name.clone()),
        (None, [one]) => Ok(one.clone()),
        (None, nodes) if nodes.iter().any(|name| name == "default") => Ok("default".to_string()),
        (Some(name), nodes) => Err(format!("{directory} has no {name}, but: {}", nodes.join(", "))),
        (None, nodes) => Err(format!("which policy? stm:POLICY is one of {directory}: {}", nodes.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn parse(text: &str) -> Backend {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn words_become_a_choice() {
        assert_eq!(parse("software"), Backend::default());
        let stm =
            |policy: Option<&str>| StmChoice { policy: policy.map(str::to_string), ..StmChoice::default() };
        assert_eq!(parse("stm"), Backend { pattern: None, stm: Some(stm(None)) });
        assert_eq!(parse("stm:user"), Backend { pattern: None, stm: Some(stm(Some("user"))) });
        let all = parse("motor=stm:user,device=stm0,ports=intel-th,or-software");
        assert_eq!(all.pattern.as_deref(), Some("motor:*"));
        let stm = all.stm.expect("it goes there");
        assert_eq!(
            (stm.device.as_deref(), stm.ports, stm.or_ring),
            (Some("stm0"), Some(Ports::INTEL_TH), true)
        );
        assert_eq!(parse("stm,ports=coresight").stm.expect("it goes there").ports, Some(Ports::CORESIGHT));
        assert_eq!(parse("motor:slow*=software").pattern.as_deref(), Some("motor:slow*"));
        assert_eq!(parse("stm:x*=software").pattern.as_deref(), Some("stm:x*"));
        for wrong in [
            "",
            "hardware",
            "stm:",
            "stm:a b",
            "stm:a/b",
            "stm,ports=x",
            "stm,device=",
            "a b=stm",
            "=stm",
            "stmx",
        ] {
            assert!(wrong.parse::<Backend>().is_err(), "{wrong}");
        }
    }

    /// A device, and its policy with the names in it, if it has one.
    type Device<'d> = (&'d str, Option<(&'d str, &'d [&'d str])>);

    /// A machine with these devices.
    fn machine(devices: &[Device<'_>]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (device, policy) in devices {
            let place = root.path().join(CLASS).join(device).join("device");
            fs::create_dir_all(&place).expect("ours");
            symlink("../../bus/amba/drivers/coresight-stm", place.join("driver")).expect("ours");
            if let Some((policy, nodes)) = policy {
                for node in *nodes {
                    let path = root.path().join(POLICIES).join(format!("{device}:{policy}")).join(node);
                    fs::create_dir_all(path).expect("ours");
                }
            }
        }
        root
    }

    fn found(devices: &[Device<'_>], words: &[&str]) -> Result<Channels, String> {
        let root = machine(devices);
        let backends = words.iter().map(|word| parse(word)).collect();
        let wanted = ProgramsSettings { backends, ..ProgramsSettings::default() };
        let found = channels(&wanted, root.path());
        found.map(|channels| channels.expect("one is asked for")).map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_device_and_its_policy_are_found_or_what_is_missing_is_said() {
        let one: &[Device<'_>] = &[("stm0", Some(("p_basic.x", &["user"])))];
        let channels = found(one, &["stm", "motor:slow=software"]).expect("all is there");
        assert_eq!((channels.device.name.as_str(), channels.device.policy.as_str()), ("stm0", "user"));
        assert_eq!(channels.device.ports, Ports::CORESIGHT);
        assert!(channels.takes("motor:fast") && !channels.takes("motor:slow"));
        let two: &[Device<'_>] =
            &[("stm0", Some(("p_basic.x", &["a", "default"]))), ("stm1", Some(("p_basic.y", &["b"])))];
        assert_eq!(found(two, &["stm,device=stm0"]).expect("there").device.policy, "default");
        assert_eq!(found(two, &["stm:a,device=stm0"]).expect("there").device.policy, "a");
        let refused = |devices, words: &[&str], why: &str| {
            let said = found(devices, words).expect_err("it cannot be");
            assert!(said.contains(why), "{said}");
        };
        refused(two, &["stm"], "which device?");
        refused(two, &["stm,device=stm7"], "there is no device stm7, but: stm0, stm1");
        refused(two, &["stm:c,device=stm0"], "has no c, but: a, default");
        refused(one, &["stm", "x:*=stm:user"], "the same device");
        refused(&[], &["stm"], "no system trace module");
        refused(&[("stm0", None), ("stm1", Some(("p", &["n"])))], &["stm,device=stm0"], "stm0 has no policy");
    }
}
