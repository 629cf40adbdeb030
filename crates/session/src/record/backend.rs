// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where events of programs go: to the rings of their threads, to channels of a system trace module
//! ([ADR 0031](../../../../docs/adr/0031-events-go-to-channels-of-an-stm.md)), or to PTWRITE
//! ([ADR 0032](../../../../docs/adr/0032-events-go-to-ptwrite.md)). Words become a choice; the device and its policy are looked for
//! in sysfs and configfs.

use super::choice::ProcessChoice;
use super::settings::ProgramsSettings;
use crate::Failure;
use rtscope_programs::channels::{ChannelDevice, Channels, Destination, Ports};
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

/// One choice: `[PATTERN=]software`, `[PATTERN=]stm[:POLICY][,device=NAME][,ports=KIND][,or-software]`, or
/// `[PATTERN=]ptwrite[,or-software]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backend {
    /// A glob of `PROVIDER:EVENT`; `None`: all events that are recorded.
    pattern: Option<String>,
    /// `None`: the rings of threads.
    unit: Option<UnitChoice>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct UnitChoice {
    kind: UnitKind,
    or_ring: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum UnitKind {
    Stm(StmChoice),
    Ptwrite,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct StmChoice {
    policy: Option<String>,
    device: Option<String>,
    ports: Option<Ports>,
}

impl UnitKind {
    /// As people write it.
    fn name(&self) -> &'static str {
        match self {
            UnitKind::Stm(_) => "stm",
            UnitKind::Ptwrite => "ptwrite",
        }
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Backend, String> {
        let is_stm = |text: &str| text == "stm" || text.starts_with("stm:") || text.starts_with("stm,");
        let is_ptwrite = |text: &str| text == "ptwrite" || text.starts_with("ptwrite,");
        let is_kind = |text: &str| text == "software" || is_stm(text) || is_ptwrite(text);
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
            return Ok(Backend { pattern, unit: None });
        }
        if let Some(rest) = kind.strip_prefix("ptwrite").filter(|_| is_ptwrite(kind)) {
            let or_ring = match rest {
                "" => false,
                ",or-software" => true,
                _ => return Err(format!("'{kind}' is neither ptwrite nor ptwrite,or-software")),
            };
            return Ok(Backend { pattern, unit: Some(UnitChoice { kind: UnitKind::Ptwrite, or_ring }) });
        }
        let Some(rest) = kind.strip_prefix("stm").filter(|_| is_stm(kind)) else {
            return Err(format!("'{kind}' is none of software, stm[:POLICY], ptwrite"));
        };
        let mut parts = rest.split(',');
        let policy = parts.next().and_then(|first| first.strip_prefix(':'));
        let mut stm = StmChoice { policy: policy.map(str::to_string), ..StmChoice::default() };
        let mut or_ring = false;
        for part in parts {
            match part.split_once('=') {
                Some(("device", name)) => stm.device = Some(name.to_string()),
                Some(("ports", name)) => {
                    let known = PORTS.iter().find(|(kind, ..)| *kind == name);
                    let names = "ports= is coresight or intel-th";
                    stm.ports = Some(known.ok_or(names)?.2);
                }
                None if part == "or-software" => or_ring = true,
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
        Ok(Backend { pattern, unit: Some(UnitChoice { kind: UnitKind::Stm(stm), or_ring }) })
    }
}

/// What programs are told. `None`: all events go to rings. `root`: where the file systems are.
pub(super) fn channels(wanted: &ProgramsSettings, root: &Path) -> Result<Option<Channels>, Failure> {
    let units: Vec<&UnitChoice> =
        wanted.backends.iter().filter_map(|backend| backend.unit.as_ref()).collect();
    let Some(first) = units.first() else { return Ok(None) };
    if units.iter().any(|other| other != first) {
        return Err(Failure::Usage(
            "--backend: all events that go to hardware go to the same: PTWRITE, or one device by one policy, and with or-software or without it"
                .to_string(),
        ));
    }
    let name = first.kind.name();
    let untold = [
        ("conditions (PATTERN if CONDITION)", wanted.patterns.iter().any(|pattern| pattern.contains(" if "))),
        ("--level with a lower end", wanted.levels.from > 0),
        ("a choice of processes", wanted.processes != ProcessChoice::default()),
        ("--blocking", wanted.blocking),
    ];
    if let Some((what, _)) = untold.iter().find(|(_, is_asked)| *is_asked) {
        return Err(Failure::Usage(format!(
            "--backend {name}: {what} is for the recorder, and it does not see events that go to hardware; leave it out"
        )));
    }
    let patterns = wanted.backends.iter().map(|backend| {
        let pattern = backend.pattern.clone().unwrap_or_else(|| "*".to_string());
        (pattern, backend.unit.is_some())
    });
    let device = match &first.kind {
        UnitKind::Stm(stm) => {
            Destination::Stm(find(stm, root).map_err(|why| Failure::Usage(format!("--backend stm: {why}")))?)
        }
        UnitKind::Ptwrite => Destination::Ptwrite,
    };
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

    fn stm(text: &str) -> (StmChoice, bool) {
        match parse(text).unit {
            Some(UnitChoice { kind: UnitKind::Stm(stm), or_ring }) => (stm, or_ring),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn words_become_a_choice() {
        assert_eq!(parse("software"), Backend::default());
        let of =
            |policy: Option<&str>| StmChoice { policy: policy.map(str::to_string), ..StmChoice::default() };
        assert_eq!((parse("stm").pattern, stm("stm")), (None, (of(None), false)));
        assert_eq!(stm("stm:user"), (of(Some("user")), false));
        let all = "motor=stm:user,device=stm0,ports=intel-th,or-software";
        assert_eq!(parse(all).pattern.as_deref(), Some("motor:*"));
        let (choice, or_ring) = stm(all);
        assert_eq!(
            (choice.device.as_deref(), choice.ports, or_ring),
            (Some("stm0"), Some(Ports::INTEL_TH), true)
        );
        assert_eq!(stm("stm,ports=coresight").0.ports, Some(Ports::CORESIGHT));
        assert_eq!(parse("motor:slow*=software").pattern.as_deref(), Some("motor:slow*"));
        assert_eq!(parse("stm:x*=software").pattern.as_deref(), Some("stm:x*"));
        let ptwrite = |or_ring| Some(UnitChoice { kind: UnitKind::Ptwrite, or_ring });
        assert_eq!(parse("ptwrite"), Backend { pattern: None, unit: ptwrite(false) });
        let some = Backend { pattern: Some("motor:*".to_string()), unit: ptwrite(true) };
        assert_eq!(parse("motor=ptwrite,or-software"), some);
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
            "ptwrite:user",
            "ptwrite,device=stm0",
            "ptwrite,",
            "ptwrites",
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
        let device_of = |channels: &Channels| match &channels.device {
            Destination::Stm(device) => device.clone(),
            Destination::Ptwrite => panic!("{channels:?}"),
        };
        let channels = found(one, &["stm", "motor:slow=software"]).expect("all is there");
        let device = device_of(&channels);
        assert_eq!((device.name.as_str(), device.policy.as_str()), ("stm0", "user"));
        assert_eq!(device.ports, Ports::CORESIGHT);
        assert!(channels.takes("motor:fast") && !channels.takes("motor:slow"));
        let two: &[Device<'_>] =
            &[("stm0", Some(("p_basic.x", &["a", "default"]))), ("stm1", Some(("p_basic.y", &["b"])))];
        let policy = |words: &[&str]| device_of(&found(two, words).expect("there")).policy;
        assert_eq!(policy(&["stm,device=stm0"]), "default");
        assert_eq!(policy(&["stm:a,device=stm0"]), "a");
        // There is no device to look for.
        let channels = found(&[], &["ptwrite,or-software", "motor:slow=software"]).expect("all is there");
        assert_eq!((&channels.device, channels.or_ring), (&Destination::Ptwrite, true));
        assert!(channels.takes("motor:fast") && !channels.takes("motor:slow"));
        let refused = |devices, words: &[&str], why: &str| {
            let said = found(devices, words).expect_err("it cannot be");
            assert!(said.contains(why), "{said}");
        };
        refused(two, &["stm"], "which device?");
        refused(two, &["stm,device=stm7"], "there is no device stm7, but: stm0, stm1");
        refused(two, &["stm:c,device=stm0"], "has no c, but: a, default");
        refused(one, &["stm", "x:*=stm:user"], "go to the same");
        refused(one, &["stm", "x:*=ptwrite"], "go to the same");
        refused(&[], &["stm"], "no system trace module");
        refused(&[("stm0", None), ("stm1", Some(("p", &["n"])))], &["stm,device=stm0"], "stm0 has no policy");
    }
}
