// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to block devices: from the moment at which the driver got one to its completion.
//!
//! A completion says where the completed part begins, so a request that completes in parts is followed from part to part, and ends with the
//! last. The task is the one that gave the request to the driver; of data that a program has only written to the page cache that is a
//! kernel thread. Devices have the names of the state dump, or those that the caller knows, or their numbers.

use super::super::happening::Happenings;
use super::super::{Missing, Span};
use super::by_class::ByClass;
use super::collected::{Collected, Found};
use super::{Head, LatencyReport, Measure, Seen};
use crate::pairing::Pending;
use rtscope_event::{CpuId, EventClass, Value, Values};
use std::collections::BTreeMap;

/// Names of devices by their numbers, as the kernel has these (`dev_t`).
pub type DeviceNames = BTreeMap<u64, String>;

const DUMP: &str = "lttng_statedump_block_device";

/// What a request does.
const OPERATIONS: [&str; 5] = ["other", "read", "write", "discard", "flush"];
const OTHER: u64 = 0;
const READ: u64 = 1;
const WRITE: u64 = 2;
const DISCARD: u64 = 3;
const FLUSH: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Issue,
    /// It goes back to the queue, and is issued again.
    Requeue,
    Complete,
    Dump,
}

#[derive(Clone, Copy, Debug)]
struct Role {
    kind: Kind,
    dev: Option<usize>,
    sector: Option<usize>,
    sectors: Option<usize>,
    rwbs: Option<usize>,
    name: Option<usize>,
}

fn kind(class: &EventClass) -> Option<Kind> {
    // perf has the subsystem before the name.
    match class.name.strip_prefix("block:").unwrap_or(&class.name) {
        "block_rq_issue" => Some(Kind::Issue),
        "block_rq_requeue" => Some(Kind::Requeue),
        "block_rq_complete" => Some(Kind::Complete),
        DUMP => Some(Kind::Dump),
        _ => None,
    }
}

fn role(class: &EventClass) -> Option<Role> {
    let kind = kind(class)?;
    let field = |name| class.field(name);
    Some(Role {
        kind,
        dev: field("dev"),
        sector: field("sector"),
        sectors: field("nr_sector"),
        rwbs: field("rwbs"),
        name: field("diskname"),
    })
}

/// Whether a class is about requests or devices.
pub(super) fn is_request(class: &EventClass) -> bool {
    kind(class).is_some()
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    found: Found,
    sectors: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Block {
    collected: Collected,
    roles: ByClass<Option<Role>>,
    /// By device and first sector.
    begun: Pending<(u64, u64), Begun>,
    names: DeviceNames,
}

impl Block {
    pub(super) fn new(collected: Collected, names: &DeviceNames) -> Block {
        Block { collected, roles: ByClass::default(), begun: Pending::default(), names: names.clone() }
    }

    fn complete(&mut self, key: (u64, u64), sectors: u64, here: Found) {
        match self.begun.end(&key) {
            Some(begun) if (1..begun.sectors).contains(&sectors) => {
                let rest = Begun { sectors: begun.sectors - sectors, ..begun };
                if let Some(other) = self.begun.begin((key.0, key.1.wrapping_add(sectors)), rest) {
                    self.collected.no_end(&other.found);
                }
            }
            Some(Begun { found: begun, .. }) => self.collected.add(Found {
                until_ns: here.until_ns,
                cpu: here.cpu,
                asked: begun.asked.and(here.asked),
                ..begun
            }),
            None => self.collected.no_begin(&here),
        }
    }
}

/// What a request does: LTTng's mask, or the kernel's letters.
fn operation(values: &Values<'_>, place: Option<usize>) -> u64 {
    const MASK: [(u64, u64); 4] = [(1 << 0, WRITE), (1 << 1, DISCARD), (1 << 2, READ), (1 << 8, FLUSH)];
    match place.map(|place| values.get(place)) {
        Some(Value::Unsigned(mask)) => by_mask(mask, &MASK),
        Some(Value::Signed(mask)) => by_mask(mask.unsigned_abs(), &MASK),
        Some(Value::Bytes(letters)) => letters
            .iter()
            .find_map(|letter| by_letter(*letter))
            .unwrap_or(if letters.contains(&b'F') { FLUSH } else { OTHER }),
        _ => OTHER,
    }
}

fn by_mask(mask: u64, all: &[(u64, u64)]) -> u64 {
    all.iter().find(|(bit, _)| mask & bit != 0).map_or(OTHER, |(_, operation)| *operation)
}

fn by_letter(letter: u8) -> Option<u64> {
    match letter {
        b'R' => Some(READ),
        b'W' => Some(WRITE),
        b'D' => Some(DISCARD),
        _ => None,
    }
}

impl Measure for Block {
    fn event(&mut self, seen: &Seen<'_>) {
        let Some(Some(role)) = self.roles.of(seen.event, role).copied() else { return };
        let values = &seen.event.values;
        let number = |place: Option<usize>| u64::try_from(values.integer(place?)?).ok();
        let Some(dev) = number(role.dev) else { return };
        if role.kind == Kind::Dump {
            let name = role.name.and_then(|place| values.bytes(place));
            if let Some(name) = name.filter(|name| !name.is_empty()) {
                self.names.insert(dev, String::from_utf8_lossy(name).into_owned());
            }
            return;
        }
        let Some(sector) = number(role.sector) else { return };
        let sectors = number(role.sectors).unwrap_or(0);
        let now_ns = seen.event.time_ns;
        let here = Found {
            row: Some(dev << 8 | operation(values, role.rwbs)),
            since_ns: now_ns,
            until_ns: now_ns,
            thread: seen.thread,
            cpu: seen.event.cpu,
            asked: seen.asked,
        };
        match role.kind {
            Kind::Issue => {
                if let Some(before) = self.begun.begin((dev, sector), Begun { found: here, sectors }) {
                    self.collected.begun_again(&before.found);
                }
            }
            Kind::Requeue => {
                if let Some(before) = self.begun.end(&(dev, sector)) {
                    self.collected.begun_again(&before.found);
                }
            }
            // What asked for a flush ends once more after it, and was never given to the driver itself.
            Kind::Complete if (sector, sectors) == (u64::MAX, 0) => {}
            Kind::Complete => self.complete((dev, sector), sectors, here),
            Kind::Dump => {}
        }
    }

    fn lost(&mut self, _: Option<CpuId>, of_program: bool) {
        if !of_program {
            self.begun.take_all().for_each(|begun| self.collected.lost(&begun.found));
        }
    }

    fn reports(mut self: Box<Self>, _: &Happenings, of: (Span, &Missing)) -> Vec<LatencyReport> {
        self.begun.values().for_each(|begun| self.collected.no_end(&begun.found));
        let name = |row: u64| {
            let (dev, operation) = (row >> 8, row & 0xff);
            let device = self.names.get(&dev).cloned();
            // The kernel has 20 bits for the minor number.
            let device = device.unwrap_or_else(|| format!("{}:{}", dev >> 20, dev & 0xf_ffff));
            let operation =
                usize::try_from(operation).ok().and_then(|place| OPERATIONS.get(place)).unwrap_or(&"");
            (dev, format!("{device} {operation}"))
        };
        let parts = self.collected.report(self.begun.forgotten, &name);
        let head = Head::new("block", "block_rq_issue", "block_rq_complete", "device");
        vec![Head { tasks_are: "task that gave it to the driver", ..head }.report(parts, of)]
    }

    fn boxed(&self) -> Box<dyn Measure> {
        Box::new(self.clone())
    }
}
